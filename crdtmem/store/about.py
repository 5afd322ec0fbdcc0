"""The store's row about itself."""

from typing import NamedTuple

import apsw

from crdtmem.errors import StoreCorruptError

__all__ = ["AboutRow", "StoreFigures", "about_store", "data_version", "store_figures"]


class AboutRow(NamedTuple):
    """Who the store is, and where its log stands.

    Attributes:
        replica: Under which id it writes.
        context: Digest of the place where its file lay when it got that id.
        lsn: The newest step of the log.
        history_keep: Kept texts a slot.

    """

    replica: bytes
    context: str
    lsn: int
    history_keep: int


def about_store(connection: apsw.Connection, path: str) -> AboutRow:
    """Return the row.

    Raises:
        StoreCorruptError: If it is missing.

    """
    for row in connection.execute(
        "SELECT replica, context, lsn, history_keep FROM store"
    ):
        return AboutRow(*row)
    raise StoreCorruptError(path=path, reason="its row about itself is missing")


class StoreFigures(NamedTuple):
    """How large a store is.

    Attributes:
        schema: Version of the tables.
        records: Rows of the log.
        size_bytes: Of the database, without its write-ahead log.

    """

    schema: int
    records: int
    size_bytes: int


def store_figures(connection: apsw.Connection) -> StoreFigures:
    """Return how large a store is; counts the log's rows."""
    records = connection.execute("SELECT count(*) FROM log").get
    pages = connection.pragma("page_count")
    return StoreFigures(
        schema=connection.pragma("user_version"),
        records=int(records),
        size_bytes=pages * connection.pragma("page_size"),
    )


def data_version(connection: apsw.Connection) -> int:
    """Return a number that changes with every commit of another connection.

    Reads a counter in shared memory. It tells that something changed, never what: what
    a reader has seen rests on the log's steps alone.
    """
    return int(connection.pragma("data_version"))
