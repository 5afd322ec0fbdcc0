"""crdtmem.sync.namespace: what is done next"""

import pytest

from crdtmem.limits import ACK_WAIT_S, APPLY_BATCH_RECORDS, SNAPSHOT_CHECK_S
from crdtmem.protocol import messages
from crdtmem.protocol.client_events import Acked, Joined, PutRefused, RecordsReceived
from crdtmem.protocol.messages import Item
from crdtmem.protocol.relaying import Sample, Scope
from crdtmem.store.links import Link
from crdtmem.sync.namespace import Fault, Namespace, Work

NOW = 100.0
LINK = Link(
    link=1,
    namespace="demo",
    remote="team",
    url="wss://relay",
    token_file="",
    options={},
    relay_id=b"",
    epoch=b"",
    cursor=Sample(0, b""),
    replica_id=b"r" * 16,
    sealed_seq=0,
    sealed_lsn=0,
    acked_seq=0,
    acked_id=b"",
    rebase_lsn=0,
    skipped=0,
    alarms=(),
)


def joined(head=0, scopes=Scope.READ | Scope.WRITE, *, is_rewound=False):
    answer = messages.Joined("team", 1, scopes, head, 0, 0, bytes(32), 0, bytes(32))
    return Joined("team", answer, is_rewound=is_rewound)


def records(first, count):
    return RecordsReceived("team", first, (Item(1),) * count, bytes(32))


def refused(code="busy", retry_ms=0, number=1):
    return PutRefused("team", number, number, code, retry_ms, "no")


def acked(number=1):
    return Acked("team", number, number, bytes(32))


@pytest.fixture
def namespace():
    made = Namespace(LINK)
    made.join(joined(), NOW)
    return made


def rest(namespace):
    """Leave it with nothing to do."""
    namespace.has_offer = namespace.is_dirty = False
    return namespace


def work(namespace, now=NOW, *, is_finishing=False):
    return namespace.next_work(now, is_finishing=is_finishing)


def test_nothing_is_done_before_it_is_joined():
    namespace = Namespace(LINK)
    namespace.is_dirty = True

    assert work(namespace) is None
    assert namespace.next_deadline() is None


def test_what_is_sealed_goes_out_before_more_is_sealed(namespace):
    assert work(namespace) is Work.OFFER
    namespace.has_offer = False
    assert work(namespace) is Work.SEAL
    namespace.is_dirty = False
    assert work(namespace) is None


def test_what_has_come_is_applied_before_anything_else(namespace):
    namespace.receive_ack(acked(), NOW)
    namespace.queue.append(records(1, 1))

    assert work(namespace, NOW + 9) is Work.APPLY


def test_an_acknowledgement_waits_a_moment_unless_it_is_the_end(namespace):
    namespace.receive_ack(acked(1), NOW)
    rest(namespace)
    namespace.receive_ack(acked(2), NOW + 0.1)
    rest(namespace)

    assert work(namespace, NOW + 0.1) is None
    assert work(namespace, NOW + 0.1, is_finishing=True) is Work.ACKNOWLEDGE
    assert namespace.next_deadline() == NOW + ACK_WAIT_S
    assert work(namespace, NOW + ACK_WAIT_S) is Work.ACKNOWLEDGE
    assert [ack.replica_seq for ack in namespace.acks] == [2]


def test_nothing_is_sealed_or_put_while_a_rebase_is_due(namespace):
    namespace.join(joined(head=5), NOW)
    namespace.is_rebase_due = True
    assert work(namespace) is None

    namespace.cursor = 5

    assert work(namespace) is Work.FINISH_REBASE
    assert namespace.is_flushed


def test_after_a_rewind_it_is_sealed_before_anything_is_put(namespace):
    namespace.join(joined(is_rewound=True), NOW)

    assert work(namespace) is Work.SEAL


def test_a_full_window_waits_for_an_acknowledgement(namespace):
    namespace.is_window_full = True
    assert work(namespace) is None
    assert not namespace.is_flushed

    namespace.receive_ack(acked(), NOW)

    assert work(namespace) is Work.OFFER


def test_a_token_for_reading_seals_nothing(namespace):
    namespace.join(joined(scopes=Scope.READ), NOW)

    assert work(namespace) is None
    assert namespace.is_flushed


def test_a_refusal_with_a_wait_is_over_when_its_time_is(namespace):
    namespace.refuse_put(refused(retry_ms=2_000, number=7), NOW)
    namespace.fault = Fault("busy", "no", is_permanent=False)

    assert namespace.sent == 6
    assert namespace.next_deadline() == NOW + 2
    namespace.tick(NOW + 1)
    assert work(namespace) is None
    assert namespace.is_flushed
    namespace.tick(NOW + 2)
    assert work(namespace) is Work.OFFER
    assert namespace.fault.code == "busy"
    namespace.receive_ack(acked(), NOW)
    assert namespace.fault is None


def test_a_permanent_fault_stays_until_the_next_join(namespace):
    namespace.fault = Fault("record-malformed", "no", is_permanent=True)
    namespace.refuse_put(refused("record-malformed"), NOW)
    namespace.receive_ack(acked(), NOW)

    assert namespace.fault.code == "record-malformed"
    namespace.join(joined(), NOW)
    assert namespace.fault is None


def test_small_messages_make_one_batch_and_a_large_one_stays_whole(namespace):
    namespace.queue.extend([records(1, 200), records(201, 50), records(251, 10)])
    namespace.queue.append(records(261, 2 * APPLY_BATCH_RECORDS))

    sizes = []
    while namespace.queue:
        sizes.append(sum(len(m.items) for m in namespace.take_batch()))

    assert sizes == [250, 10, 512]


def test_it_is_looked_for_due_docs_a_while_after_the_first_change(namespace):
    namespace.join(joined(scopes=Scope.WRITE | Scope.COMPACT), NOW)
    rest(namespace).note_change(NOW + 5, is_own=True)

    assert namespace.wrote_last
    assert namespace.next_deadline() == NOW + SNAPSHOT_CHECK_S
    assert work(namespace, NOW + SNAPSHOT_CHECK_S) is Work.FIND_DUE
    assert work(namespace, NOW + SNAPSHOT_CHECK_S, is_finishing=True) is None
    namespace.take_due([3, 4], NOW + 50)
    namespace.take_due([4, 5], NOW + 60)
    assert namespace.due == {4: NOW + 50, 5: NOW + 60}
    assert work(namespace, NOW + 49) is None
    assert work(namespace, NOW + 50) is Work.SNAPSHOT


def test_no_snapshot_is_made_before_all_is_here(namespace):
    namespace.join(joined(head=5, scopes=Scope.COMPACT), NOW)

    assert work(namespace, NOW + SNAPSHOT_CHECK_S) is None


def test_a_join_forgets_what_an_earlier_one_left(namespace):
    namespace.queue.append(records(1, 1))
    namespace.receive_ack(acked(), NOW)
    namespace.due[3] = NOW

    namespace.join(joined(), NOW)

    assert (len(namespace.queue), len(namespace.acks), namespace.due) == (0, 0, {})
