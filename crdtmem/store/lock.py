"""The write gate of a store: who holds ``store.lock`` may begin to write.

SQLite alone would let writers wait by sleeping and trying again, which starves some of
them: with 8 processes one wait lasted 179 ms where this queue kept it under 4 ms. The
gate only orders writers; SQLite's own locks still guard the file.

The file stays where it is for good, since two processes that locked two files of one
name would both pass. Its content names the last holder, and means something only while
the lock cannot be had.
"""

import contextlib
import errno
import functools
import json
import os
import re
import sys
import time
import weakref
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from crdtmem.errors import PermissionDeniedError, StoreBusyError, StoreNotFoundError
from crdtmem.store.flock import Waiter, try_lock, unlock

__all__ = ["Holder", "StoreLock", "command_of", "is_locked", "read_holder"]

_RECORD_BYTES = 512
_RECORD_START = b'{"pid":'
_COMMAND_CHARS = 120
_VERB = r"[a-z]{1,20}(?:-[a-z]{1,20})?"
_FORBIDDEN = {errno.EACCES, errno.EISDIR, errno.EPERM, errno.EROFS}
# Follows the record while somebody waits; the next holder's signature covers it.
_MARK = b"+"
_NO_MARK = b" "
# Who meets another's signature or mark stands in line for so long, instead of trying
# to pass at once. A releaser that tries at once nearly always wins against the waiter
# that the kernel has just woken: with 8 processes that each commit to SQLite in a loop,
# it took the worst wait to 70 times the median and the worst share to 0.8 of the fair
# one. Standing in line takes longer than waking up.
_QUEUE_S = 0.05


class Holder(NamedTuple):
    """Who holds a lock, in its own words.

    Attributes:
        pid: Its process id.
        command: The program and its verb, never an argument; see command_of.
        since: When it opened the lock, ISO 8601 in UTC.

    """

    pid: int
    command: str
    since: str


