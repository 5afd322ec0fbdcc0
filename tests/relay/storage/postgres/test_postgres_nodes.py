"""relay.storage.postgres: several processes on one database."""

import asyncio
import contextlib
from dataclasses import replace
from functools import partial

import asyncpg
import pytest

from crdtmem.errors import StorageUncertainError
from crdtmem.limits import ANNOUNCED_MAX
from crdtmem.protocol.relaying import Sample
from relay.storage import SweepReport
from relay.storage.postgres.appending import append_group
from relay.storage.postgres.connection import Database, committed
from relay.storage.postgres.maintenance import check_log
from relay.storage.postgres.reading import read_slice
from relay.storage.postgres.schema import LOCK_SWEEP
from relay.storage.rules import StorageLimits
from tests.conftest import PROFILE
from tests.contracts.authors import (
    DIGEST,
    HOUR_MS,
    SECRET,
    Author,
    aged,
    seqs,
    token_row,
)
from tests.proxy import ChaosProxy
from tests.relay.storage.postgres.conftest import QUICK, opened, until

pytestmark = pytest.mark.postgres

WRITES = {"default": 10, "campaign": 2_000}[PROFILE]
ROWS = {"default": 2_000, "campaign": 100_000}[PROFILE]
RARELY = replace(QUICK, poll_s=3_600)
"""Never looks for heads, so only messages tell of them."""


class Reader:
    """Notes what a node is told of heads, and what it hears."""

    def __init__(self, storage):
        self.told: list[tuple[int, int]] = []
        self.heard: list[bytes] = []
        storage.watch(lambda *head: self.told.append(head), self.heard.append)

    async def was_told(self, ns_no, head):
        await until(lambda: (ns_no, head) in self.told)

    async def has_heard(self, *messages):
        await until(lambda: self.heard[-len(messages) :] == list(messages))


@contextlib.asynccontextmanager
async def two_nodes(url, **options):
    async with opened(url, **options) as one, opened(url, **options) as two:
        yield one, two


async def append_silently(url, *puts):
    """Append as a process does that dies before it has told anybody."""
    database = Database(url)
    work = partial(
        append_group,
        puts=puts,
        limits=StorageLimits(),
        now_ms=0,
        place=database.place,
    )
    async with database.connection() as connection:
        await committed(connection, database.place, work)


# One log.


async def test_writers_of_several_processes_make_one_contiguous_log(url):
    async with two_nodes(url) as nodes, opened(url) as third:
        authors = [await Author.join(node) for node in (*nodes, third)]

        async def write_all(author):
            for number in range(1, WRITES + 1):
                assert (await author.write(number)).acked == number

        await asyncio.gather(*map(write_all, authors))
        logs = [await author.log() for author in authors]
    checked = await check_log(url)

    assert logs[0] == logs[1] == logs[2]
    assert seqs(logs[0].rows) == list(range(1, 3 * WRITES + 1))
    for author in authors:
        own = [r.replica_seq for r in logs[0].rows if r.replica_id == author.replica_id]
        assert own == list(range(1, WRITES + 1))
    assert [(one.records, one.reason) for one in checked] == [(3 * WRITES, "")]


async def test_processes_that_make_one_namespace_make_one(url):
    async with two_nodes(url) as nodes:
        asked = [Author.join(node, name) for name in "ab" for node in nodes]
        authors = await asyncio.gather(*asked)

    assert sorted(author.ns_no for author in authors) == [1, 1, 2, 2]


async def test_a_record_that_two_processes_bring_is_stored_once(url):
    async with two_nodes(url) as (one, two):
        author = await Author.join(one)
        put = author.put(1, 2)
        results = await asyncio.gather(one.append([put]), two.append([put]))
        log = await author.log()

    assert [result[0].acked for result in results] == [2, 2]
    assert seqs(log.rows) == [1, 2]


async def test_a_token_that_was_revoked_on_one_node_is_so_on_all(url):
    async with two_nodes(url) as (one, two):
        await one.token_create(token_row(), DIGEST)
        before = await two.grant("aaaaaaaaaa", SECRET, 1)
        seen = await two.changed_tokens(0)
        await one.token_revoke("aaaaaaaaaa", 7)
        after = await two.grant("aaaaaaaaaa", SECRET, 1)
        changes = await two.changed_tokens(seen[-1].number)

    assert before is not None
    assert after is None
    assert [(change.token_id, change.revoked_ms) for change in changes] == [
        ("aaaaaaaaaa", 7)
    ]


