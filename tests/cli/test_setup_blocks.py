"""crdtmem.cli.setup_blocks"""

import tomllib

import pytest
from hypothesis import given, strategies as st

from crdtmem.cli.setup_blocks import TextBlock, TomlBlock
from crdtmem.cli.setup_edits import TakenError, UneditableError

BLOCK = TextBlock("## Notes\n\nText.\n")
TABLE = TomlBlock(
    ("mcp_servers", "crdtmem"),
    (("command", 'C:\\a "b"\n'), ("args", ["mcp"]), ("startup_timeout_sec", 30)),
)
WANTED = {"command": 'C:\\a "b"\n', "args": ["mcp"], "startup_timeout_sec": 30}


@given(st.text("ab#<\r\n é\u2028\x0b"))
def test_a_block_is_taken_out_of_a_text_byte_for_byte(text):
    new = BLOCK.put(text)

    assert BLOCK.take(new) == text
    assert BLOCK.put(new) == new
    assert new.startswith(text)


@st.composite
def toml_files(draw):
    newline = draw(st.sampled_from(["\n", "\r\n"]))
    lines = draw(
        st.lists(
            st.sampled_from(["", "# a", "[mcp_servers.other{}]", "[t{}]", "[[u{}]]"]),
            max_size=4,
        )
    )
    rows: list[str] = ["a = 1", *(line.format(n) for n, line in enumerate(lines))]
    rows += draw(st.sampled_from([[], ["b = '''", "[x]'''"], ["b = [", " 1]"]]))
    end = draw(st.sampled_from(["", newline, newline * 2]))
    return newline.join(rows) + end


@given(toml_files())
def test_a_table_is_taken_out_of_a_file_byte_for_byte(text):
    new = TABLE.put(text)
    before, after = tomllib.loads(text), tomllib.loads(new)

    assert TABLE.take(new) == text
    assert TABLE.put(new) == new
    assert after["mcp_servers"].pop("crdtmem") == WANTED
    assert after == {"mcp_servers": {}, **before}


def test_a_file_is_made_and_nothing_is_left_of_it():
    headed = TextBlock("x\n", head="---\na: b\n---\n")

    assert BLOCK.put(None) == BLOCK.snippet
    assert BLOCK.take(BLOCK.put(None)) == BLOCK.empty == ""
    assert headed.put(None).startswith("---\na: b\n---\n\n<!-- crdtmem:begin -->\n")
    assert headed.take(headed.put(None)) == headed.empty
    assert TABLE.put(None) == TABLE.snippet
    assert TABLE.take(TABLE.put(None)) == TABLE.empty


def test_a_byte_order_mark_stays():
    assert TABLE.take(TABLE.put("\ufeffa = 1\n")) == "\ufeffa = 1\n"


def test_an_older_block_is_replaced_where_it_stands():
    old = TextBlock("old\n").put("# Us\n") + "more\n"
    new = BLOCK.put(old)

    assert new == f"# Us\n\n{BLOCK.snippet}more\n"
    assert BLOCK.take(new) == "# Us\nmore\n"


def test_nothing_is_taken_out_where_no_block_is():
    assert BLOCK.take("see <!-- crdtmem:begin --> and crdtmem:end\n") == (
        "see <!-- crdtmem:begin --> and crdtmem:end\n"
    )


@pytest.mark.parametrize(
    "text",
    [
        "<!-- crdtmem:begin -->\n",
        "<!-- crdtmem:end -->",
        "<!-- crdtmem:end -->\n<!-- crdtmem:begin -->\n",
        BLOCK.snippet * 2,
    ],
)
def test_marks_that_are_not_one_pair_are_refused(text):
    with pytest.raises(UneditableError, match="not one pair"):
        BLOCK.put(text)
    with pytest.raises(UneditableError, match="not one pair"):
        BLOCK.take(text)


@pytest.mark.parametrize(
    "text", ["[mcp_servers.crdtmem]\na = 1\n", "mcp_servers.crdtmem.a = 1\n"]
)
def test_a_foreign_table_of_the_same_name_is_left_alone(text):
    with pytest.raises(TakenError, match=r"^mcp_servers\.crdtmem$"):
        TABLE.put(text)
    assert TABLE.take(text) == text


@pytest.mark.parametrize("text", ["a = \n", "mcp_servers = 1\n", "mcp_servers = {}\n"])
def test_a_file_that_cannot_have_the_table_is_refused(text):
    with pytest.raises(UneditableError, match="it is no TOML"):
        TABLE.put(text)
