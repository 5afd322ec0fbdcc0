"""crdtmem.sync.engine"""

from dataclasses import replace
from random import Random

import pytest

from crdtmem.errors import LinkNotFoundError
from crdtmem.limits import ACK_WAIT_S
from crdtmem.protocol.closes import Close
from crdtmem.protocol.messages import Ack, Records
from crdtmem.protocol.records import RecordKind
from crdtmem.protocol.relaying import Scope
from crdtmem.store.links import remove_link
from crdtmem.sync.engine import Engine
from relay.storage.memory import MemoryStorage
from tests.sync.sites import ALL, REMOTE


def log_of(relay):
    """Return kind and base of each record in the relay's log."""
    rows = relay.rows(REMOTE)
    return [(RecordKind(row.kind), row.base) for row in rows]


def is_in_step(*sites):
    return (
        all(site.is_settled for site in sites)
        and len({site.text("plan") for site in sites}) == 1
    )


def reconnect(*sites):
    """Connect as often as the engines ask for it."""
    for site in sites:
        while site.engine.ended:
            site.connect()


@pytest.mark.requirement("P6")
def test_two_stores_come_to_hold_the_same(site):
    ann, bob = site("ann"), site("bob")
    ann.append("plan", "one")
    bob.append("todo", "two")

    ann.connect()
    bob.connect()

    assert ann.text("todo") == "two"
    assert bob.text("plan") == "one"
    assert ann.is_settled
    assert bob.is_settled


def test_what_is_written_while_connected_is_sent_when_it_is_woken(pair, relay):
    ann, bob = pair
    ann.append("plan", "ann 2")
    bob.append("plan", "bob 2")

    relay.run()

    assert is_in_step(ann, bob)
    assert sorted(ann.text("plan").split("\n")) == ["ann 1", "ann 2", "bob 1", "bob 2"]


def test_what_was_written_offline_is_sent_after_a_reconnect(pair, relay):
    ann, bob = pair
    relay.cut(ann)
    assert (ann.engine.ended.code, ann.engine.ended.is_permanent) == (
        "connection-lost",
        False,
    )
    ann.append("plan", "ann 2")
    bob.append("plan", "bob 2")

    ann.connect()

    assert is_in_step(ann, bob)


def test_a_first_link_sends_a_state_of_each_doc_and_then_updates(site, relay):
    ann = site("ann", is_linked=False)
    ann.append("plan", "one")
    ann.append("todo", "two")
    ann.link()
    ann.connect()
    ann.append("plan", "three")

    relay.run()

    assert log_of(relay) == [
        (RecordKind.SNAPSHOT, 0),
        (RecordKind.SNAPSHOT, 0),
        (RecordKind.UPDATE, 2),
    ]


def test_lost_acknowledgements_store_nothing_twice(pair, relay):
    ann, bob = pair
    relay.lost = (Ack, Records)
    ann.append("plan", "ann 2")
    relay.run()
    assert ann.unsent == 1
    assert not ann.is_settled
    relay.lost = ()
    for each in pair:
        relay.cut(each)
        each.connect()

    assert is_in_step(ann, bob)
    assert len(log_of(relay)) == 3


def test_an_acknowledgement_waits_for_a_transaction_but_not_long(pair, relay):
    ann, _ = pair
    relay.lost = (Records,)
    ann.append("plan", "ann 2")
    relay.run()
    assert ann.unsent == 1
    assert ann.engine.next_deadline() == relay.now + ACK_WAIT_S

    relay.advance(ACK_WAIT_S)

    assert ann.unsent == 0
    assert ann.engine.is_quiet


@pytest.mark.parametrize(
    ("restore", "alarm"),
    [("restored", "relay-restored"), ("copy", "relay-forked")],
)
def test_what_a_relay_lost_is_sent_again(pair, relay, site, restore, alarm):
    ann, bob = pair
    backup = getattr(relay.storage, restore)()
    ann.append("plan", "ann 2")
    bob.append("plan", "bob 2")
    relay.run()
    text = ann.text("plan")
    relay.start(backup)

    reconnect(ann, bob)

    assert is_in_step(ann, bob)
    assert ann.text("plan") == text
    assert alarm in ann.alarms
    assert site("new").connect().text("plan") == text


