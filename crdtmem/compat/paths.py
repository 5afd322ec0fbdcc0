r"""Paths below ``/memories`` as labels of slots, and back.

The code is fixed and injective, so two machines that make the same path meet in the
same slot. A final ``.md`` is dropped, and its absence marked: ``notes/todo.md`` is
``notes__todo``, ``todo.txt`` is ``todo_x2etxt_x00``. Letters a to z and digits stay,
"/" is two underscores, a byte of anything else is ``_x`` and two hexadecimal digits. A
path whose label would not begin with a letter has an "r" in front.

A label that no path has, such as ``a__``, still is a file: ``/memories/@/a__.md``.

Pure: which slots there are is looked up by who asks.
"""

import re
from typing import NamedTuple

from crdtmem.doc.text_form import lone_surrogate
from crdtmem.errors import InvalidArgumentError
from crdtmem.scope import LABEL_PATTERN

__all__ = ["ROOT", "MemoryPath", "label_of", "parse_path", "path_of"]

ROOT = "/memories"

_LABEL_CHARS = 64
_SUFFIX = ".md"
# What ends the label of a path without the suffix: a byte that no path has.
_BARE = "_x00"
# Where a label lies that no path leads to.
_OTHER = "@/"
# An underscore stays only where it can be taken for nothing else.
_ODD = re.compile(
    r"(?<![a-z0-9])_|_(?![a-z0-9])|_(?=x[0-9a-f]{2})|[^a-z0-9_]", re.DOTALL
)
_CODED = re.compile("_x([0-9a-f]{2})|__|.", re.DOTALL)
# What a web server would read as a dot, a separator or the end of the path.
_HIDDEN = re.compile("%(?:00|2e|2f|5c)", re.IGNORECASE)


class MemoryPath(NamedTuple):
    """A path that was checked.

    Attributes:
        inner: What follows ``/memories/``; "" for the root.
        is_folder: Whether it was written with a "/" at its end.

    """

    inner: str
    is_folder: bool

    @property
    def whole(self) -> str:
        """The path from the root on, without a "/" at its end."""
        return f"{ROOT}/{self.inner}" if self.inner else ROOT


def parse_path(value: object) -> MemoryPath:
    """Return a path that a caller gave, checked.

    Raises:
        InvalidArgumentError: If it is not ``/memories`` or below, or could be read in
            more than one way.

    """
    if not isinstance(value, str):
        raise _bad_path(f"path must be a string, not {type(value).__name__}")
    if lone_surrogate(value) is not None:
        raise _bad_path("path holds half a surrogate pair")
    inner = value.removeprefix(ROOT)
    if inner == value or not (inner == "" or inner.startswith("/")):
        raise _bad_path(f"path must start with {ROOT}, not {value!r:.80}")
    if "\\" in inner or "\0" in inner or _HIDDEN.search(inner):
        raise _bad_path(
            f"path must hold no backslash, NUL or percent-coded dot or separator:"
            f" {value!r:.80}"
        )
    is_folder = inner.endswith("/")
    parts = inner.removesuffix("/").split("/")[1:]
    if any(part in ("", ".", "..") for part in parts):
        raise _bad_path(f"path must hold no empty part, '.' or '..': {value!r:.80}")
    return MemoryPath("/".join(parts), is_folder)


def label_of(inner: str) -> str:
    """Return the label of the slot that a path names.

    Args:
        inner: What follows ``/memories/`` in a path that was checked; not empty.

    Raises:
        InvalidArgumentError: If the label would be too long.

    """
    other = inner.removeprefix(_OTHER).removesuffix(_SUFFIX)
    is_other = inner == f"{_OTHER}{other}{_SUFFIX}" and _is_label(other)
    # Only a label that has no path of its own is reached in this way.
    if is_other and path_of(other) == inner:
        return other
    label = _label_of(inner)
    if len(label) > _LABEL_CHARS:
        raise _bad_path(
            f"path is too long: its {len(inner)} characters make a label of"
            f" {len(label)} > {_LABEL_CHARS}"
        )
    return label


def path_of(label: str) -> str:
    """Return what follows ``/memories/`` in the path of a slot."""
    inner = _inner_of(label)
    if inner is not None and _is_path_to(inner, label):
        return inner
    return f"{_OTHER}{label}{_SUFFIX}"


def _is_path_to(inner: str, label: str) -> bool:
    try:
        path = parse_path(f"{ROOT}/{inner}")
        return path == (inner, False) and label_of(inner) == label
    except InvalidArgumentError:
        return False


def _is_label(text: str) -> bool:
    return re.fullmatch(LABEL_PATTERN, text) is not None


def _label_of(inner: str) -> str:
    name = inner.removesuffix(_SUFFIX)
    if name == inner or name == "" or name.endswith("/"):
        coded = _ODD.sub(_code_of, inner) + _BARE
    else:
        coded = _ODD.sub(_code_of, name)
    if re.match("[a-z]", coded) and not coded.startswith("r_x"):
        return coded
    if coded[0] != "_":
        coded = f"_x{ord(coded[0]):02x}{coded[1:]}"
    return f"r{coded}"


def _code_of(found: re.Match[str]) -> str:
    if found[0] == "/":
        return "__"
    return "".join(f"_x{byte:02x}" for byte in found[0].encode())


def _inner_of(label: str) -> str | None:
    """Return what a label is the code of; None if it is the code of nothing."""
    coded = label[1:] if label.startswith("r_x") else label
    name = coded.removesuffix(_BARE)
    try:
        inner = b"".join(map(_bytes_of, _CODED.finditer(name))).decode()
    except UnicodeDecodeError:
        return None
    return inner if name != coded else f"{inner}{_SUFFIX}"


def _bytes_of(found: re.Match[str]) -> bytes:
    if found[1] is not None:
        return bytes.fromhex(found[1])
    return b"/" if found[0] == "__" else found[0].encode()


def _bad_path(message: str) -> InvalidArgumentError:
    return InvalidArgumentError(
        "path",
        message,
        hint=f"use a path such as '{ROOT}/notes.md', without '.', '..' or empty parts",
    )
