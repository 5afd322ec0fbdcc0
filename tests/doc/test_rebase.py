"""crdtmem.doc.rebase"""

import pytest
from hypothesis import given, strategies as st

from crdtmem.doc.delta import Splice, apply_delta, is_whole_lines
from crdtmem.doc.rebase import merge_delta
from crdtmem.doc.text_form import file_of, lines_of, view_of
from tests.doc.histories import (
    CHANGES,
    FILES,
    HISTORIES,
    ROUGH_CHANGES,
    ROUGH_TEXTS,
    History,
    changed,
    rough_delta,
)


def merged(history, content_file):
    """Merge a change of the first text, and check that it is of whole lines."""
    delta = merge_delta(history.trace(0), history.texts[0], content_file)

    assert is_whole_lines(history.now, delta)
    return apply_delta(history.now, delta)


@pytest.mark.parametrize(
    ("base", "other", "content", "expected"),
    [
        # What others deleted is not brought back.
        ("keep\nsecret\nend\n", "keep\nend\n", "KEEP\nsecret\nend\n", "KEEP\nend\n"),
        # What others appended stays behind a rewrite of all that the caller saw.
        ("alpha\nbeta\n", "alpha\nbeta\ndelta\n", "summary\n", "summary\ndelta\n"),
        ("1\n2\n3\n4\n", "L1\n2\n3\n4\n", "1\n2\n3\nL4\n", "L1\n2\n3\nL4\n"),
        # What the caller did not see is not deleted.
        ("a\nb\n", "a\nb\nc\n", "", "c\n"),
        # A line that both changed: both stay, each whole.
        ("a\nb\nc\n", "a\nB\nc\n", "a\nβ\nc\n", "a\nβ\nB\nc\n"),
        # Both deleted it.
        ("a\nb\nc\n", "a\nc\n", "a\nc\n", "a\nc\n"),
        # An insert stands directly behind what stood in front of it.
        ("a\nb\n", "a\nx\nb\n", "a\ny\nb\n", "a\ny\nx\nb\n"),
        ("a\nb\n", "x\na\nb\n", "y\na\nb\n", "y\nx\na\nb\n"),
        ("", "x\n", "y\n", "y\nx\n"),
        ("a\n", "a\n", "a\nb\n", "a\nb\n"),
        ("a\n", "b\n", "a\n", "b\n"),
    ],
)
def test_a_stale_change_is_made_to_the_text_of_today(base, other, content, expected):
    history = History(base)
    history.replace(other)

    assert merged(history, content) == expected


@given(HISTORIES, CHANGES)
def test_a_merge_gives_what_a_slow_trace_gives(history, change):
    content = changed(history.texts[0], change)
    slow = history.slow_trace(0)

    assert merged(history, content) == slow.merged(history.texts[0], content)


@pytest.mark.requirement("P3")
@given(HISTORIES, CHANGES)
def test_every_line_that_the_caller_did_not_see_stays_whole_and_once(history, change):
    content = changed(history.texts[0], change)
    before = [line for line in lines_of(history.now) if "§" in line]

    after = [line for line in lines_of(merged(history, content)) if "§" in line]
    assert after == before


@given(HISTORIES)
def test_a_change_of_nothing_merges_to_nothing(history):
    assert merge_delta(history.trace(0), history.texts[0], history.texts[0]) == ()


@given(FILES, CHANGES)
def test_with_nothing_written_since_the_text_becomes_the_callers(base, change):
    history = History(base)
    content = changed(base, change)

    assert merged(history, content) == content


@given(ROUGH_TEXTS, st.lists(ROUGH_CHANGES, max_size=3), CHANGES)
def test_merges_over_editors_changes_are_of_whole_lines(base, rough, change):
    history = History(base)
    for edit in rough:
        history.write(rough_delta(history.now, edit))
    content = changed(file_of(view_of(base)), change)

    known = {view_of(line) for line in [*lines_of(history.now), *lines_of(content)]}
    assert {view_of(line) for line in lines_of(merged(history, content))} <= known


@pytest.mark.parametrize(
    ("base", "writes", "content", "expected"),
    [
        # Others appended to a text without a final newline.
        ("a\nb", [Splice(3, 3, "\nc\n")], "a\n", "a\nc\n"),
        ("a\nb", [Splice(3, 3, "\nc\n")], "a\nb\n", "a\nb\nc\n"),
        ("a\nb", [Splice(3, 3, "\nc\n")], "a\nb\nd\n", "a\nb\nd\nc\n"),
        # An editor left none since.
        ("a\nb\n", [Splice(3, 4, "")], "a\nb\nc\n", "a\nb\nc\n"),
        ("a\nb\n", [Splice(3, 4, "x")], "a\nB\n", "a\nB\nbx"),
        # An editor changed a line that the caller deletes: it stays, with its change.
        ("a\nbc\nd\n", [Splice(3, 3, "X")], "a\nd\n", "a\nbXc\nd\n"),
        ("a\nbc\nd\n", [Splice(3, 3, "X")], "a\ne\nd\n", "a\ne\nbXc\nd\n"),
        # An editor joined lines of which the caller deletes one.
        ("ab\ncd\ne\n", [Splice(1, 4, "")], "cd\ne\n", "ad\ne\n"),
        ("ab\ncd\ne\n", [Splice(1, 4, "")], "e\n", "e\n"),
        # An insert waits for the end of the line that stands there now.
        ("ab\ncd\n", [Splice(2, 3, "")], "ab\nX\ncd\n", "abcd\nX\n"),
    ],
)
def test_a_merge_tears_no_line_that_an_editor_left(base, writes, content, expected):
    history = History(base)
    for splice in writes:
        history.write((splice,))

    assert merged(history, content) == expected


def test_a_trace_of_another_text_is_refused():
    history = History("a\n")
    history.append("b")

    with pytest.raises(ValueError, match="begins with another text"):
        merge_delta(history.trace(0), "a\nb\n", "c\n")
