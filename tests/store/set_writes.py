"""The short forms in which the tests of memory sets write and look.

Everything happens in one namespace, in the sets of one key.
"""

from collections.abc import Sequence
from typing import Any

from crdtmem.doc.items import ItemsDoc
from crdtmem.partition import doc_name, encode_key
from crdtmem.protocol.envelopes import (
    StateEnvelope,
    UpdateEnvelope,
    Write,
    encode_envelope,
)
from crdtmem.protocol.records import DocKind
from crdtmem.store.set_docs import set_document
from crdtmem.store.set_write import NewVersion, SetChange, write_set
from crdtmem.store.sets import (
    ItemRow,
    SetPlace,
    SetRow,
    VersionRow,
    all_items,
    find_set,
    item_from,
    versions_of,
)
from crdtmem.store.store import Store
from tests.exchange import Record
from tests.store.writes import FOREIGN, NAMESPACE

__all__ = [
    "KEY",
    "NAME",
    "PLACE",
    "add",
    "archived",
    "change",
    "document_of",
    "foreign_record",
    "items",
    "new",
    "numbered",
    "place_of",
    "remove",
    "set_row",
    "shown",
    "state_record",
    "versions",
]

KEY = encode_key("k")
PLACE = SetPlace(NAMESPACE, KEY, "notes")
NAME = doc_name(KEY, "notes")


def place_of(name: str) -> SetPlace:
    """Return another set of the same key."""
    return PLACE._replace(name=name)


def new(item_id: str, text: str = "text", meta: str = "", **fields: Any) -> NewVersion:
    """Return a version to write."""
    fields.setdefault("created_ms", 1)
    return NewVersion(item_id, text, meta, **fields)


def change(store: Store, place: SetPlace = PLACE, **fields: Any) -> SetRow:
    """Make one commit."""
    fields.setdefault("lane", "a")
    fields.setdefault("operation", "add")
    with store.writing() as transaction:
        before = find_set(transaction.connection, place)
        return write_set(transaction, before, place, SetChange(**fields))


def add(store: Store, *ids: str, place: SetPlace = PLACE) -> SetRow:
    """Add items, or update them, each with its id as its text."""
    return change(store, place, puts=[new(one, one) for one in ids])


def remove(store: Store, *ids: str, place: SetPlace = PLACE) -> SetRow:
    """Remove items."""
    return change(store, place, operation="delete", removes=ids)


def set_row(store: Store, place: SetPlace = PLACE) -> SetRow:
    """Return the row of a set."""
    with store.reading() as connection:
        row = find_set(connection, place)
    assert row is not None
    return row


def items(store: Store, place: SetPlace = PLACE) -> list[ItemRow]:
    """Return the items of a set, oldest first."""
    with store.reading() as connection:
        row = find_set(connection, place)
        return [] if row is None else all_items(connection, row.doc)


def shown(store: Store, place: SetPlace = PLACE) -> dict[str, str]:
    """Return the texts of a set's items by their ids."""
    return {item.id: item.text for item in items(store, place)}


def versions(store: Store, place: SetPlace = PLACE) -> dict[str, VersionRow]:
    """Return the live versions of a set by the names of their members."""
    row = set_row(store, place)
    with store.reading() as connection:
        ids = [item.id for item in all_items(connection, row.doc)]
        found = versions_of(connection, row.doc, ids)
    return {one.member: one for many in found.values() for one in many}


def document_of(store: Store, place: SetPlace = PLACE) -> ItemsDoc:
    """Return a set's document at its newest."""
    with store.writing() as transaction:
        row = find_set(transaction.connection, place)
        assert row is not None
        return set_document(transaction, row)


def foreign_record(
    *updates: bytes,
    seq: int = 1,
    name: str = NAME,
    replica: bytes = FOREIGN,
    **fields: Any,
) -> Record:
    """Return a record with writes of another replica."""
    plain = {
        "is_genesis": False,
        "counter": 0,
        "lane": "b",
        "at_ms": 9,
        "op": "add",
    } | fields
    writes = tuple(Write(update=update, **plain) for update in updates)  # type: ignore[arg-type] # the fields are those of Write
    envelope = UpdateEnvelope(DocKind.MEMORY_SET, name, writes)
    return Record(replica, seq, encode_envelope(envelope), 0)


def state_record(state: bytes, *, name: str = NAME, **fields: Any) -> StateEnvelope:
    """Return a whole state as another store would send it."""
    plain = {"text_sha256": bytes(32), "blame": b""} | fields
    return StateEnvelope(DocKind.MEMORY_SET, name, state=state, **plain)


def numbered(prefix: str, count: int) -> Sequence[str]:
    """Return so many ids."""
    return [f"{prefix}{number}" for number in range(count)]


def archived(connection: Any, doc: int, pass_id: bytes) -> list[ItemRow]:
    """Return the originals that a compaction took out, oldest first."""
    rows = connection.execute(
        "SELECT id, old FROM item_archive WHERE doc = :doc AND pass = :pass",
        {"doc": doc, "pass": pass_id},
    )
    found = (item_from(doc, item_id, old) for item_id, old in rows)
    items = [item for item in found if item is not None]
    return sorted(items, key=lambda item: (item.created_ms, item.id))
