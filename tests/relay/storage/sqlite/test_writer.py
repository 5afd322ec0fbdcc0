"""relay.storage.sqlite.writer: failing disks and checkpoints."""

import logging
import resource

import apsw
import pytest

from crdtmem.errors import (
    InvalidArgumentError,
    StorageFullError,
    StorageUncertainError,
)
from relay.storage.sqlite import writer as writer_module
from relay.storage.sqlite.connection import connect
from relay.storage.sqlite.storage import SqliteStorage
from tests.contracts.authors import DIGEST, Author, assert_verifies, seqs, token_row
from tests.powercut import PowerCut


@pytest.fixture
def disk(folder):
    with PowerCut(folder, makedefault=True) as disk:
        yield disk


@pytest.fixture
async def author(folder, disk):
    storage = SqliteStorage(folder, disk_free_bytes=0)
    await storage.open()
    yield await Author.join(storage)
    await storage.close()


@pytest.fixture
def eager(monkeypatch):
    """Checkpoints after every group."""
    monkeypatch.setattr(writer_module, "CHECKPOINT_PASSIVE_PAGES", 0)


async def settled(author):
    """Wait until nothing is under way behind the answers."""
    await author.storage._write(lambda: None)


def log_bytes(folder):
    return (folder / "relay.db-wal").stat().st_size


async def test_a_failing_write_ends_all_writing_and_no_reading(author, disk):
    await author.write()
    disk.fail("write", "-wal", apsw.IOError("planted"))
    with pytest.raises(StorageUncertainError, match=r"uncertain what .*: planted"):
        await author.write()
    refused = []
    for call in (author.write(2), author.storage.probe(), author.storage.sweep(0, 1)):
        with pytest.raises(StorageUncertainError) as error:
            await call
        refused.append(error.value.exit_status)

    assert refused == [74] * 3
    assert seqs((await author.log()).rows) == [1]


async def test_a_rollback_that_fails_ends_all_writing(author):
    connection = author.storage._writer._connection

    def deny_rollback(operation, *what):
        is_rollback = operation == apsw.SQLITE_TRANSACTION and what[0] == "ROLLBACK"
        return apsw.SQLITE_DENY if is_rollback else apsw.SQLITE_OK

    connection.authorizer = deny_rollback
    await author.storage.token_create(token_row(), DIGEST)
    with pytest.raises(InvalidArgumentError):
        await author.storage.token_create(token_row(), DIGEST)
    with pytest.raises(StorageUncertainError, match="not authorized"):
        await author.write()
    connection.authorizer = None


async def test_a_refused_token_leaves_the_log_as_it_was(author):
    await author.storage.token_create(token_row(), DIGEST)
    with pytest.raises(InvalidArgumentError):
        await author.storage.token_create(token_row(), DIGEST)

    assert (await author.write()).head == 1


@pytest.mark.requirement("sync-disk-full")
async def test_a_disk_that_is_full_until_it_is_not_loses_nothing(author, folder):
    while log_bytes(folder) < 2**20:
        await author.write(payload=bytes(100_000))
    before = await author.log()
    old = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (log_bytes(folder) + 1, old[1]))
    try:
        with pytest.raises(StorageFullError):
            await author.write(author.last + 1)
        with pytest.raises(StorageFullError):
            await author.storage.probe()
        meanwhile = await author.log()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, old)
    author.last = before.head
    again = await author.write()
    identity = author.storage._identity

    assert meanwhile == before
    assert (again.acked, again.head) == (before.head + 1, before.head + 1)
    assert_verifies(await author.log(), identity.relay_id, "notes")


async def test_a_long_log_is_copied_back_behind_the_answer(author, folder, eager):
    before = (folder / "relay.db").read_bytes()
    await author.write()
    await settled(author)

    assert (folder / "relay.db").read_bytes() != before
    assert log_bytes(folder) > 0


async def test_a_very_long_log_is_emptied(author, folder, eager, monkeypatch):
    monkeypatch.setattr(writer_module, "CHECKPOINT_TRUNCATE_BYTES", 1)
    await author.write()
    await settled(author)

    assert log_bytes(folder) == 0


async def test_a_log_that_a_reader_holds_back_is_let_grow_for_a_while(
    author, folder, monkeypatch, caplog
):
    monkeypatch.setattr(writer_module, "CHECKPOINT_PASSIVE_PAGES", 30)
    monkeypatch.setattr(writer_module, "CHECKPOINT_TRUNCATE_BYTES", 1)
    monkeypatch.setattr(writer_module, "CHECKPOINT_WAIT_MS", 1)
    await author.write()
    reader = connect(folder / "relay.db", read_only=True)
    reader.execute("BEGIN")
    reader.execute("SELECT * FROM ns").fetchall()
    with caplog.at_level(logging.WARNING):
        for _ in range(12):
            await author.write(payload=bytes(20_000))
            await settled(author)
    reader.close()
    tries = caplog.text.count("a later one tries again")
    for _ in range(12):
        await author.write(payload=bytes(20_000))
        await settled(author)

    assert 1 < tries < 6
    assert log_bytes(folder) < 60 * 4_096
    assert (await author.log()).head == 25


async def test_a_checkpoint_without_room_is_tried_again(author, disk, eager, caplog):
    disk.fail("write", ".db", apsw.FullError("planted"))
    with caplog.at_level(logging.WARNING):
        await author.write()
        await settled(author)
    await author.write()
    await settled(author)

    assert "a later one tries again: planted" in caplog.text
    assert seqs((await author.log()).rows) == [1, 2]


async def test_a_checkpoint_that_fails_takes_back_nothing_and_is_the_last(
    author, disk, eager, caplog, folder
):
    disk.fail("sync", ".db", apsw.IOError("planted"))
    result = await author.write()
    await settled(author)
    with pytest.raises(StorageUncertainError, match="planted"):
        await author.write()
    author.storage._writer.checkpoint()
    identity = author.storage._identity
    await author.storage.close()
    author.storage = SqliteStorage(folder, disk_free_bytes=0)
    same = await author.storage.open()
    log = await author.log()

    assert (same, log.rows) == (identity, result.rows)
    assert "writing ends" in caplog.text
