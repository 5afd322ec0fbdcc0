import re
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from crdtmem.errors import (
    ItemConflictError,
    ItemNotFoundError,
    SlotQuarantinedError,
)
from crdtmem.sets.writing import new_ids

HALF = "\ud83d"


def texts(page):
    return [item.text for item in page.items]


def test_items_come_back_exactly_as_they_were_added(facts):
    added = ["", "two\n", "  漢 🚀 ", "\0"]
    result = facts.add(added, [{}, {"n": 1}, {"f": 1.0}, {"s": "é"}])

    assert (result.item_count, result.rev, result.durable) == (4, 1, False)
    page = facts.get(result.ids)
    assert texts(page) == added
    assert [item.metadata for item in page.items] == [
        {},
        {"n": 1},
        {"f": 1.0},
        {"s": "é"},
    ]
    assert type(page.items[2].metadata["f"]) is float
    (first, *_) = page.items
    assert first.to_dict() == {
        "id": result.ids[0],
        "set": "facts",
        "text": "",
        "metadata": {},
        "createdAt": first.created_at,
        "updatedAt": first.created_at,
        "lane": "a",
        "rev": 1,
        "size": 0,
    }


def test_equal_texts_are_items_of_their_own_and_made_ids_increase(facts):
    result = facts.add(["same"] * 50)

    assert list(result.ids) == sorted(set(result.ids))
    assert all(re.fullmatch("[0-9a-hjkmnp-tv-z]{20}", one) for one in result.ids)
    assert [item.id for item in facts.get().items] == list(result.ids)[::-1]


@settings(max_examples=20)
@given(st.integers(0, 100), st.integers(0, 2**48 - 2))
def test_made_ids_are_different_and_in_order_of_time(count, now_ms):
    ids = new_ids(count, now_ms)

    assert ids == sorted(set(ids))
    assert len(ids) == count
    assert all(len(one) == 20 for one in ids)
    later = new_ids(1, now_ms + 1)
    assert not ids or ids[-1] < later[0]


def test_nothing_added_writes_nothing(facts, unchanged):
    facts.add("x")
    with unchanged():
        result = facts.add([])

    assert (result.ids, result.rev, result.item_count) == ((), 1, 1)


@pytest.mark.parametrize(
    ("items", "metadatas", "code"),
    [
        (["fine", HALF], None, "invalid-text"),
        (["fine", 7], None, "invalid-text"),
        (["fine", "x" * 65_537], None, "item-too-large"),
        (["fine", "🚀" * 32_769], None, "item-too-large"),
        (["fine", "y"], [{}, {"@x": 1}], "invalid-metadata"),
        (["fine", "y"], [{}], "metadata-mismatch"),
        (["fine"] * 1_001, None, "too-many"),
    ],
)
def test_one_bad_item_refuses_the_whole_call(facts, items, metadatas, code, refusal):
    assert refusal(facts.add, items, metadatas).code == code


def test_ids_of_the_caller_are_taken_if_they_are_free(facts, refusal):
    assert facts.add(["p", "q"], ids=["a.b", "user:1/é"]).ids == ("a.b", "user:1/é")

    for ids, named in ((["new", "a.b"], "a.b"), (["n", "n"], "n")):
        error = refusal(facts.add, ["r", "t"], ids=ids)
        assert isinstance(error, ItemConflictError)
        assert (error.code, error.details["id"]) == ("item-exists", named)
        assert repr(named) in str(error)
    assert facts.delete("a").missing == ("a",)
    facts.delete("a.b")
    facts.add("again", ids="a.b")
    assert texts(facts.get("a.b")) == ["again"]


def test_an_update_changes_what_is_given_and_nothing_else(facts):
    (item,) = facts.add("old", {"t": 1}).ids
    (before,) = facts.get().items

    result = facts.update(item, "new")
    assert (result.id, result.changed, result.created, result.rev) == (
        item,
        True,
        False,
        2,
    )
    (after,) = facts.get().items
    assert (after.text, after.metadata, after.rev) == ("new", {"t": 1}, 2)
    assert after.created_at == before.created_at
    assert after.updated_at > before.updated_at
    assert facts.update(item, metadata={}).rev == 3
    (after,) = facts.get().items
    assert (after.text, after.metadata) == ("new", {})
    assert facts.update(item, "").rev == 4
    assert texts(facts.get()) == [""]


def test_an_update_to_what_is_there_already_writes_nothing(facts, unchanged):
    (item,) = facts.add("same", {"t": 1}).ids
    with unchanged():
        for change in ({"text": "same"}, {"metadata": {"t": 1}}):
            result = facts.update(item, **change)
            assert (result.changed, result.created, result.rev) == (False, False, 1)


def test_an_update_of_nothing_is_refused(facts, refusal):
    error = refusal(facts.update, "x")

    assert error.code == "invalid-argument"
    assert "text or metadata required" in str(error)


