"""An apsw connection as the relay uses it, and apsw's errors as ours.

Never opens the database file by other means: POSIX drops all locks of a process on a
file when any descriptor of it is closed, and SQLite's with them.
"""

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import apsw

from crdtmem.errors import (
    PermissionDeniedError,
    RelayError,
    StorageBusyError,
    StorageCorruptError,
    StorageFullError,
    StorageUncertainError,
)
from crdtmem.limits import SQLITE_BUSY_MS
from relay.storage.sqlite.schema import check_schema

__all__ = ["connect", "is_busy", "is_full", "mapped_errors"]

# What a write past a quota or a file size limit leaves in errno; SQLite calls only a
# plain ENOSPC a full disk.
_FULL_ERRNO = {errno.ENOSPC, errno.EFBIG, errno.EDQUOT}


def connect(
    path: Path, *, read_only: bool = False, create: bool = False
) -> apsw.Connection:
    """Open a relay's file.

    Args:
        path: The file.
        read_only: Refuse statements that write.
        create: Make the file; else it must be there, and a relay's.

    Raises:
        StorageError: As for mapped_errors.
        PermissionDeniedError: Likewise.

    """
    # Readers may have to recover the log, so they do not open the file for reading.
    flags = apsw.SQLITE_OPEN_READWRITE
    if create:
        flags |= apsw.SQLITE_OPEN_CREATE
    with mapped_errors(path):
        connection = apsw.Connection(str(path), flags=flags)
        try:
            _configure(connection)
            if not create:
                check_schema(connection, str(path))
            connection.pragma("query_only", int(read_only))
        except BaseException:
            connection.close()
            raise
    return connection


def _configure(connection: apsw.Connection) -> None:
    # The server alone writes records; who makes a token meanwhile takes milliseconds.
    connection.set_busy_timeout(SQLITE_BUSY_MS)
    connection.pragma("trusted_schema", 0)
    connection.pragma("cell_size_check", 1)
    connection.pragma("foreign_keys", 1)
    # NORMAL in WAL mode syncs at checkpoints alone: a power cut could take back what
    # was acknowledged.
    connection.pragma("synchronous", "full")
    # The writer chooses when, between two groups.
    connection.pragma("wal_autocheckpoint", 0)


@contextmanager
def mapped_errors(
    path: Path, connection: apsw.Connection | None = None
) -> Iterator[None]:
    """Turn apsw's exceptions into ours; ours pass through.

    Args:
        path: The file, for the sentence.
        connection: Whose errno tells a full disk from a broken one.

    Raises:
        StorageFullError: For a full disk.
        StorageBusyError: For a file that another process keeps locked.
        StorageUncertainError: For any other failure of the disk.
        StorageCorruptError: For a damaged file.
        PermissionDeniedError: For one that may not be opened.

    """
    try:
        yield
    except apsw.Error as exc:
        raise _error_of(exc, path, connection) from exc


def is_full(exc: BaseException, connection: apsw.Connection | None) -> bool:
    """Tell whether a write found no room, and thus left nothing behind.

    A sync that fails for want of room is none of these: what is on the disk then, is
    uncertain.
    """
    if isinstance(exc, apsw.FullError):
        return True
    return (
        isinstance(exc, apsw.IOError)
        # An attribute that the stubs of apsw do not know.
        and getattr(exc, "extendedresult", 0) == apsw.SQLITE_IOERR_WRITE
        and connection is not None
        and connection.system_errno in _FULL_ERRNO
    )


def is_busy(exc: BaseException) -> bool:
    """Tell whether another process kept the file locked for too long."""
    return isinstance(exc, (apsw.BusyError, apsw.LockedError))


def _error_of(
    exc: apsw.Error, path: Path, connection: apsw.Connection | None
) -> RelayError | PermissionDeniedError:
    place = str(path)
    if is_full(exc, connection):
        return StorageFullError(path=place)
    if is_busy(exc):
        return StorageBusyError(path=place)
    if isinstance(exc, (apsw.CantOpenError, apsw.PermissionsError, apsw.ReadOnlyError)):
        return PermissionDeniedError(path=place, action="open")
    if isinstance(exc, apsw.IOError):
        return StorageUncertainError(path=place, reason=str(exc))
    return StorageCorruptError(path=place, reason=f"SQLite reports: {exc}")
