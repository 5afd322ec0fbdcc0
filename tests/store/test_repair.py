"""crdtmem.store.repair"""

import json
from contextlib import closing

import pytest

import crdtmem
from crdtmem.doc.delta import Splice
from crdtmem.errors import DocError, HistoryError
from crdtmem.store.documents import load_doc
from crdtmem.store.inspection import inspect_slot
from crdtmem.store.repair import LANE, repair_slot
from crdtmem.store.store import Store
from crdtmem.store.write import Change
from tests.conformance.slots import rows_of
from tests.exchange import outgoing, receive
from tests.store.writes import (
    NAMESPACE,
    append,
    create,
    damage,
    entries,
    log,
    own_client,
    quarantined,
    slot,
    value,
)


def repair(store, doc=1):
    with store.writing() as transaction:
        done = repair_slot(transaction, doc)
    store.docs.pop(doc, None)
    with store.reading() as connection:
        assert inspect_slot(connection, doc) == []
    return done


def damage_record(store, lsn):
    damage(store, "UPDATE log SET content = x'00' WHERE lsn = ?", lsn)


@pytest.mark.requirement("P1")
def test_the_text_that_readers_saw_survives_a_damaged_record(store):
    before = append(store, "plan", "one", "two", "three", "four")
    damage_record(store, 3)

    done = repair(store)

    after = slot(store, "plan")
    assert done == "its text was written anew; 2 records went into quarantine"
    assert (after.file, after.rev, after.hash) == (
        before.file,
        before.rev,
        before.hash,
    )
    assert (after.operation, after.lane, after.quarantined) == ("restore", LANE, None)
    assert append(store, "plan", "five").file == f"{before.file}five\n"


def test_what_is_dropped_is_kept_in_quarantine(store):
    append(store, "plan", "one", "two", "three")
    contents = [row.content for row in log(store, "plan")]
    damage_record(store, 2)

    repair(store)

    assert quarantined(store) == [
        ("record-damaged", b"\0"),
        ("record-damaged", contents[2]),
    ]
    assert value(store, "SELECT group_concat(lsn) FROM quarantine") == "2,3"


def test_a_repair_writes_under_new_ids_that_other_replicas_take(store, tmp_path):
    append(store, "plan", "one", "two", "three")
    before = own_client(store)
    with closing(Store(tmp_path / "other.db")) as other:
        receive(other, NAMESPACE, outgoing(store, NAMESPACE))
        damage_record(store, 3)

        repair(store)
        append(store, "plan", "four")
        receive(other, NAMESPACE, outgoing(store, NAMESPACE))

        with store.reading() as connection:
            clocks = load_doc(connection, 1, bytes(16)).clocks
        assert set(clocks) == {before, own_client(store)}
        assert len(clocks) == 2
        # The other has the lost record, and takes the repair as new text.
        lines = slot(other, "plan").file.split()
        assert sorted(lines) == ["four", "one", "three", "three", "two"]
        assert quarantined(other) == []


def test_what_others_write_onto_a_lost_record_is_kept_apart(store, tmp_path):
    append(store, "plan", "one", "two")
    append(store, "other", "one")
    with closing(Store(tmp_path / "other.db")) as other:
        receive(other, NAMESPACE, outgoing(store, NAMESPACE))
        append(other, "plan", "onto the lost")
        append(other, "other", "two")
    damage_record(store, 2)
    repair(store)

    with closing(Store(tmp_path / "other.db")) as other:
        receive(store, NAMESPACE, outgoing(other, NAMESPACE))

    assert slot(store, "plan").file == "one\ntwo\n"
    assert quarantined(store)[-1][0] == "update-origin"
    assert slot(store, "other").file == "one\ntwo\n"


def test_kept_texts_without_their_records_stay_restorable_and_are_not_undoable(store):
    append(store, "plan", "one", "two", "three", "four")
    damage_record(store, 3)
    repair(store)

    with crdtmem.open(store.path, lane="a", project=NAMESPACE) as memory:
        plan = memory.slot("plan")
        history = plan.history().entries
        assert [entry.undoable for entry in history] == [False, False, True, True]
        with pytest.raises(HistoryError) as caught:
            plan.undo(history[0].id)
        assert caught.value.code == "history-not-undoable"
        restored = plan.restore(history[0].id, expected_rev=4)
        assert restored.content == "one\ntwo\nthree"
        assert plan.undo().content == "one\ntwo\nthree\nfour"
        assert plan.undo(history[2].id).content == "one\nthree\nfour"


