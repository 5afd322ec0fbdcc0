"""crdtmem.condense.command: real programs, and nothing of them is left."""

import os
import subprocess
import sys
import threading

import pytest

from crdtmem import opening
from crdtmem.condense.command import (
    CommandSummariser,
    SummariserFailedError,
    command_summariser,
)
from crdtmem.condense.values import CondensePass, RateLimitedError
from crdtmem.errors import InvalidArgumentError
from crdtmem.limits import STDERR_SHOWN_CHARS
from tests.condense.summarisers import Leash, python

pytestmark = pytest.mark.process

BEGUN = CondensePass(
    id="cp_aaaa",
    label="plan",
    scope="project",
    base_rev=1,
    base_hash="",
    prompt="é 日本 🗻\n" * 20_000,
    target=400,
    expires_at="2026-01-01T00:00:00.000Z",
    archive="",
    pinned=(),
    condensed="",
    evicted=(),
    kept=(),
)

# Starts a program that does not end by itself, and that does not want to either.
STUBBORN = """
signal.signal(signal.SIGTERM, signal.SIG_IGN)
tell("ready")
wait_for_ever()
"""
PASS_GATE = "open(sys.argv[1]).read()\n"
CHILD = """
started = subprocess.Popen(
    [sys.executable, "-c", "import os, threading\\n"
     "os.write(os.open(os.environ['LEASH'], os.O_WRONLY), b'child\\\\n')\\n"
     "threading.Event().wait()"],
    start_new_session=IS_ALONE,
    pass_fds=[leash],
)
"""


@pytest.fixture
def leash(tmp_path):
    leash = Leash(tmp_path / "leash")
    yield leash
    leash.close()


@pytest.fixture
def gate(tmp_path):
    """A pipe that a program waits at, until something is written to it."""
    os.mkfifo(tmp_path / "gate")
    return tmp_path / "gate"


def made(program, **options):
    """Return a summariser that runs a Python program."""
    return command_summariser(python(program), **{"env": os.environ, **options})


def failure(program, **options):
    """Return reason and detail of a program that fails."""
    with pytest.raises(SummariserFailedError) as caught:
        made(program, **options)(BEGUN)
    return caught.value.reason, caught.value.detail


def reply_in_thread(run):
    """Read the reply in a thread, as a pass does; return it and what it came to."""
    found = []

    def read():
        try:
            found.append(run.reply())
        except SummariserFailedError as exc:
            found.append(exc)

    thread = threading.Thread(target=read)
    thread.start()
    return thread, found


def test_the_prompt_goes_in_and_the_reply_comes_out():
    echo = made("import sys; sys.stdout.buffer.write(sys.stdin.buffer.read())")

    assert echo(BEGUN) == BEGUN.prompt
    assert echo(BEGUN.replaced(prompt="")) == ""


def test_the_command_knows_its_pass_and_sees_only_its_environment():
    program = (
        "import os; print({k: v for k, v in os.environ.items() if k != 'LC_CTYPE'})"
    )
    env = {"PATH": os.environ["PATH"], "A": "b", "CRDTMEM_SLOT": "not this one"}

    assert (
        made(program, env=env)(BEGUN)
        == str(
            {
                "PATH": os.environ["PATH"],
                "A": "b",
                "CRDTMEM_SLOT": "plan",
                "CRDTMEM_PASS_ID": "cp_aaaa",
            }
        )
        + "\n"
    )


def test_the_environment_is_that_of_this_process_unless_another_is_given(monkeypatch):
    monkeypatch.setenv("MARK", "here")
    line = python("import os; print(os.environ.get('MARK'))")

    assert opening.command_summariser(line)(BEGUN) == "here\n"
    assert opening.command_summariser(line, env={})(BEGUN) == "None\n"


def test_the_command_runs_in_its_folder(tmp_path):
    program = "import os; print(os.getcwd())"

    assert made(program, cwd=tmp_path)(BEGUN) == f"{os.path.realpath(tmp_path)}\n"


def test_no_shell_reads_the_words():
    words = ["a b", "$HOME", "; echo x", "*"]
    line = python("import sys; print(sys.argv[1:])", *words)

    assert command_summariser(line, env=os.environ)(BEGUN) == f"{words}\n"


