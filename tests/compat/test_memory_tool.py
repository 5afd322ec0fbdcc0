"""crdtmem.compat.anthropic and crdtmem.compat.files: both twins"""

import pytest

from crdtmem.compat.anthropic import CrdtMemoryTool
from crdtmem.compat.files import FILE_UNITS, FileError, MemoryFiles
from tests.compat.asking import commands, lines_of, shown
from tests.compat.edit_scripts import NOTES
from tests.conftest import PROFILE

EDITS = {"default": 25, "campaign": 100}[PROFILE]
LISTED = "Here're the files and directories up to 2 levels deep in"


def test_a_file_is_made_seen_and_is_a_slot(memory, tool):
    made = tool("create", NOTES, file_text="one\ntwo\n")
    view = memory.slot("notes").read()

    assert made == f"File created successfully at: {NOTES}"
    assert (view.content, view.size_limit) == ("one\ntwo\n", FILE_UNITS)
    assert tool("view", NOTES) == (
        f"Here's the content of {NOTES} with line numbers:\n"
        "     1\tone\n     2\ttwo\n     3\t"
    )


def test_an_empty_file_has_one_empty_line(tool):
    tool("create", NOTES, file_text="")

    assert shown(tool("view", NOTES)) == [(1, "")]


def test_only_a_newline_ends_a_line(tool):
    tool("create", NOTES, file_text="a\rb\u2028c\x0cd\r\ne")

    assert shown(tool("view", NOTES)) == [(1, "a\rb\u2028c\x0cd\r"), (2, "e")]


@pytest.mark.parametrize(
    ("view_range", "numbers"),
    [
        ([1, 2], [1, 2]),
        ([2, -1], [2, 3]),
        ([3, 3], [3]),
        ([2, 99], [2, 3]),
        (None, [1, 2, 3]),
    ],
)
def test_a_range_of_lines_is_shown(tool, view_range, numbers):
    tool("create", NOTES, file_text="a\nb\nc")
    fields = {} if view_range is None else {"view_range": view_range}

    assert [n for n, _ in shown(tool("view", NOTES, **fields))] == numbers


@pytest.mark.parametrize(
    "view_range", [[0, 2], [2, 1], [4, -1], [1], [1, 2, 3], "12", [1, "2"], [True, 2]]
)
def test_a_range_that_is_none_is_refused(memory, view_range):
    memory.create("notes", "a\nb\nc")
    with pytest.raises(FileError, match="Invalid `view_range`") as caught:
        MemoryFiles("project", 9).view(
            memory, {"path": NOTES, "view_range": view_range}
        )

    assert "[1, 3]" in str(caught.value)


def test_a_folder_lists_two_levels_with_sizes(memory, tool):
    for path, text in (
        ("b.md", "x" * 1_536),
        ("a/one.md", "12345"),
        ("a/deep/two.txt", "1"),
        ("a/deep/er/three.md", "12"),
        (".hidden.md", "x"),
    ):
        tool("create", f"/memories/{path}", file_text=text)
    memory.create("a__", "odd")

    assert tool("view", "/memories") == (
        f"{LISTED} /memories, excluding hidden items:\n"
        "1.5K\t/memories\n"
        "3B\t/memories/@/\n"
        "3B\t/memories/@/a__.md\n"
        "8B\t/memories/a/\n"
        "3B\t/memories/a/deep/\n"
        "5B\t/memories/a/one.md\n"
        "1.5K\t/memories/b.md"
    )
    assert tool("view", "/memories/a/") == (
        f"{LISTED} /memories/a, excluding hidden items:\n"
        "8B\t/memories/a\n"
        "3B\t/memories/a/deep/\n"
        "2B\t/memories/a/deep/er/\n"
        "1B\t/memories/a/deep/two.txt\n"
        "5B\t/memories/a/one.md"
    )


def test_a_fresh_memory_is_an_empty_folder(tool):
    assert tool("view", "/memories/").endswith("items:\n0B\t/memories")


def test_a_large_file_s_size_is_short(memory, tool):
    memory.create("big", "x" * 999_424, size_limit=1_000_000)

    assert "976K\t/memories/big.md" in tool("view", "/memories")


def test_slots_of_others_are_files_and_default_ones_from_their_first_write(tool, other):
    other.create("a__", "odd")
    other.slot("guidance").append("aim high")

    assert shown(tool("view", "/memories/@/a__.md")) == [(1, "odd")]
    assert shown(tool("view", "/memories/guidance.md")) == [(1, "aim high")]
    assert "self_notes" not in tool("view", "/memories")