def test_a_reader_that_was_ahead_of_a_restored_relay_writes_again(relay, site):
    ann, bob = site("ann"), site("bob")
    ann.append("plan", "ann 1")
    ann.connect()
    bob.connect()
    backup = relay.storage.restored()
    ann.append("plan", "ann 2")
    relay.run()
    relay.start(backup)

    bob.connect()

    assert bob.alarms == ["relay-restored"]
    assert bob.is_settled
    bob.append("plan", "bob 1")
    relay.run()
    assert site("new").connect().text("plan") == "ann 1\nann 2\nbob 1"


def test_another_relay_gets_everything_again(pair, relay, site):
    ann, bob = pair
    text = ann.text("plan")
    relay.start(MemoryStorage(rng=Random(9)))

    reconnect(ann, bob)

    assert is_in_step(ann, bob)
    assert ann.alarms == bob.alarms == ["relay-changed"]
    assert site("new").connect().text("plan") == text


def test_a_store_that_was_put_back_takes_new_ids_and_loses_no_text(pair, relay):
    ann, bob = pair
    relay.cut(ann)
    ann.roll_back(lambda: _write_and_sync(ann, relay))
    ann.append("plan", "after")
    before = ann.stored.replica_id

    ann.connect()

    assert ann.engine.ended.is_restart
    reconnect(ann)
    assert is_in_step(ann, bob)
    lines = ann.text("plan").split("\n")
    assert sorted(lines) == ["after", "ann 1", "bob 1", "forgotten"]
    assert ann.alarms == ["store-rolled-back"]
    assert ann.stored.replica_id != before


def _write_and_sync(ann, relay):
    ann.append("plan", "forgotten")
    ann.make_engine()
    ann.connect()
    relay.cut(ann)


def test_a_fork_that_a_put_finds_is_written_anew(pair, relay):
    ann, bob = pair
    relay.refusals = [{"code": "replica-fork"}]
    ann.append("plan", "ann 2")

    relay.run()

    assert ann.engine.ended.is_restart
    reconnect(ann)
    assert is_in_step(ann, bob)
    assert ann.alarms == ["replica-fork"]
    assert "ann 2" in bob.text("plan")


def test_a_second_live_store_with_the_same_ids_means_new_ids(pair, relay):
    ann, bob = pair
    before = ann.stored.replica_id
    relay.cut(ann, 4409, "replica-duplicate")
    ann.append("plan", "ann 2")

    assert ann.engine.ended.is_restart
    reconnect(ann)
    assert is_in_step(ann, bob)
    assert ann.alarms == ["replica-duplicate"]
    assert ann.stored.replica_id != before


@pytest.mark.requirement("P8")
def test_a_doc_that_the_relay_refuses_holds_up_no_other(pair, relay):
    ann, bob = pair
    ann.append("plan", "ann 2")
    relay.refusals = [{"code": "record-malformed"}]
    relay.run()
    ann.append("todo", "free")

    relay.run()

    assert bob.text("todo") == "free"
    assert "ann 2" not in bob.text("plan")
    assert ann.unsent == 1
    assert not ann.is_settled
    fault = ann.engine.facts()[0].fault
    assert (fault.code, fault.is_permanent) == ("record-malformed", True)


def test_a_doc_that_was_refused_is_tried_again_at_the_next_join(pair, relay):
    ann, bob = pair
    ann.append("plan", "ann 2")
    relay.refusals = [{"code": "record-malformed"}]
    relay.run()
    relay.cut(ann)

    ann.connect()

    assert is_in_step(ann, bob)


def test_a_full_relay_holds_uploads_for_a_while(pair, relay):
    ann, bob = pair
    ann.append("plan", "ann 2")
    relay.refusals = [{"code": "storage-full", "action": 1, "retry_ms": 30_000}]
    relay.run()
    bob.append("plan", "bob 2")
    relay.run()

    assert "bob 2" in ann.text("plan")
    assert "ann 2" not in bob.text("plan")
    assert ann.engine.facts()[0].fault.code == "storage-full"
    assert not ann.engine.is_quiet
    relay.advance(10)
    relay.advance(10)
    assert "ann 2" not in bob.text("plan")
    relay.advance(11)

    assert is_in_step(ann, bob)
    assert ann.engine.facts()[0].fault is None


