"""crdtmem.protocol.client: the connection."""

import tracemalloc
from dataclasses import replace
from itertools import product
from random import Random

import pytest
from hypothesis import given, strategies as st

from crdtmem.errors import LocalProtocolError
from crdtmem.protocol import messages as wire
from crdtmem.protocol.client import (
    CONNECTION_TRANSITIONS,
    ClientSession,
    ConnEvent,
    ConnState,
)
from crdtmem.protocol.client_events import (
    Acked,
    ClientLimits,
    Closed,
    NamespaceHeld,
    Welcomed,
)
from crdtmem.protocol.closes import Close
from tests.clients import (
    AGENT,
    EPOCH,
    FRESH,
    INCARNATION,
    RELAY,
    REPLICA,
    chain_of,
    give,
    joined,
    joined_session,
    make_record,
    open_session,
    refusal,
    said,
    welcome,
)

BYE = wire.Bye(0, "done")
BEAT = wire.Heartbeat(0, ())


def new_session():
    return ClientSession(REPLICA, INCARNATION, agent=AGENT, now=0.0)


def in_state(state):
    """Return a session in a state, and what it said is taken."""
    session = new_session() if state is ConnState.HELLO_SENT else open_session()
    if state is ConnState.CLOSING:
        session.finish(0.0)
    if state is ConnState.CLOSED:
        session.connection_lost(1006, 0.0)
    said(session)
    session.events()
    return session


def cause(session, event):
    """Make an event happen to a session."""
    if event is ConnEvent.WELCOME:
        session.receive(wire.encode_message(welcome()), 0.0)
    elif event is ConnEvent.DONE:
        session.finish(0.0)
    else:
        session.connection_lost(1006, 0.0)


@pytest.mark.parametrize(("state", "event"), list(product(ConnState, ConnEvent)))
def test_every_event_in_every_state_follows_the_table(state, event):
    session = in_state(state)
    cause(session, event)
    following = CONNECTION_TRANSITIONS.get((state, event), state)
    if (state, event) == (ConnState.OPEN, ConnEvent.WELCOME):
        # A second welcome is a fault.
        following = ConnState.CLOSED

    assert session.is_open == (following is ConnState.OPEN)
    assert (session.next_deadline() is None) == (
        following in (ConnState.CLOSING, ConnState.CLOSED)
    )
    closed = [e for e in session.events() if isinstance(e, Closed)]
    assert len(closed) == (following is ConnState.CLOSED is not state)


def test_hello_is_all_that_is_said_before_welcome():
    session = new_session()

    assert said(session) == [wire.Hello(0, REPLICA, INCARNATION, AGENT)]
    assert not session.is_open
    with pytest.raises(LocalProtocolError, match="before Welcomed"):
        session.join(FRESH)
    assert said(session) == []


def test_a_welcome_opens_the_connection():
    session = new_session()
    said(session)
    answer = welcome()

    assert give(session, answer) == [Welcomed(RELAY, EPOCH, answer)]
    assert session.is_open
    assert session.closing is None


@pytest.mark.parametrize(
    "first",
    [BEAT, joined(), refusal("busy", 1), wire.Leave(1), wire.Ack(1, 1, 1, bytes(32))],
)
def test_anything_else_before_welcome_ends_the_connection(first):
    session = new_session()
    (closed,) = give(session, first)

    assert (closed.code, closed.close_code) == ("protocol-error", 4400)
    assert closed.is_permanent
    assert "out-of-order" in closed.detail
    assert session.closing == Close(4400, "protocol-error")


@pytest.mark.parametrize(
    "change", [{"max_frame": 16_383}, {"part_size": 0}, {"window_records": 0}]
)
def test_a_welcome_that_leaves_no_room_ends_the_connection(change):
    session = new_session()
    (closed,) = give(session, welcome(**change))

    assert (closed.code, closed.is_permanent) == ("protocol-error", True)
    assert "of no use" in closed.detail


def test_a_relay_that_does_not_answer_hello_is_given_up_after_ten_seconds():
    session = new_session()

    assert session.next_deadline() == 10.0
    session.tick(9.9)
    assert session.events() == []
    session.tick(10.0)
    assert session.events() == [
        Closed("timeout", 4508, False, 0, 0.0, "the relay is silent")
    ]
    assert session.closing == Close(4508, "timeout")


