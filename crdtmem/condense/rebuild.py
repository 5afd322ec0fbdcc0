"""Rebuild: a slot's file after a pass, as edits of whole lines and never by a diff.

What stays is not touched, so it keeps its authors and merges with edits that others
make meanwhile.

Edits are over the *closed* file, which ends in a newline: an editor may have left one
that does not, and a line behind its last line begins on a line of its own.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from crdtmem.condense.overlay import carried
from crdtmem.condense.regions import Plan, Region, is_blank, scan_fences
from crdtmem.doc.delta import Splice, joined
from crdtmem.doc.text_form import closed, lines_of, units_of
from crdtmem.doc.trace import Trace

__all__ = ["Rebuilt", "rebuild"]

_PINNED_HEADING = "## Pinned facts (never condensed)\n"
_CONDENSED_HEADING = "## Condensed history\n"
_DIVIDER_HEADING = "## Recent\n"


@dataclass(frozen=True, slots=True)
class Rebuilt:
    """A file after a pass.

    Attributes:
        ops: Edits over the closed base file, of whole lines, ascending.
        file: What they make of the base file, if nobody else writes.
        hoisted: Facts that were pinned.
        hoist_deferred: Facts that stand at the end of the summary for want of room.

    """

    ops: tuple[Splice, ...]
    file: str
    hoisted: int
    hoist_deferred: int


def rebuild(
    file: str,
    plan: Plan,
    summary: str,
    facts: Sequence[str],
    *,
    size_limit: int,
    pinned_max_pct: int,
) -> Rebuilt:
    """Take the evicted units out, and put the summary and the facts in.

    Args:
        file: The text that the pass began from.
        plan: What the pass does to it.
        summary: From ``clean_summary``.
        facts: From ``clean_facts``.
        size_limit: The slot's limit, in units.
        pinned_max_pct: Most of it that pinned sections may take, in percent.

    """
    room = size_limit * pinned_max_pct // 100
    room -= sum(units_of(region.text_in(file)) for region in plan.pinned)
    pinned: list[str] = []
    deferred: list[str] = []
    for fact in facts:
        line = f"- {fact}\n"
        is_fit = units_of(line) <= room
        room -= units_of(line) if is_fit else 0
        (pinned if is_fit else deferred).append(line)
    builder = _Builder(closed(file), plan)
    ops = builder.ops(_body(builder, summary, deferred), "".join(pinned))
    rebuilt, _ = carried(file, ops, Trace(file))
    return Rebuilt(ops, rebuilt, len(pinned), len(deferred))


class _Builder:
    """Makes the edits of a pass over a closed file."""

    def __init__(self, file: str, plan: Plan) -> None:
        self._file = file
        self._plan = plan

    def ops(self, body: str, facts: str) -> tuple[Splice, ...]:
        """Return all edits.

        Args:
            body: The lines under the condensed heading.
            facts: Lines for the pinned section.

        """
        plan = self._plan
        found = [*self._facts_ops(facts), *self._section_ops(body, facts)]
        found += [
            Splice(*self._range_of(region), "")
            for region in (*plan.evicted, *plan.condensed[1:])
        ]
        # What is inserted where a part begins or ends stays in its order.
        return joined(sorted(found, key=lambda op: op[:2]))

    def text_above_body(self) -> str:
        """Return what stands above the condensed body and stays."""
        plan = self._plan
        end = plan.condensed[0].start_chars if plan.condensed else self._gap_chars()
        gone = {*plan.evicted, *plan.condensed}
        return "".join(
            region.text_in(self._file)
            for region in plan.regions
            if region.end_chars <= end and region not in gone
        )

    def _facts_ops(self, facts: str) -> Iterator[Splice]:
        if self._plan.pinned and facts:
            lines = lines_of(self._file[slice(*self._range_of(self._plan.pinned[0]))])
            while is_blank(lines[-1]):
                del lines[-1]
            at = self._plan.pinned[0].start_chars + sum(map(len, lines))
            yield Splice(at, at, facts)

    def _section_ops(self, body: str, facts: str) -> Iterator[Splice]:
        """Replace the condensed body, and add the headings that are missing."""
        plan = self._plan
        blocks = [] if plan.pinned else [f"{_PINNED_HEADING}{facts}"]
        divider = [] if plan.divider else [_DIVIDER_HEADING]
        if plan.condensed:
            start, end = self._range_of(plan.condensed[0])
            start = self._file.index("\n", start) + 1
            # The divider with it: what others append to an old body at the end of the
            # file comes under the divider.
            yield Splice(start, end, self._laid_out([body, *divider], end))
        else:
            blocks += [f"{_CONDENSED_HEADING}{body}", *divider]
        if blocks:
            at = self._gap_chars()
            *_, before = "", *lines_of(self._file[:at])
            gap = "" if is_blank(before) else "\n"
            yield Splice(at, at, gap + self._laid_out(blocks, at))

    def _laid_out(self, blocks: Sequence[str], at_chars: int) -> str:
        """Put blank lines between blocks, and behind them if text follows."""
        return "\n".join([*blocks, ""] if at_chars < len(self._file) else blocks)

    def _gap_chars(self) -> int:
        """Return where missing headings go: behind the header, and what is pinned.

        Text without a heading must not come under one of them, unless it is the new
        divider, where it belongs: else the headings go behind it.
        """
        plan = self._plan
        place = 0 if plan.header is None else 1
        is_divided = plan.divider is None and not plan.condensed
        for region in plan.regions[place:]:
            is_loose = region.kind == "unit" and not region.heading
            if region.kind != "pinned" and (not is_loose or is_divided):
                break
            place += 1
        return self._range_of(plan.regions[place - 1])[1] if place else 0

    def _range_of(self, region: Region) -> tuple[int, int]:
        """Return its range; the newline that the file lacked belongs to its last."""
        is_last = region == self._plan.regions[-1]
        return region.start_chars, len(self._file) if is_last else region.end_chars


def _body(builder: _Builder, summary: str, deferred: Sequence[str]) -> str:
    """Return the condensed body: the summary, and the facts that found no room."""
    if not summary:
        return ""
    lines = lines_of(f"{summary}\n")
    if scan_fences(lines_of(builder.text_above_body())).first_open is not None:
        # A fence that nothing closes is none, but a fence of the summary would close
        # it. Indented by four it is code as well, and closes nothing.
        for first, behind in scan_fences(lines).spans:
            lines[first:behind] = [f"    {line}" for line in lines[first:behind]]
    return "".join([*lines, "\n" if deferred else "", *deferred])
