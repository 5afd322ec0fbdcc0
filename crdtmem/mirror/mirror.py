"""The mirror: a folder of Markdown files that follows slots, and that slots follow.

One slot is one file. Whatever a tool does to the file goes into the slot, whatever
happens to the slot is written to the file. What holds:

1. Bytes that a writer put into a mirrored file (by name, through a descriptor that it
   had opened before, or by a rename over it) reach the slot or ``rejected/``, once.
2. A file is never partly written under its name, and it is always there (but for
   microseconds where the system knows no exchange).
3. Nothing outside the folder is read or written.
4. Base, import and write of the slot are one transaction: a kill neither repeats nor
   loses an import.
5. The lines of one writer keep their order.

Below: ``comings`` (which files there are), ``visiting`` (one look at one file), and
what both are made of: ``importing``, ``binding``, ``writing``, ``draining``. It waits
for nothing: ``watching`` tells it when to look.
"""

import logging
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Literal, Self

from crdtmem.arguments import checked_bool
from crdtmem.errors import InvalidArgumentError
from crdtmem.headroom import free_units
from crdtmem.limits import MIRROR_NEVER_SETTLED_S, MIRROR_POLL_S, MIRROR_RETRY_S
from crdtmem.memory import Memory
from crdtmem.mirror.comings import Comings, Rules
from crdtmem.mirror.draining import Drain
from crdtmem.mirror.folder import STATE_NAME, MirrorFolder
from crdtmem.mirror.forms import Form, IndexForm, PlainForm
from crdtmem.mirror.importing import Importer
from crdtmem.mirror.index import INDEX_FILE, INDEX_LABEL, IndexEntry
from crdtmem.mirror.recovery import recover
from crdtmem.mirror.registry import hint_for, identify
from crdtmem.mirror.values import BlockedFile, MirrorReport, MirrorStatus
from crdtmem.mirror.visiting import Visitor
from crdtmem.mirror.writing import Writer
from crdtmem.model import UNSET, Unset
from crdtmem.models import Scope
from crdtmem.scope import namespace_of, parse_scope
from crdtmem.session import Session
from crdtmem.store.about import about_store
from crdtmem.store.mirrors import files_of
from crdtmem.store.rows import SlotRow
from crdtmem.store.slots import changed_since, find_slot, slots_of
from crdtmem.views import iso_time

if TYPE_CHECKING:
    import asyncio

__all__ = ["Mirror"]

_logger = logging.getLogger(__name__)

_NEVER = float("inf")
_MS = 1000
# Of one pass: lanes that write all the time do not keep it from ending.
_CYCLES_MAX = 100
# Beyond the time after which a file that never settles is taken in all the same.
_ONCE_S = MIRROR_NEVER_SETTLED_S + 5


