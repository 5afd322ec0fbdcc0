"""A relay's core over a storage in memory, and stores that are synced with it.

No socket, no event loop, and a clock that stands still until a test moves it: a Relay
carries bytes between its core and the engines until nobody has anything to say.
"""

from itertools import count
from random import Random
from typing import Any

from crdtmem.memory import Memory
from crdtmem.protocol.messages import (
    ErrorMessage,
    Part,
    Put,
    decode_frame,
    encode_frame,
)
from crdtmem.protocol.records import parse_header
from crdtmem.protocol.relaying import Grant, Scope
from crdtmem.sealing import Keyring, Sealer
from crdtmem.session import Session
from crdtmem.store.links import add_link, find_link, remove_link
from crdtmem.store.outbox import unsent_counts
from crdtmem.store.store import Store
from crdtmem.sync.engine import Engine
from relay.core import RelayCore
from relay.effects import Announce, Append, Close, Join, Match, Send
from relay.storage.memory import MemoryStorage

__all__ = ["ALL", "PROJECT", "REMOTE", "URL", "Relay", "Site"]

PROJECT = "demo"
REMOTE = "team"
URL = "ws://localhost:1"
ALL = Scope.READ | Scope.WRITE | Scope.COMPACT | Scope.PRESENCE


def run_now(work):
    """Return what a coroutine returns that waits for nothing."""
    try:
        work.send(None)
    except StopIteration as stop:
        return stop.value
    raise AssertionError("the storage waits for something")  # pragma: no cover - a bug


class Relay:
    """One relay, and the connections to it.

    Attributes:
        scopes: What the tokens of later connections may do.
        pattern: Which namespaces they are for.
        lost: Kinds of messages that do not arrive, by their class.
        refusals: Errors that answer the next puts in place of the relay.
        change: Changes a message on its way down.
        told: Errors that were sent, by code.
        held: Sites that take frames and do nothing with them.

    """

    def __init__(self, storage=None, limits=None):
        self.now = 1_000.0
        self.storage = storage or MemoryStorage(rng=Random(1))
        self.limits = limits
        self.scopes = ALL
        self.pattern = "*"
        self.lost: tuple[type, ...] = ()
        self.refusals = []
        self.change = lambda message: message
        self.told = []
        self.held = []
        self.sites = {}
        self._numbers = count(1)
        self.start()

    def start(self, storage=None):
        """Begin anew, perhaps with another storage; every connection is lost."""
        for conn in list(self.sites):
            self.drop(conn)
        self.storage = storage or self.storage
        identity = run_now(self.storage.open())
        self.core = RelayCore(identity, self.limits, rng=Random(2))

    def connect(self, site):
        conn = next(self._numbers)
        self.sites[conn] = site
        self.core.connect(
            conn, Grant("aaaaaaaaaa", self.pattern, self.scopes), self.now
        )
        site.engine.connect(self.now)

    def cut(self, site, code=1006, reason=""):
        """Cut a site's connection; both ends notice."""
        conn = next(conn for conn, found in self.sites.items() if found is site)
        self.core.disconnected(conn, self.now)
        self.drop(conn, code, reason)

    def rows(self, namespace):
        """Return all that the log of a namespace holds."""
        number = self.storage.ns_no(namespace)
        read = self.storage.read(number, 0, records=10_000, octets=2**30)
        return run_now(read).rows

    def drop(self, conn, code=1006, reason=""):
        site = self.sites.pop(conn)
        site.engine.connection_lost(code, self.now, reason)

    def run(self):
        """Let everybody work until nobody has anything to say."""
        for site in self.sites.values():
            site.engine.wake()
        while any([self._effects(), *[self._step(c) for c in list(self.sites)]]):
            pass

    def advance(self, seconds):
        """Move the clock, and let everybody notice."""
        self.now += seconds
        for site in list(self.sites.values()):
            site.engine.tick(self.now)
        self.core.tick(self.now)
        self.run()

    def _step(self, conn):
        engine = self.sites[conn].engine
        did = False
        while self.sites[conn] not in self.held and engine.step(self.now):
            did = True
        for frame in iter(lambda: engine.data_to_send(), []):
            did = True
            for part in frame:
                self._upward(conn, part)
        if conn in self.sites and (engine.closing or engine.ended):
            del self.sites[conn]
            self.core.disconnected(conn, self.now)
            engine.connection_lost(1000, self.now)
            return True
        return did

    def _upward(self, conn, frame):
        messages = decode_frame(frame)
        if self.refusals and any(isinstance(m, Put | Part) for m in messages):
            refusal = self.refusals.pop(0)
            put = next(m for m in messages if isinstance(m, Put))
            number = parse_header(put.records[0]).replica_seq
            values: dict[str, Any] = {
                "namespace": REMOTE,
                "replica_seq": number,
                "expected": number,
            }
            values |= {"action": 0, "retry_ms": 0, "text": "no", **refusal}
            self._deliver(conn, encode_frame([ErrorMessage(**values)]))
            return
        self.core.receive(conn, frame, self.now)
        self._effects()

    def _effects(self):
        did = False
        while effects := self.core.effects():
            did = True
            for effect in effects:
                self._do(effect)
        return did

    def _do(self, effect):
        match effect:
            case Send():
                for frame in effect.frames:
                    self._deliver(effect.conn, frame)
                self.core.sent(effect.conn, self.now)
            case Close():
                for frame in effect.frames:
                    self._deliver(effect.conn, frame)
                self.drop(effect.conn, effect.code, effect.reason)
            case Announce():
                # There is no other process of this relay.
                pass
            case _:
                self.core.completed(effect.effect, run_now(self._ask(effect)), self.now)

    def _deliver(self, conn, frame):
        messages = decode_frame(frame)
        self.told += [m.code for m in messages if isinstance(m, ErrorMessage)]
        kept = [self.change(m) for m in messages if not isinstance(m, self.lost)]
        if kept:
            engine = self.sites[conn].engine
            engine.receive(encode_frame(kept), self.now)

    def _ask(self, effect):
        match effect:
            case Join():
                return self.storage.join(
                    effect.namespace,
                    create=effect.create,
                    replica_id=effect.replica_id,
                    cursor=effect.cursor,
                )
            case Match():
                return self.storage.match(effect.ns_no, effect.samples)
            case Append():
                return self.storage.append(effect.puts)
            case _:
                return self.storage.read(
                    effect.ns_no,
                    effect.after,
                    records=effect.records,
                    octets=effect.octets,
                )


