"""What other replicas wrote to one memory set, taken into this store."""

from collections.abc import Sequence

from crdtmem.doc.delta import encode_delta
from crdtmem.doc.items import ItemsDoc, names_of
from crdtmem.errors import DocError
from crdtmem.protocol.envelopes import StateEnvelope, Write
from crdtmem.protocol.records import DocKind
from crdtmem.store.doc_inbox import (
    SHOWN_LANES,
    DocInbox,
    Incoming,
    StateStep,
    Step,
    rejected,
)
from crdtmem.store.documents import writer_id
from crdtmem.store.set_docs import save_state_of, set_document
from crdtmem.store.set_history import ItemCommit
from crdtmem.store.set_rows import new_set, save_set, take_members
from crdtmem.store.set_states import MergedSet, merge_set_state
from crdtmem.store.set_write import finish_set, set_for_writing
from crdtmem.store.sets import SetRow, set_of_doc

__all__ = ["SetInbox"]


class SetInbox(DocInbox[ItemsDoc]):
    """The way in for the records of one memory set; see DocInbox."""

    kind = DocKind.MEMORY_SET
    _before: SetRow | None = None

    def _open(self) -> ItemsDoc:
        if names_of(self._name) is None:
            raise DocError(f"{len(self._name)} characters that name no set")
        row = set_for_writing(set_of_doc(self._tx.connection, self.doc))
        self._before = row
        if row is None or not row.lsn:
            return ItemsDoc(writer_id(self._tx.replica))
        return set_document(self._tx, row)

    def _load(self, state: bytes) -> ItemsDoc:
        return ItemsDoc.load(writer_id(self._tx.replica), state)

    def _apply(
        self, document: ItemsDoc, update: bytes, client_id: int
    ) -> frozenset[str]:
        return document.apply(update, client_id)

    def _apply_first(self, document: ItemsDoc, write: Write) -> frozenset[str]:
        raise rejected("a set has no first text")

    def _merge(self, document: ItemsDoc, envelope: StateEnvelope) -> MergedSet | None:
        return merge_set_state(document, envelope)

    def _check(self, document: ItemsDoc, steps: Sequence[Step]) -> None:
        document.check(_changed_by(steps))

    def _write(
        self, document: ItemsDoc, steps: Sequence[Step], batch: Sequence[Incoming]
    ) -> None:
        tx = self._tx
        base = self._before
        if base is None:
            base = new_set(self.doc, self._namespace, self._name, tx.now_ms)
            key_long, name = names_of(self._name) or ("", "")
            base = base._replace(key_long=key_long, name=name)
            save_set(tx.connection, base)
        lanes = sorted({lane for step in steps if (lane := self._write_one(step))})
        self._advance_streams(batch)
        commit = ItemCommit("sync", ", ".join(lanes[:SHOWN_LANES]), tx.now_ms)
        changed = _changed_by(steps)
        row = take_members(tx.connection, base, document, changed, commit)
        finish_set(
            tx,
            base,
            row,
            document,
            commit,
            lanes=lanes,
            changed=len(changed),
            details={"added": len(steps), "replica": steps[-1].record.replica.hex()},
        )

    def _write_one(self, step: Step) -> str:
        """Write a step and return its lane; a state has none."""
        if isinstance(step, StateStep):
            lsn = self._tx.next_lsn()
            save_state_of(self._tx.connection, self.doc, step.merged.state, lsn)
            return ""
        row = self._log(step, delta=encode_delta(()), undoes=None, note=None)
        return row.lane


def _changed_by(steps: Sequence[Step]) -> list[str]:
    """Return the members that steps changed, in an order that is the same anywhere."""
    found: set[str] = set()
    for step in steps:
        found |= step.merged.changed if isinstance(step, StateStep) else step.change
    return sorted(found)
