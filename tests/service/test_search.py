"""crdtmem.search: all words, anywhere, newest first."""

import contextlib

import pytest
from hypothesis import given, strategies as st

from crdtmem import search
from crdtmem.errors import InvalidArgumentError, SlotNotFoundError
from crdtmem.search import search_memory


def labels(result):
    return [hit.label for hit in result.hits]


def test_all_words_have_to_be_there_whatever_their_case_and_form(memory):
    memory.create("plan", "The Parser\nof ISSUE 12")
    memory.create("notes", "the parser")
    memory.create("cafe", "Cafe\u0301 straße")

    assert labels(search_memory(memory, "PARSER issue")) == ["plan"]
    assert labels(search_memory(memory, "parse")) == ["notes", "plan"]
    assert labels(search_memory(memory, "Caf\u00e9 STRASSE")) == ["cafe"]
    assert labels(search_memory(memory, '"the parser" -issue')) == ["notes"]
    assert labels(search_memory(memory, '"parser the')) == []
    assert labels(search_memory(memory, "pars*")) == ["notes", "plan"]


def test_a_hit_says_where_the_words_are(memory):
    memory.create("plan", "first\nsecond fox\nthird fox")
    hit = search_memory(memory, "fox second").hits[0]

    assert (hit.line, hit.snippet, hit.rank, hit.score) == (
        2,
        "second fox\nthird fox",
        1,
        3.0,
    )
    assert [hit.snippet[a:b] for a, b in hit.matches] == ["second", "fox", "fox"]
    assert (hit.cut.start, hit.cut.end) == (True, False)
    assert "fox" not in repr(hit)


def test_a_phrase_over_the_end_of_a_line_has_no_line(memory):
    memory.create("plan", "one\ntwo")
    hit = search_memory(memory, '"one\ntwo"').hits[0]

    assert "line" not in hit.to_dict()
    assert hit.snippet == "one\ntwo"


def test_a_snippet_begins_with_a_word_near_its_first_match(memory):
    memory.create("words", "word " * 60 + "fox " + "more " * 60)
    memory.create("run_on", "x" * 300 + "fox" + "y" * 300)
    words = search_memory(memory, "fox", label="words").hits[0]
    run_on = search_memory(memory, "fox", label="run_on").hits[0]

    assert words.snippet.startswith("word word")
    assert words.snippet.index("fox") <= 80
    assert run_on.snippet.startswith("foxyyy")
    assert (len(words.snippet), words.cut.start, words.cut.end) == (200, True, True)


def test_words_that_overlap_are_one_match(memory):
    memory.create("plan", "aba")
    assert search_memory(memory, "ab ba b").hits[0].matches == ((0, 3),)


@given(st.text(max_size=40), st.text(max_size=12))
def test_matches_are_within_the_snippet_and_the_snippet_within_the_text(text, query):
    with contextlib.suppress(InvalidArgumentError):
        words = search._parse(query)
        count = max(1, words.count_in(search._folded(text)))
        row = search._Text("slot", "plan", "project", text, "", "a")
        hit = search._hit(row, words, count, rank=1)
        assert hit.snippet in text
        assert all(0 <= a < b <= len(hit.snippet) for a, b in hit.matches)


def test_the_newest_come_first_and_what_is_left_out_is_told(memory, monkeypatch):
    for number in range(5):
        memory.create(f"slot{number}", "fox")
    first = search_memory(memory, "fox", limit=3)

    assert (labels(first), first.more) == (["slot4", "slot3", "slot2"], True)
    assert search_memory(memory, "fox", limit=5).more is False
    monkeypatch.setattr(search, "SEARCH_TEXTS", 2)
    assert (len(search_memory(memory, "fox").hits), first.more) == (2, True)
    monkeypatch.setattr(search, "SEARCH_UNITS", 4)
    assert labels(search_memory(memory, "fox")) == ["slot4"]


def test_a_search_looks_where_a_read_would_and_leaves_nothing_seen(memory, other):
    other.create("plan", "global fox", scope="global")
    other.create("plan", "project fox")
    memory.slot("plan").read()
    other.slot("plan").append("more")

    assert search_memory(memory, "fox").hits[0].scope == "project"
    assert len(search_memory(memory, "fox").hits) == 1
    assert search_memory(memory, "fox", scope="global").hits[0].scope == "global"
    assert [change.label for change in memory.unread()] == ["plan"]


def test_kept_texts_are_found_also_those_of_a_deleted_slot(memory):
    memory.create("plan", "old fox")
    memory.slot("plan").append("two")
    memory.delete("plan")
    result = search_memory(memory, "fox", kind="history", label="plan")

    assert [hit.history_id for hit in result.hits] == [
        entry.id for entry in memory.slot("plan").history().entries
    ]
    assert search_memory(memory, "x", kind="history", label="guidance").hits == ()


def test_what_a_pass_took_out_is_found_by_its_slot(memory):
    notes = "\n".join(f"## day {n}\n- a fox, one of many foxes" for n in range(60))
    memory.create("log", notes, size_limit=3_000)
    begun = memory.slot("log").begin_condense()
    memory.slot("log").commit_condense(begun.id, "- foxes")
    result = search_memory(memory, "fox", kind="archive", label="log")
    elsewhere = search_memory(
        memory, "fox", kind="archive", label="log", scope="global"
    )

    assert [hit.pass_id for hit in result.hits] == [begun.id]
    assert elsewhere.hits == ()


@pytest.mark.parametrize(
    ("query", "options", "code"),
    [
        ("", {}, "empty-query"),
        (" - ** ", {}, "empty-query"),
        ("-only", {}, "empty-query"),
        ("x" * 1_001, {}, "query-too-long"),
        ("\ud83d", {}, "invalid-argument"),
        (5, {}, "invalid-argument"),
        ("x", {"limit": 101}, "invalid-argument"),
        ("x", {"kind": "item"}, "invalid-argument"),
        ("x", {"kind": "history"}, "invalid-label"),
        ("x", {"kind": "archive"}, "invalid-label"),
        ("x", {"scope": "here"}, "invalid-scope"),
        ("x", {"label": "No"}, "invalid-label"),
        ("x", {"kind": "history", "label": "absent"}, "slot-not-found"),
    ],
)
def test_what_cannot_be_searched_is_refused(memory, refusal, query, options, code):
    error = refusal(memory, search_memory, memory, query, **options)

    assert error.code == code
    assert isinstance(error, (InvalidArgumentError, SlotNotFoundError))
