"""relay.storage.copying, and what each storage gives to it and takes from it."""

from contextlib import asynccontextmanager, closing
from typing import Any

import apsw
import pytest

from crdtmem.errors import RelayFolderError, RelayRunningError, StorageCorruptError
from crdtmem.protocol.records import RecordKind
from crdtmem.protocol.relaying import Sample
from relay.storage import Storage
from relay.storage.copying import TABLES, Row, copy_relay
from relay.storage.postgres import moving as in_database
from relay.storage.postgres.connection import Database
from relay.storage.postgres.schema import migrate
from relay.storage.postgres.storage import PostgresStorage
from relay.storage.rules import StorageLimits
from relay.storage.sqlite import moving as in_folder
from relay.storage.sqlite.folder import init_folder
from relay.storage.sqlite.maintenance import check_log
from relay.storage.sqlite.storage import SqliteStorage
from tests.contracts.authors import DIGEST, Author, token_row
from tests.postgres import postgres  # noqa: F401 - a fixture

pytestmark = [pytest.mark.postgres, pytest.mark.requirement("nodes-4")]

NOW_MS = 5
MIB = 2**20


@pytest.fixture
def url(postgres):  # noqa: F811 - the fixture
    return postgres.url(postgres.emptied())


@asynccontextmanager
async def opened(storage):
    try:
        await storage.open()
        yield storage
    finally:
        await storage.close()


@pytest.fixture
async def folder(tmp_path):
    """A relay of two namespaces, with a snapshot, dropped payloads and a token."""
    folder = tmp_path / "relay"
    init_folder(folder, now_ms=1)
    limits = StorageLimits(grace_ms=0)
    async with opened(
        SqliteStorage(folder, limits=limits, disk_free_bytes=0)
    ) as storage:
        author = await Author.join(storage)
        await author.write(1, 2, 3)
        await author.snapshot(3)
        await author.write(kind=RecordKind.KEY_NOTICE, doc_tag=bytes(16))
        await (await Author.join(storage, "others")).write(1)
        await storage.sweep(1, 2)
        await storage.token_create(token_row(), DIGEST)
        await storage.token_revoke(token_row().token_id, 9)
    return folder


async def copied(source, target, told=lambda count: None):
    async with source as rows, target as made:
        return await copy_relay(rows, made, told)


async def content(source):
    """Return everything that a copy is made of."""
    async with source as rows:
        return {table: [row async for row in rows.rows(table)] for table in TABLES}


async def test_a_relay_that_moved_to_a_database_and_back_is_the_same(
    folder, url, tmp_path
):
    told: list[int] = []
    before = await content(in_folder.copy_source(folder))
    found = await copied(
        in_folder.copy_source(folder), in_database.copy_target(url), told.append
    )
    between = await content(in_database.copy_source(url))
    back = tmp_path / "back"
    await copied(
        in_database.copy_source(url), in_folder.copy_target(back, now_ms=NOW_MS)
    )

    assert [(one.namespace, one.records, one.dropped) for one in found] == [
        ("notes", 5, 2),
        ("others", 1, 0),
    ]
    assert told == [6]
    assert {table: len(rows) for table, rows in before.items()} == {
        "relay": 1,
        "epoch": 1,
        "ns": 2,
        "replica": 2,
        "doc": 2,
        "token": 1,
        "log": 6,
    }
    assert between == before
    assert await content(in_folder.copy_source(back)) == before
    assert {one.bad_seq for one in check_log(back)} == {None}


@pytest.mark.parametrize("where", ["folder", "database"])
async def test_a_copy_is_served_as_the_relay_that_it_was(folder, url, tmp_path, where):
    async with opened(SqliteStorage(folder)) as storage:
        identity = storage._identity
        author = await Author.join(storage)
        log = await author.log()
    await copied(in_folder.copy_source(folder), in_database.copy_target(url))
    moved: Storage = PostgresStorage(url)
    if where == "folder":
        back = tmp_path / "back"
        target = in_folder.copy_target(back, now_ms=NOW_MS)
        await copied(in_database.copy_source(url), target)
        moved = SqliteStorage(back, disk_free_bytes=0)
    cursor = Sample(5, log.rows[-1].chain)
    async with opened(moved) as storage:
        joined = await storage.join(
            "notes", create=False, replica_id=log.rows[0].replica_id, cursor=cursor
        )
        after = await storage.read(joined.ns_no, 0, records=100, octets=2**30)
        author = Author(storage, joined.ns_no, "notes", log.rows[0].replica_id)
        written = await author.write(6)
        made = await Author.join(storage, "new")

    assert storage._identity == identity
    assert after == log
    assert (joined.head, joined.resume, joined.own_max) == (5, cursor, 5)
    assert written.at.seq == 6
    assert made.ns_no not in (1, 2)


async def test_a_target_that_is_not_empty_is_left_as_it_is(folder, url):
    async with opened(PostgresStorage(url)):
        pass
    before = await content(in_database.copy_source(url))
    with pytest.raises(RelayFolderError, match="is not empty") as refused:
        await copied(in_folder.copy_source(folder), in_database.copy_target(url))
    with pytest.raises(RelayFolderError, match="is not empty"):
        await copied(
            in_database.copy_source(url), in_folder.copy_target(folder, now_ms=NOW_MS)
        )

    assert (refused.value.code, refused.value.exit_status) == ("relay-folder", 2)
    assert await content(in_database.copy_source(url)) == before
    assert len((await content(in_folder.copy_source(folder)))["log"]) == 6


