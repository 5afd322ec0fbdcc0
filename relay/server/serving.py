"""A relay as a process: it listens, watches over tokens and readers, and ends."""

import asyncio
import contextlib
import functools
import logging
import signal
import ssl
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from dataclasses import dataclass
from importlib import metadata
from random import Random
from typing import cast

from websockets.asyncio.server import Server, ServerConnection, serve as listen
from websockets.exceptions import ConnectionClosed
from websockets.http11 import Request, Response
from websockets.typing import Subprotocol

from crdtmem.errors import CrdtmemError, StorageUncertainError
from crdtmem.limits import (
    DRAIN_S,
    FRAME_BYTES,
    HANDSHAKE_S,
    HANDSHAKES_MAX,
    SEND_BUFFER_BYTES,
    SWEEP_ROWS,
    SWEEP_S,
    SYNC_CLOSE_S,
    TOKEN_POLL_S,
)
from crdtmem.protocol.serving import RelayLimits
from relay.core import RelayCore
from relay.http import SUBPROTOCOL, Gate, Network, check_bind
from relay.metrics import Metrics
from relay.server.connection import RelayConnection
from relay.server.driver import Driver
from relay.server.events import log
from relay.storage import Storage

__all__ = ["EXIT_ABORTED", "EXIT_UNCERTAIN", "Relay", "Timing", "serve"]

EXIT_ABORTED = 1
"""The time for an orderly end was over, or a second signal came."""

EXIT_UNCERTAIN = StorageUncertainError.exit_status
"""The disk failed in a commit; a supervisor starts the relay anew (EX_IOERR)."""

VERSION = metadata.version("crdtmem")

# In the time of a stall; fewer would let it last much longer.
STALL_LOOKS = 6


@dataclass(frozen=True, slots=True)
class Timing:
    """How long the relay itself waits, in seconds.

    Attributes:
        drain_s: Longest time for an orderly end.
        token_poll_s: Pause between two looks for tokens that have ended.
        sweep_s: Pause between two sweeps.
        handshake_s: Longest time of a request's head.
        close_s: Longest time for the other side of a close.

    """

    drain_s: float = DRAIN_S
    token_poll_s: float = TOKEN_POLL_S
    sweep_s: float = SWEEP_S
    handshake_s: float = HANDSHAKE_S
    close_s: float = SYNC_CLOSE_S


async def serve(
    storage: Storage,
    limits: RelayLimits,
    *,
    host: str,
    port: int,
    on_ready: Callable[[int], None],
    tls: ssl.SSLContext | None = None,
    origins: Sequence[str] = (),
    proxies: Sequence[Network] = (),
    signals: Sequence[signal.Signals] = (signal.SIGTERM, signal.SIGINT),
    stop: asyncio.Event | None = None,
    timing: Timing | None = None,
    wall_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
) -> int:
    """Run a relay until it is told to end.

    The first signal, or ``stop``, ends it in order: nobody new is let in, records that
    have been received are stored and acknowledged, everybody is told to come back. A
    second signal, or the end of the time for that, cuts it short; what was acknowledged
    is on the disk either way.

    Args:
        storage: The log; opened here, and closed at the end.
        limits: What the relay's owner has set.
        host: Address to listen on.
        port: 0 for a free one.
        on_ready: Called with the port once clients can connect.
        tls: Certificate and key; needed where the address is no loopback one and no
            proxy stands in front.
        origins: Values of ``Origin`` that are let in.
        proxies: Networks of proxies whose ``X-Forwarded-For`` counts.
        signals: Which ones end the relay; none where it does not run in the main
            thread.
        stop: Ends the relay when it is set.
        timing: How long the relay itself waits.
        wall_ms: Milliseconds since 1970.

    Returns:
        The exit status: 0 after an orderly end, EXIT_ABORTED after one that was cut
        short, EXIT_UNCERTAIN after the disk failed in a commit.

    Raises:
        InsecureBindError: If tokens would go over a network in the clear.
        OSError: If the address cannot be listened on.
        StorageError: If the log cannot be opened.

    """
    check_bind(host, has_tls=tls is not None, proxies=proxies)
    identity = await storage.open()
    try:
        metrics = Metrics(VERSION)
        gate = Gate(
            storage,
            metrics,
            version=VERSION,
            clock=asyncio.get_running_loop().time,
            wall_ms=wall_ms,
            origins=origins,
            proxies=proxies,
            connections_max=limits.connections_max,
            token_connections_max=limits.token_connections_max,
        )
        core = RelayCore(identity, limits, rng=Random())
        relay = Relay(
            storage, core, gate, metrics, timing or Timing(), stop or asyncio.Event()
        )
        with _calling(relay.end, signals):
            return await relay.run(
                relay.listener(host, port, tls), on_ready, limits.stall_s, wall_ms
            )
    finally:
        await storage.close()


