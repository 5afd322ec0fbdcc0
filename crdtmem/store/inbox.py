"""What other replicas wrote to one doc, taken into this store."""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from crdtmem.doc.delta import Delta, encode_delta
from crdtmem.doc.slot_doc import SlotDoc
from crdtmem.errors import DocError, SlotQuarantinedError, UpdateRejectedError
from crdtmem.protocol.envelopes import UpdateEnvelope, Write, read_undo_targets
from crdtmem.protocol.records import DocKind
from crdtmem.scope import LABEL_PATTERN
from crdtmem.store.documents import writer_id
from crdtmem.store.log import append_row, find_doc, log_of, make_doc
from crdtmem.store.rows import LogRow, SlotRow
from crdtmem.store.slots import empty_slot, find_slot, save_slot
from crdtmem.store.write import Change, Transaction

if TYPE_CHECKING:
    from crdtmem.store.store import Store

__all__ = ["Inbox", "Incoming", "set_aside"]

SHOWN_LANES = 8
"""How many lanes the history entry of one batch names."""


@dataclass(frozen=True, slots=True)
class Incoming:
    """One new record of another replica."""

    replica: bytes
    replica_seq: int
    envelope: UpdateEnvelope


class Inbox:
    """The batch for one slot: applied whole, or kept whole in quarantine.

    1. Each write is scanned before pycrdt sees it, and the document is held against
       its records before anything of the batch is kept.
    2. A batch makes one rev and one history entry, and only if it changed the text.
    3. A refused batch changes nothing but the quarantine.
    """

    def __init__(
        self, transaction: Transaction, store: "Store", namespace: str, label: str
    ) -> None:
        self._tx = transaction
        self._store = store
        self._namespace = namespace
        self._label = label

    def take(self, batch: Sequence[Incoming]) -> None:
        """Apply the batch, or quarantine it."""
        connection = self._tx.connection
        before = find_slot(connection, self._namespace, self._label)
        base = before or empty_slot(self._namespace, self._label, self._tx.now_ms)
        if before is None:
            doc = find_doc(connection, self._namespace, DocKind.SLOT, self._label)
            doc = doc or make_doc(
                connection, self._namespace, DocKind.SLOT, self._label
            )
            base = base._replace(doc=doc)
        try:
            if base.quarantined is not None:
                raise DocError(f"the slot is quarantined: {base.quarantined}")
            with connection:
                self._apply(before, base, batch)
        except (DocError, UpdateRejectedError, SlotQuarantinedError) as exc:
            self._store.docs.pop(base.doc, None)
            self._tx.mark_damaged()
            for record in batch:
                set_aside(self._tx, base.doc, record, exc.code)

    def _apply(
        self, before: SlotRow | None, base: SlotRow, batch: Sequence[Incoming]
    ) -> None:
        if not re.fullmatch(LABEL_PATTERN, self._label):
            raise DocError(f"{len(self._label)} characters that are no label")
        document = (
            SlotDoc(writer_id(self._tx.replica))
            if before is None
            else self._tx.document(before)
        )
        self._tx.edited.add(base.doc)
        steps = [
            self._write(document, base.doc, record, place, write)
            for record in batch
            for place, write in enumerate(record.envelope.writes)
        ]
        document.check()
        self._tx.remember(base.doc, document)
        lanes = sorted({write.lane for r in batch for write in r.envelope.writes})
        change = Change(
            operation="sync",
            lane=", ".join(lanes[:SHOWN_LANES]),
            meta=document.meta,
            keeps_rev=before is None or document.file == base.file,
            details={"added": len(steps), "replica": batch[-1].replica.hex()},
        )
        row = self._tx.materialised(document, base, change)
        save_slot(self._tx.connection, row)
        if not change.keeps_rev:
            self._tx.keep_text(base, row, change, steps[0])
        self._tx.audit(base, row, change, lanes)
        self._tx.squash_if_long(row.doc)

    def _write(
        self,
        document: SlotDoc,
        doc: int,
        record: Incoming,
        place: int,
        write: Write,
    ) -> int:
        delta = self._absorb(document, record, write)
        row = LogRow(
            lsn=self._tx.next_lsn(),
            doc=doc,
            replica=record.replica,
            replica_seq=record.replica_seq,
            place=place,
            is_genesis=int(write.is_genesis),
            lane=write.lane,
            at_ms=write.at_ms,
            operation=write.op,
            content=write.update,
            delta=encode_delta(delta),
            undoes=self._targets(doc, write),
            digest=b"",
        )
        append_row(self._tx.connection, row)
        return row.lsn

    def _absorb(self, document: SlotDoc, record: Incoming, write: Write) -> Delta:
        if write.is_genesis:
            return document.apply_genesis(
                write.update, namespace=self._namespace, label=self._label
            )
        if write.counter:
            raise UpdateRejectedError(
                code="update-client",
                reason=f"counter {write.counter} is of a later version",
                at_byte=0,
            )
        return document.apply(write.update, writer_id(record.replica))

    def _targets(self, doc: int, write: Write) -> str | None:
        """Return the steps that an undo took back, as JSON, if all are kept here."""
        names = read_undo_targets(write.note)
        if names is None:
            return None
        steps = {
            (row.replica, row.replica_seq, row.place): row.lsn
            for row in log_of(self._tx.connection, doc, after=0)
        }
        found = [steps[name] for name in names if name in steps]
        return json.dumps(sorted(found)) if len(found) == len(names) else None


def set_aside(transaction: Transaction, doc: int, record: Incoming, code: str) -> None:
    """Keep a refused record in quarantine, with the rule that it breaks."""
    for write in record.envelope.writes:
        transaction.connection.execute(
            "INSERT INTO quarantine(doc, lsn, replica, code, content, at_ms)"
            " VALUES (:doc, 0, :replica, :code, :content, :now)",
            {
                "doc": doc,
                "replica": record.replica,
                "code": code,
                "content": write.update,
                "now": transaction.now_ms,
            },
        )
