"""Carries out what the core decides, and tells it what came of that.

Every input of the core is followed by a round of its effects, so between two inputs
nothing is left to do. What asks the log waits in a task of its own; all else happens at
once, on one thread.
"""

import asyncio
import itertools
import logging
import math
from collections.abc import Callable, Sequence

from crdtmem.errors import CrdtmemError, StorageUncertainError
from crdtmem.protocol.relaying import PutResult
from relay.core import RelayCore
from relay.effects import (
    Announce,
    Append,
    Close,
    Join,
    Match,
    Read,
    Result,
    Send,
    StorageFailure,
)
from relay.metrics import Metrics
from relay.pacing import Pace
from relay.server.connection import RelayConnection, wire_frame
from relay.server.events import log
from relay.storage import Storage

__all__ = ["Driver"]

Ask = Join | Match | Append | Read

TEXT_MESSAGE = (4400, "protocol-error")
UNCERTAIN = (1011, StorageUncertainError.code)


class Driver:
    """The core of a relay among its sockets and its log.

    1. Each input of the core is followed by a round of its effects.
    2. ``_connections`` holds a connection exactly while the core knows it.
    3. After an uncertain commit all sockets close.

    Args:
        core: Decides.
        storage: The log, open.
        metrics: Counts.
        tasks: Where waiting is done; entered, and left after the last call.
        fail: Called when a commit was uncertain: the process has to end.

    Attributes:
        is_idle: Set while there is no connection.
        has_failed: Whether a commit was uncertain.

    """

    def __init__(
        self,
        core: RelayCore,
        storage: Storage,
        metrics: Metrics,
        tasks: asyncio.TaskGroup,
        *,
        fail: Callable[[], None],
    ) -> None:
        self.has_failed = False
        self.is_idle = asyncio.Event()
        self.is_idle.set()
        self._core = core
        self._storage = storage
        self._metrics = metrics
        self._tasks = tasks
        self._fail = fail
        self._loop = asyncio.get_running_loop()
        self._numbers = itertools.count(1)
        self._connections: dict[int, RelayConnection] = {}
        self._paces: dict[str, Pace] = {}
        self._asking: set[asyncio.Task[None]] = set()
        self._timer: asyncio.TimerHandle | None = None
        # When it is due; uvloop's own answer fails once the timer has gone off.
        self._timer_at_s = math.inf
        # The frame that was written last, and what it is on the wire: all readers of
        # a commit are sent the same object, and it is built once.
        self._last_frame = b""
        self._last_wire = b""

    # From the sockets.

    def connected(self, connection: RelayConnection) -> None:
        """Begin a connection that has just become a WebSocket."""
        connection.number = next(self._numbers)
        self._connections[connection.number] = connection
        self.is_idle.clear()
        # The id of a token is public; it names the token in lists and logs.
        log("opened", connection=connection.number, token=connection.grant.token_id)
        now = self._loop.time()
        self._core.connect(connection.number, connection.grant, now)
        self._act()

    def received(self, connection: RelayConnection, frame: bytes | str) -> float:
        """Take in a frame; nothing comes of what is sent after our close.

        Returns:
            How long its connection should not be read, in seconds.

        """
        if connection.number not in self._connections:
            return 0.0
        if isinstance(frame, str):
            self.lost(connection)
            self._end(connection, *TEXT_MESSAGE)
            return 0.0
        now = self._loop.time()
        pace = self._pace(connection.grant.token_id)
        pace.frame(len(frame), now)
        self._core.receive(connection.number, frame, now)
        self._act()
        return pace.wait_s(now)

    def drained(self, connection: RelayConnection) -> None:
        """Go on with a connection whose buffer has taken what was sent."""
        if connection.number in self._connections:
            self._core.sent(connection.number, self._loop.time())
            self._act()

    def lost(self, connection: RelayConnection) -> None:
        """End a connection that is gone, if it has not ended already."""
        if self._forget(connection.number) is not None:
            log("left", connection=connection.number)
            self._core.disconnected(connection.number, self._loop.time())
            self._act()

    def look_for_stalls(self, stall_s: float) -> None:
        """Have the core end the connections that take nothing any more."""
        now = self._loop.time()
        for number, connection in self._connections.items():
            if connection.idle_s(now) >= stall_s:
                self._core.stalled(number, now)
        self._act()

    # From elsewhere.

    def hint(self, ns_no: int, head: int) -> None:
        """Take in that another process has committed."""
        self._core.hint(ns_no, head, self._loop.time())
        self._act()

    def heard(self, message: bytes) -> None:
        """Take in what another process has announced."""
        self._core.heard(message, self._loop.time())
        self._act()

    def revoke(self, token_id: str) -> None:
        """Close all connections of a token that has been revoked."""
        self._core.revoked(token_id, self._loop.time())
        self._act()

    def drain(self) -> None:
        """Let everybody finish and go."""
        self._core.drain(self._loop.time())
        self._act()

    def expire(self, now_ms: int) -> None:
        """Close the connections whose token has expired by the wall clock."""
        self._core.expire(now_ms, self._loop.time())
        self._act()

    def measure(self) -> None:
        """Bring the metrics up to date with what the core has counted."""
        metrics = self._metrics
        for name, value in self._core.gauges().items():
            metrics.set(name, value)
        counters = self._core.counters
        metrics.set("stalls_total", counters.stalls)
        for name, counts in (
            ("records_total", counters.records),
            ("bytes_total", counters.octets),
            ("frames_total", counters.frames),
            ("frame_cache_total", counters.cache),
            ("errors_total", counters.errors),
            ("closes_total", counters.closes),
        ):
            for label, count in counts.items():
                metrics.set(name, count, str(label))

    def storage_failed(self, ask: str, error: CrdtmemError) -> None:
        """Note that the log could not do something; end if it is not to be trusted.

        Args:
            ask: What it was asked.
            error: What it raised.

        """
        log("storage-failed", logging.ERROR, error=error, ask=ask, code=error.code)
        if isinstance(error, StorageUncertainError) and error.ends_process:
            self.has_failed = True
            for connection in list(self._connections.values()):
                self.lost(connection)
                self._end(connection, *UNCERTAIN)
            self._fail()

    def close(self) -> None:
        """Stop the clock, and wait for the log no longer."""
        for asking in self._asking:
            asking.cancel()
        if self._timer is not None:
            self._timer.cancel()

    # What the core wants.

    def _act(self) -> None:
        while effects := self._core.effects():
            for effect in effects:
                if isinstance(effect, Send):
                    self._send(effect)
                elif isinstance(effect, Close):
                    self._close(effect)
                elif isinstance(effect, Announce):
                    self._storage.announce(effect.message)
                else:
                    asking = self._tasks.create_task(self._ask(effect))
                    self._asking.add(asking)
                    asking.add_done_callback(self._asking.discard)
        self._set_timer()

    def _send(self, effect: Send) -> None:
        if self._write(self._connections[effect.conn], effect.frames):
            self._core.sent(effect.conn, self._loop.time())

    def _write(self, connection: RelayConnection, frames: Sequence[bytes]) -> bool:
        for frame in frames:
            if frame is not self._last_frame:
                self._last_frame = frame
                self._last_wire = wire_frame(frame)
            connection.write(self._last_wire)
        return connection.has_taken()

    def _close(self, effect: Close) -> None:
        connection = self._connections[effect.conn]
        self._forget(effect.conn)
        if effect.is_abort:
            connection.abort()
            self._log_close(connection, effect.code, effect.reason)
            return
        if not connection.paused:
            self._write(connection, effect.frames)
        self._end(connection, effect.code, effect.reason)

    def _end(self, connection: RelayConnection, code: int, reason: str) -> None:
        self._tasks.create_task(connection.end(code, reason))
        self._log_close(connection, code, reason)

    def _log_close(self, connection: RelayConnection, code: int, reason: str) -> None:
        log("closed", connection=connection.number, code=code, reason=reason)

    def _forget(self, number: int) -> RelayConnection | None:
        connection = self._connections.pop(number, None)
        if not self._connections:
            self.is_idle.set()
        return connection

    async def _ask(self, effect: Ask) -> None:
        """Ask the log and tell the core; the top of a task."""
        result: Result | StorageFailure
        try:
            result = await self._answer(effect)
        except Exception as raised:  # noqa: BLE001 - the top of a task
            error = raised if isinstance(raised, CrdtmemError) else _unknown(raised)
            self.storage_failed(type(effect).__name__, error)
            result = StorageFailure.of(error)
        self._core.completed(effect.effect, result, self._loop.time())
        self._act()

    async def _answer(self, effect: Ask) -> Result:
        storage = self._storage
        if isinstance(effect, Append):
            return await self._append(effect)
        if isinstance(effect, Read):
            return await storage.read(
                effect.ns_no,
                effect.after,
                records=effect.records,
                octets=effect.octets,
            )
        if isinstance(effect, Match):
            return await storage.match(effect.ns_no, effect.samples)
        return await storage.join(
            effect.namespace,
            create=effect.create,
            replica_id=effect.replica_id,
            cursor=effect.cursor,
        )

    async def _append(self, effect: Append) -> list[PutResult]:
        start = self._loop.time()
        for put in effect.puts:
            self._pace(put.grant.token_id).records(len(put.records), start)
        results = await self._storage.append(effect.puts)
        self._metrics.observe("commit_seconds", self._loop.time() - start)
        self._metrics.observe("commit_records", sum(len(r.rows) for r in results))
        return results

    def _pace(self, token_id: str) -> Pace:
        pace = self._paces.get(token_id)
        if pace is None:
            pace = self._paces[token_id] = Pace(self._loop.time())
        return pace

    # Time.

    def _set_timer(self) -> None:
        due = self._core.next_deadline()
        # A tick that comes early finds nothing to do and comes back here.
        if due is None or due >= self._timer_at_s:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at_s = due
        self._timer = self._loop.call_at(due, self._tick)

    def _tick(self) -> None:
        self._timer_at_s = math.inf
        self._core.tick(self._loop.time())
        self._act()


def _unknown(error: Exception) -> StorageUncertainError:
    """Return what an error comes to that no storage should raise: the worst."""
    uncertain = StorageUncertainError(path="the log", reason=type(error).__name__)
    uncertain.__cause__ = error
    return uncertain
