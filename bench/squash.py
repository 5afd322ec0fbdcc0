"""What squashing costs the append that meets it, and what the log costs who loads it.

A squash runs inside a write transaction. Here it is rolled back after it was timed, so
that each round meets the same records; its share of the commit is not in it.
"""

import time
from pathlib import Path

from bench.running import Effort, Findings, run
from bench.timing import Comparison, comparison
from bench.workload import Appender, folder, open_store
from crdtmem.memory import Memory
from crdtmem.store.documents import load_doc, squash
from crdtmem.store.log import count_rows

__all__ = ["measure"]

LABEL = "pending_items"
RECORDS = (84, 1_000)
"""As many as are met at most by default, and with the longest history that is kept."""


class _RolledBackError(Exception):
    """Ends a transaction on purpose."""


def measure(effort: Effort) -> Findings:
    """Squash and load docs with records behind them, between appends."""
    found: list[Comparison] = []
    for records in RECORDS:
        with folder() as place:
            memory = _with_records(place / "store.db", records)
            with memory:
                found += _between_appends(memory, records, effort.rounds_of())
    return Findings(found)


def _with_records(path: Path, records: int) -> Memory:
    memory = open_store(path)
    memory.configure(history_keep=1_000)
    appender = Appender(memory.slot(LABEL))
    while _count(memory) < records:
        appender.trim()
        appender.append()
    return memory


def _count(memory: Memory) -> int:
    with memory.store.reading() as connection:
        return count_rows(connection, 1)


def _between_appends(memory: Memory, records: int, rounds: int) -> list[Comparison]:
    appender = Appender(memory.slot("project_context"), seed=3)
    times: dict[str, list[float]] = {"squash": [], "load": [], "append": []}
    for _ in range(rounds):
        times["squash"].append(_squash(memory))
        times["load"].append(_load(memory))
        appender.trim()
        start = time.perf_counter()
        appender.append()
        times["append"].append(time.perf_counter() - start)
    return [
        comparison(
            f"{what}-{records}-records", times[what], times["append"], against="append"
        )
        for what in ("squash", "load")
    ]


def _squash(memory: Memory) -> float:
    took_s = 0.0
    try:
        with memory.store.writing() as transaction:
            connection, replica = transaction.connection, transaction.replica
            start = time.perf_counter()
            squash(connection, 1, replica, 1 << 40)
            took_s = time.perf_counter() - start
            raise _RolledBackError
    except _RolledBackError:
        return took_s


def _load(memory: Memory) -> float:
    with memory.store.reading() as connection:
        start = time.perf_counter()
        load_doc(connection, 1, bytes(16))
        return time.perf_counter() - start


if __name__ == "__main__":
    run(measure)
