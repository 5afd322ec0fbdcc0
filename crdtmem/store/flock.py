"""A lock on a whole file that processes wait for in the kernel: flock, with a deadline.

The lock belongs to the open file, not to the process: two descriptors that were opened
apart exclude each other, and copies of one do not. On Windows a byte of the file is
locked instead, and those who wait try again and again.
"""

import os
import sys
import threading
from collections.abc import Callable

if sys.platform == "win32":  # pragma: no cover - the tests run on POSIX
    import msvcrt
    import time
else:
    import fcntl

__all__ = ["Waiter", "try_lock", "unlock", "wait_lock"]

if sys.platform == "win32":  # pragma: no cover - the tests run on POSIX
    # Locked bytes cannot be read, so the lock lies far behind the record.
    _LOCKED_BYTE = 2**30
    _POLL_S = 0.001

    def try_lock(fd: int) -> bool:
        """Take the lock unless another holds it; return whether it was had."""
        os.lseek(fd, _LOCKED_BYTE, os.SEEK_SET)
        try:
            msvcrt.locking(fd, msvcrt.LK_NBLCK, 1)
        except PermissionError:
            return False
        return True

    def wait_lock(fd: int) -> None:
        """Take the lock, however long that takes."""
        # LK_LOCK itself tries once a second, ten times.
        while not try_lock(fd):
            time.sleep(_POLL_S)

    def unlock(fd: int) -> None:
        """Give the lock back."""
        os.lseek(fd, _LOCKED_BYTE, os.SEEK_SET)
        msvcrt.locking(fd, msvcrt.LK_UNLCK, 1)

else:

    def try_lock(fd: int) -> bool:
        """Take the lock unless another holds it; return whether it was had."""
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def wait_lock(fd: int) -> None:
        """Take the lock, however long that takes."""
        fcntl.flock(fd, fcntl.LOCK_EX)

    def unlock(fd: int) -> None:
        """Give the lock back."""
        fcntl.flock(fd, fcntl.LOCK_UN)


class Waiter:
    """A thread that stands in line in the kernel, so that its owner can give up.

    flock knows no deadline, and trying again and again is unfair and costs more.
    8 processes that commit to SQLite in a loop, 2 cores, ext4 [commits/s, smallest
    share of a process / fair share, worst wait]: this thread 1,600, 0.94, 140 ms;
    blocking flock 2,100, 0.8, 270 ms. With other work on the machine: this thread 890,
    0.98, 120 ms; blocking flock 300, 0.3, 230 ms; trying each 0.1 ms 1,190, 0.55,
    330 ms, and most processor time; with back-off and jitter 770, 0.002, 2,000 ms.

    Its owner calls it from one thread at a time, and leaves the descriptor alone while
    the thread is in line.

    Args:
        fd: The lock file. Still the caller's, until dismiss says otherwise.
        before_waiting: Called in the thread, before each wait that is no mere try.

    """

    def __init__(self, fd: int, before_waiting: Callable[[], object]) -> None:
        self._fd = fd
        self._before_waiting = before_waiting
        self._mutex = threading.Lock()
        # Locks as binary semaphores: the quickest thing that Python can wait on.
        self._order = threading.Lock()
        self._order.acquire()
        self._grant = threading.Lock()
        self._grant.acquire()
        self._in_line = False
        self._is_wanted = False
        self._is_dismissed = False
        self._error: OSError | None = None
        # A daemon: nobody can end it while another process holds the lock.
        self._thread = threading.Thread(
            target=self._run, name="crdtmem-store-lock", daemon=True
        )
        self._thread.start()

    def is_in_line(self) -> bool:
        """Tell whether an earlier, given up wait still goes on."""
        # With the mutex, so that a thread that leaves the line has also unlocked.
        with self._mutex:
            return self._in_line

    def wait(self, timeout_s: float) -> bool:
        """Wait for the lock; return whether it was had in time.

        Continues a wait that was given up and is still in line.
        """
        try:
            with self._mutex:
                self._is_wanted = True
                if not self._in_line:
                    self._in_line = True
                    self._order.release()
            granted = self._grant.acquire(timeout=timeout_s)
        except BaseException:
            # KeyboardInterrupt, in the main thread.
            self.withdraw()
            raise
        if not granted:
            self.withdraw()
        elif self._error is not None:
            error, self._error = self._error, None
            raise error
        return granted

    def withdraw(self) -> None:
        """Give up; a lock that arrives all the same is given back."""
        with self._mutex:
            self._is_wanted = False
            if self._grant.acquire(blocking=False):
                self._error = None
                unlock(self._fd)

    def dismiss(self) -> bool:
        """End the thread; return whether the descriptor is now the caller's to close.

        If not, the thread is still in line, and closes it when it ends.
        """
        with self._mutex:
            self._is_dismissed = True
            if self._in_line:
                return False
        self._order.release()
        self._thread.join()
        return True

    def _run(self) -> None:
        while True:
            self._order.acquire()
            if not self._in_line:
                return
            error = self._stand_in_line()
            with self._mutex:
                self._in_line = False
                if self._is_wanted:
                    self._error = error
                    self._grant.release()
                    continue
                unlock(self._fd)
                if self._is_dismissed:
                    os.close(self._fd)
                    return

    def _stand_in_line(self) -> OSError | None:
        try:
            if not try_lock(self._fd):
                self._before_waiting()
                wait_lock(self._fd)
        except OSError as exc:
            return exc
        return None
