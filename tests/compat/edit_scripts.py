"""What the processes of the compatible front ends' tests do: edits, one by one."""

import contextlib
from typing import TYPE_CHECKING

from crdtmem.compat.agentmemory import AgentMemorySlots
from tests.scenarios import opened

if TYPE_CHECKING:
    from tests.child import Link

__all__ = ["NOTES", "append_by_function", "edit_by_tool", "insert_by_the_sdk"]

NOTES = "/memories/notes.md"


def append_by_function(link: "Link", *, path: str, lane: str, count: int) -> int:
    """Append lines through the function; return how many were acknowledged."""
    with opened(path, lane) as memory:
        slots = AgentMemorySlots(memory)
        link.pause()
        results = [
            slots.call("mem::slot-append", {"label": "notes", "text": f"{lane} {n}"})
            for n in range(count)
        ]
    return sum(result["success"] is True for result in results)


def edit_by_tool(
    link: "Link", *, path: str, lane: str, command: str, count: int, views: bool
) -> list[str]:
    """Insert lines, or replace one's own, with the memory tool; return its answers."""
    # Slow to load, and no other script's business.
    from crdtmem.compat.anthropic import CrdtMemoryTool  # noqa: PLC0415 - see above

    with opened(path, lane) as memory:
        tool = CrdtMemoryTool(memory, size_limit=1_000_000)
        if views:
            tool.call({"command": "view", "path": NOTES})
        link.pause()
        return [str(tool.call(_edit(command, lane, n))) for n in range(count)]


def insert_by_the_sdk(link: "Link", *, path: str, lane: str, count: int) -> int:
    """Insert lines into the SDK's own files; return how many were acknowledged."""
    from anthropic.lib.tools import ToolError  # noqa: PLC0415 - slow to load
    from anthropic.tools import BetaLocalFilesystemMemoryTool  # noqa: PLC0415 - as above

    tool = BetaLocalFilesystemMemoryTool(path)
    link.pause()
    acknowledged = 0
    for number in range(count):
        with contextlib.suppress(ToolError):
            tool.call(_edit("insert", lane, number))
            acknowledged += 1
    return acknowledged


def _edit(command: str, lane: str, number: int) -> dict[str, object]:
    if command == "insert":
        fields = {"insert_line": 1, "insert_text": f"{lane} {number}\n"}
    else:
        fields = {"old_str": f"{lane} {number} todo", "new_str": f"{lane} {number} ok"}
    return {"command": command, "path": NOTES, **fields}
