"""Settling in a folder: what a mirror keeps there, its lock, how files are replaced.

Everything is opened once, by descriptor, and closed together; see ``folder``.
"""

import contextlib
import errno
import os
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from crdtmem.errors import (
    CrdtmemError,
    InvalidArgumentError,
    MirrorBusyError,
    MirrorUnsafeError,
    PermissionDeniedError,
    StoreFullError,
)
from crdtmem.mirror.reading import FileStat
from crdtmem.mirror.syscalls import (
    FILE_FLAGS,
    FOLDER_FLAGS,
    exchange_entries,
    link_entry,
    write_new,
)
from crdtmem.store.flock import try_lock

__all__ = ["STATE_NAME", "Parts", "explained", "find_parts", "prepare_parts", "probe"]

STATE_NAME = ".crdtmem-mirror"
"""The folder in a mirrored folder that holds what a mirror keeps there."""

_IGNORE = ".gitignore"
_HOLDER_BYTES = 32
_NO_EXCHANGE = {errno.ENOSYS, errno.EINVAL, errno.ENOTSUP}
# What the system says of links that a file system does not know.
_NO_LINK = {errno.ENOSYS, errno.EPERM, errno.ENOTSUP, errno.EMLINK}
_NO_FOLDER = {errno.ELOOP, errno.ENOENT, errno.ENOTDIR}
_NOT_A_FOLDER = {errno.EEXIST, errno.ELOOP, errno.EISDIR, errno.ENOTDIR, errno.ENXIO}
_FORBIDDEN = {errno.EACCES, errno.EPERM, errno.EROFS}
_FULL = {errno.ENOSPC, errno.EDQUOT}


class Parts(NamedTuple):
    """Descriptors of a mirrored folder and of what a mirror keeps in it.

    Those that a dry run does without are None.

    Attributes:
        folder: The folder itself.
        state: ``.crdtmem-mirror`` in it, and three of its entries.
        swap: See ``swapping``.
        rejected: See ``keeping``.
        lock: The file that is locked.
        can_exchange: What probe found.

    """

    folder: int
    state: int | None
    swap: int | None
    rejected: int | None
    lock: int | None
    can_exchange: bool


def find_parts(place: Path, closing: contextlib.ExitStack) -> Parts:
    """Open a folder for a dry run: nothing is made or locked."""
    folder = _open_mirrored(place, closing, os.R_OK | os.X_OK)
    try:
        state = _open_folder(STATE_NAME, closing, folder)
    except FileNotFoundError:
        state = None
    return Parts(folder, state, None, None, None, can_exchange=False)


def prepare_parts(place: Path, closing: contextlib.ExitStack) -> Parts:
    """Open a folder, make what is missing in it, and take its lock.

    Raises:
        MirrorBusyError: If another mirror has the lock.
        MirrorUnsafeError: See probe.
        PermissionDeniedError: If what a mirror keeps there is another user's.
        OSError: See explained.

    """
    folder = _open_mirrored(place, closing, os.R_OK | os.W_OK | os.X_OK)
    state = _make_folder(STATE_NAME, closing, folder)
    found = FileStat.of(os.fstat(state))
    if found.uid != os.geteuid():
        raise PermissionDeniedError(
            path=str(place / STATE_NAME),
            action=f"trust what user {found.uid} keeps in",
            hint=f"run 'rm -r {place / STATE_NAME}': the files stay",
        )
    # What is rejected or swapped out may be nobody else's to read.
    os.fchmod(state, 0o700)
    # Before anything else is made: the folder may be another process's.
    lock = _lock(place, state, closing)
    with contextlib.suppress(FileExistsError):
        write_new(state, _IGNORE, b"*\n", mode=0o600)
    swap = _make_folder("swap", closing, state)
    rejected = _make_folder("rejected", closing, state)
    can_exchange = probe(place, folder, swap)
    return Parts(folder, state, swap, rejected, lock, can_exchange=can_exchange)


