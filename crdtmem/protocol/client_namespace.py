"""One namespace of a client's session: where its reader stands, what is in flight.

It holds numbers and checks them; it makes no messages and no events. ``client`` does.
"""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from enum import StrEnum

from crdtmem.errors import LocalProtocolError, RemoteProtocolError
from crdtmem.limits import PRESENCES_MAX
from crdtmem.protocol import messages as wire
from crdtmem.protocol.client_events import JoinCursor
from crdtmem.protocol.records import chain_next, chain_start, parse_header, record_id
from crdtmem.protocol.relaying import Sample

__all__ = ["JOINED_STATES", "TRANSITIONS", "NamespaceSession", "NsEvent", "NsState"]


class NsState(StrEnum):
    """Where a namespace stands."""

    JOINING = "joining"
    REWINDING = "rewinding"
    READING = "reading"
    LIVE = "live"
    HELD = "held"
    STOPPED = "stopped"
    LEAVING = "leaving"
    LEFT = "left"


class NsEvent(StrEnum):
    """What happens to a namespace."""

    JOINED = "joined"
    REWIND = "rewind"
    CAUGHT_UP = "caught-up"
    FELL_BEHIND = "fell-behind"
    HOLD = "hold"
    STOP = "stop"
    LEAVE = "leave"


# What is missing cannot happen: from the relay it ends the connection. A namespace
# that is left before it was joined has no number yet to say so with.
TRANSITIONS: dict[tuple[NsState, NsEvent], NsState] = {
    (NsState.JOINING, NsEvent.JOINED): NsState.READING,
    (NsState.JOINING, NsEvent.REWIND): NsState.REWINDING,
    (NsState.JOINING, NsEvent.HOLD): NsState.HELD,
    (NsState.JOINING, NsEvent.STOP): NsState.STOPPED,
    (NsState.JOINING, NsEvent.LEAVE): NsState.LEAVING,
    (NsState.REWINDING, NsEvent.JOINED): NsState.READING,
    (NsState.REWINDING, NsEvent.HOLD): NsState.HELD,
    (NsState.REWINDING, NsEvent.STOP): NsState.STOPPED,
    (NsState.REWINDING, NsEvent.LEAVE): NsState.LEAVING,
    (NsState.READING, NsEvent.CAUGHT_UP): NsState.LIVE,
    (NsState.READING, NsEvent.HOLD): NsState.HELD,
    (NsState.READING, NsEvent.STOP): NsState.STOPPED,
    (NsState.READING, NsEvent.LEAVE): NsState.LEFT,
    (NsState.LIVE, NsEvent.FELL_BEHIND): NsState.READING,
    (NsState.LIVE, NsEvent.HOLD): NsState.HELD,
    (NsState.LIVE, NsEvent.STOP): NsState.STOPPED,
    (NsState.LIVE, NsEvent.LEAVE): NsState.LEFT,
    (NsState.HELD, NsEvent.LEAVE): NsState.LEFT,
    (NsState.STOPPED, NsEvent.LEAVE): NsState.LEFT,
    (NsState.LEAVING, NsEvent.JOINED): NsState.LEFT,
    (NsState.LEAVING, NsEvent.REWIND): NsState.LEAVING,
    (NsState.LEAVING, NsEvent.HOLD): NsState.LEFT,
    (NsState.LEAVING, NsEvent.STOP): NsState.LEFT,
}
JOINED_STATES = {NsState.READING, NsState.LIVE}


