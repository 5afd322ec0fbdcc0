"""What the tests of memory sets share: handles on a store, and sets in it."""

import itertools
import shutil
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import crdtmem
from crdtmem.errors import CrdtmemError
from tests.conformance.slots import rows_of

START = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture(scope="session")
def blank(tmp_path_factory):
    """A store that holds nothing: copying it takes a tenth of making one."""
    path = tmp_path_factory.mktemp("blank") / "store.db"
    crdtmem.open(path, lane="a", project="p").close()
    return path


@pytest.fixture
def open_lane(tmp_path, blank):
    """Open a handle for a lane; those on one store see each other's writes.

    The clock ticks a millisecond a look, and nothing is synced to the disk, which no
    test here could see.
    """
    ticks = itertools.count()

    def clock():
        return START + timedelta(milliseconds=next(ticks))

    with ExitStack() as stack:

        def open_lane(lane="a", *, store="s", project="p", **settings):
            options: Any = {"clock": clock, "durability": "normal"} | settings
            path = tmp_path / store / "store.db"
            if not path.exists():
                path.parent.mkdir(mode=0o700)
                shutil.copy(blank, path)
            memory = crdtmem.open(path, lane=lane, project=project, **options)
            stack.callback(memory.close)
            return memory

        yield open_lane


@pytest.fixture
def memory(open_lane):
    """The handle of lane a on a fresh store."""
    return open_lane()


@pytest.fixture
def facts(memory):
    """A set of one key, whose operations are observed."""
    bound = memory.bind(partition_key="k", observation_id="o")
    return bound.memory_set("facts")


@pytest.fixture
def drained(memory):
    """Return what was recorded since the last time, each as its JSON form."""

    def drained(key="k", observation_id="o"):
        records = memory.drain_observations(key, observation_id)
        return [record.to_dict() for record in records]

    return drained


@pytest.fixture
def unchanged(memory):
    """Demand that a block changes no row of any table."""

    @contextmanager
    def unchanged():
        before = rows_of(memory.path)
        yield
        assert rows_of(memory.path) == before

    return unchanged


@pytest.fixture
def refusal(unchanged):
    """Make a call that must be refused and must change nothing; return the error."""

    def refusal(verb, *args, **options):
        with unchanged(), pytest.raises(CrdtmemError) as caught:
            verb(*args, **options)
        return caught.value

    return refusal
