"""An apsw connection as the store uses it, and apsw's errors as ours.

Never opens the database file by other means: POSIX drops all locks of a process on a
file when any descriptor of it is closed, and SQLite's with them.
"""

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

import apsw

from crdtmem.errors import (
    PermissionDeniedError,
    StoreBusyError,
    StoreCorruptError,
    StoreError,
    StoreFullError,
    StoreNotFoundError,
    StoreReadOnlyError,
)
from crdtmem.limits import SQLITE_BUSY_MS

__all__ = ["Connection", "Durability", "connect", "mapped_errors", "store_error_of"]

Connection = apsw.Connection
"""What the layers above hand back to the store's functions; they use none of it."""

Durability = Literal["full", "normal"]


def connect(path: Path, *, read_only: bool, durability: Durability) -> apsw.Connection:
    """Open the store's file, making it where that is allowed.

    Raises:
        StoreError: See mapped_errors.

    """
    flags = apsw.SQLITE_OPEN_READONLY
    if not read_only:
        flags = apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE
    with mapped_errors(path):
        connection = apsw.Connection(str(path), flags=flags)
        try:
            # Behind the flock nobody else writes; readers can still meet a recovery
            # or a close in progress, which take milliseconds.
            connection.set_busy_timeout(SQLITE_BUSY_MS)
            connection.execute("PRAGMA trusted_schema = OFF")
            connection.execute("PRAGMA cell_size_check = ON")
            connection.execute("PRAGMA foreign_keys = ON")
            if not read_only:
                # NORMAL in WAL mode syncs at checkpoints alone: a power cut could take
                # back what was acknowledged.
                connection.pragma("synchronous", durability)
                # Checkpoints run where the writer chooses, under the store's lock.
                connection.pragma("wal_autocheckpoint", 0)
        except BaseException:
            connection.close()
            raise
    return connection


_CORRUPT = (apsw.CorruptError, apsw.NotADBError, apsw.FormatError)
_BUSY = (apsw.BusyError, apsw.LockedError)
# What a write past a quota or a file size limit leaves in errno; SQLite calls only a
# plain ENOSPC a full disk.
_FULL_ERRNO = {errno.ENOSPC, errno.EFBIG, errno.EDQUOT}


@contextmanager
def mapped_errors(
    path: Path, connection: apsw.Connection | None = None
) -> Iterator[None]:
    """Turn apsw's exceptions into the store's; ours pass through.

    A full disk is StoreFullError, a locked file StoreBusyError, a damaged one or a
    failing disk StoreCorruptError. BUSY never starts a recovery: the file is left
    alone.

    Args:
        path: The store's file, for the sentence.
        connection: Whose errno tells a full disk from a broken one.

    """
    try:
        yield
    except (apsw.Error, UnicodeDecodeError) as exc:
        raise store_error_of(exc, path, connection) from exc


def store_error_of(
    exc: apsw.Error | UnicodeDecodeError,
    path: Path,
    connection: apsw.Connection | None,
) -> StoreError:
    """Return the error of ours for one of apsw's; see mapped_errors."""
    place = str(path)
    if isinstance(exc, UnicodeDecodeError):
        return StoreCorruptError(path=place, reason="it holds text that is not UTF-8")
    if isinstance(exc, apsw.FullError) or _is_out_of_space(exc, connection):
        return StoreFullError(path=place)
    if isinstance(exc, apsw.ReadOnlyError):
        return StoreReadOnlyError(path=place)
    if isinstance(exc, apsw.CantOpenError) and not path.exists():
        return StoreNotFoundError(path=place)
    if isinstance(exc, (apsw.CantOpenError, apsw.PermissionsError, apsw.AuthError)):
        return PermissionDeniedError(path=place, action="open")
    if isinstance(exc, _BUSY):
        waited_s = SQLITE_BUSY_MS / 1000
        return StoreBusyError(path=place, pid=None, command=None, waited_s=waited_s)
    what = "it is damaged" if isinstance(exc, _CORRUPT) else "SQLite reports an error"
    return StoreCorruptError(path=place, reason=f"{what}: {exc}")


def _is_out_of_space(exc: apsw.Error, connection: apsw.Connection | None) -> bool:
    return (
        isinstance(exc, apsw.IOError)
        and connection is not None
        and connection.system_errno in _FULL_ERRNO
    )
