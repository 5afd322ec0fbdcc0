"""The functions as tools of MCP, for clients that call them by a route."""

from collections.abc import Mapping, Sequence

from crdtmem.compat.agentmemory.payload import SIZE_UNITS_MAX
from crdtmem.scope import LABEL_PATTERN

__all__ = ["TOOLS", "function_of"]

_TEXT = {"type": "string"}
_FLAG = {"type": "boolean"}
_NUMBER = {"type": "integer", "minimum": 0}
_LABEL = {"type": "string", "pattern": f"^{LABEL_PATTERN}$"}
_SCOPE = {"type": "string", "enum": ["project", "global"]}
_SLOT = {"label": _LABEL, "scope": _SCOPE}
_GUARDS = {"expectedRev": _NUMBER, "expectedHash": _TEXT, "requestId": _TEXT}


def _tool(
    name: str, description: str, needed: Sequence[str], fields: Mapping[str, object]
) -> Mapping[str, object]:
    return {
        "name": f"memory_slot_{name}",
        "description": description,
        "inputSchema": {
            "type": "object",
            "properties": dict(fields),
            "required": list(needed),
        },
    }


TOOLS: Sequence[Mapping[str, object]] = (
    _tool("list", "List the slots, with how full each is.", [], {"scope": _SCOPE}),
    _tool("get", "Read a slot: text, rev, and how full it is.", ["label"], _SLOT),
    _tool(
        "create",
        "Make a slot.",
        ["label"],
        _SLOT
        | {
            "content": _TEXT,
            "sizeLimit": {"type": "integer", "minimum": 1, "maximum": SIZE_UNITS_MAX},
            "description": _TEXT,
            "pinned": _FLAG,
            "readOnly": _FLAG,
            "appendOnly": _FLAG,
            "requestId": _TEXT,
        },
    ),
    _tool(
        "append",
        "Add text at the end of a slot, on lines of its own.",
        ["label", "text"],
        _SLOT | {"text": _TEXT} | _GUARDS,
    ),
    _tool(
        "replace",
        "Write a slot's whole text anew. Pass the rev you read: as baseRev, to keep"
        " what others wrote since, or as expectedRev, to be refused if they did.",
        ["label", "content"],
        _SLOT | {"content": _TEXT, "baseRev": _NUMBER} | _GUARDS,
    ),
    _tool(
        "delete",
        "Delete a slot; its history keeps the text.",
        ["label"],
        _SLOT | _GUARDS,
    ),
    _tool(
        "history",
        "List the kept texts of a slot; with restore, the call that brings one back.",
        ["label"],
        _SLOT | {"id": _TEXT, "restore": _FLAG, "limit": _NUMBER},
    ),
    _tool(
        "undo",
        "Take back a write, by its id or your newest; what others wrote since stays.",
        ["label"],
        _SLOT | {"id": _TEXT, "restore": _FLAG, "dryRun": _FLAG} | _GUARDS,
    ),
)
"""Each as ``tools/list`` shows it."""

_FUNCTIONS = {
    str(tool["name"]): str(tool["name"]).replace("memory_slot_", "mem::slot-")
    for tool in TOOLS
}


def function_of(tool: object) -> str | None:
    """Return the id of the function that a tool calls, or None."""
    return _FUNCTIONS.get(tool) if isinstance(tool, str) else None