@pytest.mark.parametrize(
    "message",
    [
        wire.Hello(0, REPLICA, INCARNATION, AGENT),
        wire.Join("team", 0, bytes(16), 0, bytes(32), 0),
        wire.Samples("team", ()),
        wire.Leave(1),
        wire.Put(1, (b"record",)),
        welcome(),
        joined("other"),
        joined(),
        wire.Rewind("team", 1, 0, 0),
        wire.Records(9, 1, (wire.Item(1),), bytes(32)),
        wire.Part(9, 1, 9, 0, b"x"),
        wire.Ack(9, 0, 0, bytes(32)),
        wire.Ack(1, 1, 1, bytes(32)),
        wire.Heartbeat(0, (wire.Head(9, 1),)),
        refusal("forbidden", 2, namespace="other"),
        refusal("forbidden", 0, namespace=""),
    ],
    ids=lambda m: type(m).__name__,
)
def test_what_a_relay_may_not_say_now_ends_the_connection(message):
    session = joined_session()
    (closed,) = give(session, message)

    assert (closed.code, closed.close_code) == ("protocol-error", 4400)
    assert closed.is_permanent


def test_a_frame_that_cannot_be_read_ends_the_connection():
    session = joined_session()
    session.receive(b"\x07\x01\x00", 1.0)

    assert session.events() == [
        Closed(
            "protocol-error",
            4400,
            True,
            0,
            1.0,
            "bad-value: number of a namespace is 0",
        )
    ]


@pytest.mark.parametrize(
    ("code", "action", "close_code", "is_permanent"),
    [
        ("token-revoked", 3, 4401, True),
        ("window-exceeded", 3, 4400, True),
        ("replica-duplicate", 3, 4409, True),
        ("storage-failed", 3, 1011, False),
        ("stalled", 3, 4508, False),
        ("solar-flare", 3, 4500, False),
        ("busy", 1, 4500, False),
        ("forbidden", 2, 4400, True),
    ],
)
def test_an_error_of_the_connection_ends_it_as_its_table_says(
    code, action, close_code, is_permanent
):
    session = open_session()
    error = refusal(code, action, namespace="", retry_ms=30)

    assert give(session, error, now=4.0) == [
        Closed(code, close_code, is_permanent, 30, 4.0, "t")
    ]
    assert session.closing == Close(1000, "done")


def test_an_error_that_closes_ends_the_connection_whatever_its_namespace():
    session = joined_session()
    (closed,) = give(session, refusal("replica-mismatch", 3))

    assert (closed.code, closed.is_permanent) == ("replica-mismatch", True)


@pytest.mark.parametrize(
    ("bye", "closed"),
    [
        (wire.Bye(700, "shutdown"), Closed("shutdown", 1012, False, 700)),
        (wire.Bye(0, "replaced"), Closed("replaced", 4509, False, 0)),
        (wire.Bye(0, ""), Closed("done", 1000, False, 0)),
    ],
)
def test_the_relays_bye_ends_the_connection_for_a_while(bye, closed):
    assert give(open_session(), bye) == [closed]
    assert give(new_session(), bye) == [closed]


@pytest.mark.parametrize(
    ("code", "reason", "named", "is_permanent"),
    [
        (1006, "", "connection-lost", False),
        (1000, "", "done", False),
        (1012, "", "shutdown", False),
        (1008, "", "connection-lost", True),
        (4401, "token-expired", "token-expired", True),
        (4401, "", "unauthorized", True),
        (4509, "", "replaced", False),
    ],
)
def test_a_lost_connection_tells_why(code, reason, named, is_permanent):
    session = open_session()
    session.connection_lost(code, 90.0, reason)

    assert session.events() == [Closed(named, code, is_permanent, 0, 90.0)]
    assert session.closing is None


def test_after_closed_there_is_no_output_and_no_event():
    """C6"""
    session = joined_session()
    session.put("team", [make_record(1)])
    session.connection_lost(1006, 1.0)
    session.events()
    late = wire.encode_frame([wire.Heartbeat(1, ()), joined()])
    session.receive(late, 2.0)
    session.tick(99.0)
    session.finish(99.0)
    session.set_presence("team", b"x", 99.0)
    session.leave("team")
    session.join(replace(FRESH, namespace="other"))

    assert session.put("team", [make_record(2)]) == 0
    assert session.events() == []
    assert session.data_to_send() == []
    assert session.next_deadline() is None


def test_a_permanent_close_is_reported_once_and_is_final():
    """C8"""
    session = joined_session()
    first = give(session, refusal("token-revoked", 3), refusal("stalled", 3))
    session.connection_lost(1006, 1.0)
    again = give(session, refusal("storage-failed", 3))
    session.tick(500.0)

    assert [event.code for event in first] == ["token-revoked"]
    assert again == session.events() == []


def test_what_stands_before_a_fault_in_its_frame_counts():
    session = joined_session()
    session.put("team", [make_record(1)])
    ack = wire.Ack(1, 1, 1, chain_of([make_record(1)]))
    acked, closed = give(session, ack, joined("other"), ack)

    assert acked == Acked("team", 1, 1, ack.chain)
    assert closed.code == "protocol-error"


