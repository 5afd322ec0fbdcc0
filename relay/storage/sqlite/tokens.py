"""Tokens in a relay's file: who may do what, without the secrets themselves."""

from collections.abc import Mapping
from typing import Any

import apsw

from crdtmem.errors import InvalidArgumentError
from relay.storage import TokenChange, TokenRow

__all__ = ["changes_since", "find_token", "insert_token", "list_tokens", "revoke_token"]


def insert_token(connection: apsw.Connection, row: TokenRow, digest: bytes) -> None:
    """Add a token; the caller has the transaction.

    Raises:
        InvalidArgumentError: If there is one of this id.

    """
    if find_token(connection, row.token_id) is not None:
        raise InvalidArgumentError("token_id", f"token {row.token_id!r} exists")
    connection.execute(
        "INSERT INTO token VALUES (:token_id, :digest, :pattern, :scopes, :label,"
        " :not_after_ms, :max_replicas, :created_ms, NULL,"
        " (SELECT coalesce(max(changed), 0) + 1 FROM token))",
        {
            "token_id": row.token_id,
            "digest": digest,
            "pattern": row.pattern,
            "scopes": " ".join(row.scopes),
            "label": row.label,
            "not_after_ms": row.not_after_ms,
            "max_replicas": row.max_replicas,
            "created_ms": row.created_ms,
        },
    )


def find_token(
    connection: apsw.Connection, token_id: str
) -> tuple[TokenRow, bytes] | None:
    """Return a token and the digest of its secret, or None."""
    found = _select(
        connection,
        "SELECT token_id, pattern, scopes, label, not_after_ms, max_replicas,"
        " created_ms, revoked_ms, sha256 FROM token WHERE token_id = :token_id",
        {"token_id": token_id},
    )
    return (_token_row(found[0]), found[0][8]) if found else None


def list_tokens(connection: apsw.Connection) -> list[TokenRow]:
    """Return all tokens, oldest first."""
    found = _select(
        connection,
        "SELECT token_id, pattern, scopes, label, not_after_ms, max_replicas,"
        " created_ms, revoked_ms FROM token ORDER BY created_ms, rowid",
        {},
    )
    return [_token_row(row) for row in found]


def revoke_token(connection: apsw.Connection, token_id: str, now_ms: int) -> bool:
    """Revoke a token and say whether there is one; the caller has the transaction."""
    connection.execute(
        "UPDATE token SET revoked_ms = :now,"
        " changed = (SELECT max(changed) + 1 FROM token)"
        " WHERE token_id = :token_id AND revoked_ms IS NULL",
        {"token_id": token_id, "now": now_ms},
    )
    return find_token(connection, token_id) is not None


def changes_since(connection: apsw.Connection, number: int) -> list[TokenChange]:
    """Return the tokens that were changed behind a number, in that order."""
    found = _select(
        connection,
        "SELECT changed, token_id, revoked_ms, not_after_ms FROM token"
        " WHERE changed > :number ORDER BY changed",
        {"number": number},
    )
    return [TokenChange(*row) for row in found]


def _select(
    connection: apsw.Connection, statement: str, values: Mapping[str, Any]
) -> list[tuple[Any, ...]]:
    return connection.execute(statement, values).fetchall()


def _token_row(row: tuple[Any, ...]) -> TokenRow:
    return TokenRow(row[0], row[1], tuple(row[2].split()), *row[3:8])