def test_a_tool_of_the_global_scope_has_the_global_slots(memory):
    tool = commands(CrdtMemoryTool(memory, scope="global").call)
    tool("create", "/memories/persona.md", file_text="who I am")
    tool("create", NOTES, file_text="x")

    assert memory.slot("persona", "global").read().content == "who I am"
    assert memory.slot("notes").scope == "global"


@pytest.mark.parametrize("text", ["mine", ""])
def test_a_default_slot_that_nobody_wrote_can_be_made(memory, tool, refused, text):
    tool("create", "/memories/guidance.md", file_text=text)

    assert shown(tool("view", "/memories/guidance.md")) == [(1, text)]
    assert memory.slot("guidance").read().size_limit == (1_500 if text else FILE_UNITS)
    assert "already exists" in refused(
        "create", "/memories/guidance.md", file_text="again"
    )


def test_what_is_there_is_not_made_again(memory, tool, refused):
    tool("create", "/memories/a/b.md", file_text="x")
    tool("create", "/memories/c", file_text="x")

    for path, taken in (
        ("/memories/a/b.md", "/memories/a/b.md"),
        ("/memories/a", "/memories/a"),
        ("/memories/c/d/e.md", "/memories/c"),
    ):
        assert refused("create", path, file_text="y") == f"File {taken} already exists"


def test_a_passage_is_replaced_and_shown_with_its_surroundings(memory, tool):
    tool("create", NOTES, file_text="1\n2\n3\n4\n5\n6\n7\n8")
    answer = tool("str_replace", NOTES, old_str="4\n5", new_str="four\nfive")

    assert "has been edited" in answer
    assert shown(answer) == [
        (2, "2"),
        (3, "3"),
        (4, "four"),
        (5, "five"),
        (6, "6"),
        (7, "7"),
    ]
    assert lines_of(memory) == ["1", "2", "3", "four", "five", "6", "7", "8"]


def test_a_passage_without_a_new_one_is_taken_out(memory, tool):
    tool("create", NOTES, file_text="keep\ndrop\n")
    tool("str_replace", NOTES, old_str="drop\n")
    tool("str_replace", NOTES, old_str="\n", new_str=None)

    assert lines_of(memory) == ["keep"]


def test_a_passage_that_stays_the_same_is_shown(tool):
    tool("create", NOTES, file_text="1\n2\n3\n4\n5\n6")
    answer = tool("str_replace", NOTES, old_str="5", new_str="5")

    assert [n for n, _ in shown(answer)] == [3, 4, 5, 6]


@pytest.mark.parametrize("new", ["$&", "\\1", "%s", "{0}", "\\n"])
def test_a_new_passage_is_literal(memory, tool, new):
    tool("create", NOTES, file_text="a\nb")
    tool("str_replace", NOTES, old_str="b", new_str=new)

    assert lines_of(memory) == ["a", new]


def test_lf_matches_crlf_and_only_that_place_changes(memory, tool):
    tool("create", NOTES, file_text="a\r\nb\r\nc\nd")
    tool("str_replace", NOTES, old_str="a\nb", new_str="x\ny")

    assert memory.slot("notes").read().content == "x\r\ny\r\nc\nd"


def test_a_passage_that_is_not_there_is_refused(tool, refused):
    tool("create", NOTES, file_text="Alpha\n beta")

    assert "`gamma` did not appear verbatim in /memories/notes.md." in refused(
        "str_replace", NOTES, old_str="gamma", new_str="x"
    )
    assert "Line 1 differs only in case." in refused(
        "str_replace", NOTES, old_str="alpha", new_str="x"
    )


def test_a_passage_that_is_there_twice_is_refused_with_all_lines(tool, refused):
    tool("create", NOTES, file_text="a\nb\na")
    message = refused("str_replace", NOTES, old_str="a", new_str="x")

    assert "Multiple occurrences of old_str `a` in lines: 1, 3." in message


def test_of_very_many_lines_the_rest_is_counted(tool, refused):
    tool("create", NOTES, file_text="a\n" * 60)
    message = refused("str_replace", NOTES, old_str="a", new_str="x")

    assert "49, 50 and 10 more. Please" in message


def test_an_empty_passage_is_refused(tool, refused):
    tool("create", NOTES, file_text="a")

    assert "old_str is empty" in refused("str_replace", NOTES, old_str="", new_str="x")


