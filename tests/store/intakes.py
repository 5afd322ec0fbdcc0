"""What the tests of the intake write by hand, and where they look afterwards."""

import json

from crdtmem.protocol.records import (
    DocKind,
    doc_tag,
)
from crdtmem.store.doctor import examine
from crdtmem.store.intake import take_held
from crdtmem.store.links import link_in
from tests.store.writes import (
    FOREIGN_CLIENT,
    own_client,
    slot,
    texts,
    value,
)
from tests.yjs_bytes import text, update

__all__ = [
    "NEW",
    "TAG",
    "THIRD",
    "behind",
    "checked",
    "everything",
    "held",
    "held_labels",
    "link_row",
    "more",
    "reloaded",
    "retry_held",
    "seen",
    "sync_doc",
]

THIRD = b"a third replica!"
TAG = doc_tag(DocKind.SLOT, "plan")
NEW = update((FOREIGN_CLIENT, 0, [text("new\n", root="content")]))


def behind(store, line="x\n", *, clock=0, client=FOREIGN_CLIENT):
    """Return a write behind the line 'mine'."""
    return update((client, clock, [text(line, origin=(own_client(store), 4))]))


def more(line="x\n", *, clock, client=FOREIGN_CLIENT):
    """Return a write behind an earlier one of the same replica."""
    return update((client, clock, [text(line, origin=(client, clock - 1))]))


def held(store):
    """Return seq, label and code of each record that waits."""
    with store.reading() as connection:
        rows = connection.execute(
            "SELECT seq, coalesce(name, ''), code FROM held LEFT JOIN doc USING (doc)"
            " ORDER BY seq"
        )
        return list(rows)


def retry_held(store, link, doc):
    """Try a doc's held records again; return how many still wait."""
    with store.writing() as transaction:
        return take_held(transaction, store, link_in(transaction, link), doc)


def held_labels(store):
    with store.reading() as connection:
        rows = connection.execute(
            "SELECT name, held_from FROM sync_doc JOIN doc USING (doc)"
            " WHERE held_from IS NOT NULL ORDER BY name"
        )
        return dict(rows)


def link_row(store, column):
    return {
        "cursor": value(store, "SELECT cursor_seq FROM link"),
        "acked": value(store, "SELECT acked_seq FROM link"),
        "skipped": value(store, "SELECT skipped FROM link"),
        "alarms": json.loads(value(store, "SELECT alarms FROM link")),
    }[column]


def seen(store):
    with store.reading() as connection:
        return list(connection.execute("SELECT seq, record_id, doc_tag FROM sync_seen"))


def sync_doc(store, label="plan"):
    """Return last_seq, snap_seq, snap_size, live_bytes and live_records."""
    with store.reading() as connection:
        (row,) = connection.execute(
            "SELECT last_seq, snap_seq, snap_size, live_bytes, live_records"
            " FROM sync_doc JOIN doc USING (doc) WHERE name = ?",
            (label,),
        )
        return row


def everything(store):
    """Return all that a batch could change."""
    tables = [
        "link", "outbox", "sync_seen", "chain_sample", "sync_doc", "held", "slot",
        "log", "history", "doc", "stream", "store", "quarantine",
    ]  # fmt: skip
    with store.reading() as connection:
        return {
            table: list(connection.execute("SELECT * FROM " + table))
            for table in tables
        }


def reloaded(store):
    """Hold every slot's document against its records."""
    store.docs.clear()
    with store.writing() as transaction:
        for label in texts(store):
            transaction.document(slot(store, label)).check()


def checked(store):
    """Tell whether neither that nor the doctor finds a fault."""
    reloaded(store)
    found = examine(store, namespaces=None, repair=False, deep=True)
    return [one for one in found if one.status == "fail"] == []