class Site:
    """A machine: a store, a lane, and the engine that syncs it.

    With ``keys``, secrets by their ids, its namespace is encrypted.
    """

    def __init__(self, folder, name, relay, *, is_linked=True, keys=None):
        self.name = name
        self.relay = relay
        self.keys = keys
        self.path = folder / name / "store.db"
        self.open()
        if is_linked:
            self.link()

    def open(self):
        self.store = Store(self.path, durability="normal")
        self.memory = Memory(Session(self.store, self.name, PROJECT))
        self.take_keys(self.keys)

    def take_keys(self, keys):
        """Have other keys from the next connection on; None for none."""
        self.keys = keys
        self.store.sealers.clear()
        if keys is not None:
            self.store.sealers[PROJECT] = Sealer(REMOTE, Keyring(keys))

    def link(self, remote=REMOTE, namespace=PROJECT, url=URL):
        add_link(
            self.store,
            namespace=namespace,
            remote=remote,
            url=url,
            token_file="",
            options={} if self.keys is None else {"encrypted": True},
        )
        self.make_engine()

    def unlink(self):
        remove_link(self.store, self.stored)

    def make_engine(self):
        self.engine = Engine(
            self.store,
            [find_link(self.store, PROJECT)],
            incarnation=self.name.encode().ljust(16, b"."),
            rng=Random(3),
            agent="tests",
        )

    def connect(self):
        self.relay.connect(self)
        self.relay.run()
        return self

    def append(self, label, text):
        slots = {slot.label for slot in self.memory.slots("project")}
        if label in slots:
            self.memory.slot(label, "project").append(text)
        else:
            self.memory.create(label, text, size_limit=100_000)

    def text(self, label):
        return self.memory.slot(label, "project").read().content

    @property
    def stored(self):
        """The link as it is in the store."""
        return find_link(self.store, PROJECT)

    @property
    def unsent(self):
        return unsent_counts(self.store, self.stored).writes

    @property
    def alarms(self):
        return [alarm.code for alarm in self.stored.alarms]

    @property
    def is_settled(self):
        return self.engine.is_settled(PROJECT)

    def roll_back(self, work):
        """Do something, and put the store's files back to what they were before.

        In place: the file keeps its number, so nothing tells but the relay.
        """
        self.store.checkpoint()
        self.store.close()
        before = self.path.read_bytes()
        self.open()
        work()
        self.store.checkpoint()
        self.store.close()
        self.path.write_bytes(before)
        self.open()
        self.make_engine()

    def close(self):
        self.store.close()
