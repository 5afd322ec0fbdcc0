"""Reads what a request gives: the query, a form, a JSON body. Pure, and strict.

Nothing is guessed: an unknown or doubled name, and a value of another type than the
table says, are refused before anything is done.
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from math import isfinite
from typing import Any, NoReturn
from urllib.parse import unquote_to_bytes

from crdtmem.errors import InvalidArgumentError
from crdtmem.limits import SERVE_NAMES_MAX
from crdtmem.serve.answers import HttpError
from crdtmem.serve.routing import Field, Kind

__all__ = [
    "JSON_TYPE",
    "body_values",
    "pairs_in",
    "query_schema_of",
    "query_values",
    "schema_of",
]

JSON_TYPE = "application/json"

_CODES = {
    "label": "invalid-label",
    "scope": "invalid-scope",
    "content": "invalid-text",
    "text": "invalid-text",
    "old": "invalid-text",
    "new": "invalid-text",
    "sizeLimit": "invalid-size-limit",
    "expectedRev": "invalid-precondition",
    "expectedHash": "invalid-precondition",
    "baseRev": "invalid-precondition",
    "requestId": "invalid-request-id",
}
"""Codes of arguments that have one of their own."""

_WHOLE = re.compile(r"-?[0-9]{1,18}")
_NUMBER = re.compile(r"-?[0-9]{1,18}(\.[0-9]{1,18})?")
_LINES = re.compile(r"([0-9]{1,9})(?:-([0-9]{1,9}))?")
_SCOPES = ("project", "global")


def pairs_in(raw: bytes, *, known: Sequence[str] | None = None) -> dict[str, str]:
    """Return the names and values of a query or a form.

    Args:
        raw: As it came.
        known: The names that there are; None: any.

    Raises:
        InvalidArgumentError: If a name is unknown or doubled.
        HttpError: ``bad-request``, if it is no UTF-8, or of far too many names.

    """
    if raw.count(b"&") >= SERVE_NAMES_MAX:
        message = f"there are more than {SERVE_NAMES_MAX} names"
        raise HttpError(400, "bad-request", message)
    found: dict[str, str] = {}
    for part in raw.split(b"&") if raw else ():
        name, _, value = (_unquoted(piece) for piece in part.partition(b"="))
        if name in found:
            raise InvalidArgumentError(name[:60], f"{name!a:.60} is given twice")
        if known is not None and name not in known:
            _refuse_name(name, known)
        found[name] = value
    return found


def query_values(given: Mapping[str, str], fields: Sequence[Field]) -> dict[str, Any]:
    """Return what a query says, by the names of the verb's arguments.

    Raises:
        InvalidArgumentError: If something is unknown, malformed or missing.

    """
    return _values(given, fields, _FROM_TEXT)


def body_values(
    raw: bytes, content_type: str, fields: Sequence[Field]
) -> dict[str, Any]:
    """Return what a JSON body says, by the names of the verb's arguments.

    Raises:
        InvalidArgumentError: If something is unknown, doubled, malformed or missing.
        HttpError: ``unsupported-media-type``; ``bad-request``, if it is no JSON object.

    """
    if raw and content_type.partition(";")[0].strip().lower() != JSON_TYPE:
        message = f"the body must be {JSON_TYPE}, not {content_type!a:.60}"
        raise HttpError(415, "unsupported-media-type", message)
    return _values(_object_in(raw or b"{}"), fields, _FROM_JSON)


def schema_of(kind: Kind) -> dict[str, Any]:
    """Return the JSON schema of a value."""
    return _SCHEMAS[kind]


def _values(
    given: Mapping[str, Any],
    fields: Sequence[Field],
    readers: Mapping[Kind, Callable[[Any], Any]],
) -> dict[str, Any]:
    known = {field.name: field for field in fields}
    for name in given:
        if name not in known:
            _refuse_name(name, list(known))
    found: dict[str, Any] = {}
    for field in fields:
        if field.name not in given:
            if field.is_required:
                raise _refusal(field, f"{field.name} required")
            continue
        value = given[field.name]
        try:
            found[field.called] = readers[field.kind](value)
        except _MisfitError as exc:
            message = f"{field.name} must be {exc}, not {_shown(value)}"
            raise _refusal(field, message) from exc
    return found


class _MisfitError(Exception):
    """A value is not what it must be; the text says what that is."""


def _object_in(raw: bytes) -> dict[str, Any]:
    try:
        value = json.loads(
            raw.decode(), object_pairs_hook=_once_each, parse_constant=_no_constant
        )
        if b"\\u" in raw:
            # Half a surrogate pair could be written nowhere.
            json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError as exc:
        message = "the body holds half a surrogate pair"
        raise InvalidArgumentError(
            "body", message, code="invalid-text", details={"reason": "lone-surrogate"}
        ) from exc
    except (ValueError, RecursionError) as exc:
        if isinstance(exc, InvalidArgumentError):
            raise
        raise HttpError(400, "bad-request", "the body is no JSON") from exc
    if not isinstance(value, dict):
        message = f"the body must be a JSON object, not {type(value).__name__}"
        raise HttpError(400, "bad-request", message)
    return value


def _once_each(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found:
            raise InvalidArgumentError(name[:60], f"{name!a:.60} is given twice")
        found[name] = value
    return found


def _no_constant(name: str) -> NoReturn:
    raise ValueError(name)


def _unquoted(piece: bytes) -> str:
    try:
        return unquote_to_bytes(piece.replace(b"+", b" ")).decode()
    except UnicodeDecodeError as exc:
        message = "the names and values must be UTF-8"
        raise HttpError(400, "bad-request", message) from exc


def _refuse_name(name: str, known: Sequence[str]) -> NoReturn:
    names = ", ".join(sorted(known)) or "none"
    message = f"unknown name {name!a:.60}; there are: {names}"
    raise InvalidArgumentError(name[:60], message)


def _refusal(field: Field, message: str) -> InvalidArgumentError:
    return InvalidArgumentError(field.name, message, code=_CODES.get(field.name))


def _shown(value: object) -> str:
    if isinstance(value, (str, int, float)) or value is None:
        return f"{value!a:.40}"
    return f"a value of type {type(value).__name__}"


def _text(value: object) -> str:
    if isinstance(value, str):
        return value
    raise _MisfitError("a string")


def _whole(value: object) -> int:
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    raise _MisfitError("an integer")


def _number(value: object) -> int | float:
    if isinstance(value, float) and isfinite(value):
        return value
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    raise _MisfitError("a number")


def _flag(value: object) -> bool:
    if isinstance(value, bool):
        return value
    raise _MisfitError("true or false")


def _scope(value: object) -> str:
    if isinstance(value, str) and value in _SCOPES:
        return value
    raise _MisfitError("'project' or 'global'")


def _texts(value: object) -> list[str]:
    if isinstance(value, list) and all(isinstance(one, str) for one in value):
        return value
    raise _MisfitError("a list of strings")


def _lines(value: object) -> tuple[int, int]:
    is_pair = isinstance(value, list) and len(value) == 2
    if is_pair and isinstance(value, list) and all(type(one) is int for one in value):
        return value[0], value[1]
    raise _MisfitError("two line numbers, first and last")


def _occurrence(value: object) -> int | str:
    return "all" if value == "all" else _whole(value)


def _items(value: object) -> str | list[str]:
    return value if isinstance(value, str) else _texts(value)


def _object(value: object) -> dict[str, Any]:
    if isinstance(value, dict):
        return value
    raise _MisfitError("an object")


def _objects(value: object) -> dict[str, Any] | list[dict[str, Any]]:
    if isinstance(value, dict):
        return value
    if isinstance(value, list) and all(isinstance(one, dict) for one in value):
        return value
    raise _MisfitError("an object, or a list of them")


def _text_whole(value: str) -> int:
    if _WHOLE.fullmatch(value):
        return int(value)
    raise _MisfitError("an integer")


def _text_number(value: str) -> float:
    if _NUMBER.fullmatch(value):
        return float(value)
    raise _MisfitError("a number")


def _text_flag(value: str) -> bool:
    if value in ("true", "false"):
        return value == "true"
    raise _MisfitError("true or false")


def _text_lines(value: str) -> tuple[int, int]:
    match = _LINES.fullmatch(value)
    if match is None:
        raise _MisfitError("a range of lines such as 3-7")
    return int(match[1]), int(match[2] or match[1])


_FROM_JSON: Mapping[Kind, Callable[[Any], Any]] = {
    "text": _text,
    "whole": _whole,
    "number": _number,
    "flag": _flag,
    "scope": _scope,
    "texts": _texts,
    "lines": _lines,
    "occurrence": _occurrence,
    "items": _items,
    "object": _object,
    "objects": _objects,
}

_FROM_TEXT: Mapping[Kind, Callable[[Any], Any]] = {
    "text": _text,
    "whole": _text_whole,
    "number": _text_number,
    "flag": _text_flag,
    "scope": _scope,
    "texts": lambda value: value.split(","),
    "lines": _text_lines,
}

_STRING = {"type": "string"}
_STRINGS = {"type": "array", "items": _STRING}
_OBJECT = {"type": "object", "additionalProperties": True}

_SCHEMAS: Mapping[Kind, dict[str, Any]] = {
    "text": _STRING,
    "whole": {"type": "integer"},
    "number": {"type": "number"},
    "flag": {"type": "boolean"},
    "scope": {"type": "string", "enum": list(_SCOPES)},
    "texts": _STRINGS,
    "lines": {
        "type": "array",
        "items": {"type": "integer"},
        "minItems": 2,
        "maxItems": 2,
    },
    "occurrence": {"anyOf": [{"type": "integer"}, {"const": "all"}]},
    "items": {"anyOf": [_STRING, _STRINGS]},
    "object": _OBJECT,
    "objects": {"anyOf": [_OBJECT, {"type": "array", "items": _OBJECT}]},
}


@cache
def query_schema_of(kind: Kind) -> dict[str, Any]:
    """Return the schema of a value as a query spells it."""
    if kind == "lines":
        return {"type": "string", "pattern": "^[0-9]{1,9}(-[0-9]{1,9})?$"}
    return schema_of(kind)
