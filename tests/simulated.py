"""What a simulated world is made of: machines, wires, and a relay without sockets.

Each part does one thing when it is told to, and nothing by itself.
"""

import random
from collections import deque
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any, TypeVar

from crdtmem.doc.text_form import view_of
from crdtmem.memory import Memory
from crdtmem.protocol.codec import Reader
from crdtmem.protocol.relaying import Grant, LogRow, Scope
from crdtmem.session import Session
from crdtmem.store import compaction, receipts
from crdtmem.store.links import find_link, links_of
from crdtmem.store.slots import slots_of
from crdtmem.store.store import Store
from crdtmem.sync.engine import Engine
from relay.core import RelayCore
from relay.effects import Append, Close, Effect, Join, Match, Read, Send
from relay.storage.memory import MemoryStorage
from tests.killpoints import replace_function
from tests.scratch import scratch

if TYPE_CHECKING:
    from tests.simulator import World

__all__ = [
    "GRANT",
    "LANES",
    "NAMESPACE",
    "REMOTE",
    "Crash",
    "Relay",
    "Site",
    "Wire",
    "first_struct",
    "run_now",
    "small_world",
]

NAMESPACE = "global"
REMOTE = "team"
LANES = ("ann", "bob")
FRAMES_MAX = 64
GRANT = Grant(
    "abcdefgh27", "*", Scope.READ | Scope.WRITE | Scope.COMPACT | Scope.PRESENCE
)

# So low that a few writes make a snapshot due; the product waits for hundreds.
SNAPSHOT_AFTER = {"SNAPSHOT_LIVE_RECORDS": 4, "SNAPSHOT_LIVE_BYTES": 2_000}

# Fewer than the records in which all stores together would answer receipts by receipts.
RECEIPTS_AFTER = {"RECEIPT_RECORDS": 10, "RECEIPT_PAUSE_MS": 0}

T = TypeVar("T")


class Crash(BaseException):
    """The process of a store ends here; nothing of the product catches it."""


def run_now(work: Coroutine[Any, Any, T]) -> T:
    """Return what a coroutine returns that waits for nothing."""
    try:
        work.send(None)
    except StopIteration as stop:
        return stop.value  # type: ignore[no-any-return] # typeshed: Any
    raise AssertionError("the storage in memory waits for something")


class CrashingStore(Store):
    """A store whose process can be told to end at its next commit, or behind it."""

    crash_at: str = ""

    @contextmanager
    def writing(self) -> Iterator[Any]:
        with super().writing() as transaction:
            yield transaction
            if self.crash_at == "before-commit":
                raise Crash
        if self.crash_at == "after-commit":
            raise Crash


class Wire:
    """One connection: frames on their way up to the relay, and down from it."""

    def __init__(self, conn: int, site: "Site") -> None:
        self.conn = conn
        self.site = site
        self.up: deque[bytes] = deque()
        self.down: deque[tuple[bytes, bool]] = deque()
        self.close_code = 0


@cache
def empty_store() -> bytes:
    """Return the file of a store that nobody has written to; it is a copy, thus."""
    chance = random.getstate()
    with scratch() as folder:
        path = folder / "store.db"
        Store(path).close()
        found = path.read_bytes()
    random.setstate(chance)
    return found


class Site:
    """A machine: a store, its lanes, and the engine that syncs it."""

    def __init__(self, world: "World", name: str, path: Path) -> None:
        self.world = world
        self.name = name
        self.path = path
        self.engine: Engine | None = None
        self.wire: Wire | None = None
        self.backup: Path | None = None
        self.written = 0
        # Counts the times that older bytes were brought back: what is written then has
        # not seen what was written before, and no order binds the two.
        self.era = 0
        self.sealer = world.sealer()
        self.open()

    def open(self) -> None:
        if not self.path.exists():
            # Making the tables takes longer than much of what follows.
            self.path.touch(mode=0o600)
            self.path.write_bytes(empty_store())
        self.store = CrashingStore(self.path, clock_ms=lambda: self.world.wall_ms)
        self.lanes = {
            lane: Memory(Session(self.store, f"{self.name}.{lane}", "p"))
            for lane in LANES
        }

        self._show_keys()

    def learn_keys(self) -> bool:
        """Have all keys that there are; return whether there are any."""
        self.sealer = self.world.sealer()
        self._show_keys()
        return self.sealer is not None

    def _show_keys(self) -> None:
        if self.sealer is not None:
            self.store.sealers[NAMESPACE] = self.sealer

    def end(self) -> None:
        """End the process: what was not committed is gone."""
        self.engine = None
        self.store.crash_at = ""
        self.store.close()

    def texts(self) -> dict[str, str]:
        with self.store.reading() as connection:
            rows = slots_of(connection, NAMESPACE)
            return {row.label: view_of(row.file) for row in rows}

    def clocks(self) -> dict[str, dict[int, int]]:
        with self.store.writing() as transaction:
            rows = slots_of(transaction.connection, NAMESPACE)
            return {row.label: dict(transaction.document(row).clocks) for row in rows}

    def cursor(self) -> tuple[int, bytes]:
        link = find_link(self.store, NAMESPACE)
        return link.cursor.seq, link.cursor.chain

    def alarms(self) -> set[str]:
        return {alarm.code for link in links_of(self.store) for alarm in link.alarms}


