"""crdtmem.mirror.texts"""

import pytest
from hypothesis import example, given, strategies as st

from crdtmem.errors import UnreadableFileError
from crdtmem.limits import TEXT_BYTES
from crdtmem.mirror.texts import (
    FileStyle,
    FileText,
    decode_added,
    decode_file,
    encode_file,
    finished_part,
    style_for,
)

LF = FileStyle()
CRLF = FileStyle(eol="crlf")
MARKED = FileStyle(bom=True)
PIECES = [
    "a",
    "é",
    "漢字",
    "🎉",
    "\r",
    "\r\n",
    "\n",
    "\ufeff",
    "\x00",
    "\x85",
    "\u2028",
]
TEXTS = st.lists(st.sampled_from(PIECES), max_size=12).map("".join) | st.text()
STYLES = st.builds(FileStyle, st.booleans(), st.sampled_from(["verbatim", "crlf"]))


def file_form(text):
    return text if not text or text.endswith("\n") else f"{text}\n"


def new_file(data):
    return decode_file(data, base=None, base_data=b"")


def changed(data, base_data, style=LF):
    return decode_file(data, base=style, base_data=base_data)


@given(TEXTS.map(file_form), STYLES)
@example("\ufeffa\n", LF)
@example("\ufeffa\n", MARKED)
@example("a\r\nb\r\n", CRLF)
@example("", CRLF)
def test_what_is_written_is_read_back_as_the_same_text(file, style):
    kept = style_for(file, style)
    data = encode_file(file, bom=style.bom, eol=style.eol)

    assert changed(data, data, kept) == FileText(file, kept.bom, kept.eol)
    assert encode_file(file, bom=kept.bom, eol=kept.eol) == data


@given(TEXTS, st.none() | STYLES, TEXTS)
def test_what_was_read_is_read_the_same_with_itself_as_the_base(text, base, before):
    data = text.encode()
    read = decode_file(data, base=base, base_data=before.encode())

    assert changed(data, data, read.style) == read
    assert read.file == file_form(read.file)


@given(TEXTS)
def test_a_file_without_mark_and_carriage_returns_is_its_text(text):
    plain = text.replace("\r", "").lstrip("\ufeff")
    data = file_form(plain).encode()

    assert new_file(data) == FileText(file_form(plain), bom=False, eol="verbatim")


@pytest.mark.requirement("mirror-10")
def test_a_byte_order_mark_is_put_back():
    read = new_file(b"\xef\xbb\xbfa\n")

    assert read == FileText("a\n", bom=True, eol="verbatim")
    assert encode_file("a\nb\n", bom=True, eol="verbatim") == b"\xef\xbb\xbfa\nb\n"
    assert not changed(b"a\n", b"\xef\xbb\xbfa\n", MARKED).bom


@pytest.mark.requirement("mirror-10")
def test_a_file_converted_to_crlf_keeps_its_text_and_its_breaks():
    read = changed(b"a\r\nb\r\n", b"a\nb\n")

    assert read == FileText("a\nb\n", bom=False, eol="crlf")
    assert encode_file("a\nb\nc\n", bom=False, eol="crlf") == b"a\r\nb\r\nc\r\n"


@pytest.mark.requirement("mirror-10")
@pytest.mark.parametrize(
    ("data", "base_data"),
    [
        (b"a\nb\r\n", b"a\n"),
        (b"a\r\nb\n", b""),
        (b"a\rb\r\n", b"a\n"),
        (b"a\rb\n", b"a\rb\n"),
        (b"a\r\r\n", b"a\n"),
        (b"a\r\nb\r\n", b"a\r\nb\n"),
        (b"a", b"a\r\n"),
    ],
)
def test_carriage_returns_are_text_unless_all_breaks_became_crlf(data, base_data):
    read = changed(data, base_data)

    assert read == FileText(file_form(data.decode()), bom=False, eol="verbatim")


