"""relay.core: what is stored, acknowledged and shown, and who ends whom."""

import pytest

from crdtmem.protocol.messages import (
    Ack,
    Bye,
    ErrorMessage,
    Heartbeat,
    Joined,
    Leave,
    Presence,
    Put,
    Welcome,
    decode_frame,
    encode_frame,
)
from crdtmem.protocol.serving import RelayLimits
from relay.effects import Append, Close, Join, Send, StorageFailure
from tests.relay.peers import Site, grant_of, record_of

UNCERTAIN = StorageFailure("storage-failed")


@pytest.fixture
def site():
    return Site()


def appends(site):
    """Return the groups that were stored: for each put, who wrote which numbers."""
    return [
        [
            (put.replica_id[-1], [record.header.replica_seq for record in put.records])
            for put in effect.puts
        ]
        for effect in site.effects
        if isinstance(effect, Append)
    ]


# Durable before it is told of.


def test_r1_a_put_is_acknowledged_only_after_its_append_has_come_back(site):
    writer = site.join()
    site.held = {Append}
    writer.put(1, 2)
    before = writer.acks()
    site.release()

    assert (before, writer.acks()) == ([], [(2, 2)])


def test_r1_an_acknowledgement_names_the_place_of_the_record(site):
    writer = site.join()
    writer.put(1)
    row = site.log()[0]

    assert writer.of(Ack) == [Ack(1, 1, row.seq, row.chain)]


def test_r2_a_record_is_shown_only_after_its_append_has_come_back(site):
    writer, reader = site.join(1), site.join(2)
    site.held = {Append}
    records = writer.put(1)
    before = dict(reader.got)
    site.release()

    assert before == {}
    assert [item.record for item in reader.got.values()] == records


def test_an_uncertain_append_ends_the_connections_concerned_and_no_other(site):
    writer, other, reader = site.join(1), site.join(2), site.join(3)
    site.held = {Append}
    writer.put(1)
    site.release()
    writer.put(2)
    other.put(1)
    site.release(UNCERTAIN)
    site.release(UNCERTAIN)

    assert writer.acks() == [(1, 1)]
    assert (writer.closed.code, writer.closed.reason) == (1011, "storage-failed")
    assert (other.acks(), other.closed.code) == ([], 1011)
    assert (reader.closed, list(reader.got)) == (None, [1])


def test_a_failed_append_of_a_connection_that_is_gone_concerns_nobody(site):
    writer = site.join()
    site.held = {Append}
    writer.put(1)
    writer.drop()
    site.release(UNCERTAIN)

    assert (site.log(), site.core.is_idle) == ([], True)


def test_identical_bytes_are_acknowledged_after_an_uncertain_append(site):
    writer = site.join()
    site.held = {Append}
    writer.put(1)
    stored = site.answer(site.waiting[0])
    site.release(UNCERTAIN)
    site.held = set()
    again = site.join()
    again.put(1)

    assert stored[0].acked == 1
    assert (again.joined.own_max, again.acks()) == (1, [(1, 1)])
    assert len(site.log()) == 1


@pytest.mark.parametrize(
    ("code", "retry_ms"), [("storage-full", 30_000), ("busy", 5_000)]
)
def test_what_could_not_be_stored_now_is_told_once_and_taken_later(
    site, code, retry_ms
):
    writer, reader = site.join(1), site.join(2)
    site.held = {Append}
    writer.put(1)
    writer.put(2)
    writer.put(3)
    site.release(StorageFailure(code))
    site.release()
    errors = writer.of(ErrorMessage)
    site.held = set()
    writer.put(4)
    writer.put(1, 2)

    assert errors == [ErrorMessage("notes", 1, 1, 1, retry_ms, code, "")]
    assert (writer.codes(), writer.closed) == ([], None)
    assert writer.acks() == [(2, 2)]
    assert list(reader.got) == [1, 2]


# Group commit.


def test_an_idle_relay_commits_one_record_at_once(site):
    site.join().put(1)

    assert appends(site) == [[(1, [1])]]


def test_r5_what_comes_during_a_commit_is_the_next_group_in_turn(site):
    one, two = site.join(1), site.join(2)
    site.held = {Append}
    one.put(1)
    for seqs in ([2], [3, 4], [5]):
        one.put(*seqs)
    two.put(1)
    waiting = len(site.waiting)
    gauge = site.core.gauges()["append_queue_records"]
    site.release()
    site.release()

    assert (waiting, gauge) == (1, 5)
    assert appends(site) == [
        [(1, [1])],
        [(1, [2]), (2, [1]), (1, [3, 4]), (1, [5])],
    ]
    assert (one.acks(), two.acks()) == ([(1, 1), (5, 6)], [(1, 3)])


