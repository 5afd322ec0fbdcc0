"""crdtmem.cli.writing: create, append, replace, edit, delete, meta"""

import json
import os
import pty
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from crdtmem.models import DeleteResult, SlotView, WriteResult
from tests.cli.contract import validated


def text_of(run, label="plan"):
    return json.loads(run("get", label, "--json").out)["content"]


def rev_of(run, label="plan"):
    return json.loads(run("get", label, "--json").out)["rev"]


def code_of(result):
    assert result.out == ""
    assert result.err.count("\n") == 1
    return json.loads(result.err)["error"]["code"]


def test_a_write_prints_one_line(run):
    assert (
        run("create", "plan", "a").out == "plan: rev 0, 1 of 2,000 (0 %), 1,999 free\n"
    )
    assert (
        run("append", "plan", "b").out == "plan: rev 1, 3 of 2,000 (0 %), 1,997 free\n"
    )
    assert run("append", "plan", "c", "-q").out == ""


@pytest.mark.requirement("surfaces-4")
@pytest.mark.parametrize(
    ("words", "stored"),
    [
        (["- item", "--lane", "a"], "- item"),
        (["-q is"], "-q is"),
        (["--", "--lane"], "--lane"),
    ],
)
def test_bullets_are_text(run, words, stored):
    assert run("append", "persona", *words).status == 0
    assert text_of(run, "persona") == stored


def test_a_misspelt_option_stores_nothing(run, home):
    result = run("append", "persona", "--lnae")

    assert result.status == 2
    assert not (home / "store.sqlite").exists()


@pytest.mark.parametrize(
    ("raw", "words", "stored"),
    [
        (b"a\n", [], "a"),
        (b"a\n", ["--keep-newline"], "a\n"),
        (b"\xef\xbb\xbfa", [], "a"),
    ],
)
def test_stdin_is_text_where_it_is_asked_for(run, raw, words, stored):
    run("append", "persona", "-", *words, stdin=raw)

    assert text_of(run, "persona") == stored


def test_text_that_is_not_utf_8_stores_nothing(run, home):
    result = run("append", "persona", "-", "--json", stdin=b"a\xff")

    assert (result.status, code_of(result)) == (2, "invalid-text")
    assert not (home / "store.sqlite").exists()


@pytest.mark.process
def test_a_missing_text_is_told_at_once_while_stdin_is_held_open(environment, tmp_path):
    reading, writing = os.pipe()
    try:
        result = subprocess.run(
            [sys.executable, "-m", "crdtmem.cli", "append", "persona"],
            cwd=tmp_path,
            env=environment,
            stdin=reading,
            capture_output=True,
            encoding="utf-8",
            check=False,
        )
    finally:
        os.close(reading)
        os.close(writing)

    assert result.returncode == 2
    assert "pass '-' to read stdin" in result.stderr


def test_create_takes_what_a_slot_may_have(run):
    result = run(
        "create",
        "plan",
        "--description",
        "d",
        "--size-limit",
        "50",
        "--no-pin",
        "--json",
    )
    run("create", "log_book", "x", "--read-only")

    assert validated(WriteResult, result.out)["sizeLimit"] == 50
    shown = json.loads(run("meta", "plan", "--json").out)
    assert (shown["description"], shown["pinned"]) == ("d", False)
    assert run("append", "log_book", "y").status == 8
    assert run("create", "plan").status == 4


def test_a_new_slot_goes_where_the_scope_says(run, monkeypatch):
    run("create", "here")
    run("create", "there", "--scope", "global")
    monkeypatch.setenv("CRDTMEM_SCOPE", "global")
    run("create", "also_there")

    listed = json.loads(run("list", "--no-templates", "--json").out)["slots"]
    assert {slot["label"]: slot["scope"] for slot in listed} == {
        "here": "project",
        "there": "global",
        "also_there": "global",
    }


def test_replace_needs_a_guard_or_force(run):
    run("create", "plan", "a")

    result = run("replace", "plan", "b", "--json")

    assert (result.status, code_of(result)) == (2, "invalid-precondition")
    assert json.loads(result.err)["error"]["details"]["reason"] == "guard-required"
    assert text_of(run) == "a"


def test_a_stale_replace_is_refused_and_merged_with_its_base(run):
    run("create", "plan", "a")
    run("append", "plan", "b", "--lane", "other")

    refused = run("replace", "plan", "A", "--expected-rev", "0")
    assert refused.status == 4
    assert "changed since you read it" in refused.err
    assert "+b" in refused.err
    assert text_of(run) == "a\nb"

    merged = run("replace", "plan", "A", "--base-rev", "0")
    assert merged.status == 0
    assert "merged with what others wrote" in merged.err
    assert text_of(run) == "A\nb"


def test_a_forced_replace_tells_what_it_overwrote(run):
    run("create", "plan", "a")
    run("append", "plan", "b", "--lane", "other")

    result = run("replace", "plan", "c", "--force", "-q")

    assert "overwrote rev 1 append by other" in result.err


def test_a_request_id_writes_once(run):
    run("create", "plan", "a")
    first = run("append", "plan", "b", "--request-id", "r1")
    second = run("append", "plan", "b", "--request-id", "r1")

    assert first.out == second.out
    assert "already written" in second.err
    assert text_of(run) == "a\nb"


def test_what_already_is_the_text_changes_nothing(run):
    run("create", "plan", "a")

    assert "nothing changed" in run("replace", "plan", "a", "--force").err
    assert rev_of(run) == 0