@pytest.mark.parametrize(
    ("text", "line", "new", "result"),
    [
        ("a\nb", 0, "x", "x\na\nb"),
        ("a\nb", 1, "x\n", "a\nx\nb"),
        ("a\nb", 2, "x", "a\nb\nx"),
        ("a\nb\n", 2, "x", "a\nb\nx\n"),
        ("a\nb", 1, "x\ny\n", "a\nx\ny\nb"),
        ("a\nb", 1, "", "a\n\nb"),
        ("a\nb", 1, "x\n\n", "a\nx\n\nb"),
        ("", 0, "x", "x"),
    ],
)
def test_lines_are_inserted_and_no_newline_is_added(
    memory, tool, text, line, new, result
):
    tool("create", NOTES, file_text=text)
    answer = tool("insert", NOTES, insert_line=line, insert_text=new)

    assert answer == f"The file {NOTES} has been edited."
    assert memory.slot("notes").read().content == result


@pytest.mark.parametrize(("text", "line"), [("a\nb\n", 3), ("a\nb\n", -1), ("", 1)])
def test_a_line_that_is_not_there_is_refused(tool, refused, text, line):
    tool("create", NOTES, file_text=text)
    message = refused("insert", NOTES, insert_line=line, insert_text="x")

    assert "Invalid `insert_line` parameter" in message
    assert f"[0, {2 if text else 0}]" in message


def test_a_line_is_counted_in_the_text_that_was_shown(memory, other, tool):
    tool("create", NOTES, file_text="a\nb\nc")
    tool("view", NOTES)
    other.slot("notes").insert(0, "top 1\ntop 2")
    answer = tool("insert", NOTES, insert_line=2, insert_text="behind b")

    assert lines_of(memory) == ["top 1", "top 2", "a", "b", "behind b", "c"]
    head, news, *_ = answer.split("\n")
    assert head == f"The file {NOTES} has been edited."
    assert "Others changed it" in news
    assert shown("\n".join(answer.split("\n")[1:])) == list(
        enumerate(lines_of(memory), 1)
    )


def test_after_that_it_is_counted_in_what_the_answer_showed(memory, other, tool):
    tool("create", NOTES, file_text="a\nb")
    other.slot("notes").insert(0, "top")
    tool("insert", NOTES, insert_line=1, insert_text="behind a")
    other.slot("notes").insert(0, "topmost")
    tool("insert", NOTES, insert_line=3, insert_text="behind that")

    assert lines_of(memory) == ["topmost", "top", "a", "behind a", "behind that", "b"]


def test_own_edits_count_without_a_view(memory, other, tool):
    tool("create", NOTES, file_text="a\nb")
    tool("insert", NOTES, insert_line=1, insert_text="1")
    tool("str_replace", NOTES, old_str="b", new_str="b\nc")
    other.slot("notes").insert(0, "top")
    tool("insert", NOTES, insert_line=4, insert_text="end")

    assert lines_of(memory) == ["top", "a", "1", "b", "c", "end"]


def test_a_replacement_among_others_edits_shows_what_there_is_now(other, tool):
    tool("create", NOTES, file_text="a\nb")
    other.slot("notes").append("theirs")
    answer = tool("str_replace", NOTES, old_str="a", new_str="x")

    assert "Others changed it" in answer
    assert answer.endswith("     1\tx\n     2\tb\n     3\ttheirs")


def test_without_a_view_a_line_is_counted_in_the_newest_text(memory, other, tool):
    other.create("notes", "a\nb")
    other.slot("notes").append("c")
    answer = tool("insert", NOTES, insert_line=3, insert_text="d")

    assert lines_of(memory) == ["a", "b", "c", "d"]
    assert "\n" not in answer


def test_an_insert_without_a_view_does_not_count_as_having_seen_the_text(
    memory, other, tool
):
    memory.create("notes", "a")
    other.slot("notes").append("theirs")
    tool("insert", NOTES, insert_line=0, insert_text="mine")

    assert [one.lane for one in memory.slot("notes").replace("x").overwrote] == ["b"]


def test_where_the_text_that_was_shown_is_no_longer_kept_the_number_counts(
    memory, other, tool
):
    memory.configure(history_keep=2)
    tool("create", NOTES, file_text="a\nb\nc\nd")
    for text in ("1", "2", "3", "4"):
        other.slot("notes").replace(text)
    answer = tool("insert", NOTES, insert_line=4, insert_text="kept")

    assert lines_of(memory) == ["4", "kept"]
    assert answer.endswith("     1\t4\n     2\tkept")


