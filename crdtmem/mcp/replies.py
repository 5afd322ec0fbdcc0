"""What is sent back: in a form that reaches a model through every client.

Some clients show a model ``structuredContent`` instead of ``content``
(anthropics/claude-code#79944), some ``content`` alone (nicobailon/pi-mcp-adapter#113),
and on errors the structured part is dropped (anthropics/claude-code#86032). So a text
of a slot travels once, verbatim, in a block of its own behind a head that it cannot
forge, and never as structured content; figures travel both ways; an error is told in
full by its text.
"""

import json
import logging
import secrets
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any, NamedTuple

from mcp_types import CallToolResult, TextContent
from pydantic import TypeAdapter

from crdtmem.condense.values import CondenseResult
from crdtmem.doc.text_form import cut_units, units_of
from crdtmem.errors import CrdtmemError
from crdtmem.limits import MCP_DIFF_UNITS
from crdtmem.mcp.arguments import bare_schema
from crdtmem.model import Model
from crdtmem.models import DeleteResult, SlotView, StoreStatus, UndoResult, WriteResult

__all__ = [
    "ErrorBody",
    "Readiness",
    "Reply",
    "SlotList",
    "Structured",
    "Text",
    "compact",
    "cut_diff",
    "failed",
    "headroom_line",
    "internal_error",
    "output_schema",
    "sent",
]

_LOGGER = logging.getLogger(__name__)

_HINTS = {
    "slot-not-found": "memory_slot_list shows the slots, memory_slot_create makes one",
    "slot-exists": "read it with memory_slot_get, or choose another label",
    "slot-read-only": "a person has made it so; write to another slot",
    "slot-append-only": "a person has made it so; use memory_slot_append",
    "size-limit-exceeded": "shorten the slot with memory_slot_edit or"
    " memory_slot_replace, or raise its sizeLimit with memory_slot_edit",
    "conflict": "repeat the change on the text as it is now, with the rev that stands"
    " here; or pass the rev that you read as baseRev, to merge",
    "rev-not-kept": "read it again with memory_slot_get and work from that rev",
    "text-not-found": "read it with memory_slot_get and copy the passage exactly",
    "text-ambiguous": "pass occurrence, or all, or a longer oldText",
    "history-not-found": "memory_slot_history shows what is kept",
    "history-not-undoable": "memory_slot_undo with restore writes its text again",
    "nothing-to-undo": "memory_slot_history shows what is kept, with ids",
    "already-undone": "memory_slot_history shows who has undone it",
    "request-id-reused": "give each new write a requestId of its own",
    "store-busy": "repeat the call, with the same requestId",
    "condense-pass-unknown": "begin one with the prompt consolidate",
    "not-due": "nothing has to be done",
    "condense-busy": "another session does it already",
}
"""What a model can do, where the error's own hint names a command of a shell."""


class Text(NamedTuple):
    """A reply that shows text: its head as JSON values, and the text."""

    head: Mapping[str, object]
    text: str


class Structured(NamedTuple):
    """A reply of figures.

    Attributes:
        values: All of them, as JSON values; without any text of a slot.
        extra: What is shown of a text all the same: a diff.

    """

    values: Mapping[str, object]
    extra: str = ""


Reply = Text | Structured


def sent(reply: Reply, footer: str | None) -> CallToolResult:
    """Return a reply as it is sent, with what others have changed meanwhile."""
    if isinstance(reply, Text):
        # An empty block is refused by what some clients hand it on to.
        blocks = [compact(reply.head), reply.text, footer]
        return CallToolResult(content=_blocks(blocks))
    values = dict(reply.values)
    if footer is not None:
        values["changedSince"] = footer
    blocks = [_figures(reply.values), reply.extra, footer]
    return CallToolResult(content=_blocks(blocks), structured_content=values)


