"""A folder that a real process mirrors, and a handle on the store behind it."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self

from crdtmem.config.keys import BY_VARIABLE
from crdtmem.errors import SlotNotFoundError
from tests.child import PATIENCE_S, ROOT
from tests.scenarios import opened

__all__ = ["Desk"]

LOOK_S = 0.02


class Desk:
    """A store, a folder, and the command that mirrors it; a context manager.

    Args:
        home: Where all of it is made.
        options: More words for the command.
        folder: The mirrored folder, if it is another one.
        store: The store, if it is another one.

    """

    def __init__(
        self,
        home: Path,
        *options: str,
        folder: Path | None = None,
        store: Path | None = None,
    ) -> None:
        self.folder = folder or home / "notes"
        self.folder.mkdir(parents=True, exist_ok=True)
        self.store = store or home / "store.db"
        self._options = options
        self.environment = {
            **{k: v for k, v in os.environ.items() if k not in BY_VARIABLE},
            "CRDTMEM_STORE": str(self.store),
            "CRDTMEM_PROJECT": "p",
            "HOME": str(home),
            "PYTHONPATH": str(ROOT),
        }
        self.memory = opened(str(self.store), "tester")
        self._process: subprocess.Popen[str] | None = None

    @property
    def state(self) -> Path:
        return self.folder / ".crdtmem-mirror"

    def __enter__(self) -> Self:
        self._process = self.start("--watch")
        assert self._process.stderr is not None
        line = self._process.stderr.readline()
        assert "Ctrl-C" in line, line
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            assert self.end() == 0 or error is not None
        finally:
            self.memory.close()

    def argv(self, *words: str) -> list[str]:
        """Return the command line of the mirror."""
        return ["mirror", str(self.folder), *self._options, "--lane", "mirror", *words]

    def start(self, *words: str) -> subprocess.Popen[str]:
        """Start the command on this folder."""
        return self.command(*self.argv(*words))

    def command(self, *argv: str) -> subprocess.Popen[str]:
        """Start another command on this store."""
        return subprocess.Popen(
            [sys.executable, "-m", "crdtmem.cli", *argv],
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            encoding="utf-8",
        )

    def run(self, *words: str) -> tuple[int, str, str]:
        """Run the command on this folder to its end."""
        process = self.start(*words)
        out, err = process.communicate(timeout=PATIENCE_S)
        return process.returncode, out, err

    def end(self, number: int = signal.SIGTERM) -> int:
        """Tell the mirror to end; return its status."""
        assert self._process is not None
        self._process.send_signal(number)
        self._process.communicate(timeout=PATIENCE_S)
        return self._process.returncode

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def make(self, label: str, text: str) -> Path:
        """Make a slot, and wait for its file."""
        self.memory.create(label, text, size_limit=1_000_000)
        self.wait_until(lambda: self.file(label).exists())
        return self.file(label)

    def file(self, label: str) -> Path:
        return self.folder / f"{label}.md"

    def text(self, label: str) -> str:
        """Return the slot's text; empty where there is no slot."""
        try:
            return str(self.memory.slot(label).read().content)
        except SlotNotFoundError:
            return ""

    def is_equal(self, label: str) -> bool:
        """Tell whether the file holds the slot's text."""
        return self.file(label).read_text(encoding="utf-8") == self.text(label) + "\n"

    def swapped_out(self) -> list[str]:
        return sorted(path.name for path in (self.state / "swap").iterdir())

    def imports(self, label: str) -> int:
        """Return how often the mirror has changed a slot."""
        entries = self.memory.audit(label=label, lane="mirror", limit=1_000)
        return sum(entry.operation == "mirror" for entry in entries)

    def sizes(self, label: str) -> list[int]:
        """Return how long the slot was after each of its writes, the newest first."""
        entries = self.memory.audit(label=label, limit=1_000)
        return [entry.size_after for entry in entries]

    def wait_until(self, is_so: Callable[[], bool]) -> None:
        """Wait for something that the mirror brings about."""
        until = time.monotonic() + PATIENCE_S
        pause = threading.Event()
        while not is_so():
            assert time.monotonic() < until, "waited for too long"
            pause.wait(LOOK_S)
