"""Encrypted namespaces: what a relay may do to records, and what comes of it."""

from dataclasses import replace
from random import Random

import pytest

from crdtmem.errors import KeyMissingError
from crdtmem.protocol.records import (
    Header,
    build_record,
    doc_tag,
    parse_header,
)
from crdtmem.sealing import Keyring, Sealer
from crdtmem.store.about import about_store
from crdtmem.store.records import seal_envelope
from crdtmem.store.rejoin import start_rebase
from relay.storage.memory import MemoryStorage
from tests.killpoints import replace_function
from tests.sync.sealed import (
    ONE,
    TWO,
    codes_of,
    content_of,
    delivered,
    key_ids,
    reconnect,
    report_of,
    with_bit,
)
from tests.sync.sites import PROJECT, REMOTE, Relay

CANARY = "canary tangerine"


@pytest.mark.requirement("sealed-3")
def test_two_machines_with_a_key_meet_through_a_relay_that_reads_nothing(
    sealed_pair, relay
):
    ann, bob = sealed_pair
    ann.append("plan", CANARY)
    ann.append("secret_name", CANARY)
    relay.run()

    assert ann.text("plan") == bob.text("plan")
    assert CANARY in bob.text("plan")
    assert ann.is_settled
    assert bob.is_settled
    assert ann.alarms == bob.alarms == []
    kept = b"".join(row.record for row in relay.rows(REMOTE))
    for word in (b"canary", b"tangerine", b"plan", b"secret_name", b"ann"):
        assert word not in kept
    tags = {parse_header(row.record).doc_tag for row in relay.rows(REMOTE)}
    assert tags.isdisjoint({doc_tag(1, "plan"), doc_tag(1, "secret_name")})
    assert all(id_ == 1 for id_ in key_ids(relay))


def test_a_record_is_sealed_once_and_sent_again_byte_for_byte(sealed_pair, relay):
    ann, bob = sealed_pair
    ann.append("plan", "ann 2")
    before = len(relay.rows(REMOTE))
    relay.cut(ann)
    ann.append("plan", "ann 3")
    ann.engine.connect(relay.now)
    ann.engine.connection_lost(1006, relay.now)
    ann.connect()
    relay.run()
    puts = [row.record for row in relay.rows(REMOTE)[before:]]
    relay.start()
    ann.connect()
    bob.connect()

    assert [row.record for row in relay.rows(REMOTE)[before:]] == puts
    assert ann.text("plan") == bob.text("plan")


@pytest.mark.requirement("sealed-2")
def test_a_record_under_an_unknown_key_waits_for_it_and_stops_no_other_slot(site):
    ann, bob = site("ann", keys=ONE), site("bob", keys=ONE)
    relay = ann.relay
    ann.append("plan", "one")
    ann.append("other", "one")
    ann.connect()
    bob.connect()
    ann.take_keys(TWO)
    reconnect(ann)
    ann.append("plan", "two")
    relay.run()
    bob.append("plan", "of bob")
    bob.append("other", "two")
    relay.run()

    report = report_of(bob)
    assert (report.locked, report.quarantined, report.held) == (1, 0, ("plan",))
    assert bob.stored.cursor == ann.stored.cursor
    assert bob.text("plan") == "one\nof bob"
    assert ann.text("other") == bob.text("other") == "one\ntwo"

    bob.take_keys(TWO)
    reconnect(bob)

    assert report_of(bob).locked == 0
    assert bob.text("plan") == ann.text("plan")
    assert sorted(bob.text("plan").split("\n")) == ["of bob", "one", "two"]
    assert bob.is_settled


@pytest.mark.requirement("sealed-2")
def test_a_doc_that_nobody_told_of_waits_for_its_key_as_well(site):
    ann, bob = site("ann", keys=TWO), site("bob", keys=ONE)
    ann.append("plan", "one")
    ann.connect()
    bob.connect()

    assert report_of(bob).locked == 1
    assert bob.memory.slots("project", templates=False) == []

    bob.take_keys(TWO)
    reconnect(bob)

    assert bob.text("plan") == "one"
    assert report_of(bob).locked == 0


