"""crdtmem.mcp.stdio: whatever comes in, the server goes on, and ends when it should."""

import asyncio
import contextlib
import json
import os
import signal
import sys
import threading
import time
from pathlib import Path

import pytest
from hypothesis import given, strategies as st
from mcp.client import Client
from mcp.client.stdio import StdioServerParameters

import crdtmem
from crdtmem.limits import MCP_LINE_BYTES
from crdtmem.mcp.stdio import SanitisedLines, run, sanitised
from tests.child import PATIENCE_S
from tests.conftest import PROFILE
from tests.mcp.pipes import Forge, Wire, append_call

APPENDS = {"default": 20, "campaign": 100}[PROFILE]
IN_FLIGHT = 20


def lines_of(path, label="pending_items"):
    with crdtmem.open(path, lane="looker", project="p") as memory:
        return str(memory.slot(label).read().content).split("\n")


@pytest.fixture(scope="module")
def forge():
    made = Forge()
    yield made
    made.close()


@pytest.fixture
def wire():
    made = Wire()
    yield made
    made.close()


@pytest.fixture
def serve(wire, open_memory, monkeypatch):
    """Serve in this thread, while a client works in another; return its result."""

    def serve(client, *, keeps_stdin_open=False):
        results = []

        def work():
            try:
                results.append(client(wire))
            finally:
                if not keeps_stdin_open:
                    wire.finish()

        stdin, stdout = wire.theirs
        # Not our own stdin and stdout, so the SDK leaves those alone.
        monkeypatch.setattr(sys, "stdin", os.fdopen(stdin, encoding="utf-8"))
        monkeypatch.setattr(sys, "stdout", os.fdopen(stdout, "w", encoding="utf-8"))
        thread = threading.Thread(target=work)
        thread.start()
        try:
            run(open_memory)
        finally:
            thread.join()
            sys.stdin.close()
            with_rest = sys.stdout
            monkeypatch.undo()
            with contextlib.suppress(BrokenPipeError):
                with_rest.close()
        return results[0]

    return serve


def is_error(message):
    return message["result"].get("isError", False)


def text_of(message):
    return message["result"]["content"][0]["text"]


@pytest.mark.requirement("surfaces-22")
def test_hostile_lines_are_answered_or_ignored_and_each_next_call_works(
    serve, path, capsys
):
    half = append_call(2, "half HALF").replace("HALF", "\\ud83d")
    long = append_call(8, "x" * (MCP_LINE_BYTES + 1))
    foreign = append_call(6, "bad BAD").encode().replace(b"BAD", b"\xff")

    def client(wire):
        wire.greet()
        answers = []
        wire.send(half)
        answers.append(wire.receive(2))
        wire.send(append_call(3, "a pair \N{FOX FACE} and \\\\ud83d"))
        answers.append(wire.receive(3))
        wire.send(b"\xef\xbb\xbf" + append_call(4, "bom").encode())
        answers.append(wire.receive(4))
        wire.send(append_call(5, "crlf") + "\r")
        answers.append(wire.receive(5))
        wire.send("not JSON " * 20, "", "[" * 9_999, foreign)
        answers.append(wire.receive(6))
        wire.send(b'{"jsonrpc":"2.0","id":7,"method":"ping","x":"\xff"}')
        answers.append(wire.receive(7))
        wire.send(long, append_call(9, "last"))
        answers.append(wire.receive(9))
        return answers

    half_pair, pair, bom, crlf, bad, ping, last = serve(client)

    assert text_of(half_pair).startswith("invalid-text: the call holds half a surro")
    assert text_of(bad).startswith("invalid-text: ")
    assert "result" in ping
    assert not [one for one in (pair, bom, crlf, last) if is_error(one)]
    assert lines_of(path) == [
        "a pair \N{FOX FACE} and \\\\ud83d",
        "bom",
        "crlf",
        "last",
    ]
    err = capsys.readouterr().err
    assert "ignored what is no JSON: b'not JSON not" in err
    assert f"refused a line of {len(long)} bytes" in err
    assert len(max(err.split("\n"), key=len)) < 130


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_server_after_the_call_that_runs(serve, path, number):
    def client(wire):
        wire.greet()
        wire.send(append_call(1, "one"))
        answer = wire.receive(1)
        os.kill(os.getpid(), number)
        return answer

    before = signal.getsignal(number)
    try:
        assert not is_error(serve(client))
    finally:
        signal.signal(number, before)

    assert lines_of(path) == ["one"]


def test_a_client_that_no_longer_reads_ends_the_server_quietly(serve, path, capsys):
    def client(wire):
        wire.greet()
        wire.send(append_call(1, "one"))
        wire.receive(1)
        os.close(wire._receiving)
        wire._receiving = -1
        wire.send(append_call(2, "two"), append_call(3, "three"))

    serve(client, keeps_stdin_open=True)

    assert "the client no longer reads; ended" in capsys.readouterr().err
    assert lines_of(path)[0] == "one"


ESCAPES = st.lists(
    st.sampled_from(
        ["\\ud83e", "\\udd8a", "\\uDBFF", "\\\\", "\\u0041", "x", "\\n", "é"]
    )
).map("".join)


