"""Snippets: the piece of a text that shows why it was found."""

import re
import unicodedata
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from crdtmem.doc.text_form import cut_units, units_of
from crdtmem.limits import SEARCH_LEAD_UNITS, SEARCH_PIECE_CHARS, SEARCH_TOKEN_CHARS
from crdtmem.search.query import Term
from crdtmem.tokens import Piece, pieces, word_parts

__all__ = ["Placed", "Snippet", "is_boundary", "placed_tokens", "places_of", "snippet"]

_ZERO_WIDTH_JOINERS = "\u200c\u200d"
_SKIN_TONES = range(0x1F3FB, 0x1F400)
_FLAG_LETTERS = range(0x1F1E6, 0x1F200)
_TAGS = range(0xE0020, 0xE0080)
_SEGMENT = re.compile("[^_]+")
_PART = re.compile("[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")


class Placed(NamedTuple):
    """A token and where it comes from, in characters of the text."""

    token: str
    start: int
    end: int
    is_of_run: bool = False


class Snippet(NamedTuple):
    """A piece of a text, with the places of its matches in it.

    Attributes:
        text: The piece.
        is_cut_before: Whether the text begins before it.
        is_cut_behind: Whether the text goes on.
        matches: First and behind the last character of each, from the left.

    """

    text: str
    is_cut_before: bool
    is_cut_behind: bool
    matches: tuple[tuple[int, int], ...]


def snippet(text: str, places: Sequence[tuple[int, int]], limit_units: int) -> Snippet:
    """Return the piece of a text around the most of its matches.

    It begins with a line or a word, if one begins not far before the first match.

    Args:
        text: The text.
        places: Of the matches, from the left, none over another.
        limit_units: How long it may be.

    """
    start, end = 0, len(text)
    if units_of(text) > limit_units:
        first, behind = _densest(text, places, limit_units) if places else (0, 0)
        start = _start_of(text, first, behind, limit_units)
        end = _end_of(text, start, limit_units)
        if places and end <= first:
            # One sequence of joined characters that is longer than the snippet.
            start, end = first, first + len(cut_units(text[first:], limit_units))
    inside = [(max(a, start), min(b, end)) for a, b in places]
    return Snippet(
        text[start:end],
        start > 0,
        end < len(text),
        tuple((a - start, b - start) for a, b in inside if a < b),
    )


def is_boundary(text: str, index: int) -> bool:
    """Tell whether a text may be cut there: not between what is one character to see.

    Marks, joined characters, skin tones and the letters of a flag stay together.
    """
    if not 0 < index < len(text):
        return True
    before, behind = text[index - 1], text[index]
    if before + behind == "\r\n" or before == "\u200d":
        return False
    code = ord(behind)
    if code in _FLAG_LETTERS:
        letters = 0
        while letters < index and ord(text[index - 1 - letters]) in _FLAG_LETTERS:
            letters += 1
        return letters % 2 == 0
    is_joined = behind in _ZERO_WIDTH_JOINERS or code in _SKIN_TONES or code in _TAGS
    return not is_joined and unicodedata.category(behind)[0] != "M"


def places_of(text: str, terms: Sequence[Term]) -> list[tuple[int, int]]:
    """Return where terms stand in a text, from the left; those that meet are one."""
    w, x = placed_tokens(text)
    found: list[tuple[int, int]] = []
    for term in terms:
        found += _places_in(w, term.words, is_prefix=term.is_prefix)
        if term.joined:
            found += _places_in(x, (term.joined,), is_prefix=term.is_prefix)
    merged: list[tuple[int, int]] = []
    for start, end in sorted(found):
        if merged and start < merged[-1][1]:
            merged[-1] = merged[-1][0], max(end, merged[-1][1])
        else:
            merged.append((start, end))
    return merged


