"""Fields of a record, checked; a record that breaks a rule is named and skipped."""

from datetime import UTC, datetime
from typing import Any

from crdtmem.models import Scope
from crdtmem.scope import parse_scope

__all__ = ["BadRecordError", "at_ms_of", "field_of", "scope_in"]


class BadRecordError(Exception):
    """A record is skipped."""

    def __init__(self, code: str, reason: str) -> None:
        super().__init__(reason)
        self.code = code
        self.reason = reason


def field_of(record: dict[str, Any], name: str, kind: type[Any]) -> Any:
    """Return a field.

    Raises:
        BadRecordError: ``missing-field``, or ``bad-type``.

    """
    if name not in record:
        raise BadRecordError("missing-field", f"{name} is missing")
    value = record[name]
    # To Python True is an integer as well.
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        found = "null" if value is None else type(value).__name__
        raise BadRecordError("bad-type", f"{name} must be {kind.__name__}, not {found}")
    return value


def scope_in(record: dict[str, Any]) -> Scope:
    """Return the scope of a record.

    Raises:
        BadRecordError: See ``field_of``.
        InvalidArgumentError: ``invalid-scope``.

    """
    # Only what is optional may come back as None.
    return parse_scope(field_of(record, "scope", str), optional=False) or "project"


def at_ms_of(record: dict[str, Any], name: str) -> int:
    """Return a field that is a moment, in milliseconds since 1970.

    Raises:
        BadRecordError: See ``field_of``; ``bad-type`` also for an earlier one.

    """
    at = field_of(record, name, str)
    try:
        moment = datetime.fromisoformat(at)
        # One without a zone is taken as UTC, which is what an export writes.
        zoned = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
        at_ms = round(zoned.timestamp() * 1000)
    except (ValueError, OverflowError, OSError):
        at_ms = -1
    if at_ms < 0:
        raise BadRecordError("bad-type", f"{name} is no time since 1970: {at!a:.40}")
    return at_ms