class Relay:
    """One relay process after the other, over a storage that outlives them."""

    def __init__(self, world: "World") -> None:
        self.world = world
        self.storage = MemoryStorage(rng=world.random)
        self.wires: dict[int, Wire] = {}
        self.pending: deque[Effect] = deque()
        self.backup: MemoryStorage | None = None
        self.next_conn = 1
        self.start()

    def start(self) -> None:
        identity = run_now(self.storage.open())
        self.core = RelayCore(identity, rng=self.world.random)
        self.pending.clear()

    def pump(self) -> None:
        """Take what the core wants: frames onto wires at once, storage when due."""
        for effect in self.core.effects():
            match effect:
                case Send(conn=conn, frames=frames):
                    self._send(conn, frames)
                case Close(conn=conn, code=code, frames=frames):
                    self._close(conn, code, frames)
                case _:
                    self.pending.append(effect)

    def _send(self, conn: int, frames: Any) -> None:
        wire_ = self.wires[conn]
        *first, last = frames
        wire_.down.extend((frame, False) for frame in first)
        # The relay hears that its frames have left when the last one is delivered.
        wire_.down.append((last, True))
        assert len(wire_.down) <= FRAMES_MAX, "I11: frames queue for a reader"

    def _close(self, conn: int, code: int, frames: Any) -> None:
        wire_ = self.wires.pop(conn)
        wire_.down.extend((frame, False) for frame in frames)
        wire_.close_code = code

    def do_one(self) -> None:
        """Let the storage answer one request."""
        effect = self.pending.popleft()
        self.core.completed(effect.effect, self._answer(effect), self.world.now)  # type: ignore[union-attr] # Send and Close are done at once
        self.pump()

    def _answer(self, effect: Effect) -> Any:
        storage = self.storage
        match effect:
            case Join():
                return run_now(
                    storage.join(
                        effect.namespace,
                        create=effect.create,
                        replica_id=effect.replica_id,
                        cursor=effect.cursor,
                    )
                )
            case Match():
                return run_now(storage.match(effect.ns_no, effect.samples))
            case Append():
                return run_now(storage.append(effect.puts))
            case Read():
                return run_now(
                    storage.read(
                        effect.ns_no,
                        effect.after,
                        records=effect.records,
                        octets=effect.octets,
                    )
                )
            case _:
                raise AssertionError(effect)

    def end(self) -> None:
        """End the process: every connection is gone, without a word."""
        for wire_ in list(self.wires.values()):
            self.world.cut(wire_)
        self.pending.clear()

    def log(self) -> list[LogRow]:
        """Return every row of the namespace."""
        ns_no = self.storage.ns_no(REMOTE)
        if not ns_no:
            return []
        found = run_now(
            self.storage.read(ns_no, 0, records=1_000_000, octets=1_000_000_000)
        )
        return list(found.rows)


def first_struct(update: bytes) -> tuple[int, int] | None:
    """Return client id and clock of an update's first struct."""
    reader = Reader(update)
    if reader.read_uint() == 0:
        return None
    reader.read_uint()
    return reader.read_uint(), reader.read_uint()


@contextmanager
def small_world(seed: int) -> Iterator[None]:
    """Have replica ids drawn from the seed, and snapshots come early.

    The order of concurrent texts follows from the ids.
    """
    random = Random(f"ids {seed}")
    uninstall = replace_function(
        "crdtmem.store.context", "new_replica_id", lambda: random.randbytes(16)
    )
    limits = {name: getattr(compaction, name) for name in SNAPSHOT_AFTER}
    others = {name: getattr(receipts, name) for name in RECEIPTS_AFTER}
    vars(compaction).update(SNAPSHOT_AFTER)
    vars(receipts).update(RECEIPTS_AFTER)
    try:
        yield
    finally:
        vars(compaction).update(limits)
        vars(receipts).update(others)
        uninstall()
