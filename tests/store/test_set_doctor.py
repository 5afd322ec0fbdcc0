"""crdtmem.store.set_doctor"""

import pytest

from crdtmem.errors import DocError
from crdtmem.store.doctor import examine
from crdtmem.store.set_doctor import (
    inspect_set,
    names_of_set,
    repair_set,
    set_docs_in,
)
from crdtmem.store.store import Store
from tests.exchange import outgoing, receive
from tests.store.set_writes import (
    PLACE,
    add,
    change,
    document_of,
    items,
    new,
    numbered,
    place_of,
    remove,
    set_row,
    shown,
    versions,
)
from tests.store.writes import NAMESPACE, damage, quarantined, value


def look(store, *, repair=False, namespaces=None):
    found = examine(store, namespaces=namespaces, repair=repair, deep=False)
    return [(f.status, f.label, f.message) for f in found if f.id == "set-versions"]


def problems(store):
    """Return what is wrong with all sets, without all the other checks."""
    with store.snapshot() as connection:
        return [
            problem
            for doc in set_docs_in(connection, None)
            for problem in inspect_set(connection, doc)
        ]


OK = ("ok", None, "rows and records agree in 1 memory sets")


def filled(store, place=PLACE):
    add(store, "x", "y", "z", place=place)
    change(store, place, operation="update", puts=[new("x", "2", '{"a":1}')])
    remove(store, "z", place=place)
    return set_row(store, place)


def test_sets_that_are_well_are_counted(store):
    assert look(store) == [("ok", None, "rows and records agree in 0 memory sets")]
    filled(store)
    filled(store, PLACE._replace(namespace="q"))

    assert look(store, namespaces=["q"]) == [OK]
    assert look(store) == [("ok", None, "rows and records agree in 2 memory sets")]
    with store.reading() as connection:
        assert set_docs_in(connection, None) == [1, 2]
        assert set_docs_in(connection, ["q"]) == [2]
        assert names_of_set(connection, 2) == ("q", "notes")
        with pytest.raises(DocError):
            names_of_set(connection, 3)


ROWS = {
    "UPDATE item SET text = 'evil' WHERE id = 'x'": "its items differ",
    "UPDATE item SET conflicts = '[]' WHERE id = 'x'": "its items differ",
    "DELETE FROM item WHERE id = 'y'": "its items differ",
    "UPDATE version SET hash = hash + 1 WHERE id = 'y'": "its versions differ",
    "DELETE FROM version WHERE id = 'x'": "its versions differ",
    "UPDATE mset SET item_count = 7": "its sums differ",
    "UPDATE mset SET set_hash = '0123456789abcdef'": "its sums differ",
    "UPDATE mset SET dropped_ms = 5": "its sums differ",
    "UPDATE mset SET history_rows = 9": "its history has 5 rows",
    "UPDATE mset SET rev = 1": "its history has rev 3",
    "UPDATE mset SET lsn = 1": "its row stands at step 1",
    "UPDATE mset SET quarantined = 'bad'": "it is quarantined: bad",
}


@pytest.mark.parametrize("statement", ROWS)
def test_rows_that_differ_from_the_records_are_found_and_written_anew(store, statement):
    before = filled(store)
    known = shown(store), versions(store)
    damage(store, statement)

    (message,) = problems(store)
    assert message.startswith(ROWS[statement])

    fixed, ok = look(store, repair=True)
    assert fixed[:2] == ("fixed", "notes")
    assert fixed[2].endswith("its rows were written anew from its records")
    assert ok == OK
    assert problems(store) == []
    assert (shown(store), versions(store)) == known
    row = set_row(store)
    assert (row.set_hash, row.quarantined) == (before.set_hash, None)
    assert (row.operation, row.lane) == ("restore", "doctor")
    assert quarantined(store) == []
    assert add(store, "new").item_count == 3


def test_an_item_that_is_mended_is_of_a_new_rev_and_the_others_are_not(store):
    filled(store)
    damage(store, "UPDATE item SET text = 'evil' WHERE id = 'x'")
    look(store, repair=True)

    assert {item.id: item.rev for item in items(store)} == {"x": 4, "y": 1}
    assert value(store, "SELECT count(*) FROM search_pending WHERE item = 'x'") == 1


def test_items_that_the_rows_have_too_much_go(store):
    filled(store)
    damage(store, "INSERT INTO item VALUES (1, 'w', 't', '', 1, 1, 'a', 1, 1, 0, '')")
    assert look(store, repair=True)[-1] == OK

    assert set(shown(store)) == {"x", "y"}


