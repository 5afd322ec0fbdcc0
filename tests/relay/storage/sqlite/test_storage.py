"""relay.storage.sqlite.storage: a folder that is served, and its epochs."""

import logging
import os
import shutil
from contextlib import asynccontextmanager

import apsw
import pytest

from crdtmem.errors import (
    RelayFolderError,
    RelayRunningError,
    StorageBusyError,
    StorageCorruptError,
    StorageFullError,
)
from crdtmem.protocol.relaying import Sample
from relay.storage.sqlite import connection as connection_module, writer
from relay.storage.sqlite.connection import connect
from relay.storage.sqlite.folder import HighWater, read_high_water, write_high_water
from relay.storage.sqlite.reading import read_slice
from relay.storage.sqlite.storage import SqliteStorage
from tests.contracts.authors import Author, seqs


@asynccontextmanager
async def serving(folder, **options):
    storage = SqliteStorage(folder, **{"disk_free_bytes": 0, **options})
    try:
        yield storage, await storage.open()
    finally:
        await storage.close()


async def write_to(folder, *numbers, **options):
    """Serve, append records of one replica and end; return who the relay was."""
    async with serving(folder, **options) as (storage, identity):
        author = await Author.join(storage, replica_id=b"a" * 16)
        await author.write(*numbers)
    return identity


def noted_total(folder):
    mark = read_high_water(folder)
    assert mark is not None
    return mark.total


def changed(folder, *statements):
    connection = apsw.Connection(str(folder / "relay.db"))
    for statement in statements:
        connection.execute(statement)
    connection.close()


# One folder, one process.


async def test_a_folder_is_served_once_at_a_time(folder):
    async with serving(folder) as (storage, _):
        with pytest.raises(RelayRunningError, match="already running on"):
            await SqliteStorage(folder).open()
        assert (await (await Author.join(storage)).write()).acked == 1
    async with serving(folder):
        pass


async def test_a_folder_without_a_relay_is_not_served(tmp_path):
    with pytest.raises(RelayFolderError, match="holds no relay"):
        await SqliteStorage(tmp_path).open()

    assert os.listdir(tmp_path) == []


async def test_a_folder_whose_file_is_damaged_can_be_served_once_it_is_mended(folder):
    good = (folder / "relay.db").read_bytes()
    (folder / "relay.db").write_bytes(b"no database at all" * 100)
    with pytest.raises(StorageCorruptError):
        await SqliteStorage(folder).open()
    (folder / "relay.db").write_bytes(good)

    await write_to(folder, 1)


async def test_a_storage_may_be_closed_twice_or_unopened(folder):
    storage = SqliteStorage(folder)
    await storage.close()
    await storage.open()
    await storage.close()
    await storage.close()


# Epochs.


async def test_a_relay_stays_in_its_epoch(folder):
    first = await write_to(folder, 1, 2)
    again = await write_to(folder, 3)

    assert again == first
    assert read_high_water(folder) == HighWater(first.relay_id, first.epoch, 3)


async def test_a_relay_that_has_lost_records_is_in_a_new_epoch_from_then_on(folder):
    first = await write_to(folder, 1, 2)
    shutil.copy(folder / "relay.db", folder.parent / "old.db")
    await write_to(folder, 3)
    shutil.copy(folder.parent / "old.db", folder / "relay.db")
    restored = await write_to(folder, 3, 4)
    again = await write_to(folder, 5)

    assert restored.relay_id == first.relay_id
    assert restored.epoch != first.epoch
    assert again == restored


async def test_a_relay_whose_owner_says_so_is_in_a_new_epoch(folder):
    first = await write_to(folder, 1)
    restored = await write_to(folder, 2, is_restored=True)
    again = await write_to(folder, 3)

    assert restored.relay_id == first.relay_id
    assert restored.epoch != first.epoch
    assert again == restored


@pytest.mark.parametrize("relay_id", [b"?" * 16, None])
async def test_a_note_of_another_relay_or_none_begins_no_epoch(folder, relay_id):
    first = await write_to(folder, 1)
    (folder / "relay.hwm").unlink()
    if relay_id:
        write_high_water(folder, HighWater(relay_id, first.epoch, 100))

    assert await write_to(folder, 2) == first


async def test_the_total_is_noted_at_most_once_a_second_behind_the_answer(folder):
    now_ms = [1_000_000]
    noted = []
    async with serving(folder, clock_ms=lambda: now_ms[0]) as (storage, _):
        author = await Author.join(storage)
        for pause_ms in (999, 1, 500, -5_000):
            now_ms[0] += pause_ms
            await author.write()
            await storage.probe()
            noted.append(noted_total(folder))

    assert noted == [0, 2, 2, 4]


async def test_a_note_that_cannot_be_written_holds_up_nothing(folder, caplog):
    (folder / "relay.hwm.part").mkdir()
    with caplog.at_level(logging.WARNING):
        await write_to(folder, 1)
    (folder / "relay.hwm.part").rmdir()
    await write_to(folder, 2)

    assert "no note of the total" in caplog.text
    assert noted_total(folder) == 2


