"""The gateway's rooms, with the WebSocket left out and all else real."""

import asyncio
import itertools
from contextlib import asynccontextmanager
from typing import Any, cast

import apsw
import pytest
from pycrdt import Doc, Text
from starlette.websockets import WebSocket

import crdtmem
from crdtmem.doc.editor_doc import EditorDoc
from crdtmem.gateway import Offer
from crdtmem.protocol.codec import Reader, write_bytes, write_str, write_uint
from crdtmem.serve.answers import Ask, Principal
from crdtmem.serve.gateway import Gateway
from tests.serve.desk import PATIENCE_S, PROJECT, Desk

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
        self.doc: Doc[Any] = Doc(client_id=client)
        self.text = self.doc.get("content", type=Text)

    async def accept(self, subprotocol):
        self.subprotocol = subprotocol

    async def receive(self):
        return await self.inbox.get()

    async def send_bytes(self, frame):
        await self.is_read.wait()
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


@pytest.fixture
def memory(tmp_path):
    with crdtmem.open(tmp_path / "store.db", lane="lane", project=PROJECT) as memory:
        memory.create("plan", "one\ntwo")
        yield memory


@pytest.fixture
def house(tmp_path, memory):
    @asynccontextmanager
    async def house(**options):
        found = House(tmp_path, **options)
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

    return house


def content(memory):
    return memory.slot("plan").read().content


def word(client, name):
    state = write_str('{"user": {"name": "' + name + '"}}')
    return b"\1" + write_bytes(write_uint(1) + write_uint(client) + b"\1" + state)


@pytest.mark.requirement("serve-22")
async def test_who_edits_is_shown_and_each_writes_under_a_lane_of_its_own(
    house, memory
):
    async with house() as one:
        everybody = [await one.connect(who).sync() for who in (ANA, TOKEN, NOBODY)]
        nobody = everybody[-1]
        nobody.send(word(nobody.doc.client_id, "Zoë\\u0007"))
        await until(lambda: "yjs:Zoë" in one.gateway.editors_of(PROJECT, "plan"))
        assert one.gateway.editors_of(PROJECT, "plan") == ("ci", "yjs:Zoë", "yjs:ana")
        assert one.gateway.editors_of(PROJECT, "other") == ()
        assert one.gateway.editors_in("global") == []
        (shown,) = one.gateway.editors_in(PROJECT)
        assert [each["lane"] for each in shown["editors"]] == [
            "yjs:ana", "ci", "yjs:Zoë",
        ]  # fmt: skip
        for socket in everybody:
            socket.type(f"from {socket.doc.client_id}\n")
            await socket.until(0, 2)
    lanes = {line.lane for line in memory.slot("plan").blame()}
    assert lanes == {"lane", "ci", "yjs:Zoë", "yjs:ana"}


async def test_where_there_is_no_such_slot_nobody_is_let_in(house):
    async with house() as one:
        for namespace, label in [(PROJECT, "no"), ("not a project", "plan")]:
            socket = one.connect(label=label, namespace=namespace)
            assert (await socket.until_closed())[0] == 4404
        one.site.stopping.set()
        assert (await one.connect().until_closed())[0] == 1012


async def test_a_template_of_all_projects_can_be_edited(house, memory):
    async with house() as one:
        socket = await one.connect(label="persona", namespace="global").sync()
        socket.type("calm")
        await socket.until(0, 2)
    assert memory.slot("persona", "global").read().content == "calm"


@pytest.mark.requirement("serve-23")
async def test_a_server_that_only_shows_lets_no_editor_in(house):
    async with house(read_only=True) as one:
        assert (await one.connect().until_closed())[0] == 4403


async def test_no_more_slots_than_fit_are_open(house, monkeypatch):
    monkeypatch.setattr("crdtmem.serve.gateway.EDITOR_DOCS_MAX", 0)
    async with house() as one:
        assert (await one.connect().until_closed())[0] == 4529


@pytest.mark.requirement("serve-19")
async def test_an_editor_of_another_document_is_sent_nothing(house, memory):
    other = EditorDoc.make(gid=9, anchor=1 << 33, incarnation="e" * 32, text="mine\n")
    async with house() as one:
        socket = one.connect()
        vector = await socket.until(0, 0)
        socket.send(b"\0\0" + write_bytes(other.state_vector()))
        socket.send(b"\0\1" + write_bytes(other.diff(vector)))
        assert (await socket.until_closed())[0] == 4409
        assert socket.outbox.empty()
    assert [r.text for r in memory.editing("plan", "project").rescued()] == ["mine\n"]
    assert content(memory) == "one\ntwo"


@pytest.mark.requirement("serve-19")
async def test_an_editor_that_asks_first_and_then_shows_our_document_is_answered(house):
    async with house() as one:
        socket = one.connect()
        socket.text += "early"
        vector = await socket.until(0, 0)
        socket.send(b"\0\0" + write_bytes(socket.doc.get_state()))
        socket.send(b"\0\1" + write_bytes(socket.doc.get_update(vector)))
        socket.doc.apply_update(await socket.until(0, 1))
        assert str(socket.text) == "one\ntwo\nearly"


async def test_when_the_document_ends_everybody_is_told_and_another_one_begins(
    house, memory
):
    async with house() as one:
        socket = await one.connect().sync()
        connection = apsw.Connection(str(memory.path))
        connection.execute("UPDATE editor_doc SET incarnation = 'other'")
        connection.close()
        assert (await socket.until_closed())[0] == 4409
        again = await one.connect().sync()
        assert str(again.text) == "one\ntwo\n"


async def test_when_the_slot_is_deleted_its_editors_are_told(house, memory):
    async with house() as one:
        socket = await one.connect().sync()
        memory.delete("plan")
        assert (await socket.until_closed())[0] == 4404


