"""A whole rewritten text in place of a summary: the same guards, in one step."""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from crdtmem.arguments import checked_content, checked_rev
from crdtmem.condense.beginning import archive_parts, effective_config, new_pass
from crdtmem.condense.due import plan_of
from crdtmem.condense.gates import failed_text_gate
from crdtmem.condense.outcomes import note_event, outcome
from crdtmem.condense.regions import Plan, Region
from crdtmem.condense.settings import CondenseConfig
from crdtmem.condense.values import CondenseResult
from crdtmem.condense.writing import (
    Refused,
    carried_edit,
    require_untouched,
    write_pass,
)
from crdtmem.doc.delta import Splice
from crdtmem.doc.text_form import bytes_of, closed, file_of
from crdtmem.editing import SlotWrite
from crdtmem.models import UNSET
from crdtmem.session import Place, Session
from crdtmem.store.passes import add_pass
from crdtmem.textdiff import diff_lines

__all__ = ["rewrite_text"]


def rewrite_text(
    session: Session, place: Place, content: str, base_rev: int
) -> CondenseResult:
    """Replace a slot's text by a shorter one; see Slot.condense_text.

    What goes is archived under the id of a pass that begins and ends here. The text
    must have each pinned line and the newest unit, and must be shorter; what others
    wrote since its base stays, unless it meets what goes.

    Args:
        session: Who writes.
        place: The slot.
        content: The whole new text.
        base_rev: The rev that it was made from.

    Raises:
        InvalidArgumentError: If an argument is malformed.
        RevNotKeptError: If the text of that rev is not kept.
        SlotNotFoundError: If the slot is deleted, or was never made.
        SlotRefusedError: If it is read-only or append-only.
        SlotQuarantinedError: If a record of it is damaged.

    """
    file = file_of(checked_content(content))
    rev = checked_rev(base_rev, "base_rev")
    knobs = effective_config(session, None)
    with session.writing() as writing:
        write = SlotWrite(session, writing, place, None)
        slot = write.live_slot()
        rewrite = _Rewrite(write, rev, file, knobs)
        try:
            return rewrite.written()
        except Refused as exc:
            figures = {**rewrite.figures, **exc.figures}
            result = outcome(None, slot, exc.reason, **figures)
            transaction = writing.transaction
            note_event(
                transaction.connection,
                "condense-abort",
                place,
                result,
                transaction.now_ms,
                lane=session.lane,
            )
            return result


class _Rewrite:
    """One rewrite, in a transaction; the slot has been looked at."""

    def __init__(
        self, write: SlotWrite, base_rev: int, file: str, config: CondenseConfig
    ) -> None:
        self.write = write
        self.base_rev = base_rev
        self.file = file
        self.config = config
        self.base, self.trace = write.trace_from(base_rev)
        self.figures: dict[str, Any] = {
            "base_rev": base_rev,
            "old_bytes": bytes_of(self.base),
            "new_bytes": bytes_of(file),
        }

    def written(self) -> CondenseResult:
        """Write the text, and the archive of what goes.

        Raises:
            Refused: If a guard does not hold.

        """
        base, slot = self.base, self.write.row
        plan = plan_of(base, slot.size_limit, self.config)
        not_smaller = self.config.not_smaller
        failure = failed_text_gate(base, self.file, plan, not_smaller=not_smaller)
        if failure is not None:
            reason, detail = failure
            raise Refused(reason, detail=detail)
        ops = [Splice(*op) for op in diff_lines(closed(base), closed(self.file))]
        gone = _gone(plan, ops, len(base))
        require_untouched(gone, self.trace, slot)
        delta, carried_bytes = carried_edit(self.write, base, ops, self.trace)
        self.figures["evicted"] = len(gone.evicted)
        self.figures["carried_bytes"] = carried_bytes or UNSET
        row = new_pass(self.write, self.config, archive_parts(base, gone))
        row = row._replace(base_rev=self.base_rev)
        add_pass(self.write.writing.transaction.connection, row)
        return write_pass(self.write, row, delta, self.figures)


def _gone(plan: Plan, ops: Sequence[Splice], size_chars: int) -> Plan:
    """Return a plan that takes out what these edits delete."""
    parts = tuple(_parts(plan.regions, ops, size_chars))
    return replace(plan, regions=parts, evicted=parts, condensed=(), kept=())


def _parts(
    regions: Sequence[Region], ops: Sequence[Splice], size_chars: int
) -> Iterator[Region]:
    starts = [region.start_chars for region in regions]
    for start_chars, end_chars, _ in ops:
        end_chars = min(end_chars, size_chars)
        if start_chars < end_chars:
            under = regions[bisect_right(starts, start_chars) - 1]
            yield Region("unit", under.heading, start_chars, end_chars)
