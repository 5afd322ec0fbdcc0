"""The values and expectations of the conformance files.

A case is data: its arguments hold a few forms that JSON has no word for, such as
``{"$repeat": ["a", 64]}``, and its expectations hold matchers, such as
``{"$contains": "..."}``. This module turns the first into Python values and holds a
result against the second. It knows no operation and no store.

A plain object of an expectation must be contained in the result, key by key; a plain
list must be matched element by element, and everything else must be equal and of the
same type: true is not 1, and 2000 is not 2000.0.
"""

from collections.abc import Callable, Mapping
from typing import Any
from uuid import UUID

from crdtmem.doc.text_form import units_of

__all__ = ["UnknownFormError", "differences", "resolve"]

MISSING = object()


class UnknownFormError(Exception):
    """A case uses a value or matcher that this runner does not know."""


def resolve(value: Any, saved: Mapping[str, object], *, has_plain: bool = False) -> Any:
    """Return the Python value of an argument.

    Args:
        value: The JSON of the argument.
        saved: Results of earlier steps, by the name that ``as`` gave them.
        has_plain: Whether a name that begins with ``$`` and is no form stands for
            itself, as in filters; else it is an error.

    Raises:
        UnknownFormError: If it has a form, or refers to a result, that is unknown.

    """
    if isinstance(value, list):
        return [resolve(item, saved, has_plain=has_plain) for item in value]
    if not isinstance(value, dict):
        return value
    form = next((key for key in value if key.startswith("$")), None)
    if form in VALUES and len(value) == 1:
        return VALUES[form](value[form], saved)
    if form is not None and not has_plain:
        raise UnknownFormError(f"unknown value {form}")
    return {
        key: resolve(item, saved, has_plain=has_plain) for key, item in value.items()
    }


def differences(expected: Any, actual: Any, at: str = "result") -> list[str]:
    """Return a line for each place where a result is not what was expected.

    Args:
        expected: The expectation, its references resolved by `resolve_expected`.
        actual: The result in its JSON form.
        at: Names the place in the lines that are returned.

    Raises:
        UnknownFormError: If the expectation uses an unknown matcher.

    """
    if isinstance(expected, dict):
        if any(key.startswith("$") for key in expected):
            return _unmatched(expected, actual, at)
        if not isinstance(actual, dict):
            return [f"{at}: expected an object, got {_short(actual)}"]
        return [
            line
            for key, inner in expected.items()
            for line in differences(inner, actual.get(key, MISSING), f"{at}.{key}")
        ]
    if isinstance(expected, list) and isinstance(actual, list):
        if len(expected) != len(actual):
            wanted = f"expected {len(expected)} elements, got {len(actual)}"
            return [f"{at}: {wanted}: {_short(actual)}"]
        return [
            line
            for i, (want, got) in enumerate(zip(expected, actual, strict=True))
            for line in differences(want, got, f"{at}.{i}")
        ]
    if type(expected) is type(actual) and expected == actual:
        return []
    return [f"{at}: expected {_short(expected)}, got {_short(actual)}"]


def resolve_expected(value: Any, saved: Mapping[str, object]) -> Any:
    """Return an expectation with its values in place and its matchers kept."""
    if isinstance(value, list):
        return [resolve_expected(item, saved) for item in value]
    if not isinstance(value, dict):
        return value
    if len(value) == 1 and next(iter(value)) in VALUES:
        return _in_json(resolve(value, saved))
    return {key: resolve_expected(item, saved) for key, item in value.items()}


def _in_json(value: Any) -> Any:
    """Return a value as results show it, whose JSON has no tuples, bytes and UUIDs."""
    if isinstance(value, tuple):
        return [_in_json(element) for element in value]
    if isinstance(value, bytes):
        return value.hex()
    return str(value) if isinstance(value, UUID) else value


def _unmatched(matchers: dict[str, Any], actual: object, at: str) -> list[str]:
    found = []
    for name, argument in matchers.items():
        if name not in MATCHERS:
            raise UnknownFormError(f"unknown matcher {name}")
        if not MATCHERS[name](argument, actual):
            found.append(f"{at}: {name} {_short(argument)} fails on {_short(actual)}")
    return found


