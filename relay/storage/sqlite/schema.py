"""The tables of a relay's file, and how the file is made.

The columns are those of the protocol's section 11, less what only voids, pruning and
per-namespace quotas would use, and less what a record's header says already.
"""

import apsw

from crdtmem.errors import StorageCorruptError

__all__ = ["APPLICATION_ID", "SEQ_BITS", "check_schema", "create_tables"]

APPLICATION_ID = 0x63724D52
"""Stands in the file's header: "crMR"."""

SCHEMA = 1

SEQ_BITS = 40
"""Bits of a log row's id that hold the seq; the number of its namespace is above.

One clustered tree thus serves every range read, without a second index.
"""

TABLES = """
-- `aged_ms` is running time that sweeps have observed, `aged_at_ms` is when. `probes`
-- only counts: SQLite writes nothing where nothing changes.
CREATE TABLE relay(
    id INTEGER PRIMARY KEY CHECK(id = 1),
    relay_id BLOB NOT NULL,
    total INTEGER NOT NULL,
    aged_ms INTEGER NOT NULL,
    aged_at_ms INTEGER NOT NULL,
    probes INTEGER NOT NULL DEFAULT 0
) STRICT;

CREATE TABLE epoch(
    n INTEGER PRIMARY KEY,
    epoch BLOB NOT NULL UNIQUE,
    reason TEXT NOT NULL,
    total INTEGER NOT NULL,
    created_ms INTEGER NOT NULL
) STRICT;

CREATE TABLE ns(
    ns_no INTEGER PRIMARY KEY AUTOINCREMENT,
    name TEXT NOT NULL UNIQUE,
    head INTEGER NOT NULL,
    chain BLOB NOT NULL,
    floor INTEGER NOT NULL DEFAULT 0,
    floor_chain BLOB NOT NULL,
    live_bytes INTEGER NOT NULL DEFAULT 0,
    created_ms INTEGER NOT NULL
) STRICT;

CREATE TABLE replica(
    replica_no INTEGER PRIMARY KEY,
    ns_no INTEGER NOT NULL REFERENCES ns,
    replica_id BLOB NOT NULL,
    max_seq INTEGER NOT NULL,
    last_id BLOB NOT NULL,
    token_id TEXT NOT NULL,
    first_ms INTEGER NOT NULL,
    last_ms INTEGER NOT NULL,
    UNIQUE(ns_no, replica_id)
) STRICT;

-- `snap_seq` is the doc's newest snapshot, `covered` the seq up to which it covers the
-- doc, `dropped_seq` the highest seq whose payload has been dropped.
CREATE TABLE doc(
    doc_no INTEGER PRIMARY KEY,
    ns_no INTEGER NOT NULL REFERENCES ns,
    doc_tag BLOB NOT NULL,
    snap_seq INTEGER NOT NULL DEFAULT 0,
    covered INTEGER NOT NULL DEFAULT 0,
    dropped_seq INTEGER NOT NULL DEFAULT 0,
    UNIQUE(ns_no, doc_tag)
) STRICT;

-- `id` is ns_no << 40 | seq. `payload` is all that follows the header, NULL once it has
-- been dropped; `drop_at` is the running time at which that is due.
CREATE TABLE log(
    id INTEGER PRIMARY KEY,
    record_id BLOB NOT NULL,
    chain BLOB NOT NULL,
    header BLOB NOT NULL,
    payload BLOB,
    doc_no INTEGER REFERENCES doc,
    replica_no INTEGER NOT NULL REFERENCES replica,
    replica_seq INTEGER NOT NULL,
    drop_at INTEGER,
    token_id TEXT NOT NULL,
    recv_ms INTEGER NOT NULL,
    UNIQUE(replica_no, replica_seq)
) STRICT;
CREATE INDEX log_doc ON log(doc_no, id) WHERE payload IS NOT NULL;
CREATE INDEX log_drop ON log(drop_at) WHERE drop_at IS NOT NULL;

CREATE TABLE token(
    token_id TEXT PRIMARY KEY,
    sha256 BLOB NOT NULL,
    pattern TEXT NOT NULL,
    scopes TEXT NOT NULL,
    label TEXT NOT NULL,
    not_after_ms INTEGER,
    max_replicas INTEGER,
    created_ms INTEGER NOT NULL,
    revoked_ms INTEGER,
    changed INTEGER NOT NULL UNIQUE
) STRICT;
"""


def create_tables(
    connection: apsw.Connection, *, relay_id: bytes, epoch: bytes, now_ms: int
) -> None:
    """Make a relay of an empty file, in one transaction.

    Args:
        connection: Open for writing.
        relay_id: Who it will be, for good (16 bytes).
        epoch: Its first epoch (16 bytes).
        now_ms: The wall clock.

    """
    # Outside of the transaction; it stays in the file.
    connection.pragma("journal_mode", "wal")
    with connection:
        connection.execute(TABLES)
        connection.execute(
            "INSERT INTO relay(id, relay_id, total, aged_ms, aged_at_ms)"
            " VALUES (1, :relay_id, 0, 0, :now)",
            {"relay_id": relay_id, "now": now_ms},
        )
        connection.execute(
            "INSERT INTO epoch(epoch, reason, total, created_ms)"
            " VALUES (:epoch, 'init', 0, :now)",
            {"epoch": epoch, "now": now_ms},
        )
        connection.pragma("user_version", SCHEMA)
        connection.pragma("application_id", APPLICATION_ID)


def check_schema(connection: apsw.Connection, path: str) -> None:
    """Make sure that the file is a relay's, as this release writes it.

    Raises:
        StorageCorruptError: If it is another program's, or a newer release's.

    """
    if connection.pragma("application_id") != APPLICATION_ID:
        raise StorageCorruptError(path=path, reason="it is no relay of crdtmem")
    found = connection.pragma("user_version")
    if found != SCHEMA:
        raise StorageCorruptError(
            path=path,
            reason=f"it has schema {found}, and this crdtmem knows schema {SCHEMA}",
        )
