"""How far a link has read its relay's log, and what it remembers of it.

The cursor and the chain at some places behind it, the records that came by, which own
ones are among them, and how much of each doc a snapshot would cover.
"""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import apsw

from crdtmem.errors import LocalProtocolError
from crdtmem.limits import SAMPLE_STEP_RECORDS, SAMPLES_MAX, SEEN_ROWS
from crdtmem.protocol.messages import Form, Item
from crdtmem.protocol.records import (
    NO_DOC_TAG,
    Header,
    RecordKind,
    chain_next,
    chain_start,
    record_id,
)
from crdtmem.store.holding import Arrival
from crdtmem.store.links import Link
from crdtmem.store.outbox import acknowledge_through
from crdtmem.store.write import Transaction

__all__ = [
    "NOT_SEEN",
    "OwnRow",
    "Place",
    "count_other",
    "count_record",
    "kept_samples",
    "move_cursor",
    "note_seen",
    "own_row",
    "own_sealed_row",
    "pass_own",
    "pass_snapshot",
    "places_of",
    "seen_tag",
]

NOT_SEEN = b""
"""Stands for the id of a record that came by without its content."""


class Place(NamedTuple):
    """Where an item stands, and the chain after it."""

    seq: int
    record_id: bytes
    chain: bytes


class OwnRow(NamedTuple):
    """An own record as the outbox has it."""

    replica_seq: int
    doc: int
    doc_tag: bytes


def places_of(
    link: Link, first_seq: int, items: Sequence[Item], chain: bytes
) -> list[Place]:
    """Return where items stand that go on from a link's cursor.

    Raises:
        LocalProtocolError: If they don't, or the chain after the last differs.

    """
    cursor = link.cursor
    if first_seq != cursor.seq + 1:
        message = f"item {first_seq} does not follow cursor {cursor.seq}"
        raise LocalProtocolError(message)
    at = cursor.chain if cursor.seq else chain_start(link.relay_id, link.remote)
    places: list[Place] = []
    for seq, item in enumerate(items, first_seq):
        found = item.record_id
        if item.form == Form.FULL:
            found = record_id(link.remote, item.record)
        at = chain_next(at, seq, found)
        places.append(Place(seq, found, at))
    if places and at != chain:
        message = f"the chain differs after item {places[-1].seq}"
        raise LocalProtocolError(message)
    return places


def move_cursor(
    connection: apsw.Connection, link: Link, places: Sequence[Place]
) -> None:
    """Set a link's cursor behind items; the last step of a batch."""
    if not places:
        return
    cursor = places[-1].seq
    steps = [place for place in places if place.seq % SAMPLE_STEP_RECORDS == 0]
    if steps:
        _keep_samples(connection, link, steps, cursor)
    values = {
        "link": link.link,
        "seq": cursor,
        "chain": places[-1].chain,
        "oldest": cursor - SEEN_ROWS,
    }
    connection.execute(
        "DELETE FROM sync_seen WHERE link = :link AND seq <= :oldest", values
    )
    connection.execute(
        "UPDATE link SET cursor_seq = :seq, cursor_chain = :chain WHERE link = :link",
        values,
    )


def kept_samples(seqs: Iterable[int], cursor: int) -> list[int]:
    """Return at which places to keep the chain, newest first: fewer the older.

    Where the relay's log ends earlier than the cursor, the newest that fits tells from
    where on everything is in doubt.
    """
    found = [
        seq
        for seq in sorted(seqs, reverse=True)
        if seq % max(SAMPLE_STEP_RECORDS, _quarter_of(cursor - seq)) == 0
    ]
    return found[:SAMPLES_MAX]


def seen_tag(connection: apsw.Connection, link: Link, record_id: bytes) -> bytes | None:
    """Return the doc tag of a record that came by earlier; None if it did not."""
    # SQLite takes a link for a few rows, and would read them all.
    found = connection.execute(
        "SELECT doc_tag FROM sync_seen INDEXED BY sync_seen_id"
        " WHERE link = :link AND record_id = :id LIMIT 1",
        {"link": link.link, "id": record_id},
    ).get
    return None if found is None else bytes(found)


def note_seen(
    connection: apsw.Connection, link: Link, seq: int, record_id: bytes, tag: bytes
) -> None:
    """Note that a record came by."""
    connection.execute(
        "INSERT OR REPLACE INTO sync_seen VALUES (:link, :seq, :id, :tag)",
        {"link": link.link, "seq": seq, "id": record_id, "tag": tag},
    )


def own_row(connection: apsw.Connection, link: Link, record_id: bytes) -> OwnRow | None:
    """Return the outbox's row of a record; they come by in their order."""
    for row in connection.execute(
        "SELECT replica_seq, doc, coalesce(doc_tag, :none)"
        " FROM outbox LEFT JOIN sync_doc USING (link, doc)"
        " WHERE link = :link AND record_id = :id ORDER BY replica_seq LIMIT 1",
        {"link": link.link, "id": record_id, "none": NO_DOC_TAG},
    ):
        return OwnRow(*row)
    return None


