"""Own writes to memory sets: one edit, its record, and all rows that follow from it.

A write names items; which members of the document stand for them is decided here. A new
version goes in and the versions that were seen go out in one update, so a delete never
takes a version that another replica made meanwhile.
"""

import secrets
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

import apsw

from crdtmem.doc.items import (
    HEADER,
    MADE_ID,
    ItemsDoc,
    Version,
    canonical,
    header_value,
    read_version,
    version_value,
)
from crdtmem.errors import DocError, SlotQuarantinedError
from crdtmem.limits import SET_UPDATE_BYTES, TIME_MAX_MS
from crdtmem.partition import doc_name
from crdtmem.protocol.records import DocKind
from crdtmem.store.documents import writer_id
from crdtmem.store.log import find_doc, make_doc
from crdtmem.store.set_docs import is_squash_due, set_document, squash_set
from crdtmem.store.set_history import ItemCommit, archive_items
from crdtmem.store.set_rows import (
    MemberRow,
    clear_rows,
    members_of_items,
    new_set,
    save_set,
    take_members,
)
from crdtmem.store.sets import SetPlace, SetRow, set_of_doc
from crdtmem.store.write import Change, Transaction

__all__ = [
    "NewVersion",
    "SetChange",
    "claim_set",
    "divided",
    "finish_set",
    "release_claim",
    "set_for_writing",
    "write_members",
    "write_set",
]

_DIGITS = "0123456789abcdefghjkmnpqrstvwxyz"
_SUFFIX_CHARS = 10
_SUFFIX_BYTES = 7


@dataclass(frozen=True, slots=True)
class NewVersion:
    """A version of an item that is to be written.

    Attributes:
        id: Of the item; one that is live is updated.
        text: Its text.
        meta: Canonical JSON, or empty.
        created_ms: When the item was made; an update keeps it.
        sources: Of a summary: how many items it stands for.
        is_made: The id was drawn for this write, so that nobody else can use it.
        suffix: Of an import: what ends the member's name; empty to draw one.
        updated_ms: Of an import: when it was written; None for now.
        lane: Of an import: who wrote it; empty for the one that writes now.

    """

    id: str
    text: str
    meta: str
    created_ms: int
    sources: int | None = None
    is_made: bool = False
    suffix: str = ""
    updated_ms: int | None = None
    lane: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SetChange:
    """What a verb wants to write to one set.

    Attributes:
        operation: Its name in history and audit.
        lane: Who writes.
        puts: Items to add or to update.
        removes: Ids of items to remove; those that are not there are passed over.
        clears: Remove all items that are here, and nothing else of this change.
        drops: Likewise, and the set is listed no more.
        archive: The id of a compaction, under which what is removed is kept.
        details: For the audit row.
        keeps_rev: Write no history, and leave the rev as it is.

    """

    operation: str
    lane: str
    puts: Sequence[NewVersion] = ()
    removes: Collection[str] = ()
    clears: bool = False
    drops: bool = False
    archive: bytes | None = None
    details: Mapping[str, object] = field(default_factory=dict)
    keeps_rev: bool = False

    @property
    def empties(self) -> bool:
        """Whether all items go, and nothing else is written."""
        return self.clears or self.drops


def set_for_writing(row: SetRow | None) -> SetRow | None:
    """Return the row of a set that is to be written.

    Raises:
        SlotQuarantinedError: If one of its records is damaged.

    """
    if row is not None and row.quarantined is not None:
        raise SlotQuarantinedError(
            label=row.name or row.name_in_doc, reason=row.quarantined
        )
    return row


