"""One process writes, another searches; a third one dies while it indexes"""

import signal
from typing import Any

import pytest

from crdtmem.store.indexing import count_pending, index_faults
from tests import scripts
from tests.conftest import PROFILE
from tests.scenarios import opened
from tests.scratch import scratch
from tests.search.search_scripts import numbered

pytestmark = pytest.mark.process

ADDS = {"default": 10, "campaign": 1_000}[PROFILE]
KILLS = {
    "default": [("index.mid", 1), ("index.mid", 70), ("index.before-commit", 2)],
    "campaign": [
        *(("index.mid", nth) for nth in range(1, 130)),
        *(("index.before-commit", nth) for nth in (1, 2, 3)),
    ],
}[PROFILE]
ITEMS = 130


@pytest.fixture
def child(nursery):
    return (nursery.idle() or [nursery.spawn()])[0]


@pytest.fixture
def path():
    with scratch() as folder:
        yield str(folder / "store.db")


def numbers(memory, query, limit=1_000):
    result = numbered(memory).search(query, limit)
    items: list[Any] = [hit.item for hit in result.hits]
    return [int(item.text.removeprefix("item number")) for item in items]


def state(memory):
    with memory.store.snapshot() as connection:
        return index_faults(connection), count_pending(connection)


@pytest.mark.requirement("sets-Q3")
def test_an_item_is_found_from_its_commit_on(child, path):
    with opened(path) as memory:
        child.start(scripts.add_numbered, path=path, first=0, count=ADDS)
        for number in range(ADDS):
            child.wait_for("ready")
            assert numbers(memory, f"number{number}") == []
            child.go()
            child.wait_for("added")
            assert numbers(memory, f"number{number}") == [number]
            memory.index(rows=number % 3)
        child.result()

        assert numbers(memory, "item") == [*reversed(range(ADDS))]
        assert state(memory)[0] == []


@pytest.mark.requirement("sets-Q3")
@pytest.mark.parametrize("kill_at", KILLS)
def test_a_process_that_dies_while_it_indexes_hides_nothing(child, path, kill_at):
    with opened(path) as memory:
        numbered(memory).add([f"item number{number}" for number in range(ITEMS)])
    status = child.run(
        scripts.forked,
        script="index_everything",
        arguments={"path": path},
        kill_at=kill_at,
    )
    with opened(path) as memory:
        faults, pending = state(memory)
        found = numbers(memory, "item")
        memory.index()

        assert status == -signal.SIGKILL
        assert (faults, 0 < pending <= ITEMS) == ([], True)
        assert sorted(found) == [*range(ITEMS)]
        assert numbers(memory, "item") == found
        assert state(memory) == ([], 0)
