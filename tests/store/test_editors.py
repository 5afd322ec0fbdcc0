"""Editor docs in the store, below the verbs."""

import pytest

from crdtmem.doc.delta import Splice
from crdtmem.errors import DocError, SlotQuarantinedError
from crdtmem.limits import EDITOR_RESCUED_MAX
from crdtmem.store.doctor import examine
from crdtmem.store.editors import (
    Run,
    add_editor_row,
    find_editor_doc,
    keep_rescued,
    load_editor_doc,
    make_editor_doc,
    mark_folded,
    new_gid,
    save_blocked,
    write_runs,
)
from crdtmem.store.slots import rescued_texts, unfolded_places
from tests.store.writes import NAMESPACE, append, create, damage, slot, texts, value


@pytest.fixture
def row(store):
    create(store, "plan", "one\n")
    with store.writing() as tx:
        return make_editor_doc(tx, slot(store, "plan"), place="here")


def findings(store, namespaces=None):
    found = examine(store, namespaces=namespaces, repair=False, deep=False)
    return [(f.status, f.label) for f in found if f.id == "editors"]


def test_a_new_document_has_the_slots_text_and_a_pin(store, row):
    with store.reading() as connection:
        document = load_editor_doc(connection, row)
    assert (document.text, row.text, row.has_unfolded) == ("one\n", "one\n", False)
    assert value(store, "SELECT file FROM pin") == "one\n"
    assert row.anchor >= 1 << 32
    assert row.gid < 1 << 16


def test_an_id_that_is_taken_is_not_drawn():
    assert new_gid(frozenset(range(1, 60_000))) >= 60_000


def test_what_is_unfolded_is_found_when_nobody_is_there(store, row):
    with store.writing() as tx:
        document = load_editor_doc(tx.connection, row)
        delta = (Splice(4, 4, "two\n"),)
        content = document.edit(delta)
        typed = add_editor_row(tx, row, lane="x", content=content, delta=delta)
    with store.reading() as connection:
        assert unfolded_places(connection, typed.touched_ms) == [(NAMESPACE, "plan")]
        assert unfolded_places(connection, typed.touched_ms - 1) == []
        assert find_editor_doc(connection, NAMESPACE, "plan") == typed
    after = append(store, "plan", "two")
    with store.writing() as tx:
        mark_folded(tx, typed, after)
    with store.reading() as connection:
        assert unfolded_places(connection, 1 << 50) == []
    assert value(store, "SELECT count(*) FROM pin") == 1


def test_runs_are_records_of_their_lanes_and_one_rev(store):
    create(store, "plan", "one\n")
    runs = [Run("ana", 5, (Splice(4, 4, "two\n"),)), Run("ben", 6, (Splice(0, 4, ""),))]
    with store.writing() as tx:
        row = write_runs(tx, slot(store, "plan"), runs, {})
    assert (row.rev, texts(store)["plan"]) == (1, "two\n")
    with store.reading() as connection:
        found = connection.execute(
            "SELECT lane, at_ms FROM log ORDER BY lsn"
        ).fetchall()
    assert found[-2:] == [("ana", 5), ("ben", 6)]


def test_a_damaged_slot_takes_no_runs(store):
    create(store, "plan", "one\n")
    damage(store, "UPDATE log SET digest = x'00'")
    store.docs.clear()
    with pytest.raises(SlotQuarantinedError), store.writing() as tx:
        write_runs(tx, slot(store, "plan"), [Run("a", 1, (Splice(0, 0, "x\n"),))], {})


def test_only_the_newest_rescued_texts_are_kept(store, row):
    with store.writing() as tx:
        for number in range(EDITOR_RESCUED_MAX + 2):
            keep_rescued(tx, row, "ana", f"text {number}")
    with store.reading() as connection:
        found = rescued_texts(connection, NAMESPACE, "plan")
    assert len(found) == EDITOR_RESCUED_MAX
    assert found[0].text == f"text {EDITOR_RESCUED_MAX + 1}"


def test_a_row_that_vanished_while_it_was_made_is_an_error(store, row, monkeypatch):
    monkeypatch.setattr("crdtmem.store.editors.find_editor_doc", lambda *_: None)
    create(store, "other", "x\n")
    with pytest.raises(DocError), store.writing() as tx:
        make_editor_doc(tx, slot(store, "other"), place="here")


def test_the_doctor_names_what_is_damaged_and_what_waits(store, row):
    assert findings(store) == [("ok", None)]
    with store.writing() as tx:
        save_blocked(tx.connection, row, "size-limit-exceeded")
    assert findings(store) == [("warn", "plan"), ("ok", None)]
    damage(store, "UPDATE editor_doc SET text = 'other'")
    assert findings(store) == [("fail", "plan")]
    assert findings(store, ["elsewhere"]) == [("ok", None)]
