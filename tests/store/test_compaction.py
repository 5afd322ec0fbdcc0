"""crdtmem.store.compaction"""

import pytest

from crdtmem.errors import LinkChangedError
from crdtmem.limits import SNAPSHOT_LIVE_BYTES, SNAPSHOT_LIVE_RECORDS
from crdtmem.protocol.envelopes import StateEnvelope, decode_envelope
from crdtmem.protocol.records import RecordKind, parse_header
from crdtmem.store.compaction import due_docs, seal_snapshot
from crdtmem.store.links import find_link
from crdtmem.store.outbox import unsent
from crdtmem.store.store import Store
from tests.store.joining import (
    Relay,
    connect,
    link_to,
    read_on,
    seal_all,
    send,
    sync,
)
from tests.store.writes import NAMESPACE, append, damage, slot, texts, value

MAX_BYTES = 1 << 24


@pytest.fixture
def relay():
    return Relay()


@pytest.fixture
def link(store, relay):
    """A link, with one record in the relay's log and here."""
    made = link_to(store)
    append(store, "plan", "one")
    sync(relay, store)
    return made


def snapshot(store, link):
    return seal_snapshot(
        store, link, slot(store, "plan").doc, max_snapshot_bytes=MAX_BYTES
    )


def change(store, statement):
    with store.writing() as transaction:
        transaction.connection.execute(statement)


@pytest.mark.parametrize(
    ("statement", "is_due"),
    [
        (f"UPDATE sync_doc SET live_bytes = {SNAPSHOT_LIVE_BYTES}", False),
        (f"UPDATE sync_doc SET live_bytes = {SNAPSHOT_LIVE_BYTES + 1}", True),
        ("UPDATE sync_doc SET live_bytes = 99999, snap_size = 99999", False),
        ("UPDATE sync_doc SET live_bytes = 99999, snap_size = 99998", True),
        (f"UPDATE sync_doc SET live_records = {SNAPSHOT_LIVE_RECORDS}", False),
        (f"UPDATE sync_doc SET live_records = {SNAPSHOT_LIVE_RECORDS + 1}", True),
        ("UPDATE sync_doc SET live_records = 999, held_from = 1", False),
    ],
)
def test_a_doc_is_due_when_its_records_outgrow_a_snapshot(
    store, link, statement, is_due
):
    change(store, statement)

    assert due_docs(store, link) == ([slot(store, "plan").doc] if is_due else [])


def test_a_snapshot_covers_its_doc_up_to_the_cursor(store, link, relay, tmp_path):
    made = snapshot(store, link)
    record = unsent(store, link, after=0, records=9, octets=9)[0].record
    header = parse_header(record)
    envelope = decode_envelope(header.kind, record[header.payload_start :])
    send(relay, store)
    other = Store(tmp_path / "other" / "store.db")
    link_to(other)
    del relay.records[0]
    sync(relay, other)

    assert made
    assert (header.kind, header.base) == (RecordKind.SNAPSHOT, 1)
    assert isinstance(envelope, StateEnvelope)
    assert envelope.name == "plan"
    assert texts(other) == {"plan": "one\n"}
    other.close()


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE link SET cursor_seq = 0",
        "UPDATE link SET rebase_due = 1",
        "UPDATE sync_doc SET held_from = 2",
        "UPDATE sync_doc SET state_needed = 1",
        "UPDATE sync_doc SET blocked = 'forbidden'",
        "UPDATE slot SET quarantined = 'damaged'",
        "UPDATE log SET replica_seq = NULL, place = NULL",
        "INSERT INTO held VALUES (1, 2, 1, x'', '', x'', 5)",
        "INSERT INTO outbox VALUES (1, 2, 1, 1, x'', x'00')",
    ],
)
def test_no_snapshot_is_sealed_that_could_lack_something(store, link, statement):
    change(store, statement)
    before = find_link(store, NAMESPACE)

    assert not snapshot(store, link)
    assert find_link(store, NAMESPACE) == before


def test_a_snapshot_waits_for_what_is_to_be_sent(store, link, relay):
    append(store, "notes", "waits")
    seal_all(store)
    early = snapshot(store, link)
    send(relay, store)
    read_on(relay, store)

    assert not early
    assert snapshot(store, link)
    assert not snapshot(store, link)


def test_there_is_no_snapshot_of_a_doc_that_is_not_there(store, link):
    assert not seal_snapshot(store, link, 99, max_snapshot_bytes=MAX_BYTES)


def test_a_snapshot_that_is_too_long_is_put_off(store, link):
    change(store, "UPDATE sync_doc SET live_records = 999")
    doc = slot(store, "plan").doc
    before = find_link(store, NAMESPACE)
    made = seal_snapshot(store, link, doc, max_snapshot_bytes=99)

    assert not made
    assert due_docs(store, link) == []
    assert find_link(store, NAMESPACE) == before


@pytest.mark.requirement("P8")
def test_a_doc_that_is_damaged_is_quarantined_and_no_snapshot_made(store, link):
    damage(store, "UPDATE log SET content = x'00'")
    store.docs.clear()
    made = snapshot(store, link)

    assert not made
    assert slot(store, "plan").quarantined is not None
    assert value(store, "SELECT count(*) FROM outbox") == 0


def test_no_snapshot_is_made_under_ids_that_were_given_up(store, link, relay):
    with store.writing() as transaction:
        transaction.take_new_ids()
    for call in (lambda: due_docs(store, link), lambda: snapshot(store, link)):
        with pytest.raises(LinkChangedError):
            call()

    connect(relay, store)
    assert snapshot(store, find_link(store, NAMESPACE))
