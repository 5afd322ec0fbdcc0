"""crdtmem.config.statements"""

import tomllib
from itertools import pairwise

from hypothesis import given, strategies as st

from crdtmem.config.statements import (
    Statement,
    read_or_none,
    split_lines,
    split_statements,
)

TEXT = """\
# Mine.
lane = "a # b"
"quo=ted".x = 1

[context] # what is shown
labels = [
  "a", # first
  "[b]",
]
"""

LINES = st.sampled_from(
    ["", "# note", "a = 1", 'b.c = "x # y"', "[t]", "[[u]]", "d = [", "]", "1,", "'''"]
)


def test_the_lines_of_each_statement_are_told():
    assert list(split_statements(TEXT)) == [
        Statement(1, 2, (), ("lane",), is_header=False),
        Statement(2, 3, (), ("quo=ted", "x"), is_header=False),
        Statement(4, 5, ("context",), ("context",), is_header=True),
        Statement(5, 9, ("context",), ("context", "labels"), is_header=False),
    ]


def test_a_byte_order_mark_and_foreign_line_ends_do_not_matter():
    text = "\ufefflane = 'a\u2028b'\r\nscope = 'global'\r\n"

    assert [s.path for s in split_statements(text)] == [("lane",), ("scope",)]
    assert [s.first_line for s in split_statements(text)] == [0, 1]


def test_the_search_ends_where_a_statement_cannot_be_read():
    assert list(split_statements("a = 1\nb =\nc = 2\n")) == [
        Statement(0, 1, (), ("a",), is_header=False)
    ]


def test_the_search_ends_at_a_statement_of_very_many_lines():
    text = "a = [\n" + "1,\n" * 300 + "]\nb = 1\n"

    assert "b" in tomllib.loads(text)
    assert list(split_statements(text)) == []


def test_what_is_no_toml_reads_as_nothing():
    assert read_or_none("a = 1") == {"a": 1}
    assert read_or_none("a = ") is None
    assert read_or_none("a = " + "[" * 20_000) is None
    assert read_or_none("a = " + "9" * 5_000) is None


@given(st.lists(LINES).map("\n".join))
def test_the_statements_of_a_file_say_together_what_the_file_says(text):
    whole = read_or_none(text)
    if whole is None:
        return
    lines = split_lines(text)

    read = list(split_statements(text))

    assert "".join(lines) == text
    kept = [line for s in read for line in lines[s.first_line : s.end_line]]
    assert read_or_none("".join(kept)) == whole
    assert all(a.end_line <= b.first_line for a, b in pairwise(read))
