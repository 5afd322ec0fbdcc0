"""Records of own writes, as they are sealed and laid into a link's outbox.

A record gets its number in the replica's stream when it is sealed, and is on disk
before anybody sees it: a number that a power cut took back would be given to something
else.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import apsw

from crdtmem.errors import LocalProtocolError
from crdtmem.protocol.envelopes import (
    Envelope,
    UndoTarget,
    Write,
    encode_envelope,
    undo_note,
)
from crdtmem.protocol.records import (
    Header,
    RecordKind,
    build_record,
    doc_tag,
    record_id,
)
from crdtmem.store.links import Link, note_doc
from crdtmem.store.log import WITHIN_STATE, advance_stream, targets_of
from crdtmem.store.rows import LogRow
from crdtmem.store.store import Store
from crdtmem.store.write import Transaction

__all__ = ["SealedDoc", "durable_writing", "put_record", "write_of"]


class SealedDoc(NamedTuple):
    """What the records of a doc name it by."""

    doc: int
    kind: int
    name: str


@contextmanager
def durable_writing(store: Store) -> Iterator[Transaction]:
    """Give a write transaction that is on disk when it ends, in every store.

    What has left the machine cannot be taken back by a power cut, so it must not be
    taken back here. The sync takes along what was committed without one before.
    """
    if store.durability == "full":
        with store.writing() as transaction:
            yield transaction
        return
    # Within a transaction the setting cannot be changed. The reading keeps the handle.
    with store.reading() as connection:
        connection.pragma("synchronous", "full")
        try:
            with store.writing() as transaction:
                yield transaction
        finally:
            # A commit that failed has had the connection replaced.
            with store.reading() as after:
                after.pragma("synchronous", store.durability)


def write_of(connection: apsw.Connection, row: LogRow, namespace: str) -> Write:
    """Return a row of the log as a record carries it.

    Its note is the row's own, or says what it undoes, by the numbers of the records;
    and of a first text, for which project its client id was made: elsewhere it may have
    another name.
    """
    note = row.note or _undo_note(connection, row)
    if row.is_genesis:
        note = json.dumps({"project": namespace}, separators=(",", ":"))
    return Write(
        is_genesis=bool(row.is_genesis),
        counter=0,
        lane=row.lane,
        at_ms=row.at_ms,
        op=row.operation,
        update=row.content,
        note=note,
    )


def put_record(
    transaction: Transaction,
    link: Link,
    replica_seq: int,
    doc: SealedDoc,
    envelope: Envelope,
    *,
    kind: RecordKind,
    base: int,
    max_bytes: int,
) -> None:
    """Seal an envelope and put it into the outbox.

    Args:
        transaction: Of the caller.
        link: The link.
        replica_seq: The next number of the stream.
        doc: The doc.
        envelope: What it says.
        kind: Update or snapshot.
        base: See Header.
        max_bytes: Longest record of this kind that the relay takes.

    Raises:
        LocalProtocolError: If it cannot be encoded, or would be longer; nothing was
            written. The code is ``record-too-large`` for both.

    """
    tag = doc_tag(doc.kind, doc.name)
    header = Header(kind, 0, tag, link.replica_id, replica_seq, base, 0)
    record = build_record(header, encode_envelope(envelope))
    if len(record) > max_bytes:
        raise LocalProtocolError(
            f"record of {len(record)} bytes exceeds the relay's limit of {max_bytes}"
        )
    connection = transaction.connection
    connection.execute(
        "INSERT INTO outbox VALUES (:link, :seq, :doc, :kind, :id, :record)",
        {
            "link": link.link,
            "seq": replica_seq,
            "doc": doc.doc,
            "kind": kind,
            "id": record_id(link.remote, record),
            "record": record,
        },
    )
    note_doc(connection, link.link, doc.doc)
    connection.execute(
        "UPDATE link SET sealed_seq = :seq WHERE link = :link",
        {"link": link.link, "seq": replica_seq},
    )
    advance_stream(connection, link.namespace, link.replica_id, replica_seq)


def _undo_note(connection: apsw.Connection, row: LogRow) -> str | None:
    """Name the targets of an undo by their records; None once one is squashed."""
    targets: list[UndoTarget] = [
        (replica, seq, place)
        for lsn in sorted(targets_of(row) or ())
        for replica, seq, place in connection.execute(
            "SELECT replica, replica_seq, place FROM log"
            " WHERE lsn = :lsn AND place != :within",
            {"lsn": lsn, "within": WITHIN_STATE},
        )
    ]
    is_whole = bool(targets) and len(targets) == len(targets_of(row) or ())
    try:
        return undo_note(targets) if is_whole else None
    except LocalProtocolError:
        # Of more writes than a note has room for.
        return None
