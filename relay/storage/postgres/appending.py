"""The puts of a group for one namespace: what each record meets, and the rows it makes.

All that is asked of the tables is asked before the first record, and all that is made
is written by one statement behind the last: each question is a journey to the server,
and other processes wait for the lock meanwhile.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import asyncpg

from crdtmem.errors import StorageUnsafeError
from crdtmem.protocol.records import HEADER_BYTES, NO_DOC_TAG, chain_next
from crdtmem.protocol.relaying import (
    LogRow,
    Put,
    PutRecord,
    PutRefusal,
    PutResult,
    Sample,
)
from relay.storage.postgres.connection import unsafe_reason
from relay.storage.rows import fresh_row
from relay.storage.rules import Standing, StorageLimits, is_cover, refusal_of

__all__ = ["append_group"]


@dataclass(slots=True)
class _Namespace:
    """The row of the namespace, and the running time of the relay."""

    ns_no: int
    head: int
    chain: bytes
    floor: int
    floor_chain: bytes
    live_bytes: int
    docs: int
    aged_ms: int


@dataclass(slots=True)
class _Replica:
    max_seq: int = 0
    last_id: bytes = bytes(32)
    token_id: str = ""


@dataclass(slots=True)
class _Doc:
    snap_seq: int = 0
    covered: int = 0
    has_dropped: bool = False
    is_new: bool = True


@dataclass(frozen=True, slots=True)
class _Stored:
    """A record that the log has."""

    record_id: bytes
    at: Sample


async def append_group(
    connection: asyncpg.Connection,
    puts: Sequence[Put],
    limits: StorageLimits,
    now_ms: int,
    *,
    place: str,
) -> list[PutResult]:
    """Append the puts of one namespace; the caller has the transaction.

    Args:
        connection: In a transaction that has not done anything yet.
        puts: At least one, in their order.
        limits: Of the relay.
        now_ms: The wall clock, for the rows.
        place: The database, for the sentence.

    Raises:
        StorageUnsafeError: If the server syncs no longer: it is asked each time, since
            its settings may be changed while it runs.

    """
    ns_no = puts[0].ns_no
    # First of all: from here on, this transaction is the only one to write there.
    row = await connection.fetchrow(
        "SELECT ns_no, head, chain, floor, floor_chain, live_bytes, docs,"
        " (SELECT aged_ms FROM crdtmem.relay), current_setting('fsync'),"
        " current_setting('full_page_writes') FROM crdtmem.ns WHERE ns_no = $1"
        " FOR UPDATE",
        ns_no,
    )
    *columns, fsync, full_page_writes = row
    reason = unsafe_reason(fsync, full_page_writes)
    if reason:
        raise StorageUnsafeError(path=place, reason=reason)
    group = _Group(_Namespace(*columns), limits, now_ms)
    await group.load(connection, puts)
    results = [group.put(put) for put in puts]
    await group.save(connection)
    return results


class _Group:
    """Appends puts to a namespace; ``save`` writes what was gathered."""

    def __init__(self, ns: _Namespace, limits: StorageLimits, now_ms: int) -> None:
        self._ns = ns
        self._limits = limits
        self._now_ms = now_ms
        self._replicas: dict[bytes, _Replica] = {}
        self._docs: dict[bytes, _Doc] = {}
        # How many replicas write under a token whose number of them is bounded.
        self._writers: dict[str, int] = {}
        self._stored: dict[tuple[bytes, int], _Stored] = {}
        self._rows: list[tuple[Any, ...]] = []
        self._written: dict[bytes, _Replica] = {}
        self._changed: dict[bytes, _Doc] = {}
        self._covers: dict[bytes, int] = {}

    async def load(self, connection: asyncpg.Connection, puts: Sequence[Put]) -> None:
        """Read all that the records of these puts may meet."""
        records = [(put, record) for put in puts for record in put.records]
        for is_replica, name, *values in await connection.fetch(
            "SELECT true, replica_id, max_seq, 0, last_id, token_id"
            " FROM crdtmem.replica WHERE ns_no = $1 AND replica_id = ANY($2::bytea[])"
            " UNION ALL SELECT false, doc_tag, snap_seq, covered, NULL,"
            " CASE WHEN dropped_seq > 0 THEN 'dropped' END"
            " FROM crdtmem.doc WHERE ns_no = $1 AND doc_tag = ANY($3::bytea[])",
            self._ns.ns_no,
            list({put.replica_id for put in puts}),
            list({record.header.doc_tag for _, record in records}),
        ):
            number, covered, last_id, word = values
            if is_replica:
                self._replicas[name] = _Replica(number, last_id, word)
            else:
                self._docs[name] = _Doc(number, covered, bool(word), is_new=False)
        await self._load_writers(connection, puts)
        known = [
            (put.replica_id, record.header.replica_seq)
            for put, record in records
            if record.header.replica_seq <= self._replica(put.replica_id).max_seq
        ]
        if known:
            await self._load_stored(connection, known)

    async def _load_writers(
        self, connection: asyncpg.Connection, puts: Sequence[Put]
    ) -> None:
        bounded = {
            put.grant.token_id for put in puts if put.grant.max_replicas is not None
        }
        if bounded:
            found = await connection.fetch(
                "SELECT token_id, count(*) FROM crdtmem.replica"
                " WHERE ns_no = $1 AND token_id = ANY($2::text[]) GROUP BY token_id",
                self._ns.ns_no,
                list(bounded),
            )
            self._writers = dict(found)

    async def _load_stored(
        self, connection: asyncpg.Connection, known: Sequence[tuple[bytes, int]]
    ) -> None:
        """Read where records stand that are, or pretend to be, in the log."""
        for replica_id, replica_seq, record_id, seq, chain in await connection.fetch(
            "SELECT replica_id, replica_seq, record_id, seq, chain"
            " FROM unnest($2::bytea[], $3::bigint[]) AS asked(replica_id, replica_seq)"
            " JOIN crdtmem.log USING (replica_id, replica_seq) WHERE ns_no = $1",
            self._ns.ns_no,
            [replica_id for replica_id, _ in known],
            [replica_seq for _, replica_seq in known],
        ):
            stored = _Stored(record_id, Sample(seq, chain))
            self._stored[replica_id, replica_seq] = stored

    def put(self, put: Put) -> PutResult:
        """Take the records of a put up to the first that is refused."""
        replica = self._replica(put.replica_id)
        rows: list[LogRow] = []
        acked, at, refusal = 0, None, None
        for record in put.records:
            replica_seq = record.header.replica_seq
            taken: LogRow | Sample | str
            if replica_seq <= replica.max_seq:
                taken = self._recognise(put.replica_id, record)
            else:
                taken = self._append(replica, record, put)
            if isinstance(taken, str):
                refusal = PutRefusal(taken, replica_seq, replica.max_seq + 1)
                break
            if isinstance(taken, LogRow):
                rows.append(taken)
                taken = Sample(taken.seq, taken.chain)
            acked, at = replica_seq, taken
        ns = self._ns
        return PutResult(ns.ns_no, acked, at, ns.head, tuple(rows), refusal)

    def _replica(self, replica_id: bytes) -> _Replica:
        return self._replicas.setdefault(replica_id, _Replica())

    def _recognise(self, replica_id: bytes, record: PutRecord) -> Sample | str:
        """Return where a record of an old number stands; a fork of it is refused."""
        found = self._stored.get((replica_id, record.header.replica_seq))
        if found is None:
            # Below the floor; nothing tells any more what it was.
            return Sample(self._ns.floor, self._ns.floor_chain)
        return found.at if found.record_id == record.record_id else "replica-fork"

    def _append(self, replica: _Replica, record: PutRecord, put: Put) -> LogRow | str:
        """Make the row of the next record of a replica, or say why not."""
        header, ns = record.header, self._ns
        doc = None
        if header.doc_tag != NO_DOC_TAG:
            doc = self._docs.setdefault(header.doc_tag, _Doc())
        is_first = not replica.max_seq
        standing = Standing(
            head=ns.head,
            max_seq=replica.max_seq,
            live_bytes=ns.live_bytes,
            docs=ns.docs,
            is_new_doc=doc is not None and doc.is_new,
            covered=doc.covered if doc is not None else 0,
            other_replicas=self._writers.get(put.grant.token_id, 0) if is_first else 0,
        )
        size_bytes = len(record.record)
        code = refusal_of(header, size_bytes, put.grant, standing, self._limits)
        if code:
            return code
        if is_first:
            self._writers[put.grant.token_id] = standing.other_replicas + 1
        return self._insert(replica, doc, record, put)

    def _insert(
        self, replica: _Replica, doc: _Doc | None, record: PutRecord, put: Put
    ) -> LogRow:
        header, data, ns = record.header, record.record, self._ns
        ns.head += 1
        ns.chain = chain_next(ns.chain, ns.head, record.record_id)
        ns.live_bytes += len(data)
        replica.max_seq, replica.last_id = header.replica_seq, record.record_id
        replica.token_id = put.grant.token_id
        self._written[put.replica_id] = replica
        if doc is not None:
            self._note_doc(doc, record)
        self._rows.append(
            (
                ns.head,
                record.record_id,
                ns.chain,
                data[:HEADER_BYTES],
                data[HEADER_BYTES:],
                None if doc is None else header.doc_tag,
                put.replica_id,
                header.replica_seq,
                put.grant.token_id,
            )
        )
        self._stored[put.replica_id, header.replica_seq] = _Stored(
            record.record_id, Sample(ns.head, ns.chain)
        )
        if doc is None:
            return fresh_row(ns.head, ns.chain, record, 0, has_dropped=False)
        return fresh_row(
            ns.head, ns.chain, record, doc.snap_seq, has_dropped=doc.has_dropped
        )

    def _note_doc(self, doc: _Doc, record: PutRecord) -> None:
        """Note what the record at the new head makes of its doc."""
        header = record.header
        if doc.is_new:
            self._ns.docs += 1
            self._changed[header.doc_tag] = doc
            doc.is_new = False
        if is_cover(header):
            doc.snap_seq, doc.covered = self._ns.head, header.base
            self._changed[header.doc_tag] = doc
            self._covers[header.doc_tag] = header.base

    async def save(self, connection: asyncpg.Connection) -> None:
        """Write what was gathered; the caller has the transaction."""
        ns = self._ns
        if not self._rows:
            return
        columns = [list(column) for column in zip(*self._rows, strict=True)]
        await connection.execute(
            _SAVE,
            ns.ns_no,
            self._now_ms,
            *columns,
            list(self._written),
            [replica.max_seq for replica in self._written.values()],
            [replica.last_id for replica in self._written.values()],
            [replica.token_id for replica in self._written.values()],
            list(self._changed),
            [doc.snap_seq for doc in self._changed.values()],
            [doc.covered for doc in self._changed.values()],
            ns.head,
            ns.chain,
            ns.live_bytes,
            ns.docs,
        )
        if self._covers:
            # Behind the rows: it marks those of this group, too.
            await connection.execute(
                "UPDATE crdtmem.log SET drop_at = $4"
                " FROM unnest($2::bytea[], $3::bigint[]) AS cover(tag, until)"
                " WHERE ns_no = $1 AND doc_tag = tag AND seq <= until"
                " AND payload IS NOT NULL AND drop_at IS NULL",
                ns.ns_no,
                list(self._covers),
                list(self._covers.values()),
                ns.aged_ms + self._limits.grace_ms,
            )


_SAVE = """
WITH rows AS (
    INSERT INTO crdtmem.log(ns_no, recv_ms, seq, record_id, chain, header, payload,
        doc_tag, replica_id, replica_seq, token_id)
    SELECT $1, $2, new.* FROM unnest($3::bigint[], $4::bytea[], $5::bytea[],
        $6::bytea[], $7::bytea[], $8::bytea[], $9::bytea[], $10::bigint[],
        $11::text[]) AS new
), replicas AS (
    INSERT INTO crdtmem.replica(ns_no, first_ms, last_ms, replica_id, max_seq, last_id,
        token_id)
    SELECT $1, $2, $2, new.* FROM unnest($12::bytea[], $13::bigint[], $14::bytea[],
        $15::text[]) AS new
    ON CONFLICT (ns_no, replica_id) DO UPDATE SET last_ms = excluded.last_ms,
        max_seq = excluded.max_seq, last_id = excluded.last_id,
        token_id = excluded.token_id
), docs AS (
    INSERT INTO crdtmem.doc(ns_no, doc_tag, snap_seq, covered)
    SELECT $1, new.* FROM unnest($16::bytea[], $17::bigint[], $18::bigint[]) AS new
    ON CONFLICT (ns_no, doc_tag) DO UPDATE SET snap_seq = excluded.snap_seq,
        covered = excluded.covered
)
UPDATE crdtmem.ns SET head = $19, chain = $20, live_bytes = $21, docs = $22
WHERE ns_no = $1
"""
