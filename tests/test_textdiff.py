"""crdtmem.textdiff"""

import itertools
import re
from collections import Counter

import pytest
from hypothesis import example, given, strategies as st

from crdtmem.doc.text_form import lines_of, units_of, view_lines
from crdtmem.limits import DIFF_UNITS
from crdtmem.textdiff import (
    UnifiedDiff,
    _longest_common,
    diff_lines,
    find_matches,
    find_matches_any_eol,
    first_eol,
    is_all_crlf,
    line_at,
    near_miss,
    unified,
    with_eol,
)

# What ends a line for splitlines, has two units, several bytes or a bad reputation.
LINES = ["", "a", "é", "漢字", "🎉", "\r", "x\u2028y", "\x00", "  b", "c\r"]
FEW_LINES = st.lists(st.sampled_from(LINES[:3]), max_size=9)
VIEWS = st.lists(st.sampled_from(LINES), max_size=14).map("\n".join)
# Also what a foreign editor leaves: no final newline, or only newlines.
FILES = st.tuples(VIEWS, st.sampled_from(["\n", ""])).map("".join)
HUNK = re.compile(r"@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@")


def spliced(old, operations):
    for start_chars, end_chars, insert in reversed(operations):
        old = old[:start_chars] + insert + old[end_chars:]
    return old


def kept_lines(old, operations):
    """Return the lines of a file that no operation deletes."""
    kept = []
    at_chars = 0
    for line in lines_of(old):
        end_chars = at_chars + len(line)
        if not any(start <= at_chars < end for start, end, _ in operations):
            kept.append(line)
        at_chars = end_chars
    return kept


def longest_common_length(old, new):
    """Fill the whole table, one cell at a time."""
    row = [0] * (len(new) + 1)
    for line in old:
        above = row
        row = [0]
        for j, other in enumerate(new):
            longer = above[j] + 1 if line == other else 0
            row.append(max(longer, above[j + 1], row[j]))
    return row[-1]


def patched(old, diff):
    """Apply a unified diff as a reader would, and check what it says of itself."""
    result = []
    at = 0
    old_left = new_left = 0
    for line in diff.split("\n")[2:]:
        if not (old_left or new_left):
            hunk = HUNK.fullmatch(line)
            assert hunk is not None
            old_left, new_left = (int(hunk[n] or 1) for n in (2, 4))
            start = int(hunk[1]) - (old_left > 0)
            result += old[at:start]
            at = start
            assert int(hunk[3]) - (new_left > 0) == len(result)
            continue
        if line[0] in " -":
            assert old[at] == line[1:]
            at += 1
            old_left -= 1
        if line[0] in " +":
            result.append(line[1:])
            new_left -= 1
    assert (old_left, new_left) == (0, 0)
    return result + old[at:]


def texts_of(lines):
    return "".join(f"{line}\n" for line in lines)


@given(FILES, FILES)
def test_the_operations_lead_to_the_new_file_exactly(old, new):
    assert spliced(old, diff_lines(old, new)) == new


@given(FILES)
def test_equal_files_need_no_operation(file):
    assert diff_lines(file, file) == []


@given(FILES, FILES)
def test_operations_ascend_and_take_whole_lines(old, new):
    operations = diff_lines(old, new)
    starts = [0, *itertools.accumulate(map(len, lines_of(old)))]

    places = [place for start, end, _ in operations for place in (start, end)]
    assert places == sorted(places)
    assert set(places) <= set(starts)
    assert all(
        end < start for (_, end, _), (start, _, _) in itertools.pairwise(operations)
    )
    assert all(start < end or insert for start, end, insert in operations)
    # Only what becomes the end of the file may lack its newline.
    assert all(insert[-1:] in ["", "\n"] for _, _, insert in operations[:-1])


