"""Why a connection ends: the close codes, and which of them are final.

A WebSocket close carries a number and a reason; the reason is the code of section 6 of
the protocol. What a client may do next follows from the number alone, so that a close
by a proxy in between, or by a later relay, is understood too.
"""

from dataclasses import dataclass

__all__ = ["CLOSE_CODES", "Close", "close_for", "is_permanent_close"]


@dataclass(frozen=True, slots=True)
class Close:
    """What a driver closes the socket with: a close code, and a code as the reason."""

    code: int
    reason: str


CLOSE_CODES = {
    "done": 1000,
    "storage-failed": 1011,
    "shutdown": 1012,
    "protocol-error": 4400,
    "window-exceeded": 4400,
    "part-order": 4400,
    "replica-mismatch": 4400,
    "token-revoked": 4401,
    "token-expired": 4401,
    "replica-duplicate": 4409,
    "timeout": 4508,
    "part-timeout": 4508,
    "stalled": 4508,
    "replaced": 4509,
}
"""The close code that goes with each code that ends a connection."""

# 1002, 1003 and 1007 to 1009: one side spoke what the other cannot read, or too much.
PERMANENT = frozenset([1002, 1003, 1007, 1008, 1009, *range(4400, 4500)])


def close_for(code: str) -> Close:
    """Return the close that goes with an error's code.

    A code of a later version gets 4500: whoever does not know it tries again.
    """
    return Close(CLOSE_CODES.get(code, 4500), code)


def is_permanent_close(close_code: int) -> bool:
    """Tell whether reconnecting is pointless until something is changed by hand."""
    return close_code in PERMANENT
