"""Editor docs in the store: their rows, and the write that folds them into a slot.

Local to one store file: never synced, exported or written about in a slot's records.
"""

import hashlib
import secrets
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import apsw

from crdtmem.doc.delta import Delta, apply_delta, decode_delta, encode_delta
from crdtmem.doc.editor_doc import EditorDoc
from crdtmem.doc.slot_doc import SlotDoc
from crdtmem.errors import DocError
from crdtmem.limits import (
    EDITOR_LOG_BYTES,
    EDITOR_LOG_ROWS,
    EDITOR_OWN_IDS_MAX,
    EDITOR_RESCUED_BYTES,
    EDITOR_RESCUED_MAX,
)
from crdtmem.protocol.records import DocKind
from crdtmem.store.documents import writer_id
from crdtmem.store.log import find_doc, make_doc
from crdtmem.store.pins import drop_pin, make_pin
from crdtmem.store.rows import SlotRow
from crdtmem.store.slots import empty_slot, save_slot
from crdtmem.store.write import Change, Transaction

__all__ = [
    "EditorLogRow",
    "EditorRow",
    "Run",
    "add_editor_row",
    "checked_editors",
    "delete_editor_doc",
    "editor_rows",
    "find_editor_doc",
    "keep_damaged",
    "keep_rescued",
    "load_editor_doc",
    "make_editor_doc",
    "mark_folded",
    "new_gid",
    "save_blocked",
    "save_gid",
    "squash_editor_doc",
    "write_runs",
]

DIGEST_BYTES = 16
DAMAGED = "editor-damaged"
_ANCHOR_LEAST = 1 << 32
_ANCHOR_BITS = 52
_SHOWN_LANES = 8


class EditorRow(NamedTuple):
    """An editor doc, as its table has it; see there."""

    editor: int
    namespace: str
    label: str
    incarnation: str
    place: str
    replica: bytes
    anchor: int
    gid: int
    n_state: int
    n: int
    n_folded: int
    rev: int
    pin: int
    blocked: str
    touched_ms: int
    digest: bytes
    state: bytes
    text: str

    @property
    def has_unfolded(self) -> bool:
        """Whether anything was typed that the slot does not have."""
        return self.n > self.n_folded


class EditorLogRow(NamedTuple):
    """A row of an editor doc: who wrote what, and how it changed the text."""

    n: int
    lane: str
    at_ms: int
    content: bytes
    delta: Delta


class Run(NamedTuple):
    """What one lane has typed in one go: a write of the slot."""

    lane: str
    at_ms: int
    delta: Delta


def find_editor_doc(
    connection: apsw.Connection, namespace: str, label: str
) -> EditorRow | None:
    """Return the editor doc of a slot, or None."""
    for row in connection.execute(
        "SELECT * FROM editor_doc WHERE namespace = :namespace AND label = :label",
        {"namespace": namespace, "label": label},
    ):
        return EditorRow(*row)
    return None


def make_editor_doc(
    transaction: Transaction, slot: SlotRow, *, place: str
) -> EditorRow:
    """Make the editor doc of a slot from its text.

    Args:
        transaction: Of the caller.
        slot: The slot; a template has no doc, and no pin.
        place: Which file the store is.

    Raises:
        DocError: If pycrdt fails.

    """
    anchor = _ANCHOR_LEAST + secrets.randbits(_ANCHOR_BITS)
    gid = new_gid(frozenset())
    incarnation = secrets.token_hex(16)
    document = EditorDoc.make(
        gid=gid, anchor=anchor, incarnation=incarnation, text=slot.file
    )
    connection = transaction.connection
    pin = make_pin(connection, slot, transaction.now_ms) if slot.doc else 0
    state = document.state()
    connection.execute(
        "INSERT INTO editor_doc VALUES (NULL, :namespace, :label, :incarnation, :place,"
        " :replica, :anchor, :gid, 0, 0, 0, :rev, :pin, '', :now, :digest, :state,"
        " :text)",
        {
            "namespace": slot.namespace,
            "label": slot.label,
            "incarnation": incarnation,
            "place": place,
            "replica": transaction.replica,
            "anchor": anchor,
            "gid": gid,
            "rev": slot.rev,
            "pin": pin,
            "now": transaction.now_ms,
            "digest": _digest_of(state, slot.file),
            "state": state,
            "text": slot.file,
        },
    )
    found = find_editor_doc(connection, slot.namespace, slot.label)
    if found is None:
        raise DocError("an editor doc is gone right after it was made")
    return found


def delete_editor_doc(connection: apsw.Connection, row: EditorRow) -> None:
    """Forget an editor doc and its rows."""
    drop_pin(connection, row.pin)
    for statement in (
        "DELETE FROM editor_log WHERE editor = :editor",
        "DELETE FROM editor_doc WHERE editor = :editor",
    ):
        connection.execute(statement, {"editor": row.editor})


def new_gid(taken: frozenset[int]) -> int:
    """Draw a small client id that is not taken."""
    while True:
        gid = 1 + secrets.randbelow(EDITOR_OWN_IDS_MAX - 1)
        if gid not in taken:
            return gid


