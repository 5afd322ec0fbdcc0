"""Import: slots of an export taken in, and never over a newer text.

All lines are read and checked before the first write; then each slot is one
transaction. What is done with a slot follows from its text here, the text there, and
the kept texts of both: see ``_case_of``, where the first that fits wins.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Literal, NamedTuple, TextIO

from crdtmem.arguments import checked_bool
from crdtmem.doc.delta import Delta, Splice, apply_delta
from crdtmem.doc.rebase import merge_delta
from crdtmem.doc.text_form import append_splice, file_of, units_of, view_of
from crdtmem.doc.trace import Trace
from crdtmem.editing import line_delta
from crdtmem.errors import (
    ImportRefusedError,
    InvalidArgumentError,
    SizeLimitError,
    SlotError,
    SlotQuarantinedError,
    SlotRefusedError,
)
from crdtmem.headroom import fits
from crdtmem.models import UNSET, ImportedSlot, ImportReport, Unset
from crdtmem.protocol.records import DocKind
from crdtmem.session import Place, Session
from crdtmem.store.connection import Connection
from crdtmem.store.history import add_entry, entries_of
from crdtmem.store.log import find_doc, make_doc
from crdtmem.store.requests import StoredRequest, find_request, keep_request
from crdtmem.store.rows import PLACE_BITS, EntryRow, SlotRow
from crdtmem.store.slots import find_slot
from crdtmem.store.write import MARK_BYTES, Change, Transaction
from crdtmem.textdiff import diff_lines
from crdtmem.transfer.importing_sets import import_sets
from crdtmem.transfer.records import SlotRecord, Source, read_source
from crdtmem.views import headroom_of, iso_time

__all__ = ["OnConflict", "import_slots"]

OnConflict = Literal["report", "append", "replace"]
Action = Literal[
    "created", "same", "deleted-here", "older", "updated", "merged", "conflict"
]


def import_slots(
    session: Session,
    source: Path | TextIO,
    *,
    on_conflict: OnConflict,
    revive: bool,
    strict: bool,
    dry_run: bool,
) -> ImportReport:
    """Take slots from an export; see Memory.import_.

    Project slots go into the handle's project, whatever project they came from. Each
    write is named after the source, its line and what is done, so an import that is
    repeated, or was interrupted, writes nothing twice. A slot that refuses its write is
    reported, and the others go on.

    Raises:
        InvalidArgumentError: If an argument is malformed.
        ImportRefusedError: If the source cannot be read or is no export, or strict
            finds a fault in it; nothing was written.
        StoreError: If the store cannot be written. Slots before that one are in.

    """
    options = _options(on_conflict, revive=revive)
    checked_bool(strict, "strict")
    checked_bool(dry_run, "dry_run")
    found = read_source(_bytes_of(source))
    if strict:
        _require_faultless(found)
    slots: list[ImportedSlot] = []
    for record in found.slots:
        code: str | Unset = UNSET
        try:
            if dry_run:
                action: str = _foresee(session, record, options)
            else:
                action = _take(session, record, options, found.digest)
        except SlotError as exc:
            action, code = "refused", exc.code
        slots.append(
            ImportedSlot(
                label=record.label, scope=record.scope, action=action, code=code
            )
        )
    sets = import_sets(
        session,
        found.items,
        digest=found.digest,
        replaces=on_conflict == "replace",
        revives=options.revives,
        dry_run=dry_run,
    )
    return ImportReport(
        slots=tuple(slots),
        sets=sets or UNSET,
        bad=tuple(found.bad),
        ignored=found.ignored,
        truncated=not found.is_whole,
        dry_run=dry_run,
    )


class _Options(NamedTuple):
    on_conflict: OnConflict
    revives: bool


class _Case(NamedTuple):
    """What is to be done with a slot; ``common`` is the newest text of both pasts."""

    action: Action
    common: EntryRow | None = None


def _take(
    session: Session, record: SlotRecord, options: _Options, digest: str
) -> Action:
    """Do what is to be done with one slot, in one transaction.

    Raises:
        SlotError: If the slot does not take it.

    """
    place = session.place_of(record.label, record.scope)
    with session.writing() as writing:
        transaction = writing.transaction
        row = transaction.slot(place.namespace, place.label)
        case = _case_of(row, _past_of(transaction.connection, row), record, options)
        request_id = f"import-{digest}-{record.line}-{case.action}"
        if find_request(transaction.connection, request_id) is not None:
            return case.action
        if row is None:
            change = _creation(transaction, place, record, session.lane)
        else:
            now_ms = transaction.now_ms
            found = _change_of(row, case, record, options, session.lane, now_ms)
            if found is None:
                return case.action
            change = found
        transaction.write_slot(row, place.namespace, place.label, change)
        keep_request(
            transaction.connection,
            request_id,
            StoredRequest(record.hash.encode(), "import", "{}"),
            transaction.now_ms,
        )
    return case.action


def _foresee(session: Session, record: SlotRecord, options: _Options) -> Action:
    """Return what would be done with one slot; writes nothing, takes no lock.

    Raises:
        SlotError: If the slot would not take it.

    """
    place = session.place_of(record.label, record.scope)
    with session.store.snapshot() as connection:
        row = find_slot(connection, place.namespace, place.label)
        if row is not None and row.quarantined is not None:
            raise SlotQuarantinedError(label=row.label, reason=row.quarantined)
        case = _case_of(row, _past_of(connection, row), record, options)
        if row is not None:
            now_ms = session.store.clock_ms()
            _change_of(row, case, record, options, session.lane, now_ms)
    return case.action


def _case_of(
    row: SlotRow | None,
    past: Sequence[EntryRow],
    record: SlotRecord,
    options: _Options,
) -> _Case:
    """Decide about one slot; ``past`` is what is kept here, newest first."""
    if row is None:
        return _Case("created")
    if view_of(row.file) == record.content:
        return _Case("same")
    if row.is_deleted:
        return _Case("updated" if options.revives else "deleted-here")
    if any(entry.hash == record.hash for entry in past):
        return _Case("older")
    theirs = {text.hash for text in record.past}
    if row.hash in theirs:
        return _Case("updated")
    common = next((entry for entry in past if entry.hash in theirs), None)
    return _Case("conflict" if common is None else "merged", common)


def _change_of(
    row: SlotRow,
    case: _Case,
    record: SlotRecord,
    options: _Options,
    lane: str,
    now_ms: int,
) -> Change | None:
    """Return what to write to a slot that is here already; None for nothing.

    Raises:
        SlotRefusedError: If the slot is read-only, or append-only and this no append.
        SizeLimitError: If the text would be too long.

    """
    delta = _delta_of(row, case, record, options, now_ms)
    if not delta:
        return None
    is_append = case.action == "conflict" and options.on_conflict == "append"
    file = apply_delta(row.file, delta)
    _require_permitted(row, file, is_append=is_append)
    meta: dict[str, object] = {}
    if record.is_deleted and file in ("", "\n"):
        meta = {"deleted": True}
    elif row.deleted:
        meta = {"deleted": False}
    return Change(operation="import", lane=lane, delta=delta, meta=meta)


def _delta_of(
    row: SlotRow, case: _Case, record: SlotRecord, options: _Options, now_ms: int
) -> Delta:
    if case.action == "updated":
        return line_delta(row.file, record.content)
    if case.common is not None:
        return _merged(case.common.file, row.file, file_of(record.content))
    if case.action == "conflict" and options.on_conflict == "replace":
        return line_delta(row.file, record.content)
    if case.action == "conflict" and options.on_conflict == "append" and record.content:
        text = f"[imported {iso_time(now_ms)}]\n{record.content}"
        return (Splice(*append_splice(row.file, text)),)
    return ()


def _merged(common: str, ours: str, theirs: str) -> Delta:
    """Return the change of our text that makes their change of the common one."""
    trace = Trace(common)
    trace.step(1, tuple(Splice(*op) for op in diff_lines(common, ours)))
    return merge_delta(trace, common, theirs)


def _require_permitted(row: SlotRow, file: str, *, is_append: bool) -> None:
    if row.read_only:
        raise SlotRefusedError(label=row.label)
    if row.append_only and not is_append:
        raise SlotRefusedError(label=row.label, code="slot-append-only")
    size = units_of(view_of(file))
    if not fits(size, row.size, row.size_limit):
        raise SizeLimitError(
            label=row.label,
            size=size,
            limit=row.size_limit,
            is_append=is_append,
            current=headroom_of(row).to_dict(),
        )


def _creation(
    transaction: Transaction, place: Place, record: SlotRecord, lane: str
) -> Change:
    """Keep the past of a slot that is absent here; return the write that makes it.

    Its text goes in as a first text, so two replicas that import one source hold one
    copy of it. The kept texts can be restored, and not undone: their writes were made
    elsewhere.
    """
    connection = transaction.connection
    key = place.namespace, DocKind.SLOT, place.label
    doc = find_doc(connection, *key) or make_doc(connection, *key)
    kept = list(enumerate(record.past))[-transaction.history_keep :]
    for rev, past in kept:
        lsn = transaction.next_lsn()
        entry = EntryRow(
            place=(doc << PLACE_BITS) | lsn,
            first_lsn=lsn,
            mark=transaction.replica[:MARK_BYTES].hex(),
            at_ms=past.at_ms,
            operation=past.operation,
            lane=past.lane,
            rev=rev,
            file=file_of(past.content),
            hash=past.hash,
            size=units_of(past.content),
            is_imported=1,
            undone_by=None,
            undoes=None,
            living=None,
        )
        add_entry(connection, entry)
    # A doc that says nothing about these is as if it said no.
    off = {"readOnly": False, "appendOnly": False, "deleted": False}
    settings = dict(record.meta) | {"deleted": record.is_deleted}
    return Change(
        operation="import",
        lane=lane,
        meta={
            name: value for name, value in settings.items() if value != off.get(name)
        },
        genesis=file_of(record.content),
        keeps_rev=True,
        first_rev=len(record.past),
    )


def _past_of(connection: Connection, row: SlotRow | None) -> list[EntryRow]:
    return [] if row is None else entries_of(connection, row.doc)


def _options(on_conflict: str, *, revive: bool) -> _Options:
    match on_conflict:
        case "report" | "append" | "replace":
            return _Options(on_conflict, checked_bool(revive, "revive"))
    raise InvalidArgumentError(
        "on_conflict",
        f"on_conflict must be 'report', 'append' or 'replace', not {on_conflict!a:.40}",
    )


def _bytes_of(source: Path | TextIO) -> bytes:
    if not isinstance(source, Path):
        return source.read().encode("utf-8", "surrogatepass")
    try:
        return source.read_bytes()
    except OSError as exc:
        reason = f"{str(source)!r} cannot be read: {exc.strerror}"
        raise ImportRefusedError(f"{reason}: nothing was imported") from exc


def _require_faultless(source: Source) -> None:
    if source.bad:
        first = source.bad[0]
        raise ImportRefusedError(
            f"line {first.line} of the source is bad ({first.code}: {first.reason}):"
            " nothing was imported",
            details={"bad": [bad.to_dict() for bad in source.bad]},
        )
    if not source.is_whole:
        raise ImportRefusedError(
            "the source ends early, without an 'end' record: nothing was imported",
            details={"truncated": True},
        )
