"""crdtmem.mirror.index"""

import pytest
from hypothesis import example, given, strategies as st

from crdtmem.doc.text_form import lines_of
from crdtmem.limits import INDEX_BYTES, INDEX_LINES
from crdtmem.mirror.index import (
    BLOCK_BEGIN,
    BLOCK_END,
    IndexEntry,
    index_line,
    with_index,
    without_index,
)
from crdtmem.mirror.texts import encode_file

PIECES = [
    "a\n",
    "é\n",
    "\n",
    "  \n",
    "b\r\n",
    "- [one](one.md)\n",
    "[x](./two%20.md)\n",
]
MARKS = [f"{BLOCK_BEGIN}\n", f"{BLOCK_END}\n", f" {BLOCK_BEGIN} \r\n"]
TEXTS = st.lists(st.sampled_from([*PIECES, *MARKS]), max_size=10).map("".join)
PLAIN_TEXTS = st.lists(st.sampled_from(PIECES), max_size=10).map("".join)
NAMES = ["one.md", "two .md", "日本.md", "MEMORY.md", "a>b%2.md", "a\nb.md", "c(1).md"]
ENTRIES = st.lists(
    st.builds(
        IndexEntry,
        st.sampled_from(NAMES),
        st.sampled_from(["one", "two", "three"]),
        st.sampled_from(["", "what\nit is", BLOCK_END, "file: one.md", "é" * 300]),
        st.integers(0, 3),
    ),
    max_size=6,
)
MANY = [IndexEntry(f"slot_{n}.md", f"slot_{n}", "", n) for n in range(300)]
LONG = [IndexEntry(f"slot_{n}.md", f"slot_{n}", "漢" * 200, n) for n in range(300)]


def block_of(text, *lines):
    return "".join([text, f"{BLOCK_BEGIN}\n", *lines, f"{BLOCK_END}\n"])


@given(TEXTS, ENTRIES)
@example(f"{BLOCK_BEGIN}\n", [])
@example(f"a\n{BLOCK_END}\n", MANY)
def test_the_slots_text_comes_back_from_its_file(text, entries):
    file, _ = with_index(text, entries)

    assert without_index(file, [file]) == text


@given(TEXTS, ENTRIES)
def test_a_generated_file_is_generated_again(text, entries):
    file, _ = with_index(text, entries)

    assert with_index(without_index(file, [file]), entries) == (file, False)


@given(PLAIN_TEXTS, ENTRIES, ENTRIES)
def test_a_block_is_cut_out_of_whatever_older_file_a_tool_saves(text, old, new):
    older, _ = with_index(text, old)
    newer, _ = with_index(text, new)

    assert without_index(older, [newer, older]) == text


@pytest.mark.requirement("mirror-29")
@pytest.mark.parametrize("entries", [MANY, LONG])
@pytest.mark.parametrize("text", ["", "a\n" * 150, "é" * 12_000 + "\n", "a\n" * 198])
@pytest.mark.parametrize("eol", ["verbatim", "crlf"])
def test_the_file_stays_in_its_bounds_and_the_block_gives_way(text, entries, eol):
    file, is_over = with_index(text, entries)

    assert not is_over
    assert file.startswith(text)
    assert len(lines_of(file)) <= INDEX_LINES
    assert len(encode_file(file, bom=True, eol=eol)) <= INDEX_BYTES


def test_the_bounds_hold_to_the_byte_with_a_mark_and_longer_breaks():
    sizes = []
    for pad in range(40):
        file, _ = with_index(f"{'a' * (24_800 + pad)}\n", MANY)
        sizes.append(len(encode_file(file, bom=True, eol="crlf")))

    assert max(sizes) == INDEX_BYTES


@pytest.mark.parametrize("text", ["a\n" * 201, "é" * 12_500 + "\n"])
def test_a_text_beyond_the_bounds_is_left_whole_and_told(text):
    assert with_index(text, MANY) == (text, True)


def test_a_text_at_the_bounds_is_not_beyond_them():
    assert with_index("a\n" * 200, MANY) == ("a\n" * 200, False)
    assert with_index("a" * 24_999 + "\n", MANY) == ("a" * 24_999 + "\n", False)


