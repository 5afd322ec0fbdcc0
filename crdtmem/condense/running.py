"""A whole pass: begin, ask the summariser, commit its reply.

The summariser is slow and not ours: it works in a thread that nobody waits for longer
than they said, and nothing is locked meanwhile. A reply that comes too late meets a
pass that has ended.
"""

import inspect
import logging
import threading
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from crdtmem.arguments import checked_bool, checked_seconds
from crdtmem.condense.beginning import begin_pass, effective_config, new_pass_id
from crdtmem.condense.command import CommandSummariser, SummariserFailedError
from crdtmem.condense.committing import commit_pass, commit_reply
from crdtmem.condense.due import plan_of, refusal_of
from crdtmem.condense.outcomes import outcome, slot_now
from crdtmem.condense.passing import abort_pass
from crdtmem.condense.prompt import prompt_of, target_units
from crdtmem.condense.settings import CondenseConfig
from crdtmem.condense.values import (
    CondensePass,
    CondenseReply,
    CondenseResult,
    RateLimitedError,
    Summarise,
)
from crdtmem.doc.text_form import bytes_of
from crdtmem.errors import (
    CondenseSkippedError,
    CrdtmemError,
    InvalidArgumentError,
    SlotNotFoundError,
    SlotQuarantinedError,
    SlotRefusedError,
)
from crdtmem.limits import (
    CONDENSE_EXPIRES_MAX_S,
    CONDENSE_MARGIN_S,
    CONDENSE_TIMEOUT_BYTE_S,
    CONDENSE_TIMEOUT_LONG_S,
    CONDENSE_TIMEOUT_MAX_S,
    CONDENSE_TIMEOUT_MIN_S,
    CONDENSE_TIMEOUT_S,
    STDERR_SHOWN_CHARS,
)
from crdtmem.models import UNSET, Unset
from crdtmem.session import Place, Session
from crdtmem.store.rows import SlotRow
from crdtmem.waiting import wait_for

__all__ = [
    "Asking",
    "Ending",
    "PassRun",
    "failure_of",
    "is_async",
    "run_pass",
    "summariser_name",
    "timed_out",
]

_NAME_CHARS = 64
_DRY_RUN = "dry-run"
"""Reason of the result for a slot that a pass would begin on."""

logger = logging.getLogger(__name__)


class Ending(NamedTuple):
    """What became of a summariser: a reply, or the reason why there is none."""

    reply: object = None
    reason: str = ""
    detail: str | None = None
    retry_after: float | None = None