class Relay:
    """The sockets of a relay, and its life as a process.

    Args:
        storage: The log, open.
        core: Decides.
        gate: Lets in.
        metrics: Counts.
        timing: How long to wait.
        ending: Set, it ends the relay in order.

    Attributes:
        gate: As above.
        sockets: All that are open, whether they are WebSockets yet or not.

    """

    def __init__(
        self,
        storage: Storage,
        core: RelayCore,
        gate: Gate,
        metrics: Metrics,
        timing: Timing,
        ending: asyncio.Event,
    ) -> None:
        self.gate = gate
        self._storage = storage
        self._metrics = metrics
        self._timing = timing
        self._ending = ending
        self._loop = asyncio.get_running_loop()
        self._tasks = asyncio.TaskGroup()
        self.sockets: set[RelayConnection] = set()
        self._driver = Driver(core, storage, metrics, self._tasks, fail=ending.set)
        gate.measure = self._driver.measure
        self._deadline: asyncio.Timeout | None = None
        self._revoked: set[str] = set()
        self._token_change = 0

    def listener(self, host: str, port: int, tls: ssl.SSLContext | None) -> Server:
        """Return what will listen, as soon as it is entered."""
        library = logging.getLogger("relay.websockets")
        # At DEBUG it logs heads with their tokens, and frames with their texts.
        library.setLevel(logging.WARNING)
        # Any callable will do, says the documentation of ``create_connection``.
        make = cast(type[ServerConnection], functools.partial(RelayConnection, self))
        return listen(
            self._converse,
            host,
            port,
            ssl=tls,
            subprotocols=[Subprotocol(SUBPROTOCOL)],
            compression=None,
            process_request=_admit,
            server_header=None,
            open_timeout=self._timing.handshake_s,
            ping_interval=None,
            close_timeout=self._timing.close_s,
            max_size=FRAME_BYTES,
            max_queue=1,
            write_limit=SEND_BUFFER_BYTES,
            logger=library,
            create_connection=make,
            backlog=HANDSHAKES_MAX,
        )

    def end(self) -> None:
        """End in order; called again, at once."""
        if self._deadline is not None:
            self._deadline.reschedule(self._loop.time())
        self._ending.set()

    def drained(self, connection: RelayConnection) -> None:
        """Take note that a connection's buffer has taken what was sent."""
        self._driver.drained(connection)

    async def run(
        self,
        listener: Server,
        on_ready: Callable[[int], None],
        stall_s: float,
        wall_ms: Callable[[], int],
    ) -> int:
        """Serve until the end; returns the exit status."""
        self._storage.watch(self._hint, self._hear)
        # Entered before the group, which would wrap what it raises.
        async with listener, self._tasks as tasks:
            looks = self._looks(stall_s, wall_ms)
            looking = [tasks.create_task(look) for look in looks]
            try:
                port = listener.sockets[0].getsockname()[1]
                log("listening", port=port)
                on_ready(port)
                await self._ending.wait()
                status = await self._finish(listener)
            finally:
                self._driver.close()
                for task in looking:
                    task.cancel()
        log("stopped", status=status)
        return status

    def _hint(self, ns_no: int, head: int) -> None:
        # A storage may call from any thread.
        self._loop.call_soon_threadsafe(self._driver.hint, ns_no, head)

    def _hear(self, message: bytes) -> None:
        self._loop.call_soon_threadsafe(self._driver.heard, message)

    async def _finish(self, listener: Server) -> int:
        """Let everybody go; returns the exit status."""
        self.gate.is_draining = True
        listener.close(close_connections=False)
        log("ending")
        is_cut_short = False
        try:
            async with asyncio.timeout(self._timing.drain_s) as self._deadline:
                self._driver.drain()
                await self._driver.is_idle.wait()
                for socket in list(self.sockets):
                    if socket.is_in_handshake:
                        socket.abort()
                await listener.wait_closed()
        except TimeoutError:
            is_cut_short = True
        self._deadline = None
        for socket in list(self.sockets):
            socket.abort()
        if self._driver.has_failed:
            return EXIT_UNCERTAIN
        return EXIT_ABORTED if is_cut_short else 0

    async def _converse(self, socket: ServerConnection) -> None:
        """Serve one WebSocket; the top of its task."""
        connection = cast(RelayConnection, socket)
        driver = self._driver
        connection.end_handshake()
        driver.connected(connection)
        if connection.grant.token_id in self._revoked:
            driver.revoke(connection.grant.token_id)
        try:
            # How this ends in any case, whoever closes.
            with contextlib.suppress(ConnectionClosed):
                while True:
                    frame = await connection.recv()
                    pause_s = driver.received(connection, frame)
                    if pause_s:
                        await asyncio.sleep(pause_s)
        finally:
            driver.lost(connection)

    # What is looked at again and again.

    def _looks(
        self, stall_s: float, wall_ms: Callable[[], int]
    ) -> list[Coroutine[None, None, None]]:
        timing = self._timing
        return [
            self._each(timing.token_poll_s, lambda: self._look_at_tokens(wall_ms())),
            self._each(timing.sweep_s, lambda: self._sweep(wall_ms())),
            self._each(stall_s / STALL_LOOKS, lambda: self._look_for_stalls(stall_s)),
        ]

    async def _each(self, pause_s: float, look: Callable[[], Awaitable[None]]) -> None:
        while True:
            await asyncio.sleep(pause_s)
            try:
                await look()
            except CrdtmemError as error:
                # Nobody waits for it, and the next look may succeed.
                self._driver.storage_failed("look", error)

    async def _look_for_stalls(self, stall_s: float) -> None:
        self._driver.look_for_stalls(stall_s)

    async def _look_at_tokens(self, now_ms: int) -> None:
        for change in await self._storage.changed_tokens(self._token_change):
            self._token_change = change.number
            if change.revoked_ms is not None:
                # Kept: a connection may have been let in before and begin after this.
                self._revoked.add(change.token_id)
                self._driver.revoke(change.token_id)
        self._driver.expire(now_ms)

    async def _sweep(self, now_ms: int) -> None:
        has_more = True
        while has_more:
            report = await self._storage.sweep(now_ms, SWEEP_ROWS)
            has_more = report.has_more
            self._metrics.add("payloads_dropped_total", amount=report.payloads)


async def _admit(socket: ServerConnection, request: Request) -> Response | None:
    return await cast(RelayConnection, socket).admit(request)


@contextlib.contextmanager
def _calling(
    end: Callable[[], None], signals: Sequence[signal.Signals]
) -> Iterator[None]:
    loop = asyncio.get_running_loop()
    # Event loops on Windows know no signals; an interrupt ends the process there.
    with contextlib.suppress(NotImplementedError):
        for number in signals:
            loop.add_signal_handler(number, end)
    try:
        yield
    finally:
        with contextlib.suppress(NotImplementedError):
            for number in signals:
                loop.remove_signal_handler(number)
