"""crdtmem.protocol.client_uploads: what goes up, its window, its refusals."""

from dataclasses import replace

import pytest

from crdtmem.errors import LocalProtocolError, RecordMalformedError
from crdtmem.limits import PRESENCES_MAX
from crdtmem.protocol import messages as wire
from crdtmem.protocol.client_events import (
    Acked,
    ClientLimits,
    Closed,
    Joined,
    NamespaceHeld,
    NamespaceStopped,
    PresenceChanged,
    PutRefused,
    RecordsReceived,
)
from crdtmem.protocol.client_namespace import (
    NamespaceSession,
)
from crdtmem.protocol.records import RecordKind
from crdtmem.protocol.relaying import Sample
from tests.clients import (
    AT_3,
    CHAIN,
    EPOCH,
    FRESH,
    INCARNATION,
    LEAVE,
    LOG,
    RELAY,
    REPLICA,
    ack,
    give,
    joined,
    joined_session,
    known,
    make_record,
    numbers_of,
    open_session,
    records,
    refusal,
    said,
)


def test_a_put_must_follow_what_is_in_flight():
    session = joined_session()
    session.put("team", LOG[:2])

    with pytest.raises(LocalProtocolError, match="record 4 is put after 2"):
        session.put("team", LOG[3:])
    with pytest.raises(RecordMalformedError):
        session.put("team", [b"no record"])
    assert session.in_flight("team") == 2


def test_puts_are_cut_by_count_and_by_the_length_of_a_frame():
    small = [make_record(number, b"") for number in range(1, 302)]
    large = [make_record(number, bytes(6_000)) for number in range(302, 307)]
    limits = ClientLimits(window_records=1_000)
    session = joined_session(limits=limits, max_frame=16_384, window_records=1_000)
    assert session.put("team", small + large) == 306
    puts = []
    while frames := session.data_to_send():
        assert len(frames[0]) <= 16_384
        (put,) = wire.decode_frame(frames[0])
        assert isinstance(put, wire.Put)
        puts.append(put)

    assert [len(put.records) for put in puts] == [255, 48, 2, 1]
    assert numbers_of(puts) == list(range(1, 307))


def test_a_put_has_256_records_at_most():
    limits = ClientLimits(window_records=1_000)
    session = joined_session(limits=limits, window_records=1_000)
    session.put("team", [make_record(number, b"") for number in range(1, 302)])

    assert [len(put.records) for put in said(session)] == [256, 45]


def test_a_long_record_goes_up_in_parts_between_the_puts_around_it():
    session = joined_session(part_size=200)
    long = make_record(2, bytes(500))
    session.put("team", [make_record(1), long, make_record(3)])
    first, *parts, last = said(session)

    assert numbers_of([first, last]) == [1, 3]
    assert numbers_of(parts) == [(2, 0), (2, 200), (2, 400)]
    assert b"".join(part.data for part in parts) == long


def test_what_is_urgent_goes_out_between_the_parts_of_a_long_record():
    session = joined_session(part_size=200)
    session.put("team", [make_record(1, bytes(500))])
    session.data_to_send()
    give(session, wire.Heartbeat(1, ()))
    beat, part = session.data_to_send()

    assert wire.decode_frame(beat) == [wire.Heartbeat(0, (wire.Head(1, 0),))]
    assert numbers_of(wire.decode_frame(part)) == [(1, 200)]


@pytest.mark.parametrize(
    ("kind", "limit"), [(RecordKind.UPDATE, 500), (RecordKind.SNAPSHOT, 900)]
)
def test_a_record_longer_than_the_relay_takes_is_refused_unsent(kind, limit):
    session = joined_session(part_size=200, max_update=500, max_snapshot=900)
    longest = make_record(2, bytes(limit - 60), kind=kind)
    longer = make_record(3, bytes(limit - 59), kind=kind)

    assert session.put("team", [make_record(1), longest, longer]) == 2
    assert session.events() == []
    assert session.put("team", [longer]) == 0
    text = f"record of {limit + 1} bytes exceeds the relay's limit of {limit}"
    assert session.events() == [PutRefused("team", 3, 3, "record-too-large", 0, text)]
    assert session.in_flight("team") == 2
    assert {number for number, _ in numbers_of(said(session))[1:]} == {2}