def test_a_group_has_a_bound(site):
    site = Site(RelayLimits(commit_records=3))
    writer = site.join()
    site.held = {Append}
    writer.put(1)
    writer.put(2, 3)
    writer.put(4, 5)
    site.release()
    site.release()
    site.release()

    assert appends(site) == [[(1, [1])], [(1, [2, 3])], [(1, [4, 5])]]


def test_puts_of_a_connection_that_is_gone_are_stored_if_they_were_on_their_way(site):
    writer, reader = site.join(1), site.join(2)
    site.held = {Append}
    writer.put(1)
    writer.put(2)
    writer.drop()
    site.release()

    assert appends(site) == [[(1, [1])]]
    assert list(reader.got) == [1]
    assert writer.acks() == []


def test_r6_a_refused_record_is_told_once_and_what_was_sent_behind_it_not_at_all(site):
    writer = site.join()
    writer.put(1)
    before = site.log()
    site.held = {Append}
    writer.put(2, base=9)
    writer.put(3)
    writer.put(4)
    site.release()
    site.release()
    site.held = set()
    writer.put(5)

    assert [(e.code, e.replica_seq, e.expected) for e in writer.of(ErrorMessage)] == [
        ("base-ahead", 2, 2)
    ]
    assert site.log() == before
    assert site.core.counters.records == {"stored": 1, "refused": 3, "duplicate": 0}


# Ends.


def test_r9_a_revoked_token_stores_and_hears_nothing_more(site):
    writer = site.join(1, grant=grant_of("bbbbbbbbbb"))
    other = site.join(2)
    site.held = {Append}
    writer.put(1)
    writer.put(2)
    writer.messages.clear()
    site.core.revoked("bbbbbbbbbb", site.now)
    site.pump()
    site.release()
    other.put(1)
    site.release()

    assert [type(m) for m in writer.messages] == [ErrorMessage]
    assert (writer.closed.code, writer.closed.reason) == (4401, "token-revoked")
    assert appends(site) == [[(1, [1])], [(2, [1])]]
    assert other.closed is None


def test_a_token_ends_when_its_time_is_over(site):
    short = site.join(1, grant=grant_of(not_after_ms=5_000))
    endless = site.join(2)
    site.core.expire(4_999, site.now)
    site.pump()
    before = short.closed
    site.core.expire(5_000, site.now)
    site.pump()

    assert before is None
    assert (short.closed.code, short.codes()) == (4401, ["token-expired"])
    assert endless.closed is None


def test_a_shutdown_says_bye_stores_what_has_come_and_closes(site):
    writer, reader = site.join(1), site.join(2)
    newcomer = site.connect(3, hello=False)
    site.held = {Append}
    writer.put(1)
    writer.put(2)
    site.core.drain(site.now)
    site.pump()
    writer.put(3)
    is_idle = site.core.is_idle
    site.release()
    site.release()

    for peer in (writer, reader, newcomer):
        (bye,) = peer.of(Bye)
        assert bye.code == "shutdown"
        assert 500 <= bye.retry_ms <= 5_000
        assert (peer.closed.code, peer.closed.is_abort) == (1012, False)
    assert writer.acks() == [(1, 1), (2, 2)]
    assert (is_idle, site.core.is_idle) == (False, True)
    assert site.core.next_deadline() is not None


def test_who_connects_during_a_shutdown_is_sent_away(site):
    site.core.drain(site.now)
    late = site.connect(hello=False)

    assert (late.of(Bye)[0].code, late.closed.code) == ("shutdown", 1012)


def test_a_client_that_says_bye_is_acknowledged_before_it_is_closed(site):
    writer = site.join()
    site.held = {Append}
    writer.put(1)
    writer.send(Bye(0, "done"))
    before = writer.closed
    site.release()

    assert before is None
    assert (writer.acks(), writer.closed.code) == ([(1, 1)], 1000)


def test_a_stalled_connection_is_aborted(site):
    reader = site.join()
    site.core.stalled(reader.conn, site.now)
    site.core.stalled(reader.conn, site.now)
    site.pump()

    assert (reader.closed.code, reader.closed.is_abort) == (4508, True)
    assert site.core.counters.stalls == 1
    assert site.core.counters.closes == {4508: 1}


