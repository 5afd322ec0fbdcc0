"""crdtmem.cli.texts"""

import io
import sys

import pytest
from hypothesis import given, strategies as st

from crdtmem.cli.output import Output
from crdtmem.cli.texts import decode_text, read_file, read_text
from crdtmem.errors import InvalidArgumentError
from crdtmem.limits import TEXT_BYTES


class Stdin(io.TextIOWrapper):
    is_terminal = False

    def isatty(self):
        return self.is_terminal


@pytest.fixture
def stdin(monkeypatch):
    def stdin(raw, *, is_terminal=False):
        stream = Stdin(io.BytesIO(raw), encoding="utf-8")
        stream.is_terminal = is_terminal
        monkeypatch.setattr(sys, "stdin", stream)

    return stdin


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_what_get_prints_reads_as_the_same_text(text):
    printed = f"{text}\n".encode() if text else b""

    assert decode_text(printed, "stdin").lstrip("\ufeff") == text.lstrip("\ufeff")


@pytest.mark.parametrize(
    ("raw", "keep_newline", "text"),
    [
        (b"a\n", False, "a"),
        (b"a\n", True, "a\n"),
        (b"a\n\n", False, "a\n"),
        (b"a\r\n", False, "a\r"),
        (b"\xef\xbb\xbfa", False, "a"),
        (b"", False, ""),
    ],
)
def test_stdin_loses_a_bom_and_one_line_end(raw, keep_newline, text, stdin):
    stdin(raw)

    assert read_text(Output(), "-", None, keep_newline=keep_newline) == text


@pytest.mark.requirement("surfaces-5")
@pytest.mark.parametrize(("raw", "offset"), [(b"ab\xff", 2), (b"\xef\xbb\xbf\xff", 3)])
def test_a_bad_byte_is_told_with_its_offset(raw, offset, stdin):
    stdin(raw)

    with pytest.raises(InvalidArgumentError) as caught:
        read_text(Output(), "-", None, keep_newline=False)

    assert caught.value.code == "invalid-text"
    assert caught.value.details["offset"] == offset
    assert f"0xff at offset {offset}" in caught.value.message


def test_the_longest_text_is_read_and_a_longer_one_is_not(stdin):
    stdin(b"\xef\xbb\xbf" + b"x" * TEXT_BYTES + b"\n")
    assert len(read_text(Output(), "-", None, keep_newline=False)) == TEXT_BYTES

    for raw in (b"x" * (TEXT_BYTES + 1), b"x" * (2 * TEXT_BYTES)):
        stdin(raw)
        with pytest.raises(InvalidArgumentError, match=str(TEXT_BYTES)) as caught:
            read_text(Output(), "-", None, keep_newline=False)
        assert caught.value.code == "invalid-text"


@pytest.mark.requirement("surfaces-5")
def test_stdin_is_read_only_where_it_is_asked_for(stdin):
    stdin(b"never read")

    with pytest.raises(InvalidArgumentError, match="text required") as caught:
        read_text(Output(), None, None, keep_newline=False)

    assert caught.value.hint == "pass '-' to read stdin"
    assert read_text(Output(), "given", None, keep_newline=False) == "given"
    assert sys.stdin.read() == "never read"


def test_a_terminal_is_told_that_it_is_read(stdin, capsys):
    stdin(b"a\n", is_terminal=True)

    assert read_text(Output(), "-", None, keep_newline=False) == "a"
    assert "reading stdin" in capsys.readouterr().err


def test_a_file_is_read_under_the_same_rules(tmp_path):
    path = tmp_path / "a.md"
    path.write_bytes(b"\xef\xbb\xbfa\n")

    assert read_text(Output(), None, str(path), keep_newline=False) == "a"
    assert read_file(str(path), keep_newline=True) == "a\n"


def test_a_file_that_is_not_there_is_an_argument_error(tmp_path):
    with pytest.raises(InvalidArgumentError, match="No such file") as caught:
        read_file(str(tmp_path / "gone"))

    assert caught.value.details["path"] == str(tmp_path / "gone")


def test_a_text_is_given_once():
    with pytest.raises(InvalidArgumentError, match="twice") as caught:
        read_text(Output(), "a", "b", keep_newline=False)

    assert caught.value.code == "usage"
