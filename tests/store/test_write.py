"""crdtmem.store.write"""

import json

import pytest

from crdtmem.doc.delta import Splice, decode_delta
from crdtmem.errors import DocError, SlotQuarantinedError
from crdtmem.headroom import content_hash
from crdtmem.limits import DOCS_CACHED_MAX, MAX_SIZE_UNITS, SQUASH_SLACK_RECORDS
from crdtmem.protocol.records import DocKind, genesis_client_id
from crdtmem.store.audit import audit_since
from crdtmem.store.log import load_checkpoint, require_intact
from crdtmem.store.rows import PLACE_BITS
from crdtmem.store.slots import empty_slot
from crdtmem.store.store import Store
from crdtmem.store.write import Change
from tests.store.writes import (
    NAMESPACE,
    append,
    append_in,
    create,
    damage,
    entries,
    log,
    own_client,
    slot,
    texts,
    value,
)

NOW_MS = 1_700_000_000_000


def opened(folder, **options):
    return Store(folder / "store.db", **options)


def write(store, label, **fields):
    """Make one change of a slot; return its row and its entry."""
    with store.writing() as transaction:
        row = transaction.slot(NAMESPACE, label)
        change = Change(**{"operation": "edit", "lane": "b", **fields})
        return transaction.write_slot(row, NAMESPACE, label, change)


def checkpoint_of(store, label):
    doc = slot(store, label).doc
    with store.reading() as connection:
        return load_checkpoint(connection, doc)


def test_a_write_is_one_record_one_row_one_entry_and_one_audit_row(folder):
    store = opened(folder, clock_ms=lambda: NOW_MS)
    append(store, "plan", "é")
    row = append(store, "plan", "🎉")
    first, second = log(store, "plan")
    newest, oldest = entries(store, "plan")
    with store.reading() as connection:
        audit = audit_since(connection, 1)
    replica = value(store, "SELECT replica FROM store")
    store.close()

    assert (row.file, row.rev, row.size, row.lsn) == ("é\n🎉\n", 2, 4, 2)
    assert row.hash == content_hash("é\n🎉")
    assert (row.operation, row.lane, row.updated_ms) == ("append", "a", NOW_MS)
    assert (first.lsn, second.lsn) == (1, 2)
    assert decode_delta(second.delta) == (Splice(2, 2, "🎉\n"),)
    assert (second.replica, second.replica_seq, second.at_ms) == (replica, None, NOW_MS)
    assert require_intact(second) == second
    assert (newest.file, newest.rev, newest.size) == ("é\n", 1, 1)
    assert (newest.place, newest.mark) == (1 << PLACE_BITS | 2, replica[:4].hex())
    assert oldest.rev == 0
    assert [(one.lsn, one.rev_before, one.rev, one.size) for one in audit] == [
        (2, 1, 2, 4)
    ]


def test_two_writes_of_one_transaction_are_one_commit(store):
    with store.writing() as transaction:
        append_in(transaction, "plan", "one")
        append_in(transaction, "plan", "two")
        append_in(transaction, "notes", "other")
        inside = transaction.has_written

    assert inside
    assert texts(store) == {"plan": "one\ntwo\n", "notes": "other\n"}
    assert slot(store, "plan").rev == 2
    assert value(store, "SELECT lsn FROM store") == 3


def test_a_transaction_without_a_write_changes_nothing(store):
    append(store, "plan", "one")
    before = value(store, "PRAGMA data_version"), value(store, "SELECT lsn FROM store")
    with store.writing() as transaction:
        found = transaction.slot(NAMESPACE, "plan"), transaction.slot("q", "plan")

    assert not transaction.has_written
    assert found == (slot(store, "plan"), None)
    after = value(store, "PRAGMA data_version"), value(store, "SELECT lsn FROM store")
    assert after == before


def test_a_first_text_is_written_under_the_id_of_its_words(store):
    row = create(store, "plan", "é\nb\n", meta={"sizeLimit": 50, "pinned": False})
    records = log(store, "plan")
    with store.writing() as transaction:
        clocks = dict(transaction.document(row).clocks)
    genesis = genesis_client_id(NAMESPACE, DocKind.SLOT, "plan", "é\nb\n".encode())

    assert (row.file, row.rev, row.lsn) == ("é\nb\n", 0, 2)
    assert (row.size_limit, row.pinned) == (50, 0)
    assert [record.is_genesis for record in records] == [1, 0]
    assert clocks == {genesis: 4, own_client(store): 2}
    assert entries(store, "plan") == []


