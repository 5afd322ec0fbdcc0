"""relay.server.serving: how a relay begins, whom it watches, and how it ends"""

import asyncio
import gc
import json
import logging
import os
import signal
import ssl
import subprocess
import sys
from random import Random

import pytest
import trustme

from crdtmem.errors import InsecureBindError
from crdtmem.protocol.messages import (
    Action,
    Bye,
    ErrorMessage,
    Join,
    Presence,
)
from crdtmem.protocol.serving import RelayLimits
from relay.server import EXIT_ABORTED, JsonLines, Timing, serve
from relay.server.connection import RelayConnection
from relay.storage import SweepReport
from relay.storage.memory import MemoryStorage
from tests.relay.live import PATIENCE_S, Peer, add_token, live_relay, record
from tests.relay.server.asking import ask

WRITER = b"w" * 16
TOKEN_ID = "abcdefghij"
SIGNALS = (signal.SIGTERM, signal.SIGINT)


class Gated(MemoryStorage):
    """Stores nothing before it is let."""

    def __init__(self):
        super().__init__(rng=Random(1))
        self.asked = asyncio.Event()
        self.may_store = asyncio.Event()
        self.is_closed = False

    async def append(self, puts):
        self.asked.set()
        await self.may_store.wait()
        return await super().append(puts)

    async def close(self):
        self.is_closed = True
        await super().close()


async def wait_for(event):
    await asyncio.wait_for(event.wait(), PATIENCE_S)


async def status_of(relay):
    return await asyncio.wait_for(relay.task, PATIENCE_S)


@pytest.mark.requirement("sync-auth")
async def test_a_relay_does_not_listen_where_tokens_would_go_in_the_clear():
    storage = Gated()
    with pytest.raises(InsecureBindError) as refused:
        await serve(
            storage, RelayLimits(), host="0.0.0.0", port=0, on_ready=lambda port: None
        )

    assert refused.value.details == {"address": "0.0.0.0"}
    assert not storage.is_closed


async def test_a_relay_with_a_certificate_is_spoken_to_in_secret():
    authority = trustme.CA()
    served = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("localhost").configure_cert(served)
    trusting = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    authority.configure_trust(trusting)
    async with (
        live_relay(host="0.0.0.0", tls=served) as relay,
        Peer.connected(relay.port, relay.token, tls=trusting) as peer,
    ):
        joined = await peer.join()
        await peer.put(joined.ns_no, record(peer.replica_id, 1))

        assert (await peer.acked(1)).seq == 1
        assert peer.socket.transport.get_extra_info("cipher")


@pytest.mark.requirement("sync-shutdown")
@pytest.mark.parametrize("number", SIGNALS)
async def test_a_signal_lets_everybody_finish(number):
    """What was received is stored and acknowledged, and then comes the end."""
    storage = Gated()
    async with (
        live_relay(storage, signals=SIGNALS) as relay,
        Peer.connected(relay.port, relay.token, replica_id=WRITER) as writer,
        Peer.connected(relay.port, relay.token) as reader,
    ):
        joined = await writer.join()
        await reader.join()
        await writer.put(joined.ns_no, record(WRITER, 1))
        await wait_for(storage.asked)
        os.kill(os.getpid(), number)
        bye = await reader.hear(Bye)
        storage.may_store.set()

        assert (await writer.acked(1)).seq == 1
        assert bye.code == "shutdown"
        assert 500 <= bye.retry_ms <= 5_000
        assert await writer.closed() == (1012, "shutdown")
        assert await reader.closed() == (1012, "shutdown")
        assert await status_of(relay) == 0
        assert storage.is_closed


async def test_a_second_signal_ends_it_at_once():
    storage = Gated()
    async with (
        live_relay(storage, signals=SIGNALS) as relay,
        Peer.connected(relay.port, relay.token, replica_id=WRITER) as writer,
    ):
        joined = await writer.join()
        await writer.put(joined.ns_no, record(WRITER, 1))
        await wait_for(storage.asked)
        os.kill(os.getpid(), signal.SIGTERM)
        await writer.hear(Bye)
        os.kill(os.getpid(), signal.SIGTERM)

        assert await status_of(relay) == EXIT_ABORTED
        assert await writer.closed() == (1006, "")
        assert storage.is_closed


async def test_an_end_that_takes_too_long_is_cut_short():
    storage = Gated()
    async with (
        live_relay(storage, timing=Timing(drain_s=0.05)) as relay,
        Peer.connected(relay.port, relay.token, replica_id=WRITER) as writer,
    ):
        joined = await writer.join()
        await writer.put(joined.ns_no, record(WRITER, 1))
        await wait_for(storage.asked)
        relay.stop.set()

        assert await status_of(relay) == EXIT_ABORTED
        assert await writer.closed() == (1006, "")


