"""A running relay, and a client that speaks its wire by hand, over real sockets."""

import asyncio
import contextlib
import hashlib
import ssl
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any, Self, TypeVar

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed
from websockets.typing import Subprotocol

from crdtmem.protocol.messages import (
    Ack,
    Hello,
    Join,
    Joined,
    Message,
    Put,
    Records,
    Welcome,
    decode_frame,
    encode_frame,
)
from crdtmem.protocol.records import Header, RecordKind, build_record, doc_tag
from crdtmem.protocol.serving import RelayLimits
from crdtmem.protocol.tokens import format_token
from relay.server import Timing, serve
from relay.storage import Storage, TokenRow
from relay.storage.memory import MemoryStorage

__all__ = ["PATIENCE_S", "Live", "Peer", "add_token", "live_relay", "record"]

PATIENCE_S = 20.0
"""Longest wait for anything at all; only a bug waits so long."""

QUICK = Timing(drain_s=5.0, token_poll_s=0.02, sweep_s=0.02, handshake_s=5.0)

M = TypeVar("M", bound=Message)


def record(
    replica_id: bytes,
    number: int,
    payload: bytes = b"payload",
    *,
    kind: RecordKind = RecordKind.UPDATE,
    base: int = 0,
    doc: str = "notes",
) -> bytes:
    """Return a record as a store would seal it, but for what is in its payload."""
    header = Header(kind, 0, doc_tag(1, doc), replica_id, number, base, 0)
    return build_record(header, payload)


async def add_token(
    storage: Storage,
    scopes: Sequence[str] = ("write", "presence"),
    *,
    token_id: str = "abcdefghij",
    pattern: str = "*",
    **more: Any,
) -> str:
    """Add a token to a storage and return it as its owner would write it."""
    secret = hashlib.sha256(token_id.encode()).digest()
    row = TokenRow(
        token_id,
        pattern,
        tuple(sorted(scopes)),
        "",
        more.get("not_after_ms"),
        more.get("max_replicas"),
        0,
        None,
    )
    await storage.token_create(row, hashlib.sha256(secret).digest())
    return format_token(token_id, secret)


@dataclass
class Live:
    """A relay that runs in this process.

    Attributes:
        port: Where it listens.
        storage: Its log.
        stop: Set, it ends in order.
        task: Its exit status, at last.
        token: One with the scopes ``write`` and ``presence`` for every namespace.

    """

    port: int
    storage: Storage
    stop: asyncio.Event
    task: "asyncio.Task[int]"
    token: str


@contextlib.asynccontextmanager
async def live_relay(
    storage: Storage | None = None,
    limits: RelayLimits | None = None,
    *,
    token_id: str = "abcdefghij",
    **options: Any,
) -> AsyncIterator[Live]:
    """Run a relay over a storage, in memory where none is passed."""
    storage = storage or MemoryStorage(rng=Random(1))
    ready: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    stop = asyncio.Event()
    usual: dict[str, Any] = {
        "host": "127.0.0.1",
        "port": 0,
        "signals": (),
        "timing": QUICK,
        "on_ready": ready.set_result,
        "stop": stop,
    }
    task = asyncio.create_task(
        serve(storage, limits or RelayLimits(), **(usual | options))
    )
    done, _ = await asyncio.wait([task, ready], return_when=asyncio.FIRST_COMPLETED)
    port = done.pop().result()
    token = await add_token(storage, token_id=token_id)
    try:
        yield Live(port, storage, stop, task, token)
    finally:
        stop.set()
        await asyncio.wait_for(task, PATIENCE_S)


@dataclass
class Peer:
    """A client by hand: what it hears is kept until it is asked for."""

    socket: ClientConnection
    replica_id: bytes
    incarnation: bytes = bytes(16)
    heard: list[Message] = field(default_factory=list)

    @classmethod
    @contextlib.asynccontextmanager
    async def connected(
        cls,
        port: int,
        token: str,
        *,
        replica_id: bytes = b"r" * 16,
        tls: ssl.SSLContext | None = None,
    ) -> AsyncIterator[Self]:
        """Open a WebSocket, say nothing, and close it at the end."""
        scheme = "ws" if tls is None else "wss"
        async with connect(
            f"{scheme}://localhost:{port}/v1/sync"
            if tls
            else f"ws://127.0.0.1:{port}/v1/sync",
            subprotocols=[Subprotocol("crdtmem.v1")],
            additional_headers={"Authorization": f"Bearer {token}"},
            compression=None,
            ping_interval=None,
            max_size=None,
            max_queue=None,
            close_timeout=1,
            ssl=tls,
            open_timeout=PATIENCE_S,
        ) as socket:
            yield cls(socket, replica_id)

    async def say(self, *messages: Message) -> None:
        """Send messages in one frame."""
        await self.socket.send(encode_frame(messages))

    async def hear(
        self, kind: type[M], fits: Callable[[M], bool] = lambda message: True
    ) -> M:
        """Wait for a message of this class; what came before it is kept."""
        async with asyncio.timeout(PATIENCE_S):
            seen = 0
            while True:
                for at in range(seen, len(self.heard)):
                    message = self.heard[at]
                    if isinstance(message, kind) and fits(message):
                        del self.heard[at]
                        return message
                seen = len(self.heard)
                frame = await self.socket.recv(decode=False)
                self.heard += decode_frame(frame)

    async def hello(self) -> Welcome:
        """Greet, and wait for the welcome."""
        await self.say(Hello(0, self.replica_id, self.incarnation, "test"))
        return await self.hear(Welcome)

    async def join(self, namespace: str = "team", *, flags: int = 0) -> Joined:
        """Greet, and join a namespace from its beginning."""
        await self.hello()
        await self.say(Join(namespace, flags, bytes(16), 0, bytes(32), 0))
        return await self.hear(Joined)

    async def put(self, ns_no: int, *records: bytes) -> None:
        """Send records in one put."""
        await self.say(Put(ns_no, records))

    async def acked(self, replica_seq: int) -> Ack:
        """Wait until everything up to a number is acknowledged."""
        return await self.hear(Ack, lambda ack: ack.replica_seq >= replica_seq)

    async def records_to(self, seq: int) -> list[bytes]:
        """Collect the records up to a seq, all of them sent in full."""
        found: list[bytes] = []
        last = 0
        while last < seq:
            message = await self.hear(Records)
            found += [item.record for item in message.items]
            last = message.first_seq + len(message.items) - 1
        return found

    async def closed(self) -> tuple[int, str]:
        """Wait for the end, and return its code and reason."""
        await asyncio.wait_for(asyncio.create_task(self._hear_all()), PATIENCE_S)
        return self.socket.close_code or 0, self.socket.close_reason or ""

    async def _hear_all(self) -> None:
        with contextlib.suppress(ConnectionClosed):
            while True:
                self.heard += decode_frame(await self.socket.recv(decode=False))
