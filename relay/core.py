"""All connections of one relay process: who reads what, what is stored next.

No I/O: frames, completions and the time go in, effects come out, and ``relay.server``
carries them out. The log is the only truth; what is held here of a namespace is its
head and its newest rows, and whoever has to be exact asks the log.
"""

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from random import Random

from crdtmem.protocol.relaying import (
    Grant,
    JoinState,
    LogRow,
    LogSlice,
    Put,
    PutRefusal,
    PutResult,
    RelayIdentity,
    Sample,
)
from crdtmem.protocol.server import ServerSession
from crdtmem.protocol.serving import (
    HelloRequest,
    JoinRequest,
    LeaveRequest,
    MatchRequest,
    PutRequest,
    ReadRequest,
    RelayLimits,
    Request,
    TransferBudget,
)
from relay.admission import Admission, Arrival
from relay.commits import CommitQueue
from relay.effects import (
    Announce,
    Append,
    Close,
    Effect,
    Join,
    Match,
    Read,
    Result,
    Send,
    StorageFailure,
)
from relay.frames import FrameCache
from relay.metrics import CoreCounters
from relay.presence import PresenceBoard, Shown
from relay.timers import Timers

__all__ = ["RelayCore"]

# How long a client is asked to stay away when the relay shuts down, in milliseconds.
RETURN_MS = (500, 5_000)


@dataclass(slots=True)
class _Namespace:
    """A namespace that somebody has joined."""

    head: int
    members: dict[int, ServerSession] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Asked:
    """What the storage was asked, and for which session."""

    conn: int
    session: ServerSession
    request: JoinRequest | MatchRequest | ReadRequest