def test_a_silent_connection_is_aborted_and_one_that_beats_is_kept(site):
    silent, alive = site.join(1), site.join(2)
    for _ in range(4):
        site.tick(14)
        alive.send(Heartbeat(0, ()))

    assert (silent.closed.code, silent.closed.is_abort) == (4508, True)
    assert alive.closed is None
    assert len(alive.of(Heartbeat)) == 3


def test_what_comes_for_a_connection_that_is_gone_is_ignored(site):
    gone = site.join()
    gone.drop()
    gone.drop()
    gone.put(1)
    gone.sent()
    site.core.tick(site.now + 100)
    site.core.completed(99, [], site.now)

    assert site.core.is_idle
    assert set(site.core.gauges().values()) == {0}


# Two stores, one replica.


def test_the_same_lease_replaces_its_old_connection(site):
    old = site.join()
    new = site.join()

    assert [bye.code for bye in old.of(Bye)] == ["replaced"]
    assert (old.closed.code, old.codes()) == (4509, [])
    assert (new.closed, new.joined.ns_no) == (None, 1)


def test_the_same_lease_under_another_token_is_another_link(site):
    one = site.join(grant=grant_of("aaaaaaaaaa"))
    two = site.join(grant=grant_of("bbbbbbbbbb"))

    assert (one.closed, two.closed) == (None, None)


def test_a_live_copy_of_a_store_ends_both(site):
    old = site.join()
    new = site.connect(incarnation=b"j" * 16)
    asked = old.of(Heartbeat)
    before = new.of(Welcome)
    site.tick(4)
    old.send(Heartbeat(0, ()))

    assert [beat.flags for beat in asked] == [1]
    assert before == []
    for peer in (old, new):
        assert (peer.closed.code, peer.codes()) == (4409, ["replica-duplicate"])


def test_a_dead_connection_makes_way_for_the_next_lease(site):
    old = site.join()
    new = site.connect(incarnation=b"j" * 16)
    site.tick(5)

    assert (old.closed.code, old.closed.is_abort) == (4508, True)
    assert (len(new.of(Welcome)), new.closed) == (1, None)


def test_a_lease_need_not_wait_for_a_connection_that_ends(site):
    old = site.join()
    new = site.connect(incarnation=b"j" * 16)
    old.drop()

    assert len(new.of(Welcome)) == 1


def test_two_new_leases_are_told_apart_when_the_old_one_is_gone(site):
    old = site.join()
    first = site.connect(incarnation=b"j" * 16)
    second = site.connect(incarnation=b"k" * 16)
    old.drop()
    welcomed = [len(peer.of(Welcome)) for peer in (first, second)]
    first.send(Heartbeat(0, ()))

    assert welcomed == [1, 0]
    assert (first.closed.code, second.closed.code) == (4409, 4409)


def test_a_lease_that_gives_up_waiting_shuts_nobody_out(site):
    old = site.join()
    new = site.connect(incarnation=b"j" * 16)
    new.drop()
    old.send(Heartbeat(0, ()))
    site.tick(6)

    assert old.closed is None


def test_a_dead_connection_is_given_up_also_if_nobody_waits_for_it(site):
    old = site.join()
    site.connect(incarnation=b"j" * 16).drop()
    site.tick(5)

    assert (old.closed.code, old.closed.is_abort) == (4508, True)


# Presence.


def presence_of(peer, counter=1, ttl_ms=30_000, blob=b"{}"):
    return Presence(1, peer.replica_id, peer.incarnation, counter, ttl_ms, blob)


def join_with_presence(site, replica, **values):
    peer = site.connect(replica, **values)
    peer.join(flags=1)
    return peer


def test_a_presence_is_handed_to_the_others_that_asked(site):
    sender, friend = (join_with_presence(site, n) for n in (1, 2))
    stranger = site.join(3)
    unseen = join_with_presence(site, 4, grant=grant_of(scopes=grant_of().scopes & ~8))
    sender.send(presence_of(sender))
    late = join_with_presence(site, 5)

    assert friend.of(Presence) == [presence_of(sender)]
    assert late.of(Presence) == [presence_of(sender)]
    for peer in (sender, stranger, unseen):
        assert peer.of(Presence) == []