def test_an_update_adds_only_where_it_is_told_to(facts, refusal):
    error = refusal(facts.update, "mine", "y")
    assert isinstance(error, ItemNotFoundError)
    assert isinstance(error, LookupError)
    assert "'mine'" in str(error)
    for absent in ("", "x" * 300):
        assert refusal(facts.update, absent, "y").code == "item-not-found"
        code = refusal(facts.update, absent, "y", create=True).code
        assert code == "invalid-argument"
    error = refusal(facts.update, "mine", metadata={}, create=True)
    assert (error.code, error.argument) == ("invalid-argument", "text")
    assert refusal(facts.update, "mine", "y", create=1).code == "invalid-argument"

    result = facts.update("mine", "y", create=True)
    assert (result.created, result.changed, result.rev) == (True, True, 1)
    result = facts.update("mine", metadata={"n": 1}, create=True)
    assert (result.created, result.changed, result.rev) == (False, True, 2)
    (item,) = facts.get("mine").items
    assert (item.text, item.metadata) == ("y", {"n": 1})


def test_an_update_of_another_rev_is_refused_with_the_item_as_it_is(facts, refusal):
    (item,) = facts.add("p").ids
    facts.add("q")
    facts.update(item, "p2")

    error = refusal(facts.update, item, "late", expected_rev=1)

    assert isinstance(error, ItemConflictError)
    assert error.code == "item-conflict"
    assert "at rev 3, not 1" in str(error)
    current: Any = error.details["current"]
    assert (current["text"], error.details["currentRev"]) == ("p2", 3)
    assert facts.update(item, "good", expected_rev=3).rev == 4
    code = refusal(facts.update, item, "x", expected_rev="4").code
    assert code == "invalid-precondition"


def test_with_create_rev_0_stands_for_an_item_that_is_not_there(facts, refusal):
    assert facts.update("i", "x", create=True, expected_rev=0).created

    error = refusal(facts.update, "i", "y", create=True, expected_rev=0)
    assert error.code == "item-conflict"
    error = refusal(facts.update, "j", "y", create=True, expected_rev=3)
    assert (error.code, error.details["current"]) == ("item-conflict", None)
    assert refusal(facts.update, "j", "y", expected_rev=0).code == "item-not-found"


def test_a_delete_takes_the_items_that_are_named_and_names_the_others(facts):
    ids = facts.add(["p", "q", "r"]).ids

    result = facts.delete([ids[1], "none", ids[1], "", "x" * 300])
    assert (result.deleted, result.item_count, result.rev) == (1, 2, 2)
    assert result.missing == ("none", "", "x" * 300)
    assert texts(facts.get(order="oldest")) == ["p", "r"]
    assert facts.delete(ids[0]).deleted == 1


def test_an_empty_list_of_ids_deletes_nothing_and_none_deletes_all(facts, unchanged):
    facts.add(["p", "q"])
    with unchanged():
        assert facts.delete([]).deleted == 0
        assert facts.delete(["none"]).deleted == 0

    result = facts.delete()
    assert (result.deleted, result.item_count, result.rev) == (2, 0, 2)
    with unchanged():
        assert facts.delete().deleted == 0


def test_a_drop_deletes_all_and_a_later_write_brings_the_set_back(facts, memory):
    facts.add(["p", "q"])

    result = facts.drop()
    assert (result.existed, result.deleted, result.item_count) == (True, 2, 0)
    assert not facts.drop().existed
    assert facts.add("r").rev == result.rev + 1
    assert texts(facts.get()) == ["r"]
    facts.delete()
    result = facts.drop()
    assert (result.existed, result.deleted) == (True, 0)
    assert memory.partitions() == []


@pytest.mark.parametrize(
    "ids",
    ["foreign", ["foreign"], ["never"]],
)
def test_an_id_of_another_set_or_key_is_absent_like_one_that_never_was(
    memory, facts, ids, refusal
):
    bound = memory.bind(partition_key="k")
    for foreign in (
        memory.bind(partition_key="other").memory_set("facts"),
        bound.memory_set("g"),
        memory.bind(partition_key="k", scope="global").memory_set("facts"),
    ):
        foreign.add("secret", ids="foreign")
    name = ids if isinstance(ids, str) else ids[0]

    assert facts.get(ids).items == ()
    assert facts.get(ids).missing == (name,)
    assert facts.delete(ids).missing == (name,)
    assert facts.history(name).entries == ()
    error = refusal(facts.update, name, "x")
    assert str(error) == f"no item {name!r} in memory set 'facts'"


def test_a_damaged_set_is_read_and_not_written(memory, facts, refusal):
    facts.add("kept")
    with memory.store.writing() as transaction:
        transaction.connection.execute("UPDATE mset SET quarantined = 'it is bad'")

    assert texts(facts.get()) == ["kept"]
    for verb, *args in (
        (facts.add, "x"),
        (facts.delete,),
        (facts.drop,),
        (facts.undo, 1),
        (facts.update, "x", "y"),
    ):
        error = refusal(verb, *args)
        assert isinstance(error, SlotQuarantinedError)
        assert str(error) == "memory set 'facts' is quarantined: it is bad"


def test_what_another_lane_writes_is_seen_at_once(facts, open_lane):
    other = open_lane("b").bind(partition_key="k").memory_set("facts")
    (item,) = other.add("from b").ids

    (found,) = facts.get(item).items
    assert (found.text, found.lane) == ("from b", "b")
    facts.update(item, "from a")
    assert other.get(item).items[0].lane == "a"


def test_a_handle_for_reading_writes_nothing(facts, open_lane):
    facts.add("x")
    reader = open_lane("b", read_only=True).bind(partition_key="k").memory_set("facts")

    assert texts(reader.get()) == ["x"]
    assert texts(reader.as_of(1)) == ["x"]
    with pytest.raises(Exception, match="read"):
        reader.add("y")
