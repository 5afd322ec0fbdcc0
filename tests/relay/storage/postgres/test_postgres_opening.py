"""relay.storage.postgres: who the relay is, and which servers it trusts."""

import asyncio

import pytest

from crdtmem.errors import (
    InvalidArgumentError,
    RelayRunningError,
    StorageCorruptError,
    StorageUnreachableError,
    StorageUnsafeError,
)
from relay.storage.postgres import schema
from relay.storage.postgres.connection import (
    Database,
    PostgresTiming,
    place_of,
    unsafe_reason,
)
from relay.storage.postgres.schema import LOCK_SERVED, MIGRATIONS
from relay.storage.postgres.storage import PostgresStorage
from relay.storage.sqlite.folder import read_high_water
from tests.contracts.authors import Author
from tests.postgres import PASSWORD
from tests.relay.storage.postgres.conftest import until

pytestmark = pytest.mark.postgres


def epochs(postgres, name):
    return postgres.sql("SELECT reason, total FROM crdtmem.epoch ORDER BY n", name)


async def identity_of(url, **options):
    storage = PostgresStorage(url, **options)
    try:
        return await storage.open()
    finally:
        await storage.close()


# Who it is.


async def test_processes_that_open_an_empty_database_at_once_make_one_relay(postgres):
    name = postgres.new_name()
    url = postgres.url(name)
    opening = [identity_of(url) for _ in range(4)]
    identities = await asyncio.gather(*opening)

    assert len(set(identities)) == 1
    assert epochs(postgres, name) == ["init|0"]
    made = postgres.sql("SELECT version FROM crdtmem.migration", name)
    assert made == [str(n + 1) for n in range(len(MIGRATIONS))]


async def test_a_database_of_an_older_release_is_brought_up_to_date(
    postgres, monkeypatch
):
    name = postgres.new_name()
    # The owner may make the schema for a user who may not.
    postgres.sql("CREATE SCHEMA crdtmem", name)
    before = await identity_of(postgres.url(name))
    step = "ALTER TABLE crdtmem.relay ADD COLUMN later int NOT NULL DEFAULT 7"
    monkeypatch.setattr(schema, "MIGRATIONS", (*MIGRATIONS, step))
    after = await identity_of(postgres.url(name))

    assert after == before
    assert postgres.sql("SELECT later FROM crdtmem.relay", name) == ["7"]


async def test_a_step_that_fails_leaves_all_as_it_was(postgres, monkeypatch):
    name = postgres.new_name()
    await identity_of(postgres.url(name))
    step = "ALTER TABLE crdtmem.relay ADD COLUMN later int; SELECT nosuch"
    monkeypatch.setattr(schema, "MIGRATIONS", (*MIGRATIONS, step))
    with pytest.raises(StorageCorruptError, match="UndefinedColumnError"):
        await identity_of(postgres.url(name))
    monkeypatch.undo()

    assert await identity_of(postgres.url(name))


async def test_a_database_of_a_newer_release_is_left_alone(url, name, postgres):
    await identity_of(url)
    postgres.sql("INSERT INTO crdtmem.migration VALUES (999)", name)

    with pytest.raises(StorageCorruptError, match=r"schema 999, and .* 1"):
        await identity_of(url)
    postgres.sql("DELETE FROM crdtmem.migration WHERE version = 999", name)


async def test_an_owner_who_put_a_database_back_begins_an_epoch(url, name, postgres):
    before = await identity_of(url)
    after = await identity_of(url, is_restored=True)

    assert after.relay_id == before.relay_id
    assert after.epoch != before.epoch
    assert await identity_of(url) == after
    assert epochs(postgres, name) == ["init|0", "restored|0"]


def total_in(folder):
    mark = read_high_water(folder)
    return mark and mark.total


async def grown(node, folder, *, to):
    """Write records, and wait until the process has noted how many there are."""
    async with node(note_folder=folder) as storage:
        author = await Author.join(storage)
        author.last = (await author.log()).head
        await author.write(*range(author.last + 1, to + 1))
        await until(lambda: total_in(folder) == to)


async def test_fewer_records_than_were_noted_begin_one_epoch(
    node, url, name, postgres, tmp_path
):
    first, second = tmp_path / "first", tmp_path / "second"
    for folder in (first, second):
        folder.mkdir()
        await grown(node, folder, to=3)
    before = await identity_of(url, note_folder=first)
    # What a restored backup is like.
    postgres.sql("DELETE FROM crdtmem.log; UPDATE crdtmem.ns SET head = 0", name)
    after = await identity_of(url, note_folder=first)
    other = await identity_of(url, note_folder=second)

    assert after.relay_id == before.relay_id
    assert after.epoch != before.epoch
    assert other == after
    assert epochs(postgres, name) == ["init|0", "lost|0"]


async def test_as_many_records_as_were_noted_are_the_same_epoch(
    node, url, name, postgres, tmp_path
):
    await grown(node, tmp_path, to=3)
    await identity_of(url, note_folder=tmp_path)

    assert epochs(postgres, name) == ["init|0"]


