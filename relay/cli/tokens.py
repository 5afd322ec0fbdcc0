"""Tokens as commands make and show them."""

import os
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from crdtmem.errors import InvalidArgumentError
from crdtmem.protocol.tokens import format_token
from relay.auth import check_token, digest_of, draw_token
from relay.cli.places import Place, add_token
from relay.storage import TokenRow

__all__ = ["new_token", "shown", "store_token", "token_json", "token_line"]


def new_token(
    pattern: str,
    scopes: Sequence[str],
    *,
    label: str,
    now_ms: int,
    not_after_ms: int | None,
    max_replicas: int | None = None,
) -> tuple[TokenRow, bytes]:
    """Draw a token; whether it means something is checked before anything is done."""
    token_id, secret = draw_token()
    row = TokenRow(
        token_id,
        pattern,
        tuple(sorted(set(scopes))),
        label,
        not_after_ms,
        max_replicas,
        now_ms,
        None,
    )
    check_token(row)
    return row, secret


def store_token(place: Place, row: TokenRow, secret: bytes, target: Path) -> None:
    """Add a token, and write it to a new file that only its owner may read."""
    try:
        fd = os.open(target, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
    except OSError as error:
        raise InvalidArgumentError(
            "out",
            f"out {str(target)!r} cannot be made: {error.strerror}",
            details={"path": str(target)},
        ) from error
    try:
        with open(fd, "w", encoding="ascii") as file:
            file.write(f"{format_token(row.token_id, secret)}\n")
        add_token(place, row, digest_of(secret))
    except BaseException:
        target.unlink()
        raise


def token_json(row: TokenRow) -> dict[str, object]:
    """Return a token as every JSON shows it."""
    return {
        "id": row.token_id,
        "namespace": row.pattern,
        "scopes": list(row.scopes),
        "label": row.label,
        "createdAt": _iso(row.created_ms),
        "expiresAt": _iso(row.not_after_ms),
        "revokedAt": _iso(row.revoked_ms),
        "maxReplicas": row.max_replicas,
    }


def token_line(row: TokenRow) -> str:
    """Return a token for people."""
    state = ""
    if row.revoked_ms is not None:
        state = f", revoked {_iso(row.revoked_ms)}"
    elif row.not_after_ms is not None:
        state = f", until {_iso(row.not_after_ms)}"
    return f"{row.token_id}  {shown(row)}{state}  {row.label}".rstrip()


def shown(row: TokenRow) -> str:
    """Return what a token is for."""
    return f"{row.pattern} ({', '.join(row.scopes)})"


def _iso(ms: int | None) -> str | None:
    if ms is None:
        return None
    return datetime.fromtimestamp(ms / 1_000, UTC).isoformat(timespec="seconds")
