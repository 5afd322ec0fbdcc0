"""The write of a pass: one record, its history, its archive and its end, at once."""

import logging
from collections.abc import Sequence
from typing import Any

from crdtmem.condense.outcomes import close_pass, outcome, slot_now
from crdtmem.condense.overlay import carried, overlaps
from crdtmem.condense.regions import Plan
from crdtmem.condense.values import CondenseResult
from crdtmem.doc.delta import Delta, Splice, apply_delta
from crdtmem.doc.rebase import carried_delta
from crdtmem.doc.text_form import bytes_of, cut_units, view_of
from crdtmem.doc.trace import Trace
from crdtmem.editing import SlotWrite
from crdtmem.errors import SizeLimitError
from crdtmem.limits import CONDENSE_DETAIL_UNITS
from crdtmem.store.condensed import condense_note, note_duplicates
from crdtmem.store.passes import PassRow
from crdtmem.store.rows import SlotRow
from crdtmem.textdiff import unified

__all__ = ["Refused", "carried_edit", "require_untouched", "write_pass"]

logger = logging.getLogger(__name__)

_SHOWN_UNITS = 60


class Refused(Exception):
    """The pass ends without a new text; nothing has been written yet.

    Args:
        reason: Why.
        figures: More fields of the result.

    """

    def __init__(self, reason: str, **figures: Any) -> None:
        super().__init__(reason)
        self.reason = reason
        self.figures = figures


def require_untouched(plan: Plan, trace: Trace, slot: SlotRow) -> None:
    """Demand that nobody has changed what goes.

    Args:
        plan: What goes.
        trace: The text that the pass began from, and all that was written since.
        slot: The slot as it is now.

    Raises:
        Refused: ``source-changed``, with the headings of what was changed.

    """
    hit = overlaps(plan, trace)
    if not hit:
        return
    base = trace.base()
    names = [
        region.heading or cut_units(region.text_in(base).strip(), _SHOWN_UNITS)
        for region in hit
    ]
    diff = unified(
        view_of(base),
        view_of(slot.file),
        label=slot.label,
        from_rev="begin",
        to_rev=slot.rev,
        limit_units=CONDENSE_DETAIL_UNITS,
    )
    section = "\n".join(dict.fromkeys(names))
    raise Refused("source-changed", section=section, detail=diff.text)


def carried_edit(
    write: SlotWrite, base: str, ops: Sequence[Splice], trace: Trace
) -> tuple[Delta, int]:
    """Return edits of the base text as one of the slot's, and what others inserted.

    Made twice, in different ways: what is committed is what both give.

    Args:
        write: Of the slot, looked at.
        base: The text that the pass began from.
        ops: The edits, over the closed base text.
        trace: The base text, and all that was written since.

    Returns:
        The edit, and how many bytes of its text others have inserted.

    Raises:
        Refused: ``rebuild-mismatch``.

    """
    delta = carried_delta(trace, base, ops)
    expected, carried_bytes = carried(base, ops, trace)
    if apply_delta(write.row.file, delta) != expected:
        # What is in memory may be what is wrong.
        write.session.store.docs.pop(write.row.doc, None)
        logger.error("a pass over %s would not give what it should", write.row.label)
        raise Refused("rebuild-mismatch")
    return delta, carried_bytes


def write_pass(
    write: SlotWrite,
    row: PassRow,
    delta: Delta,
    figures: dict[str, Any],
    *,
    reply: bytes | None = None,
) -> CondenseResult:
    """Write the new text and end the pass with it; return the result.

    Args:
        write: Of the slot, looked at.
        row: The pass, open.
        delta: The change of the slot's text.
        figures: What the result says of it.
        reply: The digest of the reply.

    Raises:
        Refused: If the text would be longer than the slot allows.

    """
    before = write.row
    note = condense_note(row.pass_id, row.after)
    details = {"pass": row.pass_id}
    try:
        written = write.apply("condense", delta, details=details, note=note)
    except SizeLimitError as exc:
        raise Refused(exc.code, detail=exc.message) from exc
    transaction = write.writing.transaction
    after = slot_now(transaction.connection, write.place)
    diff = unified(
        view_of(before.file),
        view_of(after.file),
        label=after.label,
        from_rev=before.rev,
        to_rev=after.rev,
    )
    figures = {
        **figures,
        "condensed": True,
        "final_bytes": bytes_of(after.file),
        "history_id": written.history_id,
        "diff": diff.text,
    }
    result = outcome(row, after, "condensed", **figures)
    close_pass(transaction, row, result, state="committed", reply=reply, lsn=after.lsn)
    note_duplicates(transaction.connection, row.pass_id, transaction.now_ms)
    return result
