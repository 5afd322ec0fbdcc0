"""One namespace on a connection: what is known of it, and what is to be done next."""

from collections import deque
from collections.abc import Iterable
from enum import Enum
from typing import NamedTuple

from crdtmem.limits import ACK_WAIT_S, APPLY_BATCH_RECORDS, SNAPSHOT_CHECK_S
from crdtmem.protocol.client_events import Acked, Joined, PutRefused, RecordsReceived
from crdtmem.protocol.relaying import Scope
from crdtmem.store.links import Link

__all__ = ["Fault", "Namespace", "Work"]


class Work(Enum):
    """A piece of work: one transaction of the store, or one reading of it."""

    APPLY = "apply"
    ACKNOWLEDGE = "acknowledge"
    FINISH_REBASE = "finish-rebase"
    OFFER = "offer"
    SEAL = "seal"
    FIND_DUE = "find-due"
    SNAPSHOT = "snapshot"


class Fault(NamedTuple):
    """What went wrong; permanent until somebody changes something."""

    code: str
    message: str
    is_permanent: bool


class Namespace:
    """What events have told of a namespace, and one function that decides.

    1. Records are applied in the order in which they came; nothing is sealed in
       between that a rebase or a repair must not meet.
    2. New records are sealed only when those sealed before have gone out.
    3. What the relay lost is sealed before any put after a rewind.

    Args:
        link: The link, as it was when the connection was made.

    Attributes:
        link: Likewise.
        is_joined: Whether the relay serves it on this connection.
        scopes: What the token may do there.
        join_head: Newest seq at the join: what must be here before anything of the
            past is repaired.
        cursor: Newest seq that is applied.
        sent: Newest replica_seq that was put on this connection.
        queue: Records that are not applied yet.
        acks: The newest acknowledgement, until it is noted.
        is_dirty: Whether there may be something to seal.
        has_offer: Whether sealed records may wait to be put.
        is_window_full: Whether the session takes no more for now.
        is_shut: Whether a rewind waits for what it is to be repaired with.
        is_rebase_due: Whether own writes must be written anew.
        has_tried_rebase: Whether that waits for a key.
        is_stopped: Whether it is not served until something is changed by hand.
        put_again_at: When puts are taken again after a refusal with a wait.
        fault: What is wrong with it, if anything.
        wrote_last: Whether the newest change was made here.
        due: Docs of which a snapshot is due, each with the time to make it.
        presences: What others are at, by replica id.

    """

    def __init__(self, link: Link) -> None:
        self.link = link
        self.is_joined = False
        self.scopes = 0
        self.join_head = 0
        self.cursor = link.cursor.seq
        self.sent = 0
        self.queue: deque[RecordsReceived] = deque()
        self.acks: deque[Acked] = deque(maxlen=1)
        self.is_dirty = False
        self.has_offer = False
        self.is_window_full = False
        self.is_shut = False
        self.is_rebase_due = link.is_rebase_due
        self.has_tried_rebase = False
        self.is_stopped = False
        self.put_again_at: float | None = None
        self.fault: Fault | None = None
        self.wrote_last = False
        self.due: dict[int, float] = {}
        self.presences: dict[bytes, bytes] = {}
        self._ack_due_at = 0.0
        self._find_due_at: float | None = None

    @property
    def remote(self) -> str:
        """Its name at the relay."""
        return self.link.remote

    @property
    def may_write(self) -> bool:
        """Whether the token may write there."""
        return bool(self.scopes & Scope.WRITE)

    @property
    def may_compact(self) -> bool:
        """Whether the token may replace old records by a snapshot."""
        return bool(self.scopes & Scope.COMPACT)

    @property
    def is_caught_up(self) -> bool:
        """Whether all that the relay had at the join is applied here."""
        return self.is_joined and self.cursor >= self.join_head

    @property
    def is_flushed(self) -> bool:
        """Whether nothing waits to be put that the relay would take now."""
        is_held = self.is_shut or self.is_rebase_due or self.put_again_at is not None
        if not (self.is_joined and self.may_write) or is_held:
            return True
        return not (self.is_dirty or self.has_offer or self.is_window_full)

    def join(self, joined: Joined, now: float) -> None:
        """Begin anew from where the relay said."""
        self.leave(None)
        self.is_joined = True
        self.scopes = joined.answer.scopes
        self.join_head = joined.answer.head
        self.cursor = joined.answer.resume_seq
        self.sent = joined.answer.own_max
        self.is_shut = joined.is_rewound
        self.is_dirty = self.has_offer = True
        self.is_window_full = False
        self.put_again_at = None
        self.due.clear()
        self.note_change(now, is_own=False)

    def leave(self, fault: Fault | None) -> None:
        """Forget what the connection told; what is in the store stands."""
        self.is_joined = False
        self.queue.clear()
        self.acks.clear()
        self.presences.clear()
        self.fault = fault

    def receive_ack(self, ack: Acked, now: float) -> None:
        """Take note of an acknowledgement, and that the window has room."""
        if not self.acks:
            self._ack_due_at = now + ACK_WAIT_S
        self.acks.append(ack)
        self._open_window()
        if self.fault is not None and not self.fault.is_permanent:
            self.fault = None

    def refuse_put(self, refused: PutRefused, now: float) -> None:
        """Put again from a number, at once or after a wait."""
        self.sent = refused.expected - 1
        self.put_again_at = now + refused.retry_ms / 1000 if refused.retry_ms else None
        if self.put_again_at is None:
            self._open_window()
        else:
            self.is_window_full = True

    def note_change(self, now: float, *, is_own: bool) -> None:
        """Have it looked for docs that are due for a snapshot, in a while."""
        self.wrote_last = is_own
        if self.may_compact and self._find_due_at is None:
            self._find_due_at = now + SNAPSHOT_CHECK_S

    def take_due(self, docs: Iterable[int], at: float) -> None:
        """Plan a snapshot of each doc; what is planned already stays so."""
        self._find_due_at = None
        self.due = {doc: self.due.get(doc, at) for doc in docs}

    def tick(self, now: float) -> None:
        """Put again if the wait is over."""
        if self.put_again_at is not None and now >= self.put_again_at:
            self.put_again_at = None
            self._open_window()

    def next_deadline(self) -> float | None:
        """Return when time alone asks for something; None for never."""
        waits = [self.put_again_at, self._find_due_at, *self.due.values()]
        if self.acks:
            waits.append(self._ack_due_at)
        return min((at for at in waits if at is not None), default=None)

    def take_batch(self) -> list[RecordsReceived]:
        """Take what is applied next out of the queue: at least one message."""
        batch = [self.queue.popleft()]
        count = len(batch[0].items)
        while self.queue and count + len(self.queue[0].items) <= APPLY_BATCH_RECORDS:
            batch.append(self.queue.popleft())
            count += len(batch[-1].items)
        return batch

    def next_work(self, now: float, *, is_finishing: bool) -> Work | None:
        """Decide what is done next; None if there is nothing to do."""
        if not self.is_joined:
            return None
        if self.queue:
            return Work.APPLY
        if self.acks and (is_finishing or now >= self._ack_due_at):
            return Work.ACKNOWLEDGE
        if self.is_rebase_due:
            is_due = self.is_caught_up and not self.has_tried_rebase
            return Work.FINISH_REBASE if is_due else None
        if not self.may_write or self.is_window_full:
            return None
        if self.has_offer and not self.is_shut:
            return Work.OFFER
        if self.is_dirty:
            return Work.SEAL
        return None if is_finishing else self._next_snapshot_work(now)

    def _next_snapshot_work(self, now: float) -> Work | None:
        if not self.is_caught_up:
            return None
        if self._find_due_at is not None and now >= self._find_due_at:
            return Work.FIND_DUE
        if any(now >= at for at in self.due.values()):
            return Work.SNAPSHOT
        return None

    def _open_window(self) -> None:
        self.is_window_full = False
        self.has_offer = True
