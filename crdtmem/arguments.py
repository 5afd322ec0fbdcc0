"""What a verb accepts: checked before any lock, so a refusal has touched nothing.

Nothing is coerced and nothing dropped: a value of another type, or None where a value
was meant, is an error that names the argument. ``UNSET`` alone means that none was
given.
"""

import hashlib
import json
import re
from collections.abc import Iterable
from typing import Literal, NamedTuple, TypeGuard

from crdtmem.doc.text_form import lone_surrogate, units_of
from crdtmem.errors import InvalidArgumentError
from crdtmem.limits import (
    DESCRIPTION_UNITS,
    MAX_SIZE_UNITS,
    REQUEST_ID_MAX,
    TEXT_BYTES,
    UINT_MAX,
    WAIT_MAX_S,
)
from crdtmem.models import UNSET, Unset
from crdtmem.scope import parse_label

__all__ = [
    "Guard",
    "Request",
    "checked_bool",
    "checked_content",
    "checked_count",
    "checked_description",
    "checked_guard",
    "checked_labels",
    "checked_lines",
    "checked_occurrence",
    "checked_request_id",
    "checked_rev",
    "checked_seconds",
    "checked_settings",
    "checked_size_limit",
    "checked_text",
    "checked_wait",
    "require_guard",
]

HASH = r"[0-9a-fA-F]{16}|[0-9a-fA-F]{64}"
REQUEST_ID = r"[!-~]+"


class Guard(NamedTuple):
    """What a caller demands of the text before its write; hash in lower case."""

    expected_rev: int | Unset = UNSET
    expected_hash: str | Unset = UNSET
    base_rev: int | Unset = UNSET

    @property
    def is_given(self) -> bool:
        """Whether there is any."""
        return self != Guard()


class Request(NamedTuple):
    """A call that has a name, so that repeating it writes nothing."""

    request_id: str
    verb: str
    fingerprint: bytes

    @classmethod
    def of(cls, request_id: object, verb: str, **arguments: object) -> "Request | None":
        """Return the request of a call, or None where it has no id.

        Raises:
            InvalidArgumentError: ``invalid-request-id``.

        """
        if request_id is UNSET:
            return None
        name = checked_request_id(request_id)
        given = {k: v for k, v in arguments.items() if v is not UNSET}
        form = json.dumps([verb, given], sort_keys=True, default=repr)
        return cls(name, verb, hashlib.sha256(form.encode()).digest())


def checked_content(value: object, argument: str = "content") -> str:
    """Return a whole text, which may be empty.

    Raises:
        InvalidArgumentError: ``invalid-text``.

    """
    if not isinstance(value, str):
        raise _bad_text(argument, f"{argument} required: a string, not {_kind(value)}")
    return _bounded(value, argument)


def checked_text(value: object, argument: str = "text") -> str:
    """Return a text that is not empty; blanks and newlines alone will do.

    Raises:
        InvalidArgumentError: ``invalid-text``.

    """
    if not isinstance(value, str) or not value:
        shown = "an empty string" if value == "" else _kind(value)
        raise _bad_text(argument, f"{argument} required: it is {shown}")
    return _bounded(value, argument)


def checked_size_limit(value: object) -> int:
    """Return a size limit in UTF-16 units.

    Raises:
        InvalidArgumentError: ``invalid-size-limit``.

    """
    if not _is_integer(value) or not 1 <= value <= MAX_SIZE_UNITS:
        raise InvalidArgumentError(
            "size_limit",
            f"sizeLimit must be an integer between 1 and {MAX_SIZE_UNITS},"
            f" not {_shown(value)}",
            code="invalid-size-limit",
        )
    return value


def checked_description(value: object) -> str:
    """Return a description.

    Raises:
        InvalidArgumentError: ``invalid-argument``.

    """
    if not isinstance(value, str) or lone_surrogate(value) is not None:
        message = f"description must be a string, not {_shown(value)}"
        raise InvalidArgumentError("description", message)
    size = units_of(value)
    if size > DESCRIPTION_UNITS:
        message = f"description is too long ({size} > {DESCRIPTION_UNITS})"
        raise InvalidArgumentError("description", message)
    return value