def test_a_first_text_alone_is_one_record(store):
    row = create(store, "plan", "one\n")

    assert [record.is_genesis for record in log(store, "plan")] == [1]
    assert row.size_limit == empty_slot(NAMESPACE, "plan", 0).size_limit


def test_a_slot_that_is_made_empty_takes_a_step_and_no_record(store):
    append(store, "notes", "one")
    row = create(store, "plan", "")

    assert (row.file, row.rev, row.lsn) == ("", 0, 2)
    assert log(store, "plan") == []
    append(store, "plan", "two")
    assert texts(store)["plan"] == "two\n"


def test_a_template_lends_its_settings_until_a_slot_has_its_own():
    template = empty_slot("global", "persona", 5)
    plain = empty_slot(NAMESPACE, "anything", 5)

    assert template.description
    assert (plain.description, plain.size_limit, plain.pinned) == ("", 2_000, 1)
    assert (plain.doc, plain.lsn, plain.rev, plain.created_ms) == (0, 0, 0, 5)
    assert plain.hash == content_hash("")


@pytest.mark.parametrize(
    ("meta", "field", "expected"),
    [
        ({"sizeLimit": 1}, "size_limit", 1),
        ({"sizeLimit": MAX_SIZE_UNITS}, "size_limit", MAX_SIZE_UNITS),
        ({"sizeLimit": 0}, "size_limit", 2_000),
        ({"sizeLimit": MAX_SIZE_UNITS + 1}, "size_limit", 2_000),
        ({"description": "é"}, "description", "é"),
        ({"pinned": False}, "pinned", 0),
        ({"readOnly": True}, "read_only", 1),
        ({"appendOnly": True}, "append_only", 1),
        ({"deleted": True}, "deleted", 1),
    ],
)
def test_settings_of_the_document_are_those_of_the_row(store, meta, field, expected):
    append(store, "plan", "one")
    row, entry = write(store, "plan", meta=meta, keeps_rev=True)

    assert getattr(row, field) == expected
    assert (row.rev, row.file, entry) == (1, "one\n", None)
    assert slot(store, "plan") == row


def test_an_edit_that_is_refused_leaves_the_next_one_right(store):
    append(store, "plan", "one")
    with pytest.raises(DocError):
        write(store, "plan", delta=(Splice(1, 2, "x"),))
    append(store, "plan", "two")

    assert texts(store) == {"plan": "one\ntwo\n"}


def test_what_was_edited_and_not_committed_is_not_built_upon(store):
    append(store, "plan", "one")
    with pytest.raises(KeyError), store.writing() as transaction:
        append_in(transaction, "plan", "lost")
        raise KeyError
    kept = dict(store.docs)
    append(store, "plan", "two")

    assert kept == {}
    assert texts(store) == {"plan": "one\ntwo\n"}
    assert [row.lsn for row in log(store, "plan")] == [1, 2]


def test_a_write_catches_up_with_what_others_wrote_in_log_order(store, folder):
    other = opened(folder)
    append(store, "plan", "1")
    append(other, "plan", "2", "3")
    write(other, "plan", delta=(Splice(0, 2, "é\n"),))
    append(store, "plan", "4")
    lsn, document = store.docs[1]

    assert document.file == texts(store)["plan"] == "é\n2\n3\n4\n"
    assert lsn == 5
    document.check()
    other.close()


def test_a_document_behind_a_squash_of_others_of_others_is_loaded_anew(folder):
    store, other = opened(folder, history_keep=1), opened(folder)
    append(store, "plan", "first")
    stale = store.docs[1]
    append(other, "plan", *map(str, range(SQUASH_SLACK_RECORDS + 1)))
    assert checkpoint_of(other, "plan").lsn > stale[0]
    append(store, "plan", "last")

    assert store.docs[1][1] is not stale[1]
    assert texts(store)["plan"].startswith("first\n0\n1\n")
    assert texts(store)["plan"].endswith("\nlast\n")
    store.docs[1][1].check()
    store.close()
    other.close()


