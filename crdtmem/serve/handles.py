"""The memories of a server: one handle for each project and lane that asks.

A handle has one thread, on which its calls run in order. The longest unused is closed
when there would be too many.
"""

from collections.abc import Callable

from crdtmem.aio import AsyncMemory, Worker
from crdtmem.limits import SERVE_HANDLES_MAX, SERVE_WAITING_MAX
from crdtmem.memory import Memory
from crdtmem.serve.answers import HttpError

__all__ = ["Handles", "Use"]


class _Handle:
    """A memory that is open, or is being opened on its worker."""

    def __init__(self) -> None:
        self.worker = Worker()
        self.memory: AsyncMemory | None = None
        self.users = 0


class Handles:
    """Opens memories as they are asked for, and closes them.

    Args:
        open_memory: Opens the memory of a project for a lane.

    """

    def __init__(self, open_memory: Callable[[str, str], Memory]) -> None:
        self._open = open_memory
        self._handles: dict[tuple[str, str], _Handle] = {}
        self._users = 0

    def __len__(self) -> int:
        return len(self._handles)

    def use(self, project: str, lane: str) -> "Use":
        """Return what gives the memory of a project for a lane, in ``async with``.

        It stays open meanwhile. Entering raises:

        Raises:
            HttpError: ``store-busy``, 503, if too many wait already.
            CrdtmemError: If it cannot be opened.

        """
        return Use(self, project, lane)

    async def taken(self, project: str, lane: str) -> _Handle:
        """Return the handle, now the most recently used one, counted as in use."""
        if self._users >= SERVE_WAITING_MAX:
            raise _too_many(f"{SERVE_WAITING_MAX} calls are under way already")
        self._users += 1
        try:
            return await self._counted(project, lane)
        except BaseException:
            self._users -= 1
            raise

    def give_back(self, handle: _Handle) -> None:
        """Count it as in use no more."""
        handle.users -= 1
        self._users -= 1

    async def opened(self, handle: _Handle, project: str, lane: str) -> AsyncMemory:
        """Return the memory of a handle."""

        def open_once() -> AsyncMemory:
            # On the worker, so that two who ask at once open it once.
            memory = handle.memory
            if memory is None:
                memory = AsyncMemory(self._open(project, lane), handle.worker)
                handle.memory = memory
            return memory

        if handle.memory is not None:
            return handle.memory
        return await handle.worker.run(open_once)

    async def close(self) -> None:
        """Run the calls that wait, and close every memory."""
        while self._handles:
            _, handle = self._handles.popitem()
            await _close(handle)

    async def _counted(self, project: str, lane: str) -> _Handle:
        handle = self._handles.pop((project, lane), None) or _Handle()
        handle.users += 1
        self._handles[project, lane] = handle
        if len(self._handles) > SERVE_HANDLES_MAX:
            try:
                await self._let_one_go(handle)
            except BaseException:
                handle.users -= 1
                raise
        return handle

    async def _let_one_go(self, newest: _Handle) -> None:
        for name, handle in self._handles.items():
            if not handle.users:
                del self._handles[name]
                await _close(handle)
                return
        name = next(reversed(self._handles))
        del self._handles[name]
        newest.worker.stop()
        raise _too_many(f"{SERVE_HANDLES_MAX} lanes are at work already")


class Use:
    """A memory that is in use; see ``Handles.use``."""

    def __init__(self, handles: Handles, project: str, lane: str) -> None:
        self._handles = handles
        self._project = project
        self._lane = lane
        self._handle: _Handle

    async def __aenter__(self) -> AsyncMemory:
        handle = await self._handles.taken(self._project, self._lane)
        try:
            memory = await self._handles.opened(handle, self._project, self._lane)
        except BaseException:
            self._handles.give_back(handle)
            raise
        self._handle = handle
        return memory

    async def __aexit__(self, *_: object) -> None:
        self._handles.give_back(self._handle)


async def _close(handle: _Handle) -> None:
    # Whoever had it opened may have left before it was.
    await handle.worker.run(int)
    if handle.memory is None:
        handle.worker.stop()
    else:
        await handle.memory.close()


def _too_many(why: str) -> HttpError:
    return HttpError(503, "store-busy", why, headers={"Retry-After": "1"})
