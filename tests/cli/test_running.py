"""crdtmem.cli.running and __main__: how a command ends, and what it loads"""

import fcntl
import json
import os
import pty
import subprocess
import sys

import pytest

from crdtmem.cli import __main__ as front, reading
from crdtmem.cli.options import QUICK_COMMANDS

# Each costs at least half of a bare start of Python.
FORBIDDEN = [
    "asyncio",
    "click",
    "difflib",
    "mcp",
    "pycrdt",
    "pydantic",
    "rich",
    "websockets",
]
QUICK = [
    ["get", "plan"],
    ["list"],
    ["context"],
    ["status"],
    ["changes"],
    ["get", "plan", "--json"],
    ["list", "--json"],
    ["get", "nothing"],
    ["get", "nothing", "--json"],
    ["hook", "claude", "prompt"],
]


def error_of(result):
    """Return the error of a failed command: one line on stderr, none on stdout."""
    assert result.out == ""
    assert result.err.count("\n") == 1
    return json.loads(result.err)["error"]


@pytest.mark.requirement("surfaces-8")
@pytest.mark.process
def test_the_front_door_loads_nothing_slow(run, home, environment):
    run("create", "plan", "a")
    script = (
        "import json, sys\n"
        "from crdtmem.cli.__main__ import status_of\n"
        "found = [status_of(words) for words in json.loads(sys.argv[1])]\n"
        "print(found, *sys.modules, sep='\\n', file=sys.stderr)\n"
    )
    result = subprocess.run(
        [sys.executable, "-c", script, json.dumps(QUICK[:7])],
        cwd=home,
        # coverage, where it measures, loads some of them itself.
        env={k: v for k, v in environment.items() if not k.startswith("COV")},
        capture_output=True,
        encoding="utf-8",
        check=True,
    )

    statuses, loaded = result.stderr.split("[", 1)[1].split("]\n", 1)
    assert statuses == "0, 0, 0, 0, 0, 0, 0"
    assert [name for name in FORBIDDEN if name in loaded.split("\n")] == []


@pytest.mark.requirement("surfaces-8")
@pytest.mark.parametrize("words", QUICK)
def test_both_readers_print_the_same_bytes(run, words, monkeypatch):
    run("create", "plan", "a")
    quick = run(*words)

    monkeypatch.setattr(front, "read_quickly", lambda argv: None)

    assert run(*words) == quick


@pytest.mark.parametrize("name", [command.name for command in QUICK_COMMANDS])
def test_every_quick_command_is_in_the_test_above(name):
    assert name in [words[0] for words in QUICK]


@pytest.mark.requirement("surfaces-6")
def test_an_expected_failure_has_its_exit_status_and_one_line(run, home):
    run("create", "plan", "a", "--size-limit", "3")
    run("create", "fixed", "--read-only")

    found = {}
    for words in (
        ["append", "plan", "long"],
        ["get", "nothing"],
        ["replace", "plan", "b", "--expected-rev", "7"],
        ["append", "fixed", "x"],
        ["get", "Not A Label"],
    ):
        result = run(*words, "--json")
        found[error_of(result)["code"]] = result.status

    assert found == {
        "size-limit-exceeded": 5,
        "slot-not-found": 3,
        "conflict": 4,
        "slot-read-only": 8,
        "invalid-label": 2,
    }


def test_a_busy_store_names_who_holds_it(run, home):
    run("create", "plan", "a")
    with open(next(home.glob("*.lock")), "r+b") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        result = run("append", "plan", "b", "--busy-timeout", "0.05", "--json")
        reading = run("get", "plan")

    assert (result.status, error_of(result)["code"]) == (6, "store-busy")
    assert reading.out == "a\n"


def test_a_file_that_is_no_store_is_left_alone(run, home):
    path = home / "store.sqlite"
    path.write_bytes(b"not a store" * 500)

    result = run("list", "--json")

    assert (result.status, error_of(result)["code"]) == (7, "store-corrupt")
    assert path.read_bytes() == b"not a store" * 500


@pytest.fixture
def failing(monkeypatch):
    """Let ``list`` raise what a test wants."""

    def failing(error):
        def raising(call, **values):
            raise error

        monkeypatch.setattr(reading, "list", raising)

    return failing


