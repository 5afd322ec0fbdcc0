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

__all__ = ["UnknownFormError", "differences", "resolve"]

MISSING = object()


class UnknownFormError(Exception):
    """A case uses a value or matcher that this runner does not know."""


def resolve(value: Any, saved: Mapping[str, object]) -> Any:
    """Return the Python value of an argument.

    Args:
        value: The JSON of the argument.
        saved: Results of earlier steps, by the name that ``as`` gave them.

    Raises:
        UnknownFormError: If it has a form, or refers to a result, that is unknown.

    """
    if isinstance(value, list):
        return [resolve(item, saved) for item in value]
    if not isinstance(value, dict):
        return value
    form = next((key for key in value if key.startswith("$")), None)
    if form is None:
        return {key: resolve(item, saved) for key, item in value.items()}
    if form not in VALUES or len(value) != 1:
        raise UnknownFormError(f"unknown value {form}")
    return VALUES[form](value[form], saved)


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
        return resolve(value, saved)
    return {key: resolve_expected(item, saved) for key, item in value.items()}


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


VALUES: dict[str, Callable[[Any, Mapping[str, object]], Any]] = {
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
    "$sorted": _is_sorted,
    "$unique": _is_unique,
}
