"""The twelve tools: name and arguments, one verb, a reply. No rules of their own."""

import json
import re
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, NamedTuple

from mcp_types import CallToolResult, Tool, ToolAnnotations

from crdtmem.cli.phrases import change_line, outline
from crdtmem.doc.text_form import units_of
from crdtmem.errors import (
    CondensePassUnknownError,
    CrdtmemError,
    InvalidArgumentError,
    RevNotKeptError,
    SlotError,
)
from crdtmem.limits import (
    HISTORY_PAGE_MAX,
    MCP_CHANGES_ROWS,
    MCP_HISTORY_ROWS,
    MCP_LIST_ROWS,
    MCP_OUTLINE_LINES,
    MCP_TEXT_MOST_UNITS,
    MCP_TEXT_UNITS,
    SEARCH_ROWS,
)
from crdtmem.mcp.arguments import (
    AppendArguments,
    Arguments,
    ChangesArguments,
    CreateArguments,
    DeleteArguments,
    EditArguments,
    GetArguments,
    HistoryArguments,
    ListArguments,
    ReplaceArguments,
    SearchArguments,
    StatusArguments,
    UndoArguments,
    input_schema,
    parsed,
)
from crdtmem.mcp.paging import Page, Span, page_of, read_span, tail_span
from crdtmem.mcp.replies import (
    Reply,
    Structured,
    Text,
    cut_diff,
    failed,
    internal_error,
    output_schema,
    sent,
)
from crdtmem.mcp.session import AgentSession
from crdtmem.models import UNSET, Change, HistoryEntry, Model, WriteResult
from crdtmem.scope import LABEL_PATTERN

__all__ = ["TOOLS", "ToolRow", "answer", "listed"]

_MARKER = re.compile(r"^\s*<<<crdtmem:[a-z]+ (\S+)>>>\s*$", re.MULTILINE)


class ToolRow(NamedTuple):
    """A tool.

    Attributes:
        about: What a model is told of it.
        arguments: What it takes.
        call: What it does.
        returns: The kind of its structured replies; empty for one that shows text.
        is_reading: Whether it writes nothing.
        is_destructive: Whether clients should ask before each call.

    """

    about: str
    arguments: type[Arguments]
    call: Callable[[AgentSession, Any], Reply]
    returns: str = ""
    is_reading: bool = False
    is_destructive: bool = False


def answer(
    session: AgentSession, name: str, given: Mapping[str, object]
) -> CallToolResult:
    """Answer a call of a known tool, whatever becomes of it; see TOOLS."""
    tool = TOOLS[name]
    try:
        reply = tool.call(session, parsed(tool.arguments, given))
        return sent(reply, session.footer())
    except CrdtmemError as exc:
        return failed(exc)
    except Exception as exc:  # noqa: BLE001 - the top of a call: it is logged and told
        return failed(internal_error(exc))


@cache
def listed() -> list[Tool]:
    """Return all tools as a client is told of them."""
    return [_listed(name, tool) for name, tool in TOOLS.items()]


def _listed(name: str, tool: ToolRow) -> Tool:
    hints = ToolAnnotations(
        read_only_hint=tool.is_reading,
        destructive_hint=tool.is_destructive,
        idempotent_hint=tool.is_reading,
        open_world_hint=False,
    )
    # By its name on the wire, which the model takes and its type does not show.
    meta: dict[str, Any] = {
        "_meta": {"anthropic/maxResultSizeChars": MCP_TEXT_MOST_UNITS}
    }
    return Tool(
        name=name,
        description=tool.about,
        input_schema=input_schema(tool.arguments),
        output_schema=output_schema(tool.returns) if tool.returns else None,
        annotations=hints,
        **({} if tool.returns else meta),
    )


