"""What the demo's writers write, and whether all of it is there afterwards.

Pure: acknowledgements and a text in, a score out. What is expected follows from the
acknowledgements alone, so the store cannot agree with itself.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

__all__ = [
    "FILLER_LINES",
    "SLOT",
    "Ack",
    "Score",
    "appended_line",
    "filler_line",
    "score",
    "shortened",
]

SLOT = "shared"
FILLER_LINES = 100
_FILLER_TAIL = ": " + " ".join(["words that nobody needs any more"] * 3)
_APPENDED_TAIL = " was written by hand and ends here."


@dataclass(frozen=True, slots=True)
class Ack:
    """A write that returned.

    Attributes:
        number: Which of its lane's writes, from 1.
        rev: The rev that it made.
        history_id: Names the text before it.
        is_merged: Whether others had written since its lane read.

    """

    number: int
    rev: int
    history_id: str
    is_merged: bool


@dataclass(frozen=True, slots=True)
class Score:
    """What became of the acknowledged lines.

    Attributes:
        expected: How many there should be.
        kept: How many are there.
        lost: How many are not.
        doubled: How many are there more than once.
        torn: How many lines are there that nobody wrote.

    """

    expected: int
    kept: int
    lost: int
    doubled: int
    torn: int

    @property
    def is_clean(self) -> bool:
        """Return whether nothing went wrong."""
        return not (self.lost or self.doubled or self.torn)


def appended_line(lane: str, number: int) -> str:
    """Return the line that a lane appends, its end recognisable."""
    return f"{lane} {number:04d}{_APPENDED_TAIL}"


def filler_line(number: int, *, is_short: bool = False) -> str:
    """Return a line for the rewriter to shorten, or what it makes of it."""
    return f"filler {number:03d}{'' if is_short else _FILLER_TAIL}"


def shortened(text: str, count: int) -> str:
    """Return a text with its first so many long filler lines made short."""
    lines = text.split("\n")
    long = [i for i, line in enumerate(lines) if line.endswith(_FILLER_TAIL)]
    for index in long[:count]:
        lines[index] = lines[index].removesuffix(_FILLER_TAIL)
    return "\n".join(lines)


def score(
    text: str, acknowledged: Mapping[str, Iterable[int]], in_doubt: Iterable[str] = ()
) -> Score:
    """Count what a text holds of the lines that lanes had acknowledged.

    Args:
        text: The slot, after all.
        acknowledged: The numbers of the lines, by lane.
        in_doubt: Lines whose acknowledgement was cut off: there or not, but whole.

    """
    found = Counter(text.split("\n"))
    wanted = {
        appended_line(lane, number)
        for lane, numbers in acknowledged.items()
        for number in numbers
    }
    filler = {
        filler_line(number, is_short=is_short)
        for number in range(1, FILLER_LINES + 1)
        for is_short in (False, True)
    }
    known = wanted | filler | set(in_doubt)
    return Score(
        expected=len(wanted),
        kept=sum(found[line] > 0 for line in wanted),
        lost=sum(found[line] == 0 for line in wanted),
        doubled=sum(found[line] > 1 for line in known),
        torn=sum(count for line, count in found.items() if line not in known),
    )
