"""What every storage of a relay has to do; each implementation runs all of it.

An adapter has a fixture ``make``: called, with StorageLimits or without, it returns a
storage that is not open yet, over one and the same log. ``from tests.contracts.storage
import *`` then brings the tests, and the fixtures that open what they work on.
"""

import asyncio
import contextlib
from itertools import pairwise

import pytest

from crdtmem.errors import InvalidArgumentError
from crdtmem.protocol.records import NO_DOC_TAG, RecordKind, chain_next, chain_start
from crdtmem.protocol.relaying import Grant, PutRefusal, RewindCause, Sample, Scope
from relay.storage import SweepReport, TokenChange
from relay.storage.rules import StorageLimits
from tests.contracts.authors import (
    ALL,
    DIGEST,
    DOC,
    EVERYTHING,
    HOUR_MS,
    NOWHERE,
    OTHER_DOC,
    SECRET,
    Author,
    aged,
    assert_verifies,
    grant_of,
    seqs,
    token_row,
)

YEAR_MS = 366 * 24 * HOUR_MS


@pytest.fixture
async def opened(make):
    """A storage, and who it said it is when it was opened."""
    storage = make()
    yield storage, await storage.open()
    await storage.close()


@pytest.fixture
def storage(opened):
    return opened[0]


@pytest.fixture
def identity(opened):
    return opened[1]


@pytest.fixture
async def author(storage):
    return await Author.join(storage)


@contextlib.asynccontextmanager
async def author_on(make, **limits):
    """Give an author on a storage of its own that has these limits."""
    storage = make(StorageLimits(**limits))
    await storage.open()
    try:
        yield await Author.join(storage)
    finally:
        await storage.close()


# Appending.


async def test_records_get_the_seqs_from_1_and_are_read_as_they_came(author, identity):
    put = author.put(1, 2, 3)
    results = await author.storage.append([put])
    log = await author.log()

    assert results[0].rows == log.rows
    assert (results[0].acked, results[0].head, results[0].refusal) == (3, 3, None)
    assert results[0].at == Sample(3, log.rows[2].chain)
    assert [row.record for row in log.rows] == [made.record for made in put.records]
    assert [(row.kind, row.base, row.doc_tag) for row in log.rows] == [(1, 0, DOC)] * 3
    assert {row.replica_id for row in log.rows} == {author.replica_id}
    assert [row.replica_seq for row in log.rows] == [1, 2, 3]
    assert_verifies(log, identity.relay_id, "notes")


async def test_namespaces_count_for_themselves(storage, identity):
    one = await Author.join(storage, "one")
    two = await Author.join(storage, "two", replica_id=one.replica_id)
    await storage.append([one.put(1, 2), two.put(1), one.put(3)])

    assert_verifies(await one.log(), identity.relay_id, "one")
    assert_verifies(await two.log(), identity.relay_id, "two")
    assert (len((await one.log()).rows), len((await two.log()).rows)) == (3, 1)


async def test_a_record_that_is_there_is_acknowledged_again_and_not_stored(author):
    first = await author.write(1, 2)
    again = await author.write(1, 2)
    more = await author.write(2, 3)

    assert (again.acked, again.at, again.head) == (2, first.at, 2)
    assert (again.rows, again.refusal) == ((), None)
    assert (more.acked, seqs(more.rows)) == (3, [3])
    assert seqs((await author.log()).rows) == [1, 2, 3]


async def test_a_record_twice_in_one_group_is_stored_once(author):
    put = author.put(1, 2)
    first, again = await author.storage.append([put, put])

    assert (again.acked, again.at, again.rows) == (2, first.at, ())
    assert seqs((await author.log()).rows) == [1, 2]


async def test_a_record_is_recognised_after_its_payload_has_gone(make):
    async with author_on(make, grace_ms=HOUR_MS) as author:
        first = await author.write(1)
        await author.snapshot(base=1)
        await aged(author.storage, 2 * HOUR_MS)
        again = await author.write(1)
        author.last = 2
        fork = await author.refused(1, payload=b"other")

    assert (again.acked, again.at, again.rows) == (1, first.at, ())
    assert fork == "replica-fork"


async def test_a_fork_a_gap_and_a_base_ahead_are_refused(author):
    await author.write(1, 2)

    assert await author.refused(2, payload=b"other") == "replica-fork"
    assert await author.refused(4) == "replica-gap"
    assert await author.refused(3, base=3) == "base-ahead"
    assert (await author.write(3, base=2)).acked == 3