def test_an_unexpected_failure_tells_no_text(run, failing, caplog):
    failing(RuntimeError("secret"))

    result = run("list", "--json")

    error = error_of(result)
    assert (result.status, error["code"]) == (1, "internal-error")
    assert "secret" not in result.err
    assert error["details"]["incident"] in caplog.text


def test_an_interrupt_is_130(run, failing):
    failing(KeyboardInterrupt())

    assert (run("list").status, run("list").out) == (130, "")


@pytest.mark.process
def test_a_closed_pipe_is_141_and_quiet(run, environment, home):
    run("create", "plan", "x" * 1000)
    reading, writing = os.pipe()
    os.close(reading)
    result = subprocess.run(
        [sys.executable, "-m", "crdtmem.cli", "get", "plan"],
        cwd=home,
        env=environment,
        stdout=writing,
        stderr=subprocess.PIPE,
        check=False,
    )
    os.close(writing)

    assert (result.returncode, result.stderr) == (141, b"")


@pytest.mark.process
def test_a_stream_that_the_caller_closed_is_not_written_to(environment, home):
    command = f"exec {sys.executable} -m crdtmem.cli append persona a <&- >&- 2>&-"

    result = subprocess.run(
        ["sh", "-c", command], cwd=home, env=environment, check=False
    )

    assert result.returncode == 0


@pytest.mark.process
@pytest.mark.parametrize(
    ("variables", "is_colored"),
    [
        ({}, True),
        ({"NO_COLOR": "1"}, False),
        ({"TERM": "dumb"}, False),
        ({"CRDTMEM_COLOR": "never", "FORCE_COLOR": "1"}, True),
    ],
)
def test_a_terminal_gets_colour_where_it_may(
    run, environment, home, variables, is_colored
):
    run("create", "plan", "x" * 19, "--size-limit", "20")
    shown = on_terminal(["list"], home, {**environment, **variables})

    assert (b"\x1b[31mplan" in shown) is is_colored


@pytest.mark.requirement("surfaces-7")
@pytest.mark.process
def test_text_is_escaped_on_a_terminal_and_verbatim_in_a_pipe(run, environment, home):
    run("create", "plan", "a\x1b[2J\u202eb")

    assert on_terminal(["get", "plan"], home, environment) == b"a\\x1b[2J\\u202eb\r\n"
    assert run("get", "plan").out == "a\x1b[2J\u202eb\n"


def on_terminal(words, home, environment):
    """Return what a terminal is sent, to its end."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "crdtmem.cli", *words],
        cwd=home,
        env=environment,
        stdout=theirs,
    )
    os.close(theirs)
    shown = b"".join(iter(lambda: read_or_end(ours), b""))
    os.close(ours)
    process.wait()
    return shown


def read_or_end(terminal):
    try:
        return os.read(terminal, 4096)
    except OSError:
        # How a terminal ends on Linux.
        return b""


def test_a_log_is_written_where_it_is_wanted(run, home, failing, monkeypatch):
    monkeypatch.setenv("CRDTMEM_LOG", str(home / "log"))
    run("config", "list")
    failing(RuntimeError("secret"))

    error = error_of(run("list", "--json"))

    log = (home / "log").read_text(encoding="utf-8")
    assert error["details"]["incident"] in log
    assert "RuntimeError: secret" in log


def test_verbose_logs_to_stderr(run, failing):
    run("config", "list", "-v")
    failing(RuntimeError("secret"))

    assert "RuntimeError: secret" in run("list").err


def test_a_log_that_cannot_be_written_stops_the_command(run, home, monkeypatch):
    monkeypatch.setenv("CRDTMEM_LOG", str(home / "absent" / "log"))

    result = run("list", "--json")

    assert (result.status, error_of(result)["code"]) == (2, "config-invalid")


def test_help_runs_nothing(run):
    assert run("--help").status == 0
    assert run("list", "--help").status == 0


def test_main_exits_with_the_status(run, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["crdtmem", "get", "nothing"])

    with pytest.raises(SystemExit) as caught:
        front.main()

    assert caught.value.code == 3
