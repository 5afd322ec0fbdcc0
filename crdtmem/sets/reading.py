"""What readers of a set see: pages of items, how full it is, and which sets there are.

Reads end at the rows: no document is loaded, no lock taken.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Literal, TypedDict

from crdtmem.arguments import checked_count
from crdtmem.errors import InvalidArgumentError
from crdtmem.filters import FilterItem, matches, metadata_of
from crdtmem.headroom import percent_used
from crdtmem.limits import SET_ITEMS_MAX, SET_SIZE_UNITS, SET_STATE_BYTES, SETS_MAX
from crdtmem.models import UNSET, Scope, Unset
from crdtmem.partition import decode_key, encode_key, short_form
from crdtmem.scope import namespace_of, parse_scope
from crdtmem.session import Session
from crdtmem.sets.place import BoundSet
from crdtmem.sets.values import (
    Binding,
    Item,
    ItemConflict,
    ItemPage,
    PartitionInfo,
    SetHeadroom,
    SetInfo,
)
from crdtmem.store.connection import Connection
from crdtmem.store.sets import (
    ItemRow,
    SetRow,
    find_items,
    find_set,
    items_after,
    partitions_of,
    sets_of,
)
from crdtmem.views import iso_time

__all__ = [
    "After",
    "SetHeadroomFields",
    "checked_cursor",
    "cursor_for",
    "filter_item",
    "headroom_fields",
    "headroom_now",
    "item_view",
    "items_of",
    "page_of",
    "partition_infos",
    "set_infos",
]

After = tuple[int, str]
"""Where a page ended: when its last item was made, and the item's id."""

_CURSOR_START = "s1-"
_DIGEST_CHARS = 16
_BATCH_ROWS = 1_000
_NO_SET_HASH = "0" * 16
_SOON_PERCENT, _NOW_PERCENT = 70, 90


class SetHeadroomFields(TypedDict):
    """The fields of a SetHeadroom, for the results that hold one."""

    item_count: int
    item_limit: int
    size: int
    size_limit: int
    free: int
    pct_used: int
    rev: int
    set_hash: str
    tombstones: int
    warning: str | Unset


def headroom_fields(row: SetRow | None) -> SetHeadroomFields:
    """Return how full a set is, as the fields that every result has."""
    items, size, state = (
        (row.item_count, row.size, row.state_bytes) if row else (0,) * 3
    )
    used = {
        "items": percent_used(items, SET_ITEMS_MAX),
        "size": percent_used(size, SET_SIZE_UNITS),
        "state": percent_used(state, SET_STATE_BYTES),
    }
    is_over = items > SET_ITEMS_MAX or size > SET_SIZE_UNITS or state > SET_STATE_BYTES
    free = 0 if is_over else SET_SIZE_UNITS - size
    nearest = max(used, key=used.__getitem__)
    return {
        "item_count": items,
        "item_limit": SET_ITEMS_MAX,
        "size": size,
        "size_limit": SET_SIZE_UNITS,
        "free": free,
        "pct_used": used[nearest],
        "rev": row.rev if row else 0,
        "set_hash": row.set_hash if row else _NO_SET_HASH,
        "tombstones": row.tombstones if row else 0,
        "warning": _warning(nearest, used[nearest], free),
    }


def headroom_now(place: BoundSet) -> SetHeadroom:
    """Return how full a set is."""
    with place.session.store.reading() as connection:
        return SetHeadroom(**headroom_fields(find_set(connection, place.stored)))


def item_view(row: ItemRow, set_name: str) -> Item:
    """Return an item as its readers see it."""
    conflicts: tuple[ItemConflict, ...] | Unset = UNSET
    if row.conflicts:
        conflicts = tuple(
            ItemConflict(
                text=text,
                metadata=metadata_of(meta),
                updated_at=iso_time(updated_ms),
                lane=lane,
            )
            for text, meta, updated_ms, lane in json.loads(row.conflicts)
        )
    return Item(
        id=row.id,
        set=set_name,
        text=row.text,
        metadata=metadata_of(row.meta),
        created_at=iso_time(row.created_ms),
        updated_at=iso_time(row.updated_ms),
        lane=row.lane,
        rev=row.rev,
        size=row.size,
        conflicts=conflicts,
        sources=UNSET if row.sources is None else row.sources,
    )


def items_of(place: BoundSet, ids: list[str]) -> ItemPage:
    """Return the items of some ids, in their order."""
    with place.session.store.snapshot() as connection:
        row = find_set(connection, place.stored)
        found = find_items(connection, row.doc, ids) if row else {}
    return ItemPage(
        **headroom_fields(row),
        items=tuple(item_view(found[i], place.name) for i in ids if i in found),
        more=False,
        missing=tuple(i for i in ids if i not in found),
    )


