"""relay.server.driver: what goes through a relay, and what becomes of faults"""

import asyncio
import contextlib
import gc
import inspect
import math
from random import Random

import pytest
from websockets.exceptions import ConnectionClosed
from websockets.frames import Frame, Opcode
from websockets.protocol import State

from crdtmem.errors import (
    StorageCorruptError,
    StorageFullError,
    StorageLostError,
    StorageUncertainError,
)
from crdtmem.limits import FRAME_BYTES, SEND_BUFFER_BYTES
from crdtmem.protocol.messages import (
    Action,
    ErrorMessage,
    Heartbeat,
    Hello,
    Join,
    Joined,
    Part,
    Records,
    Rewind,
    Samples,
    encode_message,
)
from crdtmem.protocol.parts import split_record
from crdtmem.protocol.records import RecordKind
from crdtmem.protocol.relaying import Sample
from crdtmem.protocol.serving import RelayLimits
from relay.server import EXIT_UNCERTAIN, Timing
from relay.server.connection import RelayConnection
from relay.storage.memory import MemoryStorage
from relay.storage.sqlite.folder import init_folder
from relay.storage.sqlite.storage import SqliteStorage
from tests.proxy import ChaosProxy
from tests.relay.live import PATIENCE_S, Peer, add_token, live_relay, record
from tests.relay.server.asking import ask, upgrade_with

WRITER = b"w" * 16


def named(number):
    return number.to_bytes(16)


async def put_all(peer, ns_no, records):
    """Send records in order, so many as the window allows at a time."""
    for at in range(0, len(records), 100):
        await peer.put(ns_no, *records[at : at + 100])
        await peer.acked(min(at + 100, len(records)))


def buffered_bytes():
    """Return how much waits for each reader of the relays in this process."""
    return [
        each.transport.get_write_buffer_size()
        for each in gc.get_objects()
        if type(each) is RelayConnection
    ]


@pytest.fixture(params=["memory", "sqlite"])
def storage(request, tmp_path):
    if request.param == "memory":
        return MemoryStorage(rng=Random(1))
    init_folder(tmp_path / "relay", now_ms=1)
    return SqliteStorage(tmp_path / "relay")


async def test_what_one_store_puts_all_others_are_sent(storage):
    async with live_relay(storage) as relay, contextlib.AsyncExitStack() as open_:
        readers = []
        for number in range(5):
            peer = Peer.connected(relay.port, relay.token, replica_id=named(number))
            readers.append(await open_.enter_async_context(peer))
            await readers[-1].join()
        writing = Peer.connected(relay.port, relay.token, replica_id=WRITER)
        writer = await open_.enter_async_context(writing)
        joined = await writer.join()
        records = [record(WRITER, n) for n in range(1, 401)]
        await put_all(writer, joined.ns_no, records)
        late = Peer.connected(relay.port, relay.token, replica_id=b"l" * 16)
        readers.append(await open_.enter_async_context(late))
        await readers[-1].join()

        for reader in readers:
            assert await reader.records_to(400) == records


@pytest.mark.requirement("sync-large-record")
async def test_a_snapshot_of_16_mib_goes_up_and_down_in_parts(storage):
    async with live_relay(storage) as relay:
        limits = RelayLimits()
        filling = Random(5).randbytes(limits.snapshot_bytes - 60)
        snapshot = record(WRITER, 1, filling, kind=RecordKind.SNAPSHOT)
        async with Peer.connected(relay.port, relay.token, replica_id=WRITER) as writer:
            joined = await writer.join()
            for part in split_record(joined.ns_no, 1, snapshot, limits.part_bytes):
                await writer.say(part)
            assert (await writer.acked(1)).seq == 1
        async with Peer.connected(relay.port, relay.token) as reader:
            await reader.join()
            found = b""
            while len(found) < len(snapshot):
                part = await reader.hear(Part)
                assert (part.id, part.total, part.offset) == (
                    1,
                    len(snapshot),
                    len(found),
                )
                found += part.data

        assert found == snapshot


@pytest.mark.requirement("sync-slow-reader")
async def test_a_slow_reader_holds_up_nobody_and_is_kept():
    """The others are through with everything while it still reads the beginning."""
    async with (
        live_relay() as relay,
        ChaosProxy(relay.port) as proxy,
        Peer.connected(relay.port, relay.token, replica_id=WRITER) as writer,
        Peer.connected(relay.port, relay.token, replica_id=b"f" * 16) as fast,
        Peer.connected(proxy.port, relay.token, replica_id=b"s" * 16) as slow,
    ):
        joined = await writer.join()
        await fast.join()
        await slow.join()
        proxy.limit_rate(1_000, "down")
        records = [record(WRITER, n, bytes(2_000)) for n in range(1, 3_001)]
        reading = asyncio.create_task(fast.records_to(3_000))
        await put_all(writer, joined.ns_no, records)

        assert await reading == records
        waiting = buffered_bytes()
        assert max(waiting) <= SEND_BUFFER_BYTES + FRAME_BYTES
        assert any(waiting)
        proxy.limit_rate(math.inf, "down")
        assert await slow.records_to(3_000) == records


