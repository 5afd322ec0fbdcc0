"""What is wrong with a slot: its row, its records and its kept texts held together.

Looks only. A slot is stored several times over, as a row, as a document, as its past
and as an audit: damage of one shows against the others. What has no second copy, such
as the time of creation, cannot be checked.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Literal, NamedTuple

import apsw

from crdtmem.doc.text_form import units_of, view_of
from crdtmem.errors import CrdtmemError
from crdtmem.headroom import content_hash
from crdtmem.protocol.records import DocKind
from crdtmem.store.audit import lanes_of
from crdtmem.store.doc_inbox import SHOWN_LANES
from crdtmem.store.documents import load_doc
from crdtmem.store.history import entries_of
from crdtmem.store.log import WITHIN_STATE, Checkpoint, load_checkpoint, log_of
from crdtmem.store.rows import PLACE_BITS, AuditRow, EntryRow, SlotRow
from crdtmem.store.sets import SetRow
from crdtmem.store.write import with_meta

__all__ = [
    "DAMAGE",
    "Problem",
    "audit_at",
    "dangling_marks",
    "docs_in",
    "empty_checkpoint",
    "inspect_slot",
    "is_text_intact",
    "names_of",
    "number_problems",
    "slot_of_doc",
]

# On a damaged page a column may hold anything, of any type: whatever goes wrong with it
# is a finding, and no reason to stop looking at the others.
DAMAGE = (
    CrdtmemError,
    apsw.Error,
    ArithmeticError,
    AttributeError,
    LookupError,
    TypeError,
    ValueError,
)
"""What reading damaged rows can raise."""

NO_REPLICA = bytes(16)
"""Documents are loaded here to be looked at: nothing is written under this id."""

CheckId = Literal["slot-text", "records", "history"]


class Problem(NamedTuple):
    """One thing that is wrong; the message says no word of a text."""

    check: CheckId
    message: str


def inspect_slot(connection: apsw.Connection, doc: int) -> list[Problem]:
    """Return what is wrong with a slot; raises nothing, whatever the damage."""
    problems: list[Problem] = []
    try:
        row = slot_of_doc(connection, doc)
        if row is None:
            return _of_rowless(connection, doc)
    except DAMAGE as exc:
        return [Problem("slot-text", f"its row cannot be read: {exc}")]
    for check, part in _PARTS:
        try:
            problems.extend(Problem(check, found) for found in part(connection, row))
        except DAMAGE as exc:
            problems.append(Problem(check, str(exc)))
    return problems


def docs_in(connection: apsw.Connection, namespaces: Sequence[str] | None) -> list[int]:
    """Return the numbers of the docs of slots; None stands for all namespaces.

    By both tables that say which doc is whose, in case one of them is wrong.
    """
    if namespaces is None:
        rows = connection.execute(
            "SELECT doc FROM slot UNION SELECT doc FROM doc WHERE kind = :kind",
            {"kind": DocKind.SLOT},
        )
        return sorted(int(doc) for (doc,) in rows)
    found: set[int] = set()
    for namespace in namespaces:
        rows = connection.execute(
            "SELECT doc FROM slot WHERE namespace = :namespace UNION"
            " SELECT doc FROM doc WHERE kind = :kind AND namespace = :namespace",
            {"namespace": namespace, "kind": DocKind.SLOT},
        )
        found.update(int(doc) for (doc,) in rows)
    return sorted(found)


def names_of(connection: apsw.Connection, doc: int) -> tuple[str, str] | None:
    """Return namespace and label of a doc, as far as they can be read."""
    for namespace, label in connection.execute(
        "SELECT CAST(namespace AS BLOB), CAST(label AS BLOB) FROM slot WHERE doc = :doc"
        " UNION ALL"
        " SELECT CAST(namespace AS BLOB), CAST(name AS BLOB) FROM doc WHERE doc = :doc",
        {"doc": doc},
    ):
        return namespace.decode(errors="replace"), label.decode(errors="replace")
    return None


def slot_of_doc(connection: apsw.Connection, doc: int) -> SlotRow | None:
    """Return the row of a doc's slot."""
    for row in connection.execute("SELECT * FROM slot WHERE doc = :doc", {"doc": doc}):
        return SlotRow(*row)
    return None


