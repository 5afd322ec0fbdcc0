"""Files and slots that come and go while a mirror runs: who is bound to whom.

A new file makes a slot, a new slot makes a file; a file that is gone takes its slot
along, unless so many are gone that it looks like an accident.
"""

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import NamedTuple

from crdtmem.errors import StoreError, UnreadableFileError
from crdtmem.limits import (
    MASS_DELETION_FILES,
    MASS_DELETION_PCT,
    MIRROR_GONE_S,
    MIRROR_NEVER_SETTLED_S,
    MIRROR_RETRY_S,
    MIRROR_SETTLE_S,
)
from crdtmem.mirror.binding import Binder
from crdtmem.mirror.folder import FileStat, MirrorFolder
from crdtmem.mirror.importing import Importer
from crdtmem.mirror.index import INDEX_FILE, INDEX_LABEL
from crdtmem.mirror.names import (
    file_name_for,
    is_conflict_copy,
    is_label,
    is_mirrored_name,
    label_for,
)
from crdtmem.mirror.visiting import FileState
from crdtmem.mirror.writing import Writer
from crdtmem.store.mirrors import find_file_of_inode
from crdtmem.store.rows import SlotRow
from crdtmem.store.slots import find_slot

__all__ = ["Comings", "NewFile", "Rules"]

_NEVER = float("inf")
_ALWAYS = float("-inf")
_PCT = 100
_NS = 1_000_000_000


class Rules(NamedTuple):
    """What a mirror was asked for.

    Attributes:
        labels: Patterns of the labels that are mirrored.
        has_index: Whether one file holds an index of the others.
        restores: Whether a file that is gone is written again.
        creates: Whether slots are made from new files.

    """

    labels: Sequence[str] = ("*",)
    has_index: bool = False
    restores: bool = False
    creates: bool = True

    def match(self, label: str) -> bool:
        """Tell whether a slot is mirrored."""
        return any(fnmatchcase(label, pattern) for pattern in self.labels)


@dataclass(slots=True)
class NewFile:
    """A file that is bound to no slot yet.

    Attributes:
        since_s: When it was seen first.
        due_s: When to look at it; infinity for not before something happens.
        key: What it was when it was read.
        changed_s: When that was first so.
        reason: Why it is left alone.

    """

    since_s: float
    due_s: float = _ALWAYS
    key: tuple[int, int, int] | None = None
    changed_s: float = 0.0
    reason: str = ""


