"""The write transaction: lock, BEGIN, edit at the newest state, COMMIT.

Everything that a write changes is one SQLite transaction: the record, the slot's row,
its history, the audit row, the request id. The steps, in the order in which a verb
takes them:

    begin       who we are, where the log stands
    slot        the slot's row, refused if it is quarantined
    write_slot  one edit in one document transaction, its record, everything about it
    commit      from here on it is on disk
"""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar, cast

import apsw

from crdtmem.doc.delta import Delta, encode_delta
from crdtmem.doc.document import Document
from crdtmem.doc.slot_doc import SlotDoc, genesis_update
from crdtmem.doc.text_form import units_of, view_of
from crdtmem.doc.trace import Trace
from crdtmem.errors import DocError, ProtocolError, SlotQuarantinedError
from crdtmem.headroom import content_hash
from crdtmem.limits import (
    DOCS_CACHED_MAX,
    DOCS_CACHED_MEMBERS_MAX,
    MAX_SIZE_UNITS,
    SQUASH_SLACK_RECORDS,
)
from crdtmem.protocol.records import DocKind, genesis_client_id
from crdtmem.store.about import about_store
from crdtmem.store.audit import add_audit
from crdtmem.store.context import new_replica_id
from crdtmem.store.documents import SLOT_LOADING, Loading, squash, trace_from, writer_id
from crdtmem.store.history import add_entry, entries_of, prune_entries
from crdtmem.store.log import (
    append_row,
    checkpoint_lsn,
    count_rows,
    find_doc,
    first_unsealed,
    kind_of,
    load_checkpoint,
    log_of,
    make_doc,
)
from crdtmem.store.rows import PLACE_BITS, AuditRow, EntryRow, LogRow, SlotRow
from crdtmem.store.set_docs import quarantine_set, squash_set
from crdtmem.store.sets import SetRow
from crdtmem.store.slots import empty_slot, find_slot, quarantine_slot, save_slot

if TYPE_CHECKING:
    from crdtmem.store.store import Store

__all__ = ["Change", "Transaction", "with_meta"]

_Doc = TypeVar("_Doc", bound=Document)

