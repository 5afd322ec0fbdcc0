"""Live: what happens in the store reaches who listens."""

import asyncio
import os
import threading

import pytest

from crdtmem.errors import InvalidArgumentError, StoreBusyError
from crdtmem.limits import SERVE_STREAMS_MAX
from crdtmem.serve.session import digest_of
from crdtmem.store.links import add_link
from tests.serve.desk import PATIENCE_S, READ, desk, token_file
from tests.serve.streams import listening

LINES = 200 if os.environ.get("TEST_PROFILE") == "campaign" else 12
WRITERS = 4
ROUNDS = 1_000 if os.environ.get("TEST_PROFILE") == "campaign" else 20


async def test_a_change_by_another_process_is_told(tmp_path):
    async with desk(tmp_path) as server, listening(server) as stream:
        first = await stream.next()
        with server.memory() as memory:
            memory.create("notes", "a")
            memory.create("shared", "b", scope="global")
        told = [await stream.next("change") for _ in range(2)]

    assert first.name == "cursor"
    assert first.id == first.data["cursor"]
    assert [(e.data["label"], e.data["scope"]) for e in told] == [
        ("notes", "project"),
        ("shared", "global"),
    ]
    assert told[-1].id


async def test_a_stream_goes_on_where_the_last_one_ended(tmp_path):
    async with desk(tmp_path) as server:
        async with listening(server) as stream:
            await stream.next("cursor")
            cursor = stream.last_id
        with server.memory() as memory:
            memory.create("notes", "a")
        async with listening(server, since=cursor) as stream:
            by_query = await stream.next("change")
        headers = {
            "authorization": "Bearer control-token-of-the-desk-000000000000",
            "last-event-id": cursor,
        }
        async with listening(server, headers=headers) as stream:
            by_header = await stream.next("change")

    assert by_query == by_header
    assert by_query.data["label"] == "notes"


async def test_a_cursor_that_is_none_is_refused_and_one_of_elsewhere_is_told(tmp_path):
    async with desk(tmp_path) as server:
        reply = await server.ask("GET", "/api/v1/projects/desk/events?since=nonsense")
        async with listening(server, since=f"c1-{'0' * 32}-5") as stream:
            told = await stream.next("reset")

    assert (reply.status, reply.code) == (400, "invalid-cursor")
    assert told.data["cursor"] == told.id


@pytest.mark.requirement("serve-12")
async def test_a_stream_that_is_cut_again_and_again_loses_nothing(tmp_path):
    async with desk(tmp_path) as server:
        with server.memory() as memory:
            memory.create("notes", size_limit=1_000_000)
        threads = [
            threading.Thread(target=write, args=(server, f"lane-{number}"))
            for number in range(WRITERS)
        ]
        known, cursor, cuts = 0, "", 0
        async with listening(server) as stream:
            cursor = (await stream.next("cursor")).id
        for thread in threads:
            thread.start()
        while known < WRITERS * LINES:
            async with listening(server, since=cursor) as stream:
                for _ in range(3):
                    event = await stream.next("change")
                    assert event.data["sinceRev"] <= known
                    known = max(known, event.data["rev"])
                    if known == WRITERS * LINES:
                        break
                cursor, cuts = stream.last_id or cursor, cuts + 1
        for thread in threads:
            thread.join(PATIENCE_S)
        with server.memory() as memory:
            view = memory.slot("notes").read()

    assert known == view.rev == WRITERS * LINES
    assert cuts


def write(server, lane):
    with server.memory(lane) as memory:
        slot = memory.slot("notes")
        for number in range(LINES):
            slot.append(f"{lane} {number}")


@pytest.mark.requirement("serve-12")
async def test_what_a_slow_reader_misses_of_a_slot_is_one_change(tmp_path):
    async with desk(tmp_path) as server, listening(server) as stream:
        await stream.next("cursor")
        stream.gate.clear()
        with server.memory() as memory:
            memory.create("notes")
            slot = memory.slot("notes")
            for number in range(40):
                slot.append(f"line {number}")
        stream.gate.set()
        revs: list[int] = []
        while not revs or revs[-1] < 40:
            revs.append((await stream.next("change")).data["rev"])

    assert len(revs) < 10


@pytest.mark.requirement("serve-12")
async def test_the_oldest_of_too_many_streams_of_a_session_yields(tmp_path):
    async with desk(tmp_path) as server:
        streams = [listening(server) for _ in range(SERVE_STREAMS_MAX + 1)]
        opened = []
        for stream in streams:
            opened.append(await stream.__aenter__())
            await opened[-1].next("cursor")
        told = await opened[0].next("poll")
        await opened[0].end()
        running = [not one.task.done() for one in opened[1:]]
        for stream in streams:
            await stream.__aexit__(None, None, None)

    assert told.data == {}
    assert running == [True] * SERVE_STREAMS_MAX


