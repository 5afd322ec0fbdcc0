r"""Putting one entry into a JSON file of somebody else's, and taking it out again.

Pure: text in, text out. A file is not written anew: what stands in it keeps its order,
its indentation and every byte. ``take`` is the exact inverse of ``put``, and needs no
memory of what was there before, for the white space tells:

* An entry behind others stands behind a comma, and goes together with it.
* An object or array that was there and empty gets the entry right behind its bracket:
  ``{}`` becomes ``{"crdtmem": …}``.
* One that was made for the entry has white space behind its bracket, and goes with it.

Whoever formats such a file anew may lose an empty object or array by that, and nothing
else. Comments are no JSON: files with them are refused.
"""

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from crdtmem.cli.setup_edits import TakenError, UneditableError

__all__ = ["JsonEntry"]

_DECODER = json.JSONDecoder()
_MARK = "\ufeff"
_INDENT = "  "


@dataclass(frozen=True, slots=True)
class JsonEntry:
    """One entry: a member of an object, or an element of an array.

    Attributes:
        path: Names of the objects around it, and its own; of an element: the array's.
        value: What it is.
        is_ours: Tells whether an entry that is there was made by this class.
        is_element: Whether it is appended to the array at the path.
        blank: What else a file has that is made for it.

    """

    path: tuple[str, ...]
    value: object
    is_ours: Callable[[object], bool]
    is_element: bool = False
    blank: tuple[tuple[str, object], ...] = ()

    @property
    def empty(self) -> str:
        """Return the text of a file in which nothing but our own is left."""
        return f"{json.dumps(dict(self.blank), indent=_INDENT)}\n"

    @property
    def snippet(self) -> str:
        """Return the whole entry, for somebody to put in by hand."""
        value: object = [self.value] if self.is_element else self.value
        for name in reversed(self.path):
            value = {name: value}
        return json.dumps(value, indent=_INDENT, ensure_ascii=False)

    def put(self, text: str | None) -> str:
        """Return a text with the entry in it; None stands for no file.

        Raises:
            UneditableError: If the text is no JSON object, or has something else where
                an object or array belongs.
            TakenError: If there is an entry of that name which is not ours.

        """
        if text is None:
            whole = {**dict(self.blank), **json.loads(self.snippet)}
            return f"{json.dumps(whole, indent=_INDENT, ensure_ascii=False)}\n"
        mark, body = _split_mark(text)
        spots = _spots(body, self.path, is_element=self.is_element)
        found = [e for e in self._innermost(body, spots) if self._is_it(e)]
        if not found:
            return mark + self._with_new(body, spots)
        if len(found) > 1 and not self.is_element:
            raise UneditableError(f"it has {self.path[-1]!r} twice")
        return mark + self._with_other(body, found[0])

    def take(self, text: str) -> str:
        """Return a text without the entry; what is not ours stays.

        Raises:
            UneditableError: If the text is no JSON object.

        """
        mark, body = _split_mark(text)
        while True:
            spots = _spots(body, self.path, is_element=self.is_element)
            ours = (
                number
                for number, entry in enumerate(self._innermost(body, spots))
                if self._is_it(entry) and self.is_ours(entry.value)
            )
            number = next(ours, None)
            if number is None:
                return mark + body
            body = _without(body, spots, number) or self.empty

    def _innermost(self, body: str, spots: list[int]) -> "list[_Entry]":
        """Return what is beside the entry, or would be: nothing, if that is missing."""
        is_there = len(spots) == len(self.path) + self.is_element
        return _entries(body, spots[-1]) if is_there else []

    def _is_it(self, entry: "_Entry") -> bool:
        if self.is_element:
            return self.is_ours(entry.value)
        return entry.name == self.path[-1]

    def _with_other(self, body: str, found: "_Entry") -> str:
        """Return the text with the entry in the place of an older one of ours."""
        value = self.value
        if isinstance(value, dict) and isinstance(found.value, dict):
            # What somebody added to ours, such as an environment, stays.
            value = {**found.value, **value}
        if found.value == value and self.is_ours(value):
            return body
        if not self.is_ours(found.value):
            raise TakenError(".".join(self.path))
        new = _written(value, _style_of_value(body, found))
        return f"{body[: found.value_start]}{new}{body[found.end :]}"

    def _with_new(self, body: str, spots: list[int]) -> str:
        """Return the text with the entry put into the innermost object there is."""
        missing = self.path[len(spots) - 1 :]
        start = spots[-1]
        entries = _entries(body, start)
        style = _style_of_entries(body, start, entries)
        new = _wrapped(missing, self.value, style, is_element=self.is_element)
        if not entries:
            return f"{body[: start + 1]}{new}{body[start + 1 :]}"
        end = entries[-1].end
        return f"{body[:end]},{style.gap}{new}{body[end:]}"


class _Entry(NamedTuple):
    """A member or an element: its name, its value, and where both are."""

    name: str | None
    start: int
    value_start: int
    end: int
    value: object


