import itertools
import json
import subprocess
import sys

import pytest
from hypothesis import given, settings, strategies as st

import crdtmem
from crdtmem.filters import FilterItem, check, matches
from crdtmem.headroom import percent_used
from crdtmem.limits import SET_ITEMS_MAX, SET_SIZE_UNITS, SET_STATE_BYTES
from crdtmem.sets import reading
from crdtmem.sets.reading import headroom_fields
from crdtmem.store.sets import SetRow
from tests.conftest import PROFILE
from tests.replica import exchange_records


def texts(page):
    return [item.text for item in page.items]


def pages(handle, **options):
    """Return the texts of all pages, each as a list."""
    found, cursor = [], None
    while True:
        page = handle.get(cursor=cursor, **options)
        found.append(texts(page))
        if not page.more:
            assert page.cursor is crdtmem.UNSET
            return found
        cursor = page.cursor


def test_ids_are_answered_in_their_order_each_once(facts):
    ids = facts.add(["p", "q", "r"]).ids

    page = facts.get([ids[2], "none", ids[0], ids[2]], limit=1, order="oldest")
    assert texts(page) == ["r", "p"]
    assert (page.missing, page.more) == (("none",), False)
    assert facts.get([]).items == facts.get([]).missing == ()
    assert facts.get().missing is crdtmem.UNSET


def test_a_page_has_the_newest_first_and_a_cursor_leads_on(facts):
    for text in "abc":
        facts.add(text)
    facts.add(["d", "e"])

    assert pages(facts) == [["e", "d", "c", "b", "a"]]
    assert pages(facts, limit=2) == [["e", "d"], ["c", "b"], ["a"]]
    assert pages(facts, limit=2, order="oldest") == [["a", "b"], ["c", "d"], ["e"]]
    assert facts.get(limit=5).more is False


def test_a_cursor_goes_on_exactly_while_items_come_and_go(facts):
    ids = facts.add(["a", "b", "c", "d"]).ids
    page = facts.get(limit=2, order="oldest")
    facts.delete([ids[0], ids[1], ids[2]])
    facts.add("e")

    assert texts(facts.get(order="oldest", cursor=page.cursor)) == ["d", "e"]
    page = facts.get(limit=1)
    facts.add("f")
    assert texts(facts.get(cursor=page.cursor)) == ["d"]


def test_a_cursor_is_of_one_set_and_order(memory, facts, refusal):
    facts.add(["a", "b"])
    cursor = facts.get(limit=1).cursor
    other = memory.bind(partition_key="k").memory_set("g")
    key = memory.bind(partition_key="j").memory_set("facts")
    space = memory.bind(partition_key="k", scope="global").memory_set("facts")
    damaged = cursor[:-2]
    nothing = cursor[:3] + json.dumps(["x", "y"]).encode().hex()

    for handle, wrong in (
        (other, cursor),
        (key, cursor),
        (space, cursor),
        *((facts, wrong) for wrong in (damaged, nothing, "", "s1-zz", 7, "s1-3331")),
    ):
        error = refusal(handle.get, cursor=wrong)
        assert (error.code, error.argument) == ("invalid-cursor", "cursor")
    assert refusal(facts.get, order="oldest", cursor=cursor).code == "invalid-cursor"
    assert refusal(facts.as_of, 1, cursor=cursor).code == "invalid-cursor"
    wanted = "cursor must be one of memory set 'facts' in this order, not 7"
    assert str(refusal(facts.get, cursor=7)) == wanted
    assert refusal(facts.get, cursor=_with_place(cursor, "x", 1)).code


def _with_place(cursor, *place):
    digest, *_ = json.loads(bytes.fromhex(cursor.removeprefix("s1-")))
    return "s1-" + json.dumps([digest, *place]).encode().hex()


@pytest.mark.parametrize("limit", [0, -1, 10_001, True, None, "1"])
def test_a_limit_has_its_bounds(facts, limit, refusal):
    for verb, *args in ((facts.get,), (facts.as_of, 0)):
        error = refusal(verb, *args, limit=limit)
        assert (error.code, error.argument) == ("invalid-argument", "limit")


def test_ids_and_filters_are_not_given_together(facts, refusal):
    error = refusal(facts.get, ["x"], {"a": 1})

    assert (error.code, error.argument) == ("invalid-argument", "filters")


