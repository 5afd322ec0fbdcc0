"""A store's side of a connection: frames in, events out, and back.

``ClientSession`` lives as long as one connection. A driver moves its bytes and does
what its events ask for; it holds no document, reads no clock and draws no randomness.
"""

from collections.abc import Callable, Sequence
from enum import StrEnum

from crdtmem.errors import LocalProtocolError, RemoteProtocolError
from crdtmem.limits import FRAME_BYTES
from crdtmem.protocol import messages as wire
from crdtmem.protocol.client_events import (
    ClientLimits,
    Closed,
    Event,
    JoinCursor,
    Welcomed,
)
from crdtmem.protocol.client_namespaces import ClientNamespaces
from crdtmem.protocol.closes import Close, close_for, is_permanent_close
from crdtmem.protocol.relaying import Sample

__all__ = ["CONNECTION_TRANSITIONS", "ClientSession", "ConnEvent", "ConnState"]

# A relay that asks for less than these cannot be talked to.
LEAST_FRAME_BYTES = 16_384
LEAST_HEARTBEAT_S = 1.0

# What the client itself finds, and what reconnecting may heal: it is tried once.
HEALED_BY_RECONNECT = {"seq-gap", "chain-mismatch"}
OWN_FINDINGS = HEALED_BY_RECONNECT | {"part-order"}

# What a close says where its reason does not.
CODE_OF_CLOSE = {
    1000: "done",
    1012: "shutdown",
    4400: "protocol-error",
    4401: "unauthorized",
    4409: "replica-duplicate",
    4508: "timeout",
    4509: "replaced",
}


DONE = Close(1000, "done")


class ConnState(StrEnum):
    """Where a connection stands."""

    HELLO_SENT = "hello-sent"
    OPEN = "open"
    CLOSING = "closing"
    CLOSED = "closed"


class ConnEvent(StrEnum):
    """What happens to a connection."""

    WELCOME = "welcome"
    DONE = "done"
    END = "end"


# END is a loss, a fault, an error that closes, or the relay's bye.
CONNECTION_TRANSITIONS: dict[tuple[ConnState, ConnEvent], ConnState] = {
    (ConnState.HELLO_SENT, ConnEvent.WELCOME): ConnState.OPEN,
    (ConnState.HELLO_SENT, ConnEvent.DONE): ConnState.CLOSING,
    (ConnState.HELLO_SENT, ConnEvent.END): ConnState.CLOSED,
    (ConnState.OPEN, ConnEvent.DONE): ConnState.CLOSING,
    (ConnState.OPEN, ConnEvent.END): ConnState.CLOSED,
    (ConnState.CLOSING, ConnEvent.END): ConnState.CLOSED,
}


