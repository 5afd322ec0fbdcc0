"""What the tests of the front ends in other systems' words share: handles on stores."""

import pytest
from anthropic.lib.tools import ToolError

from crdtmem.compat.agentmemory import AgentMemorySlots
from crdtmem.compat.anthropic import CrdtMemoryTool
from tests.compat.asking import commands
from tests.service import conftest as service

memory, open_lane = service.memory, service.open_lane
other, unchanged = service.other, service.unchanged


@pytest.fixture
def tool(memory):
    return commands(CrdtMemoryTool(memory).call)


@pytest.fixture
def refused(memory, tool, unchanged):
    """Do a command that must be refused and change nothing; return what it says."""

    def refused(name, path=None, **fields):
        with unchanged(memory), pytest.raises(ToolError) as caught:
            tool(name, path, **fields)
        return str(caught.value)

    return refused


@pytest.fixture
def slots(memory):
    return AgentMemorySlots(memory)


@pytest.fixture
def call(slots):
    """Call a function by the end of its id."""
    return lambda name, **payload: slots.call(f"mem::slot-{name}", payload)
