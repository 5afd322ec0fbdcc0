"""What changed between two texts, by whole lines, and where a text occurs in another.

Lines are never refined to words: a part-line edit breaks lines of others when it is
merged (65 of 6,555 untouched appended lines, against 0 of 97,779 with whole lines).
Pure, and without docs: ``crdtmem.doc`` applies what is computed here. A *file* and a
*view* are the two forms of ``crdtmem.doc.text_form``.
"""

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate

from crdtmem.doc.text_form import lines_of, units_of, view_lines
from crdtmem.limits import DIFF_TABLE_BYTES, DIFF_UNITS

__all__ = [
    "UnifiedDiff",
    "diff_lines",
    "find_matches",
    "find_matches_any_eol",
    "first_eol",
    "is_all_crlf",
    "line_at",
    "near_miss",
    "unified",
    "with_eol",
]

# Lines from [0] to [1] of the old text became those from [2] to [3] of the new one.
_Run = tuple[int, int, int, int]
# A line that stays: its index in the old text and in the new one.
_Pair = tuple[int, int]

# Unchanged lines around a change, as every tool that reads unified diffs expects.
_CONTEXT = 3
# What an int and its place in a list take beyond the digits.
_ROW_OVERHEAD_BYTES = 36


@dataclass(frozen=True, slots=True)
class UnifiedDiff:
    """Two views compared, for people and models to read.

    Attributes:
        text: The diff without a final newline; empty where the views are equal.
        added: Lines of the new view that the old one has not, cut off or not.
        removed: Lines of the old view that the new one has not, cut off or not.
        truncated: Whether the text was cut, always after a whole line.

    """

    text: str
    added: int
    removed: int
    truncated: bool


def diff_lines(old: str, new: str) -> list[tuple[int, int, str]]:
    """Say how one file becomes another, in whole lines.

    Lines that are unique in both files, blank ones aside, and in the same order in both
    stay; where the orders differ, as many of them as possible. Between them as many
    lines as possible stay, unless that costs more than ``DIFF_TABLE_BYTES``: then what
    lies between two of them is replaced as a whole, less its equal ends. So the result
    is always right and, only for many thousand repeated lines, not always the smallest.

    A last line without a newline is a line of its own kind, equal only to its like.

    Args:
        old: The file that the operations apply to.
        new: The file that they lead to.

    Returns:
        Operations ``(start_chars, end_chars, insert)`` over the old file, ascending,
        with at least one line that stays between two: insert at the start, and delete
        what stood from the start to the end. The new text stands before the deleted
        one, so that what others append behind the run stays behind it.

    """
    old_lines, new_lines = lines_of(old), lines_of(new)
    starts_chars = [0, *accumulate(map(len, old_lines))]
    return [
        (starts_chars[i], starts_chars[i_end], "".join(new_lines[j:j_end]))
        for i, i_end, j, j_end in _changed_runs(old_lines, new_lines)
    ]


def unified(
    old_view: str,
    new_view: str,
    *,
    label: str,
    from_rev: int | str,
    to_rev: int | str,
    limit_units: int | None = DIFF_UNITS,
) -> UnifiedDiff:
    r"""Compare two views in the unified form, with the same line diff as a write.

    Lines are those of the view: "a" and "a\n" differ by an added empty line.

    Args:
        old_view: The text before.
        new_view: The text after.
        label: What both are texts of.
        from_rev: Which text the old one is.
        to_rev: Which text the new one is.
        limit_units: Longest result; None for no limit.

    """
    old, new = view_lines(old_view), view_lines(new_view)
    runs = _changed_runs(old, new)
    if not runs:
        return UnifiedDiff("", added=0, removed=0, truncated=False)
    lines = [f"--- {label}@{from_rev}", f"+++ {label}@{to_rev}"]
    for hunk in _hunks(runs):
        lines += _hunk_lines(old, new, hunk)
    kept = len(lines) if limit_units is None else _lines_within(lines, limit_units)
    return UnifiedDiff(
        "\n".join(lines[:kept]),
        added=sum(j_end - j for _, _, j, j_end in runs),
        removed=sum(i_end - i for i, i_end, _, _ in runs),
        truncated=kept < len(lines),
    )


def find_matches(view: str, old: str) -> list[int]:
    """Find every place where a text occurs exactly, overlapping ones too.

    Linear in the view, also where both repeat themselves. An empty text is nowhere.

    Returns:
        Offsets in the view in code points, ascending.

    """
    if not old:
        return []
    found = []
    period = ""
    at_chars = view.find(old)
    while at_chars >= 0:
        found.append(at_chars)
        if period and view.startswith(period, at_chars + len(old)):
            at_chars += len(period)
            continue
        next_chars = view.find(old, at_chars + 1)
        step_chars = next_chars - at_chars
        # Two neighbours that overlap by half are the text's shortest period apart (Fine
        # and Wilf), and so are all others that overlap so much: they are tried there
        # first, because a search from each of them would make the whole quadratic.
        if 0 < step_chars <= len(old) // 2:
            period = old[-step_chars:]
        at_chars = next_chars
    return found


