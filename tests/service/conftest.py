"""What the tests of the service share: handles on stores, and refusals."""

import itertools
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime, timedelta

import pytest

import crdtmem
from crdtmem.errors import CrdtmemError
from crdtmem.memory import Memory
from tests.conformance.slots import rows_of

START = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture
def open_lane(tmp_path) -> Iterator[Callable[..., Memory]]:
    """Open a handle for a lane; those on one store see each other's writes.

    The clock ticks a millisecond a look, and nothing is synced to the disk, which no
    test here could see.
    """
    ticks = itertools.count()

    def clock() -> datetime:
        return START + timedelta(milliseconds=next(ticks))

    with ExitStack() as stack:

        def open_lane(lane="a", *, store="s", project="p", **settings):
            settings = {"clock": clock, "durability": "normal"} | settings
            path = tmp_path / store / "store.db"
            memory = crdtmem.open(path, lane=lane, project=project, **settings)
            stack.callback(memory.close)
            return memory

        yield open_lane


@pytest.fixture
def memory(open_lane) -> Memory:
    """The handle of lane a on a fresh store."""
    handle: Memory = open_lane()
    return handle


@pytest.fixture
def other(memory, open_lane) -> Memory:
    """The handle of lane b on the same store."""
    handle: Memory = open_lane("b")
    return handle


@pytest.fixture
def unchanged():
    """Demand that a block changes no row of any table, and makes or drops no file."""

    @contextmanager
    def unchanged(memory):
        folder = memory.path.parent
        before = rows_of(memory.path), sorted(folder.parent.rglob("*"))
        yield
        assert (rows_of(memory.path), sorted(folder.parent.rglob("*"))) == before

    return unchanged


@pytest.fixture
def refusal(unchanged):
    """Make a call that must be refused and must change nothing; return the error."""

    def refusal(memory, verb, *args, **options):
        with unchanged(memory), pytest.raises(CrdtmemError) as caught:
            verb(*args, **options)
        return caught.value

    return refusal
