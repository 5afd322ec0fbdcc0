"""What the tests of search share: handles on a store, and sets in it."""

import itertools
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import crdtmem
from crdtmem.errors import CrdtmemError
from crdtmem.store.indexing import index_pending
from tests.conformance.slots import rows_of

START = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture
def open_lane(tmp_path):
    """Open a handle for a lane; the clock ticks a millisecond a look."""
    ticks = itertools.count()

    def clock():
        return START + timedelta(milliseconds=next(ticks))

    with ExitStack() as stack:

        def open_lane(lane="a", *, store="s", project="p", **settings):
            options: Any = {"clock": clock, "durability": "normal"} | settings
            path = tmp_path / store / "store.db"
            memory = crdtmem.open(path, lane=lane, project=project, **options)
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
def facts(memory):
    """A set of one key."""
    return memory.bind(partition_key="k").memory_set("facts")


@pytest.fixture
def index(memory):
    """Index so many of the pending texts, or all."""

    def index(rows=1_000_000):
        return index_pending(memory.store, rows, wait_s=5)

    return index


@pytest.fixture
def refusal(memory):
    """Make a call that must be refused and must change nothing; return the error."""

    @contextmanager
    def unchanged():
        before = rows_of(memory.path)
        yield
        assert rows_of(memory.path) == before

    def refusal(verb, *args, **options):
        with unchanged(), pytest.raises(CrdtmemError) as caught:
            verb(*args, **options)
        return caught.value

    return refusal
