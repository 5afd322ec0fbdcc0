"""The gateway's rooms: who comes, who goes, and what each is told."""

import asyncio
import os
from functools import partial

import pytest
from starlette.websockets import WebSocketDisconnect

import crdtmem
from crdtmem.doc.editor_doc import EditorDoc
from crdtmem.protocol.codec import Reader, write_bytes, write_uint
from tests.conftest import PROFILE
from tests.serve.desk import PATIENCE_S, PROJECT
from tests.serve.editing import rescued
from tests.serve.house import (
    ANA,
    NOBODY,
    TOKEN,
    content,
    damage,
    housed,
    until,
    word,
)

VISITS = {"default": 8, "campaign": 1_000}[PROFILE]


@pytest.fixture
def memory(tmp_path):
    with crdtmem.open(tmp_path / "store.db", lane="lane", project=PROJECT) as memory:
        memory.create("plan", "one\ntwo")
        yield memory


@pytest.fixture
def house(tmp_path, memory):
    return partial(housed, tmp_path)


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


@pytest.mark.requirement("serve-25")
@pytest.mark.parametrize("bound", ["EDITORS_SLOT_MAX", "EDITORS_MAX"])
async def test_one_editor_more_than_there_may_be_is_turned_away(
    house, monkeypatch, bound
):
    monkeypatch.setattr(f"crdtmem.serve.gateway.{bound}", 2)
    async with house() as one:
        crowd = [await one.connect().sync() for _ in range(2)]
        assert (await one.connect().until_closed())[0] == 4529
        crowd[0].leave()
        await until(lambda: len(one.room.members) < 2)
        await one.connect().sync()


@pytest.mark.requirement("serve-19")
async def test_an_editor_of_another_document_is_sent_nothing(house, memory):
    other = EditorDoc.make(gid=9, anchor=1 << 33, incarnation="e" * 32, text="mine\n")
    async with house() as one:
        socket = one.connect()
        vector = await socket.until(0, 0)
        # Nor is it told of others.
        ben = await one.connect(NOBODY).sync()
        ben.send(word(ben.doc.client_id, "ben"))
        await until(lambda: "yjs:ben" in one.gateway.editors_of(PROJECT, "plan"))
        socket.send(b"\0\0" + write_bytes(other.state_vector()))
        socket.send(b"\0\1" + write_bytes(other.diff(vector)))
        assert (await socket.until_closed())[0] == 4409
        assert socket.outbox.empty()
    assert rescued(memory) == ["mine\n"]
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
        damage(memory, "UPDATE editor_doc SET incarnation = 'other'")
        assert (await socket.until_closed())[0] == 4409
        again = await one.connect().sync()
        assert str(again.text) == "one\ntwo\n"


@pytest.mark.requirement("serve-19")
async def test_who_comes_between_two_documents_is_sent_away(house, memory):
    async with house() as one:
        first = one.connect()
        await first.until(0, 0)
        for task in one.gateway._tasks:
            task.cancel()
        damage(memory, "UPDATE editor_doc SET incarnation = 'other'")
        first.send(b"\0\0" + write_bytes(b"\0"))
        assert (await one.connect().until_closed())[0] == 4409
        assert (await first.until_closed())[0] == 4409


async def test_when_the_slot_is_deleted_its_editors_are_told(house, memory):
    async with house() as one:
        socket = await one.connect().sync()
        memory.delete("plan")
        assert (await socket.until_closed())[0] == 4404
        # Nobody is let in to a slot that has gone, and one that is back has a new room.
        assert (await one.connect().until_closed())[0] == 4404
        memory.create("plan", "again")
        assert str((await one.connect().sync()).text) == "again\n"


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


@pytest.mark.parametrize(
    ("error", "told"),
    [(WebSocketDisconnect(1006), 0), (OSError("broken"), 1)],
)
async def test_a_connection_that_breaks_ends_and_only_what_is_strange_is_logged(
    house, caplog, error, told
):
    async with house() as one:
        socket = await one.connect().sync()
        socket.fails = error
        socket.type("x")
        await until(lambda: not one.room.members)
    assert caplog.text.count("an editor's connection failed") == told


async def test_a_room_tells_of_itself_now_and_then(house, monkeypatch):
    monkeypatch.setattr("crdtmem.serve.rooms.AWARENESS_OUT_S", 0.0)
    async with house() as one:
        socket = await one.connect().sync()
        clocks = []
        for _ in range(3):
            one.room.wake()
            reader = Reader(await socket.until(1))
            count, client, clock = (reader.read_uint() for _ in range(3))
            assert (count, client) == (1, one.room.anchor)
            clocks.append(clock)
        assert clocks == sorted(set(clocks))


async def test_a_state_vector_that_is_none_ends_the_connection(house):
    async with house() as one:
        socket = one.connect()
        await socket.until(0, 0)
        anchor = one.room.anchor
        bad = write_uint(1) + write_uint(anchor) + write_uint(1 << 40)
        socket.send(b"\0\0" + write_bytes(bad))
        assert (await socket.until_closed())[0] == 4400


@pytest.mark.requirement("serve-28")
async def test_who_comes_and_goes_leaves_nothing_behind(house, monkeypatch):
    monkeypatch.setattr("crdtmem.serve.gateway.EDITOR_DOC_IDLE_S", 0.0)
    async with house() as one:
        files = []
        for _ in range(VISITS):
            socket = await one.connect().sync()
            socket.send(word(socket.doc.client_id, "ana"))
            socket.leave()
            await one.tasks.pop()
            files.append(len(os.listdir("/proc/self/fd")))
        assert files[-1] <= files[1]
        await until(lambda: not one.gateway._memories)
        assert not one.gateway._rooms
        assert not one.gateway._connections
        assert one.site.handles._users == 0
        assert len(asyncio.all_tasks()) <= 1 + len(one.gateway._tasks)


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
