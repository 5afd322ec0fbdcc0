"""The Yjs gateway: the WebSocket at which editors open a slot.

A connection reads, and writes one frame at a time; its room does the rest.
"""

import asyncio
import logging
import time
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from crdtmem.aio import AsyncMemory
from crdtmem.doc.text_form import cut_units
from crdtmem.errors import CrdtmemError, OtherIncarnationError, UpdateRejectedError
from crdtmem.limits import (
    AWARENESS_PAUSE_S,
    EDITOR_DOC_IDLE_S,
    EDITOR_DOCS_MAX,
    EDITOR_LANE_UNITS,
    EDITOR_QUEUE_BYTES,
    EDITOR_QUEUE_MAX,
    EDITOR_SEND_S,
    EDITORS_MAX,
    EDITORS_SLOT_MAX,
    SERVE_CHECK_S,
)
from crdtmem.memory import Memory
from crdtmem.models import Scope
from crdtmem.protocol.editors import (
    AwarenessEntry,
    AwarenessOffered,
    AwarenessWanted,
    Close,
    DiffWanted,
    EditorSession,
    Request,
    UpdateOffered,
)
from crdtmem.serve.answers import Ask, HttpError, Principal, Site
from crdtmem.serve.rooms import Room
from crdtmem.store.slots import unfolded_places

if TYPE_CHECKING:
    from starlette.websockets import WebSocket

__all__ = ["Gateway"]

_LOGGER = logging.getLogger(__name__)
_LANE = "yjs"
_PROTOCOL = "crdtmem.yjs"
_BACKLOG_FRAMES = 8
_TOO_MANY = Close(4529, "too-many-editors")
_STOPPING = Close(1012, "server-stops")


class _Connection:
    """One editor: what it sends goes to its room, and what is new goes to it."""

    def __init__(self, socket: "WebSocket", ask: Ask, room: Room) -> None:
        self.session = EditorSession(anchor=room.anchor, now=time.monotonic())
        self.lane = ""
        self.since = _now()
        self.gone = asyncio.Event()
        self._socket = socket
        self._ask = ask
        self._room = room
        self._vector = b""
        self._n = 0
        self._words: dict[int, AwarenessEntry] = {}
        self._waiting = 0
        self._waiting_bytes = 0
        self._bell = asyncio.Event()
        self._went = asyncio.Event()
        self._name_lane()

    def settled(self, update: UpdateOffered, code: str, state_vector: bytes) -> None:
        """Learn what became of an update."""
        self._waiting -= 1
        self._waiting_bytes -= len(update.update)
        more = self.session.accepted(update, code, state_vector, time.monotonic())
        for request in more:
            self._held = asyncio.create_task(self._answer(request))
        self._went.set()
        self._bell.set()

    def hear(self, entries: list[AwarenessEntry]) -> None:
        """Learn what others tell of themselves; only the latest of each is sent."""
        if self.session.is_live:
            self._words.update({entry.client: entry for entry in entries})
            self._bell.set()

    def end(self, close: Close) -> None:
        """End the connection."""
        self.session.closing = self.session.closing or close
        self._bell.set()

    def ring(self) -> None:
        """Learn that there are new rows."""
        self._bell.set()

    def is_welcome(self) -> bool:
        """Tell whether it still would be let in."""
        return self._ask.site.is_welcome(self._ask.principal)

    async def serve(self) -> None:
        """Read and write until the connection ends."""
        tasks = {
            asyncio.create_task(self._read()),
            asyncio.create_task(self._write()),
        }
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            for result in await asyncio.gather(*tasks, return_exceptions=True):
                if isinstance(result, Exception):
                    _LOGGER.error("an editor's connection failed", exc_info=result)

    async def _read(self) -> None:
        while self.session.closing is None:
            message = await self._socket.receive()
            if message["type"] == "websocket.disconnect":
                return
            frame = message.get("bytes")
            if frame is None:
                self.session.receive_text()
            else:
                await self._take(self.session.receive(frame, time.monotonic()))
            self._bell.set()
            await self._let_others()
        # What came before the bad message counts; the writer closes.
        await asyncio.Event().wait()

    async def _take(self, requests: Sequence[Request]) -> None:
        for request in requests:
            match request:
                case DiffWanted():
                    await self._answer(request)
                case UpdateOffered():
                    self._waiting += 1
                    self._waiting_bytes += len(request.update)
                    self._room.offer(self, request, may_write=self._ask.may_write)
                case AwarenessWanted():
                    self._words.update({e.client: e for e in self._room.words()})
                case _:
                    self._hear_own(request)

    def _hear_own(self, request: AwarenessOffered) -> None:
        now = time.monotonic()
        news = self._room.awareness.hear(self, request.entries, now)
        self._room.tell(news, by=self)
        self._name_lane()

    def _name_lane(self) -> None:
        name = self._room.awareness.name_of(self)
        self.lane = _lane_of(self._ask.principal, name)

    async def _answer(self, request: DiffWanted) -> None:
        self._vector = request.state_vector
        await self._put_diff()
        self._words.update({e.client: e for e in self._room.words()})
        self._bell.set()

    async def _put_diff(self) -> None:
        try:
            self._n, update = await self._room.diff(self._vector)
        except CrdtmemError as exc:
            self.end(_close_for(exc))
        else:
            self.session.diff_ready(update)

    async def _let_others(self) -> None:
        """Read no more while a lot of what was read is not done."""
        while self.session.closing is None and (
            self._waiting >= EDITOR_QUEUE_MAX
            or self._waiting_bytes >= EDITOR_QUEUE_BYTES
            or self.session.backlog > _BACKLOG_FRAMES
        ):
            self._went.clear()
            await self._went.wait()

    async def _write(self) -> None:
        # Who has a socket has loaded this; a server that starts has none.
        from starlette.websockets import (  # noqa: PLC0415 - see above
            WebSocketDisconnect,
        )

        while True:
            await self._bell_or_tick()
            if self.session.is_live:
                await self._put_rows()
            if self._words:
                words, self._words = self._words, {}
                self.session.tell(words.values())
            for frame in self.session.data_to_send():
                try:
                    async with asyncio.timeout(EDITOR_SEND_S):
                        await self._socket.send_bytes(frame)
                except TimeoutError:
                    self.end(Close(4508, "too-slow"))
                    break
                except WebSocketDisconnect:
                    return
            self._went.set()
            if self.session.closing is not None:
                with suppress(TimeoutError, RuntimeError):
                    async with asyncio.timeout(1.0):
                        await self._socket.close(*self.session.closing)
                return

    async def _bell_or_tick(self) -> None:
        with suppress(TimeoutError):
            pause_s = AWARENESS_PAUSE_S if self.session.has_to_tick else None
            async with asyncio.timeout(pause_s):
                await self._bell.wait()
        self._bell.clear()
        await self._take(self.session.tick(time.monotonic()))

    async def _put_rows(self) -> None:
        rows = self._room.rows_after(self._n)
        if rows is None:
            await self._put_diff()
            return
        for n, update in rows:
            self.session.publish(update)
            self._n = n


