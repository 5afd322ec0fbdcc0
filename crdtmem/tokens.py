"""The words of a text, as search sees them: identifiers in parts, and runs in pairs.

SQLite's own tokenizers find neither ``memory`` in ``MemorySetItem`` nor a word inside
a run of Chinese, and change with its version; so the tokens are made here, and a text
and a query go through the same code.

A text falls into *pieces*: words, runs of characters that are written without blanks
between words, and symbols. A word gives its parts, a run gives each character with its
successor, a symbol gives itself.
"""

import re
import unicodedata
from collections.abc import Iterator
from functools import lru_cache
from itertools import groupby
from typing import Literal, NamedTuple

from crdtmem.limits import SEARCH_PIECE_CHARS, SEARCH_TOKEN_CHARS

__all__ = ["Piece", "PieceKind", "TextTokens", "pieces", "tokens", "word_parts"]

PieceKind = Literal["", "word", "run", "symbol"]

# Scripts that put no blanks between words.
_RUN_ON = (
    (0x0E00, 0x0EFF),  # Thai, Lao
    (0x1000, 0x109F),  # Myanmar
    (0x1100, 0x11FF),  # Hangul Jamo
    (0x1780, 0x17FF),  # Khmer
    (0x2E80, 0x2FDF),  # radicals
    (0x3005, 0x3007),
    (0x3021, 0x3029),
    (0x3031, 0x3035),
    (0x3040, 0x30FF),  # Hiragana, Katakana
    (0x3105, 0x318F),  # Bopomofo, Hangul
    (0x31A0, 0x31BF),
    (0x31F0, 0x31FF),
    (0x3400, 0x4DBF),  # ideographs
    (0x4E00, 0x9FFF),
    (0xA960, 0xA97F),
    (0xAC00, 0xD7FF),  # Hangul syllables
    (0xF900, 0xFAFF),
    (0x20000, 0x3FFFF),
)
# Characters whose kind is remembered: a text uses some thousands of them at most.
_KINDS_KEPT = 16_384


class Piece(NamedTuple):
    """A stretch of a text that gives tokens of its own.

    Attributes:
        kind: ``word``, ``run`` or ``symbol``.
        text: As it stands in the text.
        start_chars: Where it begins there.

    """

    kind: PieceKind
    text: str
    start_chars: int


class TextTokens(NamedTuple):
    """The tokens of a text.

    Attributes:
        w: Words, in order.
        x: Identifiers of several parts, joined, in order.

    """

    w: tuple[str, ...]
    x: tuple[str, ...]


def tokens(text: str) -> TextTokens:
    """Return the tokens of a text: its words in order, and its joined identifiers."""
    words: list[str] = []
    joined: list[str] = []
    for piece in pieces(text):
        if piece.kind == "word":
            parts = word_parts(piece.text)
            words += [part[:SEARCH_TOKEN_CHARS] for part in parts]
            if len(parts) > 1:
                joined.append("".join(parts)[:SEARCH_TOKEN_CHARS])
        elif piece.kind == "run":
            run = piece.text
            words += [run[i : i + 2] for i in range(len(run))]
        else:
            words.append(piece.text)
    return TextTokens(tuple(words), tuple(joined))


def pieces(text: str) -> Iterator[Piece]:
    """Yield the pieces of a text, in order."""
    if text.isascii():
        for found in re.finditer("[0-9A-Za-z_]+", text):
            yield Piece("word", found[0], found.start())
        return
    start = 0
    for kind, characters in groupby(text, _kind_of):
        piece = "".join(characters)
        if kind == "symbol":
            for i, symbol in enumerate(piece):
                yield Piece(kind, symbol, start + i)
        elif kind:
            yield Piece(kind, piece, start)
        start += len(piece)


def word_parts(word: str) -> list[str]:
    """Return the parts of a piece that is a word, folded, but not cut to a token."""
    if len(word) > SEARCH_PIECE_CHARS:
        return [part for part in [_folded(word[:SEARCH_TOKEN_CHARS])] if part]
    parts: list[str] = []
    for segment in word.split("_"):
        if segment.isascii():
            found = re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+", segment)
            parts += [part.lower() for part in found]
        else:
            parts.append(_folded(segment))
    return [part for part in parts if part]


def _folded(text: str) -> str:
    """Return a word without what spellings differ in: case, accents, ligatures."""
    apart = unicodedata.normalize("NFKD", text.casefold())
    bare = "".join(char for char in apart if unicodedata.category(char)[0] != "M")
    return "".join(char for char in bare.casefold() if char.isalnum())


@lru_cache(_KINDS_KEPT)
def _kind_of(char: str) -> PieceKind:
    category = unicodedata.category(char)
    if char.isalnum() or category[0] == "M":
        code = ord(char)
        is_run_on = any(first <= code <= last for first, last in _RUN_ON)
        return "run" if is_run_on else "word"
    if char == "_":
        return "word"
    return "symbol" if category == "So" else ""
