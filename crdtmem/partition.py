"""Partition keys: how the keys of memory sets are written, and the names of their docs.

The *long form* of a key names its type and every byte of it, so that keys are equal if
and only if their long forms are; ``"1"``, ``1``, ``True`` and ``("1",)`` never meet.
Nothing is normalised and no key is tested for truth. A long form that is too long for
a name is replaced there by its hash, the *short form*; the store keeps both.
"""

import hashlib
import re
import struct
from math import isfinite
from typing import TYPE_CHECKING, TypeAlias

from crdtmem.errors import InvalidArgumentError
from crdtmem.limits import (
    KEY_INT_BITS,
    KEY_LEVELS,
    KEY_LONG_CHARS,
    KEY_SHORT_CHARS,
    KEY_TUPLE_MAX,
    SET_NAME_BYTES,
)

if TYPE_CHECKING:
    from uuid import UUID

__all__ = [
    "PartitionKey",
    "checked_set_name",
    "decode_key",
    "doc_name",
    "encode_key",
    "short_form",
]

PartitionKey: TypeAlias = (
    "str | bytes | int | bool | float | UUID | tuple[PartitionKey, ...]"
)

_PLAIN = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-"
_WRITTEN = [chr(byte) if byte in _PLAIN else f"%{byte:02X}" for byte in range(256)]


def encode_key(key: object) -> str:
    """Return the long form of a partition key.

    Args:
        key: Of exactly one of the types of `PartitionKey`; a subclass is no key, and
            None means that there is no key.

    Raises:
        InvalidArgumentError: ``invalid-partition-key``.

    """
    long = _encoded(key, 1)
    if len(long) > KEY_LONG_CHARS:
        raise _too_long(len(long))
    return long


def decode_key(long: str) -> PartitionKey:
    """Return the key of a long form; the inverse of `encode_key`.

    Raises:
        InvalidArgumentError: ``invalid-partition-key`` if no key is written so.

    """
    try:
        key, rest = _decoded(long, 1) if len(long) <= KEY_LONG_CHARS else (None, "")
    except ValueError:
        key, rest = None, ""
    # One key has one long form; a number with a zero before it is not one.
    if key is None or rest or encode_key(key) != long:
        raise _refused(f"the written form of a key, not {long[:64]!a}")
    return key


def short_form(long: str) -> str:
    """Return what stands for a long form in a doc's name: itself, or its hash."""
    if len(long) <= KEY_SHORT_CHARS:
        return long
    return "h." + hashlib.sha256(long.encode()).hexdigest()


def doc_name(long_key: str, name: str) -> str:
    """Return the name of the doc of a set.

    Args:
        long_key: The long form of the set's partition key.
        name: The set's name, as `checked_set_name` returned it.

    """
    return f"{short_form(long_key)}/{short_form(f'n.{_escaped(name.encode())}')}"


def checked_set_name(name: object) -> str:
    """Return the name that a caller gave to a memory set, as it is.

    Raises:
        InvalidArgumentError: ``invalid-name`` unless it has 1 to 256 bytes of UTF-8
            and no control character.

    """
    # Only what no surrogate is in can be encoded, so this order matters.
    if (
        isinstance(name, str)
        and name
        and not re.search(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff]", name)
        and len(name.encode()) <= SET_NAME_BYTES
    ):
        return str(name)
    shown = ascii(name) if isinstance(name, str) and len(name) <= 64 else _kind(name)
    raise InvalidArgumentError(
        "name",
        f"name must be 1 to {SET_NAME_BYTES} bytes of UTF-8 without control "
        f"characters, not {shown}",
        code="invalid-name",
    )


def _encoded(key: object, level: int) -> str:
    # By exact type: True is an int and equals 1.0, and an enum may be a str.
    if type(key) is str:
        return f"s.{_text(key)}"
    if type(key) is bytes:
        return f"b.{_escaped(key)}"
    if type(key) is bool:
        return f"t.{key:d}"
    if type(key) is int:
        if key.bit_length() > KEY_INT_BITS:
            raise _refused(f"at most {KEY_INT_BITS} bits, not {key.bit_length()}")
        return f"i.{key}"
    if type(key) is float:
        return f"f.{_number(key)}"
    if type(key) is tuple:
        return _sequence(key, level)
    from uuid import UUID  # noqa: PLC0415 - its import costs what few keys need

    if type(key) is UUID:
        return f"u.{key.hex}"
    raise _refused(
        f"str, bytes, int, bool, float, UUID or a tuple of these, not {_kind(key)}"
    )


