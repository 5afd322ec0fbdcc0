"""What happens in the store, told as it happens: server-sent events.

One watcher for each project, while anybody listens, looks after each commit. A stream
asks for what changed after its own cursor when its connection takes more, so nothing
queues: changes of one slot that a slow reader has missed are one.
"""

import asyncio
import json
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing, asynccontextmanager, suppress
from typing import TYPE_CHECKING

from crdtmem.errors import CrdtmemError
from crdtmem.limits import (
    CHANGES_MAX,
    SERVE_CHECK_S,
    SERVE_STATES_S,
    SERVE_STREAM_COMMENT_S,
    SERVE_STREAMS_MAX,
    SERVE_SYNC_STATUS_S,
)
from crdtmem.serve.answers import Ask, Site
from crdtmem.status import sync_status

if TYPE_CHECKING:
    from crdtmem.models import ChangeFeed

__all__ = ["Events", "Watcher"]

_LOGGER = logging.getLogger(__name__)
_LANE = "serve"
_PASSES_ROWS = 20
_LONG_AGO = -1
_FEEDS_MAX = 16

States = Mapping[str, tuple[str, Mapping[str, object]]]
"""What is no change of a slot, by a key of its own: the event's name, its data."""


class Watcher:
    """Looks at the store for those who listen to one project.

    Attributes:
        seq: Rises with everything that may be worth telling.
        states: The newest of what is no change of a slot, by a key of its own: when it
            came to be, the event's name, its data.

    """

    def __init__(self, site: Site, project: str) -> None:
        self._site = site
        self._project = project
        self._bell = asyncio.Event()
        self._feeds: dict[str | None, asyncio.Task[ChangeFeed]] = {}
        self._has_commit = asyncio.Event()
        self._is_begun = False
        self._sync_s = 0.0
        self.seq = 0
        self.states: dict[str, tuple[int, str, Mapping[str, object]]] = {}
        self.listeners = 0

    def ring(self) -> None:
        """Have everybody who listens look."""
        self.seq += 1
        self._feeds.clear()
        bell, self._bell = self._bell, asyncio.Event()
        bell.set()

    async def wait(self, timeout_s: float) -> None:
        """Wait until it rings, or for so long."""
        bell = asyncio.ensure_future(self._bell.wait())
        try:
            await asyncio.wait({bell}, timeout=timeout_s)
        finally:
            bell.cancel()

    async def feed(self, cursor: str | None) -> "ChangeFeed":
        """Return what changed after a cursor; those who stand there ask once."""
        task = self._feeds.get(cursor)
        if task is None or (task.done() and task.exception() is not None):
            task = asyncio.create_task(self._read(cursor))
            if len(self._feeds) >= _FEEDS_MAX:
                # Somebody reads all there ever was, and nobody else stands there.
                self._feeds.clear()
            self._feeds[cursor] = task
        return await asyncio.shield(task)

    async def run(self) -> None:
        """Look, until cancelled."""
        commits = self._site.commits
        commits.join(self._has_commit.set)
        try:
            while True:
                with suppress(TimeoutError):
                    async with asyncio.timeout(SERVE_STATES_S):
                        await self._has_commit.wait()
                has_commit = self._has_commit.is_set()
                self._has_commit.clear()
                try:
                    await self._look(has_commit=has_commit)
                except CrdtmemError as exc:
                    _LOGGER.warning("the store cannot be watched: %s", exc.code)
                    self._has_commit.set()
                    await asyncio.sleep(SERVE_CHECK_S)
        finally:
            commits.leave(self._has_commit.set)

    async def _read(self, cursor: str | None) -> "ChangeFeed":
        async with self._site.handles.use(self._project, _LANE) as memory:
            return await memory.changes(cursor, limit=CHANGES_MAX)

    async def _look(self, *, has_commit: bool) -> None:
        told = await self._told_sync()
        if has_commit:
            async with self._site.handles.use(self._project, _LANE) as memory:
                passes = await memory.condense_passes(limit=_PASSES_ROWS)
            found = {f"condense {p.id}": ("condense", p.to_dict()) for p in passes}
            # Those that are there when the first one listens are no news to it.
            self._note("condense", found, self.seq + 1 if self._is_begun else _LONG_AGO)
            self._is_begun = True
        is_told = self._note("sync", told, self.seq + 1) if told else False
        is_told |= self._note("editors", self._told_editors(), self.seq + 1)
        is_told |= self._note("presence", self._told_presence(), self.seq + 1)
        if has_commit or is_told:
            self.ring()

    async def _told_sync(self) -> States:
        now_s = asyncio.get_running_loop().time()
        if now_s - self._sync_s < SERVE_SYNC_STATUS_S:
            return {}
        self._sync_s = now_s
        async with self._site.handles.use(self._project, _LANE) as memory:
            status = await memory.call(lambda m: sync_status(m.store))
        links = [x.to_dict() for x in status.links if self._is_seen(x.local)]
        return {"sync": ("sync", {"links": links})} if links else {}

    def _is_seen(self, namespace: str) -> bool:
        return namespace in (self._project, "global")

    def _told_editors(self) -> States:
        return {
            f"editors {namespace} {state['label']}": ("editors", state)
            for namespace in (self._project, "global")
            for state in self._site.editors_in(namespace)
        }

    def _told_presence(self) -> States:
        lanes = [
            lane
            for namespace in (self._project, "global")
            for lane in self._site.presence_in(namespace)
        ]
        # That nobody is there any more is told, too.
        is_news = lanes or "presence" in self.states
        return {"presence": ("presence", {"lanes": lanes})} if is_news else {}

    def _note(self, kind: str, told: States, seq: int) -> bool:
        """Keep what is new of a kind, for the ring of a number; tell if any is."""
        for key in [k for k in self.states if k.startswith(kind) and k not in told]:
            del self.states[key]
        news = {
            key: (seq, name, data)
            for key, (name, data) in told.items()
            if key not in self.states or self.states[key][2] != data
        }
        self.states |= news
        return bool(news)


