r"""Tests of what a form does to a text, and how it is undone."""

import pytest
from hypothesis import given, settings, strategies as st

from crdtmem.errors import InvalidArgumentError
from crdtmem.serve.forms import (
    area,
    exact_text,
    field_value,
    hidden,
    int_field,
    sent_text,
)
from tests.conftest import PROFILE
from tests.serve.visitor import Page, field_shows

ENDS = st.sampled_from(["\n", "\r\n", "\r", "\n\n", "\0", "\u2028", "a", "b", " ", "é"])
ROUNDS = {"default": 50, "campaign": 3_000}[PROFILE]
TEXTS = st.lists(ENDS, max_size=14).map("".join)


def sent(shown):
    """Return what a browser sends of a field that shows this."""
    return shown.replace("\n", "\r\n")


@pytest.mark.requirement("serve-7")
@settings(max_examples=ROUNDS)
@given(TEXTS)
def test_a_field_that_is_not_touched_changes_nothing(text):
    page = Page(
        f'<form method="post" action="/">{area("t", field_value(text), {})}</form>'
    )
    shows = page.forms[0].fields["t"]

    assert shows == field_value(text)
    assert exact_text(sent(shows), text) == text


@pytest.mark.requirement("serve-7")
@settings(max_examples=ROUNDS)
@given(TEXTS, st.lists(st.text("XY", min_size=1), min_size=1).map("\n".join))
def test_what_is_typed_before_or_behind_leaves_the_rest_exact(text, typed):
    shows = field_value(text)
    before = exact_text(sent(f"{typed}\n{shows}"), text)
    after = exact_text(sent(f"{shows}\n{typed}"), text)

    assert before.endswith(text)
    assert field_value(before) == f"{typed}\n{shows}"
    # A return at the very end would be one line end with the one that is typed.
    assert after.startswith(text.removesuffix("\r"))
    assert field_value(after) == f"{shows}\n{typed}"


@settings(max_examples=ROUNDS)
@given(TEXTS, TEXTS)
def test_what_is_saved_is_what_the_field_showed(text, typed):
    new = field_value(typed)

    assert field_value(exact_text(sent(new), text)) == new


@pytest.mark.parametrize(
    ("base", "typed", "saved"),
    [
        ("a\r\nb\0\r\nc", "a\nB\nc", "a\r\nB\r\nc"),
        ("a\0\nb\rc", "a\ufffd\nb\nC", "a\0\nb\rC"),
        ("a\r\nb", "a", "a"),
        ("a\nb\0", "a\nb\ufffd\nc", "a\nb\0\nc"),
        ("x\r", "x\n", "x\r"),
        ("\nx", "\nx", "\nx"),
        ("x", "", ""),
    ],
)
def test_lines_that_stay_are_exact_and_others_end_as_the_text_does(base, typed, saved):
    assert exact_text(sent(typed), base) == saved


def test_a_text_without_a_base_has_plain_line_ends():
    assert sent_text("a\r\nb\r\n") == "a\nb\n"


def test_a_first_line_end_survives_the_field():
    assert field_shows("\n\nx") == "\nx"
    assert str(area("t", "\nx", {})).endswith(">\n\nx</textarea>")


def test_hidden_fields_are_sent_along():
    assert [str(x) for x in hidden(a=1, b="<")] == [
        '<input type="hidden" name="a" value="1">',
        '<input type="hidden" name="b" value="&lt;">',
    ]


def test_a_number_is_a_number():
    assert int_field("12", "rev") == 12
    for bad in ("", "-1", "1.5", "x", "1" * 20, "\uff10", "9" * 16):
        with pytest.raises(InvalidArgumentError, match="rev must be a number"):
            int_field(bad, "rev")
    with pytest.raises(InvalidArgumentError):
        int_field("0", "page", 1)
