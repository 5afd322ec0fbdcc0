"""The memories of a server."""

import asyncio

import pytest

from crdtmem.errors import StoreNotFoundError
from crdtmem.limits import SERVE_WAITING_MAX
from crdtmem.serve.answers import HttpError, Principal, Site
from crdtmem.serve.handles import Handles
from tests.serve.desk import desk


@pytest.fixture
def few(monkeypatch):
    """Let few memories be open."""
    monkeypatch.setattr("crdtmem.serve.handles.SERVE_HANDLES_MAX", 3)
    return 3


async def test_a_project_and_a_lane_have_one_memory(tmp_path):
    async with desk(tmp_path) as server:
        handles = server.site.handles

        async def lane_of(project, lane):
            async with handles.use(project, lane) as memory:
                await memory.slots()
                return memory.project, memory.lane

        both = await asyncio.gather(lane_of("a", "x"), lane_of("a", "x"))
        other = await lane_of("b", "x")

        assert list(both) == [("a", "x")] * 2
        assert other == ("b", "x")
        assert server.calls == [("a", "x"), ("b", "x")]


async def test_the_longest_unused_memory_is_closed(tmp_path, few):
    async with desk(tmp_path) as server:
        handles, opened = server.site.handles, []
        for number in range(few + 1):
            async with handles.use("a", f"lane-{number}") as memory:
                opened.append(memory)
            async with handles.use("a", "lane-1" if number else "lane-0"):
                pass

        assert len(handles) == few
        assert ("a", "lane-1") in server.calls
        assert opened[0]._worker.is_stopped

        leaving = asyncio.create_task(handles.use("a", "late").__aenter__())
        asyncio.get_running_loop().call_soon(leaving.cancel)
        await asyncio.wait({leaving})
        assert leaving.cancelled()
        assert not handles._users
        assert not any(handle.users for handle in handles._handles.values())


async def test_when_all_memories_are_in_use_the_next_is_refused(tmp_path, few):
    async with desk(tmp_path) as server:
        handles = server.site.handles
        held = [handles.use("a", f"lane-{n}") for n in range(few)]
        for one in held:
            await one.__aenter__()

        with pytest.raises(HttpError) as caught:
            await handles.use("a", "one-more").__aenter__()
        for one in held:
            await one.__aexit__(None, None, None)

        assert (caught.value.status, caught.value.code) == (503, "store-busy")
        assert caught.value.headers == {"Retry-After": "1"}
        assert len(handles) == few


async def test_when_too_many_calls_wait_the_next_is_refused(tmp_path):
    async with desk(tmp_path) as server:
        handles = server.site.handles
        held = [handles.use("a", "x") for _ in range(SERVE_WAITING_MAX)]
        for one in held:
            await one.__aenter__()

        with pytest.raises(HttpError, match="64 calls are under way"):
            await handles.use("a", "x").__aenter__()
        for one in held:
            await one.__aexit__(None, None, None)
        async with handles.use("a", "x") as memory:
            slots = await memory.slots()

        assert slots


async def test_a_memory_that_cannot_be_opened_is_tried_again():
    tries = []

    def fail(project, lane):
        tries.append((project, lane))
        raise StoreNotFoundError(path="nowhere")

    handles = Handles(fail)
    for _ in range(2):
        with pytest.raises(StoreNotFoundError):
            await handles.use("a", "x").__aenter__()
    await handles.close()

    assert tries == [("a", "x")] * 2
    assert len(handles) == 0


async def test_a_server_alone_has_no_editors_and_turns_nobody_away(tmp_path):
    async with desk(tmp_path) as server:
        site = Site(
            version="1",
            port=1,
            base="http://127.0.0.1:1",
            store_path=server.store,
            handles=server.site.handles,
            sessions=server.site.sessions,
            start_project="desk",
        )

        assert site.editors_of("desk", "notes") == ()
        assert site.editors_in("desk") == ()
        assert list(site.at_work("desk")) == []
        state = {"label": "notes", "editors": [{"lane": "yjs:ana", "since": 1}]}
        site.editors_in = {"desk": [state]}.__getitem__
        assert list(site.at_work("desk")) == [("yjs:ana", "notes", "editing")]
        assert site.is_welcome(Principal("", "", may_write=False))
        assert not site.is_stopping
