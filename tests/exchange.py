"""Records out of one store and into another, without a relay between them.

What leaves is sealed: it gets its number in the replica's stream once, for ever. What
arrives is applied in one transaction, doc by doc and write by write: one rev and one
history entry for each slot whose text changed, one rev for each set. A record that is
refused is kept in quarantine, and the other docs of the batch are not held up by it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import apsw

from crdtmem.errors import RemoteProtocolError
from crdtmem.protocol.envelopes import (
    UpdateEnvelope,
    decode_envelope,
    encode_envelope,
)
from crdtmem.protocol.records import RecordKind
from crdtmem.store.doc_inbox import REFUSALS, Incoming
from crdtmem.store.intake import inbox_for
from crdtmem.store.log import advance_stream
from crdtmem.store.records import write_of
from crdtmem.store.rows import LogRow
from crdtmem.store.store import Store
from crdtmem.store.write import Transaction

__all__ = ["Record", "known_streams", "needing_state", "outgoing", "receive"]


@dataclass(frozen=True, slots=True)
class Record:
    """One record of a replica's stream in one namespace; ``envelope`` is its payload.

    ``origin`` is the step of the sending store's log.
    """

    replica: bytes
    replica_seq: int
    envelope: bytes
    origin: int


def known_streams(store: Store, namespace: str) -> dict[bytes, int]:
    """Return how far each replica's stream has been sealed or received here."""
    with store.reading() as connection:
        rows = connection.execute(
            "SELECT replica, max_seq FROM stream WHERE namespace = :namespace",
            {"namespace": namespace},
        )
        return {bytes(replica): int(max_seq) for replica, max_seq in rows}


def outgoing(store: Store, namespace: str, *, after: int = 0) -> list[Record]:
    """Return a namespace's records after a step of the log, sealing own ones first.

    Squashed records are gone: a store that is further behind needs a state. A doc of
    which own records were squashed before they were sealed is left out as a whole,
    since what is left of it has no beginning; ``needing_state`` names those.
    """
    with store.writing() as transaction:
        connection = transaction.connection
        _seal(connection, namespace)
        rows = connection.execute(
            "SELECT log.*, doc.kind, doc.name FROM log JOIN doc USING (doc)"
            " WHERE log.lsn > :after AND doc.namespace = :namespace AND doc.is_sealed"
            " ORDER BY log.lsn",
            {"after": after, "namespace": namespace},
        )
        return [
            _record(connection, LogRow(*row), namespace, kind, str(name))
            for *row, kind, name in rows
        ]


def needing_state(store: Store, namespace: str) -> list[str]:
    """Return the docs that others can have only as a state; see outgoing."""
    with store.reading() as connection:
        rows = connection.execute(
            "SELECT name FROM doc WHERE namespace = :namespace AND NOT is_sealed"
            " ORDER BY name",
            {"namespace": namespace},
        )
        return [str(name) for (name,) in rows]


def receive(store: Store, namespace: str, records: Sequence[Record]) -> int:
    """Apply other replicas' records that are new here, and return how many were.

    The records of each replica must come in the order of its stream, and after what
    they build on. One transaction: all of it, or nothing when this raises.

    Raises:
        RemoteProtocolError: If an envelope is malformed, or a number of a stream is
            missing; nothing was applied.

    """
    with store.writing() as transaction:
        fresh = _fresh(transaction, namespace, records)
        by_name: dict[tuple[int, str], list[Incoming]] = {}
        for record in fresh:
            name = record.envelope.doc_kind, record.envelope.name
            by_name.setdefault(name, []).append(record)
        for batch in by_name.values():
            inbox = inbox_for(transaction, store, namespace, batch[0].envelope)
            try:
                inbox.take(batch)
            except REFUSALS as exc:
                for record in batch:
                    _set_aside(transaction, inbox.doc, record, exc.code)
        return len(fresh)


def _seal(connection: apsw.Connection, namespace: str) -> None:
    """Number the own records that have no number yet, in log order."""
    rows: list[Any] = connection.execute(
        "SELECT log.lsn, log.replica FROM log JOIN doc USING (doc)"
        " WHERE log.replica_seq IS NULL AND doc.namespace = :namespace"
        " AND doc.is_sealed"
        " ORDER BY log.lsn",
        {"namespace": namespace},
    ).fetchall()
    for lsn, replica in rows:
        seq = _last_seq(connection, namespace, replica) + 1
        connection.execute(
            "UPDATE log SET replica_seq = :seq, place = 0 WHERE lsn = :lsn",
            {"seq": seq, "lsn": lsn},
        )
        advance_stream(connection, namespace, replica, seq)


def _record(
    connection: apsw.Connection, row: LogRow, namespace: str, kind: int, name: str
) -> Record:
    writes = (write_of(connection, row, namespace),)
    envelope = encode_envelope(UpdateEnvelope(kind, name, writes))
    return Record(row.replica, row.replica_seq or 0, envelope, row.lsn)


def _fresh(
    transaction: Transaction, namespace: str, records: Sequence[Record]
) -> list[Incoming]:
    fresh: list[Incoming] = []
    for record in records:
        known = _last_seq(transaction.connection, namespace, record.replica)
        if record.replica_seq <= known:
            continue
        if record.replica_seq > known + 1:
            message = f"record {record.replica_seq} comes before {known + 1}"
            raise RemoteProtocolError("replica-gap", message)
        # Of this kind, there is no other envelope.
        envelope = cast(
            "UpdateEnvelope", decode_envelope(RecordKind.UPDATE, record.envelope)
        )
        advance_stream(
            transaction.connection, namespace, record.replica, record.replica_seq
        )
        fresh.append(Incoming(record.replica, record.replica_seq, envelope))
    return fresh


def _last_seq(connection: apsw.Connection, namespace: str, replica: bytes) -> int:
    found = connection.execute(
        "SELECT max_seq FROM stream"
        " WHERE namespace = :namespace AND replica = :replica",
        {"namespace": namespace, "replica": replica},
    ).get
    return int(found or 0)


def _set_aside(transaction: Transaction, doc: int, record: Incoming, code: str) -> None:
    """Keep a refused record in quarantine, with the rule that it breaks."""
    writes = cast("UpdateEnvelope", record.envelope).writes
    for write in writes:
        transaction.connection.execute(
            "INSERT INTO quarantine(doc, lsn, replica, code, content, at_ms)"
            " VALUES (:doc, 0, :replica, :code, :content, :now)",
            {
                "doc": doc,
                "replica": record.replica,
                "code": code,
                "content": write.update,
                "now": transaction.now_ms,
            },
        )
