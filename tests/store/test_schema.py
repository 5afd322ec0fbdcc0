"""crdtmem.store.schema"""

from typing import Any

import apsw
import pytest

from crdtmem.errors import (
    SchemaTooNewError,
    StoreCorruptError,
    StoreNotFoundError,
)
from crdtmem.store import schema
from crdtmem.store.schema import APPLICATION_ID, MIGRATIONS, is_current, migrate
from crdtmem.store.store import Store
from tests.store.writes import append, contents_of, log, texts, value

TABLES = {
    "audit",
    "chain_sample",
    "condense_archive",
    "condense_pass",
    "condense_wait",
    "doc",
    "editor_doc",
    "editor_log",
    "editor_rescue",
    "event",
    "held",
    "history",
    "item",
    "item_archive",
    "item_history",
    "link",
    "log",
    "mirror",
    "mirror_file",
    "mirror_retired",
    "mirror_text",
    "mset",
    "outbox",
    "pin",
    "pin_step",
    "quarantine",
    "request",
    "search_doc",
    # FTS5 makes the last four for the first.
    "search_index",
    "search_index_config",
    "search_index_data",
    "search_index_docsize",
    "search_index_idx",
    "search_pending",
    "search_row",
    "seen",
    "set_claim",
    "slot",
    # SQLite's own, of the events' numbers.
    "sqlite_sequence",
    "store",
    "stream",
    "sync_doc",
    "sync_seen",
    "version",
}
MADE: dict[str, Any] = {
    "replica": b"r" * 16,
    "context": "c",
    "history_keep": 7,
    "now_ms": 5,
}


def make_database(path, *statements):
    connection = apsw.Connection(str(path))
    for statement in statements:
        connection.execute(statement)
    connection.close()
    path.chmod(0o600)
    return contents_of(path.parent)


def test_a_new_store_says_that_it_is_one(store):
    assert value(store, "PRAGMA application_id") == APPLICATION_ID
    assert APPLICATION_ID.to_bytes(4) == b"crM1"
    assert value(store, "PRAGMA user_version") == len(MIGRATIONS)
    assert value(store, "PRAGMA journal_mode") == "wal"
    with store.reading() as connection:
        names = connection.execute("SELECT name FROM sqlite_schema WHERE type='table'")
        assert {name for (name,) in names} == TABLES


@pytest.mark.requirement("testing-F16")
@pytest.mark.parametrize(
    "statements",
    [
        ["CREATE TABLE notes(text)", "INSERT INTO notes VALUES ('mine')"],
        ["PRAGMA application_id = 77"],
        ["CREATE TABLE t(x)", "PRAGMA application_id = 77"],
        ["CREATE TABLE t(x)", "PRAGMA user_version = 1"],
        ["PRAGMA user_version = 1"],
    ],
)
@pytest.mark.parametrize("read_only", [False, True])
def test_another_programs_database_is_refused_and_left_as_it_was(
    folder, statements, read_only
):
    path = folder / "store.db"
    before = make_database(path, *statements)
    with pytest.raises(StoreCorruptError) as raised:
        Store(path, read_only=read_only)

    assert raised.value.code == "store-corrupt"
    assert str(path) in raised.value.message
    assert "it is no store of crdtmem" in raised.value.message
    assert contents_of(folder) == before


@pytest.mark.requirement("testing-F16")
@pytest.mark.parametrize("read_only", [False, True])
def test_a_store_of_a_newer_release_is_refused_and_left_as_it_was(folder, read_only):
    newer = len(MIGRATIONS) + 1
    path = folder / "store.db"
    before = make_database(
        path,
        "CREATE TABLE slot(x)",
        f"PRAGMA application_id = {APPLICATION_ID}",
        f"PRAGMA user_version = {newer}",
    )
    with pytest.raises(SchemaTooNewError) as raised:
        Store(path, read_only=read_only)

    assert raised.value.code == "schema-too-new"
    assert str(path) in raised.value.message
    assert raised.value.details == {
        "path": str(path),
        "found": newer,
        "known": len(MIGRATIONS),
    }
    assert contents_of(folder) == before


@pytest.mark.parametrize("statements", [[], ["PRAGMA user_version = 0"], ["VACUUM"]])
def test_an_empty_database_becomes_a_store(folder, statements):
    path = folder / "store.db"
    make_database(path, *statements)
    path.touch(mode=0o600)
    store = Store(path)
    append(store, "plan", "one")

    assert texts(store) == {"plan": "one\n"}
    store.close()


def test_an_empty_file_is_no_store_for_a_reader(folder):
    path = folder / "store.db"
    path.touch(mode=0o600)
    with pytest.raises(StoreNotFoundError) as raised:
        Store(path, read_only=True)

    assert str(path) in raised.value.message
    assert path.stat().st_size == 0


