"""Yjs v1 updates by hand, also those that no library would write."""

__all__ = ["number", "string", "struct", "text", "uint", "update", "value"]

Id = tuple[int, int]


def uint(value: int) -> bytes:
    """Encode an integer of any size, seven bits a byte, low group first."""
    groups = bytearray()
    while value > 0x7F:
        groups.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*groups, value])


def string(content: str | bytes) -> bytes:
    """Encode a string, or bytes that claim to be one."""
    encoded = content.encode() if isinstance(content, str) else content
    return uint(len(encoded)) + encoded


def struct(
    ref: int,
    content: bytes,
    *,
    origin: Id | None = None,
    right: Id | None = None,
    root: str | bytes | None = None,
    key: str | bytes | None = None,
    parent: Id | None = None,
    is_keyed: bool = False,
) -> bytes:
    """Encode a struct; ``is_keyed`` says that its origin stands under a key."""
    info = ref | (key is not None or is_keyed) << 5
    info |= (right is not None) << 6 | (origin is not None) << 7
    fields = [bytes([info])]
    fields += [uint(number) for place in (origin, right) if place for number in place]
    if root is not None:
        fields += [uint(1), string(root)]
    if parent is not None:
        fields += [uint(0), *map(uint, parent)]
    if key is not None:
        fields.append(string(key))
    return b"".join([*fields, content])


def text(content, **place):
    """Encode an inserted text."""
    return struct(4, string(content), **place)


def number(whole: int) -> bytes:
    """Encode a small whole number as Yjs does."""
    return bytes([125, whole])


def value(content, *, count=1, **place):
    """Encode one value under a key, or what claims to be so many."""
    return struct(8, uint(count) + content, **place)


def update(*sections, deletes=()):
    """Encode an update.

    Args:
        sections: Client, first clock and structs of each section.
        deletes: Client and ranges of each section of the delete set.

    """
    out = [uint(len(sections))]
    for client, clock, structs in sections:
        out += [uint(len(structs)), uint(client), uint(clock), *structs]
    out.append(uint(len(deletes)))
    for client, ranges in deletes:
        out += [uint(client), uint(len(ranges))]
        out += [uint(number) for place in ranges for number in place]
    return b"".join(out)
