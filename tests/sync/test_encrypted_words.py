"""Encrypted namespaces: new keys, receipts and presence."""

import pytest

from crdtmem.errors import (
    LinkNotFoundError,
    LocalProtocolError,
)
from crdtmem.limits import ACK_WAIT_S, RECEIPT_PAUSE_MS, SNAPSHOT_CHECK_S
from crdtmem.protocol.envelopes import Receipt, encode_envelope
from crdtmem.protocol.records import (
    NO_DOC_TAG,
    Header,
    RecordKind,
    build_record,
    parse_header,
)
from crdtmem.sealing import Keyring, Sealer
from crdtmem.store import receipts
from crdtmem.store.compaction import due_docs, seal_snapshot
from crdtmem.store.receipts import chain_at
from tests.sync.sealed import (
    ONE,
    TWO,
    codes_of,
    delivered,
    key_ids,
    reconnect,
    report_of,
    with_bit,
)
from tests.sync.sites import PROJECT, REMOTE

# Another key.


def advance(relay):
    """Let time pass until all snapshots are there that are due."""
    relay.advance(SNAPSHOT_CHECK_S)
    for _ in range(5):
        relay.advance(ACK_WAIT_S)


def words_of(relay, kind):
    return [row for row in relay.rows(REMOTE) if row.kind == kind]


@pytest.mark.requirement("sealed-4")
def test_a_new_key_is_told_under_the_old_one_and_everything_sealed_under_it(
    sealed_pair, relay
):
    ann, bob = sealed_pair
    ann.append("other", "x")
    relay.run()
    ann.take_keys(TWO)
    reconnect(ann)
    advance(relay)
    ann.append("plan", "ann 2")
    relay.run()

    (notice,) = words_of(relay, RecordKind.KEY_NOTICE)
    assert parse_header(notice.record).key_id == 1
    later = relay.rows(REMOTE)[notice.seq :]
    assert {parse_header(row.record).key_id for row in later} == {2}
    snapshots = words_of(relay, RecordKind.SNAPSHOT)
    assert {row.record[4:20] for row in snapshots if row.seq > notice.seq} == {
        ann.stored.sealer.doc_tag(1, label) for label in ("plan", "other")
    }
    # Bob has heard of it and goes on under the key that he has.
    assert bob.stored.key_id == 2
    bob.append("other", "of bob")
    relay.run()
    assert key_ids(relay)[-1] == 1
    assert ann.text("other") == "x\nof bob"

    bob.take_keys(TWO)
    reconnect(bob)
    bob.append("other", "more")
    relay.run()

    assert key_ids(relay)[-1] == 2
    assert len(words_of(relay, RecordKind.KEY_NOTICE)) == 1
    assert ann.text("plan") == bob.text("plan")
    assert report_of(bob).locked == 0
    advance(relay)
    assert due(ann) == due(bob) == []


def due(site):
    return due_docs(site.store, site.stored)


@pytest.mark.requirement("sealed-4")
def test_an_offline_writer_loses_nothing_to_a_new_key(sealed_pair, relay):
    ann, bob = sealed_pair
    relay.cut(bob)
    for number in range(3):
        bob.append("plan", f"offline {number}")
    ann.take_keys(TWO)
    reconnect(ann)
    advance(relay)
    ann.append("plan", "ann 2")
    relay.run()
    run_sweep(relay)
    bob.connect()
    relay.run()
    bob.take_keys(TWO)
    reconnect(bob)

    assert ann.text("plan") == bob.text("plan")
    lines = ["ann 1", "ann 2", "bob 1", *(f"offline {n}" for n in range(3))]
    assert sorted(ann.text("plan").split("\n")) == lines
    assert ann.alarms == bob.alarms == []


def run_sweep(relay):
    relay.storage.age(14 * 86_400_000)
    work = relay.storage.sweep(1, 1_000)
    with pytest.raises(StopIteration):
        work.send(None)


@pytest.mark.requirement("sealed-4")
def test_a_newcomer_needs_the_old_key_for_names_alone(sealed_pair, relay, site):
    ann, _ = sealed_pair
    ann.take_keys(TWO)
    reconnect(ann)
    advance(relay)
    run_sweep(relay)
    cy = site("cy", keys=TWO)
    cy.connect()

    assert cy.text("plan") == ann.text("plan")
    assert cy.stored.key_id == 2
    assert key_ids_kept(relay) == {1, 2}


def key_ids_kept(relay):
    """Return the keys of what the relay keeps, notices included."""
    return {parse_header(r.record).key_id for r in relay.rows(REMOTE) if r.record}


def test_a_snapshot_under_the_old_key_does_not_do_for_the_new_one(sealed_pair, relay):
    ann, _ = sealed_pair
    relay.refusals = [("snapshot-stale", 0)]
    ann.take_keys(TWO)
    relay.refusals = []
    reconnect(ann)
    before = due(ann)
    advance(relay)

    assert before != []
    assert due(ann) == []


def test_a_snapshot_that_no_relay_takes_is_not_made_for_the_sake_of_a_key(
    sealed_pair,
):
    ann, _ = sealed_pair
    ann.take_keys(TWO)
    reconnect(ann)
    (doc,) = due(ann)

    assert not seal_snapshot(ann.store, ann.stored, doc, max_snapshot_bytes=99)

    assert due(ann) == []


# A word about what was read.


def clock(site, ms):
    site.store.clock_ms = lambda: ms


def write_many(site, records):
    """Write so much that the log grows by as many records."""
    for number in range(records):
        site.append("plan", f"{site.name} {number + 10}")
        site.relay.run()


@pytest.fixture
def short_receipts(monkeypatch):
    monkeypatch.setattr(receipts, "RECEIPT_RECORDS", 3)


