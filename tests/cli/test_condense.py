"""crdtmem.cli.condense"""

import json
import os
import re
import signal
import subprocess
import sys
import threading
from types import SimpleNamespace

import click
import pytest

from crdtmem import opening
from crdtmem.cli import condense as condensing
from crdtmem.cli.tree import read
from crdtmem.condense.ticking import TickReport
from crdtmem.condense.values import (
    CondenseArchive,
    CondensePass,
    CondenseResult,
    DueSlot,
    PassInfo,
)
from tests.child import PATIENCE_S
from tests.cli.contract import validated
from tests.condense.plans import framed
from tests.condense.summarisers import FRAMED, Leash, fill, python

OUR_REPLY = ["--", *python(FRAMED)]
FAILING = ["--", *python("import sys; sys.exit('no model')")]
# Tells its parent to end, and does not end itself.
ENDING = "import os, threading; os.kill(os.getppid(), 15); threading.Event().wait()"


@pytest.fixture
def memory(home):
    """A memory in this home."""
    with opening.open() as memory:
        yield memory


@pytest.fixture
def plan(memory):
    """A slot that is due, in this home."""
    return fill(memory)


def error_of(result):
    assert result.out == ""
    return json.loads(result.err)["error"]


def states(memory):
    """Return state and reason of each pass, newest first."""
    return [(info.state, info.reason) for info in memory.condense_passes()]


@pytest.mark.process
def test_a_command_condenses_a_slot(run, plan):
    before = plan.read()

    result = run("condense", "plan", *OUR_REPLY)

    after = plan.read()
    assert result.status == 0
    assert re.fullmatch(
        r"plan: condensed, 1,\d\d\d → \d\d\d bytes; \d+ out, \d+ kept\n", result.out
    )
    assert result.err.startswith(f"plan: rev {after.rev}, {after.size} of 2,000")
    assert "All of it, in short" in after.content
    undo = re.search(r"'crdtmem (undo plan \S+)' takes it back", result.err)
    assert undo is not None
    assert run(*undo[1].split()).status == 0
    assert plan.read().content == before.content


@pytest.mark.process
def test_a_result_is_json_or_nothing_where_that_is_wanted(run, plan):
    kept = run("condense", "plan", "--keep", "2", "--json", *OUR_REPLY)
    undone = run("undo", "plan", "-q")
    quiet = run("condense", "plan", "-q", *OUR_REPLY)

    result = validated(CondenseResult, kept.out)
    assert (kept.status, result["condensed"], result["kept"]) == (0, True, 2)
    assert undone.status == 0
    assert (quiet.status, quiet.out, quiet.err) == (0, "", "")


@pytest.mark.process
def test_a_summary_may_pin_facts_and_leave_a_full_slot(run, memory):
    fill(memory, "plan")
    memory.slot("plan").set_meta(size_limit=1_000)
    facts = FRAMED.replace("(none)", "- a fact that is never to be lost")

    result = run("condense", "plan", "--", *python(facts.replace("All", "All" * 200)))

    assert result.status == 0
    assert result.out.endswith("kept, 1 pinned\n")
    assert "characters free" in result.err


@pytest.mark.process
def test_what_others_write_meanwhile_is_told(run, plan):
    line = "import os, subprocess, sys\n"
    line += "subprocess.run([sys.executable, '-m', 'crdtmem.cli', 'append', 'plan',"
    line += " '## Later\\nmeanwhile', '-q'], check=True)\n" + FRAMED

    result = run("condense", "plan", "--", *python(line))

    assert ", 19 bytes by others meanwhile; " in result.out
    assert plan.read().content.endswith("## Later\nmeanwhile")


@pytest.mark.process
def test_a_command_that_fails_ends_the_pass(run, plan, memory):
    before = plan.read()

    failed = run("condense", "plan", "-q", *FAILING)
    waiting = run("condense", "plan", *OUR_REPLY)
    forced = run("condense", "plan", "--force", *OUR_REPLY)

    assert failed.status == waiting.status == 4
    assert failed.out.startswith(
        "plan: summarize-failed: exit status 1: no model; try again at 20"
    )
    assert waiting.out.startswith("plan: backoff: summarize-failed; try again at 20")
    assert waiting.err == "--force does it all the same\n"
    assert (forced.status, plan.read().rev) == (0, before.rev + 1)


