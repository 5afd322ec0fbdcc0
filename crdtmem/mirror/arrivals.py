"""When what a file holds counts as a change, and which older text it was made from.

A tool may empty a file and write it again, write half a line, or move the file away for
a moment: none of that may reach the slot. So what is seen is judged together with how
long it has been so. Only lines appended to what is known are taken at once.

The rules, first row that fits; *settled* means unchanged for ``MIRROR_SETTLE_S``:

    seen                        taken over
    absent                      after ``MIRROR_GONE_S``: ``gone``
    the base                    nothing
    empty, the base is not      after ``MIRROR_GONE_S``: ``emptied``
    the base and more           the whole lines at once, the rest once settled
    anything else               once settled

A file that never settles is taken over ``MIRROR_NEVER_SETTLED_S`` after its first
change, in whole code points, if it is UTF-8 then; an empty or absent one never is.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from crdtmem.doc.text_form import lines_of
from crdtmem.limits import MIRROR_GONE_S, MIRROR_NEVER_SETTLED_S, MIRROR_SETTLE_S
from crdtmem.mirror.texts import finished_part
from crdtmem.textdiff import diff_lines

__all__ = ["Arrival", "ArrivalKind", "judge", "nearest"]

ArrivalKind = Literal["nothing", "append", "rewrite", "emptied", "gone", "wait"]

# Bytes of UTF-8 that begin a code point and may lack the others: 3 of 4 at most.
_CUT_BYTES = 3


@dataclass(frozen=True, slots=True)
class Arrival:
    """What to do now about what a file holds.

    Attributes:
        kind: ``append``: the data begins with the base's bytes (which does not say that
            its text does: a line may have been continued). ``rewrite``: it does not.
            ``emptied``, ``gone``: for long enough. ``nothing``: it is the base.
            ``wait``: nothing yet.
        data: The file's bytes to import, and the new base; for ``append`` perhaps not
            all of them. Empty for the other kinds.
        again_s: When to look again although no event may come; None where that makes no
            difference.

    """

    kind: ArrivalKind
    data: bytes = b""
    again_s: float | None = None


def judge(
    base: bytes, data: bytes | None, *, unchanged_s: float, changing_s: float
) -> Arrival:
    """Say what to do about a file's content.

    Args:
        base: Bytes last known to be both in the file and in the slot.
        data: The file's bytes; None if it is not there.
        unchanged_s: How long its size, mtime and inode have been what they are.
        changing_s: How long it has differed from its base.

    """
    if data == base:
        return Arrival("nothing")
    if not data:
        if unchanged_s >= MIRROR_GONE_S:
            return Arrival("gone" if data is None else "emptied")
        return Arrival("wait", again_s=MIRROR_GONE_S - unchanged_s)
    if unchanged_s >= MIRROR_SETTLE_S:
        return Arrival("append" if data.startswith(base) else "rewrite", data)
    again_s = MIRROR_SETTLE_S - unchanged_s
    if not data.startswith(base):
        if changing_s >= MIRROR_NEVER_SETTLED_S and _whole_points(data) == data:
            return Arrival("rewrite", data)
        return Arrival("wait", again_s=again_s)
    ready = finished_part(data)
    if changing_s >= MIRROR_NEVER_SETTLED_S:
        ready = _whole_points(data) or ready
    if len(ready) <= len(base):
        return Arrival("wait", again_s=again_s)
    return Arrival("append", ready, again_s=None if ready == data else again_s)


def nearest(ring: Sequence[str], content: str) -> int:
    """Say which of the texts that were in a file its new content was made from.

    Args:
        ring: The texts, oldest first; at least one.
        content: The new one; like them in file form.

    Returns:
        The index of the one with the fewest changed lines; of equals the newest.

    Raises:
        ValueError: If there is no text to choose from.

    """
    return min(
        reversed(range(len(ring))), key=lambda index: _changed(ring[index], content)
    )


def _changed(old: str, new: str) -> int:
    """Count the lines that a diff takes out and puts in."""
    return sum(
        len(lines_of(old[start_chars:end_chars])) + len(lines_of(insert))
        for start_chars, end_chars, insert in diff_lines(old, new)
    )


def _whole_points(data: bytes) -> bytes:
    """Return the data less an unfinished code point; nothing if it is no UTF-8."""
    try:
        data.decode()
    except UnicodeDecodeError as exc:
        if exc.reason == "unexpected end of data":
            return data[: exc.start]
        return b""
    return data
