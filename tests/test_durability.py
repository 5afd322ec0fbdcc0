"""Power cuts, kills and failing disks: what was acknowledged is there.

The oracle is the same everywhere: after the reboot every slot is as it was after the
last acknowledged write, or after the one that was under way, whole; the doctor finds
nothing wrong; and the next write succeeds.
"""

import contextlib
import random
import shutil
import signal
from collections import Counter

import apsw
import pytest

import crdtmem
from crdtmem.errors import CrdtmemError, StoreError, StoreFullError
from tests import scripts
from tests.child import Children
from tests.conftest import PROFILE
from tests.killpoints import counted
from tests.powercut import Cut, PowerCut
from tests.scenarios import SCENARIOS, do_step, prepare, states_of
from tests.scratch import scratch

WRITES = 200
RUNS = range({"default": 1, "campaign": 300}[PROFILE])
EVERY = {"default": 150, "campaign": 40}[PROFILE]
"""One moment in so many is looked at; the seed shifts which."""
RECOVERIES = {"default": 2, "campaign": 100}[PROFILE]
LABELS = ("plan", "notes", "log", "todo")


OPERATIONS = {
    "append",
    "create",
    "delete",
    "edit",
    "insert",
    "meta",
    "replace",
    "restore",
    "undo",
}

Slots = dict[str, tuple[int, str]]


@pytest.fixture
def folder():
    with scratch() as path:
        yield path


def opened(directory, **options):
    return crdtmem.open(directory / "store.db", lane="a", project="p", **options)


def slots_of(memory):
    """Return rev and hash of each slot, deleted ones included."""
    found = {}
    for label in LABELS:
        try:
            current = memory.slot(label, "project").history(1).current
        except CrdtmemError:
            continue
        found[label] = current.rev, current.content_hash
    return found


class Writer:
    """Makes mixed writes, drawn from a seed, through one handle."""

    def __init__(self, memory, seed):
        self.memory = memory
        self.chance = random.Random(seed)
        self.live = set()
        self.verbs = [
            *[self.append] * 2,
            self.replace,
            self.insert,
            self.edit,
            self.undo,
            self.restore,
            self.delete,
            self.set_meta,
        ]

    def write(self):
        """Make one write; return what it was."""
        label = self.chance.choice(LABELS)
        if label not in self.live:
            self.live.add(label)
            self.memory.create(label, self.line(), size_limit=9_000)
            return "create"
        try:
            self.chance.choice(self.verbs)(self.memory.slot(label))
        except CrdtmemError:
            # Nothing to undo, no such rev any more: what always works instead.
            self.append(self.memory.slot(label))
        return self.memory.audit(limit=1)[0].operation

    def line(self):
        return f"{self.chance.randrange(10**9)} " + "é" * self.chance.randrange(60)

    def append(self, slot):
        slot.append(self.line())

    def replace(self, slot):
        base = max(0, slot.read().rev - self.chance.randrange(3))
        lines = slot.read(at_rev=base).content.split("\n")[-10:]
        lines[self.chance.randrange(len(lines))] = self.line()
        slot.replace("\n".join(lines), base_rev=base)

    def insert(self, slot):
        slot.insert(0, self.line())

    def edit(self, slot):
        old = self.chance.choice(slot.read().content.split("\n"))
        slot.edit(old, self.line(), occurrence=1)

    def undo(self, slot):
        slot.undo()

    def restore(self, slot):
        history = slot.history()
        entry = self.chance.choice([*history.entries, None])
        slot.restore(entry and entry.id, expected_rev=history.current.rev)

    def delete(self, slot):
        self.memory.delete(slot.label)
        self.live.remove(slot.label)

    def set_meta(self, slot):
        slot.set_meta(size_limit=self.chance.randrange(8_000, 9_000))


@contextlib.contextmanager
def on_a_disk(directory, **options):
    """Give a disk that records, and a handle on a store that lies on it."""
    directory.mkdir()
    with (
        PowerCut(directory, makedefault=True) as disk,
        opened(directory, **options) as memory,
    ):
        yield disk, memory


def record(directory, seed, *, writes=WRITES):
    """Make writes on a disk that records; return it and the slots after each write."""
    states: list[Slots] = [{}]
    operations: Counter[str] = Counter()
    with on_a_disk(directory) as (disk, memory):
        writer = Writer(memory, seed)
        for number in range(writes):
            operations[writer.write()] += 1
            disk.acknowledge(number)
            states.append(slots_of(memory))
    return disk, states, operations


def complaints(directory, allowed):
    """Return what the oracle has against a store."""
    with opened(directory) as memory:
        found = slots_of(memory)
        report = memory.doctor()
        written = memory.slot("persona").append("the next write")
    return [
        *([] if found in allowed else [f"{found} is none of {allowed}"]),
        *(check for check in report.checks if check.status == "fail"),
        *([] if written.changed and written.durable else [written]),
    ]


@pytest.mark.requirement("P1", "testing-F2", "testing-F1")
@pytest.mark.parametrize("seed", RUNS)
def test_a_power_cut_or_kill_at_any_moment_loses_nothing_acknowledged(folder, seed):
    """An image whose unsynced writes are all kept is what a kill leaves behind."""
    disk, states, operations = record(folder / "store", seed)
    looked_at = 0
    for image in disk.images(seed=seed, every=EVERY):
        image.write_to(folder / "image")
        allowed = states[len(image.acknowledged) :][:2]

        assert complaints(folder / "image", allowed) == [], image
        looked_at += 1
    assert set(operations) == OPERATIONS
    assert looked_at > 50


