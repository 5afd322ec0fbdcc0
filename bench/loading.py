"""Clients by hand, in a process of their own: writers without a pause, or one in step.

Reads one task as JSON from stdin, says ``ready``, waits for a line, and prints what it
found as JSON. Nothing is applied: a client counts what is acknowledged.
"""

import asyncio
import contextlib
import json
import sys
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

from websockets.asyncio.client import ClientConnection, connect
from websockets.typing import Subprotocol

from crdtmem.protocol.messages import (
    Ack,
    ErrorMessage,
    Hello,
    Join,
    Joined,
    Message,
    Put,
    Records,
    decode_frame,
    encode_frame,
)
from crdtmem.protocol.records import Header, RecordKind, build_record, doc_tag

__all__ = ["main"]

PAYLOAD = b"x" * 57
PER_PUT = 64
WINDOW = 256


class RefusedError(Exception):
    """The relay refused something: what was measured would mean nothing."""


class Client:
    """A connection that has joined one namespace.

    Args:
        socket: Open.
        replica: Number of the replica, the only one of its kind.

    Attributes:
        acked: Newest of its records that is acknowledged.

    """

    def __init__(self, socket: ClientConnection, replica: int) -> None:
        self.acked = 0
        self._socket = socket
        self._replica_id = replica.to_bytes(16, "big")
        self._sent = 0
        self._ns_no = 0

    async def join(self, namespace: str) -> None:
        """Greet, join, and take note of the namespace's number."""
        await self._say(Hello(0, self._replica_id, bytes(16), "bench"))
        await self._say(Join(namespace, 0, bytes(16), 0, bytes(32), 0))
        while not self._ns_no:
            for message in await self.hear():
                if isinstance(message, Joined):
                    self._ns_no = message.ns_no

    async def put(self, count: int) -> None:
        """Send the next records in one message."""
        tag = doc_tag(1, "bench")
        records = []
        for _ in range(count):
            self._sent += 1
            header = Header(
                RecordKind.UPDATE, 0, tag, self._replica_id, self._sent, 0, 0
            )
            records.append(build_record(header, PAYLOAD))
        await self._say(Put(self._ns_no, tuple(records)))

    async def hear(self) -> list[Message]:
        """Wait for a frame; acknowledgements are counted."""
        messages = decode_frame(await self._socket.recv(decode=False))
        for message in messages:
            if isinstance(message, Ack):
                self.acked = max(self.acked, message.replica_seq)
            if isinstance(message, ErrorMessage):
                raise RefusedError(message.code)
        return messages

    async def write(self) -> None:
        """Write for ever, as much as the window lets through."""
        while True:
            while self._sent - self.acked <= WINDOW - PER_PUT:
                await self.put(PER_PUT)
            await self.hear()

    async def _say(self, message: Message) -> None:
        await self._socket.send(encode_frame([message]))


@contextlib.asynccontextmanager
async def joined(place: Mapping[str, Any]) -> AsyncIterator[Client]:
    """Give a client of a relay in a namespace."""
    async with connect(
        f"ws://127.0.0.1:{place['port']}/v1/sync",
        subprotocols=[Subprotocol("crdtmem.v1")],
        additional_headers={"Authorization": f"Bearer {place['token']}"},
        compression=None,
        ping_interval=None,
        max_size=None,
        close_timeout=1,
    ) as socket:
        client = Client(socket, place["replica"])
        await client.join(place["namespace"])
        yield client


async def throughput(task: Mapping[str, Any]) -> dict[str, object]:
    """Have all clients write for some seconds; return how much was acknowledged."""
    async with contextlib.AsyncExitStack() as stack:
        clients = [
            await stack.enter_async_context(joined(place)) for place in task["clients"]
        ]
        await _go()
        writing = [asyncio.create_task(client.write()) for client in clients]
        # Relays connect to a database when they need to, and no longer.
        await asyncio.wait(writing, timeout=task["warm_up"])
        before = sum(one.acked for one in clients)
        start = time.perf_counter()
        # Ends early only where one of them fails.
        done, _ = await asyncio.wait(writing, timeout=task["seconds"])
        seconds = time.perf_counter() - start
        records = sum(one.acked for one in clients) - before
        for one in writing:
            one.cancel()
        await asyncio.gather(*writing, return_exceptions=not done)
        return {"records": records, "seconds": seconds}


async def latency(task: Mapping[str, Any]) -> dict[str, object]:
    """Write a record at a time; return how long each took to come to the reader."""
    waits: list[float] = []
    async with joined(task["writer"]) as writer, joined(task["reader"]) as reader:
        await _go()
        loop = asyncio.get_running_loop()
        due_s = loop.time()
        for _ in range(task["count"]):
            # A steady rate, as of somebody who works, whatever the last one took.
            due_s += 1 / task["per_second"]
            await asyncio.sleep(due_s - loop.time())
            start = time.perf_counter()
            await writer.put(1)
            while not any(isinstance(m, Records) for m in await reader.hear()):
                pass
            waits.append(time.perf_counter() - start)
    return {"waits": waits}


async def _go() -> None:
    print("ready", flush=True)
    await asyncio.to_thread(sys.stdin.readline)


def main(lines: Sequence[str] | None = None) -> None:
    """Do the task on stdin."""
    task = json.loads(lines[0] if lines else sys.stdin.readline())
    work = throughput(task) if task["task"] == "throughput" else latency(task)
    print(json.dumps(asyncio.run(work)), flush=True)


if __name__ == "__main__":
    main()
