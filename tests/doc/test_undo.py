"""crdtmem.doc.undo"""

import pytest
from hypothesis import given

from crdtmem.doc.delta import Splice, apply_delta, is_whole_lines
from crdtmem.doc.text_form import view_of
from crdtmem.doc.trace import Trace
from crdtmem.doc.undo import undo_delta
from tests.doc.histories import (
    CHANGES,
    FILES,
    PICKS,
    ROUGH_CHANGES,
    ROUGH_TEXTS,
    WRITTEN,
    History,
    changed,
    rough_delta,
)


@pytest.mark.requirement("P4")
@given(WRITTEN)
def test_undone_newest_first_a_history_goes_back_through_its_texts(history):
    last = len(history.deltas)
    for number in reversed(range(last)):
        expected = history.texts[number]
        history.undo({number})

        assert history.now == expected


@given(WRITTEN)
def test_redone_newest_first_a_history_comes_back_through_its_texts(history):
    last = len(history.deltas)
    for number in reversed(range(last)):
        history.undo({number})
    for undo in reversed(range(last, len(history.deltas))):
        expected = history.texts[undo]
        history.undo({undo})

        assert history.now == expected


@given(WRITTEN, PICKS)
def test_any_write_can_be_undone_and_redone_again_and_again(history, pick):
    number = pick % len(history.deltas)
    before, undo = history.now, history.undo({number})
    after = history.now
    for _ in range(3 if undo else 0):
        redo = history.undo({undo})
        assert history.now == before

        undo = history.undo({redo})
        assert history.now == after


@given(WRITTEN, PICKS, PICKS)
def test_a_batch_is_undone_as_if_its_writes_had_not_been(history, pick, size):
    first = pick % len(history.deltas)
    batch = range(len(history.deltas))[first : first + 1 + size % 5]
    expected = history.slow_trace(first).undone(frozenset(batch))
    is_newest = batch[-1] == len(history.deltas) - 1
    history.undo(batch)

    assert history.now == expected
    assert is_whole_lines(history.texts[-2], history.deltas[-1])
    assert not is_newest or history.now == history.texts[first]


@pytest.mark.requirement("P4")
@given(WRITTEN, PICKS)
def test_an_undo_keeps_every_line_that_was_appended_later(history, pick):
    number = pick % len(history.deltas)
    expected = ["§later§", "§last§"]
    for line in expected:
        history.append(line)
    history.undo({number})

    lines = history.now.split("\n")
    assert [line for line in lines if line in expected] == expected


@given(ROUGH_TEXTS, ROUGH_CHANGES, ROUGH_CHANGES)
def test_what_editors_did_within_lines_is_undone_in_whole_lines(base, first, second):
    history = History(base)
    for change in (first, second):
        history.write(rough_delta(history.now, change))
    before = history.now
    delta = undo_delta(history.trace(0), frozenset({0, 1}))

    assert view_of(apply_delta(before, delta)) == view_of(base)
    assert is_whole_lines(before, delta)


@given(ROUGH_TEXTS, ROUGH_CHANGES, ROUGH_CHANGES)
def test_an_undo_of_an_editors_change_glues_no_later_line(base, first, second):
    history = History(base)
    for change in (first, second):
        history.write(rough_delta(history.now, change))
    rough = range(len(history.deltas))
    later = ["§later§", "§last§"]
    for line in later:
        history.append(line)
    for number in rough:
        history.undo({number})

    assert [line for line in history.now.split("\n") if "§" in line] == later


@given(FILES, CHANGES)
def test_what_is_undone_already_leaves_nothing_to_undo(base, change):
    history = History(base)
    history.replace(changed(base, change))
    history.undo({0})

    assert undo_delta(history.trace(0), frozenset({0})) == ()


def test_lines_come_back_where_they_stood():
    history = History("a\nb\nc\n")
    history.replace("a\nc\n")
    history.replace("a\nx\nc\ny\n")
    history.undo({0})

    assert history.now == "a\nb\nx\nc\ny\n"


def test_returning_lines_stand_in_front_of_those_that_go():
    history = History("a\nb\nc\n")
    history.replace("a\nB\nc\n")

    assert undo_delta(history.trace(0), frozenset({0})) == (Splice(2, 4, "b\n"),)


def test_lines_that_came_and_went_within_a_batch_stay_away():
    history = History("a\n")
    history.append("b")
    history.replace("a\n")
    history.append("c")
    history.undo({0, 1, 2})

    assert history.now == "a\n"


def test_lines_that_went_and_came_back_within_a_batch_stay():
    history = History("a\nb\n")
    history.replace("a\n")
    history.undo({0})
    history.append("c")
    history.undo({0, 1, 2})

    assert history.now == "a\nb\n"


def test_the_same_text_gone_and_back_in_one_place_is_no_change():
    history = History("a\nb\n")
    history.write((Splice(2, 4, ""),))
    history.write((Splice(2, 2, "b\n"),))

    assert undo_delta(history.trace(0), frozenset({0, 1})) == ()


def test_what_others_have_deleted_since_leaves_nothing_to_undo():
    history = History("a\n")
    history.append("b")
    history.replace("a\n")

    assert undo_delta(history.trace(0), frozenset({0})) == ()


def test_an_undone_append_to_a_blank_line_leaves_that_under_later_appends():
    history = History("a\n\n")
    history.append("b")
    history.append("c")
    history.undo({0})

    assert history.now == "a\n\nc\n"


def test_a_redo_that_cannot_be_matched_is_still_right():
    trace = Trace("x\n")
    trace.step(5, (Splice(0, 2, ""),))
    # The undo of a write before the trace: its text is new here.
    trace.step(6, (Splice(0, 0, "x\n"),), frozenset({2}))

    assert undo_delta(trace, frozenset({6})) == (Splice(0, 2, ""),)
    assert undo_delta(trace, frozenset({5})) == (Splice(0, 0, "x\n"),)


@pytest.mark.parametrize(
    ("base", "writes", "expected"),
    [
        # The append gave the text its missing newline.
        ("abc", [Splice(3, 3, "\nd\n"), Splice(6, 6, "e\n")], "abc\ne\n"),
        ("abc", [Splice(3, 3, "\nd\n"), Splice(6, 6, "\n")], "abc\n\n"),
        # An unterminated text comes back in front of a later line.
        ("abc", [Splice(0, 3, ""), Splice(0, 0, "e\n")], "abc\ne\n"),
        # A later line in front of a kept one has lost its end.
        ("b\n", [Splice(0, 0, "a\n"), Splice(1, 1, "Y")], "Y\nb\n"),
        # A line that an editor had cut in two is one again.
        ("ab\n", [Splice(1, 1, "\n")], "ab\n"),
        ("ab\n", [Splice(1, 1, "X"), Splice(2, 2, "Y")], "aYb\n"),
    ],
)
def test_an_undo_joins_only_lines_that_were_one(base, writes, expected):
    history = History(base)
    for splice in writes:
        history.write((splice,))
    now = history.now
    delta = undo_delta(history.trace(0), frozenset({0}))

    assert apply_delta(now, delta) == expected
    assert is_whole_lines(now, delta)
