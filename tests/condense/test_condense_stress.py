"""Passes beside writers who never wait: real processes, some of them killed."""

import contextlib
import functools
import shutil
import signal
import threading
from datetime import UTC, datetime, timedelta

import pytest

from tests import scripts
from tests.child import barrier
from tests.condense.stress_scripts import (
    BASE,
    SLOT,
    SUMMARY,
    judged,
    section,
    summarised,
)
from tests.conftest import PROFILE
from tests.killpoints import KILL_POINTS, install
from tests.oracle import token
from tests.scenarios import opened
from tests.scratch import scratch

pytestmark = pytest.mark.process

LIMIT_UNITS = 1_000_000
POINTS = sorted(name for name in KILL_POINTS if name.startswith("condense."))
LOCKED = {"condense.begin.before-commit", "condense.commit.before-commit"}
"""At these the lock is held: who appends there waits in line."""

RACES = {
    "default": [(10, 0.004, 0.002), (10, 0.0, 0.0002)],
    "campaign": [(300, 0.04, 0.02), (2_000, 0.003, 0.0002)],
}[PROFILE]
"""Passes, how long a summariser thinks, and an appender's pause."""

MANY_APPENDS = {"default": 150, "campaign": 9_000}[PROFILE]
HOOKED_PASSES = {"default": 2, "campaign": 143}[PROFILE]
KILLS = {"default": len(POINTS), "campaign": 200}[PROFILE]
LATER = timedelta(hours=2)


@pytest.fixture
def crew(nursery):
    """Give two idle children; those of earlier tests are used again."""
    idle = nursery.idle()[:2]
    return idle + [nursery.spawn() for _ in range(2 - len(idle))]


@pytest.fixture
def folder():
    with scratch() as path:
        yield path


@pytest.fixture
def path(folder):
    """A store with a slot that has much to condense."""
    make_store(folder / "store")
    return str(folder / "store" / "store.db")


def make_store(directory):
    directory.mkdir(mode=0o700)
    with opened(directory / "store.db") as memory:
        memory.create(SLOT, BASE, size_limit=LIMIT_UNITS)


def pins(memory):
    with memory.store.reading() as connection:
        return [
            connection.execute("SELECT count(*) FROM pin").get,
            connection.execute("SELECT count(*) FROM pin_step").get,
        ]


@pytest.mark.requirement("condense-21", "condense-22")
@pytest.mark.parametrize(("passes", "wait_s", "pause_s"), RACES)
def test_passes_beside_an_appender_lose_nothing_and_all_succeed(
    path, crew, passes, wait_s, pause_s
):
    condenser, appender = crew
    appender.start(scripts.append_sections, path=path, lane="b", pause_s=pause_s)
    appender.wait_for("writing")
    condenser.start(
        scripts.condense_in_rounds, path=path, lane="a", passes=passes, wait_s=wait_s
    )
    barrier([condenser])
    found = condenser.result()
    appender.go()
    tokens = {"a": found["tokens"], "b": appender.result()}

    with opened(path) as memory:
        verdict = judged(memory, tokens)
        report = memory.doctor()
        assert pins(memory) == [0, 0]
    assert found["reasons"] == {"condensed": passes}
    assert verdict.faults == {}
    assert len(verdict.stable) == sum(map(len, tokens.values()))
    assert tokens["b"]
    assert report.ok, report


