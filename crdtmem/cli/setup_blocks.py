r"""Putting a marked block of lines into a text file, and taking it out again.

Pure: text in, text out. The block stands at the end, between a line that says
``crdtmem:begin`` and one that says ``crdtmem:end``. Behind text there is always exactly
one line end more before it: it ends the last line where that has none, and is a blank
line where it has one. So what was there comes back byte for byte.
"""

import re
import tomllib
from dataclasses import dataclass
from typing import Any

from crdtmem.cli.setup_edits import TakenError, UneditableError

__all__ = ["TextBlock", "TomlBlock"]


@dataclass(frozen=True, slots=True)
class TextBlock:
    """A block of lines.

    Attributes:
        body: Its lines, each with a line end.
        opening: What stands before the mark on the marking lines.
        closing: What stands behind it.
        head: What else a file has that is made for it.

    """

    body: str
    opening: str = "<!-- "
    closing: str = " -->"
    head: str = ""

    @property
    def empty(self) -> str:
        """Return the text of a file in which nothing but our own is left."""
        return self.head

    @property
    def snippet(self) -> str:
        """Return the block, with its marking lines."""
        return f"{self._mark('begin')}\n{self.body}{self._mark('end')}\n"

    def put(self, text: str | None) -> str:
        """Return a text with the block in it; None stands for no file.

        Raises:
            UneditableError: If the marking lines are not one pair.

        """
        text = self.head if text is None else text
        found = self._find(text)
        if found is None:
            newline = "\r\n" if "\r\n" in text else "\n"
            block = self.snippet.replace("\n", newline)
            return f"{text}{newline if text else ''}{block}"
        begin, end = found
        block = self.snippet.replace("\n", self._newline(text, begin))
        return text[:begin] + block + text[end:]

    def take(self, text: str) -> str:
        """Return a text without the block.

        Raises:
            UneditableError: If the marking lines are not one pair.

        """
        found = self._find(text)
        if found is None:
            return text
        begin, end = found
        newline = self._newline(text, begin)
        return text[:begin].removesuffix(newline) + text[end:]

    def _newline(self, text: str, begin: int) -> str:
        """Return the line end behind the first line of a block."""
        behind = begin + len(self._mark("begin"))
        return "\r\n" if text.startswith("\r\n", behind) else "\n"

    def _mark(self, word: str) -> str:
        return f"{self.opening}crdtmem:{word}{self.closing}"

    def _find(self, text: str) -> tuple[int, int] | None:
        """Return where the block is, with the line end behind it; None: nowhere."""
        begins = self._lines(text, "begin")
        ends = self._lines(text, "end")
        if not begins and not ends:
            return None
        if len(begins) != 1 or len(ends) != 1 or ends[0].start() < begins[0].end():
            raise UneditableError("its crdtmem:begin and crdtmem:end are not one pair")
        return begins[0].start(), ends[0].end()

    def _lines(self, text: str, word: str) -> list[re.Match[str]]:
        mark = re.escape(self._mark(word))
        return list(re.finditer(rf"(?:\A|(?<=\n)){mark}(?:\r?\n|\Z)", text))


@dataclass(frozen=True, slots=True)
class TomlBlock:
    """A table of a TOML file, in a block of its own.

    Attributes:
        table: Its name, in parts.
        values: What it holds: strings, whole numbers, lists of strings.

    """

    table: tuple[str, ...]
    values: tuple[tuple[str, str | int | list[str]], ...]

    empty = ""

    @property
    def snippet(self) -> str:
        """Return the block, with its marking lines."""
        return self._block.snippet

    def put(self, text: str | None) -> str:
        """Return a text with the table in it; None stands for no file.

        Raises:
            UneditableError: If the text is no TOML, or cannot have such a table.
            TakenError: If it has the table outside of a block of ours.

        """
        old = text or ""
        others = _parsed(self._block.take(old))
        inner: Any = others
        for name in self.table:
            inner = inner.get(name) if isinstance(inner, dict) else None
        if inner is not None:
            raise TakenError(".".join(self.table))
        new = self._block.put(old)
        _parsed(new)
        return new

    def take(self, text: str) -> str:
        """Return a text without the block.

        Raises:
            UneditableError: If the marking lines are not one pair.

        """
        return self._block.take(text)

    @property
    def _block(self) -> TextBlock:
        rows = [f"[{'.'.join(self.table)}]"]
        rows += [f"{name} = {_toml(value)}" for name, value in self.values]
        return TextBlock("".join(f"{row}\n" for row in rows), "# ", "")


def _parsed(text: str) -> dict[str, object]:
    try:
        # Editors of Windows begin a file with a byte order mark, which TOML forbids.
        return tomllib.loads(text.removeprefix("\ufeff"))
    except (ValueError, RecursionError) as exc:
        raise UneditableError(f"it is no TOML: {exc!s:.200}") from exc


def _toml(value: str | int | list[str]) -> str:
    if isinstance(value, list):
        return f"[{', '.join(map(_toml, value))}]"
    if isinstance(value, int):
        return str(value)
    escaped = re.sub(
        r'[\x00-\x1f\x7f"\\]', lambda found: f"\\u{ord(found[0]):04x}", value
    )
    return f'"{escaped}"'
