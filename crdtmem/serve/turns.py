"""A request on its way through the server, and how its answer leaves it.

The ASGI side of the application: reads bodies, sends whole answers, closes WebSockets.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from crdtmem.limits import SERVE_BODY_BYTES, SERVE_BODY_S, SERVE_UNREAD_BYTES
from crdtmem.serve.answers import (
    Answer,
    Ask,
    HttpError,
    Principal,
    Site,
    json_answer,
)
from crdtmem.serve.guard import Head, Source, cors_headers, security_headers
from crdtmem.serve.session import csrf_of

if TYPE_CHECKING:
    from starlette.websockets import WebSocket

__all__ = [
    "Receive",
    "Scope",
    "Send",
    "Turn",
    "body_of",
    "close_socket",
    "deny_socket",
    "gone",
    "headers_of",
    "send_whole",
]

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
_NOBODY = Principal("", "", may_write=False)


class Turn:
    """A request on its way through: what is known of it so far."""

    def __init__(self, scope: Scope) -> None:
        self.is_websocket = scope["type"] == "websocket"
        client = scope.get("client") or ("", 0)
        raw_path: bytes = scope.get("raw_path", scope["path"].encode())
        self.raw_query: bytes = scope.get("query_string", b"")
        self.head = Head(
            scope.get("method", "GET"),
            scope["path"],
            list(scope["headers"]),
            str(client[0]),
            self.is_websocket,
            len(raw_path) + len(self.raw_query),
        )
        self.raw_path = raw_path.decode("latin-1")
        self.source: Source | None = None
        self.principal = _NOBODY
        self.cookie: str | None = None
        self.template = "-"

    def ask(
        self,
        site: Site,
        *,
        params: Mapping[str, str] | None = None,
        query: Mapping[str, str] | None = None,
        form: Mapping[str, str] | None = None,
        body: bytes = b"",
    ) -> Ask:
        """Return the request for whoever answers it."""
        return Ask(
            method=self.head.method,
            path=self.head.path,
            params=params or {},
            query=query or {},
            form=form or {},
            body=body,
            headers={
                k.decode("latin-1"): v.decode("latin-1") for k, v in self.head.headers
            },
            principal=self.principal,
            csrf="" if self.cookie is None else csrf_of(self.cookie),
            site=site,
        )


async def body_of(head: Head, receive: Receive) -> bytes:
    """Return the body, counted while it is read.

    Raises:
        HttpError: ``body-too-large``, or 408.

    """
    declared = head.one("content-length") or "0"
    length = int(declared[:12]) if declared.isdecimal() else 0
    # Who expects a word before the body is sent is told at once.
    is_sent = head.one("expect") is None
    if length > (SERVE_UNREAD_BYTES if is_sent else SERVE_BODY_BYTES):
        raise _too_large()
    body, size = bytearray(), 0
    try:
        async with asyncio.timeout(SERVE_BODY_S):
            while True:
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise HttpError(400, "bad-request", "the body is not complete")
                piece = message.get("body", b"")
                size += len(piece)
                if size <= SERVE_BODY_BYTES:
                    body += piece
                is_over = not message.get("more_body", False)
                if is_over and max(size, length) <= SERVE_BODY_BYTES:
                    return bytes(body)
                if is_over or size > SERVE_UNREAD_BYTES:
                    raise _too_large()
    except TimeoutError as exc:
        message_ = f"the body did not arrive within {SERVE_BODY_S:.0f} s"
        raise HttpError(408, "request-timeout", message_) from exc


def _too_large() -> HttpError:
    message = f"the body is larger than {SERVE_BODY_BYTES} bytes"
    return HttpError(413, "body-too-large", message)


async def gone(receive: Receive) -> None:
    """Return when the reader has left."""
    message: MutableMapping[str, Any] = {"type": ""}
    while message["type"] != "http.disconnect":
        message = await receive()


async def send_whole(turn: Turn, answer: Answer, send: Send) -> None:
    """Send an answer; of one to HEAD no body."""
    headers = headers_of(turn, answer.content_type, answer.headers)
    if answer.status not in (204, 304):
        headers.append((b"content-length", str(len(answer.body)).encode()))
    body = b"" if turn.head.method == "HEAD" else answer.body
    await send(
        {"type": "http.response.start", "status": answer.status, "headers": headers}
    )
    await send({"type": "http.response.body", "body": body})


def headers_of(
    turn: Turn, content_type: str, more: Mapping[str, str]
) -> list[tuple[bytes, bytes]]:
    """Return the headers of an answer, those that every answer carries included."""
    named = {"content-type": content_type}
    cors = {} if turn.source is None else cors_headers(turn.source)
    for name, value in (*security_headers(), *cors.items(), *more.items()):
        named[name.lower()] = value
    return [(k.encode(), v.encode("latin-1", "replace")) for k, v in named.items()]


async def deny_socket(
    socket: "WebSocket", turn: Turn, scope: Scope, error: HttpError
) -> None:
    """Refuse a WebSocket: a bad token by a close, which scripts can see."""
    if error.status == 401:
        await close_socket(socket, 4401, error.message)
        return
    if "websocket.http.response" not in scope.get("extensions", {}):
        await socket.close()
        return
    answer = json_answer(error.to_dict(), error.status)
    await socket.send(
        {
            "type": "websocket.http.response.start",
            "status": answer.status,
            "headers": headers_of(turn, answer.content_type, {}),
        }
    )
    await socket.send({"type": "websocket.http.response.body", "body": answer.body})


async def close_socket(socket: "WebSocket", code: int, reason: str) -> None:
    """Accept a WebSocket only to say why it is closed."""
    offered = socket.scope.get("subprotocols", [])
    await socket.accept("crdtmem.yjs" if "crdtmem.yjs" in offered else None)
    with suppress(RuntimeError):
        await socket.close(code, reason)