@pytest.mark.process
def test_a_changed_section_is_named(run, plan):
    line = "import os, subprocess, sys\n"
    line += "subprocess.run([sys.executable, '-m', 'crdtmem.cli', 'edit', 'plan',"
    line += " '--old', 'item 2,', '--new', 'thing 2,', '-q'], check=True)\n" + FRAMED

    result = run("condense", "plan", "--", *python(line))

    assert result.status == 4
    assert result.out.startswith("plan: source-changed in ## Section 2: ")


def test_nothing_to_do_is_no_failure(run, memory):
    memory.create("small", "text")

    early = run("condense", "small", "--dry-run")
    forced = run("condense", "small", "--force", *OUR_REPLY)

    assert (early.status, early.out) == (0, "small: not-due\n")
    assert early.err == "--force does it all the same\n"
    assert (forced.status, forced.out, forced.err) == (
        0,
        "small: nothing-to-evict\n",
        "",
    )


def test_a_dry_run_needs_no_command_and_writes_nothing(run, plan, memory):
    before = plan.read()

    shown = run("condense", "plan", "--dry-run", "--keep", "2")
    as_json = run("condense", "plan", "--dry-run", "--json", *OUR_REPLY)

    assert shown.status == as_json.status == 0
    assert re.fullmatch(
        r"plan: dry-run: the prompt has \d+ bytes, .*; \d+ out, 2 kept\n", shown.out
    )
    assert validated(CondenseResult, as_json.out)["dryRun"] is True
    assert (plan.read(), states(memory)) == (before, [])


def test_a_pass_may_have_two_steps(run, plan, memory, tmp_path):
    begun = run("condense", "plan", "--begin")
    pass_id = memory.condense_passes()[0].id
    busy = run("condense", "plan", "--begin", "--json")
    (tmp_path / "reply").write_text(framed(pass_id), encoding="utf-8")

    done = run("condense", "--commit", pass_id, "--file", "reply")
    again = run(
        "condense", "--commit", pass_id, "--file", "-", stdin=framed(pass_id).encode()
    )

    assert (begun.status, pass_id in begun.out) == (0, True)
    assert begun.out.startswith("You condense the memory of an agent.")
    assert f"'crdtmem condense --commit {pass_id} --file -' takes" in begun.err
    assert (busy.status, error_of(busy)["code"]) == (4, "condense-busy")
    assert (done.status, again.status) == (0, 0)
    assert again.out == done.out
    assert done.out.startswith("plan: condensed, ")
    assert "要約" in plan.read().content


def test_a_pass_can_be_had_as_json(run, plan):
    begun = run("condense", "plan", "--begin", "--keep", "1", "--json")

    shown = validated(CondensePass, begun.out)
    assert (begun.status, begun.err, len(shown["kept"])) == (0, "", 1)


def test_a_bad_reply_ends_the_pass(run, plan):
    begun = json.loads(run("condense", "plan", "--begin", "--json").out)
    words = ("condense", "--commit", begun["id"], "--json")

    missing = run(*words)
    bad = run(*words, "--file", "-", stdin=b"no frame\n")
    late = run(*words, "--file", "-", stdin=framed(begun["id"]).encode())

    assert missing.status == 2
    assert error_of(missing)["hint"] == (
        f"run 'crdtmem condense --commit {begun['id']} --file -' to read stdin"
    )
    assert bad.status == late.status == 4
    assert validated(CondenseResult, bad.out)["reason"] == "reply-unframed"
    assert validated(CondenseResult, late.out)["reason"] == "pass-closed"


def test_a_pass_can_be_ended(run, plan, memory):
    begun = plan.begin_condense()

    ended = run("condense", "--abort", begun.id)
    again = run("condense", "--abort", begun.id, "--json")
    done = plan.begin_condense()
    plan.commit_condense(done.id, "In short.")
    late = run("condense", "--abort", done.id)

    assert (ended.status, ended.out) == (0, "plan: cancelled\n")
    assert (again.status, json.loads(again.out)["reason"]) == (0, "cancelled")
    assert (late.status, late.out.startswith("plan: condensed")) == (0, True)
    assert states(memory) == [("committed", "condensed"), ("aborted", "cancelled")]