def test_a_migration_that_another_process_has_made_is_not_made_again(store):
    append(store, "plan", "one")
    before = value(store, "SELECT replica, history_keep, created_ms FROM store")
    with store.reading() as connection:
        migrate(connection, "", **MADE)

    assert value(store, "SELECT replica, history_keep, created_ms FROM store") == before


def test_an_older_store_becomes_a_newer_one_and_keeps_what_it_holds(
    folder, monkeypatch
):
    store = Store(folder / "store.db")
    append(store, "plan", "one")
    replica = value(store, "SELECT replica FROM store")
    store.close()
    monkeypatch.setattr(schema, "MIGRATIONS", (*MIGRATIONS, "CREATE TABLE later(x)"))
    newer = Store(folder / "store.db")

    assert value(newer, "PRAGMA user_version") == len(MIGRATIONS) + 1
    assert value(newer, "SELECT count(*) FROM later") == 0
    assert value(newer, "SELECT replica FROM store") == replica
    assert texts(newer) == {"plan": "one\n"}
    newer.close()


def as_of(version, path):
    """Make a store of an older version with one line in it; return its records."""
    store = Store(path)
    append(store, "plan", "one")
    records = log(store, "plan")
    store.close()
    older = apsw.Connection(":memory:")
    connection = apsw.Connection(str(path))
    for migration in MIGRATIONS[:version]:
        older.execute(migration)
    tables = "SELECT name FROM sqlite_schema WHERE type = 'table'"
    kept = {*older.execute(tables), ("sqlite_sequence",)}
    for (name,) in sorted({*connection.execute(tables)} - kept):
        # With a table of the full-text search its own tables go.
        connection.execute(f"DROP TABLE IF EXISTS {name}")
    for (name,) in older.execute(tables):
        columns = f"SELECT name FROM pragma_table_info('{name}')"
        # SQLite's own may not be altered, and are the same.
        for (added,) in {*connection.execute(columns)} - {*older.execute(columns)}:
            connection.execute(f"ALTER TABLE {name} DROP COLUMN {added}")
    connection.pragma("user_version", version)
    connection.close()
    older.close()
    return records


@pytest.mark.requirement("testing-F16")
@pytest.mark.parametrize("version", range(1, len(MIGRATIONS)))
def test_a_store_of_an_older_version_gets_the_tables_of_today(folder, version):
    before = as_of(version, folder / "store.db")

    newer = Store(folder / "store.db")

    assert log(newer, "plan") == before
    assert value(newer, "PRAGMA user_version") == len(MIGRATIONS)
    with newer.reading() as connection:
        names = connection.execute("SELECT name FROM sqlite_schema WHERE type='table'")
        assert {name for (name,) in names} == TABLES
    append(newer, "plan", "two")
    assert texts(newer) == {"plan": "one\ntwo\n"}
    newer.close()


def test_a_reader_of_an_older_store_has_it_brought_up_to_date(folder):
    as_of(1, folder / "store.db")

    reader = Store(folder / "store.db", read_only=True)

    assert value(reader, "PRAGMA user_version") == len(MIGRATIONS)
    assert texts(reader) == {"plan": "one\n"}
    reader.close()


def test_a_migration_that_fails_leaves_the_store_at_its_version(folder, monkeypatch):
    store = Store(folder / "store.db")
    append(store, "plan", "one")
    store.close()
    half = "CREATE TABLE later(x); CREATE TABLE slot(x)"
    monkeypatch.setattr(schema, "MIGRATIONS", (*MIGRATIONS, half))
    with pytest.raises(StoreCorruptError, match="slot already exists"):
        Store(folder / "store.db")
    monkeypatch.setattr(schema, "MIGRATIONS", MIGRATIONS)
    store = Store(folder / "store.db")

    assert texts(store) == {"plan": "one\n"}
    assert value(store, "SELECT count(*) FROM sqlite_schema WHERE name='later'") == 0
    store.close()


def test_what_a_new_store_begins_with_is_told_by_its_maker(tmp_path):
    connection = apsw.Connection(str(tmp_path / "a.db"))
    before = is_current(connection, "")
    migrate(connection, "", **MADE)
    after = is_current(connection, "")
    row = connection.execute("SELECT * FROM store").get
    connection.close()

    assert (before, after) == (False, True)
    assert row == (1, b"r" * 16, "c", 0, 7, 5)


@pytest.mark.requirement("P8")
def test_a_store_that_another_process_makes_while_it_is_looked_at_is_no_stranger(
    folder,
):
    """The other one commits in front of each statement that looks at the file."""
    path = folder / "store.db"
    connection = apsw.Connection(str(path))

    def make_it(_, statement, __):
        Store(path).close()
        return True

    connection.exec_trace = make_it

    assert is_current(connection, str(path))
    connection.close()
