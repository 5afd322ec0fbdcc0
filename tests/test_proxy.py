"""tests.proxy: what passes is what was sent, and every fault shows"""

import asyncio
import contextlib

import pytest

from tests.proxy import ChaosProxy

PATIENCE_S = 20.0
WORDS = bytes(range(256)) * 300


class Target:
    """A server that keeps what it hears, says something back, and counts."""

    def __init__(self):
        self.heard = bytearray()
        self.answer = b""
        self.ended: asyncio.Queue[str] = asyncio.Queue()
        self.port = 0

    async def serve(self, reader, writer):
        how = "eof"
        try:
            while data := await reader.read(65_536):
                self.heard += data
                writer.write(self.answer)
        except ConnectionResetError:
            how = "reset"
        writer.close()
        await self.ended.put(how)


@contextlib.asynccontextmanager
async def through_proxy():
    target = Target()
    server = await asyncio.start_server(target.serve, "127.0.0.1", 0)
    async with server, ChaosProxy(server.sockets[0].getsockname()[1]) as proxy:
        yield target, proxy


async def say(proxy, words=WORDS):
    """Send words and the end of them; return what comes back, up to its end."""
    reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
    try:
        writer.write(words)
        writer.write_eof()
        return await asyncio.wait_for(reader.read(), PATIENCE_S)
    finally:
        writer.close()


async def end_of(target):
    return await asyncio.wait_for(target.ended.get(), PATIENCE_S)


@pytest.mark.parametrize(
    "trouble",
    [
        lambda proxy: None,
        lambda proxy: proxy.slice(7, "up"),
        lambda proxy: proxy.slice(1_000),
        lambda proxy: proxy.limit_rate(2_000_000, "up"),
        lambda proxy: proxy.cut_after(len(WORDS) + 1, "up"),
    ],
    ids=["none", "slices up", "slices", "rate", "cut later"],
)
async def test_what_goes_in_comes_out(trouble):
    async with through_proxy() as (target, proxy):
        trouble(proxy)
        target.answer = b"yes"
        answer = await say(proxy)

        assert await end_of(target) == "eof"
        assert bytes(target.heard) == WORDS
        assert {answer[i : i + 3] for i in range(0, len(answer), 3)} == {b"yes"}


async def test_what_is_held_passes_when_it_is_released():
    async with through_proxy() as (target, proxy):
        proxy.hold("up")
        saying = asyncio.create_task(say(proxy))
        # Through another way of the same proxy nothing is held.
        reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
        writer.write(b"x")
        await writer.drain()

        assert bytes(target.heard) == b""
        proxy.release("up")
        assert await saying == b""
        writer.close()
        await end_of(target)
        await end_of(target)
        assert len(target.heard) == len(WORDS) + 1
        assert await reader.read() == b""


async def test_a_black_hole_takes_everything_and_passes_nothing():
    async with through_proxy() as (target, proxy):
        proxy.blackhole("up")

        assert await say(proxy) == b""
        assert await end_of(target) == "eof"
        assert bytes(target.heard) == b""


async def test_a_cut_comes_after_that_many_bytes():
    async with through_proxy() as (target, proxy):
        proxy.cut_after(1_000, "up")
        with contextlib.suppress(ConnectionResetError):
            assert await say(proxy) == b""

        assert await end_of(target) == "reset"
        assert bytes(target.heard) == WORDS[:1_000]


async def test_a_reset_reaches_both_sides():
    async with through_proxy() as (target, proxy):
        target.answer = b"here"
        reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
        writer.write(b"hello")
        assert await reader.readexactly(4) == b"here"
        proxy.reset()

        assert await end_of(target) == "reset"
        with pytest.raises(ConnectionResetError):
            await reader.readexactly(1)
        writer.close()


@pytest.mark.parametrize("side", ["client", "target"])
async def test_one_side_can_be_told_that_the_other_has_ended(side):
    async with through_proxy() as (target, proxy):
        target.answer = b"here"
        reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
        writer.write(b"hello")
        assert await reader.readexactly(4) == b"here"
        proxy.half_close(side)

        assert await asyncio.wait_for(reader.read(), PATIENCE_S) == b""
        writer.close()
        assert await end_of(target) == "eof"


async def test_a_proxy_that_refuses_lets_nobody_in():
    async with through_proxy() as (target, proxy):
        proxy.refuse()
        with contextlib.suppress(OSError):
            assert await say(proxy) == b""

        assert bytes(target.heard) == b""
        assert target.ended.empty()


async def test_a_healed_proxy_passes_everything_again():
    async with through_proxy() as (target, proxy):
        target.answer = b"here"
        reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
        writer.write(b"hello")
        assert await reader.readexactly(4) == b"here"
        proxy.blackhole("up")
        proxy.hold("down")
        writer.write(b"lost")
        proxy.refuse()
        proxy.heal()

        with pytest.raises(ConnectionResetError):
            await reader.readexactly(1)
        writer.close()
        assert await end_of(target) == "reset"
        assert b"here" in await say(proxy)
        assert bytes(target.heard) == b"hello" + WORDS


async def test_a_target_that_is_not_there_ends_the_connection():
    async with through_proxy() as (target, proxy):
        pass
    async with ChaosProxy(proxy.port) as proxy:
        with contextlib.suppress(OSError):
            assert await say(proxy) == b""

    assert bytes(target.heard) == b""


async def test_leaving_ends_what_is_still_open():
    async with through_proxy() as (target, proxy):
        target.answer = b"here"
        reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
        writer.write(b"hello")
        assert await reader.readexactly(4) == b"here"
        proxy.hold()
        writer.write(b"hello")
        await proxy.__aexit__()

        with contextlib.suppress(ConnectionResetError):
            assert await reader.read() == b""
        await end_of(target)
        writer.close()


async def test_a_slow_way_is_felt_by_the_sender():
    """Of some megabytes little more than the kernel's buffers is taken at once."""
    async with through_proxy() as (target, proxy):
        proxy.limit_rate(1_000, "up")
        reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
        writer.write(bytes(64 * 2**20))
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(writer.drain(), 0.3)

        assert writer.transport.get_write_buffer_size() > 2**20
        assert len(target.heard) < 2_000
        writer.transport.abort()
        assert await reader.read() == b""
