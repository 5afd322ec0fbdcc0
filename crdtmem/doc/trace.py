"""The trace: a kept text with everything that was written since laid over it.

It is what undo and stale merge are computed from. Deleted text keeps its place, so it
can come back where it stood, and a place in the kept text can be found in the text of
today. A trace is made of runs, not characters: a long text that changed little costs
little.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from crdtmem.doc.delta import Delta, check_delta

__all__ = ["Fate", "Step", "Trace", "TraceRun"]


class Fate(NamedTuple):
    """A death or a return of text.

    Attributes:
        number: The number of the write that did it.
        undone: What that write took back, if it is an undo and the text has the fate
            that it would have without these writes. Empty for a plain death.

    """

    number: int
    undone: frozenset[int] = frozenset()


class Step(NamedTuple):
    """A write to be replayed.

    Attributes:
        number: Its place in the log.
        delta: What it changed in the text after the steps before.
        targets: The numbers of the writes that it undid, if it is an undo.

    """

    number: int
    delta: Delta
    targets: frozenset[int] | None = None


@dataclass(frozen=True, slots=True)
class TraceRun:
    """Text with one history.

    Attributes:
        text: Not empty.
        inserted_by: The number of the write that inserted it; None for the kept text.
        fates: How it died, returned, died again and so on, oldest first.

    """

    text: str
    inserted_by: int | None = None
    fates: tuple[Fate, ...] = ()

    @property
    def is_live(self) -> bool:
        """Whether it belongs to the text as it is now."""
        return len(self.fates) % 2 == 0

    def is_live_without(self, targets: frozenset[int]) -> bool:
        """Whether it would live now if these writes had not been.

        An undo has no effect without what it took back. So a write can be undone again
        after a redo, and so can a batch that holds a write and its undo.
        """
        for number, undone in reversed(self.fates):
            if number in targets:
                continue
            if not undone:
                return False
            targets |= undone
        return self.inserted_by not in targets

    def toggled(self, number: int, undone: frozenset[int]) -> "TraceRun":
        """Return the run after a write deleted it or brought it back."""
        if self.is_live == self.is_live_without(undone):
            undone = frozenset()
        return replace(self, fates=(*self.fates, Fate(number, undone)))


class Trace:
    """A text as it was, and what each later write did to it.

    1. The live runs, in order, are the text after the last step.
    2. The runs without ``inserted_by``, live or not, are the text as it was.
    3. Deleted text keeps its place; text inserted into a gap goes behind it.

    Args:
        base: The text as it was.

    """

    def __init__(self, base: str) -> None:
        self._runs = [TraceRun(base)] if base else []
        self._size_chars = len(base)

    @property
    def runs(self) -> tuple[TraceRun, ...]:
        """The runs, dead ones too, in the order of the text."""
        return tuple(self._runs)

    def base(self) -> str:
        """Return the text that the trace began with."""
        return "".join(run.text for run in self._runs if run.inserted_by is None)

    def text(self) -> str:
        """Return the text after all steps."""
        return "".join(run.text for run in self._runs if run.is_live)

    def step(
        self,
        number: int,
        delta: Delta,
        targets: frozenset[int] | None = None,
    ) -> None:
        """Replay one write. Costs time by the number of runs, not by their length.

        Only runs behind its first change count, so thousands of appends cost little.

        An undo that inserts into a gap exactly what would live there without its
        targets brings that text back to life, so that a later undo knows it again.

        Args:
            number: The place of the write in the log. A write of several deltas is
                several steps of one number.
            delta: What it changed in the text after the steps before.
            targets: The numbers of the writes that it undid, if it is an undo.

        Raises:
            ValueError: If the delta is none over the text; nothing has changed.

        """
        check_delta(delta, self._size_chars)
        targets = targets or frozenset()
        # An undo looks at whole gaps, so it needs what stands in front as well.
        first, at_chars = (0, 0) if targets else self._run_at(delta)
        cutter = _Cutter(self._runs[first:])
        for splice in delta:
            self._size_chars += len(splice.insert)
            self._size_chars -= splice.end_chars - splice.start_chars
            cutter.keep(splice.start_chars - at_chars)
            cutter.insert(TraceRun(splice.insert, inserted_by=number))
            cutter.delete(splice.end_chars - splice.start_chars, number, targets)
            at_chars = splice.end_chars
        cutter.keep_rest()
        if targets:
            self._runs = _revived(cutter.runs, cutter.fresh, number, targets)
        else:
            self._runs[first:] = cutter.runs

    def replay(self, steps: Sequence[Step]) -> None:
        """Replay writes in log order; see step.

        An undo of a write that is not among them is a write like any other.

        Raises:
            ValueError: If a delta is none over the text; the steps before it are made.

        """
        known = {step.number for step in steps}
        for number, delta, targets in steps:
            is_undo = targets is not None and targets <= known
            self.step(number, delta, targets if is_undo else None)

    def _run_at(self, delta: Delta) -> tuple[int, int]:
        """Return the run that holds the first change, and where that begins."""
        first, at_chars = len(self._runs), self._size_chars
        start_chars = delta[0].start_chars if delta else at_chars
        while at_chars > start_chars:
            first -= 1
            run = self._runs[first]
            at_chars -= len(run.text) if run.is_live else 0
        return first, at_chars


class _Cutter:
    """Copies runs from left to right and changes what it is told to.

    Attributes:
        runs: What was copied and inserted so far.
        fresh: Which of them, by their places, were inserted now.

    """

    def __init__(self, runs: list[TraceRun]) -> None:
        self.runs: list[TraceRun] = []
        self.fresh: list[int] = []
        self._source = runs
        self._next = 0
        # How much of the next run has been taken: a run is cut out of its whole text
        # each time, so that many cuts in a long one do not copy its rest each time.
        self._taken_chars = 0

    def keep(self, size_chars: int) -> None:
        self.runs += self._taken(size_chars)

    def delete(self, size_chars: int, number: int, targets: frozenset[int]) -> None:
        self.runs += [
            run.toggled(number, targets) if run.is_live else run
            for run in self._taken(size_chars)
        ]

    def insert(self, run: TraceRun) -> None:
        if not run.text:
            return
        if not self._taken_chars:
            self._pass_tombstones()
        self.fresh.append(len(self.runs))
        self.runs.append(run)

    def keep_rest(self) -> None:
        if self._taken_chars:
            run = self._source[self._next]
            self.runs.append(replace(run, text=run.text[self._taken_chars :]))
            self._next += 1
        self.runs += self._source[self._next :]

    def _taken(self, size_chars: int) -> list[TraceRun]:
        """Take live text of this size, and the dead text in front of and within it."""
        taken: list[TraceRun] = []
        while size_chars:
            run = self._source[self._next]
            start_chars = self._taken_chars
            end_chars = len(run.text)
            if run.is_live:
                end_chars = min(end_chars, start_chars + size_chars)
                size_chars -= end_chars - start_chars
            taken.append(replace(run, text=run.text[start_chars:end_chars]))
            self._taken_chars = end_chars
            if end_chars == len(run.text):
                self._next += 1
                self._taken_chars = 0
        return taken

    def _pass_tombstones(self) -> None:
        while self._next < len(self._source) and not self._source[self._next].is_live:
            self.runs.append(self._source[self._next])
            self._next += 1


def _revived(
    runs: list[TraceRun], fresh: list[int], number: int, targets: frozenset[int]
) -> list[TraceRun]:
    """Return the runs with what the targets had taken in place of equal fresh text."""
    is_fresh = [False] * len(runs)
    for place in fresh:
        is_fresh[place] = True
    found: list[TraceRun] = []
    end = 0
    while end < len(runs):
        start = end
        # A gap: dead text, and what has just been put between and behind it.
        while end < len(runs) and (is_fresh[end] or not runs[end].is_live):
            end += 1
        places = range(start, end)
        dead = [runs[place] for place in places if not is_fresh[place]]
        inserted = "".join(runs[place].text for place in places if is_fresh[place])
        lost = "".join(run.text for run in dead if run.is_live_without(targets))
        if inserted and inserted == lost:
            found += [
                run.toggled(number, targets) if run.is_live_without(targets) else run
                for run in dead
            ]
        else:
            found += runs[start:end]
        found += runs[end : end + 1]
        end += 1
    return found
