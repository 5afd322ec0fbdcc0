"""How fast a relay reads from a peer, and whether a peer reads at all. Pure sums."""

from dataclasses import dataclass

from crdtmem.limits import TOKEN_BURST_RECORDS, TOKEN_RATE_BYTES, TOKEN_RATE_RECORDS

__all__ = ["Allowance", "Pace", "Progress"]


class Allowance:
    """What may be read now; it fills up with time, and what exceeds it is waited off.

    Args:
        per_s: How much comes back in a second.
        burst: Most that can be saved up; there at the start.
        now: Monotonic seconds.

    """

    __slots__ = ("_at_s", "_burst", "_left", "_per_s")

    def __init__(self, per_s: float, burst: float, now: float) -> None:
        self._per_s = per_s
        self._burst = burst
        self._left = burst
        self._at_s = now

    def spend(self, amount: float, now: float) -> None:
        """Take what was read, also beyond what is left."""
        self._left = self._at(now) - amount
        self._at_s = now

    def wait_s(self, now: float) -> float:
        """Return how long nothing more should be read; 0 where there is no debt."""
        return max(0.0, -self._at(now) / self._per_s)

    def _at(self, now: float) -> float:
        return min(self._burst, self._left + (now - self._at_s) * self._per_s)


class Pace:
    """How fast the connections of one token are read, all together.

    Frames count as well as records, or a flood of empty frames would cost nothing.

    Args:
        now: Monotonic seconds.

    """

    __slots__ = ("_frames", "_octets", "_records")

    def __init__(self, now: float) -> None:
        self._frames = Allowance(TOKEN_RATE_RECORDS, TOKEN_BURST_RECORDS, now)
        self._records = Allowance(TOKEN_RATE_RECORDS, TOKEN_BURST_RECORDS, now)
        self._octets = Allowance(TOKEN_RATE_BYTES, TOKEN_RATE_BYTES, now)

    def frame(self, size_bytes: int, now: float) -> None:
        """Note a frame that was read."""
        self._frames.spend(1, now)
        self._octets.spend(size_bytes, now)

    def records(self, count: int, now: float) -> None:
        """Note records that were put."""
        self._records.spend(count, now)

    def wait_s(self, now: float) -> float:
        """Return how long no connection of the token should be read."""
        each = (self._frames, self._records, self._octets)
        return max(allowance.wait_s(now) for allowance in each)


@dataclass(slots=True)
class Progress:
    """Whether a peer takes anything out of its socket.

    It is judged by what has left the buffer rather than by the buffer's length, which
    a new frame raises again while an old one is being read.

    Attributes:
        since_s: When something last left the buffer, or the buffer was last empty.
        taken_bytes: How much had left it by then.

    """

    since_s: float
    taken_bytes: int = 0

    def idle_s(self, written_bytes: int, buffered_bytes: int, now: float) -> float:
        """Return how long the peer has taken nothing of what waits for it.

        Args:
            written_bytes: How much has been handed to the socket in all.
            buffered_bytes: How much of it waits.
            now: Monotonic seconds.

        """
        taken_bytes = written_bytes - buffered_bytes
        if not buffered_bytes or taken_bytes > self.taken_bytes:
            self.taken_bytes = taken_bytes
            self.since_s = now
        return now - self.since_s
