"""crdtmem.updates.content"""

import math
from struct import pack

import pytest

from crdtmem.errors import UpdateRejectedError
from crdtmem.limits import UINT_MAX
from crdtmem.updates import scan
from tests.yjs_bytes import number, string, struct, text, uint, update, value

TRUE, FALSE, NULL = b"\x78", b"\x79", b"\x7e"


def float_64(number):
    return b"\x7b" + pack(">d", number)


def float_32(number):
    return b"\x7c" + pack(">f", number)


def scan_struct(struct_bytes):
    return scan(
        update((7, 0, [struct_bytes])), client_ids=None, state={9: 5}, snapshot=False
    )


def scan_value(content, key):
    return scan_struct(value(content, root="meta", key=key))


@pytest.mark.parametrize(
    ("key", "content"),
    [
        ("description", b"\x77" + string("né🎉")),
        ("description", b"\x77" + string("")),
        ("pinned", TRUE),
        ("readOnly", FALSE),
        ("appendOnly", TRUE),
        ("deleted", FALSE),
        ("sizeLimit", float_32(2000.0)),
        ("sizeLimit", float_64(16_777_217.0)),
        ("sizeLimit", float_64(float(UINT_MAX))),
        ("sizeLimit", float_64(-float(UINT_MAX))),
        ("sizeLimit", number(7)),
        ("sizeLimit", number(0x47)),  # minus 7
        ("sizeLimit", b"\x7d\x90\x1f"),  # 2000
        ("sizeLimit", b"\x7d\xbf" + uint(UINT_MAX >> 6)),
    ],
)
def test_a_known_key_takes_a_value_of_its_type(key, content):
    assert scan_value(content, key).clients == {7: (0, 1)}


@pytest.mark.parametrize(
    ("key", "content"),
    [
        ("description", TRUE),
        ("description", NULL),
        ("pinned", number(1)),
        ("pinned", b"\x77" + string("true")),
        ("sizeLimit", TRUE),
        ("sizeLimit", float_64(0.5)),
        ("sizeLimit", float_64(2.0**53)),
        ("sizeLimit", float_32(2.0**60)),
    ],
)
def test_a_known_key_takes_no_value_of_another_type(key, content):
    with pytest.raises(UpdateRejectedError, match="takes a value of type") as caught:
        scan_value(content, key)

    assert caught.value.code == "update-content"


@pytest.mark.parametrize(
    ("content", "code", "reason"),
    [
        (float_64(math.nan), "update-content", "nan is no finite number"),
        (float_64(math.inf), "update-content", "inf is no finite number"),
        (float_32(-math.inf), "update-content", "-inf is no finite number"),
        (b"\x7d\xbf" + uint((UINT_MAX >> 6) + 1), "update-content", "53 bits"),
        (b"\x7d\x80\x00", "update-malformed", "empty group"),
        (b"\x7d" + b"\x80" * 12, "update-malformed", "does not end"),
        (b"\x77" + string(b"\xed\xa0\xbd"), "update-text", "not UTF-8"),
        (b"\x77" + uint(99), "update-malformed", "99 bytes announced"),
        (b"\x7b\0\0", "update-malformed", "8 bytes announced"),
        (b"\x74" + string(b"ab"), "update-content", "tag 116"),
        (b"\x75\x01\x78", "update-content", "tag 117"),
        (b"\x76\x01" + string("a") + TRUE, "update-content", "tag 118"),
        (b"\x7a" + b"\x7f" * 8, "update-content", "tag 122"),
        (b"\x7f", "update-content", "tag 127"),
        (b"\x00", "update-content", "tag 0"),
    ],
)
def test_a_value_that_no_slot_holds_is_refused(content, code, reason):
    with pytest.raises(UpdateRejectedError, match=reason) as caught:
        scan_value(content, "sizeLimit")

    assert caught.value.code == code


@pytest.mark.parametrize(
    ("struct_bytes", "code", "reason"),
    [
        (value(TRUE, root="meta", key="x"), "update-content", "no key"),
        (value(TRUE, root="meta", key=""), "update-content", "no key"),
        (value(TRUE, root="items", key="x"), "update-root", "no map"),
        (value(TRUE, root="content", key="x"), "update-root", "no map"),
        (text("x", root="meta"), "update-root", "no text"),
        (text("x", root="items"), "update-root", "no text"),
        (text("x", root=""), "update-root", "no text"),
        (text("x", root=b"\xff"), "update-text", "not UTF-8"),
        (value(TRUE, root="meta", key=b"\xff"), "update-text", "not UTF-8"),
        (text("x", parent=(9, 0)), "update-root", "no root"),
        (value(TRUE, parent=(9, 0), key="pinned"), "update-root", "no root"),
        (text("x", root="meta", key="pinned"), "update-content", "4 under a key"),
        (text("x", origin=(9, 0), is_keyed=True), "update-content", "4 under"),
        (value(TRUE, root="content"), "update-content", "8 in a text"),
        (value(TRUE, root="meta"), "update-content", "8 in a text"),
        (value(TRUE, origin=(9, 0)), "update-content", "8 in a text"),
        (value(b"", count=0, root="meta", key="pinned"), "update-content", "0 values"),
        (
            value(TRUE * 3, count=3, root="meta", key="pinned"),
            "update-content",
            "3 values",
        ),
        (struct(0, uint(5)), "update-content", "content 0"),
        (struct(1, uint(5), origin=(9, 0)), "update-content", "content 1"),
        (struct(5, string("b"), origin=(9, 0)), "update-content", "content 5"),
        (struct(7, uint(0), origin=(9, 0)), "update-content", "content 7"),
        (struct(10, uint(5)), "update-content", "content 10"),
        (text("", origin=(9, 0)), "update-malformed", "length 0"),
    ],
)
def test_a_struct_stands_in_a_text_or_under_a_known_key(struct_bytes, code, reason):
    with pytest.raises(UpdateRejectedError, match=reason) as caught:
        scan_struct(struct_bytes)

    assert caught.value.code == code


def test_a_value_whose_key_does_not_show_has_the_type_of_some_key():
    assert scan_struct(value(TRUE, origin=(9, 4), is_keyed=True)).clients

    with pytest.raises(UpdateRejectedError, match="of type NoneType") as caught:
        scan_struct(value(NULL, origin=(9, 4), is_keyed=True))

    assert caught.value.code == "update-content"
