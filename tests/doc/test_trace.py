"""crdtmem.doc.trace"""

import pytest
from hypothesis import given, strategies as st

from crdtmem.doc.delta import Splice
from crdtmem.doc.trace import Fate, Step, Trace, TraceRun
from tests.doc.histories import (
    HISTORIES,
    ROUGH_CHANGES,
    WRITTEN,
    History,
    rough_delta,
    tidied,
)


@given(HISTORIES)
def test_from_any_kept_text_on_the_live_runs_spell_the_text_of_today(history):
    for first, base in enumerate(history.texts):
        trace = history.trace(first)

        assert trace.text() == history.now
        assert trace.base() == base


@given(WRITTEN)
def test_each_character_has_the_fate_that_a_slow_trace_gives_it(history):
    for first in range(len(history.texts)):
        slow = history.slow_trace(first)

        assert slow.text() == history.now
        assert tidied(history.trace(first).runs) == tidied(slow.cells)


@given(st.lists(ROUGH_CHANGES, max_size=6))
def test_changes_within_lines_are_traced_too(changes):
    history = History("aé\nb🎉")
    for change in changes:
        history.write(rough_delta(history.now, change))

    assert history.trace(0).text() == history.now
    assert tidied(history.trace(0).runs) == tidied(history.slow_trace(0).cells)


def test_text_in_a_gap_goes_behind_the_deleted_text_there():
    trace = Trace("abc")
    trace.step(1, (Splice(1, 2, ""),))
    trace.step(2, (Splice(1, 1, "x"),))

    assert trace.runs == (
        TraceRun("a"),
        TraceRun("b", fates=(Fate(1),)),
        TraceRun("x", inserted_by=2),
        TraceRun("c"),
    )


def test_a_write_puts_new_text_in_front_of_what_it_replaces():
    trace = Trace("abc")
    trace.step(1, (Splice(1, 2, "x"),))

    assert trace.runs == (
        TraceRun("a"),
        TraceRun("x", inserted_by=1),
        TraceRun("b", fates=(Fate(1),)),
        TraceRun("c"),
    )


def test_an_undo_that_inserts_what_its_targets_deleted_brings_that_back():
    trace = Trace("a\nb\nc\n")
    trace.step(1, (Splice(2, 4, "x\n"),))
    trace.step(2, (Splice(2, 4, "b\n"),), frozenset({1}))

    assert trace.runs == (
        TraceRun("a\n"),
        TraceRun("x\n", inserted_by=1, fates=(Fate(2, frozenset({1})),)),
        TraceRun("b\n", fates=(Fate(1), Fate(2, frozenset({1})))),
        TraceRun("c\n"),
    )


@pytest.mark.parametrize(
    ("insert", "targets"),
    [
        ("other\n", frozenset({1})),
        ("b\n", frozenset({7})),
        ("b\n", frozenset()),
        ("b\n", None),
    ],
)
def test_any_other_text_in_a_gap_is_new(insert, targets):
    trace = Trace("a\nb\nc\n")
    trace.step(1, (Splice(2, 4, ""),))
    trace.step(2, (Splice(2, 2, insert),), targets)

    assert trace.runs == (
        TraceRun("a\n"),
        TraceRun("b\n", fates=(Fate(1),)),
        TraceRun(insert, inserted_by=2),
        TraceRun("c\n"),
    )


def test_text_that_only_returned_text_surrounds_is_found_again_in_its_gap():
    trace = Trace("abcd")
    trace.step(1, (Splice(1, 2, ""),))
    trace.step(2, (Splice(1, 2, ""),))
    trace.step(3, (Splice(1, 1, "c"),), frozenset({2}))

    assert trace.runs == (
        TraceRun("a"),
        TraceRun("b", fates=(Fate(1),)),
        TraceRun("c", fates=(Fate(2), Fate(3, frozenset({2})))),
        TraceRun("d"),
    )


@pytest.mark.parametrize(
    "delta", [(Splice(0, 4, ""),), (Splice(2, 1, ""),), (Splice(9, 9, "x"),)]
)
def test_a_delta_over_another_text_is_refused_and_changes_nothing(delta):
    trace = Trace("abc")
    trace.step(1, (Splice(0, 1, ""),))
    before = trace.runs

    with pytest.raises(ValueError, match=r"reaches to|does not ascend"):
        trace.step(2, delta)

    assert trace.runs == before


def test_a_run_would_live_without_the_writes_that_deleted_it():
    run = TraceRun("x", inserted_by=1, fates=(Fate(2),))

    assert not run.is_live_without(frozenset())
    assert not run.is_live_without(frozenset({3}))
    assert run.is_live_without(frozenset({2}))
    assert not run.is_live_without(frozenset({1, 2}))


def test_without_a_write_its_undo_and_redo_have_no_effect():
    undo, redo = Fate(3, frozenset({2})), Fate(4, frozenset({3}))
    run = TraceRun("x", fates=(Fate(2), undo, redo))

    assert not run.is_live
    assert not run.is_live_without(frozenset())
    assert run.is_live_without(frozenset({2}))
    assert not run.is_live_without(frozenset({3}))
    assert run.is_live_without(frozenset({4}))
    assert not run.is_live_without(frozenset({3, 4}))


def test_an_undo_that_deletes_other_text_than_its_targets_wrote_is_a_plain_write():
    run = TraceRun("x", inserted_by=1)

    assert run.toggled(3, frozenset({1})).fates == (Fate(3, frozenset({1})),)
    assert run.toggled(3, frozenset({2})).fates == (Fate(3),)


def test_a_long_text_that_changed_little_has_few_runs():
    trace = Trace("line\n" * 10_000)
    for number in range(20):
        trace.step(number, (Splice(5 * number, 5 * number + 5, "x\n"),))

    assert len(trace.runs) <= 61


def test_thousands_of_appends_are_a_step_each_and_not_a_walk():
    # A walk over all runs for each takes minutes, beyond the patience of the run.
    trace = Trace("line\n")
    for number in range(9_000):
        size_chars = 5 + 2 * number
        trace.step(number, (Splice(size_chars, size_chars, "x\n"),))

    assert trace.text() == "line\n" + 9_000 * "x\n"
    assert len(trace.runs) == 9_001


def test_an_undo_of_a_write_that_is_not_replayed_is_a_plain_write():
    steps = [
        Step(7, (Splice(0, 2, ""),)),
        Step(8, (Splice(0, 0, "a\n"),), frozenset({7})),
    ]
    whole, part = Trace("a\nb\n"), Trace("b\n")

    whole.replay(steps)
    part.replay(steps[1:])

    assert [[fate.number for fate in run.fates] for run in whole.runs] == [[7, 8], []]
    assert part.runs == (TraceRun("a\n", inserted_by=8), TraceRun("b\n"))