def test_a_refused_put_takes_everything_out_of_flight():
    session = joined_session()
    session.put("team", LOG[:4])
    said(session)
    acked, refused = give(
        session, ack(1), refusal("record-malformed", 0, replica_seq=2, expected=2)
    )

    assert acked == Acked("team", 1, 1, CHAIN[1])
    assert refused == PutRefused("team", 2, 2, "record-malformed", 0, "t")
    assert session.in_flight("team") == 0
    assert session.put("team", LOG[1:3]) == 2
    assert numbers_of(said(session)) == [2, 3]


def test_a_refusal_withdraws_what_was_not_sent_yet_of_that_namespace_alone():
    session = joined_session(part_size=200)
    session.join(replace(FRESH, namespace="other"))
    give(session, joined("other", ns_no=2))
    said(session)
    session.put("team", [make_record(1), make_record(2, bytes(500))])
    session.put("other", [make_record(7)])
    session.data_to_send()
    give(session, refusal("forbidden", 0, replica_seq=1, expected=1))

    assert numbers_of(said(session)) == [7]


def test_a_transfer_that_has_begun_is_finished_after_a_refusal():
    session = joined_session(part_size=200)
    session.put("team", [make_record(1), make_record(2, bytes(500)), make_record(3)])
    session.data_to_send()
    session.data_to_send()
    give(session, refusal("forbidden", 0, replica_seq=1, expected=1))
    session.put("team", [make_record(1)])

    assert numbers_of(said(session)) == [(2, 200), (2, 400), 1]


@pytest.mark.parametrize("code", ["quota-exceeded", "storage-full", "busy", "new-one"])
def test_a_refusal_with_a_wait_holds_puts_and_reads_on(code):
    session = joined_session()
    session.put("team", LOG[:2])
    error = refusal(code, 1, replica_seq=1, expected=1, retry_ms=5_000)

    assert give(session, error, now=1.0) == [PutRefused("team", 1, 1, code, 5_000, "t")]
    said(session)
    assert session.put("team", LOG) == 0
    assert session.next_deadline() == 6.0
    (event,) = give(session, records(1, 3), now=2.0)
    assert isinstance(event, RecordsReceived)
    session.tick(6.0)
    assert session.put("team", LOG) == 5
    assert session.next_deadline() == 15.0


def test_a_log_that_is_too_short_is_left_and_joined_again():
    session = joined_session()
    session.put("team", LOG[:2])
    said(session)

    assert give(session, refusal("base-ahead", 1, replica_seq=1)) == [
        NamespaceHeld("team", "base-ahead", 0)
    ]
    assert said(session) == [LEAVE]
    assert session.in_flight("team") == 0
    assert session.put("team", LOG) == 0
    assert give(session, records(1, 2), ack(2), refusal("forbidden", 0)) == []
    session.join(AT_3)
    assert give(session, records(1, 2)) == []
    give(session, joined(head=5, resume_seq=3, resume_chain=CHAIN[3]))
    (event,) = give(session, records(4, 5))
    assert isinstance(event, RecordsReceived)


def test_a_refused_join_is_tried_again_after_a_second_at_least():
    session = open_session()
    session.join(FRESH)

    assert give(session, refusal("busy", 1)) == [NamespaceHeld("team", "busy", 1_000)]
    session.tick(1.0)
    assert session.events() == [NamespaceHeld("team", "busy", 0)]
    said(session)
    session.join(FRESH)
    assert [type(message) for message in said(session)] == [wire.Join]


@pytest.mark.parametrize(
    "late",
    [
        refusal("quota-exceeded", 1, replica_seq=4, retry_ms=1),
        refusal("record-malformed", 0, replica_seq=4),
    ],
)
def test_a_refusal_from_before_a_join_does_not_touch_it(late):
    session = joined_session()
    session.leave("team")
    session.join(FRESH)

    assert give(session, late) == []
    (event,) = give(session, joined())
    assert isinstance(event, Joined)


@pytest.mark.parametrize("is_joined", [False, True])
def test_a_stopped_namespace_is_out_until_it_is_joined_again(is_joined):
    session = joined_session() if is_joined else open_session()
    if not is_joined:
        session.join(FRESH)
    stopped = give(session, refusal("namespace-gone", 2))

    assert stopped == [NamespaceStopped("team", "namespace-gone", "t")]
    assert session.put("team", LOG) == 0
    assert give(session, refusal("namespace-gone", 2)) == []
    session.join(FRESH)
    (event,) = give(session, joined())
    assert isinstance(event, Joined)