@pytest.mark.requirement("serve-25")
async def test_an_editor_that_never_reads_is_given_up_and_holds_up_nobody(
    house, monkeypatch
):
    monkeypatch.setattr("crdtmem.serve.gateway.EDITOR_SEND_S", 0.2)
    async with house() as one:
        slow, quick = await one.connect().sync(), await one.connect().sync()
        slow.is_read.clear()
        quick.type("x")
        await quick.until(0, 2)
        assert (await slow.until_closed())[0] == 4508


@pytest.mark.requirement("serve-25")
async def test_an_editor_that_is_far_behind_gets_all_at_once(house, monkeypatch):
    monkeypatch.setattr("crdtmem.serve.rooms.EDITOR_WINDOW_ROWS", 1)
    async with house() as one:
        slow, quick = await one.connect().sync(), await one.connect().sync()
        slow.is_read.clear()
        for number in range(3):
            quick.type(f"{number}")
            await until(lambda want=number: one.room._n > want)
        slow.is_read.set()
        async with asyncio.timeout(PATIENCE_S):
            while not str(slow.text).endswith("012"):
                reader = Reader(await slow.outbox.get())
                if reader.read_uint() == 0 and reader.read_uint():
                    slow.doc.apply_update(reader.read_bytes(1 << 20))


async def test_many_updates_at_once_are_all_taken(house, memory, monkeypatch):
    monkeypatch.setattr("crdtmem.serve.gateway.EDITOR_QUEUE_MAX", 2)
    async with house() as one:
        socket = await one.connect().sync()
        for number in range(20):
            socket.type(f"{number}\n")
        # Who leaves right after typing has typed it all the same.
        socket.leave()
        await until(lambda: not one.room.members)
        await until(lambda: content(memory).endswith("19"))
    assert content(memory).split("\n")[2:] == [str(n) for n in range(20)]


async def test_who_is_no_longer_welcome_is_sent_away(house):
    async with house() as one:
        socket = await one.connect().sync()
        one.site.is_welcome = lambda _principal: False
        assert (await socket.until_closed())[0] == 4401


@pytest.mark.requirement("serve-23")
async def test_a_busy_store_ends_connections_and_loses_nothing(house, memory):
    async with house() as one:
        socket = await one.connect().sync()
        await one.room._memory.call(
            lambda found: setattr(found.store, "busy_timeout_s", 0.05)
        )
        with memory.store.writing():
            socket.type("x")
            assert (await socket.until_closed())[0] == 1013
        again = await one.connect().sync()
        again.doc.apply_update(socket.doc.get_update())
        again.send(b"\0\2" + write_bytes(again.doc.get_update()))
        await again.until(0, 2)
    assert content(memory) == "one\ntwo\nx"


@pytest.mark.requirement("serve-23")
async def test_what_is_blocked_is_shown_and_folded_when_it_fits(house, memory):
    memory.slot("plan").set_meta(size_limit=10)
    async with house() as one:
        socket = await one.connect().sync()
        socket.type("more than ten")
        await until(lambda: one.room.blocked == "size-limit-exceeded")
        assert one.gateway.editors_in(PROJECT)[0]["blocked"] == "size-limit-exceeded"
        async with asyncio.timeout(PATIENCE_S):
            while b"size-limit-exceeded" not in await socket.until(1):
                pass
        memory.slot("plan").set_meta(size_limit=100)
        await until(lambda: content(memory).endswith("more than ten"))


async def test_a_state_vector_that_is_none_ends_the_connection(house):
    async with house() as one:
        socket = one.connect()
        await socket.until(0, 0)
        anchor = one.room.anchor
        bad = write_uint(1) + write_uint(anchor) + write_uint(1 << 40)
        socket.send(b"\0\0" + write_bytes(bad))
        assert (await socket.until_closed())[0] == 4400


async def test_what_a_killed_server_has_left_is_folded(house, memory):
    editing = memory.editing("plan", "project")
    doc: Doc[Any] = Doc(client_id=70_000)
    doc.apply_update(editing.diff(b"")[1])
    have = doc.get_state()
    text = doc.get("content", type=Text)
    text += "left"
    editing.accept([Offer("yjs:ana", doc.get_update(have))])
    async with house() as one:
        await until(lambda: content(memory).endswith("left"))
        one.room.idle_s = float("-inf")
        await until(lambda: not one.gateway._rooms)


async def test_a_message_is_answered_with_who_is_there(house):
    async with house() as one:
        ana, ben = await one.connect().sync(), await one.connect().sync()
        ana.send(word(ana.doc.client_id, "ana"))
        ana.send(word(ana.doc.client_id, "ana again")[:-1])
        assert (await ana.until_closed())[0] == 4400
        ben.send(b"\3")
        async with asyncio.timeout(PATIENCE_S):
            while b"crdtmem" not in await ben.until(1):
                pass


async def test_rows_that_are_squashed_already_come_as_one_answer(
    house, memory, monkeypatch
):
    monkeypatch.setattr("crdtmem.store.editors.EDITOR_LOG_ROWS", 1)
    async with house() as one:
        socket = await one.connect().sync()
        memory.slot("plan").append("lane")
        socket.doc.apply_update(await socket.until(0, 1))
        assert str(socket.text) == "one\ntwo\nlane\n"


async def test_a_damaged_document_ends_and_another_one_begins(house, memory):
    async with house() as one:
        socket = await one.connect().sync()
        connection = apsw.Connection(str(memory.path))
        connection.execute("UPDATE editor_doc SET n = 1, n_state = 1, state = x'00'")
        connection.close()
        socket.type("x")
        assert (await socket.until_closed())[0] == 1013
        again = await one.connect().sync()
        assert str(again.text) == "one\ntwo\n"
