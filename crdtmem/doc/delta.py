r"""Deltas: what one write changed in a text, in code points, and whether whole lines.

A delta is what the store keeps of each write of the history window, what a trace
replays and what an edit is made of. It knows nothing of who wrote it.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

__all__ = [
    "Delta",
    "Splice",
    "apply_delta",
    "check_delta",
    "decode_delta",
    "delta_of_event",
    "encode_delta",
    "in_whole_lines",
    "is_line_start",
    "is_whole_lines",
    "joined",
]


class Splice(NamedTuple):
    """One place of the old text: insert at its start, then delete to its end.

    So the new text stands in front of the text it replaces.

    Attributes:
        start_chars: Where the inserted text goes and the deleted text begins.
        end_chars: Where the deleted text ends; the start if nothing is deleted.
        insert: What is inserted; may be empty.

    """

    start_chars: int
    end_chars: int
    insert: str


Delta = tuple[Splice, ...]
"""Splices over the old text, ascending and without overlap.

Two may touch: text that was inserted *behind* a deleted text is a splice of its own at
the end of the first. A reader that orders deleted text too can tell the difference.
"""


# json.dumps would make such an encoder for each call.
_ENCODE = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


def apply_delta(old: str, delta: Delta) -> str:
    """Return the text after the change.

    Raises:
        ValueError: If the delta is no delta over this text.

    """
    check_delta(delta, len(old))
    parts = []
    at_chars = 0
    for splice in delta:
        parts += [old[at_chars : splice.start_chars], splice.insert]
        at_chars = splice.end_chars
    return "".join([*parts, old[at_chars:]])


def check_delta(delta: Delta, size_chars: int | None = None) -> None:
    """Check that splices ascend, do not overlap and stay within the text.

    Args:
        delta: What to check.
        size_chars: Length of the old text; None where it is not known.

    Raises:
        ValueError: If they do not.

    """
    at_chars = 0
    for splice in delta:
        if not at_chars <= splice.start_chars <= splice.end_chars:
            raise ValueError(
                f"splice {splice.start_chars}..{splice.end_chars} does not ascend "
                f"from {at_chars}"
            )
        at_chars = splice.end_chars
    if size_chars is not None and at_chars > size_chars:
        raise ValueError(
            f"a delta reaches to {at_chars} in a text of {size_chars} characters"
        )


def delta_of_event(old: str, event: Sequence[Mapping[str, object]]) -> Delta:
    """Convert the delta of a yrs text event, which counts UTF-8 bytes.

    Args:
        old: The text before the event.
        event: Items ``{"retain": bytes}``, ``{"delete": bytes}``, ``{"insert": str}``.

    Raises:
        ValueError: If an item is none of these, or a count does not end between two
            characters of the old text.

    """
    counted = _ByteCursor(old)
    splices = []
    at_chars = 0
    for item in event:
        match item:
            case {"insert": str(insert)}:
                splices.append(Splice(at_chars, at_chars, insert))
            case {"retain": int(size_bytes)}:
                at_chars += counted.take(size_bytes)
            case {"delete": int(size_bytes)}:
                start_chars = at_chars
                at_chars += counted.take(size_bytes)
                splices.append(Splice(start_chars, at_chars, ""))
            case _:
                raise ValueError(f"a text event holds an item of {sorted(item)}")
    return joined(splices)


class _ByteCursor:
    """Walks over a text in UTF-8 bytes and tells how many characters that were."""

    def __init__(self, text: str) -> None:
        # One byte a character needs no decoding, and most texts are of that kind.
        self._data = None if text.isascii() else text.encode()
        self._left_bytes = len(text) if self._data is None else len(self._data)

    def take(self, size_bytes: int) -> int:
        if not 0 <= size_bytes <= self._left_bytes:
            raise ValueError(
                f"a text event counts {size_bytes} bytes where {self._left_bytes} are "
                "left"
            )
        self._left_bytes -= size_bytes
        if self._data is None:
            return size_bytes
        start_bytes = len(self._data) - self._left_bytes - size_bytes
        return len(self._data[start_bytes : start_bytes + size_bytes].decode())


def joined(splices: Iterable[Splice]) -> Delta:
    """Make ascending splices a delta: drop empty ones, join those that touch.

    The order of inserted and deleted text stays: text inserted behind a deleted one
    stays a splice of its own.
    """
    found: list[Splice] = []
    for splice in splices:
        if splice.start_chars == splice.end_chars and not splice.insert:
            continue
        last = found[-1] if found else None
        if (
            last is not None
            and last.end_chars == splice.start_chars
            and (last.start_chars == last.end_chars or not splice.insert)
        ):
            insert = last.insert + splice.insert
            found[-1] = Splice(last.start_chars, splice.end_chars, insert)
        else:
            found.append(splice)
    return tuple(found)


def encode_delta(delta: Delta) -> str:
    """Write a delta as compact JSON: a list of ``[start_chars, end_chars, insert]``."""
    return _ENCODE(delta)


def decode_delta(text: str) -> Delta:
    """Read what ``encode_delta`` wrote.

    Raises:
        ValueError: If it is anything else; also if its splices do not ascend.

    """
    try:
        rows = json.loads(text)
    except RecursionError as exc:
        raise ValueError("a delta is nested too deep") from exc
    if not isinstance(rows, list):
        raise ValueError("a delta is no list")
    delta = tuple(_splice_of(row) for row in rows)
    check_delta(delta)
    return delta


def _splice_of(row: object) -> Splice:
    match row:
        case [int(start_chars), int(end_chars), str(insert)] if not (
            isinstance(start_chars, bool) or isinstance(end_chars, bool)
        ):
            return Splice(start_chars, end_chars, insert)
        case _:
            raise ValueError("a splice is no list of two integers and a text")


def is_whole_lines(old: str, delta: Delta) -> bool:
    r"""Tell whether a change deletes and inserts whole "\n"-terminated lines only.

    One edit of a part of a line is enough to glue or tear lines of others when it is
    merged. The last line may lack its newline, because a foreign editor left it so: it
    can be deleted whole, and an insert behind it must begin with the missing newline.
    A delta that is none over this text is not of whole lines.
    """
    try:
        check_delta(delta, len(old))
    except ValueError:
        return False
    deleted_to_chars = -1
    for splice in delta:
        start_chars, end_chars = splice.start_chars, splice.end_chars
        # Behind an unterminated line that goes as well, a line begins too.
        if is_line_start(old, start_chars) or start_chars == deleted_to_chars:
            is_whole = end_chars == len(old) or is_line_start(old, end_chars)
        else:
            is_whole = start_chars == len(old) and splice.insert.startswith("\n")
        if not is_whole or not _is_closed(splice.insert):
            return False
        if end_chars > start_chars:
            deleted_to_chars = end_chars
    return True


def in_whole_lines(old: str, delta: Delta) -> Delta:
    """Return a change of whole lines that leads to the same lines.

    Lines that are changed in part are replaced whole. The result differs from that of
    the given delta at most by a newline at its end.

    Args:
        old: The text that the delta is over.
        delta: A change, for example the reverse of one that came from an editor.

    """
    if is_whole_lines(old, delta):
        return delta
    widened: list[Splice] = []
    for splice in delta:
        start_chars = old.rfind("\n", 0, splice.start_chars) + 1
        if widened and _share_line(old, widened[-1], splice):
            last = widened[-1]
            start_chars = last.start_chars
            before = last.insert + old[last.end_chars : splice.start_chars]
            widened.pop()
        else:
            before = old[start_chars : splice.start_chars]
        insert = before + splice.insert
        widened.append(Splice(start_chars, splice.end_chars, insert))
    return joined(_with_rest_of_line(old, splice) for splice in widened)


def is_line_start(text: str, at_chars: int) -> bool:
    """Tell whether a line begins there, or would if something were inserted there."""
    return at_chars == 0 or text[at_chars - 1] == "\n"


def _is_closed(insert: str) -> bool:
    return not insert or insert.endswith("\n")


def _share_line(old: str, first: Splice, second: Splice) -> bool:
    if first.end_chars == second.start_chars and not _is_closed(first.insert):
        return True
    line_start_chars = old.rfind("\n", 0, second.start_chars) + 1
    return line_start_chars < _rest_end(old, first)


def _rest_end(old: str, splice: Splice) -> int:
    """Return where the line ends that begins with what the splice leaves."""
    if _is_closed(splice.insert) and is_line_start(old, splice.end_chars):
        return splice.end_chars
    return old.find("\n", splice.end_chars) + 1 or len(old)


def _with_rest_of_line(old: str, splice: Splice) -> Splice:
    end_chars = _rest_end(old, splice)
    insert = splice.insert + old[splice.end_chars : end_chars]
    if not _is_closed(insert):
        insert += "\n"
    return Splice(splice.start_chars, end_chars, insert)
