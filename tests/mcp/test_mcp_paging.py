"""crdtmem.mcp.paging: pages that follow each other are the text, byte for byte."""

import pytest
from hypothesis import given, strategies as st

from crdtmem.doc.text_form import units_of
from crdtmem.errors import InvalidArgumentError
from crdtmem.mcp.paging import Page, Place, Span, page_of, read_span, tail_span

TEXTS = st.text(alphabet="ab\n\r\N{FOX FACE}\u2028é", max_size=120)


def pages(content, limit_units):
    span = Span()
    while True:
        page = page_of(content, span, limit_units)
        yield page
        if page.rest is None:
            return
        span = read_span(str(page.rest))


@given(TEXTS, st.integers(2, 40))
def test_pages_are_the_text_and_none_is_too_long(content, limit_units):
    found = list(pages(content, limit_units))

    assert "".join(page.text for page in found) == content
    assert all(units_of(page.text) <= limit_units for page in found)
    assert [page.is_end for page in found] == [False] * (len(found) - 1) + [True]


@given(TEXTS, st.integers(1, 9), st.integers(0, 9))
def test_a_range_is_its_lines(content, first, more):
    page = page_of(content, Span(Place(first), first + more), 1_000)
    lines = content.split("\n") if content else []

    assert page.text == "\n".join(lines[first - 1 : first + more])
    assert page.total == len(lines)


def test_a_page_says_where_it_is_and_where_to_go_on():
    assert page_of("one\ntwo\nthree", Span(), 8) == Page(
        "one\ntwo\n", Place(), 2, 3, Place(3), is_end=False
    )
    assert page_of("abcdef", Span(Place(1, 2)), 3) == Page(
        "cde", Place(1, 2), 1, 1, Place(1, 5), is_end=False
    )
    assert page_of("", Span(), 9) == Page("", Place(), 0, 0, None, is_end=True)


@pytest.mark.parametrize(
    ("text", "span"),
    [
        ("10", Span(Place(10), 10)),
        ("10-", Span(Place(10))),
        ("10-40", Span(Place(10), 40)),
        ("10:200-", Span(Place(10, 200))),
        ("10:200-12", Span(Place(10, 200), 12)),
    ],
)
def test_a_range_is_read(text, span):
    assert read_span(text) == span


@pytest.mark.parametrize("text", ["", "x", "0", "3-2", "-3", "1.5", "1-2-3", "1:-"])
def test_what_is_no_range_is_refused(text):
    with pytest.raises(InvalidArgumentError, match="lines must be a range"):
        read_span(text)


@pytest.mark.parametrize("unit", [2, 9])
def test_a_place_beyond_its_line_or_within_a_character_is_refused(unit):
    with pytest.raises(InvalidArgumentError, match=f"cannot be read from {unit}"):
        page_of("a\N{FOX FACE}\N{FOX FACE}\nlong line", Span(Place(1, unit)), 9)


def test_the_end_of_a_text_is_its_last_lines():
    assert tail_span("a\nb\nc", 2) == Span(Place(2))
    assert tail_span("a", 9) == Span(Place(1))
    assert tail_span("", 9) == Span(Place(1))
