"""What a relay's sessions ask of its log, and what the log answers.

The values that cross the seam between the connections of a relay and its storage. They
are plain facts of the protocol: which records stand where in a namespace, who may do
what there, what became of a put. Nothing here does anything.
"""

from dataclasses import dataclass, field
from enum import IntFlag

from crdtmem.protocol.records import Header

__all__ = [
    "Grant",
    "JoinState",
    "LogRow",
    "LogSlice",
    "Put",
    "PutRecord",
    "PutRefusal",
    "PutResult",
    "RelayIdentity",
    "RewindCause",
    "Sample",
    "Scope",
]


class Scope(IntFlag):
    """What a token may do in a namespace; the bits of ``joined``."""

    READ = 1
    WRITE = 2
    COMPACT = 4
    PRESENCE = 8


class RewindCause(IntFlag):
    """Why a cursor does not stand in the relay's log."""

    NONE = 0
    PAST_HEAD = 1
    OTHER_CHAIN = 2


@dataclass(frozen=True, slots=True)
class RelayIdentity:
    """Which relay this is, and since which restore (16 bytes each)."""

    relay_id: bytes
    epoch: bytes


@dataclass(frozen=True, slots=True)
class Grant:
    """What the token of a connection allows.

    Attributes:
        token_id: The public part of the token.
        pattern: A namespace, a prefix with ``*`` behind it, or ``*``.
        scopes: Nothing that is not in here is allowed; may be empty.
        may_read_metrics: Whether ``/metrics`` answers it.
        not_after_ms: When it expires, in milliseconds since 1970; None for never.
        max_replicas: Most replicas that may write under it in one namespace.

    """

    token_id: str
    pattern: str
    scopes: Scope
    may_read_metrics: bool = False
    not_after_ms: int | None = None
    max_replicas: int | None = None

    def covers(self, namespace: str) -> bool:
        """Tell whether the token is for this namespace at all."""
        if self.pattern.endswith("*"):
            return namespace.startswith(self.pattern[:-1])
        return namespace == self.pattern


@dataclass(frozen=True, slots=True)
class Sample:
    """A place in the log: a seq and the chain at it."""

    seq: int
    chain: bytes


@dataclass(frozen=True, slots=True)
class JoinState:
    """What the log says to a join.

    Attributes:
        ns_no: Number of the namespace; 0 where the join was refused.
        head: Newest seq.
        floor: Seq below which rows are gone.
        resume: Where the reader goes on; None where its cursor is not in this log.
        cause: Why it is not.
        own_max: Highest replica_seq of the joining replica; 0 for none.
        own_id: Record id of that record; zeros for none.
        code: Why the join was refused; empty where it was not.

    """

    ns_no: int
    head: int = 0
    floor: int = 0
    resume: Sample | None = None
    cause: RewindCause = RewindCause.NONE
    own_max: int = 0
    own_id: bytes = bytes(32)
    code: str = ""


@dataclass(frozen=True, slots=True)
class PutRecord:
    """One record of a put: its header, its id in the namespace, and all its bytes."""

    header: Header
    record_id: bytes
    record: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class Put:
    """Consecutive records of one replica, from one connection.

    Attributes:
        ns_no: Number of the namespace.
        replica_id: Of the connection; every header has been held against it.
        grant: Decides what is stored under it.
        records: In the order of replica_seq.

    """

    ns_no: int
    replica_id: bytes
    grant: Grant
    records: tuple[PutRecord, ...]


@dataclass(frozen=True, slots=True)
class PutRefusal:
    """The first record of a put that was not stored; what stood before it was.

    Attributes:
        code: As in section 6 of the protocol.
        replica_seq: Of the record.
        expected: Next number of that replica's stream.

    """

    code: str
    replica_seq: int
    expected: int


@dataclass(frozen=True, slots=True)
class LogRow:
    """A record where it stands in a namespace's log.

    Attributes:
        seq: Its place, from 1.
        record_id: Its id.
        chain: The chain after it.
        kind: Its RecordKind.
        base: As in its header.
        doc_tag: As in its header.
        replica_id: As in its header.
        replica_seq: As in its header.
        record: All its bytes; None once the payload has been dropped.
        is_newest_snapshot: Whether it is its doc's newest snapshot.
        doc_has_dropped: Whether any payload of its doc has been dropped.

    """

    seq: int
    record_id: bytes
    chain: bytes
    kind: int
    base: int
    doc_tag: bytes
    replica_id: bytes
    replica_seq: int
    record: bytes | None = field(repr=False)
    is_newest_snapshot: bool = False
    doc_has_dropped: bool = False


@dataclass(frozen=True, slots=True)
class PutResult:
    """What became of a put.

    Attributes:
        ns_no: As in the put.
        acked: Highest replica_seq that is stored now; 0 where nothing of the put is.
        at: Place of that record.
        head: Newest seq of the namespace.
        rows: What the put has added to the log.
        refusal: Why the rest was not stored; None where all was.

    """

    ns_no: int
    acked: int
    at: Sample | None
    head: int
    rows: tuple[LogRow, ...] = ()
    refusal: PutRefusal | None = None


@dataclass(frozen=True, slots=True)
class LogSlice:
    """Adjoining rows of a namespace's log, and its head when they were read."""

    ns_no: int
    rows: tuple[LogRow, ...]
    head: int
