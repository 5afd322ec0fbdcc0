"""A room: the editors of one slot here, and all that the store does for them.

One task does the store's work, one call after the other: updates that came while the
last commit ran go into the next one together. What is committed is sent to everybody,
its sender too, for whom the echo is the acknowledgement.
"""

import asyncio
import json
import logging
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeVar

from crdtmem.aio import AsyncMemory
from crdtmem.errors import (
    CrdtmemError,
    OtherIncarnationError,
    StoreBusyError,
    StoreFullError,
)
from crdtmem.limits import (
    AWARENESS_OUT_S,
    EDITOR_PAUSE_S,
    EDITOR_WINDOW_ROWS,
    FOLD_MOVED_S,
    FOLD_QUIET_S,
    FOLD_TYPED_S,
    SERVE_CHECK_S,
)
from crdtmem.protocol.editors import (
    Awareness,
    AwarenessEntry,
    Close,
    UpdateOffered,
)
from crdtmem.views import headroom_of

if TYPE_CHECKING:
    from crdtmem.gateway import Accepted, Editing, Look, Offer

__all__ = ["Member", "Room"]

_LOGGER = logging.getLogger(__name__)
_BUSY = Close(1013, "store-busy")
_OTHER = Close(4409, "other-incarnation")
_GONE = Close(4404, "slot-not-found")

_T = TypeVar("_T")


class Member(Protocol):
    """A connection, as its room sees it."""

    lane: str
    since: str

    def settled(self, update: UpdateOffered, code: str, state_vector: bytes) -> None:
        """Learn what became of an update."""

    def hear(self, entries: list[AwarenessEntry]) -> None:
        """Learn what others tell of themselves."""

    def end(self, close: Close) -> None:
        """End the connection."""

    def ring(self) -> None:
        """Learn that there are new rows."""

    def is_welcome(self) -> bool:
        """Tell whether it still would be let in."""


class _Waiting(NamedTuple):
    """An update that waits for its commit."""

    member: Member
    update: UpdateOffered
    offer: "Offer"


