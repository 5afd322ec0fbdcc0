"""An open store: one connection, one lock, one cache of documents.

A handle may be used from any thread; its mutex makes the calls queue. Other processes
meet it at the file: readers never wait, writers queue on the flock of the lock file
before SQLite's own lock is asked for. SQLite's busy handler alone lets a writer wait
for 179 ms where the flock takes 4 (8 processes on 2 cores).

What only writers need is loaded with the first write: agents read at every turn, each
time in a new process, and the document layer would double the time that takes.
"""

import os
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

import apsw

from crdtmem.errors import (
    StoreClosedError,
    StoreCorruptError,
    StoreNotFoundError,
    StoreReadOnlyError,
)
from crdtmem.limits import (
    CHECKPOINT_PASSIVE_PAGES,
    CHECKPOINT_TRUNCATE_BYTES,
    HISTORY_TEXTS,
    INDEX_BATCH_ROWS,
    INDEX_PENDING_ROWS,
    STORE_LOCK_S,
)
from crdtmem.store.connection import Durability, connect, mapped_errors, store_error_of
from crdtmem.store.lock import StoreLock
from crdtmem.store.pending import is_indexing_due
from crdtmem.store.placement import (
    check_modes,
    check_placement,
    lock_path_for,
    prepare_folder,
    resolve_store_path,
)
from crdtmem.store.schema import is_current, migrate

if TYPE_CHECKING:
    from crdtmem.doc.document import Document
    from crdtmem.sealing import Sealer
    from crdtmem.store.write import Transaction

__all__ = ["Reading", "Store"]


class Reading:
    """A block with the connection; written out, as it is entered at every read."""

    __slots__ = ("_connection", "_store")

    def __init__(self, store: "Store") -> None:
        self._store = store
        self._connection: apsw.Connection | None = None

    def __enter__(self) -> apsw.Connection:
        self._store._mutex.acquire()
        try:
            self._connection = self._store._usable()
        except BaseException:
            self._store._mutex.release()
            raise
        return self._connection

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._store._mutex.release()
        if isinstance(error, (apsw.Error, UnicodeDecodeError)):
            raise store_error_of(error, self._store.path, self._connection) from error


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