def save_gid(transaction: Transaction, row: EditorRow, gid: int) -> EditorRow:
    """Give an editor doc another client id for the gateway."""
    transaction.connection.execute(
        "UPDATE editor_doc SET gid = :gid, replica = :replica WHERE editor = :editor",
        {"gid": gid, "replica": transaction.replica, "editor": row.editor},
    )
    return row._replace(gid=gid, replica=transaction.replica)


def load_editor_doc(connection: apsw.Connection, row: EditorRow) -> EditorDoc:
    """Make an editor doc from its state and its rows.

    Raises:
        DocError: If anything of it is damaged.

    """
    if row.digest != _digest_of(row.state, row.text):
        raise DocError("the state of an editor doc is damaged")
    document = EditorDoc.load(row.gid, row.state)
    rows = editor_rows(connection, row.editor, after=row.n_state)
    if [each.n for each in rows] != list(range(row.n_state + 1, row.n + 1)):
        raise DocError("rows of an editor doc are missing")
    for each in rows:
        document.replay(each.content)
    text = row.text
    for each in rows:
        if each.n > row.n_folded:
            text = apply_delta(text, each.delta)
    if text != document.text:
        raise DocError("the text of an editor doc differs from its rows")
    return document


def editor_rows(
    connection: apsw.Connection, editor: int, *, after: int
) -> list[EditorLogRow]:
    """Return the rows of an editor doc after one, oldest first.

    Raises:
        DocError: If one is damaged.

    """
    found = []
    for n, lane, at_ms, digest, content, delta in connection.execute(
        "SELECT n, lane, at_ms, digest, content, delta FROM editor_log"
        " WHERE editor = :editor AND n > :after ORDER BY n",
        {"editor": editor, "after": after},
    ):
        if digest != _digest_of(content, f"{lane}\0{at_ms}\0{delta}"):
            raise DocError(f"row {n} of an editor doc is damaged")
        found.append(EditorLogRow(n, lane, at_ms, content, decode_delta(delta)))
    return found


def add_editor_row(
    transaction: Transaction, row: EditorRow, *, lane: str, content: bytes, delta: Delta
) -> EditorRow:
    """Write a row behind the newest one; return the doc after it."""
    at_ms, encoded = transaction.now_ms, encode_delta(delta)
    transaction.connection.execute(
        "INSERT INTO editor_log VALUES"
        " (:editor, :n, :lane, :at, :digest, :content, :delta)",
        {
            "editor": row.editor,
            "n": row.n + 1,
            "lane": lane,
            "at": at_ms,
            "digest": _digest_of(content, f"{lane}\0{at_ms}\0{encoded}"),
            "content": content,
            "delta": encoded,
        },
    )
    transaction.connection.execute(
        "UPDATE editor_doc SET n = :n, touched_ms = :at WHERE editor = :editor",
        {"n": row.n + 1, "at": at_ms, "editor": row.editor},
    )
    return row._replace(n=row.n + 1, touched_ms=at_ms)


def mark_folded(transaction: Transaction, row: EditorRow, slot: SlotRow) -> EditorRow:
    """Note that the slot has all that was typed, and its text is that of the editors.

    Raises:
        DocError: If there is no such text.

    """
    connection = transaction.connection
    pin = make_pin(connection, slot, transaction.now_ms) if slot.doc else 0
    drop_pin(connection, row.pin)
    found = row._replace(
        n_folded=row.n,
        rev=slot.rev,
        pin=pin,
        blocked="",
        text=slot.file,
        digest=_digest_of(row.state, slot.file),
    )
    _save(connection, found)
    return found


def save_blocked(connection: apsw.Connection, row: EditorRow, code: str) -> EditorRow:
    """Note why what was typed cannot become part of the slot; empty: it can."""
    connection.execute(
        "UPDATE editor_doc SET blocked = :code WHERE editor = :editor",
        {"code": code, "editor": row.editor},
    )
    return row._replace(blocked=code)


def squash_editor_doc(
    connection: apsw.Connection, row: EditorRow, document: EditorDoc
) -> EditorRow:
    """Put the rows into the state, once there are many; all must be folded.

    Raises:
        DocError: If the state does not give the document again.

    """
    count, size = next(
        connection.execute(
            "SELECT count(*), coalesce(sum(length(content)), 0) FROM editor_log"
            " WHERE editor = :editor",
            {"editor": row.editor},
        )
    )
    if count < EDITOR_LOG_ROWS and size < EDITOR_LOG_BYTES:
        return row
    state = document.state()
    found = row._replace(n_state=row.n, state=state, digest=_digest_of(state, row.text))
    _save(connection, found)
    connection.execute(
        "DELETE FROM editor_log WHERE editor = :editor", {"editor": row.editor}
    )
    return found


