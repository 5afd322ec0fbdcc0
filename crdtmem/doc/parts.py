"""Parts of a slot: what a search finds, instead of the whole slot."""

from collections.abc import Iterator
from typing import NamedTuple

from crdtmem.doc.text_form import lines_of, units_of
from crdtmem.limits import SEARCH_PART_LINES, SEARCH_PART_UNITS

__all__ = ["Part", "parts_of"]


class Part(NamedTuple):
    """Whole lines of a file; the first one's number is from 1."""

    line: int
    text: str


def parts_of(file: str) -> Iterator[Part]:
    """Yield the parts of a file in order; joined they are the file.

    A part ends where it has SEARCH_PART_UNITS or SEARCH_PART_LINES, or before a line
    that begins with ``#``.
    """
    held: list[str] = []
    held_units = 0
    number = 1
    for line in lines_of(file):
        is_full = held_units >= SEARCH_PART_UNITS or len(held) >= SEARCH_PART_LINES
        if held and (is_full or line.startswith("#")):
            yield Part(number, "".join(held))
            number += len(held)
            held, held_units = [], 0
        held.append(line)
        held_units += units_of(line)
    if held:
        yield Part(number, "".join(held))