def test_filters_choose_items_across_pages(facts, monkeypatch):
    monkeypatch.setattr(reading, "_BATCH_ROWS", 3)
    facts.add([str(n) for n in range(10)], [{"even": n % 2 == 0} for n in range(10)])

    assert pages(facts, filters={"even": True}, limit=2, order="oldest") == [
        ["0", "2"],
        ["4", "6"],
        ["8"],
    ]
    assert pages(facts, filters={"even": 1}) == [[]]
    assert pages(facts, filters={}, limit=6) == [list("987654"), list("3210")]


def test_filters_never_widen_what_is_looked_at(memory, facts):
    other = memory.bind(partition_key="other").memory_set("facts")
    other.add("secret", {"partition_key": "k", "agent_id": "k", "namespace": "x"})
    facts.add("own", {"agent_id": "other", "partition_key": "other"})

    for chosen in (
        {"agent_id": "other"},
        {"partition_key": "other"},
        {"$not": {"agent_id": "zzz"}},
    ):
        assert texts(facts.get(filters=chosen)) == ["own"]
    assert texts(facts.get(filters={"agent_id": "k"})) == []


VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.sampled_from([0, 1, 2, 2**53 + 1, 1.0, 1.5, "", "a", "ab", "2026"]),
    st.sampled_from([[], [1], ["a", 1.0], [[None]], {}, {"x": 1}, {"x": {"y": True}}]),
)
NAMES = st.sampled_from(["a", "b", "a.b", "partition_key"])
METADATA = st.dictionaries(NAMES, VALUES, max_size=3)
OPERATORS = st.one_of(
    st.tuples(st.sampled_from(["$eq", "$ne", "$contains"]), VALUES),
    st.tuples(
        st.sampled_from(["$gt", "$gte", "$lt", "$lte"]),
        st.sampled_from([0, 1.0, 2**53, "a", ""]),
    ),
    st.tuples(st.sampled_from(["$in", "$nin"]), st.lists(VALUES, max_size=3)),
    st.tuples(st.just("$exists"), st.booleans()),
)
PLAIN = st.one_of(
    st.none(), st.booleans(), st.sampled_from([0, 1, 1.0, "", "a", [1], {"x": 1}])
)
CONDITIONS = st.one_of(PLAIN, st.lists(OPERATORS, min_size=1, max_size=2).map(dict))
TIMES = st.sampled_from(["2026-01-01T00:00:00.010Z", "2026-01-01T00:00:00.000Z"])
FIELDS = st.one_of(
    st.tuples(NAMES, CONDITIONS),
    st.tuples(
        st.sampled_from(["@created_at", "@updated_at"]),
        st.tuples(st.sampled_from(["$gt", "$lte", "$eq"]), TIMES).map(
            lambda p: {p[0]: p[1]}
        ),
    ),
    st.tuples(st.just("@lane"), st.sampled_from(["a", "b", {"$ne": "a"}])),
    st.tuples(st.just("@id"), st.sampled_from(["i1", {"$in": ["i0", "i2"]}])),
)
FILTERS = st.recursive(
    st.lists(FIELDS, max_size=2).map(dict),
    lambda inner: st.one_of(
        st.builds(lambda f: {"$not": f}, inner),
        st.builds(
            lambda word, several: {word: several},
            st.sampled_from(["$and", "$or"]),
            st.lists(inner, min_size=1, max_size=3),
        ),
    ),
    max_leaves=5,
)


KEYS = itertools.count()


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    """A store for all examples; each has a key of its own."""
    path = tmp_path_factory.mktemp("s") / "store.db"
    with crdtmem.open(path, lane="a", project="p", durability="normal") as memory:
        yield memory


def seen_by_filters(item):
    return FilterItem(
        item.id, item.lane, item.created_at, item.updated_at, item.metadata
    )


@pytest.mark.requirement("sets-Q5")
@settings(max_examples={"default": 20, "campaign": 5_000}[PROFILE])
@given(
    st.lists(METADATA, min_size=1, max_size=5),
    st.lists(FILTERS, min_size=1, max_size=5),
)
def test_what_the_verbs_choose_is_what_the_reference_chooses(
    shared, metadatas, filters
):
    handle = shared.bind(partition_key=next(KEYS)).memory_set("facts")
    ids = [f"i{n}" for n in range(len(metadatas))]
    handle.add(["word"] * len(metadatas), metadatas, ids=ids)
    items = handle.get().items
    for chosen in filters:
        expected = [
            item.id for item in items if matches(check(chosen), seen_by_filters(item))
        ]
        page = handle.get(filters=chosen)
        assert [item.id for item in page.items] == expected
        found = handle.search("word", filters=chosen)
        assert sorted(hit.item_id for hit in found.hits) == sorted(expected)


