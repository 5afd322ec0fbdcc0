"""Who the relay in a database is, and since which restore its log is what it is."""

import asyncpg

from crdtmem.protocol.relaying import RelayIdentity
from relay.storage.postgres.schema import LOCK_SCHEMA
from relay.storage.sqlite.folder import HighWater, new_id

__all__ = ["count_records", "settle_epoch"]


async def settle_epoch(
    connection: asyncpg.Connection,
    mark: HighWater | None,
    *,
    is_restored: bool,
    now_ms: int,
) -> RelayIdentity:
    """Return who the relay is, after a new epoch has begun where one is due.

    That is where the owner says so, and where there are fewer records than this process
    has noted to be on disk; not where another process has begun one since. In a
    database without a relay one is made. The caller has the transaction.
    """
    await connection.execute("SELECT pg_advisory_xact_lock($1)", LOCK_SCHEMA)
    total = await count_records(connection)
    relay_id = await connection.fetchval("SELECT relay_id FROM crdtmem.relay")
    reason = "restored" if is_restored else ""
    if relay_id is None:
        relay_id, reason = new_id(), "init"
        await connection.execute(
            "INSERT INTO crdtmem.relay(id, relay_id, aged_ms, aged_at_ms)"
            " VALUES (1, $1, 0, $2)",
            relay_id,
            now_ms,
        )
    elif mark is not None and mark.relay_id == relay_id and mark.total > total:
        later = await connection.fetchval(
            "SELECT count(*) FROM crdtmem.epoch WHERE n >"
            " (SELECT n FROM crdtmem.epoch WHERE epoch = $1)",
            mark.epoch,
        )
        reason = reason or ("" if later else "lost")
    if reason:
        await connection.execute(
            "INSERT INTO crdtmem.epoch(n, epoch, reason, total, created_ms)"
            " SELECT coalesce(max(n), 0) + 1, $1, $2, $3, $4 FROM crdtmem.epoch",
            new_id(),
            reason,
            total,
            now_ms,
        )
    epoch = await connection.fetchval(
        "SELECT epoch FROM crdtmem.epoch ORDER BY n DESC LIMIT 1"
    )
    return RelayIdentity(relay_id, epoch)


async def count_records(connection: asyncpg.Connection) -> int:
    """Return how many records of all namespaces have ever been stored."""
    return int(
        await connection.fetchval(
            "SELECT coalesce(sum(head), 0)::bigint FROM crdtmem.ns"
        )
    )
