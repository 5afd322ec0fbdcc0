"""crdtmem.search.searching: what is searched, in which order, and how it is shown."""

import pytest

from crdtmem.errors import EmbeddingError
from crdtmem.models import UNSET


def labels(result):
    return [hit.label for hit in result.hits]


def names(result):
    return [hit.item.text for hit in result.hits]


def test_words_are_found_whatever_their_case_and_form(memory):
    memory.create("plan", "The Parser\nof ISSUE 12")
    memory.create("notes", "the parser")
    memory.create("cafe", "Cafe\u0301 straße")

    assert labels(memory.search("PARSER issue", mode="all")) == ["plan"]
    assert labels(memory.search("parse")) == []
    assert labels(memory.search("pars*")) == ["notes", "plan"]
    assert labels(memory.search("Caf\u00e9 STRASSE")) == ["cafe"]
    assert labels(memory.search('"the parser" -issue')) == ["notes"]
    assert labels(memory.search('"parser the')) == []


def test_a_hit_says_where_the_words_are(memory):
    memory.create("plan", "first\nsecond fox\nthird fox")
    hit = memory.search("fox second").hits[0]

    assert (hit.kind, hit.line, hit.rank, hit.matched) == ("slot", 2, 1, "all")
    assert [hit.snippet[a:b] for a, b in hit.matches] == ["second", "fox", "fox"]
    assert (hit.cut.start, hit.cut.end, hit.lane) == (False, False, "a")
    assert "fox" not in repr(hit)


def test_parts_of_a_slot_are_hits_of_their_own(memory, index):
    memory.create("plan", "# one\nfox\n# two\nbear\n# three\nfox and fox")
    before = memory.search("fox OR bear")
    index()

    assert [(hit.label, hit.line) for hit in before.hits] == [
        ("plan", 4),
        ("plan", 6),
        ("plan", 2),
    ]
    assert [(hit.cut.start, hit.cut.end) for hit in before.hits] == [
        (True, True),
        (True, False),
        (False, True),
    ]
    assert memory.search("fox OR bear") == before


def test_equals_come_the_newest_first_and_the_rest_is_told(memory):
    for number in range(5):
        memory.create(f"slot{number}", "fox")
    first = memory.search("fox", limit=3)

    assert (labels(first), first.more) == (["slot4", "slot3", "slot2"], True)
    assert memory.search("fox", limit=5).more is False
    assert [hit.rank for hit in first.hits] == [1, 2, 3]


def test_the_newest_come_first_where_that_is_wanted(facts):
    facts.add("fox fox fox")
    facts.add("a fox in a long text that says little")
    facts.add("no animal")

    assert names(facts.search("fox"))[0] == "fox fox fox"
    assert names(facts.search("fox", sort="recent"))[0].startswith("a fox in")


def test_a_search_looks_where_a_read_would_and_leaves_nothing_seen(memory, other):
    other.create("plan", "global fox", scope="global")
    other.create("notes", "another fox", scope="global")
    other.create("plan", "project fox")
    memory.slot("plan").read()
    other.slot("plan").append("more")

    assert sorted((h.label, h.scope) for h in memory.search("fox").hits) == [
        ("notes", "global"),
        ("plan", "project"),
    ]
    assert {h.scope for h in memory.search("fox", scope="global").hits} == {"global"}
    assert labels(memory.search("fox", label="notes")) == ["notes"]
    assert [change.label for change in memory.unread()] == ["plan"]
    other.delete("plan", "project")
    assert {h.scope for h in memory.search("fox").hits} == {"global"}


def test_many_slots_are_found_by_the_scope_of_their_namespace(memory, index):
    for number in range(12):
        memory.create(f"slot{number:02}", f"fox {'bear ' * number}")
    pending = memory.search("fox bear -cat", limit=100)
    index()

    assert len(pending.hits) == 12
    assert memory.search("fox bear -cat", limit=100) == pending


def test_kept_texts_are_found_also_those_of_a_deleted_slot(memory):
    memory.create("plan", "old fox")
    memory.slot("plan").append("two")
    memory.delete("plan")
    result = memory.search("fox", kinds=["history"], label="plan", sort="recent")

    assert [hit.history_id for hit in result.hits] == [
        entry.id for entry in memory.slot("plan").history().entries
    ]
    assert memory.search("x", kinds=["history"], label="guidance").hits == ()


def test_what_a_pass_took_out_is_found_by_its_slot(memory):
    notes = "\n".join(f"## day {n}\n- a fox, one of many foxes" for n in range(60))
    memory.create("log", notes, size_limit=3_000)
    begun = memory.slot("log").begin_condense()
    memory.slot("log").commit_condense(begun.id, "- foxes")
    result = memory.search("fox", kinds=["archive"], label="log")
    both = memory.search("foxes", kinds=["slot", "archive"], label="log", limit=100)
    elsewhere = memory.search("fox", kinds=["archive"], label="log", scope="global")

    assert [hit.pass_id for hit in result.hits] == [begun.id]
    assert {hit.kind for hit in both.hits} == {"slot", "archive"}
    assert elsewhere.hits == ()