@pytest.mark.parametrize(
    ("words", "after"),
    [
        (["--old", "a", "--new", "x", "--occurrence", "2"], "a b x"),
        (["--old", "a", "--new", "x", "--all"], "x b x"),
        (["--old", "b", "--new", "- "], "a -  a"),
        (["--insert-after", "0", "- top"], "- top\na b a"),
        (["--insert-after", "1", "end", "--expected-rev", "0"], "a b a\nend"),
        (["--insert-after", "1", "end", "--base-rev", "0"], "a b a\nend"),
    ],
)
def test_a_part_is_edited(run, words, after):
    run("create", "plan", "a b a")

    assert run("edit", "plan", *words).status == 0
    assert text_of(run) == after


@pytest.mark.parametrize(
    ("words", "status"),
    [
        (["--old", "a"], 2),
        (["--new", "a"], 2),
        (["--occurrence", "1"], 2),
        (["--old", "a", "--new", "b"], 4),
        (["--old", "a", "--new", "b", "--all", "--occurrence", "1"], 2),
        (["--old", "b", "--new", "c", "--base-rev", "0"], 2),
        (["--old", "b", "--new", "c", "--insert-after", "0", "x"], 2),
        (["text without a place"], 2),
        (["--insert-after", "0"], 2),
        (["--insert-after", "1", "x"], 2),
        (["--expected-rev", "0"], 2),
    ],
)
def test_an_edit_that_is_not_clear_changes_nothing(run, words, status):
    run("create", "plan", "a b a")

    assert run("edit", "plan", *words).status == status
    assert (text_of(run), rev_of(run)) == ("a b a", 0)


@pytest.fixture
def editor(home, monkeypatch):
    """Make $EDITOR a shell script that gets the file as $1."""

    def editor(script):
        path = home / "editor"
        path.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
        monkeypatch.setenv("EDITOR", str(path))

    return editor


@pytest.mark.process
def test_the_editor_saves_with_the_rev_that_was_opened(run, editor):
    run("create", "plan", "a\nb")
    other = f"{sys.executable} -m crdtmem.cli append plan c --lane other -q"
    editor(f"sed -i s/a/A/ $1; {other}")

    result = run("edit", "plan")

    assert "merged" in result.err
    assert text_of(run) == "A\nb\nc"


@pytest.mark.process
def test_an_editor_that_saves_nothing_writes_nothing(run, editor):
    run("create", "plan")
    editor("exit 0")

    assert "nothing was changed" in run("edit", "plan").err
    assert rev_of(run) == 0


@pytest.mark.process
def test_what_was_typed_is_kept_where_it_cannot_be_written(run, editor):
    run("create", "plan", "a", "--size-limit", "5")
    editor("echo far too long >> $1")

    result = run("edit", "plan")

    kept = result.err.splitlines()[0].removeprefix("what you typed is in ")
    assert result.status == 5
    assert Path(kept).read_text(encoding="utf-8") == "a\nfar too long\n"
    assert text_of(run) == "a"


@pytest.mark.process
def test_an_editor_that_fails_is_told(run, editor):
    run("create", "plan", "a")
    editor("exit 1")

    result = run("edit", "plan")

    assert result.status == 2
    assert "Editing failed" in result.err
    assert text_of(run) == "a"


def test_delete_needs_a_yes_where_nobody_can_be_asked(run):
    run("create", "plan", "a")

    assert run("delete", "plan").status == 2
    assert text_of(run) == "a"
    assert "brings it back" in run("delete", "plan", "--yes").out
    assert run("get", "plan").status == 3
    assert run("undo", "plan").status == 0
    assert text_of(run) == "a"


def test_delete_tells_what_the_label_means_now(run):
    run("create", "plan", "a", "--scope", "global")
    run("create", "plan", "b")

    assert "now means the global slot" in run("delete", "plan", "--yes", "-q").err
    result = run("delete", "plan", "--yes", "--json")
    assert validated(DeleteResult, result.out)["scope"] == "global"


@pytest.mark.process
@pytest.mark.parametrize(("answer", "status"), [(b"y\n", 0), (b"\n", 1)])
def test_delete_asks_on_a_terminal(run, environment, tmp_path, answer, status):
    run("create", "plan", "a")
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "crdtmem.cli", "delete", "plan"],
        cwd=tmp_path,
        env=environment,
        stdin=theirs,
        stdout=subprocess.PIPE,
        stderr=theirs,
    )
    os.close(theirs)
    assert b"delete slot 'plan'? [y/N]" in os.read(ours, 1000)
    os.write(ours, answer)
    process.communicate()
    os.close(ours)

    assert process.returncode == status
    assert (run("get", "plan").status == 3) is (status == 0)


def test_meta_shows_and_changes_what_is_known_of_a_slot(run):
    run("create", "plan", "a")

    shown = run("meta", "plan").out
    changed = run("meta", "plan", "--size-limit", "9", "--read-only", "--no-pin")
    view = validated(SlotView, run("meta", "plan", "--json").out)

    assert "appends only" not in shown
    assert "none (read-only)" in changed.out
    assert (view["sizeLimit"], view["readOnly"], view["pinned"]) == (9, True, False)
    assert run("append", "plan", "b").status == 8
    assert run("meta", "plan", "--writable", "--append-only", "-q").out == ""
    assert "appends only" in run("meta", "plan").out
    assert "never written" in run("meta", "persona").out
    assert (
        json.loads(run("meta", "plan", "--free", "--json").out)["appendOnly"] is False
    )


def test_a_full_slot_refuses_and_says_how_full(run):
    run("create", "plan", "12345", "--size-limit", "10")

    result = run("append", "plan", "6789x", "--json")

    assert (result.status, code_of(result)) == (5, "size-limit-exceeded")
    assert "(11 > 10)" in result.err
    assert text_of(run) == "12345"
    assert "compact it now" in run("append", "plan", "6789").err