@pytest.mark.requirement("sealed-2")
def test_another_secret_under_a_known_id_opens_nothing(site):
    ann, bob = site("ann", keys=ONE), site("bob", keys={1: b"x" * 32})
    ann.append("plan", "one")
    ann.connect()
    bob.connect()
    bob.append("plan", "of bob")
    ann.relay.run()

    assert codes_of(ann) == codes_of(bob) == {"wrong-key"}
    assert bob.text("plan") == "of bob"
    assert report_of(bob).quarantined == 1


@pytest.mark.requirement("sealed-2")
def test_what_was_refused_for_a_wrong_secret_is_taken_in_with_the_right_one(site):
    ann = site("ann", keys=TWO)
    bob = site("bob", keys={**ONE, 2: b"x" * 32})
    ann.append("plan", "one")
    ann.connect()
    bob.connect()
    assert codes_of(bob) == {"wrong-key"}

    bob.take_keys(TWO)
    reconnect(bob)

    assert codes_of(bob) == set()
    assert bob.text("plan") == "one"


@pytest.mark.requirement("sealed-2")
def test_a_plain_record_in_an_encrypted_namespace_is_not_applied(site):
    plain, bob = site("ann"), site("bob", keys=ONE)
    plain.append("plan", "anybody")
    plain.connect()
    bob.connect()
    bob.append("other", "bob")
    plain.relay.run()

    assert codes_of(bob) == {"plain-in-encrypted"}
    assert [slot.label for slot in bob.memory.slots("project", templates=False)] == [
        "other"
    ]
    # And whoever has no key at all keeps what is sealed for later.
    assert codes_of(plain) == {"sealed"}
    assert report_of(plain).locked == 1


def held_of(site):
    with site.store.reading() as connection:
        rows = connection.execute("SELECT record, code FROM held ORDER BY seq")
        return dict(rows)


def with_bytes(record, place, new):
    return record[:place] + new + record[place + len(new) :]


CHANGES = {
    "kind": (lambda r: with_bytes(r, 1, b"\2"), "tampered"),
    "doc": (lambda r: with_bit(r, 4), "wrong-key"),
    "replica": (lambda r: with_bit(r, 20), "tampered"),
    "number": (lambda r: with_bit(r, 43), "tampered"),
    "base": (lambda r: with_bit(r, 51), "tampered"),
    "key": (lambda r: with_bit(r, 55, 1), "sealed"),
    "salt": (lambda r: with_bit(r, 60), "wrong-key"),
    "commit": (lambda r: with_bit(r, 107), "wrong-key"),
    "payload": (lambda r: with_bit(r, 108, 7), "tampered"),
    "tag": (lambda r: with_bit(r, -1), "tampered"),
    "length": (lambda r: with_bit(r, 59), "record-malformed"),
    "cut": (lambda r: r[:-1], "record-malformed"),
    "alg": (lambda r: with_bit(r, 2), "record-malformed"),
    "other namespace": (lambda r: resealed(r, "other", ONE), "wrong-key"),
    "other secret": (lambda r: resealed(r, REMOTE, {1: b"x" * 32}), "wrong-key"),
    "no envelope": (lambda r: resealed(r, REMOTE, ONE, b"\2"), "remote-protocol-error"),
    "plain": (lambda r: plain_of(r), "plain-in-encrypted"),
}


def resealed(record, namespace, keys, envelope=None):
    """Return what whoever has other keys, or means elsewhere, would have sent."""
    header = parse_header(record)
    found = Sealer(REMOTE, Keyring(ONE)).open(header, record)
    return Sealer(namespace, Keyring(keys)).seal(
        header, found if envelope is None else envelope, bytes(32)
    )


def plain_of(record):
    header = parse_header(record)
    found = Sealer(REMOTE, Keyring(ONE)).open(header, record)
    return build_record(replace(header, alg=0, key_id=0), found)


