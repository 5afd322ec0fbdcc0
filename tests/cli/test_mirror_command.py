"""crdtmem.cli.mirror"""

import functools
import json
import os
import signal
import subprocess
import sys
import threading
import time

import pytest

from crdtmem.mirror.values import MirrorReport, MirrorStatus
from tests.cli.contract import validated
from tests.sync.relays import in_thread

PATIENCE_S = 60


@pytest.fixture
def run(run):
    """Run a command in this process; some have an event loop of their own."""
    return functools.partial(in_thread, run)


@pytest.fixture
def notes(run, home):
    """A folder with one file, beside a store with one slot."""
    run("create", "plan", "- one")
    folder = home / "notes"
    folder.mkdir()
    (folder / "todo.md").write_text("# hi\n", encoding="utf-8")
    return folder


def test_one_pass_brings_files_and_slots_in_step(run, notes):
    result = run("mirror", "notes")

    assert (result.status, result.err) == (0, "")
    assert result.out == "1 change taken in, 1 file written, 1 slot made\n"
    assert (notes / "plan.md").read_text(encoding="utf-8") == "- one\n"
    assert run("get", "todo").out == "# hi\n"


def test_a_pass_is_told_as_json(run, notes):
    first = validated(MirrorReport, run("mirror", "notes", "--json").out)
    (notes / "todo.md").unlink()
    second = validated(MirrorReport, run("mirror", "notes", "--json").out)

    assert (first["written"], first["created"], first["blocked"]) == (1, 1, [])
    assert second["deleted"] == 1
    assert run("get", "todo").status == 3


def test_a_deletion_is_told_and_a_quiet_pass_says_nothing(run, notes):
    assert run("mirror", "notes", "-q").out == ""
    (notes / "todo.md").unlink()

    assert "1 slot deleted" in run("mirror", "notes").out


def test_what_comes_from_a_file_is_written_by_a_lane_of_the_mirrors(run, notes):
    run("mirror", "notes")
    with (notes / "plan.md").open("a", encoding="utf-8") as file:
        file.write("- two\n")
    run("mirror", "notes", "--lane", "editor")
    lanes = [line.split()[0] for line in run("blame", "todo").out.splitlines()]

    assert lanes == [f"mirror:{os.uname().nodename}"]
    assert [line.split()[0] for line in run("blame", "plan").out.splitlines()] == [
        "tester",
        "editor",
    ]


def test_a_file_that_is_left_alone_is_told_with_status_10(run, notes):
    (notes / "todo.md").write_bytes(b"\xff\n")

    plain = run("mirror", "notes")
    as_json = run("mirror", "notes", "--json")

    assert (plain.status, as_json.status) == (10, 10)
    assert "todo.md: left alone, source-encoding-invalid; save the file" in plain.err
    (blocked,) = json.loads(as_json.out)["blocked"]
    assert (blocked["file"], blocked["reason"]) == (
        "todo.md",
        "source-encoding-invalid",
    )
    assert plain.out == "0 changes taken in, 1 file written\n"


@pytest.mark.requirement("mirror-32")
def test_a_dry_run_tells_what_would_be_done(run, notes):
    result = run("mirror", "notes", "--dry-run")

    assert (result.status, result.err) == (0, "")
    assert result.out == "would be: 0 changes taken in, 1 file written, 1 slot made\n"
    assert [path.name for path in notes.iterdir()] == ["todo.md"]
    assert run("get", "todo").status == 3
    assert run("mirror", "status", "--json").out == '{"mirrors": []}\n'


def test_only_the_slots_that_are_asked_for_are_mirrored(run, notes):
    for label in ("log_a", "log_b", "other"):
        run("create", label, "x")

    result = run("mirror", "notes", "--label", "log_*", "--label", "plan")

    assert result.status == 0
    assert sorted(path.name for path in notes.glob("*.md")) == [
        "log_a.md",
        "log_b.md",
        "plan.md",
        "todo.md",
    ]


def test_the_options_reach_the_mirror(run, notes):
    run("mirror", "notes")
    # In this order: a new file may get the number of one that is gone.
    (notes / "new.md").write_text("x\n", encoding="utf-8")
    (notes / "todo.md").unlink()

    result = run(
        "mirror",
        "notes",
        "--on-delete",
        "restore",
        "--no-create",
        "--profile",
        "claude",
    )

    assert result.status == 0
    assert (notes / "todo.md").exists()
    assert run("get", "new").status == 3
    assert "(todo.md)" in (notes / "MEMORY.md").read_text(encoding="utf-8")


def test_slots_of_everybody_are_mirrored_where_that_scope_is_meant(run, notes):
    run("create", "shared", "x", "--scope", "global")

    run("mirror", "notes", "--scope", "global", "--label", "shared")

    assert (notes / "shared.md").read_text(encoding="utf-8") == "x\n"
    assert not (notes / "plan.md").exists()


def test_the_folder_may_be_a_setting(run, notes, monkeypatch):
    refused = run("mirror")
    monkeypatch.setenv("CRDTMEM_MIRROR", "notes")
    done = run("mirror")

    assert refused.status == 2
    assert "there is no folder to mirror" in refused.err
    assert "config set mirror.dir" in refused.err
    assert done.status == 0
    assert (notes / "plan.md").exists()


