"""crdtmem.protocol.downloads"""

import pytest

from crdtmem.errors import LocalProtocolError
from crdtmem.limits import FRAME_BYTES
from crdtmem.protocol.downloads import Download, SharedFrame, encode_records, full_item
from crdtmem.protocol.messages import (
    Form,
    Item,
    Part,
    Records,
    decode_frame,
    encode_message,
)
from crdtmem.protocol.records import RecordKind
from crdtmem.protocol.relaying import LogRow, Sample
from tests.protocol.served import records_in

ME, OTHER = b"m" * 16, b"o" * 16
DOC = b"d" * 16


def row(seq, record=b"record", *, replica_id=OTHER, replica_seq=1, **values):
    fields = {"kind": RecordKind.UPDATE, "base": 0, "doc_tag": DOC, **values}
    name = seq.to_bytes(32, "big")
    return LogRow(
        seq=seq,
        record_id=name,
        chain=name[::-1],
        replica_id=replica_id,
        replica_seq=replica_seq,
        record=record,
        **fields,
    )


def snapshot(seq, base, **values):
    return row(seq, kind=RecordKind.SNAPSHOT, base=base, **values)


def download(*, at=0, head=0, own_seq=0, part_bytes=1_000):
    return Download(
        1,
        ME,
        start=Sample(at, bytes(32)),
        head=head,
        own_seq=own_seq,
        part_bytes=part_bytes,
    )


def forms(reader, *rows):
    return [Form(item.form) for item in records_in(reader.take(rows)).items]


def test_a_frame_is_built_as_its_message_would_be():
    items = (Item(Form.FULL, b"record"), Item(Form.FULL, b""))
    built = encode_records(7, 3, [full_item(i.record) for i in items], b"c" * 32)

    assert built == encode_message(Records(7, 3, items, b"c" * 32))


def test_every_form_is_what_its_message_would_be():
    reader = download(head=9, own_seq=4)
    rows = [
        row(1),
        row(2, replica_id=ME, replica_seq=4),
        row(3, None),
        snapshot(4, 2),
        snapshot(5, 3, is_newest_snapshot=True),
        row(6, replica_id=ME, replica_seq=5),
    ]
    name = [r.record_id for r in rows]

    assert decode_frame(reader.take(rows)) == [
        Records(
            1,
            1,
            (
                Item(Form.FULL, b"record"),
                Item(Form.OWN, b"", name[1]),
                Item(Form.COVERED, b"", name[2], DOC),
                Item(Form.REDUNDANT, b"", name[3], DOC),
                Item(Form.FULL, b"record"),
                Item(Form.FULL, b"record"),
            ),
            rows[5].chain,
        )
    ]
    assert reader.position == 6


# The hole rule, row by row.


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        # No hole: a snapshot tells nothing new.
        ([row(1), snapshot(2, 1, is_newest_snapshot=True)], [0, 3]),
        # A hole, and the newest snapshot fills it; the next is redundant again.
        (
            [
                row(1, None),
                snapshot(2, 1, is_newest_snapshot=True),
                snapshot(3, 1, is_newest_snapshot=True),
            ],
            [2, 0, 3],
        ),
        # A hole in another doc.
        (
            [
                row(1, None, doc_tag=b"e" * 16),
                snapshot(2, 1, is_newest_snapshot=True),
            ],
            [2, 3],
        ),
        # A hole of an earlier connection, known by what the log has dropped.
        ([snapshot(1, 0 + 1, is_newest_snapshot=True, doc_has_dropped=True)], [0]),
        ([snapshot(1, 1, doc_has_dropped=True)], [3]),
        # A state record covers nothing and is always sent.
        ([snapshot(1, 0)], [0]),
        # A dropped snapshot is a hole like any other.
        ([snapshot(1, 1, record=None)], [2]),
        # Kinds that this version does not act on are sent as they are.
        ([row(1, kind=RecordKind.DOC_DELETE, base=1)], [0]),
        ([row(1, kind=RecordKind.SNAPSHOT_VOID, base=1)], [0]),
    ],
)
def test_a_record_goes_in_the_form_that_its_reader_needs(rows, expected):
    assert forms(download(head=len(rows)), *rows) == expected