def test_ids_that_another_handle_took_hold_for_what_is_cached_here(store, folder):
    other = opened(folder)
    append(store, "plan", "one")
    with other.writing() as transaction:
        transaction.take_new_ids()
    append(store, "plan", "two")
    append(other, "plan", "three")
    other.close()
    again = opened(folder)
    append(again, "plan", "four")
    replicas = [row.replica for row in log(again, "plan")]

    assert texts(again) == {"plan": "one\ntwo\nthree\nfour\n"}
    assert replicas == [replicas[0], *[value(again, "SELECT replica FROM store")] * 3]
    assert replicas[0] != replicas[1]
    again.close()


def test_a_handle_keeps_a_bounded_number_of_documents(store):
    with store.writing() as transaction:
        for number in range(DOCS_CACHED_MAX + 5):
            append_in(transaction, f"slot{number}", "one")
    append(store, "slot0", "two")

    assert len(store.docs) == DOCS_CACHED_MAX
    assert 2 not in store.docs
    assert texts(store)["slot0"] == "one\ntwo\n"


def test_a_smaller_history_goes_with_the_next_write_of_each_slot(store):
    append(store, "plan", *"1234")
    append(store, "notes", *"1234")
    with store.writing() as transaction:
        transaction.set_history_keep(2)
    append(store, "plan", "5")

    assert len(entries(store, "plan")) == 2
    assert len(entries(store, "notes")) == 4
    assert value(store, "SELECT history_keep FROM store") == 2


def test_records_of_the_history_window_are_kept_one_by_one(folder):
    store = opened(folder, history_keep=3)
    append(store, "plan", *map(str, range(3 + SQUASH_SLACK_RECORDS)))
    before = checkpoint_of(store, "plan").lsn, len(log(store, "plan"))
    append(store, "plan", "last")
    checkpoint = checkpoint_of(store, "plan")
    records = log(store, "plan")
    window = entries(store, "plan")
    store.close()

    assert before == (0, 3 + SQUASH_SLACK_RECORDS)
    assert [row.lsn for row in records] == [entry.lsn for entry in window][::-1]
    assert checkpoint.lsn == records[0].lsn - 1
    assert checkpoint.file == window[-1].file


def test_a_squash_goes_past_an_imported_entry_and_not_past_another(store):
    append(store, "plan", *"12345")
    with store.writing() as transaction:
        transaction.connection.execute(
            "UPDATE history SET is_imported = 1 WHERE rev <= 2"
        )
        transaction.squash(1)

    assert [row.lsn for row in log(store, "plan")] == [4, 5]
    assert checkpoint_of(store, "plan").file == "1\n2\n3\n"


def test_a_slot_without_history_is_squashed_whole(store):
    create(store, "plan", "one\n", meta={"pinned": True})
    with store.writing() as transaction:
        transaction.squash(1)
    append(store, "plan", "two")

    assert [row.lsn for row in log(store, "plan")] == [3]
    assert checkpoint_of(store, "plan").file == "one\n"
    assert texts(store) == {"plan": "one\ntwo\n"}


@pytest.mark.requirement("P8")
@pytest.mark.parametrize(
    ("statement", "reason"),
    [
        ("UPDATE log SET digest = zeroblob(16) WHERE lsn = 1", "record 1 is damaged"),
        ("UPDATE log SET content = x'0000' WHERE lsn = 2", "record 2 is damaged"),
        ("UPDATE log SET lane = 'b' WHERE lsn = 1", "record 1 is damaged"),
        ("DELETE FROM log WHERE lsn = 1", "comes before"),
        ("DELETE FROM log WHERE lsn = 2", "text differs from its records"),
        ("UPDATE slot SET file = 'other' WHERE doc = 1", "text differs from its rec"),
        ("UPDATE doc SET state = x'0100' WHERE doc = 1", "update refused"),
        ("UPDATE doc SET file = 'x' WHERE doc = 1", "checkpoint's text differs"),
    ],
)
def test_a_damaged_slot_is_quarantined_and_nothing_else(folder, statement, reason):
    store, other = opened(folder), opened(folder)
    append(store, "plan", "one", "two")
    append(store, "notes", "fine")
    damage(store, statement)
    good = texts(store)
    store.docs.clear()
    before = log(store, "plan"), entries(store, "plan")
    with pytest.raises(SlotQuarantinedError) as raised:
        append(store, "plan", "lost")
    for handle in (store, other):
        with pytest.raises(SlotQuarantinedError) as again:
            append(handle, "plan", "lost")
        append(handle, "notes", "more")
    marks = {label: slot(other, label).quarantined for label in ("plan", "notes")}
    after = log(store, "plan"), entries(store, "plan")
    found = texts(other)
    store.close()
    other.close()

    assert raised.value.code == "slot-quarantined"
    assert "'plan'" in raised.value.message
    assert reason in raised.value.message
    assert raised.value.message == again.value.message
    assert marks["notes"] is None
    assert marks["plan"] is not None
    assert reason in marks["plan"]
    assert after == before
    assert found == {**good, "notes": "fine\nmore\nmore\n"}


