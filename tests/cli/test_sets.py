"""crdtmem.cli.sets"""

import json
import os
import pty
import sys
from contextlib import contextmanager

import pytest

from crdtmem import opening
from crdtmem.cli import __main__ as front
from crdtmem.sets.values import (
    AddResult,
    DropResult,
    ItemDeleteResult,
    ItemHistory,
    ItemPage,
    ItemUndoResult,
    SetInfo,
    UpdateResult,
)
from tests.cli.contract import validated
from tests.replica import exchange_records

MAIN = 'partition "main"\n'


def code_of(result):
    assert result.out == ""
    assert result.err.count("\n") == 1
    return json.loads(result.err)["error"]["code"]


def page_of(run, *words):
    return validated(ItemPage, run("set", "get", "facts", *words, "--json").out)


def texts_of(run, *words):
    return [item["text"] for item in page_of(run, "--order", "oldest", *words)["items"]]


@pytest.fixture
def facts(run):
    """Run a command in a home where the set ``facts`` has two items."""
    records = [
        {"text": "likes tea", "metadata": {"topic": "food"}, "id": "tea"},
        {"text": "two\nlines", "id": "two"},
    ]
    lines = "".join(f"{json.dumps(record)}\n" for record in records)
    assert run("set", "add", "facts", "-", "--jsonl", stdin=lines.encode()).status == 0
    return run


def test_items_are_added_by_word_and_by_line(run):
    by_word = run("set", "add", "facts", "one", "- two", "--metadata", '{"n": 1}')
    by_line = run("set", "add", "facts", "-", "--json", stdin=b"three\n\nfour\n")

    assert by_word.status == 0
    assert by_word.out == (
        "facts: added 2 items; rev 1, 2 of 50,000 items, 22 of 4,194,304 (0 %)\n"
    )
    assert by_word.err.startswith(f"{MAIN}ids ")
    assert len(validated(AddResult, by_line.out)["ids"]) == 3
    assert by_line.err == MAIN
    assert texts_of(run) == ["one", "- two", "three", "", "four"]
    assert page_of(run)["items"][-1]["metadata"] == {"n": 1}


def test_nothing_on_stdin_adds_nothing(run):
    assert run("set", "add", "facts", "-").out.startswith("facts: added 0 items; rev 0")


def test_lines_of_json_need_no_ids(run):
    lines = b'{"text": "a", "metadata": {"n": 1}}\n{"text": "b"}'

    added = run("set", "add", "facts", "-", "--jsonl", "--json", stdin=lines)

    assert len(validated(AddResult, added.out)["ids"]) == 2
    assert [item["metadata"] for item in page_of(run)["items"]] == [{}, {"n": 1}]


def test_a_write_warns_where_the_set_fills_up(run, monkeypatch):
    monkeypatch.setattr("crdtmem.sets.reading.SET_ITEMS_MAX", 1)

    added = run("set", "add", "facts", "a", "-q")

    assert added.out == ""
    assert added.err.count("\n") == 1


def test_items_are_printed_with_who_wrote_them(facts):
    page = facts("set", "get", "facts", "two", "tea", "none")

    two, first, second, tea, likes = page.out.splitlines()
    assert two.split("  ")[0] == "two"
    assert two.endswith("Z  tester")
    assert (first, second, likes) == ("  two", "  lines", "  likes tea")
    assert tea.endswith('Z  tester  {"topic": "food"}')
    assert page.err == f"{MAIN}not there: none\n"


def test_a_page_says_how_to_go_on(facts):
    first = facts("set", "get", "facts", "--limit", "1", "--order", "oldest")
    cursor = first.err.split()[-3]

    rest = facts("set", "get", "facts", "--cursor", cursor, "--order", "oldest")

    assert "likes tea" in first.out
    assert f"there are more; --cursor {cursor} goes on" in first.err
    assert "two" in rest.out
    assert rest.err == MAIN


def test_a_filter_chooses_items(facts):
    assert texts_of(facts, "--filter", '{"topic": "food"}') == ["likes tea"]
    assert code_of(facts("set", "get", "facts", "--filter", '{"$x": 1}', "--json")) == (
        "invalid-filter"
    )


def test_versions_of_others_are_printed_below(facts, tmp_path):
    with (
        opening.open() as ours,
        opening.open(tmp_path / "other.sqlite", lane="other") as theirs,
    ):
        exchange_records([[ours], [theirs]])
        for memory, text in ((theirs, "theirs"), (ours, "ours")):
            found = memory.bind(partition_key="main").memory_set("facts")
            found.update("tea", text, {"by": text})
        exchange_records([[ours], [theirs]])

    _, text, also, other = facts("set", "get", "facts", "tea").out.splitlines()

    assert {text, other} == {"  ours", "  theirs"}
    assert also.startswith("  also  20")
    assert '{"by": "' in also