@pytest.mark.requirement("sealed-5")
def test_a_store_that_writes_tells_at_times_how_far_it_has_read(
    sealed_pair, relay, short_receipts
):
    ann, bob = sealed_pair
    clock(bob, 0)
    clock(ann, RECEIPT_PAUSE_MS)
    write_many(ann, 8)

    (row,) = words_of(relay, RecordKind.RECEIPT)
    header = parse_header(row.record)
    assert (header.doc_tag, header.alg) == (NO_DOC_TAG, 1)
    assert chain_at_of(bob, header.base) is not None
    assert ann.alarms == bob.alarms == []
    clock(ann, 2 * RECEIPT_PAUSE_MS)
    write_many(ann, 1)
    assert len(words_of(relay, RecordKind.RECEIPT)) == 2
    assert bob.stored.skipped == 0
    assert ann.is_settled


def chain_at_of(site, seq):
    with site.store.reading() as connection:
        return chain_at(connection, site.stored, seq)


def sealed_receipt(site, seq, chain):
    """Return a receipt as another machine would seal it."""
    header = Header(
        RecordKind.RECEIPT, 1, NO_DOC_TAG, b"z" * 16, 1, site.stored.cursor.seq, 1
    )
    receipt = encode_envelope(Receipt(seq, chain, (), ()))
    return Sealer(REMOTE, Keyring(ONE)).seal(header, receipt, bytes(32))


@pytest.mark.requirement("sealed-5")
@pytest.mark.parametrize("seq", [0, 1, 2])
def test_a_relay_that_shows_two_logs_is_found_out_by_a_receipt(victim, seq):
    good = chain_at_of(victim, seq)
    delivered(victim, sealed_receipt(victim, seq, good))
    assert victim.alarms == []

    delivered(victim, sealed_receipt(victim, seq, b"?" * 32))

    assert victim.alarms == ["relay-forked"]


@pytest.mark.requirement("sealed-5")
def test_a_relay_that_went_back_is_found_out_by_a_receipt(victim):
    seq = victim.stored.cursor.seq + 1

    delivered(victim, sealed_receipt(victim, seq, b"?" * 32))

    assert victim.alarms == ["relay-forked"]
    (alarm,) = victim.stored.alarms
    assert f"had read {seq} records, and there are {seq}" in alarm.detail


def test_the_chain_at_a_place_is_that_of_the_log_from_whichever_sample(victim):
    known = [chain_at_of(victim, seq) for seq in range(4)]
    for seq, chain in enumerate(known[:3]):
        with victim.store.writing() as transaction:
            transaction.connection.execute(
                "INSERT INTO chain_sample VALUES (1, :seq, :chain)",
                {"seq": seq, "chain": chain},
            )
        assert [chain_at_of(victim, seq) for seq in range(4)] == known

    assert None not in known[:3]
    assert known[2] == victim.stored.cursor.chain
    assert known[3] is None


@pytest.mark.requirement("sealed-5")
def test_a_receipt_about_what_is_not_known_here_says_nothing(victim):
    with victim.store.writing() as transaction:
        transaction.connection.execute("UPDATE sync_seen SET record_id = x''")

    delivered(victim, sealed_receipt(victim, 1, b"?" * 32))

    assert victim.alarms == []


@pytest.mark.requirement("sealed-2", "sealed-5")
def test_a_word_that_does_not_open_is_put_aside_and_heeded_by_nobody(victim):
    word = sealed_receipt(victim, 1, b"?" * 32)

    delivered(victim, with_bit(word, -1))

    assert codes_of(victim) == {"tampered"}
    assert victim.alarms == []
    assert victim.stored.skipped == 0


def test_words_in_a_plain_namespace_are_counted_and_left_alone(pair):
    _, bob = pair
    header = Header(RecordKind.RECEIPT, 0, NO_DOC_TAG, b"z" * 16, 1, 0, 0)
    receipt = encode_envelope(Receipt(1, b"?" * 32, (), ()))

    delivered(bob, build_record(header, receipt))

    assert bob.alarms == []
    assert bob.stored.skipped == 1


# Of the moment.


def test_a_presence_is_read_by_those_with_a_key_alone(sealed_pair, relay, site):
    ann, bob = sealed_pair
    other = site("eve", keys={1: b"e" * 32})
    for one in (bob, other):
        one.engine.hears_presence = True
    other.connect()
    reconnect(bob)
    seen = []

    def look(message):
        seen.append(message)
        return message

    relay.change = look
    replica = ann.stored.replica_id

    ann.engine.set_presence(PROJECT, b"in plan", relay.now)
    relay.run()

    assert bob.engine.presences(PROJECT) == {replica: b"in plan"}
    assert other.engine.presences(PROJECT) == {}
    assert "in plan" not in repr(seen)
    relay.advance(15)
    ann.engine.set_presence(PROJECT, b"", relay.now)
    relay.advance(1)
    assert bob.engine.presences(PROJECT) == {}


def test_a_presence_in_a_plain_namespace_is_what_it_is(pair, relay):
    ann, bob = pair
    bob.engine.hears_presence = True
    reconnect(bob)

    ann.engine.set_presence(PROJECT, b"x", relay.now)
    relay.run()

    assert bob.engine.presences(PROJECT) == {ann.stored.replica_id: b"x"}


def test_a_presence_that_cannot_be_sent_is_refused(sealed_pair, relay):
    ann, _ = sealed_pair
    with pytest.raises(LocalProtocolError, match="993 bytes exceeds the limit of 992"):
        ann.engine.set_presence(PROJECT, b"x" * 993, relay.now)
    with pytest.raises(LinkNotFoundError):
        ann.engine.set_presence("elsewhere", b"x", relay.now)
