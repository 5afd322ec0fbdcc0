"""relay.presence"""

import pytest

from crdtmem.protocol.messages import Heartbeat, Presence, decode_frame, encode_frame
from relay.presence import PresenceBoard


def presence(counter=1, *, ns_no=1, ttl_ms=10_000):
    return Presence(ns_no, b"r" * 16, b"l" * 16, counter, ttl_ms, b"here")


def gone(counter=1, ns_no=1):
    return Presence(ns_no, b"r" * 16, b"l" * 16, counter, 0, b"")


def shown(found):
    return [(one.conn, *decode_frame(one.data)) for one in found]


@pytest.fixture
def board():
    return PresenceBoard()


def test_a_presence_is_handed_on_at_once(board):
    board.put(7, presence(), 100.0)
    (one,) = board.due(100.0)

    assert shown([one]) == [(7, presence())]
    assert one.key == (1, b"r" * 16, b"l" * 16)
    assert list(board.due(100.0)) == []
    assert len(board) == 1


def test_the_next_waits_for_half_a_second_and_the_newest_wins(board):
    board.put(7, presence(1), 100.0)
    list(board.due(100.0))
    for counter in (2, 3):
        board.put(7, presence(counter), 100.1)
    early = list(board.due(100.4))
    deadline = board.next_deadline()

    assert (early, deadline) == ([], 100.5)
    assert shown(board.due(100.5)) == [(7, presence(3))]


def test_a_presence_ends_with_its_time(board):
    board.put(7, presence(), 100.0)
    list(board.due(100.0))

    assert list(board.due(109.9)) == []
    assert shown(board.due(110.0)) == [(7, gone())]
    assert (len(board), board.next_deadline()) == (0, None)


def test_a_presence_that_says_it_is_gone_is(board):
    board.put(7, presence(1), 100.0)
    list(board.due(100.0))
    board.put(7, presence(2, ttl_ms=0), 100.1)

    assert shown(board.due(100.1)) == [(7, gone(2))]
    assert len(board) == 0


def test_namespaces_and_connections_are_apart(board):
    board.put(7, presence(), 100.0)
    board.put(7, presence(ns_no=2), 100.0)
    board.put(8, presence(), 100.0)
    left = board.leave(7, 1)

    assert shown(left) == [(7, gone())]
    assert shown(board.present(1)) == [(8, presence())]
    assert shown(board.present(2)) == [(7, presence(ns_no=2))]
    assert (board.present(3), board.leave(7, 1), board.leave(7, 9)) == ([], [], [])
    assert [one[0] for one in shown(board.due(100.0))] == [7, 8]


# What other processes of the relay have announced.

ELSEWHERE = b"r" * 16 + b"l" * 16


def test_what_another_process_announced_is_handed_on_and_ends_with_its_time(board):
    board.hear(encode_frame([presence()]), 100.0)

    assert shown(board.due(100.0)) == [(ELSEWHERE, presence())]
    assert shown(board.present(1)) == [(ELSEWHERE, presence())]
    assert shown(board.due(110.0)) == [(ELSEWHERE, gone())]
    assert len(board) == 0


def test_another_process_tells_that_somebody_has_gone(board):
    board.hear(encode_frame([presence(1)]), 100.0)
    list(board.due(100.0))
    board.hear(encode_frame([gone(1)]), 100.1)
    board.hear(encode_frame([gone(1)]), 100.2)

    assert shown(board.due(100.2)) == [(ELSEWHERE, gone(1))]
    assert (len(board), list(board.due(200.0))) == (0, [])


def test_what_is_no_presence_is_left_out(board):
    for message in (b"", b"\xff\xff", encode_frame([Heartbeat(0, ())])):
        board.hear(message, 100.0)

    assert (len(board), list(board.due(100.0))) == (0, [])


def test_who_is_here_is_not_elsewhere(board):
    board.hear(encode_frame([presence(1)]), 100.0)
    list(board.due(100.0))
    board.put(7, presence(2), 101.0)
    list(board.due(101.0))
    board.hear(encode_frame([gone(1)]), 101.1)

    assert list(board.due(101.5)) == []
    assert shown(board.present(1)) == [(7, presence(2))]
    assert shown(board.due(120.0)) == [(7, gone(2))]


def test_what_is_heard_is_bounded_and_the_known_go_on():
    board = PresenceBoard(heard_max=3)
    for number in range(4):
        other = Presence(1, number.to_bytes(16, "big"), b"l" * 16, 1, 10_000, b"here")
        board.hear(encode_frame([other]), 100.0)
    kept = len(board)
    again = Presence(1, bytes(16), b"l" * 16, 2, 10_000, b"there")
    board.hear(encode_frame([again]), 100.1)
    board.put(7, presence(), 100.1)

    assert (kept, len(board)) == (3, 4)
    assert again in [decode_frame(one.data)[0] for one in board.present(1)]