def write_set(
    transaction: Transaction, before: SetRow | None, place: SetPlace, change: SetChange
) -> SetRow:
    """Make one commit and write all that follows from it.

    Args:
        transaction: Of the caller.
        before: The set's row, or None where it has none yet.
        place: Which set.
        change: What to write. If nothing comes of it, nothing is written.

    Returns:
        The set after it.

    Raises:
        SlotQuarantinedError: If one of the set's records is damaged.
        DocError: If a value has not the shape of a version.

    """
    base = set_for_writing(before)
    if base is None:
        base = _unmade_set(place, transaction.now_ms)
        if change.empties or not change.puts:
            return base
        base = _made_set(transaction, base)
    document = _document(transaction, base)
    seen = _seen(transaction.connection, base.doc, change)
    puts = [] if change.empties else _puts(transaction.now_ms, change, seen)
    gone = _gone(document, change, seen, puts)
    if not puts and not gone:
        return base
    _archive(transaction, base.doc, change)
    members: dict[str, object] = {}
    if not base.has_header and not change.drops:
        members[HEADER] = header_value(place.key_long, place.name)
    members |= {put.member: version_value(put) for put in puts}
    parts = divided(members, gone, _replaced(puts, seen))
    commit = ItemCommit(change.operation, change.lane, transaction.now_ms)
    write_members(transaction, base.doc, document, parts, commit)
    base = base._replace(key_long=place.key_long, name=place.name)
    if change.empties:
        row = clear_rows(transaction.connection, base, document, commit)
    else:
        row = take_members(
            transaction.connection,
            base,
            document,
            [*members, *gone],
            commit,
            keeps_rev=change.keeps_rev,
            # The header is among the changed only where the rows have none.
            seen=seen,
        )
    return finish_set(
        transaction,
        base,
        row,
        document,
        commit,
        lanes=[change.lane],
        changed=len(puts) + len(gone),
        details=change.details,
    )


def _gone(
    document: ItemsDoc,
    change: SetChange,
    seen: Sequence[MemberRow],
    puts: Sequence[Version],
) -> list[str]:
    """Return the members that a change removes."""
    if change.empties:
        kept = set() if change.drops else {HEADER}
        return sorted(set(document.names()) - kept)
    # What an import writes may have the name of what it replaces.
    return sorted({row.member for row in seen} - {put.member for put in puts})


def _archive(transaction: Transaction, doc: int, change: SetChange) -> None:
    if change.archive is not None:
        archive_items(
            transaction.connection,
            doc,
            list(change.removes),
            pass_id=change.archive,
            now_ms=transaction.now_ms,
        )


def divided(
    puts: Mapping[str, object],
    removes: Collection[str],
    replaced: Mapping[str, Sequence[str]] = MappingProxyType({}),
) -> list[tuple[dict[str, object], list[str]]]:
    """Divide a write into as many updates as it needs; mostly that is one.

    Args:
        puts: Members to set.
        removes: Members to remove.
        replaced: By member that is set those that go with it, in the same update.

    """
    rest = dict.fromkeys(removes)
    parts: list[tuple[dict[str, object], list[str]]] = [({}, [])]
    size_bytes = 0
    for name, value in puts.items():
        added_bytes = len(name.encode()) + len(canonical(value).encode())
        if size_bytes and size_bytes + added_bytes > SET_UPDATE_BYTES:
            parts.append(({}, []))
            size_bytes = 0
        size_bytes += added_bytes
        parts[-1][0][name] = value
        old = [one for one in replaced.get(name, ()) if one in rest]
        parts[-1][1].extend(old)
        for one in old:
            del rest[one]
    parts[-1][1].extend(rest)
    return parts


def write_members(
    transaction: Transaction,
    doc: int,
    document: ItemsDoc,
    parts: Sequence[tuple[Mapping[str, object], Collection[str]]],
    commit: ItemCommit,
) -> None:
    """Change members of a document, and write a record for each part."""
    transaction.edited.add(doc)
    for puts, removes in parts:
        content = document.edit(puts, removes)
        transaction.log(doc, content, (), lane=commit.lane, operation=commit.operation)


def finish_set(
    transaction: Transaction,
    base: SetRow,
    row: SetRow,
    document: ItemsDoc,
    commit: ItemCommit,
    *,
    lanes: list[str],
    changed: int,
    details: Mapping[str, object],
) -> SetRow:
    """End a commit whose records and items are written: row, audit, checkpoint.

    Args:
        transaction: Of the caller.
        base: The set before.
        row: The set after, as its document has it.
        document: At its newest.
        commit: What it was.
        lanes: All whose writes it holds.
        changed: How many members it changed.
        details: For the audit.

    Returns:
        The set as it was saved.

    """
    dropped_ms = row.dropped_ms
    if dropped_ms is not None and base.dropped_ms is None:
        dropped_ms = commit.at_ms
    row = row._replace(
        lsn=transaction.lsn,
        updated_ms=commit.at_ms,
        dropped_ms=dropped_ms,
        operation=commit.operation,
        lane=commit.lane,
        unsquashed=base.unsquashed + changed,
    )
    save_set(transaction.connection, row)
    transaction.remember(row.doc, document)
    change = Change(operation=commit.operation, lane=commit.lane, details=details)
    transaction.audit(base, row, change, lanes)
    if is_squash_due(row):
        squash_set(transaction, row.doc)
        row = set_of_doc(transaction.connection, row.doc) or row
    return row


