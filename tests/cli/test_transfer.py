"""crdtmem.cli.transfer: export and import"""

import json
import signal
import subprocess
import sys

import pytest

from crdtmem.memory import Memory
from crdtmem.models import ExportReport, ImportReport
from tests.cli.contract import validated


@pytest.fixture
def exported(run, home):
    """Run commands beside an export of two slots with some history."""
    run("create", "plan", "a")
    run("append", "plan", "b")
    run("create", "notes", "x", "--scope", "global")
    run("export", "all.jsonl")
    return run


def elsewhere(run, *words, **options):
    return run("--store", "other.sqlite", *words, **options)


def actions_of(result):
    return [line.split() for line in result.out.splitlines()]


def test_an_export_comes_back_with_its_history(exported):
    result = elsewhere(exported, "import", "all.jsonl")

    assert result.status == 0
    assert sorted(actions_of(result)) == [
        ["created", "notes", "global"],
        ["created", "plan", "project"],
    ]
    assert elsewhere(exported, "get", "plan").out == "a\nb\n"
    assert elsewhere(exported, "log", "plan").out.count("\n") == 1


@pytest.mark.requirement("surfaces-10", "P7")
def test_a_second_import_changes_nothing(exported):
    elsewhere(exported, "import", "all.jsonl")
    before = elsewhere(exported, "changes", "--json").out

    again = elsewhere(exported, "import", "all.jsonl", "--json")

    report = validated(ImportReport, again.out)
    assert {slot["action"] for slot in report["slots"]} == {"same"}
    assert elsewhere(exported, "changes", "--json").out == before


def test_an_export_tells_what_it_wrote(exported, home):
    report = validated(ExportReport, exported("export", "two.jsonl", "--json").out)
    told = exported("export", "three.jsonl", "--no-history")

    assert report["bytes"] == (home / "two.jsonl").stat().st_size
    assert (report["slots"], report["history"]) == (2, 1)
    assert "exported 2 slots and 0 past texts" in told.err
    assert told.out == ""


def test_items_of_sets_go_out_and_in(run):
    run("set", "add", "facts", "a", "b", "--partition", "bob")
    told = run("export", "sets.jsonl")

    taken = elsewhere(run, "import", "sets.jsonl")
    again = elsewhere(run, "import", "sets.jsonl", "--json")

    assert told.err.startswith("exported 0 slots and 0 past texts, 2 items of sets, ")
    assert (taken.status, taken.out) == (
        0,
        "created  set facts of s.bob  project  2 added\n",
    )
    (found,) = validated(ImportReport, again.out)["sets"]
    assert (found["action"], found["same"]) == ("same", 2)


def test_items_that_differ_are_left_and_told(run):
    for store in ("store.sqlite", "other.sqlite"):
        words = ("--store", store, "set", "update", "facts", "i", store, "--create")
        run(*words)
    run("export", "sets.jsonl")

    told = elsewhere(run, "import", "sets.jsonl")
    settled = elsewhere(run, "import", "sets.jsonl", "--on-conflict", "replace")
    refused = run(
        "import",
        "-",
        stdin=b'{"type": "item"}\n{"type": "end", "slots": 0, "history": 0}\n',
    )

    assert (told.status, told.out) == (
        10,
        "same  set facts of s.main  project  1 differing\n",
    )
    assert (settled.status, settled.out) == (
        0,
        "updated  set facts of s.main  project  1 updated\n",
    )
    assert (refused.status, refused.out) == (10, "")


def test_a_set_that_refuses_its_items_says_why(run, monkeypatch):
    run("set", "add", "facts", "a", "b")
    run("export", "sets.jsonl")
    monkeypatch.setattr("crdtmem.sets.writing.SET_ITEMS_MAX", 1)

    told = elsewhere(run, "import", "sets.jsonl")

    assert (told.status, told.out) == (
        10,
        "refused  set facts of s.main  project (set-full)\n",
    )


@pytest.mark.process
def test_an_export_may_go_through_a_pipe(exported, spawn, home):
    exporting = spawn("export")
    importing = spawn(
        "--store", "other.sqlite", "import", "-", stdin=exporting.out.encode()
    )

    assert exporting.out == (home / "all.jsonl").read_text(encoding="utf-8").replace(
        (home / "all.jsonl").read_text(encoding="utf-8").split("\n")[0],
        exporting.out.split("\n")[0],
    )
    assert importing.status == 0
    assert elsewhere(exported, "get", "plan").out == "a\nb\n"


@pytest.mark.parametrize(
    "words", [["--json"], ["-", "--json"], ["--format", "markdown"]]
)
def test_stdout_carries_one_thing(exported, words):
    result = exported("export", *words)

    assert (result.status, result.out) == (2, "")


def test_a_bad_line_is_skipped_and_told(exported, home):
    path = home / "all.jsonl"
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    path.write_text(
        "".join([lines[0], "{bad\n", '{"type": "new"}\n', *lines[1:]]), encoding="utf-8"
    )

    result = elsewhere(exported, "import", "all.jsonl")

    assert result.status == 10
    assert "skipped 2: bad-json" in result.err
    assert "ignored 1 record of unknown type" in result.err
    assert elsewhere(exported, "get", "plan").out == "a\nb\n"


def test_strict_writes_nothing_if_one_record_is_bad(exported, home):
    path = home / "all.jsonl"
    path.write_text(path.read_text(encoding="utf-8") + "{bad\n", encoding="utf-8")

    result = elsewhere(exported, "import", "all.jsonl", "--strict", "--json")

    assert (result.status, result.out) == (10, "")
    assert json.loads(result.err)["error"]["code"] == "import-refused"
    assert elsewhere(exported, "get", "plan").status == 3