async def test_a_database_with_nothing_but_a_token_is_not_empty(folder, url):
    async with Database(url).connection() as connection:
        await migrate(connection, "here")
        await connection.execute(
            "INSERT INTO crdtmem.token VALUES"
            " ('t', '', '*', 'read', '', NULL, NULL, 1, NULL, 1)"
        )
    with pytest.raises(RelayFolderError, match="is not empty"):
        await copied(in_folder.copy_source(folder), in_database.copy_target(url))


async def test_what_is_being_served_is_not_copied(folder, url, tmp_path):
    new = tmp_path / "new"
    async with opened(SqliteStorage(folder)):
        with pytest.raises(RelayRunningError, match=f"running on {folder}"):
            await copied(in_folder.copy_source(folder), in_database.copy_target(url))
    async with opened(PostgresStorage(url)):
        with pytest.raises(RelayRunningError, match="running on postgresql://"):
            await copied(in_folder.copy_source(folder), in_database.copy_target(url))
        with pytest.raises(RelayRunningError):
            await copied(
                in_database.copy_source(url), in_folder.copy_target(new, now_ms=NOW_MS)
            )

    assert not new.exists()


async def test_where_there_is_no_relay_there_is_nothing_to_copy(
    url,
    postgres,  # noqa: F811 - the fixture
    tmp_path,
):
    new = tmp_path / "new"
    async with Database(url).connection() as connection:
        await migrate(connection, "here")
    sources = [
        in_database.copy_source(url),
        in_database.copy_source(postgres.url()),
        in_folder.copy_source(tmp_path),
    ]
    for source in sources:
        with pytest.raises(RelayFolderError, match="holds no relay"):
            await copied(source, in_folder.copy_target(new, now_ms=NOW_MS))

    assert not new.exists()


async def test_a_copy_that_fails_leaves_the_target_empty(folder, url, tmp_path):
    def fail(count):
        raise KeyboardInterrupt

    new = tmp_path / "new"
    for target in (
        in_database.copy_target(url),
        in_folder.copy_target(new, now_ms=NOW_MS),
    ):
        with pytest.raises(KeyboardInterrupt):
            await copied(in_folder.copy_source(folder), target, fail)

    assert list(new.iterdir()) == []
    await copied(in_folder.copy_source(folder), in_database.copy_target(url))
    await copied(
        in_folder.copy_source(folder), in_folder.copy_target(new, now_ms=NOW_MS)
    )


async def test_a_source_whose_chain_is_broken_is_told(folder, url):
    with closing(apsw.Connection(str(folder / "relay.db"))) as connection:
        connection.execute(
            "UPDATE log SET chain = zeroblob(32) WHERE id & 0xFF IN (2, 4)"
        )
    with pytest.raises(
        StorageCorruptError, match=r"notes: seq 2: the chain is broken"
    ) as refused:
        await copied(in_folder.copy_source(folder), in_database.copy_target(url))

    assert refused.value.exit_status == 7
    with pytest.raises(RelayFolderError, match="holds no relay"):
        await content(in_database.copy_source(url))


# A copy in memory, to see and to spoil what is written.


class Lists:
    place = "lists"

    def __init__(self):
        self.tables: dict[str, list[Row]] = {table: [] for table in TABLES}
        self.sizes: list[int] = []
        self.spoil = lambda table, rows: None

    async def rows(self, table):
        for row in self.tables[table]:
            yield row

    async def add(self, table, rows):
        self.sizes.append(len(rows))
        self.tables[table] += rows
        self.spoil(table, self.tables[table])


SPOILS = {
    "lost": lambda rows: rows.pop(),
    "doubled": lambda rows: rows.append(rows[0]),
    "changed": lambda rows: rows.append((*rows.pop()[:-1], 77)),
}


@pytest.mark.parametrize("table", ["token", "log"])
@pytest.mark.parametrize("spoil", SPOILS.values(), ids=SPOILS)
async def test_a_copy_that_is_not_the_same_is_refused(folder, table, spoil):
    target: Any = Lists()
    target.spoil = lambda name, rows: spoil(rows) if name == table else None
    async with in_folder.copy_source(folder) as source:
        with pytest.raises(
            StorageCorruptError,
            match=f"lists .*: table {table} is not that of {folder}",
        ):
            await copy_relay(source, target, lambda count: None)


async def test_rows_are_written_in_batches_of_bounded_size(tmp_path):
    folder = tmp_path / "relay"
    init_folder(folder, now_ms=1)
    async with opened(SqliteStorage(folder, disk_free_bytes=0)) as storage:
        author = await Author.join(storage)
        for _ in range(3):
            await author.write(payload=bytes(3 * MIB))
        await author.write(*range(4, 1_010))
    target: Any = Lists()
    async with in_folder.copy_source(folder) as source:
        assert await source.records() == 1_009
        await copy_relay(source, target, lambda count: None)

    assert target.sizes[-3:] == [2, 1_000, 7]


async def test_a_database_tells_how_many_records_it_has(folder, url):
    await copied(in_folder.copy_source(folder), in_database.copy_target(url))
    async with in_database.copy_source(url) as source:
        assert await source.records() == 6