async def test_a_request_that_does_not_come_does_not_delay_the_end():
    async with live_relay() as relay:
        reader, writer = await asyncio.open_connection("127.0.0.1", relay.port)
        assert (await ask(relay.port, "GET /livez HTTP/1.1\r\n\r\n"))[0] == "200 OK"
        relay.stop.set()

        assert await status_of(relay) == 0
        assert await reader.read() == b""
        writer.close()


async def test_a_relay_that_is_cancelled_closes_its_log():
    storage = Gated()
    ready = asyncio.get_running_loop().create_future()
    task = asyncio.create_task(
        serve(
            storage,
            RelayLimits(),
            host="127.0.0.1",
            port=0,
            on_ready=ready.set_result,
            signals=(),
        )
    )
    await asyncio.wait_for(ready, PATIENCE_S)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    assert storage.is_closed


@pytest.mark.requirement("sync-auth")
async def test_a_token_that_is_revoked_ends_its_connections_and_no_others():
    async with live_relay() as relay:
        other_token = await add_token(relay.storage, token_id="bbbbbbbbbb")
        async with (
            Peer.connected(relay.port, relay.token) as revoked,
            Peer.connected(relay.port, other_token, replica_id=WRITER) as other,
        ):
            joined = await revoked.join()
            await other.join()
            await relay.storage.token_revoke(TOKEN_ID, 1)

            assert await revoked.closed() == (4401, "token-revoked")
            error = await revoked.hear(ErrorMessage)
            assert (error.code, error.action) == ("token-revoked", Action.CLOSE)
            await other.put(joined.ns_no, record(WRITER, 1))
            assert (await other.acked(1)).seq == 1


@pytest.mark.requirement("sync-auth")
async def test_a_token_that_expires_ends_its_connections():
    now_ms = 1_000
    async with live_relay(wall_ms=lambda: now_ms) as relay:
        token = await add_token(
            relay.storage, token_id="bbbbbbbbbb", not_after_ms=2_000
        )
        async with Peer.connected(relay.port, token) as peer:
            await peer.join()
            now_ms = 2_000

            assert await peer.closed() == (4401, "token-expired")


async def test_a_token_that_is_revoked_while_its_owner_comes_in_is_not_overlooked():
    class Late(MemoryStorage):
        """Tells of a revocation before a grant that it gave is used."""

        def __init__(self):
            super().__init__(rng=Random(1))
            self.was_asked = asyncio.Event()

        async def grant(self, token_id, secret, now_ms):
            grant = await super().grant(token_id, secret, now_ms)
            await self.token_revoke(token_id, now_ms)
            # With the second look what the first one found has been dealt with.
            for _ in range(2):
                self.was_asked.clear()
                await self.was_asked.wait()
            return grant

        async def changed_tokens(self, since):
            self.was_asked.set()
            return await super().changed_tokens(since)

    async with (
        live_relay(Late()) as relay,
        Peer.connected(relay.port, relay.token) as peer,
    ):
        assert await peer.closed() == (4401, "token-revoked")


@pytest.mark.requirement("sync-auth")
async def test_who_may_only_read_puts_nothing():
    async with live_relay() as relay:
        token = await add_token(relay.storage, ["read"], token_id="bbbbbbbbbb")
        async with (
            Peer.connected(relay.port, relay.token, replica_id=WRITER) as writer,
            Peer.connected(relay.port, token) as reader,
        ):
            joined = await writer.join()
            await writer.put(joined.ns_no, record(WRITER, 1))
            await reader.join()
            assert await reader.records_to(1) == [record(WRITER, 1)]
            await reader.put(joined.ns_no, record(reader.replica_id, 1))
            refused = await reader.hear(ErrorMessage)
            await writer.put(joined.ns_no, record(WRITER, 2))
            ack = await writer.acked(2)

    assert (refused.code, refused.action, refused.replica_seq) == (
        "forbidden",
        Action.GO_ON,
        1,
    )
    assert ack.seq == 2


@pytest.mark.requirement("sync-auth")
async def test_a_namespace_outside_of_the_pattern_is_forbidden_whether_it_exists():
    async with live_relay() as relay:
        token = await add_token(relay.storage, token_id="bbbbbbbbbb", pattern="mine-*")
        async with (
            Peer.connected(relay.port, relay.token, replica_id=WRITER) as owner,
            Peer.connected(relay.port, token) as stranger,
        ):
            await owner.join("theirs")
            await stranger.join("mine-1")
            refusals = []
            for name in ("theirs", "nobodys"):
                await stranger.say(Join(name, 0, bytes(16), 0, bytes(32), 0))
                error = await stranger.hear(ErrorMessage)
                refusals.append((error.namespace, error.code, error.action))

    assert refusals == [
        ("theirs", "forbidden", Action.STOP),
        ("nobodys", "forbidden", Action.STOP),
    ]


