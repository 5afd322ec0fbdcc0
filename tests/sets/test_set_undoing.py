import pytest

from crdtmem import CompactionPolicy, Summary
from crdtmem.errors import HistoryNotFoundError


def state(handle):
    return {
        item.id: (item.text, item.metadata, item.created_at)
        for item in handle.get().items
    }


def joined(request):
    return [Summary(" | ".join(item.text for item in request.items))]


def added(handle, ids):
    return handle.add("new", ids="n").rev


def updated(handle, ids):
    return handle.update(ids[0], "changed", {"c": True}).rev


def deleted(handle, ids):
    return handle.delete(ids[:2]).rev


def cleared(handle, ids):
    return handle.delete().rev


def dropped(handle, ids):
    return handle.drop().rev


def compacted(handle, ids):
    return handle.compact(CompactionPolicy(joined, capacity=1)).rev


def undone(handle, ids):
    return handle.undo(handle.delete(ids[:1]).rev).rev


OPERATIONS = [added, updated, deleted, cleared, dropped, compacted, undone]


@pytest.fixture
def ids(facts):
    return facts.add(["p", "q", "r"], [{"n": 1}, {}, {}]).ids


@pytest.mark.requirement("sets-H2")
@pytest.mark.parametrize("operation", OPERATIONS)
def test_an_undo_at_once_brings_back_exactly_what_was_there(facts, ids, operation):
    before = state(facts)
    if operation is undone:
        before.pop(ids[0])
    rev = operation(facts, ids)

    result = facts.undo(rev)

    assert state(facts) == before
    assert (result.rev, result.kept) == (rev + 1, ())
    again = facts.undo(rev)
    assert (again.rev, again.restored, again.removed) == (rev + 1, (), ())
    assert set(again.kept) == {*result.restored, *result.removed}
    assert state(facts) == before


@pytest.mark.requirement("sets-H2")
@pytest.mark.parametrize("operation", OPERATIONS)
def test_an_undo_can_be_undone(facts, ids, operation):
    rev = operation(facts, ids)
    after = state(facts)

    facts.undo(facts.undo(rev).rev)

    assert state(facts) == after


@pytest.mark.requirement("sets-H2")
@pytest.mark.parametrize("operation", OPERATIONS)
def test_an_undo_removes_nothing_that_others_wrote_since(
    facts, ids, operation, open_lane
):
    other = open_lane("b").bind(partition_key="k").memory_set("facts")
    before = state(facts)
    if operation is undone:
        before.pop(ids[0])
    rev = operation(facts, ids)
    (late,) = other.add("late").ids

    facts.undo(rev)

    assert state(facts) == before | {late: state(other)[late]}


@pytest.mark.requirement("sets-H2")
@pytest.mark.parametrize("operation", OPERATIONS)
def test_an_item_that_was_written_since_is_left_alone_and_named(
    facts, ids, operation, open_lane
):
    other = open_lane("b").bind(partition_key="k").memory_set("facts")
    rev = operation(facts, ids)
    touched = next(entry.item_id for entry in facts.history(limit=9).entries)
    other.update(touched, "written since", create=True)

    result = facts.undo(rev)

    assert result.kept == (touched,)
    assert touched not in {*result.restored, *result.removed}
    assert state(facts)[touched][0] == "written since"


def test_an_undo_names_what_it_restored_and_removed(facts, ids):
    rev = compacted(facts, ids)
    (summary,) = state(facts)

    result = facts.undo(rev)

    assert set(result.restored) == set(ids)
    assert result.removed == (summary,)


def test_a_summary_that_is_restored_still_says_how_much_it_stands_for(facts, ids):
    compacted(facts, ids)
    facts.undo(facts.delete().rev)

    (item,) = facts.get().items
    assert item.sources == 3


@pytest.mark.parametrize("rev", [0, 2, 99])
def test_a_rev_that_is_not_kept_is_refused(facts, ids, rev, refusal):
    error = refusal(facts.undo, rev)

    assert isinstance(error, HistoryNotFoundError)
    assert error.code == "history-not-found"
    assert f"rev {rev}" in str(error)
    assert "memory set 'facts'" in str(error)


def test_a_set_that_never_was_has_nothing_to_undo(memory, refusal):
    handle = memory.bind(partition_key="k").memory_set("none")

    assert refusal(handle.undo, 1).code == "history-not-found"
    assert refusal(handle.undo, "1").code == "invalid-precondition"
