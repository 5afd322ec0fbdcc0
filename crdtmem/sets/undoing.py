"""Undo of a commit to a set, item by item.

An item that has changed since is left alone: no later write is ever removed.
"""

from crdtmem.arguments import Request
from crdtmem.errors import HistoryNotFoundError
from crdtmem.sets.place import BoundSet
from crdtmem.sets.reading import headroom_fields
from crdtmem.sets.values import ItemUndoResult
from crdtmem.sets.writing import SetWrite, set_write
from crdtmem.store.set_write import NewVersion, SetChange
from crdtmem.store.sets import (
    ItemHistoryRow,
    ItemRow,
    SetRow,
    history_of,
    item_from,
    oldest_rev,
    rows_since,
)

__all__ = ["undo_commit"]


def undo_commit(
    place: BoundSet, rev: int, request: Request | None
) -> tuple[ItemUndoResult, dict[str, str], frozenset[str]]:
    """Take back a commit; see ``MemorySet.undo``.

    Returns:
        The result, the texts that items have got, and which of them were there.

    """
    with set_write(place, request) as write:
        if write.replayed is not None:
            return ItemUndoResult(**write.replayed), {}, frozenset()
        before = _row_with(write, rev)
        undo = _Undo(write, before, rev)
        row = undo.commit() if undo.puts or undo.removes else before
        result = ItemUndoResult(
            **headroom_fields(row),
            restored=tuple(put.id for put in undo.puts),
            removed=tuple(undo.removes),
            kept=tuple(undo.kept),
        )
        texts = {put.id: put.text for put in undo.puts}
        return write.finish(result), texts, frozenset(undo.present)


class _Undo:
    """What an undo does, computed and not yet written."""

    def __init__(self, write: SetWrite, row: SetRow, rev: int) -> None:
        self.write, self.row, self.rev = write, row, rev
        self.puts: list[NewVersion] = []
        self.removes: list[str] = []
        self.kept: list[str] = []
        connection = write.transaction.connection
        changes = rows_since(connection, row.doc, rev, until=rev)
        self.present = write.items([change.id for change in changes])
        for change in changes:
            self._take_back(change)

    def commit(self) -> SetRow:
        """Write it as a commit of its own."""
        gone = [one.id for one in self.puts if one.id in self.present]
        self.write.require_room(self.puts, [*gone, *self.removes])
        return self.write.write(
            SetChange(
                operation="undo",
                lane=self.write.lane,
                puts=self.puts,
                removes=self.removes,
                details={"undone": self.rev},
            )
        )

    def _take_back(self, change: ItemHistoryRow) -> None:
        connection = self.write.transaction.connection
        newest = history_of(connection, self.row.doc, item=change.id, limit=1)[0]
        if newest.rev != self.rev:
            self.kept.append(change.id)
            return
        old = item_from(self.row.doc, change.id, change.old)
        if old is None:
            self.removes.append(change.id)
        else:
            self.puts.append(_again(old))


def _row_with(write: SetWrite, rev: int) -> SetRow:
    """Return the set, if it keeps all of a commit.

    Raises:
        HistoryNotFoundError: If it does not.

    """
    row = write.row
    if row is None or not oldest_rev(row) <= rev <= row.rev:
        raise HistoryNotFoundError(
            label=write.place.name, id=f"rev {rev}", kind="memory set"
        )
    return row


def _again(old: ItemRow) -> NewVersion:
    return NewVersion(
        id=old.id,
        text=old.text,
        meta=old.meta,
        created_ms=old.created_ms,
        sources=old.sources,
    )