@pytest.mark.requirement("sync-slow-reader")
async def test_a_reader_that_never_reads_is_given_up():
    """It sends signs of life, and so is not taken for dead."""
    limits = RelayLimits(stall_s=0.3)
    async with (
        live_relay(limits=limits) as relay,
        ChaosProxy(relay.port) as proxy,
        Peer.connected(relay.port, relay.token, replica_id=WRITER) as writer,
        Peer.connected(relay.port, relay.token, replica_id=b"f" * 16) as fast,
        Peer.connected(proxy.port, relay.token, replica_id=b"s" * 16) as stuck,
    ):
        joined = await writer.join()
        await fast.join()
        await stuck.join()
        proxy.hold("down")
        records = [record(WRITER, n, bytes(100_000)) for n in range(1, 121)]
        for one in records:
            await writer.put(joined.ns_no, one)
            await writer.acked(len(records[: records.index(one) + 1]))

        assert await fast.records_to(120) == records
        while stuck.socket.state is State.OPEN:
            await stuck.say(Heartbeat(0, ()))
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(stuck.socket.wait_closed(), 0.05)
        proxy.release()
        await writer.put(joined.ns_no, record(WRITER, 121))
        assert (await writer.acked(121)).seq == 121


async def test_a_stuck_reader_is_told_why_it_ends_if_it_reads_in_time():
    async with (
        live_relay() as relay,
        ChaosProxy(relay.port) as proxy,
        Peer.connected(relay.port, relay.token, replica_id=WRITER) as writer,
    ):
        other_token = await add_token(relay.storage, token_id="bbbbbbbbbb")
        async with Peer.connected(proxy.port, other_token) as stuck:
            joined = await writer.join()
            await stuck.join()
            proxy.hold("down")
            sent = 0
            while not any(buffered_bytes()):
                sent += 1
                await writer.put(joined.ns_no, record(WRITER, sent, bytes(200_000)))
                await writer.acked(sent)
            await relay.storage.token_revoke("bbbbbbbbbb", 1)
            _, metrics = "", ""
            while 'closes_total{code="4401"} 1' not in metrics:
                _, metrics = await ask(relay.port, "GET /metrics HTTP/1.1\r\n\r\n")
            proxy.release("down")

            assert await stuck.closed() == (4401, "token-revoked")


@pytest.mark.parametrize(
    "scenario",
    [
        test_what_one_store_puts_all_others_are_sent,
        test_a_stuck_reader_is_told_why_it_ends_if_it_reads_in_time,
    ],
)
def test_the_event_loop_of_uvloop_serves_too(scenario, tmp_path):
    uvloop = pytest.importorskip("uvloop")
    init_folder(tmp_path / "relay", now_ms=1)
    needed = inspect.signature(scenario).parameters
    arguments = {name: SqliteStorage(tmp_path / "relay") for name in needed}
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(scenario(**arguments))


