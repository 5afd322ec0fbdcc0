"""Many processes, one memory set: nothing lost or doubled, no text in two summaries"""

import os
import random
import shutil
import signal
from collections import Counter

import pytest

from crdtmem.sets.values import CompactionPolicy
from tests import scripts
from tests.child import ChildError, barrier
from tests.conftest import PROFILE
from tests.powercut import PowerCut
from tests.scenarios import opened
from tests.scratch import scratch
from tests.sets.set_scripts import GLUE, joined, set_of, texts_of

pytestmark = pytest.mark.process

LANES = {"default": 2, "campaign": 8}[PROFILE]
ADDS = {"default": 15, "campaign": 200}[PROFILE]
KILL_ROUNDS = {"default": 1, "campaign": 3}[PROFILE]
COMPACTIONS = {"default": 2, "campaign": 20}[PROFILE]
EVERY = {"default": 9, "campaign": 1}[PROFILE]
"""One moment in so many is looked at after a power cut."""

SOURCES = ["one", "two", "three"]
# A claim is one write, and the commit the next.
POINTS = [
    ("write.before-commit", 1),
    ("write.after-commit", 1),
    ("set.archived", 1),
    ("set.logged", 1),
    ("set.saved", 1),
    ("write.before-commit", 2),
    ("write.after-commit", 2),
]
ALL = ENDLESS = 10_000


@pytest.fixture
def folder():
    with scratch() as path:
        yield path


@pytest.fixture
def path(folder):
    return str(folder / "store.db")


class Reported:
    """What some processes have said of the items that they added and deleted."""

    def __init__(self):
        self.added, self.deleting, self.deleted = {}, set(), set()

    def take(self, events):
        for event in events:
            match event:
                case {"event": "added", "id": item, "token": text}:
                    self.added[item] = text
                case {"event": "deleting", "id": item}:
                    self.deleting.add(item)
                case {"event": "deleted", "id": item}:
                    self.deleted.add(item)

    def check(self, live):
        """Hold the items there are against it; return those that were not reported."""
        due = self.added.keys() - self.deleting
        assert due <= live.keys()
        assert self.deleted.isdisjoint(live)
        assert {item: live[item] for item in due} == {
            item: self.added[item] for item in due
        }
        return {item: text for item, text in live.items() if item not in self.added}


def killed_after(child, adds):
    """Kill a child after so many adds; return all that it has reported."""
    for _ in range(adds):
        child.wait_for("added")
    os.kill(child.pid, signal.SIGKILL)
    with pytest.raises(ChildError, match="ended"):
        child.wait_for("what it was killed before")
    assert child.reap() == -signal.SIGKILL
    return child.events


@pytest.mark.requirement("sets-M4", "P1")
def test_what_processes_added_and_did_not_delete_is_there_once(nursery, crew, path):
    chance, reported = random.Random(4), Reported()
    (survivor,) = crew(1)
    for number in range(KILL_ROUNDS):
        victims = [nursery.spawn() for _ in range(LANES - 1)]
        for place, child in enumerate([survivor, *victims]):
            child.start(
                scripts.add_and_delete,
                path=path,
                lane=f"lane-{number}-{place}",
                count=ADDS if child is survivor else ENDLESS,
            )
        barrier([survivor, *victims])
        for child in victims:
            reported.take(killed_after(child, chance.randrange(1, ADDS)))
        survivor.result()
    reported.take(survivor.events)
    with opened(path) as memory:
        notes = set_of(memory)
        live = {item.id: item.text for item in notes.get(limit=ALL).items}
        revs = [entry.rev for entry in notes.history(limit=ALL).entries]
        page, report = notes.get(limit=1), memory.doctor()

    unreported = reported.check(live)
    known = set(reported.added.values())
    # At most the one add that was under way when its process was killed.
    assert len(unreported) <= KILL_ROUNDS * (LANES - 1)
    assert known.isdisjoint(unreported.values())
    assert max(Counter(live.values()).values()) == 1
    # Each commit changed one item, and made one rev.
    assert revs == list(range(page.rev, 0, -1))
    assert page.item_count == len(live)
    assert report.ok, report


