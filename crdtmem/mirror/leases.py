"""Whether a file is still open for writing somewhere: read leases, and /proc.

A file that was swapped out may be dropped only when nobody can write to it any more.
The kernel knows: it grants a read lease on a file only while no process has it open for
writing, and holds up whoever opens it as long as the lease lasts.
"""

import contextlib
import errno
import os
import re
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

from crdtmem.limits import WRITERS_SEEN_MAX

if sys.platform == "linux":  # pragma: no branch - the tests run on Linux
    import fcntl

__all__ = ["leased", "set_lease", "writers_of"]

_PROC = Path("/proc")
_FIELD = re.compile(r"(?m)^(flags|ino):\s*(\d+)$")


@contextlib.contextmanager
def leased(fd: int) -> Iterator[bool | None]:
    """Keep a file from being written to for the length of a block, if it can be.

    Whoever opens it for writing meanwhile waits until the block is left (the kernel
    lets him pass after 45 s, fs.lease-break-time), so it should be short.

    Args:
        fd: The file, open for reading only.

    Yields:
        True while the lease is held. False if some process has the file open for
        writing. None where nobody can tell: no leases on this system or file system,
        or another user's file.

    """
    granted = _take(fd)
    try:
        yield granted
    finally:
        if granted:
            _give_up(fd)


def writers_of(dev: int, ino: int) -> list[int]:
    """Return the ids of processes that have a file open for writing.

    Of other users' processes nothing is seen, nor of any without a ``/proc``, and at
    most WRITERS_SEEN_MAX descriptors are looked at: it is for a warning to people.
    """
    found: list[int] = []
    seen = 0
    for process in _numbered(_PROC):
        for descriptor in _numbered(process / "fdinfo"):
            seen += 1
            if seen > WRITERS_SEEN_MAX:
                return found
            if _writes_to(process, descriptor.name, dev, ino):
                found.append(int(process.name))
                break
    return found


def _take(fd: int) -> bool | None:
    if sys.platform != "linux":  # pragma: no cover - the tests run on Linux
        return None
    try:
        # First: the signal of a lease that is to be given up, SIGIO, kills whoever has
        # no handler; this one is ignored unless somebody asks for it.
        fcntl.fcntl(fd, fcntl.F_SETSIG, signal.SIGURG)
        set_lease(fd, fcntl.F_RDLCK)
    except OSError as exc:
        return False if exc.errno == errno.EAGAIN else None
    return True


def _give_up(fd: int) -> None:
    if sys.platform == "linux":  # pragma: no branch - the tests run on Linux
        set_lease(fd, fcntl.F_UNLCK)


def set_lease(fd: int, kind: int) -> None:
    """Take or give up a lease."""
    if sys.platform == "linux":  # pragma: no branch - the tests run on Linux
        fcntl.fcntl(fd, fcntl.F_SETLEASE, kind)


def _numbered(folder: Path) -> list[Path]:
    """Return the entries of a folder in /proc that are numbers, in order."""
    try:
        names = os.listdir(folder)
    except OSError:
        # The process has ended, or is another user's.
        return []
    return [folder / name for name in sorted(filter(str.isdecimal, names), key=int)]


def _writes_to(process: Path, descriptor: str, dev: int, ino: int) -> bool:
    try:
        text = (process / "fdinfo" / descriptor).read_text(encoding="ascii")
        fields = dict(_FIELD.findall(text))
        access = int(fields.get("flags", "0"), 8) & os.O_ACCMODE
        # By number before by stat: a file on a server that is gone would not answer.
        # Kernels before 5.14 do not tell it.
        if access == os.O_RDONLY or int(fields.get("ino", ino)) != ino:
            return False
        found = os.stat(process / "fd" / descriptor)
    except (OSError, ValueError):
        # It has just been closed.
        return False
    return (found.st_dev, found.st_ino) == (dev, ino)
