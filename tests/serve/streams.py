"""A reader of server-sent events, who can be slow, leave and come back."""

import asyncio
import json
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

from tests.serve.desk import CONTROL, HOST, PATIENCE_S, scope_of


class Event(NamedTuple):
    name: str
    data: dict[str, Any]
    id: str


class Stream:
    """An open stream.

    Attributes:
        chunks: How many pieces have come.
        gate: Cleared, the reader takes nothing more.

    """

    def __init__(self, server, target, headers):
        self._events: asyncio.Queue[Event] = asyncio.Queue()
        self._left = asyncio.Event()
        self._rest = b""
        self._is_asked = False
        self.chunks = 0
        self.last_id = ""
        self.gate = asyncio.Event()
        self.gate.set()
        path, _, query = target.partition("?")
        given = [("host", HOST), *headers.items()]
        scope = scope_of("GET", path, query, given)
        self.task = asyncio.create_task(server.app(scope, self._receive, self._send))

    async def next(self, name=None):
        """Return the next event, of this name if one is given."""
        async with asyncio.timeout(PATIENCE_S):
            while True:
                event = await self._events.get()
                self.last_id = event.id or self.last_id
                if name in (None, event.name):
                    return event

    async def end(self):
        """Wait until the server ends it."""
        async with asyncio.timeout(PATIENCE_S):
            await asyncio.shield(self.task)

    async def cut(self):
        """Leave, as a lost connection does."""
        self._left.set()
        self.gate.set()
        await self.end()

    async def _receive(self):
        if not self._is_asked:
            self._is_asked = True
            return {"type": "http.request", "body": b""}
        await self._left.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message):
        await self.gate.wait()
        if message["type"] == "http.response.start":
            assert message["status"] == 200
            return
        self.chunks += 1
        self._rest += message.get("body", b"")
        *whole, self._rest = self._rest.split(b"\n\n")
        for block in whole:
            self._take(block.decode())

    def _take(self, block):
        fields = dict(line.partition(": ")[::2] for line in block.split("\n"))
        if block == ":":
            self._events.put_nowait(Event("comment", {}, ""))
        else:
            event = Event(
                fields["event"], json.loads(fields["data"]), fields.get("id", "")
            )
            self._events.put_nowait(event)


@asynccontextmanager
async def listening(server, project="desk", *, since="", headers=None):
    """Give a stream of a project's events; it is cut in the end."""
    target = f"/api/v1/projects/{project}/events"
    if since:
        target += f"?since={since}"
    how = headers or {"authorization": f"Bearer {CONTROL}"}
    stream = Stream(server, target, how)
    try:
        yield stream
    finally:
        await stream.cut()
