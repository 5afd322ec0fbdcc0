"""``crdtmem condense``: old text summarised, by a command or in two steps."""

import inspect
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Never, TypedDict, Unpack

from crdtmem import opening
from crdtmem.cli.phrases import columns, headroom_phrase, plural, warning_of
from crdtmem.cli.progress import progress
from crdtmem.cli.running import Call
from crdtmem.cli.texts import read_text
from crdtmem.condense.named import abort_named, commit_named, condense_log
from crdtmem.condense.ticking import Ticker, TickReport, checked_interval
from crdtmem.condense.values import (
    CondensePass,
    CondenseResult,
    DueSlot,
    PassInfo,
    Summarise,
)
from crdtmem.errors import InvalidArgumentError
from crdtmem.models import UNSET, Unset

__all__ = ["CondenseOptions", "condense"]

ABORTED = 4
PROBLEMS = 10
TERMINATED = 143
_LIMIT = 50
_LOOKS = ("due", "passes", "show", "log")
# Reasons why there was nothing to do, rather than something that did not work.
_NOTHING = {"dry-run", "not-due", "not-smaller-backoff", "nothing-to-evict"}
_FORCIBLE = {"backoff", "not-due", "not-smaller-backoff"}


class CondenseOptions(TypedDict, total=False):
    """What was given; each option belongs to some of the things that condense does."""

    named: str
    keep: int
    timeout: float
    force: bool
    dry_run: bool
    begin: bool
    commit: str
    file: str
    abort: str
    is_all: bool
    every: float
    limit: int
    progress_: str


def condense(
    call: Call,
    *,
    label: str | None,
    pass_id: str | None,
    command: tuple[str, ...],
    **options: Unpack[CondenseOptions],
) -> int | None:
    """Do one of the things that condense is made of."""
    words = {"label": label, "pass_id": pass_id, "command": command or None}
    given: dict[str, Any] = {k: word for k, word in words.items() if word is not None}
    given |= options
    action = _action_of(given)
    act = _ACTIONS[action]
    takes = inspect.signature(act).parameters
    for name in given:
        if name not in takes:
            raise _usage(f"'condense {action}' takes no {_spelled(name)}")
    return act(call, **given)


def _action_of(given: dict[str, Any]) -> str:
    """Return what is to be done; what told it is left as the slot, or taken out."""
    chosen = [f"--{name}" for name in ("begin", "commit", "abort") if name in given]
    chosen += ["--all"] if given.pop("is_all", False) else []
    if len(chosen) > 1:
        raise _usage(f"{chosen[0]} and {chosen[1]} exclude each other")
    given.pop("begin", None)
    word, named = given.get("label"), given.pop("named", None)
    if not chosen and word in _LOOKS:
        del given["label"]
        chosen = [word]
    elif word is not None and named is not None:
        raise _usage("the slot was named twice")
    if named is not None:
        given["label"] = named
    return chosen[0] if chosen else "LABEL"


def _pass(
    call: Call,
    *,
    label: str | None = None,
    pass_id: str | None = None,
    command: tuple[str, ...] = (),
    keep: int | Unset = UNSET,
    timeout: float | None = None,
    force: bool = False,
    dry_run: bool = False,
    progress_: str | None = None,
) -> int | None:
    """Condense a slot with a command; without one, only show what it would do."""
    if label is None:
        raise _usage("a slot is needed: 'condense LABEL -- CMD', or '--all'")
    if pass_id is not None or not (command or dry_run):
        raise _no_command(label)
    # A dry run asks nobody: anything that can be called will do.
    summarise: Summarise = opening.command_summariser(command) if command else str
    slot = call.open("look" if dry_run else "read").slot(label, call.scope)
    with progress(call.out, f"condensing {label}", progress_), _ended_when_told():
        result = slot.condense(
            summarise,
            keep_sections=keep,
            timeout=timeout,
            force=force,
            dry_run=dry_run,
        )
    return _tell(call, result)


def _begin(
    call: Call,
    *,
    label: str | None = None,
    keep: int | Unset = UNSET,
    force: bool = False,
) -> None:
    """Begin a pass and print its prompt; somebody commits the reply later."""
    if label is None:
        raise _usage("a slot is needed: 'condense LABEL --begin'")
    begun = call.slot(label).begin_condense(keep_sections=keep, force=force)
    if call.out.as_json:
        call.out.json(begun)
        return
    call.out.text(begun.prompt)
    call.out.note(_begun_note(begun))


