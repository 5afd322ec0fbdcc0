"""Ways in which real tools save a file: each reads it first, and writes it when told.

An editor is a context: entered, it has the whole text before it; ``save`` then makes
one change, ``EDITED`` behind the line ``line 3``, and writes the file in its own way.
"""

import contextlib
import os
import pty
import select
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

from tests.child import PATIENCE_S

__all__ = ["EDITED", "EDITORS", "VIM", "Editor"]

# The last is the name in a minimal Debian.
VIM = shutil.which("vim") or shutil.which("vim.tiny")

EDITED = "line 3 edited"

Editor = Callable[[Path], AbstractContextManager[Callable[[], None]]]


def _edited(content: bytes) -> bytes:
    return content.replace(b"line 3\n", f"{EDITED}\n".encode())


class _Vim:
    """A vim on a terminal of its own."""

    def __init__(self, file: Path, backupcopy: str) -> None:
        self._terminal, other = pty.openpty()
        # Below the folder for temporary files it would make no backup.
        settings = f"set writebackup backupskip= backupcopy={backupcopy}"
        assert VIM is not None
        self._process = subprocess.Popen(
            [VIM, "-N", "-u", "NONE", "-i", "NONE", "-n", "-c", settings, str(file)],
            stdin=other,
            stdout=other,
            stderr=other,
            env={**os.environ, "TERM": "dumb"},
        )
        os.close(other)
        self._shown = b""

    def load(self, lines: int) -> None:
        # How long the file was that it has read; before, the terminal echoes keys.
        self._wait_for(f"{lines}L".encode())
        self._type(":3\r")

    def save(self) -> None:
        self._type(":s/$/ edited/\r:write!\r")
        while self._wait_for(b"(y/n)", b"written") == b"(y/n)":
            self._type("y")
        self._type(":quit!\r")
        assert self._process.wait(PATIENCE_S) == 0

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        os.close(self._terminal)

    def _type(self, keys: str) -> None:
        os.write(self._terminal, keys.encode())

    def _wait_for(self, *wanted: bytes) -> bytes:
        while True:
            for words in wanted:
                if words in self._shown:
                    _, _, self._shown = self._shown.partition(words)
                    return words
            ready, _, _ = select.select([self._terminal], [], [], PATIENCE_S)
            assert ready, self._shown
            self._shown += os.read(self._terminal, 65_536)


def _vim(backupcopy: str) -> Editor:
    @contextlib.contextmanager
    def editor(file: Path) -> Iterator[Callable[[], None]]:
        vim = _Vim(file, backupcopy)
        try:
            vim.load(file.read_bytes().count(b"\n"))
            yield vim.save
        finally:
            vim.close()

    return editor


@contextlib.contextmanager
def _sed(file: Path) -> Iterator[Callable[[], None]]:
    """``sed -i``, which reads the file only when it is to write it."""

    def save() -> None:
        subprocess.run(["sed", "-i", f"s/^line 3$/{EDITED}/", file], check=True)

    yield save


@contextlib.contextmanager
def _in_two_writes(file: Path) -> Iterator[Callable[[], None]]:
    """Empty the file, write half of it, and the other half a moment later."""
    content = _edited(file.read_bytes())

    def save() -> None:
        with file.open("wb", buffering=0) as opened_file:
            opened_file.write(content[: len(content) // 2])
            select.select([], [], [], 0.1)
            opened_file.write(content[len(content) // 2 :])

    yield save


@contextlib.contextmanager
def _renamed_over(file: Path) -> Iterator[Callable[[], None]]:
    """Write another file and rename it over this one."""
    content = _edited(file.read_bytes())

    def save() -> None:
        new = file.with_name(f"{file.name}.tmp.{os.getpid()}")
        new.write_bytes(content)
        new.replace(file)

    yield save


@contextlib.contextmanager
def _with_a_backup(file: Path) -> Iterator[Callable[[], None]]:
    """Rename the file to one with a tilde, and write it anew, as Emacs does."""
    content = _edited(file.read_bytes())

    def save() -> None:
        file.replace(file.with_name(f"{file.name}~"))
        file.write_bytes(content)

    yield save


EDITORS: dict[str, Editor] = {
    "vim backupcopy=no": _vim("no"),
    "vim backupcopy=yes": _vim("yes"),
    "vim backupcopy=auto": _vim("auto"),
    "sed -i": _sed,
    "truncate and two writes": _in_two_writes,
    "rename over": _renamed_over,
    "backup with a tilde": _with_a_backup,
}
