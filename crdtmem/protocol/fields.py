"""How the fields of messages are written, read and checked.

A field's codec holds both directions, so that its rule stands in one place: a value
that breaks it is RemoteProtocolError when received and LocalProtocolError when sent.
"""

from collections.abc import Callable
from dataclasses import dataclass
from inspect import signature
from typing import Any, Generic, TypeVar

from crdtmem.errors import LocalProtocolError, RemoteProtocolError
from crdtmem.limits import UINT_MAX
from crdtmem.protocol.codec import Reader, write_bytes, write_str, write_uint
from crdtmem.protocol.records import write_fixed

__all__ = [
    "BYTES",
    "FIX16",
    "FIX32",
    "STR",
    "UINT",
    "Codec",
    "among",
    "bad_value",
    "checked",
    "listing",
    "most",
    "struct",
    "text",
]

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Codec(Generic[_T]):
    """Both directions of a field; each checks the field's rule."""

    write: Callable[[_T], bytes]
    read: Callable[[Reader], _T]


def bad_value(text: str) -> RemoteProtocolError:
    """Return the error for a value that its field does not allow."""
    return RemoteProtocolError("bad-value", text)


def checked(codec: Codec[_T], holds: Callable[[_T], bool], what: str) -> Codec[_T]:
    """Return a codec that refuses values for which a rule does not hold."""

    def write(value: _T) -> bytes:
        if not holds(value):
            raise LocalProtocolError(what)
        return codec.write(value)

    def read(reader: Reader) -> _T:
        value = codec.read(reader)
        if not holds(value):
            raise bad_value(what)
        return value

    return Codec(write, read)


def _fixed(size: int) -> Codec[bytes]:
    return Codec(
        lambda value: write_fixed(value, size), lambda reader: reader.read_fixed(size)
    )


def most(limit: int) -> Codec[int]:
    """Return the codec of an integer up to a limit."""

    def write(value: int) -> bytes:
        if value > limit:
            raise LocalProtocolError(f"{value} exceeds the limit of {limit}")
        return write_uint(value)

    return Codec(write, lambda reader: reader.read_uint(limit))


def text(limit: int) -> Codec[str]:
    """Return the codec of a string up to a length in bytes."""

    def write(value: str) -> bytes:
        size_bytes = len(value.encode(errors="replace"))
        if size_bytes > limit:
            raise LocalProtocolError(f"{size_bytes} bytes exceed the limit of {limit}")
        return write_str(value)

    return Codec(write, lambda reader: reader.read_str(limit))


def among(values: range, what: str) -> Codec[int]:
    """Return the codec of an integer that is one of a few."""
    return checked(UINT, values.__contains__, f"{what} is not known")


def listing(one: Codec[_T], most: int, least: int = 0) -> Codec[tuple[_T, ...]]:
    """Return the codec of a list; its count is checked before anything is read."""

    def write(values: tuple[_T, ...]) -> bytes:
        if not least <= len(values) <= most:
            raise LocalProtocolError(
                f"list has {len(values)} entries, not within {least} and {most}"
            )
        return write_uint(len(values)) + b"".join(map(one.write, values))

    def read(reader: Reader) -> tuple[_T, ...]:
        count = reader.read_uint(most)
        if count < least:
            raise bad_value(f"list has {count} entries, and {least} is the least")
        return tuple(one.read(reader) for _ in range(count))

    return Codec(write, read)


def struct(build: Callable[..., _T], *codecs: Codec[Any]) -> Codec[_T]:
    """Return the codec of a dataclass, from those of its fields in their order."""
    names = [*signature(build).parameters]

    def write(value: _T) -> bytes:
        values = (getattr(value, name) for name in names)
        return b"".join(c.write(v) for c, v in zip(codecs, values, strict=True))

    def read(reader: Reader) -> _T:
        return build(*[codec.read(reader) for codec in codecs])

    return Codec(write, read)


# Byte strings are no longer than the frame that they came in.
UINT = most(UINT_MAX)
BYTES = Codec(write_bytes, lambda reader: reader.read_bytes(UINT_MAX))
STR = Codec(write_str, lambda reader: reader.read_str(UINT_MAX))
FIX16 = _fixed(16)
FIX32 = _fixed(32)
