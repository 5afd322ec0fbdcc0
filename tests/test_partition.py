"""crdtmem.partition"""

import enum
import hashlib
import math
import uuid

import pytest
from hypothesis import example, given, strategies as st

from crdtmem.errors import InvalidArgumentError
from crdtmem.limits import KEY_LONG_CHARS, SET_NAME_BYTES
from crdtmem.partition import (
    checked_set_name,
    decode_key,
    doc_name,
    encode_key,
    short_form,
)

TEXTS = st.text(st.characters(exclude_categories=["Cs"]))
# What long forms are made of: keys that look like other keys.
LOOK_ALIKES = st.text("sbitful.()[],/%0123456789-AaFf\0 ", max_size=8)
SCALARS = (
    TEXTS
    | LOOK_ALIKES
    | LOOK_ALIKES.map(str.encode)
    | st.binary(max_size=8)
    | st.integers(-(2**1024) + 1, 2**1024 - 1)
    | st.integers(-2, 2)
    | st.booleans()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.sampled_from([0.0, -0.0, 1.0, "1", 1, True, b"1", "é", "e\u0301", "x" * 10240])
    | st.uuids()
    | st.integers(0, 1).map(lambda number: uuid.UUID(int=number))
)


def tuples_of(elements):
    return st.lists(elements, max_size=3).map(tuple)


KEYS = SCALARS | tuples_of(SCALARS | tuples_of(SCALARS | tuples_of(SCALARS)))
NAMES = st.text(
    st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=64
) | st.text("ns./%A0", min_size=1, max_size=6)


class Word(str):
    __slots__ = ()


class Colour(enum.IntEnum):
    RED = 1


def shape(key):
    """Return what tells a key from every other, types and signs of zero included."""
    if isinstance(key, tuple):
        return tuple, tuple(map(shape, key))
    if isinstance(key, float):
        return float, key, math.copysign(1, key)
    return type(key), key


@pytest.mark.requirement("sets-S3")
@given(KEYS, KEYS)
@example("l(s.a)", ("a",))
@example(("a-b", "c"), ("a", "b-c"))
@example((("a",), "b"), ("a", ("b",)))
@example(0.0, -0.0)
def test_keys_have_one_long_form_if_and_only_if_they_are_one_key(one, other):
    assert (encode_key(one) == encode_key(other)) == (shape(one) == shape(other))


@pytest.mark.requirement("sets-S3")
@given(KEYS)
def test_a_key_comes_back_from_its_long_form(key):
    assert shape(decode_key(encode_key(key))) == shape(key)


@pytest.mark.requirement("sets-S3")
@given(KEYS, NAMES, KEYS, NAMES)
@example("a/n.b", "c", "a", "b/n.c")
@example("k", "é", "k", "e\u0301")
def test_docs_have_one_name_if_and_only_if_they_are_of_one_set(
    one_key, one_name, other_key, other_name
):
    one = doc_name(encode_key(one_key), checked_set_name(one_name))
    other = doc_name(encode_key(other_key), checked_set_name(other_name))
    same_set = (shape(one_key), one_name) == (shape(other_key), other_name)

    assert (one == other) == same_set
    assert one.isascii()
    assert len(one) <= 241


@pytest.mark.parametrize(
    ("key", "kind"),
    [
        (None, "NoneType"),
        (["a"], "list"),
        ({"a": 1}, "dict"),
        (Word("a"), "Word"),
        (Colour.RED, "Colour"),
        (("a", None), "NoneType"),
        (bytearray(b"a"), "bytearray"),
    ],
)
def test_what_is_no_key_is_refused_by_its_type(key, kind):
    with pytest.raises(InvalidArgumentError) as refused:
        encode_key(key)

    assert refused.value.code == "invalid-partition-key"
    assert refused.value.message == (
        "partition_key must be str, bytes, int, bool, float, UUID or a tuple of these, "
        f"not a value of type {kind}"
    )


@pytest.mark.parametrize(
    ("key", "wanted"),
    [
        (math.nan, "a finite number, not nan"),
        (-math.inf, "a finite number, not -inf"),
        ("a\ud83d", "text without lone surrogates"),
        (2**1024, "at most 1024 bits, not 1025"),
        (((((1,),),),), None),
        ((((((1,),),),),), "tuples at most 4 deep"),
        (("a",) * 16, None),
        (("a",) * 17, "tuples of at most 16 elements, not 17"),
        ("a" * (KEY_LONG_CHARS - 2), None),
        ("a" * (KEY_LONG_CHARS - 1), "at most 65536 characters when written"),
        ("a" * (KEY_LONG_CHARS + 1), "at most 65536 characters when written"),
        (("a" * 40_000, "b" * 40_000), "at most 65536 characters when written"),
        ("a\0b", None),
        ("", None),
    ],
)
def test_a_key_has_bounds(key, wanted):
    if wanted is None:
        assert decode_key(encode_key(key)) == key
        return
    with pytest.raises(InvalidArgumentError) as refused:
        encode_key(key)

    assert refused.value.code == "invalid-partition-key"
    assert wanted in refused.value.message


@pytest.mark.parametrize(
    "long",
    [
        "",
        "x.1",
        "s",
        "s.a,",
        "s.a)",
        "s.a b",
        "s.%4",
        "s.%41",
        "s.%ff",
        "s.%FF",
        "i.01",
        "i.1_0",
        "i.",
        "i. 1",
        "t.2",
        "f.7ff0000000000000",
        "f.3FF0000000000000",
        "u.5",
        "u.{00000000-0000-0000-0000-000000000005}",
        "l(",
        "l(s.a",
        "l(s.a,)",
        "l(s.as.b)",
        "l(s.a)s.b",
        "l(,s.a)",
        "l(" * 5 + ")" * 5,
        "l(" * 30_000,
        f"l({','.join(['s.'] * 17)})",
        f"s.{'a' * KEY_LONG_CHARS}",
        "h.2b8b4ed1f69fa9fa27e836f7a3e6da64d09b56237b89853fbd7faae9d2670066",
    ],
)
def test_what_is_no_long_form_is_refused(long):
    with pytest.raises(InvalidArgumentError) as refused:
        decode_key(long)

    assert refused.value.code == "invalid-partition-key"


@given(LOOK_ALIKES)
@example("s.a%2Fb")
def test_a_long_form_is_the_only_one_of_its_key(long):
    try:
        key = decode_key(long)
    except InvalidArgumentError:
        return
    assert encode_key(key) == long


def test_a_long_form_over_120_characters_stands_as_its_hash_in_a_name():
    long = "s." + "x" * 118
    assert short_form(long) == long
    assert short_form(long + "x") == (
        "h." + hashlib.sha256((long + "x").encode()).hexdigest()
    )


@pytest.mark.parametrize("name", [" ", "A/b", "..", "n.x", "é" * 128, "\u6f22\u5b57"])
def test_a_set_name_is_kept_as_it_is(name):
    assert checked_set_name(name) == name


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("", "''"),
        ("a\nb", r"'a\nb'"),
        ("a\x85", r"'a\x85'"),
        ("a\udc00", r"'a\udc00'"),
        ("é" * 128 + "x", "a value of type str"),
        (None, "a value of type NoneType"),
        (7, "a value of type int"),
    ],
)
def test_what_is_no_set_name_is_refused(name, shown):
    with pytest.raises(InvalidArgumentError) as refused:
        checked_set_name(name)

    assert refused.value.code == "invalid-name"
    assert refused.value.message == (
        f"name must be 1 to {SET_NAME_BYTES} bytes of UTF-8 without control "
        f"characters, not {shown}"
    )
