import os
import threading
from typing import Any

import pytest

from crdtmem.limits import OBSERVATIONS_LIST_RECORDS
from crdtmem.sets import observing
from crdtmem.sets.observing import Observations, ObservedPlace, observe
from crdtmem.sets.values import Binding, Observation

PLACE = ObservedPlace("p", "s.k", "o")


def place(observation_id):
    return PLACE._replace(observation_id=observation_id)


def note(value="x"):
    return Observation(op="GET", set="f", id="1", query=None, value=value)


def binding(**changes):
    fields = {
        "partition_key": "k",
        "encoded_key": "s.k",
        "namespace": "p",
        "scope": "project",
        "observation_id": "o",
    }
    return Binding(**fields | changes)


class FakeSession:
    """What an observation needs of a session: a place to be kept."""

    observations: Any = None


def no_session() -> Any:
    return FakeSession()


def test_a_list_is_drained_once_in_the_order_of_its_records():
    observations = Observations()
    observations.put(PLACE, [note("1"), note("2")])
    observations.put(place("other"), [note("3")])

    assert [one.value for one in observations.drain(PLACE)] == ["1", "2"]
    assert observations.drain(PLACE) == []
    assert observations.status().to_dict() == {"buffered": 1, "dropped": 0}


def test_nothing_recorded_makes_no_list():
    observations = Observations()
    observations.put(PLACE, [])

    assert not observations._lists


@pytest.mark.requirement("sets-O1")
def test_of_a_list_that_nobody_drains_the_later_records_are_dropped():
    observations = Observations()
    observations.put(PLACE, [note("first")] * (OBSERVATIONS_LIST_RECORDS - 1))
    observations.put(PLACE, [note("last"), note("too many")])
    observations.put(PLACE, [note("too many")] * 10_000)

    assert observations.status().to_dict() == {
        "buffered": OBSERVATIONS_LIST_RECORDS,
        "dropped": 10_001,
    }
    assert [one.value for one in observations.drain(PLACE)][-1] == "last"


def test_where_all_lists_are_too_long_the_oldest_goes_as_a_whole(monkeypatch):
    monkeypatch.setattr(observing, "OBSERVATIONS_RECORDS", 5)
    observations = Observations()
    for name in ("1", "2", "3"):
        observations.put(place(name), [note()] * 2)

    assert observations.status().to_dict() == {"buffered": 4, "dropped": 2}
    assert observations.drain(place("1")) == []
    assert len(observations.drain(place("2"))) == 2


def test_what_all_texts_take_is_bounded(monkeypatch):
    monkeypatch.setattr(observing, "OBSERVATIONS_BYTES", 10_000)
    observations = Observations()
    hits = ({"id": "1", "value": "x" * 6_000, "score": 1.0},)
    observations.put(place("1"), [note(hits)])
    observations.put(place("2"), [note("x" * 6_000)])

    assert observations.status().to_dict() == {"buffered": 1, "dropped": 1}
    assert len(observations.drain(place("2"))) == 1
    assert observations._bytes == 0


@pytest.mark.parametrize(
    "quiet",
    [
        {"observation_id": ""},
        {"observation_suppressed": True},
        {"observe": frozenset({"update", "search"})},
    ],
)
def test_records_that_nobody_wants_are_not_even_made(quiet):
    session = no_session()

    observe(session, binding(**quiet), "get", lambda: pytest.fail("it was made"))

    assert session.observations is None


@pytest.mark.requirement("sets-O1")
def test_a_queue_that_raises_is_counted_and_disturbs_nobody(monkeypatch):
    session = no_session()

    def broken(*_):
        raise MemoryError

    observe(session, binding(), "get", broken)
    monkeypatch.setattr(Observations, "put", broken)
    observe(session, binding(), "get", lambda: [note()])

    assert session.observations.status().to_dict() == {"buffered": 0, "dropped": 2}


def test_threads_that_begin_at_once_use_one_buffer():
    session = no_session()
    ready = threading.Barrier(4)

    def work():
        ready.wait()
        observe(session, binding(), "get", lambda: [note()])

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(session.observations.drain(PLACE)) == 4


def test_what_a_child_inherits_is_forgotten_also_a_lock_that_is_held():
    observations = Observations()
    observations.put(PLACE, [note()])
    observations._lock.acquire()

    observing._after_fork()

    assert observations.drain(PLACE) == []
    assert observations.status().to_dict() == {"buffered": 0, "dropped": 0}


@pytest.mark.process
def test_a_forked_child_starts_with_no_records_and_a_free_lock():
    observations = Observations()
    observations.put(PLACE, [note()])
    with observations._lock:
        child = os.fork()
        if child == 0:  # pragma: no cover - what the child does is not measured
            os._exit(len(observations.drain(PLACE)))
    _, status = os.waitpid(child, 0)

    assert os.waitstatus_to_exitcode(status) == 0
    assert len(observations.drain(PLACE)) == 1
