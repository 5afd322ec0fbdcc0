import asyncio
import inspect
import threading
from datetime import UTC, datetime

import pytest

import crdtmem
from crdtmem import aio
from crdtmem.aio import AsyncMemory, AsyncSlot
from crdtmem.memory import Memory
from crdtmem.slot import Slot


@pytest.fixture
def path(tmp_path):
    return tmp_path / "store" / "store.db"


@pytest.fixture
def open_async(path):
    def open_async(lane="a", **options):
        options = {"project": "p", "durability": "normal"} | options
        return aio.open(path, lane=lane, **options)

    return open_async


def public(kind):
    return {
        name
        for name, value in vars(kind).items()
        if inspect.isfunction(value) and not name.startswith("_")
    }


def held_up(memory):
    """Keep the worker busy until the event is set; return it."""
    gate = threading.Event()
    future = asyncio.ensure_future(memory._worker.run(gate.wait))
    return gate, future


def test_opening_takes_the_same_arguments():
    ours, theirs = (
        [(p.name, p.kind, p.default) for p in inspect.signature(f).parameters.values()]
        for f in (aio.open, crdtmem.open)
    )

    assert ours == theirs


@pytest.mark.parametrize(("twin", "kind"), [(AsyncMemory, Memory), (AsyncSlot, Slot)])
def test_the_verbs_are_those_of_the_handles(twin, kind):
    assert public(twin) == public(kind)
    for name in public(kind) - {"slot"}:
        ours, theirs = (inspect.signature(vars(each)[name]) for each in (twin, kind))

        assert ours.parameters == theirs.parameters


async def next_turn():
    """Let every task that is ready run until it waits."""
    turn = asyncio.get_running_loop().create_future()
    asyncio.get_running_loop().call_soon(turn.set_result, None)
    await turn


async def test_every_verb_is_a_coroutine_function(open_async):
    async with await open_async() as memory:
        slot = await memory.slot("persona")

        for target, names in ((memory, public(Memory)), (slot, public(Slot))):
            assert names <= set(dir(target))
            for name in names:
                assert inspect.iscoroutinefunction(getattr(target, name))


async def test_there_is_nothing_else(open_async):
    async with await open_async() as memory:
        slot = await memory.slot("persona")
        for target in (memory, slot):
            with pytest.raises(AttributeError, match="has no attribute 'novelty'"):
                _ = target.novelty


async def test_verbs_give_the_same_results_and_errors(open_async, path):
    async with await open_async() as memory:
        await memory.create("t", "x")
        slot = await memory.slot("t")
        result = await slot.append("y")
        view = await slot.read()

        assert (memory.lane, memory.project, memory.path) == ("a", "p", path)
        assert (slot.label, slot.scope) == ("t", "project")
        assert (result.content, result.operation) == ("x\ny", "append")
        assert [v.label for v in await memory.slots(templates=False)] == ["t"]
        with pytest.raises(crdtmem.ConflictError):
            await slot.append("z", expected_rev=0)
        with pytest.raises(crdtmem.InvalidArgumentError):
            await memory.slot("BAD")
        with pytest.raises(TypeError):
            await slot.append("z", novelty=1)
        with pytest.raises(TypeError):
            await memory.changes(novelty=1)
    with crdtmem.open(path, lane="a", project="p") as again:
        assert again.slot("t").read() == view


async def test_a_refused_opening_leaves_no_thread(path):
    before = threading.active_count()

    with pytest.raises(crdtmem.InvalidArgumentError):
        await aio.open(path, lane="", project="p")
    with pytest.raises(crdtmem.StoreNotFoundError):
        await aio.open(path, lane="a", project="p", create=False)

    for thread in threading.enumerate()[before:]:
        thread.join()
    assert not path.parent.exists()


async def test_calls_run_in_the_order_in_which_they_were_made(open_async):
    async with await open_async() as memory:
        slot = await memory.slot("persona")

        results = await asyncio.gather(*(slot.append(str(n)) for n in range(20)))

    assert [r.rev for r in results] == list(range(1, 21))
    assert results[-1].content == "\n".join(map(str, range(20)))


async def test_a_call_that_is_cancelled_before_its_turn_never_starts(open_async):
    async with await open_async() as memory:
        slot = await memory.slot("persona")
        gate, blocker = held_up(memory)
        waiting = asyncio.ensure_future(slot.append("never"))
        await next_turn()
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        gate.set()
        await blocker

        assert (await slot.append("later")).content == "later"


@pytest.mark.requirement("testing-F22")
async def test_a_call_that_is_cancelled_in_its_turn_commits_whole(open_async):
    started, gate = threading.Event(), threading.Event()

    def clock():
        """A transaction reads it first of all, and stops here."""
        started.set()
        gate.wait()
        return datetime(2026, 1, 1, tzinfo=UTC)

    gate.set()
    async with await open_async(clock=clock) as memory:
        slot = await memory.slot("persona")
        started.clear()
        gate.clear()
        running = asyncio.ensure_future(slot.append("whole", request_id="r"))
        await asyncio.to_thread(started.wait)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        gate.set()

        again = await slot.append("whole", request_id="r")

    assert (again.content, again.rev, again.replayed) == ("whole", 1, True)


async def test_close_runs_the_calls_that_wait_and_refuses_later_ones(open_async, path):
    memory = await open_async()
    slot = await memory.slot("persona")
    gate, blocker = held_up(memory)
    waiting = [asyncio.ensure_future(slot.append(str(n))) for n in range(3)]
    await next_turn()
    closing = asyncio.ensure_future(memory.close())
    await next_turn()
    gate.set()
    await closing
    await blocker

    assert [(await call).rev for call in waiting] == [1, 2, 3]
    await memory.close()
    for call in (slot.append, memory.create):
        with pytest.raises(crdtmem.StoreClosedError):
            await call("x")
    with pytest.raises(crdtmem.StoreClosedError) as caught:
        await memory.changes()
    assert str(path) in caught.value.message


async def test_a_wait_ends_with_the_first_change_and_keeps_nobody_waiting(open_async):
    async with await open_async() as memory:
        await memory.create("t")
        cursor = await memory.cursor()
        waiting = asyncio.ensure_future(memory.changes(cursor, wait=60))
        await next_turn()
        slot = await memory.slot("t")
        await slot.append("x")
        feed = await waiting

    assert [(c.label, c.rev) for c in feed.changes] == [("t", 1)]


async def test_a_wait_without_a_change_ends_empty(open_async):
    async with await open_async() as memory:
        cursor = await memory.cursor()

        assert (await memory.changes(cursor, wait=0.01)).changes == ()
        with pytest.raises(crdtmem.InvalidArgumentError):
            await memory.changes(wait=-1)


async def test_a_wait_that_is_cancelled_leaves_the_handle_usable(open_async):
    async with await open_async() as memory:
        waiting = asyncio.ensure_future(memory.changes(await memory.cursor(), wait=60))
        await next_turn()
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting

        assert (await memory.create("t")).changed
