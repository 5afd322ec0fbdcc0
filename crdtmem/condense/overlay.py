"""What others wrote during a pass: where it meets the pass, and what comes of both.

Both answers come from the runs of the trace by counting positions. No text is compared
(deleted and retyped text counts as changed), and nothing is shared with the way in
which the edit itself is made (``crdtmem.doc.rebase``), which is held against this.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from crdtmem.condense.regions import Plan, Region
from crdtmem.doc.delta import Splice, is_line_start
from crdtmem.doc.text_form import bytes_of
from crdtmem.doc.trace import Trace

__all__ = ["carried", "overlaps"]


def overlaps(plan: Plan, trace: Trace) -> tuple[Region, ...]:
    """Return the regions that a pass takes out and others have changed meanwhile.

    Whole lines between two of them are no overlap, nor is anything that is appended.

    Args:
        plan: What the pass does.
        trace: The text that the pass began from, and all that was written since.

    """
    base = trace.base()
    changes = _Changes(trace, base)
    gone = [*plan.evicted, *plan.condensed]
    return tuple(
        region
        for region in sorted(gone, key=lambda region: region.start_chars)
        if any(changes.meet(*part) for part in _parts_of(region, base))
    )


def carried(file: str, ops: Iterable[Splice], trace: Trace) -> tuple[str, int]:
    """Return what the text must be after edits that others' writes did not meet.

    Args:
        file: The base text.
        ops: The edits, over the closed base text, ascending.
        trace: The base text, and all that was written since.

    Returns:
        The text, and how many bytes of it others have inserted.

    """
    ops = tuple(ops)
    weaver = _Weaver()
    cuts = _Cuts(ops, len(file))
    cuts.insert_at(0, weaver)
    size_bytes = at_chars = 0
    is_open = file != "" and not file.endswith("\n")
    for run in trace.runs:
        if run.inserted_by is None:
            for start, end in cuts.pieces(at_chars, at_chars + len(run.text)):
                text = file[start:end] if run.is_live else ""
                weaver.put(text, is_kept=not cuts.is_deleted(start))
                cuts.insert_at(end, weaver)
            at_chars += len(run.text)
        elif run.is_live:
            text = run.text
            if is_open and at_chars == len(file):
                # The newline that the last line got belongs to it, and goes with it.
                is_open = False
                if cuts.is_deleted(at_chars) and text.startswith("\n"):
                    weaver.put("\n", is_kept=False)
                    text = text[1:]
            weaver.put(text, is_kept=True)
            size_bytes += bytes_of(text)
    return weaver.text(), size_bytes


class _Piece(NamedTuple):
    """A run of the base text: where it was, and where it is now."""

    base_chars: int
    end_chars: int
    now_chars: int
    is_live: bool


class _Changes:
    """The writes since, by places of the base text."""

    def __init__(self, trace: Trace, base: str) -> None:
        self._now = trace.text()
        self._base_chars = len(base)
        self._is_open = not is_line_start(base, self._base_chars)
        self._pieces: list[_Piece] = []
        inserted: dict[int, list[str]] = {}
        base_chars = now_chars = 0
        for run in trace.runs:
            if run.inserted_by is None:
                end_chars = base_chars + len(run.text)
                piece = _Piece(base_chars, end_chars, now_chars, run.is_live)
                self._pieces.append(piece)
                base_chars = end_chars
            elif run.is_live:
                inserted.setdefault(base_chars, []).append(run.text)
            now_chars += len(run.text) if run.is_live else 0
        self._inserted = {at: "".join(texts) for at, texts in inserted.items()}
        self._places = sorted(inserted)

    def meet(self, start_chars: int, end_chars: int) -> bool:
        """Tell whether one of them changed this part of the base text, in whole lines.

        1. Something of it was deleted.
        2. Something was inserted within it.
        3. Its first line does not begin a line any more.
        4. What stands directly behind it has no end yet, or goes on with its last line.
        """
        if start_chars == end_chars:
            return False
        first = bisect_right(self._pieces, start_chars, key=lambda p: p.base_chars) - 1
        behind = bisect_left(self._pieces, end_chars, key=lambda p: p.base_chars)
        if not all(piece.is_live for piece in self._pieces[first:behind]):
            return True
        place = bisect_right(self._places, start_chars)
        if place < len(self._places) and self._places[place] < end_chars:
            return True
        piece = self._pieces[first]
        now_chars = piece.now_chars + start_chars - piece.base_chars
        return not is_line_start(self._now, now_chars) or self._is_torn_behind(
            end_chars, now_chars + end_chars - start_chars
        )

    def _is_torn_behind(self, end_chars: int, now_chars: int) -> bool:
        text = self._inserted.get(end_chars, "")
        if not text:
            return False
        if self._is_open and end_chars == self._base_chars:
            return not text.startswith("\n")
        is_append = now_chars + len(text) == len(self._now)
        return not text.endswith("\n") and not is_append


class _Cuts:
    """Edits over a base text, asked for from left to right."""

    def __init__(self, ops: Sequence[Splice], size_chars: int) -> None:
        self._ends = [op.end_chars for op in ops]
        self._ops = ops
        self._places = sorted({place for op in ops for place in op[:2]})
        # An insert behind the newline that the text lacks stands at its end.
        self._inserts = [
            (min(op.start_chars, size_chars), op.insert) for op in ops if op.insert
        ]
        self._done = 0

    def pieces(self, start_chars: int, end_chars: int) -> Iterator[tuple[int, int]]:
        """Cut a part of the base text where edits begin and end."""
        first = bisect_right(self._places, start_chars)
        for place in self._places[first : bisect_left(self._places, end_chars)]:
            yield start_chars, place
            start_chars = place
        yield start_chars, end_chars

    def is_deleted(self, at_chars: int) -> bool:
        """Tell whether an edit deletes this character."""
        place = bisect_right(self._ends, at_chars)
        return place < len(self._ops) and self._ops[place].start_chars <= at_chars

    def insert_at(self, at_chars: int, weaver: "_Weaver") -> None:
        """Insert what goes directly behind the character in front."""
        while (
            self._done < len(self._inserts) and self._inserts[self._done][0] <= at_chars
        ):
            weaver.insert(self._inserts[self._done][1])
            self._done += 1


class _Weaver:
    """Puts a text together; what is inserted waits for the next line to begin."""

    def __init__(self) -> None:
        self._parts: list[str] = []
        self._waiting: list[str] = []
        self._is_at_line_start = True

    def insert(self, text: str) -> None:
        self._waiting.append(text)
        if self._is_at_line_start:
            self._insert_waiting()

    def put(self, text: str, *, is_kept: bool) -> None:
        """Go on over live text, which stays or goes."""
        if not text:
            return
        if self._waiting:
            behind = text.find("\n") + 1
            if not behind:
                self._parts += [text] if is_kept else []
                return
            self._parts += [text[:behind]] if is_kept else []
            self._insert_waiting()
            text = text[behind:]
        self._parts += [text] if is_kept else []
        self._is_at_line_start = not text or text.endswith("\n")

    def text(self) -> str:
        """Return all of it; each that still waits begins a line of its own."""
        return "".join([*self._parts, *(f"\n{text}" for text in self._waiting)])

    def _insert_waiting(self) -> None:
        self._parts += self._waiting
        self._waiting.clear()


def _parts_of(region: Region, base: str) -> Iterator[tuple[int, int]]:
    """Yield what goes; lines between a condensed heading and its body are no change."""
    body = region.start_chars
    if region.kind == "condensed":
        body = region.body_start_chars(base)
        yield region.start_chars, body
    yield body, region.end_chars
