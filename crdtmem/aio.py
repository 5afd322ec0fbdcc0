"""The same verbs as coroutines.

One worker thread runs the calls in the order in which they were made, so a coroutine
never blocks the event loop for a disk. A call that is cancelled either never started or
commits whole; only its result is lost, and a request id finds it again.
"""

import asyncio
import functools
import inspect
import os
from collections.abc import Callable, Collection, Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Self, TypeVar

from crdtmem.arguments import checked_bool, checked_wait
from crdtmem.errors import StoreClosedError
from crdtmem.limits import CHANGES_DEFAULT_MAX, SETS_ROWS, STORE_LOCK_S, WAIT_POLL_S
from crdtmem.memory import Memory
from crdtmem.models import UNSET, ChangeFeed, Scope, Unset
from crdtmem.sets.binding import BoundMemory, OwnerCheck, no_owner_check, owner_thread
from crdtmem.sets.memory_set import MemorySet
from crdtmem.sets.of_memory import SetVerbs
from crdtmem.sets.values import (
    CompactionPolicy,
    CompactionRequest,
    CompactResult,
    DropResult,
    ObservedKind,
    SetInfo,
)
from crdtmem.slot import Slot
from crdtmem.store.connection import Durability

if TYPE_CHECKING:
    from crdtmem.condense.settings import CondenseConfig
    from crdtmem.condense.values import CondenseResult, Summarise
    from crdtmem.partition import PartitionKey

__all__ = [
    "AsyncBoundMemory",
    "AsyncMemory",
    "AsyncMemorySet",
    "AsyncSetVerbs",
    "AsyncSlot",
    "Twin",
    "Worker",
    "open",
    "verb",
]

_P = ParamSpec("_P")
_T = TypeVar("_T")


