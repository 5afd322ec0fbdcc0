"""crdtmem.cli.mcp: the server as a command."""

import json
import os
import sys

import pytest

from crdtmem.cli import __main__ as front
from crdtmem.opening import open as open_memory

HELLO = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "clientInfo": {"name": "an agent", "version": "1"},
    },
}


def test_without_the_extra_it_says_what_to_install(run, home, monkeypatch):
    # What Python itself notes of a module that cannot be found.
    monkeypatch.setitem(sys.modules, "mcp", None)
    result = run("mcp")

    assert (result.status, result.out) == (2, "")
    assert "the package 'mcp' is not installed" in result.err
    assert 'pip install "crdtmem[mcp]"' in result.err
    assert not (home / "store.sqlite").exists()


@pytest.fixture
def serve(home, monkeypatch):
    """Serve one call; return the lane that it was written by."""
    from crdtmem.mcp import stdio  # noqa: PLC0415 - the other test does without

    opened = []

    def run_of_the_server(open_for_lane):
        opened.append(open_for_lane("agent-abcdef"))
        opened[0].memory.slot("pending_items").append("x")
        opened[0].memory.close()

    monkeypatch.setattr(stdio, "run", run_of_the_server)

    def serve(*argv):
        assert front.status_of(["mcp", *argv]) == 0
        with open_memory(
            home / "store.sqlite", lane="looker", project="demo"
        ) as memory:
            entry = memory.slot("pending_items").history().entries[0]
        return opened[0], entry.lane

    return serve


def test_the_lane_is_the_clients_unless_a_setting_names_one(serve, monkeypatch):
    monkeypatch.delenv("CRDTMEM_LANE")
    opened, lane = serve()

    assert lane == "agent-abcdef"
    assert (opened.new_scope, opened.relay_token) == ("project", None)


def test_settings_and_options_reach_the_session(serve, monkeypatch):
    monkeypatch.setenv("CRDTMEM_RELAY_TOKEN", "crdtm1.a.b")
    monkeypatch.setenv("CRDTMEM_RELAY_KEYRING", "fd:9")
    opened, lane = serve("--scope", "global")

    assert lane == "tester"
    assert (opened.new_scope, opened.relay_token) == ("global", "crdtm1.a.b")
    assert opened.relay_keyring == "fd:9"


def test_a_bad_setting_is_told_to_the_client_and_stops_no_start(
    home, monkeypatch, capfdbinary
):
    monkeypatch.setenv("CRDTMEM_TIMEOUT", "soon")
    with _stdin_of(HELLO) as stdin:
        monkeypatch.setattr(sys, "stdin", stdin)
        assert front.status_of(["mcp"]) == 0

    out, _ = capfdbinary.readouterr()
    assert json.loads(out)["result"]["serverInfo"]["name"] == "crdtmem"


def _stdin_of(*messages):
    reading, writing = os.pipe()
    with os.fdopen(writing, "w", encoding="utf-8") as sending:
        sending.writelines(json.dumps(message) + "\n" for message in messages)
    return open(reading, encoding="utf-8")
