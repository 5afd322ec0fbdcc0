"""Undo: what it takes back, what it leaves, and what it refuses."""

import pytest

from crdtmem.models import UNSET
from tests.replica import exchange_records


def sql(memory, statement, *values):
    with memory.store.writing() as transaction:
        transaction.connection.execute(statement, values)


def ids(memory, label="t"):
    """The ids of the kept entries, oldest first."""
    return [e.id for e in reversed(memory.slot(label).history().entries)]


@pytest.mark.requirement("P4")
def test_undo_takes_back_the_lanes_newest_write_and_keeps_later_ones(memory, other):
    memory.create("t", "a")
    entry = memory.slot("t").append("mine").history_id
    other.slot("t").append("theirs")

    result = memory.slot("t").undo()

    assert (result.content, result.rev, result.changed) == ("a\ntheirs", 3, True)
    assert (result.operation, result.exact, result.dry_run) == ("undo", False, UNSET)
    assert result.undone.to_dict() == {
        "id": entry,
        "operation": "append",
        "lane": "a",
        "at": memory.slot("t").history_entry(entry).at,
        "rev": 0,
    }
    assert result.diff == "--- t@2\n+++ t@3\n@@ -1,3 +1,2 @@\n a\n-mine\n theirs"
    assert memory.audit(limit=1)[0].details == {"target": entry}


@pytest.mark.parametrize(
    "write",
    [
        lambda memory: memory.slot("t").append("x"),
        lambda memory: memory.slot("t").replace("x"),
        lambda memory: memory.slot("t").edit("a", "x"),
        lambda memory: memory.slot("t").insert(0, "x"),
        lambda memory: memory.delete("t"),
        lambda memory: memory.slot("t").restore(ids(memory)[0], expected_rev=1),
    ],
)
@pytest.mark.requirement("P4")
def test_every_kind_of_write_is_undone_to_the_byte(memory, write):
    memory.create("t", "first\nb")
    memory.slot("t").replace("a\nb")
    write(memory)

    result = memory.slot("t").undo()

    assert (result.content, result.exact) == ("a\nb", True)
    assert memory.slot("t").read().content == "a\nb"


def test_undo_walks_back_and_ends(memory, refusal):
    memory.create("t", "0")
    for n in "123":
        memory.slot("t").append(n)

    walked = [memory.slot("t").undo().content for _ in range(3)]
    error = refusal(memory, memory.slot("t").undo)

    assert walked == ["0\n1\n2", "0\n1", "0"]
    assert (error.code, error.details) == (
        "nothing-to-undo",
        {"lane": "a", "label": "t"},
    )
    assert "lane 'a' has no kept write in slot 't'" in error.message
    assert "crdtmem log t" in error.hint


def test_undo_of_an_undo_is_a_redo(memory):
    memory.create("t", "a")
    entry = memory.slot("t").append("b").history_id
    undo = memory.slot("t").undo().history_id

    redone = memory.slot("t").undo(undo)
    again = memory.slot("t").undo()
    shown = {e.id: e for e in memory.slot("t").history().entries}

    assert (redone.content, redone.undone.operation) == ("a\nb", "undo")
    assert (again.content, again.undone.id) == ("a", entry)
    assert shown[undo].undone.id == redone.history_id
    assert shown[entry].undone.id == again.history_id


def test_undo_without_an_id_takes_no_other_lanes_writes(memory, other, refusal):
    memory.create("t", "a")
    entry = other.slot("t").append("theirs").history_id

    assert refusal(memory, memory.slot("t").undo).code == "nothing-to-undo"
    assert memory.slot("t").undo(entry).content == "a"


def test_a_received_batch_is_undone_by_its_id(memory, open_lane, refusal):
    remote = open_lane("a", store="r")
    memory.create("t", "a")
    exchange_records([[memory], [remote]])
    remote.slot("t").append("far")
    remote.slot("t").append("away")
    exchange_records([[memory], [remote]])
    (entry,) = memory.slot("t").history().entries

    assert entry.operation == "sync"
    assert refusal(memory, memory.slot("t").undo).code == "nothing-to-undo"
    assert memory.slot("t").undo(entry.id).content == "a"


def test_a_deleted_slot_comes_back_with_its_settings_also_when_it_was_empty(memory):
    memory.create("t", "", size_limit=9)
    memory.delete("t")

    result = memory.slot("t").undo()

    assert (result.changed, result.rev, result.content) == (True, 2, "")
    assert memory.slot("t").read().size_limit == 9


def test_an_undone_write_is_not_undone_again(memory, refusal):
    memory.create("t", "a")
    entry = memory.slot("t").append("b").history_id
    undo = memory.slot("t").undo(entry).history_id

    error = refusal(memory, memory.slot("t").undo, entry)

    assert (error.code, error.details) == ("already-undone", {"undoneBy": undo})
    assert f"the append {entry} has been undone already" in error.message
    assert f"crdtmem undo t {undo}" in error.hint


def test_a_write_of_which_nothing_is_left_is_marked_all_the_same(memory, refusal):
    memory.create("t", "a")
    entry = memory.slot("t").append("b").history_id
    memory.slot("t").replace("a")

    result = memory.slot("t").undo(entry)
    error = refusal(memory, memory.slot("t").undo, entry)
    shown = {e.id: e for e in memory.slot("t").history().entries}

    assert (result.changed, result.rev, result.diff) == (False, 2, "")
    assert result.history_id is UNSET
    assert (error.code, error.details) == ("already-undone", {"undoneBy": None})
    assert "crdtmem log t" in error.hint
    assert (shown[entry].undoable, shown[entry].undone) == (False, UNSET)


