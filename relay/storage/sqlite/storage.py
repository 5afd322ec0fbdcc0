"""The storage of a relay in SQLite, as an event loop sees it.

All that writes runs on one thread, reads on two others, each with a connection of its
own. A call that is cancelled still does its work, and nobody hears of the result.
"""

import asyncio
import contextlib
import logging
import queue
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TypeVar

import apsw

from crdtmem.limits import HWM_PAUSE_MS, RELAY_DISK_FREE_BYTES
from crdtmem.protocol.relaying import (
    Grant,
    JoinState,
    LogSlice,
    Put,
    PutResult,
    RelayIdentity,
    Sample,
)
from relay.auth import check_token, grant_for
from relay.storage import HeadHint, Hearing, SweepReport, TokenChange, TokenRow
from relay.storage.rules import StorageLimits
from relay.storage.sqlite.connection import connect, mapped_errors
from relay.storage.sqlite.folder import (
    HighWater,
    database_of,
    locked_folder,
    new_id,
    read_high_water,
    write_high_water,
)
from relay.storage.sqlite.reading import (
    find_namespace,
    join_state,
    matching,
    read_slice,
)
from relay.storage.sqlite.tokens import (
    changes_since,
    find_token,
    insert_token,
    list_tokens,
    revoke_token,
)
from relay.storage.sqlite.writer import Writer

__all__ = ["SqliteStorage", "wall_ms"]

logger = logging.getLogger(__name__)

READERS = 2

_T = TypeVar("_T")


def wall_ms() -> int:
    """Return the wall clock, in milliseconds since 1970."""
    return time.time_ns() // 1_000_000