@pytest.mark.requirement("serve-5")
async def test_a_stream_ends_when_its_reader_is_no_longer_welcome(tmp_path):
    path = token_file(tmp_path)
    async with desk(tmp_path, options={"token_file": path}) as server:
        cookie = await server.sign_in()
        by_token = {"authorization": f"Bearer {READ}"}
        async with (
            listening(server, headers={"cookie": cookie}) as session,
            listening(server, headers=by_token) as token,
            listening(server) as other,
        ):
            for stream in (session, token, other):
                await stream.next("cursor")
            await server.form("/logout", cookie)
            token_file(tmp_path, "# nobody")
            await session.end()
            await token.end()

            assert not other.task.done()


async def test_a_reader_that_takes_nothing_is_cut_off_all_the_same(tmp_path):
    async with desk(tmp_path) as server:
        cookie = await server.sign_in()
        async with listening(server, headers={"cookie": cookie}) as stream:
            await stream.next("cursor")
            stream.gate.clear()
            with server.memory() as memory:
                memory.create("notes")
            await server.form("/logout", cookie)

            await stream.end()


@pytest.mark.requirement("serve-26")
async def test_streams_and_waits_end_when_the_server_stops(tmp_path):
    async with desk(tmp_path) as server, listening(server) as stream:
        cursor = (await stream.next("cursor")).id
        waiting = asyncio.create_task(
            server.ask("GET", f"/api/v1/projects/desk/changes?wait=30&since={cursor}")
        )
        async with asyncio.timeout(PATIENCE_S):
            watcher, _ = server.app.events._watchers["desk"]
            while watcher.listeners < 2:
                await server.ask("GET", "/api/v1/sync")
        server.site.stopping.set()
        server.app.events.wake()
        told = await stream.next()
        async with asyncio.timeout(PATIENCE_S):
            reply = await waiting

    assert told.name == "bye"
    assert reply.status == 200
    assert reply.json["changes"] == []


async def test_a_wait_ends_with_the_change(tmp_path):
    async with desk(tmp_path) as server:
        first = await server.ask("GET", "/api/v1/projects/desk/changes")
        cursor = first.json["cursor"]
        target = f"/api/v1/projects/desk/changes?wait=30&since={cursor}"
        async with listening(server) as stream:
            await stream.next("cursor")
            waiting = asyncio.create_task(server.ask("GET", target))
            with server.memory() as memory:
                memory.create("notes")
            async with asyncio.timeout(PATIENCE_S):
                reply = await waiting

    assert [c["label"] for c in reply.json["changes"]] == ["notes"]


async def test_editors_and_passes_are_told_when_they_change(tmp_path):
    async with desk(tmp_path) as server:
        state = {"label": "notes", "scope": "project", "editors": [], "unfolded": 3}
        with server.memory() as memory:
            memory.create("notes", "## a\none\n## b\ntwo\n## c\nthree\n" * 3)
        async with listening(server) as stream:
            await stream.next("cursor")
            server.site.editors_in = lambda namespace: (
                [state] if namespace == "desk" else []
            )
            editors = await stream.next("editors")
            there = [
                {"lane": "x", "replica": "01", "slot": "notes", "doing": "editing"}
            ]
            server.site.presence_in = {"desk": there, "global": []}.__getitem__
            come = await stream.next("presence")
            server.site.presence_in = lambda _: []
            gone = await stream.next("presence")
            with server.memory() as memory:
                begun = memory.slot("notes").begin_condense(force=True, keep_sections=1)
            told = await stream.next("condense")

    assert editors.data == state
    assert (come.data, gone.data) == ({"lanes": there}, {"lanes": []})
    assert told.data["id"] == begun.id


async def test_how_sync_stands_is_told(tmp_path):
    async with desk(tmp_path) as server:
        with server.memory() as memory:
            for namespace in ("desk", "elsewhere"):
                add_link(
                    memory.store,
                    namespace=namespace,
                    remote=namespace,
                    url="wss://relay.example",
                    token_file="",
                    options={},
                )
        async with listening(server) as stream:
            told = await stream.next("sync")
        mine = await server.json("GET", "/api/v1/sync")
    async with desk(tmp_path, options={"only_project": "elsewhere"}) as server:
        other = await server.json("GET", "/api/v1/sync")

    assert [link["local"] for link in told.data["links"]] == ["desk"]
    assert [link["local"] for link in mine.json["links"]] == ["desk", "elsewhere"]
    assert [link["local"] for link in other.json["links"]] == ["elsewhere"]


