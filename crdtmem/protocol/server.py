"""One connection as the relay sees it. No I/O, no clock, no storage.

Frames go in, and what is to be asked of the relay comes out; the relay answers, and
frames come out. ``relay.core`` drives one of these for each connection, and
``protocol.client`` is the other side. What a peer sends never raises here: it ends in
messages that are dealt with, or in a close.
"""

from collections.abc import Sequence

from crdtmem.errors import RemoteProtocolError
from crdtmem.limits import FRAME_BYTES
from crdtmem.protocol.answers import Answers, PresenceKey
from crdtmem.protocol.closes import CLOSE_CODES, Close, close_for
from crdtmem.protocol.downloads import SharedFrame
from crdtmem.protocol.messages import (
    Action,
    Bye,
    Heartbeat,
    Hello,
    Join,
    Leave,
    Message,
    Part,
    Presence,
    Put,
    Samples,
    Welcome,
    decode_frame,
)
from crdtmem.protocol.relaying import (
    Grant,
    JoinState,
    LogRow,
    LogSlice,
    PutRefusal,
    PutResult,
    RelayIdentity,
    Sample,
)
from crdtmem.protocol.server_namespaces import ServerNamespaces
from crdtmem.protocol.serving import (
    TRANSITIONS,
    HelloRequest,
    ReadRequest,
    RelayLimits,
    Request,
    State,
    TransferBudget,
)

__all__ = ["RelayLimits", "ServerSession"]

# What ends a connection without anybody's fault: said in a bye, not in an error.
FAREWELLS = {"replaced", "shutdown"}

RECEIVING = {State.NEW, State.GREETED, State.OPEN, State.FINISHING}