def own_sealed_row(
    connection: apsw.Connection, link: Link, record_id: bytes, replica_seq: int
) -> OwnRow | None:
    """Return the outbox's row of a record that has this number in its stream."""
    for row in connection.execute(
        "SELECT replica_seq, doc, coalesce(doc_tag, :none)"
        " FROM outbox LEFT JOIN sync_doc USING (link, doc)"
        " WHERE link = :link AND replica_seq = :seq AND record_id = :id",
        {
            "link": link.link,
            "seq": replica_seq,
            "id": record_id,
            "none": NO_DOC_TAG,
        },
    ):
        return OwnRow(*row)
    return None


def pass_own(
    transaction: Transaction,
    link: Link,
    seq: int,
    own: OwnRow | None,
    *,
    is_stream: bool,
) -> bytes:
    """Note that an own record has come by, so that the relay has it.

    Args:
        transaction: Of the caller.
        link: The link.
        seq: Where it stands.
        own: Its row in the outbox; None if that is gone already.
        is_stream: Whether it is of the link's present stream. Then what stands before
            it there stands before it in the log.

    Returns:
        The tag of its doc, zeros if nothing tells it.

    """
    if own is None:
        return NO_DOC_TAG
    if is_stream:
        acknowledge_through(transaction, link, own.replica_seq)
    values = {
        "link": link.link,
        "from": 0 if is_stream else own.replica_seq,
        "to": own.replica_seq,
        "doc": own.doc,
        "seq": seq,
    }
    transaction.connection.execute(
        "DELETE FROM outbox WHERE link = :link AND replica_seq BETWEEN :from AND :to",
        values,
    )
    transaction.connection.execute(
        "UPDATE sync_doc SET last_seq = :seq WHERE link = :link AND doc = :doc", values
    )
    return own.doc_tag


def pass_snapshot(
    connection: apsw.Connection, link: Link, seq: int, tag: bytes
) -> None:
    """Note a snapshot that need not be read; how long it is was not said."""
    # Not snap_seq: a reader with a hole is sent the newest snapshot alone.
    connection.execute(
        "UPDATE sync_doc INDEXED BY sync_doc_tag"
        " SET last_seq = :seq, live_bytes = 0, live_records = 0,"
        " snap_size = max(snap_size, coalesce((SELECT octet_length(file)"
        " FROM slot WHERE slot.doc = sync_doc.doc), (SELECT live_bytes FROM mset"
        " WHERE mset.doc = sync_doc.doc), 0))"
        " WHERE link = :link AND doc_tag = :tag",
        {"link": link.link, "seq": seq, "tag": tag},
    )


def count_record(
    connection: apsw.Connection, link: Link, doc: int, arrival: Arrival, header: Header
) -> None:
    """Count a record among what a snapshot of its doc would cover, or as that.

    One that is tried again has been counted.
    """
    values = {
        "link": link.link,
        "doc": doc,
        "tag": header.doc_tag,
        "seq": arrival.seq,
        "size": len(arrival.record),
    }
    connection.execute(
        "INSERT OR IGNORE INTO sync_doc(link, doc, doc_tag) VALUES (:link, :doc, :tag)",
        values,
    )
    if header.kind == RecordKind.SNAPSHOT and header.base:
        connection.execute(
            "UPDATE sync_doc SET last_seq = :seq, snap_seq = :seq, snap_size = :size,"
            " live_bytes = 0, live_records = 0"
            " WHERE link = :link AND doc = :doc AND last_seq < :seq",
            values,
        )
        return
    connection.execute(
        "UPDATE sync_doc SET last_seq = :seq, live_bytes = live_bytes + :size,"
        " live_records = live_records + 1"
        " WHERE link = :link AND doc = :doc AND last_seq < :seq",
        values,
    )


def count_other(connection: apsw.Connection, link: Link) -> None:
    """Count a record of a kind that this version leaves alone."""
    connection.execute(
        "UPDATE link SET skipped = skipped + 1 WHERE link = :link", {"link": link.link}
    )


def _keep_samples(
    connection: apsw.Connection, link: Link, places: Sequence[Place], cursor: int
) -> None:
    for place in places:
        connection.execute(
            "INSERT OR REPLACE INTO chain_sample VALUES (:link, :seq, :chain)",
            {"link": link.link, "seq": place.seq, "chain": place.chain},
        )
    rows: list[Any] = connection.execute(
        "SELECT seq FROM chain_sample WHERE link = :link", {"link": link.link}
    ).fetchall()
    seqs = {int(seq) for (seq,) in rows}
    for seq in seqs.difference(kept_samples(seqs, cursor)):
        connection.execute(
            "DELETE FROM chain_sample WHERE link = :link AND seq = :seq",
            {"link": link.link, "seq": seq},
        )


def _quarter_of(distance: int) -> int:
    """Return the largest power of two that is at most a quarter; at least 1."""
    return 1 << max(distance >> 2, 1).bit_length() - 1