def test_a_creation_is_not_undone(memory, refusal):
    memory.create("t", "a")
    memory.delete("t")
    entry = memory.create("t", "b").history_id

    error = refusal(memory, memory.slot("t").undo, entry)

    assert error.code == "history-not-undoable"
    assert error.details == {"id": entry, "operation": "create"}
    assert f"the create {entry} cannot be undone" in error.message
    assert "crdtmem restore" in error.hint


def test_an_imported_entry_is_not_undone(memory, open_lane, refusal, tmp_path):
    memory.create("t", "a")
    memory.slot("t").append("b")
    memory.export(tmp_path / "f")
    remote = open_lane("a", store="r")
    remote.import_(tmp_path / "f")
    (entry,) = remote.slot("t").history().entries

    assert entry.undoable is False
    assert refusal(remote, remote.slot("t").undo).code == "nothing-to-undo"
    error = refusal(remote, remote.slot("t").undo, entry.id)
    assert error.code == "history-not-undoable"
    assert remote.slot("t").restore(entry.id, expected_rev=1).content == "a"


def test_a_squashed_record_is_not_undone(memory, refusal):
    memory.create("t", "a")
    entry = memory.slot("t").append("b").history_id
    sql(memory, "UPDATE doc SET state_lsn = 99")

    error = refusal(memory, memory.slot("t").undo, entry)

    assert error.code == "history-not-undoable"
    assert "its record is squashed" in error.message
    assert refusal(memory, memory.slot("t").undo).code == "nothing-to-undo"
    assert memory.slot("t").history().entries[0].undoable is False


def test_a_past_that_cannot_be_followed_is_not_undone(memory, refusal):
    memory.create("t", "a")
    entry = memory.slot("t").append("b").history_id
    sql(memory, "UPDATE history SET file = 'z' || char(10)")

    error = refusal(memory, memory.slot("t").undo, entry)

    assert error.code == "history-not-undoable"
    assert "cannot be followed" in error.message


@pytest.mark.parametrize("entry", ["h1-none", "", 5, "h-1", "h99"])
def test_an_unknown_entry_is_not_found(memory, refusal, entry):
    memory.create("t", "a")
    memory.slot("t").append("b")

    assert refusal(memory, memory.slot("t").undo, entry).code == "history-not-found"


def test_an_entry_of_another_slot_scope_or_store_is_not_found(
    memory, open_lane, refusal
):
    memory.create("t", "a")
    memory.create("u", "a")
    memory.create("t", "a", scope="global")
    entries = [
        memory.slot("u").append("b").history_id,
        memory.slot("t", "global").append("b").history_id,
        open_lane(store="r").slot("persona").append("b").history_id,
    ]
    memory.slot("t").append("b")

    for entry in entries:
        assert refusal(memory, memory.slot("t").undo, entry).code == "history-not-found"


def test_an_unwritten_template_has_nothing_to_undo(memory, refusal):
    assert refusal(memory, memory.slot("persona").undo).code == "nothing-to-undo"
    assert (
        refusal(memory, memory.slot("persona").undo, "h1-x").code == "history-not-found"
    )


def test_undo_is_guarded_like_any_write(memory, refusal):
    memory.create("t", "a")
    memory.slot("t").append("b")

    assert refusal(memory, memory.slot("t").undo, expected_rev=0).code == "conflict"
    assert memory.slot("t").undo(expected_rev=1).content == "a"


def test_a_dry_run_shows_the_undo_and_writes_nothing(memory, unchanged):
    memory.create("t", "a")
    memory.slot("t").append("b")

    with unchanged(memory):
        shown = memory.slot("t").undo(dry_run=True)
    done = memory.slot("t").undo()

    assert (shown.dry_run, shown.history_id, shown.rev) == (True, UNSET, 2)
    assert shown.replaced(dry_run=UNSET, history_id=done.history_id) == done


def test_a_dry_run_of_an_undo_without_effect_keeps_the_rev(memory, unchanged):
    memory.create("t", "a")
    entry = memory.slot("t").append("b").history_id
    memory.slot("t").replace("a")

    with unchanged(memory):
        shown = memory.slot("t").undo(entry, dry_run=True)

    assert (shown.changed, shown.rev) == (False, 2)


def test_a_dry_run_makes_every_check(memory, refusal):
    memory.create("t", "x" * 20)
    memory.slot("t").replace("")
    memory.slot("t").set_meta(size_limit=10)

    error = refusal(memory, memory.slot("t").undo, dry_run=True)

    assert (error.code, error.details["size"]) == ("size-limit-exceeded", 20)


def test_an_undo_may_shrink_a_slot_that_is_over_its_limit(memory):
    memory.create("t", "x" * 20)
    memory.slot("t").append("y" * 5)
    memory.slot("t").set_meta(size_limit=10)

    assert memory.slot("t").undo().size == 20


def test_entries_beyond_the_history_are_gone(memory, refusal):
    memory.configure(history_keep=2)
    memory.create("t", "0")
    entry = memory.slot("t").append("1").history_id
    for n in "23":
        memory.slot("t").append(n)

    assert refusal(memory, memory.slot("t").undo, entry).code == "history-not-found"
