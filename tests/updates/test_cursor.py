"""crdtmem.updates.cursor"""

import pytest
from hypothesis import given, strategies as st

from crdtmem.errors import UpdateRejectedError
from crdtmem.updates.cursor import Cursor
from tests.yjs_bytes import string, uint


@given(st.lists(st.integers(0, 2**64 - 1)))
def test_integers_are_read_one_after_the_other(values):
    cursor = Cursor(b"".join(map(uint, values)))

    assert [cursor.uint() for _ in values] == values
    cursor.expect_end()


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "integer does not end"),
        (b"\x80", "integer does not end"),
        (b"\xff" * 11, "integer does not end"),
        (b"\x80\x00", "empty group"),
    ],
)
def test_a_bad_integer_is_refused(data, reason):
    with pytest.raises(UpdateRejectedError, match=reason) as caught:
        Cursor(data).uint()

    assert caught.value.code == "update-malformed"


def test_nothing_is_taken_beyond_the_end():
    cursor = Cursor(b"ab")

    assert (cursor.byte(), cursor.take(1)) == (ord("a"), b"b")
    with pytest.raises(UpdateRejectedError, match="at byte 2: 1 byte announced"):
        cursor.byte()
    with pytest.raises(UpdateRejectedError, match="at byte 2: 1 bytes announced"):
        cursor.take(1)


@given(st.text(st.characters(codec="utf-8")))
def test_a_string_counts_its_bytes(content):
    assert Cursor(string(content)).text() == content


@pytest.mark.parametrize(
    "encoded", [b"\xff", b"\xed\xa0\xbd", b"\xc0\x80", b"\xe2\x82"]
)
def test_a_string_of_no_utf_8_is_refused(encoded):
    with pytest.raises(UpdateRejectedError, match="not UTF-8") as caught:
        Cursor(string(encoded)).text()

    assert caught.value.code == "update-text"
