"""crdtmem.mcp.session: whose lane it is, what others changed, and how calls queue."""

import asyncio
import threading
from functools import partial

import pytest

from crdtmem.errors import StoreError
from crdtmem.limits import MCP_QUEUE_MAX
from crdtmem.mcp.session import AgentSession, Queue, lane_of
from crdtmem.models import Change
from tests.mcp.agent import texts_of


def footer_of(result):
    last = texts_of(result)[-1]
    return last if last.startswith("changed since") else None


@pytest.mark.requirement("surfaces-21")
async def test_what_others_changed_is_told_once_and_own_writes_never(connect, other):
    other.create("plan", "one")
    other.create("notes", "one")
    async with connect() as agent:
        await agent.text("plan")
        own = await agent.call("append", label="plan", text="mine")
        other.slot("plan").append("two")
        other.slot("notes").append("never read here")
        told = await agent.call("list")
        again = await agent.call("list")
        more_own = await agent.call("append", label="plan", text="mine too")
        other.slot("plan").append("three")
        next_one = await agent.call("search", query="one")
        reading = await agent.call("get", label="plan")
        other.slot("plan").append("four")
        _, text = await agent.read("search", query="never")

    assert footer_of(own) is None
    assert footer_of(told) == (
        "changed since your last read: plan rev 1→2 by b; memory_changes shows it"
    )
    assert told.structured_content["changedSince"] == footer_of(told)
    assert (footer_of(again), footer_of(more_own)) == (None, None)
    assert "plan rev 3→4 by b;" in footer_of(next_one)
    assert footer_of(reading) is None
    assert text.endswith("never read here")


async def test_of_what_an_earlier_session_read_only_pinned_slots_are_told(
    connect, other, open_memory
):
    other.create("pinned", "one")
    other.create("loose", "one", pinned=False)

    def same_lane(_lane):
        return open_memory("one-and-the-same")

    async with connect(same_lane) as agent:
        await agent.call("get", label="pinned")
        await agent.call("get", label="loose")
    other.slot("pinned").append("two")
    other.slot("loose").append("two")
    async with connect(same_lane) as agent:
        result = await agent.call("list")

    assert "pinned rev 0→1" in footer_of(result)
    assert "loose" not in footer_of(result)


async def test_many_changes_and_many_lanes_are_counted(connect, other, open_memory):
    labels = [f"slot{number}" for number in range(10)]
    for label in labels:
        other.create(label, "one")
    async with connect() as agent:
        for label in labels:
            await agent.call("get", label=label)
        for number in range(6):
            memory = open_memory(f"lane{number}").memory
            memory.slot("slot0").append("x")
            memory.close()
        for label in labels:
            other.slot(label).append("two")
        result = await agent.call("status")
        nothing = await agent.call("status")

    assert "by b, lane0, lane1, lane2, 3 more" in footer_of(result)
    assert footer_of(result).endswith("and 2 more; memory_changes shows it")
    assert footer_of(nothing) is None


async def test_no_word_on_changes_makes_no_error_of_a_call(
    connect, other, open_memory, caplog
):
    opened = []

    def open_and_keep(lane):
        opened.append(open_memory(lane))
        return opened[-1]

    async with connect(open_and_keep) as agent:
        await agent.call("list")
        opened[0].memory.close()
        status = await agent.figures("status")

    assert status["ready"] is False
    assert "no word on what others changed: store-closed" in caplog.text


@pytest.mark.parametrize(
    ("client", "lane"),
    [
        ("Claude Code", "Claude-Code-abcdef"),
        ("  ", "mcp-abcdef"),
        ("x\ud83d\ny, z", "x--y--z-abcdef"),
        ("é" * 100, f"{'é' * 48}-abcdef"),
    ],
)
def test_a_lane_is_what_the_client_calls_itself_and_some_letters(client, lane):
    assert lane_of(client, "ABCDEF") == lane
    assert len(lane.encode()) <= 128


async def test_a_session_has_a_lane_of_its_own_with_the_name_of_the_client(connect):
    async with connect() as one, connect() as two:
        await one.call("create", label="plan", content="x")
        await two.call("append", label="plan", text="y")
        _, history = await two.read("history", label="plan")

    assert one.session.client == "mcp"
    assert one.session.lane != two.session.lane
    assert f"append by {two.session.lane};" in history


@pytest.mark.requirement("surfaces-24")
async def test_calls_run_in_order_of_arrival():
    queue = Queue()
    order: list[object] = []

    await asyncio.gather(
        *(queue.run(partial(order.append, number)) for number in range(40))
    )
    await queue.close(lambda: order.append("closed"))
    await queue.close(lambda: order.append("closed twice"))

    assert order == [*range(40), "closed"]


async def test_a_call_too_many_is_refused_and_the_others_are_done():
    queue, gate = Queue(), threading.Event()
    done: list[object] = []
    first = asyncio.create_task(queue.run(gate.wait))
    others = [
        asyncio.create_task(queue.run(partial(done.append, number)))
        for number in range(MCP_QUEUE_MAX)
    ]
    await asyncio.wait([first, *others], timeout=0)

    with pytest.raises(StoreError, match="64 calls of this session wait") as caught:
        await queue.run(lambda: done.append("too many"))
    gate.set()
    await asyncio.gather(first, *others)
    await queue.close(lambda: None)

    assert caught.value.code == "store-busy"
    assert done == [*range(MCP_QUEUE_MAX)]


async def test_a_cancelled_call_never_starts_or_is_done_whole():
    queue, begun, gate, done = Queue(), threading.Event(), threading.Event(), []

    def work():
        begun.set()
        gate.wait()
        done.append("running")

    running = asyncio.create_task(queue.run(work))
    waiting = asyncio.create_task(queue.run(lambda: done.append("waiting")))
    await asyncio.to_thread(begun.wait)
    running.cancel()
    waiting.cancel()
    await asyncio.wait([running, waiting])
    gate.set()
    await queue.close(lambda: done.append("closed"))

    assert done == ["running", "closed"]


async def test_a_session_that_opened_nothing_closes_without_a_store(path, open_memory):
    session = AgentSession(open_memory)
    session.wake_sync()
    assert session.footer() is None
    await session.close()
    await session.close()

    assert not path.exists()


def test_a_change_is_one_of_a_scope_and_label(open_memory):
    session = AgentSession(open_memory)
    change = Change(
        label="plan",
        scope="project",
        rev=3,
        since_rev=1,
        size=0,
        content_hash="",
        at="",
        operation="append",
        lanes=("b",),
    )

    assert session._phrase(change) == "plan rev 1→3 by b"
    assert session._phrase(change.replaced(rev=5)) == "plan rev 3→5 by b"
