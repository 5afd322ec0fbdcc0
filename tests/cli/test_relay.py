"""crdtmem.cli.relay: the relay's own command, behind the name of crdtmem."""

import json
import os

import pytest


def test_a_command_of_the_relay_is_passed_on_whole(run, home):
    made = run("relay", "init", "r", "--namespace", "p-*")
    listed = run("relay", "token", "list", "r", "--json")

    assert (made.status, made.err) == (0, "")
    assert sorted(os.listdir(home / "r")) == ["first.token", "relay.db", "relay.toml"]
    assert json.loads(listed.out)["tokens"][0]["namespace"] == "p-*"


def test_its_options_are_not_those_of_crdtmem(run):
    run("relay", "init", "r")
    line = ("--namespace", "notes", "--scope", "read", "--out", "-")
    made = run("relay", "token", "create", "r", *line)

    assert (made.status, made.out[:4]) == (0, "cm1_")


def test_json_may_be_asked_for_in_front(run):
    run("relay", "init", "r")
    checked = run("--json", "relay", "check", "r")
    twice = run("--json", "relay", "check", "r", "--json")

    assert json.loads(checked.out) == {"ok": True, "namespaces": []}
    assert twice.out == checked.out


@pytest.mark.parametrize("words", [(), ("--help",), ("token", "-h")])
def test_its_help_names_it_as_it_was_called(run, words):
    shown = run("relay", *words)

    assert "Usage: crdtmem relay" in shown.out + shown.err


def test_its_refusals_have_the_status_of_their_kind(run, home):
    missing = run("relay", "check", "r")
    mistyped = run("relay", "chek", "r")

    assert (missing.status, mistyped.status) == (2, 2)
    assert f"error: {'r'} holds no relay" in missing.err
    assert "hint: run 'crdtmem relay --help'" in mistyped.err
    assert not (home / "r").exists()


def test_it_makes_no_store(run, home):
    run("relay", "init", "r")

    assert not (home / "store.sqlite").exists()