def test_a_memory_search_finds_no_items_and_a_bound_one_its_key_alone(memory, facts):
    other_set = memory.bind(partition_key="k").memory_set("other")
    foreign = memory.bind(partition_key="l").memory_set("facts")
    for one in (facts, other_set, foreign):
        one.add("fox")
    memory.create("plan", "fox")
    bound = memory.bind(partition_key="k")

    assert [hit.kind for hit in memory.search("fox").hits] == ["slot"]
    assert sorted(labels(bound.search("fox"))) == ["facts", "other"]
    assert labels(bound.search("fox", sets=["other", "absent"])) == ["other"]
    assert bound.search("fox", sets=[]).hits == ()
    assert sorted(labels(bound.search("fox", slots=True))) == ["facts", "other", "plan"]
    assert labels(bound.search("fox", sets=[], slots=True)) == ["plan"]


def test_an_item_is_shown_with_what_is_known_of_it(facts):
    added = facts.add("one\na fox", {"tag": 1})
    hit = facts.search("fox").hits[0]

    assert hit.item == facts.get(added.ids).items[0]
    assert (hit.item_id, hit.label, hit.line) == (added.ids[0], "facts", 2)
    assert (hit.updated_at, hit.lane) == (hit.item.updated_at, hit.item.lane)


@pytest.mark.requirement("sets-Q5")
def test_filters_choose_before_the_limit_does(facts, index):
    facts.add([f"fox {n}" for n in range(600)], [{"n": n} for n in range(600)])
    index()
    few = facts.search("fox", 2, {"n": {"$lt": 3}})
    none = facts.search("fox", 2, {"n": 1_000})

    assert (names(few), few.more) == (["fox 2", "fox 1"], True)
    assert (none.hits, none.more) == ((), False)
    assert facts.search("fox", 3, {"n": {"$lt": 3}}).more is False


def test_what_was_found_once_is_found_after_the_index_caught_up(memory, facts, index):
    facts.add([f"fox {n}" for n in range(100)])
    before = facts.search("fox 7", 100)

    # The search has seen more than it likes to look at, and has indexed some of it.
    with memory.store.reading() as connection:
        left = connection.execute("SELECT count(*) FROM search_pending").get
    assert left == 100 - 64
    assert facts.search("fox 7", 100) == before
    assert index() == left
    assert facts.search("fox 7", 100) == before


def test_a_store_for_reading_is_searched_and_not_indexed(memory, facts, open_lane):
    facts.add([f"fox {n}" for n in range(100)])
    reader = open_lane("reader", read_only=True)
    found = reader.bind(partition_key="k").memory_set("facts").search("fox", 100)

    assert len(found.hits) == 100
    assert memory.index().indexed == 100


def test_index_tells_what_it_has_done(memory, facts):
    facts.add(["one", "two", "three"])

    report = memory.index(rows=2)
    assert (report.indexed, report.pending) == (2, 1)
    assert (report.embedded, report.unembedded) == (0, 0)
    assert memory.index().to_dict()["pending"] == 0


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({"query": ""}, "empty-query"),
        ({"query": "\ud83d"}, "invalid-text"),
        ({"limit": 0}, "invalid-argument"),
        ({"limit": 1_001}, "invalid-argument"),
        ({"mode": "some"}, "invalid-argument"),
        ({"sort": "oldest"}, "invalid-argument"),
        ({"snippet": 19}, "invalid-argument"),
        ({"snippet": 301}, "invalid-argument"),
        ({"semantic": "yes"}, "invalid-argument"),
        ({"kinds": "slot"}, "invalid-argument"),
        ({"kinds": 5}, "invalid-argument"),
        ({"kinds": []}, "invalid-argument"),
        ({"kinds": ["item"]}, "invalid-argument"),
        ({"kinds": ["history"]}, "invalid-label"),
        ({"kinds": ["slot", "archive"]}, "invalid-label"),
        ({"scope": "here"}, "invalid-scope"),
        ({"label": "No"}, "invalid-label"),
        ({"kinds": ["history"], "label": "absent"}, "slot-not-found"),
    ],
)
def test_what_cannot_be_searched_is_refused(memory, refusal, options, code):
    assert refusal(memory.search, **({"query": "x"} | options)).code == code


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({"sets": "facts"}, "invalid-argument"),
        ({"sets": [""]}, "invalid-name"),
        ({"slots": 1}, "invalid-argument"),
        ({"slots": True, "filters": {}}, "invalid-argument"),
        ({"filters": {"$or": []}}, "invalid-filter"),
    ],
)
def test_what_a_key_cannot_search_is_refused(memory, refusal, options, code):
    bound = memory.bind(partition_key="k")

    assert refusal(bound.search, "x", **options).code == code


def test_without_an_embedder_no_meaning_is_compared(memory, refusal):
    memory.create("plan", "fox")
    error = refusal(memory.search, "x", semantic=True)

    assert isinstance(error, EmbeddingError)
    assert error.code == "no-embedder"
    assert memory.search("fox", semantic=False).semantic == "off"
    assert memory.search("fox").degraded is UNSET
