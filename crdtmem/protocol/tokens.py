"""The form of a token: ``cm1_ID_SECRET``.

The id is public and names the token in lists and logs. Of the secret a relay keeps the
SHA-256 alone; it is 32 random bytes, so a slow hash would add nothing. Nothing here
holds a secret in a message or a ``repr``.
"""

import re
from base64 import urlsafe_b64decode, urlsafe_b64encode

from crdtmem.errors import LocalProtocolError

__all__ = ["format_token", "parse_token"]

TOKEN = re.compile(r"cm1_([a-z2-7]{10})_([A-Za-z0-9_-]{43})")
TOKEN_ID = re.compile(r"[a-z2-7]{10}")
SECRET_BYTES = 32


def parse_token(text: str) -> tuple[str, bytes] | None:
    """Return the id and the secret's 32 bytes, or None if it is no token.

    The last character of a secret has two bits to spare; only the spelling that
    format_token writes is taken, so that a secret has one.
    """
    match = TOKEN.fullmatch(text)
    if match is None:
        return None
    token_id, spelled = match.groups()
    secret = urlsafe_b64decode(f"{spelled}=")
    return (token_id, secret) if _spell(secret) == spelled else None


def format_token(token_id: str, secret: bytes) -> str:
    """Return the token of an id and a secret.

    Raises:
        LocalProtocolError: If parse_token would not give them back.

    """
    if not TOKEN_ID.fullmatch(token_id) or len(secret) != SECRET_BYTES:
        raise LocalProtocolError(
            f"token of id {token_id!r} and {len(secret)} bytes of secret"
        )
    return f"cm1_{token_id}_{_spell(secret)}"


def _spell(secret: bytes) -> str:
    return urlsafe_b64encode(secret).decode().rstrip("=")