def test_a_namespace_that_was_left_is_not_heard_any_more():
    session = joined_session()
    session.put("team", LOG)
    session.data_to_send()
    session.leave("team")
    session.leave("team")

    assert said(session) == [LEAVE]
    assert session.in_flight("team") == 0
    late = [records(1, 5), ack(3), refusal("forbidden", 2), refusal("busy", 1)]
    beat = wire.Heartbeat(0, (wire.Head(1, 9),))
    assert give(session, *late, beat, beat, beat) == []
    session.tick(15.0)
    assert said(session) == [wire.Heartbeat(0, ())]


def test_leaving_drops_the_transfers_of_the_namespace_in_both_directions():
    session = joined_session(part_size=200)
    session.join(replace(FRESH, namespace="other"))
    give(session, joined("other", ns_no=2))
    session.put("team", [make_record(1, bytes(500))])
    said_first = session.data_to_send()
    give(session, wire.Part(1, 1, 999, 0, b"x"))
    session.leave("team")

    assert len(said_first) == 2
    assert numbers_of(said(session)) == []
    record = make_record(1)
    part = wire.Part(2, 1, len(record), 0, record)
    (event,) = give(session, part)
    assert event.items[0].record == record


@pytest.mark.parametrize("is_asked", [False, True])
def test_a_namespace_left_while_joining_is_left_once_it_has_a_number(is_asked):
    session = open_session()
    session.join(AT_3)
    rewind = wire.Rewind("team", 2, 5, 0)
    if is_asked:
        give(session, rewind)
    said(session)
    session.leave("team")
    if not is_asked:
        assert give(session, rewind) == []

    assert said(session) == [wire.Samples("team", ())]
    assert give(session, joined(head=5)) == []
    assert said(session) == [LEAVE]
    session.join(FRESH)


def test_a_namespace_left_after_its_samples_sends_no_others():
    session = open_session()
    session.join(AT_3)
    give(session, wire.Rewind("team", 2, 5, 0))
    session.send_samples("team", [Sample(1, CHAIN[1])])
    said(session)
    session.leave("team")

    assert said(session) == []
    assert give(session, joined(head=5)) == []


@pytest.mark.parametrize("error", [refusal("busy", 1), refusal("forbidden", 2)])
def test_a_namespace_left_while_joining_may_be_refused(error):
    session = open_session()
    session.join(FRESH)
    session.leave("team")

    assert give(session, error) == []
    session.join(FRESH)


def test_a_record_in_parts_arrives_as_one_record():
    session = joined_session(of_relay=joined(head=2))
    record = LOG[0]
    events = give(
        session,
        wire.Part(1, 1, len(record), 0, record[:10]),
        wire.Heartbeat(0, (wire.Head(1, 2),)),
        wire.Part(1, 1, len(record), 10, record[10:]),
        records(2, 2),
    )

    assert events == [
        RecordsReceived("team", 1, (known(LOG[0]),), CHAIN[1]),
        RecordsReceived("team", 2, (known(LOG[1]),), CHAIN[2]),
    ]


@pytest.mark.parametrize(
    ("message", "code", "is_permanent"),
    [
        (wire.Part(1, 1, 100, 20, b"x"), "part-order", True),
        (wire.Part(1, 1, 2**40, 10, b"x"), "part-order", True),
        (records(1, 1), "part-order", True),
    ],
)
def test_a_transfer_out_of_order_ends_the_connection(message, code, is_permanent):
    session = joined_session()
    (closed,) = give(session, wire.Part(1, 1, 100, 0, bytes(10)), message)

    assert (closed.code, closed.close_code) == (code, 4400)
    assert closed.is_permanent is is_permanent


def test_a_transfer_of_another_seq_than_the_next_is_a_gap():
    session = joined_session()
    (closed,) = give(session, wire.Part(1, 2, 100, 0, bytes(10)))

    assert (closed.code, closed.is_permanent) == ("seq-gap", False)