def test_as_many_links_as_fit_are_there_the_newest_first():
    file, _ = with_index("a\n", MANY)
    links = lines_of(file)[2:-1]

    assert len(lines_of(file)) == INDEX_LINES
    assert links == [index_line(entry) for entry in MANY[::-1]][: len(links)]


def test_slots_written_at_once_are_in_the_order_of_their_labels():
    entries = [IndexEntry("b.md", "b", "", 1), IndexEntry("a.md", "a", "", 1)]

    assert with_index("", entries)[0] == block_of("", "- [a](a.md)\n", "- [b](b.md)\n")


@pytest.mark.parametrize(
    "link", ["[x](one.md)", "[](./one.md)", "[x]( <one.md> )", "[x](one.md 'title')"]
)
def test_a_slot_that_the_text_links_is_not_linked_again(link):
    assert with_index(f"{link}\n", [IndexEntry("one.md", "one", "", 1)]) == (
        f"{link}\n",
        False,
    )


@pytest.mark.parametrize("name", NAMES)
def test_a_generated_link_counts_as_one_when_a_tool_moves_it_into_the_text(name):
    line = index_line(IndexEntry(name, "x", "about", 1))

    assert len(lines_of(line)) == 1
    assert with_index(line, [IndexEntry(name, "x", "about", 1)]) == (line, False)


def test_the_index_does_not_link_itself_and_an_empty_one_is_not_there():
    assert with_index("a\n", [IndexEntry("MEMORY.md", "memory", "", 1)])[0] == "a\n"
    assert with_index("a\n", [])[0] == "a\n"


@pytest.mark.parametrize(
    ("name", "description", "line"),
    [
        ("one.md", "", "- [x](one.md)\n"),
        ("One two.md", "file: One two.md", "- [x](<One two.md>)\n"),
        ("one.md", " what\n it is ", "- [x](one.md): what it is\n"),
        ("日本.md", "w", "- [x](日本.md): w\n"),
        ("a>\nb.md", "w", "- [x](<a%3E%0Ab.md>): w\n"),
        ("one.md", f"{'a' * 119} b", f"- [x](one.md): {'a' * 119}…\n"),
    ],
)
def test_a_link_is_one_readable_line(name, description, line):
    assert index_line(IndexEntry(name, "x", description, 1)) == line


@pytest.mark.requirement("mirror-29")
def test_a_line_that_a_tool_adds_is_text_inside_the_block_and_after_it():
    base = block_of("a\n", "- [one](one.md)\n", "- [two](two.md)\n")
    inside = "- [three](three.md): as if it had been generated\n"
    found = block_of("a\n", "- [one](one.md)\n", inside, "- [two](two.md)\n")

    assert without_index(f"{found}after\n", [base]) == f"a\n{inside}after\n"


def test_a_link_that_a_tool_changes_is_its_text():
    base = block_of("a\n", "- [one](one.md)\n", "- [two](two.md)\n")
    found = base.replace("- [one](one.md)", "- [One](one.md): the first")

    assert without_index(found, [base]) == "a\n- [One](one.md): the first\n"


@pytest.mark.parametrize(
    "change",
    [
        lambda file: file.replace(f"{BLOCK_END}\n", ""),
        lambda file: file.replace("- [one](one.md)\n", ""),
        lambda file: file.replace(f"{BLOCK_BEGIN}\n", f"{BLOCK_BEGIN}\n\n"),
        lambda file: file.replace("one.md)\n", "one.md)  \n"),
        lambda file: file[:2] + file[2:].replace("\n", "\r\n"),
        lambda file: file[:2],
    ],
)
def test_a_damaged_or_reformatted_block_is_no_text(change):
    base = block_of("a\n", "- [one](one.md)\n", "- [two](two.md)\n")

    assert without_index(change(base), [base]) == "a\n"


def test_where_nothing_is_known_of_the_file_its_lines_are_kept():
    entries = [IndexEntry("one.md", "one", "", 1)]
    found = block_of("a\n", "- [one](one.md)\n", "- [two](two.md)\n")

    assert without_index(found) == "a\n- [one](one.md)\n- [two](two.md)\n"
    assert without_index(found, [with_index("", entries)[0]]) == "a\n- [two](two.md)\n"


def test_a_text_without_a_block_is_its_own():
    assert without_index(f"a\n{BLOCK_END}\n", ["a\n"]) == f"a\n{BLOCK_END}\n"