def failed(error: CrdtmemError) -> CallToolResult:
    """Return an error as it is sent: one block that says all, and the same as JSON."""
    hint = _HINTS.get(error.code, error.hint)
    body = {"code": error.code, "message": error.message, "details": error.details}
    if hint:
        body["hint"] = hint
    lines = [f"{error.code}: {error.message}"]
    if hint:
        lines.append(f"hint: {hint}")
    current = error.details.get("current")
    if isinstance(current, Mapping):
        lines.append(headroom_line(current))
    diff = error.details.get("diff")
    if isinstance(diff, str) and diff:
        lines.append(diff)
    return CallToolResult(
        content=_blocks(["\n".join(lines)]),
        structured_content={"error": body},
        is_error=True,
    )


def internal_error(error: Exception) -> CrdtmemError:
    """Log an exception that nobody expected; return what may be told of it.

    The sentence holds no part of the exception: that may hold text of a slot.
    """
    incident = secrets.token_hex(4)
    _LOGGER.error("incident %s", incident, exc_info=error)
    return CrdtmemError(
        f"internal error, incident {incident}",
        code="internal-error",
        hint="the log of the server has more under this number; report it",
        details={"incident": incident},
    )


def headroom_line(current: Mapping[str, object]) -> str:
    """Return how full a slot is now, in one line."""
    return (
        f"now: rev {current['rev']}, {current['size']} of {current['sizeLimit']}"
        f" ({current['pctUsed']} %), {current['free']} free,"
        f" contentHash {current['contentHash']}"
    )


def compact(value: object) -> str:
    """Return JSON on one line, as short as it can be."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def cut_diff(diff: str) -> str:
    """Return a diff that a reply brings along unasked, cut at the end of a line."""
    if units_of(diff) <= MCP_DIFF_UNITS:
        return diff
    kept = cut_units(diff, MCP_DIFF_UNITS)
    return kept[: kept.rfind("\n") + 1] + "[cut]\n"


@cache
def output_schema(kind: str) -> dict[str, Any]:
    """Return the schema of a structured tool's replies, by the kind of them."""
    parts = [_closed(one) for one in _KINDS[kind]]
    defs: dict[str, Any] = {}
    for part in parts:
        defs |= part.pop("$defs", {})
    whole = parts[0] if len(parts) == 1 else {"type": "object", "anyOf": parts}
    return {**whole, "$defs": defs} if defs else whole


class SlotList(Model):
    """A page of slots."""

    slots: tuple[SlotView, ...]
    next_cursor: str


class ErrorBody(Model):
    """Why the store cannot be used."""

    code: str
    message: str
    hint: str
    details: dict[str, object]


class Readiness(Model):
    """Whether the store can be used; the one of its parts that is there says more."""

    ready: bool
    lane: str
    store: StoreStatus
    error: ErrorBody


_KINDS: dict[str, tuple[type[Model], ...]] = {
    "delete": (DeleteResult,),
    "edit": (WriteResult, SlotView),
    "list": (SlotList,),
    "replace": (WriteResult, CondenseResult),
    "status": (Readiness,),
    "undo": (UndoResult, WriteResult),
    "write": (WriteResult,),
}

# Fields that a reply has or has not, though the model of its own always has them.
_OPTIONAL = {"nextCursor", "store", "error", "hint"}
_UNSET = {"$ref": "#/$defs/Unset"}


def _closed(model: type[Model]) -> dict[str, Any]:
    """Return a result's schema, without texts, and with what replies add to it."""
    schema = bare_schema(TypeAdapter(model).json_schema(), without=[_UNSET])
    defs: dict[str, Any] = schema.get("$defs", {})
    defs.pop("Unset", None)
    for part in (schema, *defs.values()):
        part.pop("description", None)
        part["properties"].pop("content", None)
        gone = {"content", *_OPTIONAL}
        part["required"] = [name for name in part["required"] if name not in gone]
    if not defs:
        schema.pop("$defs", None)
    schema["properties"]["changedSince"] = {"type": "string"}
    found: dict[str, Any] = schema
    return found


def _figures(values: Mapping[str, object]) -> str:
    """Return the figures as JSON; a diff has a block of its own."""
    return compact({k: v for k, v in values.items() if k != "diff"})


def _blocks(texts: Iterable[str | None]) -> list[Any]:
    return [TextContent(text=text) for text in texts if text]
