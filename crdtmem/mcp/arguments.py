"""What a tool call may give: closed schemas, read without guessing.

One model a tool says which arguments there are. Other spellings that models are known
to use are taken as well; two spellings of one argument, and a name that is none, are
refused before anything is done. What a value may be beyond its type is the verbs'
business.
"""

import difflib
import re
from collections.abc import Mapping
from functools import cache
from typing import Annotated, Any, Literal, TypeVar

from pydantic import (
    AliasChoices,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StrictStr,
    ValidationError,
)

from crdtmem.doc.text_form import lone_surrogate
from crdtmem.errors import InvalidArgumentError
from crdtmem.limits import (
    MCP_CHANGES_ROWS,
    MCP_HISTORY_ROWS,
    MCP_TEXT_LEAST_UNITS,
    MCP_TEXT_MOST_UNITS,
    MCP_TEXT_UNITS,
    SEARCH_PAGE_MAX,
    SEARCH_ROWS,
)
from crdtmem.model import camel_case

__all__ = [
    "AppendArguments",
    "Arguments",
    "ChangesArguments",
    "CreateArguments",
    "DeleteArguments",
    "EditArguments",
    "GetArguments",
    "HistoryArguments",
    "ListArguments",
    "ReplaceArguments",
    "SearchArguments",
    "StatusArguments",
    "UndoArguments",
    "bare_schema",
    "checked_surrogates",
    "input_schema",
    "parsed",
]

_CODES = {
    "label": "invalid-label",
    "scope": "invalid-scope",
    "content": "invalid-text",
    "text": "invalid-text",
    "oldText": "invalid-text",
    "newText": "invalid-text",
    "sizeLimit": "invalid-size-limit",
    "expectedRev": "invalid-precondition",
    "expectedHash": "invalid-precondition",
    "baseRev": "invalid-precondition",
    "requestId": "invalid-request-id",
}
"""Codes of arguments that have one of their own."""

_WHOLE = re.compile(r"[+-]?[0-9]{1,16}")
# Keywords of a schema that say what the model need not know.
_DROPPED = frozenset({"title", "default"})
# Bounds of values that may be missing keep the names that pydantic has for them.
_RENAMED = {"ge": "minimum", "le": "maximum"}
_NOTHING = {"type": "null"}

_T = TypeVar("_T", bound="Arguments")


def _whole(value: object) -> object:
    """Take digits for a number: clients of another server declare strings."""
    if isinstance(value, str) and _WHOLE.fullmatch(value):
        return int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError("an integer")
    return value


def _truth(value: object) -> object:
    """Take the words for the values."""
    if value in ("true", "false"):
        return value == "true"
    if not isinstance(value, bool):
        raise ValueError("true or false")
    return value


def _named(
    canonical: str,
    *others: str,
    about: str,
    ge: int | None = None,
    le: int | None = None,
) -> Any:
    spellings = AliasChoices(canonical, *others)
    return Field(validation_alias=spellings, description=about, ge=ge, le=le)


_Whole = Annotated[int, BeforeValidator(_whole)]
_Truth = Annotated[bool, BeforeValidator(_truth)]

_Label = Annotated[
    StrictStr, _named("label", "slot", "name", "slot_name", "key", about="Slot name.")
]
_SomeLabel = Annotated[
    StrictStr | None,
    _named("label", "slot", "name", "slot_name", "key", about="Only this slot."),
]
_Scope = Annotated[
    Literal["project", "global"] | None,
    _named("scope", about="Default: where the slot is found, project first."),
]
_NewScope = Annotated[
    Literal["project", "global"] | None, _named("scope", about="Default: project.")
]
_ExpectedRev = Annotated[
    _Whole | None,
    _named("expectedRev", about="Refuse unless the slot is still at this rev."),
]
_ExpectedHash = Annotated[
    StrictStr | None,
    _named(
        "expectedHash",
        "content_sha256",
        about="Refuse unless the text still has this contentHash.",
    ),
]
_BaseRev = Annotated[
    _Whole | None,
    _named(
        "baseRev", about="The rev you worked from; what others wrote since is kept."
    ),
]
_RequestId = Annotated[
    StrictStr | None,
    _named(
        "requestId",
        "idempotency_key",
        "idempotencyKey",
        about="Names this write: repeated with it, it is written once.",
    ),
]
_SizeLimit = Annotated[
    _Whole | None, _named("sizeLimit", about="Most characters it may hold (2000).")
]
_Description = Annotated[
    StrictStr | None, _named("description", about="What the slot is for.")
]
_Pinned = Annotated[
    _Truth | None, _named("pinned", about="Shown at the start of each session.")
]


