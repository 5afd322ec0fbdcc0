"""crdtmem.protocol.server"""

from random import Random

import pytest
from hypothesis import given, strategies as st

from crdtmem.limits import FRAME_BYTES
from crdtmem.protocol.messages import (
    Ack,
    Bye,
    ErrorMessage,
    Head,
    Heartbeat,
    Join,
    Joined,
    Leave,
    Part,
    Presence,
    Put,
    Records,
    Samples,
    Welcome,
    encode_frame,
)
from crdtmem.protocol.relaying import (
    JoinState,
    PutResult,
    RewindCause,
    Sample,
)
from crdtmem.protocol.server import RelayLimits
from crdtmem.protocol.serving import (
    HelloRequest,
    JoinRequest,
    LeaveRequest,
    PresenceRequest,
    PutRequest,
)
from tests.protocol.served import HELLO, JOIN, LEASE, REPLICA, START, Connection, record


@pytest.fixture
def new():
    return Connection()


@pytest.fixture
def opened():
    return Connection().opens()


@pytest.fixture
def joined():
    return Connection().opens().joins()


# Hello and welcome.


def test_a_hello_asks_to_be_let_in_and_the_welcome_tells_the_bounds(new):
    asked = new.says(HELLO)
    before = new.hears()
    new.session.welcome(new.now)

    assert asked == [HelloRequest(REPLICA, LEASE)]
    assert before == []
    assert new.hears() == [
        Welcome(
            features=0,
            relay_id=b"y" * 16,
            epoch=b"e" * 16,
            heartbeat_ms=15_000,
            max_frame=FRAME_BYTES,
            part_size=131_072,
            max_update=4_194_304,
            max_snapshot=16_777_216,
            window_records=256,
            window_bytes=4_194_304,
            max_joins=64,
            agent="crdtmem-relay",
        )
    ]
    assert new.session.replica_id == REPLICA


OUT_OF_ORDER = [
    Join("notes", 0, bytes(16), 0, bytes(32), 0),
    Leave(1),
    Put(1, (b"?",)),
    Heartbeat(0, ()),
    Bye(0, "done"),
]


@pytest.mark.parametrize("message", OUT_OF_ORDER, ids=lambda m: type(m).__name__)
@pytest.mark.parametrize("is_greeted", [False, True])
def test_before_the_welcome_a_client_says_hello_once_and_nothing_else(
    new, message, is_greeted
):
    if is_greeted:
        new.says(HELLO)

    assert new.says(message) == []
    assert new.end == (4400, "protocol-error")
    (error,) = new.hears()
    assert (error.action, error.code) == (3, "protocol-error")
    assert type(message).__name__ in error.text


def test_a_second_hello_ends_the_connection(opened):
    opened.says(HELLO)

    assert opened.end == (4400, "protocol-error")


@pytest.mark.parametrize(
    "message",
    [
        Ack(1, 1, 1, bytes(32)),
        ErrorMessage("", 0, 0, 0, 0, "busy", ""),
        Samples("notes", ()),
        Samples("unknown", ()),
        Leave(2),
        Put(2, (b"?",)),
        Part(2, 1, 1, 0, b"?"),
        Presence(2, REPLICA, LEASE, 1, 1, b""),
        Presence(1, b"o" * 16, LEASE, 1, 1, b""),
        Presence(1, REPLICA, b"o" * 16, 1, 1, b""),
        JOIN,
    ],
    ids=lambda m: f"{type(m).__name__}",
)
def test_what_a_client_may_not_say_ends_the_connection(joined, message):
    assert joined.says(message) == []
    assert joined.end == (4400, "protocol-error")
    assert joined.session.errors == ["protocol-error"]


@pytest.mark.parametrize(
    ("frame", "detail"),
    [
        (b"", "empty-frame"),
        (b"\x00\x00", "unknown-type"),
        (b"\x07\x01\x00", "bad-value"),
    ],
)
def test_a_frame_that_breaks_the_wire_ends_the_connection(joined, frame, detail):
    joined.session.receive(frame, joined.now)

    assert joined.end == (4400, "protocol-error")
    assert joined.hears()[0].text.startswith(f"{detail}: ")


def test_nothing_of_a_frame_with_a_fault_is_asked_for(joined):
    assert joined.says(Put(1, (record(1),)), Leave(9)) == []
    assert joined.says(Put(1, (record(1),))) == []


@pytest.mark.parametrize(
    ("records", "code"),
    [
        ((record(1)[:20] + bytes(16) + record(1)[36:],), "replica-mismatch"),
        (tuple(record(n) for n in range(1, 6)), "window-exceeded"),
    ],
)
def test_a_put_that_no_client_makes_ends_the_connection_with_its_code(records, code):
    connection = Connection(RelayLimits(window_records=4)).opens().joins()
    connection.says(Put(1, records))

    assert connection.end == (4400, code)


def test_what_comes_after_the_end_is_ignored(joined):
    joined.session.close("token-revoked")
    joined.session.close("storage-failed")
    joined.session.finish("shutdown", 5)
    joined.session.welcome(joined.now)
    joined.session.probe()

    assert joined.says(Put(1, (record(1),))) == []
    assert joined.session.next_read() is None
    assert joined.end == (4401, "token-revoked")
    assert [message.code for message in joined.hears()] == ["token-revoked"]


# Time.


