"""Rows of memory sets and of their items: reads end here and never load a document.

Every statement about items names the doc that they are of, so nothing that a caller
passes beside it can reach another set.
"""

import json
from collections.abc import Collection
from typing import NamedTuple

import apsw

from crdtmem.errors import ItemConflictError
from crdtmem.partition import doc_name

__all__ = [
    "ItemHistoryRow",
    "ItemRow",
    "PartitionRow",
    "SetPlace",
    "SetRow",
    "VersionRow",
    "all_items",
    "count_sets",
    "find_items",
    "find_set",
    "history_of",
    "item_from",
    "items_after",
    "oldest_rev",
    "partitions_of",
    "rows_since",
    "set_of_doc",
    "sets_of",
    "value_after",
    "versions_of",
]


class SetPlace(NamedTuple):
    """Which set: ``key_long`` is the long form of its partition key."""

    namespace: str
    key_long: str
    name: str


class SetRow(NamedTuple):
    """A set as materialised.

    ``key_long`` and ``name`` are empty where only ``name_in_doc`` is known, and hashes
    stand for them in it. ``size`` counts the UTF-16 units of live versions,
    ``state_bytes`` what the doc's state is taken to weigh, ``tombstones`` the versions
    that were replaced or deleted. ``members`` are the live ones of the doc, foreign
    ones and the header too, and ``live_bytes`` their size. ``unsquashed`` counts the
    members that the rows behind the checkpoint changed.
    """

    doc: int
    namespace: str
    name_in_doc: str
    key_long: str
    key_short: str
    name: str
    rev: int
    item_count: int
    size: int
    state_bytes: int
    tombstones: int
    set_hash: str
    dropped_ms: int | None
    created_ms: int
    updated_ms: int
    lsn: int
    quarantined: str | None
    has_header: int
    foreign_count: int
    members: int
    live_bytes: int
    history_rows: int
    history_bytes: int
    oldest_rev: int
    unsquashed: int
    operation: str
    lane: str

    @property
    def place(self) -> SetPlace:
        """Which set it is."""
        return SetPlace(self.namespace, self.key_long, self.name)


class ItemRow(NamedTuple):
    """An item as it is shown: the version of the greatest (updated_ms, member).

    ``conflicts`` are the other versions, newest first, as a JSON list of
    [text, meta, updated_ms, lane]; empty for none. ``rev`` is the set's at the item's
    last change, ``size`` that of text and metadata, ``meta`` canonical JSON or empty.
    """

    doc: int
    id: str
    text: str
    meta: str
    created_ms: int
    updated_ms: int
    lane: str
    rev: int
    size: int
    sources: int | None
    conflicts: str


class VersionRow(NamedTuple):
    """A live version of an item; see ItemRow."""

    doc: int
    member: str
    id: str
    text: str
    meta: str
    created_ms: int
    updated_ms: int
    lane: str
    sources: int | None


class ItemHistoryRow(NamedTuple):
    """What a commit did to an item.

    ``old`` is the item before it, for ``item_from``; empty where there was none.
    """

    doc: int
    rev: int
    n: int
    id: str
    operation: str
    lane: str
    at_ms: int
    old: str


class PartitionRow(NamedTuple):
    """A partition key with its sets and all their items."""

    key_long: str
    sets: int
    items: int


def find_set(connection: apsw.Connection, place: SetPlace) -> SetRow | None:
    """Return the row of a set, a dropped one too.

    Raises:
        ItemConflictError: ``partition-key-collision`` if another key has the same
            short form.

    """
    for row in connection.execute(
        "SELECT * FROM mset WHERE namespace = :namespace AND name_in_doc = :name",
        {
            "namespace": place.namespace,
            "name": doc_name(place.key_long, place.name),
        },
    ):
        found = SetRow(*row)
        if found.key_long and found.key_long != place.key_long:
            raise ItemConflictError(
                f"the partition key of memory set {place.name!r} and another one have"
                f" the same short form {found.key_short!r}",
                code="partition-key-collision",
                details={"set": place.name, "shortForm": found.key_short},
            )
        return found
    return None


