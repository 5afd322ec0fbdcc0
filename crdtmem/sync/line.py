"""The line to one relay: a connection, made again whenever it ends.

Three tasks at most: one receives, one sends, one lets the engine work. The engine's
steps block the loop, each for one transaction: the loop has nothing else to do, and a
thread between would only add copies and a queue.
"""

import asyncio
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from random import Random

from crdtmem.errors import (
    ConfigError,
    CrdtmemError,
    InsecureUrlError,
    KeyMissingError,
    PermissionDeniedError,
    RelayRefusedError,
    RelayUnreachableError,
)
from crdtmem.limits import (
    APPLY_BATCH_RECORDS,
    BACKOFF_RESET_S,
    SYNC_CLOSE_S,
    SYNC_POLL_ACTIVE_S,
    SYNC_POLL_AWAKE_S,
    SYNC_POLL_IDLE_S,
)
from crdtmem.protocol import backoff
from crdtmem.protocol.closes import Close
from crdtmem.sealing import Keyring
from crdtmem.store.about import data_version
from crdtmem.store.links import Link
from crdtmem.store.store import Store
from crdtmem.sync.board import Board
from crdtmem.sync.engine import Ended, Engine
from crdtmem.sync.journal import Journal
from crdtmem.sync.keyring import load_sealers
from crdtmem.sync.namespace import Fault
from crdtmem.sync.token import read_token
from crdtmem.sync.transport import Lost, RelayConnection, open_connection

__all__ = ["Line"]

AGENT = "crdtmem"
RESTARTS_MAX = 4
"""Connections that are made at once one after the other; a rebase needs two."""

FRAMES_WAITING_MAX = 8
"""Frames that are read ahead of the engine: enough to fill a batch with small ones."""

DONE = Close(1000, "done")
LOST = Ended("connection-lost", "the connection was lost", is_permanent=False)
NO_TOKEN = "there is no token: CRDTMEM_RELAY_TOKEN is not set for this process"