def test_a_transfer_that_does_not_go_on_for_a_minute_is_given_up():
    session = joined_session()
    give(session, wire.Part(1, 1, 100, 0, bytes(10)), now=1.0)
    for now in (15.0, 30.0, 45.0, 60.0):
        give(session, wire.Heartbeat(0, ()), now=now)
        session.tick(now)
        assert session.events() == []

    assert session.next_deadline() == 61.0
    session.tick(61.0)
    (closed,) = session.events()
    assert (closed.code, closed.close_code) == ("part-timeout", 4508)
    assert not closed.is_permanent


def test_presence_is_told_where_the_token_allows_it_and_again_before_it_lapses():
    session = open_session()
    session.join(FRESH)
    session.set_presence("team", b"{}", 1.0)
    assert [type(message) for message in said(session)] == [wire.Join]
    give(session, joined(), now=2.0)
    first = wire.Presence(1, REPLICA, INCARNATION, 2_000, 45_000, b"{}")
    assert said(session) == [first]
    session.tick(15.0)
    assert said(session)[0] == replace(first, counter=15_000)
    session.set_presence("team", b"", 15.0)
    assert said(session) == [
        replace(first, counter=15_001, ttl_ms=0, blob=b""),
    ]
    session.tick(30.0)
    assert [type(message) for message in said(session)] == [wire.Heartbeat]


def test_presence_outlives_a_join_of_the_same_namespace():
    session = joined_session()
    session.set_presence("team", b"{}", 1.0)
    session.leave("team")
    said(session)
    session.join(FRESH)
    give(session, joined(), now=1.0)

    assert [m.counter for m in said(session) if isinstance(m, wire.Presence)] == [1_001]


def test_presence_is_not_told_without_the_scope():
    session = joined_session(of_relay=joined(scopes=7))
    session.set_presence("team", b"{}", 1.0)
    session.tick(15.0)

    assert [type(message) for message in said(session)] == [wire.Heartbeat]


def test_presence_of_others_is_news_if_its_counter_is_higher():
    session = joined_session()
    shown = wire.Presence(1, RELAY, EPOCH, 5, 9, b"x")
    later = replace(shown, counter=6)
    other = replace(shown, incarnation=RELAY, counter=1)
    # The relay knows no higher one when its sender leaves.
    left = replace(later, ttl_ms=0, blob=b"")

    assert give(session, shown) == [PresenceChanged("team", shown)]
    assert give(session, shown, replace(shown, counter=4)) == []
    for news in (other, later, left):
        assert give(session, news) == [PresenceChanged("team", news)]


def test_a_presence_is_sealed_for_its_counter_each_time_it_is_told():
    session = joined_session()
    session.set_presence("team", b"x", 1.0, seal=lambda n, blob: b"%d %b" % (n, blob))
    session.tick(15.0)

    told = [m for m in said(session) if isinstance(m, wire.Presence)]
    assert [m.blob for m in told] == [b"1000 x", b"15000 x"]
    session.set_presence("team", b"", 15.0, seal=lambda *_: b"never")
    assert [m.blob for m in said(session) if isinstance(m, wire.Presence)] == [b""]


def test_the_senders_of_presence_are_told_apart_up_to_a_bound():
    namespace = NamespaceSession(FRESH)
    shown = wire.Presence(1, RELAY, EPOCH, 0, 9, b"x")
    for number in range(PRESENCES_MAX + 1):
        sender = number.to_bytes(16, "big")
        assert namespace.hear_presence(replace(shown, replica_id=sender))

    last = replace(shown, replica_id=PRESENCES_MAX.to_bytes(16, "big"))
    assert not namespace.hear_presence(last)
    assert namespace.hear_presence(replace(shown, replica_id=bytes(16)))


def test_two_namespaces_do_not_touch_each_other():
    session = joined_session()
    session.join(replace(FRESH, namespace="other"))
    give(session, joined("other", ns_no=2))
    session.put("team", LOG)
    session.put("other", LOG[:2])

    assert give(session, refusal("forbidden", 2, namespace="other")) == [
        NamespaceStopped("other", "forbidden", "t")
    ]
    assert session.in_flight("team") == 5
    assert give(session, ack(5)) == [Acked("team", 5, 5, CHAIN[5])]
    assert not any(isinstance(event, Closed) for event in session.events())
