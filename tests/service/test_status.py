import pytest

from crdtmem.status import SCHEMA_VERSION


def test_a_status_says_where_the_store_is_and_what_it_holds(memory):
    memory.create("t", "x")
    memory.create("g", scope="global")
    memory.create("gone")
    memory.delete("gone")

    status = memory.status()

    assert (status.path, status.lane, status.project) == (str(memory.path), "a", "p")
    assert (status.project_source, status.durability) == ("option", "normal")
    assert (status.slots, status.history_keep, status.read_only) == (2, 20, False)
    assert status.schema_version == SCHEMA_VERSION == 1
    assert len(status.replica) == 32
    assert status.records == 5
    assert (status.bytes > 0, status.wal_bytes > 0) == (True, True)
    assert status.warnings == ()


def test_a_status_sees_only_its_project(memory, open_lane):
    open_lane(project="q").create("t", "x")

    assert memory.status().slots == 0


def test_a_status_warns_of_full_and_damaged_slots(memory):
    memory.create("full", "x" * 80, size_limit=100)
    memory.create("bad", "x", scope="global")
    with memory.store.writing() as transaction:
        statement = "UPDATE slot SET quarantined = 'why' WHERE label = 'bad'"
        transaction.connection.execute(statement)

    full, bad = memory.status().warnings
    assert full.startswith(
        "slot 'full': slot is 80 % full, 20 characters free: compact"
    )
    assert bad == "slot 'bad' is quarantined: why"


@pytest.mark.parametrize("read_only", [False, True])
def test_a_status_writes_nothing(memory, open_lane, unchanged, read_only):
    memory.create("t", "x")
    memory.store.checkpoint()
    reader = open_lane(read_only=read_only)

    with unchanged(memory):
        status = reader.status()

    assert (status.read_only, status.wal_bytes) == (read_only, 0)


def test_a_store_without_a_log_on_disk_has_none(memory, open_lane):
    memory.create("t", "x")
    memory.close()
    opened = open_lane()
    (opened.path.parent / "store.db-wal").unlink(missing_ok=True)

    assert opened.status().wal_bytes == 0
