"""The lines of an export that are items of memory sets, written and read.

An item stands alone: its line names the set and the partition that it is in.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from crdtmem.filters import checked_metadata, metadata_of
from crdtmem.limits import SETS_MAX, TIME_MAX_MS, UINT_MAX
from crdtmem.models import Scope
from crdtmem.partition import checked_set_name, decode_key, short_form
from crdtmem.scope import parse_lane, scope_of
from crdtmem.sets.arguments import NewItem, checked_id, checked_text, require_item_size
from crdtmem.store.connection import Connection
from crdtmem.store.sets import ItemRow, SetRow, items_after, partitions_of, sets_of
from crdtmem.transfer.fields import BadRecordError, at_ms_of, field_of, scope_in
from crdtmem.views import iso_time

__all__ = [
    "ItemRecord",
    "ItemVersion",
    "SetKey",
    "derived_ids",
    "item_in",
    "item_records",
    "suffix_of",
]

_BATCH_ROWS = 1_000
_BASE32 = "0123456789abcdefghjkmnpqrstvwxyz"
_ID_CHARS = 20
_SUFFIX_CHARS = 10


class SetKey(NamedTuple):
    """Which set, wherever it is: ``key_long`` is the long form of its partition key."""

    scope: Scope
    key_long: str
    name: str


class ItemVersion(NamedTuple):
    """A version of an item; ``meta`` is canonical JSON, or empty."""

    text: str
    meta: str
    updated_ms: int
    lane: str


class ItemRecord(NamedTuple):
    """An item of a source.

    Attributes:
        line: Where it stands, from 1.
        id: As given; empty where none is.
        created_ms: When it was made.
        versions: The one that is shown, then those in conflict with it.
        sources: Of a summary: how many items it stands for.

    """

    line: int
    id: str
    created_ms: int
    versions: tuple[ItemVersion, ...]
    sources: int | None

    @property
    def shown(self) -> ItemVersion:
        """Return the version that readers see."""
        return self.versions[0]


def item_records(
    connection: Connection, namespace: str, project: str
) -> Iterator[dict[str, object]]:
    """Yield a record for each item of a namespace, set by set, oldest first."""
    for partition in partitions_of(connection, namespace, SETS_MAX):
        key_short = short_form(partition.key_long)
        for row in sets_of(connection, namespace, key_short, SETS_MAX):
            place = {
                "scope": scope_of(namespace),
                "project": project,
                "partitionKey": row.key_long,
                "set": row.name,
            }
            for item in _items_of(connection, row):
                yield _item_record(item, place)


def item_in(number: int, record: dict[str, Any]) -> tuple[SetKey, ItemRecord]:
    """Return the item of a record, and the set that it is in.

    Raises:
        BadRecordError: If a field is missing, or of another type.
        InvalidArgumentError: If a value is none that it may have.
        SetLimitError: If it is too large.

    """
    key_long = field_of(record, "partitionKey", str)
    decode_key(key_long)
    place = SetKey(
        scope_in(record), key_long, checked_set_name(field_of(record, "set", str))
    )
    conflicts = field_of({"conflicts": [], **record}, "conflicts", list)
    sources = field_of({"sources": 0, **record}, "sources", int)
    if not 0 <= sources <= UINT_MAX:
        raise BadRecordError("bad-type", f"sources is no count: {sources}")
    return place, ItemRecord(
        line=number,
        id=checked_id(record["id"]) if "id" in record else "",
        created_ms=min(at_ms_of(record, "createdAt"), TIME_MAX_MS),
        versions=tuple(map(_version_in, [record, *conflicts])),
        sources=sources or None,
    )


def derived_ids(place: SetKey, items: Iterable[ItemRecord]) -> Iterator[str]:
    """Yield the id of each item: its own, or one that follows from what it is.

    Two stores that import one source give an item the same.
    """
    counts: dict[ItemVersion, int] = {}
    for item in items:
        number = counts[item.shown] = counts.get(item.shown, 0) + 1
        what = [place.key_long, place.name, item.shown.text, item.shown.meta, number]
        yield item.id or _derived(what, _ID_CHARS)


def suffix_of(place: SetKey, item_id: str, version: ItemVersion, number: int) -> str:
    """Return what tells a version from the others of its item, from what it is."""
    what = [place.key_long, place.name, item_id, version.text, version.meta, number]
    return _derived(what, _SUFFIX_CHARS)


def _derived(what: list[object], chars: int) -> str:
    written = json.dumps(what, ensure_ascii=False, separators=(",", ":"))
    number = int.from_bytes(hashlib.sha256(written.encode()).digest())
    return "".join(_BASE32[(number >> (5 * i)) & 31] for i in range(chars))


def _items_of(connection: Connection, row: SetRow) -> Iterator[ItemRow]:
    after = None
    while items := items_after(
        connection, row.doc, newest=False, after=after, limit=_BATCH_ROWS
    ):
        yield from items
        after = items[-1].created_ms, items[-1].id


def _item_record(item: ItemRow, place: dict[str, str]) -> dict[str, object]:
    record: dict[str, object] = {
        "type": "item",
        **place,
        "id": item.id,
        "text": item.text,
        "metadata": metadata_of(item.meta),
        "createdAt": iso_time(item.created_ms),
        "updatedAt": iso_time(item.updated_ms),
        "lane": item.lane,
    }
    if item.sources is not None:
        record["sources"] = item.sources
    if item.conflicts:
        record["conflicts"] = [
            {
                "text": text,
                "metadata": metadata_of(meta),
                "updatedAt": iso_time(updated_ms),
                "lane": lane,
            }
            for text, meta, updated_ms, lane in json.loads(item.conflicts)
        ]
    return record


def _version_in(record: Any) -> ItemVersion:
    if not isinstance(record, dict):
        record = {}
    found = NewItem(
        checked_text(field_of(record, "text", str)),
        checked_metadata(field_of(record, "metadata", dict)),
    )
    require_item_size(found)
    return ItemVersion(
        found.text,
        found.meta,
        min(at_ms_of(record, "updatedAt"), TIME_MAX_MS),
        parse_lane(field_of(record, "lane", str)),
    )
