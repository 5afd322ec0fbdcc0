"""relay.storage.postgres: a database that is full, read-only, away, slow or cut off.

Whatever happens to it: nothing is acknowledged that is not committed, nothing is stored
twice, and all goes on without a restart.
"""

import asyncio
import contextlib
import random
from dataclasses import replace

import asyncpg
import pytest

from crdtmem.errors import (
    RelayError,
    StorageBusyError,
    StorageCorruptError,
    StorageFullError,
    StorageLostError,
    StorageReadOnlyError,
    StorageUnreachableError,
    StorageUnsafeError,
)
from crdtmem.protocol.relaying import PutRefusal
from relay.storage.postgres.connection import Database, PostgresTiming, committed
from relay.storage.postgres.errors import error_of, is_refusal
from tests.child import PATIENCE_S
from tests.conftest import PROFILE
from tests.contracts.authors import Author, seqs
from tests.postgres import Server, binaries
from tests.proxy import ChaosProxy
from tests.relay.storage.postgres.conftest import QUICK, opened, pause, until, until_in
from tests.scratch import grow_disk, small_disk

pytestmark = [pytest.mark.postgres, pytest.mark.requirement("nodes-5")]

SLOW_S = {"default": 0.2, "campaign": 10.0}[PROFILE]

RECORD_BYTES = 60_000

WAYS_TO_STOP = {"default": ["kill"], "campaign": ["fast", "immediate", "kill"]}[PROFILE]

REFUSING = """
CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS
$$ BEGIN RAISE EXCEPTION 'planted' USING ERRCODE = '{state}'; END $$;
CREATE CONSTRAINT TRIGGER refuse AFTER INSERT ON crdtmem.log
DEFERRABLE INITIALLY {when} FOR EACH ROW EXECUTE FUNCTION refuse();
"""
"""As if the server met that in a statement, or in the commit."""

WAITING = """
CREATE FUNCTION wait() RETURNS trigger LANGUAGE plpgsql AS
$$ BEGIN PERFORM pg_advisory_xact_lock_shared(7); RETURN NULL; END $$;
CREATE CONSTRAINT TRIGGER wait AFTER INSERT ON crdtmem.log
DEFERRABLE INITIALLY {when} FOR EACH ROW EXECUTE FUNCTION wait();
"""
"""A statement, or a commit, that takes until somebody lets go of a lock."""


@contextlib.asynccontextmanager
async def held(url, statement, *values):
    """Have another session hold locks for a while."""
    async with Database(url).connection() as connection:
        transaction = connection.transaction()
        await transaction.start()
        await connection.execute(statement, *values)
        yield
        await transaction.rollback()


WAITS = (
    "SELECT EXISTS (SELECT FROM pg_stat_activity"
    " WHERE datname = current_database() AND wait_event = 'advisory')"
)


async def goes_on(author):
    """Check that the next records are stored, and what was not acknowledged, once."""
    number = author.last
    again = await author.write(number)
    log = await author.log()

    assert again.acked == number
    assert [row.replica_seq for row in log.rows] == [*range(1, number + 1)]


# Full, broken.


@pytest.mark.parametrize("when", ["IMMEDIATE", "DEFERRED"])
async def test_a_full_database_refuses_a_group_and_reads_go_on(
    node, postgres, name, when
):
    async with node() as storage:
        author = await Author.join(storage)
        await author.write()
        postgres.sql(REFUSING.format(state="53100", when=when), name)
        with pytest.raises(StorageFullError, match="left for postgresql:///test"):
            await author.write(2, 3)
        seen = await author.log()
        postgres.sql("DROP FUNCTION refuse CASCADE", name)

        assert seqs(seen.rows) == [1]
        await author.write(2)
        await goes_on(author)


# A disk of its own that has no more room.


@pytest.fixture
def disk():
    """Give a folder on a disk of so many MiB."""
    with contextlib.ExitStack() as mounted:

        def disk(mib):
            try:
                return mounted.enter_context(small_disk(mib))
            except OSError as error:
                pytest.skip(str(error))

        yield disk


async def fill(author):
    """Write until that is refused; return why, and the last number acknowledged."""
    acked = 0
    while True:
        put = author.put(author.last + 1, payload=random.randbytes(RECORD_BYTES))
        try:
            acked = (await author.storage.append([put]))[0].acked
        except RelayError as error:
            return error, acked


async def goes_on_after(author, acked):
    """Check that what was acknowledged is there, once, and that more is stored."""
    rows = (await author.log()).rows
    assert len(rows) >= acked > 0
    author.last = len(rows)
    await author.write()
    await goes_on(author)


