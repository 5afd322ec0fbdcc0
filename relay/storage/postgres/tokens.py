"""Tokens in a relay's database: who may do what, without the secrets themselves."""

from typing import Any

import asyncpg

from crdtmem.errors import InvalidArgumentError
from relay.storage import TokenChange, TokenRow
from relay.storage.postgres.schema import LOCK_TOKENS

__all__ = ["changes_since", "find_token", "insert_token", "list_tokens", "revoke_token"]


async def insert_token(
    connection: asyncpg.Connection, row: TokenRow, digest: bytes
) -> None:
    """Add a token; the caller has the transaction.

    Raises:
        InvalidArgumentError: If there is one of this id.

    """
    await _one_at_a_time(connection)
    if await find_token(connection, row.token_id) is not None:
        raise InvalidArgumentError("token_id", f"token {row.token_id!r} exists")
    await connection.execute(
        "INSERT INTO crdtmem.token VALUES ($1, $2, $3, $4, $5, $6, $7, $8, NULL,"
        " (SELECT coalesce(max(changed), 0) + 1 FROM crdtmem.token))",
        row.token_id,
        digest,
        row.pattern,
        " ".join(row.scopes),
        row.label,
        row.not_after_ms,
        row.max_replicas,
        row.created_ms,
    )


async def find_token(
    connection: asyncpg.Connection, token_id: str
) -> tuple[TokenRow, bytes] | None:
    """Return a token and the digest of its secret, or None."""
    found = await connection.fetchrow(
        "SELECT token_id, pattern, scopes, label, not_after_ms, max_replicas,"
        " created_ms, revoked_ms, sha256 FROM crdtmem.token WHERE token_id = $1",
        token_id,
    )
    return None if found is None else (_token_row(found), found[8])


async def list_tokens(connection: asyncpg.Connection) -> list[TokenRow]:
    """Return all tokens, oldest first."""
    found = await connection.fetch(
        "SELECT token_id, pattern, scopes, label, not_after_ms, max_replicas,"
        " created_ms, revoked_ms FROM crdtmem.token ORDER BY created_ms, token_id"
    )
    return [_token_row(row) for row in found]


async def revoke_token(
    connection: asyncpg.Connection, token_id: str, now_ms: int
) -> bool:
    """Revoke a token and say whether there is one; the caller has the transaction."""
    await _one_at_a_time(connection)
    await connection.execute(
        "UPDATE crdtmem.token SET revoked_ms = $2,"
        " changed = (SELECT max(changed) + 1 FROM crdtmem.token)"
        " WHERE token_id = $1 AND revoked_ms IS NULL",
        token_id,
        now_ms,
    )
    return await find_token(connection, token_id) is not None


async def changes_since(
    connection: asyncpg.Connection, number: int
) -> list[TokenChange]:
    """Return the tokens that were changed behind a number, in that order."""
    found = await connection.fetch(
        "SELECT changed, token_id, revoked_ms, not_after_ms FROM crdtmem.token"
        " WHERE changed > $1 ORDER BY changed",
        number,
    )
    return [TokenChange(*row) for row in found]


async def _one_at_a_time(connection: asyncpg.Connection) -> None:
    """Have changes get their numbers in the order in which they are committed."""
    await connection.execute("SELECT pg_advisory_xact_lock($1)", LOCK_TOKENS)


def _token_row(row: Any) -> TokenRow:
    return TokenRow(row[0], row[1], tuple(row[2].split()), *row[3:8])
