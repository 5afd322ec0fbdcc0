"""The index at the end of ``MEMORY.md``, as the profile ``claude`` keeps it.

The tool reads that file at the start of a session, up to a cap, and finds the others
through it. So the file is the slot ``memory`` and, behind its text, a block of links
to the other mirrored files. The block is no part of the slot: it is put behind the text
when the file is written, and cut out of what is read before anything is compared.

What a tool writes into the block is text of the slot like all it writes. A tool's line
may look like a generated one (an agent follows the form that it finds), so only lines
that are known to have been generated are cut out, and the rest stands behind the text.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from urllib.parse import quote, unquote

from crdtmem.doc.text_form import bytes_of, cut_units, lines_of
from crdtmem.limits import INDEX_BYTES, INDEX_LINES

__all__ = [
    "BLOCK_BEGIN",
    "BLOCK_END",
    "INDEX_FILE",
    "INDEX_LABEL",
    "IndexEntry",
    "index_line",
    "with_index",
    "without_index",
]

INDEX_FILE = "MEMORY.md"
"""The file that has the index."""

INDEX_LABEL = "memory"
"""Its slot."""

BLOCK_BEGIN = "<!-- crdtmem:index -->"
"""The line before the links."""

BLOCK_END = "<!-- /crdtmem:index -->"
"""The line behind them."""

# Longest description behind a link: what fits on a line of a terminal.
_DESCRIPTION_UNITS = 120
# What would end a link's target, or the line, or be read as an escape.
_UNLINKABLE = r"[\x00-\x1f\x7f-\x9f\u2028\u2029<>%\\]"
# A mark at the beginning of the file, and a longer break at the end of each line.
_MARK_BYTES = 3
_BREAK_BYTES = 1


@dataclass(frozen=True, slots=True)
class IndexEntry:
    """A mirrored slot, as a link shows it.

    Attributes:
        name: Of its file.
        label: Of the slot.
        description: Of the slot.
        updated_ms: When it was written last.

    """

    name: str
    label: str
    description: str
    updated_ms: int


def without_index(text: str, generated: Iterable[str] = ()) -> str:
    """Return the text of the slot in the text of a file that has an index.

    The last block of the file is cut out, also where its end is missing: its marking
    lines, its blank lines, and those of its lines that were generated. A line that a
    tool has put into it stays, behind what stands before the block and before what
    stands behind it. A file without a block is returned as it is.

    Args:
        text: Of the file.
        generated: Texts whose blocks are as they were generated: the base's, and those
            put into the file of late, for a stale save; ``with_index("", entries)``
            where nothing is known of the file.

    """
    lines = lines_of(text)
    found = _last_block(lines)
    if found is None:
        return text
    begin, end = found
    known = {line for old in generated for line in _block_lines(old)}
    added = [line for line in lines[begin + 1 : end] if line.strip()]
    kept = [line for line in added if line.strip() not in known]
    return "".join([*lines[:begin], *kept, *lines[end + 1 :]])


def with_index(text: str, entries: Sequence[IndexEntry]) -> tuple[str, bool]:
    r"""Return the text of the file for the text of the slot.

    The block has a link for each entry that the text does not link itself, the newest
    first, as many as fit: the file has at most ``INDEX_LINES`` lines and
    ``INDEX_BYTES`` bytes, also with a byte order mark and "\r\n" for its breaks.
    There is no block without a link, unless the text holds a line that begins one:
    ``without_index(file, [file])`` is always the text again.

    Args:
        text: Of the slot, in file form.
        entries: The other mirrored slots, in any order.

    Returns:
        The text of the file, and whether the slot's text is beyond the cap by itself.

    """
    lines = lines_of(text)
    is_over = len(lines) > INDEX_LINES or bytes_of(text) > INDEX_BYTES
    block: list[str] = []
    left_lines = INDEX_LINES - len(lines) - 2
    left_bytes = INDEX_BYTES - _MARK_BYTES - _size(lines)
    left_bytes -= _size([f"{BLOCK_BEGIN}\n", f"{BLOCK_END}\n"])
    for line in _links(text, entries):
        left_bytes -= _size([line])
        if len(block) >= left_lines or left_bytes < 0:
            break
        block.append(line)
    if not block and _last_block(lines) is None:
        return text, is_over
    return "".join([text, f"{BLOCK_BEGIN}\n", *block, f"{BLOCK_END}\n"]), is_over


def index_line(entry: IndexEntry) -> str:
    """Return the line of the block for a slot."""
    text = " ".join(entry.description.split())
    # The name stands in the link already.
    if not text or text == f"file: {entry.name}":
        return f"- [{entry.label}]({_target(entry.name)})\n"
    about = cut_units(text, _DESCRIPTION_UNITS)
    if about != text:
        about = f"{about.rstrip()}…"
    return f"- [{entry.label}]({_target(entry.name)}): {about}\n"


def _links(text: str, entries: Sequence[IndexEntry]) -> list[str]:
    linked = {
        unquote(angled or plain).removeprefix("./")
        for angled, plain in re.findall(r"\]\(\s*(?:<([^<>\n]*)>|([^()\s]+))", text)
    }
    newest = sorted(entries, key=lambda entry: (-entry.updated_ms, entry.label))
    return [
        index_line(entry)
        for entry in newest
        if entry.name not in linked and entry.name != INDEX_FILE
    ]


def _target(name: str) -> str:
    if re.fullmatch(r"[\w.-]+", name):
        return name
    return f"<{re.sub(_UNLINKABLE, lambda found: quote(found[0]), name)}>"


def _last_block(lines: Sequence[str]) -> tuple[int, int] | None:
    """Return the indexes of the lines that begin and end it; the latter may be none."""
    bare = [line.strip() for line in lines]
    if BLOCK_BEGIN not in bare:
        return None
    begin = len(bare) - 1 - bare[::-1].index(BLOCK_BEGIN)
    try:
        return begin, bare.index(BLOCK_END, begin)
    except ValueError:
        return begin, len(bare)


def _block_lines(text: str) -> list[str]:
    lines = lines_of(text)
    found = _last_block(lines)
    return [line.strip() for line in lines[found[0] + 1 : found[1]]] if found else []


def _size(lines: Iterable[str]) -> int:
    return sum(bytes_of(line) + _BREAK_BYTES for line in lines)