async def test_a_new_stream_begins_at_1(author):
    assert await author.refused(2) == "replica-gap"


async def test_a_base_may_name_a_record_of_the_same_group(storage):
    one, two = await Author.join(storage), await Author.join(storage)
    first, second = await storage.append([one.put(1), two.put(1, base=1)])

    assert (first.head, second.head, second.refusal) == (1, 2, None)


async def test_a_partly_refused_put_keeps_its_beginning_and_no_other_suffers(storage):
    one, two = await Author.join(storage), await Author.join(storage)
    puts = [two.put(1), one.put(1, 2, 4, 5), two.put(2)]
    before, partly, behind = await storage.append(puts)

    assert (partly.acked, seqs(partly.rows)) == (2, [2, 3])
    assert partly.refusal == PutRefusal("replica-gap", 4, 3)
    assert (seqs(before.rows), seqs(behind.rows)) == ([1], [4])
    assert seqs((await one.log()).rows) == [1, 2, 3, 4]


async def test_a_group_is_seen_whole_and_only_after_it_was_stored(author):
    async with asyncio.TaskGroup() as tasks:
        task = tasks.create_task(author.write(*range(1, 257)))
        heads = []
        while not task.done():
            heads.append((await author.log()).head)
            await asyncio.wait([task], timeout=0)

    assert set(heads) <= {0, 256}
    assert (await author.log()).head == 256


async def test_two_writers_at_once_make_one_contiguous_log(storage, identity):
    authors = [await Author.join(storage) for _ in range(2)]

    async def write_all(author):
        for number in range(1, 201):
            assert (await author.write(number)).acked == number

    await asyncio.gather(*map(write_all, authors))
    log = await authors[0].log()

    assert_verifies(log, identity.relay_id, "notes")
    for author in authors:
        own = [r.replica_seq for r in log.rows if r.replica_id == author.replica_id]
        assert own == list(range(1, 201))


# What may be stored.

KIND_AND_SCOPE = [
    ({"kind": RecordKind.UPDATE}, Scope.WRITE),
    ({"kind": RecordKind.SNAPSHOT}, Scope.WRITE),
    ({"kind": RecordKind.SNAPSHOT, "base": 1}, Scope.COMPACT),
    ({"kind": RecordKind.DOC_DELETE, "base": 1}, Scope.COMPACT),
    ({"kind": RecordKind.KEY_NOTICE, "doc_tag": NO_DOC_TAG}, Scope.WRITE),
    ({"kind": RecordKind.RECEIPT, "doc_tag": NO_DOC_TAG}, Scope.WRITE),
    ({"kind": RecordKind.SNAPSHOT_VOID, "base": 1}, Scope.COMPACT),
]


@pytest.mark.parametrize(("fields", "scope"), KIND_AND_SCOPE)
async def test_a_record_is_stored_only_with_the_scope_that_it_needs(
    author, fields, scope
):
    await author.write()
    for scopes in (Scope(0), ALL & ~scope, Scope.PRESENCE):
        assert await author.refused(grant=grant_of(scopes), **fields) == "forbidden"

    stored = await author.write(grant=grant_of(scope), **fields)
    assert (stored.acked, stored.rows[0].kind) == (2, fields["kind"])


async def test_a_token_lets_no_more_replicas_write_than_it_says(storage):
    two = grant_of(max_replicas=2)
    first, second, third = [await Author.join(storage) for _ in range(3)]
    await first.write(grant=two)
    await second.write(grant=two)
    elsewhere = await Author.join(storage, "elsewhere")

    assert await third.refused(grant=two) == "forbidden"
    assert (await first.write(grant=two)).acked == 2
    assert (await elsewhere.write(grant=two)).acked == 1
    assert (await third.write()).acked == 1


async def test_a_quota_holds_for_all_but_what_makes_room(make):
    state = {"kind": RecordKind.SNAPSHOT}
    async with author_on(make, quota_bytes=1_000) as author:
        await author.write(payload=bytes(940))
        refused = [
            await author.refused(payload=b""),
            await author.refused(payload=b"", **state),
            await author.refused(payload=bytes(41), base=1, **state),
        ]
        room = await author.snapshot(1, payload=bytes(40))
        elsewhere = await Author.join(author.storage, "elsewhere")
        other = await elsewhere.write()

    assert refused == ["quota-exceeded"] * 3
    assert (room.acked, other.acked) == (2, 1)


