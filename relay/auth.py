"""What a token allows: scopes and patterns, and who may still try one.

A token's secret is 32 random bytes, so its SHA-256 is kept and no slow hash. Whatever
is wrong with a token, its owner is told the same: nobody learns which ids exist.
"""

import base64
import hashlib
import hmac
import re
import secrets
from collections.abc import Sequence
from typing import NamedTuple

from crdtmem.errors import InvalidArgumentError
from crdtmem.limits import ADDRESSES_WATCHED_MAX, TOKEN_FAILURES_MAX, TOKEN_FAILURES_S
from crdtmem.protocol.relaying import Grant, Scope
from relay.storage import TokenRow

__all__ = [
    "SCOPES",
    "FailureLimit",
    "NewToken",
    "check_token",
    "digest_of",
    "draw_token",
    "grant_for",
]

SCOPES = {
    "read": Scope.READ,
    "write": Scope.READ | Scope.WRITE,
    "compact": Scope.COMPACT,
    "presence": Scope.PRESENCE,
    "metrics": Scope(0),
}
"""The names of scopes, and what each allows in a namespace."""

_PATTERN = re.compile(r"\*|[a-z0-9](?:[a-z0-9._-]{0,62}[a-z0-9]|[a-z0-9._-]{0,62}\*)?")
_LABEL_CHARS = 128
_ID_BYTES = 7
_ID_CHARS = 10
_SECRET_BYTES = 32
# What the secret of an unknown id is compared with: that takes as long as any other.
_NO_DIGEST = bytes(32)


class NewToken(NamedTuple):
    """An id and a secret that nobody has seen yet."""

    token_id: str
    secret: bytes


def draw_token() -> NewToken:
    """Draw the two parts of a new token."""
    spelled = base64.b32encode(secrets.token_bytes(_ID_BYTES)).decode().lower()
    return NewToken(spelled[:_ID_CHARS], secrets.token_bytes(_SECRET_BYTES))


def digest_of(secret: bytes) -> bytes:
    """Return what is kept of a secret."""
    return hashlib.sha256(secret).digest()


def check_token(row: TokenRow) -> None:
    """Make sure that a token that is about to be added means something.

    Raises:
        InvalidArgumentError: If a scope is unknown, ``compact`` stands without
            ``write``, there is none at all, or the pattern fits no namespace.

    """
    unknown = [name for name in row.scopes if name not in SCOPES]
    if unknown or not row.scopes:
        known = ", ".join(SCOPES)
        found = repr(unknown[0]) if unknown else "empty"
        raise InvalidArgumentError(
            "scope", f"scope is {found}, not one of {known}", details={"known": known}
        )
    if "compact" in row.scopes and "write" not in row.scopes:
        raise InvalidArgumentError("scope", "scope 'compact' needs 'write' beside it")
    if not _PATTERN.fullmatch(row.pattern):
        raise InvalidArgumentError(
            "namespace",
            f"namespace {row.pattern!r} is no name, no beginning of one with '*' behind"
            " it, and not '*'",
            details={"pattern": row.pattern},
        )
    if len(row.label) > _LABEL_CHARS or not row.label.isprintable():
        raise InvalidArgumentError(
            "label",
            f"label has {len(row.label)} characters, of at most {_LABEL_CHARS}"
            " printable ones",
        )


def grant_for(
    found: tuple[TokenRow, bytes] | None, secret: bytes, now_ms: int
) -> Grant | None:
    """Return what a token allows, or None for every kind of failure alike.

    Args:
        found: What is kept under the id, if anything.
        secret: What was brought.
        now_ms: The wall clock.

    """
    digest = found[1] if found else _NO_DIGEST
    is_same = hmac.compare_digest(digest_of(secret), digest)
    if not found or not is_same:
        return None
    row = found[0]
    if row.revoked_ms is not None:
        return None
    if row.not_after_ms is not None and now_ms >= row.not_after_ms:
        return None
    return Grant(
        row.token_id,
        row.pattern,
        _scopes_of(row.scopes),
        may_read_metrics="metrics" in row.scopes,
        not_after_ms=row.not_after_ms,
        max_replicas=row.max_replicas,
    )


def _scopes_of(names: Sequence[str]) -> Scope:
    """Return what names allow; one that this release does not know allows nothing."""
    found = Scope(0)
    for name in names:
        found |= SCOPES.get(name, Scope(0))
    if Scope.WRITE not in found:
        found &= ~Scope.COMPACT
    return found


class FailureLimit:
    """Holds up addresses that try tokens: after too many failures they have to wait.

    Secrets cannot be guessed; this keeps the log readable and the work small. Memory is
    bounded: with very many addresses the oldest ones are forgotten.
    """

    def __init__(self) -> None:
        self._failures: dict[str, list[float]] = {}

    def is_blocked(self, address: str, now: float) -> bool:
        """Tell whether an address has to wait.

        Args:
            address: Where the request comes from.
            now: Seconds, monotonic.

        """
        failures = self._failures.get(address, [])
        return (
            len(failures) >= TOKEN_FAILURES_MAX
            and now - failures[-1] < TOKEN_FAILURES_S
        )

    def failed(self, address: str, now: float) -> None:
        """Note that an address came with a token that is none."""
        failures = self._failures.pop(address, [])
        recent = [at for at in failures if now - at < TOKEN_FAILURES_S]
        self._failures[address] = [*recent, now][-TOKEN_FAILURES_MAX:]
        if len(self._failures) > ADDRESSES_WATCHED_MAX:
            del self._failures[next(iter(self._failures))]