def page_of(
    place: BoundSet,
    filters: Mapping[str, Any] | None,
    limit: int,
    order: Literal["newest", "oldest"],
    after: After | None,
) -> ItemPage:
    """Return the next items of a set that a filter chooses."""
    with place.session.store.snapshot() as connection:
        row = find_set(connection, place.stored)
        found: list[ItemRow] = []
        if row is not None:
            # One more than is shown tells whether there is more.
            is_newest = order == "newest"
            if filters is None:
                found = items_after(
                    connection, row.doc, newest=is_newest, after=after, limit=limit + 1
                )
            else:
                every = _all_items(connection, row.doc, after, newest=is_newest)
                found = _first(every, filters, limit + 1)
    shown, more = found[:limit], len(found) > limit
    return ItemPage(
        **headroom_fields(row),
        items=tuple(item_view(one, place.name) for one in shown),
        more=more,
        cursor=cursor_for(place, shown[-1], order) if more else UNSET,
    )


def set_infos(session: Session, binding: Binding, limit: int) -> list[SetInfo]:
    """Return the sets of a binding's key, by name."""
    key = short_form(binding.encoded_key)
    with session.store.reading() as connection:
        rows = sets_of(connection, binding.namespace, key, limit)
    return [
        SetInfo(
            **headroom_fields(row),
            name=row.name,
            created_at=iso_time(row.created_ms),
            updated_at=iso_time(row.updated_ms),
        )
        for row in rows
        # Another key with the same short form has its sets for itself.
        if row.key_long == binding.encoded_key
    ]


def partition_infos(
    session: Session, scope: Scope, prefix: object, limit: int
) -> list[PartitionInfo]:
    """Return the keys that have sets; see ``Memory.partitions``."""
    where = parse_scope(scope, optional=True) or "project"
    limit = checked_count(limit, "limit", SETS_MAX)
    if not isinstance(prefix, tuple):
        kind = type(prefix).__name__
        message = f"prefix must be a tuple of keys, not a value of type {kind}"
        raise InvalidArgumentError("prefix", message)
    start = encode_key(prefix)[:-1] if prefix else ""
    with session.store.reading() as connection:
        namespace = namespace_of(where, session.project)
        rows = partitions_of(connection, namespace, limit, prefix=start)
    return [
        PartitionInfo(
            partition_key=decode_key(row.key_long),
            encoded_key=row.key_long,
            sets=row.sets,
            item_count=row.items,
        )
        for row in rows
    ]


def cursor_for(place: BoundSet, row: ItemRow, order: str) -> str:
    """Return the cursor that leads on behind an item."""
    where = json.dumps([_digest(place, order), row.created_ms, row.id])
    return _CURSOR_START + where.encode().hex()


def checked_cursor(place: BoundSet, cursor: object, order: str) -> After | None:
    """Return where a page ended, by its cursor; None without one.

    Raises:
        InvalidArgumentError: ``invalid-cursor``: it is malformed, or of another set or
            order.

    """
    if cursor is None:
        return None
    text = cursor if isinstance(cursor, str) else ""
    try:
        found = json.loads(bytes.fromhex(text.removeprefix(_CURSOR_START)))
        digest, created_ms, item = found
    except (ValueError, TypeError):
        digest, created_ms, item = None, 0, ""
    is_fine = isinstance(created_ms, int) and isinstance(item, str)
    if not is_fine or digest != _digest(place, order):
        raise InvalidArgumentError(
            "cursor",
            f"cursor must be one of memory set {place.name!r} in this order, not"
            f" {cursor!a:.40}",
            code="invalid-cursor",
            hint="leave the cursor out to begin anew",
        )
    return created_ms, item


def filter_item(row: ItemRow) -> FilterItem:
    """Return what a filter sees of an item."""
    return FilterItem(
        row.id,
        row.lane,
        iso_time(row.created_ms),
        iso_time(row.updated_ms),
        metadata_of(row.meta),
    )


def _digest(place: BoundSet, order: str) -> str:
    where = json.dumps([*place.stored, order])
    return hashlib.sha256(where.encode()).hexdigest()[:_DIGEST_CHARS]


def _all_items(
    connection: Connection, doc: int, after: After | None, *, newest: bool
) -> Iterator[ItemRow]:
    while True:
        rows = items_after(
            connection, doc, newest=newest, after=after, limit=_BATCH_ROWS
        )
        yield from rows
        if len(rows) < _BATCH_ROWS:
            return
        after = rows[-1].created_ms, rows[-1].id


def _first(
    rows: Iterable[ItemRow], filters: Mapping[str, Any], count: int
) -> list[ItemRow]:
    found: list[ItemRow] = []
    for row in rows:
        if matches(filters, filter_item(row)):
            found.append(row)
            if len(found) == count:
                break
    return found


def _warning(nearest: str, percent: int, free: int) -> str | Unset:
    if percent < _SOON_PERCENT:
        return UNSET
    what = "use another set" if nearest == "state" else "compact it or delete items"
    when = "before the next large add" if percent < _NOW_PERCENT else "now"
    return (
        f"memory set is {percent} % full ({nearest}), {free} characters free:"
        f" {what} {when}"
    )