MARK_BYTES = 4
"""How much of the replica id makes a history id differ from other stores' ids."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """What a verb wants to write to one slot.

    Attributes:
        operation: Its name in history and audit.
        lane: Who writes.
        delta: The change of the text file, in whole lines.
        meta: Settings to set, by their names in the doc.
        genesis: The first text of a doc without records, in place of a delta.
        undoes: The steps of the log that this one takes back.
        undone_place: The history entry that it takes back.
        keeps_rev: Neither text nor existence changes, or the slot is made.
        first_rev: The rev of a slot that is made with a past; its kept texts come
            before.
        details: For the audit row.
        note: What the record tells other stores besides, as JSON.

    """

    operation: str
    lane: str
    delta: Delta = ()
    meta: Mapping[str, object] = field(default_factory=dict)
    genesis: str = ""
    undoes: frozenset[int] | None = None
    undone_place: int | None = None
    keeps_rev: bool = False
    first_rev: int = 0
    details: Mapping[str, object] = field(default_factory=dict)
    note: str | None = None


class Transaction:
    """One write transaction; made and ended by ``Store.writing``.

    Attributes:
        connection: In the transaction.
        now_ms: When it began, by the handle's clock.
        replica: The replica id under which it writes.
        history_keep: Kept texts a slot.
        is_committing: COMMIT has been sent: what happened is SQLite's to say.
        edited: Docs whose cached form is ahead of the file until the commit.
        sealers: Those of the store.
        damaged: Doc and reason, where a damaged record ended the transaction.

    """

    def __init__(self, store: "Store", connection: apsw.Connection) -> None:
        self.connection = connection
        self.now_ms = store.clock_ms()
        self.replica = b""
        self.history_keep = 0
        self.is_committing = False
        self.edited: set[int] = set()
        self.sealers = store.sealers
        self.damaged: tuple[int, str] | None = None
        self._store = store
        self._lsn = 0
        self._first_lsn = 0

    def begin(self) -> None:
        """Take SQLite's write lock and learn where the log stands.

        A file in another place than the one it was written in is a copy. It gets ids
        of its own before its first write, or two stores would write different things
        under one client id and clock.
        """
        self.connection.execute("BEGIN IMMEDIATE")
        about = about_store(self.connection, str(self._store.path))
        self.replica, self._lsn = about.replica, about.lsn
        self.history_keep = about.history_keep
        self._first_lsn = self._lsn
        if about.context != self._store.context:
            self.take_new_ids()

    def take_new_ids(self) -> None:
        """Give the store a new replica id, and so a new client id."""
        self.replica = new_replica_id()
        self._store.docs.clear()
        self.connection.execute(
            "UPDATE store SET replica = :replica, context = :context",
            {"replica": self.replica, "context": self._store.context},
        )

    def set_history_keep(self, texts: int) -> None:
        """Keep so many texts of each slot; those past it go with its next write."""
        self.history_keep = texts
        self.connection.execute(
            "UPDATE store SET history_keep = :texts", {"texts": texts}
        )

    def commit(self) -> None:
        """Make everything durable and visible at once."""
        if self.has_written:
            self.connection.execute("UPDATE store SET lsn = :lsn", {"lsn": self._lsn})
        self.is_committing = True
        self.connection.execute("COMMIT")
        self.is_committing = False
        self.edited.clear()

    @property
    def has_written(self) -> bool:
        """Whether the log has a new step."""
        return self._lsn != self._first_lsn

    @property
    def lsn(self) -> int:
        """The newest step of the log."""
        return self._lsn

    def next_lsn(self) -> int:
        """Return the number of the next step of the log."""
        self._lsn += 1
        return self._lsn

    def slot(self, namespace: str, label: str) -> SlotRow | None:
        """Return a slot's row, deleted ones included.

        Raises:
            SlotQuarantinedError: If one of its records is damaged.

        """
        row = find_slot(self.connection, namespace, label)
        if row is not None and row.quarantined is not None:
            raise SlotQuarantinedError(label=label, reason=row.quarantined)
        return row

    def document(self, row: SlotRow) -> SlotDoc:
        """Return a slot's document at the newest state, from the cache if it is there.

        Raises:
            SlotQuarantinedError: If a record is damaged. The slot is marked when the
                transaction is rolled back.

        """
        with self.damage_of(row.doc, row.label):
            document = self.cached(row.doc, row.lsn, SLOT_LOADING)
            if document.file != row.file:
                raise DocError("the slot's text differs from its records")
        return document

    def trace(self, row: SlotRow, entry: EntryRow) -> Trace:
        """Return a kept text with all that was written since replayed on it.

        Raises:
            SlotQuarantinedError: If a record is damaged; see document.

        """
        with self.damage_of(row.doc, row.label):
            return trace_from(self.connection, row.doc, entry)

    def mark_damaged(self) -> None:
        """Stop the writes of the doc whose record was found damaged, if any was."""
        if self.damaged is not None:
            doc, reason = self.damaged
            quarantine_slot(self.connection, doc, reason)
            quarantine_set(self.connection, doc, reason)
            self.damaged = None

    def write_slot(
        self, before: SlotRow | None, namespace: str, label: str, change: Change
    ) -> tuple[SlotRow, EntryRow | None]:
        """Make one edit and write all that follows from it.

        Args:
            before: The slot's row, or None where it has none yet.
            namespace: Of the slot.
            label: Of the slot.
            change: What to write. One that changes nothing still makes its row.

        Returns:
            The row after it, and the history entry of the text before it, if any.

        """
        plain = empty_slot(namespace, label, self.now_ms)
        base = before or plain._replace(rev=change.first_rev)
        if before is None:
            doc = find_doc(self.connection, namespace, DocKind.SLOT, label)
            doc = doc or make_doc(self.connection, namespace, DocKind.SLOT, label)
            base = base._replace(doc=doc)
            document = SlotDoc(writer_id(self.replica))
        else:
            document = self.document(before)
        self.edited.add(base.doc)
        first_lsn = self._edit(document, base, change)
        self.remember(base.doc, document)
        row = self.materialised(document, base, change)
        save_slot(self.connection, row)
        entry = None
        if not change.keeps_rev:
            entry = self.keep_text(base, row, change, first_lsn)
        self.audit(base, row, change, [change.lane])
        self.squash_if_long(row.doc)
        return row, entry

    def materialised(self, document: SlotDoc, base: SlotRow, change: Change) -> SlotRow:
        """Return the slot's row as its document has it now."""
        view = view_of(document.file)
        is_same_text = document.file == base.file
        row = base._replace(
            file=document.file,
            rev=base.rev if change.keeps_rev else base.rev + 1,
            hash=base.hash if is_same_text else content_hash(view),
            size=base.size if is_same_text else units_of(view),
            updated_ms=self.now_ms,
            lsn=self._lsn,
            operation=change.operation,
            lane=change.lane,
        )
        return with_meta(row, document.meta) if change.meta else row

    def keep_text(
        self, base: SlotRow, row: SlotRow, change: Change, first_lsn: int
    ) -> EntryRow:
        """Write the history entry of a commit: the text before it."""
        entry = EntryRow(
            place=(row.doc << PLACE_BITS) | row.lsn,
            first_lsn=first_lsn,
            mark=self.replica[:MARK_BYTES].hex(),
            at_ms=self.now_ms,
            operation=change.operation,
            lane=change.lane,
            rev=base.rev,
            file=base.file,
            hash=base.hash,
            size=base.size,
            is_imported=0,
            undone_by=None,
            undoes=change.undone_place,
            living=None,
        )
        add_entry(self.connection, entry)
        prune_entries(self.connection, row.doc, self.history_keep)
        return entry

    def log(
        self,
        doc: int,
        content: bytes,
        delta: Delta,
        *,
        lane: str,
        operation: str,
        is_genesis: bool = False,
        undoes: frozenset[int] | None = None,
        note: str | None = None,
        at_ms: int | None = None,
    ) -> int:
        """Write one own record, of now unless told otherwise; return its step."""
        row = LogRow(
            lsn=self.next_lsn(),
            doc=doc,
            replica=self.replica,
            replica_seq=None,
            place=None,
            is_genesis=int(is_genesis),
            lane=lane,
            at_ms=self.now_ms if at_ms is None else at_ms,
            operation=operation,
            content=content,
            delta=encode_delta(delta),
            undoes=None if undoes is None else json.dumps(sorted(undoes)),
            digest=b"",
            note=note,
        )
        append_row(self.connection, row)
        return row.lsn

    def squash_if_long(self, doc: int) -> None:
        """Squash the records behind the history window, once enough have gathered."""
        rows = count_rows(self.connection, doc)
        if rows > self.history_keep + SQUASH_SLACK_RECORDS:
            self.squash(doc)

    def squash(self, doc: int) -> None:
        """Squash all records of a doc that no kept history entry needs."""
        if kind_of(self.connection, doc) == DocKind.MEMORY_SET:
            squash_set(self, doc)
            return
        kept = [e for e in entries_of(self.connection, doc) if not e.is_imported]
        until = min((e.first_lsn for e in kept), default=self._lsn + 1) - 1
        checkpoint = load_checkpoint(self.connection, doc)
        unsealed = first_unsealed(self.connection, doc, checkpoint.namespace)
        if unsealed is not None:
            # Others that have the records before it wait for this one.
            until = min(until, unsealed - 1)
        with self.damage_of(doc, checkpoint.name):
            squash(self.connection, doc, self.replica, until)

    @contextmanager
    def damage_of(self, doc: int, name: str) -> Iterator[None]:
        """Note whatever is wrong with a doc, to stop its writes, and say so.

        Raises:
            SlotQuarantinedError: For what the block finds.

        """
        try:
            yield
        except (DocError, ProtocolError, ValueError) as exc:
            self.damaged = doc, str(exc)
            raise SlotQuarantinedError(label=name, reason=str(exc)) from exc

    def _edit(self, document: SlotDoc, base: SlotRow, change: Change) -> int:
        """Change the document, log the records, and return the first one's step."""
        first_lsn = self._lsn + 1
        if change.genesis:
            self._first_text(document, base, change)
        if change.delta or change.meta:
            content = document.edit(change.delta, change.meta)
            self.log(
                base.doc,
                content,
                change.delta,
                lane=change.lane,
                operation=change.operation,
                undoes=change.undoes,
                note=change.note,
            )
        if self._lsn < first_lsn:
            self.next_lsn()
        return first_lsn

    def _first_text(self, document: SlotDoc, base: SlotRow, change: Change) -> None:
        file = change.genesis
        name = base.namespace, DocKind.SLOT, base.label
        content = genesis_update(genesis_client_id(*name, file.encode()), file)
        delta = document.apply_genesis(
            content, namespace=base.namespace, label=base.label
        )
        self.log(
            base.doc,
            content,
            delta,
            lane=change.lane,
            operation=change.operation,
            is_genesis=True,
        )

    def cached(self, doc: int, lsn: int, loading: Loading[_Doc]) -> _Doc:
        """Return a doc's document at its newest step, from the cache if it is there.

        Args:
            doc: The doc.
            lsn: Its newest step.
            loading: How its kind is loaded.

        Raises:
            DocError: If a record is damaged.
            UpdateRejectedError: If the scanner refuses one.

        """
        cached = self._store.docs.get(doc)
        # Another handle may have given the store new ids since it was cached.
        if cached is not None and cached[1].client_id != writer_id(self.replica):
            cached = None
        # A doc never changes its kind.
        found = None if cached is None else cast("tuple[int, _Doc]", cached)
        if found is not None and found[0] == lsn:
            return found[1]
        if found is None or found[0] < checkpoint_lsn(self.connection, doc):
            document = loading.load(self.connection, doc, self.replica)
        else:
            # A row that fails leaves the document between two states.
            self.edited.add(doc)
            rows = log_of(self.connection, doc, after=found[0])
            document = loading.catch_up(found[1], rows)
        self._store.docs[doc] = lsn, document
        return document

    def remember(self, doc: int, document: Document) -> None:
        """Cache a document as it will be when this transaction has committed."""
        docs = self._store.docs
        docs.pop(doc, None)
        docs[doc] = self._lsn, document
        while len(docs) > DOCS_CACHED_MAX or (
            len(docs) > 1
            and sum(one.weight for _, one in docs.values()) > DOCS_CACHED_MEMBERS_MAX
        ):
            del docs[next(iter(docs))]

    def audit(
        self,
        base: SlotRow | SetRow,
        row: SlotRow | SetRow,
        change: Change,
        lanes: list[str],
    ) -> None:
        """Write the audit row of a commit."""
        add_audit(
            self.connection,
            AuditRow(
                lsn=row.lsn,
                doc=row.doc,
                at_ms=self.now_ms,
                replica=self.replica,
                lanes=json.dumps(lanes),
                operation=change.operation,
                rev_before=base.rev,
                rev=row.rev,
                size_before=base.size,
                size=row.size,
                details=json.dumps(change.details),
            ),
        )


def with_meta(row: SlotRow, meta: Mapping[str, object]) -> SlotRow:
    """Return the row with the settings of its doc; the scanner checked their types."""
    plain = empty_slot(row.namespace, row.label, row.created_ms)
    limit = meta.get("sizeLimit")
    if not isinstance(limit, int) or not 1 <= limit <= MAX_SIZE_UNITS:
        limit = plain.size_limit
    return row._replace(
        size_limit=limit,
        description=str(meta.get("description", plain.description)),
        pinned=int(bool(meta.get("pinned", plain.pinned))),
        read_only=int(bool(meta.get("readOnly", False))),
        append_only=int(bool(meta.get("appendOnly", False))),
        deleted=int(bool(meta.get("deleted", False))),
    )