def _list(session: AgentSession, given: ListArguments) -> Reply:
    after = given.cursor or ""
    if after and not re.fullmatch(LABEL_PATTERN, after):
        message = "cursor is none of this list"
        raise InvalidArgumentError("cursor", message, code="invalid-cursor")
    slots = session.memory.slots(given.scope, content=False)
    rest = [slot for slot in slots if slot.label > after]
    page = rest[:MCP_LIST_ROWS]
    values: dict[str, object] = {"slots": [slot.to_dict() for slot in page]}
    if len(rest) > len(page):
        values["nextCursor"] = page[-1].label
    return Structured(values)


def _get(session: AgentSession, given: GetArguments) -> Reply:
    shown = [given.lines is not None, given.tail is not None, bool(given.outline)]
    if sum(shown) > 1:
        message = "lines, tail and outline show different parts: give one of them"
        raise InvalidArgumentError("lines", message)
    if given.blame and (given.outline or given.at_rev is not None):
        message = "blame shows the present text: give no outline and no atRev"
        raise InvalidArgumentError("blame", message)
    slot = session.memory.slot(given.label, given.scope)
    view = slot.read(at_rev=UNSET if given.at_rev is None else given.at_rev)
    content = str(view.content)
    span = Span()
    if given.lines is not None:
        span = read_span(given.lines)
    if given.tail is not None:
        span = tail_span(content, given.tail)
    name = slot.scope, slot.label
    session.saw_part(name)
    if given.outline:
        return Text(_head(view), outline(content))
    if given.blame:
        content = "\n".join(
            f"{line.line} {line.lane or '?'} {line.at or '?'} | {line.text}"
            for line in slot.blame()
        )
    page = page_of(content, span, given.max_chars or MCP_TEXT_UNITS)
    if given.at_rev is None and not given.blame:
        session.saw_page(name, view.rev, page)
    return Text(_head(view) | _page_head(content, page), page.text)


def _head(view: Model) -> dict[str, object]:
    head = view.to_dict()
    head.pop("content", None)
    return head


def _page_head(content: str, page: Page) -> dict[str, object]:
    """Return what a head says of the part that is shown, if it is not all."""
    head: dict[str, object] = {}
    if page.start.line > 1 or page.start.unit or not page.is_end:
        head["lines"] = {
            "from": page.start.line,
            "to": page.end_line,
            "total": page.total,
        }
    if page.rest is not None:
        head |= {
            "truncated": True,
            "nextLine": page.rest.line,
            "nextLines": str(page.rest),
        }
        if page.start.line == 1 and not page.start.unit:
            head["outline"] = outline(content).split("\n")[:MCP_OUTLINE_LINES]
    return head


def _create(session: AgentSession, given: CreateArguments) -> Reply:
    result = session.memory.create(
        given.label,
        given.content or "",
        scope=given.scope or session.new_scope,
        size_limit=given.size_limit,
        **_given(given, "description", "pinned", "request_id"),
    )
    session.wrote(result, is_whole=True)
    return _written(result)


def _append(session: AgentSession, given: AppendArguments) -> Reply:
    slot = session.memory.slot(given.label, given.scope)
    result = slot.append(given.text, **_given(given, "expected_rev", "request_id"))
    session.wrote(result)
    return _written(result)


def _replace(session: AgentSession, given: ReplaceArguments) -> Reply:
    if given.condense:
        return _condense(session, given)
    slot = session.memory.slot(given.label, given.scope)
    names = ("base_rev", "expected_rev", "expected_hash")
    guards = _given(given, *names)
    if not guards:
        guards = {"base_rev": _seen_rev(session, given)}
    more = _given(given, "request_id")
    result = slot.replace(given.content, **guards, **more)
    session.wrote(result, is_whole=True)
    return _written(result)


def _seen_rev(session: AgentSession, given: ReplaceArguments) -> int:
    """Return the rev of the whole text that an unguarded rewrite was made from.

    Raises:
        InvalidArgumentError: ``invalid-precondition`` if the session has not seen one,
            and there is a text that it would cover.

    """
    slot = session.memory.slot(given.label, given.scope)
    seen = session.whole_rev((slot.scope, slot.label))
    if seen is not None:
        return seen
    # Neither counts as a read: nothing of it is shown.
    current = slot.history(1).current
    if current.size and any(line.text.strip() for line in slot.blame()):
        raise InvalidArgumentError(
            "baseRev",
            f"baseRev required: this session has not read all of {slot.label!r}, which"
            " is not empty; nothing was written",
            code="invalid-precondition",
            hint="read it with memory_slot_get first",
            details={"reason": "guard-required"},
        )
    return current.rev


