"""What the processes of a relay tell each other, and what they see for themselves.

One connection listens, tells and looks. What is told may be lost; where a namespace
ends is looked up again and again, so that a reader is late by one look at the most. A
connection that is lost is replaced, after pauses that grow.
"""

import asyncio
import base64
import binascii
import logging
import re
from collections import deque
from collections.abc import Awaitable, Callable

import asyncpg

from crdtmem.errors import RelayRunningError
from crdtmem.limits import (
    ANNOUNCED_MAX,
    DB_RETRY_FIRST_S,
    DB_RETRY_MAX_S,
    NOTIFY_BYTES,
    NOTIFY_PAUSE_S,
)
from relay.storage import HeadHint, Hearing
from relay.storage.postgres.connection import Database, hung_up
from relay.storage.postgres.errors import mapped_errors, reason_of
from relay.storage.postgres.schema import LOCK_SERVED

__all__ = ["Announcer"]

logger = logging.getLogger(__name__)

HEAD = "crdtmem_head"
PRESENCE = "crdtmem_presence"
# Within what the wire takes.
_NUMBER = re.compile("[0-9]{1,15}")


class Announcer:
    """The connection on which this process talks to the others.

    Args:
        database: Where it leads to.
        look: Called with the connection at each look for heads.

    Attributes:
        went_back: Whether a namespace has been seen to end before where it ended: the
            database is an earlier one, and what this process holds of it is not true.

    """

    def __init__(
        self,
        database: Database,
        look: Callable[[asyncpg.Connection], Awaitable[None]],
    ) -> None:
        self.went_back = False
        self._database = database
        self._look = look
        self._notify: HeadHint | None = None
        self._hear: Hearing | None = None
        # Of the namespaces that somebody has joined here, all that have ever been.
        self._heads: dict[int, int] = {}
        self._moved: dict[int, int] = {}
        self._messages: deque[str] = deque(maxlen=ANNOUNCED_MAX)
        self._has_news = asyncio.Event()
        self._connection: asyncpg.Connection
        self._serving: asyncio.Task[None]

    async def open(self, connection: asyncpg.Connection) -> None:
        """Take a connection over, and go on by itself.

        Raises:
            RelayRunningError: If the database is being copied.
            StorageError: If the connection is lost.

        """
        await self._attach(connection)
        self._serving = asyncio.create_task(self._serve())

    async def close(self) -> None:
        """Hang up; what has not been told yet is not told."""
        self._serving.cancel()
        await asyncio.gather(self._serving, return_exceptions=True)
        await hung_up(self._connection)

    def watch(self, notify: HeadHint, hear: Hearing | None) -> None:
        """Say who wants to know of heads, and of messages."""
        self._notify, self._hear = notify, hear

    def note(self, ns_no: int, head: int) -> None:
        """Take note of where a namespace ends, for one that is to be looked after."""
        self._heads[ns_no] = max(head, self._heads.get(ns_no, 0))

    def moved(self, ns_no: int, head: int) -> None:
        """Tell the others that this process has committed up to a head."""
        if ns_no in self._heads:
            self.note(ns_no, head)
        self._moved[ns_no] = max(head, self._moved.get(ns_no, 0))
        self._has_news.set()

    def announce(self, message: bytes) -> None:
        """Tell the others something, unless it is too long."""
        text = base64.b64encode(message).decode()
        if len(text) <= NOTIFY_BYTES:
            self._messages.append(text)
            self._has_news.set()

    # The connection.

    async def _attach(self, connection: asyncpg.Connection) -> None:
        """Have the messages of a connection; it is ended where that fails."""
        place = self._database.place
        try:
            with mapped_errors(place):
                if not await connection.fetchval(
                    "SELECT pg_try_advisory_lock_shared($1)", LOCK_SERVED
                ):
                    raise RelayRunningError(path=place)
                # A message may be lost, so its transaction need not be synced.
                await connection.execute("SET synchronous_commit = off")
                await connection.add_listener(HEAD, self._heard_head)
                await connection.add_listener(PRESENCE, self._heard_message)
        except BaseException:
            await hung_up(connection)
            raise
        self._connection = connection

    async def _serve(self) -> None:
        """Talk, for ever; the top of a task."""
        place = self._database.place
        while True:
            try:
                await self._talk(self._connection)
            except Exception as error:  # noqa: BLE001 - the top of a task
                logger.warning("%s: listens no longer: %s", place, reason_of(error))
            await hung_up(self._connection)
            await self._attach_again()
            logger.warning("%s: listens again", place)

    async def _attach_again(self) -> None:
        pause_s = DB_RETRY_FIRST_S
        while True:
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, DB_RETRY_MAX_S)
            try:
                await self._attach(await self._database.connect())
            except Exception as error:  # noqa: BLE001 - as above
                place = self._database.place
                logger.warning("%s: does not listen: %s", place, reason_of(error))
            else:
                return

    async def _talk(self, connection: asyncpg.Connection) -> None:
        """Look and tell until the connection is lost."""
        clock = asyncio.get_running_loop().time
        look_at = told_at = clock()
        while True:
            if clock() >= look_at:
                await self._look_at_heads(connection)
                await self._look(connection)
                look_at = clock() + self._database.timing.poll_s
            try:
                async with asyncio.timeout_at(look_at):
                    await self._has_news.wait()
                    await asyncio.sleep(told_at + NOTIFY_PAUSE_S - clock())
            except TimeoutError:
                continue
            await self._tell(connection)
            told_at = clock()

    async def _tell(self, connection: asyncpg.Connection) -> None:
        """Tell what is new, in one transaction of its own."""
        self._has_news.clear()
        moved, self._moved = self._moved, {}
        channels = [HEAD] * len(moved) + [PRESENCE] * len(self._messages)
        texts = [f"{ns_no}:{head}" for ns_no, head in moved.items()]
        texts += self._messages
        self._messages.clear()
        await connection.execute(
            "SELECT pg_notify(channel, message)"
            " FROM unnest($1::text[], $2::text[]) AS news(channel, message)",
            channels,
            texts,
        )

    async def _look_at_heads(self, connection: asyncpg.Connection) -> None:
        """See where the namespaces end, and tell of those that do so elsewhere."""
        known = dict(self._heads)
        for ns_no, head in await connection.fetch(
            "SELECT ns_no, coalesce(ns.head, -1)"
            " FROM unnest($1::bigint[], $2::bigint[]) AS known(ns_no, head)"
            " LEFT JOIN crdtmem.ns USING (ns_no)"
            " WHERE ns.head IS DISTINCT FROM known.head",
            list(known),
            list(known.values()),
        ):
            if head < known[ns_no]:
                self.went_back = True
            self._hand_on(ns_no, head)
            self.note(ns_no, head)

    def _hand_on(self, ns_no: int, head: int) -> None:
        """Hand a head on, if it is one of those that count here, and news."""
        if head > self._heads.get(ns_no, head) and self._notify is not None:
            self._notify(ns_no, head)

    # What the others tell.

    def _heard_head(
        self, _connection: asyncpg.Connection, _pid: int, _channel: str, text: str
    ) -> None:
        ns_no, _, head = text.partition(":")
        if all(_NUMBER.fullmatch(part) for part in (ns_no, head)):
            # Not noted: it may be wrong, and the next look tells. Our own are no news.
            self._hand_on(int(ns_no), int(head))

    def _heard_message(
        self, connection: asyncpg.Connection, pid: int, _: str, text: str
    ) -> None:
        if self._hear is None or pid == connection.get_server_pid():
            return
        try:
            message = base64.b64decode(text, validate=True)
        except (binascii.Error, ValueError):
            # Anybody who may connect to the database may say anything there.
            return
        self._hear(message)
