"""Metadata of items, and the filters that choose items by it.

This is the reference: what a query of the store returns must be what `matches` says.
Values are compared as JSON compares them, by type: true is not 1, and 1 is 1.0. No
filter names a namespace, a key or a set, so that none can widen what is looked at.
"""

import json
from collections.abc import Callable, Mapping
from math import isfinite
from typing import Any, NamedTuple, TypeGuard

from crdtmem.errors import InvalidArgumentError
from crdtmem.limits import (
    FILTER_CONDITIONS_MAX,
    FILTER_LEVELS,
    METADATA_INT_BITS,
    METADATA_LEVELS,
    METADATA_NAME_CHARS,
)

__all__ = [
    "FilterItem",
    "check",
    "checked_metadata",
    "is_metadata",
    "matches",
    "metadata_of",
]

_ABSENT = object()
_INT_LIMIT = 1 << (METADATA_INT_BITS - 1)
_NAMES = f"1 to {METADATA_NAME_CHARS} characters, the first neither '@' nor '$'"


class FilterItem(NamedTuple):
    """What a filter sees of an item; the times are ISO 8601 with milliseconds and Z."""

    id: str
    lane: str
    created_at: str
    updated_at: str
    metadata: Mapping[str, Any]


def check(filters: object) -> Mapping[str, Any]:
    """Return a filter that is well formed.

    Raises:
        InvalidArgumentError: ``invalid-filter`` if it is not.

    """
    top = _mapping(filters)
    conditions, level = 0, [top]
    for _ in range(FILTER_LEVELS):
        deeper: list[Mapping[str, Any]] = []
        for one in level:
            count, inner = _checked_members(one)
            conditions += count
            deeper += inner
        # Each of those in a filter has a condition, or is empty and counts as one.
        if conditions + len(deeper) > FILTER_CONDITIONS_MAX:
            raise _malformed(f"at most {FILTER_CONDITIONS_MAX} conditions")
        if not deeper:
            return top
        level = deeper
    raise _malformed(f"at most {FILTER_LEVELS} deep")


def matches(filters: Mapping[str, Any], item: FilterItem) -> bool:
    """Return whether an item is one of those that a filter chooses.

    Args:
        filters: As `check` returned it.
        item: The item.

    """
    return all(_holds(name, wanted, item) for name, wanted in filters.items())


def checked_metadata(value: object, argument: str = "metadata") -> str:
    """Return the metadata that a caller gave as canonical JSON, "" for none.

    Args:
        value: A JSON object: a mapping whose values are of exactly the types that
            `metadata_of` returns.
        argument: How the caller spells the argument.

    Raises:
        InvalidArgumentError: ``invalid-metadata``. Its size is not checked here.

    """
    if not isinstance(value, Mapping):
        raise _bad_metadata(argument, f"an object, not {_kind(value)}")
    found = dict(value)
    wanted = _what_is_wrong(found, 1)
    if wanted:
        raise _bad_metadata(argument, wanted)
    return _canonical(found) if found else ""


def metadata_of(text: str) -> dict[str, Any]:
    """Return the metadata that `checked_metadata` made a text of."""
    found: dict[str, Any] = json.loads(text) if text else {}
    return found


def is_metadata(text: object) -> bool:
    """Return whether a text from elsewhere is what `checked_metadata` returns."""
    if text == "":
        return True
    try:
        found = json.loads(text) if isinstance(text, str) else None
    except (ValueError, RecursionError):
        return False
    if not isinstance(found, dict) or not found or _what_is_wrong(found, 1):
        return False
    return _canonical(found) == text


def _canonical(value: dict[str, Any]) -> str:
    return json.dumps(
        value,
        sort_keys=True,
        separators=(",", ":"),
        ensure_ascii=False,
        allow_nan=False,
    )


def _what_is_wrong(value: object, level: int) -> str:
    """Return what a value of metadata should be instead; "" if nothing is wrong."""
    # By exact type: what is read back later has the type of its JSON.
    if type(value) is dict or type(value) is list:
        return _what_is_wrong_inside(value, level)
    if type(value) is str:
        return "" if _is_encodable(value) else "text without lone surrogates"
    if type(value) is float:
        return "" if isfinite(value) else f"of finite numbers, not {value}"
    if type(value) is int:
        is_held = -_INT_LIMIT <= value < _INT_LIMIT
        return "" if is_held else f"of whole numbers of {METADATA_INT_BITS} bits"
    if value is None or type(value) is bool:
        return ""
    return f"of null, bool, int, float, str, list and dict, not {_kind(value)}"


def _what_is_wrong_inside(value: Any, level: int) -> str:
    if level > METADATA_LEVELS:
        return f"at most {METADATA_LEVELS} deep"
    names = value if isinstance(value, dict) else ()
    if not all(map(_is_name, names)):
        return f"an object whose names have {_NAMES}"
    inner = value.values() if isinstance(value, dict) else value
    return next(filter(None, (_what_is_wrong(one, level + 1) for one in inner)), "")


def _is_name(name: object) -> bool:
    return (
        isinstance(name, str)
        and type(name) is str
        and 1 <= len(name) <= METADATA_NAME_CHARS
        and name[0] not in "@$"
        and _is_encodable(name)
    )


def _is_encodable(text: str) -> bool:
    return text.isascii() or not any("\ud800" <= char <= "\udfff" for char in text)