@pytest.mark.parametrize(("state", "late_s"), [("new", 5), ("open", 30)])
def test_a_client_that_does_not_begin_is_given_up(new, state, late_s):
    if state == "open":
        new.opens()
    deadline = new.session.next_deadline()
    new.now += late_s - 0.1
    if state == "open":
        new.says(Heartbeat(0, ()))
    new.session.tick(new.now)
    before = new.end
    new.session.tick(new.now + 0.1)

    assert deadline <= 100 + late_s
    assert (before, new.end) == (None, (4508, "timeout"))
    assert not new.session.is_abort


def test_a_client_that_waits_for_its_welcome_is_not_late(new):
    new.says(HELLO)
    new.session.tick(new.now + 30)

    assert new.end is None
    assert new.session.next_deadline() == 140


def test_a_client_that_is_silent_is_aborted(joined):
    joined.session.tick(139.9)
    before = joined.end
    joined.session.tick(140)

    assert (before, joined.end) == (None, (4508, "timeout"))
    assert joined.session.is_abort


def test_a_heartbeat_goes_out_every_15_seconds_and_names_the_heads(joined):
    joined.session.head_moved(1, 7)
    joined.session.tick(115)
    first = joined.hears()
    joined.session.tick(129.9)
    joined.session.tick(130)

    assert first == [Heartbeat(0, (Head(1, 7),))]
    assert joined.hears() == first
    assert joined.session.next_deadline() == 140


def test_a_heartbeat_that_asks_is_answered_at_once(joined):
    joined.says(Heartbeat(1, (Head(1, 0),)))
    joined.says(Heartbeat(0, ()))

    assert joined.hears() == [Heartbeat(0, (Head(1, 0),))]
    assert joined.session.beats == 2


def test_a_probe_asks_for_a_heartbeat(opened):
    opened.session.probe()

    assert opened.hears() == [Heartbeat(1, ())]


def test_a_part_that_does_not_come_ends_the_connection(joined):
    joined.says(Part(1, 1, 100, 0, b"\x01\x01"))
    deadline = joined.session.next_deadline()
    for joined.now in (130.0, 159.0):
        joined.says(Heartbeat(0, ()))
        joined.session.tick(joined.now)
    before = joined.end
    joined.session.tick(160)

    assert deadline == 115
    assert (before, joined.end) == (None, (4508, "part-timeout"))


# Sending.


def test_r3_nothing_is_sent_while_a_send_is_on_its_way(joined):
    joined.session.probe()
    first = joined.session.data_to_send()
    joined.session.probe()
    second = joined.session.data_to_send()
    is_sending = joined.session.is_sending
    has_more = joined.session.sent()

    assert (len(first), second, is_sending, has_more) == (1, [], True, True)
    assert len(joined.hears()) == 1
    assert not joined.session.sent()


def test_answers_that_are_never_read_end_the_connection(opened):
    while not opened.end:
        opened.says(JOIN)
        opened.session.join_done("notes", JoinState(0, code="x" * 64))

    assert opened.end == (4508, "stalled")
    assert len(b"".join(opened.session.data_to_send())) < 200


# The end.


def test_a_bye_is_obeyed_once_the_puts_in_flight_are_settled(joined):
    joined.says(Put(1, (record(1),)), Bye(0, "done"))
    before = joined.end
    late = joined.says(Put(1, (record(2),)))
    joined.session.put_done(PutResult(1, 1, Sample(1, bytes(32)), 1))

    assert (before, late, joined.end) == (None, [], (1000, "done"))
    assert joined.hears() == [Ack(1, 1, 1, bytes(32))]


def test_a_session_that_finishes_joins_nothing_more(opened):
    opened.says(JOIN)
    opened.says(
        Join("other", 0, bytes(16), 9, bytes(32), 0),
    )
    opened.session.join_done("other", JoinState(2, cause=RewindCause.PAST_HEAD))
    opened.hears()
    opened.says(Samples("other", ()))
    opened.session.finish("shutdown", 700)
    opened.session.finish("shutdown", 800)

    assert not opened.session.join_done("notes", JoinState(1, resume=START))
    assert not opened.session.match_done("other", START, 0)
    assert opened.hears() == [Bye(700, "shutdown")]
    assert opened.end == (1012, "shutdown")


def test_a_disconnected_session_holds_nothing(joined):
    joined.says(Put(1, (record(1),)))
    joined.session.disconnected()
    joined.session.put_done(PutResult(1, 1, Sample(1, bytes(32)), 1))

    assert joined.hears() == []
    assert joined.says(Leave(1)) == []


@given(st.integers(0, 2**32))
def test_r11_any_bytes_end_in_requests_or_a_close(seed):
    random = Random(seed)
    connection = Connection().opens().joins()
    frame = encode_frame(
        [
            Put(1, (record(1), record(2))),
            Part(1, 3, len(record(3)), 0, record(3)[:60]),
            Presence(1, REPLICA, LEASE, 1, 1, b"x"),
            Heartbeat(1, (Head(1, 2**53 - 1),)),
            Join("other", 1, bytes(16), 0, bytes(32), 0),
            Leave(1),
        ]
    )
    for _ in range(random.randrange(4)):
        at = random.randrange(len(frame))
        damage = random.choice([b"", random.randbytes(1), random.randbytes(9)])
        frame = frame[:at] + damage + frame[at + random.randrange(3) :]
    requests = connection.session.receive(frame, 100)

    kinds = (PutRequest, PresenceRequest, JoinRequest, LeaveRequest)
    assert all(isinstance(request, kinds) for request in requests)
    assert connection.end is None or connection.end[0] in (1000, 4400)
    assert not [m for m in connection.hears() if isinstance(m, Joined | Records)]
