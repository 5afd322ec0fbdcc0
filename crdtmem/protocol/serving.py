"""The values of a relay's sessions: bounds, what they ask of the relay, their states.

The states are tables: an event without a row changes nothing, or is the peer's fault.
"""

from dataclasses import dataclass
from enum import Enum

from crdtmem.limits import (
    CATCHUP_RECORDS,
    CATCHUPS_MAX,
    COMMIT_BYTES,
    COMMIT_RECORDS,
    CONNECTION_DEAD_S,
    CONNECTIONS_MAX,
    FRAME_CACHE_ALL_BYTES,
    FRAME_CACHE_BYTES,
    HEARTBEAT_S,
    HELLO_WAIT_S,
    JOIN_WAIT_S,
    JOINS_MAX,
    PART_BYTES,
    PROBE_WAIT_S,
    RECORDS_ITEMS_MAX,
    RELAY_SNAPSHOT_BYTES,
    RELAY_UPDATE_BYTES,
    RETRY_BUSY_MS,
    RETRY_FULL_MS,
    RETRY_MISSING_MS,
    RETRY_QUOTA_MS,
    STALL_S,
    TOKEN_CONNECTIONS_MAX,
    TRANSFERS_BYTES,
    WINDOW_BYTES,
    WINDOW_RECORDS,
)
from crdtmem.protocol.downloads import PAGE_BYTES
from crdtmem.protocol.messages import Action, Presence
from crdtmem.protocol.relaying import PutRecord, Sample

__all__ = [
    "JOIN_REFUSALS",
    "PUT_REFUSALS",
    "STAGES",
    "TRANSITIONS",
    "HelloRequest",
    "JoinRequest",
    "LeaveRequest",
    "MatchRequest",
    "PresenceRequest",
    "PutRequest",
    "ReadRequest",
    "RelayLimits",
    "Request",
    "Stage",
    "State",
    "TransferBudget",
]


@dataclass(frozen=True, slots=True)
class RelayLimits:
    """What a relay's owner may set; see the limits of the same names for reasons."""

    agent: str = "crdtmem-relay"
    part_bytes: int = PART_BYTES
    update_bytes: int = RELAY_UPDATE_BYTES
    snapshot_bytes: int = RELAY_SNAPSHOT_BYTES
    window_records: int = WINDOW_RECORDS
    window_bytes: int = WINDOW_BYTES
    joins_max: int = JOINS_MAX
    connections_max: int = CONNECTIONS_MAX
    token_connections_max: int = TOKEN_CONNECTIONS_MAX
    commit_records: int = COMMIT_RECORDS
    commit_bytes: int = COMMIT_BYTES
    cache_bytes: int = FRAME_CACHE_BYTES
    cache_all_bytes: int = FRAME_CACHE_ALL_BYTES
    catchups_max: int = CATCHUPS_MAX
    catchup_records: int = CATCHUP_RECORDS
    transfers_bytes: int = TRANSFERS_BYTES
    hello_s: float = HELLO_WAIT_S
    join_s: float = JOIN_WAIT_S
    heartbeat_s: float = HEARTBEAT_S
    dead_s: float = CONNECTION_DEAD_S
    probe_s: float = PROBE_WAIT_S
    stall_s: float = STALL_S


@dataclass(frozen=True, slots=True)
class HelloRequest:
    """Somebody is there; to be answered with ``welcome`` or a close."""

    replica_id: bytes
    incarnation: bytes


@dataclass(frozen=True, slots=True)
class JoinRequest:
    """A namespace is asked for; to be answered with ``join_done``."""

    namespace: str
    create: bool
    cursor: Sample


@dataclass(frozen=True, slots=True)
class MatchRequest:
    """Which of these is in the log; to be answered with ``match_done``."""

    namespace: str
    ns_no: int
    samples: tuple[Sample, ...]


