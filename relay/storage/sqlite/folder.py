"""The folder of a relay: its files, who serves it, and how far it had come.

``relay.db`` is the log, ``relay.toml`` the settings, ``relay.lock`` is locked by the
process that serves the folder, and ``relay.hwm`` notes how many records there were at
least. A file that went back to an earlier state has fewer, and then a new epoch begins.
"""

import contextlib
import json
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from crdtmem.errors import PermissionDeniedError, RelayFolderError, RelayRunningError
from relay.storage.sqlite.connection import connect
from relay.storage.sqlite.schema import create_tables

if sys.platform == "win32":  # pragma: no cover - the tests run on POSIX
    import msvcrt
else:
    import fcntl

__all__ = [
    "HighWater",
    "database_of",
    "init_folder",
    "locked_folder",
    "new_id",
    "read_high_water",
    "sync_folder",
    "write_high_water",
]

DATABASE = "relay.db"
LOCK = "relay.lock"
HIGH_WATER = "relay.hwm"
_HIGH_WATER_BYTES = 1_024


def new_id() -> bytes:
    """Draw the id of a relay or of an epoch."""
    return os.urandom(16)


def init_folder(folder: Path, *, now_ms: int) -> None:
    """Make a relay without any token in a new or empty folder, for its owner alone.

    Raises:
        RelayFolderError: If something is in the folder, or it is no folder.
        PermissionDeniedError: If it cannot be made or written.
        StorageError: If the file cannot be made.

    """
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if any(folder.iterdir()):
            raise RelayFolderError(
                path=str(folder), reason="is not empty", hint="name a new folder"
            )
        # Before SQLite opens it, which takes over the modes for its other files.
        os.close(os.open(folder / DATABASE, os.O_CREAT | os.O_EXCL, 0o600))
    except (FileExistsError, NotADirectoryError) as exc:
        raise RelayFolderError(path=str(folder), reason="is no folder") from exc
    except PermissionError as exc:
        raise PermissionDeniedError(path=str(folder), action="write to") from exc
    connection = connect(folder / DATABASE, create=True)
    try:
        create_tables(connection, relay_id=new_id(), epoch=new_id(), now_ms=now_ms)
    finally:
        connection.close()
    sync_folder(folder)


def database_of(folder: Path) -> Path:
    """Return the file of a relay.

    Raises:
        RelayFolderError: If there is none.

    """
    path = folder / DATABASE
    if not path.is_file():
        raise RelayFolderError(
            path=str(folder),
            reason="holds no relay",
            hint=f"run 'crdtmem relay init {folder}'",
        )
    return path


@contextlib.contextmanager
def locked_folder(folder: Path) -> Iterator[None]:
    """Be the one process that serves a folder; the kernel frees it with the process.

    Raises:
        RelayRunningError: If another one does.
        PermissionDeniedError: If the lock file cannot be made.

    """
    try:
        fd = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT, 0o600)
    except PermissionError as exc:
        raise PermissionDeniedError(path=str(folder), action="write to") from exc
    try:
        if not _try_lock(fd):
            raise RelayRunningError(path=str(folder))
        yield
    finally:
        # Nobody forks here, so this is the last descriptor and frees the lock.
        os.close(fd)


@dataclass(frozen=True, slots=True)
class HighWater:
    """How far a relay had come when that was noted last.

    Attributes:
        relay_id: Which relay.
        epoch: Its epoch then.
        total: How many records of all namespaces were on disk.

    """

    relay_id: bytes
    epoch: bytes
    total: int


def read_high_water(folder: Path) -> HighWater | None:
    """Return the note, or None where there is none that can be read."""
    try:
        with (folder / HIGH_WATER).open("rb") as file:
            found = json.loads(file.read(_HIGH_WATER_BYTES))
        match found:
            case {"relay_id": str(relay_id), "epoch": str(epoch), "total": int(total)}:
                return HighWater(bytes.fromhex(relay_id), bytes.fromhex(epoch), total)
    except (OSError, ValueError):
        pass
    return None


def write_high_water(folder: Path, mark: HighWater) -> None:
    """Replace the note; after a crash there is the old or the new one, whole.

    Raises:
        OSError: If that fails; the old note is still there.

    """
    text = json.dumps(
        {
            "relay_id": mark.relay_id.hex(),
            "epoch": mark.epoch.hex(),
            "total": mark.total,
        }
    )
    part = folder / f"{HIGH_WATER}.part"
    with part.open("w", encoding="ascii") as file:
        file.write(f"{text}\n")
        file.flush()
        os.fsync(file.fileno())
    _rename(part, folder / HIGH_WATER)
    sync_folder(folder)


def sync_folder(folder: Path) -> None:
    """Put the names in a folder on disk."""
    if sys.platform == "win32":  # pragma: no cover - the tests run on POSIX
        return
    fd = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _rename(part: Path, target: Path) -> None:
    part.replace(target)


def _try_lock(fd: int) -> bool:
    if sys.platform == "win32":  # pragma: no cover - the tests run on POSIX
        try:
            msvcrt.locking(fd, msvcrt.LK_NBLCK, 1)
        except PermissionError:
            return False
        return True
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