def test_a_damaged_record_of_others_leaves_no_half_caught_up_document(store, folder):
    other = opened(folder)
    append(store, "plan", "one")
    append(other, "plan", "two", "three")
    damage(store, "UPDATE log SET digest = zeroblob(16) WHERE lsn = 3")
    with pytest.raises(SlotQuarantinedError):
        append(store, "plan", "lost")
    kept = dict(store.docs)
    # What doctor does, in short.
    good = other.docs[1][1]
    damage(store, "DELETE FROM log WHERE lsn = 3")
    damage(store, "UPDATE slot SET quarantined = NULL, file = ?, lsn = 2", "one\ntwo\n")
    append(store, "plan", "four")

    assert kept == {}
    assert good.file == "one\ntwo\nthree\n"
    assert texts(store) == {"plan": "one\ntwo\nfour\n"}
    other.close()


def test_a_kept_text_can_be_traced_to_the_present_one(store):
    append(store, "plan", "one", "two", "three")
    entry = entries(store, "plan")[1]
    with store.writing() as transaction:
        trace = transaction.trace(slot(store, "plan"), entry)

    assert (trace.base(), trace.text()) == ("one\n", "one\ntwo\nthree\n")


@pytest.mark.parametrize("verb", ["trace", "squash"])
def test_damage_found_on_the_way_quarantines_the_slot(store, verb):
    append(store, "plan", "one", "two")
    damage(store, "UPDATE log SET digest = zeroblob(16) WHERE lsn = 1")
    entry = entries(store, "plan")[-1]
    with pytest.raises(SlotQuarantinedError) as raised, store.writing() as transaction:
        if verb == "trace":
            transaction.trace(slot(store, "plan"), entry)
        else:
            transaction.connection.execute("DELETE FROM history")
            transaction.squash(1)

    assert "record 1 is damaged" in raised.value.message
    assert slot(store, "plan").quarantined == "record 1 is damaged"
    assert len(entries(store, "plan")) == 2


@pytest.mark.parametrize("field", ["blame = x'ff'", "genesis = '{'"])
def test_a_damaged_checkpoint_quarantines_its_slot_at_the_next_squash(folder, field):
    store = opened(folder, history_keep=1)
    append(store, "plan", *map(str, range(2 + SQUASH_SLACK_RECORDS)))
    damage(store, f"UPDATE doc SET {field}")
    with pytest.raises(SlotQuarantinedError) as raised:
        append(store, "plan", *map(str, range(2 + SQUASH_SLACK_RECORDS)))
    append(store, "notes", "fine")
    mark = slot(store, "plan").quarantined
    store.close()

    assert "the checkpoint is damaged" in raised.value.message
    assert mark == "the checkpoint is damaged"


def test_the_steps_of_an_undo_are_kept_in_its_record(store):
    append(store, "plan", "one", "two")
    _, entry = write(
        store,
        "plan",
        delta=(Splice(4, 8, ""),),
        undoes=frozenset({2}),
        undone_place=7,
        details={"target": "h2"},
    )
    last = log(store, "plan")[-1]
    with store.reading() as connection:
        audit = audit_since(connection, 2)

    assert last.undoes == "[2]"
    assert entry is not None
    assert entry.undoes == 7
    assert json.loads(audit[0].details) == {"target": "h2"}
