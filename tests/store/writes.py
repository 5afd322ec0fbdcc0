"""The short forms in which the tests of the store write, look and do damage.

Everything happens in one namespace. Damage is done through a connection of its own,
past the lock and the cache of the store, as another process would.
"""

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import apsw

from crdtmem.doc.delta import Splice
from crdtmem.protocol.envelopes import UpdateEnvelope, Write, encode_envelope
from crdtmem.protocol.records import DocKind, client_id
from crdtmem.store.history import entries_of
from crdtmem.store.lock import is_locked
from crdtmem.store.log import log_of
from crdtmem.store.rows import EntryRow, LogRow, SlotRow
from crdtmem.store.slots import find_slot
from crdtmem.store.store import Store
from crdtmem.store.write import Change, Transaction
from tests.exchange import Record

__all__ = [
    "FOREIGN",
    "FOREIGN_CLIENT",
    "NAMESPACE",
    "append",
    "append_in",
    "contents_of",
    "create",
    "damage",
    "entries",
    "is_lock_free",
    "log",
    "own_client",
    "quarantined",
    "record",
    "slot",
    "texts",
    "value",
]

NAMESPACE = "p"
FOREIGN = hashlib.sha256(b"another replica").digest()[:16]
FOREIGN_CLIENT = client_id(FOREIGN, 0)


def append_in(transaction: Transaction, label: str, line: str) -> SlotRow:
    """Append a line in a transaction; return the slot's row."""
    row = transaction.slot(NAMESPACE, label)
    end = len(row.file) if row else 0
    delta = (Splice(end, end, f"{line}\n"),)
    change = Change(operation="append", lane="a", delta=delta)
    return transaction.write_slot(row, NAMESPACE, label, change)[0]


def append(store: Store, label: str, *lines: str) -> SlotRow:
    """Append lines, each in a transaction of its own."""
    for line in lines:
        with store.writing() as transaction:
            row = append_in(transaction, label, line)
    return row


def create(
    store: Store, label: str, file: str, meta: Mapping[str, object] | None = None
) -> SlotRow:
    """Make a slot with a first text."""
    change = Change(
        operation="create", lane="a", genesis=file, meta=meta or {}, keeps_rev=True
    )
    with store.writing() as transaction:
        return transaction.write_slot(None, NAMESPACE, label, change)[0]


def slot(store: Store, label: str) -> SlotRow:
    """Return a slot's row."""
    with store.reading() as connection:
        row = find_slot(connection, NAMESPACE, label)
    assert row is not None
    return row


def texts(store: Store) -> dict[str, str]:
    """Return the text file of each slot."""
    with store.reading() as connection:
        return dict(connection.execute("SELECT label, file FROM slot ORDER BY label"))


def entries(store: Store, label: str) -> list[EntryRow]:
    """Return a slot's history, newest first."""
    doc = slot(store, label).doc
    with store.reading() as connection:
        return entries_of(connection, doc)


def log(store: Store, label: str) -> list[LogRow]:
    """Return a slot's records."""
    doc = slot(store, label).doc
    with store.reading() as connection:
        return log_of(connection, doc, after=0)


def value(store: Store, statement: str) -> Any:
    """Return the first value that a statement gives."""
    with store.reading() as connection:
        return connection.execute(statement).get


def quarantined(store: Store) -> list[tuple[str, bytes]]:
    """Return code and content of each write in quarantine."""
    with store.reading() as connection:
        rows = connection.execute("SELECT code, content FROM quarantine ORDER BY id")
        return [(str(code), bytes(content)) for code, content in rows]


def is_lock_free(store: Store) -> bool:
    """Tell whether nobody holds the write lock, this process included."""
    return not is_locked(store.lock.path)


def own_client(store: Store) -> int:
    """Return the Yjs client id under which a store writes."""
    return client_id(value(store, "SELECT replica FROM store"), 0)


def damage(store: Store, statement: str, *values: Any) -> None:
    """Change a store's file behind its back."""
    connection = apsw.Connection(str(store.path))
    connection.execute(statement, values)
    connection.close()


def contents_of(folder: Path) -> dict[str, tuple[bytes, int]]:
    """Return bytes and time of change of each file; nothing may have them open."""
    return {
        path.name: (path.read_bytes(), path.stat().st_mtime_ns)
        for path in sorted(folder.iterdir())
    }


def record(update: bytes, *, seq: int = 1, label: str = "plan", **of: Any) -> Record:
    """Make a record of the foreign replica with one write in it."""
    plain = {"is_genesis": False, "counter": 0, "lane": "x", "at_ms": 5, "op": "edit"}
    write = Write(**{**plain, "update": update, **of})
    envelope = UpdateEnvelope(DocKind.SLOT, label, (write,))
    return Record(FOREIGN, seq, encode_envelope(envelope), origin=0)