@given(ESCAPES)
def test_what_is_sanitised_can_be_read_and_is_altered_only_where_it_must_be(text):
    line = f'{{"a": "{text}"}}'
    found, is_altered = sanitised(line.encode())
    before, after = json.loads(line)["a"], json.loads(found)["a"]

    after.encode()
    assert is_altered == (before != after)
    assert len(before) == len(after)
    assert [
        b for b, a in zip(before, after, strict=True) if b != a and a != "\ufffd"
    ] == []


@given(st.binary(max_size=60))
def test_any_bytes_can_be_sanitised(line):
    text, is_altered = sanitised(line)

    text.encode()
    assert is_altered or text == line.decode().strip("\ufeff \t\r\n")


async def test_lines_end_with_their_file_or_when_told_to():
    reading, writing = os.pipe()
    altered: set[object] = set()
    told: list[str] = []
    lines = SanitisedLines(reading, altered, tell=told.append)
    os.write(
        writing, b'{"id": "a", "x": "\\ud83d"}\n[1]\n{"id": [1], "x": "\\ud83d"}\n'
    )
    found = []
    async for line in lines:
        found.append(line)
        if len(found) == 3:
            lines.end()
    os.close(writing)
    os.close(reading)

    assert found == [
        '{"id": "a", "x": "\\ufffd"}',
        "[1]",
        '{"id": [1], "x": "\\ufffd"}',
    ]
    assert (altered, told) == ({"a"}, [])


async def test_a_file_that_cannot_be_read_has_ended():
    reading, writing = os.pipe()
    os.close(reading)
    os.close(writing)

    assert [line async for line in SanitisedLines(reading, set(), tell=print)] == []


def is_waiting_for_a_lock(pid):
    """Tell whether a process waits for a lock that another holds."""
    locks = Path("/proc/locks").read_text(encoding="ascii").split("\n")
    return any("->" in lock and f" {pid} " in lock for lock in locks)


@pytest.mark.requirement("surfaces-23")
@pytest.mark.process
def test_a_write_that_runs_when_stdin_ends_is_kept_and_the_server_exits(forge, path):
    with (
        forge.servers(path, 2) as (idle, writing),
        crdtmem.open(path, lane="b", project="p") as memory,
    ):
        with memory.store.writing():
            writing.send(append_call(1, "kept"))
            until = time.monotonic() + PATIENCE_S
            while not is_waiting_for_a_lock(writing.pid):
                assert time.monotonic() < until
                threading.Event().wait(0.01)
            writing.send(append_call(2, "dropped: it waits behind the other"))
            writing.finish()
            idle.finish()
        ends = forge.ends_of([idle, writing])

    assert ends == [0, 0]
    assert lines_of(path) == ["kept"]


@pytest.mark.requirement("surfaces-23")
@pytest.mark.process
def test_eight_servers_leave_neither_a_process_nor_a_lock(forge, path):
    with forge.servers(path, 8) as wires:
        for number, wire in enumerate(wires):
            wire.send(append_call(number, f"line {number}"))
        for number, wire in enumerate(wires):
            assert not is_error(wire.receive(number))
        os.kill(wires[0].pid, signal.SIGTERM)
        for wire in wires[1:]:
            wire.finish()
        ends = forge.ends_of(wires)
        pids = [wire.pid for wire in wires]

    assert ends == [0] * 8
    assert sorted(lines_of(path)) == [f"line {number}" for number in range(8)]
    assert not [pid for pid in pids if Path(f"/proc/{pid}").exists()]


@pytest.mark.requirement("surfaces-24")
@pytest.mark.process
def test_two_servers_lose_no_append_and_keep_the_order_of_each(forge, path):
    with forge.servers(path, 2) as wires:
        for number in range(APPENDS):
            for name, wire in zip("ab", wires, strict=True):
                wire.send(append_call(number, f"{name}{number}"))
            if number % IN_FLIGHT == IN_FLIGHT - 1:
                for wire in wires:
                    assert not is_error(wire.receive(number))
        # One request twice, from both: it is written once.
        for wire in wires:
            wire.send(append_call(APPENDS, "once", requestId="r1"))
        for wire in wires:
            wire.receive(APPENDS)
            wire.finish()
        assert forge.ends_of(wires) == [0, 0]

    lines = lines_of(path)
    for name in "ab":
        mine = [line for line in lines if line.startswith(name)]
        assert mine == [f"{name}{number}" for number in range(APPENDS)]
    assert (len(lines), lines.count("once")) == (2 * APPENDS + 1, 1)


@pytest.mark.process
async def test_the_installed_command_serves_the_sdks_own_client(path, mode):
    environment = {
        **{k: v for k, v in os.environ.items() if not k.startswith("CRDTMEM_")},
        "CRDTMEM_STORE": str(path),
        "CRDTMEM_PROJECT": "p",
    }
    command = StdioServerParameters(
        command=sys.executable,
        args=["-m", "crdtmem", "mcp"],
        env=environment,
        cwd=Path(crdtmem.__file__).parents[1],
    )
    async with Client(command, mode=mode) as client:
        calls = [
            client.call_tool(
                "memory_slot_append", {"label": "pending_items", "text": f"n{n}"}
            )
            for n in range(40)
        ]
        results = await asyncio.gather(*calls)
        lane = (await client.call_tool("memory_status")).structured_content["lane"]

    assert [r.structured_content["rev"] for r in results] == [*range(1, 41)]
    assert lines_of(path) == [f"n{n}" for n in range(40)]
    assert lane.startswith("mcp-")