def test_who_was_there_before_a_snapshot_has_what_it_covers():
    reader = download(head=1)
    late = snapshot(2, 1, is_newest_snapshot=True, doc_has_dropped=True)

    assert forms(reader, row(1), late) == [Form.FULL, Form.REDUNDANT]


def test_a_hole_stays_open_from_frame_to_frame():
    reader = download(head=2)
    first = forms(reader, row(1, None))
    second = forms(reader, snapshot(2, 1))
    third = forms(reader, snapshot(3, 2, is_newest_snapshot=True))

    assert (first, second, third) == ([2], [3], [0])
    assert reader.holes == set()


# Frames.


def test_a_frame_holds_no_more_than_it_may():
    reader = download(head=1_000, part_bytes=200_000)
    long = [row(seq, bytes(100_000)) for seq in range(1, 6)]
    short = [row(seq, b"") for seq in range(3, 603)]
    first = reader.take(long)
    second = reader.take(short)

    assert reader.position == 2 + 512
    assert len(first) <= FRAME_BYTES
    assert len(records_in(second).items) == 512


def test_a_long_record_goes_in_parts_and_alone():
    reader = download(head=3)
    record = bytes(range(250)) * 10
    first = forms(reader, row(1), row(2, record))
    frames = [reader.take([row(2, record), row(3)])]
    before = (reader.position, reader.transfer_bytes)
    while reader.transfer_bytes:
        frames.append(reader.next_part())
    parts = [decode_frame(frame)[0] for frame in frames]

    assert (first, before) == ([Form.FULL], (1, 2_500))
    assert parts == [
        Part(1, 2, 2_500, at, record[at : at + 1_000]) for at in (0, 1_000, 2_000)
    ]
    assert (reader.position, reader.transfer_bytes) == (2, 0)


def test_a_long_record_that_goes_by_name_needs_no_parts():
    reader = download(head=2, own_seq=1)
    long = bytes(2_000)
    own = row(1, long, replica_id=ME, replica_seq=1)

    assert forms(reader, own) == [Form.OWN]
    assert forms(reader, snapshot(2, 1, record=long)) == [Form.REDUNDANT]
    assert reader.transfer_bytes == 0


def test_parts_are_asked_for_only_while_there_are_some():
    with pytest.raises(LocalProtocolError, match="no record of 1 is on its way"):
        download().next_part()


# What may be shared.


def frame(after=0, **values):
    return SharedFrame(1, after, after + 2, b"frame", frozenset({OTHER}), **values)


def covering(first_cover):
    tags = frozenset({DOC})
    return frame(after=4, covered_tags=tags, first_cover=first_cover)


def test_a_shared_frame_is_for_who_stands_before_it_and_wrote_none_of_it():
    at_start, ahead = download(head=2), download(at=1, head=2)
    author = Download(
        1, OTHER, start=Sample(0, bytes(32)), head=2, own_seq=0, part_bytes=1_000
    )
    taken = at_start.may_share(frame())
    data = at_start.share(frame())

    assert (taken, data, at_start.position) == (True, b"frame", 2)
    assert not at_start.may_share(frame())
    assert not ahead.may_share(frame())
    assert not author.may_share(frame())


def test_a_shared_frame_with_a_snapshot_is_for_who_has_no_hole_that_it_fills():
    live, late, holed, other_hole = (download(at=4, head=h) for h in (4, 5, 4, 4))
    holed.holes.add(DOC)
    other_hole.holes.add(b"e" * 16)

    assert live.may_share(covering(5))
    assert not late.may_share(covering(5))
    assert not holed.may_share(covering(5))
    assert other_hole.may_share(covering(5))


def test_kept_rows_do_where_nothing_depends_on_what_has_changed_since():
    live, late, holed = (download(at=4, head=h) for h in (4, 5, 4))
    holed.holes.add(DOC)
    rows = [snapshot(5, 1, is_newest_snapshot=True), row(6)]

    assert live.may_use_cached(rows)
    assert not late.may_use_cached(rows)
    assert not holed.may_use_cached(rows)
    assert holed.may_use_cached(rows[1:])