def test_settings_survive_with_the_text(store):
    meta = {
        "description": "d",
        "sizeLimit": 99,
        "pinned": False,
        "readOnly": True,
        "appendOnly": True,
    }
    before = create(store, "plan", "one\n", meta)
    damage_record(store, 1)

    repair(store)

    after = slot(store, "plan")
    assert after._replace(updated_ms=0, lsn=0, operation="", lane="") == (
        before._replace(updated_ms=0, lsn=0, operation="", lane="")
    )


def test_a_size_limit_that_cannot_be_is_not_taken_from_the_row(store):
    create(store, "plan", "one\n", {"sizeLimit": 99})
    damage_record(store, 2)
    damage(store, "UPDATE slot SET size_limit = -5")

    repair(store)

    assert slot(store, "plan").size_limit == 2000


def test_a_deletion_survives(store):
    append(store, "plan", "one")
    with crdtmem.open(store.path, lane="a", project=NAMESPACE) as memory:
        memory.delete("plan")
    damage_record(store, 2)

    repair(store)

    assert slot(store, "plan").is_deleted


def test_records_that_are_gone_are_replaced_by_the_text_they_gave(store):
    before = append(store, "plan", "one", "two")
    damage(store, "DELETE FROM log WHERE lsn = 2")

    assert repair(store) == "its text was written anew; 0 records went into quarantine"
    assert slot(store, "plan").file == before.file


def test_a_row_that_is_damaged_is_made_of_the_records(store):
    before = append(store, "plan", "one", "two")
    damage(
        store, "UPDATE slot SET file = 'x', hash = 'y', size = 9, rev = 7, lane = ''"
    )

    assert repair(store) == "its row was written anew from its records"
    assert slot(store, "plan") == before


def test_a_row_and_a_record_that_are_damaged_give_the_newest_kept_text(store):
    append(store, "plan", "one", "two", "three")
    damage(store, "UPDATE slot SET file = 'spoilt' || char(10)")
    damage_record(store, 2)

    done = repair(store)

    after = slot(store, "plan")
    assert done == (
        "its newest intact kept text was written anew; 2 records went into quarantine"
    )
    assert (after.file, after.rev) == ("one\ntwo\n", 4)
    newest = entries(store, "plan")[0]
    assert (newest.operation, newest.lane, newest.rev) == ("restore", LANE, 3)
    assert newest.file == "spoilt\n"


def test_a_damaged_state_is_replaced_by_a_fresh_document(store):
    before = append(store, "plan", "one", "two")
    with store.writing() as transaction:
        transaction.connection.execute("DELETE FROM history")
        transaction.squash(before.doc)
    append(store, "plan", "three")
    damage(store, "UPDATE doc SET state = x'00'")
    old = own_client(store)

    repair(store)

    with store.reading() as connection:
        clocks = load_doc(connection, 1, bytes(16)).clocks
    assert slot(store, "plan").file == "one\ntwo\nthree\n"
    assert set(clocks) == {own_client(store)}
    assert own_client(store) != old
    assert [code for code, _ in quarantined(store)] == [
        "state-damaged",
        "record-damaged",
    ]


def test_a_damaged_text_of_a_sound_state_costs_nothing(store):
    before = append(store, "plan", "one", "two")
    with store.writing() as transaction:
        transaction.connection.execute("DELETE FROM history")
        transaction.squash(before.doc)
    append(store, "plan", "three")
    old = own_client(store)
    damage(store, "UPDATE doc SET file = 'x'")

    assert repair(store) == "its row was written anew from its records"
    assert own_client(store) == old
    assert quarantined(store) == []


def test_an_empty_text_is_repaired_too(store):
    append(store, "plan", "one")
    with store.writing() as transaction:
        row = transaction.slot(NAMESPACE, "plan")
        transaction.write_slot(row, NAMESPACE, "plan", emptying(row))
    damage_record(store, 2)

    repair(store)

    assert slot(store, "plan").file == ""