def test_after_a_gap_it_goes_on_from_what_the_relay_expects(pair, relay):
    ann, bob = pair
    ann.append("plan", "ann 2")
    relay.refusals = [{"code": "replica-gap"}]

    relay.run()

    assert is_in_step(ann, bob)
    assert ann.engine.facts()[0].fault is None


@pytest.mark.parametrize("expected", [1, 99])
def test_a_gap_that_cannot_be_is_settled_by_another_join(pair, relay, expected):
    ann, bob = pair
    ann.append("plan", "ann 2")
    relay.refusals = [{"code": "replica-gap", "expected": expected}]

    relay.run()

    assert is_in_step(ann, bob)
    assert ann.alarms == []


def test_a_record_ahead_of_the_relays_log_means_to_join_again(pair, relay):
    ann, bob = pair
    ann.append("plan", "ann 2")
    relay.refusals = [{"code": "base-ahead", "action": 1}]

    relay.run()

    assert is_in_step(ann, bob)


def test_a_namespace_that_is_not_there_yet_is_asked_for_again(site, relay):
    ann = site("ann")
    relay.scopes = Scope.READ
    ann.connect()
    fact = ann.engine.facts()[0]
    assert (fact.state, fact.fault.code) == ("waiting", "namespace-not-found")
    relay.scopes = ALL
    site("bob").connect()

    relay.advance(20)
    relay.advance(20)
    relay.advance(21)

    assert ann.engine.facts()[0].state == "connected"


def test_a_namespace_that_the_token_is_not_for_is_stopped(site, relay):
    ann = site("ann")
    relay.pattern = "other"

    ann.connect()

    fact = ann.engine.facts()[0]
    assert (fact.state, fact.fault.code) == ("stopped", "forbidden")
    assert fact.fault.is_permanent
    assert not ann.is_settled
    assert ann.engine.is_quiet


def test_a_token_for_reading_sends_nothing(site, relay):
    site("bob").connect()
    ann = site("ann")
    ann.append("plan", "kept to herself")
    relay.scopes = Scope.READ

    ann.connect()

    assert ann.engine.is_quiet
    assert not ann.is_settled
    assert ann.unsent > 0
    assert relay.told == []


def test_a_log_that_does_not_fit_twice_stops_the_link(pair, relay):
    ann, bob = pair
    relay.cut(ann)
    bob.append("plan", "bob 2")
    relay.run()
    relay.change = lambda message: (
        replace(message, chain=bytes(32)) if isinstance(message, Records) else message
    )

    ann.connect()
    first = ann.engine.ended
    ann.connect()

    assert (first.code, first.is_permanent) == ("chain-mismatch", False)
    last = ann.engine.ended
    assert (last.code, last.is_permanent) == ("relay-inconsistent", True)
    assert ann.alarms == ["relay-inconsistent"]
    relay.change = lambda message: message
    ann.make_engine()
    ann.connect()
    assert is_in_step(ann, bob)


def test_a_link_that_is_taken_away_ends_the_connection(pair):
    ann, _ = pair
    remove_link(ann.store, ann.stored)
    ann.engine.wake()

    assert not ann.engine.step(0.0)

    assert (ann.engine.ended.code, ann.engine.ended.is_restart) == ("ids-changed", True)
    assert ann.engine.closing == Close(1000, "done")
    with pytest.raises(LinkNotFoundError):
        ann.engine.connect(0.0)


def test_a_cursor_that_another_process_moved_ends_the_connection(pair, relay):
    ann, bob = pair
    bob.append("plan", "bob 2")
    with ann.store.writing() as transaction:
        transaction.connection.execute("UPDATE link SET cursor_seq = cursor_seq + 1")

    relay.run()

    ended = ann.engine.ended
    assert (ended.code, ended.is_permanent) == ("local-protocol-error", False)
    assert "bob 2" not in ann.text("plan")


def test_two_holders_of_a_lease_lose_nothing(pair, relay):
    ann, bob = pair
    twin = Engine(
        ann.store,
        [ann.stored],
        incarnation=b"another lease...",
        rng=Random(4),
        agent="tests",
    )
    first, ann.engine = ann.engine, twin
    ann.append("plan", "ann 2")

    ann.connect()
    for _ in range(8):
        relay.advance(1)
        if ann.engine.ended:
            ann.connect()

    assert first is not twin
    assert is_in_step(ann, bob)
    assert ann.text("plan").count("ann 2") == 1