def _condense(session: AgentSession, given: ReplaceArguments) -> Reply:
    """Commit a condense pass with its reply, or a rewritten whole text."""
    for name in ("expectedRev", "expectedHash", "requestId"):
        if _given(given, _snake(name)):
            message = f"{name} does not go with condense: a pass is committed once"
            raise InvalidArgumentError(name, message)
    # A pass is for a few: what commits one is loaded with the first.
    from crdtmem.condense.named import commit_named  # noqa: PLC0415 - see above

    slot = session.memory.slot(given.label, given.scope)
    pass_id = _pass_named(given.content)
    if pass_id is None:
        base_rev = given.base_rev
        if base_rev is None:
            base_rev = _seen_rev(session, given)
        result = slot.condense_text(given.content, base_rev=base_rev)
    else:
        known = session.memory.condense_passes(label=slot.label, limit=HISTORY_PAGE_MAX)
        if (pass_id, slot.scope) not in [(info.id, info.scope) for info in known]:
            raise CondensePassUnknownError(pass_id=pass_id, label=slot.label)
        result = commit_named(session.memory, pass_id, given.content)
    session.saw_part((slot.scope, slot.label))
    session.forget((slot.scope, slot.label))
    session.wake_sync()
    values = result.to_dict()
    if not result.condensed:
        why = "" if result.detail is UNSET else f" ({result.detail})"
        values.pop("diff", None)
        raise SlotError(
            f"slot {slot.label!r} is not condensed: {result.reason}{why}",
            code=result.reason,
            hint="its text is as it was; the prompt consolidate begins another pass",
            details=values,
        )
    return _with_diff(values)


def _pass_named(content: str) -> str | None:
    """Return the pass that a reply names, in its frame or in its JSON object."""
    marked = _MARKER.search(content)
    if marked is not None:
        return marked[1]
    try:
        value = json.loads(content)
    except (ValueError, RecursionError):
        return None
    named = value.get("passId") if isinstance(value, dict) else None
    return named if isinstance(named, str) else None


def _delete(session: AgentSession, given: DeleteArguments) -> Reply:
    result = session.memory.delete(
        given.label, given.scope, **_given(given, "expected_rev", "request_id")
    )
    session.forget((result.scope, result.label))
    session.wake_sync()
    return Structured(result.to_dict())


def _edit(session: AgentSession, given: EditArguments) -> Reply:
    slot = session.memory.slot(given.label, given.scope)
    forms = [
        form
        for form, names in _EDIT_FORMS.items()
        if _given(given, *names) or (form == "lines" and given.text is not None)
    ]
    if len(forms) != 1:
        message = (
            "give oldText and newText, or insertAfterLine and text, or one or more of"
            " sizeLimit, description and pinned; nothing was written"
        )
        raise InvalidArgumentError("oldText", message)
    form = forms[0]
    for name in _EDIT_NOT_WITH[form]:
        if _given(given, _snake(name)):
            message = f"{name} does not go with {'/'.join(_EDIT_FORMS[form])}"
            raise InvalidArgumentError(name, message)
    more = _given(given, "expected_rev", "expected_hash", "request_id")
    if form == "settings":
        view = slot.set_meta(**_given(given, *_EDIT_FORMS[form]), **more)
        session.wake_sync()
        return Structured(_head(view))
    result: WriteResult
    if form == "passage":
        old, new = _required(given, "oldText"), _required(given, "newText")
        which = _given(given, "occurrence") | (
            {"occurrence": "all"} if given.all else {}
        )
        result = slot.edit(old, new, **which, **more)
    else:
        line, text = _required(given, "insertAfterLine"), _required(given, "text")
        result = slot.insert(line, text, **_given(given, "base_rev"), **more)
    session.wrote(result)
    return _written(result)


