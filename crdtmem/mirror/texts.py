r"""Bytes of a mirrored file, and the text of the slot in file form: there and back.

The slot holds Unicode with "\n" between lines, ending in one. A file may have a byte
order mark, and "\r\n" for every break: both are the file's *style*, noted, kept out of
the slot and put back when the file is written. Whatever else a file has, a "\r" among
it, is text and stays as it is (``verbatim``).

A file is always decoded next to its *base*, the bytes last known to be both in the file
and in the slot, with the style that they were decoded in: only a change against them
can tell a converted file from a line that ends in "\r". Bytes that were encoded here
are decoded to the same text with themselves as the base.
"""

from dataclasses import dataclass
from typing import Literal

from crdtmem.doc.text_form import closed
from crdtmem.errors import UnreadableFileError
from crdtmem.limits import TEXT_BYTES
from crdtmem.textdiff import is_all_crlf

__all__ = [
    "Eol",
    "FileStyle",
    "FileText",
    "decode_added",
    "decode_file",
    "encode_file",
    "finished_part",
    "style_for",
]

Eol = Literal["verbatim", "crlf"]

_BOM = b"\xef\xbb\xbf"
_UTF16_BOMS = (b"\xff\xfe", b"\xfe\xff")


@dataclass(frozen=True, slots=True)
class FileStyle:
    r"""What a file has beside its text.

    Attributes:
        bom: Whether it begins with a byte order mark.
        eol: ``crlf`` where every "\n" of the text is "\r\n" in the file.

    """

    bom: bool = False
    eol: Eol = "verbatim"


@dataclass(frozen=True, slots=True)
class FileText:
    r"""A decoded file.

    Attributes:
        file: The text as the slot would hold it: empty, or ending in "\n".
        bom: Whether a byte order mark was cut off.
        eol: The style to decode and write the file in from now on.

    """

    file: str
    bom: bool
    eol: Eol

    @property
    def style(self) -> FileStyle:
        """What is to be kept beside the bytes, as their style."""
        return FileStyle(bom=self.bom, eol=self.eol)


def decode_file(data: bytes, *, base: FileStyle | None, base_data: bytes) -> FileText:
    r"""Decode a file's bytes.

    Converting the breaks of a file changes no line of its text. One whose breaks all
    become "\r\n", having had no "\r", is in style ``crlf`` from then on, until none of
    them is left or a text is written to it that ``style_for`` refuses.

    Args:
        data: The bytes.
        base: Style of the base; None for a file that has none.
        base_data: Bytes of the base; empty where there is none.

    Raises:
        UnreadableFileError: ``text-too-large`` or ``source-encoding-invalid``.

    """
    _require_size(data)
    # A base that begins with a mark and has none in its style is that of a slot whose
    # text begins with U+FEFF.
    is_text = base is not None and not base.bom and base_data.startswith(_BOM)
    bom = data.startswith(_BOM) and not is_text
    text = _decoded(data.removeprefix(_BOM) if bom else data)
    if _is_crlf(text, base, base_data):
        # Half a break at the end is one that is being written.
        return FileText(
            closed(text.removesuffix("\r").replace("\r\n", "\n")), bom, "crlf"
        )
    return FileText(closed(text), bom, "verbatim")


def decode_added(data: bytes) -> str:
    """Decode what follows the whole lines of a file in style ``verbatim``.

    It costs nothing for what stands before, and the limit is that of the part.

    Raises:
        UnreadableFileError: ``text-too-large`` or ``source-encoding-invalid``.

    """
    _require_size(data)
    return closed(_decoded(data))


def encode_file(file: str, *, bom: bool, eol: Eol) -> bytes:
    """Return the bytes of a file that is to hold this text in this style.

    Keep them with the style that ``style_for`` returns: a text need not allow ``crlf``.

    Args:
        file: The text, in file form.
        bom: Whether the file has a byte order mark.
        eol: How its lines end.

    """
    if style_for(file, FileStyle(bom=bom, eol=eol)).eol == "crlf":
        file = file.replace("\n", "\r\n")
    data = file.encode()
    return _BOM + data if bom else data


def style_for(file: str, style: FileStyle) -> FileStyle:
    r"""Return the style in which this text is written to a file of that style.

    It is the same, but that ``crlf`` ends when the text holds a "\r", which could not
    be told from the file's own, or has no break.
    """
    if "\r" in file or "\n" not in file:
        return FileStyle(bom=style.bom)
    return style


def finished_part(data: bytes) -> bytes:
    """Return the longest beginning that is whole lines, hence whole code points."""
    # No byte of a longer code point is that of "\n".
    return data[: data.rfind(b"\n") + 1]


def _require_size(data: bytes) -> None:
    if len(data) > TEXT_BYTES:
        raise UnreadableFileError(
            "text-too-large", f"the file is too large ({len(data)} > {TEXT_BYTES})"
        )


def _decoded(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as exc:
        at_byte, found = exc.start, data[exc.start]
    if data.startswith(_UTF16_BOMS):
        raise UnreadableFileError(
            "source-encoding-invalid", "the file is UTF-16, not UTF-8"
        )
    raise UnreadableFileError(
        "source-encoding-invalid",
        f"the file is not UTF-8: byte {at_byte} is 0x{found:02x}",
    )


def _is_crlf(text: str, base: FileStyle | None, base_data: bytes) -> bool:
    if base is not None and base.eol == "crlf":
        # A line that another tool ends in "\n" alone passes.
        return "\r\n" in text
    # Half a break at its end was no text either, if the rest came now.
    if base is not None and b"\r" in base_data.removesuffix(b"\r"):
        return False
    lone = text.removesuffix("\r").replace("\r\n", "")
    return is_all_crlf(text) and "\r" not in lone
