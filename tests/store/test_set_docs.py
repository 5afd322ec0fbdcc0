"""crdtmem.store.set_docs"""

import pytest

from crdtmem.doc.items import ItemsDoc
from crdtmem.errors import DocError, SlotQuarantinedError
from crdtmem.store import write
from crdtmem.store.backup import compact
from crdtmem.store.set_docs import load_items, save_state_of, squash_set
from crdtmem.store.store import Store
from tests.exchange import outgoing
from tests.store.set_writes import (
    add,
    change,
    document_of,
    new,
    numbered,
    place_of,
    remove,
    set_row,
    shown,
)
from tests.store.writes import NAMESPACE, damage, value

MANY = numbered("x", 300)


def count_records(store):
    return value(store, "SELECT count(*) FROM log")


def test_a_set_is_squashed_once_enough_has_changed_and_loads_again(store):
    for one in numbered("y", 3):
        add(store, one)
    assert count_records(store) == 3

    row = add(store, *MANY)

    assert count_records(store) == 0
    assert (row.unsquashed, row.rev) == (0, 4)
    assert row == set_row(store)
    before = document_of(store)
    again = Store(store.path)
    assert document_of(again).is_same(before)
    assert shown(again) == shown(store)
    add(again, "z")
    add(store, "w")
    assert set_row(store).item_count == 305
    again.close()


def test_the_larger_a_set_the_more_may_change_before_it_is_squashed(store):
    add(store, *numbered("x", 1_200))
    row = add(store, *numbered("y", 300))
    assert (row.unsquashed, count_records(store)) == (300, 1)

    row = remove(store, *numbered("x", 100))
    assert (row.unsquashed, count_records(store)) == (0, 0)


def test_records_that_others_wait_for_are_not_squashed(store):
    add(store, "x")
    sent = outgoing(store, NAMESPACE)
    row = add(store, *MANY)

    assert len(sent) == 1
    assert count_records(store) == 1
    assert row.unsquashed == 150
    # Nothing more can go; it is not asked for with each write.
    row = add(store, "y")
    assert (row.unsquashed, count_records(store)) == (151, 2)
    assert len(outgoing(store, NAMESPACE)) == 2
    row = add(store, *numbered("z", 300))
    assert (row.unsquashed, count_records(store)) == (225, 1)
    again = Store(store.path)
    assert document_of(again).is_same(document_of(store))
    again.close()


def test_records_squashed_before_anybody_had_them_can_be_had_as_a_state(store):
    add(store, *MANY)

    assert value(store, "SELECT is_sealed FROM doc") == 0
    assert outgoing(store, NAMESPACE) == []


def test_compacting_the_store_squashes_sets_too_but_damaged_ones(store):
    add(store, "x")
    bad = add(store, "x", place=place_of("other"))
    damage(store, f"UPDATE mset SET quarantined = 'bad' WHERE doc = {bad.doc}")

    compact(store)

    assert value(store, "SELECT group_concat(doc) FROM log") == str(bad.doc)
    assert shown(store) == {"x": "x"}


def test_a_set_without_a_row_is_not_squashed(store):
    with store.writing() as transaction:
        squash_set(transaction, 7)
        assert transaction.damaged is None


@pytest.mark.parametrize(
    "change_of",
    ["content = x'00'", "at_ms = 1", "operation = 'update'"],
)
def test_a_damaged_record_is_not_loaded(store, change_of):
    doc = add(store, "x").doc
    damage(store, f"UPDATE log SET {change_of}")

    with store.reading() as connection, pytest.raises(DocError):
        load_items(connection, doc, bytes(16))


def test_a_damaged_checkpoint_is_neither_loaded_nor_replaced(store):
    doc = add(store, *MANY).doc
    damage(store, "UPDATE doc SET state = substr(state, 2)")
    with store.reading() as connection, pytest.raises(DocError):
        load_items(connection, doc, bytes(16))
    store.docs.clear()

    with pytest.raises(SlotQuarantinedError):
        add(store, "y")
    with store.writing() as transaction, pytest.raises(DocError):
        save_state_of(transaction.connection, doc, b"\0\0", 9)


class Differing(ItemsDoc):
    def check(self, changed=None):
        raise DocError("a squashed document differs from its records")


def test_nothing_is_forgotten_where_the_squashed_state_differs(store):
    row = add(store, "x")
    other = Differing(document_of(store).client_id)
    other.apply_state(document_of(store).state())
    store.docs[row.doc] = row.lsn, other

    with store.writing() as transaction, pytest.raises(SlotQuarantinedError):
        squash_set(transaction, row.doc)

    assert count_records(store) == 1
    assert value(store, "SELECT length(state) FROM doc") == 0


def test_large_documents_leave_the_cache_for_newer_ones(store, monkeypatch):
    monkeypatch.setattr(write, "DOCS_CACHED_MEMBERS_MAX", 10)
    first = add(store, *numbered("x", 8))
    second = add(store, "x", place=place_of("b"))
    third = add(store, *numbered("x", 30), place=place_of("c"))

    assert list(store.docs) == [third.doc]
    add(store, "y", place=place_of("b"))
    assert list(store.docs) == [second.doc]
    add(store, "y")
    assert first.doc in store.docs
    assert shown(store)["y"] == "y"


def test_a_copied_store_writes_its_sets_under_ids_of_its_own(store):
    add(store, "x")
    client = document_of(store).client_id
    with store.writing() as transaction:
        transaction.take_new_ids()
    change(store, puts=[new("y")])

    document = document_of(store)
    assert document.client_id != client
    assert len(document.clocks) == 2
    assert shown(store) == {"x": "x", "y": "text"}