def checked_bool(value: object, argument: str) -> bool:
    """Return a truth value; nothing else counts as one.

    Raises:
        InvalidArgumentError: ``invalid-argument``.

    """
    if not isinstance(value, bool):
        message = f"{argument} must be true or false, not {_shown(value)}"
        raise InvalidArgumentError(argument, message)
    return value


def checked_count(value: object, argument: str, most: int, least: int = 1) -> int:
    """Return an integer within its bounds.

    Raises:
        InvalidArgumentError: ``invalid-argument``.

    """
    if not _is_integer(value) or not least <= value <= most:
        raise InvalidArgumentError(
            argument,
            f"{argument} must be an integer between {least} and {most},"
            f" not {_shown(value)}",
            details={"min": least, "max": most},
        )
    return value


def checked_labels(value: object) -> list[str]:
    """Return several labels; a string is refused, for its letters may be labels too.

    Raises:
        InvalidArgumentError: ``invalid-argument``; ``invalid-label`` for one of them.

    """
    if isinstance(value, str) or not isinstance(value, Iterable):
        message = f"labels must be a list of labels, not {_shown(value)}"
        raise InvalidArgumentError("labels", message)
    return [parse_label(label) for label in value]


def checked_occurrence(value: object) -> int | Literal["all"] | Unset:
    """Return which of several matches is meant.

    Raises:
        InvalidArgumentError: ``invalid-argument``.

    """
    if isinstance(value, Unset) or value == "all":
        return "all" if value == "all" else UNSET
    return checked_count(value, "occurrence", UINT_MAX)


def checked_lines(value: object) -> tuple[int, int] | None:
    """Return a range of lines, from 1, both ends included; None for all.

    Raises:
        InvalidArgumentError: ``invalid-argument``.

    """
    if value is None:
        return None
    if isinstance(value, (tuple, list)) and len(value) == 2:
        first, last = value
        if _is_integer(first) and _is_integer(last) and 1 <= first <= last:
            return first, last
    shown = f"{value!a:.40}" if isinstance(value, (tuple, list)) else _shown(value)
    message = f"lines must be two line numbers from 1, first and last, not {shown}"
    raise InvalidArgumentError("lines", message)


def checked_rev(value: object, argument: str) -> int:
    """Return a rev.

    Raises:
        InvalidArgumentError: ``invalid-precondition``.

    """
    if not _is_integer(value):
        message = f"{argument} must be an integer, not {_shown(value)}"
        raise _bad_guard(argument, message, "type")
    if not 0 <= value <= UINT_MAX:
        raise _bad_guard(argument, f"{argument} cannot be {value}", "range")
    return value


def checked_guard(
    expected_rev: object = UNSET,
    expected_hash: object = UNSET,
    base_rev: object = UNSET,
) -> Guard:
    """Return what the caller demands.

    Raises:
        InvalidArgumentError: ``invalid-precondition``, with its reason.

    """
    guard = Guard(
        UNSET if expected_rev is UNSET else checked_rev(expected_rev, "expected_rev"),
        UNSET if expected_hash is UNSET else _checked_hash(expected_hash),
        UNSET if base_rev is UNSET else checked_rev(base_rev, "base_rev"),
    )
    if guard.base_rev is not UNSET and guard != Guard(base_rev=guard.base_rev):
        message = (
            "base_rev merges and cannot be joined with expected_rev or expected_hash"
        )
        raise _bad_guard("base_rev", message, "exclusive")
    return guard


