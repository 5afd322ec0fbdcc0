r"""A file beside its base: which change of the slot's text it stands for.

A file is compared as the text that it stands for: without byte order mark, with the
line ends of the slot, in file form, without a generated index. What is equal then is no
change, what goes on where the base ended is an append, anything else a new text.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from crdtmem.doc.text_form import view_of
from crdtmem.mirror.index import IndexEntry, with_index, without_index
from crdtmem.mirror.texts import (
    FileStyle,
    FileText,
    decode_added,
    decode_file,
    encode_file,
    style_for,
)
from crdtmem.store.mirrors import FileRow, RetiredRow

__all__ = ["Encoded", "FileChange", "Form", "IndexForm", "PlainForm", "Source"]

Source = FileRow | RetiredRow
"""What knows the base of a file: the bytes, their style and the slot's text then."""


@dataclass(frozen=True, slots=True)
class Encoded:
    """A file to be.

    Attributes:
        data: Its bytes.
        style: What goes with them as a base.
        has_index: Whether it is the file that ends in an index.
        is_over: Whether its text is longer by itself than the tool reads.

    """

    data: bytes
    style: FileStyle
    has_index: bool = False
    is_over: bool = False


@dataclass(frozen=True, slots=True)
class FileChange:
    """What a file's bytes change in the text that their base stood for.

    Attributes:
        style: Of the bytes.
        appended: The lines that were added at the end, if that is all; else None.
        old: The text of the base; not needed, and empty, for an append.
        new: The text of the file, likewise.

    """

    style: FileStyle
    appended: str | None = None
    old: str = ""
    new: str = ""

    @property
    def is_none(self) -> bool:
        """Whether the text is the same."""
        return self.appended == ""


class PlainForm:
    """A file that holds the slot's text, and nothing else."""

    def text_of(self, text: str, generated: Iterable[str]) -> str:  # noqa: ARG002, RUF100 - the form with an index needs it
        """Return the slot's text in a file's; see without_index."""
        return text

    def encode(self, file: str, style: FileStyle) -> Encoded:
        """Return the file for a slot's text."""
        data = encode_file(file, bom=style.bom, eol=style.eol)
        return Encoded(data, style_for(file, style))

    def stands_for(self, source: Source, file: str) -> bool:
        """Tell whether the base is right for a slot's text, whatever its bytes."""
        return view_of(self.file_text(source)) == view_of(file)

    def first(self, data: bytes) -> FileText:
        """Return the text of a file without a base.

        Raises:
            UnreadableFileError: If it is none.

        """
        found = decode_file(data, base=None, base_data=b"")
        return FileText(self.text_of(found.file, ()), found.bom, found.eol)

    def file_text(self, source: Source) -> str:
        """Return the whole text of a base, with an index if it has one."""
        style = _style_of(source)
        return decode_file(source.base, base=style, base_data=source.base).file

    def change(
        self, source: Source, data: bytes, kept: Sequence[str] = ()
    ) -> FileChange:
        """Return what a file's bytes change.

        Args:
            source: Knows the base.
            data: The bytes.
            kept: Texts that the file had before its base, as ``file_text`` gave them.

        Raises:
            UnreadableFileError: If they are no text.

        """
        if self.goes_on(source, data):
            # Without a look at what stands before: a file that somebody writes to for
            # hours is as long as he likes.
            more = decode_added(data[len(source.base) :])
            return FileChange(_style_of(source), appended=more)
        style = _style_of(source)
        found = decode_file(data, base=style, base_data=source.base)
        whole = self.file_text(source)
        old = self.text_of(whole, [whole])
        new = self.text_of(found.file, [whole, *kept])
        appended = new[len(old) :] if new.startswith(old) else None
        return FileChange(found.style, appended, old, new)

    def goes_on(self, source: Source, data: bytes) -> bool:
        """Tell whether bytes are whole lines of a base and more behind them."""
        return (
            source.eol == "verbatim"
            and source.base.endswith(b"\n")
            and data.startswith(source.base)
        )


class IndexForm(PlainForm):
    """The file that ends in an index of the others.

    Args:
        entries: Returns what there is to link just now.

    """

    def __init__(self, entries: Callable[[], Sequence[IndexEntry]]) -> None:
        self._entries = entries

    def text_of(self, text: str, generated: Iterable[str]) -> str:
        """Return the slot's text in a file's; see without_index."""
        now, _ = with_index("", self._entries())
        return without_index(text, [*generated, now])

    def encode(self, file: str, style: FileStyle) -> Encoded:
        """Return the file for a slot's text, with the index of now."""
        text, is_over = with_index(file, self._entries())
        plain = super().encode(text, style)
        return Encoded(plain.data, plain.style, has_index=True, is_over=is_over)

    def stands_for(self, source: Source, file: str) -> bool:  # noqa: ARG002, RUF100 - the index counts too
        """Tell whether the base is right for a slot's text: its bytes decide."""
        return False

    def goes_on(self, source: Source, data: bytes) -> bool:  # noqa: ARG002, RUF100 - an index may stand between
        """Tell it by the texts: an index may stand between."""
        return False


Form = PlainForm


def _style_of(source: Source) -> FileStyle:
    return FileStyle(bom=bool(source.bom), eol=source.eol)
