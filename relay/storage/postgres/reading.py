"""Reads of a relay's log, each by one statement: one state, a committed one."""

from collections.abc import Sequence

import asyncpg

from crdtmem.protocol.records import HEADER_BYTES
from crdtmem.protocol.relaying import JoinState, LogSlice, RewindCause, Sample
from relay.storage.rows import kept_row

__all__ = ["join_state", "matching", "read_slice"]

_ID_BYTES = 32


async def join_state(
    connection: asyncpg.Connection, name: str, *, replica_id: bytes, cursor: Sample
) -> JoinState | None:
    """Say where a reader with this cursor goes on; None without such a namespace."""
    found = await connection.fetchrow(
        "SELECT ns.ns_no, ns.head, ns.floor, ns.floor_chain, max_seq, last_id,"
        " log.chain FROM crdtmem.ns"
        " LEFT JOIN crdtmem.replica ON replica.ns_no = ns.ns_no"
        " AND replica.replica_id = $2"
        " LEFT JOIN crdtmem.log ON log.ns_no = ns.ns_no AND log.seq = $3"
        " WHERE name = $1",
        name,
        replica_id,
        cursor.seq,
    )
    if found is None:
        return None
    ns_no, head, floor, floor_chain, own_max, own_id, chain = found
    resume: Sample | None = cursor
    cause = RewindCause.NONE
    if cursor.seq < floor or not cursor.seq:
        resume = Sample(floor, floor_chain)
    elif cursor.seq > head:
        resume, cause = None, RewindCause.PAST_HEAD
    elif cursor.chain != (floor_chain if cursor.seq == floor else chain):
        resume, cause = None, RewindCause.OTHER_CHAIN
    return JoinState(
        ns_no, head, floor, resume, cause, own_max or 0, own_id or bytes(32)
    )


async def matching(
    connection: asyncpg.Connection, ns_no: int, samples: Sequence[Sample]
) -> Sample:
    """Return the highest sample that is in the log, else the floor."""
    found = await connection.fetch(
        "SELECT seq, chain FROM crdtmem.log WHERE ns_no = $1 AND seq = ANY($2)"
        " UNION ALL SELECT floor, floor_chain FROM crdtmem.ns WHERE ns_no = $1"
        " ORDER BY seq",
        ns_no,
        [sample.seq for sample in samples],
    )
    places = [Sample(seq, chain) for seq, chain in found]
    fitting = [place for place in places if place in samples]
    return fitting[-1] if fitting else places[0]


async def read_slice(
    connection: asyncpg.Connection,
    ns_no: int,
    after: int,
    *,
    records: int,
    octets: int,
) -> LogSlice:
    """Return the rows behind a seq, up to both limits; one row at least."""
    found = await connection.fetch(
        _PAGE, ns_no, after, records, octets, HEADER_BYTES, _ID_BYTES
    )
    # Without any row of the log, that of the namespace stands alone.
    rows = tuple(kept_row(*row[1:]) for row in found if row[1] is not None)
    return LogSlice(ns_no, rows, found[0][0])


# Sizes are known without the payloads, which are read for the rows of the page alone.
_PAGE = """
SELECT ns.head, page.seq, page.record_id, page.chain, page.header, page.payload,
    doc.snap_seq, doc.dropped_seq
FROM crdtmem.ns
LEFT JOIN LATERAL (
    SELECT *, row_number() OVER so_far AS place,
        sum(coalesce($5 + octet_length(payload), $6)) OVER so_far AS octets
    FROM (
        SELECT * FROM crdtmem.log
        WHERE log.ns_no = $1 AND log.seq > $2
        ORDER BY log.seq LIMIT $3
    ) AS log
    WINDOW so_far AS (ORDER BY seq)
) AS page ON page.octets <= $4 OR page.place = 1
LEFT JOIN crdtmem.doc ON doc.ns_no = $1 AND doc.doc_tag = page.doc_tag
WHERE ns.ns_no = $1
ORDER BY page.seq
"""
