"""All slots that are due, one after the other, now and then.

One slot never stops the others: what goes wrong with it is a problem of its own in the
report. A problem that stands is logged when it comes up, and not at every look; who
waits after a failure is written in the store, so that a restart does not forget it.
"""

import logging
import threading
from collections.abc import Callable

from crdtmem.arguments import checked_seconds
from crdtmem.condense.due import due_slots
from crdtmem.condense.running import PassRun, run_pass
from crdtmem.condense.values import CondenseResult, DueSlot, Summarise
from crdtmem.errors import CrdtmemError
from crdtmem.limits import CONDENSE_TICK_MAX_S, CONDENSE_TICK_MIN_S
from crdtmem.memory import Memory
from crdtmem.model import UNSET, Model, Unset
from crdtmem.models import Scope
from crdtmem.views import iso_time

__all__ = ["TickProblem", "TickReport", "Ticker", "checked_interval"]

# Reasons why no pass begins that somebody should do something about.
_STANDING = {"archive-failed", "slot-quarantined", "source-encoding-invalid"}
# Those that mean that what was wrong before is wrong no more.
_FINE = {"not-due", "nothing-to-evict"}

logger = logging.getLogger(__name__)


class TickProblem(Model):
    """A slot that could not be condensed and should have been.

    Attributes:
        label: The slot.
        scope: Of the slot.
        reason: As in a result, or the code of an error.
        detail: More about it.
        is_standing: Whether it was there at the last look already.

    """

    label: str
    scope: Scope
    reason: str
    detail: str | Unset = UNSET
    is_standing: bool


class TickReport(Model):
    """What a look at all slots came to.

    Attributes:
        at: When it began; ISO 8601, UTC.
        results: Of the slots that were due.
        problems: Of these and of others.

    """

    at: str
    results: tuple[CondenseResult, ...]
    problems: tuple[TickProblem, ...]


class Ticker:
    """Looks at all slots in sight, and condenses those that are due.

    Args:
        memory: Whose slots, and in whose name.
        summarise: The summariser of all of them.
        scope: Only slots of this scope.
        keep_sections: See ``Slot.condense``.
        timeout: See there.

    Raises:
        InvalidArgumentError: If an argument is malformed.

    """

    def __init__(
        self,
        memory: Memory,
        summarise: Summarise,
        *,
        scope: Scope | None = None,
        keep_sections: int | Unset = UNSET,
        timeout: float | None = None,
    ) -> None:
        self._session = memory._session
        self._summarise = summarise
        self._scope: Scope | None = scope
        self._keep_sections = keep_sections
        self._timeout = timeout
        self._standing: dict[tuple[Scope, str], str] = {}
        # Refuses what is malformed now, not once for each slot.
        self._run_of("any", "project")

    def tick(self) -> TickReport:
        """Condense what is due, and return when all of it has been tried.

        Raises:
            CrdtmemError: If the store cannot tell what is due.

        """
        at = iso_time(self._session.store.clock_ms())
        results: list[CondenseResult] = []
        problems: list[TickProblem] = []
        for slot in due_slots(self._session, self._scope):
            found = self._condense(slot) if slot.due else self._standing_of(slot)
            if isinstance(found, CondenseResult):
                results.append(found)
                found = self._judged(found)
            if found is not None:
                problems.append(found)
        return TickReport(at=at, results=tuple(results), problems=tuple(problems))

    def run(
        self, every_s: float, stop: threading.Event, tell: Callable[[TickReport], None]
    ) -> None:
        """Look again and again, first after one interval, until told to stop.

        Args:
            every_s: Seconds between two looks.
            stop: Ends it where it waits; what interrupts a pass is an exception.
            tell: Gets each report.

        """
        while not stop.wait(every_s):
            try:
                report = self.tick()
            except CrdtmemError as exc:
                logger.warning("no look at the slots, the next one will try: %s", exc)
            else:
                tell(report)

    def _run_of(self, label: str, scope: Scope) -> PassRun:
        return PassRun(
            self._session,
            self._session.place_of(label, scope),
            self._summarise,
            keep_sections=self._keep_sections,
            timeout=self._timeout,
        )

    def _condense(self, slot: DueSlot) -> CondenseResult | TickProblem:
        try:
            return run_pass(self._run_of(slot.label, slot.scope))
        except CrdtmemError as exc:
            return self._problem(slot.label, slot.scope, exc.code, exc.message)
        except Exception:
            logger.exception("slot %s was not condensed; the others are", slot.label)
            return self._problem(slot.label, slot.scope, "internal-error", UNSET)

    def _standing_of(self, slot: DueSlot) -> TickProblem | None:
        if slot.reason in _STANDING:
            return self._problem(slot.label, slot.scope, slot.reason, UNSET)
        if slot.reason in _FINE:
            self._standing.pop((slot.scope, slot.label), None)
        return None

    def _judged(self, result: CondenseResult) -> TickProblem | None:
        """Return a result as a problem, if it is one."""
        if result.condensed:
            self._standing.pop((result.scope, result.label), None)
            return None
        # Without a pass it was another one's turn, or not its time.
        if result.pass_id is UNSET and result.reason not in _STANDING:
            return None
        return self._problem(result.label, result.scope, result.reason, result.detail)

    def _problem(
        self, label: str, scope: Scope, reason: str, detail: str | Unset
    ) -> TickProblem:
        is_standing = self._standing.get((scope, label)) == reason
        self._standing[scope, label] = reason
        if not is_standing:
            logger.warning("slot %s is not condensed: %s", label, reason)
        return TickProblem(
            label=label,
            scope=scope,
            reason=reason,
            detail=detail,
            is_standing=is_standing,
        )


def checked_interval(every_s: object) -> float:
    """Return the seconds between two looks.

    Raises:
        InvalidArgumentError: If there are too few.

    """
    return checked_seconds(every_s, "every", CONDENSE_TICK_MIN_S, CONDENSE_TICK_MAX_S)
