"""What changed in a set, and what its items were at an earlier rev."""

import json

from crdtmem.doc.text_form import units_of
from crdtmem.errors import RevNotKeptError
from crdtmem.filters import metadata_of
from crdtmem.headroom import percent_used
from crdtmem.limits import SET_ITEMS_MAX, SET_SIZE_UNITS
from crdtmem.models import UNSET, Unset
from crdtmem.sets.place import BoundSet
from crdtmem.sets.reading import After, cursor_for, headroom_fields, item_view
from crdtmem.sets.values import ItemChange, ItemHistory, ItemPage, ItemValue
from crdtmem.store.connection import Connection
from crdtmem.store.sets import (
    ItemHistoryRow,
    ItemRow,
    SetRow,
    find_set,
    history_of,
    item_from,
    items_after,
    oldest_rev,
    rows_since,
    value_after,
)
from crdtmem.views import iso_time

__all__ = ["page_as_of", "set_history"]


def set_history(
    place: BoundSet, item: str | None, limit: int, before: int | None
) -> ItemHistory:
    """Return changes, newest first; see ``MemorySet.history``."""
    with place.session.store.snapshot() as connection:
        row = find_set(connection, place.stored)
        if row is None:
            return ItemHistory(entries=(), more=False, oldest_rev=1)
        found = history_of(
            connection, row.doc, item=item, before=before, limit=limit + 1
        )
        entries = _changes(connection, found[:limit])
    return ItemHistory(
        entries=entries, more=len(found) > limit, oldest_rev=oldest_rev(row)
    )


def page_as_of(place: BoundSet, rev: int, limit: int, after: After | None) -> ItemPage:
    """Return items as they were; see ``MemorySet.as_of``.

    Raises:
        RevNotKeptError: If what happened since is not kept in full.

    """
    with place.session.store.snapshot() as connection:
        row = find_set(connection, place.stored)
        _require_kept(place, row, rev)
        items = _items_at(connection, row, rev) if row else []
    order = f"rev {rev}"
    rest = [one for one in items if after is None or _place(one) < after]
    shown, more = rest[:limit], len(rest) > limit
    fields = headroom_fields(row)
    if row is not None and rev != row.rev:
        size = sum(_size_of(one) for one in items)
        fields["item_count"], fields["size"], fields["rev"] = len(items), size, rev
        fields["free"] = max(0, SET_SIZE_UNITS - size)
        fields["pct_used"] = max(
            percent_used(len(items), SET_ITEMS_MAX), percent_used(size, SET_SIZE_UNITS)
        )
        fields["set_hash"], fields["warning"] = "", UNSET
    return ItemPage(
        **fields,
        items=tuple(item_view(one, place.name) for one in shown),
        more=more,
        cursor=cursor_for(place, shown[-1], order) if more else UNSET,
    )


def _changes(
    connection: Connection, rows: list[ItemHistoryRow]
) -> tuple[ItemChange, ...]:
    """Return rows, newest first, as changes: what was made is what the next one met."""
    following: dict[str, ItemRow | None] = {}
    entries = []
    for row in rows:
        if row.id not in following:
            following[row.id] = value_after(connection, row.doc, row.id, row.rev)
        old = item_from(row.doc, row.id, row.old)
        entries.append(
            ItemChange(
                rev=row.rev,
                item_id=row.id,
                operation=row.operation,
                lane=row.lane,
                at=iso_time(row.at_ms),
                old=_value(old),
                new=_value(following[row.id]),
            )
        )
        following[row.id] = old
    return tuple(entries)


def _items_at(connection: Connection, row: SetRow, rev: int) -> list[ItemRow]:
    """Return the items of a rev, newest first: those of now, walked back."""
    now = items_after(connection, row.doc, newest=True, limit=max(1, row.item_count))
    items = {one.id: one for one in now}
    for change in reversed(rows_since(connection, row.doc, rev + 1)):
        old = item_from(row.doc, change.id, change.old)
        if old is None:
            items.pop(change.id, None)
        else:
            items[change.id] = old
    return sorted(items.values(), key=_place, reverse=True)


def _require_kept(place: BoundSet, row: SetRow | None, rev: int) -> None:
    current = row.rev if row else 0
    oldest = oldest_rev(row) if row else 1
    if oldest - 1 <= rev <= current:
        return
    raise RevNotKeptError(
        label=place.name,
        rev=rev,
        oldest_rev=oldest - 1,
        current_rev=current,
        reason="ahead" if rev > current else "pruned",
        kind="memory set",
    )


def _size_of(row: ItemRow) -> int:
    """Return the size of an item with all its versions."""
    others = json.loads(row.conflicts) if row.conflicts else ()
    return row.size + sum(units_of(text) + units_of(meta) for text, meta, *_ in others)


def _place(row: ItemRow) -> After:
    return row.created_ms, row.id


def _value(row: ItemRow | None) -> ItemValue | Unset:
    if row is None:
        return UNSET
    return ItemValue(text=row.text, metadata=metadata_of(row.meta))
