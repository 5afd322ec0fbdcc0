"""What the tests of the service share: handles on stores, and refusals."""

import itertools
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import crdtmem
from crdtmem.errors import CrdtmemError
from crdtmem.memory import Memory
from tests.conformance.slots import rows_of

START = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture
def open_lane(tmp_path: Path) -> Iterator[Callable[..., Memory]]:
    """Open a handle for a lane; those on one store see each other's writes.

    The clock ticks a millisecond a look, and nothing is synced to the disk, which no
    test here could see.
    """
    ticks = itertools.count()

    def clock() -> datetime:
        return START + timedelta(milliseconds=next(ticks))

    with ExitStack() as stack:

        def open_lane(
            lane: str = "a", *, store: str = "s", project: str = "p", **settings: Any
        ) -> Memory:
            options: dict[str, Any] = {"clock": clock, "durability": "normal"}
            path = tmp_path / store / "store.db"
            memory = crdtmem.open(
                path, lane=lane, project=project, **options | settings
            )
            stack.callback(memory.close)
            return memory

        yield open_lane


@pytest.fixture
def memory(open_lane: Callable[..., Memory]) -> Memory:
    """The handle of lane a on a fresh store."""
    return open_lane()


@pytest.fixture
def other(memory: Memory, open_lane: Callable[..., Memory]) -> Memory:
    """The handle of lane b on the same store."""
    return open_lane("b")


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