def test_a_source_that_ends_early_is_told(exported, home):
    path = home / "all.jsonl"
    path.write_text(
        "".join(path.read_text(encoding="utf-8").splitlines(keepends=True)[:-1]),
        encoding="utf-8",
    )

    result = elsewhere(exported, "import", "all.jsonl")

    assert result.status == 10
    assert "ends early" in result.err


def test_a_dry_run_tells_and_writes_nothing(exported):
    result = elsewhere(exported, "import", "all.jsonl", "--dry-run")

    assert "created" in result.out
    assert "nothing was written" in result.err
    assert elsewhere(exported, "get", "plan").status == 3


def test_a_conflict_is_reported_and_settled_as_asked(exported):
    elsewhere(exported, "create", "plan", "ours")

    reported = elsewhere(exported, "import", "all.jsonl")
    assert reported.status == 10
    assert ["conflict", "plan", "project"] in actions_of(reported)
    assert elsewhere(exported, "get", "plan").out == "ours\n"

    assert (
        elsewhere(exported, "import", "all.jsonl", "--on-conflict", "append").status
        == 0
    )
    assert elsewhere(exported, "get", "plan").out.startswith("ours\n[imported ")


def test_an_import_that_is_refused_for_a_slot_says_why(exported):
    elsewhere(exported, "create", "plan", "ours", "--read-only")

    result = elsewhere(exported, "import", "all.jsonl", "--on-conflict", "replace")

    assert result.status == 10
    assert "(slot-read-only)" in result.out


@pytest.mark.parametrize(
    "text", ["", "a,b\n1,2\n", '{"type":"entity","name":"x"}\n', "[" * 100_000]
)
def test_any_other_format_is_refused_naming_the_two(run, home, text):
    (home / "source").write_text(text, encoding="utf-8")

    for result in (run("import", "source"), run("import", "-", stdin=text.encode())):
        assert result.status == 10
        assert "'crdtmem export', or a folder of Markdown files" in result.err
    assert run("import", "absent").status == 10
    assert not (home / "store.sqlite").exists()


def test_a_folder_of_markdown_goes_out_and_in(run, home):
    run("create", "plan", "- a\n")
    run("create", "notes__todo", "x")
    run("create", "a__", "y", "--scope", "global")
    report = validated(
        ExportReport, run("export", "out", "--format", "markdown", "--json").out
    )

    files = {
        str(p.relative_to(home / "out")): p.read_bytes()
        for p in (home / "out").rglob("*.md")
    }
    assert files == {"plan.md": b"- a\n\n", "notes/todo.md": b"x\n", "@/a__.md": b"y\n"}
    assert report["bytes"] == sum(map(len, files.values()))

    first = elsewhere(run, "import", "out")
    second = elsewhere(run, "import", "out")
    assert sorted(actions_of(first)) == [
        ["created", "a__", "project"],
        ["created", "notes__todo", "project"],
        ["created", "plan", "project"],
    ]
    assert {words[0] for words in actions_of(second)} == {"same"}
    assert elsewhere(run, "get", "plan").out == "- a\n\n"


def test_only_markdown_files_of_a_folder_are_taken(run, home):
    folder = home / "in"
    (folder / "deep" / ".git").mkdir(parents=True)
    (folder / "deep" / "1st.md").write_text("x" * 30_000, encoding="utf-8")
    (folder / "deep" / ".git" / "a.md").write_text("hidden", encoding="utf-8")
    (folder / ".hidden.md").write_text("hidden", encoding="utf-8")
    (folder / "image.png").write_bytes(b"\xff")
    (folder / "link.md").symlink_to(folder / "deep" / "1st.md")
    (folder / ("Ä" * 20 + ".md")).write_text("long name", encoding="utf-8")

    result = run("import", "in", "--scope", "global")

    assert result.status == 10
    assert actions_of(result) == [["created", "deep__1st", "global"]]
    assert "more than 64" in result.err
    assert json.loads(run("get", "deep__1st", "--json").out)["sizeLimit"] == 30_000


def test_a_strict_import_of_a_folder_with_a_bad_file_writes_nothing(run, home):
    (home / "in").mkdir()
    (home / "in" / "a.md").write_bytes(b"\xff")
    (home / "in" / "b.md").write_bytes(b"b")

    result = run("import", "in", "--strict")

    assert result.status == 10
    assert "a.md" in result.err
    assert not (home / "store.sqlite").exists()


def test_an_empty_folder_is_an_empty_import(run, home):
    (home / "in").mkdir()

    assert run("import", "in").status == 0


def test_an_interrupted_import_says_that_nothing_is_half(run, home, monkeypatch):
    def interrupt(*args, **options):
        raise KeyboardInterrupt

    (home / "in").mkdir()
    monkeypatch.setattr(Memory, "import_", interrupt)

    result = run("import", "in")

    assert result.status == 130
    assert "whole, or as it was" in result.err


@pytest.mark.process
def test_an_export_that_is_killed_leaves_the_old_file_whole(
    exported, environment, home
):
    path = home / "all.jsonl"
    old = path.read_bytes()
    # The kill comes when everything is written and only the name is to be changed.
    script = (
        "import os, pathlib, signal, crdtmem.opening as opening\n"
        "os.replace = os.rename = lambda *names: os.kill(os.getpid(), signal.SIGKILL)\n"
        "store = pathlib.Path('store.sqlite')\n"
        "with opening.open(store, lane='a', project='demo') as memory:\n"
        "    memory.export(pathlib.Path('all.jsonl'))\n"
    )
    result = subprocess.run(
        [sys.executable, "-c", script], cwd=home, env=environment, check=False
    )

    assert result.returncode == -signal.SIGKILL
    assert path.read_bytes() == old
