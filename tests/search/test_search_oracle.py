"""Whatever is indexed and whatever is not: a search finds what the texts say."""

import itertools
import random

import pytest
from hypothesis import example, given, settings, strategies as st

import crdtmem
from crdtmem.store.indexing import index_faults, index_pending
from tests.conftest import PROFILE
from tests.search.asking import EXAMPLES, Text, expected, found, queries, texts

FOREIGN = {"default": 1_000, "campaign": 10_000}[PROFILE]
KEYS = itertools.count()

CHANGES = st.lists(
    st.one_of(
        st.tuples(st.just("add"), texts()),
        st.tuples(st.just("update"), st.integers(0, 9), texts()),
        st.tuples(st.just("delete"), st.integers(0, 9)),
        st.tuples(st.just("index"), st.integers(1, 4)),
    ),
    min_size=1,
    max_size=10,
)


@pytest.fixture(scope="module")
def shelf(tmp_path_factory):
    path = tmp_path_factory.mktemp("shelf") / "s" / "store.db"
    with crdtmem.open(path, lane="a", project="p", durability="normal") as memory:
        yield memory
        with memory.store.snapshot() as connection:
            assert index_faults(connection) == []


def changed(memory, items, changes):
    """Make changes to a set, and index as they say."""
    for kind, *values in changes:
        ids = [item.id for item in items.get(order="oldest").items]
        if kind == "add":
            items.add(values[0])
        elif kind == "index":
            index_pending(memory.store, values[0], wait_s=5)
        elif ids and kind == "update":
            items.update(ids[values[0] % len(ids)], values[1])
        elif ids:
            items.delete(ids[values[0] % len(ids)])


def texts_in(items):
    return [
        Text(item.id, item.text, item.updated_at)
        for item in items.get(limit=1_000).items
    ]


@pytest.mark.requirement("sets-Q1")
@settings(max_examples=EXAMPLES)
@given(
    CHANGES,
    queries,
    st.sampled_from(["auto", "all", "any"]),
    st.sampled_from(["relevance", "recent"]),
)
@example([("add", "x" * 300), ("index", 1), ("add", "y")], "x" * 64, "all", "recent")
@example([("add", "a-b a"), ("index", 4), ("add", "b")], '"a b" OR b', "any", "recent")
def test_items_are_found_as_the_oracle_says_indexed_or_not(
    shelf, changes, query, mode, sort
):
    # A namespace holds only so many sets, and a campaign has more examples.
    items = shelf.bind(partition_key=next(KEYS) % 1_000).memory_set("items")
    items.delete()
    changed(shelf, items, changes)
    answer = found(items.search, query, limit=100, mode=mode, sort=sort)

    hits = expected(query, texts_in(items), mode, sort)
    if isinstance(hits, str):
        assert answer == hits == "empty-query"
    else:
        wanted = [(name, score, matched) for name, _, score, matched in hits]
        assert answer == wanted


@pytest.mark.requirement("sets-Q1")
@settings(max_examples=EXAMPLES)
@given(st.lists(st.tuples(texts(12), st.booleans()), max_size=5), queries)
def test_parts_of_slots_are_found_as_the_oracle_says(shelf, written, query):
    shelf.delete_many([view.label for view in shelf.slots(templates=False)])
    for number, (text, is_indexed) in enumerate(written):
        make = shelf.create if number == 0 else shelf.slot("plan").append
        if text or number == 0:
            make(*["plan", text] if number == 0 else [text])
        if is_indexed:
            index_pending(shelf.store, 100, wait_s=5)
    whole = shelf.slot("plan").read().content if written else ""
    parts = [Text("plan", part, 0, line) for line, part in parts_in(whole)]

    hits = expected(query, parts)
    if isinstance(hits, str):
        return
    result = shelf.search(query, limit=100)
    assert [(hit.score, hit.matched) for hit in result.hits] == [
        hit[2:] for hit in hits
    ]
    # A match may be in a later line of the part.
    assert all(
        hit.line is crdtmem.UNSET or hit.line >= line
        for hit, (_, line, *_) in zip(result.hits, hits, strict=True)
    )


def parts_in(view):
    """Return the parts of a short text: each line that begins with # opens one."""
    held: list[tuple[int, str]] = []
    for number, line in enumerate(view.split("\n") if view else [], 1):
        if not held or line.startswith("#"):
            held.append((number, ""))
        held[-1] = held[-1][0], f"{held[-1][1]}{line}\n"
    return held


@pytest.mark.requirement("sets-Q2")
def test_what_is_beside_a_set_changes_nothing_of_its_results(shelf):
    rng = random.Random(1)
    words = ["deploy", "red", "apple", "staging", "東京", "parse_http"]

    def some_texts(count):
        return [" ".join(rng.choices(words, k=rng.randint(1, 6))) for _ in range(count)]

    mine = shelf.bind(partition_key="mine")
    items = mine.memory_set("items")
    items.add(some_texts(50))
    asked = ["deploy", "red apple", "deploy -red", "東京 OR stag*", '"red apple"']

    def answers():
        return [items.search(query, 20) for query in asked]

    alone = answers()
    for number in range(FOREIGN // 250):
        places = [
            shelf.bind(partition_key="other").memory_set("items"),
            mine.memory_set(f"beside{number}"),
            shelf.bind(partition_key="mine", scope="global").memory_set("items"),
        ]
        places[number % 3].add(some_texts(250))
    shelf.create("beside", " ".join(some_texts(50)), size_limit=100_000)
    pending = answers()
    shelf.index(rows=FOREIGN // 2)
    some = answers()
    shelf.index()
    assert (pending, some, answers()) == (alone, alone, alone)
    assert all(result.hits for result in alone)
