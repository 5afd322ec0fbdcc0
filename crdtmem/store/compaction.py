"""Snapshots: which docs are due, and the record that covers what came before it.

A snapshot says that all records of its doc up to the link's cursor are in it, so the
relay may drop them. It is sealed only where nothing waits to be sent: a refusal then
delays no write.
"""

from typing import Any

import apsw

from crdtmem.errors import CrdtmemError
from crdtmem.limits import SNAPSHOT_LIVE_BYTES, SNAPSHOT_LIVE_RECORDS
from crdtmem.protocol.records import RecordKind
from crdtmem.store.holding import has_hole
from crdtmem.store.links import Link, link_at, link_in
from crdtmem.store.outbox import forget_live
from crdtmem.store.records import SealedDoc, durable_writing, put_record
from crdtmem.store.rotation import snapshot_made
from crdtmem.store.states import make_state
from crdtmem.store.store import Store

__all__ = ["due_docs", "seal_snapshot"]


def due_docs(store: Store, link: Link) -> list[int]:
    """Return the docs of which the relay keeps more than a snapshot would take.

    And those of which it has none under the newest key, after that was told of here.

    Raises:
        LinkChangedError: If the store has other ids by now.
        LinkNotFoundError: If the link was removed.

    """
    with store.snapshot() as connection:
        found = link_at(connection, link)
        rows: list[Any] = connection.execute(
            "SELECT doc FROM sync_doc WHERE link = :link"
            " AND (live_bytes > max(:bytes, snap_size) OR live_records > :records"
            " OR rekey)"
            " ORDER BY doc",
            {
                "link": found.link,
                "bytes": SNAPSHOT_LIVE_BYTES,
                "records": SNAPSHOT_LIVE_RECORDS,
            },
        ).fetchall()
        return [int(doc) for (doc,) in rows if _is_whole(connection, found, int(doc))]


def seal_snapshot(
    store: Store, link: Link, doc: int, *, max_snapshot_bytes: int
) -> bool:
    """Seal a snapshot of a doc that covers it up to the link's cursor.

    Args:
        store: The store.
        link: The link, as it was when its connection was made.
        doc: The doc.
        max_snapshot_bytes: Longest snapshot that the relay takes.

    Returns:
        Whether it was: not while anything waits to be sent, nor while records of the
        doc wait to be applied. One that cannot be made, or that is too long, is tried
        again when as many records have come once more.

    Raises:
        LinkChangedError: If the store has other ids by now.
        LinkNotFoundError: If the link was removed.

    """
    with durable_writing(store) as transaction:
        connection = transaction.connection
        found = link_in(transaction, link)
        names: list[Any] = connection.execute(
            "SELECT kind, name FROM doc WHERE doc = :doc", {"doc": doc}
        ).fetchall()
        if (
            not names
            or not found.cursor.seq
            or _has_unsent(connection, found)
            or not _is_whole(connection, found, doc)
        ):
            return False
        try:
            with connection:
                put_record(
                    transaction,
                    found,
                    found.sealed_seq + 1,
                    SealedDoc(doc, *names[0]),
                    make_state(transaction, doc),
                    kind=RecordKind.SNAPSHOT,
                    base=found.cursor.seq,
                    max_bytes=max_snapshot_bytes,
                )
        except CrdtmemError:
            store.docs.pop(doc, None)
            transaction.mark_damaged()
            forget_live(connection, found.link, doc)
            snapshot_made(connection, found, doc)
            return False
        return True


def _has_unsent(connection: apsw.Connection, link: Link) -> bool:
    found = connection.execute(
        "SELECT 1 FROM outbox WHERE link = :link AND record IS NOT NULL LIMIT 1",
        {"link": link.link},
    ).get
    return link.is_rebase_due or found is not None


def _is_whole(connection: apsw.Connection, link: Link, doc: int) -> bool:
    """Tell whether all of a doc up to the cursor is here, and all of it is sealed."""
    waits = connection.execute(
        "SELECT EXISTS (SELECT 1 FROM sync_doc WHERE link = :link AND doc = :doc"
        " AND (state_needed OR blocked != '' OR held_from IS NOT NULL))"
        " OR EXISTS (SELECT 1 FROM held WHERE link = :link AND doc = :doc)"
        " OR EXISTS (SELECT 1 FROM log WHERE doc = :doc AND replica_seq IS NULL)"
        " OR EXISTS (SELECT 1 FROM slot WHERE doc = :doc AND quarantined IS NOT NULL)"
        " OR EXISTS (SELECT 1 FROM mset WHERE doc = :doc AND quarantined IS NOT NULL)",
        {"link": link.link, "doc": doc},
    ).get
    return not waits and not has_hole(connection, link, doc)
