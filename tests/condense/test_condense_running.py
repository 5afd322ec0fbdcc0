"""crdtmem.condense.running: a whole pass, whoever summarises."""

import logging
import os
import signal
import threading
from functools import partial

import pytest

from crdtmem import CondenseConfig, CondenseReply, RateLimitedError
from crdtmem.condense.command import CommandSummariser
from crdtmem.condense.running import PassRun, summariser_name
from crdtmem.condense.values import Section
from crdtmem.errors import CrdtmemError, InvalidArgumentError
from tests.condense.plans import events, pins
from tests.condense.summarisers import (
    FRAMED,
    Leash,
    fill,
    join_summarisers,
    python,
    reply,
)


@pytest.fixture
def plan(memory):
    """A slot that is due."""
    return fill(memory)


def passes(memory):
    """Return state and reason of each pass, newest first."""
    return [(info.state, info.reason) for info in memory.condense_passes()]


def test_a_framed_reply_is_committed(memory, plan):
    before = plan.read()

    result = plan.condense(reply)

    assert (result.condensed, result.reason) == (True, "condensed")
    assert "All of it, in short." in plan.read().content
    assert (result.base_rev, result.rev) == (before.rev, plan.read().rev)
    assert passes(memory) == [("committed", "condensed")]
    assert memory.condense_passes()[0].summariser == "reply"
    assert pins(memory) == (0, 0)
    assert plan.undo(result.history_id).content == before.content


def test_a_reply_may_be_a_value(plan):
    def summarise(begun):
        assert begun.label == "plan"
        return CondenseReply(pass_id=begun.id, summary="Short.", hoisted=("a fact",))

    result = plan.condense(summarise)

    assert (result.condensed, result.hoisted) == (True, 1)
    assert "- a fact" in plan.read().content


def test_others_write_while_the_summariser_thinks(plan, open_lane):
    theirs = open_lane("b").slot("plan")

    def summarise(begun):
        theirs.append("## Later\nby another lane")
        return reply(begun)

    result = plan.condense(summarise)

    assert result.condensed
    assert result.carried_bytes == len("## Later\nby another lane\n")
    assert plan.read().content.endswith("## Later\nby another lane")


def test_the_summariser_has_a_thread_that_keeps_nothing_alive(plan):
    seen = []

    def summarise(begun):
        seen.append(threading.current_thread())
        return reply(begun)

    assert plan.condense(summarise).condensed
    (thread,) = seen
    assert thread is not threading.main_thread()
    assert (thread.daemon, thread.name) == (True, "crdtmem-condense-plan")


def raising(error):
    def summarise(_):
        raise error

    return summarise


@pytest.mark.requirement("condense-13")
@pytest.mark.parametrize(
    ("summarise", "reason", "detail"),
    [
        (raising(ValueError("no model")), "summarize-failed", "ValueError: no model"),
        (raising(SystemExit(1)), "summarize-failed", "SystemExit: 1"),
        (raising(OSError("x" * 3_000)), "summarize-failed", f"OSError: {'x' * 1_991}"),
        (lambda _: None, "summarize-failed", "the summariser returned NoneType"),
        (lambda _: "no frame", "reply-unframed", ""),
        (
            lambda _: CondenseReply(pass_id="cp_x", summary="s"),
            "reply-wrong-pass",
            "",
        ),
        (
            lambda begun: CondenseReply(pass_id=begun.id, summary="\ud800"),
            "invalid-text",
            "summary",
        ),
    ],
)
def test_a_summariser_may_fail_in_any_way(memory, plan, summarise, reason, detail):
    before = plan.read()

    def disturbed(begun):
        plan.append("meanwhile")
        return summarise(begun)

    result = plan.condense(disturbed)

    assert (result.condensed, result.reason) == (False, reason)
    assert str(result.detail).startswith(detail) or not detail
    assert plan.read().content == f"{before.content}\nmeanwhile"
    assert passes(memory) == [("aborted", reason)]
    assert pins(memory) == (0, 0)
    assert plan.condense(disturbed).reason == "backoff"


@pytest.mark.requirement("condense-13")
def test_a_summariser_out_of_quota_says_when_to_come_back(memory, plan):
    result = plan.condense(raising(RateLimitedError(120)))

    assert result.reason == "rate-limited"
    assert result.retry_at.startswith("2026-01-01T00:02:00")
    assert passes(memory) == [("aborted", "rate-limited")]


@pytest.mark.requirement("condense-13")
def test_a_reply_after_the_timeout_is_dropped(memory, plan, gate, hasty):
    late = []

    def summarise(begun):
        gate.wait()
        late.append(begun)
        return reply(begun)

    result = plan.condense(summarise)
    plan.append("meanwhile")
    before = plan.read()
    gate.set()
    join_summarisers()

    assert (result.reason, result.detail) == ("timeout", "no reply after 0.01 s")
    assert plan.read() == before
    assert passes(memory) == [("aborted", "timeout")]
    again = plan.commit_condense(late[0].id, "Short.")
    assert (again.condensed, again.reason) == (False, "pass-closed")