def probe(place: Path, folder_fd: int, swap_fd: int) -> bool:
    """Try on scratch files how a file can be replaced; tell whether by an exchange.

    The scratch files are empty, and gone when this returns.

    Raises:
        MirrorUnsafeError: If not even by links.

    """
    token = secrets.token_hex(8)
    inside, outside = f"probe-{token}", f"{STATE_NAME}-probe-{token}"
    with contextlib.ExitStack() as scratch:
        scratch.callback(_unlink, swap_fd, inside)
        scratch.callback(_unlink, folder_fd, outside)
        write_new(swap_fd, inside, b"", mode=0o600)
        try:
            link_entry(swap_fd, inside, folder_fd, outside)
        except OSError as exc:
            raise _unsafe(place, exc) from exc
        _unlink(swap_fd, inside)
        write_new(swap_fd, inside, b"", mode=0o600)
        try:
            exchange_entries(swap_fd, inside, folder_fd, outside)
        except OSError as exc:
            if exc.errno not in _NO_EXCHANGE:
                raise
            return False
    return True


@contextlib.contextmanager
def explained(place: Path) -> Iterator[None]:
    """Turn what the system says while a folder is opened into errors of crdtmem."""
    try:
        yield
    except CrdtmemError:
        raise
    except OSError as exc:
        if exc.errno in _FULL:
            raise StoreFullError(path=str(place)) from exc
        if exc.errno in _FORBIDDEN:
            raise PermissionDeniedError(
                path=str(place),
                action="mirror",
                hint=f"run 'ls -la {place}' to see its modes",
            ) from exc
        if exc.errno in _NOT_A_FOLDER:
            raise PermissionDeniedError(
                path=str(place / STATE_NAME),
                action="keep a mirror's files in",
                hint=f"run 'ls -la {place / STATE_NAME}': something is in the way",
            ) from exc
        raise


def _unsafe(place: Path, exc: OSError) -> CrdtmemError | OSError:
    if exc.errno == errno.EXDEV:
        return MirrorUnsafeError(
            folder=str(place), reason=f"{STATE_NAME} is on another file system"
        )
    if exc.errno in _NO_LINK:
        return MirrorUnsafeError(
            folder=str(place), reason="its file system knows no hard links"
        )
    return exc


def _open_mirrored(place: Path, closing: contextlib.ExitStack, access: int) -> int:
    try:
        folder = _open_folder(str(place), closing, None)
    except OSError as exc:
        if exc.errno not in _NO_FOLDER:
            raise
        raise InvalidArgumentError(
            "folder",
            f"there is no folder {place}",
            hint=f"run 'mkdir -p {place}'",
            details={"path": str(place)},
        ) from exc
    effective = os.access in os.supports_effective_ids
    if not os.access(".", access, dir_fd=folder, effective_ids=effective):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(place))
    return folder


def _make_folder(name: str, closing: contextlib.ExitStack, parent_fd: int) -> int:
    with contextlib.suppress(FileExistsError):
        os.mkdir(name, 0o700, dir_fd=parent_fd)
    return _open_folder(name, closing, parent_fd)


def _open_folder(
    name: str, closing: contextlib.ExitStack, parent_fd: int | None
) -> int:
    fd = os.open(name, FOLDER_FLAGS, dir_fd=parent_fd)
    closing.callback(os.close, fd)
    return fd


def _lock(place: Path, state_fd: int, closing: contextlib.ExitStack) -> int:
    fd = os.open("lock", os.O_RDWR | os.O_CREAT | FILE_FLAGS, 0o600, dir_fd=state_fd)
    closing.callback(os.close, fd)
    if not try_lock(fd):
        raise MirrorBusyError(folder=str(place), pid=_holder(fd))
    # Of one length, so that it covers the one before in a single write.
    os.pwrite(fd, f"{os.getpid()}\n".encode().ljust(_HOLDER_BYTES), 0)
    return fd


def _holder(fd: int) -> int | None:
    try:
        return int(os.pread(fd, _HOLDER_BYTES, 0))
    except ValueError:
        # It has the lock, and is about to write its name.
        return None


def _unlink(folder_fd: int, name: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        os.unlink(name, dir_fd=folder_fd)