def row(**changes):
    fields = dict.fromkeys(SetRow._fields, 0) | {"set_hash": "1" * 16}
    return SetRow(**fields | changes)


def test_a_set_says_how_full_it_is_by_the_limit_that_is_nearest():
    for changes, percent, nearest in (
        ({"item_count": SET_ITEMS_MAX // 2}, 50, None),
        ({"item_count": SET_ITEMS_MAX * 7 // 10}, 70, "items"),
        ({"size": SET_SIZE_UNITS * 8 // 10}, 80, "size"),
        ({"state_bytes": SET_STATE_BYTES * 95 // 100}, 95, "state"),
    ):
        fields = headroom_fields(row(**changes))
        assert fields["pct_used"] == percent
        if nearest is None:
            assert fields["warning"] is crdtmem.UNSET
        else:
            assert f"{percent} % full ({nearest})" in str(fields["warning"])
    assert percent_used(SET_ITEMS_MAX, SET_ITEMS_MAX) == 100
    soon = str(headroom_fields(row(size=SET_SIZE_UNITS * 8 // 10))["warning"])
    assert "compact it or delete items before the next large add" in soon
    now = str(headroom_fields(row(state_bytes=SET_STATE_BYTES))["warning"])
    assert "use another set now" in now


@pytest.mark.parametrize(
    "over",
    [
        {"item_count": SET_ITEMS_MAX + 1},
        {"size": SET_SIZE_UNITS + 1},
        {"state_bytes": SET_STATE_BYTES + 1},
    ],
)
def test_a_set_over_a_limit_has_nothing_free(over):
    assert headroom_fields(row())["free"] == SET_SIZE_UNITS
    assert headroom_fields(row(**over))["free"] == 0


def test_headroom_is_what_every_answer_carries(facts):
    facts.add(["p", "é🚀"], [{}, {"n": 1}])

    headroom = facts.headroom()
    assert (headroom.item_count, headroom.size, headroom.tombstones) == (2, 11, 0)
    page = facts.get()
    assert {name: getattr(page, name) for name in type(headroom).names} == {
        name: getattr(headroom, name) for name in type(headroom).names
    }


@pytest.mark.process
def test_who_only_reads_loads_no_document_layer(memory, facts):
    facts.add("x", {"n": 1})
    memory.close()
    reading = f"""
import sys, crdtmem
with crdtmem.open({str(memory.path)!r}, lane="b", project="p") as memory:
    facts = memory.bind(partition_key="k").memory_set("facts")
    assert facts.get(filters={{"n": 1}}).items == facts.as_of(1).items
    assert facts.history().entries and facts.headroom().item_count == 1
print(*sys.modules)
"""
    loaded = subprocess.run(
        [sys.executable, "-c", reading],
        check=True,
        capture_output=True,
        encoding="utf-8",
    ).stdout.split()

    assert "crdtmem.sets.memory_set" in loaded
    assert {"pycrdt", "asyncio", "pydantic", "crdtmem.search"}.isdisjoint(loaded)


def test_what_two_lanes_made_of_an_item_at_once_is_shown_with_it(open_lane):
    memories = [open_lane("a"), open_lane("b", store="t")]
    one, two = (m.bind(partition_key="k").memory_set("facts") for m in memories)
    (item,) = one.add("base").ids
    exchange_records([[memory] for memory in memories])
    one.update(item, "first", {"by": "a"})
    two.update(item, "second")
    exchange_records([[memory] for memory in memories])

    for handle in (one, two):
        (found,) = handle.get().items
        assert (found.text, found.lane) == ("second", "b")
        (other,) = found.conflicts
        assert (other.text, other.metadata, other.lane) == ("first", {"by": "a"}, "a")
        assert handle.as_of(handle.headroom().rev).items == (found,)
    assert one.update(item, "second").changed
    assert one.get().items[0].conflicts is crdtmem.UNSET
    rev = one.headroom().rev
    then = one.as_of(rev - 1)
    assert (then.item_count, then.size) == (1, len('secondfirst{"by":"a"}'))
