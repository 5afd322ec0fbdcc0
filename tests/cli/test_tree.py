"""crdtmem.cli.tree and usage: what click reads, and what it says to the rest."""

import json

import click
import pytest

from crdtmem.cli import usage
from crdtmem.cli.grammar import Invocation
from crdtmem.cli.tree import read


def values_of(*argv):
    found = read(argv)
    assert isinstance(found, Invocation)
    return {**found.shared, **found.values}


@pytest.mark.parametrize(
    ("words", "text", "lane"),
    [
        (["- item", "--lane", "a"], "- item", "a"),
        (["--lane=a", "-q is"], "-q is", "a"),
        (["--", "--lane"], "--lane", None),
        (["---"], "---", None),
        (["--- title"], "--- title", None),
        (["-1"], "-1", None),
        (["-"], "-", None),
        (["--file not an option"], "--file not an option", None),
        (["--lane", "--lane", "x"], "x", "--lane"),
    ],
)
def test_text_may_begin_with_dashes(words, text, lane):
    values = values_of("append", "plan", *words)

    assert (values["label"], values["text"], values["lane"]) == ("plan", text, lane)


@pytest.mark.requirement("surfaces-4")
@pytest.mark.parametrize("typo", ["--lnae", "--lnae=a", "--no-such-thing"])
def test_a_lone_word_like_an_option_is_never_text(typo):
    with pytest.raises(click.NoSuchOption):
        read(["append", "plan", typo])


def test_an_option_at_the_end_of_a_text_command_needs_its_value():
    with pytest.raises(click.UsageError, match="requires an argument"):
        read(["append", "plan", "x", "--lane"])


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["--lines", "x"], "'x' is not a range of lines such as 3-7"),
        (["--tail", "1.5"], "'1.5' is not a whole number"),
        (["--busy-timeout", "soon"], "'soon' is not a number of seconds"),
        (["--color", "pink"], "'pink' is not one of 'auto', 'always', 'never'"),
    ],
)
def test_a_value_that_does_not_fit_is_told(words, reason):
    with pytest.raises(click.UsageError) as caught:
        read(["get", "plan", *words])

    assert reason in caught.value.format_message()


def test_a_global_option_behind_the_command_wins():
    values = values_of("--lane", "a", "--scope", "global", "meta", "x", "--lane", "b")

    assert (values["lane"], values["scope"]) == ("b", "global")


def test_what_was_not_given_is_left_to_the_verb():
    assert "pinned" not in values_of("meta", "plan")
    assert values_of("meta", "plan", "--pin")["pinned"] is True
    assert values_of("meta", "plan", "--no-pin")["pinned"] is False
    assert "expected_rev" not in values_of("append", "plan", "x")
    assert values_of("append", "plan", "x", "--expected-rev", "3")["expected_rev"] == 3


def test_help_is_answered_at_once(capsys):
    assert read(["append", "-h"]) == 0
    assert "- item" not in capsys.readouterr().out
    assert read(["--help"]) == 0
    shown = capsys.readouterr().out
    assert "append      Add text to a slot, on lines of its own" in shown


@pytest.mark.parametrize(
    ("line", "nearest"),
    [
        (["apend", "plan", "x"], "'append'"),
        (["append", "plan", "--lnae"], "'--lane'"),
        (["--sotre", "x", "list"], "'--store'"),
        (["get", "plan", "--tial", "3"], "'--tail'"),
    ],
)
def test_a_typo_is_told_the_nearest_name(line, nearest, capsys):
    assert usage.read_or_explain(line) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert nearest in shown.err
    assert "--help'" in shown.err


def test_no_name_is_abbreviated(capsys):
    assert usage.read_or_explain(["stat"]) == 2
    assert usage.read_or_explain(["get", "plan", "--tai", "1"]) == 2
    assert "no such" in capsys.readouterr().err


def test_a_usage_error_is_json_where_json_was_asked_for(capsys):
    assert usage.read_or_explain(["get", "--json"]) == 2

    shown = capsys.readouterr()
    assert shown.out == ""
    assert json.loads(shown.err)["error"] == {
        "code": "usage",
        "message": "missing argument 'LABEL'",
        "hint": "run 'crdtmem get --help' to see what there is",
        "details": {"argument": "argv"},
    }
    assert usage.read_or_explain(["append", "plan", "--tpo", "--", "--json"]) == 2
    assert capsys.readouterr().err.startswith("error: ")


def test_a_line_without_a_command_shows_the_help(capsys):
    assert usage.read_or_explain([]) == 2
    assert "Commands:" in capsys.readouterr().err


def test_an_interrupt_while_the_line_is_read_is_130(monkeypatch):
    def interrupt(argv):
        raise click.Abort

    monkeypatch.setattr(usage, "read", interrupt)

    assert usage.read_or_explain([]) == 130