async def test_a_dropped_payload_counts_for_the_quota_no_longer(make):
    async with author_on(make, quota_bytes=1_000, grace_ms=HOUR_MS) as author:
        await author.write(payload=bytes(900))
        await author.snapshot(1, payload=b"")
        full = await author.refused(payload=bytes(100))
        await aged(author.storage, 2 * HOUR_MS)
        room = await author.write(payload=bytes(100))

    assert (full, room.acked) == ("quota-exceeded", 3)


async def test_a_namespace_holds_so_many_docs(make):
    receipt = {"kind": RecordKind.RECEIPT, "doc_tag": NO_DOC_TAG}
    async with author_on(make, docs_max=1) as author:
        await author.write(doc_tag=DOC)
        refused = await author.refused(doc_tag=OTHER_DOC)
        same = await author.write(doc_tag=DOC)
        none = await author.write(**receipt)

    assert refused == "quota-exceeded"
    assert (same.acked, none.acked) == (2, 3)


# Reading.


async def test_pages_of_both_limits_together_are_the_whole_log(author):
    await author.write(*range(1, 51))
    size = len((await author.log()).rows[0].record)
    for most, limits in (
        (7, {"records": 7, "octets": 2**20}),
        (3, {"records": 50, "octets": 3 * size}),
    ):
        found, after = [], 0
        while after < 50:
            page = await author.storage.read(author.ns_no, after, **limits)
            assert page.head == 50
            found.append(len(page.rows))
            assert seqs(page.rows) == list(range(after + 1, after + 1 + found[-1]))
            after = page.rows[-1].seq
        assert (sum(found), max(found)) == (50, most)


async def test_a_row_that_is_longer_than_a_page_comes_alone(author):
    await author.write(payload=b"")
    await author.write(payload=bytes(5_000))
    await author.write(payload=b"")
    limits = {"records": 10, "octets": 1_000}
    pages = [await author.storage.read(author.ns_no, n, **limits) for n in (0, 1, 2)]

    assert [seqs(page.rows) for page in pages] == [[1], [2], [3]]
    assert len(pages[1].rows[0].record) > 5_000


async def test_an_empty_log_is_read_as_nothing(author):
    log = await author.storage.read(author.ns_no, 0, **EVERYTHING)

    assert (log.ns_no, log.rows, log.head) == (author.ns_no, (), 0)


# Joining.


async def test_a_namespace_is_made_only_for_who_may_write(storage, identity):
    arguments = {"replica_id": bytes(16), "cursor": NOWHERE}
    refused = await storage.join("notes", create=False, **arguments)
    made = await storage.join("notes", create=True, **arguments)
    found = await storage.join("notes", create=False, **arguments)

    assert (refused.code, refused.ns_no) == ("namespace-not-found", 0)
    assert (made.code, made.head, made.floor) == ("", 0, 0)
    assert made.resume == Sample(0, chain_start(identity.relay_id, "notes"))
    assert found == made


async def test_a_namespace_that_two_ask_for_at_once_is_made_once(storage):
    asked = [Author.join(storage) for _ in range(2)]
    one, two = await asyncio.gather(*asked)

    assert one.ns_no == two.ns_no


async def test_a_cursor_that_stands_in_the_log_is_where_its_reader_goes_on(author):
    await author.write(1, 2, 3)
    rows = (await author.log()).rows
    for row in rows:
        joined = await author.join_at(row.seq, row.chain)
        assert (joined.resume, joined.cause) == (
            Sample(row.seq, row.chain),
            RewindCause.NONE,
        )
        assert (joined.head, joined.floor) == (3, 0)


async def test_a_reader_without_a_cursor_begins_at_the_start(author, identity):
    await author.write(1, 2)
    joined = await author.join_at(0, b"?" * 32)

    assert joined.resume == Sample(0, chain_start(identity.relay_id, "notes"))


@pytest.mark.parametrize(
    ("seq", "cause"),
    [
        (2, RewindCause.OTHER_CHAIN),
        (3, RewindCause.PAST_HEAD),
        (2**53 - 1, RewindCause.PAST_HEAD),
    ],
)
async def test_a_cursor_of_another_log_is_to_be_rewound(author, seq, cause):
    await author.write(1, 2)
    joined = await author.join_at(seq, b"?" * 32)

    assert (joined.resume, joined.cause, joined.head) == (None, cause, 2)