# A log whose beginning is gone.


@pytest.fixture
async def pruned(folder):
    """A log of 5 records, of which the first 2 have been pruned."""
    await write_to(folder, 1, 2, 3, 4, 5)
    changed(
        folder,
        "UPDATE ns SET floor = 2,"
        " floor_chain = (SELECT chain FROM log WHERE id & 1023 = 2)",
        "DELETE FROM log WHERE id & 1023 <= 2",
    )
    async with serving(folder) as (storage, _):
        author = await Author.join(storage, replica_id=b"a" * 16)
        yield (
            author,
            Sample(
                2, (await storage.match(author.ns_no, [Sample(1, b"?" * 32)])).chain
            ),
        )


async def test_a_reader_below_the_floor_goes_on_at_the_floor(pruned):
    author, floor = pruned
    joined = [await author.join_at(seq, b"?" * 32) for seq in (0, 1)]
    at_floor = await author.join_at(2, floor.chain)
    elsewhere = await author.join_at(2, b"?" * 32)

    assert [(one.resume, one.floor, one.head) for one in joined] == [(floor, 2, 5)] * 2
    assert at_floor.resume == floor
    assert elsewhere.resume is None


async def test_no_sample_below_the_floor_is_matched(pruned):
    author, floor = pruned

    assert await author.storage.match(author.ns_no, [Sample(1, b"?" * 32)]) == floor
    assert await author.storage.match(author.ns_no, [floor]) == floor


async def test_a_pruned_record_is_acknowledged_at_the_floor(pruned):
    author, floor = pruned
    again = await author.write(1, 2, payload=b"whatever")
    rows = (await author.log()).rows

    assert (again.acked, again.at, again.rows) == (2, floor, ())
    assert seqs(rows) == [3, 4, 5]


# Bounds.


async def test_without_free_space_nothing_is_taken_and_reads_go_on(folder):
    await write_to(folder, 1, 2)
    async with serving(folder, disk_free_bytes=2**62) as (storage, _):
        author = await Author.join(storage, replica_id=b"a" * 16)
        with pytest.raises(StorageFullError, match=r"no space is left for .*relay\.db"):
            await author.write(3)
        with pytest.raises(StorageFullError):
            await storage.probe()
        log = await author.log()

    assert seqs(log.rows) == [1, 2]


async def test_a_file_that_another_process_keeps_locked_is_busy(folder, monkeypatch):
    monkeypatch.setattr(connection_module, "SQLITE_BUSY_MS", 1)
    async with serving(folder) as (storage, _):
        author = await Author.join(storage)
        other = apsw.Connection(str(folder / "relay.db"))
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StorageBusyError):
            await author.write(1)
        other.close()
        assert (await author.write(1)).head == 1


async def test_what_is_known_by_heart_is_forgotten_before_it_is_too_much(
    folder, monkeypatch
):
    monkeypatch.setattr(writer, "RELAY_ROWS_KNOWN_MAX", 2)
    async with serving(folder) as (storage, _):
        one, two = [await Author.join(storage, name) for name in ("one", "two")]
        for author in (one, two, one):
            await author.write()

        assert storage._writer._known.rows == 0
        assert seqs((await one.log()).rows) == [1, 2]
        assert seqs((await two.log()).rows) == [1]


def test_the_end_of_a_long_log_is_read_without_its_beginning(folder):
    connection = connect(folder / "relay.db")
    changed(
        folder,
        "INSERT INTO ns(name, head, chain, floor_chain, created_ms)"
        " VALUES ('notes', 100000, x'', x'', 0), ('other', 9, x'', x'', 0)",
        "INSERT INTO replica VALUES (1, 1, x'01', 100000, x'', 't', 0, 0)",
        "INSERT INTO doc(ns_no, doc_tag) VALUES (1, zeroblob(16))",
        "WITH n(seq) AS (SELECT 1 UNION ALL SELECT seq + 1 FROM n WHERE seq < 100000)"
        " INSERT INTO log(id, record_id, chain, header, payload, doc_no, replica_no,"
        " replica_seq, token_id, recv_ms)"
        " SELECT 1 << 40 | seq, x'', x'', zeroblob(60), x'', 1, 1, seq, 't', 0 FROM n",
    )
    steps = []

    def count(event):
        steps.append(event["stmt_status"])

    connection.trace_v2(apsw.SQLITE_TRACE_PROFILE, count)
    found = read_slice(connection, 1, 99_990, records=512, octets=2**20)
    connection.trace_v2(0, None)
    connection.close()

    assert seqs(found.rows) == list(range(99_991, 100_001))
    assert sum(one["SQLITE_STMTSTATUS_FULLSCAN_STEP"] for one in steps) <= 20
    assert sum(one["SQLITE_STMTSTATUS_VM_STEP"] for one in steps) < 1_000