def placed_tokens(text: str) -> tuple[list[Placed], list[Placed]]:
    """Return the tokens of a text, as ``tokens`` does, with their places."""
    w: list[Placed] = []
    x: list[Placed] = []
    for piece in pieces(text):
        start, end = piece.start_chars, piece.start_chars + len(piece.text)
        if piece.kind == "word":
            parts = [*_placed_parts(piece)]
            w += [
                part._replace(token=part.token[:SEARCH_TOKEN_CHARS]) for part in parts
            ]
            if len(parts) > 1:
                joined = "".join(part.token for part in parts)
                x.append(_cut(Placed(joined, start, end)))
        elif piece.kind == "run":
            w += [
                Placed(text[i : min(i + 2, end)], i, min(i + 2, end), is_of_run=True)
                for i in range(start, end)
            ]
        else:
            w.append(Placed(piece.text, start, end))
    return w, x


def _cut(placed: Placed) -> Placed:
    if len(placed.token) <= SEARCH_TOKEN_CHARS:
        return placed
    return placed._replace(token=placed.token[:SEARCH_TOKEN_CHARS])


def _placed_parts(piece: Piece) -> Iterator[Placed]:
    if len(piece.text) > SEARCH_PIECE_CHARS:
        end = piece.start_chars + SEARCH_TOKEN_CHARS
        for token in word_parts(piece.text):
            yield Placed(token, piece.start_chars, end)
        return
    for segment in _SEGMENT.finditer(piece.text):
        start = piece.start_chars + segment.start()
        if segment[0].isascii():
            for part in _PART.finditer(segment[0]):
                yield Placed(part[0].lower(), start + part.start(), start + part.end())
        else:
            for token in word_parts(segment[0]):
                yield Placed(token, start, start + len(segment[0]))


def _places_in(
    placed: Sequence[Placed], words: tuple[str, ...], *, is_prefix: bool
) -> Iterator[tuple[int, int]]:
    *first, last = words
    for i, found in enumerate(placed):
        is_last = found.token.startswith(last) if is_prefix else found.token == last
        start = i - len(first)
        if is_last and start >= 0 and [p.token for p in placed[start:i]] == first:
            # Of a pair only the character that was looked for.
            end = found.start + len(last) if found.is_of_run else found.end
            yield placed[start].start, end


def _densest(
    text: str, places: Sequence[tuple[int, int]], limit_units: int
) -> tuple[int, int]:
    """Return where the most matches that fit together begin and end."""
    best = places[0][0], min(places[0][1], places[0][0] + limit_units)
    most = behind = 1
    for first, (start, _) in enumerate(places):
        behind = max(behind, first + 1)
        while behind < len(places) and _fits(
            text, start, places[behind][1], limit_units
        ):
            behind += 1
        if behind - first > most:
            most = behind - first
            best = start, places[behind - 1][1]
    return best


def _fits(text: str, start: int, end: int, limit_units: int) -> bool:
    return end - start <= limit_units and units_of(text[start:end]) <= limit_units


def _start_of(text: str, first: int, behind: int, limit_units: int) -> int:
    """Return where a snippet begins that shows the text from first to behind."""
    start = first
    while not is_boundary(text, start):
        start -= 1
    used_units = units_of(text[start:behind])
    lead = _last_units(
        text[:start], max(0, min(SEARCH_LEAD_UNITS, limit_units - used_units))
    )
    lead_start = start - len(lead)
    line = lead.rfind("\n") + 1
    if line or not lead_start:
        return lead_start + line
    words = (
        lead_start + i for i in range(len(lead)) if text[lead_start + i - 1] == " "
    )
    return next((i for i in words if is_boundary(text, i)), start)


def _end_of(text: str, start: int, limit_units: int) -> int:
    end = start + len(cut_units(text[start:], limit_units))
    while end > start and not is_boundary(text, end):
        end -= 1
    return end


def _last_units(text: str, limit_units: int) -> str:
    """Return the longest end of a text that has at most that many units."""
    if not limit_units:
        return ""
    kept = text[-limit_units:].encode("utf-16-le")[-2 * limit_units :]
    # Only half a pair at the very beginning cannot be decoded.
    return kept.decode("utf-16-le", errors="ignore")