@pytest.mark.parametrize("option", ["--commit", "--abort", "show"])
def test_a_pass_that_is_not_known_is_told(run, plan, tmp_path, option):
    (tmp_path / "reply").write_text("x", encoding="utf-8")
    source = ["--file", "reply"] if option == "--commit" else []

    result = run("condense", option, "cp_nobody", *source, "--json")

    assert result.status == 3
    assert error_of(result)["code"] == "condense-pass-unknown"


def test_a_pass_of_another_project_is_not_known(run, plan):
    begun = plan.begin_condense()

    assert run("condense", "--abort", begun.id, "--project", "other").status == 3


@pytest.mark.process
def test_all_that_is_due_is_condensed(run, memory, plan):
    fill(memory, "other")
    memory.create("small", "text")
    words = ("condense", "--all", "--keep", "2")

    done = run(*words, *OUR_REPLY)
    again = run(*words, *OUR_REPLY)

    assert (done.status, again.status) == (0, 0)
    assert [line.partition(",")[0] for line in done.out.splitlines()] == [
        "other: condensed",
        "plan: condensed",
    ]
    assert (again.out, again.err) == ("", "nothing was to be done\n")


@pytest.mark.process
@pytest.mark.requirement("condense-28")
def test_one_slot_that_fails_is_told_and_the_others_go_on(run, memory, plan):
    fill(memory, "other")
    line = "import os, sys\nif os.environ['CRDTMEM_SLOT'] == 'other': sys.exit(3)\n"
    command = ["--", *python(line + FRAMED)]

    result = run("condense", "--all", *command)
    with memory.store.writing() as transaction:
        transaction.connection.execute(
            "UPDATE slot SET quarantined = 'broken' WHERE label = 'other'"
        )
    as_json = run("condense", "--all", "--json", *command)
    quiet = run("condense", "--all", "-q", *command)

    assert result.status == as_json.status == quiet.status == 10
    assert result.out.startswith("plan: condensed, ")
    assert result.err == "other: summarize-failed: exit status 3\n"
    report = validated(TickReport, as_json.out)
    assert [p["reason"] for p in report["problems"]] == ["slot-quarantined"]
    assert (quiet.out, quiet.err) == ("", "other: slot-quarantined\n")


def test_looking_now_and_then_ends_when_told_to(run, memory, plan, monkeypatch):
    waits = []

    class Turns(threading.Event):
        """Tells this process to end at the second wait."""

        def wait(self, timeout=None):
            waits.append(timeout)
            if len(waits) == 2:
                os.kill(os.getpid(), signal.SIGTERM)
            return False

    monkeypatch.setattr(condensing, "threading", SimpleNamespace(Event=Turns))

    result = run("condense", "--all", "--every", "60", *OUR_REPLY)

    assert (result.status, waits) == (0, [60.0, 60.0])
    assert result.out.startswith("plan: condensed, ")
    assert result.err == "looking each 60 s; Ctrl-C stops it\n"
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL


@pytest.mark.process
def test_a_running_pass_is_aborted_when_told_to_end(run, plan, memory):
    with pytest.raises(SystemExit) as caught:
        run("condense", "plan", "--", *python(ENDING))

    assert caught.value.code == 143
    assert states(memory) == [("aborted", "cancelled")]


@pytest.mark.process
@pytest.mark.parametrize(
    ("number", "status", "words"),
    [
        (signal.SIGTERM, 143, ["plan"]),
        (signal.SIGINT, 130, ["plan"]),
        (signal.SIGTERM, 143, ["--all"]),
    ],
)
def test_a_process_that_is_ended_leaves_no_command(
    plan, memory, environment, tmp_path, number, status, words
):
    leash = Leash(tmp_path / "leash")
    command = leash.command("tell('here'); wait_for_ever()")
    with subprocess.Popen(
        [sys.executable, "-m", "crdtmem.cli", "condense", *words, "--", *command],
        env={**environment, "LEASH": str(tmp_path / "leash")},
        cwd=tmp_path,
    ) as process:
        leash.wait_for("here")
        process.send_signal(number)

        assert process.wait(PATIENCE_S) == status
    assert leash.is_let_go()
    leash.close()
    assert states(memory) == [("aborted", "cancelled")]


