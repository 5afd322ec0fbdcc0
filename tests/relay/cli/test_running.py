"""relay.cli.running: how a command line ends."""

import json
import logging
import os
import subprocess
import sys

import click
import pytest

from relay.cli import main
from relay.cli.commands import cli


def fails_with(monkeypatch, error):
    """Have every command raise."""

    def fail(**_options):
        raise error

    monkeypatch.setattr(cli, "main", fail)


def test_help_is_an_answer(run):
    shown = run("--help")

    assert (shown.status, shown.err) == (0, "")
    assert "serve   Serve a relay until a signal" in shown.out


def test_without_a_command_there_is_help(run):
    assert run().status == 2
    assert run("token").status == 2


def test_a_mistyped_line_says_where_help_is(run):
    refused = run("token", "crate")

    assert (refused.status, refused.out) == (2, "")
    assert "error: no such command 'crate'" in refused.err
    assert "hint: run 'crdtmem-relay token --help'" in refused.err


def test_a_mistyped_line_is_told_in_json_where_that_was_asked_for(run):
    refused = run("check", "--json")

    assert json.loads(refused.err) == {
        "error": {
            "code": "usage",
            "message": "missing argument 'DIR'",
            "hint": "run 'crdtmem-relay check --help' to see what there is",
            "details": {"argument": "argv"},
        }
    }


def test_a_line_that_ends_before_any_command_is_told_too(monkeypatch, run):
    fails_with(monkeypatch, click.UsageError("Nothing there."))

    assert run().err == (
        "error: nothing there\nhint: run 'crdtmem-relay --help' to see what there is\n"
    )


@pytest.mark.parametrize("error", [KeyboardInterrupt(), click.Abort()])
def test_an_interrupt_ends_quietly(monkeypatch, run, error):
    fails_with(monkeypatch, error)
    ended = run()

    assert (ended.status, ended.err) == (130, "")


def test_where_click_ends_for_a_closed_stdout_so_do_we(monkeypatch, run):
    fails_with(monkeypatch, SystemExit(1))
    ended = run()

    assert (ended.status, ended.err) == (141, "")


@pytest.mark.process
def test_a_closed_stdout_ends_quietly():
    reader, writer = os.pipe()
    os.close(reader)
    ended = subprocess.run(
        [sys.executable, "-c", "from relay.cli import main; main()", "--help"],
        stdout=writer,
        stderr=subprocess.PIPE,
        check=False,
    )
    os.close(writer)

    assert (ended.returncode, ended.stderr) == (141, b"")


def test_what_nobody_expected_is_logged_and_not_told(monkeypatch, run, caplog):
    fails_with(monkeypatch, RuntimeError("a secret"))
    with caplog.at_level(logging.ERROR):
        failed = run("--json")
    told = json.loads(failed.err)["error"]

    assert (failed.status, told["code"]) == (1, "internal-error")
    assert "a secret" not in failed.err
    assert f"incident {told['details']['incident']}" in caplog.text
    assert "a secret" in caplog.text


def test_a_command_line_ends_the_process(monkeypatch):
    monkeypatch.setattr(sys, "argv", ["crdtmem-relay", "--help"])
    with pytest.raises(SystemExit) as ended:
        main()

    assert ended.value.code == 0