async def test_what_is_over_is_forgotten(tmp_path):
    state = {"label": "notes", "scope": "project", "editors": [], "unfolded": 0}
    async with desk(tmp_path) as server, listening(server) as stream:
        told = {"desk": [state], "global": []}
        server.site.editors_in = told.get
        await stream.next("editors")
        watcher, _ = server.app.events._watchers["desk"]
        told["desk"] = []
        async with asyncio.timeout(PATIENCE_S):
            while watcher.states:
                await server.ask("GET", "/api/v1/sync")

        assert not watcher.states


async def test_a_silent_stream_shows_that_it_lives(tmp_path, monkeypatch):
    monkeypatch.setattr("crdtmem.serve.events.SERVE_STREAM_COMMENT_S", 0.01)
    async with desk(tmp_path) as server, listening(server) as stream:
        await stream.next("cursor")
        told = [await stream.next("comment") for _ in range(2)]

    assert len(told) == 2


async def test_a_stream_that_ends_for_a_busy_store_is_taken_up_again(tmp_path):
    async with desk(tmp_path) as server:
        opened = server.site.handles._open
        busy = ["serve"]

        def open_memory(project, lane):
            if lane in busy:
                raise StoreBusyError(path="x", pid=None, command=None, waited_s=1.0)
            return opened(project, lane)

        server.site.handles._open = open_memory
        with server.memory() as memory:
            cursor = memory.cursor()
        async with listening(server, since=cursor) as stream:
            await stream.end()
        busy.clear()
        async with listening(server, since=cursor) as stream:
            with server.memory() as memory:
                memory.create("notes")
            told = await stream.next("change")

    assert told.data["label"] == "notes"


async def test_a_watcher_outlives_a_busy_store(tmp_path, monkeypatch):
    monkeypatch.setattr("crdtmem.serve.events.SERVE_CHECK_S", 0.001)
    async with desk(tmp_path) as server:
        opened = server.site.handles._open
        left = [3]

        def open_memory(project, lane):
            if left[0]:
                left[0] -= 1
                raise StoreBusyError(path="x", pid=None, command=None, waited_s=1.0)
            return opened(project, lane)

        server.site.handles._open = open_memory
        async with server.app.events.listening("desk") as watcher:
            async with asyncio.timeout(PATIENCE_S):
                while left[0]:  # pragma: no branch - it may have been quick
                    await watcher.wait(0.001)
                feed = await watcher.feed(None)
            for number in range(40):
                with pytest.raises(InvalidArgumentError):
                    await watcher.feed(f"cursor {number}")

            assert len(watcher._feeds) <= 16

    assert feed.changes == ()


@pytest.mark.requirement("serve-28")
async def test_streams_and_sessions_that_come_and_go_leave_nothing_behind(tmp_path):
    async with desk(tmp_path) as server:
        cookie = {"cookie": await server.sign_in()}
        tasks = len(asyncio.all_tasks())
        # SQLite keeps one descriptor of the first that was closed, for the next one.
        for _ in range(2):
            async with listening(server, headers=cookie) as stream:
                await stream.next("cursor")
        async with asyncio.timeout(PATIENCE_S):
            while len(asyncio.all_tasks()) > tasks:  # pragma: no branch - as it comes
                await asyncio.to_thread(int)  # pragma: no cover - as it comes
        before = left_by(server)
        for _ in range(ROUNDS):
            async with listening(server, headers=cookie) as stream:
                await stream.next("cursor")
            server.site.sessions.sign_out(digest_of(await opened_by(server)))
        async with asyncio.timeout(PATIENCE_S):
            # What was cancelled has still to end.
            while has_more(left_by(server), before):  # pragma: no branch - as it comes
                await asyncio.to_thread(int)  # pragma: no cover - as it comes

        assert len(server.site.handles) == 1


async def opened_by(server):
    return (await server.sign_in()).partition("=")[2]


def has_more(now, before):
    return any(one > other for one, other in zip(now, before, strict=True))


def left_by(server):
    """Return how many descriptors, tasks, memories, sessions and streams there are."""
    return (
        len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0,
        len(asyncio.all_tasks()),
        len(server.site.handles),
        len(server.site.sessions),
        len(server.app.events._streams),
        len(server.app.events._watchers),
    )
