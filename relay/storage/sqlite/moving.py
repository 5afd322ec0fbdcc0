"""A relay's file as the source or the target of a copy; see ``relay.storage.copying``.

Nothing here waits for anybody else, so nothing runs on another thread.
"""

from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import asynccontextmanager, closing
from pathlib import Path

import apsw

from relay.storage.copying import Row
from relay.storage.sqlite.connection import connect, mapped_errors
from relay.storage.sqlite.folder import (
    database_of,
    init_folder,
    locked_folder,
    sync_folder,
)
from relay.storage.sqlite.schema import SEQ_BITS

__all__ = ["SqliteCopy", "copy_source", "copy_target"]

_SELECT = {
    "relay": "SELECT relay_id, aged_ms, aged_at_ms FROM relay",
    "epoch": "SELECT n, epoch, reason, total, created_ms FROM epoch ORDER BY n",
    "ns": (
        "SELECT ns_no, name, head, chain, floor, floor_chain, live_bytes,"
        " (SELECT count(*) FROM doc WHERE doc.ns_no = ns.ns_no), created_ms"
        " FROM ns ORDER BY ns_no"
    ),
    "replica": (
        "SELECT ns_no, replica_id, max_seq, last_id, token_id, first_ms, last_ms"
        " FROM replica ORDER BY ns_no, replica_id"
    ),
    "doc": (
        "SELECT ns_no, doc_tag, snap_seq, covered, dropped_seq FROM doc"
        " ORDER BY ns_no, doc_tag"
    ),
    "token": (
        "SELECT token_id, sha256, pattern, scopes, label, not_after_ms, max_replicas,"
        " created_ms, revoked_ms, changed FROM token ORDER BY changed"
    ),
    "log": (
        "SELECT id >> :bits, id & ((1 << :bits) - 1), record_id, chain, header,"
        " payload, doc_tag, replica_id, replica_seq, drop_at, log.token_id, recv_ms"
        " FROM log JOIN replica USING(replica_no) LEFT JOIN doc USING(doc_no)"
        " ORDER BY id"
    ),
}
_ADD = {
    "relay": "UPDATE relay SET relay_id = ?, aged_ms = ?, aged_at_ms = ?",
    "epoch": (
        "INSERT INTO epoch(n, epoch, reason, total, created_ms) VALUES (?, ?, ?, ?, ?)"
    ),
    "ns": (
        "INSERT INTO ns(ns_no, name, head, chain, floor, floor_chain, live_bytes,"
        " created_ms) VALUES (?, ?, ?, ?, ?, ?, ?, ?)"
    ),
    "replica": (
        "INSERT INTO replica(ns_no, replica_id, max_seq, last_id, token_id, first_ms,"
        " last_ms) VALUES (?, ?, ?, ?, ?, ?, ?)"
    ),
    "doc": (
        "INSERT INTO doc(ns_no, doc_tag, snap_seq, covered, dropped_seq)"
        " VALUES (?, ?, ?, ?, ?)"
    ),
    "token": "INSERT INTO token VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
    "log": (
        "INSERT INTO log(id, record_id, chain, header, payload, doc_no, replica_no,"
        " replica_seq, drop_at, token_id, recv_ms) VALUES (?1 << ?13 | ?2, ?3, ?4, ?5,"
        " ?6, (SELECT doc_no FROM doc WHERE ns_no = ?1 AND doc_tag = ?7),"
        " (SELECT replica_no FROM replica WHERE ns_no = ?1 AND replica_id = ?8),"
        " ?9, ?10, ?11, ?12)"
    ),
}


class SqliteCopy:
    """The rows of a relay's file.

    Args:
        connection: In a transaction of the caller.
        place: The file, for sentences.

    Attributes:
        place: As above.

    """

    def __init__(self, connection: apsw.Connection, place: str) -> None:
        self.place = place
        self._connection = connection

    async def rows(self, table: str) -> AsyncGenerator[Row, None]:
        """Give the rows of a table, in the order of its key."""
        values = {"bits": SEQ_BITS} if table == "log" else {}
        for row in self._connection.execute(_SELECT[table], values):
            yield row

    async def records(self) -> int:
        """Return how many rows the log has."""
        return int(self._connection.execute("SELECT count(*) FROM log").get)

    async def add(self, table: str, rows: Sequence[Row]) -> None:
        """Add rows to a table."""
        if table == "log":
            rows = [(*row, SEQ_BITS) for row in rows]
        elif table == "ns":
            # How many docs there are, this one counts when it is asked.
            rows = [(*row[:7], row[8]) for row in rows]
        self._connection.executemany(_ADD[table], rows)


@asynccontextmanager
async def copy_source(folder: Path) -> AsyncIterator[SqliteCopy]:
    """Give the relay of a folder as of now; nobody serves it meanwhile.

    Raises:
        RelayRunningError: If somebody does.
        RelayFolderError: If the folder holds no relay.
        StorageError: If its file cannot be read.

    """
    path = database_of(folder)
    with (
        locked_folder(folder),
        mapped_errors(path),
        closing(connect(path, read_only=True)) as connection,
    ):
        connection.execute("BEGIN")
        yield SqliteCopy(connection, str(path))


@asynccontextmanager
async def copy_target(folder: Path, *, now_ms: int) -> AsyncIterator[SqliteCopy]:
    """Give a relay in a new folder, to be filled; it is there once this is left.

    Raises:
        RelayFolderError: If something is in the folder, or it is no folder.
        StorageError: If its file cannot be written; the folder is empty then.

    """
    init_folder(folder, now_ms=now_ms)
    path = database_of(folder)
    try:
        with (
            locked_folder(folder),
            closing(connect(path)) as connection,
            mapped_errors(path, connection),
        ):
            connection.execute("BEGIN IMMEDIATE")
            connection.execute("DELETE FROM epoch")
            yield SqliteCopy(connection, str(path))
            connection.execute(
                "UPDATE relay SET total = (SELECT coalesce(sum(head), 0) FROM ns)"
            )
            connection.execute("COMMIT")
    except BaseException:
        _empty(folder)
        raise
    sync_folder(folder)


def _empty(folder: Path) -> None:
    for found in folder.iterdir():
        found.unlink()
