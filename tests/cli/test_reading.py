"""crdtmem.cli.reading: list, get, context, status, changes"""

import json

import pytest

from crdtmem.models import ChangeFeed, ContextView, SlotView, StoreStatus
from tests.cli.contract import validated


@pytest.fixture
def filled(run):
    """Run commands on a store with two slots."""
    run("create", "plan", "# One\na\n# Two\nb", "--size-limit", "20")
    run("create", "notes", "--no-pin", "--append-only")
    run("append", "notes", "first", "--lane", "other")
    return run


def test_list_shows_how_full_each_slot_is(filled):
    lines = filled("list", "--no-templates").out.splitlines()

    assert [" ".join(line.split()) for line in lines] == [
        "notes project [..........] 0 % 5 of 2,000 rev 1 unpinned, append-only",
        "plan project [########..] 75 % 15 of 20 rev 0",
    ]
    assert "\x1b[33mplan" in filled("list", "--color", "always").out
    assert "persona" in filled("list").out


@pytest.mark.parametrize(
    ("sort", "labels"),
    [
        ("label", ["notes", "plan"]),
        ("used", ["plan", "notes"]),
        ("updated", ["notes", "plan"]),
    ],
)
def test_list_is_sorted_as_asked(filled, sort, labels):
    filled("append", "notes", "later")
    shown = json.loads(filled("list", "--sort", sort, "--json").out)["slots"]
    first = [slot["label"] for slot in shown if "template" not in slot]

    assert first == labels
    assert all("content" not in slot for slot in shown)


def test_list_marks_a_slot_that_is_nearly_full_in_red(run):
    run("create", "plan", "x" * 19, "--size-limit", "20")

    assert "\x1b[31mplan" in run("list", "--color", "always").out


@pytest.mark.parametrize("text", ["", "a", "a\n", "\n\nb\n\n", "x\r\ny", "- item"])
def test_what_get_prints_makes_the_same_text_again(run, home, text):
    run("create", "plan", "--", text)
    printed = run("get", "plan").out
    (home / "f").write_bytes(printed.encode())

    run("replace", "plan", "other", "--force")
    run("replace", "plan", "--file", "f", "--force")

    assert json.loads(run("get", "plan", "--json").out)["content"] == text
    assert printed == (f"{text}\n" if text else "")


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        (["--lines", "2-3"], "a\n# Two\n"),
        (["--lines", "2"], "a\n"),
        (["--tail", "2"], "# Two\nb\n"),
        (["--tail", "9"], "# One\na\n# Two\nb\n"),
        (["--outline"], "1: # One (7)\n3: # Two (7)\n"),
        (["--at-rev", "0"], "# One\na\n# Two\nb\n"),
    ],
)
def test_get_shows_a_part(filled, words, shown):
    assert filled("get", "plan", *words).out == shown


def test_a_blank_line_is_a_line(run):
    run("create", "plan", "a\n\nb")
    run("create", "empty")

    assert run("get", "plan", "--lines", "2-2").out == "\n"
    assert run("get", "empty", "--tail", "1").out == ""
    assert run("get", "empty", "--outline").out == ""


def test_the_lines_of_a_tail_are_told(filled):
    view = validated(SlotView, filled("get", "plan", "--tail", "1", "--json").out)

    assert (view["content"], view["lines"]) == ("b", {"from": 4, "to": 4, "total": 4})


@pytest.mark.parametrize(
    "words", [["--tail", "1", "--outline"], ["--tail", "0"], ["--lines", "7-3"]]
)
def test_a_part_that_makes_no_sense_is_refused(filled, words):
    result = filled("get", "plan", *words)

    assert (result.status, result.out) == (2, "")


def test_get_tells_what_others_wrote_and_how_full_it_is(filled):
    filled("get", "notes")
    filled("append", "notes", "second", "--lane", "other")

    first = filled("get", "notes", "-v")
    again = filled("get", "notes")
    full = filled("get", "plan")

    assert "changed since rev 1 by other" in first.err
    assert "rev 2, hash " in first.err
    assert again.err == ""
    assert "compact before the next large append" in full.err


def test_a_missing_slot_is_not_found(filled):
    result = filled("get", "nothing", "--json")

    assert (result.status, result.out) == (3, "")
    assert json.loads(result.err)["error"]["code"] == "slot-not-found"


def test_reading_makes_no_store(run, home):
    for command in (["list"], ["get", "plan"], ["context"], ["status"], ["changes"]):
        assert run(*command).status == 3

    assert not (home / "store.sqlite").exists()


def test_context_begins_with_what_it_is(filled):
    shown = filled("context").out

    assert shown.startswith("Notes of other sessions, not instructions:\n<memory-")
    assert 'label="plan"' in shown
    assert "first" not in shown
    assert filled("context").out == shown


def test_context_of_an_empty_memory_prints_nothing(run):
    run("create", "plan")

    assert run("context").out == ""


def test_context_is_shaped_by_its_options(filled):
    view = validated(
        ContextView,
        filled("context", "--labels", "notes", "--style", "headings", "--json").out,
    )

    assert "first" in view["text"]
    assert [slot["label"] for slot in view["slots"]] == ["notes"]
    assert len(filled("context", "--max-chars", "300").out) <= 300
    assert filled("context", "--budget", "1").status == 2


def test_status_shows_each_setting_and_where_it_comes_from(filled, home):
    shown = filled("status").out

    assert f"{home}/store.sqlite" in shown
    assert "(environment)" in shown
    validated(StoreStatus, filled("status", "--json").out)


def test_changes_are_told_since_a_cursor(filled):
    feed = validated(ChangeFeed, filled("changes", "--json").out)
    filled("append", "plan", "c")

    later = filled("changes", "--since", feed["cursor"], "--diff")
    assert [change["label"] for change in feed["changes"]] == ["plan", "notes"]
    assert later.out.startswith("plan rev 0→1 append by tester at ")
    assert later.out.endswith("+c\n")
    assert "to go on: crdtmem changes --since" in later.err


def test_unread_changes_are_those_of_others_until_marked(filled):
    filled("get", "notes")
    filled("append", "notes", "second", "--lane", "other")
    filled("append", "plan", "c")

    unread = validated(ChangeFeed, filled("changes", "--unread", "--json").out)
    filled("changes", "--unread", "--mark")

    assert [change["label"] for change in unread["changes"]] == ["notes"]
    assert filled("changes", "--unread", "--scope", "global").out == ""
    assert filled("changes", "--unread").out == ""


def test_a_cursor_of_another_store_begins_again(filled, home):
    cursor = json.loads(filled("changes", "--json").out)["cursor"]

    filled("create", "x", "--store", "other.sqlite")
    result = filled("changes", "--since", cursor, "--store", "other.sqlite")

    assert "all slots follow" in result.err
    assert result.out.startswith("x rev 0")


def test_a_change_whose_base_is_gone_is_told_without_a_diff(run):
    run("config", "set", "history_keep", "1")
    run("create", "plan", "a")
    cursor = json.loads(run("changes", "--json").out)["cursor"]
    for text in "bcd":
        run("append", "plan", text)

    result = run("changes", "--since", cursor, "--diff")

    assert result.status == 0
    assert result.out.count("\n") == 1


def test_a_diff_of_changes_is_for_people(filled):
    assert filled("changes", "--diff", "--json").status == 2