async def test_tables_without_room_refuse_until_there_is_some(postgres, disk):
    folder = disk(12)
    name = postgres.new_on(folder)
    async with opened(postgres.url(name)) as storage:
        author = await Author.join(storage)
        error, acked = await fill(author)
        author.last = acked
        again, more = await fill(author)
        acked = more or acked
        seen = await author.log()
        grow_disk(folder, 40)
        await goes_on_after(author, acked)
    postgres.sql(f"DROP DATABASE {name}")
    postgres.sql(f"DROP TABLESPACE {name}")

    assert (error.code, again.code) == ("storage-full", "storage-full")
    assert seqs(seen.rows) == [*range(1, acked + 1)]


@pytest.mark.skipif(PROFILE == "default", reason="starts a server: for the campaign")
async def test_a_log_of_writes_without_room_stops_the_server_until_there_is_some(disk):
    programs = binaries()
    if programs is None:
        pytest.skip("no PostgreSQL server here")
    folder = disk(12)
    options = ["--wal-segsize", "1", "--waldir", str(folder / "wal")]
    with Server(programs, options=options) as server:
        async with opened(server.new_database()) as storage:
            author = await Author.join(storage)
            error, acked = await fill(author)
            # It goes down in a COMMIT, and does not come up either.
            await until(lambda: server.has_ended)
            with pytest.raises(StorageUnreachableError):
                await storage.probe()
            grow_disk(folder, 100)
            server.start()
            await settled(author)
            await goes_on_after(author, acked)

    assert isinstance(error, StorageLostError)


async def test_a_database_that_fails_in_an_unknown_way_in_a_commit_is_uncertain(
    node, postgres, name
):
    async with node() as storage:
        author = await Author.join(storage)
        postgres.sql(REFUSING.format(state="XX000", when="DEFERRED"), name)
        with pytest.raises(StorageLostError, match="lost in a commit"):
            await author.write()
        postgres.sql("DROP FUNCTION refuse CASCADE", name)

        await goes_on(author)


async def test_one_full_namespace_stops_no_other(node, postgres, name):
    async with node() as storage:
        one, two = [await Author.join(storage, n) for n in ("one", "two")]
        postgres.sql(
            REFUSING.format(state="53100", when="IMMEDIATE").replace(
                "FOR EACH ROW", f"FOR EACH ROW WHEN (new.ns_no = {one.ns_no})"
            ),
            name,
        )
        puts = [one.put(), two.put(), one.put()]
        first, other, second = await storage.append(puts)
        nothing = await one.log()

    assert (first.acked, first.refusal) == (0, PutRefusal("storage-full", 1, 1))
    assert (second.acked, second.refusal) == (0, PutRefusal("storage-full", 2, 2))
    assert (other.acked, nothing.head) == (1, 0)


# Settings that are changed while it runs.


@pytest.fixture
def reload(postgres):
    """Change settings of the server, until the end of the test."""
    yield postgres.reload
    postgres.reload()