def _commit(call: Call, *, commit: str, file: str | None = None) -> int | None:
    """Commit the reply to a pass that was begun before."""
    if file is None:
        raise InvalidArgumentError(
            "file",
            "the reply is needed",
            code="usage",
            hint=f"run 'crdtmem condense --commit {commit} --file -' to read stdin",
        )
    text, source = ("-", None) if file == "-" else (None, file)
    reply = read_text(call.out, text, source, keep_newline=True)
    return _tell(call, commit_named(call.memory, commit, reply))


def _abort(call: Call, *, abort: str) -> int | None:
    """End a pass; that it has ended is what was wanted."""
    result = abort_named(call.memory, abort)
    status = _tell(call, result)
    return None if result.reason == "cancelled" else status


def _all(
    call: Call,
    *,
    command: tuple[str, ...] = (),
    every: float | None = None,
    keep: int | Unset = UNSET,
    timeout: float | None = None,
    progress_: str | None = None,
) -> int | None:
    """Condense every slot that is due, once or now and then."""
    if not command:
        raise _no_command("--all")
    interval_s = None if every is None else checked_interval(every)
    ticker = Ticker(
        call.memory,
        opening.command_summariser(command),
        scope=call.scope,
        keep_sections=keep,
        timeout=timeout,
    )
    if interval_s is None:
        return _tick(call, ticker, progress_)
    with suppress(SystemExit), _ended_when_told():
        call.out.note(f"looking each {interval_s:g} s; Ctrl-C stops it")
        ticker.run(interval_s, threading.Event(), lambda r: _tell_tick(call, r))
    return None


def _tick(call: Call, ticker: Ticker, form: str | None) -> int | None:
    with progress(call.out, "condensing", form), _ended_when_told():
        report = ticker.tick()
    _tell_tick(call, report)
    if not (report.results or report.problems):
        call.out.note("nothing was to be done")
    return PROBLEMS if report.problems else None


def _due(call: Call, *, label: str | None = None) -> None:
    """Show for each slot whether a pass would begin now."""
    found = [
        slot
        for slot in call.open("look").condense_due(scope=call.scope)
        if label in (None, slot.label)
    ]
    if call.out.as_json:
        call.out.json({"due": [slot.to_dict() for slot in found]})
        return
    for line in columns([_due_cells(slot) for slot in found]) if found else []:
        call.out.line(line)


def _passes(call: Call, *, label: str | None = None, limit: int = _LIMIT) -> None:
    """Show the passes there were, newest first."""
    found = call.open("look").condense_passes(label=label, limit=limit)
    if call.out.as_json:
        call.out.json({"passes": [info.to_dict() for info in found]})
        return
    for line in columns([_pass_cells(info) for info in found]) if found else []:
        call.out.line(line)


def _show(call: Call, *, pass_id: str | None = None) -> None:
    """Print what a pass took out, as it stood in the slot."""
    if pass_id is None:
        raise _usage("a pass is needed: 'condense show PASS_ID'")
    archive = call.open("look").condense_archive(pass_id)
    if call.out.as_json:
        call.out.json(archive)
        return
    for part in archive.sections:
        call.out.text(part.text)
    call.out.note(f"{plural(len(archive.sections), 'part')}, SHA-256 {archive.sha256}")


def _log(call: Call, *, label: str | None = None, limit: int = _LIMIT) -> None:
    """Print what became of the newest passes, oldest first; --json: one a line."""
    memory = call.open("look")
    for entry in condense_log(memory, label=label, scope=call.scope, limit=limit):
        if call.out.as_json:
            call.out.json(entry)
        else:
            call.out.line(_log_line(entry))


def _tell(call: Call, result: CondenseResult) -> int | None:
    """Print a result; return the exit status that it comes to."""
    is_fine = result.condensed or result.reason in _NOTHING
    if call.out.as_json:
        call.out.json(result)
    elif not (call.out.is_quiet and is_fine):
        call.out.line(_result_line(result))
        _tell_more(call, result)
    return None if is_fine else ABORTED


