"""Texts from the command line, from stdin or from a file.

stdin is read only where the caller said ``-``: the shell of an agent often holds it
open, and a command that waited for its end would hang.
"""

import codecs
import sys
from typing import BinaryIO

from crdtmem.cli.output import Output
from crdtmem.errors import InvalidArgumentError
from crdtmem.limits import TEXT_BYTES

__all__ = ["decode_text", "read_file", "read_text"]


def read_text(
    out: Output, text: str | None, source: str | None, *, keep_newline: bool
) -> str:
    """Return the text that an argument and an option name between them.

    Args:
        out: Told when a terminal is read.
        text: The argument: the text itself, or ``-`` for stdin.
        source: A file instead.
        keep_newline: Whether the final line end of what is read is kept; pipes and
            editors add one.

    Raises:
        InvalidArgumentError: If there is no text, two texts, too long a one, or one
            that is not UTF-8.

    """
    if text is not None and source is not None:
        raise InvalidArgumentError(
            "text",
            "text was given twice: as an argument and with --file",
            code="usage",
            hint="give one of them",
        )
    if source is not None:
        return read_file(source, keep_newline=keep_newline)
    if text is None:
        raise InvalidArgumentError(
            "text", "text required", code="invalid-text", hint="pass '-' to read stdin"
        )
    if text != "-":
        return text
    if sys.stdin.isatty():
        out.note("reading stdin; end it with Ctrl-D")
    return _read(sys.stdin.buffer, "stdin", keep_newline=keep_newline)


def read_file(path: str, *, keep_newline: bool = False) -> str:
    """Return the text of a file, under the rules of ``decode_text``.

    Raises:
        InvalidArgumentError: If it cannot be read, is too long, or is not UTF-8.

    """
    try:
        with open(path, "rb") as file:
            return _read(file, path, keep_newline=keep_newline)
    except OSError as error:
        raise InvalidArgumentError(
            "file",
            f"file {path!r} cannot be read: {error.strerror}",
            details={"path": path},
        ) from error


def decode_text(raw: bytes, origin: str, *, keep_newline: bool = False) -> str:
    """Return bytes as text: strict UTF-8, without a BOM and one final line end.

    Args:
        raw: What was read.
        origin: Where it was read from, for the message.
        keep_newline: Whether a final line end stays.

    Raises:
        InvalidArgumentError: ``invalid-text``, with the offset of the first bad byte.

    """
    start = len(codecs.BOM_UTF8) if raw.startswith(codecs.BOM_UTF8) else 0
    try:
        text = raw[start:].decode("utf-8")
    except UnicodeDecodeError as error:
        offset_bytes = start + error.start
        raise InvalidArgumentError(
            "text",
            f"text from {origin} is not UTF-8: byte {raw[offset_bytes]:#04x}"
            f" at offset {offset_bytes}",
            code="invalid-text",
            details={"reason": "not-utf-8", "offset": offset_bytes},
        ) from error
    return text if keep_newline else text.removesuffix("\n")


def _read(stream: BinaryIO, origin: str, *, keep_newline: bool) -> str:
    # A BOM and a final line end may be dropped; anything longer than that is refused
    # without reading on.
    dropped_bytes = len(codecs.BOM_UTF8) + 1
    raw = stream.read(TEXT_BYTES + dropped_bytes + 1)
    is_too_long = len(raw) > TEXT_BYTES + dropped_bytes
    text = "" if is_too_long else decode_text(raw, origin, keep_newline=keep_newline)
    if is_too_long or len(text.encode()) > TEXT_BYTES:
        raise InvalidArgumentError(
            "text",
            f"text from {origin} is too long: more than {TEXT_BYTES} bytes",
            code="invalid-text",
            details={"reason": "too-long", "limit": TEXT_BYTES},
        )
    return text
