"""crdtmem.protocol.parts"""

from dataclasses import replace

import pytest
from hypothesis import given, strategies as st

from crdtmem.errors import RemoteProtocolError
from crdtmem.protocol.messages import Part
from crdtmem.protocol.parts import PartAssembler, RecordLimits, split_record
from crdtmem.protocol.records import RecordKind
from tests.clients import make_record

LIMITS = RecordLimits(max_update=1_000, max_snapshot=2_000)
RECORD = make_record(1, b"x" * 100)
FIRST, SECOND, *REST = split_record(3, 1, RECORD, 40)


@given(st.binary(min_size=1, max_size=300), st.integers(1, 400))
def test_a_record_comes_out_as_it_was_cut(record, part_size):
    assembler = PartAssembler(LIMITS)
    *early, last = split_record(1, 9, record, part_size)

    assert [assembler.accept(part, 0.0) for part in early] == [None] * len(early)
    assert assembler.accept(last, 0.0) == record
    assert (assembler.ns_no, assembler.held_bytes, assembler.deadline) == (0, 0, None)


def test_a_transfer_is_known_by_its_namespace_and_by_what_it_holds():
    assembler = PartAssembler(LIMITS)
    assembler.accept(FIRST, now=5.0)

    assert assembler.ns_no == 3
    assert assembler.held_bytes == 40
    assert assembler.deadline == 65.0


@pytest.mark.parametrize(
    ("part", "words"),
    [
        (replace(SECOND, ns_no=4), "stands inside the parts of 1"),
        (replace(SECOND, id=2), "part of 2 stands inside the parts of 1"),
        (replace(SECOND, total=9_999), "stands inside"),
        (replace(SECOND, offset=41), "begins at 41, and 40 is due"),
        (FIRST, "begins at 0, and 40 is due"),
    ],
)
def test_a_part_out_of_order_is_refused_and_changes_nothing(part, words):
    assembler = PartAssembler(LIMITS)
    assembler.accept(FIRST, 0.0)

    with pytest.raises(RemoteProtocolError, match=words) as caught:
        assembler.accept(part, 1.0)
    assert caught.value.detail == "part-order"
    assert (assembler.held_bytes, assembler.deadline) == (40, 60.0)


def test_a_transfer_begins_at_its_beginning():
    with pytest.raises(RemoteProtocolError, match="begins at 40, and 0 is due"):
        PartAssembler(LIMITS).accept(SECOND, 0.0)


@pytest.mark.parametrize(
    ("kind", "limit"),
    [
        (RecordKind.UPDATE, 1_000),
        (RecordKind.KEY_NOTICE, 1_000),
        (RecordKind.RECEIPT, 1_000),
        (RecordKind.SNAPSHOT, 2_000),
        (RecordKind.DOC_DELETE, 2_000),
        (RecordKind.SNAPSHOT_VOID, 2_000),
        (99, 2_000),
    ],
)
def test_the_kind_in_its_second_byte_bounds_a_record(kind, limit):
    start = bytes([1, kind])
    part = Part(1, 1, limit, 0, start)

    assert LIMITS.limit(start) == limit
    assert PartAssembler(LIMITS).accept(part, 0.0) is None
    with pytest.raises(RemoteProtocolError, match="too long for its kind") as caught:
        PartAssembler(LIMITS).accept(replace(part, total=limit + 1), 0.0)
    assert caught.value.detail == "part-order"


def test_a_beginning_without_a_kind_gets_the_higher_limit():
    assert LIMITS.limit(b"\x01") == 2_000


def test_whole_records_of_the_namespace_may_not_stand_inside_a_transfer():
    assembler = PartAssembler(LIMITS)
    assembler.expect_none_of(3)
    assembler.accept(FIRST, 0.0)
    assembler.expect_none_of(4)

    with pytest.raises(RemoteProtocolError, match="inside the parts of 1") as caught:
        assembler.expect_none_of(3)
    assert caught.value.detail == "part-order"


def test_a_dropped_transfer_may_be_followed_by_another():
    assembler = PartAssembler(LIMITS)
    assembler.accept(FIRST, 0.0)
    assembler.drop()
    other = Part(9, 9, 1, 0, b"z")

    assert assembler.accept(other, 0.0) == b"z"