class SqliteStorage:
    """A relay's folder, for the one process that serves it; see ``Storage``.

    Args:
        folder: Made by ``init_folder``.
        limits: For every namespace.
        is_restored: Begin a new epoch: the owner knows that the file is an old one.
        disk_free_bytes: With less free space than this, no record is taken.
        clock_ms: The wall clock.

    """

    def __init__(
        self,
        folder: Path,
        *,
        limits: StorageLimits | None = None,
        is_restored: bool = False,
        disk_free_bytes: int = RELAY_DISK_FREE_BYTES,
        clock_ms: Callable[[], int] = wall_ms,
    ) -> None:
        self._folder = folder
        self._limits = limits or StorageLimits()
        self._is_restored = is_restored
        self._disk_free_bytes = disk_free_bytes
        self._clock_ms = clock_ms
        self._resources = contextlib.ExitStack()
        self._is_open = False
        self._noted_ms = 0

    async def open(self) -> RelayIdentity:
        """Take the folder, and say who this relay is; may begin a new epoch.

        Raises:
            RelayRunningError: If another process serves the folder.
            RelayFolderError: If no relay is in it.
            StorageError: If its file cannot be used.

        """
        try:
            await asyncio.to_thread(self._open)
        except BaseException:
            self._resources.close()
            raise
        return self._identity

    async def close(self) -> None:
        """Let go of everything; idempotent."""
        self._is_open = False
        await asyncio.to_thread(self._resources.close)

    async def probe(self) -> None:
        """Make one durable write and one read; raises what append would."""
        await self._write(self._writer.probe)
        await self._read(lambda connection: connection.execute("SELECT 1 FROM relay"))

    async def join(
        self, namespace: str, *, create: bool, replica_id: bytes, cursor: Sample
    ) -> JoinState:
        """Say where a reader with this cursor goes on."""
        ns_no = await self._read(partial(find_namespace, name=namespace))
        if ns_no is None and create:
            make = partial(
                self._writer.add_namespace, namespace, self._identity.relay_id
            )
            ns_no = await self._write(make)
        if ns_no is None:
            return JoinState(0, code="namespace-not-found")
        return await self._read(
            partial(join_state, ns_no=ns_no, replica_id=replica_id, cursor=cursor)
        )

    async def match(self, ns_no: int, samples: Sequence[Sample]) -> Sample:
        """Return the highest sample that is in the log, else the floor."""
        return await self._read(partial(matching, ns_no=ns_no, samples=samples))

    async def append(self, puts: Sequence[Put]) -> list[PutResult]:
        """Store a group in one transaction; return after it is synced."""
        results = await self._write(partial(self._writer.append, puts))
        is_note_due = abs(self._clock_ms() - self._noted_ms) >= HWM_PAUSE_MS
        if self._is_open and (is_note_due or self._writer.is_checkpoint_due):
            # Behind the answer, so that no acknowledgement waits for it.
            self._write_thread.submit(self._tidy_up)
        return results

    async def read(
        self, ns_no: int, after: int, *, records: int, octets: int
    ) -> LogSlice:
        """Return the rows behind a seq, up to both limits; one row at least."""
        return await self._read(
            partial(
                read_slice, ns_no=ns_no, after=after, records=records, octets=octets
            )
        )

    async def sweep(self, now_ms: int, limit: int) -> SweepReport:
        """Drop payloads whose grace is over; at most ``limit`` of them."""
        return await self._write(partial(self._writer.sweep, now_ms, limit))

    async def grant(self, token_id: str, secret: bytes, now_ms: int) -> Grant | None:
        """Return what a token allows, or None for every kind of failure alike."""
        found = await self._read(partial(find_token, token_id=token_id))
        return grant_for(found, secret, now_ms)

    async def token_create(self, row: TokenRow, digest: bytes) -> None:
        """Add a token; ``digest`` is the SHA-256 of its secret."""
        check_token(row)
        await self._change(partial(insert_token, row=row, digest=digest))

    async def token_list(self) -> list[TokenRow]:
        """Return all tokens, oldest first."""
        return await self._read(list_tokens)

    async def token_revoke(self, token_id: str, now_ms: int) -> bool:
        """Revoke a token and say whether there is one; idempotent."""
        return await self._change(
            partial(revoke_token, token_id=token_id, now_ms=now_ms)
        )

    async def changed_tokens(self, since: int) -> list[TokenChange]:
        """Return the changes behind a number, in their order."""
        return await self._read(partial(changes_since, number=since))

    def watch(self, notify: HeadHint, hear: Hearing | None = None) -> None:
        """Tell nothing: no other process writes the log."""

    def announce(self, message: bytes) -> None:
        """Tell nobody: there is no other process."""

    def _open(self) -> None:
        resources = self._resources
        self._path = path = database_of(self._folder)
        resources.enter_context(locked_folder(self._folder))
        with mapped_errors(path):
            self._writer = Writer(
                path,
                self._limits,
                disk_free_bytes=self._disk_free_bytes,
                clock_ms=self._clock_ms,
            )
            resources.callback(self._writer.close)
        mark = read_high_water(self._folder)
        with self._writer.transaction() as connection:
            self._identity = _settle_epoch(
                connection,
                mark,
                is_restored=self._is_restored,
                now_ms=self._clock_ms(),
            )
        self._note_total()
        resources.callback(self._note_total)
        self._readers: queue.SimpleQueue[apsw.Connection] = queue.SimpleQueue()
        for _ in range(READERS):
            reader = connect(path, read_only=True)
            resources.callback(reader.close)
            self._readers.put(reader)
        # Entered last, thus ended first: what is under way is finished before.
        self._read_threads = resources.enter_context(
            ThreadPoolExecutor(READERS, "relay-reader")
        )
        self._write_thread = resources.enter_context(
            ThreadPoolExecutor(1, "relay-writer")
        )
        self._is_open = True

    async def _write(self, call: Callable[[], _T]) -> _T:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._write_thread, call)

    async def _change(self, call: Callable[[apsw.Connection], _T]) -> _T:
        def change() -> _T:
            with self._writer.transaction() as connection:
                return call(connection)

        return await self._write(change)

    async def _read(self, call: Callable[[apsw.Connection], _T]) -> _T:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._read_threads, self._read_with, call)

    def _read_with(self, call: Callable[[apsw.Connection], _T]) -> _T:
        reader = self._readers.get()
        try:
            with mapped_errors(self._path):
                return call(reader)
        finally:
            self._readers.put(reader)

    def _tidy_up(self) -> None:
        self._writer.checkpoint()
        self._note_total()

    def _note_total(self) -> None:
        self._noted_ms = self._clock_ms()
        mark = HighWater(
            self._identity.relay_id, self._identity.epoch, self._writer.total
        )
        try:
            write_high_water(self._folder, mark)
        except OSError:
            # It only tells a restored relay from a forked one; the next one is exact.
            logger.warning("%s: no note of the total", self._folder, exc_info=True)


def _settle_epoch(
    connection: apsw.Connection,
    mark: HighWater | None,
    *,
    is_restored: bool,
    now_ms: int,
) -> RelayIdentity:
    """Return who the relay is, after a new epoch has begun where one is due.

    That is where its owner says so, and where there are fewer records than were noted
    to be on disk. Clients find every loss by the chain of their cursor; the epoch tells
    them that the relay went back, rather than that somebody forked its log. The caller
    has the transaction.
    """
    relay_id, total = connection.execute("SELECT relay_id, total FROM relay").get
    has_lost = mark is not None and mark.relay_id == relay_id and mark.total > total
    if is_restored or has_lost:
        connection.execute(
            "INSERT INTO epoch(epoch, reason, total, created_ms)"
            " VALUES (:epoch, :reason, :total, :now)",
            {
                "epoch": new_id(),
                "reason": "restored" if is_restored else "lost",
                "total": total,
                "now": now_ms,
            },
        )
    epoch = connection.execute("SELECT epoch FROM epoch ORDER BY n DESC LIMIT 1").get
    return RelayIdentity(relay_id, epoch)
