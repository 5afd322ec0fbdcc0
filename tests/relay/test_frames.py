"""relay.frames"""

import pytest
from hypothesis import given, strategies as st

from crdtmem.limits import FRAME_BYTES
from crdtmem.protocol.messages import Form
from crdtmem.protocol.records import RecordKind
from crdtmem.protocol.relaying import LogRow
from relay.frames import FrameCache
from tests.protocol.served import records_in

DOC = b"d" * 16


def row(seq, size=10, *, writer=1, base=0, kind=RecordKind.UPDATE):
    name = seq.to_bytes(32, "big")
    author = writer.to_bytes(16, "big")
    return LogRow(seq, name, name[::-1], kind, base, DOC, author, seq, bytes(size))


def rows(first, last, size=10):
    return [row(seq, size) for seq in range(first, last + 1)]


def span(frame):
    return frame and (frame.after, frame.last)


@pytest.fixture
def cache():
    return FrameCache(part_bytes=100_000)


def test_a_frame_holds_the_rows_behind_a_position_in_full(cache):
    cache.add(1, rows(4, 6))
    frame = cache.frame(1, 4)

    records = records_in(frame.data)
    assert (records.ns_no, records.first_seq, records.chain) == (1, 5, row(6).chain)
    assert [(item.form, item.record) for item in records.items] == [(0, bytes(10))] * 2
    assert (span(frame), frame.writers) == ((4, 6), {row(5).replica_id})
    assert (frame.first_cover, frame.covered_tags) == (0, set())


def test_the_same_position_gives_the_same_bytes_until_there_are_new_rows(cache):
    cache.add(1, rows(1, 2))
    first, again = cache.frame(1, 0), cache.frame(1, 0)
    cache.add(1, rows(3, 3))

    assert first is again
    assert span(cache.frame(1, 0)) == (0, 3)


@pytest.mark.parametrize(("ns_no", "after"), [(1, 2), (1, 6), (1, 9), (2, 4)])
def test_what_is_not_at_hand_gives_no_frame(cache, ns_no, after):
    cache.add(1, rows(4, 6))

    assert cache.frame(ns_no, after) is None
    assert cache.rows(ns_no, after) == ()


def test_a_snapshot_that_covers_goes_by_name_and_without_its_bytes(cache):
    cover = row(2, 500_000, base=1, kind=RecordKind.SNAPSHOT)
    state = row(3, base=0, kind=RecordKind.SNAPSHOT)
    cache.add(1, [row(1), cover, state])
    frame = cache.frame(1, 0)

    items = records_in(frame.data).items
    assert [item.form for item in items] == [Form.FULL, Form.REDUNDANT, Form.FULL]
    assert (items[1].record_id, items[1].doc_tag) == (cover.record_id, DOC)
    assert (frame.first_cover, frame.covered_tags) == (2, {DOC})
    assert cache.rows(1, 1)[0].record == b""
    assert cache.size_bytes < 1_000


def test_a_record_that_goes_in_parts_is_in_no_frame(cache):
    cache.add(1, [row(1), row(2, 100_001), row(3)])

    assert span(cache.frame(1, 0)) == (0, 1)
    assert cache.frame(1, 1) is None
    assert span(cache.frame(1, 2)) == (2, 3)
    assert [one.seq for one in cache.rows(1, 1)] == [2, 3]


def test_a_frame_has_a_bound_of_items_and_of_bytes(cache):
    cache.add(1, rows(1, 600))
    cache.add(2, rows(1, 4, 90_000))
    frames = [cache.frame(1, 0), cache.frame(1, 512), cache.frame(2, 0)]

    assert [span(frame) for frame in frames] == [(0, 512), (512, 600), (0, 2)]
    assert max(len(frame.data) for frame in frames) <= FRAME_BYTES
    assert len(cache.rows(1, 0)) == 512


def test_rows_behind_a_gap_begin_anew(cache):
    cache.add(1, rows(1, 2))
    cache.add(1, rows(4, 5))

    assert cache.frame(1, 0) is None
    assert span(cache.frame(1, 3)) == (3, 5)


def test_of_a_namespace_the_newest_are_kept():
    cache = FrameCache(100_000, namespace_bytes=1_000)
    cache.add(1, rows(1, 9, 200))
    kept = cache.rows(1, 5)
    cache.add(1, [row(10, 5_000)])

    assert [one.seq for one in kept] == [6, 7, 8, 9]
    assert cache.rows(1, 4) == ()
    assert (cache.frame(1, 9), cache.size_bytes) == (None, 0)


def test_of_all_namespaces_the_one_that_got_a_row_longest_ago_goes_first():
    cache = FrameCache(100_000, all_bytes=1_000)
    for ns_no in (1, 2, 1, 3):
        seq = 2 if cache.rows(ns_no, 0) else 1
        cache.add(ns_no, [row(seq, 300)])

    assert cache.rows(2, 0) == ()
    assert len(cache.rows(1, 0)) == 2
    cache.forget(1)
    cache.forget(9)
    assert (len(cache.rows(3, 0)), cache.rows(1, 0)) == (1, ())


@given(st.lists(st.tuples(st.integers(1, 3), st.integers(0, 400)), max_size=40))
def test_what_is_counted_is_what_is_kept_within_the_bounds(adds):
    cache = FrameCache(100_000, namespace_bytes=600, all_bytes=1_000)
    heads = {1: 0, 2: 0, 3: 0}
    for ns_no, size in adds:
        heads[ns_no] += 1
        cache.add(ns_no, [row(heads[ns_no], size)])
        kept = {n: cache.rows(n, heads[n] - 1) for n in heads}
        assert cache.size_bytes <= 1_000
        assert all(len(one) <= 1 for one in kept.values())
    for ns_no in heads:
        cache.forget(ns_no)

    assert cache.size_bytes == 0
