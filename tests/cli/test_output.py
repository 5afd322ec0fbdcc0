"""crdtmem.cli.output"""

import io
import json
import sys

import pytest
from hypothesis import given, strategies as st

from crdtmem.cli.output import Output, decide_color, escape_for_terminal
from crdtmem.errors import InvalidArgumentError


class Terminal(io.TextIOWrapper):
    """A stream that says it is a terminal."""

    def isatty(self):
        return True


@pytest.fixture
def terminal(monkeypatch):
    """Make both streams terminals; return how to see what was written to one.

    A function for the test to call, because pytest puts its own streams back between
    the set-up and the test.
    """

    def attach():
        streams = {name: io.BytesIO() for name in ("stdout", "stderr")}
        for name, raw in streams.items():
            monkeypatch.setattr(sys, name, Terminal(raw, encoding="utf-8"))

        def written(name):
            getattr(sys, name).flush()
            return streams[name].getvalue().decode()

        return written

    return attach


@given(st.text())
def test_no_control_character_reaches_a_terminal(text):
    shown = escape_for_terminal(text)

    assert [c for c in shown if (c < " " and c not in "\n\t") or c == "\x7f"] == []
    assert [c for c in shown if "\x80" <= c < "\xa0"] == []
    assert not set(shown) & set(
        "\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
    )


def test_what_is_dangerous_is_shown_as_an_escape():
    assert escape_for_terminal("a\x1b[31m\u202eb\tc\nd\x9b\r") == (
        "a\\x1b[31m\\u202eb\tc\nd\\x9b\\x0d"
    )


@pytest.mark.parametrize(
    ("option", "setting", "environ", "is_terminal", "is_colored"),
    [
        ("always", "never", {"NO_COLOR": "1"}, False, True),
        ("never", "always", {"FORCE_COLOR": "1"}, True, False),
        ("auto", "never", {"NO_COLOR": "1"}, True, True),
        ("auto", "always", {}, False, False),
        (None, "always", {"NO_COLOR": "1"}, True, False),
        (None, "auto", {"NO_COLOR": ""}, True, True),
        (None, "auto", {"NO_COLOR": "1", "FORCE_COLOR": "1"}, True, False),
        (None, "never", {"FORCE_COLOR": "1"}, False, True),
        (None, "always", {}, False, True),
        (None, "never", {}, True, False),
        (None, "auto", {}, True, True),
        (None, "auto", {}, False, False),
        (None, "auto", {"TERM": "dumb"}, True, False),
    ],
)
def test_colour_is_decided_by_option_then_environment_then_setting(
    option, setting, environ, is_terminal, is_colored
):
    assert decide_color(option, setting, environ, is_terminal=is_terminal) is is_colored


def test_a_terminal_gets_colour_and_escapes(terminal):
    written = terminal()
    out = Output()
    out.choose_color(None, "auto", {})
    out.line("\x1bfull", "red")
    out.line("plain")
    out.warn("\x1bcare")
    out.text("a\x1bb")

    assert written("stdout") == "\x1b[31m\\x1bfull\x1b[0m\nplain\na\\x1bb"
    assert written("stderr") == "\x1b[33m\\x1bcare\x1b[0m\n"


def test_json_is_never_coloured_and_stays_json_on_a_terminal(terminal):
    written = terminal()
    out = Output(as_json=True)
    out.choose_color("always", "always", {})
    out.json({"text": "é\x1b\x9b\u202e"})
    out.error(InvalidArgumentError("text", "text holds \x9b"))

    shown = written("stdout")
    assert shown == '{"text": "é\\u001b\\u009b\\u202e"}\n'
    assert json.loads(shown) == {"text": "é\x1b\x9b\u202e"}
    assert "\\u009b" in written("stderr")


def test_a_pipe_gets_every_byte_as_it_is(capsysbinary):
    out = Output()
    out.choose_color(None, "auto", {})
    out.text("a\x1b[31m\u202e")
    out.line("é", "red")

    assert capsysbinary.readouterr().out.decode() == "a\x1b[31m\u202eé\n"


def test_a_lone_surrogate_is_written_as_its_escape(capsysbinary):
    out = Output(as_json=True)
    out.error(InvalidArgumentError("label", "label required", details={"l": "\udcff"}))

    body = json.loads(capsysbinary.readouterr().err)
    assert body["error"]["details"]["l"] == "\udcff"


def test_a_diff_is_coloured_line_by_line(capsysbinary):
    out = Output()
    out.choose_color("always", "auto", {})
    out.diff("--- a\n+++ b\n@@ -1 +1 @@\n-x\n+y\n z\n")
    out.diff("")

    assert capsysbinary.readouterr().out.decode() == (
        "\x1b[1m--- a\x1b[0m\n\x1b[1m+++ b\x1b[0m\n\x1b[2m@@ -1 +1 @@\x1b[0m\n"
        "\x1b[31m-x\x1b[0m\n\x1b[32m+y\x1b[0m\n z\n"
    )


def test_quiet_drops_notes_and_keeps_warnings(capsysbinary):
    out = Output(is_quiet=True)
    out.note("note")
    out.detail("detail")
    out.warn("warning")
    Output(is_verbose=True).detail("detail")

    assert capsysbinary.readouterr().err == b"warning\ndetail\n"


def test_an_error_for_people_has_its_hint_and_its_diff(capsysbinary):
    out = Output()
    out.error(
        InvalidArgumentError("a", "a is b", hint="make it c", details={"diff": "-b\n"})
    )
    out.error(InvalidArgumentError("a", "a is b"))
    out.prompt("sure? ")
    out.flush()

    assert capsysbinary.readouterr().err == (
        b"error: a is b\nhint: make it c\n-b\nerror: a is b\nsure? "
    )