def verb(
    sync: Callable[Concatenate[Any, _P], _T],
) -> Callable[Concatenate[Any, _P], Coroutine[Any, Any, _T]]:
    """Make a verb of Memory or Slot a coroutine function of its twin.

    Name, arguments, types and documentation are those of the verb.
    """

    @functools.wraps(sync)
    async def call(self: Any, /, *args: _P.args, **kwargs: _P.kwargs) -> _T:
        result: _T = await self.call(sync, *args, **kwargs)
        return result

    return call


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
        self.path = Path()
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="crdtmem")
        self.is_stopped = False

    async def run(
        self, verb: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs
    ) -> _T:
        """Run a call after those that were made before it."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(
            self._pool, functools.partial(verb, *args, **kwargs)
        )

    def stop(self) -> None:
        """Let the thread end when the calls that wait have run."""
        self.is_stopped = True
        self._pool.shutdown(wait=False)


class Twin:
    """What all asynchronous handles have in common."""

    def __init__(self, target: object, worker: Worker) -> None:
        self._target = target
        self._worker = worker

    async def call(
        self,
        sync: Callable[Concatenate[Any, _P], _T],
        *args: _P.args,
        **kwargs: _P.kwargs,
    ) -> _T:
        """Run a verb of the handle beneath, after the calls that were made before.

        Raises:
            StoreClosedError: If the memory is closed.

        """
        self.require_open()
        return await self._worker.run(sync, self._target, *args, **kwargs)

    def require_open(self) -> None:
        """Refuse a call of a closed memory.

        Raises:
            StoreClosedError: If the memory is closed.

        """
        if self._worker.is_stopped:
            raise StoreClosedError(path=str(self._worker.path))


class AsyncSlot(Twin):
    """A Slot whose verbs are coroutines: same names, arguments, results and errors.

    Attributes:
        label: Its name.
        scope: Where it is: in the project, or global.

    """

    def __init__(self, slot: Slot, worker: Worker) -> None:
        super().__init__(slot, worker)
        self.label = slot.label
        self.scope: Scope = slot.scope

    abort_condense = verb(Slot.abort_condense)
    append = verb(Slot.append)
    begin_condense = verb(Slot.begin_condense)
    blame = verb(Slot.blame)
    commit_condense = verb(Slot.commit_condense)
    condense_text = verb(Slot.condense_text)
    diff = verb(Slot.diff)
    edit = verb(Slot.edit)
    history = verb(Slot.history)
    history_entry = verb(Slot.history_entry)
    insert = verb(Slot.insert)
    read = verb(Slot.read)
    replace = verb(Slot.replace)
    restore = verb(Slot.restore)
    set_meta = verb(Slot.set_meta)
    undo = verb(Slot.undo)

    async def condense(
        self,
        summarise: "Summarise",
        *,
        keep_sections: int | Unset = UNSET,
        keep_pct: int | Unset = UNSET,
        timeout: float | None = None,  # noqa: ASYNC109 - the summariser's, as in Slot
        force: bool = False,
        dry_run: bool = False,
        config: "CondenseConfig | None" = None,
    ) -> "CondenseResult":
        """Have the old part of the text summarised; see ``Slot.condense``.

        The summariser may be a coroutine function, which runs on this loop, or a plain
        one, which runs in a thread of its own. Cancelled while it thinks, the pass is
        aborted with the reason ``cancelled``.
        """
        # Slow to load, and only needed here.
        from crdtmem.condense.awaiting import run_pass_awaited  # noqa: PLC0415 - see above
        from crdtmem.condense.running import PassRun  # noqa: PLC0415 - see above

        def prepared(slot: Slot) -> PassRun:
            return PassRun(
                slot._session,
                slot._place,
                summarise,
                keep_sections=keep_sections,
                keep_pct=keep_pct,
                timeout=timeout,
                force=force,
                config=config,
            )

        run = await self.call(prepared)
        if checked_bool(dry_run, "dry_run"):
            return await self.call(lambda _: run.preview())

        async def do(step: Callable[[], _T]) -> _T:
            return await self.call(lambda _: step())

        return await run_pass_awaited(run, do)


class AsyncMemorySet(Twin):
    """A MemorySet whose verbs are coroutines: same arguments, results and errors.

    Attributes:
        name: The set's name.
        binding: Where it works.

    """

    def __init__(self, target: MemorySet, worker: Worker, owner: OwnerCheck) -> None:
        super().__init__(target, worker)
        self.name = target.name
        self.binding = target.binding
        self._owner = owner

    add = verb(MemorySet.add)
    as_of = verb(MemorySet.as_of)
    delete = verb(MemorySet.delete)
    get = verb(MemorySet.get)
    headroom = verb(MemorySet.headroom)
    history = verb(MemorySet.history)
    search = verb(MemorySet.search)
    undo = verb(MemorySet.undo)
    update = verb(MemorySet.update)

    async def drop(self, *, request_id: str | Unset = UNSET) -> DropResult:
        """Delete the set with all its items; see ``MemorySet.drop``."""
        self.require_open()
        self._owner()
        return await self.call(MemorySet.drop, request_id=request_id)

    async def compact(
        self, policy: CompactionPolicy, *, request_id: str | Unset = UNSET
    ) -> CompactResult:
        """Have items summarised; see ``MemorySet.compact``.

        The summariser may be a coroutine function, which runs on this loop, or a plain
        one, which runs in a thread of its own.
        """
        from crdtmem.sets.compacting import Compaction  # noqa: PLC0415 - slow, for few

        def prepared(target: MemorySet) -> Compaction:
            return Compaction(target._ready(), policy, request_id)

        run = await self.call(prepared)
        try:
            begun = await self.call(lambda _: run.begin())
            if isinstance(begun, CompactResult):
                return begun
            reply = await _asked(policy.summarise, begun)
            return await self.call(lambda _: run.commit(reply))
        finally:
            # Behind a begin that was cancelled and runs on: the calls are in order.
            with suppress(StoreClosedError):
                await asyncio.shield(self.call(lambda _: run.end()))


class AsyncBoundMemory(Twin):
    """A BoundMemory whose verbs are coroutines: same arguments, results and errors.

    Sets are managed in the event loop's thread, which is the owner by default.

    Attributes:
        binding: Where it works.

    """

    def __init__(self, target: BoundMemory, worker: Worker, owner: OwnerCheck) -> None:
        super().__init__(target, worker)
        self.binding = target.binding
        self._owner = owner

    drain_observations = verb(BoundMemory.drain_observations)
    search = verb(BoundMemory.search)

    async def memory_set(self, name: str) -> AsyncMemorySet:
        """Return a handle on a set; see ``BoundMemory.memory_set``."""
        self.require_open()
        self._owner()
        made = await self.call(BoundMemory.memory_set, name)
        return AsyncMemorySet(made, self._worker, self._owner)

    async def memory_sets(self, *, limit: int = SETS_ROWS) -> list[SetInfo]:
        """Return the sets of this key; see ``BoundMemory.memory_sets``."""
        self.require_open()
        self._owner()
        return await self.call(BoundMemory.memory_sets, limit=limit)

    async def drop_memory_set(self, name: str) -> bool:
        """Delete a set with all its items; see ``BoundMemory.drop_memory_set``."""
        self.require_open()
        self._owner()
        return await self.call(BoundMemory.drop_memory_set, name)


class AsyncSetVerbs(Twin):
    """The verbs of an AsyncMemory that lead to memory sets."""

    drain_observations = verb(SetVerbs.drain_observations)
    index = verb(SetVerbs.index)
    partitions = verb(SetVerbs.partitions)
    search = verb(SetVerbs.search)

    async def bind(
        self,
        *,
        partition_key: "PartitionKey",
        observation_id: str = "",
        observation_suppressed: bool = False,
        scope: Scope = "project",
        observe: Collection[ObservedKind] = ("update", "get", "search"),
        owner: OwnerCheck | None = None,
    ) -> AsyncBoundMemory:
        """Return the memory sets of one partition key; see ``Memory.bind``.

        Their owner is this loop's thread, unless another check is given; it is called
        there.
        """
        made = await self.call(
            SetVerbs.bind,
            partition_key=partition_key,
            observation_id=observation_id,
            observation_suppressed=observation_suppressed,
            scope=scope,
            observe=observe,
            owner=owner,
        )
        # Checked here, in the loop's thread: on the worker it would be another one.
        made._owner = no_owner_check
        return AsyncBoundMemory(made, self._worker, owner or owner_thread())


class AsyncMemory(AsyncSetVerbs):
    """A Memory whose verbs are coroutines: same names, arguments, results and errors.

    Use it in an ``async with`` block, or close it.

    Attributes:
        lane: Who writes.
        project: The project id.
        path: The store's file.

    """

    def __init__(self, memory: Memory, worker: Worker) -> None:
        super().__init__(memory, worker)
        worker.path = memory.path
        self.lane = memory.lane
        self.project = memory.project
        self.path: Path = memory.path

    audit = verb(Memory.audit)
    backup = verb(Memory.backup)
    compact = verb(Memory.compact)
    condense_archive = verb(Memory.condense_archive)
    condense_due = verb(Memory.condense_due)
    condense_passes = verb(Memory.condense_passes)
    configure = verb(Memory.configure)
    context = verb(Memory.context)
    create = verb(Memory.create)
    cursor = verb(Memory.cursor)
    delete = verb(Memory.delete)
    delete_many = verb(Memory.delete_many)
    doctor = verb(Memory.doctor)
    export = verb(Memory.export)
    forget_seen = verb(Memory.forget_seen)
    import_ = verb(Memory.import_)
    mark_seen = verb(Memory.mark_seen)
    projects = verb(Memory.projects)
    rename = verb(Memory.rename)
    slots = verb(Memory.slots)
    status = verb(Memory.status)
    unread = verb(Memory.unread)

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
        return AsyncSlot(await self.call(Memory.slot, label, scope), self._worker)

    async def changes(
        self,
        since: str | None = None,
        *,
        limit: int = CHANGES_DEFAULT_MAX,
        scope: Scope | None = None,
        exclude_lane: str | None = None,
        wait: float = 0.0,
    ) -> ChangeFeed:
        """Return the slots that changed after a cursor; see ``Memory.changes``.

        Waits in short calls, so that it never keeps the worker from the others.
        """
        loop = asyncio.get_running_loop()
        until = loop.time() + checked_wait(wait)
        while True:
            feed = await self.call(
                Memory.changes,
                since,
                limit=limit,
                scope=scope,
                exclude_lane=exclude_lane,
            )
            left_s = until - loop.time()
            if feed.changes or feed.reset or left_s <= 0:
                return feed
            await asyncio.sleep(min(WAIT_POLL_S, left_s))

    async def close(self) -> None:
        """Run the calls that wait, then let go of the store. Idempotent."""
        if not self._worker.is_stopped:
            await self.call(Memory.close)
            self._worker.stop()


async def _asked(summarise: Any, request: CompactionRequest) -> object:
    """Return what a summariser returns; it never blocks the loop.

    Raises:
        SummaryError: ``summariser-failed``.

    """
    from crdtmem.sets.compacting import summariser_failed  # noqa: PLC0415 - as above

    try:
        if inspect.iscoroutinefunction(summarise):
            reply = summarise(request)
        else:
            reply = await asyncio.to_thread(summarise, request)
        return await reply if inspect.isawaitable(reply) else reply
    except Exception as exc:
        raise summariser_failed(exc) from exc