class PassRun:
    """One pass of one slot, as steps; whoever drives it asks the summariser.

    Call ``begin``, and then either ``settle`` or ``cancel``, once. Each step is one
    transaction.

    Args:
        session: The store.
        place: The slot.
        summarise: The summariser.
        keep_sections: See ``begin_pass``.
        keep_pct: See there.
        timeout: Seconds that the summariser has; None: by what it has to read.
        force: See ``begin_pass``.
        config: See there.

    Raises:
        InvalidArgumentError: If the summariser, the timeout or a flag is malformed.

    """

    def __init__(
        self,
        session: Session,
        place: Place,
        summarise: Summarise,
        *,
        keep_sections: int | Unset = UNSET,
        keep_pct: int | Unset = UNSET,
        timeout: float | None = None,
        force: bool = False,
        config: CondenseConfig | None = None,
    ) -> None:
        self.summarise = _checked_summariser(summarise)
        self._session = session
        self._place = place
        self._timeout = None
        if timeout is not None:
            low, high = CONDENSE_TIMEOUT_MIN_S, CONDENSE_TIMEOUT_MAX_S
            self._timeout = checked_seconds(timeout, "timeout", low, high)
        self._knobs = effective_config(session, config, keep_sections, keep_pct)
        self._force = checked_bool(force, "force")

    def begin(self) -> CondensePass | CondenseResult:
        """Begin the pass, or return why there is none."""
        # How much there is to read is known only afterwards.
        life_s = (self._timeout or CONDENSE_TIMEOUT_LONG_S) + CONDENSE_MARGIN_S
        try:
            return begin_pass(
                self._session,
                self._place,
                expires_in=min(life_s, CONDENSE_EXPIRES_MAX_S),
                summariser=summariser_name(self.summarise),
                config=self._knobs,
                force=self._force,
            )
        except CondenseSkippedError as skip:
            return self._skipped(skip)

    def preview(self) -> CondenseResult:
        """Return what a pass would take out and leave; write nothing, ask nobody."""
        try:
            result = _preview_pass(
                self._session,
                self._place,
                summariser=summariser_name(self.summarise),
                config=self._knobs,
                force=self._force,
            )
        except CondenseSkippedError as skip:
            result = self._skipped(skip)
        return result.replaced(dry_run=True)

    def timeout_s(self, begun: CondensePass) -> float:
        """Return how long the summariser of a pass has."""
        if self._timeout is not None:
            return self._timeout
        read_bytes = sum(part.end - part.start for part in begun.evicted)
        by_size_s = CONDENSE_TIMEOUT_S + read_bytes * CONDENSE_TIMEOUT_BYTE_S
        return min(by_size_s, CONDENSE_TIMEOUT_LONG_S)

    def settle(self, begun: CondensePass, ending: Ending) -> CondenseResult:
        """Commit the reply, or end the pass with the reason why there is none."""
        session, place, reply = self._session, self._place, ending.reply
        if ending.reason:
            result = abort_pass(
                session,
                place,
                begun.id,
                ending.reason,
                detail=ending.detail,
                retry_after=ending.retry_after,
            )
        elif isinstance(reply, CondenseReply):
            result = self._commit(begun, reply)
        elif isinstance(reply, str):
            result = commit_reply(session, place, begun.id, reply)
        else:
            detail = f"the summariser returned {type(reply).__name__}, not a reply"
            result = abort_pass(
                session, place, begun.id, "summarize-failed", detail=detail
            )
        logger.info("pass %s of %s: %s", begun.id, place.label, result.reason)
        return result

    def cancel(self, begun: CondensePass) -> None:
        """End the pass because nobody wants it any more.

        Where that fails it ends by itself, and whoever cancels has other worries.
        """
        try:
            abort_pass(self._session, self._place, begun.id, "cancelled")
        except CrdtmemError as exc:
            logger.warning(
                "pass %s stays open until %s: %s", begun.id, begun.expires_at, exc.code
            )

    def _commit(self, begun: CondensePass, reply: CondenseReply) -> CondenseResult:
        session, place = self._session, self._place
        if reply.pass_id != begun.id:
            return abort_pass(session, place, begun.id, "reply-wrong-pass")
        try:
            return commit_pass(session, place, begun.id, reply.summary, reply.hoisted)
        except InvalidArgumentError as exc:
            # The summariser's fault, not our caller's.
            return abort_pass(
                session, place, begun.id, "invalid-text", detail=exc.message
            )

    def _skipped(self, skip: CondenseSkippedError) -> CondenseResult:
        with self._session.reading() as connection:
            slot = slot_now(connection, self._place)
        return outcome(
            None,
            slot,
            skip.code,
            detail=skip.detail or UNSET,
            retry_at=skip.retry_at or UNSET,
        )


class Asking:
    """A summariser at work, in a thread that does not keep the process alive.

    Args:
        summarise: The summariser.
        begun: What it is to summarise.
        on_end: Called in that thread when it has ended.

    Attributes:
        ended: Set when it has ended; ``ending`` is its work then.

    Raises:
        SummariserFailedError: If its command cannot be started.

    """

    def __init__(
        self,
        summarise: Summarise,
        begun: CondensePass,
        on_end: Callable[[], None] = lambda: None,
    ) -> None:
        self.ended = threading.Event()
        self.ending = Ending()
        self._on_end = on_end
        self._ask: Callable[[], object] = partial(summarise, begun)
        self._stop: Callable[[], None] = lambda: None
        if isinstance(summarise, CommandSummariser):
            # Started here, so that it can be stopped from here from the first moment.
            run = summarise.start(begun)
            self._ask, self._stop = run.reply, run.stop
        name = f"crdtmem-condense-{begun.label}"
        threading.Thread(target=self._work, name=name, daemon=True).start()

    def give_up(self) -> None:
        """Wait no longer: end a command; let anything else end when it will."""
        self._stop()

    def _work(self) -> None:
        try:
            self.ending = Ending(self._ask())
        except BaseException as exc:  # noqa: BLE001 - the top of a thread: it is told
            self.ending = failure_of(exc)
        self.ended.set()
        self._on_end()


