"""Own writes on their way to a relay: sealed once, sent byte for byte, acknowledged.

Records of one doc hold its writes in log order, so a reader never has to wait for a
part of a doc. Docs never wait for each other, but where one goes up as a state no
update of any doc is sealed before that state is.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import apsw

from crdtmem.errors import CrdtmemError, LocalProtocolError, RemoteProtocolError
from crdtmem.limits import (
    DOC_NAME_BYTES,
    LANE_BYTES,
    NOTE_BYTES,
    OP_BYTES,
    SEALED_BYTES,
    SEALED_LEAST_BYTES,
    SEALED_ROWS_MAX,
    SEALED_STATES_BYTES,
    SEALED_STATES_MAX,
    UNSEALED_SCAN_ROWS,
    WRITES_PER_RECORD_MAX,
)
from crdtmem.protocol.envelopes import UpdateEnvelope
from crdtmem.protocol.records import HEADER_BYTES, RecordKind, parse_header
from crdtmem.store.links import (
    Link,
    UnsentCounts,
    count_unsent,
    link_at,
    link_in,
    mark_state_needed,
    note_doc,
)
from crdtmem.store.log import WITHIN_STATE, require_intact
from crdtmem.store.receipts import seal_receipt
from crdtmem.store.records import SealedDoc, durable_writing, put_record, write_of
from crdtmem.store.rotation import announce_key
from crdtmem.store.rows import LogRow
from crdtmem.store.states import make_state
from crdtmem.store.store import Store
from crdtmem.store.write import Transaction

__all__ = [
    "OutboxRecord",
    "acknowledge",
    "acknowledge_through",
    "block_doc",
    "forget_live",
    "refuse",
    "reseal_from",
    "seal",
    "unsent",
    "unsent_counts",
]

WRITE_BYTES = LANE_BYTES + OP_BYTES + NOTE_BYTES + 64
"""What a write may take in a record beside its update."""

RECORD_HEAD_BYTES = HEADER_BYTES + DOC_NAME_BYTES + 16
"""What a record may take beside its writes."""


@dataclass(frozen=True, slots=True)
class OutboxRecord:
    """A sealed record that the relay has not acknowledged."""

    replica_seq: int
    record: bytes = field(repr=False)


@dataclass(slots=True)
class _Group:
    """Consecutive writes of one doc that go into one record."""

    doc: SealedDoc
    rows: list[LogRow]
    size_bytes: int


def seal(
    store: Store,
    link: Link,
    *,
    max_update_bytes: int,
    max_snapshot_bytes: int,
    may_seal_states: bool,
) -> int:
    """Make records of own writes that have none; durable when it returns.

    One call seals a bounded part: call it until it returns 0. In an encrypted namespace
    it is told of a new key first, and at times how far this store has read: words that
    need all that the relay had at the join. A doc whose record would
    be longer than the relay takes, or whose rows are damaged, is marked as blocked and
    left out; the others go on.

    Args:
        store: The store.
        link: The link, as it was when its connection was made.
        max_update_bytes: Longest update that the relay takes.
        max_snapshot_bytes: Longest state that it takes.
        may_seal_states: Whether all that the relay had at the join is applied here.

    Returns:
        How many records were sealed; 0 while own writes wait for a rebase, and while a
        state is due that may not be sealed yet.

    Raises:
        LinkChangedError: If the store has other ids by now.
        LinkNotFoundError: If the link was removed.

    """
    with durable_writing(store) as transaction:
        found = link_in(transaction, link)
        if found.is_rebase_due:
            return 0
        _mark_older_rows(transaction.connection, found)
        marked = _marked(transaction.connection, found.link)
        if marked:
            if not may_seal_states:
                return 0
            return _seal_states(store, transaction, found, marked, max_snapshot_bytes)
        if may_seal_states and announce_key(transaction, found, max_update_bytes):
            return 1
        sealed = _seal_updates(transaction, found, max_update_bytes)
        if may_seal_states and not sealed:
            return int(seal_receipt(transaction, found, max_update_bytes))
        return sealed


def unsent(
    store: Store, link: Link, *, after: int, records: int, octets: int
) -> list[OutboxRecord]:
    """Return records to send, in the order of their stream.

    Args:
        store: The store.
        link: The link.
        after: The newest number that has been sent on this connection.
        records: Most of them.
        octets: Most bytes of them; one record may be longer.

    Raises:
        LinkChangedError: If the store has other ids by now.

    """
    found: list[OutboxRecord] = []
    with store.snapshot() as connection:
        link_at(connection, link)
        for seq, record in connection.execute(
            "SELECT replica_seq, record FROM outbox WHERE link = :link"
            " AND replica_seq > :after AND record IS NOT NULL"
            " ORDER BY replica_seq LIMIT :records",
            {"link": link.link, "after": after, "records": records},
        ):
            octets -= len(record)
            if found and octets < 0:
                break
            found.append(OutboxRecord(seq, record))
    return found


def acknowledge(
    store: Store, link: Link, replica_seq: int, seq: int, chain: bytes
) -> None:
    """Take records off the outbox that the relay has stored, up to a number.

    Repeatable. What the relay's log says at its place is compared when it comes by.

    Args:
        store: The store.
        link: The link.
        replica_seq: The newest number that is stored.
        seq: Its place in the relay's log.
        chain: The chain there.

    Raises:
        RemoteProtocolError: If no such record was sealed.
        LinkChangedError: If the store has other ids by now.

    """
    with store.writing() as transaction:
        found = link_in(transaction, link)
        if replica_seq > found.sealed_seq:
            message = f"record {replica_seq} is acknowledged of {found.sealed_seq}"
            raise RemoteProtocolError("bad-value", message)
        acknowledge_through(transaction, found, replica_seq)
        if seq <= found.cursor.seq:
            # They have come by before this was known, and will not again.
            _forget_acknowledged(transaction.connection, found.link, replica_seq)


def acknowledge_through(transaction: Transaction, link: Link, replica_seq: int) -> None:
    """Note that the relay has the stream up to a number; numbers known are skipped."""
    if replica_seq <= link.acked_seq:
        return
    connection = transaction.connection
    values = {"link": link.link, "seq": replica_seq}
    rows: list[Any] = connection.execute(
        "SELECT doc, record FROM outbox WHERE link = :link AND replica_seq <= :seq"
        " AND record IS NOT NULL",
        values,
    ).fetchall()
    for doc, record in rows:
        _count_live(connection, link, doc, record)
    connection.execute(
        "UPDATE link SET acked_seq = :seq, acked_id = (SELECT record_id FROM outbox"
        " WHERE link = :link AND replica_seq = :seq) WHERE link = :link",
        values,
    )
    connection.execute(
        "UPDATE outbox SET record = NULL WHERE link = :link AND replica_seq <= :seq",
        values,
    )


def refuse(store: Store, link: Link, replica_seq: int, code: str) -> None:
    """Give up a record that the relay refused; all after it are sealed anew.

    The doc of a write or a state is blocked until the next join: the others must not
    wait for it. A snapshot is not missed. Repeatable.

    Args:
        store: The store.
        link: The link.
        replica_seq: Its number; the relay has stored nothing there.
        code: Why it was refused.

    Raises:
        LinkChangedError: If the store has other ids by now.

    """
    with store.writing() as transaction:
        found = link_in(transaction, link)
        connection = transaction.connection
        rows: list[Any] = connection.execute(
            "SELECT doc, record FROM outbox WHERE link = :link"
            " AND replica_seq = :seq AND record IS NOT NULL",
            {"link": found.link, "seq": replica_seq},
        ).fetchall()
        for doc, record in rows:
            reseal_from(transaction, found, replica_seq)
            if _is_snapshot(record):
                forget_live(connection, found.link, doc)
            else:
                block_doc(connection, found, doc, code)


def reseal_from(transaction: Transaction, link: Link, replica_seq: int) -> None:
    """Take records from a number on out of the outbox and their numbers off the log.

    Docs that were to go up as a state are marked again.
    """
    connection = transaction.connection
    values = {
        "link": link.link,
        "namespace": link.namespace,
        "replica": link.replica_id,
        "seq": replica_seq,
    }
    rows: list[Any] = connection.execute(
        "SELECT doc, record FROM outbox WHERE link = :link AND replica_seq >= :seq"
        " AND kind = 2 AND record IS NOT NULL",
        values,
    ).fetchall()
    states = [int(doc) for doc, record in rows if not _is_snapshot(record)]
    mark_state_needed(connection, link, states)
    connection.execute(
        "UPDATE log SET replica_seq = NULL, place = NULL"
        " WHERE replica = :replica AND replica_seq >= :seq AND doc IN"
        " (SELECT doc FROM doc WHERE namespace = :namespace)",
        values,
    )
    connection.execute(
        "DELETE FROM outbox WHERE link = :link AND replica_seq >= :seq", values
    )
    connection.execute(
        "UPDATE link SET sealed_seq = min(sealed_seq, :seq - 1), sealed_lsn = 0"
        " WHERE link = :link",
        values,
    )


def block_doc(connection: apsw.Connection, link: Link, doc: int, code: str) -> None:
    """Leave a doc out of what is sealed until the next join, and say why."""
    note_doc(connection, link, doc)
    connection.execute(
        "UPDATE sync_doc SET blocked = :code WHERE link = :link AND doc = :doc",
        {"code": code, "link": link.link, "doc": doc},
    )


def forget_live(connection: apsw.Connection, link: int, doc: int) -> None:
    """Begin to count anew what a snapshot of a doc would cover."""
    connection.execute(
        "UPDATE sync_doc SET live_bytes = 0, live_records = 0"
        " WHERE link = :link AND doc = :doc",
        {"link": link, "doc": doc},
    )


def unsent_counts(store: Store, link: Link) -> UnsentCounts:
    """Count what the relay does not have, sealed or not."""
    with store.reading() as connection:
        return count_unsent(connection, link)


def _seal_updates(transaction: Transaction, link: Link, max_bytes: int) -> int:
    connection = transaction.connection
    groups, until = _groups(connection, link, min(SEALED_BYTES, _room(link, max_bytes)))
    blocked: set[int] = set()
    seq = link.sealed_seq
    for group in groups:
        if group.doc.doc in blocked:
            continue
        try:
            with connection:
                _seal_group(transaction, link, seq + 1, group, max_bytes)
        except CrdtmemError as exc:
            blocked.add(group.doc.doc)
            block_doc(connection, link, group.doc.doc, _blocking_code(exc))
            continue
        seq += 1
    if groups or until > link.sealed_lsn + UNSEALED_SCAN_ROWS:
        connection.execute(
            "UPDATE link SET sealed_lsn = :until WHERE link = :link",
            {"until": until, "link": link.link},
        )
    return seq - link.sealed_seq


def _room(link: Link, max_bytes: int) -> int:
    """Return how long a record may be before it is padded and sealed."""
    if not link.is_encrypted:
        return max_bytes
    return max(1, max_bytes * 7 // 8 - SEALED_LEAST_BYTES)


def _groups(
    connection: apsw.Connection, link: Link, limit_bytes: int
) -> tuple[list[_Group], int]:
    """Return what to seal, by the first step of each group, and the last step seen."""
    # By the steps of the log: of itself SQLite would go through all docs.
    rows: list[Any] = connection.execute(
        "SELECT log.*, doc.kind, doc.name"
        " FROM log NOT INDEXED CROSS JOIN doc USING (doc)"
        " WHERE lsn > :after AND replica_seq IS NULL AND replica = :replica"
        " AND namespace = :namespace AND NOT EXISTS (SELECT 1 FROM sync_doc"
        " WHERE link = :link AND sync_doc.doc = log.doc AND blocked != '')"
        " ORDER BY lsn LIMIT :most",
        {
            "after": link.sealed_lsn,
            "replica": link.replica_id,
            "namespace": link.namespace,
            "link": link.link,
            "most": SEALED_ROWS_MAX,
        },
    ).fetchall()
    groups: list[_Group] = []
    open_groups: dict[int, _Group] = {}
    for *values, kind, name in rows:
        row = LogRow(*values)
        group = open_groups.get(row.doc)
        size_bytes = len(row.content) + WRITE_BYTES
        if (
            group is None
            or len(group.rows) == WRITES_PER_RECORD_MAX
            or group.size_bytes + size_bytes > limit_bytes
        ):
            group = _Group(SealedDoc(row.doc, kind, name), [], RECORD_HEAD_BYTES)
            groups.append(group)
            open_groups[row.doc] = group
        group.rows.append(row)
        group.size_bytes += size_bytes
    if len(rows) == SEALED_ROWS_MAX:
        return groups, int(rows[-1][0])
    return groups, int(connection.execute("SELECT lsn FROM store").get)


def _seal_group(
    transaction: Transaction, link: Link, seq: int, group: _Group, max_bytes: int
) -> None:
    connection = transaction.connection
    for place, row in enumerate(group.rows):
        require_intact(row)
        connection.execute(
            "UPDATE log SET replica_seq = :seq, place = :place WHERE lsn = :lsn",
            {"seq": seq, "place": place, "lsn": row.lsn},
        )
    writes = [write_of(connection, row, link.namespace) for row in group.rows]
    put_record(
        transaction,
        link,
        seq,
        group.doc,
        UpdateEnvelope(group.doc.kind, group.doc.name, tuple(writes)),
        kind=RecordKind.UPDATE,
        base=link.cursor.seq,
        max_bytes=max_bytes,
    )


def _seal_states(
    store: Store,
    transaction: Transaction,
    link: Link,
    marked: Sequence[SealedDoc],
    max_bytes: int,
) -> int:
    """Seal states of marked docs, as many as one transaction should make."""
    connection = transaction.connection
    seq = link.sealed_seq
    left_bytes = SEALED_STATES_BYTES
    for doc in marked:
        if left_bytes <= 0 or seq - link.sealed_seq == SEALED_STATES_MAX:
            break
        try:
            with connection:
                left_bytes -= _seal_state(transaction, link, seq + 1, doc, max_bytes)
        except CrdtmemError as exc:
            store.docs.pop(doc.doc, None)
            transaction.mark_damaged()
            block_doc(connection, link, doc.doc, _blocking_code(exc))
            continue
        seq += 1
    return seq - link.sealed_seq


def _seal_state(
    transaction: Transaction, link: Link, seq: int, doc: SealedDoc, max_bytes: int
) -> int:
    connection = transaction.connection
    envelope = make_state(transaction, doc.doc)
    put_record(
        transaction,
        link,
        seq,
        doc,
        envelope,
        kind=RecordKind.SNAPSHOT,
        base=0,
        max_bytes=max_bytes,
    )
    connection.execute(
        "UPDATE log SET replica_seq = :seq, place = :place"
        " WHERE doc = :doc AND replica_seq IS NULL",
        {"seq": seq, "place": WITHIN_STATE, "doc": doc.doc},
    )
    connection.execute(
        "UPDATE sync_doc SET state_needed = 0 WHERE link = :link AND doc = :doc",
        {"link": link.link, "doc": doc.doc},
    )
    return len(envelope.state) + len(envelope.blame) + RECORD_HEAD_BYTES


def _mark_older_rows(connection: apsw.Connection, link: Link) -> None:
    """Mark docs with writes under ids that the store has given up.

    Such a stream is at its end: others may have seen more of it than this store.
    """
    rows: list[Any] = connection.execute(
        "SELECT DISTINCT doc FROM log NOT INDEXED CROSS JOIN doc USING (doc)"
        " WHERE lsn > :after AND replica_seq IS NULL AND replica != :replica"
        " AND namespace = :namespace",
        {
            "after": link.sealed_lsn,
            "replica": link.replica_id,
            "namespace": link.namespace,
        },
    ).fetchall()
    mark_state_needed(connection, link, [int(doc) for (doc,) in rows])


def _marked(connection: apsw.Connection, link: int) -> list[SealedDoc]:
    rows = connection.execute(
        "SELECT doc, kind, name FROM sync_doc INDEXED BY sync_doc_state_needed"
        " JOIN doc USING (doc) WHERE link = :link AND state_needed AND blocked = ''"
        " ORDER BY doc",
        {"link": link},
    )
    return [SealedDoc(*row) for row in rows]


def _blocking_code(error: CrdtmemError) -> str:
    return "record-too-large" if isinstance(error, LocalProtocolError) else error.code


def _count_live(
    connection: apsw.Connection, link: Link, doc: int, record: bytes
) -> None:
    """Count a record among what a snapshot of its doc would cover, or as that one."""
    if _is_snapshot(record):
        forget_live(connection, link.link, doc)
        is_new_key = parse_header(record).key_id >= link.key_id
        connection.execute(
            "UPDATE sync_doc SET snap_size = :size, rekey = rekey AND NOT :is_new"
            " WHERE link = :link AND doc = :doc",
            {
                "link": link.link,
                "doc": doc,
                "size": len(record),
                "is_new": is_new_key,
            },
        )
        return
    connection.execute(
        "UPDATE sync_doc SET live_bytes = live_bytes + :size,"
        " live_records = live_records + 1 WHERE link = :link AND doc = :doc",
        {"link": link.link, "doc": doc, "size": len(record)},
    )


def _is_snapshot(record: bytes) -> bool:
    header = parse_header(record)
    return header.kind == RecordKind.SNAPSHOT and header.base > 0


def _forget_acknowledged(
    connection: apsw.Connection, link: int, replica_seq: int
) -> None:
    connection.execute(
        "DELETE FROM outbox WHERE link = :link AND replica_seq <= :seq"
        " AND record IS NULL",
        {"link": link, "seq": replica_seq},
    )
