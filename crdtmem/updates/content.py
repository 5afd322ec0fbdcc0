"""What a document may hold: its roots, the keys of its maps and their values."""

from collections.abc import Mapping
from dataclasses import dataclass
from math import isfinite
from struct import unpack
from types import MappingProxyType

from crdtmem.limits import UINT_MAX
from crdtmem.updates.cursor import Cursor

__all__ = ["SLOT_ROOTS", "Place", "Roots", "read_place", "read_value"]

Place = tuple[str, str]
"""Where a map item stands: the name of its root, and its key."""


@dataclass(frozen=True, slots=True)
class Roots:
    """The root types of a document, and what may stand in them.

    Attributes:
        texts: Names of the roots that are texts.
        keys: The keys of the roots that are maps, each with the type of its value.

    """

    texts: frozenset[str]
    keys: Mapping[Place, type]


SLOT_ROOTS = Roots(
    texts=frozenset({"content"}),
    keys=MappingProxyType(
        {
            ("meta", "appendOnly"): bool,
            ("meta", "deleted"): bool,
            ("meta", "description"): str,
            ("meta", "pinned"): bool,
            ("meta", "readOnly"): bool,
            ("meta", "sizeLimit"): int,
        }
    ),
)
"""The document of a slot."""


def read_place(cursor: Cursor, roots: Roots, *, keyed: bool) -> Place | None:
    """Read the root that a struct stands in, and its key if it has one.

    Returns:
        The place of a map item; None in a text.

    Raises:
        UpdateRejectedError: ``update-root`` for a root that isn't there or is of the
            other kind, ``update-content`` for an unknown key.

    """
    if cursor.uint() != 1:
        raise cursor.refusal("update-root", "parent is no root")
    root = cursor.text()
    if not keyed:
        if root not in roots.texts:
            reason = f"no text is called so ({len(root)} characters)"
            raise cursor.refusal("update-root", reason)
        return None
    place = root, cursor.text()
    if place in roots.keys:
        return place
    if any(root == name for name, _ in roots.keys):
        reason = f"no key is called so ({len(place[1])} characters)"
        raise cursor.refusal("update-content", reason)
    reason = f"no map is called so ({len(root)} characters)"
    raise cursor.refusal("update-root", reason)


def read_value(cursor: Cursor) -> type:
    """Read the one value of a map item, and return its type.

    A whole number of up to 53 bits is an ``int`` however it was written: pycrdt writes
    every number as a float, 2000 as 2000.0, and Yjs only fractions.

    Raises:
        UpdateRejectedError: ``update-content`` for several values or one that a slot
            never holds: nothing nested, no bytes, nothing that JSON lacks.

    """
    count = cursor.uint()
    if count != 1:
        raise cursor.refusal("update-content", f"{count} values under one key")
    match cursor.byte():
        case 119:  # a string
            cursor.text()
            return str
        case 120 | 121:  # true, false
            return bool
        case 123:
            return _kind_of_float(cursor, *unpack(">d", cursor.take(8)))
        case 124:
            return _kind_of_float(cursor, *unpack(">f", cursor.take(4)))
        case 125:
            return _read_integer(cursor)
        case 126:  # null
            return type(None)
        case tag:
            # Also 116 buffer, 117 array, 118 object, 122 bigint, 127 undefined.
            raise cursor.refusal("update-content", f"value with tag {tag}")


def _read_integer(cursor: Cursor) -> type:
    # One byte with a flag, a sign and six bits; then as every integer.
    first = cursor.byte()
    value = first & 0x3F
    if first & 0x80:
        rest = cursor.uint()
        if not rest:
            raise cursor.refusal("update-malformed", "integer ends in an empty group")
        value |= rest << 6
    if value > UINT_MAX:
        raise cursor.refusal("update-content", "integer exceeds 53 bits")
    return int


def _kind_of_float(cursor: Cursor, value: float) -> type:
    if not isfinite(value):
        raise cursor.refusal("update-content", f"{value} is no finite number")
    return int if value.is_integer() and abs(value) <= UINT_MAX else float
