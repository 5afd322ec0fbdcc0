"""relay.commits"""

from crdtmem.protocol.records import parse_header
from crdtmem.protocol.relaying import Put, PutRecord
from relay.commits import CommitQueue
from tests.relay.peers import grant_of, record_of

REPLICA = b"r" * 16


def put(*seqs, size=7):
    records = [record_of(REPLICA, seq, bytes(size)) for seq in seqs]
    made = [PutRecord(parse_header(one), bytes(32), one) for one in records]
    return Put(1, REPLICA, grant_of(), tuple(made))


def taken(queue):
    return [
        (conn, [record.header.replica_seq for record in one.records])
        for conn, one in queue.take()
    ]


def test_an_empty_queue_gives_no_group():
    assert CommitQueue().take() == []


def test_each_connection_has_its_turn_and_keeps_its_order():
    queue = CommitQueue()
    for conn, seq in ((1, 1), (1, 2), (1, 3), (2, 1), (3, 1), (3, 2)):
        queue.add(conn, put(seq))

    assert queue.records == 6
    assert taken(queue) == [
        (1, [1]),
        (2, [1]),
        (3, [1]),
        (1, [2]),
        (3, [2]),
        (1, [3]),
    ]
    assert (queue.records, taken(queue)) == (0, [])


def test_a_group_ends_before_the_put_that_is_too_much():
    queue = CommitQueue(records_max=3)
    for conn in (1, 2, 3):
        queue.add(conn, put(1, 2))
    groups = [taken(queue), taken(queue), taken(queue)]

    assert groups == [[(1, [1, 2])], [(2, [1, 2])], [(3, [1, 2])]]


def test_a_put_that_is_too_much_for_any_group_goes_alone():
    queue = CommitQueue(bytes_max=100)
    queue.add(1, put(1, size=500))
    queue.add(1, put(2))

    assert [taken(queue), taken(queue)] == [[(1, [1])], [(1, [2])]]


def test_what_a_connection_had_waiting_goes_with_it():
    queue = CommitQueue()
    queue.add(1, put(1, 2))
    queue.add(2, put(1))
    queue.drop(1)
    queue.drop(3)

    assert (queue.records, taken(queue)) == (1, [(2, [1])])
