"""Slots as Markdown files: a label from a path and back, and a folder as an export.

Pure: a folder is a mapping of paths to bytes here, and who reads and writes files is
``transfer``. A label is made of its path alone, so two machines that import one folder
meet in the same slots. ``notes/todo.md`` is ``notes__todo``; what a label cannot hold
is escaped as ``_x`` and two hex digits.
"""

import hashlib
import json
import re
from collections.abc import Iterable, Mapping

from crdtmem.cli.texts import decode_text
from crdtmem.errors import InvalidArgumentError
from crdtmem.models import BadRecord, SlotView
from crdtmem.scope import LABEL_PATTERN

__all__ = [
    "IMPORTED_SIZE_LIMIT_UNITS",
    "file_of",
    "label_of_path",
    "path_of_label",
    "records_from",
]

IMPORTED_SIZE_LIMIT_UNITS = 20_000
"""sizeLimit of a slot that an import makes; a longer text gets one that it fits."""

_SUFFIX = ".md"
# How a label ends whose path does not end in the suffix.
_NO_SUFFIX = "_x00"
_LABEL_CHARS = 64
_SIZE_LIMIT_MAX_UNITS = 1_000_000
_PLAIN = frozenset(b"abcdefghijklmnopqrstuvwxyz0123456789")
_LETTERS = frozenset("abcdefghijklmnopqrstuvwxyz")
_HEX_ESCAPE = re.compile(rb"x[0-9a-f]{2}")
_TOKEN = re.compile(r"_x([0-9a-f]{2})|(__)|(.)", re.DOTALL)
# Labels that no path comes to lie below a folder that no label comes to.
_AS_IS = "@/"


def label_of_path(path: str) -> str:
    """Return the label of a file, by its path below the folder, with ``/`` between.

    Raises:
        InvalidArgumentError: If the label would be too long, or the path is none.

    """
    if path.startswith(_AS_IS):
        return _label_as_is(path)
    label = _encode(path)
    if len(label) > _LABEL_CHARS:
        raise InvalidArgumentError(
            "label",
            f"the label of {path!r} would have {len(label)} characters, more than"
            f" {_LABEL_CHARS}",
            code="invalid-label",
            details={"path": path, "length": len(label), "limit": _LABEL_CHARS},
        )
    return label


def path_of_label(label: str) -> str:
    """Return the path that a slot's file has: one that comes back to its label."""
    path = _decode(label)
    if path is not None and not path.startswith(_AS_IS) and _encode(path) == label:
        return path
    return f"{_AS_IS}{label}{_SUFFIX}"


def file_of(view: SlotView) -> tuple[str, bytes]:
    """Return the path and bytes of a slot's file: its text, with a final line end."""
    content = view.content if isinstance(view.content, str) else ""
    return path_of_label(view.label), f"{content}\n".encode() if content else b""


def records_from(
    files: Mapping[str, bytes], scope: str
) -> tuple[list[str], list[BadRecord]]:
    """Return a folder as the lines of an export, and the files that cannot be one.

    The same files give the same lines, so a second import of them changes nothing.

    Args:
        files: Bytes by path.
        scope: Where the slots go.

    """
    lines = [_line(type="header", format="crdtmem-slots", version=1, at="", replica="")]
    bad: list[BadRecord] = []
    for number, (path, raw) in enumerate(sorted(files.items()), start=1):
        try:
            content = decode_text(raw, path)
            lines.append(_slot_line(label_of_path(path), content, scope))
        except InvalidArgumentError as error:
            bad.append(BadRecord(line=number, code=error.code, reason=error.message))
    lines.append(_line(type="end", slots=len(lines) - 1, history=0))
    return lines, bad


def _label_as_is(path: str) -> str:
    label = path.removeprefix(_AS_IS).removesuffix(_SUFFIX)
    if not re.fullmatch(LABEL_PATTERN, label) or path_of_label(label) != path:
        raise InvalidArgumentError(
            "label",
            f"{path!r} is not the file of a label that no other path comes to",
            code="invalid-label",
            details={"path": path},
        )
    return label


def _slot_line(label: str, content: str, scope: str) -> str:
    size = len(content.encode("utf-16-le")) // 2
    return _line(
        type="slot",
        label=label,
        scope=scope,
        project="",
        content=content,
        contentHash=hashlib.sha256(content.encode()).hexdigest(),
        rev=0,
        description="",
        sizeLimit=min(max(IMPORTED_SIZE_LIMIT_UNITS, size), _SIZE_LIMIT_MAX_UNITS),
        pinned=False,
        readOnly=False,
        appendOnly=False,
        createdAt=None,
        updatedAt=None,
        deleted=False,
    )


def _line(**fields: object) -> str:
    return json.dumps(fields, ensure_ascii=False) + "\n"


def _encode(path: str) -> str:
    folder, slash, name = path.rpartition("/")
    has_suffix = name.endswith(_SUFFIX) and name != _SUFFIX
    stem = f"{folder}{slash}{name.removesuffix(_SUFFIX)}" if has_suffix else path
    raw = stem.encode("utf-8", "surrogateescape")
    label = "".join(_encoded_bytes(raw)) + ("" if has_suffix else _NO_SUFFIX)
    if label[:1] in _LETTERS and not label.startswith("r_x"):
        return label
    first = label[:1]
    return f"r{label}" if first == "_" else f"r_x{ord(first):02x}{label[1:]}"


def _encoded_bytes(raw: bytes) -> Iterable[str]:
    for index, byte in enumerate(raw):
        if byte in _PLAIN or (byte == 0x5F and _is_plain_underscore(raw, index)):
            yield chr(byte)
        elif byte == 0x2F:
            yield "__"
        else:
            yield f"_x{byte:02x}"


def _is_plain_underscore(raw: bytes, index: int) -> bool:
    """Tell whether an underscore stands between two plain bytes and reads as itself."""
    before, after = raw[index - 1 : index], raw[index + 1 : index + 2]
    return (
        bool(before and after)
        and before[0] in _PLAIN
        and after[0] in _PLAIN
        and not _HEX_ESCAPE.match(raw, index + 1)
    )


def _decode(label: str) -> str | None:
    """Return the path of a label; it may come back to another one, or be None."""
    has_suffix = not label.endswith(_NO_SUFFIX)
    body = label if has_suffix else label.removesuffix(_NO_SUFFIX)
    if re.match(r"r_x[0-9a-f]{2}", body):
        body = body[1:]
    raw = bytearray()
    for escaped, slash, plain in _TOKEN.findall(body):
        raw += bytes.fromhex(escaped) if escaped else b"/" if slash else plain.encode()
    try:
        path = raw.decode("utf-8")
    except UnicodeDecodeError:
        return None
    path += _SUFFIX if has_suffix else ""
    segments = path.split("/")
    is_safe = not {"", ".", ".."} & set(segments) and "\0" not in path
    return path if is_safe and "\\" not in path else None
