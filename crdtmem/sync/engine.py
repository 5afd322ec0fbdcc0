"""What a store does with one relay: everything but the socket, the clock and the loop.

The engine stands between a session of the protocol and the store. Events change what
is known of a namespace; ``Namespace.next_work`` alone decides what is done next; each
piece of work is one transaction of the store and may be done again after a crash. A
driver moves bytes and tells the time; a simulator can stand in for it.
"""

from collections.abc import Callable, Sequence
from random import Random
from typing import Literal, NamedTuple

from crdtmem.errors import (
    KeyMissingError,
    LinkChangedError,
    LinkNotFoundError,
    ProtocolError,
)
from crdtmem.protocol.client import ClientSession
from crdtmem.protocol.client_events import (
    Acked,
    Closed,
    Event,
    JoinCursor,
    Joined,
    NamespaceHeld,
    NamespaceStopped,
    PresenceChanged,
    PutRefused,
    RecordsReceived,
    RewindAsked,
    Welcomed,
)
from crdtmem.protocol.closes import Close
from crdtmem.protocol.messages import JoinFlag, Presence
from crdtmem.store.links import Link, add_alarm, find_link
from crdtmem.store.outbox import refuse, unsent_counts
from crdtmem.store.rejoin import (
    accept_join,
    join_cursor,
    ready_links,
    samples,
    start_rebase,
)
from crdtmem.store.store import Store
from crdtmem.sync.namespace import Fault, Namespace
from crdtmem.sync.presence import check_presence, opened_presence, presence_seal
from crdtmem.sync.work import Worker

__all__ = ["Ended", "Engine", "LinkFacts"]

LinkState = Literal["connected", "connecting", "waiting", "stopped"]

NamespaceEvent = (
    Joined
    | RewindAsked
    | RecordsReceived
    | Acked
    | PutRefused
    | NamespaceHeld
    | NamespaceStopped
)

DONE = Close(1000, "done")
# What may be healed by connecting again: it is tried once at the same place.
INCONSISTENT = ("seq-gap", "chain-mismatch")


class Ended(NamedTuple):
    """How a connection ended.

    Attributes:
        code: Why.
        message: The same for people.
        is_permanent: Whether connecting again is pointless as things are.
        retry_s: Do not connect earlier than this.
        open_s: How long it was open; 0 if it never was.
        is_restart: Whether this side wants a new connection at once: its ids, or its
            links, have changed.

    """

    code: str
    message: str
    is_permanent: bool
    retry_s: float = 0.0
    open_s: float = 0.0
    is_restart: bool = False


class LinkFacts(NamedTuple):
    """What the engine knows of a link, for its status.

    Attributes:
        link: Its number.
        state: Where it stands.
        head: Newest seq that was heard of; 0 for none.
        is_quiet: Whether nothing is under way: the store is as far as it can be.
        fault: What is wrong with it, if anything.

    """

    link: int
    state: LinkState
    head: int
    is_quiet: bool
    fault: Fault | None