@given(FILES, FILES)
def test_as_many_lines_unique_in_both_files_as_possible_stay(old, new):
    old_counts, new_counts = Counter(lines_of(old)), Counter(lines_of(new))
    # Blank ones say nothing of where they belong.
    unique = {
        line
        for line in old_counts
        if old_counts[line] == new_counts[line] == 1 and not line.isspace()
    }
    kept = [line for line in kept_lines(old, diff_lines(old, new)) if line in unique]

    assert len(kept) == longest_common_length(
        [line for line in lines_of(old) if line in unique],
        [line for line in lines_of(new) if line in unique],
    )


def test_a_line_repeated_elsewhere_does_not_outvote_a_unique_one():
    """In the changed part r, s and t occur once too, but behind u in one text only."""
    old = texts_of(["r", "s", "t", "1", "u", "r", "s", "t", "2"])
    new = texts_of(["r", "s", "t", "3", "r", "s", "t", "u", "4"])

    assert "u\n" in kept_lines(old, diff_lines(old, new))


@given(FEW_LINES, FEW_LINES)
def test_of_repeated_lines_as_many_as_possible_stay(old, new):
    # Doubled, so that none is unique and there are no anchors.
    old, new = (
        [line for line in old for _ in "12"],
        [line for line in new for _ in "12"],
    )
    kept = kept_lines(texts_of(old), diff_lines(texts_of(old), texts_of(new)))

    assert len(kept) == longest_common_length(old, new)


@given(FEW_LINES, FEW_LINES)
def test_the_table_finds_a_longest_common_subsequence(old, new):
    pairs = _longest_common(old, new)

    assert [old[i] for i, _ in pairs] == [new[j] for _, j in pairs]
    assert len(pairs) == longest_common_length(old, new)
    for (i, j), (next_i, next_j) in itertools.pairwise(pairs):
        assert i < next_i
        assert j < next_j


@pytest.mark.parametrize(
    ("old", "new", "operations"),
    [
        ("", "", []),
        ("", "a\n", [(0, 0, "a\n")]),
        ("a\n", "", [(0, 2, "")]),
        ("a\nb\nc\n", "s\n", [(0, 6, "s\n")]),
        ("é\n漢\n🎉\n", "é\n字\n🎉\n", [(2, 4, "字\n")]),
        ("a\n\n", "a\nb\n", [(2, 3, "b\n")]),
        ("a\n", "a\n\n", [(2, 2, "\n")]),
        ("a\n", "a\na\n", [(2, 2, "a\n")]),
        ("l1\nl2\nl3\n", "L1\nl2\nL3\n", [(0, 3, "L1\n"), (6, 9, "L3\n")]),
        ("a\nbc", "a\nbc\n", [(2, 4, "bc\n")]),
        ("a\nbc", "x\nbc", [(0, 2, "x\n")]),
        ("a\rb\n", "a\rc\n", [(0, 4, "a\rc\n")]),
    ],
)
def test_a_change_is_written_as_these_whole_lines(old, new, operations):
    assert diff_lines(old, new) == operations


def test_repeated_lines_are_matched_up_to_the_bound_and_replaced_beyond():
    few_old, few_new = "a\nb\n" * 5_000, "b\na\n" * 5_000
    many_old, many_new = "a\nb\n" * 6_000, "b\na\n" * 6_000

    assert len(kept_lines(few_old, diff_lines(few_old, few_new))) == 9_999
    assert diff_lines(many_old, many_new) == [(0, len(many_old), many_new)]
    # Equal ends and anchors stay all the same.
    around_old = f"x\n{many_old}anchor\na\ny\n"
    around_new = f"x\n{many_new}anchor\nb\ny\n"
    end_chars = 2 + len(many_old)
    assert diff_lines(around_old, around_new) == [
        (2, end_chars, many_new),
        (end_chars + 7, end_chars + 9, "b\n"),
    ]


