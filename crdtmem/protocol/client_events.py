"""What a client's session is told and what it tells: cursors, bounds, events."""

from dataclasses import dataclass

from crdtmem.limits import (
    CONNECTION_DEAD_S,
    HEARTBEAT_S,
    RECORD_BYTES,
    WELCOME_WAIT_S,
    WINDOW_BYTES,
    WINDOW_RECORDS,
)
from crdtmem.protocol.messages import Item, Joined as JoinedMessage, Presence, Welcome

__all__ = [
    "Acked",
    "ClientLimits",
    "Closed",
    "Event",
    "JoinCursor",
    "Joined",
    "NamespaceHeld",
    "NamespaceStopped",
    "PresenceChanged",
    "PutRefused",
    "RecordsReceived",
    "RewindAsked",
    "Welcomed",
]

# What a header and a seal add to the longest payload.
RECORD_EXTRA_BYTES = 128


@dataclass(frozen=True, slots=True)
class ClientLimits:
    """Bounds of a session.

    Attributes:
        welcome_s: How long the relay may take to answer hello.
        heartbeat_s: Longest pause between two heartbeats.
        dead_s: How long the relay may be silent.
        record_bytes: Longest record that is taken. Not what the relay takes today: an
            older record may be longer than its present limits.
        window_records: Most records in flight in a namespace, unless the relay wants
            less.
        window_bytes: The same in bytes; one longer record may be in flight alone.

    """

    welcome_s: float = WELCOME_WAIT_S
    heartbeat_s: float = HEARTBEAT_S
    dead_s: float = CONNECTION_DEAD_S
    record_bytes: int = RECORD_BYTES + RECORD_EXTRA_BYTES
    window_records: int = WINDOW_RECORDS
    window_bytes: int = WINDOW_BYTES


@dataclass(frozen=True, slots=True)
class JoinCursor:
    """Where a store stands in a namespace.

    Attributes:
        namespace: Its name on the relay.
        epoch: Of the relay when the cursor was stored; zeros for none.
        seq: Newest seq that is applied; 0 for none.
        chain: The chain there; zeros for none.
        own_seq: Highest replica_seq that the store has sealed.
        flags: JoinFlag.

    """

    namespace: str
    epoch: bytes
    seq: int
    chain: bytes
    own_seq: int
    flags: int = 0


@dataclass(frozen=True, slots=True)
class Welcomed:
    """The connection is open: namespaces may be joined.

    If ``relay_id`` is not the one that a cursor was stored with, the cursor is void.
    """

    relay_id: bytes
    epoch: bytes
    welcome: Welcome


@dataclass(frozen=True, slots=True)
class Joined:
    """A namespace is served, from the answer's ``resume_seq`` on.

    The caller holds the answer's ``own_max`` and ``own_id`` against its outbox
    (protocol, section 5) before it takes any Acked or RecordsReceived of the namespace
    for true. Puts go on from ``own_max + 1``; after a rewind they are shut until
    ``resume_puts``.
    """

    namespace: str
    answer: JoinedMessage
    is_rewound: bool


@dataclass(frozen=True, slots=True)
class RewindAsked:
    """The cursor is not in the relay's log: answer with ``send_samples``."""

    namespace: str


@dataclass(frozen=True, slots=True)
class RecordsReceived:
    """Adjoining records; their chain has been verified.

    Attributes:
        namespace: Its name.
        first_seq: Of the first.
        items: Each with its record_id, computed here where the relay sent the record.
        chain: The chain after the last.

    """

    namespace: str
    first_seq: int
    items: tuple[Item, ...]
    chain: bytes


@dataclass(frozen=True, slots=True)
class Acked:
    """The relay has fsynced everything up to ``replica_seq``; where that record is."""

    namespace: str
    replica_seq: int
    seq: int
    chain: bytes


@dataclass(frozen=True, slots=True)
class PutRefused:
    """A record was refused; nothing unacknowledged is in flight any more.

    Put again from ``expected``, or seal anew from ``replica_seq``: the relay stored
    nothing there. With ``retry_ms`` puts are held that long: ``put`` takes none.
    """

    namespace: str
    replica_seq: int
    expected: int
    code: str
    retry_ms: int
    text: str


@dataclass(frozen=True, slots=True)
class NamespaceHeld:
    """A namespace is not joined for now.

    It comes twice: when the relay says so, with the wait; and when the wait is over,
    with ``retry_ms`` 0. At the second, and only then, the caller calls ``join`` again
    with its cursor. Where there is nothing to wait for, the first has 0.
    """

    namespace: str
    code: str
    retry_ms: int


@dataclass(frozen=True, slots=True)
class NamespaceStopped:
    """A namespace is not served until something is changed by hand."""

    namespace: str
    code: str
    text: str


@dataclass(frozen=True, slots=True)
class PresenceChanged:
    """What another replica is at; ``ttl_ms`` 0 and an empty blob: it is gone."""

    namespace: str
    presence: Presence


@dataclass(frozen=True, slots=True)
class Closed:
    """The connection is over; the last event.

    Attributes:
        code: Why: of section 6, or ``seq-gap`` or ``chain-mismatch`` (connect again
            once; at the same seq again it is ``relay-inconsistent``), or
            ``connection-lost``. ``replica-duplicate`` asks for new ids.
        close_code: The WebSocket's; 1006 where the connection just ended.
        is_permanent: Whether connecting again is pointless as things are.
        retry_ms: Do not connect earlier than this, whatever the backoff says.
        open_s: How long it was open; 0 if it never was. The backoff begins anew after
            BACKOFF_RESET_S.
        detail: What exactly, for people and logs.

    """

    code: str
    close_code: int
    is_permanent: bool
    retry_ms: int
    open_s: float = 0.0
    detail: str = ""


Event = (
    Welcomed
    | Joined
    | RewindAsked
    | RecordsReceived
    | Acked
    | PutRefused
    | NamespaceHeld
    | NamespaceStopped
    | PresenceChanged
    | Closed
)
