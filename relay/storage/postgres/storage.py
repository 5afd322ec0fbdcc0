"""The storage of a relay in PostgreSQL, as an event loop sees it.

Connections are had when they are needed and replaced when they are lost, so a database
that was away is found again without a restart. Of a call that is cancelled nobody knows
whether it has been done.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import asyncpg

from crdtmem.errors import StorageBusyError, StorageFullError, StorageUncertainError
from crdtmem.limits import DB_READERS_MAX, DB_WRITERS_MAX
from crdtmem.protocol.records import chain_start
from crdtmem.protocol.relaying import (
    Grant,
    JoinState,
    LogSlice,
    Put,
    PutRefusal,
    PutResult,
    RelayIdentity,
    Sample,
)
from relay.auth import check_token, grant_for
from relay.storage import HeadHint, Hearing, SweepReport, TokenChange, TokenRow
from relay.storage.postgres.aging import sweep
from relay.storage.postgres.announcing import Announcer
from relay.storage.postgres.appending import append_group
from relay.storage.postgres.connection import (
    Database,
    Pool,
    PostgresTiming,
    committed,
    hung_up,
    wall_ms,
)
from relay.storage.postgres.errors import mapped_errors
from relay.storage.postgres.reading import join_state, matching, read_slice
from relay.storage.postgres.schema import LOCK_NAMESPACES, LOCK_SCHEMA, migrate
from relay.storage.postgres.tokens import (
    changes_since,
    find_token,
    insert_token,
    list_tokens,
    revoke_token,
)
from relay.storage.rules import StorageLimits
from relay.storage.sqlite.folder import (
    HighWater,
    new_id,
    read_high_water,
    write_high_water,
)

__all__ = ["PostgresStorage"]

logger = logging.getLogger(__name__)


class PostgresStorage:
    """A relay's database, for one of the processes that serve it; see ``Storage``.

    1. A namespace's puts of a group are one transaction; those of several namespaces
       are several, at once, and what becomes of one changes nothing of the others.
    2. What was not stored is refused, put by put, or raised where that is all of it.
    3. Where a commit is uncertain, that is raised, whatever became of the others.

    Args:
        url: As libpq takes it; with its password it is in no error and no log.
        password_file: Its first line is the password.
        limits: For every namespace.
        is_restored: Begin a new epoch: the owner knows that the database is an old one.
        note_folder: Where this process notes how many records there were; None for
            nowhere.
        timing: How long to wait for the database.
        clock_ms: The wall clock.

    Raises:
        InvalidArgumentError: If the URL is none.

    """

    def __init__(
        self,
        url: str,
        *,
        password_file: Path | None = None,
        limits: StorageLimits | None = None,
        is_restored: bool = False,
        note_folder: Path | None = None,
        timing: PostgresTiming | None = None,
        clock_ms: Callable[[], int] = wall_ms,
    ) -> None:
        self._database = Database(url, password_file=password_file, timing=timing)
        self._limits = limits or StorageLimits()
        self._is_restored = is_restored
        self._note_folder = note_folder
        self._clock_ms = clock_ms
        self._announcer = Announcer(self._database, self._note_total)
        self._resources = contextlib.AsyncExitStack()
        self._noted = 0
        self._identity: RelayIdentity
        self._readers: Pool
        self._writers: Pool

    async def open(self) -> RelayIdentity:
        """Bring the tables up to date, and say who this relay is.

        In an empty database a relay is made. May begin a new epoch.

        Raises:
            RelayRunningError: If the database is being copied.
            StorageUnsafeError: If it might lose what it acknowledges.
            StorageError: If it cannot be used.

        """
        async with contextlib.AsyncExitStack() as resources:
            await self._open(resources)
            self._resources = resources.pop_all()
        return self._identity

    async def close(self) -> None:
        """Let go of everything; idempotent."""
        await self._resources.aclose()

    async def probe(self) -> None:
        """Make one durable write and one read; raises what append would."""
        self._check_truth()
        await self._writers.write(
            lambda connection: connection.execute(
                "UPDATE crdtmem.relay SET probes = probes + 1"
            )
        )
        await self._readers.read(self._database.check)

    async def join(
        self, namespace: str, *, create: bool, replica_id: bytes, cursor: Sample
    ) -> JoinState:
        """Say where a reader with this cursor goes on."""
        self._check_truth()
        find = partial(join_state, name=namespace, replica_id=replica_id, cursor=cursor)
        found = await self._readers.read(find)
        if found is None and create:
            await self._writers.write(partial(self._make, name=namespace))
            found = await self._readers.read(find)
        if found is None:
            return JoinState(0, code="namespace-not-found")
        self._announcer.note(found.ns_no, found.head)
        return found

    async def match(self, ns_no: int, samples: Sequence[Sample]) -> Sample:
        """Return the highest sample that is in the log, else the floor."""
        return await self._readers.read(partial(matching, ns_no=ns_no, samples=samples))

    async def append(self, puts: Sequence[Put]) -> list[PutResult]:
        """Store a group, in one transaction a namespace; return after it is synced."""
        self._check_truth()
        groups: dict[int, list[Put]] = {}
        for put in puts:
            groups.setdefault(put.ns_no, []).append(put)
        outcomes = await asyncio.gather(
            *map(self._append, groups.values()), return_exceptions=True
        )
        failures = [out for out in outcomes if isinstance(out, BaseException)]
        for failure in failures:
            is_refusal = isinstance(failure, StorageBusyError | StorageFullError)
            if not is_refusal or len(failures) == len(groups):
                raise _worst(failures)
        results = {
            ns_no: iter(_refused(group, outcome))
            for (ns_no, group), outcome in zip(groups.items(), outcomes, strict=True)
        }
        return [next(results[put.ns_no]) for put in puts]

    async def read(
        self, ns_no: int, after: int, *, records: int, octets: int
    ) -> LogSlice:
        """Return the rows behind a seq, up to both limits; one row at least."""
        self._check_truth()
        return await self._readers.read(
            partial(
                read_slice, ns_no=ns_no, after=after, records=records, octets=octets
            )
        )

    async def sweep(self, now_ms: int, limit: int) -> SweepReport:
        """Drop payloads whose grace is over; at most ``limit`` of them."""
        place = self._database.place
        return await self._readers.read(
            lambda connection: sweep(connection, place, now_ms, limit)
        )

    async def grant(self, token_id: str, secret: bytes, now_ms: int) -> Grant | None:
        """Return what a token allows, or None for every kind of failure alike."""
        found = await self._readers.read(partial(find_token, token_id=token_id))
        return grant_for(found, secret, now_ms)

    async def token_create(self, row: TokenRow, digest: bytes) -> None:
        """Add a token; ``digest`` is the SHA-256 of its secret."""
        check_token(row)
        await self._writers.write(partial(insert_token, row=row, digest=digest))

    async def token_list(self) -> list[TokenRow]:
        """Return all tokens, oldest first."""
        return await self._readers.read(list_tokens)

    async def token_revoke(self, token_id: str, now_ms: int) -> bool:
        """Revoke a token and say whether there is one; idempotent."""
        return await self._writers.write(
            partial(revoke_token, token_id=token_id, now_ms=now_ms)
        )

    async def changed_tokens(self, since: int) -> list[TokenChange]:
        """Return the changes behind a number, in their order."""
        return await self._readers.read(partial(changes_since, number=since))

    def watch(self, notify: HeadHint, hear: Hearing | None = None) -> None:
        """Have the heads that other processes commit told, and what they announce."""
        self._announcer.watch(notify, hear)

    def announce(self, message: bytes) -> None:
        """Tell the other processes something; at once, and no promise."""
        self._announcer.announce(message)

    async def _open(self, resources: contextlib.AsyncExitStack) -> None:
        database, folder = self._database, self._note_folder
        mark = None if folder is None else read_high_water(folder)
        connection = await database.connect()
        resources.push_async_callback(hung_up, connection)
        with mapped_errors(database.place):
            await migrate(connection, database.place)
            self._identity = await committed(
                connection,
                database.place,
                partial(
                    _settle_epoch,
                    mark=mark,
                    is_restored=self._is_restored,
                    now_ms=self._clock_ms(),
                ),
            )
        enter = resources.enter_async_context
        self._readers = await enter(database.pool(DB_READERS_MAX))
        self._writers = await enter(database.pool(DB_WRITERS_MAX))
        await self._announcer.open(connection)
        resources.push_async_callback(self._announcer.close)

    async def _make(self, connection: asyncpg.Connection, *, name: str) -> None:
        """Make a namespace, unless there is one of this name."""
        await connection.execute("SELECT pg_advisory_xact_lock($1)", LOCK_NAMESPACES)
        await connection.execute(
            "INSERT INTO crdtmem.ns(ns_no, name, head, chain, floor_chain, created_ms)"
            " SELECT coalesce(max(ns_no), 0) + 1, $1, 0, $2, $2, $3 FROM crdtmem.ns"
            " ON CONFLICT (name) DO NOTHING",
            name,
            chain_start(self._identity.relay_id, name),
            self._clock_ms(),
        )

    async def _append(self, puts: Sequence[Put]) -> list[PutResult]:
        """Store the puts of one namespace, and have the others know."""
        now_ms = self._clock_ms()
        results = await self._writers.write(
            partial(
                append_group,
                puts=puts,
                limits=self._limits,
                now_ms=now_ms,
                place=self._database.place,
            )
        )
        if any(result.rows for result in results):
            self._announcer.moved(results[-1].ns_no, results[-1].head)
        return results

    def _check_truth(self) -> None:
        """Make sure that what this process knows of the log is still so."""
        if self._announcer.went_back:
            raise StorageUncertainError(
                path=self._database.place, reason="it went back to an earlier state"
            )

    async def _note_total(self, connection: asyncpg.Connection) -> None:
        """Note how many records there are, where that is wanted."""
        folder = self._note_folder
        if folder is None:
            return
        total = await _count_records(connection)
        if total == self._noted:
            return
        mark = HighWater(self._identity.relay_id, self._identity.epoch, total)
        try:
            await asyncio.to_thread(write_high_water, folder, mark)
        except OSError:
            # It only tells a restored relay from a forked one; the next one is exact.
            logger.warning("%s: no note of the total", folder, exc_info=True)
        self._noted = total


def _worst(failures: Sequence[BaseException]) -> BaseException:
    """Return what to raise of several: an uncertain commit before all others."""

    def rank(failure: BaseException) -> int:
        if isinstance(failure, StorageUncertainError):
            return 0
        return 2 if isinstance(failure, StorageBusyError | StorageFullError) else 1

    return min(failures, key=rank)


def _refused(
    puts: Sequence[Put], outcome: list[PutResult] | BaseException
) -> Sequence[PutResult]:
    """Return what became of puts, where others of the group were stored."""
    if not isinstance(outcome, BaseException):
        return outcome
    logger.warning("a namespace was not stored: %s", outcome)
    is_full = isinstance(outcome, StorageFullError)
    code = StorageFullError.code if is_full else StorageBusyError.code
    return [
        PutResult(
            put.ns_no,
            0,
            None,
            0,
            refusal=PutRefusal(
                code,
                put.records[0].header.replica_seq,
                put.records[0].header.replica_seq,
            ),
        )
        for put in puts
    ]


async def _settle_epoch(
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
    total = await _count_records(connection)
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


async def _count_records(connection: asyncpg.Connection) -> int:
    """Return how many records of all namespaces have ever been stored."""
    return int(
        await connection.fetchval(
            "SELECT coalesce(sum(head), 0)::bigint FROM crdtmem.ns"
        )
    )