def write_runs(
    transaction: Transaction,
    before: SlotRow,
    runs: Sequence[Run],
    meta: Mapping[str, object],
) -> SlotRow:
    """Write what editors typed to a slot: a record for each run, one rev for all.

    Args:
        transaction: Of the caller.
        before: The slot, or its template.
        runs: The changes, each over the text that those before it leave, in whole
            lines.
        meta: Settings that go with a write.

    Raises:
        SlotQuarantinedError: If a record of the slot is damaged.
        DocError: If a change is not of whole lines.

    """
    connection = transaction.connection
    base = before
    if not before.doc:
        name = before.namespace, DocKind.SLOT, before.label
        doc = find_doc(connection, *name) or make_doc(connection, *name)
        base = empty_slot(before.namespace, before.label, transaction.now_ms)
        base = base._replace(doc=doc)
        document = SlotDoc(writer_id(transaction.replica))
    else:
        document = transaction.document(before)
    transaction.edited.add(base.doc)
    first_lsn = transaction.lsn + 1
    settings = meta
    for run in runs:
        content = document.edit(run.delta, settings)
        transaction.log(
            base.doc,
            content,
            run.delta,
            lane=run.lane,
            operation="edit",
            at_ms=run.at_ms,
        )
        settings = {}
    lanes = sorted({run.lane for run in runs})
    change = Change(
        # Of several lanes it is what a batch of records is that came by wire.
        operation="edit" if len(lanes) == 1 else "sync",
        lane=", ".join(lanes[:_SHOWN_LANES]),
        meta=document.meta,
        details={"editors": len(runs)},
    )
    transaction.remember(base.doc, document)
    row = transaction.materialised(document, base, change)
    save_slot(connection, row)
    transaction.keep_text(base, row, change, first_lsn)
    transaction.audit(base, row, change, lanes)
    transaction.squash_if_long(base.doc)
    return row


def keep_rescued(
    transaction: Transaction, row: EditorRow, lane: str, text: str
) -> None:
    """Keep the text of an editor that had another document; the oldest ones go."""
    connection = transaction.connection
    connection.execute(
        "INSERT INTO editor_rescue"
        " VALUES (NULL, :namespace, :label, :lane, :at, :text)",
        {
            "namespace": row.namespace,
            "label": row.label,
            "lane": lane,
            "at": transaction.now_ms,
            "text": text,
        },
    )
    kept_bytes = 0
    rows: list[Any] = connection.execute(
        "SELECT rescue, length(CAST(text AS BLOB)) FROM editor_rescue"
        " ORDER BY rescue DESC"
    ).fetchall()
    for place, (rescue, size) in enumerate(rows):
        kept_bytes += size
        if place >= EDITOR_RESCUED_MAX or kept_bytes > EDITOR_RESCUED_BYTES:
            connection.execute(
                "DELETE FROM editor_rescue WHERE rescue = :rescue", {"rescue": rescue}
            )


def keep_damaged(transaction: Transaction, row: EditorRow) -> None:
    """Move what is left of a damaged editor doc into the quarantine."""
    connection = transaction.connection
    values = {
        "replica": row.replica,
        "code": DAMAGED,
        "now": transaction.now_ms,
        "editor": row.editor,
    }
    connection.execute(
        "INSERT INTO quarantine(doc, lsn, replica, code, content, at_ms)"
        " SELECT 0, 0, :replica, :code, state, :now FROM editor_doc"
        " WHERE editor = :editor",
        values,
    )
    connection.execute(
        "INSERT INTO quarantine(doc, lsn, replica, code, content, at_ms)"
        " SELECT 0, 0, :replica, :code, content, :now FROM editor_log"
        " WHERE editor = :editor ORDER BY n",
        values,
    )


def checked_editors(
    connection: apsw.Connection, namespaces: Sequence[str] | None
) -> list[tuple[str, str, str, str]]:
    """Return namespace, label, fault and blocked of each editor doc, for the doctor."""
    found = []
    rows: list[Any] = connection.execute("SELECT * FROM editor_doc").fetchall()
    for values in rows:
        row = EditorRow(*values)
        if namespaces is not None and row.namespace not in namespaces:
            continue
        fault = ""
        try:
            load_editor_doc(connection, row)
        except (DocError, ValueError) as exc:
            fault = str(exc)
        found.append((row.namespace, row.label, fault, row.blocked))
    return found


def _save(connection: apsw.Connection, row: EditorRow) -> None:
    connection.execute(
        "UPDATE editor_doc SET n_state = :n_state, n_folded = :n_folded, rev = :rev,"
        " pin = :pin, blocked = :blocked, digest = :digest, state = :state,"
        " text = :text WHERE editor = :editor",
        {
            "n_state": row.n_state,
            "n_folded": row.n_folded,
            "rev": row.rev,
            "pin": row.pin,
            "blocked": row.blocked,
            "digest": row.digest,
            "state": row.state,
            "text": row.text,
            "editor": row.editor,
        },
    )


def _digest_of(content: bytes, text: str) -> bytes:
    digest = hashlib.sha256(content)
    digest.update(text.encode())
    return digest.digest()[:DIGEST_BYTES]
