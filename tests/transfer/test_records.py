import json

import pytest
from hypothesis import given, strategies as st

from crdtmem.errors import ImportRefusedError
from crdtmem.headroom import content_hash
from crdtmem.models import BadRecord
from crdtmem.transfer.records import PastText, SlotRecord, read_source


def header(**fields):
    return {"type": "header", "format": "crdtmem-slots", "version": 1} | fields


def slot(label="ok", content="fine", **fields):
    return {
        "type": "slot",
        "label": label,
        "scope": "project",
        "content": content,
        "contentHash": content_hash(content),
        "rev": 0,
        "description": "",
        "sizeLimit": 2000,
        "pinned": True,
        "readOnly": False,
        "appendOnly": False,
        "deleted": False,
    } | fields


def past(label="ok", content="old", **fields):
    return {
        "type": "history",
        "label": label,
        "scope": "project",
        "at": "2026-01-01T00:00:00.123Z",
        "operation": "append",
        "lane": "z",
        "rev": 0,
        "content": content,
        "contentHash": content_hash(content),
    } | fields


def without(record, name):
    return {key: value for key, value in record.items() if key != name}


END = {"type": "end", "slots": 1, "history": 0}


def source_of(*records, end="\n"):
    return end.join(json.dumps(record) for record in records).encode()


def read(*records):
    return read_source(source_of(header(), *records, END))


def bad_codes(source):
    return [(bad.line, bad.code) for bad in source.bad]


def test_a_slot_is_read_with_its_kept_texts_wherever_they_stand():
    source = read(past(), slot(content="", deleted=True), past(content="mid", rev=1))

    assert source.slots == [
        SlotRecord(
            line=3,
            label="ok",
            scope="project",
            content="",
            hash=content_hash(""),
            meta={
                "description": "",
                "sizeLimit": 2000,
                "pinned": True,
                "readOnly": False,
                "appendOnly": False,
            },
            is_deleted=True,
            past=[
                PastText(2, 1767225600123, "append", "z", "old", content_hash("old")),
                PastText(4, 1767225600123, "append", "z", "mid", content_hash("mid")),
            ],
        )
    ]
    assert (source.bad, source.ignored, source.is_whole) == ([], 0, True)


def test_one_label_may_stand_in_both_scopes():
    source = read(slot(), slot(scope="global"))

    assert [(s.label, s.scope) for s in source.slots] == [
        ("ok", "project"),
        ("ok", "global"),
    ]


def test_a_text_outlives_the_mark_of_a_deletion():
    (found,) = read(slot(deleted=True)).slots

    assert not found.is_deleted


def test_a_byte_order_mark_other_line_ends_and_blank_lines_pass():
    data = b"\xef\xbb\xbf" + source_of(header(), slot(), END, end="\r\n\r\n \n")

    source = read_source(data)

    assert [found.label for found in source.slots] == ["ok"]
    assert (source.bad, source.is_whole) == ([], True)


def test_a_line_separator_inside_a_text_ends_no_line():
    (found,) = read_source(
        json.dumps(slot(content="a\u2028b\x85c"), ensure_ascii=False).encode()
    ).slots

    assert found.content == "a\u2028b\x85c"


def test_unknown_types_are_counted_and_a_missing_end_is_noticed():
    source = read_source(source_of(slot(), {"type": "novelty"}, {"type": "x"}))

    assert (source.ignored, source.is_whole) == (2, False)


