"""What a relay's core asks of its driver: sockets to be written, storage to be asked.

The core decides and does nothing. Its driver takes these out of ``RelayCore.effects``
in their order and tells the core what came of each.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from crdtmem.errors import (
    CrdtmemError,
    StorageBusyError,
    StorageFullError,
    StorageUncertainError,
)
from crdtmem.protocol.relaying import JoinState, LogSlice, Put, PutResult, Sample

__all__ = [
    "Announce",
    "Append",
    "Close",
    "Effect",
    "Join",
    "Match",
    "Read",
    "Result",
    "Send",
    "StorageFailure",
]


@dataclass(frozen=True, slots=True)
class Send:
    """Send frames, in this order; then call ``sent``.

    A connection has one of these on its way at a time. ``sent`` is due once the
    socket's buffer has taken them and stands below its limit again, so that what waits
    for a slow reader waits in the log.

    Attributes:
        conn: The connection.
        frames: WebSocket binary messages, at least one.

    """

    conn: int
    frames: Sequence[bytes] = field(repr=False)


@dataclass(frozen=True, slots=True)
class Close:
    """Close a connection; the core has forgotten it, and nothing is to be reported.

    Attributes:
        conn: The connection.
        code: WebSocket close code.
        reason: In kebab-case.
        frames: To be sent before, if that takes no time.
        is_abort: Whether the peer is beyond reach: no close handshake.

    """

    conn: int
    code: int
    reason: str
    frames: Sequence[bytes] = field(default=(), repr=False)
    is_abort: bool = False


@dataclass(frozen=True, slots=True)
class Announce:
    """Tell the other processes of this relay; nothing is to be reported.

    Attributes:
        message: For their ``RelayCore.heard``.

    """

    message: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class Join:
    """Ask ``Storage.join``."""

    effect: int
    namespace: str
    create: bool
    replica_id: bytes
    cursor: Sample


@dataclass(frozen=True, slots=True)
class Match:
    """Ask ``Storage.match``."""

    effect: int
    ns_no: int
    samples: tuple[Sample, ...]


@dataclass(frozen=True, slots=True)
class Append:
    """Ask ``Storage.append``; there is one of these on its way at a time."""

    effect: int
    puts: tuple[Put, ...]


@dataclass(frozen=True, slots=True)
class Read:
    """Ask ``Storage.read``."""

    effect: int
    ns_no: int
    after: int
    records: int
    octets: int


Effect = Send | Close | Announce | Join | Match | Append | Read


@dataclass(frozen=True, slots=True)
class StorageFailure:
    """The storage could not answer.

    Attributes:
        code: ``storage-full`` or ``busy`` where nothing was stored, else
            ``storage-failed``: the connections concerned are closed.

    """

    code: str

    @classmethod
    def of(cls, error: CrdtmemError) -> "StorageFailure":
        """Return what an error of the storage means to its connections."""
        match error:
            case StorageFullError():
                return cls(StorageFullError.code)
            case StorageBusyError():
                return cls(StorageBusyError.code)
        return cls(StorageUncertainError.code)


Result = JoinState | Sample | list[PutResult] | LogSlice
"""What answers a Join, a Match, an Append or a Read."""
