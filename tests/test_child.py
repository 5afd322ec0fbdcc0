"""Processes under control: they run, report, wait, stop and die when told."""

import os
import signal

import pytest

from tests import scripts
from tests.child import ChildError, Children, barrier

pytestmark = pytest.mark.process


@pytest.fixture
def children():
    with Children() as nursery:
        yield nursery


def assert_gone(pid):
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_a_script_waits_for_the_barrier_and_returns_its_result(children):
    pair = [children.spawn(), children.spawn()]
    for number, child in enumerate(pair):
        child.start(scripts.echo, value={"n": number})
    barrier(pair)

    assert [child.result() for child in pair] == [{"n": 0}, {"n": 1}]


def test_a_child_runs_one_script_after_the_other(children):
    child = children.spawn()
    results = []
    for value in (1, "two"):
        child.start(scripts.echo, value=value)
        barrier([child])
        results.append(child.result())

    assert results == [1, "two"]


@pytest.mark.parametrize(
    ("label", "told"), [("x", "slot-not-found"), ("", "RuntimeError: planted")]
)
def test_what_a_script_raises_reaches_its_parent(children, label, told):
    child = children.spawn()
    with pytest.raises(ChildError, match=told):
        child.run(scripts.fail, label=label)

    assert [event["event"] for event in child.events] == ["failing", "raised"]


def test_a_killed_child_is_gone_and_says_so(children):
    child = children.spawn()
    child.start(scripts.echo, value=1)
    child.wait_for("ready")

    assert child.kill() == -signal.SIGKILL
    assert_gone(child.pid)


def test_a_child_that_ended_is_noticed_by_who_waits_for_it(children):
    child = children.spawn()
    child.start(scripts.echo, value=1)
    child.wait_for("ready")
    os.kill(child.pid, signal.SIGKILL)

    with pytest.raises(ChildError, match="ended"):
        child.wait_for("done")


def test_a_silent_child_is_given_up(children):
    child = children.spawn()
    child.stop()
    child.patience_s = 0

    with pytest.raises(ChildError, match="silent"):
        child.wait_for("ready")
    child.resume()
    child.kill()


def test_no_child_outlives_its_block():
    with Children() as nursery:
        idle, busy, stopped = (nursery.spawn() for _ in range(3))
        for child in (busy, stopped):
            child.start(scripts.echo, value=1)
            child.wait_for("ready")
        stopped.stop()

    for child in (idle, busy, stopped):
        assert_gone(child.pid)


def test_a_child_that_ends_badly_fails_its_block():
    nursery = Children()
    child = nursery.spawn()
    os.kill(child.pid, signal.SIGTERM)

    with pytest.raises(AssertionError, match="-15"):
        nursery.__exit__()


def test_a_fork_reports_beside_its_parent_and_gives_its_status(children):
    child = children.spawn()
    child.start(scripts.forked, script="echo", arguments={"value": 1})
    child.wait_for("ready")
    child.go()
    statuses = [child.result()]
    child.start(scripts.forked, script="fail", arguments={"label": ""})
    statuses.append(child.result())
    child.start(scripts.forked, script="echo", arguments={"value": 1})
    os.kill(child.wait_for("forked")["pid"], signal.SIGKILL)
    statuses.append(child.result())

    assert statuses == [0, 1, -signal.SIGKILL]


def test_a_pause_ends_the_process_when_its_parent_is_gone():
    nursery = Children()
    child = nursery.spawn()
    child.start(scripts.echo, value=1)
    child.wait_for("ready")
    child.close_input()

    assert child.reap() == 1
    with pytest.raises(AssertionError, match="1"):
        nursery.__exit__()
