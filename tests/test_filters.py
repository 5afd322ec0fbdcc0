"""crdtmem.filters"""

import json
import math
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from crdtmem.errors import InvalidArgumentError
from crdtmem.filters import (
    FilterItem,
    check,
    checked_metadata,
    is_metadata,
    matches,
    metadata_of,
)

NAMES = st.text(
    st.characters(exclude_categories=["Cs"]), min_size=1, max_size=8
).filter(lambda name: name[0] not in "@$")
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3)
    ),
    max_leaves=4,
)
METADATA = st.dictionaries(NAMES, VALUES, max_size=4)
# Few and alike, so that they often meet.
FEW = st.sampled_from([None, True, False, 0, 1, 1.0, 2, -0.0, "", "1", "a", "ab"])
SOME = FEW | st.lists(FEW, max_size=2) | st.dictionaries(st.just("x"), FEW)
ITEMS = st.builds(
    FilterItem,
    st.sampled_from(["i", "j"]),
    st.sampled_from(["a", "b"]),
    st.just("2026-01-01T00:00:00.000Z"),
    st.sampled_from(["2026-01-01T00:00:00.000Z", "2026-01-01T00:00:00.001Z"]),
    st.dictionaries(st.sampled_from("fg"), SOME),
)
FIELDS = st.sampled_from(["f", "g", "@id", "@lane", "@created_at", "@updated_at"])
COMPARISONS = st.one_of(
    *(st.tuples(st.just(op), FEW | SOME) for op in ("$eq", "$ne", "$contains")),
    *(
        st.tuples(st.just(op), st.sampled_from([0, 1, 1.5, "", "a", "2026"]))
        for op in ("$gt", "$gte", "$lt", "$lte")
    ),
    *(st.tuples(st.just(op), st.lists(SOME, max_size=3)) for op in ("$in", "$nin")),
    st.tuples(st.just("$exists"), st.booleans()),
)
FILTERS = st.recursive(
    st.dictionaries(
        FIELDS,
        SOME | st.lists(COMPARISONS, min_size=1, max_size=2).map(dict),
        max_size=2,
    ),
    lambda inner: (
        st.builds(lambda one: {"$not": one}, inner)
        | st.builds(
            lambda op, several: {op: several},
            st.sampled_from(["$and", "$or"]),
            st.lists(inner, min_size=1, max_size=2),
        )
    ),
    max_leaves=3,
)
ITEM = FilterItem(
    "id1",
    "lane a",
    "2026-01-01T00:00:00.000Z",
    "2026-01-02T00:00:00.000Z",
    {"n": 1, "s": "abc", "b": True, "z": None, "l": [1, "x", [2]], "o": {"x": 1}},
)


def typed(value):
    """Return a value as JSON tells it from others: booleans apart from numbers."""
    if isinstance(value, dict):
        return "object", frozenset((name, typed(one)) for name, one in value.items())
    if isinstance(value, list):
        return "list", tuple(map(typed, value))
    if isinstance(value, bool) or value is None or isinstance(value, str):
        return type(value).__name__, value
    return "number", value


def plainly_holds(operator, present, found, wanted):
    """Decide one comparison by the table, in the plainest way."""
    same = present and typed(found) == typed(wanted)
    is_one = (
        present and operator in ("$in", "$nin") and typed(found) in map(typed, wanted)
    )
    kinds = typed(found)[0], typed(wanted)[0]
    ordered = present and kinds in (("number", "number"), ("str", "str"))
    answers = {
        "$eq": lambda: same,
        "$ne": lambda: not same,
        "$in": lambda: is_one,
        "$nin": lambda: not is_one,
        "$exists": lambda: present == wanted,
        "$gt": lambda: ordered and found > wanted,
        "$gte": lambda: ordered and found >= wanted,
        "$lt": lambda: ordered and found < wanted,
        "$lte": lambda: ordered and found <= wanted,
        "$contains": lambda: (
            present
            and (
                (kinds == ("str", "str") and wanted in found)
                or (kinds[0] == "list" and typed(wanted) in map(typed, found))
            )
        ),
    }
    return answers[operator]()


def plainly_matches(filters, item):
    """Say by the table whether a filter holds: the oracle."""
    fields = {
        **item.metadata,
        "@id": item.id,
        "@lane": item.lane,
        "@created_at": item.created_at,
        "@updated_at": item.updated_at,
    }
    for name, wanted in filters.items():
        if name == "$and":
            holds = all(plainly_matches(one, item) for one in wanted)
        elif name == "$or":
            holds = any(plainly_matches(one, item) for one in wanted)
        elif name == "$not":
            holds = not plainly_matches(wanted, item)
        else:
            is_operators = isinstance(wanted, dict) and any(
                key.startswith("$") for key in wanted
            )
            comparisons = wanted if is_operators else {"$eq": wanted}
            holds = all(
                plainly_holds(op, name in fields, fields.get(name), value)
                for op, value in comparisons.items()
            )
        if not holds:
            return False
    return True


