r"""How text of the memory is shown: as it is, and what cannot be seen by its number.

Invisible text is how orders are smuggled to those who read along, so nothing invisible
stays invisible. Nothing is decoded, linked or rendered. Pure.
"""

import re
import unicodedata
from collections.abc import Iterator, Sequence
from typing import Final

from crdtmem.doc.text_form import cut_units, units_of
from crdtmem.serve.markup import Child, Markup, h

__all__ = ["inline", "marked", "plain", "shown", "shown_line"]

_PLANES: Final = "".join(
    f"{chr(n << 16 | 0xFFFE)}{chr(n << 16 | 0xFFFF)}" for n in range(17)
)
_UNSEEN: Final = (
    "\x00-\x08\x0b-\x1f\x7f-\x9f"  # controls, but for tab and line feed
    "\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    "\U000e0000-\U000e007f"  # tags
    f"\ufdd0-\ufdef{_PLANES}"  # noncharacters
)
_HIDDEN: Final = re.compile(f"[{_UNSEEN}]")
_HIDDEN_INLINE: Final = re.compile(f"[\t\n{_UNSEEN}]")
_JOINER: Final = "\u200d"
_JOINED: Final = frozenset({"So", "Sk", "Mn", "Mc", "Me"})


def shown(text: str) -> list[Child]:
    r"""Return a text for an element, its hidden characters as ``\u{202E}``."""
    return list(_pieces(text, _HIDDEN))


def inline(text: str) -> list[Child]:
    """Return a name for an element: a label, a lane, a reason; on one line."""
    return list(_pieces(text, _HIDDEN_INLINE))


def plain(text: str) -> str:
    """Return a name for a place that takes no elements: a title, an attribute."""
    return _HIDDEN_INLINE.sub(_number_of, text)


def shown_line(text: str, limit_units: int | None = None) -> tuple[list[Child], bool]:
    r"""Return a line for an element, and whether it was cut.

    A "\r" at its end is shown as ``␍``: in the file it is a part of the line's end.
    """
    has_return = text.endswith("\r")
    body = text[:-1] if has_return else text
    is_cut = limit_units is not None and units_of(body) > limit_units
    if is_cut and limit_units is not None:
        return shown(cut_units(body, limit_units)), True
    end = [h("span", {"class": "esc"}, "␍")] if has_return else []
    return [*shown(body), *end], False


def marked(text: str, spans: Sequence[tuple[int, int]]) -> list[Child]:
    """Return a text with some spans of it, in characters, highlighted."""
    children: list[Child] = []
    at = 0
    for start, end in spans:
        if at <= start < end:
            children += shown(text[at:start])
            children.append(h("mark", None, shown(text[start:end])))
            at = end
    return [*children, *shown(text[at:])]


def _pieces(text: str, hidden: re.Pattern[str]) -> Iterator[str | Markup]:
    at = 0
    for match in hidden.finditer(text):
        if _number_of(match) == _JOINER:
            continue
        if match.start() > at:
            yield text[at : match.start()]
        yield h("span", {"class": "esc"}, _number_of(match))
        at = match.end()
    if at < len(text):
        yield text[at:]


def _number_of(match: re.Match[str]) -> str:
    """Return what is shown for a hidden character."""
    char, start = match[0], match.start()
    # A joiner makes one picture of several: a family, a flag.
    before = match.string[start - 1] if start else "a"
    if char == _JOINER and unicodedata.category(before) in _JOINED:
        return char
    return f"\\u{{{ord(char):X}}}"
