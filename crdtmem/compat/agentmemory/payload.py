"""What a caller's payload says, in the terms of the verbs.

Little is refused here: a value that makes no sense is handed on as it is, and the verb
refuses it, so that all checks come in the verb's order.
"""

import difflib
import re
from collections.abc import Mapping
from typing import Any

from crdtmem.errors import InvalidArgumentError
from crdtmem.models import UNSET
from crdtmem.scope import parse_label, parse_scope

__all__ = [
    "SIZE_UNITS_MAX",
    "checked_payload",
    "count_of",
    "creation_of",
    "flag_of",
    "guards_of",
    "target_of",
]

SIZE_UNITS_MAX = 20_000
"""Largest sizeLimit that a caller of the compatible system can ask for."""

_GUARDS = {
    "expectedRev": "expected_rev",
    "expectedHash": "expected_hash",
    "baseRev": "base_rev",
    "requestId": "request_id",
}
# The revs stay far below; longer digits are no number anybody means.
_DIGITS = "[0-9]{1,16}"
_ALIKE = 0.8


def checked_payload(payload: object) -> Mapping[str, object]:
    """Return a payload, in which no guard hides behind a misspelling.

    Unknown keys are passed over, as the compatible system does. But one that is nearly
    the name of a guard is refused: dropped, it would make a guarded write unguarded.

    Raises:
        InvalidArgumentError: If it is no object, or holds such a key.

    """
    if not isinstance(payload, Mapping):
        message = f"payload must be an object, not {type(payload).__name__}"
        raise InvalidArgumentError("payload", message)
    plain = {name.lower(): name for name in _GUARDS}
    for key in payload.keys() - _GUARDS.keys():
        word = str(key)[:40].replace("_", "").replace("-", "").lower()
        near = difflib.get_close_matches(word, plain, 1, _ALIKE)
        if near:
            raise InvalidArgumentError(
                plain[near[0]],
                f"unknown argument {str(key)!r:.60}; did you mean"
                f" {plain[near[0]]!r}? nothing was written",
            )
    return payload


def target_of(payload: Mapping[str, object]) -> tuple[str, Any]:
    """Return the label and the scope of the slot that is meant; None is either scope.

    Raises:
        InvalidArgumentError: ``invalid-label``, ``invalid-scope``.

    """
    label = parse_label(payload.get("label"))
    return label, parse_scope(payload.get("scope"), optional=True)


def guards_of(payload: Mapping[str, object], *names: str) -> dict[str, Any]:
    """Return the guards that were given, of those that a verb takes, by its names.

    Args:
        payload: What the caller sent.
        names: As the caller spells them.

    """
    return {
        _GUARDS[name]: count_of(payload[name])
        if name.endswith("Rev")
        else payload[name]
        for name in names
        if name in payload
    }


def creation_of(payload: Mapping[str, object]) -> dict[str, Any]:
    """Return the settings of a new slot, by the names of ``Memory.create``.

    Null stands for nothing, as in the compatible system.

    Raises:
        InvalidArgumentError: ``invalid-size-limit``.

    """
    settings: dict[str, Any] = {
        "description": _given(payload, "description"),
        "pinned": flag_of(_given(payload, "pinned")),
        "read_only": flag_of(_given(payload, "readOnly")),
        "append_only": flag_of(_given(payload, "appendOnly")),
    }
    if (limit := _given(payload, "sizeLimit")) is not UNSET:
        settings["size_limit"] = _checked_limit(limit)
    return settings | guards_of(payload, "requestId")


def count_of(value: object) -> object:
    """Return a number that came as one of JavaScript's, or as its digits."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, str) and re.fullmatch(_DIGITS, value):
        return int(value)
    return value


def flag_of(value: object) -> object:
    """Return a truth value that came as one, or as its name."""
    if isinstance(value, str):
        return {"true": True, "false": False}.get(value, value)
    return value


def _given(payload: Mapping[str, object], name: str) -> object:
    value = payload.get(name)
    return UNSET if value is None else value


def _checked_limit(value: object) -> int:
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    is_bool = isinstance(value, bool)
    if isinstance(value, int) and not is_bool and 1 <= value <= SIZE_UNITS_MAX:
        return value
    raise InvalidArgumentError(
        "sizeLimit",
        f"sizeLimit must be an integer between 1 and {SIZE_UNITS_MAX},"
        f" not {value!r:.40}",
        code="invalid-size-limit",
    )
