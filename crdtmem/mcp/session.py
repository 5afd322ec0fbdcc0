"""What one client's session has open, and what it has seen.

All calls of a session run on one thread, in the order in which they came. The store is
opened by the first that needs it: one that cannot be opened makes each call fail with
its reason, and the server runs on.
"""

import asyncio
import base64
import logging
import secrets
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from crdtmem.aio import Worker
from crdtmem.errors import CrdtmemError, StoreError
from crdtmem.limits import MCP_FOOTER_LANES_MAX, MCP_FOOTER_ROWS, MCP_QUEUE_MAX
from crdtmem.mcp.paging import Page, Place
from crdtmem.models import Change, Scope, WriteResult

if TYPE_CHECKING:
    from crdtmem.memory import Memory
    from crdtmem.sync.thread import SyncThread

__all__ = ["AgentSession", "Opened", "Queue", "SlotName", "lane_of"]

_LOGGER = logging.getLogger(__name__)
_NAME_CHARS = 48
_LETTERS = 6

_T = TypeVar("_T")

SlotName = tuple[Scope, str]
"""A slot, as a session tells it from others: its scope and label."""


class Opened(NamedTuple):
    """An opened memory, with the settings that a session needs.

    Attributes:
        memory: The memory.
        new_scope: Where new slots go.
        relay_token: What the environment holds for links without a token file.
        relay_keyring: Likewise, for encrypted links without a keyring file.

    """

    memory: "Memory"
    new_scope: Scope = "project"
    relay_token: str | None = None
    relay_keyring: str | None = None


class Queue:
    """The calls of a session: one at a time, in order of arrival, not too many."""

    def __init__(self) -> None:
        self._worker = Worker()
        self._waiting = 0

    async def run(self, call: Callable[[], _T]) -> _T:
        """Run a call after those that came before it.

        Cancelled while it waits it never starts; cancelled later it is done whole, and
        only its result is lost.

        Raises:
            StoreError: ``store-busy`` if too many wait already.

        """
        # One more than may wait: the first of them runs.
        if self._waiting > MCP_QUEUE_MAX:
            raise StoreError(
                f"{MCP_QUEUE_MAX} calls of this session wait already",
                code="store-busy",
                details={"waiting": MCP_QUEUE_MAX},
            )
        self._waiting += 1
        try:
            return await self._worker.run(call)
        finally:
            self._waiting -= 1

    async def close(self, last: Callable[[], None]) -> None:
        """Run one more call, and let the thread end. Idempotent."""
        if not self._worker.is_stopped:
            await self._worker.run(last)
            self._worker.stop()