class _Style(NamedTuple):
    """How entries are written at a place.

    Attributes:
        gap: What stands between two of them, behind the comma.
        unit: What a level is indented by, None where all is on one line.

    """

    gap: str
    unit: str | None

    @property
    def newline(self) -> str:
        """Return the line end, with the indentation of an entry."""
        indent = self.gap.rpartition("\n")[2]
        return f"\r\n{indent}" if "\r\n" in self.gap else f"\n{indent}"


def _split_mark(text: str) -> tuple[str, str]:
    """Return a byte order mark, if there is one, and the rest, which is JSON."""
    body = text.removeprefix(_MARK)
    try:
        found = json.loads(body, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as exc:
        reason = f"it is no JSON: {exc}" if isinstance(exc, ValueError) else "too deep"
        raise UneditableError(reason) from exc
    if not isinstance(found, dict):
        raise UneditableError("it is no JSON object")
    return text[: len(text) - len(body)], body


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is no value")


def _skip(body: str, at: int) -> int:
    while body[at : at + 1] in (" ", "\t", "\n", "\r"):
        at += 1
    return at


def _entries(body: str, start: int) -> list[_Entry]:
    """Return what is in the object or array that begins there."""
    is_object = body[start] == "{"
    found: list[_Entry] = []
    at = _skip(body, start + 1)
    while body[at] not in "}]":
        begin = at
        name = None
        if is_object:
            name, at = _DECODER.raw_decode(body, at)
            at = _skip(body, _skip(body, at) + 1)
        value, end = _DECODER.raw_decode(body, at)
        found.append(_Entry(name, begin, at, end, value))
        at = _skip(body, end)
        if body[at] == ",":
            at = _skip(body, at + 1)
    return found


def _spots(body: str, path: tuple[str, ...], *, is_element: bool) -> list[int]:
    """Return where the objects on a path begin, as far as there are any."""
    spots = [_skip(body, 0)]
    around = path if is_element else path[:-1]
    for number, name in enumerate(around, start=1):
        named = [e for e in _entries(body, spots[-1]) if e.name == name]
        if not named:
            break
        if len(named) > 1:
            raise UneditableError(f"it has {name!r} twice")
        kind = list if is_element and number == len(around) else dict
        if not isinstance(named[0].value, kind):
            noun = "array" if kind is list else "object"
            raise UneditableError(f"its {name!r} is no {noun}")
        spots.append(named[0].value_start)
    return spots


def _style_of_entries(body: str, start: int, entries: list[_Entry]) -> _Style:
    """Return how the entries of an object or array are written."""
    if not entries:
        return _Style(" ", None)
    before = entries[-2].end if len(entries) > 1 else start
    gap = body[before : entries[-1].start].removeprefix("{").removeprefix("[")
    gap = gap[gap.index(",") + 1 :] if "," in gap else gap
    return _Style(gap, _unit(body)) if "\n" in gap else _Style(" ", None)


def _style_of_value(body: str, entry: _Entry) -> _Style:
    """Return how a value that is there is written."""
    if "\n" not in body[entry.value_start : entry.end]:
        return _Style(" ", None)
    line = body[: entry.start].rpartition("\n")[2]
    newline = "\r\n" if "\r\n" in body[entry.value_start : entry.end] else "\n"
    return _Style(newline + line[: len(line) - len(line.lstrip(" \t"))], _unit(body))


def _unit(body: str) -> str:
    """Return what the file indents its first level by."""
    found = re.match(r"\s*\{[ \t\r\n]*\n([ \t]+)\S", body)
    return found[1] if found else _INDENT


def _written(value: object, style: _Style) -> str:
    if style.unit is None:
        return json.dumps(value, ensure_ascii=False)
    text = json.dumps(value, indent=style.unit, ensure_ascii=False)
    return text.replace("\n", style.newline)


def _wrapped(
    names: tuple[str, ...], value: object, style: _Style, *, is_element: bool
) -> str:
    """Return an entry, in the objects that have to be made for it."""
    if not names:
        return _written(value, style)
    name, *rest = names
    key = json.dumps(name, ensure_ascii=False)
    if not rest and not is_element:
        return f"{key}: {_written(value, style)}"
    inside, outside = " ", " "
    inner = style
    if style.unit is not None:
        outside = style.newline
        inside = outside + style.unit
        inner = _Style(inside, style.unit)
    text = _wrapped(tuple(rest), value, inner, is_element=is_element)
    opening, closing = "{}" if rest else "[]"
    return f"{key}: {opening}{inside}{text}{outside}{closing}"


def _without(body: str, spots: list[int], number: int) -> str:
    """Return the text without an entry, and without what was made for it.

    Nothing is returned where the whole file was.
    """
    while True:
        start = spots.pop()
        entries = _entries(body, start)
        if number > 0:
            return body[: entries[number - 1].end] + body[entries[number].end :]
        entry = entries[0]
        if len(entries) > 1:
            return body[: entry.start] + body[entries[1].start :]
        if entry.start == start + 1:
            return body[: entry.start] + body[entry.end :]
        if not spots:
            return ""
        around = _entries(body, spots[-1])
        number = next(n for n, e in enumerate(around) if e.value_start == start)
