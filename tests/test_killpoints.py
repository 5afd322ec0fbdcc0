"""Kill points: each stands for a place in the product, and is passed."""

import pytest

import tests.oracle
from tests.killpoints import KILL_POINTS, KillPoint, counted, install
from tests.oracle import Verdict, token
from tests.scenarios import SCENARIOS, do_step, prepare
from tests.scratch import scratch


def test_a_point_before_a_function_is_passed_before_it_does_anything():
    events = []
    point = KillPoint("tests.oracle", "token", "before")

    uninstall = install(point, lambda: events.append("passed"))
    events.append(tests.oracle.token("a", 1))
    uninstall()

    assert events == ["passed", "a#00001=" + token("a", 1)[8:]]
    assert tests.oracle.token("a", 1) == token("a", 1)
    assert events[2:] == []


def test_a_point_is_found_in_each_module_that_imported_the_function():
    events = []

    uninstall = install(
        KillPoint("tests.oracle", "token", "after"), lambda: events.append("passed")
    )
    token("a", 1)
    uninstall()
    token("a", 1)

    assert events == ["passed"]


def test_a_point_acts_at_its_nth_passing_only():
    calls = iter(range(10))
    acted = []
    point = KillPoint("tests.oracle", "token", "before")

    uninstall = install(point, lambda: acted.append(number), nth=3)
    for number in calls:
        token("a", number)
    uninstall()

    assert acted == [2]


def test_a_method_is_wrapped_on_its_class():
    events = []
    original = Verdict.__eq__

    uninstall = install(
        KillPoint("tests.oracle", "Verdict.__eq__", "after"),
        lambda: events.append("passed"),
    )
    assert Verdict() == Verdict()
    uninstall()

    assert events == ["passed"]
    assert Verdict.__eq__ is original


def test_every_point_stands_for_a_place_that_some_scenario_passes():
    with scratch() as folder, counted() as passed:
        for name in SCENARIOS:
            prepare(name, folder / name)
            do_step(name, folder / name)

    assert set(passed) == set(KILL_POINTS)


def test_a_point_whose_function_is_gone_is_an_error():
    with pytest.raises(AttributeError):
        install(KillPoint("tests.oracle", "Verdict.gone", "after"), lambda: None)