def test_a_new_file_of_crlf_lines_is_in_that_style():
    assert new_file(b"a\r\nb\r\n") == FileText("a\nb\n", bom=False, eol="crlf")
    assert new_file(b"a\r\nb") == FileText("a\nb\n", bom=False, eol="crlf")
    assert changed(b"a\r\n", b"") == FileText("a\n", bom=False, eol="crlf")


def test_an_lf_line_in_a_crlf_file_passes():
    read = changed(b"a\r\nb\n", b"a\r\n", CRLF)

    assert read == FileText("a\nb\n", bom=False, eol="crlf")


def test_the_crlf_style_ends_when_no_crlf_is_left():
    read = changed(b"a\nb\n", b"a\r\nb\r\n", CRLF)

    assert read == FileText("a\nb\n", bom=False, eol="verbatim")


def test_the_crlf_style_ends_when_the_slot_holds_a_carriage_return():
    assert style_for("a\rb\n", CRLF) == LF
    assert style_for("a\n", CRLF) == CRLF
    assert encode_file("a\rb\n", bom=False, eol="crlf") == b"a\rb\n"


def test_a_lone_carriage_return_in_a_crlf_file_changes_no_other_line():
    read = changed(b"a\r\nb\rc\r\n", b"a\r\n", CRLF)

    assert read == FileText("a\nb\rc\n", bom=False, eol="crlf")


def test_half_a_crlf_at_the_end_is_not_text():
    assert changed(b"a\r\nb\r", b"a\r\n", CRLF).file == "a\nb\n"
    assert changed(b"a\r\nb\r\n", b"a\r\nb\r", CRLF).file == "a\nb\n"
    assert new_file(b"a\r\nb\r") == FileText("a\nb\n", bom=False, eol="crlf")


@given(TEXTS, TEXTS)
@example("", "a\r\n")
@example("a", "\ufeffb\r\n")
def test_what_follows_whole_lines_is_decoded_as_with_them(before, after):
    base_data = file_form(f"\n{before}").encode()
    data = base_data + after.encode()
    read = changed(data, base_data)

    assert read.file == base_data.decode() + decode_added(after.encode())


def test_a_missing_final_newline_is_added_to_text_only():
    assert new_file(b"a").file == "a\n"
    assert new_file(b"\n").file == "\n"
    assert new_file(b"").file == ""
    assert new_file(b"\xef\xbb\xbf") == FileText("", bom=True, eol="verbatim")


def test_nul_passes():
    assert new_file(b"a\x00b\n").file == "a\x00b\n"


@pytest.mark.requirement("mirror-10")
@pytest.mark.parametrize("codec", ["utf-16-le", "utf-16-be"])
def test_utf_16_with_its_mark_is_refused_by_name(codec):
    data = "\ufeffé\n".encode(codec)
    with pytest.raises(UnreadableFileError, match="UTF-16, not UTF-8") as caught:
        new_file(data)

    assert caught.value.code == "source-encoding-invalid"


@pytest.mark.parametrize("data", [b"a\xff\n", b"\xed\xa0\x80\n", b"a\xc3", b"\x80"])
def test_what_is_no_utf_8_is_refused_with_its_place(data):
    with pytest.raises(UnreadableFileError, match=r"byte [01] is 0x") as caught:
        new_file(data)

    assert caught.value.code == "source-encoding-invalid"


def test_a_file_over_the_limit_is_refused_with_both_sizes():
    assert new_file(b"a" * (TEXT_BYTES - 1) + b"\n").bom is False
    with pytest.raises(UnreadableFileError, match=r"1048577 > 1048576") as caught:
        new_file(b"\xff" * (TEXT_BYTES + 1))

    assert caught.value.code == "text-too-large"
    with pytest.raises(UnreadableFileError, match=r"1048577 > 1048576"):
        decode_added(b"a" * (TEXT_BYTES + 1))


@given(TEXTS.map(str.encode), st.integers(0, 100))
def test_the_finished_part_is_whole_lines_and_leaves_less_than_one(data, cut):
    data = data[:cut]
    part = finished_part(data)

    assert data.startswith(part)
    assert not part or part.endswith(b"\n")
    assert b"\n" not in data[len(part) :]
    assert part.decode().encode() == part