class Gateway:
    """All rooms of the server.

    Args:
        site: The server.

    """

    def __init__(self, site: Site) -> None:
        self._site = site
        self._rooms: dict[tuple[str, str], Room] = {}
        self._memories: dict[str, tuple[AsyncExitStack, AsyncMemory]] = {}
        self._opening = asyncio.Lock()
        self._connections: set[_Connection] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        site.editors_of = self.editors_of
        site.editors_in = self.editors_in

    def begin(self) -> None:
        """Start to look after rooms that nobody uses, and fold what was left."""
        for work in (self._drop_idle(), self._fold_left()):
            self._tasks.add(asyncio.create_task(work))

    def editors_of(self, namespace: str, label: str) -> tuple[str, ...]:
        """Return who has a slot open in an editor."""
        room = self._rooms.get((namespace, label))
        return () if room is None else tuple(sorted(m.lane for m in room.members))

    def editors_in(self, namespace: str) -> Sequence[Mapping[str, object]]:
        """Return the slots of a namespace that are open in editors; see Site."""
        found = []
        for (name, label), room in sorted(self._rooms.items()):
            if name != namespace:
                continue
            members = sorted(room.members, key=lambda member: member.since)
            shown: dict[str, object] = {
                "label": label,
                "scope": _scope_of(namespace),
                "editors": [
                    {"lane": each.lane, "since": each.since} for each in members
                ],
                "unfolded": room.unfolded,
            }
            found.append(shown | ({"blocked": room.blocked} if room.blocked else {}))
        return found

    async def serve(
        self, socket: "WebSocket", ask: Ask, namespace: str, label: str
    ) -> None:
        """Serve an editor until its connection ends."""
        offered = socket.scope.get("subprotocols", [])
        await socket.accept(_PROTOCOL if _PROTOCOL in offered else None)
        try:
            room = await self._room(namespace, label)
        except CrdtmemError as exc:
            await _refuse(socket, _close_for(exc))
            return
        if (
            len(room.members) >= EDITORS_SLOT_MAX
            or len(self._connections) >= EDITORS_MAX
        ):
            await _refuse(socket, _TOO_MANY)
            return
        connection = _Connection(socket, ask, room)
        room.members.add(connection)
        self._connections.add(connection)
        try:
            connection.session.begin(await room.state_vector())
            connection.ring()
            await connection.serve()
        except CrdtmemError as exc:
            await _refuse(socket, _close_for(exc))
        finally:
            self._connections.discard(connection)
            connection.gone.set()
            room.leave(connection)

    async def drain(self) -> None:
        """Fold everything, and end every connection."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._site.commits.leave(self._wake)
        rooms = list(self._rooms.values())
        await asyncio.gather(*(room.close() for room in rooms))
        for connection in list(self._connections):
            connection.end(_STOPPING)
        await asyncio.gather(*(each.gone.wait() for each in self._connections))
        self._rooms.clear()
        await self._leave_memories()

    async def _room(self, namespace: str, label: str) -> Room:
        if self._site.is_stopping:
            raise HttpError(503, "server-stops", "the server stops")
        if self._site.read_only:
            raise HttpError(403, "store-read-only", "this server only shows the store")
        async with self._opening:
            room = self._rooms.get((namespace, label))
            if room is not None and not room.is_over:
                return room
            if len(self._rooms) >= EDITOR_DOCS_MAX:
                raise HttpError(503, "too-many-editors", "too many slots are open")
            memory = await self._memory(self._project_of(namespace))
            scope = _scope_of(namespace)
            editing = await memory.call(lambda one: one.editing(label, scope))
            room = Room(memory, editing)
            await room.begin()
            self._rooms[namespace, label] = room
            self._site.commits.join(self._wake)
            return room

    def _project_of(self, namespace: str) -> str:
        return self._site.start_project if namespace == "global" else namespace

    async def _memory(self, project: str) -> AsyncMemory:
        if project not in self._memories:
            stack = AsyncExitStack()
            use = self._site.handles.use(project, _LANE)
            self._memories[project] = stack, await stack.enter_async_context(use)
        return self._memories[project][1]

    async def _leave_memories(self) -> None:
        """Let the memories go in which no slot is open."""
        async with self._opening:
            used = {self._project_of(namespace) for namespace, _ in self._rooms}
            for project in self._memories.keys() - used:
                stack, _ = self._memories.pop(project)
                await stack.aclose()

    def _wake(self) -> None:
        for room in self._rooms.values():
            room.wake()

    async def _drop_idle(self) -> None:
        while True:
            await asyncio.sleep(min(SERVE_CHECK_S, EDITOR_DOC_IDLE_S))
            now = time.monotonic()
            for place, room in list(self._rooms.items()):
                is_idle = room.idle_s + EDITOR_DOC_IDLE_S < now or room.is_over
                if not room.members and is_idle:
                    del self._rooms[place]
                    await room.close()
                    await self._leave_memories()
            if not self._rooms:
                self._site.commits.leave(self._wake)

    async def _fold_left(self) -> None:
        """Fold what processes that were killed have left."""
        idle_s = 0.0
        while not self._site.read_only:
            with suppress(CrdtmemError):
                for place in await self._left(idle_s):
                    # A slot that cannot be written keeps what was typed.
                    with suppress(CrdtmemError):
                        await self._fold_one(*place)
            await self._leave_memories()
            await asyncio.sleep(EDITOR_DOC_IDLE_S)
            idle_s = EDITOR_DOC_IDLE_S

    async def _left(self, idle_s: float) -> list[tuple[str, str]]:
        def unfolded(memory: Memory) -> list[tuple[str, str]]:
            before_ms = memory.store.clock_ms() - int(idle_s * 1000)
            with memory.store.reading() as connection:
                return unfolded_places(connection, before_ms)

        async with self._opening:
            memory = await self._memory(self._site.start_project)
            found = await memory.call(unfolded)
        return [place for place in found if self._is_left(*place)]

    def _is_left(self, namespace: str, label: str) -> bool:
        is_shown = namespace == "global" or self._site.shows(namespace)
        return is_shown and (namespace, label) not in self._rooms

    async def _fold_one(self, namespace: str, label: str) -> None:
        scope = _scope_of(namespace)
        async with self._opening:
            memory = await self._memory(self._project_of(namespace))
            await memory.call(lambda one: one.editing(label, scope).fold())


async def _refuse(socket: "WebSocket", close: Close) -> None:
    with suppress(RuntimeError):
        await socket.close(*close)


def _close_for(error: CrdtmemError) -> Close:
    if isinstance(error, HttpError):
        return {
            "server-stops": _STOPPING,
            "store-read-only": Close(4403, error.code),
            "too-many-editors": _TOO_MANY,
        }.get(error.code, Close(1013, error.code))
    if isinstance(error, UpdateRejectedError):
        return Close(4400, error.code)
    if isinstance(error, OtherIncarnationError):
        return Close(4409, error.code)
    is_nothing = error.http_status in (400, 404)
    return Close(4404 if is_nothing else 1013, error.code)


def _lane_of(principal: Principal, told: str) -> str:
    if principal.token_id is not None:
        return principal.lane
    name = "".join(c for c in principal.name or told if c.isprintable())
    return cut_units(f"yjs:{name.strip() or 'editor'}", EDITOR_LANE_UNITS)


def _scope_of(namespace: str) -> Scope:
    return "global" if namespace == "global" else "project"


def _now() -> str:
    moment = datetime.now(UTC).isoformat(timespec="milliseconds")
    return moment.replace("+00:00", "Z")
