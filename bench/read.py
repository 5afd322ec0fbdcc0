"""Reading from Python, against the bare SELECT of the same columns."""

import statistics
import time
from collections.abc import Callable

from bench.running import Effort, Findings, run
from bench.timing import Comparison, Count, compare
from bench.workload import Appender, bare_connection, folder, open_store

__all__ = ["measure"]

READS = 200
"""In one round."""
SLOTS = 20
CLOCKS: tuple[tuple[str, str, Callable[[], float]], ...] = (
    ("", "", time.perf_counter),
    ("-processor", ", processor time", time.thread_time),
)


def measure(effort: Effort) -> Findings:
    """Read one slot of 1,700 units, and list 20 of them."""
    with folder() as place, open_store(place / "ours.db") as memory:
        for number in range(SLOTS):
            label = f"notes_{number}"
            memory.create(label)
            appender = Appender(memory.slot(label), seed=number)
            for _ in range(29):
                appender.append()
        bare = bare_connection(place / "ours.db")
        slot = memory.slot("notes_7")
        pairs: dict[str, tuple[Callable[[], object], Callable[[], object]]] = {
            "read": (
                slot.read,
                lambda: bare.execute(
                    "SELECT * FROM slot WHERE namespace = ? AND label = ?",
                    ("bench", "notes_7"),
                ).fetchall(),
            ),
            "list": (
                lambda: memory.slots(templates=False),
                lambda: bare.execute("SELECT * FROM slot").fetchall(),
            ),
        }
        found = {
            name + kind: compare(
                f"{name}-{READS}-times{kind}",
                _often(ours),
                _often(theirs),
                against=f"bare SELECT by apsw{of}",
                rounds=effort.rounds_of(),
                clock=clock,
            )
            for name, (ours, theirs) in pairs.items()
            for kind, of, clock in CLOCKS
        }
        bare.close()
    counts = [_above(name, line) for name, line in found.items()]
    return Findings(list(found.values()), counts)


def _often(read: Callable[[], object]) -> Callable[[], None]:
    def all_reads() -> None:
        for _ in range(READS):
            read()

    return all_reads


def _above(name: str, line: Comparison) -> Count:
    ours_s, bare_s = map(statistics.median, (line.subject_s, line.baseline_s))
    is_read = name.startswith("read")
    note = "a slot of 1,700 units" if is_read else f"{SLOTS} slots with their texts"
    return Count(
        f"{name}-above-select",
        (ours_s - bare_s) / READS * 1e6,
        "µs",
        target=20 if is_read else None,
        note=note,
    )


if __name__ == "__main__":
    run(measure)
