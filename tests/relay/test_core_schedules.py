"""relay.core: any order of things, any bytes, and long records."""

from random import Random

import pytest
from hypothesis import given, settings, strategies as st

from crdtmem.protocol.messages import (
    Bye,
    ErrorMessage,
    Form,
    Heartbeat,
    Hello,
    Join,
    Leave,
    Part,
    Presence,
    Put,
    Samples,
    encode_frame,
)
from crdtmem.protocol.records import RecordKind, parse_header
from crdtmem.protocol.relaying import Sample, Scope
from crdtmem.protocol.serving import RelayLimits
from relay.effects import Append, Read, Send
from tests.relay.peers import DOC, Site, grant_of, record_of

SMALL = RelayLimits(part_bytes=300, commit_records=4, cache_bytes=2_000, catchups_max=1)
DOCS = (DOC, b"e" * 16)


class Walk:
    """Stores of one namespace that write, compact, stall, drop and return at random."""

    def __init__(self, seed):
        self.random = Random(seed)
        self.site = Site(SMALL, seed=seed)
        self.stores = [self.site.join(number) for number in range(1, 5)]
        self.sealed: list[list[bytes]] = [[] for _ in self.stores]

    def step(self):
        at = self.random.randrange(len(self.stores))
        do = self.random.choice(
            [self.write] * 6
            + [self.compact, self.slow, self.hold, self.come_back, self.sweep]
            + [self.release] * 4
        )
        do(at)

    def write(self, at, **fields):
        store, sealed = self.stores[at], self.sealed[at]
        payload = self.random.randbytes(self.random.choice([5, 50, 700]))
        fields = {"doc_tag": self.random.choice(DOCS), **fields}
        number = len(sealed) + 1
        sealed.append(record_of(store.replica_id, number, payload, **fields))
        store.send(Put(1, (sealed[-1],)))

    def compact(self, at):
        """Write a snapshot, or a mere state where the store itself has a hole."""
        place, doc_tag = self.stores[at].place, self.random.choice(DOCS)
        base = 0 if open_holes(place.got, doc_tag) else place.position
        self.write(at, kind=RecordKind.SNAPSHOT, base=base, doc_tag=doc_tag)

    def slow(self, at):
        self.stores[at].is_slow = True

    def hold(self, at):
        self.site.held.add(self.random.choice([Append, Read]))

    def release(self, at):
        if self.site.waiting:
            self.site.waiting.sort(key=lambda _: self.random.random())
            self.site.release()
        else:
            self.stores[at].sent()

    def sweep(self, _):
        self.site.drop_covered()

    def come_back(self, at):
        """Drop the connection, and go on from the cursor on a new one."""
        old = self.stores[at]
        old.drop()
        new = self.stores[at] = self.site.connect(at + 1)
        new.places = old.places
        new.join(
            seq=old.place.position, chain=old.place.chain, own_seq=len(self.sealed[at])
        )

    def settle(self):
        """Let everything come to rest; each store sends what is not stored."""
        self.site.held = set()
        for at in range(len(self.stores)):
            while self.site.waiting:
                self.site.release()
            self.come_back(at)
            store = self.stores[at]
            for record in self.sealed[at][store.joined.own_max :]:
                fixed = self.without_fault(record)
                store.send(Put(1, (fixed,)))

    def without_fault(self, record):
        """Seal a record anew that the relay has refused: a snapshot may be stale."""
        header = parse_header(record)
        return record_of(header.replica_id, header.replica_seq, doc_tag=header.doc_tag)


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 2**32))
def test_r2_every_store_is_sent_every_seq_once_in_order_and_no_hole_stays(seed):
    walk = Walk(seed)
    for _ in range(120):
        walk.step()
    walk.settle()
    fresh = walk.site.join(9)
    log = walk.site.log()

    assert [row.seq for row in log] == list(range(1, len(log) + 1))
    for store in [*walk.stores, fresh]:
        got = store.place.got
        assert list(got) == [row.seq for row in log]
        assert store.place.chain == log[-1].chain
        assert [open_holes(got, doc_tag) for doc_tag in DOCS] == [set(), set()]