def _tell_more(call: Call, result: CondenseResult) -> None:
    label = result.label
    if result.condensed:
        call.out.note(headroom_phrase(label, result.headroom))
        call.out.note(f"'crdtmem undo {label} {result.history_id}' takes it back")
        if warning_of(result.headroom):
            call.out.warn(warning_of(result.headroom))
    elif result.reason in _FORCIBLE:
        call.out.note("--force does it all the same")


def _tell_tick(call: Call, report: TickReport) -> None:
    if call.out.as_json:
        call.out.json(report)
    elif not call.out.is_quiet:
        for result in report.results:
            if result.condensed:
                call.out.line(_result_line(result))
    for problem in report.problems:
        if not (call.out.as_json or problem.is_standing):
            detail = "" if problem.detail is UNSET else f": {problem.detail}"
            call.out.warn(f"{problem.label}: {problem.reason}{detail}")
    call.out.flush()


def _result_line(result: CondenseResult) -> str:
    if not result.condensed:
        section = "" if result.section is UNSET else f" in {result.section}"
        detail = "" if result.detail is UNSET else f": {result.detail}"
        retry = "" if result.retry_at is UNSET else f"; try again at {result.retry_at}"
        figures = "" if result.dry_run is UNSET else _figures(result)
        return f"{result.label}: {result.reason}{section}{detail}{retry}{figures}"
    carried = result.carried_bytes
    others = "" if carried is UNSET else f", {carried:,} bytes by others meanwhile"
    return (
        f"{result.label}: condensed,"
        f" {result.old_bytes:,} → {result.final_bytes:,} bytes{others}"
        f"{_figures(result)}"
    )


def _figures(result: CondenseResult) -> str:
    if result.evicted is UNSET:
        return ""
    figures = f"; {result.evicted} out, {result.kept} kept"
    return figures + (f", {result.hoisted} pinned" if result.hoisted else "")


def _begun_note(begun: CondensePass) -> str:
    return (
        f"pass {begun.id} of {begun.label}, until {begun.expires_at};"
        f" 'crdtmem condense --commit {begun.id} --file -' takes the reply"
    )


def _due_cells(slot: DueSlot) -> tuple[str, ...]:
    retry = "" if slot.retry_at is UNSET else f"try again at {slot.retry_at}"
    state = "due" if slot.due else "-"
    return slot.label, slot.scope, f"{slot.pct_used} %", state, slot.reason, retry


def _pass_cells(info: PassInfo) -> tuple[str, ...]:
    elsewhere = "elsewhere" if info.is_remote else f"by {info.lane}"
    return info.id, info.label, info.begun_at, info.state, info.reason, elsewhere


def _log_line(entry: dict[str, object]) -> str:
    named = ("passId", "section", "detail", "carriedBytes", "retryAt")
    more = "".join(f"  {name} {entry[name]}" for name in named if name in entry)
    reason = entry.get("reason", "")
    return f"{entry['at']}  {entry['kind']}  {entry['label']}  {reason}{more}"


@contextmanager
def _ended_when_told() -> Iterator[None]:
    """End with TERMINATED when told to, after a running pass is aborted."""

    def end(*_: object) -> Never:
        # Once: the way out takes a while, and is not to be interrupted.
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        sys.exit(TERMINATED)

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _spelled(name: str) -> str:
    words = {"label": "LABEL", "pass_id": "PASS_ID", "command": "command"}
    return words.get(name) or "--" + name.rstrip("_").replace("_", "-")


def _usage(message: str) -> InvalidArgumentError:
    hint = "run 'crdtmem condense --help' to see what belongs to what"
    return InvalidArgumentError("argv", message, code="usage", hint=hint)


def _no_command(what: str) -> InvalidArgumentError:
    in_steps = "" if what == "--all" else f", or 'crdtmem condense {what} --begin'"
    return InvalidArgumentError(
        "argv",
        "a command that summarises is needed, behind '--'",
        code="usage",
        hint=f"run 'crdtmem condense {what} -- CMD'{in_steps}",
    )


_ACTIONS: dict[str, Callable[..., int | None]] = {
    "LABEL": _pass,
    "--begin": _begin,
    "--commit": _commit,
    "--abort": _abort,
    "--all": _all,
    "due": _due,
    "passes": _passes,
    "show": _show,
    "log": _log,
}