def test_a_heartbeat_goes_out_every_15_seconds_and_says_what_is_applied():
    session = joined_session()
    session.applied("team", 7)

    assert session.next_deadline() == 15.0
    session.tick(14.9)
    assert said(session) == []
    session.tick(15.0)
    assert said(session) == [wire.Heartbeat(0, (wire.Head(1, 7),))]
    assert session.next_deadline() == 30.0
    session.tick(20.0)
    assert said(session) == []


def test_a_heartbeat_that_asks_is_answered_at_once_and_once():
    session = joined_session()
    asking = wire.Heartbeat(1, ())
    give(session, asking, asking)
    give(session, asking)

    assert said(session) == [wire.Heartbeat(0, (wire.Head(1, 0),))]


@pytest.mark.parametrize(("wanted_ms", "pause_s"), [(0, 1), (5_000, 5), (60_000, 15)])
def test_a_relay_may_ask_for_heartbeats_more_often(wanted_ms, pause_s):
    session = open_session(heartbeat_ms=wanted_ms)

    assert session.next_deadline() == pause_s


def test_a_relay_that_is_silent_for_40_seconds_is_given_up():
    session = joined_session()
    give(session, BEAT, now=10.0)
    session.tick(30.0)
    session.tick(49.9)
    assert session.events() == []
    session.tick(50.0)

    (closed,) = session.events()
    assert (closed.code, closed.close_code, closed.is_permanent) == (
        "timeout",
        4508,
        False,
    )
    assert session.closing == Close(4508, "timeout")


@pytest.mark.parametrize("wake", ["receive", "tick", "finish", "set_presence"])
def test_after_a_suspend_the_connection_is_given_up_at_once(wake):
    session = joined_session()
    now = 41.0
    if wake == "receive":
        session.receive(wire.encode_message(BEAT), now)
    elif wake == "set_presence":
        session.set_presence("team", b"x", now)
    else:
        getattr(session, wake)(now)

    (closed,) = session.events()
    assert (closed.code, closed.is_permanent) == ("timeout", False)
    assert "nothing ran for 41 s" in closed.detail
    assert session.data_to_send() == []


def test_a_relay_that_has_records_and_sends_none_for_two_heartbeats_is_given_up():
    session = joined_session()
    behind = wire.Heartbeat(0, (wire.Head(1, 5),))

    assert give(session, behind) == give(session, behind) == []
    (closed,) = give(session, behind)
    assert (closed.code, closed.close_code, closed.is_permanent) == (
        "stalled",
        4508,
        False,
    )


def test_records_of_any_namespace_show_that_the_relay_is_not_stuck():
    session = joined_session()
    session.join(replace(FRESH, namespace="other"))
    give(session, joined("other", ns_no=2))
    behind = wire.Heartbeat(0, (wire.Head(1, 5),))
    record = make_record(1)
    item = wire.Item(0, record)
    for _ in range(2):
        give(session, behind, behind)
        give(session, wire.Part(2, 1, len(record) + 9, 0, record))
        session = joined_session()
    give(session, behind, behind, wire.Records(1, 1, (item,), chain_of([record])))

    assert give(session, behind, behind) == []


def test_nothing_but_heartbeats_is_no_reason_to_give_up():
    session = joined_session()

    assert give(session, *[wire.Heartbeat(0, (wire.Head(1, 0),))] * 9) == []


def test_finish_says_bye_at_once_where_nothing_is_in_flight():
    session = joined_session()
    session.finish(1.0)

    assert said(session) == [BYE]
    assert session.closing == Close(1000, "done")
    assert session.events() == []
    assert give(session, wire.Heartbeat(1, ())) == []
    session.connection_lost(1000, 2.0)
    assert session.events() == [Closed("done", 1000, False, 0, 2.0)]


def test_finish_waits_for_the_last_ack_and_takes_no_more_puts():
    session = joined_session()
    session.put("team", [make_record(1)])
    session.finish(0.0)

    assert session.put("team", [make_record(2)]) == 0
    assert [type(message) for message in said(session)] == [wire.Put]
    assert session.closing is None
    give(session, wire.Ack(1, 1, 1, chain_of([make_record(1)])))
    assert said(session) == [BYE]
    assert session.closing == Close(1000, "done")


def test_finish_before_welcome_closes_without_a_word():
    session = new_session()
    said(session)
    session.finish(0.0)

    assert session.closing == Close(1000, "done")
    assert said(session) == []


