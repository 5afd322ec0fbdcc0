"""Repair of one slot from what the store itself still holds.

Where the records are whole, they tell what the slot is, and its row is written anew.
Where one is damaged, it and all after it go into quarantine: what came later was made
on it. What readers saw stays what they see: the text of the row, if its hash says that
it is intact, else the newest intact kept text, as one plain edit on the records that
are left.

That edit is made under new ids. The clocks of the old ones may stand in records that
are gone here and known elsewhere, and one client id and clock must never have two
contents. Other replicas take the edit as new text: lines that they have from the lost
records stand twice there. What they write onto lost records is refused here, into
quarantine, until a state from elsewhere brings those back; all else still merges.

Where the checkpoint is damaged the same is done on an empty document.
"""

import re
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import apsw

from crdtmem.doc.delta import Splice
from crdtmem.doc.slot_doc import SlotDoc
from crdtmem.doc.text_form import file_of, units_of, view_of
from crdtmem.errors import DocError
from crdtmem.headroom import content_hash
from crdtmem.limits import MAX_SIZE_UNITS
from crdtmem.protocol.records import DocKind
from crdtmem.scope import LABEL_PATTERN, PROJECT_ID_PATTERN
from crdtmem.store.audit import lanes_of
from crdtmem.store.doc_inbox import SHOWN_LANES
from crdtmem.store.documents import catch_up, load_doc
from crdtmem.store.history import place_bounds
from crdtmem.store.inspection import (
    DAMAGE,
    audit_at,
    dangling_marks,
    empty_checkpoint,
    is_text_intact,
)
from crdtmem.store.log import Checkpoint, load_checkpoint, save_checkpoint
from crdtmem.store.rows import AuditRow, EntryRow, LogRow, SlotRow
from crdtmem.store.slots import save_slot
from crdtmem.store.write import MARK_BYTES, Change, Transaction, with_meta
from crdtmem.textdiff import diff_lines

__all__ = [
    "LANE",
    "first_damaged_row",
    "quarantine_rows",
    "quarantine_state",
    "quarantine_strays",
    "repair_slot",
]

LANE = "doctor"
"""Who writes a repair, in log, history and audit; its operation is ``restore``."""

_COLUMNS = {
    "description": "description",
    "sizeLimit": "size_limit",
    "pinned": "pinned",
    "readOnly": "read_only",
    "appendOnly": "append_only",
    "deleted": "deleted",
}
"""The settings of a slot: their names in the doc, and in the row."""


def repair_slot(transaction: Transaction, doc: int) -> str:
    """Mend a slot and let its writes go on; return what was done.

    The caller drops the doc from the handle's cache.

    Raises:
        DocError: If nothing here holds the slot's text; roll the transaction back.

    """
    connection = transaction.connection
    checkpoint = _readable_checkpoint(connection, doc)
    row = _readable_row(connection, doc)
    namespace, label = _right_names(checkpoint, row)
    checkpoint = checkpoint._replace(namespace=namespace, name=label)
    row = row._replace(namespace=namespace, label=label)
    _write_names(connection, row)
    replay = _replayed(connection, doc, checkpoint)
    if replay.cut == 0 and checkpoint.state:
        quarantine_state(transaction, doc, checkpoint.state)
    save_checkpoint(connection, doc, replay.checkpoint)
    _mend_history(connection, doc)
    if replay.document is not None:
        is_told = view_of(replay.document.file) == view_of(row.file)
        if is_told or not is_text_intact(row):
            _write_row(connection, row, replay.document)
            return "its row was written anew from its records"
    return _rebuild(transaction, row, replay.cut)


def quarantine_strays(transaction: Transaction) -> int:
    """Put records of no doc into quarantine and return how many there were."""
    docs: list[Any] = transaction.connection.execute(
        "SELECT DISTINCT doc FROM log WHERE doc NOT IN (SELECT doc FROM doc)"
    ).fetchall()
    return sum(quarantine_rows(transaction, doc, 0) for (doc,) in docs)


class _Replay(NamedTuple):
    """What the checkpoint and the records of a doc give.

    Attributes:
        checkpoint: As it was made; empty if that is not known.
        document: With all records; None if anything is damaged.
        cut: The first damaged record; 0 if the checkpoint is, None if nothing is.

    """

    checkpoint: Checkpoint
    document: SlotDoc | None
    cut: int | None