@pytest.mark.requirement("condense-13")
@pytest.mark.process
@pytest.mark.parametrize(
    ("program", "reason"),
    [
        (FRAMED, "condensed"),
        ("import sys; print('why', file=sys.stderr); sys.exit(1)", "summarize-failed"),
        ("import sys; sys.exit(75)", "rate-limited"),
        ("print('x' * 2_097_152)", "reply-unframed"),
        ("import os; os.write(1, b'\\xff')", "invalid-text"),
    ],
)
def test_a_command_ends_a_pass_as_it_ends(memory, plan, program, reason):
    line = tuple(python(program))

    result = plan.condense(CommandSummariser(line, os.environ, None))

    assert result.reason == reason
    assert memory.condense_passes()[0].summariser.startswith("python")


class Heard(CommandSummariser):
    """A command that is at work before anybody waits for it."""

    leash: Leash

    def start(self, begun):
        run = super().start(begun)
        self.leash.wait_for("here")
        return run


@pytest.mark.requirement("condense-13")
@pytest.mark.process
def test_a_command_that_hangs_is_ended_at_the_timeout(plan, tmp_path, hasty):
    leash = Leash(tmp_path / "leash")
    line = tuple(leash.command("tell('here'); wait_for_ever()"))
    hanging = Heard(line, leash.environment, None)
    hanging.leash = leash

    result = plan.condense(hanging)

    assert (result.reason, leash.is_let_go()) == ("timeout", True)
    join_summarisers()
    leash.close()


@pytest.mark.process
def test_a_command_that_cannot_be_started_is_a_failure(plan):
    gone = CommandSummariser(("/no/such/program",), {}, None)

    result = plan.condense(gone)

    assert result.reason == "summarize-failed"
    assert result.detail == "program cannot be run: No such file or directory"


def test_an_interrupt_ends_the_pass(memory, plan, gate):
    def summarise(begun):
        os.kill(os.getpid(), signal.SIGINT)
        gate.wait()
        return reply(begun)

    with pytest.raises(KeyboardInterrupt):
        plan.condense(summarise)

    assert passes(memory) == [("aborted", "cancelled")]
    assert plan.append("goes on").changed


def test_a_pass_that_cannot_be_cancelled_ends_by_itself(memory, plan, gate, caplog):
    def summarise(begun):
        memory.close()
        os.kill(os.getpid(), signal.SIGINT)
        gate.wait()
        return reply(begun)

    with (
        caplog.at_level(logging.WARNING, "crdtmem"),
        pytest.raises(KeyboardInterrupt),
    ):
        plan.condense(summarise)

    assert "stays open until 2026-01-01T00:08:" in caplog.text
    assert caplog.text.endswith("store-closed\n")


async def asynchronous(_):
    """Never be asked."""


class Asynchronous:
    async def __call__(self, _):
        """Never be asked."""


@pytest.mark.parametrize("summarise", [asynchronous, Asynchronous()])
def test_an_asynchronous_summariser_is_refused_before_anything(memory, plan, summarise):
    with pytest.raises(InvalidArgumentError, match="awaitable") as caught:
        plan.condense(summarise)

    assert (caught.value.argument, passes(memory)) == ("summarise", [])
    assert "crdtmem.aio" in caught.value.hint


class Later:
    """An awaitable that is no coroutine."""

    def __await__(self):
        """Never be awaited."""


@pytest.mark.parametrize("found", [asynchronous, lambda _: Later()])
def test_an_awaitable_reply_is_refused_and_ends_the_pass(memory, plan, found):
    with pytest.raises(InvalidArgumentError, match="awaitable"):
        plan.condense(lambda begun: found(begun))

    assert passes(memory) == [("aborted", "cancelled")]


def test_a_skip_is_a_result_and_asks_nobody(memory, plan):
    memory.create("small", "text")
    small = memory.slot("small").condense(raising(AssertionError()))
    plan.begin_condense(expires_in=60)
    busy = plan.condense(raising(AssertionError()))

    assert (small.condensed, small.reason) == (False, "not-due")
    assert small.headroom.size == 4
    assert busy.reason == "condense-busy"
    assert busy.retry_at.startswith("2026-01-01T00:01:00")
    assert busy.detail.endswith("of lane a")
    assert "passId" not in busy.to_dict()


