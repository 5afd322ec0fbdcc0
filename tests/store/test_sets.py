"""crdtmem.store.sets"""

import ast
import re

import pytest

from crdtmem.errors import ItemConflictError
from crdtmem.partition import encode_key
from crdtmem.store.sets import (
    PartitionRow,
    SetPlace,
    count_sets,
    find_items,
    find_set,
    history_of,
    item_from,
    items_after,
    oldest_rev,
    partitions_of,
    rows_since,
    set_of_doc,
    sets_of,
    value_after,
    versions_of,
)
from tests.source import load_package
from tests.store.set_writes import (
    KEY,
    PLACE,
    add,
    change,
    new,
    place_of,
    remove,
    set_row,
)
from tests.store.writes import NAMESPACE, damage

ITEM_TABLES = re.compile(
    r"\b(?:FROM|JOIN|INTO|UPDATE)\s+(?:item|version|item_history)\b"
)


def statements():
    """Yield each string of the product that names a table of items, and its module."""
    for module, source in load_package("crdtmem").items():
        # All SQL stands there: the house's rules see to that.
        if not module.startswith("crdtmem.store"):
            continue
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                sql = " ".join(node.value.split())
                if ITEM_TABLES.search(sql) and not sql.startswith("--"):
                    yield module, sql


@pytest.mark.requirement("sets-S8")
def test_every_statement_over_items_names_the_set_that_they_are_of():
    found = list(statements())

    assert len(found) > 20
    assert [
        (module, sql)
        for module, sql in found
        if not re.search(r"\bdoc = :doc\b", sql)
        and not re.match(r"INSERT INTO \w+ VALUES \(:doc,", sql)
    ] == []


def reading(store, read, *args, **fields):
    with store.reading() as connection:
        return read(connection, *args, **fields)


def test_a_set_is_found_by_key_and_name_and_by_its_doc(store):
    assert reading(store, find_set, PLACE) is None

    row = add(store, "x")

    assert reading(store, find_set, PLACE) == row
    assert reading(store, set_of_doc, row.doc) == row
    assert reading(store, set_of_doc, row.doc + 1) is None
    assert row.place == PLACE
    for other in (
        PLACE._replace(namespace="q"),
        PLACE._replace(key_long=encode_key(("k",))),
        PLACE._replace(name="Notes"),
    ):
        assert reading(store, find_set, other) is None


def test_another_key_of_the_same_short_form_is_a_collision(store):
    place = PLACE._replace(key_long=encode_key("k" * 200))
    row = add(store, "x", place=place)
    damage(store, "UPDATE mset SET key_long = 's.other'")

    with pytest.raises(ItemConflictError) as caught:
        reading(store, find_set, place)

    assert caught.value.code == "partition-key-collision"
    assert row.key_short.startswith("h.")
    assert row.key_short in str(caught.value)


def test_sets_of_a_key_are_listed_by_name_without_dropped_ones(store):
    for name in ("c", "a", "b"):
        add(store, "x", place=place_of(name))
    add(store, "x", place=PLACE._replace(key_long=encode_key(1)))
    change(store, place_of("b"), operation="drop", drops=True)

    names = [row.name for row in reading(store, sets_of, NAMESPACE, KEY, 9)]

    assert names == ["a", "c"]
    assert [r.name for r in reading(store, sets_of, NAMESPACE, KEY, 1)] == ["a"]
    assert reading(store, sets_of, "q", KEY, 9) == []
    assert reading(store, count_sets, NAMESPACE) == 3


def test_partitions_are_counted_and_chosen_by_the_beginning_of_tuples(store):
    for key in ("k", ("j", "a"), ("j", "ab"), ("j",), ("jj", "a")):
        place = SetPlace(NAMESPACE, encode_key(key), "s")
        add(store, "x", "y", place=place)
        add(store, "x", place=place._replace(name="t"))
    change(store, PLACE._replace(name="s"), operation="drop", drops=True)

    every = reading(store, partitions_of, NAMESPACE, 9)
    of_job = reading(store, partitions_of, NAMESPACE, 9, prefix="l(s.j")

    assert every[-1] == PartitionRow("s.k", 1, 1)
    assert PartitionRow("l(s.j)", 2, 3) in every
    assert [row.key_long for row in of_job] == ["l(s.j)", "l(s.j,s.a)", "l(s.j,s.ab)"]
    assert len(reading(store, partitions_of, NAMESPACE, 2)) == 2
    assert reading(store, partitions_of, "q", 9) == []


def test_items_are_found_by_id_in_their_own_set_only(store):
    row = add(store, "x", "y")
    other = add(store, "x", "z", place=place_of("other"))

    assert set(reading(store, find_items, row.doc, ["x", "z", "y", "x"])) == {"x", "y"}
    assert set(reading(store, find_items, other.doc, ["x", "z"])) == {"x", "z"}
    assert reading(store, find_items, row.doc, []) == {}


def test_items_come_by_time_and_id_in_both_orders_from_any_place(store):
    when = {"d": 1, "b": 2, "a": 2, "c": 3}
    row = change(store, puts=[new(one, created_ms=at) for one, at in when.items()])

    def ids(**fields):
        fields = {"newest": True, "limit": 9} | fields
        return [item.id for item in reading(store, items_after, row.doc, **fields)]

    assert ids() == ["c", "b", "a", "d"]
    assert ids(newest=False) == ["d", "a", "b", "c"]
    assert ids(after=(2, "b")) == ["a", "d"]
    assert ids(newest=False, after=(2, "aa")) == ["b", "c"]
    assert ids(limit=2) == ["c", "b"]


def test_versions_of_items_without_conflicts_are_the_items(store):
    row = change(store, puts=[new("x", "1", '{"a":1}', created_ms=4, sources=2)])

    found = reading(store, versions_of, row.doc, ["x", "z"])

    assert list(found) == ["x"]
    assert found["x"][0][2:6] == ("x", "1", '{"a":1}', 4)
    assert found["x"][0].sources == 2


def test_the_history_of_a_set_and_of_an_item_is_read_newest_first(store):
    row = add(store, "x", "y")
    change(store, operation="update", puts=[new("x", "2")], lane="b")
    remove(store, "y")

    def steps(**fields):
        found = reading(store, history_of, row.doc, **{"limit": 9} | fields)
        return [(one.rev, one.n, one.id, one.operation) for one in found]

    assert steps() == [
        (3, 0, "y", "delete"),
        (2, 0, "x", "update"),
        (1, 1, "y", "add"),
        (1, 0, "x", "add"),
    ]
    assert steps(item="y") == [(3, 0, "y", "delete"), (1, 1, "y", "add")]
    assert steps(before=3, limit=1) == [(2, 0, "x", "update")]
    assert steps(item="y", before=3) == [(1, 1, "y", "add")]
    since = reading(store, rows_since, row.doc, 1, until=2)
    assert [(one.rev, one.id) for one in since] == [(1, "x"), (1, "y"), (2, "x")]
    assert len(reading(store, rows_since, row.doc, 2)) == 2


def test_an_item_is_read_as_it_was_after_any_rev(store):
    row = add(store, "x")
    change(store, operation="update", puts=[new("x", "2")])
    remove(store, "x")
    add(store, "x")

    texts = [
        found and found.text
        for rev in range(5)
        if [found := reading(store, value_after, row.doc, "x", rev)]
    ]

    assert texts == [None, "x", "2", None, "x"]
    assert reading(store, value_after, row.doc, "z", 1) is None
    assert item_from(row.doc, "x", "") is None
    assert oldest_rev(row) == 1
    assert set_row(store).rev == 4