async def test_a_join_tells_a_replica_how_much_of_its_own_is_there(storage):
    one, two = await Author.join(storage), await Author.join(storage)
    await one.write(1, 2)
    await two.write(1)
    await one.write(3)
    last = (await one.log()).rows[-1]
    own = await one.join_at(0, bytes(32))
    stranger = await Author(storage, one.ns_no, "notes").join_at(0, bytes(32))

    assert (own.own_max, own.own_id) == (3, last.record_id)
    assert (stranger.own_max, stranger.own_id) == (0, bytes(32))


async def test_the_highest_sample_that_fits_is_matched(author, identity):
    await author.write(1, 2, 3, 4)
    rows = (await author.log()).rows
    right = [Sample(row.seq, row.chain) for row in rows]
    wrong = Sample(3, b"?" * 32)
    beyond = [Sample(2**53 - 1, b"?" * 32), Sample(2**40 + 1, right[0].chain)]
    match = author.storage.match

    assert await match(author.ns_no, [*beyond, wrong, right[1], right[0]]) == right[1]
    assert await match(author.ns_no, [right[0], right[3]]) == right[3]
    start = Sample(0, chain_start(identity.relay_id, "notes"))
    assert await match(author.ns_no, [wrong]) == start
    assert await match(author.ns_no, []) == start


# Snapshots, and what they cover.


async def test_a_doc_has_one_newest_snapshot(author):
    await author.write()
    await author.snapshot(base=0)
    first = await author.snapshot(base=1)
    second = await author.snapshot(base=1)
    await author.write(doc_tag=OTHER_DOC)

    assert [row.is_newest_snapshot for row in first.rows + second.rows] == [True] * 2
    newest = [row.is_newest_snapshot for row in (await author.log()).rows]
    assert newest == [False, False, False, True, False]


async def test_a_snapshot_that_covers_less_than_another_is_stale(author):
    await author.write(1, 2, 3)
    await author.snapshot(base=2)

    assert await author.refused(kind=RecordKind.SNAPSHOT, base=1) == "snapshot-stale"
    assert (await author.snapshot(base=2)).acked == 5
    assert (await author.snapshot(base=1, doc_tag=OTHER_DOC)).acked == 6


async def test_what_a_snapshot_covers_goes_after_the_grace_and_not_before(make):
    async with author_on(make, grace_ms=5 * HOUR_MS) as author:
        await author.write(1, 2)
        await author.write(doc_tag=OTHER_DOC)
        await author.write()
        await author.write(kind=RecordKind.DOC_DELETE, base=1, doc_tag=OTHER_DOC)
        await author.snapshot(base=2)
        before = await author.log()
        early, now_ms = await aged(author.storage, 4 * HOUR_MS)
        still = await author.log()
        dropped, _ = await aged(author.storage, 2 * HOUR_MS, at_ms=now_ms)
        after = await author.log()

    assert (early, still) == (0, before)
    assert dropped == 2
    assert [row.record is None for row in after.rows] == [True] * 2 + [False] * 4
    assert [row.chain for row in after.rows] == [row.chain for row in before.rows]
    assert [row.record_id for row in after.rows] == [r.record_id for r in before.rows]
    assert [row.replica_seq for row in after.rows] == [1, 2, 3, 4, 5, 6]
    has_dropped = [row.doc_has_dropped for row in after.rows]
    assert has_dropped == [True, True, False, True, False, True]


async def test_a_snapshot_covers_what_came_in_the_same_group(make):
    async with author_on(make, grace_ms=0) as author:
        cover = author.put(2, kind=RecordKind.SNAPSHOT, base=1)
        await author.storage.append([author.put(1), cover])
        report = await author.storage.sweep(0, 10)
        rows = (await author.log()).rows

    assert report.payloads == 1
    assert [row.record is None for row in rows] == [True, False]


async def test_a_sweep_drops_no_more_than_it_may(make):
    async with author_on(make, grace_ms=0) as author:
        await author.write(1, 2, 3)
        size = len((await author.log()).rows[0].record)
        await author.snapshot(base=3)
        first = await author.storage.sweep(0, 2)
        second = await author.storage.sweep(0, 2)
        third = await author.storage.sweep(0, 2)

    assert first == SweepReport(2, 2 * size, has_more=True)
    assert second == SweepReport(1, size, has_more=False)
    assert third == SweepReport(0, 0, has_more=False)


