"""crdtmem.sets and crdtmem.compat.flink: threads on many keys while others are bound"""

import contextlib
import threading

import pytest

from crdtmem.compat.flink import CrdtLongTermMemory
from tests.conftest import PROFILE
from tests.killpoints import KillPoint, install
from tests.scenarios import opened
from tests.scratch import scratch
from tests.sets.racing import KEYS, NAME, Gate, Race

ROUNDS = {"default": 60, "campaign": 1_000}[PROFILE]
ALL = 10_000
JOB = "job"

# A verb of a set has found its binding; an adapter's has not looked for it yet.
BOUND = KillPoint("crdtmem.sets.memory_set", "MemorySet._ready", "after")
SUBMITTED = KillPoint(
    "crdtmem.compat.flink.adapter", "CrdtLongTermMemory._items_of", "before"
)


@pytest.fixture
def memory():
    with (
        scratch() as folder,
        opened(str(folder / "store.db"), durability="normal") as memory,
    ):
        yield memory


class Sets:
    """The verbs of memory sets; nothing there is ever present."""

    def __init__(self, memory):
        self.memory = memory
        # What the verbs have told of items added and removed. A list of each: adding
        # up would take a lock.
        self.told: dict[str, list[int]] = {key: [] for key in KEYS}

    def bound(self, key):
        return self.memory.bind(partition_key=key)

    def handle(self, key):
        return self.bound(key).memory_set(NAME)

    def switch(self, key):
        self.bound(key).memory_sets()

    def drop(self, key):
        self.told[key].append(-self.handle(key).drop().deleted)

    def add(self, handle, texts):
        self.told[handle.binding.partition_key].append(len(texts))
        return list(handle.add(texts).ids)

    def shown(self, handle, ids=None):
        return [(item.id, item.text) for item in handle.get(ids, limit=ALL).items]

    def found(self, handle, query):
        return [(hit.item.id, hit.item.text) for hit in handle.search(query, 100).hits]

    def delete(self, handle, ids=None):
        deleted = handle.delete(ids).deleted
        self.told[handle.binding.partition_key].append(-deleted)


class Adapter:
    """The verbs of a long-term memory, which one key after the other is present in."""

    def __init__(self, memory):
        self.ltm = CrdtLongTermMemory(memory, JOB)

    def handle(self, key):
        self.ltm.switch_context(key)
        return self.ltm.get_memory_set(NAME)

    def switch(self, key):
        self.ltm.switch_context(key)

    def drop(self, key):
        self.ltm.switch_context(key)
        self.ltm.delete_memory_set(NAME)

    def add(self, handle, texts):
        return self.ltm.add(handle, texts)

    def shown(self, handle, ids=None):
        items = self.ltm.get(handle, ids, limit=ALL)
        return [(item.id, item.value) for item in items]

    def found(self, handle, query):
        return [(item.id, item.value) for item in self.ltm.search(handle, query, 100)]

    def delete(self, handle, ids=None):
        self.ltm.delete(handle, ids)


class Astray(Sets):
    """The verbs, on whichever key was bound last: what must never be."""

    key = KEYS[0]

    def bound(self, key):
        self.key = key
        return super().bound(key)

    def add(self, handle, texts):
        return super().add(self.handle(self.key), texts)

    def shown(self, handle, ids=None):
        return super().shown(self.handle(self.key), ids)


class Failing(Sets):
    """Verbs of which one fails before it has done anything."""

    def add(self, handle, texts):
        raise LookupError


@contextlib.contextmanager
def gated(point):
    gate = Gate()
    with contextlib.ExitStack() as stack:
        stack.callback(install(point, gate.pass_by))
        yield gate


def final_items(memory, *outer):
    return {
        key: memory.bind(partition_key=(*outer, key) if outer else key)
        .memory_set(NAME)
        .get(limit=ALL)
        for key in KEYS
    }


@pytest.mark.requirement("sets-S1", "P9")
def test_no_verb_leaves_its_key_whatever_is_bound_meanwhile(memory):
    front = Sets(memory)
    with gated(BOUND) as gate:
        race = Race(front, gate, seed=1)
        race.run(ROUNDS)
    pages = final_items(memory)
    counts = {
        key: race.ledger.check(key, [item.id for item in page.items])
        for key, page in pages.items()
    }
    listed = {info.partition_key: info for info in memory.partitions()}
    print(f"{ROUNDS} interleavings, {sum(counts.values())} items left")  # noqa: T201 - the number

    assert counts == {key: sum(told) for key, told in front.told.items()}
    assert counts == {key: page.item_count for key, page in pages.items()}
    assert sum(info.item_count for info in listed.values()) == sum(counts.values())
    assert memory.doctor().ok


@pytest.mark.requirement("sets-S2", "P9")
def test_no_operation_leaves_the_key_of_its_set_whatever_is_switched_to(memory):
    front = Adapter(memory)
    with gated(SUBMITTED) as gate:
        race = Race(front, gate, seed=2)
        race.run(ROUNDS)
    pages = final_items(memory, JOB)
    counts = {
        key: race.ledger.check(key, [item.id for item in page.items])
        for key, page in pages.items()
    }
    print(f"{ROUNDS} interleavings, {sum(counts.values())} items left")  # noqa: T201 - the number

    assert counts == {key: page.item_count for key, page in pages.items()}
    assert memory.partitions(prefix=("another job",)) == []
    assert memory.doctor().ok


@pytest.mark.parametrize(
    ("front", "error"),
    [(Astray, AssertionError), (Failing, (threading.BrokenBarrierError, LookupError))],
)
def test_a_race_ends_at_a_verb_that_leaves_its_key_or_fails(memory, front, error):
    with gated(BOUND) as gate, pytest.raises(error):
        Race(front(memory), gate, seed=1).run(ROUNDS)