def test_the_status_tells_of_every_mirrored_folder(run, notes, home):
    assert "no folder is mirrored" in run("mirror", "status").err
    (notes / "todo.md").write_bytes(b"\xff\n")
    run("mirror", "notes")
    (home / "other").mkdir()
    run("mirror", "other")

    all_of_them = run("mirror", "status")
    one = run("mirror", "status", "other", "--json")

    assert f"{notes}: 1 file, nobody mirrors it now" in all_of_them.out
    assert f"{home / 'other'}: 1 file, nobody" in all_of_them.out
    (status,) = json.loads(one.out)["mirrors"]
    assert validated(MirrorStatus, json.dumps(status))["folder"] == str(home / "other")
    assert status["isRunning"] is False


def test_the_status_tells_of_replaced_files_that_are_still_watched(run, notes):
    run("mirror", "notes")
    with (notes / "plan.md").open("a", encoding="utf-8"):
        run("append", "plan", "- two")
        run("mirror", "notes")
        told = run("mirror", "status").out

    assert told.endswith("  1 replaced file still watched\n")


def test_a_folder_that_is_not_mirrored_has_no_status_and_is_not_forgotten(run, notes):
    for action in ("status", "forget"):
        result = run("mirror", action, "notes")
        assert result.status == 3
        assert str(notes) in result.err


@pytest.mark.requirement("mirror-32")
def test_a_mirror_is_forgotten_and_its_files_stay(run, notes):
    run("mirror", "notes")

    told = run("mirror", "forget", "notes")
    run("mirror", "notes")
    as_json = run("mirror", "forget", "notes", "--json")
    run("mirror", "notes")
    quiet = run("mirror", "forget", "notes", "-q")

    assert told.out == "notes is mirrored no more; its files stay\n"
    assert json.loads(as_json.out) == {"folder": str(notes), "forgotten": True}
    assert quiet.out == ""
    assert (notes / "plan.md").exists()
    assert run("mirror", "status", "--json").out == '{"mirrors": []}\n'


def test_a_folder_may_be_called_as_an_action_is(run, notes):
    notes.rename(notes.with_name("status"))

    assert run("mirror", "./status").status == 0
    assert run("mirror", "status", "status").status == 0


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("notes", "more"), "one folder is mirrored at a time, not also 'more'"),
        (("status", "notes", "--watch"), "'mirror status' takes no --watch"),
        (("forget", "notes", "--no-create"), "'mirror forget' takes no --no-create"),
        (("forget",), "a folder is needed"),
        (("notes", "--watch", "--dry-run"), "exclude each other"),
        (("notes", "--profile", "vim"), "'vim' is not one of"),
        (("nowhere",), "nowhere"),
    ],
)
def test_a_line_that_means_nothing_is_refused(run, notes, words, told):
    result = run("mirror", *words)

    assert (result.status, result.out) == (2, "")
    assert told in result.err
    assert [path.name for path in notes.iterdir()] == ["todo.md"]


@pytest.fixture
def watching(notes, home, environment):
    """Start the command with some stdin, and return it once it mirrors."""
    started = []

    def watching(stdin):
        process = subprocess.Popen(
            [sys.executable, "-m", "crdtmem.cli", "mirror", "notes", "--watch"],
            cwd=home,
            env=environment,
            stdin=stdin,
            stderr=subprocess.PIPE,
            encoding="utf-8",
        )
        started.append(process)
        assert process.stderr is not None
        assert process.stderr.readline() == f"mirroring {notes}; Ctrl-C stops it\n"
        return process

    yield watching
    for process in started:
        process.kill()
        process.wait()
        for stream in (process.stdin, process.stderr):
            if stream is not None:
                stream.close()


def wait_for(path, text):
    pause = threading.Event()
    until = time.monotonic() + PATIENCE_S
    while not (path.exists() and path.read_text(encoding="utf-8") == text):
        assert time.monotonic() < until
        pause.wait(0.05)


@pytest.mark.process
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_mirrors_until_a_signal_ends_it_in_order(watching, run, notes, number):
    process = watching(subprocess.DEVNULL)
    run("append", "plan", "- two")

    wait_for(notes / "plan.md", "- one\n- two\n")
    assert f"process {process.pid}" in run("mirror", "status").out
    busy = run("mirror", "notes")
    assert (busy.status, busy.out) == (6, "")
    process.send_signal(number)
    assert process.wait(PATIENCE_S) == 0


@pytest.mark.process
def test_it_ends_with_the_process_that_feeds_its_input(watching, run, notes):
    process = watching(subprocess.PIPE)
    process.stdin.write("what comes here is not looked at\n")
    process.stdin.flush()
    run("append", "plan", "- two")
    wait_for(notes / "plan.md", "- one\n- two\n")
    process.stdin.close()

    assert process.wait(PATIENCE_S) == 0


@pytest.mark.process
def test_without_any_input_it_goes_on(home, notes, environment, run):
    process = subprocess.Popen(
        ["sh", "-c", f"exec {sys.executable} -m crdtmem.cli mirror notes --watch <&-"],
        cwd=home,
        env=environment,
        stderr=subprocess.DEVNULL,
    )
    wait_for(notes / "plan.md", "- one\n")
    run("append", "plan", "- two")
    wait_for(notes / "plan.md", "- one\n- two\n")
    process.terminate()

    assert process.wait(PATIENCE_S) == 0
