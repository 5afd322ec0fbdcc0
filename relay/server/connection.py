"""One socket of a relay: HTTP first, a WebSocket then.

A thin layer over the connection class of websockets, at the places that class leaves
to subclasses: what asyncio calls (``connection_made``, ``data_received``,
``pause_writing`` …), and writing. Frames go to the transport directly: ``send`` waits
for its turn and serialises for each connection anew, which costs more than twice as
much per reader as all the rest of a fan-out (measured: 24 against 10 µs).
"""

import asyncio
from typing import Any, Protocol, cast

from websockets.asyncio.server import Server, ServerConnection
from websockets.datastructures import Headers
from websockets.http11 import Request, Response
from websockets.protocol import State
from websockets.server import ServerProtocol

from crdtmem.limits import CONTROL_BYTES, FRAME_BYTES, HEAD_BYTES, SEND_BUFFER_BYTES
from crdtmem.protocol.relaying import Grant
from relay.http import Answer, Gate, RequestHead
from relay.pacing import Progress

__all__ = ["Owner", "RelayConnection", "wire_frame"]

TOO_LONG = (
    b"HTTP/1.1 431 Request Header Fields Too Large\r\n"
    b"Connection: close\r\nContent-Length: 0\r\n\r\n"
)

# A send comes on top of what is left of the last one. The rest is for answers to pings,
# which the library writes by itself however long the buffer has become.
BUFFER_BYTES = SEND_BUFFER_BYTES + CONTROL_BYTES + FRAME_BYTES + 64 * 2**10

BINARY = 0x82


class Owner(Protocol):
    """What a connection tells the server that it belongs to."""

    gate: Gate
    sockets: set["RelayConnection"]

    def drained(self, connection: "RelayConnection") -> None:
        """Take note that the buffer has taken what was sent."""


class RelayConnection(ServerConnection):
    """A connection of the relay.

    Args:
        owner: The server.
        protocol: As the library makes it.
        server: As the library makes it.
        options: As the library makes them.

    Attributes:
        number: What the core calls it; 0 before it is a WebSocket.
        grant: Under which it became one; not there before.
        is_in_handshake: Whether it is not one yet.

    """

    def __init__(
        self,
        owner: Owner,
        protocol: ServerProtocol,
        server: Server,
        **options: Any,
    ) -> None:
        super().__init__(protocol, server, **options)
        self.number = 0
        self.grant: Grant
        self.is_in_handshake = False
        self._owner = owner
        self._peer = ""
        self._socket: asyncio.Transport
        self._is_admitted = False
        self._is_lost = False
        self._head_bytes = 0
        self._written_bytes = 0
        self._progress = Progress(self.loop.time())

    # What asyncio calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Let the request in, if it is not one too many."""
        super().connection_made(transport)
        self._owner.sockets.add(self)
        self._socket = cast(asyncio.Transport, transport)
        self._peer = str(transport.get_extra_info("peername")[0])
        self.is_in_handshake = self._owner.gate.begin(self._peer)
        if not self.is_in_handshake:
            self._socket.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """Give back all that was counted."""
        self._is_lost = True
        self.end_handshake()
        self._owner.sockets.discard(self)
        if self._is_admitted:
            self._owner.gate.left(self.grant)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Hand on what has come, within the bounds of a head and of the answers."""
        if self.request is None:
            self._head_bytes += len(data)
            if self._head_bytes > HEAD_BYTES:
                self._socket.write(TOO_LONG)
                self._socket.close()
                return
        super().data_received(data)
        if self._socket.get_write_buffer_size() > BUFFER_BYTES:
            self._socket.abort()

    def resume_writing(self) -> None:
        """Tell the owner that the buffer has taken what was sent."""
        super().resume_writing()
        self._owner.drained(self)

    # What the server calls.

    def end_handshake(self) -> None:
        """Count as a request no longer; idempotent."""
        if self.is_in_handshake:
            self.is_in_handshake = False
            self._owner.gate.end(self._peer)

    async def admit(self, request: Request) -> Response | None:
        """Have the gate decide; None where the connection may become a WebSocket."""
        headers: dict[str, list[str]] = {}
        for name, value in request.headers.raw_items():
            headers.setdefault(name.lower(), []).append(value)
        head = RequestHead(request.method, request.path, headers, self._peer)
        gate = self._owner.gate
        found = await gate.decide(head)
        if isinstance(found, Answer):
            return self._response(found)
        if self._is_lost:
            gate.left(found)
        else:
            self.grant = found
            self._is_admitted = True
        return None

    def _response(self, answer: Answer) -> Response:
        response = self.respond(answer.status, answer.body)
        headers: Headers = response.headers
        del headers["Content-Type"]
        headers["Content-Type"] = answer.content_type
        headers["Cache-Control"] = "no-store"
        for name, value in answer.headers:
            headers[name] = value
        return response

    def write(self, frame: bytes) -> None:
        """Write a WebSocket frame, as ``wire_frame`` builds it, without waiting."""
        # A peer that has begun to close reads nothing more.
        if self.state is State.OPEN:
            self._written_bytes += len(frame)
            self._socket.write(frame)

    def has_taken(self) -> bool:
        """Tell whether the buffer has taken what was written.

        If not, the owner's ``drained`` follows, should the connection live that long.
        """
        return not self.paused and self.state is State.OPEN

    def idle_s(self, now: float) -> float:
        """Return how long the peer has taken nothing of what waits for it."""
        buffered = self._socket.get_write_buffer_size()
        return self._progress.idle_s(self._written_bytes, buffered, now)

    def abort(self) -> None:
        """End the connection now, without a word."""
        self._socket.abort()

    async def end(self, code: int, reason: str) -> None:
        """Close with a code, and wait for the other side within the usual bound."""
        try:
            # The library's own bound begins only when the buffer is empty.
            async with asyncio.timeout(self.close_timeout):
                await self.close(code, reason)
        except TimeoutError:
            self.abort()


def wire_frame(data: bytes) -> bytes:
    """Return the WebSocket frame of a binary message (RFC 6455, section 5.2)."""
    length = len(data)
    if length < 126:
        return bytes((BINARY, length)) + data
    if length < 65_536:
        return bytes((BINARY, 126)) + length.to_bytes(2, "big") + data
    return bytes((BINARY, 127)) + length.to_bytes(8, "big") + data