def emptying(row):
    return Change(operation="replace", lane="a", delta=(Splice(0, len(row.file), ""),))


def test_a_repair_that_needs_no_edit_writes_none(store):
    append(store, "plan", "one", "two")
    with crdtmem.open(store.path, lane="a", project=NAMESPACE) as memory:
        memory.slot("plan").undo()
    damage_record(store, 2)
    damage(store, "DELETE FROM log WHERE lsn = 3")

    repair(store)

    assert slot(store, "plan").file == "one\n"
    assert value(store, "SELECT count(*) FROM log") == 1


def test_a_damaged_kept_text_is_made_of_the_records_before_it(store):
    append(store, "plan", "one", "two", "three")
    before = entries(store, "plan")
    damage(store, "UPDATE history SET file = 'x', size = 9 WHERE rev = 1")
    damage(store, "UPDATE history SET hash = 'x' WHERE rev = 2")

    repair(store)

    assert entries(store, "plan") == before


@pytest.mark.parametrize("rev", [0, 2])
def test_a_kept_text_that_nothing_tells_any_more_stays_as_it_is(store, rev):
    append(store, "plan", "one", "two", "three")
    damage(store, "UPDATE history SET file = 'x', hash = 'y' WHERE rev = ?", rev)
    damage_record(store, 1)

    with store.writing() as transaction:
        repair_slot(transaction, 1)

    assert slot(store, "plan").file == "one\ntwo\nthree\n"
    assert {entry.rev: entry.file for entry in entries(store, "plan")}[rev] == "x"


def test_a_kept_text_whose_audit_cannot_be_read_is_left_to_itself(store):
    append(store, "plan", "one", "two")
    before = entries(store, "plan")
    damage(store, "UPDATE audit SET lanes = CAST(x'ff' AS TEXT) WHERE lsn = 1")

    with store.writing() as transaction:
        repair_slot(transaction, 1)

    assert entries(store, "plan") == before


def test_imported_kept_texts_are_left_alone(store, tmp_path):
    source = tmp_path / "f"
    with crdtmem.open(tmp_path / "other.db", lane="b", project="q") as other:
        other.create("plan", "one")
        other.slot("plan").append("two")
        other.export(source)
    with crdtmem.open(store.path, lane="a", project=NAMESPACE) as memory:
        memory.import_(source)
    before = entries(store, "plan")

    repair(store)

    assert entries(store, "plan") == before


@pytest.mark.parametrize("table", ["slot SET label", "doc SET name"])
def test_two_names_of_which_each_could_be_right_end_the_repair(store, table):
    append(store, "plan", "one")
    damage(store, f"UPDATE {table} = 'other'")
    before = rows_of(store.path)

    with pytest.raises(DocError, match="which of its two names is right"):
        repair(store)

    assert rows_of(store.path) == before


@pytest.mark.parametrize("table", ["slot SET label", "doc SET name"])
def test_of_two_names_the_one_that_can_be_is_taken(store, table):
    append(store, "plan", "one")
    damage(store, f"UPDATE {table} = 'Plan!'")

    repair(store)

    assert slot(store, "plan").file == "one\n"


@pytest.mark.parametrize("table", ["slot", "doc"])
def test_without_a_row_nothing_can_be_repaired(store, table):
    append(store, "plan", "one")
    damage(store, f"DELETE FROM {table}")
    before = rows_of(store.path)

    with pytest.raises(DocError, match="is missing"):
        repair(store)

    assert rows_of(store.path) == before


def test_an_audit_that_is_pruned_is_not_missed(store):
    before = append(store, "plan", "one", "two")
    damage(store, "DELETE FROM audit")
    damage(store, "UPDATE slot SET size = 1")

    repair(store)

    assert slot(store, "plan") == before


def test_a_repair_stands_in_the_audit(store):
    append(store, "plan", "one", "two")
    damage_record(store, 2)

    repair(store)

    with store.reading() as connection:
        row = connection.execute(
            "SELECT operation, lanes, rev_before, rev, details FROM audit"
            " ORDER BY lsn DESC LIMIT 1"
        ).fetchall()
    assert row == [("restore", json.dumps([LANE]), 2, 2, '{"dropped": 1}')]
