"""Several relays on one PostgreSQL: what one of them does, another one shows."""

import contextlib
import json

import pytest

from crdtmem.limits import READINESS_KEPT_S
from crdtmem.protocol.messages import Presence, Records
from relay.http import Answer, Gate, RequestHead
from relay.metrics import Metrics
from relay.storage.postgres.connection import PostgresTiming
from relay.storage.postgres.storage import PostgresStorage
from tests.postgres import postgres  # noqa: F401 - a fixture
from tests.relay.live import Peer, live_relay, record

pytestmark = pytest.mark.postgres

WRITER = b"w" * 16
TOKENS = ("abcdefghij", "bbbbbbbbbb", "cccccccccc")
PATIENT = PostgresTiming(connect_s=20, answer_s=20)
LOOKING = PostgresTiming(connect_s=20, answer_s=20, poll_s=0.05)
"""Finds out by itself soon, whatever it is told."""


@pytest.fixture
def url(postgres):  # noqa: F811 - the fixture
    return postgres.url(postgres.emptied())


@contextlib.asynccontextmanager
async def nodes(url, count=2, *, timing=PATIENT):
    """Run relays on one database."""
    async with contextlib.AsyncExitStack() as running:
        yield [
            await running.enter_async_context(
                live_relay(PostgresStorage(url, timing=timing), token_id=token_id)
            )
            for token_id in TOKENS[:count]
        ]


def shown(presence):
    return presence.replica_id, presence.counter, presence.ttl_ms, presence.blob


@pytest.mark.requirement("nodes-3")
async def test_what_is_written_on_one_node_is_read_on_another(url):
    async with (
        nodes(url) as (a, b),
        Peer.connected(a.port, a.token, replica_id=WRITER) as writer,
        Peer.connected(b.port, a.token) as reader,
    ):
        joined = await writer.join()
        await reader.join()
        for number in (1, 2, 3):
            sent = record(WRITER, number)
            await writer.put(joined.ns_no, sent)
            found = await reader.hear(Records)

            assert [item.record for item in found.items] == [sent]
            assert (await writer.acked(number)).seq == found.first_seq == number


@pytest.mark.requirement("nodes-3")
async def test_writers_of_all_nodes_make_one_log_that_all_their_readers_see(url):
    async with nodes(url, 3) as found, contextlib.AsyncExitStack() as stack:
        peers = [
            await stack.enter_async_context(
                Peer.connected(node.port, found[0].token, replica_id=bytes([n]) * 16)
            )
            for n, node in enumerate(found, 1)
        ]
        (ns_no,) = {(await peer.join()).ns_no for peer in peers}
        for number in range(1, 6):
            for peer in peers:
                await peer.put(ns_no, record(peer.replica_id, number))
        for peer in peers:
            await peer.acked(5)
        seen = []
        for peer in peers:
            ids: list[bytes | None] = []
            last = b""
            while len(ids) < 15:
                message = await peer.hear(Records)
                assert message.first_seq == len(ids) + 1
                ids += [item.record for item in message.items]
                last = message.chain
            seen.append(last)

    assert len(set(seen)) == 1


@pytest.mark.requirement("nodes-3")
async def test_a_reader_finds_what_its_node_was_not_told_of(url, monkeypatch):
    """Whoever commits tells nobody, as a process that is killed right after."""
    monkeypatch.setattr(
        "relay.storage.postgres.announcing.Announcer.moved", lambda *_: None
    )
    async with (
        nodes(url, timing=LOOKING) as (a, b),
        Peer.connected(a.port, a.token, replica_id=WRITER) as writer,
        Peer.connected(b.port, a.token) as reader,
    ):
        joined = await writer.join()
        await reader.join()
        await writer.put(joined.ns_no, record(WRITER, 1))

        assert await reader.records_to(1) == [record(WRITER, 1)]


async def test_who_is_at_what_on_one_node_is_shown_on_another(url):
    async with (
        nodes(url) as (a, b),
        Peer.connected(b.port, a.token) as friend,
    ):
        await friend.join(flags=1)
        async with Peer.connected(a.port, a.token, replica_id=WRITER) as sender:
            joined = await sender.join(flags=1)
            presence = Presence(joined.ns_no, WRITER, bytes(16), 1, 30_000, b"{}")
            await sender.say(presence)
            here = await friend.hear(Presence)
            async with Peer.connected(b.port, a.token, replica_id=b"l" * 16) as late:
                await late.join(flags=1)
                found = await late.hear(Presence)
        gone = await friend.hear(Presence)

    assert here == found == presence
    assert shown(gone) == (WRITER, 1, 0, b"")


async def test_a_token_that_is_revoked_on_one_node_ends_on_all(url):
    async with (
        nodes(url) as (a, b),
        Peer.connected(a.port, a.token) as one,
        Peer.connected(b.port, a.token, replica_id=WRITER) as other,
    ):
        await one.join()
        await other.join()
        await a.storage.token_revoke(TOKENS[0], 1)

        assert await one.closed() == (4401, "token-revoked")
        assert await other.closed() == (4401, "token-revoked")


async def test_a_node_that_ends_has_stored_what_it_was_sent(url):
    async with nodes(url) as (a, b):
        async with Peer.connected(a.port, a.token, replica_id=WRITER) as writer:
            joined = await writer.join()
            await writer.put(joined.ns_no, *(record(WRITER, n) for n in (1, 2, 3)))
            await writer.acked(1)
            a.stop.set()
            ended = await writer.closed()
        async with Peer.connected(b.port, a.token) as reader:
            await reader.join()
            found = await reader.records_to(3)

    assert ended == (1012, "shutdown")
    assert found == [record(WRITER, n) for n in (1, 2, 3)]


async def test_a_node_is_ready_while_its_database_is_there(postgres, url):  # noqa: F811 - the fixture
    now = 1_000.0
    storage = PostgresStorage(url, timing=PATIENT)
    gate = Gate(
        storage,
        Metrics("1.2"),
        version="1.2",
        clock=lambda: now,
        wall_ms=lambda: 50_000,
    )
    found = []
    await storage.open()
    try:
        for change in (lambda: None, postgres.stop, postgres.start):
            change()
            now += READINESS_KEPT_S
            answer = await gate.decide(RequestHead("GET", "/readyz", {}, "127.0.0.1"))
            assert isinstance(answer, Answer)
            told = json.loads(answer.body)
            found.append((answer.status, told["status"], told["error"]))
        upgrade = {
            "sec-websocket-protocol": ["crdtmem.v1"],
            "authorization": ["Bearer cm1_abcdefghij_" + "A" * 43],
        }
        postgres.stop()
        away = await gate.decide(RequestHead("GET", "/v1/sync", upgrade, "127.0.0.1"))
    finally:
        await storage.close()

    assert isinstance(away, Answer)
    assert found == [
        (200, "ready", None),
        (503, "failing", "storage-unreachable"),
        (200, "ready", None),
    ]
    assert (away.status, away.headers) == (503, (("Retry-After", "5"),))
