"""How long to wait before connecting again."""

from collections.abc import Iterator
from random import Random

from crdtmem.limits import BACKOFF_FIRST_S, BACKOFF_MAX_S

__all__ = ["delays"]


def delays(rng: Random) -> Iterator[float]:
    """Yield the waits before the attempts that follow a failure, in seconds, for ever.

    Attempt n waits anything from 0 to 0.5 s doubled n times, 30 s at most: full jitter
    spreads the clients of a restarted relay evenly. Begin anew after a connection has
    held for BACKOFF_RESET_S, and not earlier: a relay that accepts and closes at once
    would otherwise be asked twice a second for ever.

    Args:
        rng: Where the jitter comes from.

    """
    most_s = BACKOFF_FIRST_S
    while True:
        yield rng.uniform(0.0, most_s)
        most_s = min(BACKOFF_MAX_S, most_s * 2)
