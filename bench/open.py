"""Opening and closing a store that is up to date, against the bare connection."""

from pathlib import Path

import apsw

from bench.running import Effort, Findings, run
from bench.timing import compare
from bench.workload import Appender, folder, open_store

__all__ = ["measure"]


def measure(effort: Effort) -> Findings:
    """Open and close 20 times a round; nothing is written on either side."""
    with folder() as place:
        path = place / "store.db"
        with open_store(path) as memory:
            appender = Appender(memory.slot("pending_items"))
            for _ in range(20):
                appender.append()
        line = compare(
            "open-and-close-20-times",
            lambda: _ours(path),
            lambda: _bare(path),
            against="apsw: connect, read user_version, close",
            rounds=effort.rounds_of(),
        )
    return Findings([line])


def _ours(path: Path) -> None:
    for _ in range(20):
        open_store(path).close()


def _bare(path: Path) -> None:
    for _ in range(20):
        connection = apsw.Connection(str(path))
        connection.pragma("user_version")
        connection.close()


if __name__ == "__main__":
    run(measure)