class Comings:
    """The files of one mirror, bound and new.

    Args:
        importer: Knows the slots.
        writer: Makes files.
        folder: Has them.
        rules: What is mirrored.

    Attributes:
        files: The bound ones.
        fresh: Those that are not bound yet.
        stuck: Slots whose file cannot be made just now, with its name.
        make_s: When to try that again; infinity where there are none.
        version: Changes with the names and labels that are bound.
        created: How many slots were made.
        deleted: How many were deleted.
        written: How many files were made.

    """

    def __init__(
        self, importer: Importer, writer: Writer, folder: MirrorFolder, rules: Rules
    ) -> None:
        self._importer = importer
        self._binder = Binder(importer)
        self._writer = writer
        self._folder = folder
        self._rules = rules
        self.files: dict[str, FileState] = {}
        self.fresh: dict[str, NewFile] = {}
        self._names: dict[str, str] = {}
        self._wanted: set[str] = set()
        self._told: set[str] = set()
        self._is_mass = False
        self.make_s = _NEVER
        self.stuck: dict[str, str] = {}
        self.version = 0
        self.created = self.deleted = self.written = self.imported = 0

    def load(self, rows: Iterable[tuple[str, str]], now_s: float) -> None:
        """Take over the names and labels that the store knows."""
        for name, label in rows:
            self._bind(name, label, now_s)

    def name_of(self, label: str) -> str | None:
        """Return the file of a slot."""
        return self._names.get(label)

    def label_of(self, name: str, *, besides: str = "") -> str:
        """Return the label that a file is to be bound to."""
        if self._rules.has_index and name == INDEX_FILE:
            return INDEX_LABEL
        taken = self._names.keys() - {besides}
        if self._rules.has_index:
            taken |= {INDEX_LABEL}
        return label_for(name, taken)

    def scan(self, now_s: float) -> None:
        """Look at all that lies in the folder."""
        names = self._folder.names()
        for name in names:
            self.see(name, now_s)
        for name in self.files.keys() - set(names):
            self.see(name, now_s)

    def see(self, name: str, now_s: float) -> None:
        """Look at a file: something has happened to it."""
        state = self.files.get(name)
        if state is not None:
            state.due_s = min(state.due_s, now_s)
        elif is_mirrored_name(name):
            new = self.fresh.setdefault(name, NewFile(now_s))
            new.due_s = min(new.due_s, now_s)
        elif is_conflict_copy(name) and name not in self._told:
            self._told.add(name)
            self._importer.tell("mirror-conflict-copy", name, "")

    def follow(self, slot: SlotRow, now_s: float) -> None:
        """Take note of a slot that has changed."""
        if not is_label(slot.label):
            if slot.label not in self._told:
                self._told.add(slot.label)
                self._importer.tell("mirror-bad-label", "", slot.label)
            return
        name = self._names.get(slot.label)
        if name is not None:
            self.files[name].touch(now_s)
        elif not slot.is_deleted and self._rules.match(slot.label):
            self._wanted.add(slot.label)

    def meet(self, now_s: float) -> None:
        """Bind the new files that are due."""
        for name, new in list(self.fresh.items()):
            if new.due_s > now_s:
                continue
            new.due_s = _NEVER
            try:
                is_new = self._meet(name, new, now_s)
            except StoreError:
                raise
            except FileNotFoundError:
                is_new = False
            except OSError:
                new.due_s = now_s + MIRROR_RETRY_S
                continue
            if not is_new:
                self.fresh.pop(name, None)
                self._want(self.label_of(name), now_s)

    def part(self, names: Sequence[str], now_s: float) -> None:
        """Delete the slots of files that are gone, or have them written again."""
        if not names:
            return
        missing = [name for name in self.files if self._folder.stat(name) is None]
        share = len(self.files) * MASS_DELETION_PCT / _PCT
        if len(missing) > max(MASS_DELETION_FILES, share):
            self.guard(missing, now_s)
            return
        self._is_mass = False
        for name in names:
            self._part(name, now_s)

    def guard(self, names: Sequence[str], now_s: float) -> None:
        """Delete and restore nothing: more is missing than anybody takes away."""
        if not self._is_mass:
            self._importer.tell("mirror-mass-deletion", "", "", files=len(names))
        self._is_mass = True
        for name in names:
            state = self.files[name]
            state.reason, state.known = "mirror-mass-deletion", None
            state.due_s = now_s + MIRROR_RETRY_S

    def retire(self, name: str, now_s: float) -> None:
        """Forget a file that was taken out of the folder."""
        label = self._unbind(name)
        self._want(label, now_s)

    def make(self, now_s: float) -> None:
        """Make the files of slots that have none."""
        if self._lacks_index():
            self._binder.make(INDEX_FILE, INDEX_LABEL)
            self._wanted.add(INDEX_LABEL)
        self._wanted -= self._names.keys()
        if not self._wanted or (self.stuck and now_s < self.make_s):
            return
        names = self._folder.names()
        unbound = {
            self.label_of(name): name
            for name in names
            if name not in self.files and is_mirrored_name(name)
        }
        self.stuck, self.make_s = {}, _NEVER
        for label in sorted(self._wanted):
            if label in unbound:
                # Its file has come by itself; the two are bound once it is settled.
                if unbound[label] not in self.fresh:
                    self.see(unbound[label], now_s)
            elif not self._make(label, names, now_s):
                continue
            self._wanted.discard(label)

    def _meet(self, name: str, new: NewFile, now_s: float) -> bool:
        """Look at a new file; tell whether it still is one."""
        try:
            data, stat = self._folder.read(name)
        except UnreadableFileError as exc:
            self._refuse(name, new, exc.code)
            return True
        key = (stat.ino, stat.size, stat.mtime_ns)
        if key != new.key:
            new.key, new.changed_s, new.reason = key, now_s, ""
        label = self.label_of(name)
        if not self._rules.match(label):
            return False
        if self._follow_rename(name, label, stat, now_s):
            return False
        settled_s = MIRROR_SETTLE_S if data else MIRROR_GONE_S
        unchanged_s = max(now_s - new.changed_s, _age_s(stat))
        is_late = bool(data) and now_s - new.since_s >= MIRROR_NEVER_SETTLED_S
        if unchanged_s < settled_s and not is_late:
            new.due_s = now_s + settled_s - unchanged_s
            return True
        return self._contact(name, label, new, (data, stat), now_s)

    def _contact(
        self,
        name: str,
        label: str,
        new: NewFile,
        found: tuple[bytes, FileStat],
        now_s: float,
    ) -> bool:
        is_known = self._slot(label) is not None
        if not is_known and not self._rules.creates:
            return False
        taken = self._binder.bind(name, label, *found)
        if taken.outcome == "blocked":
            self._refuse(name, new, taken.reason)
            return True
        self.created += not is_known
        self.imported += taken.outcome == "merged"
        self._bind(name, label, now_s)
        return False

    def _follow_rename(
        self, name: str, label: str, stat: FileStat, now_s: float
    ) -> bool:
        """Rename a slot whose file has this name now; tell whether that is so."""
        importer = self._importer
        with importer.session.store.reading() as connection:
            row = find_file_of_inode(connection, importer.mirror, stat.dev, stat.ino)
        if row is None or row.intent:
            return False
        if self._folder.stat(row.name) is not None:
            return False
        label = self.label_of(name, besides=row.label)
        if not self._binder.rename(row.name, name, label):
            return False
        self._unbind(row.name)
        self._bind(name, label, now_s)
        return True

    def _refuse(self, name: str, new: NewFile, reason: str) -> None:
        if new.reason != reason:
            self._importer.tell(reason, name, self.label_of(name))
        new.reason = reason

    def _part(self, name: str, now_s: float) -> None:
        state = self.files[name]
        if self._rules.restores:
            self._binder.forget(name)
            self._want(self._unbind(name), now_s)
            return
        removed = self._binder.remove(name)
        if removed.reason:
            state.reason = removed.reason
            return
        label = self._unbind(name)
        self.deleted += removed.is_deleted
        if removed.is_restored:
            self._want(label, now_s)

    def _lacks_index(self) -> bool:
        return (
            self._rules.has_index
            and self._rules.match(INDEX_LABEL)
            and INDEX_LABEL not in self._names
            and INDEX_FILE not in self.fresh
            and self._slot(INDEX_LABEL) is None
        )

    def _make(self, label: str, names: Sequence[str], now_s: float) -> bool:
        """Make a slot's file; tell whether there is no more to do about it."""
        slot = self._slot(label)
        if slot is None or slot.is_deleted:
            # Since it was noted.
            return True
        taken = {*names, *self.files}
        name = file_name_for(label, slot.description, taken)
        if self._rules.has_index and label == INDEX_LABEL:
            name = INDEX_FILE
        try:
            is_made = self._writer.create(slot, name)
        except StoreError:
            raise
        except OSError as exc:
            self._fail(label, name, now_s, exc)
            return False
        self._told.discard(f"{label}/")
        if is_made:
            self.written += 1
            self._bind(name, label, now_s)
        else:
            self.see(name, now_s)
        return True

    def _fail(self, label: str, name: str, now_s: float, exc: OSError) -> None:
        self.stuck[label] = name
        self.make_s = now_s + MIRROR_RETRY_S
        if f"{label}/" not in self._told:
            self._told.add(f"{label}/")
            error = exc.strerror or str(exc)
            self._importer.tell("swap-failed", name, label, error=error)

    def _slot(self, label: str) -> SlotRow | None:
        importer = self._importer
        with importer.session.store.reading() as connection:
            return find_slot(connection, importer.namespace, label)

    def _want(self, label: str, now_s: float) -> None:
        slot = self._slot(label)
        if slot is not None:
            self.follow(slot, now_s)

    def _bind(self, name: str, label: str, now_s: float) -> None:
        self.files[name] = FileState(label, due_s=now_s)
        self._names[label] = name
        self._change_index()

    def _unbind(self, name: str) -> str:
        label = self.files.pop(name).label
        del self._names[label]
        self._change_index()
        return label

    def _change_index(self) -> None:
        self.version += 1
        if self._rules.has_index and INDEX_FILE in self.files:
            self.files[INDEX_FILE].touch(_ALWAYS)


def _age_s(stat: FileStat) -> float:
    """Return for how long a file has been as it is, by the system's clock."""
    return (time.time_ns() - max(stat.mtime_ns, stat.ctime_ns)) / _NS