@pytest.mark.requirement("sealed-2")
def test_what_was_changed_or_moved_is_held_with_its_code_and_others_go_on(
    sealed_pair, victim, relay
):
    ann, _ = sealed_pair
    labels = [f"s{number}" for number in range(len(CHANGES))]
    for label in labels:
        ann.append(label, "one")
    relay.run()
    mine = {}
    sealer = Sealer(REMOTE, Keyring(ONE))
    tags = {sealer.doc_tag(1, label): label for label in labels}
    for row in relay.rows(REMOTE):
        mine[tags.get(parse_header(row.record).doc_tag)] = row.record
    changed = {
        change(mine[label]): code
        for label, (change, code) in zip(labels, CHANGES.values(), strict=True)
    }
    before = content_of(victim)

    report = delivered(victim, *changed)

    assert (report.applied, content_of(victim)) == (0, before)
    assert held_of(victim) == changed
    assert report_of(victim).locked == 1
    assert report_of(victim).quarantined == len(changed) - 1
    ann.append("plan", "ann 2")
    ann.append("new", "new")
    relay.run()
    delivered(victim, *(row.record for row in relay.rows(REMOTE)[-3:]))
    assert content_of(victim)["plan"] == ann.text("plan")
    assert content_of(victim)["new"] == "new"


