"""What other replicas wrote to one slot, taken into this store."""

import json
import re
from collections.abc import Sequence

from crdtmem.doc.delta import Delta, apply_delta, encode_delta
from crdtmem.doc.slot_doc import SlotDoc
from crdtmem.errors import DocError, SlotQuarantinedError, UpdateRejectedError
from crdtmem.protocol.envelopes import StateEnvelope, Write, read_undo_targets
from crdtmem.protocol.records import DocKind
from crdtmem.scope import LABEL_PATTERN, PROJECT_ID_PATTERN
from crdtmem.store.condensed import mark_undone_passes, read_condense_note, take_pass
from crdtmem.store.doc_inbox import (
    SHOWN_LANES,
    DocInbox,
    Incoming,
    StateStep,
    Step,
    WriteStep,
)
from crdtmem.store.documents import writer_id
from crdtmem.store.log import log_of
from crdtmem.store.rows import SlotRow
from crdtmem.store.slots import empty_slot, find_slot, save_slot
from crdtmem.store.states import MergedState, merge_state, save_state
from crdtmem.store.write import Change

__all__ = ["Inbox"]


class Inbox(DocInbox[SlotDoc]):
    """The way in for the records of one slot; see DocInbox.

    A batch makes one history entry, too, and only if it changed the text.
    """

    kind = DocKind.SLOT
    _before: SlotRow | None = None

    def _open(self) -> SlotDoc:
        if not re.fullmatch(LABEL_PATTERN, self._name):
            raise DocError(f"{len(self._name)} characters that are no label")
        before = find_slot(self._tx.connection, self._namespace, self._name)
        self._before = before
        if before is None:
            return SlotDoc(writer_id(self._tx.replica))
        if before.quarantined is not None:
            raise SlotQuarantinedError(label=self._name, reason=before.quarantined)
        return self._tx.document(before)

    def _load(self, state: bytes) -> SlotDoc:
        return SlotDoc.load(writer_id(self._tx.replica), state)

    def _apply(self, document: SlotDoc, update: bytes, client_id: int) -> Delta:
        return document.apply(update, client_id)

    def _apply_first(self, document: SlotDoc, write: Write) -> Delta:
        label = self._name
        try:
            return document.apply_genesis(
                write.update, namespace=self._namespace, label=label
            )
        except UpdateRejectedError:
            project = _project_in(write.note)
            if project is None:
                raise
            return document.apply_genesis(write.update, namespace=project, label=label)

    def _merge(self, document: SlotDoc, envelope: StateEnvelope) -> MergedState | None:
        return merge_state(document, envelope)

    def _check(self, document: SlotDoc, steps: Sequence[Step]) -> None:
        document.check()

    def _write(
        self, document: SlotDoc, steps: Sequence[Step], batch: Sequence[Incoming]
    ) -> None:
        before = self._before
        base = before or empty_slot(self._namespace, self._name, self._tx.now_ms)
        base = base._replace(doc=self.doc)
        lanes: set[str] = set()
        lsns = [
            self._write_step_of(base, step, lanes, condensed)
            for step, condensed in zip(
                steps, _condensed_texts(base.file, steps), strict=True
            )
        ]
        self._advance_streams(batch)
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

    def _write_step_of(
        self, base: SlotRow, step: Step, lanes: set[str], condensed: str | None
    ) -> int:
        """Write a step and return its number in the log; note who wrote.

        Of the record of a condense pass the text before it is given: what it removes
        is archived here, too.
        """
        if isinstance(step, StateStep):
            lsn, found = save_state(self._tx, self.doc, step.merged)
            lanes |= found
            return lsn
        write = step.write
        row = self._log(
            step,
            delta=encode_delta(step.change),
            undoes=self._targets(write),
            note=None if condensed is None else write.note,
        )
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


def _condensed_texts(file: str, steps: Sequence[Step]) -> list[str | None]:
    """Return the text before each step that is of a condense pass; None for others."""
    passes = [
        isinstance(step, WriteStep)
        and read_condense_note(step.write.op, step.write.note) is not None
        for step in steps
    ]
    found: list[str | None] = [None] * len(steps)
    if any(passes):
        for place, step in enumerate(steps):
            found[place] = file if passes[place] else None
            delta = step.change if isinstance(step, WriteStep) else step.merged.delta
            file = apply_delta(file, delta)
    return found


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
