"""Whole copies of a store, and the space that its old records take.

A copy is made by SQLite, page by page in one read transaction, and never with a plain
file copy, which would miss the write-ahead log. It lies in another place than the
store it was made from, so it takes ids of its own before its first write.
"""

import logging
from pathlib import Path
from typing import NamedTuple

import apsw

from crdtmem.errors import SlotQuarantinedError
from crdtmem.store.connection import mapped_errors
from crdtmem.store.store import Store
from crdtmem.store.whole_file import new_file

__all__ = ["CompactFigures", "backup", "compact"]

logger = logging.getLogger(__name__)

VACUUM_QUARTERS = 4
"""A file is written anew once a quarter of its pages is free: less is used up soon."""


class CompactFigures(NamedTuple):
    """What ``compact`` found and left; bytes are those of the file and its log."""

    docs: int
    records_before: int
    records_after: int
    bytes_before: int
    bytes_after: int


def backup(store: Store, target: Path) -> int:
    """Copy the store as of one moment, while others use it; return the copy's bytes.

    Reads and writes of other processes go on meanwhile; those of this handle queue.
    When it returns the copy is whole and on disk, under its name; when it raises there
    is no file of that name.

    Raises:
        InvalidArgumentError: If something of that name exists, which is never
            replaced, or its folder does not.
        PermissionDeniedError: If the folder cannot be written.
        StoreFullError: If there is no space for the copy.

    """
    with new_file(target) as part:
        _copy(store, part)
    return target.stat().st_size


def compact(store: Store) -> CompactFigures:
    """Squash every doc as far as the history window allows, and give back the space.

    One transaction a doc, so writers wait for one squash at most. The file is written
    anew only where a quarter of it is free: that takes as much free disk as the file,
    and keeps writers out meanwhile.

    Damaged docs stay as they are, for ``doctor``.

    Raises:
        StoreBusyError: If the lock was not had in time, or a reader keeps the log in
            use; what was squashed until then stays squashed.
        StoreFullError: Likewise.

    """
    with store.reading() as connection:
        docs = _numbers(connection, "SELECT doc FROM doc ORDER BY doc")
        records_before = _count_records(connection)
        bytes_before = _size_bytes(store)
    for doc in docs:
        _squash(store, doc)
    store.checkpoint()
    with store.reading() as connection:
        pages = connection.pragma("page_count")
        if connection.pragma("freelist_count") * VACUUM_QUARTERS >= pages:
            with store.lock.held(store.busy_timeout_s):
                connection.execute("VACUUM")
            store.checkpoint()
        return CompactFigures(
            docs=len(docs),
            records_before=records_before,
            records_after=_count_records(connection),
            bytes_before=bytes_before,
            bytes_after=_size_bytes(store),
        )


def _squash(store: Store, doc: int) -> None:
    try:
        with store.writing() as transaction:
            quarantined = _numbers(
                transaction.connection,
                "SELECT doc FROM slot WHERE doc = :doc AND quarantined IS NOT NULL"
                " UNION ALL"
                " SELECT doc FROM mset WHERE doc = :doc AND quarantined IS NOT NULL",
                doc=doc,
            )
            if not quarantined:
                transaction.squash(doc)
    except (SlotQuarantinedError, ValueError):
        # Its next write, or doctor, reports it; the other docs must not wait for that.
        logger.warning("doc %d is damaged and stays as it is", doc, exc_info=True)


def _copy(store: Store, target: Path) -> None:
    with store.reading() as source, mapped_errors(target):
        copy = apsw.Connection(str(target), flags=apsw.SQLITE_OPEN_READWRITE)
        try:
            # All pages in one step: a source that others write to between two steps
            # would start the copy again each time.
            with copy.backup("main", source, "main") as running:
                running.step(-1)
        finally:
            copy.close()


def _numbers(connection: apsw.Connection, statement: str, **values: int) -> list[int]:
    return [int(number) for (number,) in connection.execute(statement, values)]


def _count_records(connection: apsw.Connection) -> int:
    return _numbers(connection, "SELECT count(*) FROM log")[0]


def _size_bytes(store: Store) -> int:
    # Looked at, never opened; the log is absent where the last user has closed it.
    sizes = (store.path, store.path.with_name(f"{store.path.name}-wal"))
    return sum(path.stat().st_size for path in sizes if path.exists())
