"""The tables of a relay in PostgreSQL, in a schema of their own, and their migrations.

The columns are those of the SQLite file but for its numbers of docs and replicas: a row
of the log has the tag of its doc and the id of its replica. There are no foreign keys:
all of a namespace's rows are written by one transaction, under the lock of its row.
"""

from typing import Any

import asyncpg

from crdtmem.errors import StorageCorruptError

__all__ = [
    "LOCK_NAMESPACES",
    "LOCK_SCHEMA",
    "LOCK_SERVED",
    "LOCK_SWEEP",
    "LOCK_TOKENS",
    "MIGRATIONS",
    "migrate",
]

# Advisory locks hold within one database; "crMR", then what they are for.
_LOCKS = 0x63724D52 << 8
LOCK_SCHEMA = _LOCKS | 1
"""Who changes tables, or who the relay is."""
LOCK_NAMESPACES = _LOCKS | 2
"""Who makes a namespace."""
LOCK_TOKENS = _LOCKS | 3
"""Who changes a token."""
LOCK_SWEEP = _LOCKS | 4
"""Who sweeps."""
LOCK_SERVED = _LOCKS | 5
"""Shared by all who serve the database."""

_TABLES = """
-- `aged_ms` is running time that sweeps have observed, `aged_at_ms` is when.
CREATE TABLE crdtmem.relay(
    id int PRIMARY KEY CHECK(id = 1),
    relay_id bytea NOT NULL,
    aged_ms bigint NOT NULL,
    aged_at_ms bigint NOT NULL,
    probes bigint NOT NULL DEFAULT 0
);

CREATE TABLE crdtmem.epoch(
    n int PRIMARY KEY,
    epoch bytea NOT NULL UNIQUE,
    reason text NOT NULL,
    total bigint NOT NULL,
    created_ms bigint NOT NULL
);

-- Every write to a namespace changes its row: room on the page spares the indexes.
CREATE TABLE crdtmem.ns(
    ns_no bigint PRIMARY KEY,
    name text NOT NULL UNIQUE,
    head bigint NOT NULL,
    chain bytea NOT NULL,
    floor bigint NOT NULL DEFAULT 0,
    floor_chain bytea NOT NULL,
    live_bytes bigint NOT NULL DEFAULT 0,
    docs bigint NOT NULL DEFAULT 0,
    created_ms bigint NOT NULL
) WITH (fillfactor = 50);

CREATE TABLE crdtmem.replica(
    ns_no bigint NOT NULL,
    replica_id bytea NOT NULL,
    max_seq bigint NOT NULL,
    last_id bytea NOT NULL,
    token_id text NOT NULL,
    first_ms bigint NOT NULL,
    last_ms bigint NOT NULL,
    PRIMARY KEY(ns_no, replica_id)
) WITH (fillfactor = 70);

-- `snap_seq` is the doc's newest snapshot, `covered` the seq up to which it covers the
-- doc, `dropped_seq` the highest seq whose payload has been dropped.
CREATE TABLE crdtmem.doc(
    ns_no bigint NOT NULL,
    doc_tag bytea NOT NULL,
    snap_seq bigint NOT NULL DEFAULT 0,
    covered bigint NOT NULL DEFAULT 0,
    dropped_seq bigint NOT NULL DEFAULT 0,
    PRIMARY KEY(ns_no, doc_tag)
);

-- `payload` is all that follows the header, NULL once it has been dropped; `drop_at` is
-- the running time at which that is due.
CREATE TABLE crdtmem.log(
    ns_no bigint NOT NULL,
    seq bigint NOT NULL,
    record_id bytea NOT NULL,
    chain bytea NOT NULL,
    header bytea NOT NULL,
    payload bytea,
    doc_tag bytea,
    replica_id bytea NOT NULL,
    replica_seq bigint NOT NULL,
    drop_at bigint,
    token_id text NOT NULL,
    recv_ms bigint NOT NULL,
    PRIMARY KEY(ns_no, seq),
    UNIQUE(ns_no, replica_id, replica_seq)
);
CREATE INDEX log_doc ON crdtmem.log(ns_no, doc_tag, seq) WHERE payload IS NOT NULL;
CREATE INDEX log_drop ON crdtmem.log(drop_at) WHERE drop_at IS NOT NULL;

CREATE TABLE crdtmem.token(
    token_id text PRIMARY KEY,
    sha256 bytea NOT NULL,
    pattern text NOT NULL,
    scopes text NOT NULL,
    label text NOT NULL,
    not_after_ms bigint,
    max_replicas bigint,
    created_ms bigint NOT NULL,
    revoked_ms bigint,
    changed bigint NOT NULL UNIQUE
);
"""

MIGRATIONS: tuple[str, ...] = (_TABLES,)
"""What leads from each version to the next; the first one begins with nothing."""


async def migrate(connection: asyncpg.Connection, place: str) -> None:
    """Bring the tables to this release's version, one transaction a step.

    Several processes may do so at once. After an error the connection is of no use.

    Args:
        connection: To the database.
        place: Its name, for the sentence.

    Raises:
        StorageCorruptError: If a newer release has made the tables.

    """
    await connection.execute("SELECT pg_advisory_lock($1)", LOCK_SCHEMA)
    while (done := await _version(connection)) < len(MIGRATIONS):
        async with connection.transaction():
            await _step(connection, done)
    await connection.execute("SELECT pg_advisory_unlock($1)", LOCK_SCHEMA)
    if done > len(MIGRATIONS):
        raise StorageCorruptError(
            path=place,
            reason=f"it has schema {done}, and this crdtmem knows schema"
            f" {len(MIGRATIONS)}",
        )


async def _step(connection: asyncpg.Connection, done: int) -> None:
    if not done:
        # Asked for only where it is missing: IF NOT EXISTS needs the right to make it.
        if not await connection.fetchval(
            "SELECT count(*) FROM pg_namespace WHERE nspname = 'crdtmem'"
        ):
            await connection.execute("CREATE SCHEMA crdtmem")
        await connection.execute(
            "CREATE TABLE crdtmem.migration(version int PRIMARY KEY,"
            " at timestamptz NOT NULL DEFAULT now())"
        )
    await connection.execute(MIGRATIONS[done])
    await connection.execute(
        "INSERT INTO crdtmem.migration(version) VALUES ($1)", done + 1
    )


async def _version(connection: asyncpg.Connection) -> int:
    # Looked up in the catalogue: to_regclass may answer from before a lock was had.
    if not await connection.fetchval(
        "SELECT count(*) FROM pg_class JOIN pg_namespace AS space"
        " ON space.oid = relnamespace WHERE nspname = 'crdtmem'"
        " AND relname = 'migration'"
    ):
        return 0
    found: Any = await connection.fetchval(
        "SELECT coalesce(max(version), 0) FROM crdtmem.migration"
    )
    return int(found)
