"""crdtmem.store.connection"""

import resource

import apsw
import pytest

from crdtmem.errors import (
    CrdtmemError,
    PermissionDeniedError,
    StoreBusyError,
    StoreCorruptError,
    StoreFullError,
    StoreNotFoundError,
    StoreReadOnlyError,
)
from crdtmem.store.connection import connect, mapped_errors

FULL, NORMAL = 2, 1
PRAGMAS = (
    "synchronous",
    "wal_autocheckpoint",
    "foreign_keys",
    "trusted_schema",
    "cell_size_check",
)
OURS = {
    "AuthError": PermissionDeniedError,
    "BusyError": StoreBusyError,
    "CantOpenError": PermissionDeniedError,
    "CorruptError": StoreCorruptError,
    "FormatError": StoreCorruptError,
    "FullError": StoreFullError,
    "LockedError": StoreBusyError,
    "NotADBError": StoreCorruptError,
    "PermissionsError": PermissionDeniedError,
    "ReadOnlyError": StoreReadOnlyError,
}
"""What is not of these is a store that cannot be used."""

KNOWN = {
    "AbortError",
    "BindingsError",
    "ConnectionClosedError",
    "ConnectionNotClosedError",
    "ConstraintError",
    "CursorClosedError",
    "EmptyError",
    "ExecTraceAbort",
    "ExecutionCompleteError",
    "ExtensionLoadingError",
    "ForkingViolationError",
    "IOError",
    "IncompleteExecutionError",
    "InternalError",
    "InterruptError",
    "InvalidContextError",
    "MismatchError",
    "MisuseError",
    "NoFTS5Error",
    "NoLFSError",
    "NoMemError",
    "NotFoundError",
    "ProtocolError",
    "RangeError",
    "SQLError",
    "SchemaChangeError",
    "ThreadingViolationError",
    "TooBigError",
    "VFSFileClosedError",
    "VFSNotImplementedError",
}


def error_classes():
    return {
        name: one
        for name, one in vars(apsw).items()
        if isinstance(one, type) and issubclass(one, apsw.Error)
    }


@pytest.fixture
def path(tmp_path):
    connection = apsw.Connection(str(tmp_path / "a.db"))
    connection.execute("CREATE TABLE t(x)")
    connection.close()
    return tmp_path / "a.db"


@pytest.mark.parametrize(("durability", "level"), [("full", FULL), ("normal", NORMAL)])
def test_a_connection_syncs_each_commit_and_checkpoints_where_the_store_chooses(
    path, durability, level
):
    connection = connect(path, read_only=False, durability=durability)
    found = {name: connection.pragma(name) for name in PRAGMAS}
    connection.close()

    assert found == {
        "synchronous": level,
        "wal_autocheckpoint": 0,
        "foreign_keys": 1,
        "trusted_schema": 0,
        "cell_size_check": 1,
    }


def test_a_connection_for_reading_writes_nothing(path):
    before = path.read_bytes()
    connection = connect(path, read_only=True, durability="full")
    with (
        pytest.raises(StoreReadOnlyError) as raised,
        mapped_errors(path, connection),
    ):
        connection.execute("INSERT INTO t VALUES (1)")
    connection.close()

    assert str(path) in raised.value.message
    assert path.read_bytes() == before


def test_a_file_that_is_no_database_is_corrupt_and_left_alone(tmp_path):
    path = tmp_path / "notes.md"
    path.write_text("# notes\n" * 200, encoding="utf-8")
    with pytest.raises(StoreCorruptError) as raised:
        connect(path, read_only=False, durability="full")

    assert "it is damaged" in raised.value.message
    assert path.read_text(encoding="utf-8") == "# notes\n" * 200
    assert [one.name for one in tmp_path.iterdir()] == ["notes.md"]


def test_every_error_of_apsw_is_one_of_ours(path):
    found = {}
    for name, error in error_classes().items():
        with pytest.raises(CrdtmemError) as raised, mapped_errors(path):
            raise error("planted")
        found[name] = type(raised.value)
        assert isinstance(raised.value.__cause__, error)

    # A class of a new release is to be looked at before it is let in.
    assert set(found) == OURS.keys() | KNOWN | {"Error"}
    assert found == {name: OURS.get(name, StoreCorruptError) for name in found}


def test_text_that_is_no_text_is_a_corrupt_file(path):
    connection = connect(path, read_only=False, durability="full")
    connection.execute("INSERT INTO t VALUES (CAST(x'ff' AS TEXT))")
    with pytest.raises(StoreCorruptError) as raised, mapped_errors(path, connection):
        connection.execute("SELECT x FROM t").fetchall()
    connection.close()

    assert str(path) in raised.value.message
    assert "it holds text that is not UTF-8" in raised.value.message


def test_what_is_not_of_apsw_passes(path):
    with pytest.raises(KeyError), mapped_errors(path):
        raise KeyError


def test_a_file_that_cannot_be_opened_because_it_is_gone_is_not_found(tmp_path):
    path = tmp_path / "gone.db"
    with pytest.raises(StoreNotFoundError) as raised:
        connect(path, read_only=True, durability="full")

    assert str(path) in raised.value.message
    assert list(tmp_path.iterdir()) == []


def test_a_locked_file_is_busy_and_no_reason_for_a_repair(path):
    holder = apsw.Connection(str(path))
    holder.execute("BEGIN EXCLUSIVE")
    other = apsw.Connection(str(path))
    with pytest.raises(StoreBusyError) as raised, mapped_errors(path, other):
        other.execute("SELECT * FROM t")
    holder.execute("ROLLBACK")
    holder.close()
    other.close()

    assert raised.value.code == "store-busy"
    assert raised.value.details["pid"] is None


def test_a_file_past_its_size_limit_is_a_full_disk(path):
    connection = connect(path, read_only=False, durability="full")
    old = resource.getrlimit(resource.RLIMIT_FSIZE)
    # Python ignores the signal, so the write fails with EFBIG.
    resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size + 4_096, old[1]))
    try:
        with pytest.raises(StoreFullError) as raised, mapped_errors(path, connection):
            connection.execute("INSERT INTO t VALUES (zeroblob(100000))")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, old)
    connection.execute("INSERT INTO t VALUES (zeroblob(100000))")
    rows = connection.execute("SELECT count(*) FROM t").get
    connection.close()

    assert raised.value.code == "store-full"
    assert str(path) in raised.value.message
    assert rows == 1


def test_a_broken_disk_is_no_full_one(path):
    connection = connect(path, read_only=False, durability="full")
    with pytest.raises(StoreCorruptError) as raised, mapped_errors(path, connection):
        raise apsw.IOError("disk I/O error")
    connection.close()

    assert "SQLite reports an error: disk I/O error" in raised.value.message
