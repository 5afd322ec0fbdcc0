"""How payloads that a snapshot covers go: by running time, never by the clock alone.

The running time is the relay's, whichever of its processes are there: one of them at a
time sweeps, and what it adds is bounded, as for one process.
"""

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import asyncpg

from crdtmem.limits import DROP_STEP_MS
from crdtmem.protocol.records import HEADER_BYTES
from relay.storage import SweepReport
from relay.storage.postgres.connection import Work, committed, hang_up
from relay.storage.postgres.schema import LOCK_SWEEP

__all__ = ["sweep"]


async def sweep(
    connection: asyncpg.Connection, place: str, now_ms: int, limit: int
) -> SweepReport:
    """Drop the payloads that are due, the longest due first; see ``Storage.sweep``.

    Where another process sweeps, nothing is done. Each namespace has a transaction of
    its own. The rows stay, and with them chain, numbers and ids.
    """
    if not await connection.fetchval("SELECT pg_try_advisory_lock($1)", LOCK_SWEEP):
        return SweepReport(0, 0, has_more=False)
    try:
        report = await _sweep(partial(committed, connection, place), now_ms, limit)
        await connection.execute("SELECT pg_advisory_unlock($1)", LOCK_SWEEP)
    except BaseException:
        # The lock ends with it.
        hang_up(connection)
        raise
    return report


async def _sweep(
    commit: Callable[[Work[Any]], Awaitable[Any]], now_ms: int, limit: int
) -> SweepReport:
    due: dict[int, list[int]] = {}
    found = await commit(partial(_due, now_ms=now_ms, limit=limit + 1))
    for ns_no, seq in found[:limit]:
        due.setdefault(ns_no, []).append(seq)
    payloads = size_bytes = 0
    for ns_no, seqs in due.items():
        dropped, freed = await commit(partial(_drop, ns_no=ns_no, seqs=seqs))
        payloads += dropped
        size_bytes += freed
    return SweepReport(payloads, size_bytes, len(found) > limit)


async def _due(connection: asyncpg.Connection, *, now_ms: int, limit: int) -> Any:
    """Count the time since the last sweep, within bounds; return what is due."""
    age_ms = await connection.fetchval(
        "UPDATE crdtmem.relay SET aged_at_ms = $1,"
        " aged_ms = aged_ms + least(greatest($1 - aged_at_ms, 0), $2)"
        " RETURNING aged_ms",
        now_ms,
        DROP_STEP_MS,
    )
    return await connection.fetch(
        "SELECT ns_no, seq FROM crdtmem.log WHERE drop_at <= $1"
        " ORDER BY drop_at, ns_no, seq LIMIT $2",
        age_ms,
        limit,
    )


async def _drop(connection: asyncpg.Connection, *, ns_no: int, seqs: list[int]) -> Any:
    """Drop payloads of one namespace; return how many they were, and their bytes."""
    await connection.execute(
        "SELECT FROM crdtmem.ns WHERE ns_no = $1 FOR UPDATE", ns_no
    )
    return await connection.fetchrow(
        "WITH due AS ("
        " SELECT seq, doc_tag, $3 + octet_length(payload) AS size_bytes"
        " FROM crdtmem.log"
        " WHERE ns_no = $1 AND seq = ANY($2) AND payload IS NOT NULL"
        "), dropped AS ("
        " UPDATE crdtmem.log SET payload = NULL, drop_at = NULL FROM due"
        " WHERE log.ns_no = $1 AND log.seq = due.seq"
        "), docs AS ("
        " UPDATE crdtmem.doc SET dropped_seq = greatest(dropped_seq, last) FROM"
        " (SELECT doc_tag, max(seq) AS last FROM due GROUP BY doc_tag) AS gone"
        " WHERE doc.ns_no = $1 AND doc.doc_tag = gone.doc_tag"
        "), freed AS ("
        " SELECT count(*) AS payloads, coalesce(sum(size_bytes), 0)::bigint AS octets"
        " FROM due)"
        " UPDATE crdtmem.ns SET live_bytes = live_bytes - octets FROM freed"
        " WHERE ns_no = $1 RETURNING payloads, octets",
        ns_no,
        seqs,
        HEADER_BYTES,
    )
