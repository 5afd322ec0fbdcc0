"""A relay's log without a relay: records in one order, given to stores item by item."""

import hashlib
from collections.abc import Sequence
from typing import Any, NamedTuple

from crdtmem.limits import RELAY_SNAPSHOT_BYTES, RELAY_UPDATE_BYTES
from crdtmem.protocol.envelopes import (
    Envelope,
    UpdateEnvelope,
    Write,
    encode_envelope,
)
from crdtmem.protocol.messages import Form, Item
from crdtmem.protocol.records import (
    DocKind,
    Header,
    RecordKind,
    build_record,
    chain_next,
    chain_start,
    doc_tag,
    parse_header,
    record_id,
)
from crdtmem.store.intake import apply_items
from crdtmem.store.links import Link, add_link, find_link
from crdtmem.store.outbox import acknowledge, seal, unsent
from crdtmem.store.store import Store
from tests.store.writes import FOREIGN, NAMESPACE

__all__ = ["REMOTE", "Log", "envelope_of", "linked", "sealed"]

REMOTE = "p-remote"
RELAY = hashlib.sha256(b"a relay").digest()[:16]


class Given(NamedTuple):
    """What became of a batch; ``quarantined`` of its records were refused, or wait."""

    cursor: int
    applied: int
    skipped: int
    quarantined: int


def linked(store: Store, namespace: str = NAMESPACE) -> Link:
    """Link a store's namespace to the relay."""
    add_link(
        store,
        namespace=namespace,
        remote=REMOTE,
        url="wss://relay.example",
        token_file="",
        options={},
    )
    with store.writing() as transaction:
        transaction.connection.execute("UPDATE link SET relay_id = ?", (RELAY,))
    return find_link(store, namespace)


def envelope_of(*updates: bytes, label: str = "plan", **of: Any) -> UpdateEnvelope:
    """Make an envelope with a write for each update."""
    plain = {"is_genesis": False, "counter": 0, "lane": "x", "at_ms": 5, "op": "edit"}
    writes = [Write(**{**plain, "update": one, **of}) for one in updates]
    return UpdateEnvelope(DocKind.SLOT, label, tuple(writes))


def sealed(envelope: Envelope | bytes, *, seq: int = 1, **of: Any) -> bytes:
    """Make a record of the foreign replica."""
    named: dict[str, Any] = {"kind": RecordKind.UPDATE, "replica": FOREIGN, "base": 0}
    named.update(alg=0, key_id=0, tag=None, seal=b"")
    named.update(of)
    payload = envelope
    if not isinstance(envelope, bytes):
        payload = encode_envelope(envelope)
        if named["tag"] is None:
            named["tag"] = doc_tag(envelope.doc_kind, envelope.name)  # type: ignore[union-attr] # one with a doc
    header = Header(
        kind=named["kind"],
        alg=named["alg"],
        doc_tag=named["tag"] or doc_tag(DocKind.SLOT, "plan"),
        replica_id=named["replica"],
        replica_seq=seq,
        base=named["base"],
        key_id=named["key_id"],
    )
    return build_record(header, bytes(payload), named["seal"])  # type: ignore[arg-type] # bytes by now


class Log:
    """A namespace's log: what was put, and the chain after each."""

    def __init__(self) -> None:
        self.records: list[bytes] = []
        self.dropped: set[int] = set()
        self.chains = [chain_start(RELAY, REMOTE)]

    def put(self, *records: bytes) -> None:
        """Add records at the end."""
        for record in records:
            self.records.append(record)
            found = record_id(REMOTE, record)
            self.chains.append(chain_next(self.chains[-1], len(self.records), found))

    def send(self, store: Store, *, namespace: str = NAMESPACE) -> int:
        """Take what a store has to send, acknowledge it, and return how much it was."""
        link = find_link(store, namespace)
        while seal(
            store,
            link,
            max_update_bytes=RELAY_UPDATE_BYTES,
            max_snapshot_bytes=RELAY_SNAPSHOT_BYTES,
            may_seal_states=True,
        ):
            pass
        found = unsent(store, link, after=0, records=9_999, octets=1 << 40)
        for one in found:
            self.put(one.record)
            acknowledge(
                store, link, one.replica_seq, len(self.records), self.chains[-1]
            )
        return len(found)

    def drop(self) -> None:
        """Drop the payloads that snapshots cover, as after the time of grace."""
        for number, record in enumerate(self.records, 1):
            header = parse_header(record)
            if header.kind == RecordKind.SNAPSHOT and header.base:
                self.dropped |= {
                    seq
                    for seq in range(1, min(number, header.base + 1))
                    if parse_header(self.records[seq - 1]).doc_tag == header.doc_tag
                }

    def items(self, link: Link, *, most: int | None = None) -> list[Item]:
        """Return what stands behind a link's cursor, own records by their ids."""
        first = link.cursor.seq + 1
        return [
            self._item(link, seq, record)
            for seq, record in enumerate(self.records[first - 1 :][:most], first)
        ]

    def _item(self, link: Link, seq: int, record: bytes) -> Item:
        name = record_id(REMOTE, record)
        if record[20:36] == link.replica_id:
            return Item(Form.OWN, record_id=name)
        if seq in self.dropped:
            return Item(Form.COVERED, b"", name, record[4:20])
        return Item(Form.FULL, record)

    def give(
        self,
        store: Store,
        *,
        most: int | None = None,
        items: Sequence[Item] | None = None,
        namespace: str = NAMESPACE,
    ) -> Given:
        """Let a store apply what stands behind its cursor, as the log would send it."""
        link = find_link(store, namespace)
        if items is None:
            items = self.items(link, most=most)
        first = link.cursor.seq + 1
        chain = self.chains[link.cursor.seq + len(items)]
        report = apply_items(store, link, first, items, chain)
        with store.reading() as connection:
            held = connection.execute(
                "SELECT count(*) FROM held WHERE link = ? AND seq >= ?",
                (link.link, first),
            ).get
        return Given(report.cursor, report.applied, report.skipped, held)