class AgentSession:
    """The memory as one client sees it. Everything but the queue is for its thread.

    Args:
        open_memory: Opens the memory for a lane; called again after it has failed.

    Attributes:
        client: What the client calls itself, as soon as it has said so.
        queue: Where its calls run.

    """

    def __init__(self, open_memory: Callable[[str], Opened]) -> None:
        self.client = ""
        self.queue = Queue()
        self._open = open_memory
        self._letters = base64.b32encode(secrets.token_bytes(5)).decode()[:_LETTERS]
        self._opened: Opened | None = None
        self._sync: SyncThread | None = None
        self._whole: dict[SlotName, int] = {}
        self._pages: dict[SlotName, tuple[int, Place]] = {}
        self._read: set[SlotName] = set()
        self._told: dict[SlotName, int] = {}

    @property
    def lane(self) -> str:
        """Who writes, unless a setting names another."""
        is_open = self._opened is not None
        return self.memory.lane if is_open else lane_of(self.client, self._letters)

    @property
    def memory(self) -> "Memory":
        """The memory, opened on first use.

        Raises:
            CrdtmemError: If it cannot be opened.

        """
        return self._ready().memory

    @property
    def new_scope(self) -> Scope:
        """Where new slots go if the call does not say."""
        return self._ready().new_scope

    def _ready(self) -> Opened:
        if self._opened is None:
            opened = self._open(self.lane)
            self._opened = opened
            self._start_sync(opened)
        return self._opened

    def _start_sync(self, opened: Opened) -> None:
        """Sync in the background, if the project or the global scope is linked."""
        memory = opened.memory
        links = {link.local for link in memory.status().sync.links}
        if links.isdisjoint((memory.project, "global")):
            return
        # Nobody else needs it, and it loads the protocol.
        from crdtmem.sync.thread import SyncThread  # noqa: PLC0415 - see above

        self._sync = SyncThread(
            memory.path, token=opened.relay_token, keyring_text=opened.relay_keyring
        )
        self._sync.start()

    def saw_page(self, name: SlotName, rev: int, page: Page) -> None:
        """Note what was shown of a slot's newest text.

        Pages of one rev that follow each other to the end are the whole text.
        """
        self._read.add(name)
        before = self._pages.pop(name, None)
        if page.start != Place() and before != (rev, page.start):
            return
        if page.is_end:
            self._whole[name] = rev
        else:
            rest = page.rest or Place(page.end_line + 1)
            self._pages[name] = rev, rest

    def saw_part(self, name: SlotName) -> None:
        """Note that a slot was read, though not so that one could rewrite it."""
        self._read.add(name)

    def wrote(self, result: WriteResult, *, is_whole: bool = False) -> None:
        """Note an own write: what was known of the text before is known of it now.

        Not so where others wrote in between: then a rewrite needs another look first.

        Args:
            result: Of the write.
            is_whole: Whether it put in the whole text.

        """
        name = result.scope, result.label
        self._read.add(name)
        if result.replayed is True:
            return
        if self._told.get(name, -1) >= result.previous_rev:
            # Others' changes have been told; this one is no news.
            self._told[name] = result.rev
        is_known = self._whole.get(name) == result.previous_rev
        if (is_whole or is_known) and result.merged is not True:
            self._whole[name] = result.rev
        else:
            self.forget(name)
        self.wake_sync()

    def forget(self, name: SlotName) -> None:
        """Note that the slot has become another in a way that was not shown whole."""
        self._whole.pop(name, None)
        self._pages.pop(name, None)

    def whole_rev(self, name: SlotName) -> int | None:
        """Return the rev of the last whole text that the session saw of a slot."""
        return self._whole.get(name)

    def undid(self, result: WriteResult) -> None:
        """Note that an own write made a text of it that was not shown whole."""
        self.wrote(result)
        self.forget((result.scope, result.label))

    def wake_sync(self) -> None:
        """Have what was written sent at once."""
        if self._sync is not None:
            self._sync.wake()

    def footer(self) -> str | None:
        """Return what others have changed since, each change once; None for nothing."""
        if self._opened is None:
            return None
        try:
            return self._footer(self.memory)
        except CrdtmemError as exc:
            # The call itself went well: its reply must not become an error for this.
            _LOGGER.warning("no word on what others changed: %s", exc.code)
            return None

    def _footer(self, memory: "Memory") -> str | None:
        fresh = [c for c in memory.unread() if c.rev > self._told.get(_name(c), -1)]
        strangers = [c for c in fresh if _name(c) not in self._read]
        if strangers:
            pinned = {
                (s.scope, s.label) for s in memory.slots(content=False) if s.pinned
            }
            fresh = [c for c in fresh if _name(c) in self._read | pinned]
        if not fresh:
            return None
        parts = [self._phrase(change) for change in fresh]
        if len(parts) > MCP_FOOTER_ROWS:
            parts = [
                *parts[:MCP_FOOTER_ROWS],
                f"and {len(parts) - MCP_FOOTER_ROWS} more",
            ]
        listed = "; ".join(parts)
        return f"changed since your last read: {listed}; memory_changes shows it"

    def _phrase(self, change: Change) -> str:
        since = max(change.since_rev, self._told.get(_name(change), 0))
        self._told[_name(change)] = change.rev
        lanes = list(change.lanes[:MCP_FOOTER_LANES_MAX])
        if len(change.lanes) > len(lanes):
            lanes.append(f"{len(change.lanes) - len(lanes)} more")
        return f"{change.label} rev {since}→{change.rev} by {', '.join(lanes)}"

    async def close(self) -> None:
        """Let the running call end, then stop syncing and let go of the store."""
        sync, self._sync = self._sync, None
        if sync is not None:
            await asyncio.to_thread(sync.stop)
        await self.queue.close(self._close_memory)

    def _close_memory(self) -> None:
        opened, self._opened = self._opened, None
        if opened is not None:
            opened.memory.close()


def lane_of(client: str, letters: str) -> str:
    """Return the lane of a session: what the client calls itself, and some letters."""
    name = "".join(c if c.isalnum() or c in "._-" else "-" for c in client.strip())
    return f"{name[:_NAME_CHARS].strip('-') or 'mcp'}-{letters.lower()}"


def _name(change: Change) -> SlotName:
    return change.scope, change.label
