"""crdtmem.search.snippets: exact, whole characters, around a match."""

from itertools import pairwise

import pytest
from hypothesis import example, given, settings, strategies as st

from crdtmem.doc.text_form import units_of
from crdtmem.search.candidates import count_of
from crdtmem.search.query import parse_query
from crdtmem.search.snippets import is_boundary, placed_tokens, places_of, snippet
from crdtmem.tokens import tokens
from tests.search.asking import EXAMPLES, asked_of, queries, texts

SEQUENCES = [
    "👩\u200d💻",
    "🇩🇪",
    "🇫🇷",
    "e\u0301",
    "👍🏽",
    "❤️",
    "🏴\U000e0067\U000e007f",
    "x",
]
"""What is one character to see; none is longer than a snippet."""


def cut(text, query, limit_units):
    asked = parse_query(query)
    return snippet(text, places_of(text, asked.terms), limit_units)


@settings(max_examples=EXAMPLES)
@given(texts(12))
@example("x" * 70 + "_y")
def test_tokens_with_places_are_the_tokens(text):
    w, x = placed_tokens(text)

    assert (tuple(p.token for p in w), tuple(p.token for p in x)) == tokens(text)
    assert all(0 <= p.start < p.end <= len(text) for p in [*w, *x])


@settings(max_examples=EXAMPLES)
@given(texts(8), queries)
def test_places_are_there_where_a_term_is_counted(text, query):
    asked = asked_of(query)
    if isinstance(asked, str):
        return
    found = tokens(text)
    places = places_of(text, asked.terms)

    assert bool(places) == any(count_of(term, found) for term in asked.terms)
    assert all(a < b for a, b in places)
    assert all(b <= c for (_, b), (c, _) in pairwise(places))


@pytest.mark.requirement("sets-Q4")
@given(
    st.lists(st.sampled_from([*SEQUENCES, "deploy", " ", "\n", "東京"]), max_size=80),
    st.integers(20, 300),
)
@example(["👩\u200d💻"] * 30 + ["deploy"], 20)
@example(["🇩🇪"] * 30 + ["deploy"] + ["🇩🇪"] * 30, 20)
def test_a_snippet_is_exact_whole_and_shows_a_match(words, limit_units):
    text = "".join(words)
    places = places_of(text, parse_query("deploy OR 東京 OR 💻").terms)
    found = snippet(text, places, limit_units)

    starts = [i for i in range(len(text) + 1) if text.startswith(found.text, i)]
    ends = [(start, start + len(found.text)) for start in starts]
    assert any(
        (start > 0, end < len(text)) == (found.is_cut_before, found.is_cut_behind)
        and is_boundary(text, start)
        and is_boundary(text, end)
        for start, end in ends
    )
    assert units_of(found.text) <= limit_units
    assert bool(found.matches) == bool(places)
    assert all(0 <= a < b <= len(found.text) for a, b in found.matches)


@pytest.mark.parametrize("sequence", SEQUENCES)
def test_nothing_that_is_one_character_to_see_is_cut(sequence):
    text = f"a{sequence}{sequence}b"
    allowed = {0, 1, 1 + len(sequence), 1 + 2 * len(sequence), len(text)}

    assert {i for i in range(len(text) + 1) if is_boundary(text, i)} == allowed


def test_lines_that_end_in_two_characters_stay_whole():
    assert not is_boundary("a\r\nb", 2)
    assert is_boundary("a\r\nb", 3)


def test_a_snippet_begins_with_the_line_of_its_first_match():
    text = "first\n" * 60 + "second fox\n" + "third\n" * 60
    found = cut(text, "fox", 40)

    assert found.text.startswith("second fox\nthird")
    assert [found.text[a:b] for a, b in found.matches] == ["fox"]
    assert (found.is_cut_before, found.is_cut_behind) == (True, True)


def test_a_snippet_begins_with_a_word_not_far_before_its_first_match():
    words = cut("word " * 60 + "fox " + "more " * 60, "fox", 200)
    run_on = cut("x" * 300 + ".fox." + "y" * 300, "fox", 200)

    assert words.text.startswith("word word")
    assert words.text.index("fox") <= 80
    assert run_on.text.startswith("fox.yyy")
    assert units_of(words.text) == 200


def test_a_text_that_fits_is_shown_whole():
    assert cut("one\nfox", "fox", 20) == ("one\nfox", False, False, ((4, 7),))


def test_without_a_match_a_snippet_is_the_beginning():
    assert snippet("abc " * 20, [], 20) == ("abc " * 5, False, True, ())


def test_a_snippet_is_where_the_most_matches_are():
    text = "fox " + "- " * 100 + "a fox and a fox " + "- " * 100
    found = cut(text, "fox", 30)

    assert [found.text[a:b] for a, b in found.matches] == ["fox", "fox"]


def test_of_a_pair_of_characters_only_what_was_looked_for_is_a_match():
    found = cut("は京都", "京", 20)

    assert [found.text[a:b] for a, b in found.matches] == ["京"]
    assert cut("東京都庁に", "東京都庁", 20).matches == ((0, 4),)


def test_words_that_overlap_are_one_match():
    assert cut("parse_http_response", '"parse http" OR parsehttp*', 20).matches == (
        (0, 19),
    )


def test_a_match_longer_than_the_snippet_is_cut():
    found = cut("x" * 60 + " y" * 20, "x" * 60, 20)

    assert found.matches == ((0, 20),)


def test_a_character_longer_than_the_snippet_is_cut_where_it_must_be():
    text = "👩" + "\u200d💻" * 40
    found = cut(text, "💻", 20)

    assert units_of(found.text) <= 20
    assert found.matches
