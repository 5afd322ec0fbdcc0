"""A few stores that exchange records in any causal order, many times over.

Making a store takes longer than a whole history in it. So the stores of a pool live
long, and are emptied between histories; their replica ids are fixed, because the order
of concurrent text follows from them, and a seed must give the same history each time.
"""

import hashlib
import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from typing import NamedTuple

import crdtmem
from crdtmem.doc.blame import Run
from crdtmem.doc.text_form import view_of
from crdtmem.memory import Memory
from crdtmem.scope import namespace_of
from crdtmem.session import Session
from crdtmem.store.documents import blame_of, squash
from crdtmem.store.rows import SlotRow
from crdtmem.store.slots import find_slot
from crdtmem.store.store import Store
from tests.exchange import Record, outgoing, receive

__all__ = ["LANES", "NAMESPACE", "Look", "Post", "Site", "Traffic", "site_pool"]

LANES = ("ann", "bob", "cy")
PROJECT = "p"
NAMESPACE = namespace_of("project", PROJECT)
MEMORY_DISK = Path("/dev/shm")

START = datetime(2026, 1, 1, tzinfo=UTC)

TABLES = (
    "search_pending", "set_claim", "item_archive", "item_history", "version", "item",
    "mset", "pin", "pin_step", "condense_pass", "condense_archive", "condense_wait",
    "event", "audit", "history", "log", "quarantine", "request", "seen", "slot",
    "stream", "doc",
)  # fmt: skip


@contextmanager
def site_pool(count: int) -> Iterator[list["Site"]]:
    """Give empty stores, on a disk in memory where the system has one."""
    place = MEMORY_DISK if os.access(MEMORY_DISK, os.W_OK) else None
    with tempfile.TemporaryDirectory(dir=place) as folder, ExitStack() as stack:
        sites = [Site(Path(folder) / f"{number}.db", number) for number in range(count)]
        for site in sites:
            stack.callback(site.close)
        yield sites


class Look(NamedTuple):
    """What a store holds of a slot; all equal where the same records were seen.

    Attributes:
        file: The text.
        runs: Who wrote each part of it.
        settings: The doc's meta.
        clocks: Its state vector.
        state: Its squashed state; what it means is equal, not its bytes.

    """

    file: str = ""
    runs: tuple[Run, ...] = ()
    settings: Mapping[str, object] = {}
    clocks: Mapping[int, int] = {}
    state: bytes = b""


class Site:
    """One store with a handle for each lane.

    All lanes but the last share a connection, as the agents of one process do; the last
    one has its own, as a second process has.
    """

    def __init__(self, path: Path, number: int) -> None:
        self.path = path
        self.name = f"site{number}"
        self.replica = hashlib.sha256(self.name.encode()).digest()[:16]
        self.now = START
        self.handles: dict[str, Memory] = {}
        self._open()

    def _open(self) -> None:
        first, *others, last = LANES
        here, there = self._opened(first), self._opened(last)
        shared = {lane: Memory(Session(here.store, lane, PROJECT)) for lane in others}
        self.handles = {first: here, **shared, last: there}

    def _opened(self, lane: str) -> Memory:
        return crdtmem.open(
            self.path,
            lane=lane,
            project=PROJECT,
            durability="normal",
            clock=lambda: self.now,
        )

    @property
    def store(self) -> Store:
        return self.handles[LANES[0]].store

    def reopen(self) -> None:
        self.close()
        self._open()

    def close(self) -> None:
        for handle in self.handles.values():
            handle.close()

    def clear(self, random: Random) -> None:
        """Empty the store, and let its clock differ from those of others."""
        self.now = START + timedelta(seconds=random.randrange(100))
        with self.store.writing() as transaction:
            for table in TABLES:
                transaction.connection.execute(f"DELETE FROM {table}")
            transaction.connection.execute(
                "UPDATE store SET replica = :replica, history_keep = :keep",
                {"replica": self.replica, "keep": random.choice([1, 3, 20])},
            )
        self._forget_docs()
        for handle in self.handles.values():
            handle.forget_seen()

    def _forget_docs(self) -> None:
        for handle in self.handles.values():
            handle.store.docs.clear()

    def tick(self) -> None:
        self.now += timedelta(milliseconds=7)

    def row(self, label: str) -> SlotRow | None:
        with self.store.reading() as connection:
            return find_slot(connection, NAMESPACE, label)

    def file(self, label: str) -> str:
        row = self.row(label)
        return row.file if row else ""

    def view(self, label: str) -> str:
        return view_of(self.file(label))

    def look(self, label: str) -> Look:
        """Return what the store holds of a slot."""
        row = self.row(label)
        if row is None:
            return Look()
        with self.store.writing() as transaction:
            document = transaction.document(row)
            return Look(
                row.file,
                tuple(blame_of(transaction.connection, row.doc)),
                document.meta,
                dict(document.clocks),
                document.state(),
            )

    def squash_all(self, label: str) -> None:
        """Squash every record of a slot, also those that its history needs."""
        row = self.row(label)
        if row is not None:
            with self.store.writing() as transaction:
                squash(transaction.connection, row.doc, self.replica, row.lsn)
            self._forget_docs()

    def quarantined(self) -> list[str]:
        with self.store.reading() as connection:
            rows = connection.execute("SELECT code FROM quarantine")
            return [code for (code,) in rows]


