"""Which slots a pass should begin for, and what keeps one from beginning."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from crdtmem.condense.outcomes import NOT_SMALLER, slot_waiter, summariser_waiter
from crdtmem.condense.regions import Plan, plan_pass
from crdtmem.condense.settings import CondenseConfig
from crdtmem.condense.values import DueSlot
from crdtmem.doc.text_form import bytes_of
from crdtmem.errors import CondenseSkippedError
from crdtmem.headroom import percent_used
from crdtmem.models import UNSET, Scope
from crdtmem.scope import scope_of
from crdtmem.session import Session
from crdtmem.store.connection import Connection
from crdtmem.store.mirrors import blocked_files
from crdtmem.store.passes import find_wait, open_pass
from crdtmem.store.rows import SlotRow
from crdtmem.views import iso_time

__all__ = ["Refusal", "due_slots", "plan_of", "refusal_of"]

GROWN_PCT = 110
"""How much a text must have grown since a pass made it no smaller, in percent."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why no pass begins.

    Attributes:
        code: The skip reason.
        detail: More about it.
        retry_ms: When it may be tried again; 0 if that is no question of time.
        more: More values, by their JSON names.

    """

    code: str
    detail: str = ""
    retry_ms: int = 0
    more: Mapping[str, object] = field(default_factory=dict)

    def error(self, label: str) -> CondenseSkippedError:
        """Return it as what a begin raises."""
        return CondenseSkippedError(
            label=label,
            code=self.code,
            detail=self.detail,
            retry_at=iso_time(self.retry_ms) if self.retry_ms else "",
            more=self.more,
        )


def plan_of(file: str, size_limit: int, config: CondenseConfig) -> Plan:
    """Return what a pass would do to a file."""
    return plan_pass(
        file,
        size_limit=size_limit,
        keep_sections=config.keep_sections,
        keep_pct=config.keep_pct,
        unit_max=config.unit_max(size_limit),
    )


def refusal_of(
    connection: Connection,
    slot: SlotRow,
    plan: Plan,
    config: CondenseConfig,
    now_ms: int,
    *,
    summariser: str = "",
    force: bool = False,
) -> Refusal | None:
    """Return what keeps a pass from beginning on a slot that may be written, if any."""
    for name, reason in blocked_files(connection, slot.namespace, slot.label):
        if reason == "source-encoding-invalid":
            return Refusal(reason, name)
    before = open_pass(connection, slot.doc)
    if before is not None and now_ms < before.expires_ms:
        more = {
            "passId": before.pass_id,
            "lane": before.lane,
            "expiresAt": iso_time(before.expires_ms),
        }
        detail = f"{before.pass_id} of lane {before.lane}"
        return Refusal("condense-busy", detail, before.expires_ms, more)
    if not force:
        if not _due_reason(slot, plan, config):
            return Refusal("not-due")
        if (wait := _wait(connection, slot, now_ms, summariser)) is not None:
            return wait
    return Refusal("nothing-to-evict") if plan.is_idle else None


def _due_reason(slot: SlotRow, plan: Plan, config: CondenseConfig) -> str:
    """Return why a slot is due: ``full`` or ``sections``; empty if it is not."""
    if slot.size < config.min_units(slot.size_limit):
        return ""
    used, of = slot.size, slot.size_limit
    if config.budget_bytes is not None:
        used, of = bytes_of(slot.file), config.budget_bytes
    if percent_used(used, of) >= config.trigger_pct:
        return "full"
    return "sections" if plan.sections > config.section_trigger else ""


def due_slots(
    session: Session, scope: Scope | None, config: CondenseConfig | None = None
) -> tuple[DueSlot, ...]:
    """Return for each live slot in sight whether a pass would begin, and why.

    Args:
        session: Whose slots.
        scope: Only those of this scope.
        config: The knobs; those of the session where None.

    """
    knobs = config or CondenseConfig(**session.condense)
    with session.reading() as connection:
        now_ms = session.store.clock_ms()
        return tuple(
            _due(connection, slot, knobs, now_ms)
            for slot in session.visible_rows(scope, templates=False)
        )


def _due(
    connection: Connection, slot: SlotRow, config: CondenseConfig, now_ms: int
) -> DueSlot:
    plan = plan_of(slot.file, slot.size_limit, config)
    reason, retry_ms = _standing(slot), 0
    if not reason:
        refusal = refusal_of(connection, slot, plan, config, now_ms)
        reason = refusal.code if refusal else ""
        retry_ms = refusal.retry_ms if refusal else 0
    return DueSlot(
        label=slot.label,
        scope=scope_of(slot.namespace),
        due=not reason,
        reason=reason or _due_reason(slot, plan, config),
        retry_at=iso_time(retry_ms) if retry_ms else UNSET,
        pct_used=percent_used(slot.size, slot.size_limit),
    )


def _standing(slot: SlotRow) -> str:
    """Return what keeps a slot from any write, whatever it holds."""
    if slot.quarantined is not None:
        return "slot-quarantined"
    if slot.read_only:
        return "slot-read-only"
    return "slot-append-only" if slot.append_only else ""


def _wait(
    connection: Connection, slot: SlotRow, now_ms: int, summariser: str
) -> Refusal | None:
    wait = find_wait(connection, slot_waiter(slot.doc))
    if wait.reason == NOT_SMALLER:
        if bytes_of(slot.file) * 100 <= wait.size_bytes * GROWN_PCT:
            detail = f"it was {wait.size_bytes} bytes then"
            return Refusal("not-smaller-backoff", detail)
    elif now_ms < wait.until_ms:
        return Refusal("backoff", wait.reason, wait.until_ms)
    wait = find_wait(connection, summariser_waiter(summariser))
    if now_ms < wait.until_ms:
        return Refusal("backoff", wait.reason, wait.until_ms)
    return None
