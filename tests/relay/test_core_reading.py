"""relay.core: joins, and what readers are sent, live and far behind."""

import pytest

from crdtmem.protocol.messages import (
    ErrorMessage,
    Form,
    Joined,
    Leave,
    Rewind,
    Samples,
)
from crdtmem.protocol.relaying import LogSlice, Sample, Scope
from crdtmem.protocol.serving import RelayLimits
from relay.effects import Append, Join, Match, Read, StorageFailure
from tests.relay.peers import DOC, Site, grant_of, start_of

READER = Scope.READ


@pytest.fixture
def site():
    return Site()


def reads(site):
    return [effect for effect in site.effects if isinstance(effect, Read)]


# Joining.


def test_a_namespace_is_made_for_who_may_write_and_not_for_who_may_read(site):
    reader = site.connect(1, grant=grant_of(scopes=READER))
    reader.join("notes")
    refused = reader.of(ErrorMessage)
    writer = site.join(2)
    reader.join("notes")

    assert refused == [
        ErrorMessage("notes", 0, 0, 1, 60_000, "namespace-not-found", "")
    ]
    assert writer.joined == Joined(
        "notes", 1, grant_of().scopes, 0, 0, 0, start_of(site), 0, bytes(32)
    )
    assert reader.joined.scopes == READER


@pytest.mark.parametrize(
    "values",
    [
        {"pattern": "team-*"},
        {"pattern": "other"},
        {"scopes": Scope(0)},
        {"scopes": Scope.WRITE | Scope.COMPACT | Scope.PRESENCE},
    ],
)
def test_r8_what_a_token_does_not_name_is_forbidden(site, values):
    site.join(1).put(1)
    peer = site.connect(2, grant=grant_of(**values))
    peer.join("notes")
    before = site.effects[:]
    peer.join("unknown")

    assert [(e.code, e.action) for e in peer.of(ErrorMessage)] == [("forbidden", 2)] * 2
    assert peer.joined is None
    assert [e for e in site.effects[len(before) :] if isinstance(e, Join)] == []


def test_a_reader_goes_on_where_its_cursor_is(site):
    writer = site.join(1)
    writer.put(1, 2, 3)
    row = site.log()[1]
    reader = site.connect(2)
    reader.join(seq=2, chain=row.chain)

    assert (reader.joined.resume_seq, reader.joined.head) == (2, 3)
    assert list(reader.got) == [3]


def test_a_replica_is_told_how_much_of_its_own_is_there(site):
    site.join(1).put(1, 2)
    again = site.join(1)
    row = site.log()[1]

    assert (again.joined.own_max, again.joined.own_id) == (2, row.record_id)


@pytest.mark.parametrize(("seq", "cause"), [(2, 2), (9, 1)])
def test_a_cursor_of_another_log_is_rewound_to_the_highest_sample_that_fits(
    site, seq, cause
):
    site.join(1).put(1, 2, 3)
    first = site.log()[0]
    reader = site.connect(2)
    reader.join(seq=seq, chain=b"?" * 32)
    rewind = reader.of(Rewind)
    before = reader.joined
    reader.send(
        Samples("notes", (Sample(2, b"?" * 32), Sample(1, first.chain))),
    )

    assert (rewind, before) == ([Rewind("notes", cause, 3, 0)], None)
    assert (reader.joined.resume_seq, list(reader.got)) == (1, [2, 3])


def test_a_rewound_reader_misses_nothing_that_is_stored_meanwhile(site):
    writer = site.join(1)
    writer.put(1)
    reader = site.connect(2)
    reader.join(seq=5, chain=b"?" * 32)
    site.held = {Match}
    reader.send(Samples("notes", ()))
    writer.put(2)
    site.release()

    assert (reader.joined.head, list(reader.got)) == (2, [1, 2])


def test_a_join_misses_nothing_that_is_stored_while_it_is_looked_up(site):
    writer = site.join(1)
    site.held = {Append, Join}
    reader = site.connect(2)
    reader.join()
    found = site.answer(site.waiting[0])
    writer.put(1)
    writer.drop()
    site.waiting.reverse()
    site.release()
    site.release(found)

    assert found.head == 0
    assert (reader.joined.head, list(reader.got)) == (1, [1])


def test_a_join_that_cannot_be_looked_up_now_is_asked_for_again(site):
    peer = site.connect()
    site.held = {Join}
    peer.join()
    site.release(StorageFailure("busy"))
    errors = peer.of(ErrorMessage)
    peer.join()
    site.release(StorageFailure("storage-failed"))

    assert errors == [ErrorMessage("notes", 0, 0, 1, 5_000, "busy", "")]
    assert peer.closed.code == 1011


def test_a_shutdown_joins_nothing_more(site):
    writer = site.join(1)
    site.held = {Append, Join, Match}
    writer.put(1)
    writer.join("other", seq=5, chain=b"?" * 32)
    append, join = site.waiting
    site.waiting = [join]
    site.release()
    writer.send(Samples("other", ()))
    site.core.drain(site.now)
    site.pump()
    site.release()
    site.waiting = [append]
    site.release()

    assert writer.joined.namespace == "notes"
    assert (writer.acks(), writer.closed.code) == ([(1, 1)], 1012)