def test_an_item_is_updated(facts):
    text = facts("set", "update", "facts", "tea", "-", stdin=b"likes coffee\n")
    same = facts("set", "update", "facts", "tea", "likes coffee", "--json")
    data = facts("set", "update", "facts", "tea", "--metadata", "{}", "-q")
    made = facts("set", "update", "facts", "new", "x", "--create")
    late = facts(
        "set", "update", "facts", "tea", "late", "--expected-rev", "1", "--json"
    )

    assert text.out.startswith("facts: updated tea; rev 2, 2 of 50,000 items")
    assert validated(UpdateResult, same.out)["changed"] is False
    assert (data.out, data.err) == ("", "")
    assert made.out.startswith("facts: added new; rev 4")
    assert (late.status, code_of(late)) == (4, "item-conflict")
    assert texts_of(facts) == ["likes coffee", "two\nlines", "x"]


def test_an_update_that_changes_nothing_says_so(facts):
    same = facts("set", "update", "facts", "tea", "likes tea")

    assert same.out.startswith("facts: unchanged tea; rev 1,")


def test_items_are_found_by_their_words(facts):
    found = facts("set", "search", "facts", "likes", "-coffee", "--mode", "all")
    as_json = facts("set", "search", "facts", "lines", "--json", "--sort", "recent")
    one = facts("set", "search", "facts", "likes OR lines", "--limit", "1")
    none = facts("set", "search", "facts", "likes", "--filter", '{"topic": 1}')

    assert found.out.splitlines()[0].startswith("tea  20")
    assert found.out.splitlines()[1:] == ["  likes tea"]
    assert [hit["itemId"] for hit in json.loads(as_json.out)["hits"]] == ["two"]
    assert one.err == f"{MAIN}there are more; --limit shows more of them\n"
    assert none.out == ""
    assert code_of(facts("set", "search", "facts", "--json")) == "empty-query"


def test_items_are_deleted_and_brought_back(facts):
    deleted = facts("set", "delete", "facts", "tea", "none")
    undone = facts("set", "undo", "facts", "2", "--json")

    assert deleted.out.startswith("facts: deleted 1 item; rev 2, 1 of 50,000 items")
    assert deleted.err == (
        f"{MAIN}not there: none\n'crdtmem set undo facts 2' undoes it\n"
    )
    assert validated(ItemUndoResult, undone.out)["restored"] == ["tea"]
    assert texts_of(facts) == ["likes tea", "two\nlines"]


def test_all_items_are_deleted_where_that_is_said(facts):
    refused = facts("set", "delete", "facts", "--all")
    cleared = facts("set", "delete", "facts", "--all", "--yes", "--json")
    again = facts("set", "delete", "facts", "--all", "--yes")

    assert (refused.status, refused.out) == (2, "")
    assert "run 'crdtmem set delete facts --all --yes'" in refused.err
    assert validated(ItemDeleteResult, cleared.out)["deleted"] == 2
    assert again.err == MAIN
    assert facts("set", "undo", "facts", "2").out.startswith(
        "facts: restored 2, removed 0, left alone 0; rev 3,"
    )


def test_a_set_is_dropped_and_no_longer_listed(facts):
    before = facts("set", "list")
    refused = facts("set", "drop", "facts")
    dropped = facts("set", "drop", "facts", "--yes")
    again = facts("set", "drop", "facts", "--yes", "--json")

    assert before.out.startswith("facts  rev 1, 2 of 50,000 items")
    assert "run 'crdtmem set drop facts --yes'" in refused.err
    assert dropped.out.startswith("facts: dropped, 2 items deleted; rev 2")
    assert validated(DropResult, again.out)["existed"] is False
    assert facts("set", "list").out == ""
    assert facts("set", "undo", "facts", "2").status == 0
    assert texts_of(facts) == ["likes tea", "two\nlines"]


def test_a_drop_of_nothing_says_so(facts):
    assert facts("set", "drop", "none", "--yes").out.startswith(
        "none: there was none, 0 items deleted"
    )


@contextmanager
def terminal(monkeypatch):
    """Make a terminal stdin and stderr of this process; give its other end."""
    ours, theirs = pty.openpty()
    with (
        open(theirs, encoding="utf-8") as keys,
        open(os.dup(theirs), "w", encoding="utf-8") as screen,
    ):
        monkeypatch.setattr(sys, "stdin", keys)
        monkeypatch.setattr(sys, "stderr", screen)
        yield ours
    os.close(ours)


@pytest.mark.parametrize(
    ("words", "question"),
    [
        (("drop", "facts"), b"drop 'facts'? [y/N] "),
        (("delete", "facts", "--all"), b"delete all items of 'facts'? [y/N] "),
    ],
)
@pytest.mark.usefixtures("facts")
def test_a_terminal_is_asked(monkeypatch, words, question):
    with terminal(monkeypatch) as keys:
        os.write(keys, b"\ny\n")
        statuses = [front.status_of(["set", *words]) for _ in range(2)]
        shown = os.read(keys, 4096)

    assert statuses == [4, 0]
    assert shown.count(question) == 2


