"""The gateway's rooms, with the WebSocket left out and all else real."""

import asyncio
import itertools
from contextlib import asynccontextmanager
from typing import Any, cast

import apsw
from pycrdt import Doc, Text
from starlette.websockets import WebSocket

from crdtmem.protocol.codec import Reader, write_bytes, write_str, write_uint
from crdtmem.serve.answers import Ask, Principal
from crdtmem.serve.gateway import Gateway
from tests.serve.desk import PATIENCE_S, PROJECT, Desk
from tests.serve.editing import Editor

__all__ = [
    "ANA",
    "NOBODY",
    "TOKEN",
    "House",
    "Socket",
    "content",
    "damage",
    "housed",
    "left",
    "until",
    "word",
]

ANA = Principal("ana", "web:ana", may_write=True, session_id="s")
NOBODY = Principal("", "web:", may_write=True, session_id="s")
TOKEN = Principal("ci", "ci", may_write=True, token_id="t")


class Socket:
    """The server's end of a WebSocket, and an editor behind it."""

    def __init__(self, client=70_000):
        self.scope: dict[str, Any] = {"subprotocols": []}
        self.inbox: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self.outbox: asyncio.Queue[bytes] = asyncio.Queue()
        self.closed = asyncio.get_running_loop().create_future()
        self.is_read = asyncio.Event()
        self.is_read.set()
        self.fails: Exception | None = None
        self.doc: Doc[Any] = Doc(client_id=client)
        self.text = self.doc.get("content", type=Text)

    async def accept(self, subprotocol):
        self.subprotocol = subprotocol

    async def receive(self):
        return await self.inbox.get()

    async def send_bytes(self, frame):
        await self.is_read.wait()
        if self.fails is not None:
            raise self.fails
        self.outbox.put_nowait(frame)

    async def close(self, code, reason):
        if self.closed.done():
            raise RuntimeError("closed already")
        self.closed.set_result((code, reason))

    def send(self, frame):
        self.inbox.put_nowait({"type": "websocket.receive", "bytes": frame})

    def leave(self):
        self.inbox.put_nowait({"type": "websocket.disconnect"})

    async def until(self, kind, step=0):
        async with asyncio.timeout(PATIENCE_S):
            while True:
                reader = Reader(await self.outbox.get())
                found = reader.read_uint()
                at = reader.read_uint() if found in (0, 2) else 0
                if (found, at) == (kind, step):
                    return reader.read_bytes(1 << 24)

    async def sync(self):
        vector = await self.until(0, 0)
        self.send(b"\0\0" + write_bytes(self.doc.get_state()))
        self.send(b"\0\1" + write_bytes(self.doc.get_update(vector)))
        self.doc.apply_update(await self.until(0, 1))
        return self

    def type(self, words):
        have = self.doc.get_state()
        self.text += words
        self.send(b"\0\2" + write_bytes(self.doc.get_update(have)))

    async def until_closed(self):
        async with asyncio.timeout(PATIENCE_S):
            return await self.closed


async def until(good):
    """Wait for what nobody tells of; looks every few milliseconds."""
    loop = asyncio.get_running_loop()
    async with asyncio.timeout(PATIENCE_S):
        while not good():
            look = asyncio.Event()
            loop.call_later(0.005, look.set)
            await look.wait()


class House:
    """A gateway, and who is there."""

    def __init__(self, folder, **options):
        self.desk = Desk(folder, options=options)
        self.site = self.desk.site
        self.gateway = Gateway(self.site)
        self.tasks = []
        self.clients = itertools.count(70_000)

    def connect(self, principal=ANA, label="plan", namespace=PROJECT):
        socket = Socket(next(self.clients))
        ask = Ask("GET", "/", {}, {}, {}, b"", {}, principal, "", self.site)
        self.tasks.append(
            asyncio.create_task(
                self.gateway.serve(cast("WebSocket", socket), ask, namespace, label)
            )
        )
        return socket

    @property
    def room(self):
        return self.gateway._rooms[PROJECT, "plan"]


@asynccontextmanager
async def housed(folder, **options):
    """Give a gateway that works, and end it in order."""
    found = House(folder, **options)
    found.site.is_welcome = lambda _principal: True
    found.gateway.begin()
    try:
        yield found
    finally:
        found.site.stopping.set()
        await found.gateway.drain()
        for task in found.tasks:
            await asyncio.wait_for(task, PATIENCE_S)
        await found.site.handles.close()


def content(memory):
    return memory.slot("plan").read().content


def word(client, name):
    state = write_str('{"user": {"name": "' + name + '"}}')
    return b"\1" + write_bytes(write_uint(1) + write_uint(client) + b"\1" + state)


def left(memory, label):
    editor = Editor(memory.editing(label, "project"))
    editor.type("left")
    assert editor.send().code == ""


def damage(memory, statement):
    connection = apsw.Connection(str(memory.path))
    connection.execute(statement)
    connection.close()