def test_a_namespace_may_be_left_and_joined_again(site):
    writer, reader = site.join(1), site.join(2)
    reader.send(Leave(1))
    writer.put(1)
    before = dict(reader.got)
    joins = site.core.gauges()["joins"]
    reader.join()

    assert (before, joins) == ({}, 1)
    assert list(reader.got) == [1]


def test_a_namespace_may_be_joined_again_while_puts_of_the_first_join_are_stored(site):
    writer = site.join(1)
    site.held = {Append}
    writer.put(1)
    writer.put(2)
    writer.send(Leave(1))
    writer.join()
    writer.put(1, 2, 3)
    for _ in range(2):
        site.release()

    assert (writer.acks(), writer.codes()) == ([(3, 3)], [])
    assert len(site.log()) == 3


# Shared frames.


def test_caught_up_readers_are_sent_the_same_bytes_object(site):
    writer, *readers = (site.join(n) for n in range(1, 6))
    writer.put(1, 2, 3)
    frames = [reader.frames[-1] for reader in readers]

    assert list(readers[0].got) == [1, 2, 3]
    assert all(frame is frames[0] for frame in frames)
    assert site.core.counters.cache == {"hit": 4, "rows": 1}
    assert reads(site) == []


def test_a_writer_gets_its_own_records_by_their_id_alone(site):
    one, two = site.join(1), site.join(2)
    site.held = {Append}
    one.put(1)
    two.put(1)
    one.put(2)
    site.release()
    site.release()

    assert one.forms() == {1: Form.OWN, 2: Form.FULL, 3: Form.OWN}
    assert two.forms() == {1: Form.FULL, 2: Form.OWN, 3: Form.FULL}


def test_a_replica_gets_what_it_has_not_sealed_in_full(site):
    site.join(1).put(1, 2, 3)
    again = site.connect(1)
    again.join(own_seq=2)

    assert again.forms() == {1: Form.OWN, 2: Form.OWN, 3: Form.FULL}


def test_readers_that_were_busy_share_a_frame_of_all_they_have_missed(site):
    writer, one, two = (site.join(n) for n in (1, 2, 3))
    writer.put(1)
    one.is_slow = two.is_slow = True
    for number in range(2, 6):
        writer.put(number)
    one.sent()
    two.sent()

    assert list(one.got) == [1, 2, 3, 4, 5]
    assert one.frames[-1] is two.frames[-1]
    assert reads(site) == []


def test_who_comes_late_reads_the_log_page_by_page(site):
    writer = site.join(1)
    for first in range(1, 1_200, 200):
        writer.put(*range(first, first + 200))
    writer.drop()
    reader = site.join(2)

    assert list(reader.got) == list(range(1, 1_201))
    assert [read.after for read in reads(site)] == [0, 512, 1_024]


def test_a_namespace_gets_its_turn_beside_one_that_is_far_behind(site):
    writer = site.join(1, "long")
    for first in range(1, 1_600, 200):
        writer.put(*range(first, first + 200))
    writer.join("short")
    writer.put(1, ns_no=2)
    writer.drop()
    reader = site.connect(2)
    site.held = {Read}
    reader.join("long")
    reader.join("short")
    order = []
    while site.waiting:
        order.append(site.waiting[0].ns_no)
        site.release()

    assert order == [1, 2, 1, 1, 1]


def test_few_are_served_at_a_time_who_are_far_behind(site):
    site = Site(RelayLimits(catchups_max=1, catchup_records=10))
    writer = site.join(1)
    writer.put(*range(1, 21))
    writer.drop()
    site.held = {Read}
    far = [site.join(n) for n in (2, 3, 4)]
    near = site.connect(5)
    near.join(seq=15, chain=site.log()[14].chain)
    waiting = [(read.after, len(site.waiting)) for read in site.waiting]
    gauge = site.core.gauges()["catchups"]
    far[1].drop()
    while site.waiting:
        site.release()

    assert waiting == [(0, 2), (15, 2)]
    assert gauge == 1
    assert list(far[2].got) == list(far[0].got) == list(range(1, 21))
    assert list(near.got) == list(range(16, 21))
    assert far[1].got == {}


def test_nobody_is_left_to_wait_when_all_who_waited_are_gone(site):
    site = Site(RelayLimits(catchups_max=1, catchup_records=10))
    writer = site.join(1)
    writer.put(*range(1, 21))
    writer.drop()
    site.held = {Read}
    first, second = site.join(2), site.join(3)
    second.drop()
    site.release()
    again = site.join(4)
    site.release()

    assert (len(first.got), second.got, len(again.got)) == (20, {}, 20)


# Other processes.


def test_what_another_process_has_stored_is_read_after_a_hint(site):
    reader = site.join(1)
    other = Site(storage=site.storage)
    other.join(2).put(1, 2)
    before = dict(reader.got)
    for head in (2, 2, 1):
        site.core.hint(1, head, site.now)
    site.core.hint(9, 5, site.now)
    site.pump()

    assert before == {}
    assert list(reader.got) == [1, 2]
    assert len(reads(site)) == 1