@pytest.mark.process
def test_a_process_that_waits_for_its_turn_ends_at_once(plan, environment, tmp_path):
    words = ["condense", "--all", "--every", "60", "--", "true"]
    with subprocess.Popen(
        [sys.executable, "-m", "crdtmem.cli", *words],
        env=environment,
        cwd=tmp_path,
        stderr=subprocess.PIPE,
        encoding="utf-8",
    ) as process:
        assert process.stderr is not None
        assert process.stderr.readline() == "looking each 60 s; Ctrl-C stops it\n"
        process.terminate()

        assert process.wait(PATIENCE_S) == 0
        assert process.stderr.read() == ""


def test_what_is_due_is_shown(run, memory, plan):
    memory.create("small", "text", scope="global")
    other = fill(memory, "other")
    other.begin_condense()

    shown = run("condense", "due")
    as_json = run("condense", "due", "--json")
    one = run("condense", "due", "--label", "plan")
    none = run("condense", "due", "--label", "nobody")

    lines = [re.sub(" +", " ", line) for line in shown.out.splitlines()]
    assert [line.split(" try")[0] for line in lines] == [
        "other project 80 % - condense-busy",
        "plan project 80 % due full",
        "small global 0 % - not-due",
    ]
    assert " try again at 20" in lines[0]
    found = json.loads(as_json.out)["due"]
    for slot in found:
        validated(DueSlot, json.dumps(slot))
    assert [slot["label"] for slot in found] == ["other", "plan", "small"]
    assert one.out.startswith("plan ")
    assert (none.status, none.out) == (0, "")


def test_the_passes_there_were_are_shown(run, memory, plan):
    first = plan.begin_condense()
    plan.abort_condense(first.id)
    second = plan.begin_condense()
    fill(memory, "other").begin_condense()

    shown = run("condense", "passes", "--label", "plan")
    newest = run("condense", "passes", "--limit", "1")
    as_json = run("condense", "passes", "--json")
    none = run("condense", "passes", "--label", "nobody")

    lines = [line.split() for line in shown.out.splitlines()]
    assert [(line[0], line[3]) for line in lines] == [
        (second.id, "open"),
        (first.id, "aborted"),
    ]
    assert lines[1][4:] == ["cancelled", "by", "tester"]
    assert newest.out.split()[1] == "other"
    for info in json.loads(as_json.out)["passes"]:
        validated(PassInfo, json.dumps(info))
    assert (none.status, none.out) == (0, "")


def test_what_a_pass_took_out_can_be_had(run, plan):
    begun = plan.begin_condense()

    shown = run("condense", "show", begun.id)
    as_json = run("condense", "show", begun.id, "--json")

    assert shown.out == "".join(section.text for section in begun.evicted)
    assert shown.err == f"{len(begun.evicted)} parts, SHA-256 {begun.archive}\n"
    assert validated(CondenseArchive, as_json.out)["passId"] == begun.id


def test_the_log_tells_what_became_of_all(run, memory, plan):
    begun = plan.begin_condense()
    plan.abort_condense(begun.id)
    fill(memory, "other").begin_condense()
    text = plan.read().content
    memory.create("g", text, scope="global", size_limit=2_000)
    done = memory.slot("g").begin_condense()
    memory.slot("g").commit_condense(done.id, "In short.")
    memory.create("small", "text")
    run("condense", "small", "--begin")

    shown = run("condense", "log")
    as_json = run("condense", "log", "--json")
    one = run("condense", "log", "--label", "plan")
    newest = run("condense", "log", "--limit", "1", "--scope", "global")

    kinds = [line.split()[1:4] for line in shown.out.splitlines()]
    assert kinds == [
        ["condense-abort", "plan", "cancelled"],
        ["condense", "g", "condensed"],
        ["condense-skip", "small", "not-due"],
    ]
    assert f"  passId {begun.id}" in shown.out
    entries = [json.loads(line) for line in as_json.out.splitlines()]
    assert [entry["scope"] for entry in entries] == ["project", "global", "project"]
    assert {"at", "kind", "label", "scope", "passId", "lane", "reason"} <= set(
        entries[0]
    )
    assert (one.out, newest.out) == (
        shown.out.splitlines(keepends=True)[0],
        shown.out.splitlines(keepends=True)[1],
    )