class NamespaceSession:
    """One joined namespace, or one that is to be.

    Args:
        cursor: What the join asks for.

    Attributes:
        name: Of the namespace.
        cursor: As passed.
        state: See TRANSITIONS.
        ns_no: The relay's number; 0 before joined.
        scopes: What the token may do here.
        head: Newest seq that was heard of.
        position: Newest seq that was received.
        chain: The chain there.
        applied: Newest seq that the caller has committed.
        samples: What a rewind was answered with; None for no answer yet.
        are_puts_shut: Whether a rewind waits for the caller's repair.
        held_until: When puts are taken again; None if they are.
        rejoin_at: When a held namespace is to be joined again; None if it is not.
        held_code: Why it is held.
        acked: Highest replica_seq that the relay has.
        blob: What this store is at; empty for nothing.
        counter: Of the presence last sent.
        seal: Makes of counter and blob what is sent; None: the blob is.

    """

    def __init__(self, cursor: JoinCursor) -> None:
        self.name = cursor.namespace
        self.cursor = cursor
        self.state = NsState.JOINING
        self.ns_no = 0
        self.scopes = 0
        self.head = 0
        self.position = cursor.seq
        self.chain = cursor.chain
        self.applied = cursor.seq
        self.samples: tuple[Sample, ...] | None = None
        self.are_puts_shut = False
        self.held_until: float | None = None
        self.rejoin_at: float | None = None
        self.held_code = ""
        self.blob = b""
        self.counter = 0
        self.seal: Callable[[int, bytes], bytes] | None = None
        self._flight: deque[tuple[int, int]] = deque()
        self._flight_bytes = 0
        self.acked = 0
        self._put_max = 0
        self._presences: dict[tuple[bytes, bytes], int] = {}

    @property
    def is_joined(self) -> bool:
        """Whether the relay serves it."""
        return self.state in JOINED_STATES

    @property
    def is_behind(self) -> bool:
        """Whether the relay has records that have not come yet."""
        return self.is_joined and self.position < self.head

    @property
    def takes_puts(self) -> bool:
        """Whether records may be put."""
        is_free = not self.are_puts_shut and self.held_until is None
        return self.is_joined and is_free

    @property
    def in_flight(self) -> int:
        """Records that were put and are neither acknowledged nor refused."""
        return len(self._flight)

    def advance(self, event: NsEvent) -> None:
        """Go to the next state.

        Raises:
            RemoteProtocolError: ``out-of-order``: the relay may not send this now.

        """
        following = TRANSITIONS.get((self.state, event))
        if following is None:
            raise RemoteProtocolError(
                "out-of-order", f"{event} for a namespace that is {self.state}"
            )
        self.state = following

    def start(self, joined: wire.Joined, relay_id: bytes) -> None:
        """Take the relay's word on where to go on.

        Raises:
            RemoteProtocolError: ``bad-value``: the client never was at that place.

        """
        self._check_resume(joined, relay_id)
        self.are_puts_shut = self.samples is not None
        self.ns_no = joined.ns_no
        self.scopes = joined.scopes
        self.head = joined.head
        self.position = self.applied = joined.resume_seq
        self.chain = joined.resume_chain
        self.acked = self._put_max = joined.own_max
        self._settle()

    def raise_head(self, seq: int) -> None:
        """Take note of a seq that exists."""
        self.head = max(self.head, seq)
        self._settle()

    def receive(self, first_seq: int, items: Sequence[wire.Item]) -> list[wire.Item]:
        """Take adjoining records; return them with their ids. ``chain`` moves along.

        Raises:
            RemoteProtocolError: ``seq-gap``.

        """
        self.expect_next(first_seq)
        taken = [self._with_id(item) for item in items]
        for seq, item in enumerate(taken, first_seq):
            self.chain = chain_next(self.chain, seq, item.record_id)
        self.position += len(taken)
        self.raise_head(self.position)
        return taken

    def expect_next(self, seq: int) -> None:
        """Check that a seq follows what was received.

        Raises:
            RemoteProtocolError: ``seq-gap``.

        """
        if seq != self.position + 1:
            raise RemoteProtocolError(
                "seq-gap", f"seq {seq} arrives, and {self.position + 1} is due"
            )

    def admit(self, record: bytes, window_records: int, window_bytes: int) -> bool:
        """Put a record in flight if the window has room for it.

        Raises:
            LocalProtocolError: If it does not follow the record put before it.

        """
        size = len(record)
        if self._flight and (
            len(self._flight) >= window_records
            or self._flight_bytes + size > window_bytes
        ):
            return False
        replica_seq = parse_header(record).replica_seq
        if self._flight and replica_seq != self._flight[-1][0] + 1:
            raise LocalProtocolError(
                f"record {replica_seq} is put after {self._flight[-1][0]}"
            )
        self._flight.append((replica_seq, size))
        self._flight_bytes += size
        self._put_max = max(self._put_max, replica_seq)
        return True

    def acknowledge(self, ack: wire.Ack) -> bool:
        """Take what an ack covers out of flight; tell whether it is news.

        Raises:
            RemoteProtocolError: ``bad-value``: that record was never put.

        """
        if ack.replica_seq > self._put_max:
            raise RemoteProtocolError(
                "bad-value", f"ack of {ack.replica_seq}, and {self._put_max} was put"
            )
        was = len(self._flight), self.acked
        while self._flight and self._flight[0][0] <= ack.replica_seq:
            self._flight_bytes -= self._flight.popleft()[1]
        self.acked = max(self.acked, ack.replica_seq)
        self.raise_head(ack.seq)
        return was != (len(self._flight), self.acked)

    def clear_flight(self) -> None:
        """Take everything out of flight."""
        self._flight.clear()
        self._flight_bytes = 0

    def hear_presence(self, presence: wire.Presence) -> bool:
        """Tell whether a presence is news: newer than the last of its sender."""
        sender = presence.replica_id, presence.incarnation
        last = self._presences.get(sender, -1)
        # Of one that has left the relay repeats the last, without a blob.
        has_left = presence.counter == last and not presence.ttl_ms
        if presence.counter <= last and not has_left:
            return False
        self._presences.pop(sender, None)
        self._presences[sender] = presence.counter
        if len(self._presences) > PRESENCES_MAX:
            del self._presences[next(iter(self._presences))]
        return True

    def _settle(self) -> None:
        """Change between READING and LIVE, by what is known of the head."""
        is_behind = self.position < self.head
        if self.state is NsState.LIVE and is_behind:
            self.advance(NsEvent.FELL_BEHIND)
        elif self.state is NsState.READING and not is_behind:
            self.advance(NsEvent.CAUGHT_UP)

    def _check_resume(self, joined: wire.Joined, relay_id: bytes) -> None:
        resume = Sample(joined.resume_seq, joined.resume_chain)
        places = {Sample(self.cursor.seq, self.cursor.chain), *(self.samples or ())}
        if joined.floor:
            is_known = resume.seq == joined.floor
        else:
            is_known = resume == Sample(0, chain_start(relay_id, self.name))
        if not (is_known or (resume.seq and resume in places)) or (
            resume.seq > joined.head
        ):
            raise RemoteProtocolError(
                "bad-value", f"seq {resume.seq} is no place to go on from"
            )

    def _with_id(self, item: wire.Item) -> wire.Item:
        if item.form != wire.Form.FULL:
            return item
        return replace(item, record_id=record_id(self.name, item.record))
