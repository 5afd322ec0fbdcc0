"""Condense passes that come from other stores, with what they took out here.

The record of a pass carries a note that names it, and the pass whose condensed text it
began from. Two stores that condense a slot apart from each other so make two passes
behind one: both summaries stand, which is noted, and the next pass merges them. A state
brings no passes: what they took out is not in it.
"""

import itertools
import json
import re
from bisect import bisect_left, bisect_right
from typing import NamedTuple, TypeGuard

import apsw

from crdtmem.doc.delta import Delta, decode_delta
from crdtmem.limits import NOTE_BYTES
from crdtmem.store.archives import ArchivePart, read_archive
from crdtmem.store.events import add_event
from crdtmem.store.log import targets_of
from crdtmem.store.passes import (
    PassRow,
    add_remote_pass,
    end_pass,
    find_pass,
    mark_pass_of_write,
)
from crdtmem.store.pins import drop_pin
from crdtmem.store.rows import LogRow, SlotRow, read_targets
from crdtmem.store.write import Transaction

__all__ = [
    "PASS_PATTERN",
    "PassNote",
    "condense_note",
    "mark_undone_passes",
    "note_duplicates",
    "parts_of_pass",
    "read_condense_note",
    "take_pass",
]

PASS_PATTERN = r"cp_[a-z2-7]{16}"

HEADING = re.compile(r"^##[ \t].*", re.MULTILINE)
CONDENSED = re.compile(r"##[ \t]+(?:🗜 )?Condensed history[ \t\r]*")


class PassNote(NamedTuple):
    """What the record of a pass says of it.

    Attributes:
        pass_id: Its id.
        after: The pass whose condensed text it began from; None for the first.

    """

    pass_id: str
    after: str | None


def condense_note(pass_id: str, after: str | None) -> str:
    """Return the note of a pass's record."""
    return json.dumps({"pass": pass_id, "after": after}, separators=(",", ":"))


def read_condense_note(operation: str, note: str | None) -> PassNote | None:
    """Return which pass a write is of, or None where it does not say so.

    Never raises: the note is a hint from another store, and one that cannot be read
    makes its write an ordinary one. Other members of the note don't matter.
    """
    if operation != "condense" or note is None:
        return None
    if len(note.encode(errors="replace")) > NOTE_BYTES:
        return None
    try:
        value = json.loads(note)
    except (ValueError, RecursionError):
        return None
    if not isinstance(value, dict) or "after" not in value:
        return None
    pass_id, after = value.get("pass"), value["after"]
    if not _is_id(pass_id) or not (after is None or _is_id(after)) or after == pass_id:
        return None
    return PassNote(pass_id, after)


def take_pass(transaction: Transaction, slot: SlotRow, row: LogRow, file: str) -> None:
    """Keep what a pass's record removed, under the id of the pass.

    A pass of this store that has ended otherwise here, or not yet, was committed by
    another copy of the store, and counts as that. Any other known id is left alone.

    Args:
        transaction: In which the record is taken in.
        slot: The slot.
        row: The record's row, already written; its note is of a pass.
        file: The text before it.

    """
    connection = transaction.connection
    note = read_condense_note(row.operation, row.note)
    known = find_pass(connection, note.pass_id) if note else None
    if note is None or (known and known.doc != row.doc):
        return
    if known is None:
        add_remote_pass(
            connection,
            pass_id=note.pass_id,
            doc=row.doc,
            namespace=slot.namespace,
            label=slot.label,
            lane=row.lane,
            after=note.after,
            parts=_removed(file, decode_delta(row.delta)),
            lsn=row.lsn,
            now_ms=transaction.now_ms,
        )
    elif known.state in ("open", "aborted", "expired"):
        ended = known._replace(
            state="committed",
            reason="condensed",
            lsn=row.lsn,
            ended_ms=transaction.now_ms,
        )
        end_pass(connection, ended)
        if known.pin is not None:
            drop_pin(connection, known.pin)
    else:
        return
    note_duplicates(connection, note.pass_id, transaction.now_ms)


def note_duplicates(connection: apsw.Connection, pass_id: str, now_ms: int) -> None:
    """Note each other pass that began from what a committed one began from.

    Call it once, in the transaction that commits the pass or takes it in.
    """
    found = find_pass(connection, pass_id)
    if found is None:
        return
    siblings = _siblings(connection, found)
    for sibling in siblings:
        add_event(
            connection,
            "condense-duplicate",
            at_ms=now_ms,
            namespace=found.namespace,
            label=found.label,
            details={"passId": found.pass_id, "otherPassId": sibling.pass_id},
        )
    for each in [found, *siblings] if siblings else []:
        connection.execute(
            "UPDATE condense_pass SET reason = 'duplicate' WHERE number = :number",
            {"number": each.number},
        )


def mark_undone_passes(connection: apsw.Connection, row: LogRow) -> None:
    """Note the passes that another store's undo took back, or its redo brought back."""
    targets = targets_of(row) or frozenset()
    is_undone = True
    # What an undo takes back stands in front of it, so this ends.
    while targets:
        for lsn in targets:
            mark_pass_of_write(connection, row.doc, lsn, lsn, is_undone=is_undone)
        targets = frozenset(
            lsn for target in targets for lsn in _targets_at(connection, target)
        )
        is_undone = not is_undone


def parts_of_pass(connection: apsw.Connection, row: PassRow) -> list[ArchivePart]:
    """Return what a pass took out, as far as that is known here.

    Of what another store's pass took out its record found only what no sibling had
    taken out here before it: so what those took out comes first.
    """
    parts = read_archive(connection, row.doc, row.archive)
    if not row.is_remote:
        return parts
    before = [
        part
        for sibling in _siblings(connection, row)
        if sibling.number < row.number
        for part in read_archive(connection, row.doc, sibling.archive)
    ]
    return [*before, *parts]


def _is_id(value: object) -> TypeGuard[str]:
    return isinstance(value, str) and re.fullmatch(PASS_PATTERN, value) is not None


def _siblings(connection: apsw.Connection, row: PassRow) -> list[PassRow]:
    rows = connection.execute(
        "SELECT * FROM condense_pass WHERE doc = :doc AND after IS :after"
        " AND pass != :pass AND state = 'committed' ORDER BY number",
        {"doc": row.doc, "after": row.after, "pass": row.pass_id},
    )
    return [PassRow(*found) for found in rows]


def _targets_at(connection: apsw.Connection, lsn: int) -> frozenset[int]:
    undoes = connection.execute(
        "SELECT undoes FROM log WHERE lsn = :lsn", {"lsn": lsn}
    ).get
    return read_targets(undoes) or frozenset()


def _removed(file: str, delta: Delta) -> list[ArchivePart]:
    """Return what a change deletes, cut at headings, each with its section's."""
    found = [(match.start(), match[0].rstrip()) for match in HEADING.finditer(file)]
    places, headings = [at for at, _ in found], ["", *(heading for _, heading in found)]
    parts: list[ArchivePart] = []
    for splice in delta:
        # By bisection: a record may hold as many changes as its text has headings.
        first = bisect_right(places, splice.start_chars)
        inner = places[first : bisect_left(places, splice.end_chars)]
        edges = [splice.start_chars, *inner, splice.end_chars]
        for start, end in itertools.pairwise(edges):
            if start == end:
                continue
            heading = headings[bisect_right(places, start)]
            kind = "condensed" if CONDENSED.fullmatch(heading) else "evicted"
            parts.append(ArchivePart(kind, heading, file[start:end]))
    return parts