def test_the_end_of_a_held_join_is_a_deadline():
    session = open_session()
    session.join(FRESH)
    said(session)
    held = give(session, refusal("namespace-not-found", 1, retry_ms=5_000), now=2.0)

    assert held == [NamespaceHeld("team", "namespace-not-found", 5_000)]
    assert session.next_deadline() == 7.0
    session.tick(6.9)
    assert session.events() == []
    session.tick(7.0)
    assert session.events() == [NamespaceHeld("team", "namespace-not-found", 0)]
    assert session.next_deadline() == 15.0


# What a fuzzer may say: a whole conversation of a relay, to be mutated.
RECORD = make_record(1)
CONVERSATION = [
    welcome(),
    joined(),
    wire.Heartbeat(1, (wire.Head(1, 3),)),
    wire.Ack(1, 1, 1, chain_of([RECORD])),
    wire.Records(1, 1, (wire.Item(0, RECORD),), chain_of([RECORD])),
    wire.Part(1, 2, 2**40, 0, b"part"),
    wire.Presence(1, RELAY, EPOCH, 1, 1, b"x"),
    refusal("quota-exceeded", 1, retry_ms=1_000),
    refusal("replica-gap", 0, expected=1),
    refusal("base-ahead", 1),
    wire.Rewind("team", 1, 3, 0),
    refusal("forbidden", 2),
    wire.Bye(1, "shutdown"),
]
FRAMES = [wire.encode_message(message) for message in CONVERSATION]


def endure(frames):
    """Have a busy session receive frames; return its events, the output is taken."""
    session = new_session()
    events = []
    following = 1
    for number, frame in enumerate(frames, 1):
        session.receive(frame, float(number))
        session.tick(float(number))
        found = session.events()
        events += found
        if any(isinstance(event, Welcomed) for event in found):
            session.join(FRESH)
        if session.is_open:
            following = following if session.in_flight("team") else 1
            following += session.put("team", [make_record(following)])
        assert all(len(data) <= 262_144 for data in session.data_to_send())
    return events


@given(st.lists(st.sampled_from(FRAMES) | st.binary(max_size=100), max_size=12))
def test_any_order_of_frames_ends_in_handled_messages_or_one_close(frames):
    events = endure([FRAMES[0], *frames])
    closed = [event for event in events if isinstance(event, Closed)]

    assert closed == events[len(events) - len(closed) :]
    assert len(closed) <= 1


@pytest.mark.requirement("sync-fuzz")
@given(st.data())
def test_a_changed_byte_anywhere_ends_in_handled_messages_or_one_close(data):
    frames = list(FRAMES[: data.draw(st.integers(1, len(FRAMES)))])
    at = data.draw(st.integers(0, len(frames) - 1))
    frame = bytearray(frames[at])
    frame[data.draw(st.integers(0, len(frame) - 1))] = data.draw(st.integers(0, 255))
    frames[at] = bytes(frame)
    events = endure(frames)

    assert sum(isinstance(event, Closed) for event in events) <= 1


def mutated(rng):
    """Return a conversation with a few bytes changed, cut, added and reordered."""
    frames = [bytearray(frame) for frame in FRAMES]
    for _ in range(rng.randint(1, 4)):
        frame = rng.choice(frames)
        at = rng.randrange(len(frame) + 1)
        frame[at : at + rng.randint(0, 3)] = rng.randbytes(rng.randint(0, 9))
    if rng.random() < 0.2:
        rng.shuffle(frames)
    return [bytes(frame) for frame in frames]


@pytest.mark.parametrize("rounds", [100, pytest.param(10_000, marks=pytest.mark.slow)])
def test_a_mutated_conversation_ends_in_handled_messages_or_one_close(rounds):
    rng = Random(20_260_101)
    for _ in range(rounds):
        events = endure(mutated(rng))

        assert sum(isinstance(event, Closed) for event in events) <= 1


def test_memory_stays_bounded_whatever_is_claimed():
    rng = Random(20_260_102)
    tracemalloc.start()
    try:
        for _ in range(80):
            endure(mutated(rng))
            endure([FRAMES[0], rng.randbytes(rng.randint(1, 300))])
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert peak < 16 * 2**20


def test_bounds_can_be_set():
    limits = ClientLimits(welcome_s=1.0, heartbeat_s=2.0, dead_s=3.0)
    session = ClientSession(REPLICA, INCARNATION, limits=limits, agent=AGENT, now=0.0)

    assert session.next_deadline() == 1.0
    give(session, welcome())
    assert session.next_deadline() == 2.0
    session.tick(2.0)
    assert session.next_deadline() == 3.0
    session.tick(3.0)
    (closed,) = session.events()
    assert isinstance(closed, Closed)
    assert closed.code == "timeout"