def _checked_members(filters: Mapping[str, Any]) -> tuple[int, list[Mapping[str, Any]]]:
    """Check one filter; return how many conditions it has, and the filters in it."""
    conditions = 0 if filters else 1
    inner: list[Mapping[str, Any]] = []
    for name, wanted in filters.items():
        if name == "$not":
            inner.append(_mapping(wanted))
        elif _is_one_of(name, _COMBINED):
            if not isinstance(wanted, list | tuple) or not wanted:
                raise _malformed(f"a list of filters after {name}, and not empty")
            inner += map(_mapping, wanted)
        elif _is_name(name) or _is_one_of(name, _FIELDS):
            conditions += _checked_condition(name, wanted)
        else:
            raise _malformed(
                f"of names of metadata, {', '.join(_FIELDS)}, $and, $or and $not, "
                f"not {name!a:.80}"
            )
    return conditions, inner


def _checked_condition(name: str, wanted: object) -> int:
    if not _is_comparison(wanted):
        _require_value(wanted)
        return 1
    for operator, value in wanted.items():
        if not _is_one_of(operator, _OPERATORS):
            raise _malformed(
                f"of operators among {', '.join(_OPERATORS)} after {name!a:.80}, "
                f"not {operator!a:.80}"
            )
        accepts, what, _ = _OPERATORS[operator]
        if not accepts(value):
            raise _malformed(f"of {what} after {operator}, not {_kind(value)}")
        _require_value(value)
    return len(wanted)


def _mapping(filters: object) -> Mapping[str, Any]:
    if isinstance(filters, Mapping):
        return filters
    raise _malformed(f"an object, not {_kind(filters)}")


def _is_one_of(name: object, names: Mapping[str, object]) -> bool:
    return isinstance(name, str) and name in names


def _is_comparison(wanted: object) -> TypeGuard[Mapping[str, Any]]:
    """Return whether a member's value has operators; else it is compared whole."""
    return isinstance(wanted, Mapping) and any(
        isinstance(name, str) and name.startswith("$") for name in wanted
    )


def _require_value(value: object) -> None:
    wrong = _what_is_wrong(value, 1)
    if wrong:
        raise _malformed(f"compared with values {wrong}")


def _holds(name: str, wanted: Any, item: FilterItem) -> bool:
    if name == "$not":
        return not matches(wanted, item)
    if name in _COMBINED:
        return _COMBINED[name](matches(one, item) for one in wanted)
    field = _FIELDS.get(name)
    found = field(item) if field else item.metadata.get(name, _ABSENT)
    if not _is_comparison(wanted):
        return _equal(found, wanted)
    return all(_OPERATORS[word][2](found, value) for word, value in wanted.items())


def _equal(found: Any, wanted: Any) -> bool:
    if isinstance(wanted, dict) and isinstance(found, dict):
        return found.keys() == wanted.keys() and all(
            _equal(found[name], wanted[name]) for name in wanted
        )
    if isinstance(wanted, list) and isinstance(found, list):
        return len(found) == len(wanted) and all(map(_equal, found, wanted))
    if _is_number(found) and _is_number(wanted):
        return bool(found == wanted)
    return type(found) is type(wanted) and bool(found == wanted)


def _ordered(compare: Callable[[Any, Any], bool]) -> Callable[[Any, Any], bool]:
    def holds(found: Any, wanted: Any) -> bool:
        both = (found, wanted)
        alike = all(map(_is_number, both)) or all(isinstance(one, str) for one in both)
        return alike and compare(found, wanted)

    return holds


def _contains(found: Any, wanted: Any) -> bool:
    if isinstance(found, str):
        return isinstance(wanted, str) and wanted in found
    return isinstance(found, list) and _is_in(wanted, found)


def _is_in(one: Any, several: list[Any]) -> bool:
    return any(_equal(one, other) for other in several)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_orderable(value: object) -> bool:
    return _is_number(value) or isinstance(value, str)


def _is_anything(_: object) -> bool:
    return True


def _is_list(value: object) -> bool:
    return isinstance(value, list)


def _is_bool(value: object) -> bool:
    return isinstance(value, bool)


_COMBINED: dict[str, Callable[[Any], bool]] = {"$and": all, "$or": any}

_FIELDS: dict[str, Callable[[FilterItem], str]] = {
    "@created_at": lambda item: item.created_at,
    "@updated_at": lambda item: item.updated_at,
    "@lane": lambda item: item.lane,
    "@id": lambda item: item.id,
}

# By operator: which values it takes, what those are called, and when it holds for what
# was found. What is absent equals nothing.
_Operator = tuple[Callable[[object], bool], str, Callable[[Any, Any], bool]]
_OPERATORS: dict[str, _Operator] = {
    "$eq": (_is_anything, "values", _equal),
    "$ne": (_is_anything, "values", lambda found, value: not _equal(found, value)),
    "$gt": (_is_orderable, "numbers and texts", _ordered(lambda a, b: a > b)),
    "$gte": (_is_orderable, "numbers and texts", _ordered(lambda a, b: a >= b)),
    "$lt": (_is_orderable, "numbers and texts", _ordered(lambda a, b: a < b)),
    "$lte": (_is_orderable, "numbers and texts", _ordered(lambda a, b: a <= b)),
    "$in": (_is_list, "lists", _is_in),
    "$nin": (_is_list, "lists", lambda found, value: not _is_in(found, value)),
    "$exists": (
        _is_bool,
        "bools",
        lambda found, value: (found is not _ABSENT) == value,
    ),
    "$contains": (_is_anything, "values", _contains),
}


def _malformed(wanted: str) -> InvalidArgumentError:
    return InvalidArgumentError(
        "filters", f"filters must be {wanted}", code="invalid-filter"
    )


def _bad_metadata(argument: str, wanted: str) -> InvalidArgumentError:
    return InvalidArgumentError(
        argument, f"{argument} must be {wanted}", code="invalid-metadata"
    )


def _kind(value: object) -> str:
    return f"a value of type {type(value).__name__}"
