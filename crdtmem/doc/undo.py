"""Undo: the plain edit that takes back what a write did and keeps what came later.

No UndoManager: yrs keeps what it redoes in a hash set (y-crdt/y-crdt#412), so one undo
gave two to six different updates from run to run, and walking back through a history
was wrong in 201 of 1,856 steps. Undo is a function of the trace here; a redo is the
undo of an undo.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

from crdtmem.doc.delta import Delta, Splice, in_whole_lines, joined
from crdtmem.doc.trace import Trace, TraceRun

__all__ = ["undo_delta"]


def undo_delta(trace: Trace, targets: frozenset[int]) -> Delta:
    """Return the edit that undoes some writes, in whole lines.

    What they inserted or brought back goes, if it still lives. What they deleted comes
    back where it stood, if it is still dead. All else stays, and lines of later writes
    stay lines of their own. Text that came and went between the targets stays away.

    The newest write undone is the text before it, but for a final newline that an
    editor had left out. Writes of whole lines, undone newest first, lead through all
    earlier texts. Once a part of a line is undone, that line is new text: then an undo
    of what first wrote it leaves the line.

    Args:
        trace: The text before the oldest of these writes, and all that was written
            since.
        targets: The numbers of the writes in the trace.

    Returns:
        A delta over the text of the trace; empty if nothing visible is left to undo.

    """
    now = trace.text()
    splices = [
        splice
        for change in _changes(trace.runs, targets)
        if (splice := change.splice(now, targets)) is not None
    ]
    return in_whole_lines(now, joined(splices))


@dataclass(slots=True)
class _Change:
    """What an undo does between two runs that stay.

    Attributes:
        start_chars: Where that is in the text as it is now.
        end_chars: The same place, behind the live text that goes.
        left: The run that stays in front, if any.
        right: The run that stays behind, if any.
        returning: The runs that come back.

    """

    start_chars: int
    end_chars: int
    left: TraceRun | None
    right: TraceRun | None = None
    returning: list[TraceRun] = field(default_factory=list)

    def splice(self, now: str, targets: frozenset[int]) -> Splice | None:
        insert = "".join(run.text for run in self.returning)
        # The same text may have gone and come again under two of the targets.
        if insert == now[self.start_chars : self.end_chars]:
            return None
        if self._is_glued(now, targets):
            insert += "\n"
        return Splice(self.start_chars, self.end_chars, insert)

    def _is_glued(self, now: str, targets: frozenset[int]) -> bool:
        r"""Tell whether a line would be joined to one that it never was a part of.

        With whole lines alone this cannot be. But a text that an editor left without a
        final newline gets one from the next append, and others append behind that.
        """
        left = self.returning[-1] if self.returning else self.left
        if left is None or self.right is None or left.text.endswith("\n"):
            return False
        starts_line = now[self.end_chars - 1 : self.end_chars] in ("", "\n")
        # Two runs of the kept text are joined because they were, before the targets.
        return starts_line and any(
            run.inserted_by is not None and run.inserted_by not in targets
            for run in (left, self.right)
        )


def _changes(runs: tuple[TraceRun, ...], targets: frozenset[int]) -> Iterator[_Change]:
    """Yield the change between each run that stays and the next; most are empty."""
    change = _Change(0, 0, left=None)
    for run in runs:
        is_wanted = run.is_live_without(targets)
        if run.is_live and is_wanted:
            change.right = run
            yield change
            end_chars = change.end_chars + len(run.text)
            change = _Change(end_chars, end_chars, left=run)
        elif run.is_live:
            change.end_chars += len(run.text)
        elif is_wanted:
            change.returning.append(run)
    yield change
