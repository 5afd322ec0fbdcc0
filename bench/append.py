"""Durable appends of one process, against the least that SQLite can do.

Both sides commit one line with one fsync to the same file system, in WAL mode with
``synchronous=FULL``. Ours also writes the document's update, the materialised slot, a
history entry and an audit row: the ratio is what those cost.
"""

import statistics
import time
from collections.abc import Callable
from pathlib import Path

from bench.running import Effort, Findings, run
from bench.timing import Comparison, Count, compare
from bench.workload import Appender, BareLog, folder, open_store
from crdtmem.memory import Memory
from tests.exchange import outgoing, receive

__all__ = ["measure"]

APPENDS = 300
"""Measured appends, each a round of its own: the ratio is that of the medians."""


def measure(effort: Effort) -> Findings:
    """Append to a fresh slot and to slots with a past."""
    with folder() as place:
        bare = _against_bare(place, effort)
        one = _behind_one_replica(place, effort)
        two = _behind_two_replicas(place, effort)
    return Findings([*bare[0], one[0], two[0]], [*bare[1], one[1], two[1]])


def _against_bare(place: Path, effort: Effort) -> tuple[list[Comparison], list[Count]]:
    log = BareLog(place / "bare.db")
    with open_store(place / "alone.db") as memory:
        appender = Appender(memory.slot("pending_items"))
        # First, while neither log has been checkpointed: its file still grows then.
        pages = [
            _pages("append-wal-pages", memory.store.path, appender.append),
            _pages("bare-insert-wal-pages", place / "bare.db", log.append),
        ]
        line = compare(
            "append-durable",
            appender.append,
            log.append,
            against="bare apsw INSERT + fsync, same disk",
            target=1.5,
            rounds=effort.rounds_of(APPENDS),
            before=appender.trim,
        )
        work = compare(
            "append-processor",
            appender.append,
            log.append,
            against="bare apsw INSERT + fsync, processor time",
            rounds=effort.rounds_of(APPENDS),
            before=appender.trim,
            clock=time.thread_time,
        )
    log.close()
    mean = statistics.mean(line.subject_s) / statistics.mean(line.baseline_s)
    note = "mean over mean: squashes are in it, checkpoints not"
    return [line, work], [Count("append-durable-mean", mean, "x", note=note), *pages]


def _pages(name: str, path: Path, append: Callable[[], object]) -> Count:
    wal = path.with_name(path.name + "-wal")
    for _ in range(25):
        append()
    before = wal.stat().st_size
    append()
    pages = (wal.stat().st_size - before) / (4_096 + 24)
    return Count(
        name, round(pages), "pages", note="of 4 KiB, written by the 26th append"
    )


def _behind_one_replica(place: Path, effort: Effort) -> tuple[Comparison, Count]:
    records = effort.size(100_000, 2_000)
    path = place / "one.db"
    start = time.perf_counter()
    with open_store(path, durability="normal") as memory:
        appender = Appender(memory.slot("pending_items"))
        for _ in range(records):
            appender.trim()
            appender.append()
    took_s = time.perf_counter() - start
    note = (
        f"public appends, durability normal, trimmed by replace at 1,800 units,"
        f" {took_s:.0f} s"
    )
    with open_store(path) as memory:
        line = _old_against_fresh("append-behind-records", memory, effort, target=2.0)
    return line, Count("append-behind-records-built", records, "records", note=note)


def _behind_two_replicas(place: Path, effort: Effort) -> tuple[Comparison, Count]:
    records = effort.size(2_000, 300)
    start = time.perf_counter()
    with (
        open_store(place / "left.db", durability="normal") as left,
        open_store(place / "right.db", durability="normal") as right,
    ):
        _write_in_turn(left, right, records)
    took_s = time.perf_counter() - start
    note = (
        "appends of two stores in turn, each received by the other before its own,"
        f" durability normal, trimmed at 1,800 units, {took_s:.0f} s"
    )
    with open_store(place / "left.db") as memory:
        line = _old_against_fresh("append-behind-two-replicas", memory, effort)
    count = Count("append-behind-two-replicas-built", records, "records", note=note)
    return line, count


def _write_in_turn(left: Memory, right: Memory, records: int) -> None:
    sides = [
        (memory, Appender(memory.slot("pending_items"), seed=seed))
        for seed, memory in enumerate((left, right), 11)
    ]
    sent = [0, 0]
    for number in range(records):
        which = number % 2
        memory, appender = sides[which]
        appender.size = memory.slot("pending_items").read().size
        appender.trim()
        appender.append()
        fresh = outgoing(memory.store, "bench", after=sent[which])
        sent[which] = fresh[-1].origin
        receive(sides[1 - which][0].store, "bench", fresh)


def _old_against_fresh(
    name: str, memory: Memory, effort: Effort, target: float | None = None
) -> Comparison:
    old = Appender(memory.slot("pending_items"), seed=21)
    old.size = old.slot.read().size
    fresh = Appender(memory.slot("project_context"), seed=22)

    def trim_both() -> None:
        old.trim()
        fresh.trim()

    return compare(
        name,
        old.append,
        fresh.append,
        against="append to a fresh slot of the same store",
        target=target,
        rounds=effort.rounds_of(APPENDS),
        before=trim_both,
    )


if __name__ == "__main__":
    run(measure)
