"""What the tests of condense share: handles, a clock, and a slot worth condensing."""

import threading
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta

import pytest

import crdtmem
from crdtmem.condense.running import PassRun
from tests.condense.plans import PLAN
from tests.condense.summarisers import join_summarisers


class Clock:
    """Ticks a millisecond a look, and can be put forward."""

    def __init__(self):
        self.now = datetime(2026, 1, 1, tzinfo=UTC)

    def __call__(self):
        self.advance(0.001)
        return self.now

    def advance(self, seconds):
        self.now += timedelta(seconds=seconds)


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def open_lane(tmp_path, clock):
    """Open a handle for a lane; those on one store see each other's writes."""
    with ExitStack() as stack:

        def open_lane(lane="a", *, store="s", project="p", **settings):
            options = {"clock": clock, "durability": "normal"}
            memory = crdtmem.open(
                tmp_path / store / "store.db",
                lane=lane,
                project=project,
                **options | settings,
            )
            stack.callback(memory.close)
            return memory

        yield open_lane


@pytest.fixture
def memory(open_lane):
    """The handle of lane a on a fresh store."""
    return open_lane()


@pytest.fixture
def other(memory, open_lane):
    """The handle of lane b on the same store."""
    return open_lane("b")


@pytest.fixture
def slot(memory):
    """A slot with six old sections and two new ones, and text of many scripts."""
    memory.create("plan", PLAN, size_limit=20_000)
    return memory.slot("plan")


@pytest.fixture
def theirs(slot, other):
    """The same slot as another lane has it."""
    return other.slot("plan")


@pytest.fixture
def hasty(monkeypatch):
    """Every summariser is out of time at once."""
    monkeypatch.setattr(PassRun, "timeout_s", lambda *_: 0.01)


@pytest.fixture
def gate():
    """What a summariser in a thread waits at; opened at the end, which leaves none."""
    gate = threading.Event()
    yield gate
    gate.set()
    join_summarisers()
