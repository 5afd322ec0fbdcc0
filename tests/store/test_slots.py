"""crdtmem.store.slots"""

import pytest

from crdtmem.errors import SlotQuarantinedError
from crdtmem.store.slots import (
    changed_since,
    find_slot,
    namespaces,
    quarantine_slot,
    save_slot,
    slots_of,
)
from tests.store.writes import NAMESPACE, append, damage, slot, texts


def test_a_slot_is_found_in_its_namespace_only(store):
    row = append(store, "plan", "one")
    with store.reading() as connection:
        found = [
            find_slot(connection, *place)
            for place in ((NAMESPACE, "plan"), (NAMESPACE, "plans"), ("q", "plan"))
        ]

    assert found == [row, None, None]


def test_slots_are_listed_by_label_and_by_change(store):
    append(store, "plan", "one")
    notes = append(store, "notes", "two")
    plan = append(store, "plan", "three")
    with store.reading() as connection:
        by_label = slots_of(connection, NAMESPACE)
        by_change = list(changed_since(connection, 0))
        newest = list(changed_since(connection, notes.lsn))

    assert by_label == by_change == [notes, plan]
    assert newest == [plan]


@pytest.mark.requirement("P8")
def test_a_row_that_is_no_text_hides_no_other(store):
    append(store, "plan", "one")
    bad = append(store, "notes", "two")
    append(store, "todo", "three")
    damage(store, "UPDATE slot SET file = CAST(x'ff' AS TEXT) WHERE doc = ?", bad.doc)
    with store.reading() as connection:
        found = slots_of(connection, NAMESPACE)

    assert [row.label for row in found] == ["plan", "todo"]


def test_a_row_is_changed_in_all_but_its_name_and_birth(store):
    row = append(store, "plan", "one")
    changed = row._replace(
        file="x\n",
        rev=7,
        hash="h",
        size=1,
        size_limit=9,
        description="d",
        pinned=0,
        read_only=1,
        append_only=1,
        deleted=1,
        updated_ms=8,
        lsn=6,
        operation="o",
        lane="l",
        quarantined="q",
    )
    with store.writing() as transaction:
        save_slot(transaction.connection, changed._replace(created_ms=1))

    assert slot(store, "plan") == changed


def test_a_quarantined_slot_is_read_and_not_written_until_it_is_freed(store):
    append(store, "plan", "one")
    with store.writing() as transaction:
        quarantine_slot(transaction.connection, 1, "it is damaged")
    with pytest.raises(SlotQuarantinedError) as raised:
        append(store, "plan", "two")
    append(store, "notes", "others go on")
    before = texts(store)
    with store.writing() as transaction:
        quarantine_slot(transaction.connection, 1, None)
    append(store, "plan", "two")

    assert raised.value.code == "slot-quarantined"
    assert "'plan'" in raised.value.message
    assert "it is damaged" in raised.value.message
    assert before == {"plan": "one\n", "notes": "others go on\n"}
    assert texts(store) == {"plan": "one\ntwo\n", "notes": "others go on\n"}


def test_a_namespace_counts_its_live_slots(store):
    append(store, "plan", "one")
    append(store, "notes", "two")
    row = append(store, "gone", "three")
    empty = append(store, "blank", "four")
    with store.writing() as transaction:
        connection = transaction.connection
        save_slot(connection, row._replace(file="", deleted=1, updated_ms=2**50))
        save_slot(connection, empty._replace(file="\n", deleted=1, updated_ms=2**51))
        save_slot(
            connection,
            row._replace(doc=2, file="alive\n", deleted=1, updated_ms=2**49),
        )
    with store.reading() as connection:
        found = namespaces(connection)

    assert found == [(NAMESPACE, 2, 2**49)]
