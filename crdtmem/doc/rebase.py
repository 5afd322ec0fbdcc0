"""Stale merge: a caller's new text for an old rev, as an edit of the text of today.

No fork of the document: the line diff from the old text to the caller's is carried over
the trace. What the caller did not see is not deleted, and what others deleted is not
brought back; both sides of a line that both have changed stay, each whole.
"""

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from crdtmem.doc.delta import Delta, Splice, is_line_start, joined
from crdtmem.doc.text_form import closed
from crdtmem.doc.trace import Trace
from crdtmem.textdiff import diff_lines

__all__ = ["carried_delta", "merge_delta"]


def merge_delta(trace: Trace, base: str, content_file: str) -> Delta:
    """Return the edit that makes a caller's change of an old text, in whole lines.

    Deletes take only lines of the old text that still live. Inserts stand directly
    after what stood in front of them in the old text.

    Args:
        trace: The old text, and all that was written since.
        base: The old text, which the caller has read.
        content_file: What the caller made of it, as a file.

    Returns:
        A delta over the text of the trace; empty if the caller changed nothing, or
        only deleted what is already gone.

    Raises:
        ValueError: If the trace did not begin with the old text.

    """
    # The text form gives every file its final newline; where an editor has left one
    # without, its absence is no change of the caller's.
    ops = diff_lines(closed(base), closed(content_file))
    return carried_delta(trace, base, [Splice(*op) for op in ops])


def carried_delta(trace: Trace, base: str, ops: Iterable[Splice]) -> Delta:
    """Return the edit that makes a change of an old text in the text of today.

    As merge_delta does it, for a change that is known and needs no diff.

    Args:
        trace: The old text, and all that was written since.
        base: The old text.
        ops: The change over it, in whole lines, ascending.

    Raises:
        ValueError: If the trace did not begin with the old text.

    """
    if trace.base() != base:
        raise ValueError("the trace begins with another text than the caller's base")
    now = trace.text()
    places = _Places(trace)
    splices: list[Splice] = []
    for start_chars, end_chars, insert in ops:
        if insert:
            splices.append(_lines_at(now, places.place_of(start_chars), insert))
        splices += [
            Splice(first_chars, last_chars, "")
            for first_chars, last_chars in places.live_lines(
                now, start_chars, end_chars
            )
        ]
    return joined(splices)


@dataclass(frozen=True, slots=True)
class _Piece:
    """A run of the old text: where it was, and where it is now or was last."""

    base_chars: int
    now_chars: int
    size_chars: int
    is_live: bool


class _Places:
    """Finds places of the old text in the text as it is now."""

    def __init__(self, trace: Trace) -> None:
        self._pieces: list[_Piece] = []
        base_chars = now_chars = 0
        for run in trace.runs:
            size_chars = len(run.text)
            if run.inserted_by is None:
                piece = _Piece(base_chars, now_chars, size_chars, run.is_live)
                self._pieces.append(piece)
                base_chars += size_chars
            now_chars += size_chars if run.is_live else 0
        self._base_chars = base_chars

    def place_of(self, base_chars: int) -> int:
        """Return the place directly behind the character that stood in front."""
        index = self._index_before(base_chars)
        if index < 0:
            return 0
        piece = self._pieces[index]
        if not piece.is_live:
            return piece.now_chars
        behind_chars = min(base_chars - piece.base_chars, piece.size_chars)
        return piece.now_chars + behind_chars

    def live_lines(
        self, now: str, start_chars: int, end_chars: int
    ) -> Iterator[tuple[int, int]]:
        """Yield where lines of this part of the old text are that still live whole."""
        end_now_chars = self.place_of(end_chars)
        for low_chars, high_chars in self._live_ranges(start_chars, end_chars):
            if end_chars > self._base_chars and high_chars == end_now_chars:
                # The newline that an unterminated last line got since belongs to it,
                # whoever wrote it.
                high_chars += now.startswith("\n", high_chars)
            first_chars = _line_start_from(now, low_chars)
            last_chars = _line_start_to(now, high_chars)
            if first_chars < last_chars:
                yield first_chars, last_chars

    def _live_ranges(self, start_chars: int, end_chars: int) -> list[tuple[int, int]]:
        """Return where this part of the old text lives, as far as it is together."""
        ranges: list[tuple[int, int]] = []
        for piece in self._pieces[max(self._index_before(start_chars), 0) :]:
            low_chars = max(start_chars - piece.base_chars, 0)
            high_chars = min(end_chars - piece.base_chars, piece.size_chars)
            if high_chars <= 0:
                break
            if not piece.is_live or low_chars >= high_chars:
                continue
            low_chars += piece.now_chars
            high_chars += piece.now_chars
            if ranges and ranges[-1][1] == low_chars:
                low_chars = ranges.pop()[0]
            ranges.append((low_chars, high_chars))
        return ranges

    def _index_before(self, base_chars: int) -> int:
        """Return which piece holds the character in front; -1 at the very start."""
        return (
            bisect_right(self._pieces, base_chars - 1, key=lambda p: p.base_chars) - 1
        )


def _lines_at(now: str, at_chars: int, insert: str) -> Splice:
    """Insert lines there, or at the end of the line that others have made there."""
    at_chars = _line_start_from(now, at_chars)
    if not is_line_start(now, at_chars):
        insert = f"\n{insert}"
    return Splice(at_chars, at_chars, insert)


def _line_start_from(now: str, at_chars: int) -> int:
    """Return the first place from here on where a line begins; else the end."""
    if is_line_start(now, at_chars):
        return at_chars
    return now.find("\n", at_chars) + 1 or len(now)


def _line_start_to(now: str, at_chars: int) -> int:
    """Return the last place up to here where a line begins, or the end of the text."""
    if at_chars == len(now):
        return at_chars
    return now.rfind("\n", 0, at_chars) + 1