@pytest.mark.parametrize(
    ("record", "code"),
    [
        ([1], "bad-type"),
        ({"label": "x"}, "missing-field"),
        ({"type": 5}, "bad-type"),
        (without(slot(), "content"), "missing-field"),
        (without(slot(), "deleted"), "missing-field"),
        (slot(label=None), "bad-type"),
        (slot(label="Bad!"), "invalid-label"),
        (slot(scope="world"), "invalid-scope"),
        (slot() | {"content": 7}, "bad-type"),
        (slot(contentHash="0" * 64), "hash-mismatch"),
        (slot(content="x" * 1_048_577), "invalid-text"),
        (slot(rev=True), "bad-type"),
        (slot(rev=-1), "invalid-precondition"),
        (slot(sizeLimit=0), "invalid-size-limit"),
        (slot(sizeLimit=2.5), "bad-type"),
        (slot(description="d" * 1001), "invalid-argument"),
        (slot(pinned="yes"), "bad-type"),
        (past("ghost"), "missing-slot"),
        (past(at="yesterday"), "bad-type"),
        (past(at="1969-12-31T23:59:59Z"), "bad-type"),
        (past(at="0001-01-01T00:00:00+14:00"), "bad-type"),
        (past(operation="Not a name"), "bad-type"),
        (past(lane="a\nb"), "invalid-lane"),
        (past(contentHash=""), "hash-mismatch"),
    ],
)
def test_a_bad_record_is_named_and_the_rest_goes_on(record, code):
    source = read(slot("first"), record, slot("last"))

    assert bad_codes(source) == [(3, code)]
    assert [found.label for found in source.slots] == ["first", "last"]


@pytest.mark.parametrize(
    "line",
    [
        b"{broken",
        b'"\xff"',
        b"[" * 100_000,
        b'{"type":"slot","rev":' + b"9" * 5000 + b"}",
    ],
)
def test_a_line_that_is_no_json_is_named(line):
    source = read_source(source_of(slot()) + b"\n" + line)

    assert bad_codes(source) == [(2, "bad-json")]


def test_half_a_surrogate_pair_is_refused():
    line = json.dumps(slot()).replace('"fine"', '"\\ud83d"')

    source = read_source(f"{line}\n{json.dumps(END)}".encode())

    assert bad_codes(source) == [(1, "invalid-text")]


def test_a_second_record_of_a_slot_is_refused_by_the_line_of_the_first():
    source = read(slot(), slot(content="other"))

    assert source.bad == [
        BadRecord(
            line=3,
            code="duplicate-slot",
            reason="slot 'ok' of project scope stands in line 2 already",
        )
    ]
    assert [found.content for found in source.slots] == ["fine"]


def test_kept_texts_of_a_bad_slot_are_bad_too():
    source = read(past(), slot(sizeLimit=0))

    assert bad_codes(source) == [(2, "missing-slot"), (3, "invalid-size-limit")]


def test_lanes_of_a_received_batch_are_kept():
    (found,) = read(slot(), past(operation="sync", lane="a, b@c")).slots

    assert found.past[0].lane == "a, b@c"


def test_a_time_without_a_zone_is_utc():
    (found,) = read(slot(), past(at="2026-01-01T00:00:00")).slots

    assert found.past[0].at_ms == 1767225600000


@pytest.mark.parametrize("data", [b"", b"\n \n", b"# notes\n", b'{"type":"novelty"}'])
def test_a_source_without_any_record_is_refused(data):
    with pytest.raises(ImportRefusedError, match="no record of an export") as caught:
        read_source(data)

    assert caught.value.code == "import-refused"


@pytest.mark.parametrize("fields", [{"format": "other"}, {"version": 2}])
def test_another_format_or_version_is_refused(fields):
    with pytest.raises(ImportRefusedError, match="not 'crdtmem-slots' version 1"):
        read_source(source_of(header(**fields), slot()))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=9),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text(max_size=9), inner, max_size=3)
    ),
    max_leaves=2,
)
MANGLED = st.tuples(
    st.sampled_from([slot(), past(), END]),
    st.sampled_from(sorted(slot() | past())),
    JSON,
).map(lambda found: json.dumps(found[0] | {found[1]: found[2]}).encode())


@given(st.lists(MANGLED | st.binary(max_size=20), max_size=3))
def test_no_bytes_do_more_than_make_a_bad_record(lines):
    data = b"\n".join([json.dumps(slot("first")).encode(), *lines])

    source = read_source(data)

    assert source.slots[0].label == "first"
    assert all(bad.line <= data.count(b"\n") + 1 for bad in source.bad)