@pytest.mark.requirement("condense-20")
def test_thousands_of_appends_and_a_squash_stop_no_pass(path):
    tokens = [token("b", number) for number in range(MANY_APPENDS)]
    with opened(path) as memory, opened(path, "b") as other:
        slot = memory.slot(SLOT)
        begun = slot.begin_condense(keep_sections=1, force=True)
        for number in range(MANY_APPENDS):
            other.slot(SLOT).append(f"## note\n{tokens[number]}")
            if number % (MANY_APPENDS // 3) == 0:
                memory.compact()
        result = slot.commit_condense(begun.id, SUMMARY)

        assert (result.reason, result.evicted) == ("condensed", len(begun.evicted))
        assert judged(memory, {"b": tokens}).faults == {}
        assert str(slot.read().content).count("## note\n") == MANY_APPENDS
        assert pins(memory) == [0, 0]


@pytest.mark.requirement("condense-4", "condense-8")
def test_an_append_at_any_step_of_a_pass_is_kept(path):
    tokens: dict[str, list[str]] = {f"at-{n}": [] for n in range(len(POINTS))}
    workers = []

    def append_at(number):
        lane = f"at-{number}"
        worker = threading.Thread(target=append, args=(lane, len(tokens[lane])))
        worker.start()
        workers.append(worker)
        if POINTS[number] not in LOCKED:
            worker.join()

    def append(lane, number):
        other.slot(SLOT).append(section(lane, number))
        tokens[lane].append(token(lane, number))

    with (
        opened(path) as memory,
        opened(path, "b") as other,
        contextlib.ExitStack() as stack,
    ):
        slot = memory.slot(SLOT)
        # What is loaded late must not be loaded with the points in it.
        assert slot.condense(summarised, keep_sections=1, force=True).condensed
        for number, point in enumerate(POINTS):
            act = functools.partial(append_at, number)
            stack.callback(install(KILL_POINTS[point], act))
        for number in range(HOOKED_PASSES):
            slot.append(section("own", number))
            result = slot.condense(summarised, keep_sections=1, force=True)
            for worker in workers:
                worker.join()

            assert result.reason == "condensed"
            assert {len(lane) for lane in tokens.values()} == {number + 1}
        own = [token("own", number) for number in range(HOOKED_PASSES)]
        assert judged(memory, {"own": own, **tokens}).faults == {}


@pytest.mark.requirement("condense-27", "condense-23")
def test_a_pass_killed_at_any_step_leaves_the_old_text_or_the_new_one(folder, crew):
    victim, appender = crew
    make_store(folder / "before")
    for number in range(KILLS):
        point = POINTS[number % len(POINTS)]
        directory = folder / f"round-{number}"
        shutil.copytree(folder / "before", directory)
        path = str(directory / "store.db")
        appender.start(scripts.append_sections, path=path, lane="b", pause_s=0.001)
        appender.wait_for("writing")
        status = victim.run(
            scripts.forked,
            script="condense_once",
            arguments={"path": path},
            kill_at=(point, 1),
        )
        appender.go()
        tokens = appender.result()

        assert status == -signal.SIGKILL, point
        check_after_the_kill(path, tokens, point)
        shutil.rmtree(directory)


def check_after_the_kill(path, tokens, point):
    with opened(path) as memory:
        slot = memory.slot(SLOT)
        passes = memory.condense_passes(label=SLOT)
        is_new = [each.state for each in passes] == ["committed"]
        content = str(slot.read().content)

        assert judged(memory, {"b": tokens}).faults == {}, point
        assert (SUMMARY in content) == is_new, point
        assert ("## old 0\n" in content) != is_new, point
        assert memory.doctor().ok, point
        for each in passes:
            archive = memory.condense_archive(each.id)
            text = "".join(part.text for part in archive.sections)
            assert text.startswith(BASE.partition("## old 8\n")[0]), point
        assert is_new == (point == "condense.commit.after-commit")
    later = datetime.now(UTC) + LATER
    with opened(path, clock=lambda: later) as memory:
        slot = memory.slot(SLOT)
        slot.append(section("a", 0))
        result = slot.condense(summarised, keep_sections=1, force=True)

        assert result.reason == "condensed", point
        states = [each.state for each in memory.condense_passes(label=SLOT)]
        before = {"open": ["expired"], "committed": ["committed"]}
        assert states == ["committed", *[s for p in passes for s in before[p.state]]]
        assert judged(memory, {"b": tokens, "a": [token("a", 0)]}).faults == {}, point
        assert pins(memory) == [0, 0]
