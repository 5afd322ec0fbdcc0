"""A relay's core over a storage in memory, and clients made of bare messages.

Nothing runs by itself: a Site carries out the effects of its core at once, except those
that a test wants to hold back, and its clock stands still until a test moves it.
"""

from random import Random

import pytest

from crdtmem.protocol.messages import (
    Ack,
    ErrorMessage,
    Form,
    Hello,
    Item,
    Join,
    Joined,
    Part,
    Put,
    Records,
    decode_frame,
    encode_frame,
)
from crdtmem.protocol.records import (
    Header,
    RecordKind,
    build_record,
    chain_next,
    chain_start,
    record_id,
)
from crdtmem.protocol.relaying import Grant, Scope
from relay.core import RelayCore
from relay.effects import Announce, Append, Close, Join as JoinEffect, Match, Send
from relay.storage.memory import MemoryStorage

__all__ = ["ALL", "Peer", "Site", "grant_of", "record_of", "run_now"]

ALL = Scope.READ | Scope.WRITE | Scope.COMPACT | Scope.PRESENCE
DOC = b"d" * 16


def grant_of(token_id="aaaaaaaaaa", scopes=ALL, pattern="*", **values):
    return Grant(token_id, pattern, scopes, **values)


def run_now(work):
    """Return what a coroutine returns that waits for nothing."""
    with pytest.raises(StopIteration) as stop:
        work.send(None)
    return stop.value.value


def record_of(replica_id, seq, payload=b"payload", **fields):
    """Return a record; an update of one doc unless the fields say otherwise."""
    values = {"kind": RecordKind.UPDATE, "alg": 0, "doc_tag": DOC, "base": 0, **fields}
    header = Header(**values, replica_id=replica_id, replica_seq=seq, key_id=0)
    return build_record(header, payload)


class Site:
    """A relay process, with its clients.

    Attributes:
        held: Kinds of effects that are kept in ``waiting`` instead of being done.
        announced: What other processes of the relay have been told.

    """

    def __init__(self, limits=None, *, storage=None, seed=1):
        self.storage = storage or MemoryStorage(rng=Random(seed))
        self.core = RelayCore(run_now(self.storage.open()), limits, rng=Random(seed))
        self.now = 1_000.0
        self.peers = {}
        self.held = set()
        self.waiting = []
        self.effects = []
        self.announced = []

    def connect(self, replica=1, *, grant=None, hello=True, incarnation=b"i" * 16):
        peer = Peer(self, len(self.peers) + 1, replica.to_bytes(16, "big"))
        peer.incarnation = incarnation
        self.peers[peer.conn] = peer
        self.core.connect(peer.conn, grant or grant_of(), self.now)
        self.pump()
        if hello:
            peer.send(Hello(0, peer.replica_id, incarnation, "test"))
        return peer

    def join(self, replica=1, namespace="notes", **values):
        """Return a new client that has joined a namespace from its beginning."""
        peer = self.connect(replica, **values)
        peer.join(namespace)
        return peer

    def pump(self):
        """Do what the core wants, until it wants nothing that is not held."""
        while effects := self.core.effects():
            for effect in effects:
                self.effects.append(effect)
                if type(effect) in self.held:
                    self.waiting.append(effect)
                else:
                    self.do(effect)

    def do(self, effect):
        match effect:
            case Send(conn=conn, frames=frames):
                self.peers[conn].take(frames)
                if not self.peers[conn].is_slow:
                    self.core.sent(conn, self.now)
            case Close(conn=conn):
                self.peers[conn].take(effect.frames)
                self.peers[conn].closed = effect
            case Announce(message=message):
                self.announced.append(message)
            case _:
                self.core.completed(effect.effect, self.answer(effect), self.now)

    def answer(self, effect):
        """Return what the storage says to an effect."""
        storage = self.storage
        match effect:
            case JoinEffect():
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
            case _:
                return run_now(
                    storage.read(
                        effect.ns_no,
                        effect.after,
                        records=effect.records,
                        octets=effect.octets,
                    )
                )

    def release(self, result=None):
        """Do the oldest effect that was held back, or say what came of it instead."""
        effect = self.waiting.pop(0)
        if result is None:
            self.do(effect)
        else:
            self.core.completed(effect.effect, result, self.now)
        self.pump()

    def tick(self, seconds):
        """Let time pass, with a tick at each deadline."""
        end = self.now + seconds
        while (due := self.core.next_deadline()) is not None and due <= end:
            self.now = max(self.now, due)
            self.core.tick(self.now)
            self.pump()
        self.now = end

    def log(self, ns_no=1):
        found = run_now(self.storage.read(ns_no, 0, records=10**6, octets=2**40))
        return list(found.rows)

    def compact(self, peer, base, seq, **fields):
        """Put a snapshot that covers a doc up to a seq."""
        peer.put(seq, kind=RecordKind.SNAPSHOT, base=base, **fields)

    def drop_covered(self):
        """Let the grace of all covered payloads be over."""
        self.storage.age(30 * 86_400_000)
        run_now(self.storage.sweep(0, 10**6))


