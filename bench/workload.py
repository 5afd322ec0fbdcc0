"""What benchmarks work on: stores on a disk, lines to write, and bare SQLite.

Everything lies below ``bench/results``, which git ignores: a temporary folder of the
system may be in memory, where a sync costs nothing.
"""

import contextlib
import itertools
import tempfile
from collections.abc import Iterator
from pathlib import Path
from random import Random

import apsw

import crdtmem
from crdtmem.memory import Memory
from crdtmem.slot import Slot

__all__ = [
    "RESULTS",
    "Appender",
    "BareLog",
    "bare_connection",
    "folder",
    "lines",
    "open_store",
]

RESULTS = Path(__file__).resolve().parent / "results"
LINE_CHARS = 57
"""As long as the updates of the published relay comparisons; seldom matters here."""

_WORDS = ("done", "fixed", "the", "parser", "of", "issue", "build", "next", "waits")


@contextlib.contextmanager
def folder() -> Iterator[Path]:
    """Give an empty folder on the disk of this checkout, and remove it at the end."""
    RESULTS.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=RESULTS, prefix="run-") as name:
        yield Path(name)


def lines(seed: int = 1) -> Iterator[str]:
    """Return endless lines of one length, the same for each seed, all different."""
    random = Random(seed)
    for number in itertools.count():
        words = " ".join(random.choices(_WORDS, k=16))
        yield f"{seed:03d}.{number:07d} {words}"[:LINE_CHARS]


def open_store(path: Path, lane: str = "bench", **options: str) -> Memory:
    """Open a store without a look at this machine's settings for project and lane."""
    durability = options.get("durability", "full")
    if durability == "normal":
        return crdtmem.open(path, lane=lane, project="bench", durability="normal")
    return crdtmem.open(path, lane=lane, project="bench")


class Appender:
    """Appends line after line to a slot, which it empties whenever it is full.

    Args:
        slot: Where to append.
        seed: Of the lines.
        limit_units: Size at which the slot is emptied.

    """

    def __init__(self, slot: Slot, *, seed: int = 1, limit_units: int = 1_800) -> None:
        self.slot = slot
        self.size = 0
        self._lines = lines(seed)
        self._limit_units = limit_units

    def append(self) -> None:
        """Append one line, durable as the store's handle is."""
        self.size = self.slot.append(next(self._lines)).size

    def trim(self) -> None:
        """Empty the slot if the next line would not fit."""
        if self.size + LINE_CHARS + 1 > self._limit_units:
            self.size = self.slot.replace("").size


def bare_connection(path: Path, *, synchronous: str = "full") -> apsw.Connection:
    """Open SQLite as the store does: WAL, and no checkpoint but our own."""
    connection = apsw.Connection(str(path))
    connection.set_busy_timeout(60_000)
    connection.pragma("journal_mode", "wal")
    connection.pragma("synchronous", synchronous)
    connection.pragma("wal_autocheckpoint", 0)
    return connection


class BareLog:
    """The least that a durable append can be: one INSERT, one COMMIT with its fsync."""

    def __init__(self, path: Path, *, seed: int = 2) -> None:
        self.connection = bare_connection(path)
        self.connection.execute(
            "CREATE TABLE IF NOT EXISTS entry(id INTEGER PRIMARY KEY, line TEXT)"
        )
        self._lines = lines(seed)

    def append(self) -> None:
        """Insert one line in a transaction of its own."""
        execute = self.connection.execute
        execute("BEGIN IMMEDIATE")
        execute("INSERT INTO entry(line) VALUES (?)", (next(self._lines),))
        execute("COMMIT")

    def close(self) -> None:
        """Close the file."""
        self.connection.close()
