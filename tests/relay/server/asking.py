"""Requests to a relay, byte by byte."""

import asyncio
import contextlib

from tests.relay.live import PATIENCE_S

__all__ = ["UPGRADE", "ask", "upgrade_with"]

UPGRADE = (
    "GET /v1/sync HTTP/1.1\r\nHost: relay\r\nConnection: Upgrade\r\n"
    "Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
    "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
)


def upgrade_with(token):
    return (
        f"{UPGRADE}Sec-WebSocket-Protocol: crdtmem.v1\r\n"
        f"Authorization: Bearer {token}\r\n\r\n"
    ).encode()


async def ask(port, head):
    """Send a request's head, and return the status and the rest of the answer."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    answer = b""
    with contextlib.suppress(ConnectionResetError):
        writer.write(head.encode())
        answer = await asyncio.wait_for(reader.read(), PATIENCE_S)
    writer.close()
    first, _, rest = answer.decode().partition("\r\n")
    return first.partition(" ")[2], rest