def open_holes(got, doc_tag):
    """Return the seqs of a doc that came covered, and without what covers them."""
    holes = set()
    for seq, item in got.items():
        if item.form == Form.COVERED and item.doc_tag == doc_tag:
            holes.add(seq)
        if item.form == Form.FULL:
            header = parse_header(item.record)
            if header.doc_tag == doc_tag:
                holes = {hole for hole in holes if hole > header.base}
    return holes


@settings(max_examples=8, deadline=None)
@given(st.integers(0, 2**32))
def test_a_store_is_sent_what_it_wrote_itself_by_its_id_or_as_it_wrote_it(seed):
    walk = Walk(seed)
    for _ in range(60):
        walk.step()
    walk.settle()

    for row in walk.site.log():
        for store in walk.stores:
            item = store.place.got[row.seq]
            if item.form == Form.FULL and row.record is not None:
                assert item.record == row.record
            if item.form == Form.OWN:
                assert row.replica_id == store.replica_id


# Any bytes.


def hostile_frames(random, peer):
    """Yield frames of a client that was let in, whole and damaged."""
    record = record_of(peer.replica_id, 1)
    own = (peer.replica_id, peer.incarnation)
    messages = [
        Join("notes", 3, bytes(16), 0, bytes(32), 2**53 - 1),
        Join("other", 0, bytes(16), 2**53 - 1, bytes(32), 0),
        Samples("other", (Sample(5, bytes(32)),)),
        Put(1, (record, record[:50], b"")),
        Put(1, (record_of(bytes(16), 1),)),
        Part(1, 2**53 - 1, 2**53 - 1, 0, record),
        Part(1, 1, len(record), 0, record),
        Presence(1, *own, 1, 45_000, b"?"),
        Heartbeat(1, ()),
        Leave(1),
        Hello(0, *own, ""),
        Bye(2**53 - 1, "done"),
        ErrorMessage("", 0, 0, 3, 0, "x", "y"),
    ]
    while True:
        kind = random.random()
        if kind < 0.2:
            yield random.randbytes(random.randrange(1, 200))
            continue
        frame = encode_frame(random.sample(messages, random.randrange(1, 4)))
        if kind < 0.6:
            at = random.randrange(len(frame))
            frame = frame[:at] + random.randbytes(1) + frame[at + 1 :]
        yield frame


@pytest.mark.requirement("sync-fuzz")
@settings(max_examples=8, deadline=None)
@given(st.integers(0, 2**32))
def test_r11_r12_any_bytes_end_in_a_close_or_not_and_change_no_other_output(seed):
    outputs = []
    for is_attacked in (False, True):
        random = Random(seed)
        site = Site()
        writer, reader = site.join(1), site.join(2)
        for number in range(1, 20):
            if is_attacked:
                grant = grant_of("bbbbbbbbbb", Scope.READ)
                enemy = site.connect(1_000 + number, grant=grant)
                frames = hostile_frames(random, enemy)
                for _ in range(12):
                    enemy.send_bytes(next(frames))
                site.tick(0.001)
                assert enemy.closed is None or enemy.closed.code in (1000, 4400)
            writer.put(number)
        outputs.append((writer.frames, reader.frames))
        assert site.core.gauges()["transfer_bytes"] < 2**18 or is_attacked

    assert outputs[0] == outputs[1]


# Long records.


def parts_of(peer, seq, payload, *, size=100, **fields):
    record = record_of(peer.replica_id, seq, payload, **fields)
    return [
        Part(1, seq, len(record), at, record[at : at + size])
        for at in range(0, len(record), size)
    ]


@pytest.fixture
def site():
    return Site(SMALL)


def test_a_long_record_comes_and_goes_in_parts(site):
    writer, reader = site.join(1), site.join(2)
    for part in parts_of(writer, 1, bytes(1_000)):
        before = writer.acks()
        writer.send(part)

    assert (before, writer.acks()) == ([], [(1, 1)])
    assert [len(part.data) for part in reader.of(Part)] == [300, 300, 300, 160]
    assert reader.got[1].record == site.log()[0].record
    assert site.core.gauges()["transfer_bytes"] == 0