class Events:
    """The streams of a server.

    Args:
        site: The server.

    """

    def __init__(self, site: Site) -> None:
        self._site = site
        self._watchers: dict[str, tuple[Watcher, asyncio.Task[None]]] = {}
        self._streams: dict[str, list[object]] = {}

    @asynccontextmanager
    async def listening(self, project: str) -> AsyncIterator[Watcher]:
        """Give the watcher of a project; it looks as long as anybody listens."""
        known = self._watchers.get(project)
        if known is None:
            made = Watcher(self._site, project)
            known = made, asyncio.create_task(made.run())
            self._watchers[project] = known
        watcher, task = known
        watcher.listeners += 1
        try:
            yield watcher
        finally:
            watcher.listeners -= 1
            if not watcher.listeners:
                del self._watchers[project]
                task.cancel()

    def wake(self) -> None:
        """Have every stream look at once whether it is to end."""
        for watcher, _ in self._watchers.values():
            watcher.ring()

    async def stream(
        self, ask: Ask, project: str, since: str | None
    ) -> AsyncGenerator[bytes, None]:
        """Yield the events of a project from a cursor on, or from now on.

        Args:
            ask: Who listens.
            project: What happens there, and in the global scope.
            since: Where a former stream ended.

        """
        owner = ask.principal.session_id or ask.principal.token_id or ""
        mark = object()
        mine = self._streams.setdefault(owner, [])
        mine.append(mark)
        if len(mine) > SERVE_STREAMS_MAX:
            # The oldest yields: browsers open few connections to a host.
            mine.pop(0)
            self.wake()
        try:
            async with (
                self.listening(project) as watcher,
                aclosing(self._told(watcher, mine, mark, since)) as chunks,
            ):
                async for chunk in chunks:
                    yield chunk
        finally:
            if mark in mine:
                mine.remove(mark)
            if not mine and self._streams.get(owner) is mine:
                del self._streams[owner]

    async def _told(
        self, watcher: Watcher, mine: list[object], mark: object, since: str | None
    ) -> AsyncGenerator[bytes, None]:
        loop = asyncio.get_running_loop()
        cursor, seen = since, _LONG_AGO
        if cursor is None:
            cursor = (await watcher.feed(None)).cursor
        yield b"retry: 1000\n" + _event("cursor", {"cursor": cursor}, cursor)
        said_s, is_behind = loop.time(), False
        while not self._site.is_stopping and mark in mine:
            if watcher.seq == seen and not is_behind:
                await watcher.wait(SERVE_STREAM_COMMENT_S)
                if loop.time() - said_s >= SERVE_STREAM_COMMENT_S:
                    said_s = loop.time()
                    yield b":\n\n"
                continue
            before, seen = seen, watcher.seq
            feed = await watcher.feed(cursor)
            chunk = _told_states(watcher, before) + _told_feed(feed)
            cursor = feed.cursor
            is_behind = feed.more
            if chunk:
                said_s = loop.time()
                yield chunk
        yield _event("bye" if self._site.is_stopping else "poll", {})


def _told_states(watcher: Watcher, before: int) -> bytes:
    return b"".join(
        _event(name, data)
        for seq, name, data in list(watcher.states.values())
        if seq > before
    )


def _told_feed(feed: "ChangeFeed") -> bytes:
    """Return the changes; only the last has the cursor, which stands for all."""
    if feed.reset:
        return _event("reset", {"cursor": feed.cursor}, feed.cursor)
    last = len(feed.changes) - 1
    return b"".join(
        _event("change", change.to_dict(), feed.cursor if index == last else "")
        for index, change in enumerate(feed.changes)
    )


def _event(name: str, data: Mapping[str, object], cursor: str = "") -> bytes:
    # JSON has no line ends of its own, so the data is one line.
    text = json.dumps(data, separators=(",", ":"))
    id_line = f"id: {cursor}\n" if cursor else ""
    return f"event: {name}\n{id_line}data: {text}\n\n".encode()