@dataclass(frozen=True, slots=True)
class PutRequest:
    """Records to be stored; to be answered with ``put_done``, in order."""

    ns_no: int
    records: tuple[PutRecord, ...]


@dataclass(frozen=True, slots=True)
class LeaveRequest:
    """The client is done with a namespace."""

    ns_no: int


@dataclass(frozen=True, slots=True)
class PresenceRequest:
    """A presence to be handed on."""

    presence: Presence


Request = (
    HelloRequest
    | JoinRequest
    | MatchRequest
    | PutRequest
    | LeaveRequest
    | PresenceRequest
)


@dataclass(frozen=True, slots=True)
class ReadRequest:
    """Rows to be read; to be answered with ``read_done``."""

    ns_no: int
    after: int
    records: int = RECORDS_ITEMS_MAX
    octets: int = PAGE_BYTES


class TransferBudget:
    """How many bytes of records in parts all connections may hold together (R10)."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self.held_bytes = 0

    def has_room(self, size_bytes: int) -> bool:
        """Tell whether so much more may be held."""
        return self.held_bytes + size_bytes <= self._limit

    def hold(self, size_bytes: int) -> None:
        """Count what is held from now on, or with a minus no longer."""
        self.held_bytes += size_bytes


class State(Enum):
    """Where a connection stands."""

    NEW = "new"
    GREETED = "greeted"
    OPEN = "open"
    FINISHING = "finishing"
    CLOSING = "closing"
    CLOSED = "closed"


_LIVE = (State.NEW, State.GREETED, State.OPEN, State.FINISHING)

TRANSITIONS: dict[tuple[State, str], State] = {
    (State.NEW, "hello"): State.GREETED,
    (State.GREETED, "welcome"): State.OPEN,
    **{(s, "finish"): State.FINISHING for s in _LIVE[:3]},
    (State.FINISHING, "settled"): State.CLOSING,
    **{(s, "close"): State.CLOSING for s in _LIVE},
    **{(s, "disconnected"): State.CLOSED for s in State},
}
"""What follows; an event that has no row here changes nothing."""


class Stage(Enum):
    """Where a namespace of a connection stands."""

    JOINING = "joining"
    REWOUND = "rewound"
    MATCHING = "matching"
    JOINED = "joined"


STAGES: dict[tuple[Stage, str], Stage] = {
    (Stage.JOINING, "join_done"): Stage.JOINED,
    (Stage.JOINING, "rewind"): Stage.REWOUND,
    (Stage.REWOUND, "samples"): Stage.MATCHING,
    (Stage.MATCHING, "match_done"): Stage.JOINED,
}
"""What follows; a message that has no row here is the client's fault."""

# Protocol, section 6: what the client does, and when it tries again.
_PASSING = {
    "quota-exceeded": (Action.RETRY, RETRY_QUOTA_MS),
    "storage-full": (Action.RETRY, RETRY_FULL_MS),
    "busy": (Action.RETRY, RETRY_BUSY_MS),
}
JOIN_REFUSALS: dict[str, tuple[Action, int]] = {
    "forbidden": (Action.STOP, 0),
    "namespace-gone": (Action.STOP, 0),
    "too-many-joins": (Action.STOP, 0),
    "namespace-not-found": (Action.RETRY, RETRY_MISSING_MS),
    **_PASSING,
}
PUT_REFUSALS: dict[str, tuple[Action, int]] = {
    "forbidden": (Action.GO_ON, 0),
    "record-malformed": (Action.GO_ON, 0),
    "record-too-large": (Action.GO_ON, 0),
    "replica-gap": (Action.GO_ON, 0),
    "replica-fork": (Action.GO_ON, 0),
    "snapshot-stale": (Action.GO_ON, 0),
    "void-unknown": (Action.GO_ON, 0),
    "void-too-late": (Action.GO_ON, 0),
    "base-ahead": (Action.RETRY, 0),
    **_PASSING,
}
