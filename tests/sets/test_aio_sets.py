import asyncio
import inspect
import threading
from typing import Any

import pytest

from crdtmem import CompactionPolicy, Summary, aio
from crdtmem.aio import AsyncBoundMemory, AsyncMemorySet, AsyncSetVerbs
from crdtmem.errors import (
    InvalidArgumentError,
    ItemConflictError,
    OwnerThreadError,
    StoreClosedError,
    SummaryError,
)
from crdtmem.sets.binding import BoundMemory
from crdtmem.sets.memory_set import MemorySet
from crdtmem.sets.of_memory import SetVerbs


@pytest.fixture
def open_async(tmp_path):
    def open_async(lane="a"):
        path = tmp_path / "store" / "store.db"
        return aio.open(path, lane=lane, project="p", durability="normal")

    return open_async


def public(kind):
    return {
        name
        for name, value in vars(kind).items()
        if inspect.isfunction(value) and not name.startswith("_")
    }


def joined(request):
    return [Summary(" | ".join(item.text for item in request.items))]


async def texts(handle):
    return [item.text for item in (await handle.get(order="oldest")).items]


@pytest.mark.parametrize(
    ("twin", "kind", "own"),
    [
        (AsyncSetVerbs, SetVerbs, {"bind"}),
        (AsyncBoundMemory, BoundMemory, {"memory_set"}),
        (AsyncMemorySet, MemorySet, set()),
    ],
)
def test_the_verbs_are_those_of_the_handles(twin, kind, own):
    assert public(twin) == public(kind) - {"to_dict"}
    for name in public(twin):
        ours, theirs = (inspect.signature(vars(each)[name]) for each in (twin, kind))
        given = [(p.name, p.kind, p.default) for p in ours.parameters.values()]
        assert given == [
            (p.name, p.kind, p.default) for p in theirs.parameters.values()
        ]
        assert name in own or ours.return_annotation == theirs.return_annotation
        assert inspect.iscoroutinefunction(vars(twin)[name])


async def test_verbs_give_the_same_results_and_errors(open_async):
    async with await open_async() as memory:
        bound = await memory.bind(partition_key=("job", "k"), observation_id="o")
        handle = await bound.memory_set("facts")
        ids = (await handle.add(["p", "q"])).ids
        await handle.update(ids[0], "p2")

        assert (handle.name, handle.binding) == ("facts", bound.binding)
        assert await texts(handle) == ["p2", "q"]
        assert (await handle.headroom()).rev == 2
        assert len((await handle.history()).entries) == 3
        assert (await handle.as_of(1)).item_count == 2
        assert (await handle.undo(2)).restored == (ids[0],)
        assert (await handle.delete(ids[1])).deleted == 1
        assert [h.item_id for h in (await handle.search("p")).hits] == [ids[0]]
        assert [h.label for h in (await bound.search("p")).hits] == ["facts"]
        assert (await memory.search("p")).hits == ()
        assert (await memory.index()).pending == 0
        assert [s.name for s in await bound.memory_sets()] == ["facts"]
        assert len(await memory.partitions()) == 1
        assert await bound.drain_observations()
        assert await memory.drain_observations(("job", "k"), "o") == []
        assert (await handle.drop()).existed
        assert not await bound.drop_memory_set("facts")
        with pytest.raises(InvalidArgumentError):
            await handle.get(limit=0)
        for wrong in ({"partition_key": None}, {"partition_key": "k", "owner": 7}):
            with pytest.raises(InvalidArgumentError):
                await memory.bind(**wrong)
    calls = [handle.drop(), handle.get(), bound.memory_set("x"), bound.memory_sets()]
    for call in [*calls, bound.drop_memory_set("x"), memory.bind(partition_key="k")]:
        with pytest.raises(StoreClosedError):
            await call


@pytest.mark.requirement("sets-S7")
async def test_sets_are_managed_in_the_thread_of_the_loop(open_async):
    def elsewhere(make):
        try:
            asyncio.run(make())
        except OwnerThreadError as error:
            refused.append(error.code)

    refused: list[str] = []
    async with await open_async() as memory:
        bound = await memory.bind(partition_key="k")
        handle = await bound.memory_set("facts")
        management = [
            lambda: bound.memory_set("facts"),
            bound.memory_sets,
            lambda: bound.drop_memory_set("facts"),
            handle.drop,
        ]
        for make in management:
            await asyncio.to_thread(elsewhere, make)
            await make()

    assert refused == ["not-owner-thread"] * 4


async def test_a_check_of_the_callers_is_called_in_the_loops_thread(open_async):
    called = []
    async with await open_async() as memory:
        bound = await memory.bind(
            partition_key="k", owner=lambda: called.append(threading.current_thread())
        )
        await (await bound.memory_set("facts")).drop()

    assert called == [threading.current_thread()] * 2


async def test_a_summariser_may_be_a_coroutine_or_plain(open_async):
    async def awaited(request):
        await memory.status()
        return joined(request)

    class Model:
        async def __call__(self, request):
            return joined(request)

    threads = []

    def plain(request):
        threads.append(threading.current_thread())
        return joined(request)

    async with await open_async() as memory:
        handle = await (await memory.bind(partition_key="k")).memory_set("facts")
        assert not (await handle.compact(CompactionPolicy(plain, capacity=1))).ran
        summarisers: tuple[Any, ...] = (awaited, Model(), plain)
        for number, summarise in enumerate(summarisers):
            await handle.add([str(number), "more"])
            result = await handle.compact(CompactionPolicy(summarise, capacity=1))
            assert result.item_count == 1
        assert await texts(handle) == ["0 | more | 1 | more | 2 | more"]

    assert threads[0] is not threading.current_thread()


async def test_the_memory_is_free_while_a_summariser_thinks(open_async):
    async def busy(request):
        await handle.add("late")
        with pytest.raises(ItemConflictError):
            await handle.compact(CompactionPolicy(joined, capacity=1))
        return joined(request)

    async with await open_async() as memory:
        handle = await (await memory.bind(partition_key="k")).memory_set("facts")
        await handle.add("early")
        result = await handle.compact(CompactionPolicy(busy, capacity=1))

        assert (result.removed, result.item_count) == (1, 2)


async def test_what_ends_a_compaction_gives_its_claim_back(open_async):
    thinking = asyncio.Event()

    async def broken(request):
        raise OSError("no model")

    async def never(request):
        thinking.set()
        await asyncio.Event().wait()

    async with await open_async() as memory:
        handle = await (await memory.bind(partition_key="k")).memory_set("facts")
        await handle.add("x")
        with pytest.raises(SummaryError, match="OSError: no model"):
            await handle.compact(CompactionPolicy(broken, capacity=1))
        waiting = asyncio.ensure_future(
            handle.compact(CompactionPolicy(never, capacity=1))
        )
        await thinking.wait()
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        result = await handle.compact(CompactionPolicy(joined, capacity=1))
        assert result.removed == 1


async def test_a_memory_that_is_closed_meanwhile_is_said_to_be_closed(open_async):
    async def closing(request):
        await memory.close()
        return joined(request)

    memory = await open_async()
    handle = await (await memory.bind(partition_key="k")).memory_set("facts")
    await handle.add("x")

    with pytest.raises(StoreClosedError):
        await handle.compact(CompactionPolicy(closing, capacity=1))