@pytest.mark.requirement("condense-31")
def test_a_slot_that_may_not_be_written_is_an_error(memory, plan):
    plan.set_meta(read_only=True)

    for dry_run in (False, True):
        with pytest.raises(CrdtmemError) as caught:
            plan.condense(reply, dry_run=dry_run)
        assert caught.value.code == "slot-read-only"
    assert passes(memory) == []


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"summarise": 5}, "summarise must be callable, not int"),
        ({"timeout": 0.5}, "timeout must be between 1 and 3600 s, not 0.5"),
        ({"timeout": 3_601}, "timeout must be between 1 and 3600 s, not 3601"),
        ({"timeout": True}, "timeout must be between"),
        ({"timeout": "9"}, "timeout must be between"),
        ({"force": 1}, "force must be"),
        ({"dry_run": "no"}, "dry_run must be"),
        ({"keep_sections": 0}, "keep_sections must be"),
        ({"keep_pct": 101}, "keep_pct must be"),
        ({"config": {}}, "config must be a CondenseConfig, not dict"),
    ],
)
def test_a_malformed_argument_is_refused(memory, plan, options, message):
    with pytest.raises(InvalidArgumentError, match=message):
        plan.condense(**{"summarise": reply, **options})

    assert passes(memory) == []


@pytest.mark.parametrize(
    ("read_bytes", "timeout", "expected"),
    [(0, None, 180.0), (10_000, None, 195.0), (10**6, None, 420.0), (10**6, 1, 1.0)],
)
def test_the_summariser_has_time_by_what_it_reads(plan, read_bytes, timeout, expected):
    begun = plan.begin_condense()
    part = Section(heading="", text="", start=0, end=read_bytes)
    run = PassRun(plan._session, plan._place, reply, timeout=timeout)

    assert run.timeout_s(begun.replaced(evicted=(part,))) == expected


@pytest.mark.parametrize(
    ("timeout", "until"), [(None, "00:08:00"), (5, "00:01:05"), (3_600, "01:00:00")]
)
def test_a_pass_lives_longer_than_its_summariser(plan, timeout, until):
    seen = []

    def summarise(begun):
        seen.append(begun.expires_at)
        return reply(begun)

    assert plan.condense(summarise, timeout=timeout).condensed
    assert seen[0].startswith(f"2026-01-01T{until}")


def test_a_dry_run_shows_what_would_go_and_writes_nothing(memory, plan):
    before = plan.read()

    shown = plan.condense(raising(AssertionError()), keep_sections=2, dry_run=True)

    assert (shown.dry_run, shown.condensed, shown.reason) == (True, False, "dry-run")
    assert (shown.kept, shown.base_rev) == (2, before.rev)
    assert shown.old_bytes == len(f"{before.content}\n")
    begun = plan.begin_condense(keep_sections=2)
    assert shown.evicted == len(begun.evicted)
    assert shown.detail == (
        f"the prompt has {len(begun.prompt.encode())} bytes, the summary is to have at"
        f" most {begun.target} characters"
    )
    plan.abort_condense(begun.id)
    assert plan.read() == before


def test_a_dry_run_says_why_none_would_begin(memory, plan, open_lane):
    memory.create("small", "text")
    looking = open_lane(read_only=True)

    small = looking.slot("small").condense(reply, dry_run=True)
    forced = looking.slot("small").condense(reply, dry_run=True, force=True)

    assert (small.reason, small.dry_run) == ("not-due", True)
    assert forced.reason == "nothing-to-evict"
    assert events(memory) == []


@pytest.mark.parametrize(
    ("spoil", "code"),
    [
        ({"append_only": True}, "slot-append-only"),
        ("UPDATE slot SET quarantined = 'broken'", "slot-quarantined"),
        ("UPDATE slot SET deleted = 1, file = ''", "slot-not-found"),
    ],
)
def test_a_dry_run_meets_what_a_pass_would(memory, plan, spoil, code):
    if isinstance(spoil, dict):
        plan.set_meta(**spoil)
    else:
        with memory.store.writing() as transaction:
            transaction.connection.execute(spoil)

    with pytest.raises(CrdtmemError) as caught:
        plan.condense(reply, dry_run=True)

    assert caught.value.code == code


def test_the_knobs_may_be_given_with_the_call(plan):
    shown = plan.condense(reply, config=CondenseConfig(keep_sections=1), dry_run=True)

    assert shown.kept == 1


class Model:
    def __call__(self, _):
        """Never be asked."""


def test_a_summariser_has_a_name_for_its_back_off():
    named = Model()
    vars(named)["name"] = "opus"
    partial_one = partial(reply)

    assert summariser_name(reply) == "reply"
    assert summariser_name(Model()) == "Model"
    assert summariser_name(named) == "opus"
    assert summariser_name(partial_one) == "partial"
    vars(named)["name"] = "x" * 100
    assert summariser_name(named) == "x" * 64
