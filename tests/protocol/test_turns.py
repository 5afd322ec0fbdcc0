"""crdtmem.protocol.turns"""

import pytest

from crdtmem.protocol.downloads import Download, SharedFrame
from crdtmem.protocol.messages import Head, Leave, Part, Records, decode_frame
from crdtmem.protocol.records import RecordKind
from crdtmem.protocol.relaying import LogRow, LogSlice, Sample
from crdtmem.protocol.serving import ReadRequest, TransferBudget
from crdtmem.protocol.turns import Turns


def row(seq, size=10):
    return LogRow(
        seq,
        seq.to_bytes(32, "big"),
        bytes(32),
        RecordKind.UPDATE,
        0,
        b"d" * 16,
        b"o" * 16,
        seq,
        bytes(size),
    )


def page(ns_no, *seqs, size=10, head=0):
    return LogSlice(
        ns_no, tuple(row(seq, size) for seq in seqs), max(seqs, default=head)
    )


def shared(ns_no, after, last):
    return SharedFrame(ns_no, after, last, b"shared", frozenset())


@pytest.fixture
def budget():
    return TransferBudget(1_000)


@pytest.fixture
def turns(budget):
    turns = Turns(budget)
    for ns_no in (1, 2, 3):
        turns.add(
            Download(
                ns_no,
                b"m" * 16,
                start=Sample(0, bytes(32)),
                head=0,
                own_seq=0,
                part_bytes=100,
            )
        )
    return turns


def sent(turns):
    """Send the frame; return its namespace."""
    frame, turns.frame = turns.frame, None
    message = decode_frame(frame)[0] if frame else Leave(0)
    assert isinstance(message, Records | Part | Leave)
    return message.ns_no


def test_what_is_up_to_date_asks_for_nothing(turns):
    assert turns.next_read() is None
    assert list(turns.heads()) == [Head(n, 0) for n in (1, 2, 3)]
    assert not turns.has_more


def test_each_namespace_has_its_turn(turns):
    order = []
    for ns_no, head in ((2, 3), (1, 2), (3, 1), (9, 1)):
        turns.moved(ns_no, head)
    while (request := turns.next_read()) is not None:
        assert turns.next_read() is None
        turns.read_done(page(request.ns_no, request.after + 1))
        turns.moved(2, 3)
        order.append(sent(turns))

    assert order == [2, 1, 3, 2, 1, 2]


def test_a_read_begins_behind_the_position(turns):
    turns.moved(1, 5)
    first = turns.next_read()
    turns.read_done(page(1, 1, 2))
    sent(turns)

    assert first == ReadRequest(1, 0)
    assert turns.next_read() == ReadRequest(1, 2)


def test_a_shared_frame_is_taken_when_nothing_else_comes_first(turns):
    taken = turns.offer(shared(1, 0, 2), 2)
    busy = turns.offer(shared(2, 0, 1), 1)
    first = turns.frame
    turns.frame = None

    assert (taken, busy, first) == (True, False, b"shared")
    assert turns.next_read() == ReadRequest(2, 0)
    assert not turns.offer(shared(1, 2, 3), 3)
    assert not turns.offer(shared(9, 0, 1), 1)


def test_a_shared_frame_that_does_not_reach_the_head_leaves_more(turns):
    turns.offer(shared(1, 0, 2), 5)
    turns.frame = None

    assert turns.has_more
    assert turns.next_read() == ReadRequest(1, 2)


def test_a_shared_frame_may_answer_a_read(turns):
    before = turns.may_share(shared(1, 0, 2)), turns.may_use_cached([row(1)])
    turns.moved(1, 2)
    turns.next_read()
    during = turns.may_share(shared(1, 0, 2)), turns.may_use_cached([row(1)])
    is_whole = turns.read_done(shared(1, 0, 2))

    assert (before, during, is_whole) == ((False, False), (True, True), True)
    assert turns.frame == b"shared"
    assert not turns.may_share(shared(1, 0, 2))


def test_what_a_read_has_brought_already_is_not_asked_for_again(turns):
    turns.moved(1, 2)
    turns.next_read()
    turns.moved(1, 3)
    turns.read_done(page(1, 1, 2, 3))
    sent(turns)

    assert turns.has_more
    assert (turns.next_read(), turns.has_more) == (None, False)


def test_a_wrong_head_is_forgotten(turns):
    turns.moved(1, 7)
    turns.next_read()
    turns.read_done(page(1))

    assert turns.next_read() is None
    assert next(turns.heads()) == Head(1, 0)


def test_rows_that_do_not_follow_are_told_of(turns):
    turns.moved(1, 2)
    turns.next_read()

    assert not turns.read_done(page(1, 2))


def test_what_was_read_for_a_namespace_that_is_gone_is_dropped(turns):
    turns.moved(1, 2)
    turns.moved(2, 1)
    turns.next_read()
    turns.remove(1)
    again = turns.read_done(page(1, 1, 2))

    assert (again, turns.frame) == (True, None)
    assert turns.next_read() == ReadRequest(2, 0)
    turns.remove(2)
    turns.clear()
    assert turns.read_done(page(2, 1))


def test_one_record_is_on_its_way_in_parts(turns, budget):
    for ns_no in (1, 2, 3):
        turns.moved(ns_no, 1)
    turns.next_read()
    turns.read_done(page(1, 1, size=250))
    order = [sent(turns)]
    held = budget.held_bytes
    turns.next_read()
    turns.read_done(page(2, 1, size=250))
    waits = turns.frame
    turns.next_read()
    turns.read_done(page(3, 1))
    order.append(sent(turns))
    while turns.next_read() is None and turns.has_more:
        order.append(sent(turns))

    assert (held, waits) == (250, None)
    assert order == [1, 3, 1, 1]
    assert budget.held_bytes == 0


def test_who_waits_for_room_is_asked_again_on_a_retry(turns, budget):
    budget.hold(900)
    turns.moved(1, 1)
    turns.next_read()
    turns.read_done(page(1, 1, size=250))
    turns.moved(1, 2)
    before = turns.next_read()
    budget.hold(-900)
    turns.retry()

    assert before is None
    assert turns.next_read() == ReadRequest(1, 0)


def test_who_waits_or_is_in_parts_may_go(turns, budget):
    for ns_no in (1, 2, 3):
        turns.moved(ns_no, 1)
    turns.next_read()
    turns.read_done(page(1, 1, size=250))
    turns.frame = None
    turns.next_read()
    turns.read_done(page(2, 1, size=250))
    turns.remove(2)
    turns.remove(1)
    turns.remove(3)

    assert (turns.next_read(), budget.held_bytes) == (None, 0)