def test_a_wrong_hint_does_no_harm(site):
    writer, reader = site.join(1), site.join(2)
    site.core.hint(1, 7, site.now)
    site.pump()
    writer.put(1)

    assert list(reader.got) == [1]
    assert [read.after for read in reads(site)] == [0, 0]


def test_a_hint_during_a_join_counts_for_it(site):
    site.held = {Join}
    reader = site.connect(1)
    reader.join()
    found = site.answer(site.waiting[0])
    other = Site(storage=site.storage)
    other.join(2).put(1)
    site.core.hint(1, 1, site.now)
    site.release(found)

    assert (found.head, list(reader.got)) == (0, [1])


def test_rows_of_two_processes_are_read_in_one_order(site):
    reader = site.join(1)
    other = Site(storage=site.storage)
    mine, theirs = site.join(2), other.join(3)
    mine.put(1)
    theirs.put(1)
    mine.put(2)

    assert list(reader.got) == [1, 2, 3]


# A log that cannot be read.


@pytest.mark.parametrize("result", [StorageFailure("storage-failed"), "gap"])
def test_a_log_that_cannot_be_read_ends_the_reader_alone(site, result):
    writer = site.join(1)
    writer.put(1, 2)
    writer.drop()
    site.held = {Read}
    reader = site.join(2)
    rows = tuple(site.log()[1:])
    site.release(LogSlice(1, rows, 2) if result == "gap" else result)
    site.held = set()
    other = site.join(3)

    assert (reader.closed.code, reader.got) == (1011, {})
    assert list(other.got) == [1, 2]


def test_a_match_that_fails_ends_the_connection(site):
    peer = site.connect()
    peer.join(seq=5, chain=b"?" * 32)
    site.held = {Match}
    peer.send(Samples("notes", ()))
    site.release(StorageFailure("busy"))

    assert peer.closed.code == 1011


def test_what_was_read_for_who_has_left_is_dropped(site):
    writer = site.join(1)
    writer.put(1)
    site.core.hint(1, 2, site.now)
    site.pump()
    reader = site.connect(2)
    site.held = {Read}
    site.core.hint(1, 3, site.now)
    site.pump()
    writer.drop()
    reader.join()
    reader.send(Leave(1))
    site.held = set()
    while site.waiting:
        site.release()

    assert reader.got == {}


# Snapshots.


def test_a_live_reader_gets_no_snapshot_of_what_it_has(site):
    writer, compactor, reader = (site.join(n) for n in (1, 2, 3))
    writer.put(1, 2)
    site.compact(compactor, 2, 1)
    writer.put(3)

    assert reader.forms() == {1: 0, 2: 0, 3: Form.REDUNDANT, 4: 0}
    assert compactor.forms() == {1: 0, 2: 0, 3: Form.OWN, 4: 0}
    assert reads(site) == []


def test_who_finds_a_hole_gets_the_snapshot_that_covers_it(site):
    writer, compactor = site.join(1), site.join(2)
    writer.put(1, 2)
    site.compact(compactor, 2, 1)
    site.drop_covered()
    writer.put(3)
    reader = site.join(3)

    assert reader.forms() == {1: Form.COVERED, 2: Form.COVERED, 3: 0, 4: 0}
    assert reader.got[1].doc_tag == DOC


def test_a_hole_of_an_earlier_connection_is_filled(site):
    writer, compactor = site.join(1), site.join(2)
    writer.put(1, 2)
    site.compact(compactor, 2, 1)
    site.drop_covered()
    reader = site.connect(3)
    reader.join(seq=2, chain=site.log()[1].chain)
    writer.drop()
    compactor.drop()
    late = site.connect(4)
    late.join(seq=2, chain=site.log()[1].chain)

    assert (reader.forms(), late.forms()) == ({3: 0}, {3: 0})


def test_only_the_newest_of_two_snapshots_fills_a_hole(site):
    writer, compactor = site.join(1), site.join(2)
    writer.put(1, 2)
    site.compact(compactor, 1, 1)
    site.compact(compactor, 2, 2)
    site.drop_covered()
    reader = site.join(3)

    assert reader.forms() == {
        1: Form.COVERED,
        2: Form.COVERED,
        3: Form.REDUNDANT,
        4: Form.FULL,
    }


def test_a_hole_is_filled_by_a_snapshot_that_came_after_the_join(site):
    writer, compactor = site.join(1), site.join(2)
    writer.put(1)
    site.compact(compactor, 1, 1)
    site.drop_covered()
    for number in (2, 3, 4):
        writer.put(number, payload=bytes(100_000), doc_tag=b"e" * 16)
    site.held = {Read}
    reader = site.join(3)
    site.compact(compactor, 2, 2)
    while site.waiting:
        site.release()

    assert [reader.forms()[seq] for seq in (1, 2, 6)] == [
        Form.COVERED,
        Form.REDUNDANT,
        Form.FULL,
    ]
    assert compactor.forms()[6] == Form.OWN