async def test_a_note_that_cannot_be_written_stops_nothing(node, tmp_path, caplog):
    missing = tmp_path / "missing"
    async with node(note_folder=missing) as storage:
        author = await Author.join(storage)
        await author.write()
        await until(lambda: "no note of the total" in caplog.text)
        again = await author.write()

    assert again.acked == 2


async def test_a_database_that_is_being_copied_is_not_served(url, node):
    async with Database(url).connection() as connection:
        await connection.execute("SELECT pg_advisory_lock($1)", LOCK_SERVED)
        with pytest.raises(RelayRunningError, match="postgresql:///test"):
            await identity_of(url)


# Which server.


async def test_a_server_that_may_lose_what_it_acknowledges_is_refused(postgres):
    postgres.restart("immediate", fsync="off")
    try:
        with pytest.raises(StorageUnsafeError, match="with a log: fsync is off"):
            await identity_of(postgres.url())
    finally:
        postgres.stop("immediate")


def test_every_setting_that_may_lose_something_is_named():
    assert unsafe_reason("on", "on", "on", 14) == ""
    assert (
        unsafe_reason("on", "on", "on", 13) == "it is PostgreSQL 13, and 14 is needed"
    )
    assert unsafe_reason("off", "on", "on", 15) == "fsync is off"
    assert unsafe_reason("on", "off", "on", 15) == "full_page_writes is off"
    assert unsafe_reason("on", "on", "local", 15).startswith("synchronous_commit is lo")


async def test_every_session_has_the_settings_that_it_needs(url, name, postgres):
    postgres.sql(
        f"ALTER DATABASE {name} SET synchronous_commit = off;"
        f"ALTER DATABASE {name} SET default_transaction_isolation = serializable"
    )
    timing = PostgresTiming(statement_ms=90_000, lock_ms=2, idle_ms=3)
    async with Database(url, timing=timing).connection() as connection:
        rows = await connection.fetch(
            "SELECT current_setting(name) FROM unnest($1::text[]) AS name",
            [
                "synchronous_commit",
                "transaction_isolation",
                "statement_timeout",
                "lock_timeout",
                "idle_in_transaction_session_timeout",
            ],
        )

    postgres.sql(f"ALTER DATABASE {name} RESET ALL")

    assert [row[0] for row in rows] == ["on", "read committed", *("90s", "2ms", "3ms")]


# Who may connect.


async def test_a_password_comes_from_the_url_or_a_file(postgres, name, tmp_path):
    words = tmp_path / "words"
    words.write_text(f"{PASSWORD}\nsecond line\n", encoding="utf-8")
    url = postgres.tcp_url(name)
    bare = f"postgresql://root@127.0.0.1:{postgres.port}/{name}"
    identity = await identity_of(url)

    assert await identity_of(bare, password_file=words) == identity


async def test_a_wrong_password_is_told_without_it(postgres, name, tmp_path, caplog):
    words = tmp_path / "words"
    words.write_text("hunter2\n", encoding="utf-8")
    bare = f"postgresql://root@127.0.0.1:{postgres.port}/{name}"
    refused = f"postgresql://root:hunter2@127.0.0.1:{postgres.port}/{name}"
    for url, file in ((bare, words), (refused, None)):
        with pytest.raises(StorageUnreachableError, match="InvalidPasswordE") as raised:
            await identity_of(url, password_file=file)
        shown = [repr(raised.value), str(raised.value.to_dict()), caplog.text]
        shown += [repr(PostgresStorage(url)), repr(Database(url, password_file=file))]
        assert "hunter2" not in "".join(shown)


@pytest.mark.parametrize(
    ("url", "place"),
    [
        ("postgresql://u:hunter2@db.example:5433/relay?x=1", "db.example:5433/relay"),
        ("postgres://u:hunter%402@[::1]:5/r", "[::1]:5/r"),
        ("postgresql://u@one:1,two:2/r", "one:1,two:2/r"),
        ("postgresql:///r?host=/run&password=hunter2", "/r"),
    ],
)
def test_a_place_is_told_without_secrets(url, place):
    assert place_of(url) == f"postgresql://{place}"


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://u:hunter2/@host/r",
        "postgresql://u:hunter2?@host/r",
        "postgresql://u:hunter2#@host/r",
        "postgresql://u:hunter2@@host/r",
        "postgresql://u:hunter2",
        "mysql://u:hunter2@host/r",
        "hunter2",
    ],
)
def test_what_is_no_url_is_refused_without_a_word_of_it(url):
    with pytest.raises(InvalidArgumentError, match="is no URL such as") as raised:
        PostgresStorage(url)

    assert "hunter2" not in str(raised.value.to_dict())


@pytest.mark.parametrize("parameter", ["sslmode=hunter2", "port=hunter2"])
async def test_parameters_that_mean_nothing_are_told_without_them(postgres, parameter):
    with pytest.raises(InvalidArgumentError, match="is no URL such as") as raised:
        await identity_of(f"postgresql:///postgres?{parameter}")

    assert "hunter2" not in str(raised.value.to_dict())
    assert raised.value.__suppress_context__


async def test_a_database_that_is_not_there_is_told(postgres):
    with pytest.raises(StorageUnreachableError, match=r"/nosuch .*\(3D000"):
        await identity_of(postgres.url("nosuch"))
