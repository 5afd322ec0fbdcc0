"""relay.storage.sqlite.connection and schema"""

import resource

import apsw
import pytest

from crdtmem.errors import (
    CrdtmemError,
    PermissionDeniedError,
    StorageBusyError,
    StorageCorruptError,
    StorageFullError,
    StorageUncertainError,
)
from relay.storage.sqlite.connection import connect, mapped_errors

PRAGMAS = {
    "application_id": 0x63724D52,
    "cell_size_check": 1,
    "foreign_keys": 1,
    "journal_mode": "wal",
    "synchronous": 2,
    "trusted_schema": 0,
    "wal_autocheckpoint": 0,
}


@pytest.fixture
def path(folder):
    return folder / "relay.db"


def damaged(path, statement):
    connection = apsw.Connection(str(path))
    connection.execute(statement)
    connection.close()


def test_a_connection_syncs_each_commit_and_trusts_no_schema(path):
    connection = connect(path)
    found = {name: connection.pragma(name) for name in PRAGMAS}
    connection.close()

    assert found == PRAGMAS


def test_a_reader_cannot_write(path):
    reader = connect(path, read_only=True)
    with mapped_errors(path), pytest.raises(apsw.ReadOnlyError):
        reader.execute("UPDATE relay SET total = 7")

    assert reader.execute("SELECT total FROM relay").get == 0
    reader.close()


@pytest.mark.parametrize(
    ("statement", "reason"),
    [
        ("PRAGMA application_id = 7", "it is no relay of crdtmem"),
        ("PRAGMA user_version = 2", "it has schema 2, and this crdtmem knows schema 1"),
    ],
)
def test_a_file_of_another_program_or_release_is_left_alone(path, statement, reason):
    damaged(path, statement)
    before = path.read_bytes()
    with pytest.raises(StorageCorruptError) as refused:
        connect(path)

    assert refused.value.details == {"path": str(path), "reason": reason}
    assert path.read_bytes() == before


def test_a_file_that_is_no_database_is_refused(path):
    path.write_bytes(b"no database at all" * 100)
    with pytest.raises(StorageCorruptError, match=r"relay\.db cannot be used"):
        connect(path)


def test_a_file_that_is_not_there_is_not_made(path):
    path.unlink()
    with pytest.raises(PermissionDeniedError, match="cannot open"):
        connect(path)

    assert not path.exists()


@pytest.mark.parametrize(
    ("raised", "code"),
    [
        (apsw.FullError(), "storage-full"),
        (apsw.BusyError(), "busy"),
        (apsw.LockedError(), "busy"),
        (apsw.IOError(), "storage-failed"),
        (apsw.ReadOnlyError(), "permission-denied"),
        (apsw.CorruptError(), "storage-corrupt"),
        (apsw.SQLError(), "storage-corrupt"),
    ],
)
def test_every_error_of_sqlite_becomes_one_of_ours(path, raised, code):
    with pytest.raises(CrdtmemError) as mapped, mapped_errors(path):
        raise raised

    assert (mapped.value.code, mapped.value.details["path"]) == (code, str(path))
    assert mapped.value.__cause__ is raised


def test_our_own_errors_pass(path):
    with pytest.raises(StorageBusyError), mapped_errors(path):
        raise StorageBusyError(path="x")


def test_a_file_that_may_not_grow_is_a_full_disk(path):
    connection = connect(path)
    old = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size, old[1]))
    try:
        with (
            pytest.raises(StorageFullError),
            mapped_errors(path, connection),
            connection,
        ):
            connection.execute("CREATE TABLE t AS SELECT zeroblob(1000000)")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, old)
    connection.close()


def test_a_sync_that_fails_for_want_of_room_leaves_open_what_is_there(path):
    connection = connect(path)
    with pytest.raises(StorageUncertainError), mapped_errors(path, connection):
        raise apsw.IOError
    connection.close()