def claim_set(
    connection: apsw.Connection, doc: int, process: str, *, now_ms: int, until_ms: int
) -> str:
    """Claim a set for a compaction; return who has it: the caller, or another.

    Args:
        connection: In a transaction.
        doc: The set's.
        process: Who claims it.
        now_ms: A claim that ended before this holds no more.
        until_ms: How long this one holds.

    """
    connection.execute(
        "INSERT INTO set_claim VALUES (:doc, :process, :until) ON CONFLICT(doc)"
        " DO UPDATE SET process = :process, until_ms = :until"
        " WHERE until_ms <= :now OR process = :process",
        {"doc": doc, "process": process, "until": until_ms, "now": now_ms},
    )
    return str(
        connection.execute(
            "SELECT process FROM set_claim WHERE doc = :doc", {"doc": doc}
        ).get
    )


def release_claim(connection: apsw.Connection, doc: int, process: str) -> None:
    """Give a claim back; does nothing if another has it."""
    connection.execute(
        "DELETE FROM set_claim WHERE doc = :doc AND process = :process",
        {"doc": doc, "process": process},
    )


def _unmade_set(place: SetPlace, now_ms: int) -> SetRow:
    """Return the row of a set that nobody has written to; it has no doc yet."""
    name = doc_name(place.key_long, place.name)
    row = new_set(0, place.namespace, name, now_ms)
    return row._replace(key_long=place.key_long, name=place.name)


def _made_set(transaction: Transaction, row: SetRow) -> SetRow:
    """Make the doc of a set, and its row: those of its items hang on it."""
    connection = transaction.connection
    names = row.namespace, DocKind.MEMORY_SET, row.name_in_doc
    doc = find_doc(connection, *names) or make_doc(connection, *names)
    row = row._replace(doc=doc)
    save_set(connection, row)
    return row


def _document(transaction: Transaction, row: SetRow) -> ItemsDoc:
    if not row.lsn:
        return ItemsDoc(writer_id(transaction.replica))
    return set_document(transaction, row)


def _seen(connection: apsw.Connection, doc: int, change: SetChange) -> list[MemberRow]:
    """Return the versions that a change replaces or removes."""
    ids = dict.fromkeys([*(put.id for put in change.puts), *change.removes])
    return members_of_items(connection, doc, ids) if ids else []


def _puts(now_ms: int, change: SetChange, seen: Sequence[MemberRow]) -> list[Version]:
    newest: dict[str, int] = {}
    for row in seen:
        newest[row.id] = max(newest.get(row.id, 0), row.updated_ms)
    suffixes = _suffixes(len(change.puts))
    puts: list[Version] = []
    for put in change.puts:
        at_ms = now_ms if put.updated_ms is None else put.updated_ms
        is_first = put.is_made and put.id not in newest and MADE_ID.fullmatch(put.id)
        version = Version(
            member=put.id if is_first else f"{put.id}.{put.suffix or next(suffixes)}",
            id=put.id,
            text=put.text,
            meta=put.meta,
            created_ms=put.created_ms,
            # Later than what it replaces, whatever the clocks say.
            updated_ms=min(max(at_ms, newest.get(put.id, -1) + 1), TIME_MAX_MS),
            lane=put.lane or change.lane,
            sources=put.sources,
        )
        if read_version(version.member, version_value(version)) != version:
            raise DocError("an item has not the shape that a set can hold")
        puts.append(version)
    return puts


def _suffixes(count: int) -> Iterator[str]:
    """Return random ends of names; from the system, as ids of replicas are."""
    drawn = secrets.token_bytes(_SUFFIX_BYTES * count)
    numbers = (
        int.from_bytes(drawn[start : start + _SUFFIX_BYTES], "big")
        for start in range(0, len(drawn), _SUFFIX_BYTES)
    )
    return (
        "".join(_DIGITS[number >> 5 * n & 31] for n in range(_SUFFIX_CHARS))
        for number in numbers
    )


def _replaced(
    puts: Sequence[Version], seen: Sequence[MemberRow]
) -> dict[str, list[str]]:
    """Return for each new version those that it replaces."""
    members: dict[str, list[str]] = {}
    for row in seen:
        members.setdefault(row.id, []).append(row.member)
    return {put.member: members[put.id] for put in puts if put.id in members}