def test_other_namespaces_and_answers_stand_between_the_parts_of_a_record(site):
    writer, reader = site.join(1), site.join(2)
    writer.join("other")
    reader.join("other")
    reader.is_slow = True
    for part in parts_of(writer, 1, bytes(1_000)):
        writer.send(part)
    writer.put(1, ns_no=2)
    held = site.core.gauges()["transfer_bytes"]
    reader.send(Heartbeat(1, ()))
    kinds = []
    for _ in range(5):
        kinds.append([type(m).__name__ for m in reader.messages])
        reader.messages.clear()
        reader.sent()

    assert held == 1_060
    assert kinds[1:] == [["Heartbeat", "Part"], ["Records"], ["Part"], ["Part"]]
    assert (list(reader.got), list(reader.got_of(2))) == ([1], [1])


def test_a_second_long_record_waits_for_the_first(site):
    writer, reader = site.join(1), site.join(2)
    writer.join("other")
    reader.join("other")
    reader.is_slow = True
    for ns_no in (1, 2):
        for part in parts_of(writer, 1, bytes(1_000)):
            writer.send(Part(ns_no, part.id, part.total, part.offset, part.data))
    order = [part.ns_no for part in reader.of(Part)]
    for _ in range(8):
        reader.sent()
        order += [part.ns_no for part in reader.of(Part)]

    assert order == [1] * 4 + [2] * 4
    assert len(reader.got_of(2)) == 1


def test_r10_records_in_parts_have_one_bound_for_all_connections(site):
    site = Site(RelayLimits(part_bytes=300, transfers_bytes=2_000))
    one, two, reader = (site.join(n) for n in (1, 2, 3))
    for part in parts_of(one, 1, bytes(3_000), size=1_000)[:1]:
        one.send(part)
    for part in parts_of(two, 1, bytes(3_000), size=1_000):
        two.send(part)
    errors = two.of(ErrorMessage)
    held = site.core.gauges()["transfer_bytes"]
    one.drop()
    for part in parts_of(two, 1, bytes(1_000)):
        two.send(part)

    assert [(e.code, e.action, e.retry_ms, e.expected) for e in errors] == [
        ("busy", 1, 5_000, 1)
    ]
    assert held == 1_000
    assert two.acks() == [(1, 1)]
    assert len(reader.got[1].record) == 1_060


def test_a_reader_waits_until_there_is_room_for_a_long_record(site):
    site = Site(RelayLimits(part_bytes=300, transfers_bytes=1_500))
    writer, one, two = (site.join(n) for n in (1, 2, 3))
    one.is_slow = True
    writer.put(1, payload=bytes(1_000))
    before = dict(two.got)
    for _ in range(4):
        one.sent()
    for peer in (one, two):
        peer.send(Heartbeat(0, ()))
    site.tick(15)

    assert before == {}
    assert (list(one.got), list(two.got)) == ([1], [1])


def test_parts_end_with_their_connection(site):
    writer, reader = site.join(1), site.join(2)
    reader.is_slow = True
    writer.put(1, payload=bytes(1_000))
    writer.send(parts_of(writer, 2, bytes(1_000))[0])
    held = site.core.gauges()["transfer_bytes"]
    writer.drop()
    reader.drop()

    assert (held, site.core.gauges()["transfer_bytes"]) == (1_160, 0)


def test_the_next_part_is_awaited_for_a_minute(site):
    writer = site.join(1)
    writer.send(parts_of(writer, 1, bytes(1_000))[0])
    for _ in range(6):
        site.tick(10)
        before = writer.closed
        writer.send(Heartbeat(0, ()))
    assert before is None or before.reason == "part-timeout"

    assert (writer.closed.code, writer.codes()) == (4508, ["part-timeout"])


def test_sends_carry_one_frame_of_records_at_most(site):
    writer, reader = site.join(1), site.join(2)
    reader.is_slow = True
    for number in range(1, 9):
        writer.put(number, payload=bytes(250))
    reader.is_slow = False
    reader.sent()
    sends = [e for e in site.effects if isinstance(e, Send) and e.conn == reader.conn]

    assert list(reader.got) == list(range(1, 9))
    assert max(len(send.frames) for send in sends) == 1