def set_of_doc(connection: apsw.Connection, doc: int) -> SetRow | None:
    """Return the row of a doc's set."""
    for row in connection.execute("SELECT * FROM mset WHERE doc = :doc", {"doc": doc}):
        return SetRow(*row)
    return None


def sets_of(
    connection: apsw.Connection, namespace: str, key_short: str, limit: int
) -> list[SetRow]:
    """Return the sets of a partition key by name, without dropped ones.

    One whose name nobody knows, because its header has not come, is left out.
    """
    rows = connection.execute(
        "SELECT * FROM mset WHERE namespace = :namespace AND key_short = :key"
        " AND name != '' AND dropped_ms IS NULL ORDER BY name LIMIT :limit",
        {"namespace": namespace, "key": key_short, "limit": limit},
    )
    return [SetRow(*row) for row in rows]


def partitions_of(
    connection: apsw.Connection, namespace: str, limit: int, *, prefix: str = ""
) -> list[PartitionRow]:
    """Return the partition keys of a namespace with what they hold, by long form.

    Args:
        connection: The store's.
        namespace: The namespace.
        limit: Most of them.
        prefix: Only tuples that begin so: the long form of the beginning, without its
            last ")"; empty for all keys.

    """
    rows = connection.execute(
        "SELECT key_long, count(*), sum(item_count) FROM mset"
        " WHERE namespace = :namespace AND dropped_ms IS NULL AND name != ''"
        " AND (:prefix = '' OR (substr(key_long, 1, length(:prefix)) = :prefix"
        " AND substr(key_long, length(:prefix) + 1, 1) IN (',', ')')))"
        " GROUP BY key_long ORDER BY key_long LIMIT :limit",
        {"namespace": namespace, "prefix": prefix, "limit": limit},
    )
    return [PartitionRow(*row) for row in rows]


def count_sets(connection: apsw.Connection, namespace: str) -> int:
    """Return how many sets a namespace has, without dropped ones."""
    count = connection.execute(
        "SELECT count(*) FROM mset WHERE namespace = :namespace AND dropped_ms IS NULL",
        {"namespace": namespace},
    ).get
    return int(count)


def find_items(
    connection: apsw.Connection, doc: int, ids: Collection[str]
) -> dict[str, ItemRow]:
    """Return items of a set by their ids, those that are there."""
    rows = connection.execute(
        "SELECT item.* FROM json_each(:ids) AS wanted CROSS JOIN item"
        " WHERE doc = :doc AND item.id = wanted.value",
        {"doc": doc, "ids": json.dumps(list(ids))},
    )
    return {str(row[1]): ItemRow(*row) for row in rows}


def all_items(connection: apsw.Connection, doc: int) -> list[ItemRow]:
    """Return all items of a set, oldest first."""
    return items_after(connection, doc, newest=False, limit=-1)


def items_after(
    connection: apsw.Connection,
    doc: int,
    *,
    newest: bool,
    after: tuple[int, str] | None = None,
    limit: int,
) -> list[ItemRow]:
    """Return items of a set by (created_ms, id).

    Args:
        connection: The store's.
        doc: The set's.
        newest: Newest first, else oldest first.
        after: Only those behind this place, in that order.
        limit: Most of them.

    """
    statement = _NEWEST_ITEMS if newest else _OLDEST_ITEMS
    # Before or behind every item.
    place = (1 << 62, "") if newest else (-1, "")
    created_ms, item_id = after or place
    rows = connection.execute(
        statement, {"doc": doc, "created": created_ms, "id": item_id, "limit": limit}
    )
    return [ItemRow(*row) for row in rows]


