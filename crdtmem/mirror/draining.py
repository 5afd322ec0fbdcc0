"""Files that were swapped out, for as long as somebody may still write to them.

Each has the base that it had when it was swapped out. What differs from it was written
at the last moment before, or since, by a tool that has the file open: it is imported as
from any file. When the system says that nobody can write to one any more, it is read
for the last time and dropped.
"""

import logging
from dataclasses import dataclass
from typing import NamedTuple

from crdtmem.errors import StoreError
from crdtmem.limits import (
    MIRROR_GONE_S,
    MIRROR_NEVER_SETTLED_S,
    MIRROR_RETRY_S,
    MIRROR_SETTLE_S,
    RETIRED_BYTES,
    RETIRED_LOOK_S,
    RETIRED_MAX,
    RETIRED_UNLEASED_S,
)
from crdtmem.mirror.folder import FileStat, MirrorFolder
from crdtmem.mirror.importing import Importer
from crdtmem.mirror.leases import leased, writers_of
from crdtmem.mirror.texts import finished_part
from crdtmem.store.mirrors import (
    RetiredRow,
    delete_retired,
    require_retired,
    retired_of,
)

__all__ = ["Drain", "Held"]

_logger = logging.getLogger(__name__)

_ALL_BYTES = 1 << 40
_MS = 1000
_NEVER_TEXT = frozenset({"source-encoding-invalid", "text-too-large"})
"""Why bytes that nobody changes any more never become a text."""


class Held(NamedTuple):
    """A file that was swapped out and whose late lines no slot takes just now."""

    row: RetiredRow
    reason: str


@dataclass(slots=True)
class _Watched:
    """One of them, and what this process has seen of it.

    Attributes:
        row: What the store knows.
        since_s: When this process saw it first.
        stat: What it was when it was read; None before.
        changed_s: When that was first seen to be so.
        again_s: When to read it although it looks the same; None for never.
        asked_s: When the system was asked who has it open.
        is_being_saved: Whether it holds other content, which a tool may be about to
            write the rest of.
        differs_s: Since when it has held other content.
        refused: Bytes that the slot did not take, and why; until the slot changes.
        is_large: Whether people have been told.

    """

    row: RetiredRow
    since_s: float
    changed_s: float
    stat: FileStat | None = None
    again_s: float | None = None
    asked_s: float = float("-inf")
    is_being_saved: bool = False
    differs_s: float | None = None
    refused: tuple[bytes, str] | None = None
    is_large: bool = False

    @property
    def reason(self) -> str:
        """Why its late lines wait; empty if none do."""
        return self.refused[1] if self.refused else ""


