"""A relay in miniature, and the driver of a store that syncs with it, step by step.

The relay does what the protocol says of joins and puts, in memory. It can be restored
to an earlier moment; a store can be put back to an older copy of its file, in place.
"""

import hashlib
import os
from dataclasses import dataclass, field
from pathlib import Path

from crdtmem.limits import RELAY_SNAPSHOT_BYTES, RELAY_UPDATE_BYTES
from crdtmem.protocol.messages import NO_RECORD_ID, Form, Item, Joined
from crdtmem.protocol.records import (
    chain_next,
    chain_start,
    parse_header,
    record_id,
)
from crdtmem.protocol.relaying import Sample
from crdtmem.store.intake import apply_items
from crdtmem.store.links import Link, add_link, find_link
from crdtmem.store.outbox import acknowledge, seal, unsent
from crdtmem.store.rejoin import (
    JoinCursor,
    JoinOutcome,
    accept_join,
    finish_rebase,
    join_cursor,
    ready_links,
    samples,
    start_rebase,
)
from crdtmem.store.store import Store
from tests.store.writes import NAMESPACE

__all__ = [
    "REMOTE",
    "Relay",
    "connect",
    "copy_of",
    "link_to",
    "put_back",
    "read_on",
    "seal_all",
    "send",
    "sync",
]

REMOTE = "p-remote"


@dataclass
class Relay:
    """One namespace of a relay."""

    relay_id: bytes = hashlib.sha256(b"a relay").digest()[:16]
    epoch: bytes = bytes(16)
    records: list[bytes] = field(default_factory=list)

    @property
    def head(self) -> int:
        """The newest seq."""
        return len(self.records)

    def chain(self, seq: int) -> bytes:
        """Return the chain at a place."""
        chain = chain_start(self.relay_id, REMOTE)
        for at, record in enumerate(self.records[:seq], 1):
            chain = chain_next(chain, at, record_id(REMOTE, record))
        return chain

    def stream(self, replica: bytes) -> list[bytes]:
        """Return the ids of a replica's records."""
        return [
            record_id(REMOTE, one)
            for one in self.records
            if parse_header(one).replica_id == replica
        ]

    def restore(self, seq: int) -> None:
        """Go back to an earlier moment, as from a backup."""
        del self.records[seq:]
        self.epoch = hashlib.sha256(self.epoch + bytes([seq % 256])).digest()[:16]

    def put(self, record: bytes) -> tuple[str, int]:
        """Store a record, and return why not, or its place."""
        header = parse_header(record)
        known = self.stream(header.replica_id)
        name = record_id(REMOTE, record)
        if header.replica_seq <= len(known):
            if known[header.replica_seq - 1] != name:
                return "replica-fork", 0
            return "", [record_id(REMOTE, one) for one in self.records].index(name) + 1
        assert header.replica_seq == len(known) + 1
        assert header.base <= self.head
        self.records.append(record)
        return "", self.head

    def join(
        self, cursor: JoinCursor, replica: bytes, known: list[Sample]
    ) -> tuple[Joined, bool]:
        """Answer a join, after the samples if it needs them."""
        at = cursor.seq
        is_rewound = bool(at) and (at > self.head or self.chain(at) != cursor.chain)
        if is_rewound:
            fits = (s.seq for s in known if s.seq <= self.head)
            chains = {s.seq: s.chain for s in known}
            at = next((seq for seq in fits if self.chain(seq) == chains[seq]), 0)
        own = self.stream(replica)
        joined = Joined(
            namespace=REMOTE,
            ns_no=1,
            scopes=7,
            head=self.head,
            floor=0,
            resume_seq=at,
            resume_chain=self.chain(at),
            own_max=len(own),
            own_id=own[-1] if own else NO_RECORD_ID,
        )
        return joined, is_rewound


def link_to(store: Store) -> Link:
    """Link the store's namespace."""
    return add_link(
        store,
        namespace=NAMESPACE,
        remote=REMOTE,
        url="wss://relay.example",
        token_file="",
        options={},
    )


def connect(relay: Relay, store: Store) -> JoinOutcome:
    """Join; the store does what that asks for."""
    link = next(one for one in ready_links(store) if one.namespace == NAMESPACE)
    cursor = join_cursor(store, link, relay_id=relay.relay_id)
    joined, is_rewound = relay.join(cursor, link.replica_id, samples(store, link))
    return accept_join(
        store,
        link,
        joined,
        relay_id=relay.relay_id,
        epoch=relay.epoch,
        is_rewound=is_rewound,
    )


def read_on(relay: Relay, store: Store) -> None:
    """Apply what the relay has."""
    link = find_link(store, NAMESPACE)
    records = relay.records[link.cursor.seq :]
    items = [
        Item(Form.OWN, record_id=record_id(REMOTE, record))
        if parse_header(record).replica_id == link.replica_id
        else Item(Form.FULL, record)
        for record in records
    ]
    if items:
        first = link.cursor.seq + 1
        apply_items(store, link, first, items, relay.chain(relay.head))


def seal_all(store: Store, **limits: int) -> int:
    """Seal all that there is."""
    link = find_link(store, NAMESPACE)
    bounds = {
        "max_update_bytes": RELAY_UPDATE_BYTES,
        "max_snapshot_bytes": RELAY_SNAPSHOT_BYTES,
        **limits,
    }
    count = 0
    while found := seal(store, link, may_seal_states=True, **bounds):
        count += found
    return count


def send(relay: Relay, store: Store, *, acks: bool = True) -> bool:
    """Put what is sealed; False if that brought the ids to an end."""
    link = find_link(store, NAMESPACE)
    for one in unsent(store, link, after=0, records=9_999, octets=1 << 40):
        code, seq = relay.put(one.record)
        if code:
            start_rebase(store, link, alarm=code)
            return False
        if acks:
            acknowledge(store, link, one.replica_seq, seq, relay.chain(seq))
    return True


def sync(relay: Relay, store: Store) -> None:
    """Connect until there is nothing to do any more."""
    assert any(_settles(relay, store) for _ in range(9))


def _settles(relay: Relay, store: Store) -> bool:
    if connect(relay, store).needs_new_ids:
        return False
    read_on(relay, store)
    if finish_rebase(store, find_link(store, NAMESPACE)):
        return False
    seal_all(store)
    is_done = send(relay, store)
    read_on(relay, store)
    return is_done


def copy_of(store: Store) -> bytes:
    """Return the bytes of a store's file; what others hold open stays as it is."""
    store.checkpoint()
    return store.path.read_bytes()


def put_back(store: Store, data: bytes) -> Store:
    """Close a store and open it with older content, under the same inode."""
    store.close()
    for name in ("-wal", "-shm"):
        Path(f"{store.path}{name}").unlink(missing_ok=True)
    before = os.stat(store.path).st_ino
    with open(store.path, "r+b") as file:
        file.write(data)
        file.truncate()
    assert os.stat(store.path).st_ino == before
    return Store(store.path, clock_ms=store.clock_ms)
