"""What the system offers for files beyond Python's ``os``, and how names are held to.

Every call is relative to the descriptor of a folder and names one entry of it, so that
nothing outside that folder is ever read or written, wherever the folder is moved to.
"""

import contextlib
import ctypes
import errno
import functools
import os
import sys
from collections.abc import Callable, Iterator

__all__ = [
    "FILE_FLAGS",
    "FOLDER_FLAGS",
    "component",
    "exchange_entries",
    "link_entry",
    "list_names",
    "opened",
    "sync_folder",
    "write_new",
]

# All three are missing on Windows, where no mirror is opened.
FILE_FLAGS = (
    getattr(os, "O_NOFOLLOW", 0)
    | getattr(os, "O_NONBLOCK", 0)
    | getattr(os, "O_CLOEXEC", 0)
)
"""Added to how everything is opened: no link is followed, and nothing waited for."""

FOLDER_FLAGS = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | FILE_FLAGS
"""How a folder is opened whose own name must not be a link."""

# RENAME_EXCHANGE of Linux (linux/fs.h) and RENAME_SWAP of macOS (sys/stdio.h) have the
# same value.
_EXCHANGE = 2
_NO_FOLDER_SYNC = {errno.EINVAL, errno.ENOTSUP}


def component(name: str) -> str:
    """Return a name if it stands for an entry of a folder, and for nothing else.

    Raises:
        ValueError: If it could lead elsewhere: a bug of the caller.

    """
    if name in {"", ".", ".."} or "/" in name or "\0" in name:
        raise ValueError(f"{name!r} is not the name of one file")
    return name


@contextlib.contextmanager
def opened(folder_fd: int, name: str) -> Iterator[int]:
    """Open a file for reading; never follows a link and never waits, as for a fifo.

    Raises:
        OSError: As ``os.open`` does; ELOOP for a link, ENXIO for a socket.

    """
    fd = os.open(component(name), os.O_RDONLY | FILE_FLAGS, dir_fd=folder_fd)
    try:
        yield fd
    finally:
        os.close(fd)


def write_new(folder_fd: int, name: str, data: bytes, *, mode: int) -> os.stat_result:
    """Make a file that is not there yet, durable but for its name.

    Args:
        folder_fd: Where.
        name: Its name.
        data: All of its content.
        mode: Its permissions, whatever the process's mask is.

    Returns:
        What the system says of the file, after the last byte.

    Raises:
        FileExistsError: If there is something of this name.
        OSError: If the disk is full, …: then there is no file.

    """
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | FILE_FLAGS
    fd = os.open(component(name), flags, 0o600, dir_fd=folder_fd)
    try:
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(fd, rest) :]
        os.fchmod(fd, mode & 0o777)
        os.fsync(fd)
        return os.fstat(fd)
    except OSError:
        os.unlink(name, dir_fd=folder_fd)
        raise
    finally:
        os.close(fd)


def list_names(folder_fd: int) -> list[str]:
    """Return the names in a folder, sorted."""
    # Opened anew: a descriptor has one reading position, also for two threads.
    fd = os.open(".", FOLDER_FLAGS, dir_fd=folder_fd)
    try:
        return sorted(os.listdir(fd))
    finally:
        os.close(fd)


def sync_folder(folder_fd: int) -> None:
    """Make the names in a folder durable, where its file system knows how to."""
    try:
        os.fsync(folder_fd)
    except OSError as exc:
        if exc.errno not in _NO_FOLDER_SYNC:
            raise


def link_entry(source_fd: int, source: str, target_fd: int, target: str) -> None:
    """Give a file one more name; never overwrites, and never follows a link.

    Raises:
        FileExistsError: If the other name is taken; nothing has changed.

    """
    os.link(
        component(source),
        component(target),
        src_dir_fd=source_fd,
        dst_dir_fd=target_fd,
        follow_symlinks=False,
    )


def exchange_entries(first_fd: int, first: str, second_fd: int, second: str) -> None:
    """Let two names change places at once: there is no moment without either.

    Raises:
        FileNotFoundError: If one of them is missing; nothing has changed.
        OSError: ENOSYS, EINVAL or ENOTSUP where that is not supported, EXDEV across
            file systems; nothing has changed.

    """
    call = _exchange_call()
    if call is None:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS), second)
    names = os.fsencode(component(first)), os.fsencode(component(second))
    if call(first_fd, names[0], second_fd, names[1], _EXCHANGE):
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code), second)


@functools.cache
def _exchange_call() -> Callable[..., int] | None:
    name = "renameatx_np" if sys.platform == "darwin" else "renameat2"
    # By name, not by number: a C library without it (musl before 1.2.6) leaves the
    # other way of replacing a file, which loses nothing either.
    call = getattr(ctypes.CDLL(None, use_errno=True), name, None)
    if call is not None:
        call.argtypes = [
            ctypes.c_int,
            ctypes.c_char_p,
            ctypes.c_int,
            ctypes.c_char_p,
            ctypes.c_uint,
        ]
        call.restype = ctypes.c_int
    return call