class Mirror:
    """A folder of which this process is the one mirror, until it is closed.

    From one thread at a time. What was being done when an earlier one was killed is
    brought to an end before this one is there.

    Args:
        memory: Whose slots; its lane writes them. It stays the caller's to close.
        folder: The folder, which exists.
        scope: Of the slots.
        labels: Patterns, as of a shell, of the labels to mirror.
        profile: ``claude``: the file MEMORY.md ends in an index of the others.
        on_delete: ``restore``: a file that is deleted is written again, and its slot
            stays.
        create: Whether new files make slots.
        dry_run: Write nothing, anywhere: ``sync_once`` tells what it would do.
        clock: Seconds, never going back.
        wait: Sleeps for so many seconds.

    Attributes:
        folder: The folder, without links in its path.

    Raises:
        InvalidArgumentError: If an argument is malformed, or there is no such folder.
        MirrorBusyError: If another process mirrors the folder.
        MirrorUnsafeError: If files cannot be replaced safely there.
        StoreError: If the folder is on another machine or may not be written to, or the
            store cannot be used.

    """

    def __init__(
        self,
        memory: Memory,
        folder: os.PathLike[str] | str,
        *,
        scope: Scope = "project",
        labels: Sequence[str] = ("*",),
        profile: Literal["plain", "claude"] = "plain",
        on_delete: Literal["delete", "restore"] = "delete",
        create: bool = True,
        dry_run: bool = False,
        clock: Callable[[], float] = time.monotonic,
        wait: Callable[[float], object] = time.sleep,
    ) -> None:
        self._scope: Scope = parse_scope(scope, optional=True) or "project"
        self._rules = _rules(labels, profile, on_delete, create=create)
        self._is_dry = checked_bool(dry_run, "dry_run")
        self._clock = clock
        self._wait = wait
        self._session = Session(memory.store, memory.lane, memory.project)
        self._namespace = namespace_of(self._scope, memory.project)
        self._folder = MirrorFolder.open(folder, dry_run=dry_run)
        self.folder: Path = self._folder.path
        self._names: set[str] | None = None
        self._lsn = 0
        self._entries: tuple[tuple[int, int], list[IndexEntry]] = ((-1, -1), [])
        self._blocked: tuple[BlockedFile, ...] = ()
        self._published: tuple[BlockedFile, ...] | None = None
        self._publish_s = self._due_s = -_NEVER
        self._is_closed = False
        self._imported = self._written = 0
        self._is_over = False
        try:
            self._begin()
        except BaseException:
            self._folder.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    @property
    def watched(self) -> tuple[Path, ...]:
        """The folders in which files change: the folder, and the swapped-out files'."""
        return self.folder, self.folder / STATE_NAME / "swap"

    def close(self) -> None:
        """Let go of the folder; idempotent. What is swapped out waits for the next."""
        if not self._is_dry and not self._is_closed:
            self._show(is_running=False)
        self._is_closed = True
        self._folder.close()

    def sync_once(self) -> MirrorReport:
        """Bring files and slots in step, as far as they hold still, and return.

        Waits for a file that is being written, a few seconds at most.

        Raises:
            StoreError: If the store cannot be written; to be repeated.

        """
        if self._is_dry:
            return self._dry_report()
        began_s = self._clock()
        comings = self._comings
        comings.created = comings.deleted = comings.written = comings.imported = 0
        self._imported = self._written = self._drain.taken = 0
        self.note_events(None)
        for _ in range(_CYCLES_MAX):
            now_s = self._clock()
            self.cycle(now_s)
            due_s = now_s if self._is_behind() else self._work_s()
            if due_s == _NEVER or now_s - began_s > _ONCE_S:
                break
            if due_s > now_s:
                self._wait(due_s - now_s)
        return MirrorReport(
            imported=self._imported + comings.imported + self._drain.taken,
            written=self._written + comings.written,
            created=comings.created,
            deleted=comings.deleted,
            blocked=self._blocked,
            retired=len(self._drain),
            duration_ms=round((self._clock() - began_s) * _MS),
        )

    async def run(self, stop: "asyncio.Event | None" = None) -> None:
        """Keep files and slots in step until told to stop; see ``watching.run``."""
        # The watcher and its library are slow to load, and sync_once needs neither.
        from crdtmem.mirror.watching import run  # noqa: PLC0415 - see above

        await run(self, stop)

    def status(self) -> MirrorStatus:
        """Return how things stand."""
        return MirrorStatus(
            folder=str(self.folder),
            scope=self._scope,
            namespace=self._namespace,
            mirror=self._mirror,
            files=len(self._comings.files),
            retired=len(self._drain),
            blocked=self._blocked,
            is_running=True,
            pid=os.getpid(),
        )

    def note_events(self, names: set[str] | None) -> None:
        """Take note of files that may have changed: their names; None for all."""
        if names is None:
            self._names = None
        elif self._names is not None:
            self._names |= names

    def cycle(self, now_s: float) -> float:
        """Do what is due, and return after how many seconds something may be again.

        Without events and changes of slots that is a look at one row of the store.

        Args:
            now_s: The time, by the clock that this mirror was given.

        Raises:
            StoreError: If the store cannot be written; to be repeated.

        """
        if not self._is_intact(now_s):
            return MIRROR_RETRY_S
        if not self._poll_store(now_s) and self._is_idle(now_s):
            return max(0.0, min(self._due_s - now_s, MIRROR_POLL_S))
        # Whatever is raised from here on: the next cycle looks again.
        self._due_s = -_NEVER
        self._take_notes(now_s)
        self._comings.meet(now_s)
        gone = self._visit_due(now_s)
        self._comings.part(gone, now_s)
        self._comings.make(now_s)
        self._drain.run(now_s)
        self._publish(now_s)
        self._due_s = min(
            self._work_s(),
            self._relook_s(),
            self._drain.next_s(now_s),
            self._comings.make_s,
            _NEVER if self._published == self._blocked else self._publish_s,
        )
        return max(0.0, min(self._due_s - now_s, MIRROR_POLL_S))

    def _begin(self) -> None:
        """Find out who this is, and end what an earlier run has left undone."""
        if self._is_dry:
            found = self._folder.read_id()
            self._mirror = found[0] if found else ""
        else:
            self._mirror = identify(
                self._session,
                self._namespace,
                self._folder,
                self._session.store.clock_ms(),
            )
        self._importer = Importer(
            self._session,
            self._mirror,
            self._namespace,
            form_of=self._form_of,
            reject=self._folder.reject,
        )
        self._writer = Writer(self._importer, self._folder)
        self._drain = Drain(self._importer, self._folder)
        self._visitor = Visitor(self._importer, self._writer, self._drain, self._folder)
        self._comings = Comings(self._importer, self._writer, self._folder, self._rules)
        now_s = self._clock()
        if not self._is_dry:
            recover(self._importer, self._folder, self._writer)
        with self._session.store.reading() as connection:
            rows = files_of(connection, self._mirror)
        self._comings.load([(row.name, row.label) for row in rows], now_s)
        self._drain.load(now_s)

    def _is_intact(self, now_s: float) -> bool:
        """Tell whether the folder is what it was; if not, nothing in it means a thing.

        It was removed, moved, or hidden by a mount, or what a mirror keeps in it was.
        """
        if self._folder.is_intact():
            return True
        self._comings.guard(list(self._comings.files), now_s)
        self._blocked = (_blocked_file("", "", "mirror-mass-deletion"),)
        return False

    def _is_idle(self, now_s: float) -> bool:
        """Tell whether nothing has happened to files, and nothing is due."""
        return self._names == set() and not len(self._drain) and now_s < self._due_s

    def _poll_store(self, now_s: float) -> bool:
        """Follow the slots that have changed since the last look, if any has."""
        with self._session.store.reading() as connection:
            about = about_store(connection, str(self._session.store.path))
            if about.lsn == self._lsn:
                return False
            slots: list[SlotRow] = []
            if 0 < self._lsn < about.lsn:
                slots += changed_since(connection, self._lsn)
            else:
                # The first look, or at a store that was put back.
                slots += slots_of(connection, self._namespace)
        for slot in slots:
            if slot.namespace == self._namespace:
                self._drain.retry(slot.label)
                self._comings.follow(slot, now_s)
        if self._rules.has_index and INDEX_FILE in self._comings.files:
            self._comings.files[INDEX_FILE].touch(now_s)
        self._lsn = about.lsn
        return True

    def _is_behind(self) -> bool:
        """Tell whether slots have changed since the last look, by this mirror too."""
        with self._session.store.reading() as connection:
            about = about_store(connection, str(self._session.store.path))
        return about.lsn != self._lsn

    def _take_notes(self, now_s: float) -> None:
        names, self._names = self._names, set()
        if names is None:
            self._comings.scan(now_s)
            return
        for name in names:
            if os.sep not in name:
                self._comings.see(name, now_s)

    def _visit_due(self, now_s: float) -> list[str]:
        """Visit the bound files that are due; return those that are gone."""
        gone: list[str] = []
        for name, state in list(self._comings.files.items()):
            if min(state.due_s, state.relook_s) > now_s:
                continue
            visit = self._visitor.visit(name, state, now_s)
            self._imported += visit.imported
            self._written += visit.written
            if visit.fate == "gone":
                gone.append(name)
            elif visit.fate == "retired":
                self._comings.retire(name, now_s)
        return gone

    def _work_s(self) -> float:
        """Return when there is more to do with files, though nothing happens."""
        files = [
            state.due_s
            for state in self._comings.files.values()
            if state.reason not in ("swap-failed", "mirror-mass-deletion")
        ]
        fresh = [new.due_s for new in self._comings.fresh.values()]
        return min([*files, *fresh], default=_NEVER)

    def _relook_s(self) -> float:
        files = self._comings.files.values()
        return min(
            (min(state.relook_s, state.due_s) for state in files), default=_NEVER
        )

    def _publish(self, now_s: float) -> None:
        """Show what is blocked, if that has changed, where people look."""
        self._blocked = tuple(self._blocked_now())
        if self._blocked == self._published or now_s < self._publish_s:
            return
        if self._show(is_running=True):
            self._published = self._blocked
        else:
            self._publish_s = now_s + MIRROR_RETRY_S

    def _show(self, *, is_running: bool) -> bool:
        """Write what people look at; tell whether that was possible."""
        at = iso_time(self._session.store.clock_ms())
        status = self.status().replaced(is_running=is_running)
        try:
            self._folder.write_problems(_problems(self._blocked))
            self._folder.write_status({**status.to_dict(), "at": at})
        except OSError as exc:
            # The disk is full, mostly; what is to be told is no less true for that.
            _logger.warning("what is blocked in %s is not shown: %s", self.folder, exc)
            return False
        return True

    def _blocked_now(self) -> list[BlockedFile]:
        comings = self._comings
        found = [
            (name, state.label, state.reason) for name, state in comings.files.items()
        ]
        found += [
            (name, comings.label_of(name), new.reason)
            for name, new in comings.fresh.items()
            if new.reason
        ]
        found += [(name, label, "swap-failed") for label, name in comings.stuck.items()]
        found += [
            (held.row.name, held.row.label, held.reason) for held in self._drain.held
        ]
        unique = sorted({entry for entry in found if entry[2]})
        return [
            _blocked_file(name, label, reason, free=self._free(label, reason))
            for name, label, reason in unique
        ]

    def _free(self, label: str, reason: str) -> int | Unset:
        if reason != "size-limit-exceeded":
            return UNSET
        with self._session.store.reading() as connection:
            slot = find_slot(connection, self._namespace, label)
        return UNSET if slot is None else free_units(slot.size, slot.size_limit)

    def _form_of(self, name: str) -> Form:
        if self._rules.has_index and name == INDEX_FILE:
            return IndexForm(self._index_entries)
        return PlainForm()

    def _index_entries(self) -> list[IndexEntry]:
        """Return what the index links: the bound slots but its own."""
        with self._session.store.reading() as connection:
            lsn = about_store(connection, str(self._session.store.path)).lsn
            now = lsn, self._comings.version
            key, entries = self._entries
            if key != now:
                entries = [
                    IndexEntry(name, slot.label, slot.description, slot.updated_ms)
                    for slot in slots_of(connection, self._namespace)
                    if slot.label != INDEX_LABEL
                    and (name := self._comings.name_of(slot.label)) is not None
                ]
                self._entries = now, entries
        return entries

    def _dry_report(self) -> MirrorReport:
        from crdtmem.mirror.dry import dry_report  # noqa: PLC0415 - seldom asked for

        return dry_report(self._importer, self._folder, self._rules)


