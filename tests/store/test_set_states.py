"""crdtmem.store.set_states"""

import pytest

from crdtmem.doc.items import ItemsDoc
from crdtmem.errors import DocError, SlotQuarantinedError, UpdateRejectedError
from crdtmem.protocol.envelopes import StateEnvelope, decode_envelope
from crdtmem.protocol.records import DocKind, RecordKind, parse_header
from crdtmem.store.compaction import due_docs, seal_snapshot
from crdtmem.store.links import find_link
from crdtmem.store.progress import pass_snapshot
from crdtmem.store.set_doctor import inspect_set
from crdtmem.store.set_states import make_set_state, merge_set_state
from crdtmem.store.states import make_state
from crdtmem.store.store import Store
from tests.store.relayed import Log, linked
from tests.store.set_writes import (
    NAME,
    add,
    document_of,
    numbered,
    remove,
    set_row,
    shown,
    state_record,
)
from tests.store.writes import NAMESPACE, damage, value

MAX_BYTES = 1 << 24


@pytest.fixture
def reader(tmp_path):
    opened = Store(tmp_path / "reader" / "store.db")
    linked(opened)
    yield opened
    opened.close()


def test_a_state_says_the_whole_set_and_no_text(store):
    row = add(store, "x")
    with store.writing() as transaction:
        state = make_state(transaction, row.doc)

    assert (state.doc_kind, state.name) == (DocKind.MEMORY_SET, NAME)
    assert (state.text_sha256, state.blame) == (bytes(32), b"")
    assert ItemsDoc.load(1, state.state).is_same(document_of(store))


def test_there_is_no_state_of_what_is_no_set_or_is_damaged(store):
    row = add(store, "x")
    damage(store, "UPDATE mset SET quarantined = 'bad'")

    with store.writing() as transaction:
        with pytest.raises(DocError, match="has no set"):
            make_set_state(transaction, row.doc + 1)
        with pytest.raises(SlotQuarantinedError):
            make_set_state(transaction, row.doc)


def test_a_state_is_merged_unless_all_of_it_is_there():
    sent = ItemsDoc(1)
    sent.edit({"a": 1})
    document = ItemsDoc(2)
    document.edit({"b": 2})

    merged = merge_set_state(document, state_record(sent.state()))
    assert merged is not None
    assert merged.changed == {"a"}
    assert ItemsDoc.load(3, merged.state).members() == {"a": 1, "b": 2}
    assert merge_set_state(document, state_record(sent.state())) is None


@pytest.mark.parametrize("fields", [{"text_sha256": b"x" * 32}, {"blame": b"x"}])
def test_a_state_of_a_set_with_a_text_is_refused(fields):
    with pytest.raises(DocError) as caught:
        merge_set_state(ItemsDoc(1), state_record(b"\0\0", **fields))

    assert caught.value.code == "text-differs"
    with pytest.raises(UpdateRejectedError):
        merge_set_state(ItemsDoc(1), state_record(b"\0"))


def test_a_snapshot_covers_a_set_and_gives_it_to_a_reader_from_nothing(store, reader):
    link = linked(store)
    log = Log()
    for one in numbered("x", 3):
        add(store, one)
        log.send(store)
        log.give(store)
    remove(store, "x0")
    log.send(store)
    log.give(store)
    doc = set_row(store).doc
    damage(store, "UPDATE sync_doc SET live_records = 999")
    assert due_docs(store, link) == [doc]

    link = find_link(store, NAMESPACE)
    assert seal_snapshot(store, link, doc, max_snapshot_bytes=MAX_BYTES)
    log.send(store)
    log.give(store)
    log.drop()
    assert len(log.dropped) == 4
    last = log.records[-1]
    header = parse_header(last)
    assert header.kind == RecordKind.SNAPSHOT
    envelope = decode_envelope(header.kind, last[header.payload_start :])
    assert isinstance(envelope, StateEnvelope)

    log.give(reader)
    assert shown(reader) == {"x1": "x1", "x2": "x2"}
    assert set_row(reader).set_hash == set_row(store).set_hash
    assert (set_row(reader).rev, set_row(reader).lane) == (1, "")
    with reader.snapshot() as connection:
        assert inspect_set(connection, set_row(reader).doc) == []
    assert due_docs(store, link) == []


def test_a_set_in_quarantine_is_not_due_and_its_records_are_held(store, reader):
    link = linked(store)
    log = Log()
    add(store, "x")
    log.send(store)
    log.give(reader)
    damage(store, "UPDATE sync_doc SET live_records = 999")
    damage(store, "UPDATE mset SET quarantined = 'bad'")
    assert due_docs(store, link) == []

    damage(reader, "UPDATE mset SET quarantined = 'bad'")
    damage(store, "UPDATE mset SET quarantined = NULL")
    add(store, "y")
    log.send(store)
    log.give(reader)
    assert value(reader, "SELECT count(*) FROM held") == 1
    assert shown(reader) == {"x": "x"}


def test_a_snapshot_that_need_not_be_read_counts_as_long_as_the_set(store):
    link = linked(store)
    row = add(store, "x")
    log = Log()
    log.send(store)
    tag = value(store, "SELECT doc_tag FROM sync_doc")
    with store.writing() as transaction:
        pass_snapshot(transaction.connection, link, 1, tag)

    assert value(store, "SELECT snap_size FROM sync_doc") == row.live_bytes