def find_matches_any_eol(view: str, old: str) -> list[tuple[int, int]]:
    r"""Find every place where a text occurs if "\r\n" and "\n" are taken as equal.

    Returns:
        Start and end of each match in the view in code points, ascending. A line break
        belongs to a match as a whole or not at all.

    """
    ended = view.split("\r\n")[:-1]
    # Where the breaks that lose a "\r" are once all of them are "\n".
    breaks_chars = [n + end for n, end in enumerate(accumulate(map(len, ended)))]

    def in_view_chars(offset_chars: int) -> int:
        return offset_chars + bisect_left(breaks_chars, offset_chars)

    wanted = with_eol(old, "\n")
    return [
        (in_view_chars(at_chars), in_view_chars(at_chars + len(wanted)))
        for at_chars in find_matches(with_eol(view, "\n"), wanted)
    ]


def near_miss(view: str, old: str) -> tuple[str, int] | None:
    """Say why a text was not found, if only case or whitespace is different.

    Args:
        view: The text that was searched.
        old: What does not occur in it exactly.

    Returns:
        ``case`` or ``whitespace``, and the line of the first such match, from 1.

    """
    bare = "".join(old.split())
    if not bare:
        return None
    folded = view.casefold()
    at_chars = folded.find(old.casefold())
    if at_chars >= 0:
        # Folding may change lengths ("ß"), but never the number of newlines.
        return "case", line_at(folded, at_chars)
    places_chars = [at for at, char in enumerate(view) if not char.isspace()]
    at_chars = "".join(view.split()).find(bare)
    if at_chars >= 0:
        return "whitespace", line_at(view, places_chars[at_chars])
    return None


def line_at(view: str, offset_chars: int) -> int:
    """Return the number of the line, from 1, that an offset in code points is in."""
    return view.count("\n", 0, offset_chars) + 1


def is_all_crlf(view: str) -> bool:
    r"""Tell whether the text has line breaks and each of them is "\r\n"."""
    return 0 < view.count("\n") == view.count("\r\n")


def first_eol(text: str) -> str:
    r"""Return the first line break of a text, "\r\n" or "\n"; "\n" if it has none."""
    before, newline, _ = text.partition("\n")
    return "\r\n" if newline and before.endswith("\r") else "\n"


def with_eol(text: str, eol: str) -> str:
    r"""Return the text with each line break, "\r\n" or "\n", turned into this one."""
    return text.replace("\r\n", "\n").replace("\n", eol)


def _changed_runs(old: Sequence[str], new: Sequence[str]) -> list[_Run]:
    runs = []
    i = j = 0
    for kept_i, kept_j in [*_kept_pairs(old, new), (len(old), len(new))]:
        if (i, j) != (kept_i, kept_j):
            runs.append((i, kept_i, j, kept_j))
        i, j = kept_i + 1, kept_j + 1
    return runs


def _kept_pairs(old: Sequence[str], new: Sequence[str]) -> Iterator[_Pair]:
    """Yield the lines that stay: equal ends, anchors, what is common between two."""
    head, tail = _equal_ends(old, new)
    yield from ((i, i) for i in range(head))
    i = j = head
    end = (len(old) - tail, len(new) - tail)
    anchors = _anchors(old, new, range(head, end[0]), range(head, end[1]))
    for anchor in [*anchors, end]:
        block = _common_pairs(old[i : anchor[0]], new[j : anchor[1]])
        yield from ((i + block_i, j + block_j) for block_i, block_j in block)
        if anchor != end:
            yield anchor
        i, j = anchor[0] + 1, anchor[1] + 1
    yield from ((end[0] + back, end[1] + back) for back in range(tail))


def _anchors(
    old: Sequence[str], new: Sequence[str], old_part: range, new_part: range
) -> list[_Pair]:
    """Return lines of these parts that are unique on both sides, in common order.

    A diff without them may rewrite an untouched line that stands nowhere else:
    difflib did so in 21 of 4,710 replaces.
    """
    shared = {old[i] for i in old_part} & {new[j] for j in new_part}
    if not shared:
        return []
    # Counted in the whole texts: a line that is repeated elsewhere must not outvote
    # one that stands nowhere else.
    old_counts, new_counts = Counter(old), Counter(new)
    # A blank line says nothing of where it belongs, also when it is the only one: were
    # it an anchor, a line that has moved past it would be written anew.
    unique = {
        line
        for line in shared
        if old_counts[line] == new_counts[line] == 1 and not line.isspace()
    }
    places = {new[j]: j for j in new_part if new[j] in unique}
    return _longest_ascending(
        [(i, places[old[i]]) for i in old_part if old[i] in unique]
    )


def _longest_ascending(pairs: Sequence[_Pair]) -> list[_Pair]:
    """Return the longest series that ascends on the new side as it does on the old."""
    # Patience: the top card of pile n ends the best series of n + 1 pairs so far.
    tops: list[int] = []
    top_cards: list[int] = []
    before: list[int] = []
    for card, (_, j) in enumerate(pairs):
        pile = bisect_left(tops, j)
        tops[pile : pile + 1] = [j]
        top_cards[pile : pile + 1] = [card]
        before.append(top_cards[pile - 1] if pile else -1)
    series = []
    card = top_cards[-1] if top_cards else -1
    while card >= 0:
        series.append(pairs[card])
        card = before[card]
    return series[::-1]


