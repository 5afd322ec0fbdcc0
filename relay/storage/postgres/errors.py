"""What a failure of the database means to a relay: asyncpg's errors as ours.

No sentence holds what the server said in words: a password or a text of somebody could
be in there. It names the server's condition, such as ``DiskFullError (53100)``.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import asyncpg

from crdtmem.errors import (
    CrdtmemError,
    RelayError,
    StorageBusyError,
    StorageCorruptError,
    StorageFullError,
    StorageReadOnlyError,
    StorageUnreachableError,
)

__all__ = ["FAILURES", "error_of", "is_refusal", "mapped_errors", "reason_of"]

FAILURES = (
    asyncpg.PostgresError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,
    OSError,
)
"""What asyncpg raises; a time-out is an OSError."""

_FULL = "53100"
_READ_ONLY = "25006"
# Classes of SQLSTATE. Not now: other transactions, too little memory, too many
# connections, a cancelled statement, a lock that was not had.
_BUSY = ("40", "53", "55", "57014")
# The connection, who may connect, no such database, a server that stops or starts.
_UNREACHABLE = ("08", "28", "3D", "57P")


@contextmanager
def mapped_errors(place: str) -> Iterator[None]:
    """Turn asyncpg's exceptions into ours; ours pass through.

    Args:
        place: The database, for the sentence.

    Raises:
        StorageFullError: For a full disk.
        StorageReadOnlyError: For a database that takes no writes.
        StorageUnreachableError: For one that is not there, or not in time.
        StorageBusyError: For anything else that another attempt may get over.
        StorageCorruptError: For the rest: not the tables that there should be.

    """
    try:
        yield
    except CrdtmemError:
        # Some of ours are OSErrors too.
        raise
    except FAILURES as exc:
        raise error_of(exc, place) from exc


def error_of(exc: BaseException, place: str) -> RelayError:
    """Return an error of asyncpg as one of ours; no transaction was committed."""
    state = getattr(exc, "sqlstate", None) or ""
    reason = reason_of(exc)
    if state == _FULL:
        return StorageFullError(path=place)
    if state == _READ_ONLY:
        return StorageReadOnlyError(path=place, reason=reason)
    if state.startswith(_BUSY):
        return StorageBusyError(path=place, reason=f"is busy: {reason}")
    if not state or state.startswith(_UNREACHABLE):
        return StorageUnreachableError(path=place, reason=reason)
    return StorageCorruptError(path=place, reason=reason)


def is_refusal(exc: BaseException) -> bool:
    """Tell whether a server's answer to COMMIT says that nothing was stored.

    Only what is raised before the commit's own record; all else is uncertain.
    """
    state = getattr(exc, "sqlstate", None) or ""
    return state.startswith(("25", "40", "53"))


def reason_of(exc: BaseException) -> str:
    """Return the name of what went wrong, without the server's words."""
    name = type(exc).__name__
    state = getattr(exc, "sqlstate", None)
    return f"{name} ({state})" if state else name