async def upgraded(port, token):
    """Return the two streams of a WebSocket that is spoken by hand."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(upgrade_with(token))
    await reader.readuntil(b"\r\n\r\n")
    return reader, writer


async def test_a_peer_that_does_not_answer_a_close_is_not_waited_for():
    async with live_relay(timing=Timing(close_s=0.05)) as relay:
        reader, writer = await upgraded(relay.port, relay.token)
        writer.write(Frame(Opcode.TEXT, b"hello").serialize(mask=True))

        answer = await asyncio.wait_for(reader.read(), PATIENCE_S)
        assert answer[2:4] == (4400).to_bytes(2)
        writer.close()


async def test_a_peer_that_has_said_goodbye_is_sent_nothing_more():
    limits = RelayLimits(dead_s=0.5)
    async with (
        live_relay(limits=limits) as relay,
        Peer.connected(relay.port, relay.token, replica_id=WRITER) as other,
    ):
        reader, writer = await upgraded(relay.port, relay.token)
        for message in (
            Hello(0, b"r" * 16, bytes(16), "test"),
            Join("team", 0, bytes(16), 0, bytes(32), 0),
        ):
            data = encode_message(message)
            writer.write(Frame(Opcode.BINARY, data).serialize(mask=True))
        await reader.readuntil(b"team")
        joined = await other.join()
        writer.write(Frame(Opcode.CLOSE, (1000).to_bytes(2)).serialize(mask=True))
        rest = await asyncio.wait_for(reader.read(), PATIENCE_S)
        await other.put(joined.ns_no, record(WRITER, 1))

        assert (await other.acked(1)).seq == 1
        assert rest.endswith(b"\x88\x02" + (1000).to_bytes(2))
        writer.close()


async def test_a_cursor_that_is_not_in_the_log_goes_back_to_a_sample_that_is():
    async with (
        live_relay() as relay,
        Peer.connected(relay.port, relay.token, replica_id=WRITER) as writer,
        Peer.connected(relay.port, relay.token) as reader,
    ):
        joined = await writer.join()
        await writer.put(joined.ns_no, record(WRITER, 1), record(WRITER, 2))
        ack = await writer.acked(2)
        await reader.hello()
        await reader.say(Join("team", 0, bytes(16), 9, b"c" * 32, 0))
        rewind = await reader.hear(Rewind)
        places = (Sample(5, b"c" * 32), Sample(2, ack.chain))
        await reader.say(Samples("team", places))
        found = await reader.hear(Joined)

    assert rewind.head == 2
    assert (found.resume_seq, found.resume_chain) == (2, ack.chain)


@pytest.mark.parametrize(
    ("garbage", "code"),
    [(b"\x00", 4400), ("text", 4400), (bytes(FRAME_BYTES + 1), 1009)],
    ids=["no message", "text", "too long"],
)
async def test_a_frame_that_is_none_ends_its_connection_alone(garbage, code):
    async with (
        live_relay() as relay,
        Peer.connected(relay.port, relay.token, replica_id=WRITER) as other,
        Peer.connected(relay.port, relay.token) as peer,
    ):
        joined = await other.join()
        await peer.join()
        await peer.socket.send(garbage)
        with contextlib.suppress(ConnectionClosed):
            # Nothing comes of what follows.
            await peer.put(joined.ns_no, record(peer.replica_id, 1))

        assert (await peer.closed())[0] == code
        await other.put(joined.ns_no, record(WRITER, 1))
        assert (await other.acked(1)).seq == 1


@pytest.mark.requirement("sync-auth")
async def test_a_flood_of_frames_is_read_more_slowly_and_refused_nothing(monkeypatch):
    monkeypatch.setattr("relay.pacing.TOKEN_BURST_RECORDS", 20)
    monkeypatch.setattr("relay.pacing.TOKEN_RATE_RECORDS", 200)
    async with live_relay() as relay:
        calm = await add_token(relay.storage, token_id="cccccccccc")
        async with (
            Peer.connected(relay.port, relay.token) as flooding,
            Peer.connected(relay.port, calm, replica_id=WRITER) as other,
        ):
            joined = await flooding.join()
            beat = encode_message(Heartbeat(0, ()))
            for _ in range(120):
                await flooding.socket.send(beat)
            await flooding.put(joined.ns_no, record(flooding.replica_id, 1))
            await other.join()
            await other.put(joined.ns_no, record(WRITER, 1))

            assert (await other.acked(1)).seq in (1, 2)
            assert (await flooding.acked(1)).seq in (1, 2)


class Faulty(MemoryStorage):
    """Raises what it is told to, once, instead of doing what it is asked."""

    def __init__(self):
        super().__init__(rng=Random(1))
        self.faults = {}

    async def _stumble(self, ask):
        if ask in self.faults:
            raise self.faults.pop(ask)

    async def append(self, puts):
        await self._stumble("append")
        return await super().append(puts)

    async def read(self, ns_no, after, *, records, octets):
        await self._stumble("read")
        return await super().read(ns_no, after, records=records, octets=octets)

    async def changed_tokens(self, since):
        await self._stumble("tokens")
        return await super().changed_tokens(since)


@pytest.mark.requirement("sync-disk-full")
async def test_a_full_disk_refuses_a_put_and_serves_all_else():
    storage = Faulty()
    async with (
        live_relay(storage) as relay,
        Peer.connected(relay.port, relay.token, replica_id=WRITER) as writer,
    ):
        joined = await writer.join()
        storage.faults["append"] = StorageFullError(path="relay.db")
        await writer.put(joined.ns_no, record(WRITER, 1))
        refused = await writer.hear(ErrorMessage)
        await writer.put(joined.ns_no, record(WRITER, 1))
        ack = await writer.acked(1)

    assert (refused.code, refused.action) == ("storage-full", Action.RETRY)
    assert ack.seq == 1


async def test_a_log_that_cannot_be_read_ends_its_reader_alone(caplog):
    storage = Faulty()
    async with live_relay(storage) as relay:
        async with Peer.connected(relay.port, relay.token, replica_id=WRITER) as writer:
            joined = await writer.join()
            await writer.put(joined.ns_no, record(WRITER, 1))
            await writer.acked(1)
        storage.faults["read"] = StorageCorruptError(path="relay.db", reason="torn")
        async with Peer.connected(relay.port, relay.token) as reader:
            await reader.join()
            assert await reader.closed() == (1011, "storage-failed")
        async with Peer.connected(relay.port, relay.token) as reader:
            await reader.join()
            assert await reader.records_to(1) == [record(WRITER, 1)]
    assert [each.fields["ask"] for each in caplog.records if each.levelno > 30] == [
        "Read"
    ]


@pytest.mark.requirement("sync-fsync-error")
@pytest.mark.parametrize(
    "error", [StorageUncertainError(path="relay.db", reason="EIO"), OSError("EIO")]
)
async def test_an_uncertain_commit_closes_all_sockets_and_ends_the_process(error):
    storage = Faulty()
    async with (
        live_relay(storage) as relay,
        Peer.connected(relay.port, relay.token, replica_id=WRITER) as writer,
        Peer.connected(relay.port, relay.token) as other,
    ):
        joined = await writer.join()
        await other.join()
        storage.faults["append"] = error
        await writer.put(joined.ns_no, record(WRITER, 1))

        assert await writer.closed() == (1011, "storage-failed")
        assert await other.closed() == (1011, "storage-failed")
        assert await asyncio.wait_for(relay.task, PATIENCE_S) == EXIT_UNCERTAIN
        assert writer.heard == []


async def test_a_commit_lost_with_its_database_closes_who_waits_for_it_alone():
    storage = Faulty()
    async with (
        live_relay(storage) as relay,
        Peer.connected(relay.port, relay.token, replica_id=WRITER) as writer,
        Peer.connected(relay.port, relay.token) as other,
    ):
        joined = await writer.join()
        await other.join()
        storage.faults["append"] = StorageLostError(path="postgresql://db/relay")
        await writer.put(joined.ns_no, record(WRITER, 1))
        closed = await writer.closed()
        await other.put(joined.ns_no, record(other.replica_id, 1))

        assert closed == (1011, "storage-failed")
        assert (await other.acked(1)).seq == 1
        (told,) = writer.heard
        assert isinstance(told, ErrorMessage)
        assert told.code == "storage-failed"


async def test_a_look_that_fails_is_repeated(caplog):
    storage = Faulty()
    async with (
        live_relay(storage) as relay,
        Peer.connected(relay.port, relay.token) as peer,
    ):
        await peer.join()
        storage.faults["tokens"] = StorageCorruptError(path="relay.db", reason="torn")
        await storage.token_revoke("abcdefghij", 1)

        assert await peer.closed() == (4401, "token-revoked")
    assert [each.fields["ask"] for each in caplog.records if each.levelno > 30] == [
        "look"
    ]


async def test_what_another_process_commits_is_read_after_its_hint():
    class Shared(MemoryStorage):
        def watch(self, notify, hear=None):
            self.notify = notify

    storage = Shared(rng=Random(1))
    async with (
        live_relay(storage) as relay,
        live_relay(
            MemoryStorage(rng=Random(2), over=storage), token_id="bbbbbbbbbb"
        ) as second,
        Peer.connected(relay.port, relay.token) as reader,
        Peer.connected(second.port, relay.token, replica_id=WRITER) as writer,
    ):
        await reader.join()
        joined = await writer.join()
        await writer.put(joined.ns_no, record(WRITER, 1))
        ack = await writer.acked(1)
        await asyncio.to_thread(storage.notify, joined.ns_no, ack.seq)

        assert await reader.records_to(1) == [record(WRITER, 1)]


async def test_a_silent_connection_is_ended_when_its_time_is_over():
    limits = RelayLimits(hello_s=0.05)
    async with (
        live_relay(limits=limits) as relay,
        Peer.connected(relay.port, relay.token) as peer,
    ):
        assert await peer.closed() == (4508, "timeout")


async def test_the_same_bytes_go_to_all_readers():
    async with live_relay() as relay, contextlib.AsyncExitStack() as open_:
        readers = []
        for number in range(3):
            peer = Peer.connected(relay.port, relay.token, replica_id=named(number))
            readers.append(await open_.enter_async_context(peer))
            joined = await readers[-1].join()
        await readers[0].put(joined.ns_no, record(named(0), 1))
        one = await readers[1].hear(Records)
        other = await readers[2].hear(Records)

    assert one == other
