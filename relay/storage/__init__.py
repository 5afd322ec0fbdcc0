"""The contract of a relay's storage: what every implementation promises.

Three of them exist: one in memory, for tests and for the simulator, one in SQLite, and
one in PostgreSQL, which several processes may serve. ``tests/contracts/storage.py``
holds all of them to this page.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from crdtmem.protocol.relaying import (
    Grant,
    JoinState,
    LogSlice,
    Put,
    PutResult,
    RelayIdentity,
    Sample,
)

__all__ = ["HeadHint", "Hearing", "Storage", "SweepReport", "TokenChange", "TokenRow"]

HeadHint = Callable[[int, int], None]
"""Called with ns_no and head; hints may be missed, repeated or late."""


Hearing = Callable[[bytes], None]
"""Called with what another process has announced; it may be missed, or late."""


@dataclass(frozen=True, slots=True)
class SweepReport:
    """What a sweep dropped: payloads, and their bytes; whether more is due."""

    payloads: int
    size_bytes: int
    has_more: bool


@dataclass(frozen=True, slots=True)
class TokenRow:
    """A token as its owner sees it: everything but its hash.

    Attributes:
        token_id: The public part.
        pattern: Which namespaces it is for.
        scopes: Names, sorted; a name that no release knows allows nothing.
        label: For people.
        not_after_ms: When it expires; None for never.
        max_replicas: Most replicas that may write under it in one namespace.
        created_ms: When it was made.
        revoked_ms: When it was revoked; None if it was not.

    """

    token_id: str
    pattern: str
    scopes: tuple[str, ...]
    label: str
    not_after_ms: int | None
    max_replicas: int | None
    created_ms: int
    revoked_ms: int | None


@dataclass(frozen=True, slots=True)
class TokenChange:
    """A token that was changed; ``number`` is where to ask from next time."""

    number: int
    token_id: str
    revoked_ms: int | None
    not_after_ms: int | None


class Storage(Protocol):
    """A relay's log, durable before it is visible.

    1. What ``append`` returned is synced to disk, and only that is seen by ``read``.
    2. The seqs of a namespace are 1, 2, 3 … in the order of commits.
    3. A refused record leaves everything as it was.

    Raises:
        StorageFullError: From append: no room; nothing was stored, reads go on.
        StorageBusyError: From append: not now; nothing was stored.
        StorageUncertainError: From append: it may be stored or not. The caller closes
            the connections concerned and acknowledges nothing.

    """

    async def open(self) -> RelayIdentity:
        """Make ready, and say who this relay is; may begin a new epoch."""

    async def close(self) -> None:
        """Let go of everything; idempotent."""

    async def probe(self) -> None:
        """Make one durable write and one read; raises what append would."""

    async def join(
        self,
        namespace: str,
        *,
        create: bool,
        replica_id: bytes,
        cursor: Sample,
    ) -> JoinState:
        """Say where a reader with this cursor goes on (protocol, section 5)."""

    async def match(self, ns_no: int, samples: Sequence[Sample]) -> Sample:
        """Return the highest sample that is in the log, else the floor."""

    async def append(self, puts: Sequence[Put]) -> list[PutResult]:
        """Store a group, each namespace's puts at once; return after it is synced.

        One result for each put, in their order (protocol, section 5).
        """

    async def read(
        self, ns_no: int, after: int, *, records: int, octets: int
    ) -> LogSlice:
        """Return the rows behind a seq, up to both limits; one row at least."""

    async def sweep(self, now_ms: int, limit: int) -> SweepReport:
        """Drop payloads whose grace is over; at most ``limit`` of them."""

    async def grant(self, token_id: str, secret: bytes, now_ms: int) -> Grant | None:
        """Return what a token allows, or None for every kind of failure alike."""

    async def token_create(self, row: TokenRow, digest: bytes) -> None:
        """Add a token; ``digest`` is the SHA-256 of its secret."""

    async def token_list(self) -> list[TokenRow]:
        """Return all tokens, oldest first."""

    async def token_revoke(self, token_id: str, now_ms: int) -> bool:
        """Revoke a token and say whether there is one; idempotent."""

    async def changed_tokens(self, since: int) -> list[TokenChange]:
        """Return the changes behind a number, in their order."""

    def watch(self, notify: HeadHint, hear: Hearing | None = None) -> None:
        """Have the heads that other processes commit told; a hint, no promise.

        Also what they announce, where ``hear`` is passed.
        """

    def announce(self, message: bytes) -> None:
        """Tell the other processes of this relay something; at once, and no promise."""
