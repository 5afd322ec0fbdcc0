"""One look at one bound file: what it holds goes into the slot, and the other way.

The order keeps a tool's lines in the order in which it wrote them: the live file is
read, then what was written to the files that it has replaced is read and merged, oldest
first, and then what was read of the live file is. A tool that went from an old one to
the live one had written all it wrote to the old one by then.
"""

from dataclasses import dataclass
from typing import Literal, NamedTuple

from crdtmem.errors import StoreError, UnreadableFileError
from crdtmem.limits import (
    MIRROR_RETRY_S,
    MIRROR_TICK_MS,
    MIRROR_UNFINISHED_S,
    MIRROR_WRITE_PAUSE_S,
)
from crdtmem.mirror.arrivals import Arrival, judge
from crdtmem.mirror.draining import Drain
from crdtmem.mirror.folder import FileStat, MirrorFolder
from crdtmem.mirror.importing import Importer, with_stat
from crdtmem.mirror.reading import UNSETTLED_NS
from crdtmem.mirror.writing import Writer
from crdtmem.store.mirrors import FileRow, require_file, save_file
from crdtmem.store.slots import find_slot

__all__ = ["FileState", "Visit", "Visitor"]

_NEVER = float("inf")
_ALWAYS = float("-inf")
# Until a change of a file would show in its times.
_TICK_S = 2 * MIRROR_TICK_MS / 1_000


@dataclass(slots=True)
class FileState:
    """What this process has seen of a bound file.

    Attributes:
        label: The slot.
        due_s: When to look at it; infinity for not before something happens.
        known: What it was when it was last found equal to its base, or blocked.
        is_touched: Whether its slot has changed since it was looked at.
        key: Inode, size and time when it was last read.
        changed_s: When that was first so.
        differs_s: Since when it has differed from its base.
        unfinished_s: Since when its last line, appended, has lacked its end.
        written_s: When it was last written here.
        reason: Why it is left alone.
        relook_s: When to see whether it is still what it was when it was read, where
            its times could not have told; infinity for never.
        is_failing: Whether people know that it cannot be written.

    """

    label: str
    due_s: float = _ALWAYS
    relook_s: float = _NEVER
    known: FileStat | None = None
    is_touched: bool = True
    key: tuple[int, int, int] | None = None
    changed_s: float = 0.0
    differs_s: float | None = None
    unfinished_s: float | None = None
    written_s: float = _ALWAYS
    reason: str = ""
    is_failing: bool = False

    def touch(self, at_s: float) -> None:
        """Have its slot looked at, too, from some time on."""
        self.is_touched = True
        self.due_s = min(self.due_s, at_s)


class Visit(NamedTuple):
    """What a visit has done.

    Attributes:
        imported: Whether the slot was changed.
        written: Whether the file was.
        fate: ``gone``: it has not been there for long enough. ``retired``: it was
            taken out because its slot is deleted. Else ``stays``.

    """

    imported: bool = False
    written: bool = False
    fate: Literal["stays", "gone", "retired"] = "stays"


class _Live(NamedTuple):
    """A file as it was read: no data where it was not there."""

    data: bytes | None
    stat: FileStat | None