def test_a_file_is_deleted_and_can_be_had_back(memory, tool, refused):
    tool("create", NOTES, file_text="precious")
    answer = tool("delete", NOTES)

    assert answer == f"Successfully deleted {NOTES}"
    assert "does not exist" in refused("view", NOTES)
    assert memory.slot("notes").undo().content == "precious"


def test_a_folder_is_deleted_as_a_whole_or_not_at_all(memory, tool, refused):
    for name in ("a", "b", "sub/c"):
        tool("create", f"/memories/dir/{name}.md", file_text=name)
    tool("create", "/memories/dirt.md", file_text="stays")
    memory.slot("dir__b").set_meta(read_only=True)
    message = refused("delete", "/memories/dir")
    memory.slot("dir__b").set_meta(read_only=False)

    assert "read-only" in message
    assert "crdtmem meta dir__b --writable" in message
    tool("delete", "/memories/dir/")
    assert tool("view", "/memories").endswith("\n5B\t/memories/dirt.md")
    assert "does not exist" in refused("delete", "/memories/dir")


def test_a_file_is_renamed_and_its_history_stays(memory, tool, refused):
    tool("create", NOTES, file_text="a")
    tool("insert", NOTES, insert_line=1, insert_text="b")
    answer = tool("rename", old_path=NOTES, new_path="/memories/old/log.txt")

    assert answer == f"Successfully renamed {NOTES} to /memories/old/log.txt"
    assert lines_of(memory, "old__log_x2etxt_x00") == ["a", "b"]
    assert [e.operation for e in memory.slot("notes").history().entries] == [
        "delete",
        "insert",
    ]
    assert "does not exist" in refused("view", NOTES)


def test_a_folder_is_renamed_as_a_whole_or_not_at_all(memory, tool, refused):
    for name in ("a.md", "sub/b.txt"):
        tool("create", f"/memories/dir/{name}", file_text=name)
    message = refused(
        "rename", old_path="/memories/dir", new_path=f"/memories/{'l' * 60}"
    )
    tool("rename", old_path="/memories/dir", new_path="/memories/new/")

    assert "> 64" in message
    assert [view.label for view in memory.slots("project", templates=False)] == [
        "new__a",
        "new__sub__b_x2etxt_x00",
    ]


def test_what_is_taken_or_inside_is_no_new_name(tool, refused):
    tool("create", "/memories/a/x.md", file_text="x")
    tool("create", "/memories/b.md", file_text="b")

    for new in ("/memories/b.md", "/memories/a", "/memories/a/c", "/memories/b.md/c"):
        message = refused("rename", old_path="/memories/a", new_path=new)
        assert message == f"The destination {new} already exists"
    message = refused(
        "rename", old_path="/memories/b.md", new_path="/memories/guidance.md"
    )
    assert "/memories/guidance.md already exists" in message
    message = refused("rename", old_path="/memories/b.md", new_path="/memories/c/")
    assert "is not a file" in message


def test_what_is_not_there_is_refused(refused):
    for name, fields in (
        ("view", {}),
        ("str_replace", {"old_str": "a", "new_str": "b"}),
        ("insert", {"insert_line": 0, "insert_text": "x"}),
        ("delete", {}),
    ):
        assert f"The path {NOTES} does not exist" in refused(name, NOTES, **fields)
    assert "does not exist" in refused("rename", old_path=NOTES, new_path="/memories/x")


def test_a_folder_is_no_file(tool, refused):
    tool("create", "/memories/a/x.md", file_text="x")

    for path in ("/memories/a", "/memories/a/", "/memories"):
        message = refused("str_replace", path, old_str="x", new_str="y")
        assert "is not a file" in message
    assert "is not a file" in refused("create", "/memories/b/", file_text="x")


def test_a_file_is_no_folder(tool, refused):
    tool("create", NOTES, file_text="x")

    assert "does not exist" in refused("view", f"{NOTES}/")


def test_the_root_stays(tool, refused):
    tool("create", NOTES, file_text="x")

    assert "Cannot delete" in refused("delete", "/memories")
    assert "Cannot rename" in refused(
        "rename", old_path="/memories/", new_path="/memories/x"
    )
    assert "Cannot rename" in refused("rename", old_path=NOTES, new_path="/memories")