async def test_one_process_sweeps_at_a_time(url):
    limits = StorageLimits(grace_ms=0)
    async with opened(url, limits=limits) as node:
        author = await Author.join(node)
        await author.write()
        await author.snapshot(base=1)
        async with Database(url).connection() as other:
            await other.execute("SELECT pg_advisory_lock($1)", LOCK_SWEEP)
            meanwhile = await node.sweep(0, 10)
        await until_free(url, LOCK_SWEEP)
        alone = await node.sweep(0, 10)
        again = await node.sweep(0, 10)

    assert meanwhile == again == SweepReport(0, 0, has_more=False)
    assert alone.payloads == 1


async def until_free(url, lock):
    async with Database(url).connection() as connection:
        await connection.execute("SELECT pg_advisory_lock($1)", lock)
        await connection.execute("SELECT pg_advisory_unlock($1)", lock)


async def test_a_later_snapshot_puts_off_nothing(url):
    async with opened(url, limits=StorageLimits(grace_ms=5 * HOUR_MS)) as node:
        author = await Author.join(node)
        await author.write(1, 2)
        await author.snapshot(base=1)
        early, now_ms = await aged(node, 4 * HOUR_MS)
        await author.snapshot(base=2)
        due, _ = await aged(node, 2 * HOUR_MS, at_ms=now_ms)
        rows = (await author.log()).rows

    assert (early, due) == (0, 1)
    assert [row.record is None for row in rows] == [True, False, False, False]


async def test_a_sweep_that_fails_lets_go_of_its_lock(url, postgres, name):
    limits = StorageLimits(grace_ms=0)
    async with opened(url, limits=limits) as node:
        author = await Author.join(node)
        await author.write()
        await author.snapshot(base=1)
        postgres.sql("ALTER TABLE crdtmem.doc RENAME TO hidden", name)
        with pytest.raises(Exception, match="cannot be used: UndefinedTableError"):
            await node.sweep(0, 10)
        postgres.sql("ALTER TABLE crdtmem.hidden RENAME TO doc", name)
        await until_free(url, LOCK_SWEEP)
        report = await node.sweep(0, 10)

    assert report.payloads == 1


async def test_what_was_pruned_is_below_the_floor(url, postgres, name):
    async with opened(url) as node:
        author = await Author.join(node)
        await author.write(1, 2, 3)
        rows = (await author.log()).rows
        floor = Sample(2, rows[1].chain)
        # As a later release may do it.
        postgres.sql(
            "DELETE FROM crdtmem.log WHERE seq <= 2; UPDATE crdtmem.ns SET floor = 2,"
            f" floor_chain = '\\x{floor.chain.hex()}'",
            name,
        )
        joined = [await author.join_at(seq, b"?" * 32) for seq in (0, 1)]
        at_floor = await author.join_at(2, floor.chain)
        known = await node.match(author.ns_no, [Sample(1, rows[0].chain)])
        page = await node.read(author.ns_no, 2, records=10, octets=1)
        again = await author.write(1)
        more = await author.write(4)

    assert [one.resume for one in joined] == [floor, floor]
    assert (at_floor.resume, known) == (floor, floor)
    assert seqs(page.rows) == [3]
    assert (again.acked, again.at, more.head) == (1, floor, 4)


async def test_the_end_of_a_long_log_is_read_without_its_beginning(url):
    async with opened(url) as node:
        author = await Author.join(node)
        for first in range(1, ROWS, 1_000):
            await author.write(*range(first, first + 1_000))
        async with Database(url).connection() as connection, connection.transaction():
            page = await read_slice(
                connection, author.ns_no, ROWS - 10, records=512, octets=2**20
            )
            touched = await connection.fetchval(
                "SELECT seq_tup_read + idx_tup_fetch FROM pg_stat_xact_user_tables"
                " WHERE relname = 'log'"
            )

    assert seqs(page.rows) == list(range(ROWS - 9, ROWS + 1))
    assert touched <= 20


# Telling each other.


async def test_a_commit_is_told_to_the_other_processes_alone(url):
    async with two_nodes(url, timing=RARELY) as (one, two):
        writer, reader = Reader(one), Reader(two)
        author = await Author.join(one)
        elsewhere = await Author.join(one, "elsewhere")
        await Author.join(two)
        await elsewhere.write()
        await author.write()
        await author.write()
        await reader.was_told(author.ns_no, 2)
        one.announce(b"end")
        await reader.has_heard(b"end")

    # Of what nobody has joined there, a node is not told.
    assert {ns_no for ns_no, _ in reader.told} == {author.ns_no}
    assert writer.told == []