def _right_names(checkpoint: Checkpoint, row: SlotRow) -> tuple[str, str]:
    """Return namespace and label, of which a doc and its slot each hold a copy."""
    told = {
        (checkpoint.namespace, checkpoint.name),
        (row.namespace, row.label),
    }
    if len(told) > 1:
        told = {names for names in told if _is_possible(names, checkpoint)}
    if len(told) != 1:
        raise DocError("nothing here tells which of its two names is right")
    return told.pop()


def _is_possible(names: tuple[str, str], checkpoint: Checkpoint) -> bool:
    namespace, label = names
    named = checkpoint._replace(namespace=namespace, name=label)
    return (
        re.fullmatch(PROJECT_ID_PATTERN, namespace) is not None
        and re.fullmatch(LABEL_PATTERN, label) is not None
        and named.digest == named.expected_digest
    )


def _replayed(connection: apsw.Connection, doc: int, checkpoint: Checkpoint) -> _Replay:
    known = _as_made(checkpoint)
    if known is None:
        return _Replay(empty_checkpoint(checkpoint), None, 0)
    document = SlotDoc.load(0, known.state)
    cut = first_damaged_row(connection, doc, known.lsn, partial(_take, document))
    return _Replay(known, document if cut is None else None, cut)


def _as_made(checkpoint: Checkpoint) -> Checkpoint | None:
    """Return the checkpoint as its digest was taken of it, or None.

    A state that is loadable and gives the right text may still have other ids in it
    than it had, so nothing but the digest is trusted.
    """
    if not checkpoint.digest and not checkpoint.state:
        return empty_checkpoint(checkpoint)
    if checkpoint.digest == checkpoint.expected_digest:
        return checkpoint
    try:
        file = SlotDoc.load(0, checkpoint.state).file
    except DAMAGE:
        return None
    other = checkpoint._replace(file=file)
    return other if other.digest == other.expected_digest else None


def first_damaged_row(
    connection: apsw.Connection, doc: int, after: int, take: Callable[[LogRow], None]
) -> int | None:
    """Take a doc's records one by one; return the step of the first damaged one.

    Args:
        connection: The store's.
        doc: The doc.
        after: The step behind which they begin.
        take: Gets each record; raises one of DAMAGE for one that is damaged.

    """
    steps: list[Any] = connection.execute(
        "SELECT lsn FROM log WHERE doc = :doc AND lsn > :after ORDER BY lsn",
        {"doc": doc, "after": after},
    ).fetchall()
    for (lsn,) in steps:
        try:
            # One row a statement: one that cannot be read must not hide the others.
            rows: list[Any] = connection.execute(
                "SELECT * FROM log WHERE lsn = :lsn", {"lsn": lsn}
            ).fetchall()
            for row in rows:
                take(LogRow(*row))
        except DAMAGE:
            return int(lsn)
    return None


def _take(document: SlotDoc, row: LogRow) -> None:
    catch_up(document, [row])
    document.check()


def _rebuild(transaction: Transaction, row: SlotRow, cut: int | None) -> str:
    """Write the text that readers see onto what is left of the records."""
    connection = transaction.connection
    dropped = 0 if cut is None else quarantine_rows(transaction, row.doc, cut)
    is_intact = is_text_intact(row)
    target = row.file if is_intact else _newest_intact_text(connection, row.doc)
    # What is there instead stays in the history as it is.
    view = view_of(row.file)
    base = row._replace(hash=content_hash(view), size=units_of(view))
    transaction.take_new_ids()
    document = load_doc(connection, row.doc, transaction.replica)
    transaction.edited.add(row.doc)
    change = Change(
        operation="restore",
        lane=LANE,
        delta=tuple(
            Splice(*op) for op in diff_lines(document.file, file_of(view_of(target)))
        ),
        meta=_missing_settings(row, document),
        keeps_rev=is_intact,
        details={"dropped": dropped},
    )
    lsn = _write(transaction, document, row.doc, change)
    document.check()
    new = transaction.materialised(document, base, change)
    new = with_meta(new, document.meta)._replace(quarantined=None)
    save_slot(connection, new)
    if not change.keeps_rev:
        transaction.keep_text(base, new, change, lsn)
    transaction.audit(base, new, change, [LANE])
    _part_from_records(connection, row.doc, cut or 0)
    what = "its text" if is_intact else "its newest intact kept text"
    return f"{what} was written anew; {dropped} records went into quarantine"


