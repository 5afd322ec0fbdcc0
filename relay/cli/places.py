"""Where a relay keeps its log, as command lines name it: a folder, or a database.

A folder whose relay.toml names a database is that database, with settings. What only a
database needs is loaded late: asyncpg is an extra, and slow to load.
"""

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

from crdtmem.errors import InvalidArgumentError, MissingExtraError
from relay.config import (
    DATABASE_VARIABLE,
    RelayConfig,
    database_of_environment,
    is_database,
    parse_database,
    read_config,
)
from relay.storage import Storage, TokenRow
from relay.storage.checking import NamespaceCheck
from relay.storage.copying import CopySource, CopyTarget, copy_relay
from relay.storage.sqlite import maintenance, moving
from relay.storage.sqlite.storage import SqliteStorage

__all__ = [
    "Place",
    "add_token",
    "check_log",
    "copy_place",
    "end_token",
    "place_of",
    "postgres",
    "storage_at",
    "tokens_of",
]


@dataclass(frozen=True, slots=True)
class Place:
    """Where a relay's log is.

    Attributes:
        folder: Of the relay; None where there is only a database.
        config: Its settings; where they name a database, the log is there.

    """

    folder: Path | None
    config: RelayConfig

    @property
    def home(self) -> Path:
        """The folder that holds the log, where no database does."""
        if self.folder is None or self.config.database:
            raise InvalidArgumentError(
                "dir",
                "the log is in a database, and this is for one in a folder",
                hint="for a copy, use pg_dump",
            )
        return self.folder


def place_of(
    named: str | None, *, database: str = "", password_file: Path | None = None
) -> Place:
    """Return the place that a command line means.

    Args:
        named: A folder or a URL. Where there is neither this nor ``database``, the
            environment may name a database.
        database: A URL that stands above what the settings of a folder say.
        password_file: Likewise.

    Raises:
        InvalidArgumentError: If nothing is named.
        ConfigError: If the settings cannot be used.

    """
    if named is not None and is_database(named):
        database = database or _checked(named)
        named = None
    folder = None if named is None else Path(named)
    if folder is None and not database:
        database = database_of_environment()
        if not database:
            raise InvalidArgumentError(
                "dir",
                f"name the folder of a relay or a database, or set {DATABASE_VARIABLE}",
            )
    config = RelayConfig() if folder is None else read_config(folder)
    return Place(
        folder,
        replace(
            config,
            database=database or config.database,
            password_file=password_file or config.password_file,
        ),
    )


def storage_at(place: Place, *, is_restored: bool) -> Storage:
    """Return what serves the log of a place; it is not open yet.

    Raises:
        MissingExtraError: If asyncpg is not installed, and the log is in a database.

    """
    config = place.config
    if not config.database:
        return SqliteStorage(place.home, limits=config.storage, is_restored=is_restored)
    found: Storage = postgres("storage").PostgresStorage(
        config.database,
        password_file=config.password_file,
        limits=config.storage,
        is_restored=is_restored,
        note_folder=place.folder,
    )
    return found


def add_token(place: Place, row: TokenRow, digest: bytes) -> None:
    """Add a token; ``digest`` is the SHA-256 of its secret.

    Raises:
        InvalidArgumentError: If it means nothing, or there is one of this id.
        RelayFolderError: If the folder holds no relay.
        StorageError: If the log cannot be written.

    """
    if place.config.database:
        _ask(place, "add_token", row, digest)
    else:
        maintenance.add_token(place.home, row, digest)


def tokens_of(place: Place) -> list[TokenRow]:
    """Return all tokens, oldest first; raises what add_token does."""
    if place.config.database:
        found: list[TokenRow] = _ask(place, "tokens_of")
        return found
    return maintenance.tokens_of(place.home)


def end_token(place: Place, token_id: str, now_ms: int) -> None:
    """Revoke a token; serving processes close its connections within seconds.

    Raises:
        TokenNotFoundError: If there is no such token.
        RelayFolderError: If the folder holds no relay.
        StorageError: If the log cannot be written.

    """
    if place.config.database:
        _ask(place, "end_token", token_id, now_ms)
    else:
        maintenance.end_token(place.home, token_id, now_ms)


def check_log(place: Place) -> list[NamespaceCheck]:
    """Compute all ids and chains anew; raises what add_token does."""
    if place.config.database:
        found: list[NamespaceCheck] = _ask(place, "check_log")
        return found
    return maintenance.check_log(place.home)


def copy_place(
    source: Place,
    target: Place,
    *,
    now_ms: int,
    begun: Callable[[int], None],
    told: Callable[[int], None],
) -> list[NamespaceCheck]:
    """Copy a relay; what was copied has been read back and checked.

    Args:
        source: A relay that nobody serves.
        target: A new or empty folder, or an empty database.
        now_ms: The wall clock.
        begun: Called with the number of records that there are.
        told: Called with how many more have been copied.

    Returns:
        What was found of each namespace.

    Raises:
        RelayRunningError: If one of them is being served.
        RelayFolderError: If there is no relay to copy, or the target is not empty.
        StorageError: If one cannot be read or written, or the copy is not the same;
            the target is no relay then.

    """

    async def copy() -> list[NamespaceCheck]:
        async with _source(source) as rows:
            begun(await rows.records())
            async with _target(target, now_ms) as made:
                return await copy_relay(rows, made, told)

    return asyncio.run(copy())


def _source(place: Place) -> AbstractAsyncContextManager[CopySource]:
    config = place.config
    if not config.database:
        return moving.copy_source(place.home)
    found: AbstractAsyncContextManager[CopySource] = postgres("moving").copy_source(
        config.database, password_file=config.password_file
    )
    return found


def _target(place: Place, now_ms: int) -> AbstractAsyncContextManager[CopyTarget]:
    config = place.config
    if not config.database:
        return moving.copy_target(place.home, now_ms=now_ms)
    found: AbstractAsyncContextManager[CopyTarget] = postgres("moving").copy_target(
        config.database, password_file=config.password_file
    )
    return found


def postgres(module: str) -> ModuleType:
    """Return a module of the storage in PostgreSQL.

    Raises:
        MissingExtraError: If asyncpg is not installed.

    """
    try:
        return import_module(f"relay.storage.postgres.{module}")
    except ModuleNotFoundError as error:
        raise MissingExtraError(extra="postgres", package="asyncpg") from error


def _ask(place: Place, verb: str, *values: object) -> Any:
    work: Coroutine[Any, Any, Any] = getattr(postgres("maintenance"), verb)(
        place.config.database, *values, password_file=place.config.password_file
    )
    return asyncio.run(work)


def _checked(text: str) -> str:
    try:
        return parse_database(text)
    except ValueError as error:
        raise InvalidArgumentError("dir", f"dir cannot be used: {error}") from error
