"""The namespaces of a client's connection: joins, uploads, downloads, refusals.

``ClientSession`` hands over what concerns a namespace and keeps what concerns the
connection. A RemoteProtocolError from here ends the connection.
"""

from collections.abc import Callable, Sequence

from crdtmem.errors import LocalProtocolError, RemoteProtocolError
from crdtmem.limits import JOIN_RETRY_S, JOINS_MAX, PRESENCE_TTL_MS
from crdtmem.protocol import client_events as events, messages as wire
from crdtmem.protocol.client_events import ClientLimits, Event, JoinCursor
from crdtmem.protocol.client_namespace import NamespaceSession, NsEvent, NsState
from crdtmem.protocol.client_uploads import UploadQueue
from crdtmem.protocol.parts import PartAssembler, RecordLimits
from crdtmem.protocol.records import parse_header
from crdtmem.protocol.relaying import Sample, Scope

__all__ = ["ClientNamespaces", "NamespaceMessage"]

NamespaceMessage = (
    wire.Joined
    | wire.Rewind
    | wire.Records
    | wire.Part
    | wire.Ack
    | wire.Presence
    | wire.ErrorMessage
)

# Not served, and not about to be: they may be joined, and what comes late is ignored.
GONE_STATES = {NsState.HELD, NsState.STOPPED, NsState.LEFT}

# Heartbeats of the relay, with more to come, that may pass without any record.
QUIET_HEARTBEATS_MAX = 2