class Engine:
    """Syncs some links of a store over one connection after another.

    The driver's loop: ``connect``; hand every frame to ``receive`` and the time to
    ``tick``; call ``step`` after both, and again for as long as it returns True; send
    what ``data_to_send`` returns; once ``closing`` is set, close the socket with it.
    When the socket is gone call ``connection_lost``, and once ``ended`` is set decide
    from it when to connect again. ``step`` raises StoreError: drop the connection then,
    and connect again later. Everything that matters is in the store.

    1. Nothing is put before it is sealed and synced, and nothing else is put.
    2. A cursor moves with what it stands for, in one transaction.
    3. Ids that the store has given up end the connection: no number of an old stream
       is taken for one of the new.

    Args:
        store: The store; the engine is its only user within a step.
        links: Which links to sync, all at one relay with one token.
        incarnation: 16 random bytes, new with each lease.
        rng: For the delays that keep stores from doing the same at the same time.
        agent: The program, for the relay's log.

    Attributes:
        ended: How the last connection ended; None while there is one.
        hears_presence: Whether to ask what others are at, from the next join on.

    """

    def __init__(
        self,
        store: Store,
        links: Sequence[Link],
        *,
        incarnation: bytes,
        rng: Random,
        agent: str,
    ) -> None:
        self.ended: Ended | None = Ended("new", "", is_permanent=False)
        self.hears_presence = False
        self._store = store
        self._numbers = frozenset(link.link for link in links)
        self._incarnation = incarnation
        self._rng = rng
        self._agent = agent
        self._session: ClientSession | None = None
        self._namespaces: dict[str, Namespace] = {}
        self._relay_id = self._epoch = b""
        self._worker: Worker | None = None
        self._closing: Close | None = None
        self._is_finishing = False
        self._inconsistent_at: list[int] | None = None
        self._now = 0.0

    # What the driver calls.

    def connect(self, now: float) -> None:
        """Begin a connection: a socket to the relay has been opened.

        Raises:
            LinkNotFoundError: If none of the links is left.
            StoreError: If the store cannot be used now.

        """
        found = [x for x in ready_links(self._store) if x.link in self._numbers]
        if not found:
            raise LinkNotFoundError(local="this store")
        self._now = now
        self._session = ClientSession(
            found[0].replica_id, self._incarnation, agent=self._agent, now=now
        )
        self._namespaces = {link.remote: Namespace(link) for link in found}
        for namespace in self._namespaces.values():
            if namespace.link.is_locked:
                exc = KeyMissingError(local=namespace.link.namespace)
                namespace.is_stopped = True
                namespace.fault = Fault(exc.code, exc.message, is_permanent=True)
        self._worker = self._closing = self.ended = None
        self._is_finishing = False

    def receive(self, frame: bytes, now: float) -> None:
        """Take a frame from the relay."""
        self._up.receive(frame, now)

    def tick(self, now: float) -> None:
        """Do what the time asks for; at ``next_deadline`` or earlier."""
        self._up.tick(now)
        for namespace in self._namespaces.values():
            namespace.tick(now)

    def wake(self) -> None:
        """Look for new local writes at the next step."""
        for namespace in self._namespaces.values():
            namespace.is_dirty = True

    def step(self, now: float) -> bool:
        """Act on what has happened, and do one piece of work for each namespace.

        Returns:
            Whether anything was done: then call it again.

        Raises:
            StoreError: If the store cannot be used now.

        """
        self._now = now
        return self._guarded(lambda: self._act_on_events() | self._work())

    def set_presence(self, namespace: str, blob: bytes, now: float) -> None:
        """Tell the others of a namespace what this store is at, until another word.

        The relay carries it and keeps nothing; of an encrypted namespace it can read
        nothing either.

        Args:
            namespace: The namespace here; it is connected, or will be.
            blob: See the protocol, section 9; empty for gone.
            now: Monotonic seconds.

        Raises:
            LinkNotFoundError: If it is not one of the links of this connection.
            LocalProtocolError: If it is too long.

        """
        known = self._named(namespace)
        check_presence(known.link, blob)
        self._up.set_presence(
            known.remote,
            blob,
            now,
            seal=presence_seal(known.link, self._incarnation),
        )

    def presences(self, namespace: str) -> dict[bytes, bytes]:
        """Return what others are at, by replica id; what does not open is left out."""
        return dict(self._named(namespace).presences)

    def finish(self, now: float) -> None:
        """Say bye as soon as nothing is in flight; no more is put."""
        self._is_finishing = True
        self._up.finish(now)

    def connection_lost(self, code: int, now: float, reason: str = "") -> None:
        """Note that the socket is gone; idempotent. Raises what ``step`` does."""
        if self._session is not None:
            self._now = now
            self._session.connection_lost(code, now, reason)
            self._guarded(self._act_on_events)

    def data_to_send(self) -> list[bytes]:
        """Return the next frames; ask again once they are sent."""
        return self._up.data_to_send()

    def next_deadline(self) -> float | None:
        """Return when ``tick`` and ``step`` are due; None for not by time."""
        found = [self._up.next_deadline()]
        found += [n.next_deadline() for n in self._namespaces.values()]
        return min((at for at in found if at is not None), default=None)

    @property
    def closing(self) -> Close | None:
        """What to close the socket with, once everything is sent; None to keep it."""
        return self._closing or self._up.closing

    @property
    def backlog(self) -> int:
        """Records that have been received and wait to be applied."""
        return sum(len(m.items) for n in self._namespaces.values() for m in n.queue)

    @property
    def is_quiet(self) -> bool:
        """Whether nothing is under way in any namespace that is served."""
        return all(
            self._is_quiet(n) for n in self._namespaces.values() if not n.is_stopped
        )

    @property
    def is_flushed(self) -> bool:
        """Whether nothing is left to send that could be sent now."""
        return all(
            namespace.is_flushed and not self._up.in_flight(namespace.remote)
            for namespace in self._namespaces.values()
        )

    def is_settled(self, namespace: str) -> bool:
        """Tell whether a namespace here and at the relay were the same at the join.

        All that the relay had is applied, and nothing that was written here is unsent.
        """
        served = {n.link.namespace: n for n in self._namespaces.values()}
        if namespace not in served or not self._is_quiet(served[namespace]):
            return False
        link = find_link(self._store, namespace)
        return not unsent_counts(self._store, link).writes

    def facts(self) -> list[LinkFacts]:
        """Return what is known of each link."""
        return [
            LinkFacts(
                link=n.link.link,
                state=self._state_of(n),
                head=self._up.head(n.remote),
                is_quiet=self._is_quiet(n),
                fault=n.fault,
            )
            for n in self._namespaces.values()
        ]

    # What has happened.

    @property
    def _up(self) -> ClientSession:
        if self._session is None:
            raise RuntimeError("the engine was not connected")
        return self._session

    def _guarded(self, act: Callable[[], bool]) -> bool:
        try:
            return act()
        except (LinkChangedError, LinkNotFoundError) as exc:
            self._restart(exc.message)
        except ProtocolError as exc:
            # Another process has moved the cursor, or there is a bug on one side.
            self._end_here(Ended(exc.code, exc.message, is_permanent=False))
        return False

    def _act_on_events(self) -> bool:
        events = self._up.events()
        if self.ended is not None:
            # This side has ended it, and said why.
            return False
        for event in events:
            self._on(event)
            if self.ended is not None:
                break
        return bool(events)

    def _on(self, event: Event) -> None:
        match event:
            case Welcomed():
                self._on_welcomed(event)
            case Closed():
                self._on_closed(event)
            case PresenceChanged():
                self._on_presence(self._namespaces[event.namespace], event.presence)
            case _:
                self._on_namespace(self._namespaces[event.namespace], event)

    def _on_namespace(self, namespace: Namespace, event: NamespaceEvent) -> None:
        match event:
            case Joined():
                self._on_joined(namespace, event)
            case RewindAsked():
                found = samples(self._store, namespace.link)
                self._up.send_samples(namespace.remote, found)
            case RecordsReceived():
                namespace.queue.append(event)
            case Acked():
                namespace.receive_ack(event, self._now)
            case PutRefused():
                self._on_put_refused(namespace, event)
            case NamespaceHeld():
                self._on_held(namespace, event)
            case _:
                namespace.is_stopped = True
                namespace.leave(Fault(event.code, event.text, is_permanent=True))

    def _on_presence(self, namespace: Namespace, presence: Presence) -> None:
        namespace.presences.pop(presence.replica_id, None)
        found = opened_presence(namespace.link, presence) if presence.ttl_ms else None
        if found is not None:
            namespace.presences[presence.replica_id] = found

    def _named(self, namespace: str) -> Namespace:
        for known in self._namespaces.values():
            if known.link.namespace == namespace:
                return known
        raise LinkNotFoundError(local=namespace)

    def _on_welcomed(self, event: Welcomed) -> None:
        self._relay_id, self._epoch = event.relay_id, event.epoch
        self._worker = Worker(self._store, self._up, event.welcome, self._rng)
        for namespace in self._namespaces.values():
            if not namespace.is_stopped:
                self._join(namespace)

    def _join(self, namespace: Namespace) -> None:
        cursor = join_cursor(self._store, namespace.link, relay_id=self._relay_id)
        self._up.join(
            JoinCursor(
                cursor.namespace,
                cursor.epoch,
                cursor.seq,
                cursor.chain,
                cursor.own_seq,
                JoinFlag.PRESENCE if self.hears_presence else 0,
            )
        )

    def _on_joined(self, namespace: Namespace, joined: Joined) -> None:
        outcome = accept_join(
            self._store,
            namespace.link,
            joined.answer,
            relay_id=self._relay_id,
            epoch=self._epoch,
            is_rewound=joined.is_rewound,
        )
        if outcome.needs_new_ids:
            self._restart("the store has taken new ids")
            return
        namespace.join(joined, self._now)

    def _on_put_refused(self, namespace: Namespace, refused: PutRefused) -> None:
        link, code = namespace.link, refused.code
        if code == "replica-fork":
            start_rebase(self._store, link, alarm=code)
            self._restart("the relay has other records under this store's ids")
            return
        if code == "replica-gap":
            if not self._is_possible(namespace, refused.expected):
                self._rejoin(namespace)
                return
        elif not refused.retry_ms:
            refuse(self._store, link, refused.replica_seq, code)
            namespace.is_dirty = True
        namespace.refuse_put(refused, self._now)
        if code != "replica-gap":
            is_permanent = not refused.retry_ms
            namespace.fault = Fault(code, refused.text, is_permanent)

    def _is_possible(self, namespace: Namespace, expected: int) -> bool:
        """Tell whether the relay may wait for this number."""
        now = find_link(self._store, namespace.link.namespace)
        return now.acked_seq < expected <= now.sealed_seq + 1

    def _rejoin(self, namespace: Namespace) -> None:
        self._up.leave(namespace.remote)
        namespace.leave(None)
        self._join(namespace)

    def _on_held(self, namespace: Namespace, held: NamespaceHeld) -> None:
        namespace.leave(Fault(held.code, "the relay asks to wait", is_permanent=False))
        if not held.retry_ms:
            self._join(namespace)

    def _on_closed(self, closed: Closed) -> None:
        message = closed.detail or f"the connection was closed: {closed.code}"
        ended = Ended(
            closed.code,
            message,
            closed.is_permanent,
            retry_s=closed.retry_ms / 1000,
            open_s=closed.open_s,
        )
        if closed.code == "replica-duplicate":
            start_rebase(self._store, self._any.link, alarm=closed.code)
            ended = ended._replace(is_permanent=False, is_restart=True)
        elif closed.code in INCONSISTENT:
            ended = self._judge_inconsistency(ended)
        self._end(ended)

    def _judge_inconsistency(self, ended: Ended) -> Ended:
        """Give up if the relay's log does not fit twice at the same place."""
        places = [n.cursor for n in self._namespaces.values()]
        if places != self._inconsistent_at:
            self._inconsistent_at = places
            return ended
        with self._store.writing() as transaction:
            for namespace in self._namespaces.values():
                link = namespace.link.link
                add_alarm(transaction, link, "relay-inconsistent", ended.message)
        return ended._replace(code="relay-inconsistent", is_permanent=True)

    @property
    def _any(self) -> Namespace:
        return next(iter(self._namespaces.values()))

    def _restart(self, message: str) -> None:
        ended = Ended("ids-changed", message, is_permanent=False, is_restart=True)
        self._end_here(ended)

    def _end_here(self, ended: Ended) -> None:
        """End the connection from this side."""
        self._closing = DONE
        self._up.connection_lost(DONE.code, self._now, DONE.reason)
        self._end(ended)

    def _end(self, ended: Ended) -> None:
        self.ended = ended
        for namespace in self._namespaces.values():
            namespace.leave(namespace.fault)

    # What is done about it.

    def _work(self) -> bool:
        has_worked = False
        for namespace in self._namespaces.values():
            if self.ended is not None:
                break
            work = namespace.next_work(self._now, is_finishing=self._is_finishing)
            if work is None or self._worker is None:
                continue
            has_worked = True
            if not self._worker.do(namespace, work, self._now):
                self._restart("the store has taken new ids")
        return has_worked

    def _is_quiet(self, namespace: Namespace) -> bool:
        return (
            self.ended is None
            and namespace.is_caught_up
            and not namespace.acks
            and not self._up.in_flight(namespace.remote)
            and namespace.next_work(self._now, is_finishing=True) is None
            and not namespace.is_window_full
        )

    def _state_of(self, namespace: Namespace) -> LinkState:
        if namespace.is_stopped:
            return "stopped"
        if namespace.is_joined:
            return "connected"
        return "connecting" if namespace.fault is None else "waiting"
