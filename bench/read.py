"""Reading from Python, against the bare SELECT of the same columns."""

import statistics
from collections.abc import Callable

from bench.running import Effort, Findings, run
from bench.timing import Comparison, Count, compare
from bench.workload import Appender, bare_connection, folder, open_store

__all__ = ["measure"]

READS = 200
"""In one round."""
SLOTS = 20


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
        reads = [
            compare(
                f"read-{READS}-times",
                _often(slot.read),
                _often(
                    lambda: bare.execute(
                        "SELECT * FROM slot WHERE namespace = ? AND label = ?",
                        ("bench", "notes_7"),
                    ).fetchall()
                ),
                against="bare SELECT by apsw",
                rounds=effort.rounds_of(),
            ),
            compare(
                f"list-{READS}-times",
                _often(lambda: memory.slots(templates=False)),
                _often(lambda: bare.execute("SELECT * FROM slot").fetchall()),
                against="bare SELECT by apsw",
                rounds=effort.rounds_of(),
            ),
        ]
        bare.close()
    note = f"{SLOTS} slots, texts included"
    return Findings(
        reads,
        [
            _above("read-above-select", reads[0], 20, "a slot of 1,700 units"),
            _above("list-above-select", reads[1], None, note),
        ],
    )


def _often(read: Callable[[], object]) -> Callable[[], None]:
    def all_reads() -> None:
        for _ in range(READS):
            read()

    return all_reads


def _above(name: str, line: Comparison, target: float | None, note: str) -> Count:
    medians = map(statistics.median, (line.subject_s, line.baseline_s))
    ours_s, bare_s = medians
    return Count(name, (ours_s - bare_s) / READS * 1e6, "µs", target, note)


if __name__ == "__main__":
    run(measure)