class RelayCore:
    """All connections of one relay process.

    R1: An acknowledgement goes out only after its append has come back.
    R2: Only rows that came back from the storage are sent, and to each connection each
    seq of a namespace once, in order.
    R5: The puts of a connection reach the storage in order: one append at a time.
    R6: A refused record leaves everything as it was.
    R9: After ``revoked`` nothing of that token is appended, and nothing is sent to its
    connections but the close.
    R12: What one connection does wrong changes nothing that another one is sent.

    Args:
        identity: Who the relay is.
        limits: What its owner has set.
        rng: Spreads the return of clients after a shutdown.

    Attributes:
        identity: As passed in.
        limits: As passed in.
        counters: For the metrics.

    """

    def __init__(
        self,
        identity: RelayIdentity,
        limits: RelayLimits | None = None,
        *,
        rng: Random,
    ) -> None:
        self.identity = identity
        self.limits = limits = limits or RelayLimits()
        self.counters = CoreCounters()
        self._rng = rng
        self._sessions: dict[int, ServerSession] = {}
        self._joined: dict[int, set[int]] = {}
        self._namespaces: dict[int, _Namespace] = {}
        self._transfers = TransferBudget(limits.transfers_bytes)
        self._queue = CommitQueue(limits.commit_records, limits.commit_bytes)
        self._cache = FrameCache(
            limits.part_bytes,
            namespace_bytes=limits.cache_bytes,
            all_bytes=limits.cache_all_bytes,
        )
        self._presences = PresenceBoard()
        self._admission = Admission(limits.probe_s)
        self._timers: Timers[int] = Timers()
        self._numbers = count(1)
        self._asked: dict[int, _Asked] = {}
        # Heads that moved while a join was being looked up, which may have missed them.
        self._heads: dict[int, int] = {}
        self._joining = 0
        self._append = 0
        self._group: list[tuple[int, Put]] = []
        self._catchups: set[int] = set()
        self._late: deque[_Asked] = deque()
        self._is_draining = False
        self._touched: dict[int, ServerSession] = {}
        self._effects: list[Effect] = []

    @property
    def is_idle(self) -> bool:
        """Whether there is no connection, and nothing is being stored."""
        return not self._sessions and not self._append

    def gauges(self) -> dict[str, int]:
        """Return what there is now, by the names of the metrics."""
        return {
            "connections": len(self._sessions),
            "joins": sum(map(len, self._joined.values())),
            "namespaces": len(self._namespaces),
            "append_queue_records": self._queue.records,
            "catchups": len(self._catchups),
            "transfer_bytes": self._transfers.held_bytes,
            "presences": len(self._presences),
        }

    def effects(self) -> list[Effect]:
        """Return what is to be done since the last call, in its order."""
        effects, self._effects = self._effects, []
        return effects

    def next_deadline(self) -> float | None:
        """Return when to call ``tick`` at the latest; None for no need."""
        sources = (self._timers, self._presences, self._admission)
        due = [source.next_deadline() for source in sources]
        return min((at for at in due if at is not None), default=None)

    # What the driver tells.

    def connect(self, conn: int, grant: Grant, now: float) -> None:
        """Take a connection whose token has been checked; its number is a new one."""
        session = ServerSession(
            grant, self.identity, self.limits, now=now, transfers=self._transfers
        )
        self._sessions[conn] = self._touched[conn] = session
        self._joined[conn] = set()
        self._timers.set(conn, session.next_deadline())
        if self._is_draining:
            session.finish("shutdown", self._rng.randint(*RETURN_MS))
        self._settle(now)

    def receive(self, conn: int, frame: bytes, now: float) -> None:
        """Take a frame; those of a connection that is closed already don't count."""
        session = self._sessions.get(conn)
        if session is None:
            return
        self.counters.frames_in += 1
        self.counters.bytes_in += len(frame)
        beats = session.beats
        self._touched[conn] = session
        for request in session.receive(frame, now):
            self._handle(conn, session, request, now)
        if session.beats != beats:
            self._alive(conn, session)
        self._settle(now)

    def sent(self, conn: int, now: float) -> None:
        """Take note that a connection's last Send has left; it gets the next one."""
        session = self._sessions.get(conn)
        if session is not None and session.sent():
            self._touched[conn] = session
            self._settle(now)

    def disconnected(self, conn: int, now: float) -> None:
        """Take note that a socket is gone; idempotent."""
        if conn in self._sessions:
            self._forget(conn, now)
            self._settle(now)

    def stalled(self, conn: int, now: float) -> None:
        """Give up a connection whose socket has taken nothing for too long."""
        session = self._sessions.get(conn)
        if session is not None:
            self.counters.stalls += 1
            session.close("stalled", "nothing was read", is_abort=True)
            self._touched[conn] = session
            self._settle(now)

    def completed(
        self, effect: int, result: Result | StorageFailure, now: float
    ) -> None:
        """Take what came of an effect.

        Args:
            effect: Its number.
            result: What the storage returned, or that it could not.
            now: Monotonic seconds.

        """
        if effect == self._append:
            self._append = 0
            group, self._group = self._group, []
            if isinstance(result, list):
                self._appended(group, result)
            else:
                self._failed(group, result)
        elif effect in self._asked:
            self._answered(effect, self._asked.pop(effect), result)
        self._settle(now)

    def hint(self, ns_no: int, head: int, now: float) -> None:
        """Take note that another process may have committed up to a head."""
        self._note_head(ns_no, head)
        namespace = self._namespaces.get(ns_no)
        if namespace is None or head <= namespace.head:
            return
        # Not taken for the head: it may be wrong, and the next read tells.
        for conn, session in namespace.members.items():
            session.head_moved(ns_no, head)
            self._touched[conn] = session
        self._settle(now)

    def heard(self, message: bytes, now: float) -> None:
        """Take what another process of this relay has announced."""
        self._presences.hear(message, now)
        self._show(self._presences.due(now))
        self._settle(now)

    def revoked(self, token_id: str, now: float) -> None:
        """End every connection of a token."""
        for conn, session in self._sessions.items():
            if session.grant.token_id == token_id:
                session.close("token-revoked", f"token {token_id}")
                self._touched[conn] = session
        self._settle(now)

    def expire(self, now_ms: int, now: float) -> None:
        """End every connection whose token is no longer valid by the wall clock."""
        for conn, session in self._sessions.items():
            not_after_ms = session.grant.not_after_ms
            if not_after_ms is not None and now_ms >= not_after_ms:
                session.close("token-expired", f"token {session.grant.token_id}")
                self._touched[conn] = session
        self._settle(now)

    def drain(self, now: float) -> None:
        """Say bye to everybody; each is closed once its puts are stored."""
        self._is_draining = True
        for conn, session in self._sessions.items():
            session.finish("shutdown", self._rng.randint(*RETURN_MS))
            self._touched[conn] = session
        self._settle(now)

    def tick(self, now: float) -> None:
        """Do what is due by now."""
        for conn in list(self._timers.due(now)):
            session = self._touched[conn] = self._sessions[conn]
            session.tick(now)
            self._timers.set(conn, session.next_deadline())
        for conn in self._admission.overdue(now):
            self._touched[conn] = self._sessions[conn]
            self._sessions[conn].close("timeout", "no sign of life", is_abort=True)
        self._show(self._presences.due(now))
        self._settle(now)

    # What a session asks for.

    def _handle(
        self, conn: int, session: ServerSession, request: Request, now: float
    ) -> None:
        match request:
            case PutRequest(ns_no=ns_no, records=records):
                put = Put(ns_no, session.replica_id, session.grant, records)
                self._queue.add(conn, put)
            case JoinRequest() | MatchRequest():
                self._joining += 1
                self._ask(_Asked(conn, session, request))
            case LeaveRequest(ns_no=ns_no):
                self._leave(conn, ns_no)
            case HelloRequest(replica_id=replica_id, incarnation=incarnation):
                token_id = session.grant.token_id
                self._arrive(conn, Arrival(replica_id, incarnation, token_id), now)
            case _:
                self._presences.put(conn, request.presence, now)
                self._show(self._presences.due(now))

    def _arrive(self, conn: int, arrival: Arrival, now: float) -> None:
        """Welcome a connection, unless its replica may be live elsewhere."""
        verdict = self._admission.arrive(conn, arrival, now)
        for other in verdict.replaced:
            self._touched[other] = self._sessions[other]
            self._sessions[other].close("replaced")
        for other in verdict.rivals:
            self._touched[other] = self._sessions[other]
            self._sessions[other].probe()
        if not verdict.rivals:
            self._touched[conn] = self._sessions[conn]
            self._sessions[conn].welcome(now)

    def _alive(self, conn: int, session: ServerSession) -> None:
        """Shut out whoever came under the ids of a store that lives, and that one."""
        for other in self._admission.alive(conn):
            for each in (session, self._sessions[other]):
                each.close("replica-duplicate", session.replica_id.hex())
            self._touched[other] = self._sessions[other]

    def _ask(self, asked: _Asked) -> None:
        """Ask the storage, at once or when enough others have caught up."""
        number = next(self._numbers)
        request = asked.request
        if isinstance(request, JoinRequest):
            effect: Effect = Join(
                number,
                request.namespace,
                request.create,
                asked.session.replica_id,
                request.cursor,
            )
        elif isinstance(request, MatchRequest):
            effect = Match(number, request.ns_no, request.samples)
        else:
            if self._is_far_behind(request):
                if len(self._catchups) >= self.limits.catchups_max:
                    self._late.append(asked)
                    return
                self._catchups.add(number)
            effect = Read(
                number, request.ns_no, request.after, request.records, request.octets
            )
        self._asked[number] = asked
        self._effects.append(effect)

    def _is_far_behind(self, request: ReadRequest) -> bool:
        namespace = self._namespaces.get(request.ns_no)
        head = namespace.head if namespace is not None else 0
        return head - request.after > self.limits.catchup_records

    # What the storage answers.

    def _answered(
        self, number: int, asked: _Asked, result: Result | StorageFailure
    ) -> None:
        if isinstance(asked.request, ReadRequest):
            self._catchups.discard(number)
            self._ask_late()
        else:
            self._joining -= 1
        if self._sessions.get(asked.conn) is asked.session:
            self._touched[asked.conn] = asked.session
            self._tell(asked, result)
        if not self._joining:
            self._heads.clear()

    def _ask_late(self) -> None:
        """Let the next one catch up that waits for it."""
        while self._late:
            asked = self._late.popleft()
            if self._sessions.get(asked.conn) is asked.session:
                self._ask(asked)
                return

    def _tell(self, asked: _Asked, result: Result | StorageFailure) -> None:
        session = asked.session
        match asked.request, result:
            case ReadRequest(ns_no=ns_no), LogSlice():
                session.read_done(result)
                namespace = self._namespaces.get(ns_no)
                if namespace is not None:
                    namespace.head = max(namespace.head, result.head)
            case JoinRequest(namespace=name), JoinState(ns_no=ns_no):
                head = max(result.head, self._head(ns_no))
                if session.join_done(name, replace(result, head=head)):
                    self._enter(asked.conn, session, ns_no)
            case MatchRequest(namespace=name, ns_no=ns_no), Sample():
                if session.match_done(name, result, self._head(ns_no)):
                    self._enter(asked.conn, session, ns_no)
            case JoinRequest(namespace=name), StorageFailure(code="busy" as code):
                session.join_done(name, JoinState(0, code=code))
            case _:
                session.close("storage-failed", "the log cannot be read")

    def _enter(self, conn: int, session: ServerSession, ns_no: int) -> None:
        """Make a connection a member of a namespace that it has joined."""
        head = session.head_of(ns_no)
        namespace = self._namespaces.setdefault(ns_no, _Namespace(head))
        namespace.members[conn] = session
        self._joined[conn].add(ns_no)
        if session.wants_presence(ns_no):
            for shown in self._presences.present(ns_no):
                session.show_presence(shown.key, shown.data)

    def _appended(
        self, group: Sequence[tuple[int, Put]], results: Sequence[PutResult]
    ) -> None:
        rows: dict[int, list[LogRow]] = {}
        for (conn, put), result in zip(group, results, strict=True):
            self._count(put, result)
            if result.rows:
                rows.setdefault(put.ns_no, []).extend(result.rows)
            session = self._sessions.get(conn)
            if session is not None:
                session.put_done(result)
                self._touched[conn] = session
        for ns_no, new in rows.items():
            self._publish(ns_no, new)

    def _failed(
        self, group: Sequence[tuple[int, Put]], result: Result | StorageFailure
    ) -> None:
        """Acknowledge nothing: it was not stored, or that is uncertain."""
        code = result.code if isinstance(result, StorageFailure) else "storage-failed"
        for conn, put in group:
            session = self._sessions.get(conn)
            if session is None:
                continue
            self._touched[conn] = session
            if code == "storage-failed":
                session.close(code, "a commit is uncertain")
            else:
                first = put.records[0].header.replica_seq
                refusal = PutRefusal(code, first, first)
                session.put_done(PutResult(put.ns_no, 0, None, 0, refusal=refusal))

    def _count(self, put: Put, result: PutResult) -> None:
        stored = len(result.rows)
        refused = 1 if result.refusal else 0
        first = put.records[0].header.replica_seq
        known = max(result.acked - first + 1 - stored, 0)
        self.counters.records.update(stored=stored, refused=refused, duplicate=known)

    def _publish(self, ns_no: int, rows: Sequence[LogRow]) -> None:
        """Let everybody have rows that are durable now."""
        head = rows[-1].seq
        self._note_head(ns_no, head)
        namespace = self._namespaces.get(ns_no)
        if namespace is None:
            return
        head = namespace.head = max(namespace.head, head)
        self._cache.add(ns_no, rows)
        frame = self._cache.frame(ns_no, rows[0].seq - 1)
        for conn, session in namespace.members.items():
            # Every reader passes here with every commit: nothing more than needed.
            if frame is None:
                session.head_moved(ns_no, head)
            elif frames := session.offer(frame, head):
                self.counters.cache["hit"] += 1
                self._send(conn, frames)
                continue
            if not session.is_sending:
                self._touched[conn] = session

    def _note_head(self, ns_no: int, head: int) -> None:
        if self._joining:
            self._heads[ns_no] = max(head, self._heads.get(ns_no, 0))

    def _head(self, ns_no: int) -> int:
        """Return the newest head that this process knows of; 0 for none."""
        namespace = self._namespaces.get(ns_no)
        known = namespace.head if namespace is not None else 0
        return max(known, self._heads.get(ns_no, 0))

    # The end of a round: reads, sends and the next commit.

    def _settle(self, now: float) -> None:
        while self._touched:
            touched, self._touched = self._touched, {}
            for conn, session in touched.items():
                if self._sessions.get(conn) is session:
                    self._feed(conn, session)
                    self._flush(conn, session, now)
        self._commit()

    def _feed(self, conn: int, session: ServerSession) -> None:
        """Give a session its next frame of records, or have it read from the log."""
        while (request := session.next_read()) is not None:
            ns_no, after = request.ns_no, request.after
            frame = self._cache.frame(ns_no, after)
            if frame is not None and session.may_share(frame):
                self.counters.cache["hit"] += 1
                session.read_done(frame)
                continue
            rows = self._cache.rows(ns_no, after)
            if rows and session.may_use_cached(rows):
                self.counters.cache["rows"] += 1
                session.read_done(LogSlice(ns_no, tuple(rows), self._head(ns_no)))
            else:
                self.counters.cache["select"] += 1
                self._ask(_Asked(conn, session, request))

    def _flush(self, conn: int, session: ServerSession, now: float) -> None:
        frames = session.data_to_send()
        if session.errors:
            self.counters.errors.update(session.errors)
            session.errors.clear()
        closing = session.closing
        if closing is not None:
            self.counters.closes[closing.code] += 1
            is_abort = session.is_abort
            self._effects.append(
                Close(conn, closing.code, closing.reason, frames, is_abort)
            )
            self._forget(conn, now)
        elif frames:
            self._send(conn, frames)

    def _send(self, conn: int, frames: Sequence[bytes]) -> None:
        self._effects.append(Send(conn, frames))
        self.counters.frames_out += len(frames)
        for frame in frames:
            self.counters.bytes_out += len(frame)

    def _commit(self) -> None:
        """Begin the next commit, if none is running."""
        if self._append:
            return
        self._group = self._queue.take()
        if self._group:
            self._append = next(self._numbers)
            puts = tuple(put for _, put in self._group)
            self._effects.append(Append(self._append, puts))

    def _forget(self, conn: int, now: float) -> None:
        """Drop all that is held of a connection; stored puts stay stored."""
        self._sessions.pop(conn).disconnected()
        self._timers.drop(conn)
        self._queue.drop(conn)
        for ns_no in self._joined.pop(conn).copy():
            self._leave(conn, ns_no)
        for other, arrival in self._admission.gone(conn):
            self._arrive(other, arrival, now)

    def _leave(self, conn: int, ns_no: int) -> None:
        namespace = self._namespaces[ns_no]
        del namespace.members[conn]
        joined = self._joined.get(conn)
        if joined is not None:
            joined.remove(ns_no)
        self._show(self._presences.leave(conn, ns_no))
        if not namespace.members:
            del self._namespaces[ns_no]
            self._cache.forget(ns_no)

    def _show(self, presences: Iterable[Shown]) -> None:
        """Hand presences on to the others that asked for them, here and elsewhere."""
        for shown in presences:
            ns_no = shown.key[0]
            if isinstance(shown.conn, int):
                self._effects.append(Announce(shown.data))
            namespace = self._namespaces.get(ns_no)
            members = namespace.members if namespace is not None else {}
            for conn, session in members.items():
                if conn != shown.conn and session.wants_presence(ns_no):
                    session.show_presence(shown.key, shown.data)
                    self._touched[conn] = session