class Room:
    """The editors of one slot.

    Args:
        memory: The project's.
        editing: What they share.
        clock: The time in seconds.

    Attributes:
        anchor: The id under which the room tells of itself.
        members: Who is there.
        awareness: What they tell of themselves.
        idle_s: Since when nobody is there.
        is_over: Whether the slot or its document has ended; nobody else may come in.

    """

    def __init__(
        self,
        memory: AsyncMemory,
        editing: "Editing",
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.anchor = editing.anchor
        self.members: set[Member] = set()
        self.awareness = Awareness()
        self.idle_s = clock()
        self.is_over = False
        self._memory = memory
        self._editing = editing
        self._clock = clock
        self._rows: deque[tuple[int, bytes]] = deque(maxlen=EDITOR_WINDOW_ROWS)
        self._n = 0
        self._queue: list[_Waiting] = []
        self._look: Look | None = None
        self._bell = asyncio.Event()
        self._typed_s: float | None = None
        self._last_s = 0.0
        self._accepted_s = 0.0
        self._folded_s = clock() - FOLD_MOVED_S
        self._tried: tuple[object, ...] | None = None
        self._word = ""
        self._word_s = 0.0
        # Above that of a room before this one, of this server or one before it.
        self._word_clock = time.time_ns() // 1_000_000
        self._task: asyncio.Task[None] | None = None

    @property
    def unfolded(self) -> int:
        """How many rows the slot lacks."""
        return 0 if self._look is None else self._look.unfolded

    @property
    def blocked(self) -> str:
        """Why what was typed cannot become part of the slot; or empty."""
        return "" if self._look is None else self._look.blocked

    async def begin(self) -> None:
        """Look at the document, and start to work."""
        await self._see()
        await self._follow_if_due()
        self._task = asyncio.create_task(self._work())

    async def close(self) -> None:
        """Fold what was typed and stop; members have been told."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        with suppress(CrdtmemError):
            await self._accept()
            await self._fold()

    async def state_vector(self) -> bytes:
        """Return what the document has."""
        return await self._call(self._editing.state_vector)

    async def diff(self, state_vector: bytes) -> tuple[int, bytes]:
        """Return the newest row, and what is missing up to it."""
        return await self._call(lambda: self._editing.diff(state_vector))

    def rows_after(self, n: int) -> list[tuple[int, bytes]] | None:
        """Return the newest rows after one; None: they are too many, ask for a diff."""
        if n >= self._n:
            return []
        if not self._rows or self._rows[0][0] > n + 1:
            return None
        return [row for row in self._rows if row[0] > n]

    def offer(self, member: Member, update: UpdateOffered, *, may_write: bool) -> None:
        """Put an update into the next commit."""
        # Loads documents, which no page needs: the first editor has brought it in.
        from crdtmem.gateway import Offer  # noqa: PLC0415 - see above

        offer = Offer(member.lane, update.update, update.is_first, may_write)
        self._queue.append(_Waiting(member, update, offer))
        self._bell.set()

    def tell(self, entries: list[AwarenessEntry], by: Member | None = None) -> None:
        """Tell everybody else what somebody tells of himself."""
        for member in self.members:
            if member is not by and entries:
                member.hear(entries)

    def words(self) -> list[AwarenessEntry]:
        """Return what everybody tells of himself, the room too."""
        # Who was here before takes no word twice.
        self._word_clock += 1
        return [*self.awareness.all(), self._own_word()]

    def wake(self) -> None:
        """Look at the store soon: something was committed somewhere."""
        self._bell.set()

    def leave(self, member: Member) -> None:
        """Let a member go; the last one's text is folded."""
        self.members.discard(member)
        self.tell(self.awareness.leave(member))
        if not self.members:
            self.idle_s = self._clock()
            self._bell.set()

    async def _work(self) -> None:
        while not self.is_over:
            with suppress(TimeoutError):
                async with asyncio.timeout(self._pause_s()):
                    await self._bell.wait()
            self._bell.clear()
            try:
                await self._turn()
            except OtherIncarnationError:
                self._end(_OTHER)
            except (StoreBusyError, StoreFullError) as exc:
                _LOGGER.warning("editors of a slot wait: %s", exc.code)
                await asyncio.sleep(FOLD_MOVED_S)
                self._bell.set()
            except Exception:
                # Who opens a slot whose document is damaged begins another one.
                _LOGGER.exception("the editors of a slot cannot go on")
                self._end(_BUSY)

    def _end(self, close: Close) -> None:
        self.is_over = True
        self._end_all(close)

    async def _turn(self) -> None:
        await self._accept()
        await self._see()
        await self._follow_if_due()
        if self._is_fold_due():
            await self._fold()
        look = self._look
        if look is not None and look.slot is None and not look.unfolded:
            self._end(_GONE)
        self._check_members()

    async def _accept(self) -> None:
        while self._queue:
            due_s = self._accepted_s + EDITOR_PAUSE_S * len(self.members)
            await asyncio.sleep(max(0.0, due_s - self._clock()))
            self._accepted_s = self._clock()
            waiting, self._queue = self._queue, []
            offers = [each.offer for each in waiting]
            try:
                found = await self._call(partial(self._editing.accept, offers))
                vector = await self.state_vector()
            except (StoreBusyError, StoreFullError):
                for each in waiting:
                    each.member.end(_BUSY)
                return
            if any(each.code == "" for each in found):
                self._last_s = self._clock()
            await self._see()
            self._settle(waiting, found, vector)

    def _settle(
        self, waiting: list[_Waiting], found: "list[Accepted]", vector: bytes
    ) -> None:
        for each, result in zip(waiting, found, strict=True):
            each.member.settled(each.update, result.code, vector)

    async def _see(self) -> None:
        """Read what is new, and ring for those who are to have it."""
        look = await self._call(self._editing.look)
        if look.n > self._n:
            rows = await self._call(lambda: self._editing.since(self._n))
            if rows is None:
                self._rows.clear()
                self._n = look.n
            else:
                self._rows += rows
                self._n = rows[-1][0] if rows else self._n
            for member in self.members:
                member.ring()
        self._look = look
        now = self._clock()
        if not look.unfolded:
            self._typed_s = None
        elif self._typed_s is None:
            self._typed_s = now
            self._last_s = max(self._last_s, now - FOLD_QUIET_S)
        self._say()

    async def _follow_if_due(self) -> None:
        look = self._look
        if look is None or look.slot is None or look.unfolded:
            return
        if look.slot.rev != look.rev and look.slot.quarantined is None:
            await self._call(self._editing.follow)
            await self._see()

    def _is_fold_due(self) -> bool:
        look = self._look
        if look is None or not look.unfolded or self._typed_s is None:
            return False
        if self._tried == _sides(look):
            return False
        return self._clock() >= self._due_s(look) or not self.members

    def _due_s(self, look: "Look") -> float:
        due = min(self._last_s + FOLD_QUIET_S, (self._typed_s or 0.0) + FOLD_TYPED_S)
        is_moved = look.slot is None or look.slot.rev != look.rev
        return min(due, self._folded_s + FOLD_MOVED_S) if is_moved else due

    async def _fold(self) -> None:
        before = _sides(self._look)
        found = await self._call(self._editing.fold)
        self._folded_s = self._clock()
        await self._see()
        self._tried = None
        if found.blocked and found.blocked.startswith("store-"):
            self._typed_s = self._last_s = self._clock()
        elif found.blocked:
            # Tried again when either side has changed since it was looked at.
            self._tried = before

    def _pause_s(self) -> float:
        look = self._look
        if look is None or not look.unfolded or self._tried is not None:
            return SERVE_CHECK_S
        return min(SERVE_CHECK_S, max(0.005, self._due_s(look) - self._clock()))

    def _check_members(self) -> None:
        for member in list(self.members):
            if not member.is_welcome():
                member.end(Close(4401, "unauthorized"))
        self.tell(self.awareness.expire(self._clock()))
        if self._clock() >= self._word_s + AWARENESS_OUT_S:
            self._say(is_due=True)

    def _say(self, *, is_due: bool = False) -> None:
        """Tell the members how full the slot is, if that has changed or is due."""
        word = json.dumps(self._own_state(), ensure_ascii=False)
        if word == self._word and not is_due:
            return
        self._word, self._word_s = word, self._clock()
        self._word_clock += 1
        self.tell([self._own_word()])

    def _own_word(self) -> AwarenessEntry:
        return AwarenessEntry(self.anchor, self._word_clock, self._word or "{}")

    def _own_state(self) -> dict[str, object]:
        look = self._look
        shown: dict[str, object] = {}
        if look is not None and look.slot is not None:
            full = headroom_of(look.slot).to_dict()
            names = ("rev", "size", "sizeLimit", "free", "pctUsed", "warning")
            shown = {name: full[name] for name in names if name in full}
        if self.blocked:
            shown["blocked"] = self.blocked
        return {"user": {"name": "crdtmem"}, "crdtmem": shown}

    def _end_all(self, close: Close) -> None:
        for member in list(self.members):
            member.end(close)

    async def _call(self, step: Callable[[], _T]) -> _T:
        return await self._memory.call(lambda _: step())


def _sides(look: "Look | None") -> tuple[object, ...]:
    """Return what a fold depends on."""
    slot = None if look is None else look.slot
    return look and look.n, slot and slot.lsn, slot and slot.quarantined
