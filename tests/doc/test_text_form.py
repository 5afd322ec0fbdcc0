"""crdtmem.doc.text_form"""

import hashlib

import pytest
from hypothesis import given, strategies as st

from crdtmem.doc.text_form import (
    append_splice,
    bytes_of,
    closed,
    cut_units,
    file_of,
    lines_of,
    lone_surrogate,
    units_of,
    view_lines,
    view_of,
)

# What ends a line for splitlines, has two units, several bytes or a bad reputation.
PIECES = ["", "a", "é", "漢字", "🎉", "\r", "\u2028", "\x85", "\x00", "\n", "\n\n", " "]
TEXTS = st.lists(st.sampled_from(PIECES), max_size=12).map("".join) | st.text()


def appended(file, text):
    start_chars, end_chars, insert = append_splice(file, text)
    return file[:start_chars] + insert + file[end_chars:]


@given(TEXTS)
def test_a_view_comes_back_from_its_file(view):
    file = file_of(view)

    assert view_of(file) == view
    assert file == "" or file.endswith("\n")


@given(TEXTS)
def test_the_view_drops_one_final_newline_and_nothing_else(text):
    assert view_of(f"{text}\n") == text
    assert view_of(f"{text}x") == f"{text}x"


@given(TEXTS)
def test_lines_join_to_the_file_and_end_in_newlines_only(file):
    lines = lines_of(file)

    assert "".join(lines) == file
    assert all(line.find("\n") == len(line) - 1 for line in lines[:-1])
    assert [line.removesuffix("\n").count("\n") for line in lines] == [0] * len(lines)


@given(TEXTS)
def test_a_line_of_the_view_is_a_line_of_its_file(view):
    assert [f"{line}\n" for line in view_lines(view)] == lines_of(file_of(view))


@pytest.mark.parametrize(
    ("view", "lines"),
    [
        ("", []),
        ("a", ["a"]),
        ("a\n", ["a", ""]),
        ("\n", ["", ""]),
        ("a\rb\u2028c\x85d\r\ne", ["a\rb\u2028c\x85d\r", "e"]),
    ],
)
def test_only_a_newline_ends_a_line(view, lines):
    assert view_lines(view) == lines


def test_a_last_line_without_newline_is_kept_as_it_is():
    assert lines_of("a\nbc") == ["a\n", "bc"]


@given(TEXTS)
def test_sizes_are_those_of_the_encodings(text):
    assert units_of(text) == len(text.encode("utf-16-le")) // 2
    assert bytes_of(text) == len(text.encode())


@pytest.mark.parametrize("measure", [units_of, bytes_of])
def test_a_lone_surrogate_has_no_size(measure):
    with pytest.raises(UnicodeEncodeError):
        measure("\ud83d")


@given(TEXTS, st.integers(min_value=0, max_value=12))
def test_a_cut_text_is_the_longest_beginning_within_the_limit(text, limit_units):
    beginnings = (text[:end] for end in range(len(text), -1, -1))
    longest = next(start for start in beginnings if units_of(start) <= limit_units)

    assert cut_units(text, limit_units) == longest


def test_a_cut_never_leaves_half_a_surrogate_pair():
    assert cut_units("é🎉🎉", 4) == "é🎉"


@pytest.mark.parametrize(
    ("text", "position"),
    [
        ("", None),
        ("漢字🎉\x00", None),
        ("\ud83d", 0),
        ("🎉a\ud83d", 2),
        ("ab\udc00\ud83d", 2),
        ("\ud83d\ude00", 0),
    ],
)
def test_the_first_lone_surrogate_is_found(text, position):
    assert lone_surrogate(text) == position


def test_a_separator_is_added_only_where_it_is_needed():
    """Rows 1 to 8 of the table of appends, each after the one before it."""
    seen = []
    file = ""
    for text in ["a", "b", "c\n", "d", "\ne", "\n", "\n", " ", "x\r\n", "y\r", "z"]:
        file = appended(file, text)
        view = view_of(file)
        digest = hashlib.sha256(view.encode()).hexdigest()
        seen.append((view, units_of(view), digest[:16]))
        assert file == f"{view}\n"

    row_5 = "a\nb\nc\nd\n\ne"
    row_7 = f"{row_5}\n\n\n "
    assert seen == [
        ("a", 1, "ca978112ca1bbdca"),
        ("a\nb", 3, "7e18f737311b2dc3"),
        ("a\nb\nc\n", 6, "880553fca8fcea94"),
        ("a\nb\nc\nd", 7, "f729ae0cbcc8241e"),
        (row_5, 10, "99084c1bfc0a1b08"),
        (f"{row_5}\n\n", 12, "7e1d2682e8f79a6d"),
        (f"{row_5}\n\n\n", 13, "e86c5bc1c3c54b14"),
        (row_7, 14, "afd00993a7de07d8"),
        (f"{row_7}\nx\r\n", 18, "30c40304e8411b30"),
        (f"{row_7}\nx\r\ny\r", 20, "22bff00f153ed498"),
        (f"{row_7}\nx\r\ny\r\nz", 22, "7a054ccce05907f3"),
    ]


@pytest.mark.parametrize(
    ("file", "text", "splice"),
    [
        ("", "a", (0, 0, "a\n")),
        ("a\n", "b", (2, 2, "b\n")),
        ("a\n\n", "b", (2, 3, "b\n")),
        ("\n", "a", (0, 1, "a\n")),
        ("\n\n", "a", (1, 2, "a\n")),
        ("abc", "d", (3, 3, "\nd\n")),
        ("🎉\n\n", "漢", (2, 3, "漢\n")),
        ("a\r", "b", (2, 2, "\nb\n")),
    ],
)
def test_an_append_takes_only_a_blank_last_line(file, text, splice):
    assert append_splice(file, text) == splice


@given(TEXTS, TEXTS.filter(bool))
def test_an_append_is_the_three_steps_of_its_definition(file, text):
    expected = file
    if file and (view_of(file) == "" or view_of(file).endswith("\n")):
        expected = expected[:-1]
    # The second step looks at what the first has left.
    if expected and not expected.endswith("\n"):
        expected += "\n"
    expected += f"{text}\n"

    assert appended(file, text) == expected


@given(TEXTS, TEXTS.filter(bool))
def test_an_append_inserts_and_deletes_whole_lines(file, text):
    start_chars, end_chars, insert = append_splice(file, text)
    deleted = file[start_chars:end_chars]

    assert insert.endswith("\n")
    assert deleted == "" or (deleted, file[:start_chars][-1:]) in [
        ("\n", "\n"),
        ("\n", ""),
    ]
    assert file[:start_chars][-1:] in ["", "\n"] or insert.startswith("\n")


def test_a_file_is_closed_by_one_newline():
    assert [closed(file) for file in ("", "a", "a\n", "\n")] == ["", "a\n", "a\n", "\n"]
