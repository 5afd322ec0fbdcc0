"""crdtmem.condense.awaiting: a whole pass on an event loop."""

import asyncio
import os
import threading

import pytest

from crdtmem import CondenseReply, RateLimitedError, SlotRefusedError, aio
from crdtmem.condense import awaiting
from crdtmem.condense.command import CommandSummariser
from tests.condense.summarisers import (
    FRAMED,
    Leash,
    fill,
    join_summarisers,
    python,
    reply,
)


@pytest.fixture
async def memory(tmp_path, clock):
    options = {"project": "p", "durability": "normal", "clock": clock}
    async with await aio.open(tmp_path / "store.db", lane="a", **options) as memory:
        yield memory


@pytest.fixture
async def plan(memory):
    """A slot that is due."""
    await memory.call(fill)
    return await memory.slot("plan")


async def reply_later(begun):
    await asyncio.to_thread(reply, begun)
    return CondenseReply(pass_id=begun.id, summary="All of it, in short.")


class Model:
    async def __call__(self, begun):
        return reply(begun)


async def passes(memory):
    """Return state and reason of each pass, newest first."""
    return [(info.state, info.reason) for info in await memory.condense_passes()]


@pytest.mark.parametrize(
    "summarise", [reply, reply_later, Model(), lambda begun: reply_later(begun)]
)
async def test_a_summariser_may_be_asynchronous_or_not(memory, plan, summarise):
    result = await plan.condense(summarise)

    assert (result.condensed, result.reason) == (True, "condensed")
    assert "All of it, in short." in (await plan.read()).content
    assert await passes(memory) == [("committed", "condensed")]


async def test_the_loop_and_the_memory_go_on_while_it_thinks(plan):
    thinking, go_on = asyncio.Event(), asyncio.Event()

    async def summarise(begun):
        thinking.set()
        await go_on.wait()
        return reply(begun)

    task = asyncio.ensure_future(plan.condense(summarise))
    await thinking.wait()
    await plan.append("## Later\nby another task")
    go_on.set()

    result = await task
    assert (result.condensed, result.carried_bytes) == (True, 25)


async def raising(_):
    raise ValueError("no model")


def out_of_quota(_):
    raise RateLimitedError(60)


@pytest.mark.requirement("condense-13")
@pytest.mark.parametrize(
    ("summarise", "reason", "detail"),
    [
        (raising, "summarize-failed", "ValueError: no model"),
        (lambda begun: raising(begun), "summarize-failed", "ValueError: no model"),
        (out_of_quota, "rate-limited", None),
    ],
)
async def test_a_summariser_may_fail(memory, plan, summarise, reason, detail):
    result = await plan.condense(summarise)

    assert (result.reason, result.to_dict().get("detail")) == (reason, detail)
    assert await passes(memory) == [("aborted", reason)]


@pytest.mark.requirement("condense-13")
async def test_a_coroutine_is_cancelled_at_the_timeout(memory, plan, hasty):
    cancelled = asyncio.Event()

    async def summarise(_):
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            cancelled.set()

    result = await plan.condense(summarise)

    assert (result.reason, result.detail) == ("timeout", "no reply after 0.01 s")
    assert cancelled.is_set()
    assert await passes(memory) == [("aborted", "timeout")]


async def test_one_that_does_not_want_to_end_is_left_alone(plan, hasty, monkeypatch):
    monkeypatch.setattr(awaiting, "COMMAND_GRACE_S", 0.01)
    go_on, ended = asyncio.Event(), asyncio.Event()

    async def summarise(begun):
        while not go_on.is_set():
            try:
                await go_on.wait()
            except asyncio.CancelledError:
                continue
        ended.set()
        return reply(begun)

    result = await plan.condense(summarise)
    go_on.set()

    assert result.reason == "timeout"
    await ended.wait()
    assert "in short" not in (await plan.read()).content


@pytest.mark.requirement("condense-13")
async def test_a_thread_is_left_to_itself_at_the_timeout(memory, plan, gate, hasty):
    def summarise(begun):
        gate.wait()
        return reply(begun)

    result = await plan.condense(summarise)
    gate.set()
    await asyncio.to_thread(join_summarisers)

    assert result.reason == "timeout"
    assert await passes(memory) == [("aborted", "timeout")]