_EDIT_FORMS = {
    "passage": ("old_text", "new_text"),
    "lines": ("insert_after_line",),
    "settings": ("size_limit", "description", "pinned"),
}
_EDIT_NOT_WITH = {
    "passage": ("baseRev", "text"),
    "lines": ("occurrence", "all"),
    "settings": ("baseRev", "expectedRev", "expectedHash", "occurrence", "all", "text"),
}


def _required(given: EditArguments, name: str) -> Any:
    value = getattr(given, _snake(name))
    if value is None:
        message = f"{name} required; nothing was written"
        code = "invalid-argument" if name == "insertAfterLine" else "invalid-text"
        raise InvalidArgumentError(name, message, code=code)
    return value


def _history(session: AgentSession, given: HistoryArguments) -> Reply:
    slot = session.memory.slot(given.label, given.scope)
    if given.id is None:
        if given.diff:
            message = "id required: diff shows what changed from an entry to now"
            raise InvalidArgumentError("id", message)
        found = slot.history(MCP_HISTORY_ROWS if given.limit is None else given.limit)
        head = found.to_dict()
        entries = "\n".join(_entry_line(entry) for entry in found.entries)
        return Text({**head, "entries": len(found.entries)}, entries)
    entry = slot.history_entry(given.id)
    if given.diff:
        diff = slot.diff(entry.rev)
        head = diff.to_dict()
        return Text({k: v for k, v in head.items() if k != "unified"}, diff.unified)
    content = str(entry.content)
    page = page_of(content, Span(), MCP_TEXT_UNITS)
    head = _head(entry) | _page_head(content, page)
    head.pop("preview")
    return Text(head, page.text)


def _entry_line(entry: HistoryEntry) -> str:
    undone = "" if entry.undone is UNSET else f" undone by {entry.undone.lane}"
    preview = " ".join(entry.preview.split())
    return (
        f"{entry.id} {entry.at} {entry.operation} by {entry.lane}{undone};"
        f" before: rev {entry.rev}, {entry.size} chars: {preview}"
    )


def _undo(session: AgentSession, given: UndoArguments) -> Reply:
    slot = session.memory.slot(given.label, given.scope)
    more = _given(given, "expected_rev", "request_id")
    if given.restore:
        if given.dry_run:
            message = "dryRun does not go with restore; see memory_slot_history diff"
            raise InvalidArgumentError("dryRun", message)
        if given.id is None:
            message = "id required: which kept text is to be written again"
            raise InvalidArgumentError("id", message)
        result: WriteResult = slot.restore(given.id, **more)
    else:
        result = slot.undo(given.id, dry_run=bool(given.dry_run), **more)
    if not given.dry_run:
        session.undid(result)
    values = _head(result)
    diff = values.get("diff")
    return Structured(values, diff if isinstance(diff, str) else "")


def _search(session: AgentSession, given: SearchArguments) -> Reply:
    found = session.memory.search(
        given.query,
        kinds=[given.kind or "slot"],
        label=given.label,
        scope=given.scope,
        limit=given.limit or SEARCH_ROWS,
    )
    head = found.to_dict()
    head["hits"] = [
        {name: value for name, value in hit.to_dict().items() if name != "snippet"}
        for hit in found.hits
    ]
    texts = [
        f"[{hit.rank}] {hit.label}{'' if hit.line is UNSET else f':{hit.line}'}\n"
        f"{hit.snippet}"
        for hit in found.hits
    ]
    return Text(head, "\n\n".join(texts))