def _short(value: object) -> str:
    text = "nothing" if value is MISSING else ascii(value)
    return text if len(text) <= 300 else f"{text[:300]}…"


def _reference(path: str, saved: Mapping[str, object]) -> object:
    value: Any = saved
    for part in path.split("."):
        try:
            value = value[int(part)] if isinstance(value, list) else value[part]
        except (KeyError, IndexError, TypeError, ValueError):
            raise UnknownFormError(f"nothing at {path!r}") from None
    return value


def _strings(argument: str | list[str]) -> list[str]:
    return [argument] if isinstance(argument, str) else argument


def _column(field: str | bool, actual: object) -> list[Any] | None:
    """Return the elements of a list, or one field of each; None if it has none."""
    if not isinstance(actual, list):
        return None
    if field is True:
        return actual
    return [item.get(field) if isinstance(item, dict) else None for item in actual]


def _is_sorted(field: str | bool, actual: object) -> bool:
    column = _column(field, actual)
    return column is not None and column == sorted(column)


def _is_unique(field: str | bool, actual: object) -> bool:
    column = _column(field, actual)
    return column is not None and len(column) == len({repr(item) for item in column})


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_same(wanted: Any, got: object) -> bool:
    """Return whether a value is equal, and of the same type, all the way down."""
    if type(wanted) is not type(got):
        return False
    if isinstance(wanted, dict) and isinstance(got, dict):
        return wanted.keys() == got.keys() and all(
            _is_same(wanted[name], got[name]) for name in wanted
        )
    if isinstance(wanted, list) and isinstance(got, list):
        return len(wanted) == len(got) and all(map(_is_same, wanted, got))
    return bool(wanted == got)


def _texts(hits: object) -> list[Any] | None:
    """Return the texts of the items of hits, sorted; None if they have none."""
    try:
        return sorted(hit["item"]["text"] for hit in hits)  # type: ignore[attr-defined] # what is no list is caught
    except (KeyError, TypeError):
        return None


def _is_well_formed(text: object) -> bool:
    return isinstance(text, str) and not any("\ud800" <= c <= "\udfff" for c in text)


VALUES: dict[str, Callable[[Any, Mapping[str, object]], Any]] = {
    "$bytes": lambda arg, _: bytes.fromhex(arg),
    "$float": lambda arg, _: float(arg),
    "$tuple": lambda arg, saved: tuple(resolve(arg, saved)),
    "$uuid": lambda arg, _: UUID(arg),
    "$repeat": lambda arg, saved: resolve(arg[0], saved) * arg[1],
    "$concat": lambda arg, saved: "".join(resolve(part, saved) for part in arg),
    "$surrogate": lambda arg, _: chr(int(arg, 16)),
    "$ref": _reference,
}

MATCHERS: dict[str, Callable[[Any, Any], bool]] = {
    "$absent": lambda arg, got: (got is MISSING) is arg,
    "$contains": lambda arg, got: (
        isinstance(got, str) and all(part in got for part in _strings(arg))
    ),
    "$notContains": lambda arg, got: (
        isinstance(got, str) and not any(part in got for part in _strings(arg))
    ),
    "$len": lambda arg, got: isinstance(got, str | list | dict) and len(got) == arg,
    "$ne": lambda arg, got: got is not MISSING and bool(differences(arg, got)),
    "$gte": lambda arg, got: _is_number(got) and got >= arg,
    "$lte": lambda arg, got: _is_number(got) and got <= arg,
    "$oneOf": lambda arg, got: any(not differences(one, got) for one in arg),
    "$any": lambda arg, got: (
        isinstance(got, list) and any(not differences(arg, one) for one in got)
    ),
    "$notAny": lambda arg, got: (
        isinstance(got, list) and all(differences(arg, one) for one in got)
    ),
    "$is": _is_same,
    "$maxUnits": lambda arg, got: isinstance(got, str) and units_of(got) <= arg,
    "$sorted": _is_sorted,
    "$texts": lambda arg, got: _texts(got) == sorted(arg),
    "$unique": _is_unique,
    "$wellFormed": lambda arg, got: _is_well_formed(got) is arg,
}