def test_presences_of_a_sender_are_handed_on_twice_a_second_the_newest_wins(site):
    sender, friend = (join_with_presence(site, n) for n in (1, 2))
    for counter in range(1, 5):
        sender.send(presence_of(sender, counter))
    at_once = [p.counter for p in friend.of(Presence)]
    site.tick(0.5)

    assert (at_once, [p.counter for p in friend.of(Presence)]) == ([1], [4])


@pytest.mark.parametrize("end", ["drop", "leave", "time"])
def test_the_others_are_told_when_somebody_is_gone(site, end):
    sender, friend = (join_with_presence(site, n) for n in (1, 2))
    sender.send(presence_of(sender, ttl_ms=10_000))
    friend.of(Presence)
    if end == "drop":
        sender.drop()
    elif end == "leave":
        sender.send(Leave(1))
    else:
        site.tick(10)

    assert friend.of(Presence) == [presence_of(sender, ttl_ms=0, blob=b"")]
    assert site.core.gauges()["presences"] == 0


def test_a_presence_is_announced_to_other_processes_and_theirs_are_shown(site):
    sender, friend = (join_with_presence(site, n) for n in (1, 2))
    other = Presence(1, b"o" * 16, b"i" * 16, 1, 30_000, b"{}")
    sender.send(presence_of(sender))
    sender.drop()
    site.core.heard(encode_frame([other]), site.now)
    site.pump()
    late = join_with_presence(site, 3)

    assert [decode_frame(message) for message in site.announced] == [
        [presence_of(sender)],
        [presence_of(sender, ttl_ms=0, blob=b"")],
    ]
    assert friend.of(Presence)[-1] == other
    assert late.of(Presence) == [other]


def test_r9_of_a_revoked_token_nobody_is_shown_who_is_gone(site):
    one, two = (join_with_presence(site, n) for n in (1, 2))
    for peer in (one, two):
        peer.send(presence_of(peer))
    for peer in (one, two):
        peer.messages.clear()
    site.core.revoked("aaaaaaaaaa", site.now)
    site.pump()

    for peer in (one, two):
        assert [type(m) for m in peer.messages] == [ErrorMessage]


# Counting.


def test_what_there_is_and_what_has_happened_is_counted(site):
    writer, reader = site.join(1), site.join(2)
    writer.put(1, 2)
    writer.put(1, 2, 3)
    writer.put(9)
    counters = site.core.counters

    assert site.core.gauges() == {
        "connections": 2,
        "joins": 2,
        "namespaces": 1,
        "append_queue_records": 0,
        "catchups": 0,
        "transfer_bytes": 0,
        "presences": 0,
    }
    assert counters.records == {"stored": 3, "duplicate": 2, "refused": 1}
    assert counters.errors == {"replica-gap": 1}
    assert counters.frames["in"] == 7
    assert counters.frames["out"] == len(writer.frames) + len(reader.frames)
    sent = sum(map(len, [*writer.frames, *reader.frames]))
    assert counters.octets["out"] == sent


def test_r3_one_send_is_on_its_way_and_what_waits_is_replaced_by_what_is_newer(site):
    writer, reader = site.join(1), site.join(2)
    writer.is_slow = reader.is_slow = True
    for number in range(1, 6):
        writer.put(number)
    sends = [e.conn for e in site.effects if isinstance(e, Send)]
    before = (writer.acks(), list(reader.got), len(sends))
    writer.sent()
    reader.sent()

    assert before[:2] == ([(1, 1)], [1])
    assert writer.acks() == [(5, 5)]
    assert list(reader.got) == [1, 2, 3, 4, 5]
    assert len([e for e in site.effects if isinstance(e, Send)]) == before[2] + 2


def test_r4_nothing_is_sent_for_a_namespace_before_its_joined(site):
    writer = site.join()
    writer.put(1)
    site.held = {Join}
    reader = site.connect(2)
    reader.join()
    writer.put(2)
    before = [type(m) for m in reader.messages]
    site.release()

    assert before == [Welcome]
    assert [type(m) for m in reader.messages][:2] == [Welcome, Joined]
    assert list(reader.got) == [1, 2]


def test_a_failure_of_one_connection_closes_it_alone(site):
    broken, fine = site.join(1), site.join(2)
    broken.send(Put(9, (record_of(broken.replica_id, 1),)))
    fine.put(1)

    assert (broken.closed.code, broken.codes()) == (4400, ["protocol-error"])
    assert fine.acks() == [(1, 1)]
    assert [e for e in site.effects if isinstance(e, Close)] == [broken.closed]
