"""crdtmem.mcp.server: what the protocol sees of it."""

import subprocess
import sys

import pytest
from mcp.shared.exceptions import MCPError
from mcp_types import INTERNAL_ERROR, INVALID_PARAMS

from crdtmem.limits import MCP_QUEUE_MAX
from crdtmem.mcp.server import INSTRUCTIONS
from crdtmem.store.lease import Lease, lease_path_for
from crdtmem.store.links import add_link
from tests.child import ROOT
from tests.mcp.agent import Refusal


async def test_a_client_is_told_how_the_memory_is_used(connect):
    async with connect() as agent:
        told = agent.client.instructions

    assert told == INSTRUCTIONS
    assert len(INSTRUCTIONS) <= 1_000
    for word in ("project_context", "pending_items", "baseRev", "requestId", "orders"):
        assert word in INSTRUCTIONS


async def test_hints_say_which_tools_write_and_which_to_ask_about(connect):
    async with connect() as agent:
        tools = (await agent.client.list_tools()).tools

    hints = {tool.name: tool.annotations for tool in tools}
    assert [name for name, hint in hints.items() if hint.destructive_hint] == [
        "memory_slot_delete"
    ]
    reading = {name for name, hint in hints.items() if hint.read_only_hint}
    assert reading == {
        *("memory_slot_list", "memory_slot_get", "memory_slot_history"),
        *("memory_search", "memory_changes", "memory_status"),
    }
    assert not [hint for hint in hints.values() if hint.open_world_hint]
    texts = {tool.name for tool in tools if tool.output_schema is None}
    assert texts == {tool.name for tool in tools if tool.meta}


async def test_a_tool_that_there_is_not_is_an_invalid_parameter(connect):
    async with connect() as agent:
        with pytest.raises(MCPError) as caught:
            await agent.client.call_tool("memory_slot_lock", {})

    assert caught.value.code == INVALID_PARAMS
    assert caught.value.message == "unknown tool 'memory_slot_lock'"


async def test_too_many_calls_are_told_to_come_again(connect):
    async with connect() as agent:
        await agent.call("status")
        agent.session.queue._waiting = MCP_QUEUE_MAX + 1
        with pytest.raises(Refusal) as refused:
            await agent.call("append", label="plan", text="x")
        with pytest.raises(MCPError) as listing:
            await agent.client.list_resources()
        agent.session.queue._waiting = 0

    assert refused.value.code == "store-busy"
    assert "hint: repeat the call" in refused.value.text
    assert listing.value.code == INTERNAL_ERROR


async def test_a_linked_store_is_synced_while_the_server_runs(connect, other, path):
    add_link(
        other.store,
        namespace="p",
        remote="p",
        url="ws://127.0.0.1:9",
        token_file="",
        options={},
    )
    lease = Lease(lease_path_for(path))
    async with connect() as agent:
        await agent.call("append", label="pending_items", text="x")

        assert agent.session._sync is not None

    assert lease.take()
    lease.release()


async def test_another_projects_link_starts_no_sync(connect, other, path):
    add_link(
        other.store,
        namespace="elsewhere",
        remote="r",
        url="ws://127.0.0.1:9",
        token_file="",
        options={},
    )
    async with connect() as agent:
        await agent.call("status")
        assert agent.session._sync is None


@pytest.mark.process
def test_what_writes_need_is_loaded_behind_the_first_answer():
    """In a process that has loaded nothing yet, and opens no store."""
    script = """
import asyncio, sys, threading
from mcp.client import Client
from crdtmem.mcp.server import build_server
from crdtmem.mcp.session import AgentSession

async def main():
    async with Client(build_server(AgentSession(None))) as client:
        before = "pycrdt" in sys.modules
        await client.list_tools()
        answered = "pycrdt" in sys.modules
        while "crdtmem-load" not in [t.name for t in threading.enumerate()]:
            await asyncio.sleep(0)
        print(before, answered)

asyncio.run(main())
next((t.join() for t in threading.enumerate() if t.name == "crdtmem-load"), None)
print("pycrdt" in sys.modules, "apsw" in sys.modules)
"""
    said = subprocess.run(
        [sys.executable, "-c", script],
        cwd=ROOT,
        check=True,
        capture_output=True,
        encoding="utf-8",
    ).stdout

    assert said.split() == ["False", "False", "True", "True"]