class ServerSession:
    """One connection, as the relay sees it.

    Numbers as in the protocol's section 10; those of all connections together are held
    by ``RelayCore``.

    R3: One send is on its way at a time, with at most one frame of records in it; what
    waits beside it is replaced by what is newer.
    R4: Nothing is sent for a namespace before its joined.
    R5: The puts of a stream leave in the order in which they came.
    R6: One fault makes one error.
    R7: No byte after a record's header is interpreted.
    R8: A missing, unknown or empty scope denies.
    R10: What is held is one frame in, one out, the window and one transfer each way.
    R11: Any bytes end in messages that are dealt with, or in a close.

    Args:
        grant: What the token allows.
        identity: Of the relay.
        limits: Of the relay.
        now: Monotonic seconds, here and everywhere.
        transfers: Shared by all connections.

    Attributes:
        grant: As passed in.
        beats: How many heartbeats have come.
        is_abort: Whether the peer of a connection that is closing is beyond reach.

    """

    def __init__(
        self,
        grant: Grant,
        identity: RelayIdentity,
        limits: RelayLimits,
        *,
        now: float,
        transfers: TransferBudget | None = None,
    ) -> None:
        self.grant = grant
        self.beats = 0
        self.is_abort = False
        self._identity = identity
        self._limits = limits
        self._state = State.NEW
        self._closing: Close | None = None
        self._last_words = ""
        self._heard_at = now
        self._opened_at = now
        self._beat_at = now + limits.heartbeat_s
        self._answers = Answers()
        self._namespaces = ServerNamespaces(
            grant,
            limits,
            answers=self._answers,
            transfers=transfers or TransferBudget(limits.transfers_bytes),
        )
        self._turns = self._namespaces.turns
        self._is_sending = False

    @property
    def replica_id(self) -> bytes:
        """As in hello; empty before."""
        return self._namespaces.replica_id

    @property
    def errors(self) -> list[str]:
        """Codes of the errors that were said; the caller empties it."""
        return self._answers.errors

    @property
    def closing(self) -> Close | None:
        """How the socket is to be closed, behind what is left to be sent, or None."""
        return self._closing

    @property
    def is_sending(self) -> bool:
        """Whether a send is on its way."""
        return self._is_sending

    def head_of(self, ns_no: int) -> int:
        """Return the newest seq that is known of a joined namespace."""
        return self._namespaces.head_of(ns_no)

    def wants_presence(self, ns_no: int) -> bool:
        """Tell whether others' presences in a namespace are sent here."""
        return self._namespaces.wants_presence(ns_no)

    # What the client sends.

    def receive(self, frame: bytes, now: float) -> list[Request]:
        """Take a frame; return what it asks of the relay, in its order."""
        if self._state not in RECEIVING:
            return []
        self._heard_at = now
        requests: list[Request] = []
        try:
            for message in decode_frame(frame):
                request = self._take(message, now)
                if request is not None:
                    requests.append(request)
        except RemoteProtocolError as exc:
            code = exc.detail if exc.detail in CLOSE_CODES else "protocol-error"
            self.close(code, f"{exc.detail}: {exc}")
            return []
        if self._answers.is_overfull:
            self.close("stalled", "answers are not read")
        return requests

    def _take(self, message: Message, now: float) -> Request | None:
        if self._state is State.FINISHING:
            return None
        if self._state is not State.OPEN:
            return self._take_hello(message)
        return self._take_open(message, now)

    def _take_open(self, message: Message, now: float) -> Request | None:
        namespaces = self._namespaces
        match message:
            case Join():
                return namespaces.take_join(message)
            case Samples():
                return namespaces.take_samples(message)
            case Put():
                return namespaces.take_put(message)
            case Part():
                return namespaces.take_part(message, now)
            case Presence():
                return namespaces.take_presence(message)
            case Leave():
                return namespaces.take_leave(message.ns_no)
            case Heartbeat():
                self._take_heartbeat(message)
            case Bye():
                self._finish("done")
            case _:
                raise _out_of_order(message)
        return None

    def _take_hello(self, message: Message) -> Request:
        if not isinstance(message, Hello) or not self._move("hello"):
            raise _out_of_order(message)
        self._namespaces.replica_id = message.replica_id
        self._namespaces.incarnation = message.incarnation
        return HelloRequest(message.replica_id, message.incarnation)

    def _take_heartbeat(self, message: Heartbeat) -> None:
        self.beats += 1
        if message.flags:
            self._answers.beat(0)

    # What the relay answers.

    def welcome(self, now: float) -> None:
        """Let the client in, after its hello."""
        if not self._move("welcome"):
            return
        self._opened_at = now
        limits = self._limits
        self._answers.say(
            Welcome(
                features=0,
                relay_id=self._identity.relay_id,
                epoch=self._identity.epoch,
                heartbeat_ms=int(limits.heartbeat_s * 1000),
                max_frame=FRAME_BYTES,
                part_size=limits.part_bytes,
                max_update=limits.update_bytes,
                max_snapshot=limits.snapshot_bytes,
                window_records=limits.window_records,
                window_bytes=limits.window_bytes,
                max_joins=limits.joins_max,
                agent=limits.agent,
            )
        )

    def join_done(self, namespace: str, found: JoinState) -> bool:
        """Take what the log says to a join; tell whether the namespace is joined."""
        is_open = self._state is State.OPEN
        return is_open and self._namespaces.join_done(namespace, found)

    def match_done(self, namespace: str, at: Sample, head: int) -> bool:
        """Take where samples meet the log; tell whether the namespace is joined.

        Args:
            namespace: As asked for.
            at: The place.
            head: Newest seq that is known now.

        """
        is_open = self._state is State.OPEN
        return is_open and self._namespaces.match_done(namespace, at, head)

    def put_done(self, result: PutResult) -> None:
        """Take what became of the oldest put of a namespace that is in flight."""
        self._namespaces.put_done(result)
        self._settle()

    def next_read(self) -> ReadRequest | None:
        """Return what is to be read for this client now, if anything."""
        if self._state is not State.OPEN or self._is_sending:
            return None
        return self._turns.next_read()

    def may_share(self, frame: SharedFrame) -> bool:
        """Tell whether a shared frame answers the read that is asked for."""
        return self._turns.may_share(frame)

    def may_use_cached(self, rows: Sequence[LogRow]) -> bool:
        """Tell whether rows that were kept answer the read that is asked for."""
        return self._turns.may_use_cached(rows)

    def read_done(self, got: LogSlice | SharedFrame) -> None:
        """Take what was read."""
        if not self._turns.read_done(got):
            self.close("storage-failed", "rows of the log are missing")

    def head_moved(self, ns_no: int, head: int) -> None:
        """Take note of a newer head of a namespace."""
        self._turns.moved(ns_no, head)

    def offer(self, frame: SharedFrame, head: int) -> list[bytes]:
        """Have new records sent at once, if nothing else comes first.

        Returns:
            The frames of the next send; none where the client gets the records when
            its turn comes.

        """
        if self._is_sending or self._state is not State.OPEN:
            self._turns.moved(frame.ns_no, head)
            return []
        return self.data_to_send() if self._turns.offer(frame, head) else []

    def show_presence(self, key: PresenceKey, presence: bytes) -> None:
        """Send another replica's presence, encoded."""
        self._answers.show(key, presence)

    def probe(self) -> None:
        """Ask for a sign of life at once; it shows in ``beats``."""
        if self._state is State.OPEN:
            self._answers.beat(1)

    # What goes out, and the end.

    def data_to_send(self) -> list[bytes]:
        """Return the frames of the next send; nothing while one is on its way.

        Once it is closing, what is returned are the last ones.
        """
        if self._is_sending and self._closing is None:
            return []
        frames = []
        if not self._answers.is_empty:
            frames = self._answers.take(self._turns.heads())
        if self._turns.frame is not None:
            frames.append(self._turns.frame)
            self._turns.frame = None
        self._is_sending = bool(frames)
        return frames

    def sent(self) -> bool:
        """Take note that the socket has taken the send; tell whether more waits."""
        self._is_sending = False
        return self._turns.has_more or not self._answers.is_empty

    def tick(self, now: float) -> None:
        """Do what is due by now."""
        if now >= self._heard_at + self._limits.dead_s:
            self.close("timeout", "nothing was heard", is_abort=True)
        elif self._is_late(now):
            self.close("timeout", "no hello or no join in time")
        elif self._is_overdue(self._namespaces.part_deadline, now):
            self.close("part-timeout", "no further part in time")
        elif self._state is State.OPEN and now >= self._beat_at:
            self._answers.beat(0)
            self._beat_at = now + self._limits.heartbeat_s
            self._turns.retry()

    def next_deadline(self) -> float:
        """Return when to tick next, at the latest."""
        due = [self._heard_at + self._limits.dead_s]
        due += [at for at in (self._namespaces.part_deadline, self._late_at()) if at]
        if self._state is State.OPEN:
            due.append(self._beat_at)
        return min(due)

    def finish(self, code: str, retry_ms: int) -> None:
        """Say bye; close once everything that was received is settled."""
        if self._state is not State.FINISHING and self._state in RECEIVING:
            self._answers.say(Bye(retry_ms, code))
            self._finish(code)

    def close(self, code: str, text: str = "", *, is_abort: bool = False) -> None:
        """End the connection for a reason; idempotent.

        Nothing that waits is sent any more but the reason itself.
        """
        if not self._move("close"):
            return
        self._answers.clear()
        self._namespaces.release()
        self.is_abort = is_abort
        self._closing = close_for(code)
        if code in FAREWELLS:
            self._answers.say(Bye(0, code))
        else:
            self._answers.refuse("", (Action.CLOSE, 0), PutRefusal(code, 0, 0), text)

    def disconnected(self) -> None:
        """Take note that the socket is gone."""
        self._move("disconnected")
        self._namespaces.release()

    def _finish(self, code: str) -> None:
        self._move("finish")
        self._last_words = code
        self._namespaces.drop_transfers()
        self._settle()

    def _settle(self) -> None:
        """Close after a bye, once no put is in flight."""
        is_finishing = self._state is State.FINISHING
        if is_finishing and self._namespaces.is_settled:
            self._move("settled")
            self._closing = close_for(self._last_words)

    def _move(self, event: str) -> bool:
        state = TRANSITIONS.get((self._state, event))
        self._state = state or self._state
        return state is not None

    def _late_at(self) -> float | None:
        """Return when the hello or the first join is overdue."""
        if self._state is State.NEW:
            return self._opened_at + self._limits.hello_s
        if self._state is State.OPEN and not self._namespaces.has_joined:
            return self._opened_at + self._limits.join_s
        return None

    def _is_late(self, now: float) -> bool:
        return self._is_overdue(self._late_at(), now)

    @staticmethod
    def _is_overdue(deadline: float | None, now: float) -> bool:
        return deadline is not None and now >= deadline


def _out_of_order(message: Message) -> RemoteProtocolError:
    name = type(message).__name__
    return RemoteProtocolError("out-of-order", f"{name} does not belong here")