class Store:
    """One SQLite file of slots, shared by all processes of one user.

    1. A write that returned has been committed, and synced where durability is full.
    2. A write that raised has changed nothing, in the file or in the cache.
    3. No connection outlives a fork: SQLite's locks belong to the process.

    Args:
        path: The file.
        read_only: Never write, never take the lock; but a store of an older release
            is brought up to date first.
        create: Make an absent store.
        durability: ``normal`` leaves the newest writes to the system's caches.
        busy_timeout_s: Longest wait for the write lock.
        history_keep: Kept texts a slot, where the store is made here.
        clock_ms: The time, in milliseconds since 1970, UTC.

    Attributes:
        docs: Cached documents by their number, each with the step it stands at.
        sealers: What opens and seals the records of encrypted namespaces; set by who
            syncs. No key is ever in the file.
        is_closed: Whether ``close`` has been called.

    Raises:
        StoreError: If the file cannot be used; nothing was made then.

    """

    def __init__(
        self,
        path: Path,
        *,
        read_only: bool = False,
        create: bool = True,
        durability: Durability = "full",
        busy_timeout_s: float = STORE_LOCK_S,
        history_keep: int = HISTORY_TEXTS,
        clock_ms: Callable[[], int] = _now_ms,
    ) -> None:
        self.path = resolve_store_path(path)
        check_placement(self.path)
        if not self.path.exists():
            if read_only or not create:
                raise StoreNotFoundError(path=str(self.path))
            prepare_folder(self.path)
        check_modes(self.path, writable=not read_only)
        self.read_only = read_only
        self.durability: Durability = durability
        self.busy_timeout_s = busy_timeout_s
        self.clock_ms = clock_ms
        self.lock = StoreLock(lock_path_for(self.path))
        self.docs: dict[int, tuple[int, Document]] = {}
        self.sealers: dict[str, Sealer] = {}
        self._context = ""
        self._history_keep = history_keep
        self._mutex = threading.RLock()
        self._connection: apsw.Connection | None = None
        self._file_id: tuple[int, int] | None = None
        self._wal_pages = 0
        self._index_at_changes = 0
        self.is_closed = False
        with self._mutex:
            self._open()
        _OPEN.add(self)

    def close(self) -> None:
        """Let go of the file; every later call raises StoreClosedError. Idempotent."""
        with self._mutex:
            self.is_closed = True
            self._suspend()
        _OPEN.discard(self)

    def reading(self) -> "Reading":
        """Give the connection for statements that each see the newest commit."""
        return Reading(self)

    @contextmanager
    def snapshot(self) -> Iterator[apsw.Connection]:
        """Give the connection in one read transaction: all statements see one state.

        Within another one it is that one.
        """
        with self.reading() as connection:
            if connection.in_transaction:
                yield connection
                return
            connection.execute("BEGIN")
            try:
                yield connection
            finally:
                connection.execute("ROLLBACK")

    @contextmanager
    def writing(self) -> Iterator["Transaction"]:
        """Give a write transaction at the newest state; commit it when the block ends.

        Whatever the block raises rolls everything back. A commit that fails drops the
        connection as well: what SQLite has in memory after a failed sync is not to be
        trusted.

        Raises:
            StoreBusyError: If the lock was not had within the handle's timeout.
            StoreReadOnlyError: If the handle is for reading.
            StoreFullError: If the disk is full.

        """
        from crdtmem.store.write import Transaction  # noqa: PLC0415 - see the module

        with self._mutex:
            if self.read_only and not self.is_closed:
                raise StoreReadOnlyError(path=str(self.path))
            connection = self._usable()
            with self.lock.held(self.busy_timeout_s):
                self._check_file()
                with mapped_errors(self.path):
                    transaction = Transaction(self, connection)
                    try:
                        # Mapped before the connection is dropped: it knows the errno.
                        with mapped_errors(self.path, connection):
                            transaction.begin()
                            yield transaction
                            transaction.commit()
                    except BaseException:
                        self._abandon(transaction, connection)
                        raise
                self._look_after(connection)

    @contextmanager
    def indexing(self, wait_s: float) -> Iterator[apsw.Connection]:
        """Give a transaction for what is made of the texts, and is no write of them.

        Args:
            wait_s: How long to wait for the write lock.

        Raises:
            StoreBusyError: If the lock was not had in time.
            StoreReadOnlyError: If the handle is for reading.

        """
        with self._mutex:
            connection = self._usable()
            if self.read_only:
                raise StoreReadOnlyError(path=str(self.path))
            with self.lock.held(wait_s), mapped_errors(self.path, connection):
                self._check_file()
                try:
                    with connection:
                        yield connection
                except apsw.Error:
                    self._suspend_quietly()
                    raise
                self._checkpoint(connection)

    def checkpoint(self) -> None:
        """Copy the whole log back into the file and empty it, as far as readers let.

        Raises:
            StoreReadOnlyError: If the handle is for reading.

        """
        with self._mutex:
            connection = self._usable()
            if self.read_only:
                raise StoreReadOnlyError(path=str(self.path))
            with self.lock.held(self.busy_timeout_s), mapped_errors(self.path):
                connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)

    def _usable(self) -> apsw.Connection:
        if self.is_closed:
            raise StoreClosedError(path=str(self.path))
        return self._connection or self._open()

    def _open(self) -> apsw.Connection:
        if self._file_id is not None:
            # Opened again, after a fork or a failed commit: the same file or none.
            self._check_file()
        if not self.read_only and not self.path.exists():
            # SQLite would make it readable for everybody. O_EXCL: never a second
            # descriptor of a file that SQLite may have open already. Another process
            # may make it at the same moment.
            with suppress(FileExistsError):
                os.close(os.open(self.path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
        connection = connect(
            self.path, read_only=self.read_only, durability=self.durability
        )
        try:
            with mapped_errors(self.path, connection):
                if not is_current(connection, str(self.path)):
                    self._upgrade(connection)
                connection.set_wal_hook(self._note_wal)
        except BaseException:
            connection.close()
            raise
        self._connection = connection
        # A connection counts from 0.
        self._index_at_changes = min(self._index_at_changes, INDEX_PENDING_ROWS)
        self._file_id = self._file_on_disk()
        return connection

    @property
    def context(self) -> str:
        """Digest of the place where the file lies."""
        from crdtmem.store.context import store_context  # noqa: PLC0415 - for writers

        if not self._context:
            self._context = store_context(self.path)
        return self._context

    def _upgrade(self, connection: apsw.Connection) -> None:
        if self.read_only:
            if not connection.pragma("user_version"):
                raise StoreNotFoundError(path=str(self.path))
            Store(self.path, create=False, busy_timeout_s=self.busy_timeout_s).close()
            return
        from crdtmem.store.context import new_replica_id  # noqa: PLC0415 - for writers

        with self.lock.held(self.busy_timeout_s):
            connection.pragma("journal_mode", "wal")
            migrate(
                connection,
                str(self.path),
                replica=new_replica_id(),
                context=self.context,
                history_keep=self._history_keep,
                now_ms=self.clock_ms(),
            )

    def _suspend(self) -> None:
        """Close the connection and the lock; the next call opens them again."""
        self.docs.clear()
        self.lock.close()
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _abandon(self, transaction: "Transaction", connection: apsw.Connection) -> None:
        # An exception between an edit and its commit leaves the edit in the cached
        # document, where the next write would build on it.
        for doc in transaction.edited:
            self.docs.pop(doc, None)
        if transaction.is_committing:
            self._suspend_quietly()
            return
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        if transaction.damaged is not None:
            connection.execute("BEGIN IMMEDIATE")
            transaction.mark_damaged()
            connection.execute("COMMIT")

    def _suspend_quietly(self) -> None:
        self.docs.clear()
        connection, self._connection = self._connection, None
        if connection is not None:
            try:
                connection.close(True)  # noqa: FBT003 - apsw's "force", positional only
            except apsw.Error:
                _warn("a connection of %s did not close; it is made anew", self.path)

    def _file_on_disk(self) -> tuple[int, int] | None:
        try:
            found = os.stat(self.path)
        except FileNotFoundError:
            return None
        return found.st_dev, found.st_ino

    def _check_file(self) -> None:
        # A write into a file that has lost its name would be acknowledged and gone.
        found = self._file_on_disk()
        if found is None:
            raise StoreNotFoundError(path=str(self.path))
        if found != self._file_id:
            reason = "another file has taken its place since it was opened"
            raise StoreCorruptError(path=str(self.path), reason=reason)

    def _note_wal(self, _: apsw.Connection, __: str, pages: int) -> int:
        self._wal_pages = pages
        return apsw.SQLITE_OK

    def _look_after(self, connection: apsw.Connection) -> None:
        """Do what is due after a commit; nothing of it fails the write."""
        is_due = self._checkpoint(connection)
        # So many rows have to change for so many texts to be pending.
        if not is_due and connection.total_changes() < self._index_at_changes:
            return
        try:
            least = INDEX_BATCH_ROWS if is_due else INDEX_PENDING_ROWS
            if is_indexing_due(connection, least):
                self._index_some(connection)
        except (apsw.Error, UnicodeDecodeError):
            _warn("texts of %s could not be indexed; searches do without", self.path)
            self._suspend_quietly()
            # Of the next connection: not at each write again.
            self._index_at_changes = INDEX_PENDING_ROWS
            return
        self._index_at_changes = connection.total_changes() + INDEX_PENDING_ROWS

    def _index_some(self, connection: apsw.Connection) -> None:
        from crdtmem.store.indexing import index_batch  # noqa: PLC0415 - for who is due

        with connection:
            index_batch(connection, INDEX_BATCH_ROWS)

    def _checkpoint(self, connection: apsw.Connection) -> bool:
        """Copy the log back into the file if it is long; tell whether it was."""
        if self._wal_pages <= CHECKPOINT_PASSIVE_PAGES:
            return False
        wal_bytes = self._wal_pages * connection.pragma("page_size")
        mode = apsw.SQLITE_CHECKPOINT_PASSIVE
        if wal_bytes > CHECKPOINT_TRUNCATE_BYTES:
            mode = apsw.SQLITE_CHECKPOINT_TRUNCATE
        try:
            connection.wal_checkpoint(mode=mode)
        except apsw.Error:
            # The write is committed and stays acknowledged; the next one tries again.
            _warn("a checkpoint of %s failed; the next write tries again", self.path)
        return True


def _warn(message: str, path: Path) -> None:
    """Log what nobody can be told: the write itself has succeeded, or says why not."""
    import logging  # noqa: PLC0415 - half a bare start, for a seldom case

    reason = sys.exception()
    logging.getLogger(__name__).warning(message, path, exc_info=reason)


_OPEN: "weakref.WeakSet[Store]" = weakref.WeakSet()
_HELD: list[Store] = []
"""What the fork in progress has stopped; set by one thread at a time."""


def _before_fork() -> None:
    # POSIX locks do not pass to a child, but SQLite's memory of them does: parent and
    # child would both believe to hold them, and could corrupt the file. So no
    # connection is open at the fork, and each side opens its own when it needs one.
    for store in list(_OPEN):
        store._mutex.acquire()
        _HELD.append(store)
        store._suspend()


def _after_fork() -> None:
    while _HELD:
        _HELD.pop()._mutex.release()


if hasattr(os, "register_at_fork"):  # pragma: no branch - Windows has no fork
    os.register_at_fork(
        before=_before_fork, after_in_parent=_after_fork, after_in_child=_after_fork
    )
