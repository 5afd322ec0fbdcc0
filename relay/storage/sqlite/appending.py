"""A group of puts in one transaction: what each record meets, and the rows it makes.

Rows of the log are gathered and written at the end of the group, by one statement that
runs many times. Nothing here begins or ends the transaction.
"""

from typing import Any

import apsw

from crdtmem.protocol.records import HEADER_BYTES, NO_DOC_TAG, chain_next
from crdtmem.protocol.relaying import (
    LogRow,
    Put,
    PutRecord,
    PutRefusal,
    PutResult,
    Sample,
)
from relay.storage.rows import fresh_row
from relay.storage.rules import Standing, StorageLimits, is_cover, refusal_of
from relay.storage.sqlite.rows import Doc, Known, Namespace, Replica
from relay.storage.sqlite.schema import SEQ_BITS

__all__ = ["Group"]


class Group:
    """Appends puts to the log; ``finish`` writes what was gathered.

    Args:
        connection: In a transaction of the caller.
        known: True to the file; it is changed along with the file.
        limits: Of the relay.
        now_ms: The wall clock, for the rows.

    """

    def __init__(
        self,
        connection: apsw.Connection,
        known: Known,
        limits: StorageLimits,
        now_ms: int,
    ) -> None:
        self._connection = connection
        self._known = known
        self._limits = limits
        self._now_ms = now_ms
        self._rows: list[tuple[Any, ...]] = []
        self._namespaces: dict[int, Namespace] = {}
        self._replicas: dict[int, tuple[Replica, str]] = {}
        self._stored = 0

    def put(self, put: Put) -> PutResult:
        """Take the records of a put up to the first that is refused."""
        ns = self._known.namespace(put.ns_no)
        replica = self._known.replica(put.ns_no, put.replica_id)
        rows: list[LogRow] = []
        acked, at, refusal = 0, None, None
        for record in put.records:
            replica_seq = record.header.replica_seq
            taken: LogRow | Sample | str
            if replica_seq <= replica.max_seq:
                taken = self._recognise(ns, replica, record)
            else:
                taken = self._append(ns, replica, record, put)
            if isinstance(taken, str):
                refusal = PutRefusal(taken, replica_seq, replica.max_seq + 1)
                break
            if isinstance(taken, LogRow):
                rows.append(taken)
            else:
                at = taken
            acked = replica_seq
        if rows:
            acked, at = rows[-1].replica_seq, Sample(rows[-1].seq, rows[-1].chain)
        return PutResult(put.ns_no, acked, at, ns.head, tuple(rows), refusal)

    def finish(self) -> int:
        """Write what was gathered; return how many records the group has stored."""
        self._write_rows()
        execute = self._connection.execute
        for ns in self._namespaces.values():
            execute(
                "UPDATE ns SET head = :head, chain = :chain, live_bytes = :live_bytes"
                " WHERE ns_no = :ns_no",
                {
                    "ns_no": ns.ns_no,
                    "head": ns.head,
                    "chain": ns.chain,
                    "live_bytes": ns.live_bytes,
                },
            )
        for replica, token_id in self._replicas.values():
            execute(
                "UPDATE replica SET max_seq = :max_seq, last_id = :last_id,"
                " token_id = :token_id, last_ms = :now WHERE replica_no = :replica_no",
                {
                    "replica_no": replica.replica_no,
                    "max_seq": replica.max_seq,
                    "last_id": replica.last_id,
                    "token_id": token_id,
                    "now": self._now_ms,
                },
            )
        if self._stored:
            execute(
                "UPDATE relay SET total = total + :stored", {"stored": self._stored}
            )
        return self._stored

    def _recognise(
        self, ns: Namespace, replica: Replica, record: PutRecord
    ) -> Sample | str:
        """Return where a record of an old number stands; a fork of it is refused."""
        self._write_rows()
        found = self._connection.execute(
            "SELECT id, record_id, chain FROM log"
            " WHERE replica_no = :replica_no AND replica_seq = :replica_seq",
            {
                "replica_no": replica.replica_no,
                "replica_seq": record.header.replica_seq,
            },
        ).fetchone()
        if found is None:
            # Below the floor; nothing tells any more what it was.
            return Sample(ns.floor, ns.floor_chain)
        row_id, record_id, chain = found
        if record_id != record.record_id:
            return "replica-fork"
        return Sample(row_id - (ns.ns_no << SEQ_BITS), chain)

    def _append(
        self, ns: Namespace, replica: Replica, record: PutRecord, put: Put
    ) -> LogRow | str:
        """Insert the next record of a replica, or say why not."""
        header = record.header
        doc = None
        if header.doc_tag != NO_DOC_TAG:
            doc = self._known.doc(ns.ns_no, header.doc_tag)
        # By position: names take twice the time, and every record passes here.
        standing = Standing(
            ns.head,
            replica.max_seq,
            ns.live_bytes,
            ns.docs,
            doc is not None and not doc.doc_no,
            doc.covered if doc is not None else 0,
            self._count_others(ns, replica, put),
        )
        size_bytes = len(record.record)
        code = refusal_of(header, size_bytes, put.grant, standing, self._limits)
        if code:
            return code
        self._add_parents(ns, replica, doc, put, header.doc_tag)
        return self._insert(ns, replica, doc, record, put)

    def _insert(
        self,
        ns: Namespace,
        replica: Replica,
        doc: Doc | None,
        record: PutRecord,
        put: Put,
    ) -> LogRow:
        header, data, token_id = record.header, record.record, put.grant.token_id
        ns.head += 1
        ns.chain = chain_next(ns.chain, ns.head, record.record_id)
        ns.live_bytes += len(data)
        replica.max_seq, replica.last_id = header.replica_seq, record.record_id
        if doc is not None and is_cover(header):
            self._cover(ns, doc, header.base)
        self._rows.append(
            (
                ns.ns_no << SEQ_BITS | ns.head,
                record.record_id,
                ns.chain,
                data[:HEADER_BYTES],
                data[HEADER_BYTES:],
                doc.doc_no if doc else None,
                replica.replica_no,
                header.replica_seq,
                token_id,
                self._now_ms,
            )
        )
        self._namespaces[ns.ns_no] = ns
        self._replicas[replica.replica_no] = replica, token_id
        self._stored += 1
        if doc is None:
            return fresh_row(ns.head, ns.chain, record, 0, has_dropped=False)
        return fresh_row(
            ns.head, ns.chain, record, doc.snap_seq, has_dropped=doc.dropped_seq > 0
        )

    def _count_others(self, ns: Namespace, replica: Replica, put: Put) -> int:
        if replica.replica_no or put.grant.max_replicas is None:
            return 0
        return int(
            self._connection.execute(
                "SELECT count(*) FROM replica"
                " WHERE ns_no = :ns_no AND token_id = :token_id",
                {"ns_no": ns.ns_no, "token_id": put.grant.token_id},
            ).get
        )

    def _add_parents(
        self,
        ns: Namespace,
        replica: Replica,
        doc: Doc | None,
        put: Put,
        doc_tag: bytes,
    ) -> None:
        """Make the rows that a row of the log points to, where it is the first."""
        execute = self._connection.execute
        if not replica.replica_no:
            replica.replica_no = execute(
                "INSERT INTO replica"
                "(ns_no, replica_id, max_seq, last_id, token_id, first_ms, last_ms)"
                " VALUES (:ns_no, :replica_id, 0, x'', :token_id, :now, :now)"
                " RETURNING replica_no",
                {
                    "ns_no": ns.ns_no,
                    "replica_id": put.replica_id,
                    "token_id": put.grant.token_id,
                    "now": self._now_ms,
                },
            ).get
        if doc is not None and not doc.doc_no:
            doc.doc_no = execute(
                "INSERT INTO doc(ns_no, doc_tag) VALUES (:ns_no, :doc_tag)"
                " RETURNING doc_no",
                {"ns_no": ns.ns_no, "doc_tag": doc_tag},
            ).get
            ns.docs += 1

    def _cover(self, ns: Namespace, doc: Doc, until: int) -> None:
        """Note a snapshot at the new head, and mark what it covers of its doc."""
        self._write_rows()
        doc.snap_seq, doc.covered = ns.head, until
        self._connection.execute(
            "UPDATE doc SET snap_seq = :seq, covered = :until WHERE doc_no = :doc_no",
            {"doc_no": doc.doc_no, "seq": ns.head, "until": until},
        )
        self._connection.execute(
            "UPDATE log SET drop_at = (SELECT aged_ms FROM relay) + :grace"
            " WHERE doc_no = :doc_no AND id <= :last AND payload IS NOT NULL"
            " AND drop_at IS NULL",
            {
                "doc_no": doc.doc_no,
                "last": ns.ns_no << SEQ_BITS | until,
                "grace": self._limits.grace_ms,
            },
        )

    def _write_rows(self) -> None:
        if self._rows:
            self._connection.executemany(
                "INSERT INTO log(id, record_id, chain, header, payload, doc_no,"
                " replica_no, replica_seq, token_id, recv_ms)"
                " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                self._rows,
            )
            self._rows.clear()