def test_a_command_need_not_read_its_prompt():
    assert made("print('at once')")(BEGUN) == "at once\n"


def test_a_command_that_fails_tells_the_end_of_its_stderr():
    long = "import sys; sys.stderr.write('x' * 3_000 + 'end'); sys.exit(3)"

    reason, detail = failure(long)

    assert reason == "summarize-failed"
    assert detail == f"exit status 3: {'x' * (STDERR_SHOWN_CHARS - 3)}end"
    assert failure("raise SystemExit(1)") == ("summarize-failed", "exit status 1")
    killed = "import os; os.kill(os.getpid(), 9)"
    assert failure(killed) == ("summarize-failed", "signal 9")


def test_only_the_end_of_stderr_is_kept():
    reason, detail = failure(
        "import sys; sys.stderr.write('Retry-After: 9\\n' + 'é' * 200_000)\nsys.exit(2)"
    )

    assert (reason, detail) == ("summarize-failed", f"exit status 2: {'é' * 2_000}")


@pytest.mark.parametrize(
    ("heard", "retry_after"),
    [
        ("", None),
        ("Retry-After: 7\\n", 7.0),
        ("error 429\\nretry-after:1.5\\nRETRY-AFTER:  90 \\nbye", 90.0),
        ("Retry-After: soon\\nx Retry-After: 5", None),
    ],
)
def test_status_75_is_out_of_quota(heard, retry_after):
    program = f"import sys; sys.stderr.write('{heard}'); sys.exit(75)"

    with pytest.raises(RateLimitedError) as caught:
        made(program)(BEGUN)

    assert caught.value.retry_after == retry_after


def test_a_command_that_writes_without_end_is_killed():
    endless = "while True: print('x' * 1_000)"

    assert failure(endless) == ("reply-unframed", "it wrote more than 1048576 bytes")
    assert failure("print('123')", max_output=3) == (
        "reply-unframed",
        "it wrote more than 3 bytes",
    )
    assert made("print('12')", max_output=3)(BEGUN) == "12\n"


def test_output_that_is_not_utf_8_is_refused():
    assert failure("import os; os.write(1, b'ab\\xffc')") == (
        "invalid-text",
        "its output is not UTF-8, at byte 2",
    )


def test_a_command_that_cannot_be_started_says_so(tmp_path):
    program = tmp_path / "program"
    program.write_bytes(b"\x7fELF, but no more of it")
    program.chmod(0o700)

    with pytest.raises(SummariserFailedError) as caught:
        command_summariser([str(program)], env={})(BEGUN)

    assert caught.value.reason == "summarize-failed"
    assert caught.value.detail.startswith("program cannot be run: ")


@pytest.mark.parametrize("argv", [[], "ls", b"ls", [1], ["a\0b"], None, {"a": 1}])
def test_a_command_is_a_list_of_words(argv):
    with pytest.raises(InvalidArgumentError, match="argv must be a command") as caught:
        command_summariser(argv, env=os.environ)

    assert caught.value.argument == "argv"


def test_a_command_that_is_not_there_is_refused_at_once(tmp_path):
    (tmp_path / "text").write_text("not for running", encoding="utf-8")
    (tmp_path / "text").chmod(0o600)

    for name in ("no-such-program", "./text", str(tmp_path / "nothing")):
        with pytest.raises(InvalidArgumentError) as caught:
            command_summariser([name], env=os.environ, cwd=tmp_path)

        assert caught.value.message == f"there is no command {name!r}"
        assert caught.value.details["command"] == name


def test_a_system_where_nothing_could_be_ended_runs_no_command(monkeypatch):
    monkeypatch.delattr(os, "killpg")

    with pytest.raises(InvalidArgumentError, match="no process groups"):
        made("")


def test_a_program_is_looked_for_where_it_will_run(tmp_path):
    tool = tmp_path / "tool"
    tool.write_text(f"#!{sys.executable}\nprint('found')\n", encoding="utf-8")
    tool.chmod(0o700)

    here = command_summariser(["./tool"], env={}, cwd=tmp_path)
    on_path = command_summariser(["tool"], env={"PATH": str(tmp_path)})

    assert here(BEGUN) == on_path(BEGUN) == "found\n"
    assert (here.name, repr(on_path)) == ("tool", "CommandSummariser('tool')")


