"""Undo: which write is taken back, and the write that does it.

An undo is a plain write. Its record names the steps it took back, so that other stores
see the same; the history entry of the write is marked. Undoing an undo is a redo: the
mark goes, and from then on the redo holds what lives of the write.
"""

from typing import Any

from crdtmem.arguments import Guard, Request
from crdtmem.doc.delta import Delta, apply_delta
from crdtmem.doc.text_form import units_of, view_of
from crdtmem.doc.undo import undo_delta
from crdtmem.editing import SlotWrite, slot_write
from crdtmem.errors import HistoryError
from crdtmem.headroom import content_hash
from crdtmem.history import SlotHistory
from crdtmem.models import UNSET, UndoneEntry, UndoResult, WriteResult
from crdtmem.session import Place, Session
from crdtmem.store.connection import Connection
from crdtmem.store.history import entries_of, entry_at, link_redo, mark_undone
from crdtmem.store.log import checkpoint_lsn, log_of
from crdtmem.store.passes import mark_pass_of_write
from crdtmem.store.rows import EntryRow, SlotRow
from crdtmem.textdiff import unified
from crdtmem.views import iso_time

__all__ = ["undo_write"]

UNDOABLE_BY_LANE = frozenset(
    {"append", "replace", "edit", "insert", "delete", "restore", "condense", "mirror"}
)
"""What ``undo()`` without an id takes back: a lane's own writes that are no undo."""


def undo_write(
    session: Session,
    place: Place,
    entry_id: str | None,
    guard: Guard,
    request: Request | None,
    *,
    is_dry_run: bool,
) -> UndoResult:
    """Take a write back, or say what that would do; see Slot.undo."""
    with slot_write(session, place, request) as write:
        if write.replayed is not None:
            return UndoResult(**write.replayed)
        row = write.live_slot(may_be_deleted=True)
        write.require(guard)
        undo = _Undo(write, _target(write, entry_id))
        write.require_size(undo.file, "undo")
        if is_dry_run:
            return undo.result(undo.row_as_it_would_be()).replaced(dry_run=True)
        if undo.is_empty:
            mark_undone(undo.connection, undo.entry.place, by=0)
            return write.finish(undo.result(row))
        return undo.commit()


class _Undo:
    """The undo of one history entry, computed and not yet written."""

    def __init__(self, write: SlotWrite, entry: EntryRow) -> None:
        self.write = write
        self.entry = entry
        self.connection = write.writing.transaction.connection
        # After a redo it is the redo's record that holds what lives of the write.
        self.living = _living(self.connection, entry)
        self.kept_from = checkpoint_lsn(self.connection, write.row.doc)
        self._require_kept()
        rows = log_of(self.connection, write.row.doc, after=self.living.first_lsn - 1)
        self.steps = frozenset(r.lsn for r in rows if r.lsn <= self.living.lsn)
        self.is_exact = not any(
            r.lsn > self.living.lsn and r.delta != "[]" for r in rows
        )
        self.delta = self._delta()
        self.file = apply_delta(write.row.file, self.delta)

    @property
    def revives(self) -> bool:
        """Whether a deleted slot comes back, also where its text was empty.

        Where text from elsewhere has brought it back already, nothing is left to undo:
        the next local write lifts the mark.
        """
        return self.entry.operation == "delete" and self.write.row.is_deleted

    @property
    def is_empty(self) -> bool:
        """Whether nothing visible is left to undo."""
        return not self.delta and not self.revives

    def commit(self) -> UndoResult:
        """Write the undo, and mark what it took back."""
        before = self.write.row
        result = self.write.apply(
            "undo",
            self.delta,
            details={"target": self.entry.id},
            undoes=self.steps,
            undone_place=self.entry.place,
        )
        newest = entries_of(self.connection, before.doc, limit=1)[0]
        mark_undone(self.connection, self.entry.place, by=newest.place)
        if self.entry.operation == "undo" and self.entry.undoes is not None:
            link_redo(self.connection, self.entry.undoes, redo=newest.place)
        self._mark_pass()
        shown = UndoResult(**_fields_of(result), **self._shown(result.rev))
        return self.write.finish(shown)

    def _mark_pass(self) -> None:
        """Note that a condense pass was undone, or redone, if the write was one."""
        entry, is_undone = self.entry, True
        while entry.undoes is not None:
            target = entry_at(self.connection, entry.undoes)
            if target is None:
                return
            entry, is_undone = target, not is_undone
        mark_pass_of_write(
            self.connection,
            self.write.row.doc,
            entry.first_lsn,
            entry.lsn,
            is_undone=is_undone,
        )

    def row_as_it_would_be(self) -> SlotRow:
        """Return the slot's row after the undo, without writing it."""
        view = view_of(self.file)
        row = self.write.row
        return row._replace(
            file=self.file,
            size=units_of(view),
            hash=content_hash(view),
            rev=row.rev if self.is_empty else row.rev + 1,
        )

    def result(self, row: SlotRow) -> UndoResult:
        """Return the result of an undo that left this row, without a history entry."""
        plain = self.write.result("undo", row, changed=not self.is_empty)
        return UndoResult(**_fields_of(plain), **self._shown(row.rev))

    def _shown(self, rev: int) -> dict[str, Any]:
        entry, before = self.entry, self.write.row
        found = unified(
            view_of(before.file),
            view_of(self.file),
            label=before.label,
            from_rev=before.rev,
            to_rev=rev,
        )
        return {
            "diff": found.text,
            "exact": self.is_exact,
            "undone": UndoneEntry(
                id=entry.id,
                operation=entry.operation,
                lane=entry.lane,
                at=iso_time(entry.at_ms),
                rev=entry.rev,
            ),
        }

    def _delta(self) -> Delta:
        trace = self.write.writing.transaction.trace(self.write.row, self.living)
        if trace.text() != self.write.row.file:
            raise _not_undoable(self.entry, "what was written since cannot be followed")
        return undo_delta(trace, self.steps)

    def _require_kept(self) -> None:
        if self.living.first_lsn <= self.kept_from:
            raise _not_undoable(self.entry, "its record is squashed")