def run_pass(run: PassRun) -> CondenseResult:
    """Drive a pass to its end; see ``Slot.condense``.

    Raises:
        InvalidArgumentError: If the summariser is asynchronous.
        SlotError: If the slot takes no pass at all.

    """
    if is_async(run.summarise):
        raise _no_async()
    begun = run.begin()
    if isinstance(begun, CondenseResult):
        return begun
    try:
        ending = _ask(run.summarise, begun, run.timeout_s(begun))
        if inspect.isawaitable(ending.reply):
            # Closed, or Python would warn that nobody awaited it.
            getattr(ending.reply, "close", lambda: None)()
            raise _no_async()
    except BaseException:
        run.cancel(begun)
        raise
    return run.settle(begun, ending)


def failure_of(error: BaseException) -> Ending:
    """Return how a pass ends whose summariser has raised."""
    match error:
        case RateLimitedError():
            return Ending(reason="rate-limited", retry_after=error.retry_after)
        case SummariserFailedError():
            return Ending(reason=error.reason, detail=error.detail)
        case _:
            detail = f"{type(error).__name__}: {error}"[:STDERR_SHOWN_CHARS]
            return Ending(reason="summarize-failed", detail=detail)


def timed_out(timeout_s: float) -> Ending:
    """Return how a pass ends whose summariser took too long."""
    return Ending(reason="timeout", detail=f"no reply after {timeout_s:g} s")


def is_async(summarise: Summarise) -> bool:
    """Tell whether a summariser is a coroutine function, or an object with one."""
    # An object is what its class makes of a call.
    call = vars(type(summarise)).get("__call__")
    return inspect.iscoroutinefunction(summarise) or inspect.iscoroutinefunction(call)


def summariser_name(summarise: Summarise) -> str:
    """Return what a summariser is called in the log, and what its back-off goes by."""
    names = (getattr(summarise, key, None) for key in ("name", "__qualname__"))
    found = next((n for n in names if isinstance(n, str)), type(summarise).__qualname__)
    return found[:_NAME_CHARS]


def _ask(summarise: Summarise, begun: CondensePass, timeout_s: float) -> Ending:
    try:
        asking = Asking(summarise, begun)
    except SummariserFailedError as exc:
        return failure_of(exc)
    try:
        if wait_for(asking.ended, timeout_s):
            return asking.ending
    except BaseException:
        asking.give_up()
        raise
    asking.give_up()
    return timed_out(timeout_s)


def _checked_summariser(summarise: Summarise) -> Summarise:
    if not callable(summarise):
        message = f"summarise must be callable, not {type(summarise).__name__}"
        raise InvalidArgumentError("summarise", message)
    return summarise


def _no_async() -> InvalidArgumentError:
    return InvalidArgumentError(
        "summarise",
        "summarise returns an awaitable, which nobody awaits here",
        hint="call the condense of crdtmem.aio, or pass a plain function",
    )


def _preview_pass(
    session: Session,
    place: Place,
    *,
    config: CondenseConfig,
    summariser: str,
    force: bool,
) -> CondenseResult:
    """Return how much a pass would take out and leave, or why none would begin.

    Raises:
        CondenseSkippedError: If none would begin.
        SlotNotFoundError: If the slot is deleted.
        SlotRefusedError: If it is read-only or append-only.
        SlotQuarantinedError: If a record of it is damaged.

    """
    with session.store.snapshot() as connection:
        slot = session.find(connection, place)
        if slot is None:
            raise SlotNotFoundError(label=place.label)
        _require_writable(slot)
        plan = plan_of(slot.file, slot.size_limit, config)
        now_ms = session.store.clock_ms()
        refusal = refusal_of(
            connection, slot, plan, config, now_ms, summariser=summariser, force=force
        )
        if refusal is not None:
            raise refusal.error(place.label)
    target = target_units(slot.file, plan, slot.size_limit)
    prompt = prompt_of(new_pass_id(), slot.file, plan, target)
    return outcome(
        None,
        slot,
        _DRY_RUN,
        detail=f"the prompt has {bytes_of(prompt)} bytes, the summary is to have at"
        f" most {target} characters",
        base_rev=slot.rev,
        old_bytes=bytes_of(slot.file),
        evicted=len(plan.evicted),
        kept=len(plan.kept),
    )


def _require_writable(slot: SlotRow) -> None:
    if slot.quarantined is not None:
        raise SlotQuarantinedError(label=slot.label, reason=slot.quarantined)
    if slot.read_only or slot.append_only:
        code = "slot-read-only" if slot.read_only else "slot-append-only"
        raise SlotRefusedError(label=slot.label, code=code)
