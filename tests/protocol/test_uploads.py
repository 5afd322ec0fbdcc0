"""crdtmem.protocol.uploads"""

import pytest
from hypothesis import given, strategies as st

from crdtmem.errors import RemoteProtocolError
from crdtmem.protocol.parts import RecordLimits
from crdtmem.protocol.records import Header, RecordKind, build_record, record_id
from crdtmem.protocol.relaying import PutRefusal, PutResult, Sample
from crdtmem.protocol.uploads import Fault, Settled, Upload, Window

REPLICA = b"r" * 16


def record(seq, payload=b"", *, kind=RecordKind.UPDATE, replica_id=REPLICA):
    return build_record(Header(kind, 0, b"d" * 16, replica_id, seq, 0, 0), payload)


def malformed(seq):
    """Return a record of an unknown version that has a number all the same."""
    return b"\x09" + record(seq)[1:]


def stored(acked):
    return PutResult(1, acked, Sample(acked, bytes(32)), acked)


def refused(code, seq, *, acked=0):
    at = Sample(acked, bytes(32)) if acked else None
    return PutResult(1, acked, at, 9, refusal=PutRefusal(code, seq, seq))


@pytest.fixture
def upload():
    limits = RecordLimits(max_update=100, max_snapshot=200)
    return Upload("notes", REPLICA, limits=limits, window=Window(4, 1_000))


def numbers(accepted):
    return [one.header.replica_seq for one in accepted]


def faults(upload):
    """Return code and number of the faults whose turn has come."""
    found = []
    while (fault := upload.next_fault()) is not None:
        found.append((fault.refusal.code, fault.refusal.replica_seq))
    return found


def test_records_are_accepted_with_header_and_id(upload):
    (accepted,) = upload.accept([record(1, b"x")])

    assert accepted.record == record(1, b"x")
    assert accepted.record_id == record_id("notes", record(1, b"x"))
    assert (accepted.header.replica_seq, upload.is_idle) == (1, False)


def test_a_stored_put_is_acknowledged(upload):
    upload.accept([record(1)])

    assert upload.settle(stored(1)) == Settled(stored(1))
    assert upload.is_idle


@pytest.mark.parametrize(
    ("bad", "code", "text"),
    [
        (malformed(2), "record-malformed", "version: version 9"),
        (b"\x01\x01", "record-malformed", "length: record has 2"),
        (b"", "record-malformed", "length: record has 0"),
        (
            record(2, bytes(41)),
            "record-too-large",
            "101 bytes exceeds the limit of 100",
        ),
        (
            record(2, bytes(141), kind=RecordKind.SNAPSHOT),
            "record-too-large",
            "201 bytes exceeds the limit of 200",
        ),
    ],
)
def test_what_stands_before_a_bad_record_is_stored_and_then_it_is_told(
    upload, bad, code, text
):
    accepted = upload.accept([record(1), bad, record(3)])
    before = faults(upload)
    settled = upload.settle(stored(1))
    fault = upload.next_fault()

    assert (numbers(accepted), before) == ([1], [])
    assert settled == Settled(stored(1))
    assert fault is not None
    assert fault.refusal == PutRefusal(code, 2, 2)
    assert text in fault.text
    assert faults(upload) == []


def test_a_bad_record_with_nothing_before_it_is_told_at_once(upload):
    upload.begin(6)

    assert upload.accept([b"?"]) == ()
    assert faults(upload) == [("record-malformed", 7)]


def test_a_number_that_no_record_can_have_stands_for_the_one_that_is_due(upload):
    head = bytearray(malformed(1))
    head[36:44] = b"\xff" * 8

    assert upload.accept([bytes(head)]) == ()
    assert faults(upload) == [("record-malformed", 1)]


def test_what_follows_a_fault_is_discarded_until_its_number_comes_again(upload):
    upload.accept([malformed(1)])
    discarded = [upload.accept([record(n)]) for n in (2, 3)]
    blocked = upload.is_blocked
    accepted = upload.accept([record(1)]) + upload.accept([record(2)])

    assert (discarded, blocked) == ([(), ()], True)
    assert (numbers(accepted), upload.is_blocked) == ([1, 2], False)
    assert faults(upload) == [("record-malformed", 1)]


def test_a_fault_here_is_silent_if_something_before_it_is_refused(upload):
    upload.accept([record(1)])
    upload.accept([record(2), malformed(3)])
    first = upload.settle(refused("base-ahead", 1))
    second = upload.settle(refused("replica-gap", 2))

    assert first == Settled(None, Fault(PutRefusal("base-ahead", 1, 1), ""))
    assert second == Settled()
    assert (faults(upload), upload.is_idle) == ([], True)
    assert upload.accept([record(3)]) == ()
    assert numbers(upload.accept([record(1)])) == [1]


