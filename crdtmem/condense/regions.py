"""Regions: a slot's file as parts that a condense pass rewrites, takes out or leaves.

They are a partition: put together they are the file, whatever it holds. A file that
has no headings, a giant last section or a fence that never ends is read as well as one
that a pass has laid out.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Literal, NamedTuple

from crdtmem.doc.text_form import lines_of, units_of
from crdtmem.limits import CONDENSE_HEADER_UNITS

__all__ = [
    "FenceScan",
    "Plan",
    "Region",
    "is_blank",
    "parse",
    "plan_pass",
    "scan_fences",
]

Kind = Literal["header", "pinned", "condensed", "divider", "unit"]

# A header may take so much of a slot's limit, in percent.
_HEADER_PCT = 25
_HEADING = re.compile(r"##[ \t]")
_TITLE_LINE = re.compile(r"#[ \t]")
_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})([^\n]*)")
_PINNED = {"Pinned facts", "Pinned facts (never condensed)"}
_PINNED_BEGINNING = "\N{PUSHPIN} Durable facts"
_CONDENSED = {"Condensed history", "\N{COMPRESSION} Condensed history"}
_DIVIDER = "Recent"
# Some keyboards put it behind an emoji; it is not seen.
_EMOJI_STYLE = "\N{VARIATION SELECTOR-16}"


@dataclass(frozen=True, slots=True)
class Region:
    """A part of a file, in whole lines.

    Attributes:
        kind: What a pass does to it: only a ``unit`` is ever taken out, and a
            ``condensed`` one rewritten.
        heading: The heading line without its end; empty for text under none. Pieces of
            a section that was cut have the heading of their section.
        start_chars: Where it begins in the file.
        end_chars: Where it ends.

    """

    kind: Kind
    heading: str
    start_chars: int
    end_chars: int

    def text_in(self, file: str) -> str:
        """Return the part itself."""
        return file[self.start_chars : self.end_chars]

    def body_start_chars(self, file: str) -> int:
        """Return where the text under its heading line begins."""
        if not self.begins_with_heading(file):
            return self.start_chars
        return file.find("\n", self.start_chars, self.end_chars) + 1 or self.end_chars

    def begins_with_heading(self, file: str) -> bool:
        """Tell whether its heading line is in it; a later piece has it in front."""
        return self.heading != "" and file.startswith(self.heading, self.start_chars)


@dataclass(frozen=True, slots=True)
class Plan:
    """What a pass does to a file.

    Attributes:
        regions: All of the file.
        header: What stands in front, if anything.
        pinned: What is never touched, except that facts are added to the first.
        condensed: What was condensed before. The first keeps its heading line and gets
            a new body. The others (two passes that were merged) go whole, and are not
            among ``evicted``: they are old condensed text, as the body of the first is.
        divider: The heading in front of the newest text, if there is one.
        evicted: Units that go. Where a section is cut, its heading line is a unit of
            its own that goes only with the last piece, so they are no single range.
        kept: Units that stay, in the order of the file; the newest one at least.
        sections: How many sections with a heading are units or cut into such.

    """

    regions: tuple[Region, ...]
    header: Region | None
    pinned: tuple[Region, ...]
    condensed: tuple[Region, ...]
    divider: Region | None
    evicted: tuple[Region, ...]
    kept: tuple[Region, ...]
    sections: int

    @property
    def is_idle(self) -> bool:
        """Whether there is nothing to evict, nor two condensed texts to make one."""
        return not self.evicted and len(self.condensed) < 2


class FenceScan(NamedTuple):
    """Where the fenced code of a text is.

    Attributes:
        spans: Lines of each fence, as ``(first, behind_last)``.
        first_open: The first line that would open a fence that nothing closes.

    """

    spans: tuple[tuple[int, int], ...]
    first_open: int | None


def plan_pass(
    file: str, *, size_limit: int, keep_sections: int, keep_pct: int, unit_max: int
) -> Plan:
    """Decide what a pass takes out of a file.

    Args:
        file: The slot's text.
        size_limit: The slot's limit, in units.
        keep_sections: Newest units that stay, at most; always one.
        keep_pct: Most of the limit that they may take, in percent; the newest one may
            take more.
        unit_max: Longest section that is one unit, in units.

    """
    regions = parse(file, size_limit=size_limit, unit_max=unit_max)
    by_kind: dict[Kind, list[Region]] = {}
    for region in regions:
        by_kind.setdefault(region.kind, []).append(region)
    units = by_kind.get("unit", [])
    kept = _kept(file, units, keep_sections, size_limit * keep_pct // 100)
    return Plan(
        regions=regions,
        header=next(iter(by_kind.get("header", [])), None),
        pinned=tuple(by_kind.get("pinned", [])),
        condensed=tuple(by_kind.get("condensed", [])),
        divider=next(iter(by_kind.get("divider", [])), None),
        evicted=tuple(u for at, u in enumerate(units) if at not in kept),
        kept=tuple(u for at, u in enumerate(units) if at in kept),
        sections=sum(unit.begins_with_heading(file) for unit in units),
    )


def parse(file: str, *, size_limit: int, unit_max: int) -> tuple[Region, ...]:
    """Split a file into regions. Costs time by its length; no text is refused.

    Args:
        file: The slot's text.
        size_limit: The slot's limit, in units: a long beginning is no header.
        unit_max: Longest section that is one unit, in units.

    Returns:
        The regions, in order; each begins where the one before ends.

    """
    return tuple(_Parser(file, size_limit, unit_max).regions())


def scan_fences(lines: Sequence[str]) -> FenceScan:
    """Find the fenced code. Costs time by the number of lines.

    A fence that nothing closes is none: one stray line of backticks must not swallow
    all headings that follow.
    """
    marks = [mark for at, line in enumerate(lines) if (mark := _mark_of(at, line))]
    # The longest line behind each mark that closes a fence of its character.
    reach = [0] * len(marks)
    longest = {"`": 0, "~": 0}
    for place in reversed(range(len(marks))):
        mark = marks[place]
        reach[place] = longest[mark.char]
        if mark.is_closing:
            longest[mark.char] = max(longest[mark.char], mark.size)
    spans: list[tuple[int, int]] = []
    opening: _Mark | None = None
    first_open: int | None = None
    for mark, closing_size in zip(marks, reach, strict=True):
        if opening is not None:
            if mark.closes(opening):
                spans.append((opening.line, mark.line + 1))
                opening = None
        elif mark.is_opening and mark.size <= closing_size:
            opening = mark
        elif mark.is_opening and first_open is None:
            first_open = mark.line
    return FenceScan(tuple(spans), first_open)


def is_blank(line: str) -> bool:
    """Tell whether a line shows nothing."""
    return not line or line.isspace()


class _Mark(NamedTuple):
    """A line that may open or close a fence."""

    line: int
    char: str
    size: int
    is_opening: bool
    is_closing: bool

    def closes(self, opening: "_Mark") -> bool:
        return (
            self.is_closing and self.char == opening.char and self.size >= opening.size
        )


def _mark_of(at: int, line: str) -> _Mark | None:
    found = _FENCE.match(line)
    if found is None:
        return None
    mark, info = found.groups()
    char = mark[0]
    # Backticks behind it make it code within a paragraph (CommonMark 4.5).
    is_opening = char == "~" or "`" not in info
    return _Mark(at, char, len(mark), is_opening, is_blank(info))


class _Parser:
    """Reads a file by its lines; ranges are line numbers until a region is made."""

    def __init__(self, file: str, size_limit: int, unit_max: int) -> None:
        self._lines = lines_of(file)
        self._fences = dict(scan_fences(self._lines).spans)
        self._chars = [0, *accumulate(len(line) for line in self._lines)]
        self._units = [0, *accumulate(units_of(line) for line in self._lines)]
        self._header_max = min(CONDENSE_HEADER_UNITS, size_limit * _HEADER_PCT // 100)
        self._unit_max = unit_max
        self._has_divider = False

    def regions(self) -> Iterator[Region]:
        headings = [
            first
            for first, _ in self._blocks(0, len(self._lines))
            if _HEADING.match(self._lines[first])
        ]
        bounds = [*headings, len(self._lines)]
        yield from self._front(bounds[0], has_headings=bool(headings))
        for first, last in pairwise(bounds):
            yield from self._section(first, last)

    def _front(self, last: int, *, has_headings: bool) -> Iterator[Region]:
        is_header = has_headings and self._size(0, last) <= self._header_max
        header_last = last if is_header else self._leading(last)
        if header_last:
            yield self._region("header", "", 0, header_last)
        yield from self._loose(header_last, last)

    def _leading(self, last: int) -> int:
        """Return where the header ends if not all in front of a heading is one."""
        ends = [self._behind_blanks(0, last)]
        if ends[-1] < last and _TITLE_LINE.match(self._lines[ends[-1]]):
            ends.append(self._behind_blanks(ends[-1] + 1, last))
        if ends[-1] < last and self._lines[ends[-1]].startswith(("_", ">")):
            ends.append(next(self._paragraphs(ends[-1], last))[1])
        return max(end for end in [0, *ends] if self._size(0, end) <= self._header_max)

    def _section(self, first: int, last: int) -> Iterator[Region]:
        heading = self._lines[first].removesuffix("\n").removesuffix("\r")
        kind = self._kind_of(heading)
        if kind == "divider":
            self._has_divider = True
            body = self._behind_blanks(first + 1, last)
            yield self._region("divider", heading, first, body)
            yield from self._loose(body, last)
        elif kind == "unit" and self._size(first, last) > self._unit_max:
            body = self._behind_blanks(first + 1, last)
            yield self._region("unit", heading, first, body)
            yield from self._pieces(heading, body, last)
        else:
            yield self._region(kind, heading, first, last)

    def _kind_of(self, heading: str) -> Kind:
        title = heading[3:].strip().replace(_EMOJI_STYLE, "")
        if title in _PINNED or title.startswith(_PINNED_BEGINNING):
            return "pinned"
        if title in _CONDENSED:
            return "condensed"
        if title == _DIVIDER and not self._has_divider:
            return "divider"
        return "unit"

    def _loose(self, first: int, last: int) -> Iterator[Region]:
        for start, end in self._paragraphs(first, last):
            yield from self._pieces("", start, end)

    def _pieces(self, heading: str, first: int, last: int) -> Iterator[Region]:
        """Cut at blank lines, else at line ends, into as few pieces as fit."""
        start = first
        for low, high in self._atoms(first, last):
            if low > start and self._size(start, high) > self._unit_max:
                yield self._region("unit", heading, start, low)
                start = low
        if start < last:
            yield self._region("unit", heading, start, last)

    def _atoms(self, first: int, last: int) -> Iterator[tuple[int, int]]:
        """Yield paragraphs, and the lines and fences of those that are too long."""
        for start, end in self._paragraphs(first, last):
            if self._size(start, end) > self._unit_max:
                yield from self._blocks(start, end)
            else:
                yield start, end

    def _paragraphs(self, first: int, last: int) -> Iterator[tuple[int, int]]:
        """Yield lines up to the next text behind blank lines outside fences."""
        start = first
        was_blank = False
        for low, high in self._blocks(first, last):
            blank = is_blank(self._lines[low])
            if was_blank and not blank:
                yield start, low
                start = low
            was_blank = blank
            end = high
        if start < last:
            yield start, end

    def _blocks(self, first: int, last: int) -> Iterator[tuple[int, int]]:
        """Yield each line, or a whole fence."""
        at = first
        while at < last:
            behind = self._fences.get(at, at + 1)
            yield at, behind
            at = behind

    def _behind_blanks(self, first: int, last: int) -> int:
        while first < last and is_blank(self._lines[first]):
            first += 1
        return first

    def _size(self, first: int, last: int) -> int:
        return self._units[last] - self._units[first]

    def _region(self, kind: Kind, heading: str, first: int, last: int) -> Region:
        return Region(kind, heading, self._chars[first], self._chars[last])


def _kept(
    file: str, units: Sequence[Region], keep_sections: int, budget: int
) -> set[int]:
    """Return which units stay: the newest, and the headings of those that are cut."""
    kept: set[int] = set()
    count = size = 0
    for at in reversed(range(len(units))):
        unit = units[at]
        if _is_cut_at(file, units, at):
            # All its pieces are kept, or the walk would have ended within them.
            kept.add(at)
            continue
        count += 1
        size += units_of(unit.text_in(file))
        if kept and (count > keep_sections or size > budget):
            break
        kept.add(at)
    first = min(kept, default=0)
    while kept and units[first].heading and not units[first].begins_with_heading(file):
        first -= 1
    return kept | {first} if kept else kept


def _is_cut_at(file: str, units: Sequence[Region], at: int) -> bool:
    """Tell whether this is the heading line of a section whose pieces follow."""
    behind = units[at + 1] if at + 1 < len(units) else None
    return (
        behind is not None
        and behind.heading != ""
        and not behind.begins_with_heading(file)
        and units[at].begins_with_heading(file)
    )
