"""crdtmem.protocol.server_namespaces, through the session that it is a part of."""

import pytest

from crdtmem.protocol.messages import (
    Ack,
    ErrorMessage,
    Join,
    Joined,
    Leave,
    Part,
    Presence,
    Put,
    Rewind,
    Samples,
)
from crdtmem.protocol.relaying import (
    JoinState,
    PutRefusal,
    PutResult,
    RewindCause,
    Sample,
    Scope,
)
from crdtmem.protocol.server import RelayLimits
from crdtmem.protocol.serving import (
    JoinRequest,
    LeaveRequest,
    MatchRequest,
    PresenceRequest,
)
from tests.protocol.served import JOIN, LEASE, REPLICA, START, Connection, record


@pytest.fixture
def opened():
    return Connection().opens()


@pytest.fixture
def joined():
    return Connection().opens().joins()


def seqs(requests):
    return [[one.header.replica_seq for one in put.records] for put in requests]


def stored(acked):
    return PutResult(1, acked, Sample(acked, bytes(32)), acked)


def refused(code, seq):
    return PutResult(1, 0, None, 0, refusal=PutRefusal(code, seq, seq))


def test_a_join_asks_the_log_and_joined_says_what_it_says(opened):
    asked = opened.says(Join("notes", 0, b"e" * 16, 7, b"c" * 32, 5))
    before = opened.hears()
    at = Sample(7, b"c" * 32)
    opened.session.join_done(
        "notes", JoinState(3, 9, 1, at, own_max=4, own_id=b"i" * 32)
    )

    assert asked == [JoinRequest("notes", create=True, cursor=at)]
    assert before == []
    assert opened.hears() == [Joined("notes", 3, 15, 9, 1, 7, b"c" * 32, 4, b"i" * 32)]


def test_who_may_not_write_makes_no_namespace():
    opened = Connection(scopes=Scope.READ).opens()

    assert opened.says(JOIN) == [JoinRequest("notes", create=False, cursor=START)]


def test_so_many_namespaces_may_be_joined():
    opened = Connection(RelayLimits(joins_max=1)).opens().joins()
    refused = opened.says(Join("other", 0, bytes(16), 0, bytes(32), 0))
    error = opened.hears()
    opened.says(Leave(1))

    assert refused == []
    assert error == [ErrorMessage("other", 0, 0, 2, 0, "too-many-joins", "")]
    assert len(opened.says(Join("other", 0, bytes(16), 0, bytes(32), 0))) == 1


def test_a_rewind_asks_for_samples_and_is_followed_by_joined(opened):
    opened.says(JOIN)
    found = JoinState(3, 9, 1, cause=RewindCause.PAST_HEAD)
    is_joined = opened.session.join_done("notes", found)
    rewind = opened.hears()
    samples = (Sample(4, b"c" * 32),)
    asked = opened.says(Samples("notes", samples))
    again = opened.session.match_done("notes", samples[0], 11)

    assert (is_joined, again) == (False, True)
    assert rewind == [Rewind("notes", 1, 9, 1)]
    assert asked == [MatchRequest("notes", 3, samples)]
    (answer,) = opened.hears()
    assert (answer.ns_no, answer.resume_seq, answer.head) == (3, 4, 11)


def test_samples_are_taken_once(opened):
    opened.says(JOIN)
    opened.session.join_done("notes", JoinState(3, 9, cause=RewindCause.PAST_HEAD))
    opened.says(Samples("notes", ()), Samples("notes", ()))

    assert opened.end == (4400, "protocol-error")


def test_a_namespace_that_is_left_is_known_no_longer(joined):
    left = joined.says(Leave(1))
    joined.says(Put(1, (record(1),)))

    assert left == [LeaveRequest(1)]
    assert joined.end == (4400, "protocol-error")


def test_a_presence_without_the_scope_is_dropped():
    joined = Connection(scopes=Scope.READ).opens().joins()
    allowed = Connection().opens().joins()
    presence = Presence(1, REPLICA, LEASE, 1, 1, b"")

    assert joined.says(presence) == []
    assert joined.end is None
    assert allowed.says(presence) == [PresenceRequest(presence)]


def test_a_put_goes_to_the_log_and_its_answer_to_the_client(joined):
    asked = joined.says(Put(1, (record(1), record(2))), Put(1, (record(3),)))
    joined.session.put_done(stored(2))
    first = joined.hears()
    joined.session.put_done(refused("quota-exceeded", 3))

    assert seqs(asked) == [[1, 2], [3]]
    assert first == [Ack(1, 2, 2, bytes(32))]
    assert joined.hears() == [
        ErrorMessage("notes", 3, 3, 1, 60_000, "quota-exceeded", "")
    ]


def test_a_refusal_of_a_code_that_is_new_is_told_all_the_same(joined):
    joined.says(Put(1, (record(1),)))
    joined.session.put_done(refused("too-warm", 1))

    assert joined.hears() == [ErrorMessage("notes", 1, 1, 0, 0, "too-warm", "")]


def parts(seq, *, size=20):
    data = record(seq)
    return [
        Part(1, seq, len(data), at, data[at : at + size])
        for at in range(0, len(data), size)
    ]


def test_parts_make_a_put_of_one_record(joined):
    *first, last = parts(1)

    assert joined.says(*first) == []
    assert seqs(joined.says(last)) == [[1]]


@pytest.mark.parametrize(
    "frame",
    [
        (parts(1)[0], Put(1, (record(1),))),
        (parts(1)[0], parts(1)[2]),
        (parts(1)[1],),
        (parts(1)[0], parts(2)[1]),
        (Part(1, 1, 2**53 - 1, 0, record(1)),),
    ],
)
def test_parts_out_of_order_end_the_connection(joined, frame):
    assert joined.says(*frame) == []
    assert joined.end == (4400, "part-order")


def test_a_transfer_ends_when_what_stands_before_it_is_refused(joined):
    first, second, *_ = parts(2)
    joined.says(Put(1, (record(1),)), first)
    joined.session.put_done(refused("base-ahead", 1))
    late = joined.says(second, *parts(3)[:2])
    again = joined.says(Put(1, (record(1),)), *parts(2))

    assert late == []
    assert [m.code for m in joined.hears()] == ["base-ahead"]
    assert seqs(again) == [[1], [2]]
    assert joined.end is None


def test_a_blocked_stream_may_go_on_in_parts(joined):
    joined.says(Put(1, (b"?",)))

    assert seqs(joined.says(*parts(2), *parts(1))) == [[1]]


def test_a_transfer_ends_with_its_namespace(joined):
    joined.says(parts(1)[0], Leave(1), JOIN)
    joined.session.join_done("notes", JoinState(1, resume=START))

    assert seqs(joined.says(Put(1, (record(1),)))) == [[1]]


def test_what_was_put_before_a_leave_is_settled_in_silence(joined):
    joined.says(Put(1, (record(1),)), Put(1, (record(2),)), Leave(1), JOIN)
    joined.session.put_done(stored(1))
    joined.session.join_done("notes", JoinState(1, resume=START, own_max=1))
    joined.session.put_done(stored(2))
    answers = joined.hears()
    joined.says(Put(1, (record(2),)))
    joined.session.put_done(stored(2))

    assert [type(m) for m in answers] == [Joined]
    assert joined.hears() == [Ack(1, 2, 2, bytes(32))]


def test_the_last_answer_for_a_namespace_that_was_left_ends_its_stream(joined):
    joined.says(Put(1, (record(1),)), Leave(1))
    joined.session.put_done(stored(1))
    joined.session.put_done(stored(1))

    assert (joined.hears(), joined.end) == ([], None)
