"""relay.server.connection: one socket, up to the WebSocket and no further"""

import asyncio
import contextlib
import socket
from random import Random

import pytest
from websockets.frames import Frame, Opcode

from crdtmem.limits import HANDSHAKES_ADDRESS_MAX, HEAD_BYTES
from relay.server import Timing
from relay.server.connection import wire_frame
from relay.storage.memory import MemoryStorage
from tests.relay.live import PATIENCE_S, Peer, live_relay, record
from tests.relay.server.asking import UPGRADE, ask, upgrade_with


async def test_a_request_gets_a_whole_answer():
    async with live_relay() as relay:
        status, rest = await ask(relay.port, "GET /livez HTTP/1.1\r\n\r\n")

    head, _, body = rest.partition("\r\n\r\n")
    headers = dict(line.split(": ") for line in head.splitlines())
    assert (status, body) == ("200 OK", "ok\n")
    assert headers.pop("Date")
    assert headers == {
        "Connection": "close",
        "Content-Length": "3",
        "Content-Type": "text/plain; charset=utf-8",
        "Cache-Control": "no-store",
    }


@pytest.mark.parametrize(
    ("head", "status", "word"),
    [
        ("GET /nothing HTTP/1.1\r\n\r\n", "404 Not Found", "not found"),
        (UPGRADE + "\r\n", "400 Bad Request", "crdtmem-versions: crdtmem.v1"),
        (
            UPGRADE + "Sec-WebSocket-Protocol: crdtmem.v1\r\n\r\n",
            "401 Unauthorized",
            "WWW-Authenticate: Bearer",
        ),
        (UPGRADE + "Origin: https://x.example\r\n\r\n", "403 Forbidden", "origin-f"),
    ],
)
async def test_who_may_not_upgrade_is_told_why(head, status, word):
    async with live_relay() as relay:
        found, rest = await ask(relay.port, head)

    assert found == status
    assert word in rest


async def test_a_request_with_a_token_that_is_no_upgrade_gets_no_connection():
    async with live_relay() as relay:
        head = (
            "GET /v1/sync HTTP/1.1\r\nSec-WebSocket-Protocol: crdtmem.v1\r\n"
            f"Authorization: Bearer {relay.token}\r\n\r\n"
        )
        status, _ = await ask(relay.port, head)

    assert status == "426 Upgrade Required"


async def test_a_head_that_is_too_long_is_not_read_to_its_end():
    async with live_relay() as relay:
        filling = "".join(f"x-{n}: {'y' * 90}\r\n" for n in range(HEAD_BYTES // 90))
        status, _ = await ask(relay.port, f"GET /livez HTTP/1.1\r\n{filling}\r\n")

    assert status in ("431 Request Header Fields Too Large", "")


async def test_a_head_that_does_not_come_is_not_waited_for():
    async with live_relay(timing=Timing(handshake_s=0.05)) as relay:
        status, rest = await ask(relay.port, "GET /livez HTTP/1.1\r\n")

    assert (status, rest) == ("", "")


async def test_an_address_opens_so_many_connections_without_a_token():
    async with live_relay() as relay, contextlib.AsyncExitStack() as opened:

        async def open_one():
            reader, writer = await asyncio.open_connection("127.0.0.1", relay.port)
            opened.callback(writer.close)
            return reader, writer

        waiting = [await open_one() for _ in range(HANDSHAKES_ADDRESS_MAX)]
        one_too_many = await ask(relay.port, "GET /livez HTTP/1.1\r\n\r\n")
        reader, writer = waiting.pop()
        writer.write(b"GET /livez HTTP/1.1\r\n\r\n")
        assert await reader.read()
        writer.close()
        after = ("", "")
        # The relay has to notice that it was closed.
        while not after[0]:
            after = await ask(relay.port, "GET /livez HTTP/1.1\r\n\r\n")

    assert one_too_many == ("", "")
    assert after[0] == "200 OK"


async def test_an_upgraded_connection_is_no_handshake_any_more():
    async with live_relay() as relay, contextlib.AsyncExitStack() as opened:
        for number in range(HANDSHAKES_ADDRESS_MAX + 1):
            peer = Peer.connected(
                relay.port, relay.token, replica_id=number.to_bytes(16)
            )
            await (await opened.enter_async_context(peer)).hello()


async def test_who_leaves_while_its_token_is_looked_up_holds_no_place():
    class Slow(MemoryStorage):
        def __init__(self):
            super().__init__(rng=Random(1))
            self.asked = asyncio.Event()
            self.may_answer = asyncio.Event()
            self.answered = asyncio.Event()

        async def grant(self, token_id, secret, now_ms):
            self.asked.set()
            await self.may_answer.wait()
            self.answered.set()
            return await super().grant(token_id, secret, now_ms)

    storage = Slow()
    async with live_relay(storage) as relay:
        reader, writer = await asyncio.open_connection("127.0.0.1", relay.port)
        writer.write(upgrade_with(relay.token))
        await asyncio.wait_for(storage.asked.wait(), PATIENCE_S)
        writer.transport.abort()
        # Something else that the relay hears of after that.
        assert (await ask(relay.port, "GET /livez HTTP/1.1\r\n\r\n"))[0] == "200 OK"
        storage.may_answer.set()
        await asyncio.wait_for(storage.answered.wait(), PATIENCE_S)
        async with Peer.connected(relay.port, relay.token) as peer:
            await peer.hello()
        _, metrics = await ask(relay.port, "GET /metrics HTTP/1.1\r\n\r\n")

    assert await reader.read() == b""
    assert "crdtmem_relay_connections" in metrics


async def test_answers_to_pings_that_nobody_reads_do_not_pile_up():
    async with live_relay() as relay:
        plug = socket.socket()
        plug.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        plug.connect(("127.0.0.1", relay.port))
        reader, writer = await asyncio.open_connection(sock=plug, limit=512)
        writer.write(upgrade_with(relay.token))
        await reader.readuntil(b"\r\n\r\n")
        assert isinstance(writer.transport, asyncio.Transport)
        writer.transport.pause_reading()
        pings = Frame(Opcode.PING, bytes(125)).serialize(mask=True) * 1_000
        with pytest.raises(ConnectionError):
            while True:
                writer.write(pings)
                await writer.drain()
        async with Peer.connected(relay.port, relay.token) as other:
            joined = await other.join()
            await other.put(joined.ns_no, record(other.replica_id, 1))
            assert (await other.acked(1)).seq == 1
        writer.close()


@pytest.mark.parametrize("length", [0, 125, 126, 65_535, 65_536])
def test_a_frame_is_built_as_the_library_builds_it(length):
    data = bytes(length)

    assert wire_frame(data) == Frame(Opcode.BINARY, data).serialize(mask=False)