class Drain:
    """The files of one mirror that were swapped out.

    Args:
        importer: Takes in what is written to them.
        folder: Where they lie.

    Attributes:
        taken: How many imports have changed a slot.

    """

    def __init__(self, importer: Importer, folder: MirrorFolder) -> None:
        self._importer = importer
        self._folder = folder
        self._watched: dict[int, _Watched] = {}
        self.taken = 0

    def __len__(self) -> int:
        return len(self._watched)

    @property
    def held(self) -> list[Held]:
        """Those whose late lines wait, with the reason."""
        return [Held(w.row, w.reason) for w in self._watched.values() if w.reason]

    def load(self, now_s: float) -> None:
        """Learn which there are; to be called after each swap."""
        with self._importer.session.store.reading() as connection:
            rows = retired_of(connection, self._importer.mirror)
        old = self._watched
        self._watched = {}
        for row in rows:
            watched = old.get(row.number) or _Watched(row, now_s, now_s)
            watched.row = row
            self._watched[row.number] = watched

    def retry(self, label: str) -> None:
        """Try those again that wait for a slot: it has changed."""
        for watched in self._watched.values():
            if watched.row.label == label and watched.refused is not None:
                watched.refused = None
                watched.again_s = float("-inf")

    def run(self, now_s: float, name: str | None = None) -> str:
        """Import what was written to them, oldest first, and drop those that are free.

        Args:
            now_s: The time, by a clock that never goes back.
            name: Only of this file; all if None.

        Returns:
            Why one of them waits, if one does: what came after it must wait as well.

        """
        reason = ""
        done: list[_Watched] = []
        for watched in list(self._watched.values()):
            if name is not None and watched.row.name != name:
                continue
            try:
                if self._look(watched, now_s):
                    done.append(watched)
            except StoreError:
                raise
            except OSError as exc:
                # One that cannot be read just now does not stop the others.
                _logger.warning("%s waits in swap/: %s", watched.row.swap_name, exc)
                watched.again_s = now_s + MIRROR_RETRY_S
            reason = reason or watched.reason
        self.drop([watched.row for watched in done])
        return reason

    def unripe_s(self, name: str) -> float | None:
        """Return when to look again at what a tool is still saving, if one is.

        What the tool saves under the file's name after it was made from that.
        """
        due_s = [
            watched.again_s
            for watched in self._watched.values()
            if watched.row.name == name and watched.is_being_saved
        ]
        return min((again_s for again_s in due_s if again_s is not None), default=None)

    def next_s(self, now_s: float) -> float:
        """Return when to look again, at the latest; infinity where there is none."""
        due_s = float("inf")
        for watched in self._watched.values():
            due_s = min(due_s, max(now_s, watched.asked_s) + RETIRED_LOOK_S)
            if watched.again_s is not None:
                due_s = min(due_s, watched.again_s)
        return due_s

    def drop(self, rows: list[RetiredRow]) -> None:
        """Drop the rows of files that are no more."""
        if not rows:
            return
        with self._importer.session.writing() as writing:
            for row in rows:
                delete_retired(writing.transaction.connection, row)
        for row in rows:
            self._watched.pop(row.number, None)

    def _look(self, watched: _Watched, now_s: float) -> bool:
        """Look at one of them; tell whether it is no more."""
        stat = self._folder.stat_swap(watched.row.swap_name)
        if stat is None:
            return True
        is_due = watched.again_s is not None and watched.again_s <= now_s
        if stat != watched.stat or is_due:
            self._read(watched, now_s)
        is_old = self._age_s(watched, now_s) >= MIRROR_GONE_S
        if is_old and now_s - watched.asked_s >= RETIRED_LOOK_S:
            watched.asked_s = now_s
            return self._drop_if_free(watched)
        return False

    def _read(self, watched: _Watched, now_s: float) -> None:
        swap_name = watched.row.swap_name
        with self._folder.open_swap(swap_name) as fd, leased(fd) as is_free:
            data, stat = self._folder.read_swap(swap_name, limit_bytes=_ALL_BYTES)
        if watched.stat is None or _content_key(stat) != _content_key(watched.stat):
            watched.changed_s = now_s
        watched.stat = stat
        self._warn_if_large(watched, stat)
        unchanged_s = now_s - watched.changed_s
        if data.startswith(watched.row.base):
            watched.differs_s = None
        elif watched.differs_s is None:
            watched.differs_s = now_s
        if data and (is_free or self._never_settles(watched, now_s)):
            # Saved whole, at the last moment before the swap: nobody is still at it.
            unchanged_s = MIRROR_GONE_S
        ready, again_s = _ripe(watched.row.base, data, unchanged_s)
        watched.again_s = None if again_s is None else now_s + again_s
        watched.is_being_saved = again_s is not None and not data.startswith(
            watched.row.base
        )
        if ready != watched.row.base:
            self._take(watched, ready)

    def _never_settles(self, watched: _Watched, now_s: float) -> bool:
        """Tell whether a tool rewrites one without a pause: then it is taken as it is.

        What is saved under the file's name must not wait for it for ever.
        """
        since_s = watched.differs_s
        return since_s is not None and now_s - since_s >= MIRROR_NEVER_SETTLED_S

    def _take(self, watched: _Watched, data: bytes) -> None:
        """Import some bytes, unless the slot has refused them and is as it was."""
        if watched.refused is not None and watched.refused[0] == data:
            return
        taken = self._importer.take_late(watched.row, data)
        if taken.outcome == "blocked":
            watched.refused = data, taken.reason
            return
        watched.refused = None
        self.taken += taken.outcome == "merged"
        with self._importer.session.store.reading() as connection:
            watched.row = require_retired(connection, watched.row.number)

    def _drop_if_free(self, watched: _Watched) -> bool:
        """Read one for the last time and remove it, if nobody can write to it."""
        swap_name = watched.row.swap_name
        with self._folder.open_swap(swap_name) as fd, leased(fd) as is_free:
            if is_free is False or (is_free is None and not self._is_given_up(watched)):
                return False
            data, _ = self._folder.read_swap(swap_name, limit_bytes=_ALL_BYTES)
            if data != watched.row.base:
                self._take(watched, data)
            if watched.refused is not None and not self._reject(watched, data):
                return False
            self.remove(watched)
        return True

    def remove(self, watched: _Watched) -> None:
        """Remove a file of which everything has been taken in."""
        self._folder.unlink_swap(watched.row.swap_name)

    def _reject(self, watched: _Watched, data: bytes) -> bool:
        """Keep elsewhere what will never be a text; False if it may yet be taken in."""
        if watched.reason not in _NEVER_TEXT:
            return False
        row, importer = watched.row, self._importer
        rejected = importer.reject(row.label, data.removeprefix(row.base))
        with importer.session.writing() as writing:
            importer.note(
                writing,
                "mirror-rejected",
                row.name,
                row.label,
                reason=watched.reason,
                rejected=rejected,
            )
        return True

    def _is_given_up(self, watched: _Watched) -> bool:
        """Tell whether to drop one although nobody can tell who has it open.

        It has not changed for a day, or there are too many of its name and of those it
        has been unchanged for longest.
        """
        row = watched.row
        now_ms = self._importer.session.store.clock_ms()
        mtime_ms = watched.stat.mtime_ns // 1_000_000 if watched.stat else now_ms
        changed_ms = max(row.at_ms, mtime_ms)
        same_name = [w for w in self._watched.values() if w.row.name == row.name]
        oldest = min(same_name, key=lambda w: (w.changed_s, w.row.number))
        is_quiet = now_ms - changed_ms >= RETIRED_UNLEASED_S * _MS
        if not is_quiet and not (len(same_name) > RETIRED_MAX and oldest is watched):
            return False
        with self._importer.session.writing() as writing:
            self._importer.note(writing, "mirror-retired-dropped", row.name, row.label)
        return True

    def _warn_if_large(self, watched: _Watched, stat: FileStat) -> None:
        if stat.size <= RETIRED_BYTES or watched.is_large:
            return
        watched.is_large = True
        row = watched.row
        with self._importer.session.writing() as writing:
            self._importer.note(
                writing,
                "mirror-retired-large",
                row.name,
                row.label,
                size=stat.size,
                pids=writers_of(stat.dev, stat.ino),
            )

    def _age_s(self, watched: _Watched, now_s: float) -> float:
        # A mirror that is run now and then has never seen one for long.
        now_ms = self._importer.session.store.clock_ms()
        age_s = (now_ms - watched.row.at_ms) / _MS
        return max(age_s, now_s - watched.since_s)


def _ripe(base: bytes, data: bytes, unchanged_s: float) -> tuple[bytes, float | None]:
    """Return what to import of a file, and after how long to look at it again."""
    if data == base:
        return base, None
    if not data.startswith(base):
        if unchanged_s >= MIRROR_GONE_S:
            return data, None
        return base, MIRROR_GONE_S - unchanged_s
    if unchanged_s >= MIRROR_SETTLE_S:
        return data, None
    ready = finished_part(data)
    again_s = None if ready == data else MIRROR_SETTLE_S - unchanged_s
    return (ready if len(ready) > len(base) else base), again_s


def _content_key(stat: FileStat) -> tuple[int, int]:
    return stat.size, stat.mtime_ns
