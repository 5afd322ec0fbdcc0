from datetime import UTC, datetime

import pytest

from crdtmem.errors import InvalidArgumentError
from crdtmem.limits import (
    ITEM_ID_BYTES,
    SET_CALL_BYTES,
    SET_CALL_IDS_MAX,
    SET_CALL_ITEMS_MAX,
)
from crdtmem.sets.arguments import (
    checked_filters,
    checked_id,
    checked_ids,
    checked_items,
    checked_new_ids,
    checked_observation_id,
    checked_observe,
    checked_order,
    checked_text,
)

HALF = "\ud83d"


def refused(check, *values):
    with pytest.raises(InvalidArgumentError) as caught:
        check(*values)
    return caught.value


@pytest.mark.parametrize("value", [7, None, b"x", ["x"]])
def test_a_text_is_text(value):
    error = refused(checked_text, value)

    assert (error.code, error.argument) == ("invalid-text", "text")
    assert type(value).__name__ in str(error)


def test_half_a_surrogate_pair_is_no_text():
    error = refused(checked_text, f"ab{HALF}")

    assert error.details == {
        "argument": "text",
        "reason": "lone-surrogate",
        "position": 2,
    }


def test_one_text_is_a_list_of_one_and_the_empty_text_is_one():
    assert checked_items("", None) == [("", "")]
    assert checked_items(("a", "b"), {"n": 1}) == [("a", '{"n":1}'), ("b", '{"n":1}')]
    assert checked_items([], None) == []


@pytest.mark.parametrize("items", [None, 7, b"x", {"a": 1}, {"a"}, ["x", None]])
def test_what_is_no_list_of_texts_is_refused(items):
    assert refused(checked_items, items, None).code == "invalid-text"


@pytest.mark.parametrize("metadatas", ["x", b"x", 7, [7], ["x"]])
def test_what_is_no_metadata_is_refused(metadatas):
    assert refused(checked_items, "x", metadatas).code == "invalid-metadata"


@pytest.mark.parametrize(("given", "count"), [([], 1), ([{}, {}], 1), ([{}], 2)])
def test_metadata_that_does_not_fit_the_items_is_refused_with_both_numbers(
    given, count
):
    error = refused(checked_items, ["x"] * count, given)

    assert error.code == "metadata-mismatch"
    assert f"{len(given)} for {count} items" in str(error)


def test_a_call_with_too_many_items_is_refused_with_both_numbers():
    assert len(checked_items(["x"] * SET_CALL_ITEMS_MAX, None)) == SET_CALL_ITEMS_MAX
    error = refused(checked_items, ["x"] * (SET_CALL_ITEMS_MAX + 1), None)

    assert error.code == "too-many"
    assert "1001 > 1000" in str(error)


def test_a_call_with_too_much_text_is_refused_unless_one_item_alone_is_too_large():
    texts = ["x" * 65_536] * (SET_CALL_BYTES // 65_536)
    assert len(checked_items(texts, None)) == 12
    error = refused(checked_items, [*texts, "é"], None)

    assert error.code == "too-many"
    assert f"{SET_CALL_BYTES + 2} > {SET_CALL_BYTES}" in str(error)
    assert checked_items("x" * (SET_CALL_BYTES + 1), None)
    assert checked_items("x", {"m": "x" * SET_CALL_BYTES})


def test_ids_of_new_items_are_one_for_each():
    assert checked_new_ids(None, 3) is None
    assert checked_new_ids("a", 1) == ["a"]
    error = refused(checked_new_ids, ["a"], 2)
    assert (error.code, error.argument) == ("metadata-mismatch", "ids")
    assert refused(checked_new_ids, 7, 1).code == "invalid-argument"


def test_an_id_has_its_bounds_in_bytes():
    longest = "é" * (ITEM_ID_BYTES // 2)

    assert checked_id(longest) == longest
    for value in (f"{longest}x", "", HALF, 7, None):
        error = refused(checked_id, value)
        assert (error.code, error.argument) == ("invalid-argument", "id")


def test_ids_that_no_item_can_have_are_asked_for_like_others():
    assert checked_ids(None) is None
    assert checked_ids("") == [""]
    assert checked_ids(["b", "x" * 300, "b"]) == ["b", "x" * 300]
    assert refused(checked_ids, [HALF]).code == "invalid-argument"
    assert refused(checked_ids, {"a": 1}).code == "invalid-argument"
    error = refused(checked_ids, ["a"] * (SET_CALL_IDS_MAX + 1))
    assert error.code == "too-many"
    assert "10001 > 10000" in str(error)


def test_an_order_is_one_of_two():
    assert [checked_order(one) for one in ("newest", "oldest")] == ["newest", "oldest"]
    assert "not 'best'" in str(refused(checked_order, "best"))


def test_kinds_that_are_observed_are_known_ones():
    assert checked_observe(()) == frozenset()
    assert checked_observe(["get", "update"]) == {"get", "update"}
    for value in ("get", b"get", None, ["get", "put"]):
        assert refused(checked_observe, value).argument == "observe"
    assert checked_observation_id("") == ""
    assert refused(checked_observation_id, None).argument == "observation_id"


def test_times_in_filters_may_be_aware_datetimes():
    moment = datetime(2026, 1, 2, 3, 4, 5, 678_900, tzinfo=UTC)

    assert checked_filters(None) is None
    assert checked_filters({"$or": [{"@created_at": {"$gte": moment}}]}) == {
        "$or": [{"@created_at": {"$gte": "2026-01-02T03:04:05.679Z"}}]
    }
    naive = {"@created_at": moment.replace(tzinfo=None)}
    assert refused(checked_filters, naive).code == "invalid-filter"


def test_a_filter_that_is_too_deep_is_refused():
    value: dict[str, object] = {}
    deep = value
    for _ in range(10_000):
        value["$not"] = value = {}

    assert refused(checked_filters, deep).code == "invalid-filter"