@pytest.mark.requirement("P1", "testing-F2")
def test_a_power_cut_while_the_store_is_made_leaves_a_store_or_none(folder):
    disk, states, _ = record(folder / "store", 0, writes=1)
    for image in disk.images(every={"default": 3, "campaign": 1}[PROFILE]):
        image.write_to(folder / "image")
        allowed = states[len(image.acknowledged) :][:2]

        assert complaints(folder / "image", allowed) == [], image


@pytest.mark.requirement("testing-F2")
def test_the_power_may_go_again_during_recovery(folder):
    disk, states, _ = record(folder / "store", 7, writes=30)
    outer = list(disk.images(since=10, cuts=[Cut.TORN]))
    step = max(1, len(outer) // RECOVERIES)
    for image in outer[::step]:
        allowed = states[len(image.acknowledged) :][:2]
        image.write_to(folder / "again")
        with PowerCut(folder / "again", makedefault=True) as second:
            complaints(folder / "again", allowed)
        for inner in second.images(every={"default": 12, "campaign": 3}[PROFILE]):
            inner.write_to(folder / "image")

            assert complaints(folder / "image", allowed) == [], inner


def test_the_oracle_finds_a_store_that_does_not_sync(folder):
    """Durability ``normal`` may lose the newest writes, and is seen to."""
    states: list[Slots] = [{}]
    durable = set()
    with on_a_disk(folder / "store", durability="normal") as (disk, memory):
        for number, label in enumerate(LABELS):
            durable.add(memory.create(label, "text").durable)
            disk.acknowledge(number)
            states.append(slots_of(memory))
    lost = 0
    for image in disk.images(since=1, cuts=[Cut.LOST]):
        image.write_to(folder / "image")
        done = len(image.acknowledged)
        lost += complaints(folder / "image", states[done : done + 2]) != []

    assert durable == {False}
    assert lost > 0


@pytest.mark.requirement("testing-F4")
def test_a_full_disk_refuses_the_write_and_changes_nothing(folder):
    refusals: list[tuple[StoreFullError, object]] = []
    with on_a_disk(folder / "store") as (disk, memory):
        memory.create("plan", "base")
        slot = memory.slot("plan")
        before = states_of(memory), memory.audit(), slot.read()
        is_full = True
        while is_full:
            disk.fail("write", "-wal", apsw.FullError("full"), after=len(refusals))
            try:
                slot.append("more", request_id="r")
                is_full = False
            except StoreFullError as exc:
                refusals.append((exc, (states_of(memory), memory.audit(), slot.read())))
        disk.heal()
        last = slot.append("after")

    assert len(refusals) > 1
    assert all(str(folder / "store") in exc.message for exc, _ in refusals)
    assert [found for _, found in refusals] == [before] * len(refusals)
    assert last.content == "base\nmore\nafter"
    assert complaints(folder / "store", [{"plan": (2, last.content_hash)}]) == []


@pytest.mark.requirement("testing-F3")
@pytest.mark.parametrize("operation", ["write", "sync"])
def test_a_write_after_which_the_disk_fails_is_not_reported_as_done(folder, operation):
    with on_a_disk(folder / "store") as (disk, memory):
        memory.create("plan", "base")
        slot = memory.slot("plan")
        disk.fail(operation, "-wal", apsw.IOError("broken"))
        with pytest.raises(StoreError) as raised:
            slot.append("more", request_id="r")
        again = slot.append("more", request_id="r")
        last = slot.append("after")

    assert raised.value.code == "store-corrupt"
    assert again.content == "base\nmore"
    assert last.content == "base\nmore\nafter"
    assert complaints(folder / "store", [{"plan": (2, last.content_hash)}]) == []


@pytest.mark.process
@pytest.mark.requirement("testing-F4")
def test_a_file_that_may_not_grow_is_a_full_disk(folder):
    with opened(folder) as memory:
        memory.create("plan", "base")
        memory.create("notes")
    with Children() as children:
        told = children.spawn().run(scripts.fill_up, path=str(folder / "store.db"))
    with opened(folder) as memory:
        content, report = memory.slot("plan").read().content, memory.doctor()

    assert told["refused"]["error"]["code"] == "store-full"
    assert told["read"]["content"] == "base"
    assert told["written"]["content"] == content == "base\nmore"
    assert report.ok


@pytest.fixture(scope="module")
def child():
    with Children() as children:
        yield children.spawn()


@pytest.mark.process
@pytest.mark.requirement("P1", "P7", "testing-F1")
@pytest.mark.parametrize("name", SCENARIOS)
def test_a_step_killed_at_any_point_is_whole_or_absent_and_written_once(
    name, folder, child
):
    before = prepare(name, folder / "before")
    shutil.copytree(folder / "before", folder / "after")
    with counted() as passed:
        after = do_step(name, folder / "after")
    for point, times in passed.items():
        for nth in range(1, times + 1):
            directory = folder / f"{point}-{nth}"
            shutil.copytree(folder / "before", directory)
            kill_during(child, name, directory, (point, nth))
            with opened(directory) as memory:
                found, report = states_of(memory), memory.doctor()

            where = f"{name} killed at {point}, {nth}"
            assert report.ok, (where, report)
            for label, state in found.items():
                assert state in (before[label], after[label]), where
            assert do_step(name, directory) == after, where

    assert passed["write.before-commit"] + passed["checkpoint.before"] > 0


def kill_during(child, name, directory, kill_at):
    arguments = {"folder": str(directory), "scenario": name}
    status = child.run(
        scripts.forked, script="play", arguments=arguments, kill_at=kill_at
    )
    assert status == -signal.SIGKILL
