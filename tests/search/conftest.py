"""What the tests of search share: handles on a store, and sets in it."""

import pytest

from crdtmem.store.indexing import index_pending
from tests.sets import conftest as sets

blank, open_lane, memory = sets.blank, sets.open_lane, sets.memory
unchanged, refusal = sets.unchanged, sets.refusal


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
