"""The same verbs as coroutines.

One worker thread runs the calls in the order in which they were made, so a coroutine
never blocks the event loop for a disk. A call that is cancelled either never started or
commits whole; only its result is lost, and a request id finds it again.
"""

import asyncio
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, ParamSpec, Self, TypeVar

from crdtmem.arguments import checked_wait
from crdtmem.errors import StoreClosedError
from crdtmem.limits import STORE_LOCK_S, WAIT_POLL_S
from crdtmem.memory import Memory
from crdtmem.models import ChangeFeed, Scope
from crdtmem.slot import Slot
from crdtmem.store.connection import Durability

__all__ = ["AsyncMemory", "AsyncSlot", "open"]

P = ParamSpec("P")
T = TypeVar("T")

MEMORY_VERBS = frozenset(
    {
        "audit",
        "backup",
        "compact",
        "configure",
        "context",
        "create",
        "cursor",
        "delete",
        "delete_many",
        "doctor",
        "export",
        "forget_seen",
        "import_",
        "mark_seen",
        "projects",
        "rename",
        "slots",
        "status",
        "unread",
    }
)
"""Verbs that are the same but for ``await``; those with a form of their own follow."""

SLOT_VERBS = frozenset(
    {
        "append",
        "blame",
        "diff",
        "edit",
        "history",
        "history_entry",
        "insert",
        "read",
        "replace",
        "restore",
        "set_meta",
        "undo",
    }
)


async def open(  # noqa: A001 - the public name; nothing here opens files
    path: str | os.PathLike[str] | None = None,
    *,
    lane: str | None = None,
    project: str | os.PathLike[str] | None = None,
    durability: Durability = "full",
    busy_timeout: float = STORE_LOCK_S,
    read_only: bool = False,
    create: bool = True,
    clock: Callable[[], datetime] | None = None,
) -> "AsyncMemory":
    """Open the shared memory; see ``crdtmem.open`` for arguments and errors."""
    from crdtmem import opening  # noqa: PLC0415 - settings are the front ends' business

    worker = Worker()
    try:
        memory = await worker.run(
            opening.open,
            path,
            lane=lane,
            project=project,
            durability=durability,
            busy_timeout=busy_timeout,
            read_only=read_only,
            create=create,
            clock=clock,
        )
    except BaseException:
        worker.stop()
        raise
    return AsyncMemory(memory, worker)


class Worker:
    """The one thread on which a memory's calls run, in order."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="crdtmem")
        self.is_stopped = False

    async def run(self, verb: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a call after those that were made before it."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._pool, partial(verb, *args, **kwargs))

    def stop(self) -> None:
        """Let the thread end when the calls that wait have run."""
        self.is_stopped = True
        self._pool.shutdown(wait=False)


class AsyncSlot:
    """A Slot whose verbs are coroutines: same names, arguments, results and errors.

    Attributes:
        label: Its name.
        scope: Where it is: in the project, or global.

    """

    def __init__(self, slot: Slot, worker: Worker) -> None:
        self.label = slot.label
        self.scope: Scope = slot.scope
        self._slot = slot
        self._worker = worker

    def __getattr__(self, name: str) -> Any:
        if name not in SLOT_VERBS:
            raise AttributeError(f"AsyncSlot has no attribute {name!r}")
        return partial(_call, self._worker, self._slot, name)

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *SLOT_VERBS})


class AsyncMemory:
    """A Memory whose verbs are coroutines: same names, arguments, results and errors.

    Use it in an ``async with`` block, or close it.

    Attributes:
        lane: Who writes.
        project: The project id.
        path: The store's file.

    """

    def __init__(self, memory: Memory, worker: Worker) -> None:
        self.lane = memory.lane
        self.project = memory.project
        self.path: Path = memory.path
        self._memory = memory
        self._worker = worker

    def __getattr__(self, name: str) -> Any:
        if name not in MEMORY_VERBS:
            raise AttributeError(f"AsyncMemory has no attribute {name!r}")
        return partial(_call, self._worker, self._memory, name)

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *MEMORY_VERBS})

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def slot(self, label: str, scope: Scope | None = None) -> AsyncSlot:
        """Return a handle on a slot; see ``Memory.slot``."""
        slot = await _call(self._worker, self._memory, "slot", label, scope)
        return AsyncSlot(slot, self._worker)

    async def changes(
        self, since: str | None = None, *, wait: float = 0.0, **options: Any
    ) -> ChangeFeed:
        """Return the slots that changed after a cursor; see ``Memory.changes``.

        Waits in short calls, so that it never keeps the worker from the others.
        """
        loop = asyncio.get_running_loop()
        until = loop.time() + checked_wait(wait)
        while True:
            feed: ChangeFeed = await _call(
                self._worker, self._memory, "changes", since, **options
            )
            left_s = until - loop.time()
            if feed.changes or feed.reset or left_s <= 0:
                return feed
            await asyncio.sleep(min(WAIT_POLL_S, left_s))

    async def close(self) -> None:
        """Run the calls that wait, then let go of the store. Idempotent."""
        if not self._worker.is_stopped:
            await self._worker.run(self._memory.close)
            self._worker.stop()


async def _call(
    worker: Worker, target: Memory | Slot, name: str, *args: Any, **kwargs: Any
) -> Any:
    if worker.is_stopped:
        path = target.path if isinstance(target, Memory) else target.label
        raise StoreClosedError(path=str(path))
    return await worker.run(getattr(target, name), *args, **kwargs)
