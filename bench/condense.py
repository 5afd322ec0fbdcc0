"""A condense pass over 20,000 units beside two processes that go on appending.

The baseline is the same two processes over the same text without a pass. Every append
that returned is looked for afterwards: in the slot, and in what the passes took out.
"""

import multiprocessing
import statistics
import time
from collections import Counter
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from multiprocessing.synchronize import Barrier
from pathlib import Path

from bench.running import Effort, Findings, run
from bench.timing import Count, comparison
from bench.workload import folder, lines, open_store
from crdtmem.memory import Memory
from crdtmem.slot import Slot

__all__ = ["measure"]

LABEL = "worklog"
UNITS = 20_000
LIMIT_UNITS = 1_000_000
WRITERS = 2
APPENDS = 300
"""Of each writer in one round."""

THINKS_S = 1.0
"""How long the summariser takes, a hundredth of the usual: nothing is locked then."""

SUMMARY = "What had been done until then, in a few words. " * 20


@dataclass
class _Found:
    """What the rounds of one way gave: with a pass, or without.

    Attributes:
        p95_s: Of the appends of each round.
        worst_s: The longest append of each round.
        steps_s: How long begin and commit of each pass took.
        reasons: What became of the passes.

    """

    p95_s: list[float] = field(default_factory=list)
    worst_s: list[float] = field(default_factory=list)
    steps_s: list[tuple[float, float]] = field(default_factory=list)
    reasons: Counter[str] = field(default_factory=Counter)


def measure(effort: Effort) -> Findings:
    """Append beside a pass, and without one, by turns."""
    with folder() as place, _Crew(place) as crew:
        return crew.race(effort.rounds_of(), effort.size(APPENDS, 30))


class _Crew:
    """Two writers that wait for orders, and the one who condenses."""

    def __init__(self, place: Path) -> None:
        spawn = multiprocessing.get_context("spawn")
        self.memory = open_store(place / "ours.db", lane="condenser")
        self.memory.create(LABEL, size_limit=LIMIT_UNITS)
        self.slot = self.memory.slot(LABEL)
        self.kept: Counter[str] = Counter()
        self.sent: Counter[str] = Counter()
        self._pipes: list[Connection] = []
        self._workers = []
        # Kept: a barrier that is not referred to here vanishes before they start.
        self._barrier = spawn.Barrier(WRITERS + 1)
        for number in range(WRITERS):
            ours, theirs = spawn.Pipe()
            worker = spawn.Process(
                target=_write, args=(place, number, self._barrier, theirs)
            )
            worker.start()
            # Or a worker that ends early would be waited for without end.
            theirs.close()
            self._pipes.append(ours)
            self._workers.append(worker)

    def __enter__(self) -> "_Crew":
        return self

    def __exit__(self, *_: object) -> None:
        for pipe, worker in zip(self._pipes, self._workers, strict=True):
            pipe.send(None)
            worker.join()
        self.memory.close()

    def race(self, rounds: int, appends: int) -> Findings:
        """Return what all rounds gave."""
        found = {True: _Found(), False: _Found()}
        for number in range(-1, rounds):
            # Who goes first changes from round to round.
            for with_pass in (number % 2 == 0, number % 2 != 0):
                # The one in front is not measured.
                of = _Found() if number < 0 else found[with_pass]
                self._round(of, appends, with_pass=with_pass)
        return Findings(
            [
                comparison(
                    "condense-append-p95",
                    found[True].p95_s,
                    found[False].p95_s,
                    against="the same writers without a pass",
                    target=1.2,
                )
            ],
            self._counts(found[True], found[False]),
        )

    def _round(self, found: _Found, appends: int, *, with_pass: bool) -> None:
        self.slot.replace(_text())
        for pipe in self._pipes:
            pipe.send(appends)
        self._barrier.wait()
        # One clock for all processes of a machine: CLOCK_MONOTONIC.
        end = self._condense(found) if with_pass else float("inf")
        waits: list[float] = []
        for pipe in self._pipes:
            sent, timed = pipe.recv()
            self.sent.update(sent)
            # Behind the commit the text is short, and an append is cheap.
            waits += [wait_s for start, wait_s in timed if start < end]
        self.kept.update(_lines_of(self.slot))
        found.p95_s.append(statistics.quantiles(waits, n=20)[-1])
        found.worst_s.append(max(waits))

    def _condense(self, found: _Found) -> float:
        """Make a pass; return when it had been committed."""
        start = time.perf_counter()
        begun = self.slot.begin_condense(force=True)
        begin_s = time.perf_counter() - start
        time.sleep(THINKS_S)
        start = time.perf_counter()
        result = self.slot.commit_condense(begun.id, SUMMARY)
        found.steps_s.append((begin_s, time.perf_counter() - start))
        found.reasons[result.reason] += 1
        end = time.monotonic()
        self.kept.update(_archived(self.memory, begun.id))
        return end

    def _counts(self, ours: _Found, alone: _Found) -> list[Count]:
        lost, doubled = self.sent - self.kept, self.kept - self.sent
        # What stood there before is not looked for.
        doubled = Counter({line: n for line, n in doubled.items() if line in self.sent})
        steps = {"begin": 0, "commit": 1}
        worst_s = statistics.median(ours.worst_s)
        return [
            Count("condense-lost", sum(lost.values()), "appends", 0, "of the writers"),
            Count("condense-doubled", sum(doubled.values()), "appends", 0, "likewise"),
            Count(
                "condense-passes",
                ours.reasons["condensed"],
                "passes",
                len(ours.steps_s),
                f"condensed of {len(ours.steps_s)}",
            ),
            *(
                Count(
                    f"condense-{name}",
                    statistics.median(step[place] for step in ours.steps_s) * 1e3,
                    "ms",
                    note="median of the call, its wait for the lock included",
                )
                for name, place in steps.items()
            ),
            Count(
                "condense-worst-append",
                worst_s / statistics.median(alone.worst_s),
                "x that without a pass",
                note=f"of a round: {worst_s * 1e3:.1f} ms",
            ),
        ]


def _text() -> str:
    """Return sections of 20,000 units in all."""
    found, size = [], 0
    for number, line in enumerate(lines(999)):
        section = f"## entry {number}\n{line}\n{line[::-1]}\n"
        size += len(section)
        if size > UNITS:
            break
        found.append(section)
    return "".join(found)


def _lines_of(slot: Slot) -> list[str]:
    return str(slot.read().content).splitlines()


def _archived(memory: Memory, pass_id: str) -> list[str]:
    sections = memory.condense_archive(pass_id).sections
    return [line for section in sections for line in section.text.splitlines()]


def _write(place: Path, number: int, barrier: Barrier, orders: Connection) -> None:
    memory = open_store(place / "ours.db", lane=f"bench-{number}")
    slot = memory.slot(LABEL)
    words = lines(number)
    while (appends := orders.recv()) is not None:
        sent, timed = [], []
        barrier.wait()
        for _ in range(appends):
            line = next(words)
            before = time.monotonic()
            slot.append(f"## note\n{line}")
            timed.append((before, time.monotonic() - before))
            sent.append(line)
        orders.send((sent, timed))
    memory.close()


if __name__ == "__main__":
    run(measure)