class Line:
    """Keeps links of one relay in sync until it is stopped.

    Args:
        store: The store; this is its only user while it works.
        links: The links, all of one relay and one token.
        incarnation: Of the lease.
        token: What the environment holds, for links without a token file.
        keyring: Likewise, for encrypted links without a keyring file.
        journal: Is told how the links stand.
        rng: For delays.
        until_settled: Whether to stop by itself when nothing is under way any more.
        board: Where presences are, if anybody wants them.

    Attributes:
        engine: Does the work.
        last: How the last connection ended, or why there was none.

    """

    def __init__(
        self,
        store: Store,
        links: Sequence[Link],
        *,
        incarnation: bytes,
        token: str | None,
        keyring: Keyring | None = None,
        journal: Journal,
        rng: Random,
        until_settled: bool = False,
        board: Board | None = None,
    ) -> None:
        self.links = tuple(links)
        self.engine = Engine(
            store, links, incarnation=incarnation, rng=rng, agent=AGENT
        )
        self.engine.hears_presence = board is not None
        self._board = board
        self._said: dict[str, bytes] = {}
        self.last: Ended | None = None
        self._store = store
        self._token = token
        self._keyring = keyring
        self._journal = journal
        self._rng = rng
        self._until_settled = until_settled
        self._stop = asyncio.Event()
        self._news = asyncio.Event()
        self._output = asyncio.Event()
        self._connecting: asyncio.Timeout | None = None
        self._fault: Fault | None = None
        self._data_version: int | None = None
        self._awake_until = 0.0

    @property
    def url(self) -> str:
        """Where the relay is."""
        return self.links[0].url

    def stop(self) -> None:
        """Have ``run`` send what there is, say bye and return; from its own loop."""
        self._stop.set()
        self._news.set()
        if self._connecting is not None:
            self._connecting.reschedule(asyncio.get_running_loop().time())

    def wake(self) -> None:
        """Look for new local writes now."""
        self._data_version = None
        self._news.set()

    async def run(self) -> None:
        """Sync until stopped; a permanent end waits for that, too."""
        delays = backoff.delays(self._rng)
        restarts = 0
        while not self._stop.is_set():
            ended = self.last = await self._connection()
            is_over = self._stop.is_set() and not ended.is_permanent
            if is_over or (self._until_settled and ended.is_permanent):
                return
            if ended.open_s >= BACKOFF_RESET_S:
                delays = backoff.delays(self._rng)
            is_restart = ended.is_restart and restarts < RESTARTS_MAX
            restarts = restarts + 1 if is_restart else 0
            self._note_ended(ended)
            if ended.is_permanent:
                await self._stop.wait()
            elif not is_restart:
                await self._stopped_within(max(next(delays), self._asked_wait(ended)))

    def _asked_wait(self, ended: Ended) -> float:
        """Return how long the relay asks to wait, and as much at random."""
        return ended.retry_s + self._rng.uniform(0.0, ended.retry_s)

    async def _stopped_within(self, wait_s: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(wait_s):
                await self._stop.wait()

    async def _connection(self) -> Ended:
        """Make one connection and use it until it ends."""
        self._note_all("connecting", self._fault)
        link = self.links[0]
        try:
            token = (
                self._token
                if not link.token_file
                else read_token(Path(link.token_file))
            )
            if token is None:
                return Ended("token-missing", NO_TOKEN, is_permanent=True)
            self._load_keys()
            async with asyncio.timeout(None) as self._connecting:
                opened = await open_connection(
                    link.url,
                    token,
                    allow_insecure=bool(link.options.get("allowInsecure")),
                )
        except TimeoutError:
            return Ended("stopped", "", is_permanent=False)
        except RelayUnreachableError as exc:
            return Ended(exc.cause, exc.reason, is_permanent=False, retry_s=exc.retry_s)
        except RelayRefusedError as exc:
            return Ended(exc.cause, exc.reason, is_permanent=True)
        except (
            ConfigError,
            InsecureUrlError,
            KeyMissingError,
            PermissionDeniedError,
        ) as exc:
            return Ended(exc.code, exc.message, is_permanent=True)
        finally:
            self._connecting = None
        async with opened:
            return await self._converse(opened)

    def _load_keys(self) -> None:
        """Read the keys anew; a link without any is stopped, and the others go on.

        Raises:
            CrdtmemError: If not one of the links is left.

        """
        failed = load_sealers(self._store, self.links, self._keyring)
        known = self._store.sealers
        if all(x.is_encrypted and x.namespace not in known for x in self.links):
            first = self.links[0].namespace
            raise failed.get(first) or KeyMissingError(local=first)

    async def _converse(self, connection: RelayConnection) -> Ended:
        frames: asyncio.Queue[bytes | Lost] = asyncio.Queue(FRAMES_WAITING_MAX)
        trouble = None
        try:
            self.engine.connect(time.monotonic())
            async with asyncio.TaskGroup() as tasks:
                reader = tasks.create_task(self._read(connection, frames))
                writer = tasks.create_task(self._write(connection))
                trouble = await self._pump(frames)
                reader.cancel()
                writer.cancel()
            await self._say_last(connection)
            self.engine.connection_lost(1006, time.monotonic())
        except CrdtmemError as exc:
            trouble = _trouble(exc)
        finally:
            self._clear_board()
        return trouble or self.engine.ended or LOST

    async def _read(
        self, connection: RelayConnection, frames: asyncio.Queue[bytes | Lost]
    ) -> None:
        while True:
            found = await connection.receive()
            # Waits while the engine has enough to do: the relay notices.
            await frames.put(found)
            self._news.set()
            if isinstance(found, Lost):
                return

    async def _write(self, connection: RelayConnection) -> None:
        while True:
            frames = self.engine.data_to_send()
            if frames:
                await connection.send(frames)
            else:
                self._output.clear()
                await self._output.wait()

    async def _say_last(self, connection: RelayConnection) -> None:
        """Send what the engine says at the end, and close."""
        with suppress(TimeoutError):
            async with asyncio.timeout(SYNC_CLOSE_S):
                while frames := self.engine.data_to_send():
                    await connection.send(frames)
                await connection.close(self.engine.closing or DONE)

    async def _pump(self, frames: asyncio.Queue[bytes | Lost]) -> Ended | None:
        """Let the engine work until the connection is over; return what stopped it."""
        engine = self.engine
        give_up_at: float | None = None
        try:
            while engine.ended is None and engine.closing is None:
                now = time.monotonic()
                self._take(frames, now)
                is_busy = self._let_work(now)
                if self._until_settled and engine.is_quiet:
                    self._stop.set()
                if self._stop.is_set() and not is_busy:
                    give_up_at = give_up_at or now + SYNC_CLOSE_S
                    if engine.is_flushed or now >= give_up_at:
                        engine.finish(now)
                    if now >= give_up_at:
                        return None
                await self._pause(give_up_at, is_busy=is_busy or not frames.empty())
        except CrdtmemError as exc:
            # Mostly a store that is busy; whatever it is, the store is as it was.
            return _trouble(exc)
        return None

    def _take(self, frames: asyncio.Queue[bytes | Lost], now: float) -> None:
        """Hand frames to the engine, as many as make a batch."""
        while not frames.empty() and self.engine.backlog < APPLY_BATCH_RECORDS:
            found = frames.get_nowait()
            if isinstance(found, Lost):
                self.engine.connection_lost(found.code, now, found.reason)
            else:
                self.engine.receive(found, now)

    def _let_work(self, now: float) -> bool:
        """Let the engine do a step; return whether it did anything."""
        if self._has_news(now):
            self.engine.wake()
        self.engine.tick(now)
        has_worked = self.engine.step(now)
        self._output.set()
        facts = self.engine.facts() if self.engine.ended is None else []
        for fact in facts:
            self._journal.note(
                fact.link,
                fact.state,
                head=fact.head,
                fault=fact.fault,
                is_in_sync=fact.is_quiet,
            )
            if fact.state == "connected":
                self._exchange(fact.link, now)
        self._journal.flush(now)
        return has_worked

    def _exchange(self, link: int, now: float) -> None:
        """Tell what this store is at, and take down what others are at."""
        if self._board is None:
            return
        name = next(x.namespace for x in self.links if x.link == link)
        blob = self._board.own.get(name, b"")
        if blob != self._said.get(name, b""):
            self._said[name] = blob
            self.engine.set_presence(name, blob, now)
        self._board.others[name] = self.engine.presences(name)

    def _clear_board(self) -> None:
        self._said.clear()
        if self._board is not None:
            for link in self.links:
                self._board.others.pop(link.namespace, None)

    def _has_news(self, now: float) -> bool:
        """Tell whether others have written to the store since the last look."""
        with self._store.reading() as connection:
            version = data_version(connection)
        if version == self._data_version:
            return False
        self._data_version = version
        self._awake_until = now + SYNC_POLL_AWAKE_S
        return True

    async def _pause(self, give_up_at: float | None, *, is_busy: bool) -> None:
        """Wait for a frame, a wake or the next thing that time asks for."""
        if is_busy:
            await asyncio.sleep(0)
            return
        now = time.monotonic()
        is_awake = now < self._awake_until
        wait_s = SYNC_POLL_ACTIVE_S if is_awake else SYNC_POLL_IDLE_S
        due = [at for at in (self.engine.next_deadline(), give_up_at) if at is not None]
        wait_s = max(0.0, min([wait_s, *(at - now for at in due)]))
        with suppress(TimeoutError):
            async with asyncio.timeout(wait_s):
                await self._news.wait()
        self._news.clear()

    def _note_ended(self, ended: Ended) -> None:
        self._fault = None
        if not ended.is_restart:
            self._fault = Fault(ended.code, ended.message, ended.is_permanent)
        self._note_all("stopped" if ended.is_permanent else "waiting", self._fault)

    def _note_all(self, state: str, fault: Fault | None) -> None:
        for link in self.links:
            self._journal.note(link.link, state, fault=fault)
        self._journal.flush(time.monotonic())


def _trouble(error: CrdtmemError) -> Ended:
    return Ended(error.code, error.message, is_permanent=False)