def audit_at(connection: apsw.Connection, lsn: int) -> AuditRow | None:
    """Return the audit row of a step."""
    for row in connection.execute("SELECT * FROM audit WHERE lsn = :lsn", {"lsn": lsn}):
        return AuditRow(*row)
    return None


def is_text_intact(row: SlotRow | EntryRow) -> bool:
    """Tell whether a text is the one that its hash was taken of."""
    return content_hash(view_of(row.file)) == row.hash


def empty_checkpoint(checkpoint: Checkpoint) -> Checkpoint:
    """Return what the checkpoint of that doc was before its first squash."""
    return Checkpoint(
        namespace=checkpoint.namespace,
        name=checkpoint.name,
        state=b"",
        lsn=0,
        file="",
        blame=b"",
        genesis="{}",
    )


def dangling_marks(
    connection: apsw.Connection, entry: EntryRow, oldest: EntryRow
) -> list[str]:
    """Return which marks of undo lead nowhere, by the names of their columns.

    An earlier write may be named still when it is kept no more.
    """
    found = []
    for name in ("undone_by", "living"):
        place: int | None = getattr(entry, name)
        # 0 marks a write of which nothing was left to undo.
        if place and (place <= entry.place or not _is_kept(connection, place)):
            found.append(name)
    target = entry.undoes
    if target is not None:
        is_own = entry.place >> PLACE_BITS == target >> PLACE_BITS
        is_kept = target < entry.place and _is_kept(connection, target)
        if not is_own or not (target < oldest.place or is_kept):
            found.append("undoes")
    return found


def _is_kept(connection: apsw.Connection, place: int) -> bool:
    # Asks for the key alone: the entry itself may be unreadable.
    count = connection.execute(
        "SELECT count(*) FROM history WHERE place = :place", {"place": place}
    ).get
    return bool(count)


def _of_rowless(connection: apsw.Connection, doc: int) -> list[Problem]:
    # A doc whose records were all refused has none, and is no damage.
    if log_of(connection, doc, after=0):
        return [Problem("slot-text", "it has records and no row")]
    return []


def _text_problems(connection: apsw.Connection, row: SlotRow) -> Iterator[str]:
    checkpoint = load_checkpoint(connection, row.doc)
    if (row.namespace, row.label) != (checkpoint.namespace, checkpoint.name):
        yield "its row and its doc have different names"
    kind = connection.execute(
        "SELECT kind FROM doc WHERE doc = :doc", {"doc": row.doc}
    ).get
    if kind != DocKind.SLOT:
        yield f"its doc is of kind {kind}"
    if not is_text_intact(row):
        yield "its text and its hash differ"
    units = units_of(view_of(row.file))
    if units != row.size:
        yield f"its text has {units} units, and its size says {row.size}"
    yield from _audit_problems(connection, row)


def _audit_problems(connection: apsw.Connection, row: SlotRow) -> Iterator[str]:
    audit = audit_at(connection, row.lsn)
    if audit is None:
        oldest = connection.execute("SELECT min(lsn) FROM audit").get
        if oldest is not None and oldest < row.lsn:
            yield f"step {row.lsn}, which its row names as the newest, is no change"
        return
    lanes = ", ".join(lanes_of(audit)[:SHOWN_LANES])
    found = (row.doc, row.rev, row.size, row.operation, row.lane, row.updated_ms)
    told = (audit.doc, audit.rev, audit.size, audit.operation, lanes, audit.at_ms)
    if found != told:
        yield f"its row differs from the audit of its newest change, step {row.lsn}"