def _part_from_records(connection: apsw.Connection, doc: int, first_lsn: int) -> None:
    """Let kept texts whose records are gone be restored, but no longer be undone.

    As those that came by an import: their writes are not in the log either.
    """
    connection.execute(
        "UPDATE history SET is_imported = 1"
        " WHERE place >= :low AND place < :high AND first_lsn >= :first",
        {**place_bounds(doc), "first": first_lsn},
    )


def _write(
    transaction: Transaction, document: SlotDoc, doc: int, change: Change
) -> int:
    if not change.delta and not change.meta:
        return transaction.next_lsn()
    content = document.edit(change.delta, change.meta)
    return transaction.log(
        doc, content, change.delta, lane=change.lane, operation=change.operation
    )


def _missing_settings(row: SlotRow, document: SlotDoc) -> dict[str, object]:
    """Return the settings of the row that the document does not have."""
    known = with_meta(row, document.meta)._asdict()
    wanted = row._asdict()
    missing: dict[str, object] = {}
    for name, column in _COLUMNS.items():
        if wanted[column] == known[column]:
            continue
        value = wanted[column]
        if name not in ("description", "sizeLimit"):
            value = bool(value)
        if name != "sizeLimit" or 1 <= value <= MAX_SIZE_UNITS:
            missing[name] = value
    return missing


def _newest_intact_text(connection: apsw.Connection, doc: int) -> str:
    for entry in _readable_entries(connection, doc):
        if is_text_intact(entry):
            return entry.file
    raise DocError("neither its text nor any kept text is intact")


def _write_row(connection: apsw.Connection, row: SlotRow, document: SlotDoc) -> None:
    """Write the slot's row as its document and its newest change have it."""
    view = view_of(document.file)
    row = row._replace(
        file=document.file,
        hash=content_hash(view),
        size=units_of(view),
        quarantined=None,
    )
    for values in connection.execute(
        "SELECT * FROM audit WHERE doc = :doc ORDER BY lsn DESC LIMIT 1",
        {"doc": row.doc},
    ):
        audit = AuditRow(*values)
        row = row._replace(
            lsn=audit.lsn,
            rev=audit.rev,
            operation=audit.operation,
            lane=", ".join(lanes_of(audit)[:SHOWN_LANES]),
            updated_ms=audit.at_ms,
        )
    save_slot(connection, with_meta(row, document.meta))


def _mend_history(connection: apsw.Connection, doc: int) -> None:
    """Write what is damaged in kept texts anew, where something still tells it."""
    kept_from = load_checkpoint(connection, doc).lsn
    entries = _readable_entries(connection, doc)
    # Each after the newest step of the one before it, the oldest after any.
    steps_before = [*(entry.lsn for entry in entries[1:]), 0]
    for entry, before in zip(entries, steps_before, strict=False):
        mended = _with_audit(connection, entry)
        if not before < entry.first_lsn <= entry.lsn:
            mended = mended._replace(first_lsn=entry.lsn)
        lost = dangling_marks(connection, entry, entries[-1])
        mended = mended._replace(
            undone_by=None if "undone_by" in lost else entry.undone_by,
            undoes=None if "undoes" in lost else entry.undoes,
            living=None if "living" in lost else entry.living,
        )
        if mended.first_lsn > kept_from and not entry.is_imported:
            mended = _with_text(connection, doc, mended)
        if mended != entry:
            connection.execute(
                "UPDATE history SET first_lsn = :first_lsn, mark = :mark,"
                " at_ms = :at_ms, operation = :operation, lane = :lane, rev = :rev,"
                " file = :file, hash = :hash, size = :size, undone_by = :undone_by,"
                " undoes = :undoes, living = :living WHERE place = :place",
                mended._asdict(),
            )


def _with_audit(connection: apsw.Connection, entry: EntryRow) -> EntryRow:
    """Return an entry as the audit of its write has it."""
    try:
        audit = audit_at(connection, entry.lsn)
        if audit is None or entry.is_imported:
            return entry
        return entry._replace(
            mark=audit.replica[:MARK_BYTES].hex(),
            at_ms=audit.at_ms,
            operation=audit.operation,
            lane=", ".join(lanes_of(audit)[:SHOWN_LANES]),
            rev=audit.rev - 1,
        )
    except DAMAGE:
        return entry


