"""A TCP proxy that can be made to behave badly, between real sockets.

    async with ChaosProxy(relay_port) as proxy:
        connection = await connect(proxy.port)
        proxy.limit_rate(1_000, "down")

Each setting is for one way, ``"up"`` to the target or ``"down"`` to the client, or for
both where none is named. It holds for the connections that are there and for those to
come, until it is set anew. What a slow way has not passed on is not read either, apart
from a few kilobytes, so that the sender feels it.
"""

import asyncio
import math
import socket
import struct
from dataclasses import dataclass, field
from typing import Literal, Self

__all__ = ["ChaosProxy", "Way"]

Way = Literal["up", "down"]
WAYS: tuple[Way, Way] = ("up", "down")

BUFFER_BYTES = 8_192
WINDOW_BYTES = 32_768
# As on a real network: segments of the loopback device are longer than the window, and
# a sender waits long before it splits one.
SEGMENT_BYTES = 1_400
STEPS_PER_S = 20
"""How often a limited way passes something on."""


@dataclass
class Setting:
    """How one way behaves."""

    slice_bytes: int = BUFFER_BYTES
    bytes_s: float = math.inf
    bytes_left: float = math.inf
    is_swallowing: bool = False
    is_open: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self.is_open.set()

    @property
    def piece_bytes(self) -> int:
        """Most that is passed on at a time."""
        return max(1, int(min(self.slice_bytes, self.bytes_s / STEPS_PER_S)))


@dataclass(eq=False)
class Pair:
    """One connection through the proxy: the writers to its two ends."""

    client: asyncio.StreamWriter
    target: asyncio.StreamWriter

    def end(self, *, by_reset: bool) -> None:
        """Close both sockets now."""
        for writer in (self.client, self.target):
            if by_reset and not writer.transport.is_closing():
                linger = struct.pack("ii", 1, 0)
                plug = writer.get_extra_info("socket")
                plug.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            writer.transport.abort()


class ChaosProxy:
    """See the module. Listens on ``port`` of the loopback address while it is open."""

    def __init__(self, target_port: int) -> None:
        self.port = 0
        self._target_port = target_port
        self._settings: dict[Way, Setting] = {}
        self._pairs: set[Pair] = set()
        self._serving: set[asyncio.Task[None]] = set()
        self._refuses = False
        self._server: asyncio.Server

    async def __aenter__(self) -> Self:
        self._settings = {way: Setting() for way in WAYS}
        self._server = await asyncio.start_server(
            self._accept, "127.0.0.1", 0, limit=BUFFER_BYTES
        )
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        self.refuse()
        self.release()
        for pair in list(self._pairs):
            pair.end(by_reset=False)
        await asyncio.gather(*self._serving)
        await self._server.wait_closed()

    def hold(self, *ways: Way) -> None:
        """Let nothing pass, and lose nothing."""
        for setting in self._of(ways):
            setting.is_open.clear()

    def release(self, *ways: Way) -> None:
        """Let pass what was held, and what follows."""
        for setting in self._of(ways):
            setting.is_open.set()

    def blackhole(self, *ways: Way) -> None:
        """Read everything and pass nothing on, until the connection has ended."""
        for setting in self._of(ways):
            setting.is_swallowing = True

    def slice(self, size_bytes: int, *ways: Way) -> None:
        """Pass on pieces of this size, each in a packet of its own."""
        for setting in self._of(ways):
            setting.slice_bytes = size_bytes

    def limit_rate(self, bytes_s: float, *ways: Way) -> None:
        """Pass on this much a second."""
        for setting in self._of(ways):
            setting.bytes_s = bytes_s

    def cut_after(self, count: int, *ways: Way) -> None:
        """Pass on this many bytes more, then end the connection they were on."""
        for setting in self._of(ways):
            setting.bytes_left = count

    def reset(self) -> None:
        """End all connections with an RST to both sides."""
        for pair in self._pairs:
            pair.end(by_reset=True)

    def half_close(self, side: Literal["client", "target"]) -> None:
        """Tell one side of every connection that the other will send no more."""
        for pair in self._pairs:
            (pair.client if side == "client" else pair.target).write_eof()

    def refuse(self) -> None:
        """End every new connection at once."""
        self._refuses = True

    def heal(self) -> None:
        """End all connections; those to come meet no setting but the first ones."""
        self._refuses = False
        self.release()
        self.reset()
        self._settings = {way: Setting() for way in WAYS}

    def _of(self, ways: tuple[Way, ...]) -> list[Setting]:
        return [self._settings[way] for way in ways or WAYS]

    def _accept(
        self, reader: asyncio.StreamReader, client: asyncio.StreamWriter
    ) -> None:
        if self._refuses:
            client.transport.abort()
            return
        serving = asyncio.create_task(self._serve(reader, client))
        self._serving.add(serving)
        serving.add_done_callback(self._serving.discard)

    async def _serve(
        self, reader: asyncio.StreamReader, client: asyncio.StreamWriter
    ) -> None:
        plug = socket.socket()
        # What the kernel would take from the target hides that nobody reads.
        plug.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, WINDOW_BYTES)
        plug.setsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG, SEGMENT_BYTES)
        plug.setblocking(False)
        loop = asyncio.get_running_loop()
        try:
            await loop.sock_connect(plug, ("127.0.0.1", self._target_port))
        except ConnectionRefusedError:
            plug.close()
            client.transport.abort()
            return
        back, target = await asyncio.open_connection(sock=plug, limit=BUFFER_BYTES)
        pair = Pair(client, target)
        self._pairs.add(pair)
        try:
            async with asyncio.TaskGroup() as ways:
                ways.create_task(self._pass(self._settings["up"], reader, target))
                ways.create_task(self._pass(self._settings["down"], back, client))
        except* OSError:
            pair.end(by_reset=True)
        finally:
            pair.end(by_reset=False)
            self._pairs.discard(pair)

    async def _pass(
        self,
        setting: Setting,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        while data := await reader.read(setting.piece_bytes):
            # What was read before a setting changed is passed on under the new one.
            while data and not setting.is_swallowing:
                await setting.is_open.wait()
                size = int(min(setting.piece_bytes, setting.bytes_left))
                piece, data = data[:size], data[size:]
                setting.bytes_left -= len(piece)
                writer.write(piece)
                await writer.drain()
                if not setting.bytes_left:
                    raise ConnectionResetError("cut")
                if setting.bytes_s < math.inf:
                    await _pause(len(piece) / setting.bytes_s)
        writer.write_eof()


async def _pause(span_s: float) -> None:
    loop = asyncio.get_running_loop()
    over = loop.create_future()
    loop.call_later(span_s, over.set_result, None)
    await over
