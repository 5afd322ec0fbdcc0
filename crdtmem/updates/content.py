"""What a document may hold: its roots, the keys of its maps and their values."""

from collections.abc import Mapping
from dataclasses import dataclass
from math import isfinite
from struct import unpack
from types import MappingProxyType

from crdtmem.limits import ANY_NESTING_LEVELS, UINT_MAX
from crdtmem.updates.cursor import Cursor

__all__ = ["SET_ROOTS", "SLOT_ROOTS", "Place", "Roots", "read_place", "read_value"]

Place = tuple[str, str]
"""Where a map item stands: the name of its root, and its key."""


@dataclass(frozen=True, slots=True)
class Roots:
    """The root types of a document, and what may stand in them.

    Attributes:
        texts: Names of the roots that are texts.
        keys: The keys of the roots that are maps, each with the type of its value.
        open_maps: Names of the roots that are maps with any key and any JSON value.

    """

    texts: frozenset[str]
    keys: Mapping[Place, type]
    open_maps: frozenset[str] = frozenset()

    @property
    def value_levels(self) -> int:
        """How deep a value may be nested; 0 where all values are flat."""
        return ANY_NESTING_LEVELS if self.open_maps else 0

    def takes(self, place: Place | None, kind: type) -> bool:
        """Tell whether a value may stand there; None for a place that isn't known."""
        if self.open_maps:
            return True
        return kind is self.keys[place] if place else kind in self.keys.values()


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

SET_ROOTS = Roots(
    texts=frozenset(),
    keys=MappingProxyType({}),
    open_maps=frozenset({"items"}),
)
"""The document of a memory set; ``doc.items`` tells which of its values are items."""


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
    if place in roots.keys or root in roots.open_maps:
        return place
    if any(root == name for name, _ in roots.keys):
        reason = f"no key is called so ({len(place[1])} characters)"
        raise cursor.refusal("update-content", reason)
    reason = f"no map is called so ({len(root)} characters)"
    raise cursor.refusal("update-root", reason)


def read_value(cursor: Cursor, *, levels: int = 0) -> type:
    """Read the one value of a map item, and return its type.

    A whole number of up to 53 bits is an ``int`` however it was written: pycrdt writes
    every number as a float, 2000 as 2000.0, and Yjs only fractions.

    Args:
        cursor: In front of it.
        levels: How deep it may be nested; 0 for neither lists nor objects.

    Raises:
        UpdateRejectedError: ``update-content`` for several values or one that no
            document holds: nothing nested deeper, no bytes, nothing that JSON lacks.

    """
    count = cursor.uint()
    if count != 1:
        raise cursor.refusal("update-content", f"{count} values under one key")
    return _read_one(cursor, levels)


def _read_one(cursor: Cursor, levels: int) -> type:
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
        case 117 | 118 as tag if levels:  # a list, an object
            for _ in range(cursor.uint()):
                if tag == 118:
                    cursor.text()
                _read_one(cursor, levels - 1)
            return dict if tag == 118 else list
        case tag:
            # Also 116 buffer, 122 bigint, 127 undefined.
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