class ClientSession:
    """One connection as the store sees it; a new one for each connect.

    The driver's loop: hand every received frame to ``receive`` and, at
    ``next_deadline``, the time to ``tick``; take ``events`` after both and act on
    them; offer the outbox to ``put``; send what ``data_to_send`` returns and ask again
    until it returns nothing; once ``closing`` is set, close the socket with it. When
    the socket is gone, call ``connection_lost``. None of these raises for what a peer
    sent; a LocalProtocolError is a bug of the driver.

    1. (C1) No put before joined, nor between a rewind and ``resume_puts``.
    2. (C2) A record counts as stored only by an ack of a number that was put.
    3. (C3) The window of a namespace is kept.
    4. (C4) Records go up contiguous and with their chain verified.
    5. (C5) What the relay is told as applied moves by ``applied`` alone.
    6. (C6) After Closed there is no output and no event; late frames are ignored.
    7. (C7) Records are sent as they were passed, byte for byte.
    8. (C8) A close is reported once, and is final.

    Args:
        replica_id: 16 bytes: the store.
        incarnation: 16 random bytes, new with each lease.
        limits: Bounds.
        agent: The program, for the relay's log.
        now: Monotonic seconds, as everywhere here.

    """

    def __init__(
        self,
        replica_id: bytes,
        incarnation: bytes,
        *,
        limits: ClientLimits | None = None,
        agent: str,
        now: float,
    ) -> None:
        self._limits = limits or ClientLimits()
        self._hello = wire.Hello(0, replica_id, incarnation, agent)
        self._state = ConnState.HELLO_SENT
        self._closing: Close | None = None
        self._is_finishing = False
        self._namespaces: ClientNamespaces | None = None
        self._events: list[Event] = []
        self._control: list[bytes] = [wire.encode_message(self._hello)]
        self._owes_heartbeat = False
        self._max_frame = FRAME_BYTES
        self._opened_at = now
        self._now = self._heard_at = self._started_at = now
        self._heartbeat_s = self._limits.heartbeat_s
        self._heartbeat_at = now + self._heartbeat_s

    @property
    def is_open(self) -> bool:
        """Whether namespaces may be joined."""
        return self._state is ConnState.OPEN

    @property
    def closing(self) -> Close | None:
        """What to close the socket with, once everything is sent; None to keep it."""
        return self._closing

    def head(self, namespace: str) -> int:
        """Return the newest seq of a namespace that was heard of; 0 for none."""
        known = self._namespaces and self._namespaces.find(namespace)
        return known.head if known else 0

    def in_flight(self, namespace: str) -> int:
        """Return how many records of a namespace wait for their ack."""
        known = self._namespaces and self._namespaces.find(namespace)
        return known.in_flight if known else 0

    def join(self, cursor: JoinCursor) -> None:
        """Ask to be served a namespace from a cursor on.

        Raises:
            LocalProtocolError: If the connection was not open yet, the namespace is
                joined already, or as many are as one connection may have.

        """
        self._served.join(cursor)

    def leave(self, namespace: str) -> None:
        """Be done with a namespace; unacknowledged records may have been stored.

        It has no effect on one that was left before.
        """
        self._served.leave(namespace)

    def put(self, namespace: str, records: Sequence[bytes]) -> int:
        """Send the first records of a sequence, as many as the window takes.

        They follow what is in flight, in replica_seq, and stay in flight until Acked
        or PutRefused. None is taken before Joined, while a rewind waits for
        ``resume_puts``, while a refusal with a wait holds, and once the connection
        ends: offer them again after the next events or the next deadline.

        Returns:
            How many were taken. A record longer than the relay takes is not: it gives
            PutRefused, and nothing of it was sent.

        Raises:
            LocalProtocolError: If a record does not follow the one before it.
            RecordMalformedError: If it is no record.

        """
        served = self._served
        if self._state is not ConnState.OPEN or self._is_finishing:
            return 0
        return served.put(namespace, records)

    def send_samples(self, namespace: str, samples: Sequence[Sample]) -> None:
        """Answer RewindAsked with places that the store remembers, newest first.

        Raises:
            LocalProtocolError: If it was not asked for, or they are too many or do not
                fall.

        """
        self._served.send_samples(namespace, samples)

    def resume_puts(self, namespace: str) -> None:
        """Take puts again after a rewind: the store has sealed what was lost."""
        self._served.named(namespace).are_puts_shut = False

    def applied(self, namespace: str, seq: int) -> None:
        """Note that everything up to a seq is committed in the store."""
        self._served.named(namespace).applied = seq

    def set_presence(
        self,
        namespace: str,
        blob: bytes,
        now: float,
        *,
        seal: Callable[[int, bytes], bytes] | None = None,
    ) -> None:
        """Tell others what this store is at, and again with each heartbeat.

        Sent where the token allows it, and once the namespace is joined.

        Args:
            namespace: Its name.
            blob: See the protocol, section 9; empty for gone.
            now: Monotonic seconds.
            seal: Makes of a counter and the blob what is sent, each time anew.

        """
        known = self._served.named(namespace)
        known.blob, known.seal = blob, seal
        if not self._notices_gap(now):
            self._served.show(known, now)

    def receive(self, frame: bytes, now: float) -> None:
        """Take one frame from the relay; see ``events``."""
        if not self._is_up or self._notices_gap(now):
            return
        self._heard_at = now
        try:
            for message in wire.decode_frame(frame, max_frame=FRAME_BYTES):
                self._handle(message)
                if self._state is ConnState.CLOSED:
                    return
        except RemoteProtocolError as exc:
            code = exc.detail if exc.detail in OWN_FINDINGS else "protocol-error"
            self._end(
                code,
                Close(4400, code),
                answer=Close(4400, code),
                is_permanent=code not in HEALED_BY_RECONNECT,
                detail=f"{exc.detail}: {exc}",
            )
        self._evaluate()

    def tick(self, now: float) -> None:
        """Do what the time asks for; call it at ``next_deadline`` or earlier."""
        if not self._is_up or self._notices_gap(now):
            return
        overdue = self._overdue(now)
        if overdue:
            self._abandon(overdue, "the relay is silent")
        elif self._namespaces is not None:
            self._tick_open(self._namespaces, now)

    def connection_lost(self, code: int, now: float, reason: str = "") -> None:
        """Note that the socket is gone; idempotent.

        Args:
            code: The WebSocket's close code; 1006 if there was none.
            now: Monotonic seconds.
            reason: The close's reason: a code of the protocol, or empty.

        """
        self._now = now
        named = reason or CODE_OF_CLOSE.get(code, "connection-lost")
        self._end(named, Close(code, reason), answer=None)

    def finish(self, now: float) -> None:
        """Say bye once nothing is in flight; no further put is taken."""
        self._is_finishing = True
        if not self._notices_gap(now):
            self._evaluate()

    def events(self) -> list[Event]:
        """Return what has happened since the last call, in order."""
        taken = list(self._events)
        self._events.clear()
        return taken

    def data_to_send(self) -> list[bytes]:
        """Return WebSocket binary messages to send now, in order.

        At most one of them carries records, so that what is urgent does not wait
        behind a long upload: send them, and call again until nothing is returned.
        """
        if self._owes_heartbeat:
            self._owes_heartbeat = False
            self._say(wire.Heartbeat(0, self._served.heads))
        frames = wire.pack_frames(self._control, max_frame=self._max_frame)
        self._control = []
        if self._namespaces and self._state is ConnState.OPEN:
            upload = self._namespaces.next_frame()
            frames += [upload] if upload else []
        return frames

    def next_deadline(self) -> float | None:
        """Return when ``tick`` is due; None once the connection ends."""
        if not self._is_up:
            return None
        if self._namespaces is None:
            return self._started_at + self._limits.welcome_s
        waits = [self._heard_at + self._limits.dead_s, self._heartbeat_at]
        return min(waits + self._namespaces.deadlines)

    @property
    def _is_up(self) -> bool:
        return self._state in (ConnState.HELLO_SENT, ConnState.OPEN)

    def _say(self, message: wire.Message) -> None:
        if self._state is ConnState.OPEN:
            self._control.append(wire.encode_message(message))

    @property
    def _served(self) -> ClientNamespaces:
        if self._namespaces is None:
            raise LocalProtocolError("nothing can be joined before Welcomed")
        return self._namespaces

    def _handle(self, message: wire.Message) -> None:
        match message:
            case wire.Bye():
                code = message.code or DONE.reason
                self._end(code, close_for(code), answer=DONE, retry_ms=message.retry_ms)
            case wire.ErrorMessage() if self._ends(message):
                self._on_connection_error(message)
            case _ if self._namespaces is not None:
                self._handle_open(self._namespaces, message)
            case wire.Welcome():
                self._on_welcome(message)
            case _:
                raise _out_of_order(message)

    def _handle_open(self, namespaces: ClientNamespaces, message: wire.Message) -> None:
        match message:
            case wire.Heartbeat():
                self._owes_heartbeat |= bool(message.flags)
                if namespaces.hear_heartbeat(message.heads):
                    self._abandon("stalled", "records are overdue")
            case (
                wire.Joined()
                | wire.Rewind()
                | wire.Records()
                | wire.Part()
                | wire.Ack()
                | wire.Presence()
                | wire.ErrorMessage()
            ):
                namespaces.handle(message, self._now)
            case _:
                raise _out_of_order(message)

    def _on_welcome(self, welcome: wire.Welcome) -> None:
        if (
            welcome.max_frame < LEAST_FRAME_BYTES
            or not welcome.part_size
            or not welcome.window_records
        ):
            raise RemoteProtocolError("bad-value", f"welcome is of no use: {welcome}")
        self._state = CONNECTION_TRANSITIONS[self._state, ConnEvent.WELCOME]
        self._namespaces = ClientNamespaces(
            self._hello, welcome, self._limits, say=self._say, emit=self._events.append
        )
        self._max_frame = min(welcome.max_frame, FRAME_BYTES)
        wanted_s = min(self._limits.heartbeat_s, welcome.heartbeat_ms / 1000)
        self._heartbeat_s = max(LEAST_HEARTBEAT_S, wanted_s)
        self._heartbeat_at = self._now + self._heartbeat_s
        self._opened_at = self._now
        self._events.append(Welcomed(welcome.relay_id, welcome.epoch, welcome))

    def _ends(self, error: wire.ErrorMessage) -> bool:
        return not error.namespace or error.action == wire.Action.CLOSE

    def _on_connection_error(self, error: wire.ErrorMessage) -> None:
        if error.action == wire.Action.GO_ON:
            raise RemoteProtocolError("bad-value", "error is about no namespace")
        if error.action == wire.Action.STOP:
            close = Close(4400, error.code)
        else:
            close = close_for(error.code)
        self._end(
            error.code,
            close,
            answer=DONE,
            is_permanent=error.action != wire.Action.RETRY
            and is_permanent_close(close.code),
            retry_ms=error.retry_ms,
            detail=error.text,
        )

    def _end(
        self,
        code: str,
        close: Close,
        *,
        answer: Close | None,
        is_permanent: bool | None = None,
        retry_ms: int = 0,
        detail: str = "",
    ) -> None:
        """End the connection, once; ``answer`` is what the driver closes it with."""
        following = CONNECTION_TRANSITIONS.get((self._state, ConnEvent.END))
        if following is None:
            return
        self._state = following
        self._closing = answer
        self._control = []
        self._owes_heartbeat = False
        if is_permanent is None:
            is_permanent = is_permanent_close(close.code)
        open_s = self._now - self._opened_at if self._namespaces else 0.0
        self._events.append(
            Closed(code, close.code, is_permanent, retry_ms, open_s, detail)
        )

    def _abandon(self, code: str, detail: str) -> None:
        close = close_for(code)
        self._end(code, close, answer=close, detail=detail)

    def _evaluate(self) -> None:
        """Say bye if the caller is done and nothing waits for an ack."""
        has_flight = self._namespaces is not None and self._namespaces.has_flight
        if has_flight or not (self._is_finishing and self._is_up):
            return
        self._say(wire.Bye(0, DONE.reason))
        self._state = CONNECTION_TRANSITIONS[self._state, ConnEvent.DONE]
        self._closing = DONE

    def _notices_gap(self, now: float) -> bool:
        """Tell whether the machine was asleep; the relay has given up by now."""
        slept_s = now - self._now
        self._now = now
        if self._is_up and slept_s > self._limits.dead_s:
            self._abandon("timeout", f"nothing ran for {slept_s:.0f} s")
        return self._state is ConnState.CLOSED

    def _overdue(self, now: float) -> str:
        """Return the code of what the relay has let pass, or nothing."""
        if self._namespaces is None:
            is_late = now >= self._started_at + self._limits.welcome_s
            return "timeout" if is_late else ""
        if now >= self._heard_at + self._limits.dead_s:
            return "timeout"
        deadline = self._namespaces.part_deadline
        return "part-timeout" if deadline is not None and now >= deadline else ""

    def _tick_open(self, namespaces: ClientNamespaces, now: float) -> None:
        namespaces.tick(now)
        if now >= self._heartbeat_at:
            self._heartbeat_at = now + self._heartbeat_s
            self._owes_heartbeat = True
            namespaces.show_all(now)


def _out_of_order(message: wire.Message) -> RemoteProtocolError:
    what = type(message).__name__.lower()
    return RemoteProtocolError("out-of-order", f"{what} may not come now")
