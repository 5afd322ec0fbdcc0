"""A database as the source or the target of a copy; see ``relay.storage.copying``.

All of it is one transaction of one connection, which holds the lock that everybody who
serves the database shares: a copy and a serving process exclude each other.
"""

from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import asyncpg

from crdtmem.errors import RelayFolderError, RelayRunningError
from relay.storage.copying import Row
from relay.storage.postgres.connection import Database, PostgresTiming
from relay.storage.postgres.schema import LOCK_SERVED, migrate

__all__ = ["PostgresCopy", "copy_source", "copy_target"]

# One statement may be the whole of a log, and the other side may be slow.
_TIMING = PostgresTiming(answer_s=86_400.0, statement_ms=0, idle_ms=0)
_ROWS_AHEAD = 64

_SELECT = {
    "relay": "SELECT relay_id, aged_ms, aged_at_ms FROM crdtmem.relay",
    "epoch": "SELECT n, epoch, reason, total, created_ms FROM crdtmem.epoch ORDER BY n",
    "ns": (
        "SELECT ns_no, name, head, chain, floor, floor_chain, live_bytes, docs,"
        " created_ms FROM crdtmem.ns ORDER BY ns_no"
    ),
    "replica": (
        "SELECT ns_no, replica_id, max_seq, last_id, token_id, first_ms, last_ms"
        " FROM crdtmem.replica ORDER BY ns_no, replica_id"
    ),
    "doc": (
        "SELECT ns_no, doc_tag, snap_seq, covered, dropped_seq FROM crdtmem.doc"
        " ORDER BY ns_no, doc_tag"
    ),
    "token": (
        "SELECT token_id, sha256, pattern, scopes, label, not_after_ms, max_replicas,"
        " created_ms, revoked_ms, changed FROM crdtmem.token ORDER BY changed"
    ),
    "log": (
        "SELECT ns_no, seq, record_id, chain, header, payload, doc_tag, replica_id,"
        " replica_seq, drop_at, token_id, recv_ms FROM crdtmem.log ORDER BY ns_no, seq"
    ),
}
_COLUMNS = {
    "relay": "id relay_id aged_ms aged_at_ms",
    "epoch": "n epoch reason total created_ms",
    "ns": "ns_no name head chain floor floor_chain live_bytes docs created_ms",
    "replica": "ns_no replica_id max_seq last_id token_id first_ms last_ms",
    "doc": "ns_no doc_tag snap_seq covered dropped_seq",
    "token": (
        "token_id sha256 pattern scopes label not_after_ms max_replicas created_ms"
        " revoked_ms changed"
    ),
    "log": (
        "ns_no seq record_id chain header payload doc_tag replica_id replica_seq"
        " drop_at token_id recv_ms"
    ),
}


class PostgresCopy:
    """The rows of a database.

    Args:
        connection: In a transaction of the caller.
        place: The database, for sentences.

    Attributes:
        place: As above.

    """

    def __init__(self, connection: asyncpg.Connection, place: str) -> None:
        self.place = place
        self._connection = connection

    async def rows(self, table: str) -> AsyncGenerator[Row, None]:
        """Give the rows of a table, in the order of its key."""
        cursor = self._connection.cursor(_SELECT[table], prefetch=_ROWS_AHEAD)
        async for row in cursor:
            yield tuple(row)

    async def records(self) -> int:
        """Return how many rows the log has."""
        found = await self._connection.fetchval("SELECT count(*) FROM crdtmem.log")
        return int(found)

    async def add(self, table: str, rows: Sequence[Row]) -> None:
        """Add rows to a table."""
        if table == "relay":
            rows = [(1, *row) for row in rows]
        await self._connection.copy_records_to_table(
            table,
            schema_name="crdtmem",
            columns=_COLUMNS[table].split(),
            records=rows,
        )


@asynccontextmanager
async def copy_source(
    url: str, *, password_file: Path | None = None
) -> AsyncIterator[PostgresCopy]:
    """Give the relay of a database as of now; nobody serves it meanwhile.

    Raises:
        RelayRunningError: If somebody does.
        RelayFolderError: If the database holds no relay.
        StorageError: If it cannot be read.

    """
    database = Database(url, password_file=password_file, timing=_TIMING)
    async with database.connection() as connection:
        await _lock(connection, database.place)
        if await connection.fetchval("SELECT to_regclass('crdtmem.relay')") is None:
            raise RelayFolderError(path=database.place, reason="holds no relay")
        await migrate(connection, database.place)
        async with connection.transaction(isolation="repeatable_read", readonly=True):
            if not await _has_rows(connection):
                raise RelayFolderError(path=database.place, reason="holds no relay")
            yield PostgresCopy(connection, database.place)


@asynccontextmanager
async def copy_target(
    url: str, *, password_file: Path | None = None
) -> AsyncIterator[PostgresCopy]:
    """Give an empty database, to be filled; it is a relay's once this is left.

    Raises:
        RelayRunningError: If somebody serves it.
        RelayFolderError: If there is a relay in it already.
        StorageError: If it cannot be written; it is as it was then, but for tables.

    """
    database = Database(url, password_file=password_file, timing=_TIMING)
    async with database.connection() as connection:
        await _lock(connection, database.place)
        await migrate(connection, database.place)
        async with connection.transaction():
            if await _has_rows(connection):
                raise RelayFolderError(
                    path=database.place,
                    reason="is not empty",
                    hint="name a new database",
                )
            yield PostgresCopy(connection, database.place)


async def _lock(connection: asyncpg.Connection, place: str) -> None:
    # It ends with the connection.
    if not await connection.fetchval("SELECT pg_try_advisory_lock($1)", LOCK_SERVED):
        raise RelayRunningError(path=place)


async def _has_rows(connection: asyncpg.Connection) -> bool:
    return bool(
        await connection.fetchval(
            "SELECT EXISTS (SELECT FROM crdtmem.relay)"
            " OR EXISTS (SELECT FROM crdtmem.token)"
        )
    )
