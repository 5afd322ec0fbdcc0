"""Pages of a text: what is shown of a slot that is longer than a reply may be.

A page ends at the end of a line where one is near, and in the middle of a longer line,
never in half a character. Pages that follow each other are the text again, byte for
byte: a page that is cut keeps the newline that it ends with.
"""

import re
from typing import NamedTuple

from crdtmem.doc.text_form import cut_units, units_of, view_lines
from crdtmem.errors import InvalidArgumentError

__all__ = ["Page", "Place", "Span", "page_of", "read_span", "tail_span"]

_SPAN = re.compile(r"([0-9]{1,9})(?::([0-9]{1,9}))?(-([0-9]{1,9})?)?")


class Place(NamedTuple):
    """A place in a text: a line, from 1, and units into it."""

    line: int = 1
    unit: int = 0

    def __str__(self) -> str:
        return f"{self.line}:{self.unit}-" if self.unit else f"{self.line}-"


class Span(NamedTuple):
    """From a place to the end of a line, or of the text."""

    start: Place = Place()
    last: int | None = None


class Page(NamedTuple):
    """A piece of a text.

    Attributes:
        text: The piece.
        start: Where it begins.
        end_line: The last line of which it has something.
        total: Lines of the whole text.
        rest: Where to go on, where it was cut; None where it has all that was asked.
        is_end: Whether it goes to the end of the text.

    """

    text: str
    start: Place
    end_line: int
    total: int
    rest: Place | None
    is_end: bool


def read_span(text: str) -> Span:
    """Read ``10-40``, ``10-``, ``10``, or a place within a line: ``10:2000-``.

    Raises:
        InvalidArgumentError: If it is none of them.

    """
    match = _SPAN.fullmatch(text)
    if match is not None:
        first, unit, dash, last = match.groups()
        start = Place(int(first), int(unit or 0))
        end = int(last) if last else None if dash else start.line
        if start.line >= 1 and (end is None or end >= start.line):
            return Span(start, end)
    message = f"lines must be a range such as 10-40 or 41-, not {text!a:.40}"
    raise InvalidArgumentError("lines", message)


def tail_span(content: str, count: int) -> Span:
    """Return the span of the last lines of a text."""
    total = len(view_lines(content))
    return Span(Place(max(1, total - count + 1)))


def page_of(content: str, span: Span, limit_units: int) -> Page:
    """Return what a span has of a text, cut to a length.

    Args:
        content: The view of a slot.
        span: What is wanted of it.
        limit_units: Longest page.

    Raises:
        InvalidArgumentError: If the span begins beyond the end of its line.

    """
    lines = view_lines(content)
    start, total = span.start, len(lines)
    last = total if span.last is None else min(span.last, total)
    piece = _from_unit("\n".join(lines[start.line - 1 : last]), start)
    kept = cut_units(piece, limit_units)
    if len(kept) == len(piece):
        return Page(piece, start, last, total, None, is_end=last == total)
    at_chars = kept.rfind("\n") + 1
    kept = kept[:at_chars] if at_chars else kept
    newlines = kept.count("\n")
    line = start.line + newlines
    unit = 0 if newlines else start.unit + units_of(kept)
    end_line = line - 1 if newlines else line
    return Page(kept, start, end_line, total, Place(line, unit), is_end=False)


def _from_unit(piece: str, start: Place) -> str:
    """Return a piece without so many units of its first line."""
    line, _, _ = piece.partition("\n")
    before = cut_units(line, start.unit)
    if units_of(before) != start.unit:
        message = (
            f"line {start.line} has {units_of(line)} characters; it cannot be read"
            f" from {start.unit}"
        )
        raise InvalidArgumentError("lines", message)
    return piece[len(before) :]
