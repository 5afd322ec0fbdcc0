"""Records of own writes, as they are sealed and laid into a link's outbox.

A record gets its number in the replica's stream when it is sealed, and is on disk
before anybody sees it: a number that a power cut took back would be given to something
else. Of an encrypted namespace it is encrypted here, once, and opened here.
"""

import json
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import NamedTuple

import apsw

from crdtmem.errors import KeyMissingError, LocalProtocolError, ProtocolError
from crdtmem.protocol.envelopes import (
    Envelope,
    UndoTarget,
    Write,
    encode_envelope,
    undo_note,
)
from crdtmem.protocol.records import (
    NO_DOC_TAG,
    Header,
    RecordKind,
    build_record,
    record_id,
)
from crdtmem.sealing import RANDOM_BYTES, UNKNOWN_KEY
from crdtmem.store.links import Link, note_doc, tag_of
from crdtmem.store.log import WITHIN_STATE, advance_stream, targets_of
from crdtmem.store.rows import LogRow
from crdtmem.store.store import Store
from crdtmem.store.write import Transaction

__all__ = [
    "OF_NO_DOC",
    "SealedDoc",
    "durable_writing",
    "new_randomness",
    "open_payload",
    "put_record",
    "seal_envelope",
    "write_of",
]


class SealedDoc(NamedTuple):
    """What the records of a doc name it by."""

    doc: int
    kind: int
    name: str


OF_NO_DOC = SealedDoc(0, 0, "")
"""Of a record that is a word between stores."""


def seal_envelope(link: Link, header: Header, envelope: bytes) -> bytes:
    """Return the record of an envelope; of an encrypted namespace it is encrypted.

    Args:
        link: The link.
        header: That of the plain record.
        envelope: As ``encode_envelope`` makes it.

    Raises:
        KeyMissingError: If the namespace is encrypted, and no key is at hand.
        LocalProtocolError: If it is too long for any relay.

    """
    if not link.is_encrypted:
        return build_record(header, envelope)
    if link.sealer is None:
        raise KeyMissingError(local=link.namespace)
    key_id = link.sealer.key_id_within(link.key_id)
    sealed = replace(header, alg=1, key_id=key_id)
    return link.sealer.seal(sealed, envelope, new_randomness())


def open_payload(link: Link, header: Header, record: bytes) -> bytes:
    """Return the envelope in a record.

    Raises:
        ProtocolError: Its code says why it cannot be had: ``sealed`` if a key is
            missing, or ``wrong-key``, ``tampered`` and ``plain-in-encrypted``.

    """
    if link.is_encrypted and link.sealer is not None:
        return link.sealer.open(header, record)
    if header.alg or link.is_encrypted:
        message = f"record under key {header.key_id}, and no key is at hand"
        raise ProtocolError(message, code=UNKNOWN_KEY)
    return record[header.payload_start :]


def new_randomness() -> bytes:
    """Draw what one record is sealed with."""
    return secrets.token_bytes(RANDOM_BYTES)


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
        doc: The doc; OF_NO_DOC for a word between stores.
        envelope: What it says.
        kind: A RecordKind.
        base: See Header.
        max_bytes: Longest record of this kind that the relay takes.

    Raises:
        LocalProtocolError: If it cannot be encoded, or would be longer; nothing was
            written. The code is ``record-too-large`` for both.
        KeyMissingError: If the namespace is encrypted, and no key is at hand.

    """
    tag = NO_DOC_TAG if doc is OF_NO_DOC else tag_of(link, doc.kind, doc.name)
    header = Header(kind, 0, tag, link.replica_id, replica_seq, base, 0)
    record = seal_envelope(link, header, encode_envelope(envelope))
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
    note_doc(connection, link, doc.doc)
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
