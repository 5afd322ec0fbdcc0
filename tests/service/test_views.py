import pytest
from hypothesis import given, strategies as st

from crdtmem.doc.text_form import file_of, units_of
from crdtmem.headroom import content_hash
from crdtmem.limits import TIME_MAX_MS
from crdtmem.models import UNSET, Commit, Undone
from crdtmem.store.rows import EntryRow
from crdtmem.store.slots import empty_slot
from crdtmem.views import (
    commits_of,
    entry_view,
    headroom_of,
    iso_time,
    lanes_in,
    settings_of,
    slot_view,
)


def row_of(view, **fields):
    plain = empty_slot("p", "t", 0)._replace(doc=1, file=file_of(view))
    size = units_of(view)
    return plain._replace(hash=content_hash(view), size=size)._replace(**fields)


def entry_of(rev=0, **fields):
    values = dict.fromkeys(EntryRow._fields)
    values |= {"place": (1 << 40) | 7, "mark": "ab", "at_ms": rev, "operation": "edit"}
    values |= {"lane": "a", "rev": rev, "file": "x\n", "hash": "0" * 64, "size": 1}
    return EntryRow(**{**values, **fields})


@pytest.mark.parametrize(
    ("at_ms", "text"),
    [
        (0, "1970-01-01T00:00:00.000Z"),
        (999, "1970-01-01T00:00:00.999Z"),
        (1_767_225_600_007, "2026-01-01T00:00:00.007Z"),
        (TIME_MAX_MS, "9999-12-31T23:59:59.999Z"),
        (2**53 - 1, "9999-12-31T23:59:59.999Z"),
    ],
)
def test_times_have_milliseconds_and_end_with_the_year_9999(at_ms, text):
    assert iso_time(at_ms) == text


@given(st.integers(0, TIME_MAX_MS), st.integers(0, TIME_MAX_MS))
def test_times_sort_as_texts_as_they_do_as_numbers(one, two):
    assert (iso_time(one) < iso_time(two)) == (one < two)


@pytest.mark.parametrize(
    ("size", "limit", "percent", "free", "phrase"),
    [
        (0, 200, 0, 200, None),
        (57, 200, 28, 143, None),
        (139, 200, 70, 61, "compact before the next large append"),
        (179, 200, 90, 21, "compact it now"),
        (200, 200, 100, 0, "compact it now"),
        (204, 200, 102, 0, "over its sizeLimit by 4"),
        (2001, 2000, 100, 0, "over its sizeLimit by 1"),
    ],
)
@pytest.mark.requirement("P5")
def test_headroom_is_rounded_as_in_javascript_and_warns(
    size, limit, percent, free, phrase
):
    found = headroom_of(row_of("x" * size, size_limit=limit, rev=3)).to_dict()

    assert found | {"warning": ""} == {
        "size": size,
        "sizeLimit": limit,
        "free": free,
        "pctUsed": percent,
        "rev": 3,
        "contentHash": content_hash("x" * size)[:16],
        "warning": "",
    }
    assert ("warning" in found) == (phrase is not None)
    assert (phrase or "") in str(found.get("warning"))


def test_a_slot_without_a_doc_is_a_template_without_times():
    view = slot_view(empty_slot("global", "persona", 5), shadows=False)

    assert (view.template, view.created_at, view.updated_at) == (True, None, None)
    assert (view.label, view.scope, view.rev, view.content) == (
        "persona",
        "global",
        0,
        "",
    )


def test_a_view_names_only_what_applies():
    plain = slot_view(row_of("x")).to_dict()
    marked = slot_view(row_of("x", quarantined="why"), shadows=True).to_dict()

    assert plain.keys() & {"template", "shadows", "quarantined", "unseen"} == set()
    assert (marked["shadows"], marked["quarantined"]) == (True, True)
    assert plain["createdAt"] == "1970-01-01T00:00:00.000Z"


def test_settings_have_the_types_that_the_doc_has():
    row = row_of("", size_limit=7, pinned=0, read_only=1, description="d")

    assert settings_of(row) == {
        "description": "d",
        "sizeLimit": 7,
        "pinned": False,
        "readOnly": True,
        "appendOnly": False,
    }


def test_an_entry_shows_the_text_before_the_commit():
    entry = entry_of(rev=4, file="old\n", size=3)
    by = entry_of(rev=9, lane="b")

    plain = entry_view(entry, "t", "project", is_undoable=True, undone_by=None)
    undone = entry_view(
        entry, "t", "project", is_undoable=False, undone_by=by, with_content=True
    )

    assert (plain.id, plain.rev, plain.size, plain.preview) == ("h7-ab", 4, 3, "old")
    assert (plain.content, plain.undone, plain.undoable) == (UNSET, UNSET, True)
    assert undone.content == "old"
    assert undone.undone == Undone(id="h7-ab", lane="b", at=iso_time(9))


def test_a_preview_never_ends_in_half_a_pair():
    entry = entry_of(file="x" * 199 + "😀\n")

    view = entry_view(entry, "t", "project", is_undoable=True, undone_by=None)

    assert view.preview == "x" * 199


def test_commits_are_the_newest_and_come_newest_last():
    entries = [entry_of(rev=rev) for rev in (5, 4, 3)]

    assert commits_of(entries, 2) == (
        Commit(lane="a", at=iso_time(4), operation="edit", rev=5),
        Commit(lane="a", at=iso_time(5), operation="edit", rev=6),
    )
    assert commits_of([], 2) == ()


def test_a_received_batch_has_several_lanes():
    assert lanes_in(entry_of(operation="sync", lane="a, b")) == ["a", "b"]
    assert lanes_in(entry_of(lane="a, b")) == ["a, b"]
