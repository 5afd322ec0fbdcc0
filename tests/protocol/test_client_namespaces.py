"""crdtmem.protocol.client: joins, uploads, downloads, refusals of a namespace."""

from dataclasses import replace
from itertools import product

import pytest
from hypothesis import given, strategies as st

from crdtmem.errors import LocalProtocolError, RemoteProtocolError
from crdtmem.protocol import messages as wire
from crdtmem.protocol.client import ClientSession
from crdtmem.protocol.client_events import (
    Acked,
    ClientLimits,
    Joined,
    PutRefused,
    RecordsReceived,
    RewindAsked,
)
from crdtmem.protocol.client_namespace import (
    TRANSITIONS,
    NamespaceSession,
    NsEvent,
    NsState,
)
from crdtmem.protocol.closes import Close
from crdtmem.protocol.records import record_id
from crdtmem.protocol.relaying import Sample
from tests.clients import (
    AT_3,
    CHAIN,
    EPOCH,
    FRESH,
    LOG,
    NO_CHAIN,
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


@pytest.mark.parametrize(("state", "event"), list(product(NsState, NsEvent)))
def test_every_event_in_every_state_of_a_namespace_follows_the_table(state, event):
    namespace = NamespaceSession(FRESH)
    namespace.state = state
    if (state, event) in TRANSITIONS:
        namespace.advance(event)
        assert namespace.state is TRANSITIONS[state, event]
        return

    with pytest.raises(RemoteProtocolError, match=f"{event} for .* is {state}") as e:
        namespace.advance(event)
    assert e.value.detail == "out-of-order"
    assert namespace.state is state


def test_a_join_says_where_the_store_stands():
    session = open_session()
    session.join(replace(AT_3, own_seq=9, flags=wire.JoinFlag.PRESENCE))

    assert said(session) == [wire.Join("team", 1, EPOCH, 3, CHAIN[3], 9)]


@pytest.mark.parametrize(
    ("cursor", "answer"),
    [
        (FRESH, joined(head=5)),
        (AT_3, joined(head=5, resume_seq=3, resume_chain=CHAIN[3])),
        (AT_3, joined(head=5, floor=4, resume_seq=4, resume_chain=CHAIN[4])),
        (FRESH, joined(head=5, floor=2, resume_seq=2, resume_chain=CHAIN[2])),
    ],
)
def test_a_joined_namespace_is_read_from_where_the_relay_resumes(cursor, answer):
    session = open_session()
    session.join(cursor)

    assert give(session, answer) == [Joined("team", answer, is_rewound=False)]
    assert session.head("team") == 5
    (event,) = give(session, records(answer.resume_seq + 1, 5))
    assert isinstance(event, RecordsReceived)


@pytest.mark.parametrize(
    ("cursor", "answer"),
    [
        (FRESH, joined(head=5, resume_seq=2, resume_chain=CHAIN[2])),
        (FRESH, joined(resume_chain=CHAIN[1])),
        (AT_3, joined(head=5, resume_seq=3, resume_chain=CHAIN[2])),
        (AT_3, joined(head=2, resume_seq=3, resume_chain=CHAIN[3])),
        (AT_3, joined(head=5, floor=2, resume_seq=4, resume_chain=CHAIN[4])),
        (replace(FRESH, seq=0), joined(resume_chain=NO_CHAIN)),
    ],
)
def test_a_resume_at_a_place_that_the_store_never_knew_ends_the_connection(
    cursor, answer
):
    session = open_session()
    session.join(cursor)
    (closed,) = give(session, answer)

    assert (closed.code, closed.is_permanent) == ("protocol-error", True)
    assert f"seq {answer.resume_seq} is no place to go on from" in closed.detail


def test_a_number_stands_for_one_namespace():
    session = joined_session()
    session.join(replace(FRESH, namespace="other"))
    (closed,) = give(session, joined("other", ns_no=1))

    assert closed.code == "protocol-error"
    assert "number 1 stands for two namespaces" in closed.detail


def test_a_namespace_is_joined_once_at_a_time():
    session = joined_session()

    with pytest.raises(LocalProtocolError, match="join of 'team' beside 1"):
        session.join(FRESH)
    assert said(session) == []


def test_no_more_than_64_namespaces_are_joined():
    session = open_session()
    for number in range(64):
        session.join(replace(FRESH, namespace=f"n{number}"))

    with pytest.raises(LocalProtocolError, match="join of 'team' beside 64"):
        session.join(FRESH)
    assert len(said(session)) == 64


@pytest.mark.parametrize(
    "call",
    [
        lambda s: s.put("other", []),
        lambda s: s.leave("other"),
        lambda s: s.applied("other", 1),
        lambda s: s.resume_puts("other"),
        lambda s: s.send_samples("other", []),
        lambda s: s.set_presence("other", b"", 0.0),
    ],
)
def test_what_was_never_joined_is_the_drivers_mistake(call):
    with pytest.raises(LocalProtocolError, match="'other' was never joined"):
        call(joined_session())


def test_no_put_goes_up_before_joined():
    """C1"""
    session = open_session()
    session.join(FRESH)

    assert session.put("team", LOG) == 0
    assert [type(message) for message in said(session)] == [wire.Join]


def test_no_put_goes_up_between_a_rewind_and_resume_puts():
    """C1"""
    session = open_session()
    session.join(replace(AT_3, seq=9))
    assert give(session, wire.Rewind("team", 1, 5, 0)) == [RewindAsked("team")]
    assert session.put("team", LOG) == 0
    session.send_samples("team", [Sample(4, CHAIN[4]), Sample(2, CHAIN[2])])
    answer = joined(head=5, resume_seq=2, resume_chain=CHAIN[2], own_max=2)
    (event,) = give(session, answer)
    said(session)

    assert event.is_rewound
    assert session.put("team", LOG[2:]) == 0
    assert said(session) == []
    session.resume_puts("team")
    assert session.put("team", LOG[2:]) == 3
    assert numbers_of(said(session)) == [3, 4, 5]


def test_a_rewind_that_finds_no_sample_resumes_at_the_beginning():
    session = open_session()
    session.join(AT_3)
    give(session, wire.Rewind("team", 2, 5, 0))
    said(session)
    session.send_samples("team", [])

    assert said(session) == [wire.Samples("team", ())]
    (event,) = give(session, joined(head=5))
    assert (event.answer.resume_seq, event.is_rewound) == (0, True)


def test_samples_are_sent_once_and_only_where_they_were_asked_for():
    session = open_session()
    session.join(AT_3)
    with pytest.raises(LocalProtocolError, match="were not asked for"):
        session.send_samples("team", [])
    give(session, wire.Rewind("team", 2, 5, 0))
    with pytest.raises(LocalProtocolError, match="do not fall"):
        session.send_samples("team", [Sample(1, CHAIN[1]), Sample(2, CHAIN[2])])
    session.send_samples("team", [Sample(1, CHAIN[1])])
    with pytest.raises(LocalProtocolError, match="were not asked for"):
        session.send_samples("team", [])


def test_a_record_counts_as_stored_only_by_an_ack_of_a_number_that_was_put():
    """C2"""
    session = joined_session()
    session.put("team", LOG[:3])

    assert give(session, ack(2)) == [Acked("team", 2, 2, CHAIN[2])]
    assert session.in_flight("team") == 1
    assert give(session, ack(1)) == give(session, ack(2)) == []
    (closed,) = give(session, ack(4))
    assert closed.code == "protocol-error"
    assert "ack of 4, and 3 was put" in closed.detail
    assert session.in_flight("team") == 1


def test_a_record_put_again_leaves_flight_by_an_ack_that_is_no_news():
    session = joined_session(of_relay=joined(own_max=3))
    session.put("team", LOG[:3])

    assert give(session, ack(3)) == [Acked("team", 3, 3, CHAIN[3])]
    assert session.in_flight("team") == 0


@given(
    st.lists(st.integers(1, 400), min_size=1, max_size=20),
    st.integers(1, 6),
    st.integers(0, 1_000),
)
def test_the_window_of_a_namespace_is_kept(sizes, window_records, window_bytes):
    """C3"""
    session = joined_session(window_records=window_records, window_bytes=window_bytes)
    waiting = [make_record(n, bytes(size)) for n, size in enumerate(sizes, 1)]
    acked = 0
    flight: list[bytes] = []
    while waiting or flight:
        taken = session.put("team", waiting)
        flight += waiting[:taken]
        del waiting[:taken]
        assert len(flight) == session.in_flight("team") <= window_records
        assert len(flight) == 1 or sum(map(len, flight)) <= window_bytes
        said(session)
        acked += 1
        del flight[0]
        give(session, wire.Ack(1, acked, acked, NO_CHAIN))

    assert acked == len(sizes)


def test_the_clients_own_window_is_kept_if_the_relays_is_wider():
    limits = ClientLimits(window_records=2, window_bytes=1_000)

    assert joined_session(limits=limits).put("team", LOG) == 2


@given(st.data())
def test_records_go_up_contiguous_and_with_their_chain_verified(data):
    """C4"""
    session = joined_session(AT_3, of_relay=joined(head=5, resume_seq=3, **chain_at(3)))
    first = data.draw(st.integers(1, 5))
    last = data.draw(st.integers(first, 5))
    chain = data.draw(st.sampled_from(CHAIN))
    events = give(session, replace(records(first, last), chain=chain))

    if first == 4 and chain == CHAIN[last]:
        items = tuple(map(known, LOG[3:last]))
        assert events == [RecordsReceived("team", 4, items, chain)]
    else:
        (closed,) = events
        code = "chain-mismatch" if first == 4 else "seq-gap"
        assert (closed.code, closed.close_code) == (code, 4400)
        assert not closed.is_permanent
        assert session.closing == Close(4400, code)


def chain_at(seq):
    return {"resume_chain": CHAIN[seq]}


def test_records_without_their_bytes_count_by_their_ids():
    session = joined_session()
    tag = b"t" * 16
    items = (
        wire.Item(wire.Form.OWN, b"", record_id("team", LOG[0])),
        wire.Item(wire.Form.COVERED, b"", record_id("team", LOG[1]), tag),
        wire.Item(wire.Form.REDUNDANT, b"", record_id("team", LOG[2]), tag),
    )

    assert give(session, wire.Records(1, 1, items, CHAIN[3])) == [
        RecordsReceived("team", 1, items, CHAIN[3])
    ]


def test_what_is_told_as_applied_moves_by_applied_alone():
    """C5"""
    session = joined_session()
    give(session, records(1, 3))
    session.tick(15.0)
    assert said(session) == [wire.Heartbeat(0, (wire.Head(1, 0),))]
    session.applied("team", 2)
    session.tick(30.0)

    assert said(session) == [wire.Heartbeat(0, (wire.Head(1, 2),))]


def test_records_are_sent_again_byte_for_byte():
    """C7"""
    first = joined_session()
    first.put("team", LOG)
    again = joined_session(of_relay=joined(own_max=2, own_id=record_id("team", LOG[1])))
    again.put("team", LOG[2:])

    (sent,) = said(first)
    (resent,) = said(again)
    assert sent.records == tuple(LOG)
    assert resent.records == tuple(LOG[2:])


def test_the_head_is_the_highest_seq_that_was_heard_of():
    session = joined_session()
    heads = [session.head("team")]
    session.put("team", LOG[:2])
    for message in (
        wire.Heartbeat(0, (wire.Head(1, 2),)),
        records(1, 3),
        wire.Heartbeat(0, (wire.Head(1, 1),)),
        wire.Ack(1, 1, 4, CHAIN[4]),
    ):
        give(session, message)
        heads.append(session.head("team"))

    assert heads == [0, 2, 3, 3, 4]


def test_of_what_was_never_joined_no_head_is_known_and_nothing_is_in_flight():
    for session in (open_session(), ClientSession(REPLICA, RELAY, agent="", now=0.0)):
        assert session.head("team") == session.in_flight("team") == 0


@pytest.mark.parametrize(
    ("replica_seq", "expected", "told"), [(3, 2, 2), (3, 0, 3), (0, 0, 2)]
)
def test_a_refusal_always_says_where_to_go_on(replica_seq, expected, told):
    session = joined_session(of_relay=joined(own_max=1))
    error = refusal("forbidden", 0, replica_seq=replica_seq, expected=expected)
    (refused,) = give(session, error)

    assert refused == PutRefused("team", replica_seq, told, "forbidden", 0, "t")