class Arguments(BaseModel):
    """What every tool's arguments are: closed, and not to be changed."""

    model_config = ConfigDict(extra="forbid", populate_by_name=True, frozen=True)


class ListArguments(Arguments):
    """Of memory_slot_list."""

    cursor: Annotated[
        StrictStr | None, _named("cursor", about="nextCursor of the page before.")
    ] = None
    scope: Annotated[
        Literal["project", "global"] | None, _named("scope", about="Only this scope.")
    ] = None


class GetArguments(Arguments):
    """Of memory_slot_get."""

    label: _Label
    scope: _Scope = None
    lines: Annotated[
        StrictStr | None,
        _named("lines", about='Only these lines: "10-40", "41-", or nextLines.'),
    ] = None
    tail: Annotated[
        _Whole | None, _named("tail", about="Only the last so many lines.", ge=1)
    ] = None
    outline: Annotated[
        _Truth | None, _named("outline", about="Headings with line numbers, no text.")
    ] = None
    blame: Annotated[
        _Truth | None, _named("blame", about="Who wrote each line, and when.")
    ] = None
    at_rev: Annotated[
        _Whole | None, _named("atRev", about="The text at this past rev.")
    ] = None
    max_chars: Annotated[
        _Whole | None,
        _named(
            "maxChars",
            about=f"Most text to return ({MCP_TEXT_UNITS}).",
            ge=MCP_TEXT_LEAST_UNITS,
            le=MCP_TEXT_MOST_UNITS,
        ),
    ] = None


class CreateArguments(Arguments):
    """Of memory_slot_create."""

    label: _Label
    content: Annotated[
        StrictStr | None,
        _named("content", "text", "body", "value", about="Its first text."),
    ] = None
    size_limit: _SizeLimit = None
    description: _Description = None
    pinned: _Pinned = None
    scope: _NewScope = None
    request_id: _RequestId = None


class AppendArguments(Arguments):
    """Of memory_slot_append."""

    label: _Label
    text: Annotated[
        StrictStr,
        _named(
            "text",
            "entry",
            "line",
            "content",
            about="Added at the end, on lines of its own.",
        ),
    ]
    scope: _Scope = None
    expected_rev: _ExpectedRev = None
    request_id: _RequestId = None


class ReplaceArguments(Arguments):
    """Of memory_slot_replace."""

    label: _Label
    content: Annotated[
        StrictStr,
        _named("content", "text", "body", "value", about="The whole new text."),
    ]
    scope: _Scope = None
    base_rev: _BaseRev = None
    expected_rev: _ExpectedRev = None
    expected_hash: _ExpectedHash = None
    condense: Annotated[
        _Truth | None,
        _named("condense", about="The content is the reply to a consolidate prompt."),
    ] = None
    request_id: _RequestId = None


class DeleteArguments(Arguments):
    """Of memory_slot_delete."""

    label: _Label
    scope: _Scope = None
    expected_rev: _ExpectedRev = None
    request_id: _RequestId = None