async def test_what_a_sweep_drops_is_counted():
    class Swept(MemoryStorage):
        def __init__(self):
            super().__init__(rng=Random(1))
            self.reports = [SweepReport(3, 30, True), SweepReport(2, 20, False)]

        async def sweep(self, now_ms, limit):
            return self.reports.pop(0) if self.reports else SweepReport(0, 0, False)

    storage = Swept()
    async with live_relay(storage) as relay:
        text = ""
        while "payloads_dropped_total 5" not in text:
            _, text = await ask(relay.port, "GET /metrics HTTP/1.1\r\n\r\n")

    assert storage.reports == []


async def test_the_metrics_tell_what_went_through():
    async with (
        live_relay() as relay,
        Peer.connected(relay.port, relay.token, replica_id=WRITER) as writer,
        Peer.connected(relay.port, relay.token) as reader,
    ):
        joined = await writer.join()
        await reader.join()
        await writer.put(joined.ns_no, record(WRITER, 1), record(WRITER, 2))
        await writer.acked(2)
        await reader.records_to(2)
        _, text = await ask(relay.port, "GET /metrics HTTP/1.1\r\n\r\n")

    for line in (
        "connections 2",
        "joins 2",
        "namespaces 1",
        'records_total{result="stored"} 2',
        'frames_total{direction="in"} 5',
        "commit_records_sum 2",
        "commit_seconds_count 1",
    ):
        assert f"crdtmem_relay_{line}\n" in text
    assert "team" not in text
    assert TOKEN_ID not in text


@pytest.mark.requirement("sync-blind-relay")
@pytest.mark.process
def test_a_relay_knows_nothing_of_documents():
    script = "import relay.cli, relay.server, sys; print('pycrdt' in sys.modules)"
    ended = subprocess.run(
        [sys.executable, "-c", script],
        check=True,
        capture_output=True,
        text=True,
        encoding="utf-8",
    )

    assert ended.stdout == "False\n"


@pytest.mark.requirement("sync-leaks")
async def test_connections_that_fail_leave_nothing_behind():
    async with live_relay() as relay:
        quiet = len(asyncio.all_tasks())
        for _ in range(15):
            await ask(relay.port, "GET /v1/sync HTTP/1.1\r\n\r\n")
            await ask(relay.port, "nonsense\r\n\r\n")
            async with Peer.connected(relay.port, relay.token) as peer:
                await peer.join()
                await peer.socket.send(b"garbage")
                await peer.closed()
            async with Peer.connected(relay.port, relay.token) as peer:
                peer.socket.transport.abort()
        text = ""
        while "crdtmem_relay_connections 0\n" not in text:
            _, text = await ask(relay.port, "GET /metrics HTTP/1.1\r\n\r\n")
        gc.collect()
        kept = [each for each in gc.get_objects() if type(each) is RelayConnection]

        assert len(asyncio.all_tasks()) <= quiet + 1
        assert len(kept) <= 1
    assert "crdtmem_relay_joins 0\n" in text


@pytest.mark.requirement("sync-secrets")
async def test_no_log_line_holds_a_secret(caplog):
    caplog.set_level(logging.DEBUG)
    async with live_relay() as relay:
        wrong = relay.token[:-5] + "AAAAA"
        await ask(
            relay.port,
            "GET /v1/sync?token=of-the-url HTTP/1.1\r\n"
            f"Sec-WebSocket-Protocol: crdtmem.v1\r\nAuthorization: Bearer {wrong}\r\n"
            "\r\n",
        )
        async with Peer.connected(relay.port, relay.token, replica_id=WRITER) as peer:
            joined = await peer.join("secret-project")
            secret = record(WRITER, 1, b"the payload", doc="secret doc")
            await peer.put(joined.ns_no, secret)
            await peer.acked(1)
            await peer.put(joined.ns_no, b"the payload")
            await peer.say(
                Presence(joined.ns_no, WRITER, bytes(16), 1, 1_000, b"the blob")
            )
            await peer.socket.send(b"the garbage")
            await peer.closed()
        relay.stop.set()
        await status_of(relay)

    ours = [each for each in caplog.records if each.name.startswith("relay")]
    lines = [JsonLines().format(each) for each in ours]
    assert {json.loads(line)["event"] for line in lines} >= {
        "listening",
        "closed",
        "ending",
        "stopped",
    }
    for word in (relay.token[-43:], wrong[-43:], "of-the-url", "the ", "secret"):
        assert word not in "\n".join(lines)