@pytest.mark.parametrize("max_output", [0, True, "9", 1.5])
def test_the_longest_reply_is_a_whole_number(max_output):
    with pytest.raises(InvalidArgumentError, match="max_output"):
        made("", max_output=max_output)


def test_a_command_that_is_stopped_goes_with_all_it_started(leash):
    program = CHILD.replace("IS_ALONE", "False") + "tell('ready'); wait_for_ever()"
    run = command_summariser(leash.command(program), env=leash.environment).start(BEGUN)
    thread, found = reply_in_thread(run)
    leash.wait_for("ready")
    leash.wait_for("child")

    run.stop()

    assert leash.is_let_go()
    thread.join()
    assert str(found[0]) == "summarize-failed: signal 15"
    run.stop()


def test_a_command_that_does_not_want_to_end_is_killed(leash):
    line = tuple(leash.command(STUBBORN))
    stubborn = CommandSummariser(line, leash.environment, None, grace_s=0.01)
    run = stubborn.start(BEGUN)
    thread, found = reply_in_thread(run)
    leash.wait_for("ready")

    run.stop()

    assert leash.is_let_go()
    thread.join()
    assert str(found[0]) == "summarize-failed: signal 9"


def test_a_run_that_nobody_reads_is_stopped_at_the_end(leash):
    line = leash.command("tell('ready'); wait_for_ever()")
    run = command_summariser(line, env=leash.environment).start(BEGUN)
    leash.wait_for("ready")

    run._owner += 1
    run._stop_at_exit()
    assert run._process.poll() is None
    run._owner -= 1
    run._stop_at_exit()

    assert leash.is_let_go()
    process = run._process
    for pipe in filter(None, (process.stdin, process.stdout, process.stderr)):
        pipe.close()


def test_what_a_command_leaves_behind_is_killed(leash, gate):
    program = CHILD.replace("IS_ALONE", "False") + PASS_GATE + "print('done')"
    line = [*leash.command(program), str(gate)]
    run = command_summariser(line, env=leash.environment).start(BEGUN)
    thread, found = reply_in_thread(run)
    leash.wait_for("child")

    gate.write_text("go on", encoding="utf-8")

    thread.join()
    assert (found, leash.is_let_go()) == (["done\n"], True)


def test_what_has_left_the_group_is_not_waited_for(leash):
    """It holds our pipes, and is none of our business."""
    program = (
        CHILD.replace("IS_ALONE", "True") + "tell(f'{started.pid}'); print('done')"
    )
    command = command_summariser(leash.command(program), env=leash.environment)

    reply = command(BEGUN)

    leash.wait_for("child")
    told = leash.heard().split()
    os.kill(int(next(word for word in told if word.isdigit())), 9)
    assert (reply, leash.is_let_go()) == ("done\n", True)


def test_a_command_may_close_its_pipes_and_go_on(leash, gate):
    program = "for n in 0, 1, 2: os.close(n)\ntell('closed')\n" + PASS_GATE
    line = [*leash.command(program), str(gate)]
    run = command_summariser(line, env=leash.environment).start(BEGUN)
    thread, found = reply_in_thread(run)
    leash.wait_for("closed")

    gate.write_text("go on", encoding="utf-8")

    thread.join()
    assert (found, leash.is_let_go()) == ([""], True)


ENDING = """
import os, sys, threading
from crdtmem.condense.command import command_summariser
from tests.condense.test_command import BEGUN

command = command_summariser(sys.argv[1:], env=os.environ)
run = command.start(BEGUN)
threading.Thread(target=run.reply, daemon=True).start()
sys.stdin.readline()
fork = os.fork()
if fork:
    print(os.waitstatus_to_exitcode(os.waitpid(fork, 0)[1]), run._process.poll())
"""


def test_a_command_ends_with_the_process_that_runs_it_and_not_with_its_forks(leash):
    line = leash.command("tell('ready'); wait_for_ever()")
    with subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", ENDING, *line],
        env={**leash.environment, "PYTHONPATH": os.pathsep.join(sys.path)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        encoding="utf-8",
    ) as process:
        leash.wait_for("ready")
        out, _ = process.communicate("\n")

    assert (process.returncode, out, leash.is_let_go()) == (0, "0 None\n", True)