class StoreLock:
    """One handle's way through the gate; each handle has its own.

    Calls come from one thread at a time: the handle's mutex sees to that. Two locks on
    one file exclude each other also within a process. Nothing is opened before the
    first acquire. The kernel frees the lock of a process that ends, however it ends.

    A forked child does not have its parent's lock: its copy of the descriptor is closed
    at the fork, without unlocking, and the first acquire opens another.

    Invariants:
        1. At most one process, and in it one StoreLock, is between acquire and release.
        2. While the waiter is in line, only it may take the lock: two calls of flock
           through one descriptor would both succeed, and either could undo both.
        3. A lock that arrives after its deadline is given back at once.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._fd: int | None = None
        self._record = b""
        self._is_held = False
        self._waiter: Waiter | None = None
        self._is_contended = False
        self._queue_until = 0.0
        _close_at_fork()
        _LOCKS.add(self)

    def acquire(self, timeout_s: float) -> None:
        """Take the lock, waiting in line for it at most so long.

        Takes microseconds while no other process writes. After an error the lock is
        not held.

        Raises:
            StoreBusyError: If it was not had in time; names the holder.
            PermissionDeniedError: If the lock file cannot be made or opened, or is a
                file of something else.
            StoreNotFoundError: If its folder does not exist.
            RuntimeError: If this StoreLock is held already: a bug of the caller.

        """
        if self._is_held:
            raise RuntimeError(f"{self.path} is already held by this handle")
        start = time.monotonic()
        fd = self._fd if self._fd is not None else self._open()
        self._is_contended = False
        if not (self._pass_at_once(fd, start, timeout_s) or self._queue(fd, timeout_s)):
            holder = read_holder(self.path)
            raise StoreBusyError(
                path=str(self.path),
                pid=holder.pid if holder else None,
                command=holder.command if holder else None,
                waited_s=time.monotonic() - start,
            )
        self._is_held = True
        # A full disk must not end here: the holder's name is a courtesy, and the write
        # that follows reports the disk properly.
        with contextlib.suppress(OSError):
            self._sign(fd)

    def release(self) -> None:
        """Let the next one pass.

        Raises:
            RuntimeError: If the lock is not held: a bug of the caller.

        """
        if self._fd is None or not self._is_held:
            raise RuntimeError(f"{self.path} is not held by this handle")
        self._is_held = False
        if self._is_contended:
            self._queue_until = time.monotonic() + _QUEUE_S
        # Never by closing alone: a process that is just being forked has a copy of the
        # descriptor, and the lock would last until that copy is closed too.
        unlock(self._fd)

    @contextlib.contextmanager
    def held(self, timeout_s: float) -> Iterator[None]:
        """Hold the lock for the length of a block; raises what acquire raises."""
        self.acquire(timeout_s)
        try:
            yield
        finally:
            self.release()

    def close(self) -> None:
        """Release the lock if it is held, and forget the file; may be repeated."""
        if self._is_held:
            self.release()
        waiter, fd = self._waiter, self._fd
        self._waiter = self._fd = None
        # A waiter that is still in line cannot be called back: it keeps the descriptor
        # and closes it when its turn comes.
        if fd is not None and (waiter is None or waiter.dismiss()):
            os.close(fd)

    def after_fork(self) -> None:
        """Start afresh in a forked child; called at the fork.

        Only closes. Unlocking here would unlock for the parent too, as both descriptors
        stand for one lock.
        """
        fd = self._fd
        # Threads do not survive a fork, so the waiter is gone as well.
        self._fd, self._is_held, self._waiter = None, False, None
        if fd is not None:
            os.close(fd)

    def _open(self) -> int:
        try:
            # Python opens every descriptor close-on-exec (PEP 446).
            fd = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o600)
        except FileNotFoundError as exc:
            raise StoreNotFoundError(path=str(self.path)) from exc
        except OSError as exc:
            if exc.errno not in _FORBIDDEN:
                raise
            raise PermissionDeniedError(path=str(self.path), action="write to") from exc
        # poetry.lock lies where poetry.db would look for its lock.
        start = os.read(fd, len(_RECORD_START))
        if not _RECORD_START.startswith(start):
            os.close(fd)
            raise PermissionDeniedError(
                path=str(self.path),
                action="use as a lock file, because something else is in it,",
                hint="give the store another name",
            )
        from datetime import UTC, datetime  # noqa: PLC0415 - readers take no lock

        now = datetime.now(UTC).isoformat(timespec="milliseconds")
        self._record = _encode(Holder(os.getpid(), command_of(sys.argv), now))
        self._fd = fd
        return fd

    def _pass_at_once(self, fd: int, now: float, timeout_s: float) -> bool:
        if self._waiter is not None and self._waiter.is_in_line():
            return False
        if now < self._queue_until and timeout_s > 0:
            return False
        return try_lock(fd)

    def _queue(self, fd: int, timeout_s: float) -> bool:
        if timeout_s <= 0:
            return False
        if self._waiter is None:
            self._waiter = Waiter(fd, functools.partial(_leave_mark, fd))
        return self._waiter.wait(timeout_s)

    def _sign(self, fd: int) -> None:
        # Looking first is as quick as writing, and a process that writes alone then
        # leaves the time stamps of the file, thus the journal of its disk, alone.
        os.lseek(fd, 0, os.SEEK_SET)
        found = os.read(fd, len(self._record))
        if found != self._record:
            # Another one has signed, or has waited for us, since we were here.
            self._is_contended = bool(found)
            os.lseek(fd, 0, os.SEEK_SET)
            os.write(fd, self._record)


def read_holder(path: Path) -> Holder | None:
    """Return who took a lock last, or None if that cannot be read.

    It holds the lock still only if the lock cannot be had.
    """
    try:
        with path.open("rb") as file:
            value = json.loads(file.read(_RECORD_BYTES))
    except (OSError, ValueError):
        return None
    match value:
        case {"pid": int(pid), "command": str(command), "since": str(since)}:
            return Holder(pid, command, since)
    return None


def is_locked(path: Path) -> bool:
    """Tell whether somebody holds a lock; for doctor, as it takes a free one briefly.

    An absent lock file, or one that may not be read, counts as free.
    """
    try:
        fd = os.open(path, os.O_RDONLY)
    except (FileNotFoundError, PermissionError):
        return False
    try:
        if not try_lock(fd):
            return True
        unlock(fd)
        return False
    finally:
        os.close(fd)


def command_of(argv: Sequence[str]) -> str:
    """Return a program's name, and the verb if the program is crdtmem.

    Never more: further words may be somebody's text.
    """
    program = Path(argv[0]) if argv and argv[0] else Path("-c")
    name = program.parent.name if program.name == "__main__.py" else program.name
    words = ["python" if name == "-c" else name]
    if name.startswith("crdtmem") and len(argv) > 1 and re.fullmatch(_VERB, argv[1]):
        words.append(argv[1])
    return re.sub(r"[^ -~]", "?", " ".join(words))[:_COMMAND_CHARS]


def _encode(holder: Holder) -> bytes:
    # Of one length, so that a record covers the one before it, in one write.
    record = json.dumps(holder._asdict(), separators=(",", ":")).encode("ascii")
    return record.ljust(_RECORD_BYTES) + _NO_MARK


def _leave_mark(fd: int) -> None:
    # A full disk costs fairness, not the lock.
    with contextlib.suppress(OSError):
        os.lseek(fd, _RECORD_BYTES, os.SEEK_SET)
        os.write(fd, _MARK)


_LOCKS: weakref.WeakSet[StoreLock] = weakref.WeakSet()


@functools.cache
def _close_at_fork() -> None:
    # Without it a child that never touches the store would keep the lock of a parent
    # that was killed while it held it.
    if sys.platform != "win32":  # pragma: no branch - the tests run on POSIX
        os.register_at_fork(after_in_child=_after_fork)


def _after_fork() -> None:
    for lock in list(_LOCKS):
        lock.after_fork()
