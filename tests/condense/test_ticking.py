"""crdtmem.condense.ticking: one slot never stops the others."""

import logging
import threading

import pytest

from crdtmem.condense import due, running, ticking
from crdtmem.condense.ticking import Ticker, TickReport, checked_interval
from crdtmem.errors import InvalidArgumentError
from tests.condense.plans import framed
from tests.condense.summarisers import fill


class Turns(threading.Event):
    """Ends after so many waits, and remembers how long they were to be."""

    def __init__(self, left):
        super().__init__()
        self.left = left
        self.waits = []

    def wait(self, timeout=None):
        self.waits.append(timeout)
        self.left -= 1
        return self.left < 0


class Model:
    """Summarises all slots but some, and does something on the way."""

    def __init__(self, *failing, meanwhile=lambda _: None):
        self.name = "model"
        self.failing = set(failing)
        self.meanwhile = meanwhile
        self.asked = []

    def __call__(self, begun):
        self.asked.append(begun.label)
        self.meanwhile(begun.label)
        if begun.label in self.failing:
            raise ValueError("no model")
        return framed(begun.id, "All of it, in short.", "(none)")


def sql(memory, statement):
    with memory.store.writing() as transaction:
        transaction.connection.execute(statement)


def outcomes(report):
    return {result.label: result.reason for result in report.results}


def problems(report):
    return [(p.label, p.reason, p.is_standing) for p in report.problems]


@pytest.mark.requirement("condense-28")
@pytest.mark.requirement("P8")
def test_a_tick_stops_at_no_slot_and_tells_what_stands_once(
    memory, open_lane, clock, caplog
):
    for label in ("a", "bad", "c", "sick"):
        fill(memory, label)
    memory.create("small", "text")
    sql(memory, "UPDATE slot SET quarantined = 'broken' WHERE label = 'sick'")
    model = Model("bad")
    ticker = Ticker(memory, model)

    with caplog.at_level(logging.WARNING, "crdtmem"):
        first = ticker.tick()
        second = ticker.tick()
        clock.advance(301)
        third = ticker.tick()
        clock.advance(301)
        fourth = ticker.tick()
        # The wait is in the store: it is doubled, and a restart does not shorten it.
        fifth = Ticker(open_lane(), model).tick()
        clock.advance(300)
        sixth = ticker.tick()

    assert outcomes(first) == {
        "a": "condensed",
        "bad": "summarize-failed",
        "c": "condensed",
    }
    assert problems(first) == [
        ("bad", "summarize-failed", False),
        ("sick", "slot-quarantined", False),
    ]
    assert first.problems[0].detail == "ValueError: no model"
    assert problems(second) == problems(fourth) == [("sick", "slot-quarantined", True)]
    assert problems(third) == problems(sixth)
    assert problems(third) == [
        ("bad", "summarize-failed", True),
        ("sick", "slot-quarantined", True),
    ]
    assert (outcomes(second), outcomes(fourth), outcomes(fifth)) == ({}, {}, {})
    assert model.asked == ["a", "bad", "c", "bad", "bad"]
    assert caplog.messages == [
        "slot bad is not condensed: summarize-failed",
        "slot sick is not condensed: slot-quarantined",
        "slot sick is not condensed: slot-quarantined",
    ]


def test_what_is_over_and_comes_again_is_told_again(memory, clock):
    fill(memory, "a")
    model = Model("a")
    ticker = Ticker(memory, model)

    failed = ticker.tick()
    model.failing.clear()
    clock.advance(3_600)
    mended = ticker.tick()
    memory.delete("a")
    fill(memory, "a")
    model.failing.add("a")
    again = ticker.tick()
    memory.slot("a").replace("small now", expected_rev=memory.slot("a").read().rev)
    ticker.tick()
    clock.advance(100_000)
    memory.delete("a")
    fill(memory, "a")
    once_more = ticker.tick()

    assert problems(failed) == problems(again) == problems(once_more)
    assert problems(failed) == [("a", "summarize-failed", False)]
    assert (outcomes(mended), problems(mended)) == ({"a": "condensed"}, [])


def test_a_slot_that_changes_on_the_way_is_a_problem_of_its_own(memory):
    for label in "abc":
        fill(memory, label)

    def protect(label):
        if label == "a":
            memory.slot("b").set_meta(read_only=True)

    report = Ticker(memory, Model(meanwhile=protect)).tick()

    assert outcomes(report) == {"a": "condensed", "c": "condensed"}
    assert problems(report) == [("b", "slot-read-only", False)]


def test_a_slot_that_another_condenses_is_no_problem(memory):
    fill(memory, "a")
    fill(memory, "b")

    def begin(_):
        memory.slot("b").begin_condense()

    report = Ticker(memory, Model(meanwhile=begin)).tick()

    assert outcomes(report) == {"a": "condensed", "b": "condense-busy"}
    assert problems(report) == []


def test_a_mirrored_file_that_cannot_be_read_is_a_problem(memory, monkeypatch):
    fill(memory, "a")
    fill(memory, "b")
    blocked: set[str] = set()
    monkeypatch.setattr(
        due,
        "blocked_files",
        lambda _connection, _namespace, label: [
            ("notes/b.md", "source-encoding-invalid") for _ in blocked & {label}
        ],
    )

    report = Ticker(memory, Model(meanwhile=lambda _: blocked.add("b"))).tick()

    assert outcomes(report) == {"a": "condensed", "b": "source-encoding-invalid"}
    assert problems(report) == [("b", "source-encoding-invalid", False)]
    assert report.problems[0].detail == "notes/b.md"


def test_a_bug_at_one_slot_does_not_stop_the_others(memory, monkeypatch, caplog):
    fill(memory, "a")
    fill(memory, "b")
    model = Model()

    def broken(run):
        if model.asked:
            raise RuntimeError("secret")
        return running.run_pass(run)

    monkeypatch.setattr(ticking, "run_pass", broken)

    report = Ticker(memory, model).tick()

    assert outcomes(report) == {"a": "condensed"}
    assert problems(report) == [("b", "internal-error", False)]
    assert "secret" not in str(report.to_dict())
    assert "slot b was not condensed; the others are" in caplog.text


def test_only_slots_of_the_scope_are_looked_at(memory):
    fill(memory, "a")
    text = memory.slot("a").read().content
    memory.create("g", text, scope="global", size_limit=2_000)

    report = Ticker(memory, Model(), scope="global", keep_sections=1).tick()

    (result,) = report.results
    assert (result.label, result.scope, result.kept) == ("g", "global", 1)
    assert report.at.startswith("2026-01-01T00:00:00")


def test_the_first_look_is_after_an_interval(memory):
    fill(memory, "a")
    stop = Turns(2)
    told: list[TickReport] = []

    Ticker(memory, Model()).run(60.0, stop, told.append)

    assert stop.waits == [60.0, 60.0, 60.0]
    assert [outcomes(report) for report in told] == [{"a": "condensed"}, {}]


def test_a_look_that_fails_is_made_again(memory, caplog):
    memory.close()
    told: list[TickReport] = []

    Ticker(memory, Model()).run(60.0, Turns(2), told.append)

    assert told == []
    assert caplog.text.count("no look at the slots, the next one will try") == 2


@pytest.mark.parametrize("options", [{"timeout": 0}, {"keep_sections": 0}])
def test_what_is_malformed_is_refused_at_once(memory, options):
    with pytest.raises(InvalidArgumentError):
        Ticker(memory, Model(), **options)


def test_an_interval_has_a_floor():
    assert checked_interval(60) == 60.0
    with pytest.raises(InvalidArgumentError, match="every must be between 60 and"):
        checked_interval(59)