def _equal_ends(old: Sequence[str], new: Sequence[str]) -> tuple[int, int]:
    """Count the equal lines at the beginning, and then those at the end."""
    head = _equal_run(zip(old, new, strict=False))
    ends = zip(reversed(old[head:]), reversed(new[head:]), strict=False)
    return head, _equal_run(ends)


def _equal_run(pairs: Iterable[tuple[str, str]]) -> int:
    equal = 0
    for line, other in pairs:
        if line != other:
            break
        equal += 1
    return equal


def _common_pairs(old: Sequence[str], new: Sequence[str]) -> list[_Pair]:
    """Return a longest common subsequence, or only the equal ends if it costs more."""
    if not (old and new):
        return []
    head, tail = _equal_ends(old, new)
    i_end, j_end = len(old) - tail, len(new) - tail
    shared = set(old[head:i_end]) & set(new[head:j_end])
    # A line that the other side has not cannot stay, and only makes the table larger.
    old_places = [i for i in range(head, i_end) if old[i] in shared]
    new_places = [j for j in range(head, j_end) if new[j] in shared]
    middle = _longest_common([old[i] for i in old_places], [new[j] for j in new_places])
    return [
        *((i, i) for i in range(head)),
        *((old_places[i], new_places[j]) for i, j in middle),
        *((i_end + back, j_end + back) for back in range(tail)),
    ]


def _longest_common(old: Sequence[str], new: Sequence[str]) -> list[_Pair]:
    """Return a longest common subsequence; nothing if its table were too large.

    Hyyrö's bit-parallel form of the table: row i is one integer, whose bit j is 0 where
    line j of the new side lengthens what is common with the first i lines of the old.
    A row costs a few operations on integers instead of a step for each of its cells.
    """
    if len(old) < len(new):
        # Short rows: reading a bit costs as much as a row is long.
        return [(i, j) for j, i in _longest_common(new, old)]
    if len(old) * (len(new) // 8 + _ROW_OVERHEAD_BYTES) > DIFF_TABLE_BYTES:
        return []
    masks = _masks(new)
    ones = (1 << len(new)) - 1
    rows = [ones]
    for line in old:
        row = rows[-1]
        hits = row & masks.get(line, 0)
        rows.append(((row + hits) | (row - hits)) & ones)
    return _walk_back(rows, len(new))


def _masks(lines: Sequence[str]) -> dict[str, int]:
    """Return for each line an integer with a 1 at each of its places."""
    masks = {line: bytearray(len(lines) // 8 + 1) for line in set(lines)}
    for j, line in enumerate(lines):
        masks[line][j >> 3] |= 1 << (j & 7)
    return {line: int.from_bytes(mask, "little") for line, mask in masks.items()}


def _walk_back(rows: Sequence[int], width: int) -> list[_Pair]:
    pairs = []
    i, j = len(rows) - 1, width
    while i and j:
        if rows[i] >> (j - 1) & 1:
            j -= 1
            continue
        i -= 1
        # A zero that was there a row earlier is not owed to this row's line.
        if rows[i] >> (j - 1) & 1:
            j -= 1
            pairs.append((i, j))
    return pairs[::-1]


def _hunks(runs: Sequence[_Run]) -> Iterator[list[_Run]]:
    """Group the runs whose context would touch or overlap."""
    hunk = [runs[0]]
    for run in runs[1:]:
        if run[0] - hunk[-1][1] > 2 * _CONTEXT:
            yield hunk
            hunk = []
        hunk.append(run)
    yield hunk


def _hunk_lines(
    old: Sequence[str], new: Sequence[str], hunk: Sequence[_Run]
) -> Iterator[str]:
    (first_i, _, first_j, _), (_, last_i, _, last_j) = hunk[0], hunk[-1]
    before = min(_CONTEXT, first_i)
    after = min(_CONTEXT, len(old) - last_i)
    old_range = _range_of(first_i - before, last_i + after)
    yield f"@@ -{old_range} +{_range_of(first_j - before, last_j + after)} @@"
    at = first_i - before
    for i, i_end, j, j_end in hunk:
        yield from (f" {line}" for line in old[at:i])
        yield from (f"-{line}" for line in old[i:i_end])
        yield from (f"+{line}" for line in new[j:j_end])
        at = i_end
    yield from (f" {line}" for line in old[at : last_i + after])


def _range_of(start: int, end: int) -> str:
    """Write a range of lines; an empty one names the line before it."""
    if end == start:
        return f"{start},0"
    return f"{start + 1}" if end == start + 1 else f"{start + 1},{end - start}"


def _lines_within(lines: Sequence[str], limit_units: int) -> int:
    """Return how many of the lines, joined by newlines, keep within the limit."""
    ends_units = list(accumulate(units_of(line) + 1 for line in lines))
    return bisect_right(ends_units, limit_units + 1)