def _with_text(connection: apsw.Connection, doc: int, entry: EntryRow) -> EntryRow:
    """Return an entry with its text made of the records before, where that fits."""
    if is_text_intact(entry) and units_of(view_of(entry.file)) == entry.size:
        return entry
    try:
        # The id does not matter: nothing is written to this document.
        until = entry.first_lsn - 1
        file = load_doc(connection, doc, bytes(16), until=until).file
    except DAMAGE:
        return entry
    digest = content_hash(view_of(file))
    if digest != entry.hash and file != entry.file:
        return entry
    return entry._replace(file=file, hash=digest, size=units_of(view_of(file)))


def _write_names(connection: apsw.Connection, row: SlotRow) -> None:
    values = {"namespace": row.namespace, "label": row.label, "doc": row.doc}
    connection.execute(
        "UPDATE slot SET namespace = :namespace, label = :label WHERE doc = :doc",
        values,
    )
    connection.execute(
        "UPDATE doc SET namespace = :namespace, name = :label, kind = :kind"
        " WHERE doc = :doc",
        {**values, "kind": DocKind.SLOT},
    )


def quarantine_rows(transaction: Transaction, doc: int, first_lsn: int) -> int:
    """Put a doc's records from a step on into quarantine; return how many it were."""
    values = {"doc": doc, "first": first_lsn, "now": transaction.now_ms}
    # In SQL alone: what is in them may be unreadable.
    transaction.connection.execute(
        "INSERT INTO quarantine(doc, lsn, replica, code, content, at_ms)"
        " SELECT doc, lsn, replica, 'record-damaged', content, :now FROM log"
        " WHERE doc = :doc AND lsn >= :first",
        values,
    )
    transaction.connection.execute(
        "DELETE FROM log WHERE doc = :doc AND lsn >= :first",
        {"doc": doc, "first": first_lsn},
    )
    return transaction.connection.changes()


def quarantine_state(transaction: Transaction, doc: int, state: bytes) -> None:
    """Put the state of a doc's checkpoint into quarantine."""
    transaction.connection.execute(
        "INSERT INTO quarantine(doc, lsn, replica, code, content, at_ms)"
        " VALUES (:doc, 0, :replica, 'state-damaged', :content, :now)",
        {
            "doc": doc,
            "replica": transaction.replica,
            "content": state,
            "now": transaction.now_ms,
        },
    )


def _readable_row(connection: apsw.Connection, doc: int) -> SlotRow:
    """Return a slot's row, with a sign for each byte that is no text."""
    for row in connection.execute(
        "SELECT doc, CAST(namespace AS BLOB), CAST(label AS BLOB), CAST(file AS BLOB),"
        " rev, CAST(hash AS BLOB), size, size_limit, CAST(description AS BLOB), pinned,"
        " read_only, append_only, deleted, created_ms, updated_ms, lsn,"
        " CAST(operation AS BLOB), CAST(lane AS BLOB), CAST(quarantined AS BLOB)"
        " FROM slot WHERE doc = :doc",
        {"doc": doc},
    ):
        return SlotRow(*map(_readable, row))
    raise DocError("its row is missing")


def _readable_checkpoint(connection: apsw.Connection, doc: int) -> Checkpoint:
    for namespace, name, state, lsn, file, blame, genesis, digest in connection.execute(
        "SELECT CAST(namespace AS BLOB), CAST(name AS BLOB), state, state_lsn,"
        " CAST(file AS BLOB), blame, CAST(genesis AS BLOB), digest FROM doc"
        " WHERE doc = :doc",
        {"doc": doc},
    ):
        return Checkpoint(
            namespace=namespace.decode(errors="replace"),
            name=name.decode(errors="replace"),
            state=state,
            lsn=lsn,
            file=file.decode(errors="replace"),
            blame=blame,
            genesis=genesis.decode(errors="replace"),
            digest=digest,
        )
    raise DocError(f"doc {doc} is missing")


def _readable_entries(connection: apsw.Connection, doc: int) -> list[EntryRow]:
    """Return a doc's kept texts, newest first, likewise."""
    rows = connection.execute(
        "SELECT place, first_lsn, CAST(mark AS BLOB), at_ms, CAST(operation AS BLOB),"
        " CAST(lane AS BLOB), rev, CAST(file AS BLOB), CAST(hash AS BLOB), size,"
        " is_imported, undone_by, undoes, living FROM history"
        " WHERE place >= :low AND place < :high ORDER BY place DESC",
        place_bounds(doc),
    )
    return [EntryRow(*map(_readable, row)) for row in rows]


def _readable(value: Any) -> Any:
    return value.decode(errors="replace") if isinstance(value, bytes) else value
