"""The way in for the records of one doc, whatever it holds.

What differs between kinds is how a document is opened, what a change of it is, and
which rows follow from that: ``store.inbox`` does it for slots, ``store.set_inbox`` for
memory sets.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from crdtmem.doc.document import Document
from crdtmem.errors import (
    DocError,
    ProtocolError,
    SlotQuarantinedError,
    UpdateRejectedError,
)
from crdtmem.protocol.envelopes import StateEnvelope, UpdateEnvelope, Write
from crdtmem.protocol.records import DocKind
from crdtmem.store.documents import writer_id
from crdtmem.store.log import advance_stream, append_row, find_doc, make_doc
from crdtmem.store.rows import LogRow
from crdtmem.store.states import must_wait
from crdtmem.store.write import Transaction
from crdtmem.updates import scan

if TYPE_CHECKING:
    from crdtmem.store.store import Store

__all__ = [
    "REFUSALS",
    "SHOWN_LANES",
    "DocInbox",
    "Incoming",
    "StateStep",
    "Step",
    "WriteStep",
    "rejected",
]

SHOWN_LANES = 8
"""How many lanes the history entry of one batch names."""

REFUSALS = (DocError, ProtocolError, SlotQuarantinedError)
"""What taking a batch raises; its ``code`` is the rule that was broken."""

_Doc = TypeVar("_Doc", bound=Document)


@dataclass(frozen=True, slots=True)
class Incoming:
    """One new record of another replica.

    Attributes:
        replica: Who wrote it.
        replica_seq: Its place in that replica's stream.
        envelope: Writes of the doc, or its whole state.
        is_fork: Whether it comes under our own ids and is not ours. Then a repetition
            is none: one clock has got two contents.

    """

    replica: bytes
    replica_seq: int
    envelope: UpdateEnvelope | StateEnvelope
    is_fork: bool = False


class WriteStep(NamedTuple):
    """A write that the document has taken and that is to be logged.

    ``change`` is what it changed: a delta, or the names of members.
    """

    record: Incoming
    place: int
    write: Write
    change: Any


class StateStep(NamedTuple):
    """A state that the document has taken and that is to be its checkpoint."""

    record: Incoming
    merged: Any


Step = WriteStep | StateStep


class DocInbox(ABC, Generic[_Doc]):
    """The way in for the records of one doc.

    1. Each write is scanned before pycrdt sees it, and the document is held against
       its records before anything of the batch is kept.
    2. A batch makes one rev, and only if it changed what is shown.
    3. A refused batch changes nothing.

    Args:
        transaction: Of the caller.
        store: The store.
        namespace: Of the doc.
        name: Its name.

    Attributes:
        doc: The doc, made if it was not there.

    """

    kind: DocKind

    def __init__(
        self, transaction: Transaction, store: "Store", namespace: str, name: str
    ) -> None:
        self._tx = transaction
        self._store = store
        self._namespace = namespace
        self._name = name
        connection = transaction.connection
        self.doc = find_doc(connection, namespace, self.kind, name) or make_doc(
            connection, namespace, self.kind, name
        )

    def take(self, batch: Sequence[Incoming]) -> int:
        """Apply a batch and return how many of its records were taken.

        Fewer than all only where a state must wait, because it would make this store
        forget writes that the relay does not have yet.

        Raises:
            CrdtmemError: One of REFUSALS; nothing was applied.

        """
        try:
            with self._tx.connection:
                document, steps, taken = self._absorbed(batch)
                self._settle_marks(document, batch[:taken])
                if steps:
                    self._write(document, steps, batch[:taken])
        except REFUSALS:
            self._forget()
            raise
        return taken

    def fitting(self, batch: Sequence[Incoming]) -> tuple[int, str]:
        """Return how many records of a refused batch fit, and what the next one breaks.

        Costs a few loads of the document, whatever is wrong with it; writes nothing.
        """
        fits, fails = 0, len(batch)
        code = self._refusal(batch)
        while code and fails - fits > 1:
            middle = (fits + fails) // 2
            found = self._refusal(batch[:middle])
            if found:
                fails, code = middle, found
            else:
                fits = middle
        return (fits if code else fails), code

    @abstractmethod
    def _open(self) -> _Doc:
        """Return the document at its newest, and keep its row for ``_write``.

        Raises:
            CrdtmemError: One of REFUSALS, if it takes nothing.

        """

    @abstractmethod
    def _load(self, state: bytes) -> _Doc:
        """Return a document of this kind from a whole state that came."""

    @abstractmethod
    def _apply(self, document: _Doc, update: bytes, client_id: int) -> object:
        """Let the document take an update; what is returned is false for no change."""

    @abstractmethod
    def _apply_first(self, document: _Doc, write: Write) -> object:
        """Let the document take a first text."""

    @abstractmethod
    def _merge(self, document: _Doc, envelope: StateEnvelope) -> object | None:
        """Let the document take a state; None if it had all of it already."""

    @abstractmethod
    def _check(self, document: _Doc, steps: Sequence[Step]) -> None:
        """Hold the document against its records."""

    @abstractmethod
    def _write(
        self, document: _Doc, steps: Sequence[Step], batch: Sequence[Incoming]
    ) -> None:
        """Write the steps and all rows that follow from them."""

    def _refusal(self, batch: Sequence[Incoming]) -> str:
        try:
            self._absorbed(batch)
        except REFUSALS as exc:
            return exc.code
        finally:
            self._forget()
        return ""

    def _forget(self) -> None:
        """Throw the document away that a trial has changed, or a refusal has spent."""
        self._store.docs.pop(self.doc, None)
        self._tx.mark_damaged()

    def _settle_marks(self, document: _Doc, batch: Sequence[Incoming]) -> None:
        """Send no state of the doc where another replica has sent the same.

        After a relay was restored, each doc so comes back once, not once a store.
        """
        states = [r.envelope for r in batch if isinstance(r.envelope, StateEnvelope)]
        marks = "SELECT 1 FROM sync_doc WHERE doc = :doc AND state_needed"
        if not states or not self._tx.connection.execute(marks, {"doc": self.doc}).get:
            return
        for envelope in states:
            if document.is_same(self._load(envelope.state)):
                self._tx.connection.execute(
                    "UPDATE sync_doc SET state_needed = 0 WHERE doc = :doc",
                    {"doc": self.doc},
                )

    def _absorbed(self, batch: Sequence[Incoming]) -> tuple[_Doc, list[Step], int]:
        """Let the document take a batch; nothing is written yet."""
        document = self._open()
        self._tx.edited.add(self.doc)
        steps: list[Step] = []
        taken = 0
        for record in batch:
            found = self._steps(document, record)
            if found is None:
                break
            steps += found
            taken += 1
        self._check(document, steps)
        return document, steps, taken

    def _steps(self, document: _Doc, record: Incoming) -> list[Step] | None:
        """Let the document take a record; None for a state that must wait."""
        envelope = record.envelope
        if isinstance(envelope, UpdateEnvelope):
            return [
                step
                for place, write in enumerate(envelope.writes)
                if (step := self._write_step(document, record, place, write))
            ]
        if must_wait(self._tx.connection, self.doc) and not document.holds(
            envelope.state
        ):
            return None
        merged = self._merge(document, envelope)
        return [] if merged is None else [StateStep(record, merged)]

    def _write_step(
        self, document: _Doc, record: Incoming, place: int, write: Write
    ) -> WriteStep | None:
        """Let the document take a write; None for one that it has taken before.

        It comes again after a rewind, or from a stream of ours that has ended: the log
        has it already, or a checkpoint.
        """
        clocks = dict(document.clocks)
        change = self._absorb(document, record, write)
        if document.clocks == clocks and not change and not write.is_genesis:
            writer = frozenset((writer_id(record.replica),))
            found = scan(
                write.update,
                client_ids=writer,
                state=document.clocks,
                snapshot=False,
                roots=document.roots,
            )
            if found.is_known or self._is_logged(record, write):
                return None
        return WriteStep(record, place, write, change)

    def _is_logged(self, record: Incoming, write: Write) -> bool:
        """Tell whether the log has a write; of one that only deletes no clock tells."""
        found = self._tx.connection.execute(
            "SELECT 1 FROM log WHERE doc = :doc AND replica = :replica"
            " AND at_ms = :at AND lane = :lane AND content = :content",
            {
                "doc": self.doc,
                "replica": record.replica,
                "at": write.at_ms,
                "lane": write.lane,
                "content": write.update,
            },
        ).get
        return found is not None

    def _absorb(self, document: _Doc, record: Incoming, write: Write) -> object:
        if write.is_genesis:
            return self._apply_first(document, write)
        if write.counter:
            raise rejected(f"counter {write.counter} is of a later version")
        clocks = dict(document.clocks)
        change = self._apply(document, write.update, writer_id(record.replica))
        if record.is_fork and document.clocks == clocks:
            raise rejected("our own client id has written something else there")
        return change

    def _log(
        self, step: WriteStep, *, delta: str, undoes: str | None, note: str | None
    ) -> LogRow:
        """Write a step into the log and return its row."""
        record, write = step.record, step.write
        row = LogRow(
            lsn=self._tx.next_lsn(),
            doc=self.doc,
            replica=record.replica,
            replica_seq=record.replica_seq,
            place=step.place,
            is_genesis=int(write.is_genesis),
            lane=write.lane,
            at_ms=write.at_ms,
            operation=write.op,
            content=write.update,
            delta=delta,
            undoes=undoes,
            digest=b"",
            note=note,
        )
        append_row(self._tx.connection, row)
        return row

    def _advance_streams(self, batch: Sequence[Incoming]) -> None:
        for record in batch:
            advance_stream(
                self._tx.connection, self._namespace, record.replica, record.replica_seq
            )


def rejected(reason: str) -> UpdateRejectedError:
    """Return the error for an update whose writer is not whom its record says."""
    return UpdateRejectedError(code="update-client", reason=reason, at_byte=0)