async def test_a_commit_that_nobody_told_of_is_found(url):
    async with opened(url) as node:
        reader = Reader(node)
        author = await Author.join(node)
        await append_silently(url, author.put(1, 2))
        await reader.was_told(author.ns_no, 2)
        await append_silently(url, author.put(3))
        await reader.was_told(author.ns_no, 3)

    assert set(reader.told) == {(author.ns_no, 2), (author.ns_no, 3)}


async def test_a_commit_is_told_though_nobody_wants_to_know(url):
    async with two_nodes(url) as (one, two):
        reader = Reader(one)
        author = await Author.join(two)
        await Author.join(one)
        await Author(one, author.ns_no, "notes").write()
        await author.write()
        await reader.was_told(author.ns_no, 2)
        one.announce(b"nobody hears it")

    assert reader.heard == []


async def test_what_is_announced_is_heard_by_the_others_alone(url):
    async with two_nodes(url, timing=RARELY) as (one, two):
        speaker, listener = Reader(one), Reader(two)
        for message in (b"first", bytes(range(256)), bytes(10_000), b""):
            one.announce(message)
        await listener.has_heard(b"first", bytes(range(256)), b"")
        two.announce(b"back")
        await speaker.has_heard(b"back")

    assert listener.heard == [b"first", bytes(range(256)), b""]
    assert speaker.heard == [b"back"]


async def test_of_too_many_messages_the_last_are_told(url):
    async with opened(url, timing=RARELY) as one:
        listener = Reader(one)
        other = opened(url, timing=RARELY)
        async with other as two:
            for number in range(ANNOUNCED_MAX + 10):
                two.announce(b"%d" % number)
            await listener.has_heard(b"%d" % (ANNOUNCED_MAX + 9))

    assert len(listener.heard) == ANNOUNCED_MAX
    assert listener.heard[0] == b"10"


async def test_what_anybody_else_says_there_changes_nothing(url, postgres, name):
    async with two_nodes(url) as (one, two):
        reader = Reader(two)
        author = await Author.join(one)
        await Author.join(two)
        sayings = ["", "x", "1:x", "-1:5", "\u0661:\u0662", "é", "1:2:3", "1:999"]
        sayings += ["1:" + "9" * count for count in (16, 5_000)]
        for channel in ("crdtmem_head", "crdtmem_presence"):
            for text in sayings:
                postgres.sql(f"SELECT pg_notify('{channel}', '{text}')", name)
        await author.write()
        await reader.was_told(author.ns_no, 1)

    # A head that is too high makes readers look, and there is nothing.
    assert set(reader.told) == {(author.ns_no, 1), (author.ns_no, 999)}
    assert not two._announcer.went_back
    assert set(reader.heard) <= {b""}


@pytest.mark.requirement("nodes-5")
async def test_a_node_that_was_cut_off_finds_what_was_committed_meanwhile(
    url, postgres, name, caplog
):
    async with (
        ChaosProxy(postgres.port) as proxy,
        opened(url) as one,
        opened(postgres.tcp_url(name, proxy.port)) as two,
    ):
        reader = Reader(two)
        author = await Author.join(one)
        await Author.join(two)
        proxy.refuse()
        proxy.reset()
        await until(lambda: "does not listen: StorageUnreachable" in caplog.text)
        await author.write(1, 2)
        proxy.heal()
        await reader.was_told(author.ns_no, 2)
        await author.write()
        await reader.was_told(author.ns_no, 3)
        one.announce(b"again")
        await reader.has_heard(b"again")

    assert "listens again" in caplog.text


async def test_a_database_that_went_back_is_used_no_longer(url, postgres, name):
    async with opened(url) as node:
        author = await Author.join(node)
        await author.write(1, 2, 3)
        postgres.sql("UPDATE crdtmem.ns SET head = 2", name)
        await until(lambda: node._announcer.went_back)
        for asked in (
            author.write(),
            author.log(),
            author.join_at(0, bytes(32)),
            node.probe(),
        ):
            with pytest.raises(StorageUncertainError, match="went back") as raised:
                await asked
            assert raised.value.ends_process


async def test_a_storage_may_be_closed_twice_and_while_it_is_cut_off(postgres, name):
    async with ChaosProxy(postgres.port) as proxy:
        async with opened(postgres.tcp_url(name, proxy.port)) as node:
            author = await Author.join(node)
            await author.write()
            proxy.hold()
            await node.close()
        held = await asyncpg.connect(postgres.url(name))
        await held.close()
