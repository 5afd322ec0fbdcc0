"""crdtmem.sync.engine: snapshots, windows, several namespaces."""

from random import Random

import pytest

from crdtmem.limits import SNAPSHOT_CHECK_S
from crdtmem.protocol.client_events import PresenceChanged
from crdtmem.protocol.messages import Ack, Presence, Records
from crdtmem.protocol.records import RecordKind
from crdtmem.protocol.relaying import Scope
from crdtmem.protocol.serving import RelayLimits
from crdtmem.store.links import add_link, find_link
from crdtmem.sync.engine import Engine
from tests.sync.sites import REMOTE, URL, Relay


def log_of(relay):
    """Return kind and base of each record in the relay's log."""
    rows = relay.rows(REMOTE)
    return [(RecordKind(row.kind), row.base) for row in rows]


def is_in_step(*sites):
    return (
        all(site.is_settled for site in sites)
        and len({site.text("plan") for site in sites}) == 1
    )


def test_a_store_is_due_for_a_snapshot_when_its_record_made_it_so(pair, relay):
    ann, bob = pair
    _write_much(ann)
    relay.run()

    relay.advance(SNAPSHOT_CHECK_S)

    assert log_of(relay)[-1] == (RecordKind.SNAPSHOT, len(log_of(relay)) - 1)
    assert is_in_step(ann, bob)
    records = len(log_of(relay))
    for _ in range(13):
        relay.advance(10)
    assert len(log_of(relay)) == records


def test_a_snapshot_that_another_store_has_just_made_is_not_made_again(pair, relay):
    ann, bob = pair
    _write_much(ann)
    relay.run()
    relay.held.append(ann)
    relay.advance(SNAPSHOT_CHECK_S)
    (planned_at,) = bob.engine._namespaces[REMOTE].due.values()
    while relay.now < planned_at - 1:
        relay.advance(min(10, planned_at - 1 - relay.now))
    relay.held.clear()
    relay.run()
    records = len(log_of(relay))
    assert log_of(relay)[-1][0] is RecordKind.SNAPSHOT

    relay.advance(1)

    assert bob.engine._namespaces[REMOTE].due == {}
    assert len(log_of(relay)) == records


def test_another_store_makes_the_snapshot_if_the_writer_does_not(pair, relay):
    ann, bob = pair
    _write_much(ann)
    relay.run()
    relay.cut(ann)
    before = len(log_of(relay))

    relay.advance(SNAPSHOT_CHECK_S)
    assert len(log_of(relay)) == before
    for _ in range(13):
        relay.advance(10)

    assert log_of(relay)[before:] == [(RecordKind.SNAPSHOT, before)]
    ann.connect()
    assert is_in_step(ann, bob)


def test_a_snapshot_waits_while_something_is_on_its_way(pair, relay):
    ann, bob = pair
    _write_much(ann)
    relay.run()
    relay.lost = (Ack, Records)
    ann.append("plan", "last")
    relay.run()
    before = len(log_of(relay))
    relay.advance(SNAPSHOT_CHECK_S)
    assert len(log_of(relay)) == before
    relay.lost = ()
    for each in pair:
        relay.cut(each)
        each.connect()

    for _ in range(14):
        relay.advance(10)

    assert log_of(relay)[-1][1] > 0
    assert is_in_step(ann, bob)


def test_a_token_without_compact_makes_no_snapshot(site, relay):
    relay.scopes = Scope.READ | Scope.WRITE
    ann = site("ann").connect()
    _write_much(ann)
    relay.run()

    for _ in range(14):
        relay.advance(10)

    assert not any(base for kind, base in log_of(relay) if kind == RecordKind.SNAPSHOT)


def _write_much(site):
    """Write more to a doc than its snapshot would take."""
    site.append("plan", "x" * 40_000)
    site.append("plan", "y" * 40_000)


def test_a_store_that_is_done_says_bye_when_nothing_is_in_flight(pair, relay):
    ann, bob = pair
    ann.append("plan", "ann 2")
    ann.engine.wake()
    while ann.engine.step(relay.now):
        pass
    ann.engine.finish(relay.now)
    assert ann.engine.closing is None

    relay.run()

    assert ann.engine.ended.code == "done"
    assert "ann 2" in bob.text("plan")


def test_several_namespaces_share_a_connection(site, relay):
    ann, bob = site("ann"), site("bob")
    for each in (ann, bob):
        add_link(
            each.store,
            namespace="global",
            remote="everybody",
            url=URL,
            token_file="",
            options={},
        )
        links = [each.stored, find_link(each.store, "global")]
        each.engine = Engine(
            each.store, links, incarnation=bytes(16), rng=Random(1), agent="tests"
        )
    ann.memory.create("tone", "kind", scope="global")
    ann.append("plan", "one")
    ann.connect()
    bob.connect()

    assert bob.memory.slot("tone", "global").read().content == "kind"
    assert bob.text("plan") == "one"
    assert [fact.is_quiet for fact in bob.engine.facts()] == [True, True]


def test_small_frames_are_applied_together(pair, relay):
    ann, bob = pair
    rev = bob.memory.slot("plan", "project").read().rev
    relay.held.append(bob)
    for number in range(9):
        ann.append("plan", f"ann {number}")
        relay.run()
    relay.held.clear()

    bob.engine.step(relay.now)

    assert "ann 8" in bob.text("plan")
    assert bob.memory.slot("plan", "project").read().rev == rev + 1
    assert bob.engine.backlog == 0


def test_a_large_store_goes_up_window_by_window(site):
    relay = Relay(limits=RelayLimits(window_records=4))
    ann, bob = site("ann", on=relay), site("bob", on=relay)
    for number in range(30):
        ann.append(f"slot_{number}", "x")

    ann.connect()
    bob.connect()

    assert ann.is_settled
    assert len(bob.memory.slots("project", templates=False)) == 30


def test_a_presence_that_nobody_asked_for_changes_nothing(pair):
    ann, _ = pair
    sender = bytes(16)
    presence = Presence(1, sender, sender, 1, 45_000, b"{}")
    ann.engine._session._events.append(PresenceChanged(REMOTE, presence))

    assert ann.engine.step(0.0)

    assert ann.is_settled
    assert not ann.engine.is_settled("elsewhere")


def test_an_engine_that_was_never_connected_has_nothing_to_say(site):
    engine = site("ann").engine

    assert engine.facts() == []
    assert engine.ended.code == "new"
    engine.connection_lost(1006, 0.0)
    with pytest.raises(RuntimeError, match="not connected"):
        engine.data_to_send()