def test_a_thread_may_end_after_its_loop(tmp_path, gate, hasty):
    async def main():
        async with await aio.open(tmp_path / "store.db", project="p") as memory:
            await memory.call(fill)
            plan = await memory.slot("plan")
            return await plan.condense(lambda _: gate.wait())

    assert asyncio.run(main()).reason == "timeout"


@pytest.mark.process
async def test_a_command_summarises(plan):
    command = CommandSummariser(tuple(python(FRAMED)), os.environ, None)

    assert (await plan.condense(command)).condensed


@pytest.mark.process
async def test_a_command_that_cannot_be_started_is_a_failure(plan):
    result = await plan.condense(CommandSummariser(("/no/such",), {}, None))

    assert result.detail == "such cannot be run: No such file or directory"


@pytest.mark.requirement("condense-13")
@pytest.mark.process
async def test_a_command_is_ended_when_nobody_wants_it(memory, plan, tmp_path):
    leash = Leash(tmp_path / "leash")
    line = tuple(leash.command("tell('here'); wait_for_ever()"))
    hanging = CommandSummariser(line, leash.environment, None)
    task = asyncio.ensure_future(plan.condense(hanging))
    await asyncio.to_thread(leash.wait_for, "here")

    task.cancel()

    with pytest.raises(asyncio.CancelledError):
        await task
    assert await asyncio.to_thread(leash.is_let_go)
    assert await passes(memory) == [("aborted", "cancelled")]
    leash.close()


async def test_cancelling_aborts_the_pass(memory, plan):
    thinking = asyncio.Event()

    async def summarise(_):
        thinking.set()
        await asyncio.get_running_loop().create_future()

    task = asyncio.ensure_future(plan.condense(summarise))
    await thinking.wait()
    task.cancel()

    with pytest.raises(asyncio.CancelledError):
        await task
    assert await passes(memory) == [("aborted", "cancelled")]
    assert (await plan.condense(reply)).condensed


async def cancelled_in_begin(memory, slot):
    """Cancel a pass while its begin waits for the memory's thread."""
    gate, working = threading.Event(), threading.Event()

    def hold_up(_):
        working.set()
        gate.wait()

    # The steps of a pass are two calls: the second one is the begin.
    held = asyncio.ensure_future(memory.call(lambda _: None))
    task = asyncio.ensure_future(slot.condense(raising))
    holder = asyncio.ensure_future(memory.call(hold_up))
    await held
    await asyncio.to_thread(working.wait)
    for _ in range(3):
        await next_turn()
    task.cancel()
    await next_turn()
    gate.set()
    await holder
    with pytest.raises(asyncio.CancelledError):
        await task


async def next_turn():
    """Let every task that is ready run until it waits."""
    turn = asyncio.get_running_loop().create_future()
    asyncio.get_running_loop().call_soon(turn.set_result, None)
    await turn


async def test_a_pass_that_begins_although_it_is_cancelled_is_aborted(memory, plan):
    await cancelled_in_begin(memory, plan)

    assert await passes(memory) == [("aborted", "cancelled")]


async def test_what_never_begins_needs_no_abort(memory, plan):
    await memory.create("small", "text")

    await cancelled_in_begin(memory, await memory.slot("small"))

    assert await passes(memory) == []


async def test_a_skip_is_a_result(memory):
    await memory.create("small", "text")
    small = await memory.slot("small")

    assert (await small.condense(raising)).reason == "not-due"
    assert (await small.condense(raising, dry_run=True)).dry_run is True


async def test_a_slot_that_may_not_be_written_is_an_error(memory, plan):
    await plan.set_meta(read_only=True)

    with pytest.raises(SlotRefusedError):
        await plan.condense(reply)


async def test_the_two_steps_are_verbs_too(memory, plan):
    begun = await plan.begin_condense()
    due = await memory.condense_due()

    assert (await plan.commit_condense(begun.id, "In short.")).condensed
    assert (await plan.abort_condense(begun.id)).reason == "condensed"
    assert [slot.reason for slot in due] == ["condense-busy"]
    assert (await memory.condense_archive(begun.id)).sha256 == begun.archive
