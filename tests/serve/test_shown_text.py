"""Tests of how text is shown: nothing that cannot be seen stays unseen."""

import html
import re

import pytest
from hypothesis import given, strategies as st

from crdtmem.serve.markup import h
from crdtmem.serve.text import inline, marked, plain, shown, shown_line

ESCAPED = re.compile(r'<span class="esc">\\u\{([0-9A-F]+)\}</span>')


def as_html(children):
    return str(h("p", None, children))[3:-4]


def text_behind(children):
    """Return the text that was shown."""
    back = ESCAPED.sub(lambda match: chr(int(match[1], 16)), as_html(children))
    return html.unescape(back) if "&" in back else back


HIDDEN = ["\0", "\x1b", "\x7f", "\x85", "\u061c", "\u200b", "\u200e", "\u202e"]
HIDDEN += ["\u2066", "\u2028", "\u2060", "\ufeff", "\U000e0041", "\ufdd0", "\U0001ffff"]


@pytest.mark.requirement("serve-6")
@pytest.mark.parametrize("char", HIDDEN)
def test_a_hidden_character_is_shown_by_its_number(char):
    number = f"\\u{{{ord(char):X}}}"

    assert as_html(shown(f"a{char}b")) == f'a<span class="esc">{number}</span>b'
    assert plain(f"a{char}b") == f"a{number}b"


def test_tabs_and_line_ends_stay_in_texts_and_not_in_names():
    assert as_html(shown("a\tb\nc")) == "a\tb\nc"
    assert plain("a\tb\n") == "a\\u{9}b\\u{A}"
    assert ESCAPED.findall(as_html(inline("a\tb\n"))) == ["9", "A"]


def test_a_joiner_stays_in_pictures_only():
    family = "\U0001f469\u200d\U0001f469\U0001f3fd\u200d\U0001f467"
    heart = "\u2764\ufe0f\u200d\U0001f525"

    assert as_html(shown(family + heart)) == family + heart
    assert ESCAPED.findall(as_html(shown("a\u200db"))) == ["200D"]
    assert ESCAPED.findall(as_html(shown("\u200d\U0001f469"))) == ["200D"]


def test_a_return_at_the_end_of_a_line_is_a_sign():
    assert as_html(shown_line("a\r")[0]) == 'a<span class="esc">␍</span>'
    assert ESCAPED.findall(as_html(shown_line("a\rb")[0])) == ["D"]


def test_a_long_line_is_cut_between_characters():
    line, is_cut = shown_line("ab\U0001f525" + "c" * 9, 3)

    assert (as_html(line), is_cut) == ("ab", True)
    assert shown_line("abc", 3) == (["abc"], False)
    assert shown_line("abc" * 9)[1] is False


def test_words_are_marked_and_a_span_that_is_none_is_not():
    found = marked("a <b> c", [(2, 5), (3, 4), (7, 7)])

    assert as_html(found) == "a <mark>&lt;b&gt;</mark> c"


@pytest.mark.requirement("serve-6")
@given(st.text(st.characters(codec="utf-8", exclude_characters="&<>")))
def test_shown_text_is_the_text_and_has_nothing_hidden(text):
    assert text_behind(shown(text)) == text
    assert text_behind(inline(text)) == text
    for char in HIDDEN:
        assert char not in as_html(shown(text))