class EditArguments(Arguments):
    """Of memory_slot_edit."""

    label: _Label
    old_text: Annotated[
        StrictStr | None,
        _named("oldText", "old_str", "old_string", about="What stands there, exactly."),
    ] = None
    new_text: Annotated[
        StrictStr | None,
        _named("newText", "new_str", "new_string", about='In its place; "" deletes.'),
    ] = None
    occurrence: Annotated[
        _Whole | None, _named("occurrence", about="Which match, from 1.")
    ] = None
    all: Annotated[_Truth | None, _named("all", about="Every match.")] = None
    insert_after_line: Annotated[
        _Whole | None,
        _named("insertAfterLine", about="Insert text behind this line; 0: on top."),
    ] = None
    text: Annotated[
        StrictStr | None, _named("text", "entry", "line", about="The new lines.")
    ] = None
    size_limit: _SizeLimit = None
    description: _Description = None
    pinned: _Pinned = None
    scope: _Scope = None
    base_rev: _BaseRev = None
    expected_rev: _ExpectedRev = None
    expected_hash: _ExpectedHash = None
    request_id: _RequestId = None


class HistoryArguments(Arguments):
    """Of memory_slot_history."""

    label: _Label
    scope: _Scope = None
    id: Annotated[
        StrictStr | None, _named("id", about="Show this entry's whole text.")
    ] = None
    diff: Annotated[
        _Truth | None, _named("diff", about="With id: what changed from it to now.")
    ] = None
    limit: Annotated[
        _Whole | None, _named("limit", about=f"Entries ({MCP_HISTORY_ROWS}).")
    ] = None


class UndoArguments(Arguments):
    """Of memory_slot_undo."""

    label: _Label
    scope: _Scope = None
    id: Annotated[
        StrictStr | None,
        _named("id", about="History id of the write. Default: your newest."),
    ] = None
    restore: Annotated[
        _Truth | None,
        _named("restore", about="Write the text of id again; needs expectedRev."),
    ] = None
    expected_rev: _ExpectedRev = None
    dry_run: Annotated[
        _Truth | None, _named("dryRun", about="Only show what would change.")
    ] = None
    request_id: _RequestId = None


class SearchArguments(Arguments):
    """Of memory_search."""

    query: Annotated[
        StrictStr,
        _named("query", "q", about='Words; "a phrase"; begin*; -unwanted; a OR b.'),
    ]
    kind: Annotated[
        Literal["slot", "history", "archive"] | None,
        _named("kind", about="history and archive need label. Default: slot."),
    ] = None
    label: _SomeLabel = None
    scope: _Scope = None
    limit: Annotated[
        _Whole | None,
        _named("limit", about=f"Hits ({SEARCH_ROWS}).", ge=1, le=SEARCH_PAGE_MAX),
    ] = None


class ChangesArguments(Arguments):
    """Of memory_changes."""

    since: Annotated[
        StrictStr | None,
        _named("since", about="Cursor of a former reply. Default: from the start."),
    ] = None
    diff: Annotated[_Truth | None, _named("diff", about="Show what changed.")] = None
    limit: Annotated[
        _Whole | None, _named("limit", about=f"Slots ({MCP_CHANGES_ROWS}).")
    ] = None


class StatusArguments(Arguments):
    """Of memory_status: none."""


def parsed(model: type[_T], given: Mapping[str, object]) -> _T:
    """Return the arguments of a call.

    A null counts as not given: clients with strict schemas send one for everything.

    Raises:
        InvalidArgumentError: If a name is unknown or given in two spellings, a value
            has the wrong type, or one that is needed is missing.

    """
    spellings = _spellings(model)
    named: dict[str, object] = {}
    for name, value in given.items():
        field = spellings.get(name)
        if field is None:
            raise _unknown(name, spellings)
        if value is None:
            continue
        canonical = camel_case(field)
        if field in named:
            message = f"{canonical} is given twice, as {name!a:.40} too"
            raise InvalidArgumentError(canonical, message)
        checked_surrogates(canonical, value)
        named[field] = value
    try:
        return model.model_validate(named)
    except ValidationError as exc:
        raise _refusal(exc) from exc


