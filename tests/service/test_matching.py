import pytest
from hypothesis import given, strategies as st

from crdtmem.errors import EditError
from crdtmem.matching import Match, edited, matches_in
from crdtmem.models import UNSET

TEXTS = st.text("ab\r\n", max_size=12)


def spans(view, old, which=UNSET, span=None):
    matches = matches_in(view, old, which, span, label="t")
    return [(m.start_chars, m.end_chars) for m in matches]


def refusal_of(view, old, which=UNSET, span=None):
    with pytest.raises(EditError) as caught:
        matches_in(view, old, which, span, label="t")
    return caught.value


def after(view, old, new, which=UNSET, span=None):
    return edited(view, matches_in(view, old, which, span, label="t"), new)


def test_one_match_needs_no_number():
    assert spans("one two", "two") == [(4, 7)]


def test_matches_are_counted_overlapping():
    error = refusal_of("aaa", "aa")

    assert error.code == "text-ambiguous"
    assert error.details == {"count": 2, "lines": [1, 1]}
    assert [spans("aaa", "aa", n) for n in (1, 2)] == [[(0, 2)], [(1, 3)]]


def test_all_matches_are_taken_from_the_left_without_overlaps():
    assert spans("aaaaa", "aa", "all") == [(0, 2), (2, 4)]
    assert spans("a", "a", "all") == [(0, 1)]


def test_an_ambiguous_text_names_its_lines_at_most_fifty():
    few, many = refusal_of("x\ny\nx", "x"), refusal_of("x\n" * 60, "x")

    assert few.details == {"count": 2, "lines": [1, 3]}
    assert "stands 2 times in slot 't', in lines 1, 3" in few.message
    assert few.hint
    assert many.details == {"count": 60, "lines": list(range(1, 51))}


@pytest.mark.parametrize("which", [UNSET, 1, "all"])
def test_a_text_that_is_not_there_is_not_found(which):
    error = refusal_of("one", "two", which)

    assert (error.code, error.details) == ("text-not-found", {"count": 0})
    assert error.message == "the text is not in slot 't'"
    assert "crdtmem get t" in error.hint


def test_a_number_beyond_the_count_is_not_found():
    error = refusal_of("a a", "a", 3)

    assert (error.code, error.details) == ("text-not-found", {"count": 2})
    assert "which has 2 of it" in error.message


@pytest.mark.parametrize(
    ("view", "old", "why", "line"),
    [
        ("x\nHello", "hello", "case", 2),
        ("x\na  b", "a b", "whitespace", 2),
        ("a\tb", "a b", "whitespace", 1),
    ],
)
def test_what_nearly_matched_is_named(view, old, why, line):
    error = refusal_of(view, old)

    assert error.details == {"count": 0, "hint": why, "line": line}
    assert f"line {line} differs only in {why}" in error.message


@pytest.mark.parametrize(
    ("old", "span", "found"),
    [
        ("x", (2, 2), [(2, 3)]),
        ("x", (2, 9), None),
        ("x\n", (2, 2), [(2, 4)]),
        ("x\nx", (2, 3), [(2, 5)]),
        ("x\nx", (2, 2), []),
        ("x", (7, 9), []),
    ],
)
def test_only_matches_wholly_inside_the_lines_count(old, span, found):
    view = "x\nx\nx"
    if found:
        assert spans(view, old, span=span) == found
    else:
        code = refusal_of(view, old, span=span).code
        assert code == ("text-ambiguous" if found is None else "text-not-found")


def test_unicode_forms_and_case_all_count():
    assert refusal_of("é", "e\u0301").code == "text-not-found"
    assert spans("e\u0301", "e\u0301") == [(0, 2)]


def test_a_newline_matches_crlf_where_it_stands_nowhere_as_such():
    assert after("a\r\nb", "a\nb", "c\nd") == ("c\r\nd", (1, 2))
    assert after("a\nb", "a\r\nb", "c\r\nd") == ("c\nd", (1, 2))


def test_breaks_become_crlf_where_all_of_the_text_are():
    assert after("a\r\nb", "b", "c\nd") == ("a\r\nc\r\nd", (2, 3))
    assert after("a\r\nb\nc", "b", "d\ne") == ("a\r\nd\ne\nc", (2, 3))


def test_half_a_crlf_is_no_match_of_its_own():
    assert after("a\r\nb", "\nb", "\nc") == ("a\r\nc", (1, 2))
    assert after("a\r\nb", "\n", " ") == ("a b", (1, 1))
    assert after("\r\n\r\n", "\n\r", "x", 1)[0] == "\rx\n"
    # A plain match beside the half one must not become the only one.
    assert refusal_of("a\r\nx\nx", "\nx").details == {"count": 2, "lines": [1, 2]}


def test_the_new_text_is_verbatim():
    assert after("a", "a", r"$& \1 %s \g<0>")[0] == r"$& \1 %s \g<0>"


def test_the_lines_are_those_of_the_new_text():
    assert after("a\nb\nc", "b", "x\ny") == ("a\nx\ny\nc", (2, 3))
    assert after("a\nb\nc", "\nb", "") == ("a\nc", (1, 1))
    assert after("k\nv\nk", "k", "1\n2", "all") == ("1\n2\nv\n1\n2", (1, 5))


@given(TEXTS, st.text("ab\r\n", min_size=1, max_size=3), TEXTS)
def test_nothing_outside_the_matches_changes(view, old, new):
    try:
        matches = matches_in(view, old, "all", None, label="t")
    except EditError:
        assert old not in view
        return
    content, _ = edited(view, matches, new)

    assert matches == sorted(matches)
    ends = [0, *(m.end_chars for m in matches)]
    starts = [*(m.start_chars for m in matches), len(view)]
    at_chars = 0
    for start, end in zip(ends, starts, strict=True):
        at_chars = content.index(view[start:end], at_chars) + end - start
    assert ends == sorted(ends)


@given(TEXTS, st.text("ab", min_size=1, max_size=2), st.text("cd", max_size=2))
def test_all_replaces_as_python_does_where_no_break_is_in_it(view, old, new):
    if old not in view:
        return
    matches = matches_in(view, old, "all", None, label="t")

    assert edited(view, matches, new)[0] == view.replace(old, new)


def test_a_match_knows_whether_its_breaks_differed():
    assert matches_in("a\r\nb", "a\nb", UNSET, None, label="t") == [
        Match(0, 4, is_loose=True)
    ]
