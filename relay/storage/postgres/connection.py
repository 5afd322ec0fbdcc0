"""Connections to the database as the relay uses them: checked, bounded, in pools.

A commit is durable when the server says so: it has to sync, and every session asks for
that. What is uncertain is told apart from what was not stored: only a connection that
is lost after COMMIT was sent leaves that open.
"""

import asyncio
import contextlib
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import asyncpg

from crdtmem.errors import (
    CrdtmemError,
    InvalidArgumentError,
    StorageLostError,
    StorageReadOnlyError,
    StorageUnsafeError,
)
from crdtmem.limits import (
    DB_ANSWER_S,
    DB_CONNECT_S,
    DB_IDLE_MS,
    DB_LOCK_MS,
    DB_STATEMENT_MS,
    HEADS_POLL_S,
)
from relay.storage.postgres.errors import FAILURES, error_of, is_refusal, mapped_errors

__all__ = [
    "Database",
    "Pool",
    "PostgresTiming",
    "Work",
    "committed",
    "hang_up",
    "hung_up",
    "place_of",
    "unsafe_reason",
    "wall_ms",
]

VERSION_MIN = 14
_PASSWORD_BYTES = 1_024
# Host and port, or several of them; then the name of the database.
_HOST = r"(?:\[[0-9a-fA-F:.]+\]|[\w.%\-]*)(?::\d*)?"
_PLACE = re.compile(rf"{_HOST}(?:,{_HOST})*(?:/[\w.\-]*)?")

_T = TypeVar("_T")
Work = Callable[[asyncpg.Connection], Awaitable[_T]]


@dataclass(frozen=True, slots=True)
class PostgresTiming:
    """How long the relay waits for its database.

    Attributes:
        connect_s: Longest time to get a connection.
        answer_s: Longest wait for an answer; longer than the server may take.
        statement_ms: Longest time that the server spends on a statement.
        lock_ms: Longest wait there for another process's transaction.
        idle_ms: How long the server waits within a transaction for what follows.
        poll_s: Pause between two looks for heads that no message told of.

    """

    connect_s: float = DB_CONNECT_S
    answer_s: float = DB_ANSWER_S
    statement_ms: int = DB_STATEMENT_MS
    lock_ms: int = DB_LOCK_MS
    idle_ms: int = DB_IDLE_MS
    poll_s: float = HEADS_POLL_S


def wall_ms() -> int:
    """Return the wall clock, in milliseconds since 1970."""
    return time.time_ns() // 1_000_000


def place_of(url: str) -> str:
    """Return a URL without user, password and parameters, for people.

    Raises:
        InvalidArgumentError: If it is no such URL. No part of it is in the sentence: it
            may have the password where nobody looks for it.

    """
    scheme, _, rest = url.partition("://")
    rest, _, parameters = rest.partition("?")
    users, _, place = rest.rpartition("@")
    match = _PLACE.fullmatch(place)
    is_clear = not any(char in users for char in "@/#") and "@" not in parameters
    if scheme not in ("postgresql", "postgres") or match is None or not is_clear:
        raise _bad_url()
    return f"postgresql://{place}"


def _bad_url() -> InvalidArgumentError:
    return InvalidArgumentError(
        "storage",
        "storage is no URL such as postgresql://user@host:5432/database",
        hint="write special characters of a password as %XX, or keep it out of"
        " the URL: PGPASSWORD, ~/.pgpass or a file are read",
    )


class _Connection(asyncpg.Connection):  # type: ignore[misc] # asyncpg has no types
    """A connection that needs no statement to be put back: nothing is ever set."""

    def get_reset_query(self) -> str:
        return ""


