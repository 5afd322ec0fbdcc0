"""Several processes that append to one slot, each as fast as it can.

The baselines are the same processes with the bare INSERT of ``append.py``: once behind
the store's own lock, once with SQLite's busy handler alone. Every append that returned
is looked for afterwards, in the slot and in what was trimmed from it meanwhile.
"""

import multiprocessing
import statistics
import time
from collections import Counter
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import Literal

from bench.running import Effort, Findings, run
from bench.timing import Comparison, Count, comparison
from bench.workload import BareLog, folder, lines, open_store
from crdtmem.errors import ConflictError, SizeLimitError
from crdtmem.slot import Slot
from crdtmem.store.lock import StoreLock

__all__ = ["measure"]

Way = Literal["ours", "lock", "busy"]
WAYS: tuple[Way, ...] = ("ours", "lock", "busy")
LABEL = "pending_items"
COMMITS = 50
"""Of each process in one round."""


@dataclass
class Turn:
    """What one process did in one round.

    Attributes:
        waits_s: How long each commit took.
        sent: Lines that were acknowledged.
        taken: Lines that it trimmed from the slot.
        trims: Commits that only trimmed.

    """

    waits_s: list[float] = field(default_factory=list)
    sent: list[str] = field(default_factory=list)
    taken: list[str] = field(default_factory=list)
    trims: int = 0


def measure(effort: Effort) -> Findings:
    """Let 8, 4 and 1 processes commit by turns with and without us."""
    comparisons: list[Comparison] = []
    counts: list[Count] = []
    for processes in (2,) if effort.is_quick else (8, 4, 1):
        with folder() as place, _Crowd(place, processes) as crowd:
            found = crowd.race(effort.rounds_of(), effort.size(COMMITS, 10))
        comparisons += found.comparisons
        counts += found.counts
    return Findings(comparisons, counts)


class _Crowd:
    """Processes that wait for orders; each has all three ways of committing open."""

    def __init__(self, place: Path, processes: int) -> None:
        spawn = multiprocessing.get_context("spawn")
        self.place = place
        self.processes = processes
        self._pipes: list[Connection] = []
        self._workers = []
        open_store(place / "ours.db").close()
        BareLog(place / "bare.db").close()
        # Kept: a barrier that is not referred to here vanishes before they start.
        self._barrier = spawn.Barrier(processes)
        for number in range(processes):
            ours, theirs = spawn.Pipe()
            worker = spawn.Process(
                target=_work, args=(place, number, self._barrier, theirs)
            )
            worker.start()
            # Or a worker that ends early would be waited for without end.
            theirs.close()
            self._pipes.append(ours)
            self._workers.append(worker)

    def __enter__(self) -> "_Crowd":
        return self

    def __exit__(self, *_: object) -> None:
        for pipe, worker in zip(self._pipes, self._workers, strict=True):
            pipe.send(None)
            worker.join()

    def race(self, rounds: int, commits: int) -> Findings:
        """Return what all rounds gave."""
        each_s: dict[Way, list[float]] = {way: [] for way in WAYS}
        waits: dict[Way, list[float]] = {way: [] for way in WAYS}
        sent: Counter[str] = Counter()
        kept: Counter[str] = Counter()
        for number in range(-1, rounds):
            # Who goes first changes from round to round.
            for way in (*WAYS[number % 3 :], *WAYS[: number % 3]):
                took_s, turns = self._round(way, commits)
                for turn in turns:
                    sent.update(turn.sent)
                    kept.update(turn.taken)
                if number < 0:
                    continue
                done = sum(len(turn.waits_s) + turn.trims for turn in turns)
                each_s[way].append(took_s / done)
                waits[way] += [wait for turn in turns for wait in turn.waits_s]
        with open_store(self.place / "ours.db") as memory:
            kept.update(str(memory.slot(LABEL).read().content).splitlines())
        return Findings(
            self._compared(each_s), self._counted(waits, each_s, sent, kept)
        )

    def _round(self, way: Way, commits: int) -> tuple[float, list[Turn]]:
        for pipe in self._pipes:
            pipe.send((way, commits))
        answers = [pipe.recv() for pipe in self._pipes]
        # One clock for all processes of a machine: CLOCK_MONOTONIC.
        took_s = max(end for _, end, _ in answers) - min(a for a, _, _ in answers)
        return took_s, [turn for _, _, turn in answers]

    def _compared(self, each_s: dict[Way, list[float]]) -> list[Comparison]:
        name = f"contend-{self.processes}-time-per-commit"
        baselines: list[tuple[Way, str, float | None]] = [
            ("lock", "bare INSERT behind the same lock", round(1 / 0.6, 2)),
            ("busy", "bare INSERT, SQLite's busy handler", None),
        ]
        return [
            comparison(
                name, each_s["ours"], each_s[way], against=against, target=target
            )
            for way, against, target in baselines
        ]

    def _counted(
        self,
        waits: dict[Way, list[float]],
        each_s: dict[Way, list[float]],
        sent: Counter[str],
        kept: Counter[str],
    ) -> list[Count]:
        name = f"contend-{self.processes}"
        lost = sent - kept
        doubled = kept - sent
        counts = [
            Count(f"{name}-lost", sum(lost.values()), "appends", 0, "of ours"),
            Count(f"{name}-doubled", sum(doubled.values()), "appends", 0, "of ours"),
        ]
        for way in WAYS:
            rate = 1 / statistics.median(each_s[way])
            median_s = statistics.median(waits[way])
            worst = max(waits[way]) / median_s
            note = f"{way}: p50 {median_s * 1e3:.1f} ms, {len(waits[way])} commits"
            target = 10 if way == "ours" else None
            counts.append(Count(f"{name}-{way}-rate", round(rate), "commits/s"))
            counts.append(
                Count(f"{name}-{way}-worst-wait", worst, "x p50", target, note)
            )
        return counts


def _append(slot: Slot, line: str, turn: Turn) -> float:
    """Append a line; return when the append that went through was begun."""
    while True:
        start = time.perf_counter()
        try:
            slot.append(line)
        except SizeLimitError:
            _trim(slot, turn)
            continue
        turn.sent.append(line)
        return start


def _trim(slot: Slot, turn: Turn) -> None:
    """Take all lines out of the slot, unless another process has just done so."""
    view = slot.read()
    try:
        is_ours = slot.replace("", expected_rev=view.rev).changed
    except ConflictError:
        return
    if not is_ours:
        # Empty already: a guarded write whose wanted text is there succeeds.
        return
    turn.trims += 1
    turn.taken += str(view.content).splitlines()


def _work(place: Path, number: int, barrier: Barrier, orders: Connection) -> None:
    memory = open_store(place / "ours.db", lane=f"bench-{number}")
    log = BareLog(place / "bare.db", seed=number)
    lock = StoreLock(place / "bare.lock")
    words = lines(number)
    while (order := orders.recv()) is not None:
        way, commits = order
        turn = Turn()
        barrier.wait()
        start = time.monotonic()
        for _ in range(commits):
            before = time.perf_counter()
            if way == "ours":
                before = _append(memory.slot(LABEL), next(words), turn)
            elif way == "lock":
                with lock.held(60):
                    log.append()
            else:
                log.append()
            turn.waits_s.append(time.perf_counter() - before)
        orders.send((start, time.monotonic(), turn))
    lock.close()
    log.close()
    memory.close()


if __name__ == "__main__":
    run(measure)