@given(VIEWS, VIEWS)
@example("", "a")
@example("a", "a\n")
def test_a_unified_diff_can_be_applied(old_view, new_view):
    old, new = view_lines(old_view), view_lines(new_view)
    diff = unified(old_view, new_view, label="s", from_rev=1, to_rev=2)

    assert patched(old, diff.text) == new
    body = diff.text.split("\n")[2:]
    assert diff.added == sum(line.startswith("+") for line in body)
    assert diff.removed == sum(line.startswith("-") for line in body)
    assert diff.truncated is False


@pytest.mark.parametrize(
    ("old_view", "new_view", "body", "added", "removed"),
    [
        ("a\nb", "a\nB\nc", "@@ -1,2 +1,3 @@\n a\n-b\n+B\n+c", 2, 1),
        ("a", "a\n", "@@ -1 +1,2 @@\n a\n+", 1, 0),
        ("", "🎉", "@@ -0,0 +1 @@\n+🎉", 1, 0),
        ("a\r\n\x00", "", "@@ -1,2 +0,0 @@\n-a\r\n-\x00", 0, 2),
        (
            "1\n2\n3\n4\n5\n6\n7\n8",
            "x\n2\n3\n4\n5\n6\n7\ny",
            "@@ -1,8 +1,8 @@\n-1\n+x\n 2\n 3\n 4\n 5\n 6\n 7\n-8\n+y",
            2,
            2,
        ),
        (
            "1\n2\n3\n4\n5\n6\n7\n8\n9",
            "2\n3\n4\n5\n6\n7\n8\ny",
            "@@ -1,4 +1,3 @@\n-1\n 2\n 3\n 4\n@@ -6,4 +5,4 @@\n 6\n 7\n 8\n-9\n+y",
            1,
            2,
        ),
    ],
)
def test_a_unified_diff_has_the_usual_form(old_view, new_view, body, added, removed):
    diff = unified(old_view, new_view, label="d", from_rev=0, to_rev="now")

    assert diff == UnifiedDiff(
        f"--- d@0\n+++ d@now\n{body}", added=added, removed=removed, truncated=False
    )


@given(VIEWS)
def test_equal_views_have_an_empty_diff(view):
    assert unified(view, view, label="d", from_rev=1, to_rev=1) == UnifiedDiff(
        "", added=0, removed=0, truncated=False
    )


@given(VIEWS, VIEWS, st.integers(min_value=0, max_value=120))
def test_a_cut_diff_is_as_many_whole_lines_as_fit(old_view, new_view, limit_units):
    def compare(limit_units):
        return unified(
            old_view,
            new_view,
            label="é🎉",
            from_rev=1,
            to_rev=2,
            limit_units=limit_units,
        )

    whole, cut = compare(None), compare(limit_units)

    lines = whole.text.split("\n")
    beginnings = ["", *("\n".join(lines[: n + 1]) for n in range(len(lines)))]
    assert cut == UnifiedDiff(
        max((b for b in beginnings if units_of(b) <= limit_units), key=len),
        added=whole.added,
        removed=whole.removed,
        truncated=units_of(whole.text) > limit_units,
    )


def test_a_long_diff_is_cut_at_the_default_limit():
    new_view = "0123456789\n" * 1_500 + "end"
    diff = unified("", new_view, label="d", from_rev=0, to_rev=1)

    assert (diff.added, diff.truncated) == (1_501, True)
    assert diff.text.endswith("\n+0123456789")
    assert DIFF_UNITS - 12 < units_of(diff.text) <= DIFF_UNITS


@given(
    st.lists(st.sampled_from(["a", "ab", "aab", "🎉"]), max_size=20).map("".join),
    st.lists(st.sampled_from(["a", "ab", "aab"]), min_size=1, max_size=4).map("".join),
)
@example("ababababxabab", "abab")
@example("aabaabaabaaabaabaaaab", "aabaabaa")
@example("漢🎉漢🎉漢🎉漢漢🎉漢🎉漢🎉", "漢🎉漢🎉漢")
def test_every_match_is_found_overlapping_ones_too(view, old):
    assert find_matches(view, old) == [
        at for at in range(len(view)) if view.startswith(old, at)
    ]