class Visitor:
    """Looks at the bound files of one mirror.

    Args:
        importer: Takes files in.
        writer: Writes them.
        drain: Has those that were swapped out.
        folder: Where all are.

    """

    def __init__(
        self, importer: Importer, writer: Writer, drain: Drain, folder: MirrorFolder
    ) -> None:
        self._importer = importer
        self._writer = writer
        self._drain = drain
        self._folder = folder

    def visit(self, name: str, state: FileState, now_s: float) -> Visit:
        """Look at a file, and do what is due.

        Raises:
            StoreError: If the store cannot be written just now; to be repeated.

        """
        state.due_s = state.relook_s = _NEVER
        try:
            return self._visit(name, state, now_s)
        except StoreError:
            # Some are errors of the system, too: the store is busy, not the file.
            raise
        except UnreadableFileError as exc:
            stat = self._folder.stat(name)
            state.reason = self._importer.block(name, exc, None, stat).reason
            state.known = stat
        except OSError as exc:
            self._fail(name, state, now_s, exc)
        return Visit()

    def _visit(self, name: str, state: FileState, now_s: float) -> Visit:
        stat = self._folder.stat(name)
        is_same = stat is not None and stat == state.known
        if is_same and not state.is_touched:
            return Visit()
        row = self._row(name)
        if row.intent is not None:
            self._writer.recover(name)
            self._drain.load(now_s)
            row = self._row(name)
        if is_same and not state.reason:
            return self._slot_side(name, state, now_s)
        live = self._read(name, state, now_s)
        held = self._drain.run(now_s, name)
        arrival = self._judge(row, state, live, now_s)
        if arrival.again_s is not None:
            state.due_s = min(state.due_s, now_s + arrival.again_s)
        if arrival.kind == "gone":
            return Visit(fate="gone")
        if arrival.kind == "wait":
            return Visit()
        unripe_s = self._drain.unripe_s(name)
        if unripe_s is not None and arrival.kind not in ("append", "nothing"):
            state.due_s = min(state.due_s, unripe_s)
            return Visit()
        imported = self._take(row, state, live, arrival, held)
        self._note_end(state, arrival, now_s)
        if state.reason or arrival.again_s is not None:
            return Visit(imported)
        return self._slot_side(name, state, now_s)._replace(imported=imported)

    def _read(self, name: str, state: FileState, now_s: float) -> _Live:
        try:
            live = _Live(*self._folder.read(name))
        except FileNotFoundError:
            live = _Live(None, None)
        stat = live.stat
        key = None if stat is None else (stat.ino, stat.size, stat.mtime_ns)
        if key != state.key or (key is None and state.differs_s is None):
            state.key = key
            state.changed_s = now_s
        return live

    def _judge(
        self, row: FileRow, state: FileState, live: _Live, now_s: float
    ) -> Arrival:
        if live.data == row.base:
            state.differs_s = None
        elif state.differs_s is None:
            state.differs_s = now_s
        since_s = now_s if state.differs_s is None else state.differs_s
        return judge(
            row.base,
            live.data,
            unchanged_s=now_s - state.changed_s,
            changing_s=now_s - since_s,
        )

    def _take(
        self, row: FileRow, state: FileState, live: _Live, arrival: Arrival, held: str
    ) -> bool:
        """Import what has arrived; tell whether the slot has changed."""
        if arrival.kind == "nothing":
            self._note_same(row, state, live.stat)
            return False
        if held == "size-limit-exceeded":
            # What the same tool wrote before waits for room, so this does, too.
            state.reason, state.known = held, live.stat
            return False
        is_whole = arrival.data == live.data
        taken = self._importer.take(
            row.name, arrival.data, live.stat if is_whole else None
        )
        state.reason = taken.reason if taken.outcome == "blocked" else ""
        state.known = live.stat if is_whole else None
        if is_whole and not state.reason:
            state.differs_s = None
        if arrival.kind == "emptied" and not state.reason:
            self._importer.tell("mirror-emptied", row.name, row.label)
        return taken.outcome in ("merged", "stale")

    def _note_same(self, row: FileRow, state: FileState, stat: FileStat | None) -> None:
        """Note that a file is its base, whatever it was before."""
        state.reason, state.known = "", stat
        after = with_stat(row, stat)._replace(blocked="", blocked_by="")
        if after != row and _is_settled(stat):
            with self._importer.session.writing() as writing:
                save_file(writing.transaction.connection, after)

    def _note_end(self, state: FileState, arrival: Arrival, now_s: float) -> None:
        """Note whether the last line is one that its tool may go on with."""
        if arrival.kind == "append" and not arrival.data.endswith(b"\n"):
            if state.unfinished_s is None:
                state.unfinished_s = now_s
        elif arrival.kind != "nothing":
            state.unfinished_s = None
        if not _is_settled(state.known):
            state.relook_s = now_s + _TICK_S

    def _slot_side(self, name: str, state: FileState, now_s: float) -> Visit:
        """Bring the file up to its slot, if it is time."""
        session, label = self._importer.session, state.label
        with session.store.reading() as connection:
            slot = find_slot(connection, self._importer.namespace, label)
        if slot is None or slot.is_deleted:
            is_out = self._writer.retire(name)
            self._drain.load(now_s)
            if is_out:
                return Visit(fate="retired")
            state.touch(now_s)
            return Visit()
        plan = self._writer.plan(name)
        state.is_touched = False
        if plan is None:
            return Visit()
        not_before_s = state.written_s + MIRROR_WRITE_PAUSE_S
        if state.unfinished_s is not None:
            not_before_s = max(not_before_s, state.unfinished_s + MIRROR_UNFINISHED_S)
        if now_s < not_before_s:
            state.touch(not_before_s)
            return Visit()
        state.unfinished_s = None
        state.written_s = now_s
        state.known = None
        state.relook_s = now_s + _TICK_S
        is_written = self._writer.swap(plan)
        state.is_failing = False
        if not is_written:
            state.touch(now_s)
        self._drain.load(now_s)
        self._drain.run(now_s, name)
        return Visit(written=is_written)

    def _fail(self, name: str, state: FileState, now_s: float, exc: OSError) -> None:
        """Note that the system refuses, once, and try again later."""
        if not state.is_failing:
            state.is_failing = True
            self._importer.tell(
                "swap-failed", name, state.label, error=exc.strerror or str(exc)
            )
        state.reason = "swap-failed"
        state.known = None
        state.touch(now_s + MIRROR_RETRY_S)

    def _row(self, name: str) -> FileRow:
        with self._importer.session.store.reading() as connection:
            return require_file(connection, self._importer.mirror, name)


def _is_settled(stat: FileStat | None) -> bool:
    return stat is not None and stat.ctime_ns != UNSETTLED_NS
