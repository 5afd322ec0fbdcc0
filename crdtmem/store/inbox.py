"""What other replicas wrote to one slot, taken into this store."""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from crdtmem.doc.delta import Delta, apply_delta, encode_delta
from crdtmem.doc.slot_doc import SlotDoc
from crdtmem.errors import (
    DocError,
    ProtocolError,
    SlotQuarantinedError,
    UpdateRejectedError,
)
from crdtmem.protocol.envelopes import (
    StateEnvelope,
    UpdateEnvelope,
    Write,
    read_undo_targets,
)
from crdtmem.protocol.records import DocKind
from crdtmem.scope import LABEL_PATTERN, PROJECT_ID_PATTERN
from crdtmem.store.condensed import (
    mark_undone_passes,
    read_condense_note,
    take_pass,
)
from crdtmem.store.documents import writer_id
from crdtmem.store.log import (
    advance_stream,
    append_row,
    find_doc,
    log_of,
    make_doc,
)
from crdtmem.store.rows import LogRow, SlotRow
from crdtmem.store.slots import empty_slot, find_slot, save_slot
from crdtmem.store.states import MergedState, merge_state, must_wait, save_state
from crdtmem.store.write import Change, Transaction
from crdtmem.updates import scan

if TYPE_CHECKING:
    from crdtmem.store.store import Store

__all__ = ["REFUSALS", "SHOWN_LANES", "Inbox", "Incoming"]

SHOWN_LANES = 8
"""How many lanes the history entry of one batch names."""

REFUSALS = (DocError, ProtocolError, SlotQuarantinedError)
"""What taking a batch raises; its ``code`` is the rule that was broken."""


@dataclass(frozen=True, slots=True)
class Incoming:
    """One new record of another replica.

    Attributes:
        replica: Who wrote it.
        replica_seq: Its place in that replica's stream.
        envelope: Writes of the slot, or its whole state.
        is_fork: Whether it comes under our own ids and is not ours. Then a repetition
            is none: one clock has got two contents.

    """

    replica: bytes
    replica_seq: int
    envelope: UpdateEnvelope | StateEnvelope
    is_fork: bool = False


class _WriteStep(NamedTuple):
    """A write that the document has taken and that is to be logged."""

    record: Incoming
    place: int
    write: Write
    delta: Delta


class _StateStep(NamedTuple):
    """A state that the document has taken and that is to be its checkpoint."""

    record: Incoming
    merged: MergedState


_Step = _WriteStep | _StateStep