def test_an_empty_text_is_found_nowhere():
    assert find_matches("abc", "") == []
    assert find_matches_any_eol("a\r\nc", "") == []
    assert near_miss("abc", "") is None


def test_texts_that_repeat_themselves_are_searched_in_linear_time():
    """A search from each of the matches would read 10^11 characters."""
    assert len(find_matches("a" * 1_000_000, "a" * 500_000)) == 500_001
    assert len(find_matches("ab" * 500_000, "ab" * 250_000 + "a")) == 250_000


@given(
    st.lists(st.sampled_from(["a", "🎉", "\r", "\n", "\r\n"]), max_size=10),
    st.lists(st.sampled_from(["a", "🎉", "\r", "\n", "\r\n"]), min_size=1, max_size=4),
)
def test_line_breaks_match_each_other_as_a_whole(view_pieces, old_pieces):
    view, old = "".join(view_pieces), "".join(old_pieces)
    whole = [at for at in range(len(view) + 1) if view[at - 1 : at + 1] != "\r\n"]

    assert find_matches_any_eol(view, old) == [
        (start, end)
        for start, end in itertools.combinations(whole, 2)
        if with_eol(view[start:end], "\n") == with_eol(old, "\n")
    ]


@pytest.mark.parametrize(
    ("view", "old", "matches"),
    [
        ("one\r\ntwo\r\nthree", "one\ntwo", [(0, 8)]),
        ("é\n🎉\n", "é\r\n🎉\r\n", [(0, 4)]),
        ("x\r\nx\nx", "x\nx", [(0, 4), (3, 6)]),
        ("a\r\n", "a", [(0, 1)]),
        ("a\r\nb", "\nb", [(1, 4)]),
    ],
)
def test_a_text_is_found_whatever_its_line_breaks(view, old, matches):
    assert find_matches_any_eol(view, old) == matches


@pytest.mark.parametrize(
    ("view", "old", "hint"),
    [
        ("Hello  world\nsecond", "hello  world", ("case", 1)),
        ("Hello  world\nsecond", "Hello world", ("whitespace", 1)),
        ("Hello  world\nsecond", "zzz", None),
        ("ß\n\nSTRASSE", "straße", ("case", 3)),
        ("a\n  f(x)\n", "f( x )", ("whitespace", 2)),
        ("a\n\tb\n c", "b\nc", ("whitespace", 2)),
        ("漢字\n é\u00a0É", "é É", ("whitespace", 2)),
        ("a b", "A  B", None),
        ("a b", " \n", None),
        ("", "a", None),
    ],
)
def test_a_match_but_for_case_or_whitespace_is_a_hint(view, old, hint):
    assert near_miss(view, old) == hint


@pytest.mark.parametrize(
    ("offset_chars", "line"), [(0, 1), (1, 1), (2, 2), (3, 3), (4, 3)]
)
def test_a_newline_belongs_to_the_line_that_it_ends(offset_chars, line):
    assert line_at("🎉\n\n\u2028", offset_chars) == line


@pytest.mark.parametrize(
    ("view", "is_all"),
    [
        ("", False),
        ("a\r", False),
        ("a\n", False),
        ("a\r\n", True),
        ("a\r\nb\r\r\n", True),
        ("a\r\nb\n", False),
    ],
)
def test_a_text_is_crlf_only_if_every_break_is(view, is_all):
    assert is_all_crlf(view) is is_all


@pytest.mark.parametrize(
    ("text", "eol"),
    [("a\r\nb\n", "\r\n"), ("a\nb\r\n", "\n"), ("a\r", "\n"), ("", "\n")],
)
def test_the_first_line_break_is_that_of_the_text(text, eol):
    assert first_eol(text) == eol


def test_line_breaks_are_converted_and_lone_returns_stay():
    assert with_eol("a\r\nb\nc\rd", "\r\n") == "a\r\nb\r\nc\rd"
    assert with_eol("a\r\nb\nc\rd", "\n") == "a\nb\nc\rd"