# -- a compaction that is cut short


def make_set(path):
    with opened(path, "maker") as memory:
        set_of(memory).add(SOURCES, {"kind": "source"})
        return state_of(memory)


def state_of(memory):
    """Return the items of the set without what an undo may change."""
    items = set_of(memory).get(order="oldest").items
    return [(each.id, each.text, each.metadata, each.created_at) for each in items]


def check_compacted(memory, before):
    """Check that the set is as before the compaction or after it; return which."""
    notes = set_of(memory)
    after = state_of(memory)
    if after == before:
        assert notes.headroom().rev == 1
        return "before"
    ((_, text, metadata, _),) = after
    assert text == GLUE.join(SOURCES)
    assert metadata == {"compacted": True, "count": len(SOURCES)}
    assert notes.headroom().rev == 2
    undone = notes.undo(2)
    assert sorted(undone.restored) == sorted(item for item, *_ in before)
    assert state_of(memory) == before
    return "after"


@pytest.mark.requirement("sets-K1")
def test_a_power_cut_leaves_the_set_before_or_after_its_compaction(folder):
    place = folder / "store"
    place.mkdir()
    before = make_set(place / "store.db")
    with (
        PowerCut(place, makedefault=True) as disk,
        opened(str(place / "store.db"), "compactor") as memory,
    ):
        disk.acknowledge("opened")
        set_of(memory).compact(CompactionPolicy(joined, capacity=1))
        disk.acknowledge("compacted")
    found = Counter[str]()
    for image in disk.images(since=1, every=EVERY):
        image.write_to(folder / "image")
        with opened(str(folder / "image" / "store.db"), "later") as memory:
            which = check_compacted(memory, before)
            report = memory.doctor()

            assert report.ok, report
        assert which == "after" or "compacted" not in image.acknowledged
        found[which] += 1

    assert found.keys() == {"before", "after"}


@pytest.mark.requirement("sets-K1")
def test_a_kill_leaves_the_set_before_or_after_its_compaction(crew, folder):
    (child,) = crew(1)
    origin = folder / "origin"
    origin.mkdir()
    before = make_set(origin / "store.db")
    found = []
    for number, (point, nth) in enumerate(POINTS):
        place = folder / str(number)
        shutil.copytree(origin, place)
        path = str(place / "store.db")
        status = child.run(
            scripts.forked,
            script="compact_once",
            arguments={"path": path},
            kill_at=(point, nth),
        )
        with opened(path, "later") as memory:
            which = check_compacted(memory, before)

            assert memory.doctor().ok
        found.append((status, which))

    killed = -signal.SIGKILL
    assert found == [(killed, "before")] * (len(POINTS) - 1) + [(killed, "after")]


# -- two compactions at once


@pytest.mark.requirement("sets-K3")
@pytest.mark.parametrize("late_s", [0, 660], ids=["claimed", "claim-expired"])
def test_no_item_comes_to_stand_in_two_summaries(crew, path, late_s):
    children = crew(2)
    for lane, child in zip("ab", children, strict=True):
        child.start(
            scripts.compact_in_rounds,
            path=path,
            lane=lane,
            rounds=COMPACTIONS,
            late_s=late_s if lane == "b" else 0,
        )
    for _ in range(COMPACTIONS):
        for child in children:
            child.wait_for("ready")
        # The second one finds the first one's claim, and thinks at the same time.
        for child in children:
            child.go()
            child.wait_for("thinking")
        for child in children:
            child.go()
        barrier(children, "compacted")
    first, second = (child.result() for child in children)
    with opened(path) as memory:
        texts, report = texts_of(memory), memory.doctor()

    assert sorted(texts) == sorted(first["tokens"] + second["tokens"])
    assert report.ok, report
    assert (first["busy"], second["busy"]) == (0, 0 if late_s else COMPACTIONS)
    assert first["skipped"] + second["skipped"] == (COMPACTIONS if late_s else 0)
