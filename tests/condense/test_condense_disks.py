"""crdtmem.condense.committing, where files and locks are in its way"""

from typing import Any

import apsw
import pytest

import crdtmem
from crdtmem.condense import committing
from tests.condense.plans import CONDENSED, PLAN, begin, commit, events
from tests.killpoints import replace_function
from tests.powercut import PowerCut
from tests.scratch import scratch

# -- mirrored files


def mirrored(memory, path, seen):
    with memory.store.writing() as transaction:
        transaction.connection.execute(
            "INSERT INTO mirror VALUES ('m', 'p', :folder, 1, 1, 1)",
            {"folder": str(path.parent)},
        )
        transaction.connection.execute(
            "INSERT INTO mirror_file(mirror, name, label, dev, ino, size, mtime_ns,"
            " ctime_ns, bom, eol, base, pin) VALUES"
            " ('m', :name, 'plan', 1, :ino, :size, :mtime, :ctime, 0, '', x'', 0)",
            {"name": path.name, **seen},
        )


def seen_of(path):
    found = path.stat()
    return {
        "ino": found.st_ino,
        "size": found.st_size,
        "mtime": found.st_mtime_ns,
        "ctime": found.st_ctime_ns,
    }


def test_a_mirrored_file_that_was_imported_is_not_waited_for(memory, slot, tmp_path):
    path = tmp_path / "plan.md"
    path.write_text("x", encoding="utf-8")
    mirrored(memory, path, seen_of(path))
    begun = begin(slot)

    assert commit(slot, begun).condensed


def test_a_mirrored_file_is_waited_for_until_it_is_imported(
    memory, slot, theirs, tmp_path
):
    path = tmp_path / "plan.md"
    path.write_text("x", encoding="utf-8")
    mirrored(memory, path, {**seen_of(path), "size": 0})
    begun = begin(slot)

    look = committing._has_changed

    def changed_once(*args):
        found = look(*args)
        if found:
            theirs.append("imported")
            with memory.store.writing() as transaction:
                transaction.connection.execute("UPDATE mirror_file SET size = 1")
        return found

    module = "crdtmem.condense.committing"
    put_back = replace_function(module, "_has_changed", changed_once)
    try:
        result = commit(slot, begun)
    finally:
        put_back()

    assert result.condensed
    assert slot.read().content == f"{CONDENSED}\nimported"


def test_a_mirrored_file_is_not_waited_for_for_ever(
    memory, slot, tmp_path, monkeypatch
):
    monkeypatch.setattr("crdtmem.condense.committing.CONDENSE_MIRROR_S", 0.0)
    mirrored(memory, tmp_path / "gone.md", seen_of(tmp_path))
    begun = begin(slot)

    assert commit(slot, begun).condensed


# -- disks and locks


@pytest.fixture
def folder():
    with scratch() as path:
        yield path


def states(memory, slot):
    return slot.read(), slot.history(), memory.audit(), memory.condense_passes()


@pytest.mark.requirement("condense-12")
@pytest.mark.parametrize(
    ("operation", "error"),
    [
        ("write", apsw.FullError("full")),
        ("write", apsw.IOError("broken")),
        ("sync", apsw.IOError("broken")),
    ],
)
def test_a_commit_that_the_disk_refuses_can_be_repeated(folder, operation, error):
    (folder / "store").mkdir()
    results: list[tuple[Any, Any]] = []
    with (
        PowerCut(folder / "store", makedefault=True) as disk,
        crdtmem.open(folder / "store" / "store.db", lane="a", project="p") as memory,
    ):
        memory.create("plan", PLAN, size_limit=20_000)
        slot = memory.slot("plan")
        begun = begin(slot)
        before = states(memory, slot)
        while not (results and results[-1][0].condensed):
            disk.fail(operation, "-wal", error, after=len(results))
            result = commit(slot, begun)
            disk.heal()
            results.append((result, states(memory, slot)))
        report = memory.doctor(deep=True)
        content = slot.read().content

    *refused, _ = results
    assert {result.reason for result, _ in refused} == {"swap-failed"}
    assert all(result.detail and not result.condensed for result, _ in refused)
    assert [state for _, state in refused] == [before] * len(refused)
    assert content == CONDENSED
    assert report.ok


def test_a_lock_that_is_not_had_leaves_the_pass_open(memory, slot, open_lane):
    begun = begin(slot)
    impatient = open_lane("c", busy_timeout=0.01).slot("plan")
    with memory.store.writing():
        result = commit(impatient, begun)

    assert result.reason == "swap-failed"
    assert "locked" in result.detail or "busy" in result.detail
    assert commit(impatient, begun).condensed
    assert [kind for kind, _ in events(memory)] == ["condense"]


def test_the_log_tells_of_a_refused_commit_where_it_can(folder):
    (folder / "store").mkdir()
    with (
        PowerCut(folder / "store", makedefault=True) as disk,
        crdtmem.open(folder / "store" / "store.db", lane="a", project="p") as memory,
    ):
        memory.create("plan", PLAN, size_limit=20_000)
        slot = memory.slot("plan")
        begun = begin(slot)
        disk.fail("write", "-wal", apsw.FullError("full"))
        result = commit(slot, begun)
        found = events(memory)

    assert result.reason == "swap-failed"
    assert [(kind, details["reason"]) for kind, details in found] in (
        [],
        [("condense-abort", "swap-failed")],
    )
