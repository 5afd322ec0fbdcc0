"""What a command does to a relay's database, whether processes serve it or not.

Each call has a connection of its own, for as long as it takes. None of them writes the
log.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import asyncpg

from crdtmem.errors import RelayFolderError, TokenNotFoundError
from relay.auth import check_token
from relay.storage import TokenRow
from relay.storage.checking import ChainCheck, NamespaceCheck
from relay.storage.postgres.connection import Database, committed
from relay.storage.postgres.schema import migrate
from relay.storage.postgres.tokens import insert_token, list_tokens, revoke_token

__all__ = ["add_token", "check_log", "end_token", "tokens_of"]


async def add_token(
    url: str, row: TokenRow, digest: bytes, *, password_file: Path | None = None
) -> None:
    """Add a token; ``digest`` is the SHA-256 of its secret.

    Tables are made where there are none: a relay may have its tokens before it is
    served.

    Raises:
        InvalidArgumentError: If it means nothing, or there is one of this id.
        StorageError: If the database cannot be written.

    """
    check_token(row)
    database = Database(url, password_file=password_file)
    async with database.connection() as connection:
        await migrate(connection, database.place)
        work = partial(insert_token, row=row, digest=digest)
        await committed(connection, database.place, work)


async def tokens_of(url: str, *, password_file: Path | None = None) -> list[TokenRow]:
    """Return all tokens, oldest first.

    Raises:
        RelayFolderError: If no relay is there.
        StorageError: If the database cannot be read.

    """
    async with _relay(Database(url, password_file=password_file)) as connection:
        return await list_tokens(connection)


async def end_token(
    url: str, token_id: str, now_ms: int, *, password_file: Path | None = None
) -> None:
    """Revoke a token; serving processes close its connections within seconds.

    Raises:
        TokenNotFoundError: If there is no such token.
        RelayFolderError: If no relay is there.
        StorageError: If the database cannot be written.

    """
    database = Database(url, password_file=password_file)
    async with _relay(database) as connection:
        work = partial(revoke_token, token_id=token_id, now_ms=now_ms)
        is_known = await committed(connection, database.place, work)
    if not is_known:
        raise TokenNotFoundError(token_id=token_id)


async def check_log(
    url: str, *, password_file: Path | None = None
) -> list[NamespaceCheck]:
    """Compute all ids and chains anew, as of one moment; raises what tokens_of does."""
    async with (
        _relay(Database(url, password_file=password_file)) as connection,
        connection.transaction(isolation="repeatable_read", readonly=True),
    ):
        rows = await connection.fetch(
            "SELECT ns_no, name, head, chain, floor, floor_chain FROM crdtmem.ns"
            " ORDER BY name"
        )
        return [await _check(connection, *row) for row in rows]


async def _check(
    connection: asyncpg.Connection, ns_no: int, *ns: Any
) -> NamespaceCheck:
    name, head, chain, floor, floor_chain = ns
    check = ChainCheck(name, floor, floor_chain)
    records = connection.cursor(
        "SELECT seq, record_id, chain, header, payload FROM crdtmem.log"
        " WHERE ns_no = $1 ORDER BY seq",
        ns_no,
        prefetch=256,
    )
    async for record in records:
        if not check.add(*record):
            break
    return check.result(head, chain)


@asynccontextmanager
async def _relay(database: Database) -> AsyncIterator[asyncpg.Connection]:
    """Give a connection to a database that holds a relay's tables."""
    async with database.connection() as connection:
        if await connection.fetchval("SELECT to_regclass('crdtmem.token')") is None:
            raise RelayFolderError(
                path=database.place,
                reason="holds no relay",
                hint="serve it once, and its tables are made",
            )
        yield connection
