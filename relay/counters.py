"""What the core of a relay counts. ``relay.metrics`` gives it its names."""

from collections import Counter
from dataclasses import dataclass, field

__all__ = ["CoreCounters"]


@dataclass(slots=True)
class CoreCounters:
    """What has happened since the start.

    Attributes:
        records: By result: ``stored``, ``duplicate``, ``refused``.
        frames_in: Frames that came; the other three likewise.
        cache: Frames of records, by where they came from: ``hit``, ``rows``,
            ``select``.
        errors: Errors said, by code.
        closes: Connections closed by this side, by close code.
        stalls: Connections closed because nothing was read.

    """

    records: Counter[str] = field(default_factory=Counter)
    cache: Counter[str] = field(default_factory=Counter)
    errors: Counter[str] = field(default_factory=Counter)
    closes: Counter[int] = field(default_factory=Counter)
    stalls: int = 0
    frames_in: int = 0
    frames_out: int = 0
    bytes_in: int = 0
    bytes_out: int = 0

    @property
    def frames(self) -> dict[str, int]:
        """Frames, by direction."""
        return {"in": self.frames_in, "out": self.frames_out}

    @property
    def octets(self) -> dict[str, int]:
        """Bytes of frames, by direction."""
        return {"in": self.bytes_in, "out": self.bytes_out}
