"""The lines of a TOML text: which statement stands where.

There is a TOML reader in the standard library, but none that tells places. Rather than
being a second reader, this asks the first one: lines are taken together until it reads
them as a statement.
"""

import io
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass

__all__ = ["Statement", "read_or_none", "split_lines", "split_statements"]

# A value over more lines than this ends the search. Each further line reads all of the
# statement again, and a project's file may be hostile.
_STATEMENT_LINES = 200


@dataclass(frozen=True, slots=True)
class Statement:
    """A header or a key with its value.

    Attributes:
        first_line: Its first line, from 0.
        end_line: The line after its last one.
        table: Where it stands: the path of the header above it, or its own.
        path: The path of what it sets, table included.
        is_header: Whether it is a header.

    """

    first_line: int
    end_line: int
    table: tuple[str, ...]
    path: tuple[str, ...]
    is_header: bool


def split_lines(text: str) -> list[str]:
    """Return the lines of a text, each with its end."""
    # str.splitlines knows ends of lines that TOML does not.
    return list(io.StringIO(text, newline="\n"))


def split_statements(text: str) -> Iterator[Statement]:
    """Yield the statements of a TOML text, as far as they can be told."""
    lines = split_lines(text.removeprefix("\ufeff"))
    table: tuple[str, ...] = ()
    first = 0
    while first < len(lines):
        stripped = lines[first].strip()
        if not stripped or stripped.startswith("#"):
            first += 1
            continue
        end, found = _read_one(lines, first)
        if found is None:
            return
        is_header = stripped.startswith("[")
        path = _path_of(found)
        if is_header:
            table = path
        else:
            path = (*table, *path)
        yield Statement(first, end, table, path, is_header)
        first = end


def read_or_none(text: str) -> dict[str, object] | None:
    """Return what a piece of TOML says, None if it is not TOML."""
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError):
        # The whole file has been read before, so this only means: not yet, or not here.
        return None


def _read_one(lines: list[str], first: int) -> tuple[int, dict[str, object] | None]:
    for end in range(first + 1, min(first + _STATEMENT_LINES, len(lines)) + 1):
        found = read_or_none("".join(lines[first:end]))
        if found is not None:
            return end, found
    return first, None


def _path_of(found: dict[str, object]) -> tuple[str, ...]:
    """Return the path of the one thing that a statement sets."""
    path: list[str] = []
    value: object = found
    while isinstance(value, dict) and value:
        name, value = next(iter(value.items()))
        path.append(name)
    return tuple(path)
