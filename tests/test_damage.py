"""Damaged and displaced files: found, refused or reported, and never silent."""

import shutil

import apsw
import pytest

from crdtmem.errors import CrdtmemError, StoreCorruptError, StoreNotFoundError
from tests.scenarios import opened
from tests.scratch import scratch

NEWEST = {
    "doc": "name = 'plan'",
    "history": "place = (select max(place) from history)",
    "log": "lsn = (select max(lsn) from log)",
    "slot": "label = 'plan'",
}


@pytest.fixture
def path():
    with scratch() as folder:
        store = folder / "store.db"
        with opened(str(store)) as memory:
            memory.configure(history_keep=2)
            memory.create("notes", "fine")
            memory.create("plan", "a")
            for number in range(6):
                memory.slot("plan").append(f"line {number}")
            memory.compact()
            memory.slot("plan").append("last")
        yield store


def damage(path, table, column):
    """Flip a bit at the end of one value in the closed file."""
    connection = apsw.Connection(str(path))
    value = connection.execute(
        f"select cast({column} as blob) from {table} where {NEWEST[table]}"
    ).get
    kind = connection.execute(f"select typeof({column}) from {table}").get[0]
    damaged = value[:-1] + bytes([value[-1] ^ 1])
    connection.execute(
        f"update {table} set {column} = cast(? as {kind}) where {NEWEST[table]}",
        (damaged,),
    )
    connection.close()


@pytest.mark.requirement("P8", "testing-F5")
@pytest.mark.parametrize(
    "place",
    [
        "doc.blame",
        "doc.digest",
        "doc.file",
        "doc.genesis",
        "doc.state",
        "log.at_ms",
        "log.content",
        "log.delta",
        "log.digest",
        "log.lane",
        "log.operation",
        "log.replica",
        "slot.file",
    ],
)
def test_a_flipped_bit_of_a_record_stops_its_slot_and_no_other(path, place):
    damage(path, *place.split("."))
    with opened(str(path)) as memory:
        report = memory.doctor()
        with pytest.raises(CrdtmemError) as refused:
            memory.slot("plan").append("more")
        view = memory.slot("plan").read()
        other = memory.slot("notes").append("still")

    assert not report.ok
    assert {c.label for c in report.checks if c.status == "fail"} == {"plan"}
    assert refused.value.code == "slot-quarantined"
    assert (view.quarantined, view.rev) == (True, 7)
    assert other.content == "fine\nstill"


@pytest.mark.requirement("testing-F5")
@pytest.mark.parametrize(
    "column", ["at_ms", "file", "hash", "lane", "operation", "rev", "size"]
)
def test_a_flipped_bit_of_the_history_is_found_by_the_doctor(path, column):
    damage(path, "history", column)
    with opened(str(path)) as memory:
        report = memory.doctor()

    assert not report.ok
    assert {c.id for c in report.checks if c.status == "fail"} == {"history"}


@pytest.mark.requirement("testing-F13")
def test_handles_that_came_by_different_names_write_to_one_store(path):
    alias = path.parent / "alias.db"
    alias.symlink_to(path)
    with opened(str(path)) as memory, opened(str(alias), "b") as other:
        memory.slot("notes").append("by name")
        other.slot("notes").append("by alias")
        view = memory.slot("notes").read()

    assert (view.content, view.rev) == ("fine\nby name\nby alias", 2)


@pytest.mark.requirement("testing-F13")
def test_a_write_to_a_store_whose_file_is_gone_is_refused(path):
    with opened(str(path)) as memory:
        path.unlink()
        with pytest.raises(StoreNotFoundError) as refused:
            memory.slot("notes").append("into the void")

    assert str(path) in refused.value.message
    assert not path.exists()


@pytest.mark.requirement("testing-F13")
def test_a_write_to_a_store_whose_file_was_replaced_is_refused(path):
    copy = path.parent / "copy.db"
    with opened(str(path)) as memory:
        memory.store.checkpoint()
        shutil.copyfile(path, copy)
        copy.replace(path)
        with pytest.raises(StoreCorruptError) as refused:
            memory.slot("notes").append("into the void")

    assert "another file has taken its place" in refused.value.message
    with opened(str(path)) as memory:
        assert memory.slot("notes").append("found").content == "fine\nfound"
        assert memory.doctor().ok


@pytest.mark.requirement("testing-F13")
def test_a_log_that_was_removed_from_a_closed_store_takes_nothing_along(path):
    with opened(str(path)) as memory:
        memory.slot("notes").append("kept")
    path.with_name("store.db-wal").unlink(missing_ok=True)
    with opened(str(path)) as memory:
        view, report = memory.slot("notes").read(), memory.doctor()

    assert view.content == "fine\nkept"
    assert report.ok