def test_the_history_is_printed_newest_first(facts):
    facts("set", "update", "facts", "tea", "x")
    whole = facts("set", "history", "facts", "--limit", "2")
    of_one = facts("set", "history", "facts", "tea", "--json")
    older = facts("set", "history", "facts", "--before", "2", "--json")

    lines = [line.split() for line in whole.out.splitlines()]
    assert [line[:5] for line in lines] == [
        ["rev", "2", "update", "tea", "tester"],
        ["rev", "1", "add", "two", "tester"],
    ]
    assert whole.err == f"{MAIN}there are more; --limit shows more of them\n"
    entries = validated(ItemHistory, of_one.out)["entries"]
    assert [entry["operation"] for entry in entries] == ["update", "add"]
    assert {entry["rev"] for entry in json.loads(older.out)["entries"]} == {1}


def test_partitions_do_not_see_each_other(facts):
    facts("set", "add", "facts", "of bob", "--partition", "bob")
    facts("set", "add", "facts", "of 1", "--partition-json", '["job", 1]')
    facts("set", "add", "facts", "for all", "--scope", "global")

    assert texts_of(facts) == ["likes tea", "two\nlines"]
    assert texts_of(facts, "--partition", "bob") == ["of bob"]
    assert texts_of(facts, "--partition", "main") == ["likes tea", "two\nlines"]
    assert texts_of(facts, "--partition-json", '["job", 1]') == ["of 1"]
    assert texts_of(facts, "--partition-json", '["job", true]') == []
    assert texts_of(facts, "--scope", "global") == ["for all"]
    listed = facts("set", "list", "--partition-json", '["job", 1]', "--json")
    (info,) = json.loads(listed.out)["sets"]
    assert validated(SetInfo, json.dumps(info))["name"] == "facts"
    assert listed.err == 'partition ["job", 1]\n'
    assert facts("set", "list", "--limit", "1").out.startswith("facts  rev 1")


REFUSALS = [
    (["get"], "usage"),
    (["list", "facts"], "usage"),
    (["list", "--yes"], "usage"),
    (["drop", "facts", "more", "--yes"], "usage"),
    (["get", "facts", "--metadata", "{}"], "usage"),
    (["add", "facts"], "invalid-text"),
    (["add", "facts", "a", "--jsonl"], "usage"),
    (["add", "facts", "-", "--jsonl", "--metadata", "{}"], "usage"),
    (["add", "facts", "a", "--metadata", "{"], "invalid-metadata"),
    (["add", "facts", "a", "--metadata", "7"], "invalid-metadata"),
    (["add", "", "a"], "invalid-name"),
    (["update", "facts"], "usage"),
    (["update", "facts", "tea"], "invalid-argument"),
    (["update", "facts", "a", "b", "c"], "usage"),
    (["delete", "facts"], "usage"),
    (["delete", "facts", "tea", "--all", "--yes"], "usage"),
    (["history", "facts", "a", "b"], "usage"),
    (["undo", "facts"], "usage"),
    (["undo", "facts", "x"], "usage"),
    (["get", "facts", "--filter", "["], "invalid-filter"),
    (["get", "facts", "--partition", "a", "--partition-json", "1"], "usage"),
    (["get", "facts", "--partition-json", "a"], "invalid-partition-key"),
    (["get", "facts", "--partition-json", "null"], "invalid-partition-key"),
    (["get", "facts", "--partition-json", '{"a": 1}'], "invalid-partition-key"),
]


def test_what_does_not_fit_is_refused(facts):
    found = []
    for words, _ in REFUSALS:
        result = facts("set", *words, "--json")
        found.append((words, code_of(result)))
        assert result.status == 2

    assert found == REFUSALS
    assert page_of(facts)["rev"] == 1


BAD_LINES = [
    (["{"], "line 1 is no JSON object with a 'text'"),
    (['{"text": "a"}', "5"], "line 2 is no JSON object with a 'text'"),
    (['{"metadata": {}}'], "line 1 is no JSON object with a 'text'"),
    (['{"text": "a", "txet": 1}'], "line 1 has 'txet'"),
    (['{"text": "a", "id": "i"}', '{"text": "b"}'], "1 of 2 lines have an id"),
]


def test_a_bad_line_adds_nothing(facts):
    for lines, reason in BAD_LINES:
        raw = "\n".join(lines).encode()
        result = facts("set", "add", "facts", "-", "--jsonl", stdin=raw)

        assert (result.status, result.out) == (2, "")
        assert f"{reason}; nothing was added" in result.err
    assert page_of(facts)["rev"] == 1


def test_ids_that_are_not_there_are_refused_or_told(facts):
    missing = facts("set", "update", "facts", "none", "x", "--json")
    unknown = facts("set", "undo", "facts", "9", "--json")

    assert (missing.status, code_of(missing)) == (3, "item-not-found")
    assert (unknown.status, code_of(unknown)) == (3, "history-not-found")


def test_a_repeated_call_writes_once(facts):
    for _ in range(2):
        facts("set", "add", "facts", "x", "--request-id", "r1")

    assert texts_of(facts) == ["likes tea", "two\nlines", "x"]


def test_a_set_that_is_read_makes_no_store(run, home):
    result = run("set", "get", "facts", "--json")

    assert (result.status, code_of(result)) == (3, "store-not-found")
    assert not (home / "store.sqlite").exists()
