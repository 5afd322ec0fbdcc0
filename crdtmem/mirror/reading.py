"""Files as they are at one moment: what the system says of them, and their bytes."""

import errno
import os
import stat
import time
from typing import NamedTuple, Self

from crdtmem.errors import UnreadableFileError
from crdtmem.limits import MIRROR_READS_MAX, MIRROR_TICK_MS, TEXT_BYTES
from crdtmem.mirror.syscalls import component, opened

__all__ = ["UNSETTLED_NS", "FileStat", "not_a_file", "read_plain", "read_settled"]

UNSETTLED_NS = 0
"""A ``ctime_ns`` that no file has; see FileStat.unsettled."""

_PIECE_BYTES = 2**18
_SECOND_NS = 1_000_000_000
# What open() says of a link and of a socket.
_NO_FILE = {errno.ELOOP, errno.ENXIO}


class FileStat(NamedTuple):
    """What the system says of a file. Equal stats mean: not changed in between.

    Attributes:
        dev: Its file system.
        ino: Its number there; a rename takes it along.
        size: In bytes.
        mtime_ns: When its content changed last.
        ctime_ns: When its content, name or modes did; or UNSETTLED_NS.
        mode: Type and permissions.
        nlink: How many names it has.
        uid: Who owns it.

    """

    dev: int
    ino: int
    size: int
    mtime_ns: int
    ctime_ns: int
    mode: int
    nlink: int
    uid: int

    @classmethod
    def of(cls, found: os.stat_result) -> Self:
        """Take over what ``os.stat`` found."""
        return cls(
            found.st_dev,
            found.st_ino,
            found.st_size,
            found.st_mtime_ns,
            found.st_ctime_ns,
            found.st_mode,
            found.st_nlink,
            found.st_uid,
        )

    @property
    def is_plain(self) -> bool:
        """Whether it is a file: no link, folder, fifo, socket or device."""
        return stat.S_ISREG(self.mode)

    @property
    def is_folder(self) -> bool:
        """Whether it is a folder."""
        return stat.S_ISDIR(self.mode)

    def unsettled(self) -> Self:
        """Return a stat that equals none that is looked up later.

        For what may have changed since without another look telling so: times of files
        tick every few milliseconds, so two writes of equal length within one tick
        leave equal stats. Whoever compares it with a later one so reads the file again.
        """
        return self._replace(ctime_ns=UNSETTLED_NS)


def not_a_file() -> UnreadableFileError:
    """Return the error for a link, a folder, a fifo, a socket or a device."""
    return UnreadableFileError(
        "mirror-not-a-file", "it is a link, a folder or something else, no plain file"
    )


def read_plain(folder_fd: int, name: str) -> tuple[bytes, FileStat]:
    """Read a file that a mirror may take in.

    Returns:
        Its bytes, at most TEXT_BYTES, and its stat; see read_settled.

    Raises:
        FileNotFoundError: If there is nothing of this name.
        UnreadableFileError: If it is no file (``mirror-not-a-file``), has another name
            too (``mirror-hard-link``), is another user's (``mirror-foreign-owner``), or
            is longer (``text-too-large``), or the system forbids it
            (``permission-denied``). None of them was waited for, or followed.

    """
    # Before opening it: who writes to a fifo would see a reader come and go.
    _refuse_strange(FileStat.of(os.lstat(component(name), dir_fd=folder_fd)))
    try:
        with opened(folder_fd, name) as fd:
            _refuse_strange(FileStat.of(os.fstat(fd)))
            data, found = read_settled(fd, limit_bytes=TEXT_BYTES + 1)
    except PermissionError as exc:
        raise UnreadableFileError(
            "permission-denied", "the system does not let this user read it"
        ) from exc
    except OSError as exc:
        if exc.errno not in _NO_FILE:
            raise
        raise not_a_file() from exc
    if len(data) > TEXT_BYTES:
        raise UnreadableFileError(
            "text-too-large",
            f"it is longer than {TEXT_BYTES:,} bytes ({max(found.size, len(data)):,})",
        )
    return data, found


def read_settled(fd: int, *, limit_bytes: int) -> tuple[bytes, FileStat]:
    """Read a file that others may be writing to.

    It is read again a few times while it changes under the reading.

    Args:
        fd: The file; its position is not used.
        limit_bytes: How much to read at most.

    Returns:
        The bytes, and the stat that belongs to them. If it went on changing, or changed
        so shortly before that one more change might not show, the stat is ``unsettled``
        and was had before the reading.

    """
    for _ in range(MIRROR_READS_MAX):
        started_ns = time.time_ns()
        before = FileStat.of(os.fstat(fd))
        data = _read(fd, limit_bytes)
        if before == FileStat.of(os.fstat(fd)):
            return data, before if _is_past(before, started_ns) else before.unsettled()
    return data, before.unsettled()


def _read(fd: int, limit_bytes: int) -> bytes:
    data = bytearray()
    # In pieces: Python takes the memory for all that might come before it reads.
    while chunk := os.pread(fd, min(limit_bytes - len(data), _PIECE_BYTES), len(data)):
        data += chunk
    return bytes(data)


def _is_past(found: FileStat, now_ns: int) -> bool:
    """Tell whether a change from now on would show in the times of a file."""
    changed_ns = max(found.mtime_ns, found.ctime_ns)
    # Some file systems keep whole seconds, or even two.
    coarse = changed_ns % _SECOND_NS == 0
    tick_ns = 2 * _SECOND_NS if coarse else MIRROR_TICK_MS * 1_000_000
    return changed_ns < now_ns - tick_ns


def _refuse_strange(found: FileStat) -> None:
    if not found.is_plain:
        raise not_a_file()
    if found.nlink > 1:
        raise UnreadableFileError(
            "mirror-hard-link", f"the file has {found.nlink} names (hard links)"
        )
    if found.uid != os.geteuid():
        raise UnreadableFileError(
            "mirror-foreign-owner",
            f"it belongs to user {found.uid}, and the mirror runs as {os.geteuid()}",
        )
