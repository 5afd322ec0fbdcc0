"""crdtmem.store.inspection"""

import pytest

from crdtmem.store.inspection import Problem, docs_in, inspect_slot, names_of
from crdtmem.store.store import Store
from tests.exchange import outgoing, receive
from tests.store.writes import NAMESPACE, append, create, damage, slot


@pytest.fixture
def sealed(store, tmp_path):
    """A store that has given its records away, two of them of one slot."""
    append(store, "plan", "one", "two")
    with_another = Store(tmp_path / "other.db")
    receive(with_another, NAMESPACE, outgoing(store, NAMESPACE))
    with_another.close()
    return store


def inspect(store, doc=1):
    with store.reading() as connection:
        return inspect_slot(connection, doc)


def test_a_slot_that_was_given_away_and_taken_in_is_sound(sealed, tmp_path):
    with_another = Store(tmp_path / "other.db")

    assert inspect(sealed) == inspect(with_another) == []
    with_another.close()


def test_a_doc_whose_records_were_all_refused_is_no_damage(store):
    with store.writing() as transaction:
        transaction.connection.execute(
            "INSERT INTO doc(doc, namespace, kind, name) VALUES (9, 'p', 1, 'refused')"
        )

    assert inspect(store, 9) == []


def test_records_without_a_row_are_found(store):
    append(store, "plan", "one")
    damage(store, "DELETE FROM slot")

    assert inspect(store) == [Problem("slot-text", "it has records and no row")]


def test_docs_are_found_by_both_tables_that_name_them(store):
    append(store, "plan", "one")
    append(store, "other", "one")
    damage(store, "UPDATE slot SET namespace = 'q' WHERE doc = 1")
    damage(store, "UPDATE doc SET namespace = 'q' WHERE doc = 2")

    with store.reading() as connection:
        assert docs_in(connection, None) == [1, 2]
        assert docs_in(connection, ["p"]) == [1, 2]
        assert docs_in(connection, ["q", "p"]) == [1, 2]
        assert docs_in(connection, ["r"]) == []
        assert names_of(connection, 1) == ("q", "plan")
        assert names_of(connection, 7) is None


def test_a_checkpoint_that_was_never_made_is_empty(store):
    append(store, "plan", "one")
    damage(store, "UPDATE doc SET genesis = '{\"1\": 2}'")

    assert inspect(store) == [Problem("records", "it has half a checkpoint")]


def test_a_record_that_the_checkpoint_holds_already_is_found(store):
    row = append(store, "plan", "one", "two")
    with store.writing() as transaction:
        transaction.connection.execute("DELETE FROM history")
        transaction.squash(row.doc)
    damage(
        store,
        "INSERT INTO log VALUES (1, 1, x'', NULL, NULL, 0, 'a', 0, 'append', x'', '[]',"
        " NULL, x'', NULL)",
    )

    assert Problem("records", "record 1 is older than the checkpoint") in inspect(store)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            "UPDATE log SET place = NULL WHERE lsn = 2",
            "record 2 has half of its number",
        ),
        (
            "UPDATE log SET replica_seq = 1 WHERE lsn = 2",
            "record 2 has the number of an earlier one",
        ),
        ("DELETE FROM stream", "has given None, and not 2 records"),
        ("UPDATE stream SET max_seq = 1", "has given 1, and not 2 records"),
    ],
)
def test_a_number_that_cannot_be_is_found(sealed, change, message):
    damage(sealed, change)

    (problem,) = inspect(sealed)
    assert problem.check == "records"
    assert problem.message.endswith(message)


def test_a_record_that_went_up_within_a_state_has_no_place(sealed):
    damage(sealed, "UPDATE log SET replica_seq = 1, place = -1 WHERE lsn = 2")

    assert inspect(sealed) == []


def test_a_row_without_its_audit_is_sound_once_that_is_pruned(store):
    append(store, "plan", "one")
    append(store, "other", "one")
    damage(store, "DELETE FROM audit WHERE lsn = 1")

    assert inspect(store) == []


def test_a_row_without_its_audit_is_a_fault_before_that(store):
    append(store, "plan", "one")
    append(store, "other", "one")
    damage(store, "DELETE FROM audit WHERE lsn = 2")

    assert inspect(store, 2) == [
        Problem("slot-text", "step 2, which its row names as the newest, is no change")
    ]


def test_a_store_without_any_audit_is_sound(store):
    append(store, "plan", "one")
    damage(store, "DELETE FROM audit")

    assert inspect(store) == []


def test_a_row_that_stands_behind_its_records_is_found(store):
    append(store, "plan", "one", "two")
    damage(store, "UPDATE slot SET lsn = 1")

    assert Problem(
        "records", "its row stands at step 1, and its newest record is 2"
    ) in inspect(store)


def test_a_past_that_is_gone_is_found(store):
    append(store, "plan", "one")
    damage(store, "DELETE FROM history")

    assert inspect(store) == [Problem("history", "no text before rev 1 is kept")]


def test_a_gap_in_the_past_is_found(store):
    append(store, "plan", "one", "two", "three")
    damage(store, "DELETE FROM history WHERE rev = 1")

    (problem,) = inspect(store)
    assert problem.check == "history"
    assert problem.message.endswith("is of rev 0, where rev 1 is due")


def test_what_is_said_of_a_fault_holds_no_text(store):
    create(store, "plan", "secret\n")
    append(store, "plan", "secret")
    damage(store, "UPDATE slot SET file = 'secret, too'")
    damage(store, "UPDATE history SET file = CAST(x'ff736563726574' AS TEXT)")
    damage(store, "UPDATE log SET delta = '[\"secret\"]'")

    problems = inspect(store)

    assert {problem.check for problem in problems} == {
        "slot-text",
        "records",
        "history",
    }
    assert "secret" not in repr(problems)
    assert slot(store, "plan").quarantined is None
