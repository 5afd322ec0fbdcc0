"""crdtmem.tokens; the table of the format is in the conformance file."""

import unicodedata

import pytest
from hypothesis import given, strategies as st

from crdtmem.limits import SEARCH_TOKEN_CHARS
from crdtmem.tokens import Piece, pieces, tokens, word_parts

TEXTS = st.text(
    st.sampled_from("aZ9_ .-\"'é\u0301ßﬁ東京ア\u3099ไทย한🚀❤\ufe0f\u200d²İ\ud800")
    | st.characters()
)


@pytest.mark.parametrize(
    ("text", "words", "joined"),
    [
        ("HTTPServer2xx", "http server 2 xx", "httpserver2xx"),
        ("a__b_", "a b", "ab"),
        ("_", "", ""),
        ("camelCase_andÉcole", "camel case andecole", "camelcaseandecole"),
        ("İstanbul", "istanbul", ""),
        ("x² ﬁn", "x2 fin", ""),
        ("ไทย", "ไท ทย ย", ""),
        ("🚀🚀", "🚀 🚀", ""),
        ("\u0301 a\u0301", "a", ""),
        ("東" * 3, "東東 東東 東", ""),
        ("C++ f'x'", "c f x", ""),
    ],
)
def test_a_text_gives_its_parts_and_its_joined_identifiers(text, words, joined):
    assert tokens(text) == (tuple(words.split()), tuple(joined.split()))


def test_a_long_run_of_word_characters_is_data_and_its_start_is_kept():
    assert tokens("Ab" * 128).x == (("ab" * 32),)
    assert tokens("Ab" * 128 + "c") == (("ab" * 32,), ())
    assert tokens("_" * 257) == ((), ())


@given(TEXTS)
def test_tokens_are_short_and_hold_no_syntax(text):
    words, joined = tokens(text)

    assert all(1 <= len(token) <= SEARCH_TOKEN_CHARS for token in words + joined)
    assert not set("\"'()*:^+-_ \n") & set("".join(words + joined))


@given(TEXTS)
def test_pieces_are_stretches_of_the_text_in_order(text):
    end = 0
    for piece in pieces(text):
        assert piece.start_chars >= end
        end = piece.start_chars + len(piece.text)
        assert text[piece.start_chars : end] == piece.text


@given(TEXTS)
def test_what_lies_between_pieces_is_no_word_and_no_symbol(text):
    rest = list(text)
    for piece in pieces(text):
        start = piece.start_chars
        rest[start : start + len(piece.text)] = [" "] * len(piece.text)

    assert not any(
        char.isalnum() or char == "_" or unicodedata.category(char)[0] == "M"
        for char in rest
    )


@given(st.text("aZ9_ .東", max_size=12))
def test_plain_text_has_the_same_pieces_beside_any_other(text):
    beside = list(pieces(f"{text} é"))

    assert beside == [*pieces(text), Piece("word", "é", len(text) + 1)]


def test_the_parts_of_a_word_are_whole_before_they_are_cut():
    assert word_parts("x_" + "a" * 100) == ["x", "a" * 100]
    assert tokens("x_" + "a" * 100) == (("x", "a" * 64), ("x" + "a" * 63,))