@pytest.mark.parametrize("jump_ms", [10 * YEAR_MS, -10 * YEAR_MS])
async def test_a_clock_that_jumps_drops_nothing_early(make, jump_ms):
    async with author_on(make, grace_ms=5 * HOUR_MS) as author:
        await author.write()
        start_ms = 20 * YEAR_MS
        await author.storage.sweep(start_ms, 10)
        await author.snapshot(base=1)
        jumps = [
            await author.storage.sweep(start_ms + n * jump_ms, 10) for n in (1, 0) * 3
        ]
        still = await author.log()
        dropped, _ = await aged(author.storage, 5 * HOUR_MS, at_ms=start_ms)

    assert [report.payloads for report in jumps] == [0] * 6
    assert still.rows[0].record is not None
    assert dropped == 1


async def test_a_storage_that_was_closed_has_the_same_log_and_identity(make):
    storage = make()
    identity = await storage.open()
    author = await Author.join(storage)
    await author.write(1, 2, 3)
    before = await author.log()
    await storage.close()
    again = make()
    same = await again.open()
    author.storage = again
    after = await author.log()
    more = await author.write(4)
    await again.close()

    assert (same, after) == (identity, before)
    assert_verifies(after, identity.relay_id, "notes")
    assert more.rows[0].chain == chain_next(
        before.rows[-1].chain, 4, more.rows[0].record_id
    )


async def test_a_probe_changes_nothing_that_is_read(author):
    await author.write()
    before = await author.log()
    await author.storage.probe()

    assert await author.log() == before


async def test_hints_may_be_asked_for(author):
    author.storage.watch(lambda ns_no, head: None)

    assert (await author.write()).head == 1


# Tokens.


async def test_a_token_grants_what_it_says_to_who_has_its_secret(storage):
    row = token_row(
        scopes=("compact", "metrics", "presence", "write"),
        not_after_ms=100,
        max_replicas=3,
    )
    await storage.token_create(row, DIGEST)
    grant = await storage.grant(row.token_id, SECRET, 99)

    assert grant == Grant(
        row.token_id,
        "notes",
        Scope.READ | Scope.WRITE | Scope.COMPACT | Scope.PRESENCE,
        may_read_metrics=True,
        not_after_ms=100,
        max_replicas=3,
    )
    assert await storage.token_list() == [row]


async def test_every_failure_of_a_token_is_the_same_nothing(storage):
    await storage.token_create(token_row(not_after_ms=100), DIGEST)
    await storage.token_create(token_row("bbbbbbbbbb"), DIGEST)
    await storage.token_revoke("bbbbbbbbbb", 5)

    assert await storage.grant("aaaaaaaaaa", b"?" * 32, 1) is None
    assert await storage.grant("aaaaaaaaaa", SECRET, 100) is None
    assert await storage.grant("bbbbbbbbbb", SECRET, 1) is None
    assert await storage.grant("cccccccccc", SECRET, 1) is None


@pytest.mark.parametrize(
    ("values", "argument"),
    [
        ({"scopes": ("read", "admin")}, "scope"),
        ({"scopes": ()}, "scope"),
        ({"scopes": ("compact",)}, "scope"),
        ({"pattern": "No*"}, "namespace"),
    ],
)
async def test_a_token_that_means_nothing_is_refused(storage, values, argument):
    with pytest.raises(InvalidArgumentError) as refused:
        await storage.token_create(token_row(**values), DIGEST)

    assert refused.value.argument == argument
    assert await storage.token_list() == []


async def test_a_token_id_is_given_once(storage):
    await storage.token_create(token_row(), DIGEST)
    with pytest.raises(InvalidArgumentError, match="aaaaaaaaaa"):
        await storage.token_create(token_row(pattern="*"), DIGEST)

    assert await storage.token_list() == [token_row()]


async def test_a_revoked_token_is_told_of_once(storage):
    await storage.token_create(token_row(), DIGEST)
    await storage.token_create(token_row("bbbbbbbbbb", created_ms=2), DIGEST)
    seen = await storage.changed_tokens(0)
    first = await storage.token_revoke("aaaaaaaaaa", 7)
    changes = await storage.changed_tokens(seen[-1].number)
    again = await storage.token_revoke("aaaaaaaaaa", 9)
    unknown = await storage.token_revoke("cccccccccc", 9)

    assert [change.token_id for change in seen] == ["aaaaaaaaaa", "bbbbbbbbbb"]
    assert all(one.number < two.number for one, two in pairwise(seen))
    assert (first, again, unknown) == (True, True, False)
    assert changes == [TokenChange(changes[0].number, "aaaaaaaaaa", 7, None)]
    assert await storage.changed_tokens(changes[0].number) == []
    assert [row.revoked_ms for row in await storage.token_list()] == [7, None]
