"""A connection to a relay over a WebSocket: bytes out, frames in, an end with a code.

The one place that knows websockets. Its exceptions, those of sockets and of TLS become
one of two errors here: RelayUnreachableError, after which another attempt makes sense,
and RelayRefusedError, after which it does not until something is changed by hand.
"""

import socket
import ssl
from collections.abc import Sequence
from ipaddress import ip_address
from types import TracebackType
from typing import NamedTuple, Self
from urllib.parse import urlsplit

from websockets.asyncio.client import ClientConnection, connect as connect_socket
from websockets.exceptions import (
    ConnectionClosed,
    InvalidHandshake,
    InvalidStatus,
    NegotiationError,
)
from websockets.typing import Subprotocol

from crdtmem.errors import InsecureUrlError, RelayRefusedError, RelayUnreachableError
from crdtmem.limits import CONNECT_S, FRAME_BYTES, SYNC_CLOSE_S
from crdtmem.protocol.closes import Close

__all__ = ["Lost", "RelayConnection", "check_url", "endpoint_of", "open_connection"]

PATH = "/v1/sync"
SUBPROTOCOL = Subprotocol("crdtmem.v1")
VERSIONS_HEADER = "crdtmem-versions"

# An answer that will be the same until a person changes something.
_PERMANENT_STATUS = {
    400: "bad-request",
    401: "unauthorized",
    403: "forbidden",
    404: "not-found",
    426: "upgrade-required",
}
_NO_CLOSE_CODE = 1006
_TEXT_MESSAGE = Close(4400, "protocol-error")


class Lost(NamedTuple):
    """How a connection ended."""

    code: int
    reason: str


def check_url(url: str, *, allow_insecure: bool = False) -> None:
    """Refuse to send a token where anybody on the way can read it.

    Raises:
        InsecureUrlError: If the URL is ``ws://`` and leaves this machine.

    """
    parts = urlsplit(url)
    if parts.scheme == "ws" and not (
        allow_insecure or _is_loopback(parts.hostname or "")
    ):
        raise InsecureUrlError(url=url)


def endpoint_of(url: str) -> str:
    """Return where a relay takes connections: its URL and the fixed path behind it."""
    return url if url.endswith(PATH) else f"{url.rstrip('/')}{PATH}"


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


class RelayConnection:
    """An open connection; a context manager that closes it.

    One task sends and one receives; neither raises when the connection ends.
    """

    def __init__(self, socket: ClientConnection) -> None:
        self._socket = socket

    async def send(self, frames: Sequence[bytes]) -> None:
        """Send frames, waiting while the peer does not take them."""
        try:
            for frame in frames:
                await self._socket.send(frame)
        except ConnectionClosed:
            # Told by receive, once.
            return

    async def receive(self) -> bytes | Lost:
        """Return the next frame, or how the connection ended."""
        try:
            found = await self._socket.recv()
        except ConnectionClosed as exc:
            close = exc.rcvd or exc.sent
            if close is None:
                return Lost(_NO_CLOSE_CODE, "")
            return Lost(close.code, close.reason)
        if isinstance(found, str):
            return Lost(*await self._close_for_text())
        return found

    async def close(self, close: Close) -> None:
        """Close with a code; waits for the peer's answer for a moment."""
        await self._socket.close(close.code, close.reason)

    def abort(self) -> None:
        """Drop the connection without a word: for a peer that is gone."""
        self._socket.transport.abort()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._socket.close()

    async def _close_for_text(self) -> tuple[int, str]:
        await self.close(_TEXT_MESSAGE)
        return _TEXT_MESSAGE.code, _TEXT_MESSAGE.reason


async def open_connection(
    url: str,
    token: str,
    *,
    allow_insecure: bool = False,
    timeout_s: float = CONNECT_S,
) -> RelayConnection:
    """Connect to a relay; the token is checked by it before this returns.

    Args:
        url: ``wss://HOST[:PORT]``, perhaps with a path in front of the fixed one.
        token: Goes into a header, and nowhere else.
        allow_insecure: Send it over ``ws://`` to other machines, too.
        timeout_s: Longest time for all of it.

    Raises:
        InsecureUrlError: See check_url; nothing was sent.
        RelayRefusedError: If another attempt would end alike.
        RelayUnreachableError: If it might not.

    """
    check_url(url, allow_insecure=allow_insecure)
    try:
        found = await connect_socket(
            endpoint_of(url),
            subprotocols=[SUBPROTOCOL],
            additional_headers={"Authorization": f"Bearer {token}"},
            user_agent_header="crdtmem",
            compression=None,
            # A relay on this machine is not behind the proxy of the network.
            proxy=True if url.startswith("wss:") else None,
            open_timeout=timeout_s,
            close_timeout=SYNC_CLOSE_S,
            ping_interval=None,
            max_size=FRAME_BYTES,
            # The engine takes one frame at a time: what it has not taken waits at the
            # relay and not in memory.
            max_queue=1,
        )
    except (OSError, InvalidHandshake) as exc:
        raise _refusal(url, exc) from exc
    if found.subprotocol != SUBPROTOCOL:
        await found.close()
        raise RelayRefusedError(
            url=url,
            cause="version-unsupported",
            reason=f"it does not speak {SUBPROTOCOL}",
        )
    return RelayConnection(found)


def _refusal(
    url: str, exc: OSError | InvalidHandshake
) -> RelayRefusedError | RelayUnreachableError:
    """Say once what an exception of the connection means."""
    match exc:
        case InvalidStatus():
            return _refused_status(url, exc)
        case NegotiationError():
            reason = f"it does not speak {SUBPROTOCOL}"
            return RelayRefusedError(
                url=url, cause="version-unsupported", reason=reason
            )
        case ssl.SSLCertVerificationError():
            reason = f"its certificate is not trusted ({exc.verify_message})"
            return RelayRefusedError(url=url, cause="tls-untrusted", reason=reason)
        case ssl.SSLError():
            cause, reason = "tls", f"TLS failed ({exc.reason})"
        case socket.gaierror():
            cause, reason = "dns", "its name is not known"
        case TimeoutError():
            cause, reason = "timeout", "it did not answer in time"
        case ConnectionRefusedError():
            cause, reason = "connection-refused", "nothing listens there"
        case OSError():
            cause, reason = "connection", exc.strerror or "the connection failed"
        case _:
            cause, reason = "handshake", "what answers is no relay"
    return RelayUnreachableError(url=url, cause=cause, reason=reason)


def _refused_status(
    url: str, exc: InvalidStatus
) -> RelayRefusedError | RelayUnreachableError:
    status, headers = exc.response.status_code, exc.response.headers
    if status == 400 and VERSIONS_HEADER in headers:
        return RelayRefusedError(
            url=url,
            cause="version-unsupported",
            reason=f"it speaks {headers[VERSIONS_HEADER]!r:.80}, not {SUBPROTOCOL}",
        )
    if status in _PERMANENT_STATUS:
        cause = _PERMANENT_STATUS[status]
        reason = f"HTTP status {status}, {cause.replace('-', ' ')}"
        return RelayRefusedError(url=url, cause=cause, reason=reason)
    return RelayUnreachableError(
        url=url,
        cause=f"http-{status}",
        reason=f"it answers with HTTP status {status}",
        retry_s=_seconds(headers.get("Retry-After", "")),
    )


def _seconds(text: str) -> float:
    # The header may also hold a date; then the usual wait applies.
    return min(float(text), 3_600.0) if text.isdecimal() and len(text) < 10 else 0.0