def _changes(session: AgentSession, given: ChangesArguments) -> Reply:
    limit = MCP_CHANGES_ROWS if given.limit is None else given.limit
    feed = session.memory.changes(given.since, limit=limit)
    head = feed.to_dict()
    lines: list[str] = []
    room_units = MCP_TEXT_UNITS
    for change in feed.changes:
        lines.append(change_line(change))
        if given.diff and change.rev > change.since_rev:
            diff = _change_diff(session, change)
            if units_of(diff) > room_units:
                diff = f"[left out; memory_slot_get {change.label} shows the text]\n"
            room_units -= units_of(diff)
            lines.append(diff)
    return Text({**head, "changes": len(feed.changes)}, "\n".join(lines))


def _change_diff(session: AgentSession, change: Change) -> str:
    slot = session.memory.slot(change.label, change.scope)
    try:
        return cut_diff(slot.diff(change.since_rev, change.rev).unified)
    except RevNotKeptError as exc:
        return f"[{exc.message}]\n"


def _status(session: AgentSession, _given: StatusArguments) -> Reply:
    try:
        status = session.memory.status()
    except CrdtmemError as exc:
        error = exc.to_dict()["error"]
        return Structured({"ready": False, "lane": session.lane, "error": error})
    store = status.to_dict()
    return Structured({"ready": True, "lane": session.lane, "store": store})


def _written(result: WriteResult) -> Reply:
    return _with_diff(_head(result))


def _with_diff(values: dict[str, object]) -> Structured:
    """Return figures with the diff, if there is one, cut: nobody asked for it."""
    diff = values.get("diff")
    if not isinstance(diff, str):
        return Structured(values)
    values["diff"] = cut_diff(diff)
    return Structured(values, cut_diff(diff))


def _given(given: Arguments, *names: str) -> dict[str, Any]:
    """Return those arguments that were given, by their names in Python."""
    found = {name: getattr(given, name) for name in names}
    return {name: value for name, value in found.items() if value is not None}


def _snake(name: str) -> str:
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower()


TOOLS: dict[str, ToolRow] = {
    "memory_slot_list": ToolRow(
        "List the memory slots: size, limit and rev of each, without the texts.",
        ListArguments,
        _list,
        "list",
        is_reading=True,
    ),
    "memory_slot_get": ToolRow(
        "Read a slot: figures first, then its text as it is.",
        GetArguments,
        _get,
        is_reading=True,
    ),
    "memory_slot_create": ToolRow(
        "Make a new slot.", CreateArguments, _create, "write"
    ),
    "memory_slot_append": ToolRow(
        "Add lines at the end of a slot. Safe beside other sessions: nothing is lost.",
        AppendArguments,
        _append,
        "write",
    ),
    "memory_slot_replace": ToolRow(
        "Rewrite a whole slot that you have read. What others wrote since is merged in,"
        " or with expectedRev the write is refused.",
        ReplaceArguments,
        _replace,
        "replace",
    ),
    "memory_slot_delete": ToolRow(
        "Delete a slot; memory_slot_undo brings it back.",
        DeleteArguments,
        _delete,
        "delete",
        is_destructive=True,
    ),
    "memory_slot_edit": ToolRow(
        "Change a part of a slot: oldText to newText; or text behind a line; or its"
        " sizeLimit, description, pinned.",
        EditArguments,
        _edit,
        "edit",
    ),
    "memory_slot_history": ToolRow(
        "Past texts of a slot, newest first: who wrote what, with ids for undo.",
        HistoryArguments,
        _history,
        is_reading=True,
    ),
    "memory_slot_undo": ToolRow(
        "Take back one write, and keep what others wrote since.",
        UndoArguments,
        _undo,
        "undo",
    ),
    "memory_search": ToolRow(
        "Find slots, or past texts of one, by words.",
        SearchArguments,
        _search,
        is_reading=True,
    ),
    "memory_changes": ToolRow(
        "Which slots changed, by whom, since a cursor.",
        ChangesArguments,
        _changes,
        is_reading=True,
    ),
    "memory_status": ToolRow(
        "Whether the memory works, where it is, who you are in it, warnings.",
        StatusArguments,
        _status,
        "status",
        is_reading=True,
    ),
}
"""Every tool by its name."""