class Database:
    """Where the tables are, and how to come there.

    Args:
        url: As libpq takes it.
        password_file: Its first line is the password; read at every new connection.
        timing: How long to wait.

    Attributes:
        place: The URL, without user, password and parameters.
        timing: As passed in.

    """

    def __init__(
        self,
        url: str,
        *,
        password_file: Path | None = None,
        timing: PostgresTiming | None = None,
    ) -> None:
        self.place = place_of(url)
        self.timing = timing or PostgresTiming()
        self._url = url
        self._password_file = password_file

    def __repr__(self) -> str:
        return f"Database({self.place!r})"

    async def connect(self) -> asyncpg.Connection:
        """Return a new connection to a server that keeps what it acknowledges.

        Raises:
            InvalidArgumentError: If the URL's parameters mean nothing.
            StorageUnreachableError: If there is none to be had.
            StorageReadOnlyError: If it is a standby.
            StorageUnsafeError: If what it acknowledges might not be kept.

        """
        with mapped_errors(self.place):
            try:
                connection = await asyncpg.connect(**self._arguments())
            except ValueError:
                raise _bad_url() from None
            try:
                await self.check(connection)
            except BaseException:
                await hung_up(connection)
                raise
        return connection

    @contextlib.asynccontextmanager
    async def connection(self) -> AsyncIterator[asyncpg.Connection]:
        """Give a new connection for a while; raises what connect does."""
        connection = await self.connect()
        try:
            with mapped_errors(self.place):
                yield connection
        finally:
            await hung_up(connection)

    @contextlib.asynccontextmanager
    async def pool(self, size: int) -> AsyncIterator["Pool"]:
        """Give a pool of up to so many connections, made when they are needed."""
        made = asyncpg.create_pool(
            min_size=0,
            max_size=size,
            init=self.check,
            **self._arguments(),
        )
        try:
            yield Pool(await made, self)
        finally:
            # Politeness would need answers, of a server that may be far away by now.
            made.terminate()
            await asyncio.sleep(0)

    def _arguments(self) -> dict[str, Any]:
        timing = self.timing
        arguments: dict[str, Any] = {
            "dsn": self._url,
            "timeout": timing.connect_s,
            "command_timeout": timing.answer_s,
            "connection_class": _Connection,
            "server_settings": {
                "application_name": "crdtmem-relay",
                # What waited for a lock has to see what was committed meanwhile.
                "default_transaction_isolation": "read committed",
                "idle_in_transaction_session_timeout": str(timing.idle_ms),
                "jit": "off",
                "lock_timeout": str(timing.lock_ms),
                "statement_timeout": str(timing.statement_ms),
                "synchronous_commit": "on",
            },
        }
        if self._password_file is not None:
            arguments["password"] = self._password
        return arguments

    def _password(self) -> str:
        with (self._password_file or Path()).open("rb") as file:
            line = file.readline(_PASSWORD_BYTES)
        return line.decode(errors="replace").rstrip("\r\n")

    async def check(self, connection: asyncpg.Connection) -> None:
        """Make sure that the server keeps what it acknowledges.

        Raises:
            StorageReadOnlyError: If it is a standby.
            StorageUnsafeError: If it might not be kept.

        """
        found = await connection.fetchrow(
            "SELECT current_setting('fsync'), current_setting('full_page_writes'),"
            " current_setting('synchronous_commit'),"
            " current_setting('server_version_num')::int / 10000, pg_is_in_recovery()"
        )
        *settings, is_standby = found
        reason = unsafe_reason(*settings)
        if reason:
            raise StorageUnsafeError(path=self.place, reason=reason)
        if is_standby:
            raise StorageReadOnlyError(path=self.place, reason="it is a standby")


def unsafe_reason(
    fsync: str,
    full_page_writes: str,
    synchronous_commit: str = "on",
    version: int = VERSION_MIN,
) -> str:
    """Return why a server might lose what it acknowledges; empty if it will not."""
    if version < VERSION_MIN:
        return f"it is PostgreSQL {version}, and {VERSION_MIN} is needed"
    if fsync != "on":
        return "fsync is off"
    if full_page_writes != "on":
        return "full_page_writes is off"
    if synchronous_commit != "on":
        return f"synchronous_commit is {synchronous_commit}, whatever is asked for"
    return ""


class Pool:
    """Connections that are used in turn; one that fails is replaced by a new one.

    Args:
        pool: Of asyncpg, open.
        database: Where they lead to.

    """

    def __init__(self, pool: asyncpg.Pool, database: Database) -> None:
        self._pool = pool
        self._database = database

    async def read(self, work: Work[_T]) -> _T:
        """Do some work that writes nothing, each statement for itself.

        Raises:
            StorageError: As for mapped_errors.

        """
        async with self._connection() as connection:
            try:
                return await work(connection)
            except asyncpg.PostgresError:
                raise
            except BaseException:
                hang_up(connection)
                raise

    async def write(self, work: Work[_T]) -> _T:
        """Do some work in one transaction, and return after it is synced.

        Raises:
            StorageLostError: If the connection was lost in COMMIT: it may be stored.
            StorageError: As for mapped_errors; nothing was stored.

        """
        async with self._connection() as connection:
            return await committed(connection, self._database.place, work)

    @contextlib.asynccontextmanager
    async def _connection(self) -> AsyncIterator[asyncpg.Connection]:
        database = self._database
        with mapped_errors(database.place):
            connection = await self._pool.acquire(timeout=database.timing.connect_s)
            try:
                yield connection
            finally:
                await self._pool.release(connection)


def hang_up(connection: asyncpg.Connection) -> None:
    """End a connection, if that has not been done; its pool has it back with that."""
    with contextlib.suppress(asyncpg.InterfaceError):
        connection.terminate()


async def committed(connection: asyncpg.Connection, place: str, work: Work[_T]) -> _T:
    """Do some work in one transaction of a connection; see ``Pool.write``."""
    try:
        await connection.execute("BEGIN")
        result = await work(connection)
    except (CrdtmemError, asyncpg.PostgresError):
        await _roll_back(connection)
        raise
    except BaseException:
        # Without an answer nobody knows where the session is; COMMIT was not sent.
        hang_up(connection)
        raise
    try:
        status = await connection.execute("COMMIT")
    except BaseException as exc:
        hang_up(connection)
        if is_refusal(exc):
            raise error_of(exc, place) from exc
        if isinstance(exc, FAILURES):
            raise StorageLostError(path=place) from exc
        raise
    if status != "COMMIT":
        raise StorageLostError(path=place)
    return result


async def hung_up(connection: asyncpg.Connection) -> None:
    """End a connection at once; whatever it was doing is not done."""
    hang_up(connection)
    # The event loop closes its socket in the next round.
    await asyncio.sleep(0)


async def _roll_back(connection: asyncpg.Connection) -> None:
    try:
        await connection.execute("ROLLBACK")
    except FAILURES:
        hang_up(connection)