def versions_of(
    connection: apsw.Connection, doc: int, ids: Collection[str]
) -> dict[str, list[VersionRow]]:
    """Return the live versions of items, the one that is shown first."""
    items = find_items(connection, doc, ids)
    found: dict[str, list[VersionRow]] = {}
    for item_id, member, created_ms, sources in connection.execute(
        "SELECT version.id, member, created_ms, sources"
        " FROM json_each(:ids) AS wanted CROSS JOIN version"
        " WHERE doc = :doc AND version.id = wanted.value"
        " ORDER BY version.id, updated_ms DESC, member DESC",
        {"doc": doc, "ids": json.dumps(list(items))},
    ):
        known = found.setdefault(item_id, [])
        text, meta, updated_ms, lane = _shown(items[item_id], len(known))
        known.append(
            VersionRow(
                doc, member, item_id, text, meta, created_ms, updated_ms, lane, sources
            )
        )
    return found


def _shown(item: ItemRow, place: int) -> tuple[str, str, int, str]:
    if not place:
        return item.text, item.meta, item.updated_ms, item.lane
    text, meta, updated_ms, lane = json.loads(item.conflicts)[place - 1]
    return text, meta, updated_ms, lane


def history_of(
    connection: apsw.Connection,
    doc: int,
    *,
    item: str | None = None,
    before: int | None = None,
    limit: int,
) -> list[ItemHistoryRow]:
    """Return what was done to a set's items, newest first.

    Args:
        connection: The store's.
        doc: The set's.
        item: Only of this one.
        before: Only of revs before this one.
        limit: Most of them.

    """
    statement = _HISTORY if item is None else _HISTORY_OF_ITEM
    rows = connection.execute(
        statement,
        {
            "doc": doc,
            "id": item,
            "before": (1 << 62) if before is None else before,
            "limit": limit,
        },
    )
    return [ItemHistoryRow(*row) for row in rows]


def rows_since(
    connection: apsw.Connection, doc: int, rev: int, *, until: int | None = None
) -> list[ItemHistoryRow]:
    """Return what the commits from one rev to another did, oldest first."""
    rows = connection.execute(
        "SELECT * FROM item_history WHERE doc = :doc AND rev >= :rev AND rev <= :until"
        " ORDER BY rev, n",
        {"doc": doc, "rev": rev, "until": (1 << 62) if until is None else until},
    )
    return [ItemHistoryRow(*row) for row in rows]


def value_after(
    connection: apsw.Connection, doc: int, item: str, rev: int
) -> ItemRow | None:
    """Return an item as it was after a rev, by what was done to it since."""
    for (old,) in connection.execute(
        # Named: the planner would look through all that was done to the set since.
        "SELECT old FROM item_history INDEXED BY item_history_id"
        " WHERE doc = :doc AND id = :id AND rev > :rev ORDER BY rev, n LIMIT 1",
        {"doc": doc, "id": item, "rev": rev},
    ):
        return item_from(doc, item, old)
    return find_items(connection, doc, (item,)).get(item)


def item_from(doc: int, item: str, old: str) -> ItemRow | None:
    """Return the item that a row of the history or of an archive holds."""
    return ItemRow(doc, item, *json.loads(old)) if old else None


def oldest_rev(row: SetRow) -> int:
    """Return the first rev from which on the whole history is kept."""
    return max(row.oldest_rev, 1)


_NEWEST_ITEMS = (
    "SELECT * FROM item WHERE doc = :doc AND (created_ms, id) < (:created, :id)"
    " ORDER BY created_ms DESC, id DESC LIMIT :limit"
)

_OLDEST_ITEMS = (
    "SELECT * FROM item WHERE doc = :doc AND (created_ms, id) > (:created, :id)"
    " ORDER BY created_ms, id LIMIT :limit"
)

_HISTORY = (
    "SELECT * FROM item_history WHERE doc = :doc AND rev < :before"
    " ORDER BY rev DESC, n DESC LIMIT :limit"
)

_HISTORY_OF_ITEM = (
    "SELECT * FROM item_history INDEXED BY item_history_id"
    " WHERE doc = :doc AND id = :id AND rev < :before"
    " ORDER BY rev DESC, n DESC LIMIT :limit"
)