class Peer:
    """A client that sends what a test wants, and checks what it is sent.

    Attributes:
        frames: Everything that came, as bytes.
        messages: The same, decoded.
        is_slow: Whether the relay is not told that a send has left.
        closed: How the relay has closed the connection.
        joined: The last one.
        places: What has come, by ns_no.

    """

    def __init__(self, site, conn, replica_id):
        self.site = site
        self.conn = conn
        self.replica_id = replica_id
        self.incarnation = b""
        self.frames = []
        self.messages = []
        self.is_slow = False
        self.closed = None
        self.joined = None
        self.places = {}

    def send(self, *messages):
        self.send_bytes(encode_frame(messages))

    def send_bytes(self, frame):
        self.site.core.receive(self.conn, frame, self.site.now)
        self.site.pump()

    def sent(self):
        """Let the relay know that the last send has left."""
        self.site.core.sent(self.conn, self.site.now)
        self.site.pump()

    def drop(self):
        self.site.core.disconnected(self.conn, self.site.now)
        self.site.pump()

    def join(self, namespace="notes", *, seq=0, chain=bytes(32), own_seq=0, flags=0):
        self.send(Join(namespace, flags, bytes(16), seq, chain, own_seq))

    def put(self, *seqs, ns_no=1, payload=b"payload", **fields):
        """Put records of these numbers, the same bytes each time."""
        records = [record_of(self.replica_id, n, payload, **fields) for n in seqs]
        self.send(Put(ns_no, tuple(records)))
        return records

    def take(self, frames):
        for frame in frames:
            self.frames.append(frame)
            for message in decode_frame(frame):
                self.messages.append(message)
                self._note(message)

    def of(self, kind):
        """Return the messages of a kind that have come since the last call."""
        found = [m for m in self.messages if isinstance(m, kind)]
        self.messages = [m for m in self.messages if not isinstance(m, kind)]
        return found

    def codes(self):
        return [error.code for error in self.of(ErrorMessage)]

    def acks(self):
        return [(ack.replica_seq, ack.seq) for ack in self.of(Ack)]

    def forms(self):
        """Return the form of each record that has come, by seq."""
        return {seq: item.form for seq, item in self.got.items()}

    @property
    def got(self):
        """Items of records of the first namespace, by seq."""
        return self.got_of(1)

    @property
    def place(self):
        """The first namespace."""
        return self.places[1]

    def got_of(self, ns_no):
        return self.places[ns_no].got if ns_no in self.places else {}

    def _note(self, message):
        if isinstance(message, Joined):
            self.joined = message
            self.places.setdefault(message.ns_no, Place()).begin(message)
        if isinstance(message, Records):
            self.places[message.ns_no].take(message)
        if isinstance(message, Part):
            self.places[message.ns_no].take_part(message)


class Place:
    """What a client has of a namespace; nothing comes twice or out of order."""

    def __init__(self):
        self.got = {}
        self.parts = []

    def begin(self, joined):
        self.parts = []
        self.namespace = joined.namespace
        self.position, self.chain = joined.resume_seq, joined.resume_chain

    def take(self, records):
        assert not self.parts
        assert records.first_seq == self.position + 1
        for item in records.items:
            self._add(item)
        assert records.chain == self.chain

    def take_part(self, part):
        assert part.id == self.position + 1
        assert part.offset == sum(map(len, self.parts))
        self.parts.append(part.data)
        if part.offset + len(part.data) == part.total:
            self._add(Item(Form.FULL, b"".join(self.parts)))
            self.parts = []

    def _add(self, item):
        name = item.record_id
        if item.form == Form.FULL:
            name = record_id(self.namespace, item.record)
        self.position += 1
        self.chain = chain_next(self.chain, self.position, name)
        self.got[self.position] = item


def start_of(site, namespace="notes"):
    return chain_start(site.core.identity.relay_id, namespace)