def checked_settings(
    *,
    description: object,
    size_limit: object,
    pinned: object,
    read_only: object,
    append_only: object,
) -> dict[str, object]:
    """Return the settings that were given, by their names in the doc.

    Raises:
        InvalidArgumentError: If one is malformed.

    """
    meta: dict[str, object] = {}
    if description is not UNSET:
        meta["description"] = checked_description(description)
    if size_limit is not UNSET:
        meta["sizeLimit"] = checked_size_limit(size_limit)
    if pinned is not UNSET:
        meta["pinned"] = checked_bool(pinned, "pinned")
    if read_only is not UNSET:
        meta["readOnly"] = checked_bool(read_only, "read_only")
    if append_only is not UNSET:
        meta["appendOnly"] = checked_bool(append_only, "append_only")
    return meta


def require_guard(guard: Guard, argument: str, why: str) -> None:
    """Refuse a call that must name the text it is meant for.

    Raises:
        InvalidArgumentError: ``invalid-precondition``, reason ``guard-required``.

    """
    if not guard.is_given:
        raise _bad_guard(argument, f"{argument} required: {why}", "guard-required")


def checked_seconds(value: object, argument: str, least: float, most: float) -> float:
    """Return a time in seconds, within its bounds.

    Raises:
        InvalidArgumentError: ``invalid-argument``.

    """
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not is_number or not least <= (seconds := float(str(value))) <= most:
        message = (
            f"{argument} must be between {least:g} and {most:g} s, not {_shown(value)}"
        )
        raise InvalidArgumentError(argument, message)
    return seconds


def checked_wait(value: object) -> float:
    """Return how long to wait, in seconds.

    Raises:
        InvalidArgumentError: ``invalid-argument``.

    """
    return checked_seconds(value, "wait", 0, WAIT_MAX_S)


def checked_request_id(value: object, argument: str = "request_id") -> str:
    """Return a request id.

    Raises:
        InvalidArgumentError: ``invalid-request-id``.

    """
    is_fine = (
        isinstance(value, str)
        and len(value) <= REQUEST_ID_MAX
        and re.fullmatch(REQUEST_ID, value)
    )
    if not is_fine:
        raise InvalidArgumentError(
            argument,
            f"{argument} must be 1 to {REQUEST_ID_MAX} printable ASCII characters"
            f" without blanks, not {_shown(value)}",
            code="invalid-request-id",
        )
    return str(value)


def _checked_hash(value: object) -> str:
    if not isinstance(value, str):
        message = f"expected_hash must be a string, not {_shown(value)}"
        raise _bad_guard("expected_hash", message, "type")
    if not re.fullmatch(HASH, value):
        message = f"expected_hash must be 16 or 64 hex digits, not {len(value)} others"
        raise _bad_guard("expected_hash", message, "format")
    return value.lower()


def _bounded(text: str, argument: str) -> str:
    position = lone_surrogate(text)
    if position is not None:
        message = f"{argument} holds half a surrogate pair, at character {position}"
        raise _bad_text(argument, message, reason="lone-surrogate", position=position)
    # Four bytes are the most that a character takes: a short text needs no encoding.
    if len(text) * 4 > TEXT_BYTES and (size := len(text.encode())) > TEXT_BYTES:
        message = f"{argument} is too long ({size} > {TEXT_BYTES} bytes)"
        raise _bad_text(argument, message, reason="too-long", bytes=size)
    return text


def _bad_text(argument: str, message: str, **details: object) -> InvalidArgumentError:
    return InvalidArgumentError(argument, message, code="invalid-text", details=details)


def _bad_guard(argument: str, message: str, reason: str) -> InvalidArgumentError:
    return InvalidArgumentError(
        argument,
        message,
        code="invalid-precondition",
        hint="read the slot and pass the rev it shows" if "guard" in reason else None,
        details={"reason": reason},
    )


def _is_integer(value: object) -> TypeGuard[int]:
    # True and False are integers to Python, and never meant as ones here.
    return isinstance(value, int) and not isinstance(value, bool)


def _kind(value: object) -> str:
    return "None" if value is None else type(value).__name__


def _shown(value: object) -> str:
    """Return a value for a sentence: short, and never the text of a slot."""
    if isinstance(value, (int, float)) or value is None:
        return f"{value!r:.40}"
    if isinstance(value, str):
        return f"{value!a:.40}"
    return _kind(value)