@pytest.mark.requirement("sets-Q5")
@given(FILTERS, ITEMS)
def test_a_filter_chooses_what_the_table_says(filters, item):
    assert matches(check(filters), item) == plainly_matches(filters, item)


@pytest.mark.parametrize(
    ("filters", "holds"),
    [
        ({}, True),
        ({"n": 1}, True),
        ({"n": 1.0}, True),
        ({"n": True}, False),
        ({"b": 1}, False),
        ({"n": "1"}, False),
        ({"z": None}, True),
        ({"absent": None}, False),
        ({"l": [1.0, "x", [2]]}, True),
        ({"l": [1, "x"]}, False),
        ({"o": {"x": 1}}, True),
        ({"o": {}}, False),
        ({"o": {"x": True}}, False),
        ({"s": {"$contains": "bc"}}, True),
        ({"s": {"$contains": ""}}, True),
        ({"s": {"$contains": 1}}, False),
        ({"n": {"$contains": 1}}, False),
        ({"l": {"$contains": [2]}}, True),
        ({"l": {"$contains": True}}, False),
        ({"n": {"$gt": 0, "$lt": 2}}, True),
        ({"n": {"$gt": 1}}, False),
        ({"n": {"$gte": 1, "$lte": 1}}, True),
        ({"s": {"$gt": 0}}, False),
        ({"s": {"$lt": 0}}, False),
        ({"b": {"$gte": 0}}, False),
        ({"s": {"$gt": "abb"}}, True),
        ({"absent": {"$ne": 1, "$nin": [1], "$exists": False}}, True),
        ({"absent": {"$eq": None}}, False),
        ({"n": {"$in": [True, "1"]}}, False),
        ({"n": {"$in": [2, 1.0]}}, True),
        ({"n": {"$in": []}}, False),
        ({"@id": "id1", "@lane": {"$contains": "a"}}, True),
        ({"@created_at": {"$lt": "2026-01-02"}}, True),
        ({"@updated_at": {"$lt": "2026-01-02"}}, False),
        ({"@lane": {"$exists": False}}, False),
        ({"$or": [{"n": 2}, {"$and": [{"n": 1}, {"$not": {"s": "x"}}]}]}, True),
        ({"$not": {}}, False),
        (MappingProxyType({"n": 1}), True),
    ],
)
def test_a_filter_holds_by_type_and_value(filters, holds):
    assert matches(check(filters), ITEM) == holds


def nested(levels):
    filters: Any = {"a": 1}
    for _ in range(levels - 1):
        filters = {"$not": filters}
    return filters


def deep(levels):
    value: Any = {}
    for _ in range(levels - 1):
        value = {"a": value}
    return value


@pytest.mark.parametrize(
    "filters",
    [
        nested(8),
        {f"f{n}": n for n in range(64)},
        {"$or": [{"a": n} for n in range(64)]},
        {"a": {"$in": list(range(1_000))}},
        {"a": deep(8)},
    ],
)
def test_a_filter_may_be_as_large_as_its_bounds(filters):
    assert check(filters) is filters


@pytest.mark.parametrize(
    ("filters", "wanted"),
    [
        (None, "an object, not a value of type NoneType"),
        ([], "an object, not a value of type list"),
        ("a", "an object, not a value of type str"),
        ({1: 1}, "of names of metadata"),
        ({"": 1}, "of names of metadata"),
        ({"a" * 129: 1}, "of names of metadata"),
        ({"@set": 1}, "not '@set'"),
        ({"$nor": [{}]}, "not '$nor'"),
        ({"$and": []}, "a list of filters after $and, and not empty"),
        ({"$or": {"a": 1}}, "a list of filters after $or"),
        ({"$or": [1]}, "an object, not a value of type int"),
        ({"$not": [{}]}, "an object, not a value of type list"),
        ({"a": {"$like": 1}}, "not '$like'"),
        ({"a": {"$gt": 1, "b": 2}}, "not 'b'"),
        ({"a": {"$gt": None}}, "numbers and texts after $gt"),
        ({"a": {"$lte": True}}, "numbers and texts after $lte"),
        ({"a": {"$in": "abc"}}, "lists after $in"),
        ({"a": {"$nin": {"x": 1}}}, "lists after $nin"),
        ({"a": {"$exists": 1}}, "bools after $exists"),
        ({"a": {"$eq": math.nan}}, "finite numbers"),
        ({"a": math.inf}, "finite numbers"),
        ({"a": {1, 2}}, "not a value of type set"),
        ({"a": "x\ud800"}, "lone surrogates"),
        ({"a": 2**63}, "64 bits"),
        ({"a": deep(9)}, "8 deep"),
        ({"a": {"b": {"$gt": 1}}}, "an object whose names"),
        (nested(9), "at most 8 deep"),
        ({f"f{n}": n for n in range(65)}, "at most 64 conditions"),
        ({"$or": [{}] * 65}, "at most 64 conditions"),
        (
            {"a": dict.fromkeys(["$eq", "$ne"], 1)} | {f"f{n}": n for n in range(63)},
            "64",
        ),
    ],
)
def test_a_malformed_filter_is_refused(filters, wanted):
    with pytest.raises(InvalidArgumentError) as refused:
        check(filters)

    assert refused.value.code == "invalid-filter"
    assert wanted in refused.value.message


