"""Files that appear under their name when they are whole and on disk, or not at all."""

import errno
import os
import stat
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from crdtmem.errors import (
    CrdtmemError,
    InvalidArgumentError,
    PermissionDeniedError,
    StoreFullError,
)

__all__ = ["new_file", "replaced_file"]

Link = Callable[[Path, Path], None]

_FULL_ERRNO = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_FORBIDDEN_ERRNO = {errno.EACCES, errno.EPERM, errno.EROFS}


@contextmanager
def new_file(target: Path, *, link: Link = os.link) -> Iterator[Path]:
    """Give a file to fill; it gets its name when the block ends, if that is still free.

    Nothing is ever replaced. If the block raises, or this does, nothing is left behind.
    The file is its owner's alone from the first byte on.

    Args:
        target: The name.
        link: Gives a file a second name and replaces nothing.

    Raises:
        InvalidArgumentError: If something of that name exists, or its folder does not.
        PermissionDeniedError: If the folder cannot be written.
        StoreFullError: If there is no space.

    """
    target = target.absolute()
    if os.path.lexists(target):
        raise _taken(target)
    with _part_of(target) as part:
        yield part
        _sync(part, os.O_RDWR)
        try:
            # A rename would replace what came meanwhile; a link cannot.
            link(part, target)
        except FileExistsError as exc:
            raise _taken(target) from exc
        except OSError:
            # Sticks and cards mostly have file systems without hard links.
            part.rename(target)
        _sync(target.parent, os.O_RDONLY)


@contextmanager
def replaced_file(target: Path) -> Iterator[Path]:
    """Give a file to fill; it takes the place of the named one when the block ends.

    If the block raises, or this does, the named one is as it was. A symbolic link stays
    one, and what it names is replaced.

    Raises:
        InvalidArgumentError: If the name is that of no regular file, or the folder does
            not exist.
        PermissionDeniedError: If the folder cannot be written.
        StoreFullError: If there is no space.

    """
    target = Path(os.path.realpath(target))
    if os.path.lexists(target) and not stat.S_ISREG(os.lstat(target).st_mode):
        raise InvalidArgumentError("target", f"target is no regular file: {target}")
    with _part_of(target) as part:
        yield part
        _sync(part, os.O_RDWR)
        part.replace(target)
        _sync(target.parent, os.O_RDONLY)


@contextmanager
def _part_of(target: Path) -> Iterator[Path]:
    if not target.parent.is_dir():
        message = f"the folder of target does not exist: {target.parent}"
        raise InvalidArgumentError("target", message)
    try:
        descriptor, name = tempfile.mkstemp(
            prefix=f".{target.name}.", suffix=".part", dir=target.parent
        )
        os.close(descriptor)
        try:
            yield Path(name)
        finally:
            _remove(name)
    except CrdtmemError:
        # Some of ours are errors of the system as well, and say what they mean.
        raise
    except OSError as exc:
        raise _ours(exc, target) from exc


def _remove(name: str) -> None:
    # SQLite may have put its own files beside it.
    for path in (name, f"{name}-journal", f"{name}-wal", f"{name}-shm"):
        if os.path.lexists(path):
            os.unlink(path)


def _sync(path: Path, flags: int) -> None:
    descriptor = os.open(path, flags)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _taken(target: Path) -> InvalidArgumentError:
    return InvalidArgumentError(
        "target",
        f"target exists already: {target}",
        hint="name a file that does not exist, or move that one away",
    )


def _ours(exc: OSError, target: Path) -> CrdtmemError:
    if exc.errno in _FULL_ERRNO:
        return StoreFullError(path=str(target))
    if exc.errno in _FORBIDDEN_ERRNO:
        return PermissionDeniedError(path=str(target), action="write")
    message = f"target cannot be written: {target}: {exc.strerror}"
    return InvalidArgumentError("target", message)