def _record_problems(connection: apsw.Connection, row: SlotRow) -> Iterator[str]:
    if row.quarantined is not None:
        yield f"it is quarantined: {row.quarantined}"
    document = load_doc(connection, row.doc, NO_REPLICA)
    document.check()
    if document.file != row.file:
        yield "its text differs from its records"
    if with_meta(row, document.meta) != row:
        yield "its settings differ from its records"
    checkpoint = load_checkpoint(connection, row.doc)
    if not checkpoint.lsn and checkpoint != empty_checkpoint(checkpoint):
        yield "it has half a checkpoint"
    yield from number_problems(connection, row)


def number_problems(
    connection: apsw.Connection, row: SlotRow | SetRow
) -> Iterator[str]:
    """Yield what is wrong with the numbers of the records, which no digest covers."""
    kept_from = newest = load_checkpoint(connection, row.doc).lsn
    sealed: dict[bytes, tuple[int, int]] = {}
    for record in log_of(connection, row.doc, after=0):
        newest = max(newest, record.lsn)
        if record.lsn <= kept_from:
            yield f"record {record.lsn} is older than the checkpoint"
        if record.replica_seq is None or record.place is None:
            if record.replica_seq != record.place:
                yield f"record {record.lsn} has half of its number"
            continue
        if record.place == WITHIN_STATE:
            continue
        number = record.replica_seq, record.place
        if number <= sealed.get(record.replica, (0, -1)):
            yield f"record {record.lsn} has the number of an earlier one"
        sealed[record.replica] = number
    for replica, (seq, _) in sealed.items():
        known = connection.execute(
            "SELECT max_seq FROM stream"
            " WHERE namespace = :namespace AND replica = :replica",
            {"namespace": row.namespace, "replica": replica},
        ).get
        if known is None or known < seq:
            yield f"replica {replica.hex()} has given {known}, and not {seq} records"
    if newest > row.lsn:
        yield f"its row stands at step {row.lsn}, and its newest record is {newest}"


def _history_problems(connection: apsw.Connection, row: SlotRow) -> Iterator[str]:
    entries = entries_of(connection, row.doc)
    expected = row.rev - 1
    if row.rev > 0 and not entries:
        yield f"no text before rev {row.rev} is kept"
    after = row.lsn + 1
    for entry in entries:
        if not is_text_intact(entry):
            yield f"the text of {entry.id} and its hash differ"
        if units_of(view_of(entry.file)) != entry.size:
            yield f"the size of {entry.id} is not that of its text"
        if entry.rev != expected:
            yield f"{entry.id} is of rev {entry.rev}, where rev {expected} is due"
        if not 0 < entry.first_lsn <= entry.lsn < after:
            yield f"{entry.id} is not of the steps before {after}"
        expected, after = entry.rev - 1, entry.first_lsn
        for name in dangling_marks(connection, entry, entries[-1]):
            yield f"{entry.id} names a write that is not there ({name})"
        yield from _entry_audit_problems(connection, entry)


def _entry_audit_problems(
    connection: apsw.Connection, entry: EntryRow
) -> Iterator[str]:
    audit = audit_at(connection, entry.lsn)
    if audit is None or entry.is_imported:
        return
    lanes = ", ".join(lanes_of(audit)[:SHOWN_LANES])
    found = (entry.rev + 1, entry.size, entry.operation, entry.lane, entry.at_ms)
    told = (audit.rev, audit.size_before, audit.operation, lanes, audit.at_ms)
    if found != told or not audit.replica.hex().startswith(entry.mark):
        yield f"{entry.id} differs from the audit of its write"


_PARTS: tuple[
    tuple[CheckId, Callable[[apsw.Connection, SlotRow], Iterator[str]]], ...
] = (
    ("slot-text", _text_problems),
    ("records", _record_problems),
    ("history", _history_problems),
)