@settings(max_examples=settings().max_examples // 2)
@given(METADATA)
def test_metadata_comes_back_with_its_types(metadata):
    text = checked_metadata(metadata)

    assert repr(metadata_of(text)) == repr(dict(sorted_through(metadata)))
    assert is_metadata(text)
    assert checked_metadata(metadata_of(text)) == text


def sorted_through(value):
    """Return a value with the members of every object in the order of their names."""
    if isinstance(value, dict):
        return {name: sorted_through(value[name]) for name in sorted(value)}
    if isinstance(value, list):
        return [sorted_through(one) for one in value]
    return value


def test_metadata_is_written_in_one_way():
    assert checked_metadata({}) == ""
    assert checked_metadata(MappingProxyType({"b": 1.0, "a": ["é", -0.0, None]})) == (
        '{"a":["é",-0.0,null],"b":1.0}'
    )


@pytest.mark.parametrize(
    ("metadata", "wanted"),
    [
        (None, "an object, not a value of type NoneType"),
        (7, "an object, not a value of type int"),
        ([], "an object, not a value of type list"),
        ({"": 1}, "names have 1 to 128 characters"),
        ({"@x": 1}, "names have 1 to 128 characters"),
        ({"$x": 1}, "names have 1 to 128 characters"),
        ({"a" * 129: 1}, "names have 1 to 128 characters"),
        ({1: 1}, "names have 1 to 128 characters"),
        ({"\ud800": 1}, "names have 1 to 128 characters"),
        ({"x": {"$y": 1}}, "names have 1 to 128 characters"),
        ({"x": math.nan}, "finite numbers, not nan"),
        ({"x": [-math.inf]}, "finite numbers, not -inf"),
        ({"x": 2**63}, "whole numbers of 64 bits"),
        ({"x": -(2**63) - 1}, "whole numbers of 64 bits"),
        ({"x": "a\udfff"}, "text without lone surrogates"),
        ({"x": (1,)}, "not a value of type tuple"),
        ({"x": b""}, "not a value of type bytes"),
        (deep(9), "at most 8 deep"),
    ],
)
def test_what_is_no_metadata_is_refused(metadata, wanted):
    with pytest.raises(InvalidArgumentError) as refused:
        checked_metadata(metadata, "metadatas")

    assert refused.value.code == "invalid-metadata"
    assert refused.value.argument == "metadatas"
    assert wanted in refused.value.message


def test_metadata_may_be_as_deep_and_its_numbers_as_large_as_their_bounds():
    value = deep(8) | {"n" * 128: [2**63 - 1, -(2**63)]}

    assert metadata_of(checked_metadata(value)) == value


@pytest.mark.parametrize(
    "text",
    [
        None,
        7,
        "{}",
        "[]",
        "1",
        "{",
        '{"a": 1}',
        '{"b":1,"a":1}',
        '{"a":1,"a":1}',
        '{"a":1e400}',
        '{"a":NaN}',
        '{"a":"\\u00e9"}',
        '{"a":"\\ud800"}',
        '{"$a":1}',
        '{"a":9223372036854775808}',
        f'{{"a":{"9" * 5_000}}}',
        json.dumps(deep(9), separators=(",", ":")),
        '{"a":' + "[" * 100_000,
    ],
)
def test_text_from_elsewhere_that_is_no_metadata_is_known(text):
    assert not is_metadata(text)


def test_no_metadata_is_the_empty_text():
    assert is_metadata("")
    assert metadata_of("") == {}