@pytest.mark.parametrize(
    ("statement", "dropped"),
    [
        ("UPDATE log SET content = x'00' WHERE lsn = 2", 2),
        ("UPDATE log SET lane = 'z' WHERE lsn = 1", 3),
        ("UPDATE doc SET digest = x'00'", 3),
    ],
)
@pytest.mark.requirement("testing-F5")
def test_a_damaged_record_goes_into_quarantine_and_no_item_with_it(
    store, other, statement, dropped
):
    before = filled(store)
    receive(other, NAMESPACE, outgoing(store, NAMESPACE))
    known = shown(store), versions(store)
    damage(store, statement)

    assert len(problems(store)) == 1
    assert look(store, repair=True)[-1] == OK
    store.docs.clear()
    again = Store(store.path)
    assert (shown(again), versions(again)) == known
    assert document_of(again).names()
    assert set_row(again).set_hash == before.set_hash
    codes = [code for code, _ in quarantined(again)]
    assert codes.count("record-damaged") == dropped
    # Who has the lost records, too, gets no item twice.
    add(store, "new")
    receive(other, NAMESPACE, outgoing(store, NAMESPACE))
    assert shown(other) == shown(store)
    again.close()


def test_a_damaged_checkpoint_is_made_again_from_the_rows(store):
    add(store, *numbered("x", 300))
    add(store, "y")
    known = shown(store)
    damage(store, "UPDATE doc SET state = substr(state, 2)")

    assert look(store) == [("fail", "notes", "the checkpoint is damaged")]
    assert look(store, repair=True)[-1] == OK
    assert shown(store) == known
    assert sorted(code for code, _ in quarantined(store)) == [
        "record-damaged",
        "state-damaged",
    ]


def test_where_rows_and_records_are_damaged_rather_too_much_is_kept(store):
    filled(store)
    damage(store, "UPDATE item SET text = 'evil' WHERE id = 'y'")
    damage(store, "UPDATE log SET content = x'00' WHERE lsn = 3")
    assert look(store, repair=True)[-1] == OK

    # The delete of z is lost with its record.
    assert shown(store) == {"x": "2", "y": "y", "z": "z"}


def test_where_nothing_of_an_item_is_whole_it_is_lost_and_nothing_else(store):
    filled(store)
    damage(store, "UPDATE item SET text = 'evil' WHERE id = 'y'")
    damage(store, "UPDATE log SET content = x'00'")
    assert look(store, repair=True)[-1] == OK

    assert shown(store) == {"x": "2"}


def test_conflicts_and_the_header_are_kept_by_a_repair(store, folder):
    later = Store(folder / "later.db", clock_ms=lambda: 4 * 10**12)
    add(store, "x")
    receive(later, NAMESPACE, outgoing(store, NAMESPACE))
    change(store, puts=[new("x", "mine")])
    change(later, puts=[new("x", "theirs")])
    receive(store, NAMESPACE, outgoing(later, NAMESPACE))
    before = set_row(store)
    damage(store, "UPDATE log SET content = x'00'")
    assert look(store, repair=True)[-1] == OK

    assert [v.text for v in versions(store).values()] == ["theirs", "mine"]
    assert set_row(store).set_hash == before.set_hash
    assert set_row(store).has_header == 1
    later.close()


def test_a_set_that_has_lost_its_row_gets_one(store):
    filled(store)
    filled(store, place_of("b"))
    known = shown(store)
    damage(
        store,
        "PRAGMA foreign_keys = OFF; DELETE FROM item_history WHERE doc = 1;"
        "DELETE FROM mset WHERE doc = 1",
    )
    assert look(store) == [("fail", "s.k/n.notes", "it has records and no row")]

    assert look(store, repair=True)[0][0] == "fixed"
    assert shown(store) == known
    assert set_row(store).place == PLACE
    assert problems(store) == []


def test_a_doc_without_records_is_no_damage(store):
    damage(store, "INSERT INTO doc(namespace, kind, name) VALUES ('p', 2, 'nothing')")

    assert look(store) == [OK]
    with store.writing() as transaction:
        with pytest.raises(DocError, match="name no set"):
            repair_set(transaction, 1)
        assert inspect_set(transaction.connection, 1) == []


def test_names_that_differ_are_found_and_what_cannot_be_mended_is_said(store):
    filled(store)
    damage(store, "UPDATE doc SET name = 'nothing'")

    assert {message for _, _, message in look(store)} == {
        "its row and its doc have different names"
    }
    statuses = {(status, message) for status, _, message in look(store, repair=True)}
    assert ("fail", "its row and its doc have different names") in statuses


def test_a_repair_that_fails_is_told_and_changes_nothing(store):
    filled(store)
    damage(
        store,
        "PRAGMA foreign_keys = OFF; DELETE FROM mset; UPDATE doc SET name = 'nothing'",
    )

    ((status, _, message),) = look(store, repair=True)
    assert status == "fail"
    assert message == (
        "it has records and no row; it could not be mended: 7 characters that name no"
        " set"
    )
    assert value(store, "SELECT count(*) FROM mset") == 0


def test_a_dropped_set_is_mended_and_stays_dropped(store):
    filled(store)
    row = change(store, operation="drop", drops=True)
    damage(store, f"UPDATE log SET content = x'00' WHERE lsn = {row.lsn}")
    store.docs.clear()
    assert look(store)[0][0] == "fail"
    assert look(store, repair=True)[-1] == OK

    assert shown(store) == {}
    assert set_row(store).dropped_ms is not None
