"""Files of other programs on the disk: read, compared, replaced, brought back.

A file is read and edited in memory first, all files of a command before the first is
written. It is then replaced as a whole, under its mode, with a copy of what was there
beside it. A symbolic link stays one, and what it names is replaced; the link of a
repository may lead to nowhere outside of it, for a repository may be anybody's.
"""

import difflib
import errno
import os
import re
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from crdtmem.cli.setup_edits import Edit, TakenError, UneditableError
from crdtmem.errors import (
    ConfigError,
    ConfigTakenError,
    ConfigUnparsableError,
    PermissionDeniedError,
    UntrustedConfigError,
)
from crdtmem.limits import SETUP_FILE_BYTES

__all__ = ["FileChange", "backup_of", "change_to_put", "change_to_take", "read_file"]

_FORBIDDEN = (errno.EACCES, errno.EPERM, errno.EROFS)


def backup_of(path: Path) -> Path:
    """Return where the copy of a file lies that was there before."""
    return path.with_name(f"{path.name}.crdtmem-bak")


@dataclass(frozen=True, slots=True)
class FileChange:
    """What becomes of one file.

    Attributes:
        path: Its name.
        old: What stands in it, None where there is no file.
        new: What will, None where there will be none.
        base: The folder below which folders are made and taken away.
        backup: What happens to the copy of the file.

    """

    path: Path
    old: str | None
    new: str | None
    base: Path
    backup: Literal["leave", "make", "drop"] = "leave"

    @property
    def word(self) -> str:
        """Return what happens, in one word."""
        if self.old == self.new:
            return "unchanged"
        if self.old is None:
            return "made"
        return "removed" if self.new is None else "changed"

    @property
    def diff(self) -> str:
        """Return the change as a unified diff, nothing for none."""
        if self.old == self.new:
            return ""
        before = "/dev/null" if self.old is None else str(self.path)
        after = "/dev/null" if self.new is None else str(self.path)
        lines = difflib.unified_diff(
            _lines(self.old or ""), _lines(self.new or ""), before, after
        )
        return "".join(
            line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n"
            for line in lines
        )

    def apply(self) -> None:
        """Do it.

        Raises:
            PermissionDeniedError: If the system forbids it.
            ConfigError: If it fails in another way; a file that is there is as it was.

        """
        with _mapped(self.path, "write"):
            if self.backup == "make" and self.old is not None:
                _replace(backup_of(self.path), self.old, like=self.path)
            if self.new is None:
                self._delete()
            elif self.old != self.new:
                target = Path(os.path.realpath(self.path))
                target.parent.mkdir(parents=True, exist_ok=True)
                _replace(target, self.new, like=target)
            if self.backup == "drop":
                backup_of(self.path).unlink(missing_ok=True)

    def _delete(self) -> None:
        target = Path(os.path.realpath(self.path))
        target.unlink(missing_ok=True)
        folder = target.parent
        # Folders that were made for it, or that nobody will miss.
        with suppress(OSError):
            while folder != self.base and folder.is_relative_to(self.base):
                folder.rmdir()
                folder = folder.parent


def read_file(path: Path, *, within: Path | None) -> str | None:
    """Return the text of a file, None if there is none.

    Args:
        path: Its name.
        within: The folder that a link may not lead out of.

    Raises:
        UntrustedConfigError: If one does.
        UneditableError: If it is no file of text, or too long for one.

    """
    target = Path(os.path.realpath(path))
    if within is not None and not target.is_relative_to(os.path.realpath(within)):
        raise UntrustedConfigError(
            f"{path} leads out of the project, to {target}",
            hint="replace the link by a file",
            details={"file": str(path), "target": str(target)},
        )
    try:
        if not stat.S_ISREG(target.stat().st_mode):
            raise UneditableError("it is no regular file")
        with target.open("rb") as file:
            content = file.read(SETUP_FILE_BYTES + 1)
        if len(content) > SETUP_FILE_BYTES:
            raise UneditableError(f"it is longer than {SETUP_FILE_BYTES} bytes")
        return content.decode()
    except FileNotFoundError:
        return None
    except UnicodeDecodeError as exc:
        raise UneditableError(f"it is not UTF-8, at byte {exc.start}") from exc


