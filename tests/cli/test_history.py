"""crdtmem.cli.history: undo, restore, log, diff, blame"""

import json

import pytest
from pydantic import TypeAdapter

from crdtmem.models import AuditEntry, BlameLine, Diff, History, UndoResult
from tests.cli.contract import validated


@pytest.fixture
def written(run):
    """Run commands on a slot that two lanes have written."""
    run("create", "plan", "a")
    run("append", "plan", "b")
    run("append", "plan", "c", "--lane", "other")
    return run


def entries_of(run, *words):
    return validated(History, run("log", "plan", "--json", *words).out)["entries"]


def text_of(run):
    return run("get", "plan").out


def test_undo_takes_back_the_newest_write_of_this_lane(written):
    result = written("undo", "plan")

    assert text_of(written) == "a\nc\n"
    assert "undone: append by tester" in result.err
    assert "what was written later is kept" in result.err
    assert written("undo", "plan").status == 4


@pytest.mark.requirement("surfaces-2")
def test_undo_of_an_entry_says_when_it_is_exact(written):
    newest = entries_of(written)[0]["id"]
    result = validated(UndoResult, written("undo", "plan", newest, "--json").out)

    assert result["exact"] is True
    assert text_of(written) == "a\nb\n"


def test_a_dry_run_prints_the_diff_and_writes_nothing(written):
    shown = written("undo", "plan", "--dry-run")

    assert "-b\n" in shown.out
    assert text_of(written) == "a\nb\nc\n"
    assert json.loads(written("undo", "plan", "--dry-run", "--json").out)["dryRun"]


def test_restore_needs_a_guard(written):
    oldest = entries_of(written)[-1]["id"]

    assert written("restore", "plan", oldest).status == 2
    assert text_of(written) == "a\nb\nc\n"
    assert written("restore", "plan", oldest, "--expected-rev", "2").status == 0
    assert text_of(written) == "a\n"


def test_log_shows_the_kept_history_newest_first(written):
    lines = written("log", "plan").out.splitlines()

    assert [line.split("  ")[2] for line in lines] == [
        "append by other",
        "append by tester",
    ]
    assert len(entries_of(written, "--limit", "1")) == 1


def test_log_of_one_lane_looks_behind_the_others(written):
    for number in range(4):
        written("append", "plan", str(number), "--lane", "other")

    assert [e["lane"] for e in entries_of(written, "--by", "tester")] == ["tester"]
    found = json.loads(
        written("log", "plan", "--by", "other", "--limit", "2", "--json").out
    )
    assert (len(found["entries"]), found["more"]) == (2, True)


def test_log_shows_what_was_undone_and_what_changed(written):
    written("undo", "plan")
    shown = written("log", "plan", "-p").out

    assert "undone by tester" in shown
    assert "+c\n" in shown
    assert shown.index("-b") < shown.index("+c")


def test_log_without_a_label_shows_all_changes(written):
    written("create", "notes")
    result = written("log", "--json", "--by", "tester")
    entries = json.loads(result.out)["entries"]
    TypeAdapter(list[AuditEntry]).validate_python(entries)

    assert [entry["label"] for entry in entries] == ["notes", "plan", "plan"]
    assert "append by other" in written("log").out
    assert written("log", "--by", "nobody").out == ""


@pytest.mark.parametrize("words", [["-p"], ["plan", "-p", "--json"]])
def test_patches_are_of_one_slot_and_for_people(written, words):
    assert written("log", *words).status == 2


def test_diff_compares_revs_and_entries(written):
    first = entries_of(written)[-1]["id"]

    assert written("diff", "plan").out.splitlines()[-1] == "+c"
    assert written("diff", "plan", "0", "1").out.splitlines()[-1] == "+b"
    by_id = validated(Diff, written("diff", "plan", first, "--json").out)
    assert (by_id["fromRev"], by_id["toRev"], by_id["added"]) == (0, 2, 2)
    assert written("diff", "plan", "nothing").status == 3
    assert written("diff", "plan", "9").status == 4


def test_diff_tells_by_its_exit_code(written):
    assert written("diff", "plan", "--exit-code").status == 1
    assert written("diff", "plan", "2", "2", "--exit-code").status == 0
    assert written("diff", "plan", "0").status == 0


def test_diff_of_a_slot_without_history_is_empty(run):
    run("create", "plan", "a")

    assert run("diff", "plan").out == ""


def test_a_long_diff_says_that_it_is_cut(run):
    run("create", "plan", "--size-limit", "100000")
    run("append", "plan", "\n".join(map(str, range(9000))))

    assert "cut" in run("diff", "plan").err


def test_blame_shows_who_wrote_each_line(written):
    lines = written("blame", "plan").out.splitlines()

    assert [line.split()[0] for line in lines] == ["tester", "tester", "other"]
    assert [line.split()[-1] for line in lines] == ["a", "b", "c"]
    found = json.loads(written("blame", "plan", "--lines", "2-3", "--json").out)
    TypeAdapter(list[BlameLine]).validate_python(found["lines"])
    assert [line["line"] for line in found["lines"]] == [2, 3]
    written("create", "empty")
    assert written("blame", "empty").out == ""