def checked_surrogates(name: str, value: object) -> None:
    """Refuse a string with half a surrogate pair, which no store could keep.

    Raises:
        InvalidArgumentError: ``invalid-text``.

    """
    if isinstance(value, str) and (at_chars := lone_surrogate(value)) is not None:
        raise InvalidArgumentError(
            name,
            f"{name} holds half a surrogate pair, at character {at_chars}",
            code="invalid-text",
            details={"reason": "lone-surrogate", "position": at_chars},
        )


def input_schema(model: type[Arguments]) -> dict[str, Any]:
    """Return a tool's schema: canonical names only, nothing else allowed."""
    schema = model.model_json_schema()
    schema.pop("description")
    schema.setdefault("properties", {})
    bare: dict[str, Any] = bare_schema(schema, without=[_NOTHING])
    return bare


def bare_schema(node: Any, *, without: list[dict[str, Any]]) -> Any:
    """Return a schema without what a reader does not need.

    Args:
        node: A schema or a part of one.
        without: Alternatives that are left out.

    """
    if isinstance(node, list):
        return [bare_schema(part, without=without) for part in node]
    if not isinstance(node, dict):
        return node
    bare: dict[str, Any] = {}
    for name, part in node.items():
        if name in ("properties", "$defs"):
            # Their keys are names, whatever they look like.
            bare[name] = {k: bare_schema(v, without=without) for k, v in part.items()}
        elif name == "anyOf":
            bare |= _alternatives([one for one in part if one not in without], without)
        elif name not in _DROPPED:
            known: str = _RENAMED.get(name) or name
            bare[known] = bare_schema(part, without=without)
    return bare


def _alternatives(
    parts: list[dict[str, Any]], without: list[dict[str, Any]]
) -> dict[str, Any]:
    bare = [bare_schema(part, without=without) for part in parts]
    one: dict[str, Any] = bare[0]
    return one if len(bare) == 1 else {"anyOf": bare}


@cache
def _spellings(model: type[Arguments]) -> dict[str, str]:
    """Return every name that an argument may be called by, with its field."""
    found: dict[str, str] = {}
    for field, info in model.model_fields.items():
        choices = info.validation_alias
        others = choices.choices if isinstance(choices, AliasChoices) else []
        found |= dict.fromkeys((field, *map(str, others)), field)
    return found


def _unknown(name: str, spellings: Mapping[str, str]) -> InvalidArgumentError:
    near = difflib.get_close_matches(name, spellings, n=1)
    guess = f" did you mean '{camel_case(spellings[near[0]])}'?" if near else ""
    shown = f"{name!a:.60}"
    message = f"unknown argument {shown};{guess} nothing was written"
    return InvalidArgumentError(shown.strip("'"), message)


def _refusal(exc: ValidationError) -> InvalidArgumentError:
    """Return the first fault that was found, in one sentence."""
    fault = exc.errors(include_url=False)[0]
    name = camel_case(str(fault["loc"][0]))
    limits: dict[str, Any] = fault.get("ctx", {})
    shown = _shown(fault["input"])
    match fault["type"]:
        case "missing":
            message = f"{name} required"
        case "literal_error":
            message = f"{name} must be {limits['expected']}, not {shown}"
        case "greater_than_equal":
            message = f"{name} must be at least {limits['ge']}, not {shown}"
        case "less_than_equal":
            message = f"{name} must be at most {limits['le']}, not {shown}"
        case "value_error":
            message = f"{name} must be {limits['error']}, not {shown}"
        case _:
            message = f"{name} must be a string, not {type(fault['input']).__name__}"
    return InvalidArgumentError(name, message, code=_CODES.get(name))


def _shown(value: object) -> str:
    if isinstance(value, (str, int, float)):
        return f"{value!a:.40}"
    return type(value).__name__