def test_a_refusal_acknowledges_what_was_stored_before_it(upload):
    upload.accept([record(1), record(2)])
    settled = upload.settle(refused("forbidden", 2, acked=1))

    assert settled.acked is not None
    assert (settled.acked.acked, settled.fault) == (
        1,
        Fault(PutRefusal("forbidden", 2, 2), ""),
    )


def test_a_put_that_was_on_its_way_may_begin_at_the_number_that_is_due(upload):
    upload.accept([record(1)])
    upload.accept([record(1, b"anew")])
    upload.accept([record(2)])
    upload.settle(refused("base-ahead", 1))

    assert not upload.is_blocked
    assert upload.settle(stored(1)) == Settled(stored(1))
    assert upload.settle(stored(2)) == Settled(stored(2))


def test_the_window_holds_for_what_waits_and_opens_with_each_answer(upload):
    upload.accept([record(n) for n in (1, 2, 3, 4)])
    with pytest.raises(RemoteProtocolError, match="5 records") as exceeded:
        upload.accept([record(5)])
    upload.settle(stored(4))

    assert exceeded.value.detail == "window-exceeded"
    assert numbers(upload.accept([record(5)])) == [5]


def test_the_window_holds_for_bytes_but_for_one_record_alone(upload):
    limits = RecordLimits(10_000, 10_000)
    upload = Upload("notes", REPLICA, limits=limits, window=Window(4, 1_000))
    large = numbers(upload.accept([record(1, bytes(2_000))]))
    with pytest.raises(RemoteProtocolError, match="2120 bytes"):
        upload.accept([record(2)])
    upload.settle(stored(1))
    with pytest.raises(RemoteProtocolError, match="2 records"):
        upload.accept([record(2), record(3, bytes(1_000))])

    assert large == [1]


def test_what_was_refused_or_discarded_leaves_the_window(upload):
    upload.accept([record(n) for n in (1, 2)])
    upload.accept([record(n) for n in (3, 4)])
    upload.settle(refused("base-ahead", 1))
    upload.accept([record(n) for n in (5, 6, 7)])

    assert numbers(upload.accept([record(n) for n in (1, 2, 3, 4)])) == [1, 2, 3, 4]


def test_a_record_of_another_replica_ends_the_connection(upload):
    with pytest.raises(RemoteProtocolError, match="6f6f") as mismatch:
        upload.accept([record(1, replica_id=b"o" * 16)])

    assert mismatch.value.detail == "replica-mismatch"


def test_after_a_leave_everything_ends_in_silence(upload):
    upload.accept([record(1)])
    upload.accept([record(2), malformed(3)])
    upload.leave()
    settled = [upload.settle(stored(1)), upload.settle(stored(2))]

    assert settled == [Settled(), Settled()]
    assert (faults(upload), upload.is_idle) == ([], True)


def test_a_leave_ends_what_has_ended_already(upload):
    upload.accept([record(1)])
    upload.accept([record(2)])
    upload.settle(refused("base-ahead", 1))
    upload.leave()

    assert upload.settle(refused("replica-gap", 2)) == Settled()
    assert upload.is_idle


def test_a_join_begins_the_stream_anew(upload):
    upload.accept([record(1)])
    upload.accept([malformed(2)])
    upload.leave()
    upload.begin(1)

    assert (upload.is_blocked, upload.expects(5)) == (False, True)
    assert numbers(upload.accept([record(2)])) == [2]
    assert upload.settle(stored(1)) == Settled()
    assert faults(upload) == []
    assert upload.settle(stored(2)) == Settled(stored(2))


@given(st.lists(st.tuples(st.integers(1, 6), st.sampled_from(["good", "bad"]))))
def test_any_order_of_puts_makes_one_error_a_fault_and_ends_idle(puts):
    """The storage here takes what is next in the stream and refuses the rest."""
    limits = RecordLimits(max_update=100, max_snapshot=200)
    upload = Upload("notes", REPLICA, limits=limits, window=Window(100, 10_000))
    top, queue, told = 0, [], []
    for seq, what in puts:
        made = record(seq) if what == "good" else malformed(seq)
        queue += [numbers(upload.accept([made]))]
        told += faults(upload)
        if len(queue) > 2:
            top = settle_oldest(upload, queue, top, told)
    while queue:
        top = settle_oldest(upload, queue, top, told)

    assert upload.is_idle
    assert len(told) <= len(puts)


def settle_oldest(upload, queue, top, told):
    for seq in queue.pop(0):
        if seq == top + 1:
            upload.settle(stored(seq))
            top = seq
        else:
            settled = upload.settle(refused("replica-gap", seq))
            told += [settled.fault] if settled.fault else []
        told += faults(upload)
    return top
