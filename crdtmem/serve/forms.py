r"""What a browser's form does to a text, and how that is undone.

A text field shows every line end as "\n" and NUL as U+FFFD, and sends CRLF. Whoever
saves an untouched field must change nothing, and whoever changes a line must change no
other: so submitted lines that are lines of the base *as the field shows it* take the
exact characters of the base. Pure.
"""

import re
from collections.abc import Sequence
from typing import Final, NamedTuple

from crdtmem.errors import InvalidArgumentError
from crdtmem.limits import UINT_MAX
from crdtmem.serve.markup import Attributes, Markup, h
from crdtmem.textdiff import diff_lines, is_all_crlf

__all__ = [
    "area",
    "exact_text",
    "field_value",
    "hidden",
    "int_field",
    "sent_text",
]

_LINE: Final = re.compile(r"([^\r\n]*)(\r\n|\r|\n)")


class _Line(NamedTuple):
    """A line of the base: as the field shows it, exactly, and how it ends."""

    shown: str
    body: str
    end: str | None


def field_value(text: str) -> str:
    """Return a text as a text field shows it."""
    return text.replace("\r\n", "\n").replace("\r", "\n").replace("\0", "\ufffd")


def sent_text(raw: str) -> str:
    """Return what was typed into a text field, without a base."""
    return raw.replace("\r\n", "\n")


def exact_text(raw: str, base: str) -> str:
    """Return what was typed into a field that showed a base.

    Args:
        raw: As the browser sent it.
        base: The text that the field was filled with.

    """
    lines = _lines_of(base)
    ends = [0]
    for line in lines:
        ends.append(ends[-1] + len(line.shown))
    index_at = {chars: index for index, chars in enumerate(ends)}
    # A line end behind the last line: it is no other line for that.
    before, after = "".join(line.shown for line in lines), f"{sent_text(raw)}\n"
    made: list[tuple[str, str | None]] = []
    kept = 0
    for start, end, insert in diff_lines(before, after):
        made += [(line.body, line.end) for line in lines[kept : index_at[start]]]
        made += [(line, None) for line in insert.split("\n")[:-1]]
        kept = index_at[end]
    made += [(line.body, line.end) for line in lines[kept:]]
    return _joined(made, "\r\n" if is_all_crlf(base) else "\n")


def area(name: str, text: str, attributes: Attributes) -> Markup:
    r"""Return a text field; browsers drop a first "\n", so there is one more."""
    return h("textarea", {"name": name, "id": name, **attributes}, f"\n{text}")


def hidden(**fields: str | int) -> list[Markup]:
    """Return fields that are sent along."""
    return [
        h("input", {"type": "hidden", "name": name, "value": value})
        for name, value in fields.items()
    ]


def int_field(value: str, name: str, least: int = 0) -> int:
    """Return a number that a form or an address holds.

    Raises:
        InvalidArgumentError: If it is none, or out of its bounds.

    """
    if re.fullmatch(r"[0-9]{1,16}", value) and least <= int(value) <= UINT_MAX:
        return int(value)
    raise InvalidArgumentError(name, f"{name} must be a number, not {value!a:.40}")


def _lines_of(base: str) -> list[_Line]:
    lines, at = [], 0
    for match in _LINE.finditer(base):
        lines.append(_Line(f"{field_value(match[1])}\n", match[1], match[2]))
        at = match.end()
    rest = base[at:]
    return [*lines, _Line(f"{field_value(rest)}\n", rest, None)]


def _joined(lines: Sequence[tuple[str, str | None]], default_end: str) -> str:
    *whole, (last, _) = lines
    pieces: list[str] = []
    for body, end in whole:
        piece = body + (default_end if end is None else end)
        # A return whose next line is empty now would be one line end with the next.
        if pieces and pieces[-1].endswith("\r") and piece.startswith("\n"):
            pieces[-1] = f"{pieces[-1][:-1]}\n"
        pieces.append(piece)
    return "".join(pieces) + last
