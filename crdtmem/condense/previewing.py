"""What a pass would do, shown without doing it."""

from crdtmem.condense.beginning import new_pass_id
from crdtmem.condense.due import plan_of, refusal_of
from crdtmem.condense.outcomes import outcome
from crdtmem.condense.prompt import prompt_of, target_units
from crdtmem.condense.settings import CondenseConfig
from crdtmem.condense.values import CondenseResult
from crdtmem.doc.text_form import bytes_of
from crdtmem.errors import (
    SlotNotFoundError,
    SlotQuarantinedError,
    SlotRefusedError,
)
from crdtmem.session import Place, Session
from crdtmem.store.rows import SlotRow

__all__ = ["DRY_RUN", "preview_pass"]

DRY_RUN = "dry-run"
"""Reason of the result for a slot that a pass would begin on."""


def preview_pass(
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
        DRY_RUN,
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