def _rules(
    labels: Sequence[str], profile: str, on_delete: str, *, create: bool
) -> Rules:
    if isinstance(labels, str) or not all(isinstance(one, str) for one in labels):
        message = "labels must be patterns such as ('plan_*',)"
        raise InvalidArgumentError("labels", message)
    for value, name, choices in (
        (profile, "profile", ("plain", "claude")),
        (on_delete, "on_delete", ("delete", "restore")),
    ):
        if value not in choices:
            message = (
                f"{name} must be {' or '.join(map(repr, choices))}, not {value!r:.40}"
            )
            raise InvalidArgumentError(name, message)
    return Rules(
        labels=tuple(labels),
        has_index=profile == "claude",
        restores=on_delete == "restore",
        creates=checked_bool(create, "create"),
    )


def _blocked_file(
    file: str, label: str, reason: str, *, free: int | Unset = UNSET
) -> BlockedFile:
    return BlockedFile(
        file=file, label=label, reason=reason, hint=hint_for(reason), free=free
    )


def _problems(blocked: Sequence[BlockedFile]) -> str | None:
    """Return what people are to read who look into the folder; None for nothing."""
    if not blocked:
        return None
    lines = ["These files and their slots are out of step:", ""]
    lines += [f"{one.file}: {one.reason}: {one.hint}" for one in blocked]
    return "\n".join([*lines, ""])