async def failure_of(asked):
    """Ask until that fails: sessions learn of a setting one after the other."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            try:
                await asked()
            except RelayError as error:
                return error
            await pause()


@pytest.mark.parametrize("setting", ["fsync", "full_page_writes"])
async def test_a_server_that_syncs_no_longer_is_given_nothing_more(
    node, reload, postgres, name, setting
):
    async with node() as storage:
        author = await Author.join(storage)
        await author.write()
        reload(**{setting: "off"})
        errors = [await failure_of(asked) for asked in (author.write, storage.probe)]
        heads = postgres.sql("SELECT head FROM crdtmem.ns", name)
        reload()
        await settled(author, StorageUnsafeError)

        assert [type(error) for error in errors] == [StorageUnsafeError] * 2
        assert all(f"{setting} is off" in error.message for error in errors)
        assert heads == [str(author.last - 1)]
        await goes_on(author)


async def test_a_commit_that_a_standby_lacks_is_neither_acknowledged_nor_shown(
    url, reload
):
    timing = replace(QUICK, answer_s=0.3, lock_ms=50)
    async with opened(url, timing=timing) as storage:
        author = await Author.join(storage)
        await author.write()
        reload(synchronous_standby_names="nobody")
        error = await failure_of(author.write)
        # It waits on there, so to send it again does not get it acknowledged either.
        with pytest.raises(StorageBusyError):
            await author.write(author.last)
        seen = await author.log()
        joined = await author.join_at(0, bytes(32))
        reload()
        await settled(author)

        assert isinstance(error, StorageLostError)
        assert seqs(seen.rows) == [*range(1, author.last)]
        assert joined.own_max == author.last - 1
        await goes_on(author)


# Read-only.


async def test_a_database_that_takes_no_writes_refuses_them_and_reads_go_on(
    node, postgres, name
):
    async with node() as storage:
        author = await Author.join(storage)
        await author.write()
    postgres.sql(f"ALTER DATABASE {name} SET default_transaction_read_only = on")
    async with node() as storage:
        author.storage = storage
        with pytest.raises(StorageReadOnlyError, match=r"ReadOnlySQL.* \(25006"):
            await author.write()
        with pytest.raises(StorageReadOnlyError):
            await storage.probe()
        seen = await author.log()
        # What a failover is like: other settings, and all connections lost.
        postgres.sql(f"ALTER DATABASE {name} RESET default_transaction_read_only")
        disconnect(postgres, name)
        await settled(author)

        assert seqs(seen.rows) == [1]
        await goes_on(author)


async def test_a_standby_is_found_when_it_is_promoted(node, postgres, name):
    async with node() as storage:
        author = await Author.join(storage)
        await author.write()
        postgres.stop()
        postgres.start_as_standby()
        with pytest.raises(StorageReadOnlyError, match="it is a standby"):
            await settled(author, StorageUnreachableError)
        postgres.sql("SELECT pg_promote()")
        await settled(author)

        await goes_on(author)


# Away.


def disconnect(postgres, name):
    postgres.sql(
        "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity"
        f" WHERE datname = '{name}' AND application_name = 'crdtmem-relay'"
    )


async def settled(author, passing=StorageBusyError):
    """Write one record, as often as the database is not there yet."""
    number = author.last
    while True:
        try:
            await author.write(number)
        except passing:
            await pause()
        else:
            return


@pytest.mark.parametrize("how", WAYS_TO_STOP)
async def test_a_database_that_was_away_is_found_again(node, postgres, how):
    async with node() as storage:
        author = await Author.join(storage)
        await author.write()
        postgres.stop(how)
        for asked in (author.write(), author.log(), storage.probe()):
            with pytest.raises(StorageUnreachableError, match="cannot be reached: "):
                await asked
        postgres.start()

        await settled(author)
        await goes_on(author)


async def test_connections_that_the_server_ends_are_replaced(node, postgres, name):
    async with node() as storage:
        author = await Author.join(storage)
        await author.write()
        disconnect(postgres, name)
        await settled(author)

        await goes_on(author)


# Cut off in the middle.


@pytest.mark.parametrize("when", ["IMMEDIATE", "DEFERRED"])
async def test_a_connection_that_is_cut_acknowledges_nothing(postgres, name, when):
    async with (
        ChaosProxy(postgres.port) as proxy,
        opened(postgres.tcp_url(name, proxy.port)) as storage,
    ):
        author = await Author.join(storage)
        await author.write()
        postgres.sql(WAITING.format(when=when), name)
        async with held(postgres.url(name), "SELECT pg_advisory_xact_lock(7)"):
            writing = asyncio.create_task(author.write(2))
            await until_in(postgres.url(name), WAITS)
            proxy.reset()
            # Before COMMIT nothing was stored; in it, nobody knows.
            is_uncertain = when == "DEFERRED"
            expected = StorageLostError if is_uncertain else StorageUnreachableError
            with pytest.raises(expected):
                await writing
        await settled(author)

        await goes_on(author)


async def test_a_server_that_dies_in_a_commit_acknowledges_nothing(
    node, postgres, name
):
    async with node() as storage:
        author = await Author.join(storage)
        await author.write()
        postgres.sql(WAITING.format(when="DEFERRED"), name)
        async with contextlib.AsyncExitStack() as resources:
            with contextlib.suppress(StorageUnreachableError):
                await resources.enter_async_context(
                    held(postgres.url(name), "SELECT pg_advisory_xact_lock(7)")
                )
                writing = asyncio.create_task(author.write(2))
                await until_in(postgres.url(name), WAITS)
                postgres.restart("kill")
                with pytest.raises(StorageLostError):
                    await writing
                await resources.aclose()
        await settled(author)

        await goes_on(author)


async def test_a_commit_that_the_server_turned_into_a_rollback_is_no_commit(url):
    async def work(connection):
        with contextlib.suppress(asyncpg.PostgresError):
            await connection.execute("SELECT nosuch")

    async with Database(url).connection() as connection:
        with pytest.raises(StorageLostError):
            await committed(connection, "postgresql:///r", work)


async def test_one_lost_commit_among_others_is_told(node, postgres, name):
    async with node() as storage:
        one, two = [await Author.join(storage, n) for n in ("one", "two")]
        postgres.sql(
            REFUSING.format(state="57P01", when="DEFERRED").replace(
                "FOR EACH ROW", f"FOR EACH ROW WHEN (new.ns_no = {one.ns_no})"
            ),
            name,
        )
        with pytest.raises(StorageLostError):
            await storage.append([one.put(), two.put()])
        stored = await two.log()

    assert stored.head == 1


# Slow.


async def test_a_slow_database_is_waited_for(postgres, name):
    async with (
        ChaosProxy(postgres.port) as proxy,
        opened(postgres.tcp_url(name, proxy.port)) as storage,
    ):
        author = await Author.join(storage)
        await author.write()
        proxy.hold()
        asyncio.get_running_loop().call_later(SLOW_S, proxy.release)
        result = await author.write()

        assert result.acked == 2
        await goes_on(author)


@pytest.mark.parametrize("when", ["IMMEDIATE", "DEFERRED"])
async def test_a_database_that_is_too_slow_is_given_up(url, postgres, name, when):
    async with opened(url, timing=replace(QUICK, answer_s=0.3)) as storage:
        author = await Author.join(storage)
        await author.write()
        postgres.sql(WAITING.format(when=when), name)
        async with held(url, "SELECT pg_advisory_xact_lock(7)"):
            is_uncertain = when == "DEFERRED"
            expected = StorageLostError if is_uncertain else StorageUnreachableError
            with pytest.raises(expected):
                await author.write(2)
            seen = await author.log()
        await settled(author)

        assert seqs(seen.rows) == [1]
        await goes_on(author)


async def test_a_database_whose_answers_are_lost_is_given_up(postgres, name):
    async with (
        ChaosProxy(postgres.port) as proxy,
        opened(
            postgres.tcp_url(name, proxy.port), timing=replace(QUICK, answer_s=0.3)
        ) as storage,
    ):
        author = await Author.join(storage)
        await author.write()
        proxy.blackhole("down")
        for asked in (author.write(2), author.log()):
            with pytest.raises(StorageUnreachableError):
                await asked
        proxy.heal()
        await settled(author)

        await goes_on(author)


async def test_a_namespace_that_another_keeps_is_busy_and_no_other_waits(url, postgres):
    timing = replace(QUICK, lock_ms=100)
    async with opened(url, timing=timing) as storage:
        one, two = [await Author.join(storage, n) for n in ("one", "two")]
        lock = "SELECT FROM crdtmem.ns WHERE name = 'one' FOR UPDATE"
        async with held(url, lock):
            with pytest.raises(StorageBusyError, match=r"LockNotA.* \(55P03"):
                await storage.append([one.put()])
            refused, stored = await storage.append([one.put(1), two.put()])

        assert (refused.acked, refused.refusal) == (0, PutRefusal("busy", 1, 1))
        assert stored.acked == 1
        await goes_on(one)


async def test_a_process_that_went_away_in_a_transaction_holds_up_nobody(url):
    async with opened(url) as storage:
        author = await Author.join(storage)
        gone = Database(url, timing=PostgresTiming(idle_ms=50))
        async with gone.connection() as connection:
            await connection.execute("BEGIN")
            await connection.execute("SELECT FROM crdtmem.ns FOR UPDATE")
            result = await author.write()

    assert result.acked == 1


async def test_a_call_that_is_cancelled_leaves_its_connection_to_nobody(
    url, postgres, name
):
    async with opened(url) as storage:
        author = await Author.join(storage)
        for when in ("IMMEDIATE", "DEFERRED"):
            postgres.sql(WAITING.format(when=when), name)
            async with held(url, "SELECT pg_advisory_xact_lock(7)"):
                writing = asyncio.create_task(author.write())
                await until_in(postgres.url(name), WAITS)
                writing.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await writing
            postgres.sql("DROP FUNCTION wait CASCADE", name)
            await goes_on(author)


# What each condition means.


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        ("53100", StorageFullError),
        ("25006", StorageReadOnlyError),
        ("53300", StorageBusyError),
        ("53200", StorageBusyError),
        ("55P03", StorageBusyError),
        ("57014", StorageBusyError),
        ("40P01", StorageBusyError),
        ("57P01", StorageUnreachableError),
        ("57P03", StorageUnreachableError),
        ("08006", StorageUnreachableError),
        ("28P01", StorageUnreachableError),
        ("3D000", StorageUnreachableError),
        ("42P01", StorageCorruptError),
        ("XX001", StorageCorruptError),
    ],
)
def test_each_condition_of_the_server_is_one_error(state, expected):
    condition = asyncpg.PostgresError.new({"C": state, "M": "hunter2"})
    found = error_of(condition, "postgresql://host/r")

    assert type(found) is expected
    assert "hunter2" not in str(found.to_dict())
    assert "postgresql://host/r" in found.message


def test_only_what_a_server_says_before_it_commits_is_a_refusal():
    def refusal(state):
        return is_refusal(asyncpg.PostgresError.new({"C": state, "M": ""}))

    assert [refusal(state) for state in ("53100", "40001", "25006")] == [True] * 3
    assert [refusal(state) for state in ("57P01", "08006", "XX000")] == [False] * 3
    assert not is_refusal(TimeoutError())
