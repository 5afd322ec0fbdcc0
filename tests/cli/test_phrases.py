"""crdtmem.cli.phrases"""

from typing import Any

import pytest

from crdtmem.cli.phrases import (
    bar,
    change_line,
    columns,
    commits_phrase,
    grouped,
    headroom_phrase,
    outline,
    plural,
    setting_phrase,
    write_notes,
)
from crdtmem.models import Change, Commit, Headroom, WriteResult

COMMIT = Commit(lane="b", at="2026-01-01T00:00:00.000Z", operation="append", rev=4)
FULL: dict[str, Any] = {
    "size": 1204,
    "size_limit": 2000,
    "free": 796,
    "pct_used": 60,
    "rev": 13,
    "content_hash": "0" * 16,
}


def result(**more):
    durable = more.pop("durable", True)
    return WriteResult(
        **FULL,
        label="notes",
        scope="project",
        operation="replace",
        changed=True,
        content="",
        previous_size=0,
        previous_rev=12,
        durable=durable,
        **more,
    )


def test_headroom_reads_as_one_line():
    assert headroom_phrase("notes", Headroom(**FULL)) == (
        "notes: rev 13, 1,204 of 2,000 (60 %), 796 free"
    )


@pytest.mark.parametrize(
    ("pct_used", "shown"),
    [
        (0, "[..........]"),
        (1, "[#.........]"),
        (60, "[######....]"),
        (100, "[##########]"),
        (150, "[##########]"),
    ],
)
def test_a_bar_shows_the_first_percent_and_never_overflows(pct_used, shown):
    assert bar(pct_used) == shown


def test_a_write_tells_what_must_not_be_overlooked():
    assert write_notes(result()) == []
    assert write_notes(result(merged=False, overwrote=())) == []
    assert write_notes(result(merged=True)) == [
        "merged with what others wrote up to rev 12"
    ]
    assert write_notes(result(overwrote=(COMMIT,), history_id="h7")) == [
        "overwrote rev 4 append by b; 'crdtmem undo notes h7' takes it back"
    ]
    assert write_notes(result(overwrote=(COMMIT,)))[0].startswith("overwrote rev 4")
    assert write_notes(result(durable=False, warning="it is full")) == [
        "not yet durable: a power cut may lose it",
        "it is full",
    ]


def test_a_change_reads_as_one_line():
    change = Change(
        label="plan",
        scope="project",
        rev=5,
        since_rev=3,
        size=1,
        content_hash="0" * 16,
        at="2026-01-01T00:00:00.000Z",
        operation="delete",
        lanes=("a", "b"),
        deleted=True,
    )

    assert change_line(change) == (
        "plan rev 3→5 delete by a, b at 2026-01-01T00:00:00.000Z (deleted)"
    )


def test_columns_stand_below_each_other():
    rows = [("a", "10", "x"), ("long", "7", "")]

    assert columns(rows, right=(1,)) == ["a     10  x", "long   7"]
    assert columns([]) == []


def test_numbers_and_lists_read_well():
    assert (grouped(12345), plural(1, "slot"), plural(1200, "slot")) == (
        "12,345",
        "1 slot",
        "1,200 slots",
    )
    assert commits_phrase([COMMIT, COMMIT]) == "rev 4 append by b, rev 4 append by b"
    assert (setting_phrase(None), setting_phrase(["a", "b"]), setting_phrase(5)) == (
        "-",
        "a, b",
        "5",
    )


def test_an_outline_lists_headings_with_line_and_size():
    text = "intro\n# One\n😀\n```\n# code\n```\n## Two\n#tag\n"

    assert outline(text) == "1: (no heading) (5)\n2: # One (23)\n7: ## Two (12)"
    assert outline("") == ""
    assert outline("# One") == "1: # One (5)"