def change_to_put(
    path: Path, edits: Sequence[Edit], *, base: Path, within: Path | None
) -> FileChange:
    """Return the change that puts something into a file; nothing is written yet.

    Args:
        path: The file.
        edits: What is put in, in this order.
        base: See FileChange.
        within: See read_file.

    Raises:
        ConfigUnparsableError: If the file cannot be edited.
        ConfigTakenError: If it has a foreign entry of our name.
        UntrustedConfigError: If a link leads out of the project.
        PermissionDeniedError: If it cannot be read.

    """
    with _told(path, edits):
        old = new = read_file(path, within=within)
        for edit in edits:
            new = edit.put(new)
        # A copy that has something of ours in it would be none of what was there.
        is_first = old is not None and old != new and _taken(old, edits) == old
    return FileChange(path, old, new, base, "make" if is_first else "leave")


def change_to_take(
    path: Path, edits: Sequence[Edit], *, base: Path, within: Path | None
) -> FileChange:
    """Return the change that takes it out again; raises what change_to_put raises.

    A file in which nothing is left goes away, unless it was there before.
    """
    with _told(path, edits):
        old = read_file(path, within=within)
        if old is None:
            return FileChange(path, None, None, base)
        new: str | None = _taken(old, edits)
        copy = read_file(backup_of(path), within=within)
        if new == old:
            return FileChange(path, old, old, base)
        if new == edits[0].empty:
            new = copy
    return FileChange(path, old, new, base, "drop" if new == copy else "leave")


def _taken(text: str, edits: Sequence[Edit]) -> str:
    for edit in reversed(edits):
        text = edit.take(text)
    return text


@contextmanager
def _told(path: Path, edits: Sequence[Edit]) -> Iterator[None]:
    """Turn what an edit raises into errors that name the file."""
    snippet = "\n".join(edit.snippet for edit in edits)
    try:
        with _mapped(path, "read"):
            yield
    except UneditableError as exc:
        raise ConfigUnparsableError(
            path=str(path), reason=str(exc), snippet=snippet
        ) from exc
    except TakenError as exc:
        raise ConfigTakenError(path=str(path), entry=str(exc), snippet=snippet) from exc


@contextmanager
def _mapped(path: Path, action: str) -> Iterator[None]:
    try:
        yield
    except OSError as exc:
        if exc.errno in _FORBIDDEN:
            raise PermissionDeniedError(path=str(path), action=action) from exc
        raise ConfigError(
            f"{path} cannot be used: {exc.strerror}",
            code="config-invalid",
            details={"file": str(path)},
        ) from exc


def _replace(target: Path, text: str, *, like: Path) -> None:
    """Write a file as a whole, with the mode and owner of another if that is there."""
    model = like.stat() if like.exists() else None
    part = target.with_name(f".{target.name}.{os.getpid()}.part")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
    # What the model hides is not to be seen for a moment either.
    descriptor = os.open(part, flags, 0o666 if model is None else 0o600)
    try:
        with open(descriptor, "wb") as file:
            file.write(text.encode())
            file.flush()
            if model is not None and hasattr(os, "fchown"):  # pragma: no branch - POSIX
                _make_alike(descriptor, model)
            os.fsync(descriptor)
        part.replace(target)
    except BaseException:
        part.unlink()
        raise


def _make_alike(descriptor: int, model: os.stat_result) -> None:
    # Only root may give a file away; for others it is their own already.
    with suppress(PermissionError):
        os.fchown(descriptor, model.st_uid, model.st_gid)
    os.fchmod(descriptor, stat.S_IMODE(model.st_mode))


def _lines(text: str) -> list[str]:
    return re.findall(r"[^\n]*\n|[^\n]+", text)