class ClientNamespaces:
    """Everything that a connection knows by the name or number of a namespace.

    Args:
        hello: Who this is.
        welcome: Who the relay is, and what it takes.
        limits: Bounds.
        say: Sends a message.
        emit: Tells the driver.

    """

    def __init__(
        self,
        hello: wire.Hello,
        welcome: wire.Welcome,
        limits: ClientLimits,
        *,
        say: Callable[[wire.Message], None],
        emit: Callable[[Event], None],
    ) -> None:
        self._hello = hello
        self._relay_id = welcome.relay_id
        self._limits = RecordLimits(welcome.max_update, welcome.max_snapshot)
        self._window_records = min(welcome.window_records, limits.window_records)
        self._window_bytes = min(welcome.window_bytes, limits.window_bytes)
        self._say = say
        self._emit = emit
        self._uploads = UploadQueue(welcome)
        self._parts = PartAssembler(
            RecordLimits(limits.record_bytes, limits.record_bytes)
        )
        self._quiet_heartbeats = 0
        self._names: dict[str, NamespaceSession] = {}
        # Those that were left or dropped stay: what comes late for them is ignored.
        self._numbers: dict[int, NamespaceSession] = {}

    @property
    def has_flight(self) -> bool:
        """Whether any record waits for its ack."""
        return any(n.in_flight for n in self._names.values())

    @property
    def heads(self) -> tuple[wire.Head, ...]:
        """What a heartbeat says: how far each joined namespace is applied."""
        joined = [n for n in self._names.values() if n.is_joined]
        return tuple(wire.Head(n.ns_no, n.applied) for n in joined)

    @property
    def part_deadline(self) -> float | None:
        """When the next part of a record is overdue; None if none is awaited."""
        return self._parts.deadline

    @property
    def deadlines(self) -> list[float]:
        """When something is to be done here."""
        found = [self._parts.deadline]
        for namespace in self._names.values():
            found += [namespace.rejoin_at, namespace.held_until]
        return [moment for moment in found if moment is not None]

    def find(self, name: str) -> NamespaceSession | None:
        """Return a namespace, or None if it was never joined."""
        return self._names.get(name)

    def named(self, name: str) -> NamespaceSession:
        """Return a namespace that was joined, whatever became of it.

        Raises:
            LocalProtocolError: If it never was.

        """
        known = self._names.get(name)
        if known is None:
            raise LocalProtocolError(f"namespace {name!r} was never joined")
        return known

    def join(self, cursor: JoinCursor) -> None:
        """See ClientSession."""
        taken = {n.name for n in self._names.values() if n.state not in GONE_STATES}
        if cursor.namespace in taken or len(taken) >= JOINS_MAX:
            raise LocalProtocolError(
                f"join of {cursor.namespace!r} beside {len(taken)} namespaces"
            )
        namespace = NamespaceSession(cursor)
        known = self._names.get(cursor.namespace)
        if known:
            namespace.blob = known.blob
            namespace.counter = known.counter
        self._say(
            wire.Join(
                cursor.namespace,
                int(cursor.flags),
                cursor.epoch,
                cursor.seq,
                cursor.chain,
                cursor.own_seq,
            )
        )
        self._names[cursor.namespace] = namespace

    def leave(self, name: str) -> None:
        """See ClientSession."""
        namespace = self.named(name)
        if namespace.state in (NsState.LEFT, NsState.LEAVING):
            return
        if namespace.state is NsState.REWINDING and namespace.samples is None:
            self.send_samples(name, ())
        if namespace.is_joined:
            self._say(wire.Leave(namespace.ns_no))
        self._let_go(namespace, NsEvent.LEAVE)

    def put(self, name: str, records: Sequence[bytes]) -> int:
        """See ClientSession."""
        namespace = self.named(name)
        if not namespace.takes_puts:
            return 0
        taken = 0
        for record in records:
            limit = self._limits.limit(record)
            if len(record) > limit:
                if not taken:
                    self._refuse_long(namespace, record, limit)
                break
            if not namespace.admit(record, self._window_records, self._window_bytes):
                break
            taken += 1
        self._uploads.add(namespace, records[:taken])
        return taken

    def next_frame(self) -> bytes | None:
        """Take the next frame of an upload; None if nothing waits."""
        return self._uploads.next_frame()

    def send_samples(self, name: str, samples: Sequence[Sample]) -> None:
        """See ClientSession."""
        namespace = self.named(name)
        if namespace.state is not NsState.REWINDING or namespace.samples is not None:
            raise LocalProtocolError(f"samples for {name!r} were not asked for")
        answer = wire.Samples(name, tuple(samples))
        self._say(answer)
        namespace.samples = answer.samples

    def show(self, namespace: NamespaceSession, now: float) -> None:
        """Tell others what this store is at, if the token allows it.

        The counter follows the clock: it rises from one connection of an incarnation
        to the next.
        """
        if not (namespace.is_joined and namespace.scopes & Scope.PRESENCE):
            return
        namespace.counter = max(namespace.counter + 1, int(now * 1000))
        blob = namespace.blob
        if blob and namespace.seal is not None:
            blob = namespace.seal(namespace.counter, blob)
        self._say(
            wire.Presence(
                namespace.ns_no,
                self._hello.replica_id,
                self._hello.incarnation,
                namespace.counter,
                PRESENCE_TTL_MS if blob else 0,
                blob,
            )
        )

    def show_all(self, now: float) -> None:
        """Tell it again, before it lapses."""
        for namespace in self._names.values():
            if namespace.blob:
                self.show(namespace, now)

    def tick(self, now: float) -> None:
        """End the waits that are over."""
        for namespace in self._names.values():
            if namespace.held_until is not None and now >= namespace.held_until:
                namespace.held_until = None
            if namespace.rejoin_at is not None and now >= namespace.rejoin_at:
                namespace.rejoin_at = None
                self._emit(events.NamespaceHeld(namespace.name, namespace.held_code, 0))

    def hear_heartbeat(self, heads: Sequence[wire.Head]) -> bool:
        """Take note of the relay's heads; tell whether records are overdue."""
        for head in heads:
            namespace = self._numbered(head.ns_no)
            if namespace.is_joined:
                namespace.raise_head(head.seq)
        is_behind = any(n.is_behind for n in self._names.values())
        self._quiet_heartbeats = self._quiet_heartbeats + 1 if is_behind else 0
        return self._quiet_heartbeats > QUIET_HEARTBEATS_MAX

    def handle(self, message: NamespaceMessage, now: float) -> None:
        """Take a message that concerns a namespace.

        Raises:
            RemoteProtocolError: If the relay may not send it, or not now.

        """
        match message:
            case wire.Joined():
                self._on_joined(message, now)
            case wire.Rewind():
                self._on_rewind(message)
            case wire.ErrorMessage():
                self._on_error(message, now)
            case _:
                namespace = self._numbered(message.ns_no)
                if namespace.is_joined:
                    self._on_traffic(namespace, message, now)

    def _on_traffic(
        self,
        namespace: NamespaceSession,
        message: wire.Records | wire.Part | wire.Ack | wire.Presence,
        now: float,
    ) -> None:
        match message:
            case wire.Records():
                self._on_records(namespace, message)
            case wire.Part():
                self._on_part(namespace, message, now)
            case wire.Ack():
                if namespace.acknowledge(message):
                    self._emit(
                        events.Acked(
                            namespace.name,
                            message.replica_seq,
                            message.seq,
                            message.chain,
                        )
                    )
            case _:
                self._on_presence(namespace, message)

    def _on_rewind(self, rewind: wire.Rewind) -> None:
        namespace = self._told(rewind.namespace)
        namespace.advance(NsEvent.REWIND)
        if namespace.state is NsState.LEAVING:
            self._say(wire.Samples(namespace.name, ()))
        else:
            self._emit(events.RewindAsked(namespace.name))

    def _on_joined(self, joined: wire.Joined, now: float) -> None:
        namespace = self._told(joined.namespace)
        numbered = self._numbers.get(joined.ns_no)
        if numbered and numbered.name != namespace.name:
            raise RemoteProtocolError(
                "bad-value", f"number {joined.ns_no} stands for two namespaces"
            )
        namespace.advance(NsEvent.JOINED)
        self._numbers[joined.ns_no] = namespace
        if not namespace.is_joined:
            self._say(wire.Leave(joined.ns_no))
            return
        namespace.start(joined, self._relay_id)
        is_rewound = namespace.are_puts_shut
        self._emit(events.Joined(namespace.name, joined, is_rewound=is_rewound))
        if namespace.blob:
            self.show(namespace, now)

    def _on_records(self, namespace: NamespaceSession, records: wire.Records) -> None:
        self._parts.expect_none_of(records.ns_no)
        items = namespace.receive(records.first_seq, records.items)
        if namespace.chain != records.chain:
            raise RemoteProtocolError(
                "chain-mismatch", f"chain differs at seq {namespace.position}"
            )
        self._pass_on(namespace, records.first_seq, items)

    def _on_part(
        self, namespace: NamespaceSession, part: wire.Part, now: float
    ) -> None:
        record = self._parts.accept(part, now)
        namespace.expect_next(part.id)
        self._quiet_heartbeats = 0
        if record is not None:
            item = wire.Item(wire.Form.FULL, record)
            self._pass_on(namespace, part.id, namespace.receive(part.id, [item]))

    def _pass_on(
        self, namespace: NamespaceSession, first_seq: int, items: Sequence[wire.Item]
    ) -> None:
        self._quiet_heartbeats = 0
        self._emit(
            events.RecordsReceived(
                namespace.name, first_seq, tuple(items), namespace.chain
            )
        )

    def _on_presence(
        self, namespace: NamespaceSession, presence: wire.Presence
    ) -> None:
        if namespace.hear_presence(presence):
            self._emit(events.PresenceChanged(namespace.name, presence))

    def _on_error(self, error: wire.ErrorMessage, now: float) -> None:
        namespace = self._told(error.namespace)
        if namespace.state in GONE_STATES:
            return
        if error.action == wire.Action.STOP:
            self._on_stop(namespace, error)
        elif namespace.is_joined:
            self._on_put_error(namespace, error, now)
        elif error.action == wire.Action.RETRY and not error.replica_seq:
            # One with a number is about a put before this join, and came late.
            retry_ms = max(error.retry_ms, int(JOIN_RETRY_S * 1000))
            self._hold(namespace, error.code, retry_ms, now)

    def _on_stop(self, namespace: NamespaceSession, error: wire.ErrorMessage) -> None:
        self._let_go(namespace, NsEvent.STOP)
        if namespace.state is NsState.STOPPED:
            self._emit(events.NamespaceStopped(namespace.name, error.code, error.text))

    def _on_put_error(
        self, namespace: NamespaceSession, error: wire.ErrorMessage, now: float
    ) -> None:
        if error.code == "base-ahead":
            # The log is shorter than what the store has applied: joining finds out.
            self._say(wire.Leave(namespace.ns_no))
            self._hold(namespace, error.code, error.retry_ms, now)
            return
        namespace.clear_flight()
        self._uploads.withdraw(namespace)
        if error.action == wire.Action.RETRY:
            namespace.held_until = now + error.retry_ms / 1000
        self._emit(
            events.PutRefused(
                namespace.name,
                error.replica_seq,
                error.expected or error.replica_seq or namespace.acked + 1,
                error.code,
                error.retry_ms,
                error.text,
            )
        )

    def _refuse_long(
        self, namespace: NamespaceSession, record: bytes, limit: int
    ) -> None:
        """Refuse a record for the relay: in parts it would end the connection."""
        number = parse_header(record).replica_seq
        text = f"record of {len(record)} bytes exceeds the relay's limit of {limit}"
        self._emit(
            events.PutRefused(
                namespace.name, number, number, "record-too-large", 0, text
            )
        )

    def _hold(
        self, namespace: NamespaceSession, code: str, retry_ms: int, now: float
    ) -> None:
        self._let_go(namespace, NsEvent.HOLD)
        if namespace.state is NsState.HELD:
            namespace.held_code = code
            namespace.rejoin_at = now + retry_ms / 1000 if retry_ms else None
            self._emit(events.NamespaceHeld(namespace.name, code, retry_ms))

    def _let_go(self, namespace: NamespaceSession, event: NsEvent) -> None:
        """Drop what is on its way for a namespace that is served no more."""
        namespace.advance(event)
        namespace.clear_flight()
        namespace.held_until = namespace.rejoin_at = None
        self._uploads.drop(namespace)
        if namespace.ns_no and self._parts.ns_no == namespace.ns_no:
            self._parts.drop()

    def _told(self, name: str) -> NamespaceSession:
        known = self._names.get(name)
        if known is None:
            raise RemoteProtocolError("bad-value", f"{name!r} was never joined")
        return known

    def _numbered(self, ns_no: int) -> NamespaceSession:
        known = self._numbers.get(ns_no)
        if known is None:
            raise RemoteProtocolError("bad-value", f"number {ns_no} stands for nothing")
        return known