def test_a_slot_may_have_the_name_of_a_look(run, memory):
    fill(memory, "due")

    shown = run("condense", "--label", "due", "--dry-run")
    begun = run("condense", "--label", "due", "--begin", "--json")

    assert shown.out.startswith("due: dry-run: ")
    assert json.loads(begun.out)["label"] == "due"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "a slot is needed: 'condense LABEL -- CMD', or '--all'"),
        (["--begin"], "a slot is needed: 'condense LABEL --begin'"),
        (["plan"], "a command that summarises is needed, behind '--'"),
        (["plan", "cat"], "a command that summarises is needed, behind '--'"),
        (["plan", "cat", "x"], "the command belongs behind '--'"),
        (["--all"], "a command that summarises is needed, behind '--'"),
        (["show"], "a pass is needed: 'condense show PASS_ID'"),
        (["plan", "--begin", "--all"], "--begin and --all exclude each other"),
        (["--commit", "a", "--abort", "b"], "--commit and --abort exclude each other"),
        (["plan", "--label", "plan", "--begin"], "the slot was named twice"),
        (["plan", "--all", "--", "true"], "'condense --all' takes no LABEL"),
        (["plan", "--begin", "--", "true"], "'condense --begin' takes no command"),
        (["due", "x"], "'condense due' takes no PASS_ID"),
        (["due", "--dry-run"], "'condense due' takes no --dry-run"),
        (["plan", "--every", "60"], "'condense LABEL' takes no --every"),
        (["log", "--progress", "plain"], "'condense log' takes no --progress"),
    ],
)
def test_what_does_not_belong_together_is_refused(run, plan, words, message):
    result = run("--json", "condense", *words)

    assert result.status == 2
    assert (error_of(result)["code"], error_of(result)["message"]) == ("usage", message)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--all", "--every", "59", "--", "true"], "every must be between 60 and"),
        (["plan", "--timeout", "0", "--", "true"], "timeout must be between 1 and"),
        (["plan", "--keep", "0", "--dry-run"], "keep_sections must be"),
        (["log", "--limit", "0"], "limit must be"),
        (["plan", "--", "no-such-program"], "there is no command 'no-such-program'"),
    ],
)
def test_a_bad_value_is_refused_before_anything(run, plan, memory, words, message):
    result = run("condense", *words)

    assert (result.status, result.out) == (2, "")
    assert message in result.err
    assert states(memory) == []


def test_the_help_shows_where_the_command_goes(capsys):
    assert read(["condense", "--help"]) == 0

    assert "condense [OPTIONS] [LABEL] [PASS_ID] [-- CMD ARG...]" in (
        capsys.readouterr().out
    )


def test_options_behind_the_mark_are_the_commands_own():
    found = read(["condense", "plan", "--force", "--", "cat", "--json", "--", "-x"])

    assert not isinstance(found, int)
    assert found.values["command"] == ("cat", "--json", "--", "-x")
    assert (found.shared["as_json"], found.values["force"]) == (None, True)
    with pytest.raises(click.NoSuchOption):
        read(["condense", "plan", "--no-such", "--", "cat"])


def test_the_knobs_are_settings(run, plan):
    assert run("config", "set", "condense.keep_sections", "2").status == 0

    with_setting = run("condense", "plan", "--dry-run", "--json")
    with_option = run("condense", "plan", "--dry-run", "--json", "--keep", "1")

    assert json.loads(with_setting.out)["kept"] == 2
    assert json.loads(with_option.out)["kept"] == 1


def test_a_full_slot_names_a_command_that_shortens_it(run, plan, memory):
    full = run("append", "plan", "x" * 1_000, "--json")
    small = run("create", "small", "x" * 2_001, "--json")

    hint = error_of(full)["hint"]
    assert hint.startswith("shorten it with 'crdtmem condense plan --begin', or run")
    assert run("condense", "plan", "--begin").status == 0
    assert "'crdtmem edit small'" in error_of(small)["hint"]


def test_progress_can_be_told_in_plain(run, plan):
    result = run("condense", "plan", "--dry-run", "--progress", "plain")

    assert result.status == 0
