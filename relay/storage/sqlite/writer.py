"""The one connection that writes a relay's file; one thread makes all its calls.

What a transaction wrote is on disk once it has been committed, and not visible before.
A full disk rolls it back, and all goes on. After any other failure of the disk nothing
is written any more: a sync that failed once and then succeeds has lost pages that the
system dropped, so only a new process, which reads the disk, can tell what is there.
"""

import logging
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import apsw

from crdtmem.errors import StorageBusyError, StorageFullError, StorageUncertainError
from crdtmem.limits import (
    CHECKPOINT_PASSIVE_PAGES,
    CHECKPOINT_TRUNCATE_BYTES,
    CHECKPOINT_WAIT_MS,
    RELAY_ROWS_KNOWN_MAX,
    SQLITE_BUSY_MS,
)
from crdtmem.protocol.records import chain_start
from crdtmem.protocol.relaying import Put, PutResult
from relay.storage import SweepReport
from relay.storage.rules import StorageLimits
from relay.storage.sqlite.aging import advance_age, drop_payloads
from relay.storage.sqlite.appending import Group
from relay.storage.sqlite.connection import connect, is_busy, is_full
from relay.storage.sqlite.rows import Known

__all__ = ["Writer"]

logger = logging.getLogger(__name__)


class Writer:
    """Writes the log; see the module.

    Args:
        path: The file; it is there.
        limits: Of the relay.
        disk_free_bytes: With less free space than this, no record is taken.
        clock_ms: The wall clock.

    """

    def __init__(
        self,
        path: Path,
        limits: StorageLimits,
        *,
        disk_free_bytes: int,
        clock_ms: Callable[[], int],
    ) -> None:
        self._path = path
        self._limits = limits
        self._disk_free_bytes = disk_free_bytes
        self._clock_ms = clock_ms
        self._broken = ""
        self._wal_pages = 0
        # How long the log was at the last checkpoint. A reader may hold a part of it
        # back for long, a backup for one, and no group should pay for that.
        self._tried_pages = 0
        self._connection = connect(path)
        # A backup says that it is a file without a log.
        self._connection.pragma("journal_mode", "wal")
        self._connection.set_wal_hook(self._note_pages)
        self._known = Known(self._connection)
        self.total = int(self._connection.execute("SELECT total FROM relay").get)

    def append(self, puts: Sequence[Put]) -> list[PutResult]:
        """Store a group of puts and sync it; see ``Storage.append``."""
        self._check_space()
        with self.transaction() as connection:
            group = Group(connection, self._known, self._limits, self._clock_ms())
            results = [group.put(put) for put in puts]
            stored = group.finish()
        self.total += stored
        if self._known.rows > RELAY_ROWS_KNOWN_MAX:
            self._known.forget()
        return results

    def add_namespace(self, name: str, relay_id: bytes) -> int:
        """Make a namespace, unless there is one of this name; return its number."""
        start = chain_start(relay_id, name)
        with self.transaction() as connection:
            connection.execute(
                "INSERT INTO ns(name, head, chain, floor_chain, created_ms)"
                " VALUES (:name, 0, :start, :start, :now)"
                " ON CONFLICT(name) DO NOTHING",
                {"name": name, "start": start, "now": self._clock_ms()},
            )
            found = connection.execute(
                "SELECT ns_no FROM ns WHERE name = :name", {"name": name}
            ).get
            return int(found)

    def sweep(self, now_ms: int, limit: int) -> SweepReport:
        """Drop payloads whose grace is over; see ``Storage.sweep``."""
        with self.transaction() as connection:
            age_ms = advance_age(connection, now_ms)
            report = drop_payloads(connection, age_ms, limit)
        self._known.forget()
        return report

    def probe(self) -> None:
        """Make one durable write; raises what append would."""
        self._check_space()
        with self.transaction() as connection:
            connection.execute("UPDATE relay SET probes = probes + 1")

    @property
    def is_checkpoint_due(self) -> bool:
        """Whether the write-ahead log has become long."""
        return self._wal_pages > self._tried_pages + CHECKPOINT_PASSIVE_PAGES

    def checkpoint(self) -> None:
        """Copy the write-ahead log back, if it has become long.

        Waits for readers only where the log is very long, and then for a moment. What
        was committed stays so whatever happens here; after a failure of the disk
        nothing more is written.
        """
        if self._broken or not self.is_checkpoint_due:
            return
        self._tried_pages = self._wal_pages
        wal_bytes = self._wal_pages * self._connection.pragma("page_size")
        mode = apsw.SQLITE_CHECKPOINT_PASSIVE
        if wal_bytes > CHECKPOINT_TRUNCATE_BYTES:
            mode = apsw.SQLITE_CHECKPOINT_TRUNCATE
        self._copy_back(mode)

    def close(self) -> None:
        """Copy the whole write-ahead log back and close; idempotent."""
        if not self._broken:
            self._copy_back(apsw.SQLITE_CHECKPOINT_TRUNCATE)
        self._connection.close()

    @contextmanager
    def transaction(self) -> Iterator[apsw.Connection]:
        """Commit what the block writes, or nothing of it.

        Raises:
            StorageFullError: If there is no room; nothing was written.
            StorageBusyError: If another process held the lock; nothing was written.
            StorageUncertainError: If the disk or the file failed, now or before.

        """
        if self._broken:
            raise StorageUncertainError(path=str(self._path), reason=self._broken)
        try:
            self._connection.execute("BEGIN IMMEDIATE")
            yield self._connection
            self._commit()
        except BaseException as exc:
            self._roll_back()
            if isinstance(exc, apsw.Error):
                raise self._error_of(exc) from exc
            raise

    def _commit(self) -> None:
        self._connection.execute("COMMIT")

    def _roll_back(self) -> None:
        self._known.forget()
        try:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
        except apsw.Error as exc:
            self._broken = str(exc)

    def _error_of(
        self, exc: apsw.Error
    ) -> StorageFullError | StorageBusyError | StorageUncertainError:
        path = str(self._path)
        if not self._broken and is_full(exc, self._connection):
            return StorageFullError(path=path)
        if not self._broken and is_busy(exc):
            return StorageBusyError(path=path)
        self._broken = self._broken or str(exc)
        return StorageUncertainError(path=path, reason=self._broken)

    def _check_space(self) -> None:
        if shutil.disk_usage(self._path.parent).free < self._disk_free_bytes:
            raise StorageFullError(path=str(self._path))

    def _copy_back(self, mode: int) -> None:
        self._connection.set_busy_timeout(CHECKPOINT_WAIT_MS)
        try:
            self._connection.wal_checkpoint(mode=mode)
        except apsw.Error as exc:
            if is_busy(exc) or is_full(exc, self._connection):
                logger.warning(
                    "a checkpoint of %s failed, a later one tries again: %s",
                    self._path,
                    exc,
                )
                return
            self._broken = str(exc)
            logger.exception("a checkpoint of %s failed, writing ends", self._path)
        finally:
            self._connection.set_busy_timeout(SQLITE_BUSY_MS)

    def _note_pages(self, _connection: apsw.Connection, _name: str, pages: int) -> int:
        if pages < self._wal_pages:
            # All of it had been copied back, and it has begun anew.
            self._tried_pages = 0
        self._wal_pages = pages
        return apsw.SQLITE_OK