@pytest.mark.requirement("sealed-2")
def test_whichever_bits_of_a_record_are_changed_nothing_of_it_is_applied(
    sealed_pair, victim, relay
):
    ann, _ = sealed_pair
    ann.append("plan", "ann 2")
    relay.run()
    record = relay.rows(REMOTE)[-1].record
    before = content_of(victim)
    places = range(0, 8 * len(record), 3)
    flipped = [with_bit(record, at // 8, at % 8) for at in places]

    report = delivered(victim, *flipped)

    assert (report.applied, content_of(victim)) == (0, before)


@pytest.mark.requirement("sealed-2")
def test_a_record_that_comes_again_is_taken_once(sealed_pair, victim, relay):
    ann, _ = sealed_pair
    ann.append("plan", "ann 2")
    relay.run()
    record = relay.rows(REMOTE)[-1].record

    reports = [delivered(victim, record) for _ in range(3)]

    assert [report.applied for report in reports] == [1, 0, 0]
    assert content_of(victim)["plan"] == ann.text("plan")


# Copies, forks, repairs.


@pytest.mark.requirement("sealed-3")
def test_two_stores_with_the_same_randomness_seal_nothing_under_one_secret(site):
    undo = replace_function(
        "crdtmem.store.records", "new_randomness", lambda: bytes(32)
    )
    ann, bob = site("ann", keys=ONE), site("bob", keys=ONE)
    with bob.store.writing() as transaction:
        # As in a clone that has not noticed.
        transaction.connection.execute(
            "UPDATE store SET replica = :r", {"r": ann.stored.replica_id}
        )
        transaction.connection.execute(
            "UPDATE link SET replica = :r", {"r": ann.stored.replica_id}
        )
    ann.append("plan", "one")
    bob.append("plan", "two")
    ann.connect()
    there = Relay()
    bob.relay = there
    bob.connect()
    undo()

    def sealed(relay):
        return [row.record for row in relay.rows(REMOTE)]

    (first,), (second,) = sealed(ann.relay), sealed(there)
    assert first[:60] == second[:60]
    assert first[60:108] != second[60:108]


def test_a_store_that_was_put_back_writes_its_unsent_writes_anew(sealed_pair, relay):
    ann, bob = sealed_pair
    relay.cut(ann)
    ann.roll_back(lambda: send(ann, "gone"))
    ann.append("plan", "kept")
    ann.connect()
    for _ in range(4):
        if not ann.is_settled:
            ann.connect()
    relay.run()

    assert set(ann.alarms) <= {"store-rolled-back", "replica-fork"}
    assert ann.alarms
    assert ann.text("plan") == bob.text("plan")
    assert {"gone", "kept"} <= set(ann.text("plan").split("\n"))


def send(site, line):
    site.append("plan", line)
    site.make_engine()
    site.connect()
    site.relay.cut(site)


def test_a_relay_that_lost_everything_gets_it_again_encrypted(sealed_pair, relay):
    ann, bob = sealed_pair
    other = Relay(MemoryStorage(rng=Random(9)))
    ann.relay = bob.relay = other
    relay.cut(ann)
    relay.cut(bob)
    for one in (ann, bob, ann, bob):
        one.connect()
    other.run()

    assert ann.text("plan") == bob.text("plan")
    assert b"ann 1" not in b"".join(row.record for row in other.rows(REMOTE))
    assert "relay-changed" in ann.alarms


def test_a_store_without_keys_notes_what_happened_for_when_it_has_them(
    sealed_pair, relay
):
    ann, _ = sealed_pair
    relay.cut(ann)
    ann.append("new", "x")
    ann.take_keys(None)
    start_rebase(ann.store, ann.stored, alarm="replica-fork")
    with ann.store.reading() as connection:
        tags = connection.execute(
            "SELECT count(*) FROM sync_doc WHERE doc_tag = x''"
        ).get
    assert tags == 1

    ann.take_keys(ONE)
    for _ in range(3):
        if ann not in relay.sites.values():
            ann.connect()
    relay.run()

    assert ann.is_settled
    with ann.store.reading() as connection:
        assert about_store(connection, "x").replica == ann.stored.replica_id
    assert ann.text("new") == "x"


def test_keys_that_are_at_hand_make_no_plain_link_an_encrypted_one(site):
    ann = site("ann", is_linked=False)
    ann.store.sealers[PROJECT] = Sealer(REMOTE, Keyring(TWO))
    ann.link()
    ann.append("plan", "one")
    ann.connect()

    assert [parse_header(row.record).alg for row in ann.relay.rows(REMOTE)] == [0]
    assert (ann.stored.sealer, ann.stored.key_id) == (None, 0)


# Without a key.


def test_a_link_without_a_key_is_stopped_and_never_sends_in_the_clear(site):
    ann = site("ann", keys=ONE)
    ann.append("plan", "one")
    ann.take_keys(None)
    ann.connect()
    ann.relay.run()

    (fact,) = ann.engine.facts()
    assert (fact.state, fact.fault.code) == ("stopped", "key-missing")
    assert not fact.is_quiet
    assert ann.relay.storage.ns_no(REMOTE) in (0, None)
    assert ann.unsent == 2
    assert ann.engine.is_flushed
    with pytest.raises(KeyMissingError) as refusal:
        ann.engine.set_presence(PROJECT, b"x", 0.0)
    assert refusal.value.details == {"local": PROJECT}
    link = ann.stored
    with pytest.raises(KeyMissingError):
        seal_envelope(link, Header(1, 0, b"t" * 16, link.replica_id, 1, 0, 0), b"x")


@pytest.mark.parametrize("keys", [TWO, {**ONE, 3: b"3" * 32}], ids=["next", "later"])
def test_what_may_be_there_under_a_missing_key_is_not_written_anew(
    sealed_pair, relay, keys
):
    ann, bob = sealed_pair

    def send_under_the_new_key():
        ann.take_keys(keys)
        ann.make_engine()
        ann.connect()
        relay.cut(ann)

    relay.cut(ann)
    ann.append("plan", "sent")
    ann.append("other", "sent")
    ann.roll_back(send_under_the_new_key)
    ann.take_keys(ONE)
    ann.append("plan", "kept")
    until_connected(ann)

    assert report_of(ann).locked
    assert ann.text("plan").split("\n")[-2:] == ["sent", "kept"]

    for one in (ann, bob):
        relay.cut(one)
        one.take_keys(keys)
    until_connected(ann, bob)

    for label, lines in (("plan", ["kept", "sent"]), ("other", ["sent"])):
        assert ann.text(label) == bob.text(label)
        found = [x for x in ann.text(label).split("\n") if x in ("kept", "sent")]
        assert sorted(found) == lines
    assert ann.is_settled
    assert bob.is_settled


def until_connected(*sites):
    """Connect sites; a store that takes new ids ends its connection with that."""
    for _ in range(5):
        for one in sites:
            if one not in one.relay.sites.values():
                one.connect()