class Inbox:
    """The way in for the records of one slot.

    1. Each write is scanned before pycrdt sees it, and the document is held against
       its records before anything of the batch is kept.
    2. A batch makes one rev and one history entry, and only if it changed the text.
    3. A refused batch changes nothing.

    Attributes:
        doc: The slot's doc, made if it was not there.

    """

    def __init__(
        self, transaction: Transaction, store: "Store", namespace: str, label: str
    ) -> None:
        self._tx = transaction
        self._store = store
        self._namespace = namespace
        self._label = label
        connection = transaction.connection
        self.doc = find_doc(connection, namespace, DocKind.SLOT, label) or make_doc(
            connection, namespace, DocKind.SLOT, label
        )

    def take(self, batch: Sequence[Incoming]) -> int:
        """Apply a batch and return how many of its records were taken.

        Fewer than all only where a state must wait, because it would make this store
        forget writes that the relay does not have yet.

        Raises:
            CrdtmemError: One of REFUSALS; nothing was applied.

        """
        connection = self._tx.connection
        before = find_slot(connection, self._namespace, self._label)
        try:
            with connection:
                taken = self._apply(before, batch)
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

    def _refusal(self, batch: Sequence[Incoming]) -> str:
        try:
            before = find_slot(self._tx.connection, self._namespace, self._label)
            self._absorbed(before, batch)
        except REFUSALS as exc:
            return exc.code
        finally:
            self._forget()
        return ""

    def _forget(self) -> None:
        """Throw the document away that a trial has changed, or a refusal has spent."""
        self._store.docs.pop(self.doc, None)
        self._tx.mark_damaged()

    def _apply(self, before: SlotRow | None, batch: Sequence[Incoming]) -> int:
        document, steps, taken = self._absorbed(before, batch)
        self._settle_marks(document, batch[:taken])
        if not steps:
            return taken
        base = before or empty_slot(self._namespace, self._label, self._tx.now_ms)
        base = base._replace(doc=self.doc)
        lanes: set[str] = set()
        lsns = [
            self._write(base, step, lanes, condensed)
            for step, condensed in zip(
                steps, _condensed_texts(base.file, steps), strict=True
            )
        ]
        for record in batch[:taken]:
            advance_stream(
                self._tx.connection, self._namespace, record.replica, record.replica_seq
            )
        self._tx.remember(self.doc, document)
        change = Change(
            operation="sync",
            lane=", ".join(sorted(lanes)[:SHOWN_LANES]),
            meta=document.meta,
            keeps_rev=before is None or document.file == base.file,
            details={"added": len(steps), "replica": steps[-1].record.replica.hex()},
        )
        row = self._tx.materialised(document, base, change)
        save_slot(self._tx.connection, row)
        if not change.keeps_rev:
            self._tx.keep_text(base, row, change, lsns[0])
        self._tx.audit(base, row, change, sorted(lanes))
        self._tx.squash_if_long(self.doc)
        return taken

    def _settle_marks(self, document: SlotDoc, batch: Sequence[Incoming]) -> None:
        """Send no state of the doc where another replica has sent the same.

        After a relay was restored, each doc so comes back once, not once a store.
        """
        states = [r.envelope for r in batch if isinstance(r.envelope, StateEnvelope)]
        marks = "SELECT 1 FROM sync_doc WHERE doc = :doc AND state_needed"
        if not states or not self._tx.connection.execute(marks, {"doc": self.doc}).get:
            return
        for envelope in states:
            sent = SlotDoc.load(document.client_id, envelope.state)
            if sent.clocks == document.clocks and sent.file == document.file:
                self._tx.connection.execute(
                    "UPDATE sync_doc SET state_needed = 0 WHERE doc = :doc",
                    {"doc": self.doc},
                )

    def _absorbed(
        self, before: SlotRow | None, batch: Sequence[Incoming]
    ) -> tuple[SlotDoc, list[_Step], int]:
        """Let the document take a batch; nothing is written yet."""
        if not re.fullmatch(LABEL_PATTERN, self._label):
            raise DocError(f"{len(self._label)} characters that are no label")
        if before is None:
            document = SlotDoc(writer_id(self._tx.replica))
        else:
            if before.quarantined is not None:
                raise SlotQuarantinedError(label=self._label, reason=before.quarantined)
            document = self._tx.document(before)
        self._tx.edited.add(self.doc)
        steps: list[_Step] = []
        taken = 0
        for record in batch:
            found = self._steps(document, record)
            if found is None:
                break
            steps += found
            taken += 1
        document.check()
        return document, steps, taken

    def _steps(self, document: SlotDoc, record: Incoming) -> list[_Step] | None:
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
        merged = merge_state(document, envelope)
        return [] if merged is None else [_StateStep(record, merged)]

    def _write_step(
        self, document: SlotDoc, record: Incoming, place: int, write: Write
    ) -> _WriteStep | None:
        """Let the document take a write; None for one that it has taken before.

        It comes again after a rewind, or from a stream of ours that has ended: the log
        has it already, or a checkpoint.
        """
        clocks = dict(document.clocks)
        delta = self._absorb(document, record, write)
        if document.clocks == clocks and not delta and not write.is_genesis:
            writer = frozenset((writer_id(record.replica),))
            if scan(
                write.update,
                client_ids=writer,
                state=document.clocks,
                snapshot=False,
            ).is_known:
                return None
        return _WriteStep(record, place, write, delta)

    def _absorb(self, document: SlotDoc, record: Incoming, write: Write) -> Delta:
        if write.is_genesis:
            return self._absorb_genesis(document, write)
        if write.counter:
            raise _rejected(f"counter {write.counter} is of a later version")
        clocks = dict(document.clocks)
        delta = document.apply(write.update, writer_id(record.replica))
        if record.is_fork and document.clocks == clocks:
            raise _rejected("our own client id has written something else there")
        return delta

    def _absorb_genesis(self, document: SlotDoc, write: Write) -> Delta:
        label = self._label
        try:
            return document.apply_genesis(
                write.update, namespace=self._namespace, label=label
            )
        except UpdateRejectedError:
            project = _project_in(write.note)
            if project is None:
                raise
            return document.apply_genesis(write.update, namespace=project, label=label)

    def _write(
        self, base: SlotRow, step: _Step, lanes: set[str], condensed: str | None
    ) -> int:
        """Write a step and return its number in the log; note who wrote.

        Of the record of a condense pass the text before it is given: what it removes
        is archived here, too.
        """
        if isinstance(step, _StateStep):
            lsn, found = save_state(self._tx, self.doc, step.merged)
            lanes |= found
            return lsn
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
            delta=encode_delta(step.delta),
            undoes=self._targets(write),
            digest=b"",
            note=None if condensed is None else write.note,
        )
        append_row(self._tx.connection, row)
        if condensed is not None:
            take_pass(self._tx, base, row, condensed)
        mark_undone_passes(self._tx.connection, row)
        lanes.add(write.lane)
        return row.lsn

    def _targets(self, write: Write) -> str | None:
        """Return the steps that an undo took back, as JSON, if all are kept here."""
        names = read_undo_targets(write.note)
        if names is None:
            return None
        steps = {
            (row.replica, row.replica_seq, row.place): row.lsn
            for row in log_of(self._tx.connection, self.doc, after=0)
        }
        found = [steps[name] for name in names if name in steps]
        return json.dumps(sorted(found)) if len(found) == len(names) else None


def _condensed_texts(file: str, steps: Sequence[_Step]) -> list[str | None]:
    """Return the text before each step that is of a condense pass; None for others."""
    passes = [
        isinstance(step, _WriteStep)
        and read_condense_note(step.write.op, step.write.note) is not None
        for step in steps
    ]
    found: list[str | None] = [None] * len(steps)
    if any(passes):
        for place, step in enumerate(steps):
            found[place] = file if passes[place] else None
            delta = step.delta if isinstance(step, _WriteStep) else step.merged.delta
            file = apply_delta(file, delta)
    return found


def _rejected(reason: str) -> UpdateRejectedError:
    return UpdateRejectedError(code="update-client", reason=reason, at_byte=0)


def _project_in(note: str | None) -> str | None:
    """Return what the project of a first text is called where it was written.

    Its client id follows from that; the namespace may be called otherwise here.
    """
    try:
        value = json.loads(note or "null")
    except (ValueError, RecursionError):
        return None
    project = value.get("project") if isinstance(value, dict) else None
    if isinstance(project, str) and re.fullmatch(PROJECT_ID_PATTERN, project):
        return project
    return None
