"""The past of a slot: kept texts, diffs between them, and who wrote each line."""

from crdtmem.doc.blame import blame_lines
from crdtmem.doc.text_form import view_of
from crdtmem.errors import (
    DocError,
    HistoryNotFoundError,
    RevNotKeptError,
    SlotNotFoundError,
    SlotQuarantinedError,
)
from crdtmem.models import (
    BlameLine,
    Diff,
    History,
    HistoryEntry,
    Scope,
    SlotView,
    Unset,
)
from crdtmem.scope import scope_of
from crdtmem.session import Place, Session
from crdtmem.store.connection import Connection
from crdtmem.store.documents import blame_of
from crdtmem.store.history import entries_of, entry_at, entry_of_rev
from crdtmem.store.log import checkpoint_lsn
from crdtmem.store.rows import PLACE_BITS, EntryRow, SlotRow
from crdtmem.store.slots import find_slot
from crdtmem.textdiff import unified
from crdtmem.views import entry_view, headroom_of, iso_time, slot_view

__all__ = ["SlotHistory", "is_undoable"]


def is_undoable(entry: EntryRow, checkpoint_lsn: int) -> bool:
    """Tell whether a commit can be taken back: it is a write, undone by none, kept."""
    return (
        entry.operation != "create"
        and not entry.is_imported
        and entry.undone_by is None
        and entry.first_lsn > checkpoint_lsn
    )


class SlotHistory:
    """What can be asked of a slot's past; each call reads one state of the store."""

    def __init__(self, session: Session, place: Place) -> None:
        self._session = session
        self._place = place
        self._scope: Scope = scope_of(place.namespace)

    def page(self, limit: int, before: str | None) -> History:
        """Return entries, newest first, without their content."""
        with self._session.store.snapshot() as connection:
            row = self._row(connection)
            place = None if before is None else self.find(connection, before).place
            entries = entries_of(connection, row.doc, before=place, limit=limit + 1)
            kept_from = self._kept_from(connection, row)
            shown = tuple(
                self._view(connection, entry, kept_from) for entry in entries[:limit]
            )
        return History(
            label=row.label,
            scope=self._scope,
            entries=shown,
            current=headroom_of(row),
            more=len(entries) > limit,
        )

    def entry(self, entry_id: str) -> HistoryEntry:
        """Return one entry with its content."""
        with self._session.store.snapshot() as connection:
            entry = self.find(connection, entry_id)
            kept_from = self._kept_from(connection, self._row(connection))
            return self._view(connection, entry, kept_from, with_content=True)

    def find(self, connection: Connection, entry_id: object) -> EntryRow:
        """Return the entry of an id, if it is one of this slot in this store.

        Raises:
            HistoryNotFoundError: If it is not.

        """
        row = self._row(connection)
        lsn = _lsn_in(entry_id)
        found = None
        if lsn is not None and row.doc:
            found = entry_at(connection, (row.doc << PLACE_BITS) | lsn)
        if found is None or found.id != entry_id:
            raise HistoryNotFoundError(label=self._place.label, id=str(entry_id))
        return found

    def view_at(self, rev: int) -> SlotView:
        """Return the slot as it was at a rev, as far as its text goes.

        Raises:
            RevNotKeptError: If the text of that rev is not kept.

        """
        with self._session.store.snapshot() as connection:
            row = self._live_row(connection)
            shadows = self._session.shadows(connection, row)
            return slot_view(self._row_at(connection, row, rev), shadows=shadows)

    def diff(self, from_rev: int, to_rev: int | Unset, limit_units: int) -> Diff:
        """Return what changed between two kept texts.

        Raises:
            RevNotKeptError: If one of them is not kept.

        """
        with self._session.store.snapshot() as connection:
            row = self._row(connection)
            old = self._row_at(connection, row, from_rev)
            new = row
            if not isinstance(to_rev, Unset):
                new = self._row_at(connection, row, to_rev)
        found = unified(
            view_of(old.file),
            view_of(new.file),
            label=row.label,
            from_rev=old.rev,
            to_rev=new.rev,
            limit_units=limit_units,
        )
        return Diff(
            from_rev=old.rev,
            to_rev=new.rev,
            unified=found.text,
            added=found.added,
            removed=found.removed,
            truncated=found.truncated,
        )

    def blame(self) -> list[BlameLine]:
        """Return who wrote each line of the present text."""
        with self._session.store.snapshot() as connection:
            row = self._live_row(connection)
            try:
                runs = blame_of(connection, row.doc) if row.doc else []
            except DocError as exc:
                raise SlotQuarantinedError(label=row.label, reason=str(exc)) from exc
        return [
            BlameLine(
                line=number,
                text=line.text,
                lane=line.author.lane if line.author else None,
                at=iso_time(line.author.at_ms) if line.author else None,
                replica=line.author.replica.hex() if line.author else None,
                others=line.others,
            )
            for number, line in enumerate(blame_lines(runs, row.file), 1)
        ]

    def _row(self, connection: Connection) -> SlotRow:
        """Return the slot's row, deleted or not, or that of its template."""
        place = self._place
        row = find_slot(connection, place.namespace, place.label)
        row = row or self._session.template(place)
        if row is None:
            raise SlotNotFoundError(label=place.label, scope=self._scope)
        return row

    def _live_row(self, connection: Connection) -> SlotRow:
        row = self._session.find(connection, self._place)
        if row is None:
            raise SlotNotFoundError(label=self._place.label, scope=self._scope)
        return row

    def _row_at(self, connection: Connection, row: SlotRow, rev: int) -> SlotRow:
        if rev == row.rev:
            return row
        entry = entry_of_rev(connection, row.doc, rev)
        if entry is None:
            entries = entries_of(connection, row.doc)
            raise RevNotKeptError(
                label=row.label,
                rev=rev,
                oldest_rev=entries[-1].rev if entries else row.rev,
                current_rev=row.rev,
                reason="ahead" if rev > row.rev else "pruned",
            )
        return row._replace(
            file=entry.file, rev=entry.rev, hash=entry.hash, size=entry.size
        )

    def _kept_from(self, connection: Connection, row: SlotRow) -> int:
        return checkpoint_lsn(connection, row.doc) if row.doc else 0

    def _view(
        self,
        connection: Connection,
        entry: EntryRow,
        kept_from: int,
        *,
        with_content: bool = False,
    ) -> HistoryEntry:
        by = entry.undone_by
        return entry_view(
            entry,
            self._place.label,
            self._scope,
            is_undoable=is_undoable(entry, kept_from),
            undone_by=entry_at(connection, by) if by else None,
            with_content=with_content,
        )


def _lsn_in(entry_id: object) -> int | None:
    """Return the step that a history id is built on."""
    if not isinstance(entry_id, str):
        return None
    head, _, _ = entry_id.partition("-")
    digits = head.removeprefix("h")
    is_number = digits.isascii() and digits.isdigit() and len(digits) < 13
    return int(digits) if is_number else None
