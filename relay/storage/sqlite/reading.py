"""Reads of a relay's log, each in one read transaction: one state, a committed one."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import apsw

from crdtmem.protocol.relaying import JoinState, LogRow, LogSlice, RewindCause, Sample
from relay.storage.rows import kept_row
from relay.storage.sqlite.schema import SEQ_BITS

__all__ = ["find_namespace", "join_state", "matching", "read_slice"]

_SEQ_MASK = (1 << SEQ_BITS) - 1


def find_namespace(connection: apsw.Connection, name: str) -> int | None:
    """Return the number of a namespace, or None if there is none."""
    found = connection.execute(
        "SELECT ns_no FROM ns WHERE name = :name", {"name": name}
    ).get
    return None if found is None else int(found)


def join_state(
    connection: apsw.Connection, ns_no: int, *, replica_id: bytes, cursor: Sample
) -> JoinState:
    """Say where a reader with this cursor goes on; see ``Storage.join``."""
    with _one_state(connection):
        head, floor = _ends(connection, ns_no)
        own_max, own_id = connection.execute(
            "SELECT max_seq, last_id FROM replica"
            " WHERE ns_no = :ns_no AND replica_id = :replica_id",
            {"ns_no": ns_no, "replica_id": replica_id},
        ).fetchone() or (0, bytes(32))
        resume: Sample | None = cursor
        cause = RewindCause.NONE
        if cursor.seq < floor.seq or not cursor.seq:
            resume = floor
        elif cursor.seq > head:
            resume, cause = None, RewindCause.PAST_HEAD
        elif cursor.chain != _chain_at(connection, ns_no, cursor.seq, floor):
            resume, cause = None, RewindCause.OTHER_CHAIN
    return JoinState(ns_no, head, floor.seq, resume, cause, own_max, own_id)


def matching(
    connection: apsw.Connection, ns_no: int, samples: Sequence[Sample]
) -> Sample:
    """Return the highest sample that is in the log, else the floor."""
    with _one_state(connection):
        _, floor = _ends(connection, ns_no)
        for sample in sorted(samples, key=lambda sample: sample.seq, reverse=True):
            if sample.chain == _chain_at(connection, ns_no, sample.seq, floor):
                return sample
        return floor


def read_slice(
    connection: apsw.Connection, ns_no: int, after: int, *, records: int, octets: int
) -> LogSlice:
    """Return the rows behind a seq, up to both limits; one row at least."""
    rows: list[LogRow] = []
    with _one_state(connection):
        head, _ = _ends(connection, ns_no)
        for row in connection.execute(
            "SELECT log.id, record_id, chain, header, payload, snap_seq, dropped_seq"
            " FROM log LEFT JOIN doc ON doc.doc_no = log.doc_no"
            " WHERE log.id > :after AND log.id <= :head"
            " ORDER BY log.id LIMIT :records",
            {
                "after": ns_no << SEQ_BITS | after,
                "head": ns_no << SEQ_BITS | head,
                "records": records,
            },
        ):
            found = kept_row(row[0] & _SEQ_MASK, *row[1:])
            octets -= len(found.record or found.record_id)
            if octets < 0 and rows:
                break
            rows.append(found)
    return LogSlice(ns_no, tuple(rows), head)


@contextmanager
def _one_state(connection: apsw.Connection) -> Iterator[None]:
    connection.execute("BEGIN")
    try:
        yield
    finally:
        connection.execute("ROLLBACK")


def _ends(connection: apsw.Connection, ns_no: int) -> tuple[int, Sample]:
    head, floor, floor_chain = connection.execute(
        "SELECT head, floor, floor_chain FROM ns WHERE ns_no = :ns_no",
        {"ns_no": ns_no},
    ).get
    return head, Sample(floor, floor_chain)


def _chain_at(
    connection: apsw.Connection, ns_no: int, seq: int, floor: Sample
) -> bytes | None:
    """Return the chain after a seq; None where that cannot be told."""
    if seq == floor.seq:
        return floor.chain
    if not floor.seq < seq <= _SEQ_MASK:
        # Its id would be that of a row of another namespace.
        return None
    found: bytes | None = connection.execute(
        "SELECT chain FROM log WHERE id = :id", {"id": ns_no << SEQ_BITS | seq}
    ).get
    return found