def _target(write: SlotWrite, entry_id: str | None) -> EntryRow:
    """Return the entry that is to be undone.

    Raises:
        HistoryNotFoundError: If there is none of that id.
        HistoryError: If it cannot be undone, or there is nothing.

    """
    connection = write.writing.transaction.connection
    if entry_id is None:
        return _newest_of_lane(write, connection)
    entry = SlotHistory(write.session, write.place).find(connection, entry_id)
    if entry.undone_by is not None:
        by = entry_at(connection, entry.undone_by)
        raise HistoryError(
            f"the {entry.operation} {entry.id} has been undone already",
            code="already-undone",
            hint=f"run 'crdtmem undo {write.place.label} {by.id}' to redo it"
            if by
            else f"run 'crdtmem log {write.place.label}' to see what can be undone",
            details={"undoneBy": by.id if by else None},
        )
    if entry.operation == "create" or entry.is_imported:
        raise _not_undoable(entry, "it was no change of a text here")
    return entry


def _newest_of_lane(write: SlotWrite, connection: Connection) -> EntryRow:
    row, lane = write.row, write.session.lane
    kept_from = checkpoint_lsn(connection, row.doc) if row.doc else 0
    for entry in entries_of(connection, row.doc) if row.doc else []:
        is_own = entry.lane == lane and entry.operation in UNDOABLE_BY_LANE
        is_free = entry.undone_by is None and not entry.is_imported
        living = _living(connection, entry)
        if is_own and is_free and living.first_lsn > kept_from:
            return entry
    raise HistoryError(
        f"lane {lane!r} has no kept write in slot {row.label!r} left to undo",
        code="nothing-to-undo",
        hint=f"run 'crdtmem log {row.label}' and undo a write by its id",
        details={"lane": lane, "label": row.label},
    )


def _living(connection: Connection, entry: EntryRow) -> EntryRow:
    if entry.living is None:
        return entry
    return entry_at(connection, entry.living) or entry


def _not_undoable(entry: EntryRow, why: str) -> HistoryError:
    return HistoryError(
        f"the {entry.operation} {entry.id} cannot be undone: {why}",
        hint="run 'crdtmem restore' to go back to a kept text as a whole",
        details={"id": entry.id, "operation": entry.operation},
    )


def _fields_of(result: WriteResult) -> dict[str, Any]:
    values = {name: getattr(result, name) for name in WriteResult.names}
    return {name: value for name, value in values.items() if value is not UNSET}