@dataclass(frozen=True)
class Post:
    """A record on its way, and what its writer had seen when it was made."""

    record: Record
    needs: dict[bytes, int]

    @property
    def writer(self) -> bytes:
        return self.record.replica

    def is_ready(self, seen: dict[bytes, int]) -> bool:
        return seen.get(self.writer, 0) == self.record.replica_seq - 1 and all(
            seen.get(replica, 0) >= seq for replica, seq in self.needs.items()
        )


class Traffic:
    """All records that were made, and what each store has seen of them.

    Args:
        sites: The stores.

    Attributes:
        posts: Every record, in an order in which any store could take them.
        arrived: For each store the records in the order in which they came into it.

    """

    def __init__(self, sites: Sequence[Site]) -> None:
        self.sites = sites
        self.posts: list[Post] = []
        self.arrived: dict[bytes, list[Post]] = {site.replica: [] for site in sites}
        self._seen: dict[bytes, dict[bytes, int]] = {site.replica: {} for site in sites}
        self._collected_lsn = {site.replica: 0 for site in sites}
        self._has_written: set[bytes] = set()

    def note_write(self, site: Site) -> None:
        """Note that there is something to collect."""
        self._has_written.add(site.replica)

    def collect(self, site: Site) -> None:
        """Take the records that a store has made since the last time."""
        me = site.replica
        if me not in self._has_written:
            return
        self._has_written.remove(me)
        seen = self._seen[me]
        # What came in since then came through deliver, which collects first. So what
        # is new here was made when just this had been seen.
        needs = {replica: seq for replica, seq in seen.items() if replica != me}
        after = self._collected_lsn[me]
        for record in outgoing(site.store, NAMESPACE, after=after):
            self._collected_lsn[me] = record.origin
            if record.replica == me:
                self.posts.append(Post(record, needs))
                seen[me] = record.replica_seq
                self.arrived[me].append(self.posts[-1])

    def batch_for(self, site: Site, random: Random, most: int) -> list[Post]:
        """Choose records that a store could be given next, in an order it could take.

        Any order: it only follows each writer, and what the writer had seen.
        """
        for other in self.sites:
            self.collect(other)
        seen = dict(self._seen[site.replica])
        chosen: list[Post] = []
        while len(chosen) < most:
            ready = [post for post in self.posts if post.is_ready(seen)]
            if not ready:
                break
            chosen.append(random.choice(ready))
            seen[chosen[-1].writer] = chosen[-1].record.replica_seq
        return chosen

    def deliver(
        self, site: Site, lane: str, batch: Sequence[Post], again: Sequence[Post] = ()
    ) -> int:
        """Give a store some records, and before them some that it has already."""
        records = [post.record for post in (*again, *batch)]
        found = receive(site.handles[lane].store, NAMESPACE, records)
        for post in batch:
            self._seen[site.replica][post.writer] = post.record.replica_seq
        self.arrived[site.replica] += batch
        return found