def _text(text: str) -> str:
    try:
        return _escaped(text.encode())
    except UnicodeEncodeError as exc:
        raise _refused(f"text without lone surrogates, not {exc.object!a:.80}") from exc


def _escaped(data: bytes) -> str:
    if len(data) > KEY_LONG_CHARS:  # Before three times as much is made of it.
        raise _too_long(len(data))
    return "".join(map(_WRITTEN.__getitem__, data))


def _number(number: float) -> str:
    if not isfinite(number):
        raise _refused(f"a finite number, not {number}")
    return struct.pack(">d", number).hex()


def _sequence(key: tuple[object, ...], level: int) -> str:
    if level > KEY_LEVELS:
        raise _refused(f"tuples at most {KEY_LEVELS} deep")
    if len(key) > KEY_TUPLE_MAX:
        raise _refused(f"tuples of at most {KEY_TUPLE_MAX} elements, not {len(key)}")
    long = f"l({','.join(_encoded(element, level + 1) for element in key)})"
    if len(long) > KEY_LONG_CHARS:
        raise _too_long(len(long))
    return long


def _decoded(long: str, level: int) -> tuple[PartitionKey, str]:
    """Return the key at the beginning of a long form, and what follows it.

    Raises:
        ValueError: If there is none. What is returned may have another long form.

    """
    kind, rest = long[:2], long[2:]
    if kind == "l(":
        return _decoded_tuple(rest, level)
    body, _, _ = rest.partition(",")
    body, _, _ = body.partition(")")
    rest = rest[len(body) :]
    if kind == "s.":
        return _unescaped(body).decode(), rest
    if kind == "b.":
        return _unescaped(body), rest
    if kind == "i.":
        return int(body), rest
    if kind == "t.":
        return body == "1", rest
    if kind == "f.":
        return _decoded_float(body), rest
    if kind == "u.":
        from uuid import UUID  # noqa: PLC0415 - its import costs what few keys need

        return UUID(body), rest
    raise ValueError(kind)


def _decoded_tuple(rest: str, level: int) -> tuple[PartitionKey, str]:
    if level > KEY_LEVELS:  # Before the stack ends.
        raise ValueError(level)
    elements: list[PartitionKey] = []
    while not rest.startswith(")"):
        if len(elements) == KEY_TUPLE_MAX:  # Each takes a copy of the rest.
            raise ValueError(rest[:1])
        element, rest = _decoded(rest, level + 1)
        elements.append(element)
        if not rest.startswith(")"):
            rest = rest.removeprefix(",")
    return tuple(elements), rest[1:]


def _decoded_float(body: str) -> float:
    if not re.fullmatch("[0-9a-f]{16}", body):
        raise ValueError(body)
    number: float = struct.unpack(">d", bytes.fromhex(body))[0]
    return number


def _unescaped(body: str) -> bytes:
    if not re.fullmatch(r"(?:[A-Za-z0-9_-]|%[0-9A-F]{2})*", body):
        raise ValueError(body)
    # Escapes of plain characters are seen when the key is encoded again.
    plain, *escaped = body.split("%")
    parts = [bytes.fromhex(part[:2]) + part[2:].encode() for part in escaped]
    return b"".join([plain.encode(), *parts])


def _refused(wanted: str) -> InvalidArgumentError:
    return InvalidArgumentError(
        "partition_key",
        f"partition_key must be {wanted}",
        code="invalid-partition-key",
    )


def _too_long(size: int) -> InvalidArgumentError:
    return _refused(f"at most {KEY_LONG_CHARS} characters when written, not {size}")


def _kind(value: object) -> str:
    return f"a value of type {type(value).__name__}"
