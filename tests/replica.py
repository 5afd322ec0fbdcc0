"""Other replicas of a store, without a network: what they wrote, brought here.

Uses the seam below the sync client: records out of one store, into another. A replica
of no store at all is enough for what no store of ours would write.
"""

import hashlib
import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from pycrdt import Doc, Text

from crdtmem.protocol.envelopes import (
    UpdateEnvelope,
    Write,
    decode_envelope,
    encode_envelope,
)
from crdtmem.protocol.records import DocKind, RecordKind, client_id
from crdtmem.scope import namespace_of
from tests.exchange import Record, known_streams, outgoing, receive

if TYPE_CHECKING:
    from crdtmem.memory import Memory

__all__ = ["exchange_records", "insert_at_the_end"]

FOREIGN = hashlib.sha256(b"a foreign editor").digest()[:16]


def exchange_records(stores: Sequence[Sequence["Memory"]]) -> None:
    """Let stores take each other's records until none has anything new.

    Args:
        stores: For each store the handles on it; they tell which namespaces to take.

    """
    namespaces = {"global"} | {
        namespace_of("project", memory.project) for store in stores for memory in store
    }
    pairs = list(itertools.permutations([handles[0].store for handles in stores], 2))
    while any(
        receive(target, namespace, outgoing(source, namespace))
        for source, target in pairs
        for namespace in sorted(namespaces)
    ):
        pass


def insert_at_the_end(memory: "Memory", label: str, text: str) -> None:
    """Insert text behind the last character of a project slot's file, newline or not.

    It comes from a replica of its own, as from an editor that joined the document and
    knows nothing of whole lines.
    """
    namespace = namespace_of("project", memory.project)
    doc: Doc[Text] = Doc(client_id=client_id(FOREIGN, 0))
    for record in outgoing(memory.store, namespace):
        found: Any = decode_envelope(RecordKind.UPDATE, record.envelope)
        for write in found.writes if found.name == label else ():
            doc.apply_update(write.update)
    before = doc.get_state()
    content = doc.get("content", type=Text)
    content.insert(len(content), text)
    update = doc.get_update(before)
    write = Write(
        is_genesis=False, counter=0, lane="editor", at_ms=0, op="edit", update=update
    )
    seq = known_streams(memory.store, namespace).get(FOREIGN, 0) + 1
    envelope = UpdateEnvelope(DocKind.SLOT, label, (write,))
    record = Record(FOREIGN, seq, encode_envelope(envelope), origin=0)
    receive(memory.store, namespace, [record])
