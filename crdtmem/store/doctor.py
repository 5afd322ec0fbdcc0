"""The doctor: what is wrong with a store, and its repair.

Each check looks on its own and survives what it finds: damage is a finding, and never
the end of the others. Without ``repair`` nothing is written, not even a quarantine mark
on a slot whose damage is found here first.
"""

import os
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeVar

import apsw

from crdtmem.errors import StoreCorruptError, StoreReadOnlyError
from crdtmem.headroom import percent_used, warning_for
from crdtmem.limits import (
    CLOCK_AHEAD_MS,
    DISK_FREE_BYTES,
    HISTORY_MAX_TEXTS,
    HISTORY_TEXTS,
)
from crdtmem.store.about import about_store
from crdtmem.store.editors import checked_editors
from crdtmem.store.indexing import (
    count_pending,
    empty_index,
    index_faults,
    index_pending,
)
from crdtmem.store.inspection import (
    DAMAGE,
    Problem,
    docs_in,
    inspect_slot,
    names_of,
    slot_of_doc,
)
from crdtmem.store.lock import Holder, is_locked, read_holder
from crdtmem.store.placement import check_modes, check_placement
from crdtmem.store.repair import quarantine_strays, repair_slot
from crdtmem.store.rows import SlotRow
from crdtmem.store.schema import APPLICATION_ID, MIGRATIONS, is_current
from crdtmem.store.set_doctor import inspect_set, names_of_set, repair_set, set_docs_in
from crdtmem.store.sets import set_of_doc
from crdtmem.store.store import Store

__all__ = ["Finding", "Status", "examine"]

Status = Literal["ok", "warn", "fail", "fixed"]
_Found = TypeVar("_Found")

REPAIR = "run 'crdtmem doctor --repair'"
BACKUP = "go back to a backup"
FULL_PERCENT = 90
SHOWN_FAULTS = 20


@dataclass(frozen=True, slots=True)
class Finding:
    """What a check found: one of the store, or one of a slot.

    Attributes:
        id: The check.
        status: ``fixed`` is what a repair has mended just now.
        namespace: Of the slot, if it is about one.
        label: Likewise.
        message: A sentence; no word of a text is in it.
        hint: What to do, or empty.

    """

    id: str
    status: Status
    namespace: str | None
    label: str | None
    message: str
    hint: str


def examine(
    store: Store, *, namespaces: Sequence[str] | None, repair: bool, deep: bool
) -> list[Finding]:
    """Examine a store, check by check; each gives at least one finding.

    Loads every document of the namespaces, a few milliseconds each. Slots are looked at
    one by one, so writers and checkpoints are never held up for long.

    Args:
        store: What to examine.
        namespaces: Only slots of these; None for all.
        repair: Mend what can be mended from what is here, a transaction a slot.
        deep: Let SQLite check every page, too.

    Raises:
        StoreClosedError: If the handle is closed.
        StoreReadOnlyError: If it is to repair and may not write.
        StoreError: If the file cannot be opened at all.

    """
    if repair and store.read_only:
        raise StoreReadOnlyError(path=str(store.path))
    with store.reading():
        pass
    examination = _Examination(store, namespaces, repairs=repair, is_deep=deep)
    # Its counter first: while that is behind, no transaction could write anything.
    by_check = {"identity": examination.guarded("identity", _identity)}
    examination.look_at_slots()
    for check, look in _CHECKS.items():
        by_check.setdefault(check, examination.guarded(check, look))
    return [finding for check in _CHECKS for finding in by_check[check]]


@dataclass(slots=True)
class _Examination:
    """What the checks share."""

    store: Store
    namespaces: Sequence[str] | None
    repairs: bool
    is_deep: bool
    rows: list[SlotRow] = field(default_factory=list)
    slot_findings: list[Finding] = field(default_factory=list)

    def guarded(
        self, check: str, look: Callable[["_Examination"], Iterator[Finding]]
    ) -> list[Finding]:
        """Return what a check finds, and what ended it, if anything did."""
        found: list[Finding] = []
        try:
            found.extend(look(self))
        except (*DAMAGE, OSError) as exc:
            found.append(_fail(check, f"the check could not be made: {exc}", BACKUP))
        return found

    def read(self, look: Callable[[apsw.Connection], _Found]) -> _Found:
        """Return what is found at one state of the store."""
        with self.store.snapshot() as connection:
            return look(connection)

    def look_at_slots(self) -> None:
        """Inspect every slot, and mend those that need it."""
        try:
            docs = self.read(lambda c: docs_in(c, self.namespaces))
        except DAMAGE as exc:
            message = f"the slots cannot be listed: {exc}"
            self.slot_findings.append(_fail("slot-text", message, BACKUP))
            return
        for doc in docs:
            self.slot_findings += self._look_at(doc)

    def _look_at(self, doc: int) -> list[Finding]:
        place: tuple[str | None, str | None] = (None, None)
        try:
            place = self.read(lambda c: names_of(c, doc)) or place
            problems = self.read(lambda c: inspect_slot(c, doc))
            found = [
                Finding(problem.check, "fail", *place, problem.message, REPAIR)
                for problem in problems
            ]
            if problems and self.repairs:
                found = self._mend(doc, place, problems)
            row = self.read(lambda c: slot_of_doc(c, doc))
        except DAMAGE as exc:
            found = [Finding("slot-text", "fail", *place, str(exc), BACKUP)]
            row = None
        if row is not None:
            # Texts of all slots at once would be too much to hold.
            self.rows.append(row._replace(file=""))
        return found

    def _mend(
        self, doc: int, place: tuple[str | None, str | None], problems: list[Problem]
    ) -> list[Finding]:
        try:
            with self.store.writing() as transaction:
                done = repair_slot(transaction, doc)
            # What is cached was made of the rows before.
            self.store.docs.pop(doc, None)
            left = self.read(lambda c: inspect_slot(c, doc))
        except DAMAGE as exc:
            return [
                Finding(
                    problem.check,
                    "fail",
                    *place,
                    f"{problem.message}; it could not be mended: {exc}",
                    BACKUP,
                )
                for problem in problems
            ]
        found = [
            Finding(problem.check, "fail", *place, problem.message, BACKUP)
            for problem in left
        ]
        found += [
            Finding(problem.check, "fixed", *place, f"{problem.message}: {done}", "")
            for problem in problems
            if problem not in left
        ]
        return found


def _ok(check: str, message: str) -> Finding:
    return Finding(check, "ok", None, None, message, "")


def _warn(check: str, message: str, hint: str) -> Finding:
    return Finding(check, "warn", None, None, message, hint)


def _fail(check: str, message: str, hint: str) -> Finding:
    return Finding(check, "fail", None, None, message, hint)


def _fixed(check: str, message: str) -> Finding:
    return Finding(check, "fixed", None, None, message, "")


def _sqlite(examination: _Examination) -> Iterator[Finding]:
    with examination.store.reading() as connection:
        if not examination.is_deep:
            pages = connection.pragma("page_count")
            yield _ok("sqlite", f"the file opens; it has {pages} pages")
            return
        # One of them looks at pages, the other at what refers to what.
        faults = [
            str(fault) for (fault,) in connection.execute("PRAGMA integrity_check")
        ]
        faults = [fault for fault in faults if fault != "ok"]
        faults += [
            f"row {row[1]} of {row[0]} refers to a row of {row[2]} that is not there"
            for row in connection.execute("PRAGMA foreign_key_check")
        ]
    for fault in faults[:SHOWN_FAULTS]:
        yield _fail("sqlite", fault, BACKUP)
    if not faults:
        yield _ok("sqlite", "every page is sound")


def _schema(examination: _Examination) -> Iterator[Finding]:
    with examination.store.reading() as connection:
        is_known = is_current(connection, str(examination.store.path))
        found = _tables(connection)
    wanted = apsw.Connection(":memory:")
    for migration in MIGRATIONS:
        wanted.execute(migration)
    differing = sorted({name for name, _ in found ^ _tables(wanted)})
    wanted.close()
    if differing:
        names = ", ".join(differing[:SHOWN_FAULTS])
        yield _fail(
            "schema", f"these tables are not as they were made: {names}", BACKUP
        )
    elif not is_known:
        yield _fail(
            "schema", "the version of the file is not that of its tables", BACKUP
        )
    else:
        yield _ok(
            "schema", f"schema {len(MIGRATIONS)} of application {APPLICATION_ID:x}"
        )


def _tables(connection: apsw.Connection) -> set[tuple[str, str]]:
    rows = connection.execute(
        "SELECT name, sql FROM sqlite_schema WHERE name NOT LIKE 'sqlite_%'"
    )
    return {(str(name), str(sql)) for name, sql in rows}


def _slot_text(examination: _Examination) -> Iterator[Finding]:
    yield from _of_slots(examination, "slot-text", "row, text, hash and records agree")


def _records(examination: _Examination) -> Iterator[Finding]:
    found = list(_of_slots(examination, "records", "every record is whole"))
    found += _strays(examination)
    with examination.store.reading() as connection:
        kept = connection.execute(
            "SELECT code, count(*) FROM quarantine GROUP BY code ORDER BY code"
        ).fetchall()
    for code, count in kept:
        message = f"{count} records are kept in quarantine ({code})"
        found.append(_warn("records", message, "nothing: they harm nothing there"))
    # An ok beside a fault of the whole store would contradict it.
    has_faults = any(finding.status == "fail" for finding in found)
    yield from (f for f in found if not (has_faults and f.status == "ok"))


def _strays(examination: _Examination) -> list[Finding]:
    with examination.store.reading() as connection:
        count = connection.execute(
            "SELECT count(*) FROM log WHERE doc NOT IN (SELECT doc FROM doc)"
        ).get
    if not count:
        return []
    message = f"{count} records are of no document"
    if not examination.repairs:
        return [_fail("records", message, REPAIR)]
    with examination.store.writing() as transaction:
        quarantine_strays(transaction)
    return [_fixed("records", f"{message}: they went into quarantine")]


def _history(examination: _Examination) -> Iterator[Finding]:
    found = list(_of_slots(examination, "history", "every rev that is kept is whole"))
    with examination.store.reading() as connection:
        doubled = connection.execute(
            "SELECT place & 0xffffffffff AS lsn FROM history GROUP BY lsn"
            " HAVING count(*) > 1"
        ).fetchall()
    if doubled:
        message = f"{len(doubled)} history ids name more than one text"
        found = [finding for finding in found if finding.status != "ok"]
        found.append(_fail("history", message, BACKUP))
    yield from found


def _of_slots(examination: _Examination, check: str, well: str) -> Iterator[Finding]:
    found = [each for each in examination.slot_findings if each.id == check]
    if any(finding.status == "fail" for finding in found):
        yield from found
        return
    yield from found
    if not found:
        yield _ok(check, f"{well} in {len(examination.rows)} slots")


def _limits(examination: _Examination) -> Iterator[Finding]:
    crowded = [
        row
        for row in examination.rows
        if not row.deleted and percent_used(row.size, row.size_limit) >= FULL_PERCENT
    ]
    for row in crowded:
        message = warning_for(row.size, row.size_limit) or "slot is full"
        hint = f"shorten it with 'crdtmem edit {row.label}', or raise its sizeLimit"
        yield Finding("limits", "warn", row.namespace, row.label, message, hint)
    if not crowded:
        yield _ok("limits", f"no slot is {FULL_PERCENT} % full")


def _set_versions(examination: _Examination) -> Iterator[Finding]:
    """Hold the rows of each memory set against its document."""
    docs = examination.read(lambda c: set_docs_in(c, examination.namespaces))
    found: list[Finding] = []
    for doc in docs:
        found += _look_at_set(examination, doc)
    yield from found
    if not any(finding.status == "fail" for finding in found):
        yield _ok("set-versions", f"rows and records agree in {len(docs)} memory sets")


def _look_at_set(examination: _Examination, doc: int) -> Iterator[Finding]:
    store = examination.store
    place = examination.read(lambda c: names_of_set(c, doc))
    problems = examination.read(lambda c: inspect_set(c, doc))
    done, hint = "", REPAIR
    if problems and examination.repairs:
        hint = BACKUP
        try:
            with store.writing() as transaction:
                done = repair_set(transaction, doc)
        except DAMAGE as exc:
            problems = [f"{one}; it could not be mended: {exc}" for one in problems]
        # What is cached was made of the rows before.
        store.docs.pop(doc, None)
        left = examination.read(lambda c: inspect_set(c, doc))
        for problem in problems if done else ():
            if problem not in left:
                message = f"{problem}: {done}"
                yield Finding("set-versions", "fixed", *place, message, "")
        problems = left if done else problems
    for problem in problems:
        yield Finding("set-versions", "fail", *place, problem, hint)
    row = examination.read(lambda c: set_of_doc(c, doc))
    if row is not None and row.foreign_count:
        message = f"{row.foreign_count} values are no versions of an item"
        hint = "nothing: they harm nothing there"
        yield Finding("set-versions", "warn", *place, message, hint)


def _editors(examination: _Examination) -> Iterator[Finding]:
    """Load the document of each slot's editors; a damaged one is begun anew."""
    rows = examination.read(lambda c: checked_editors(c, examination.namespaces))
    for namespace, label, fault, blocked in rows:
        if fault:
            hint = "open the slot in an editor: that begins another document"
            yield Finding("editors", "fail", namespace, label, fault, hint)
        elif blocked:
            message = f"what editors typed waits outside of the slot ({blocked})"
            hint = f"make room with 'crdtmem edit {label}', or let it be written"
            yield Finding("editors", "warn", namespace, label, message, hint)
    if not any(fault for _, _, fault, _ in rows):
        yield _ok("editors", f"the documents of the editors of {len(rows)} slots agree")


def _search(examination: _Examination) -> Iterator[Finding]:
    """Hold the search index against the texts; it is made of them, and can be anew."""
    store = examination.store
    try:
        faults = examination.read(index_faults)
    except StoreCorruptError as exc:
        faults = [f"the index cannot be read: {exc}"]
    if not faults:
        with store.reading() as connection:
            pending = count_pending(connection)
        yield _ok("search", f"the index is that of the texts; {pending} are pending")
        return
    message = f"the search index differs from the texts: {faults[0]}"
    if len(faults) > 1:
        message += f", and {len(faults) - 1} more"
    if not examination.repairs:
        yield _fail("search", message, REPAIR)
        return
    with store.indexing(store.busy_timeout_s) as connection:
        empty_index(connection)
    index_pending(store, sys.maxsize, wait_s=store.busy_timeout_s)
    yield _fixed("search", f"{message}: made anew")


def _clock(examination: _Examination) -> Iterator[Finding]:
    now_ms = examination.store.clock_ms()
    ahead = [
        row for row in examination.rows if row.updated_ms > now_ms + CLOCK_AHEAD_MS
    ]
    for row in ahead:
        minutes = (row.updated_ms - now_ms) // 60_000
        message = f"its newest change is dated {minutes} minutes from now"
        hint = "check the clock of this machine; order does not depend on it"
        yield Finding("clock", "warn", row.namespace, row.label, message, hint)
    if not ahead:
        yield _ok("clock", "no change is dated in the future")


def _lock(examination: _Examination) -> Iterator[Finding]:
    path = examination.store.lock.path
    if not is_locked(path):
        yield _ok("lock", "nobody holds the write lock")
        return
    yield _of_holder(read_holder(path))


def _of_holder(holder: Holder | None) -> Finding:
    if holder is None:
        return _warn("lock", "an unknown process holds the write lock", "")
    name = f"process {holder.pid} ({holder.command})"
    if _is_alive(holder.pid):
        return _ok("lock", f"{name} holds the write lock")
    hint = "run 'crdtmem doctor' again; a child of that process may hold it still"
    return _warn("lock", f"{name}, which held the write lock last, has ended", hint)


def _is_alive(pid: int) -> bool:
    if sys.platform == "win32":  # pragma: no cover - signal 0 is Ctrl-C there
        return True
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        # Another user's; or a number that no process has, as the file may say anything.
        return pid < 1 << 31
    return True


def _disk(examination: _Examination) -> Iterator[Finding]:
    yield _of_free_space(shutil.disk_usage(examination.store.path.parent).free)


def _of_free_space(free_bytes: int) -> Finding:
    message = f"{free_bytes // 2**20} MiB are free"
    if free_bytes < DISK_FREE_BYTES:
        hint = "free some space; 'crdtmem compact' frees a little"
        return _warn("disk", message, hint)
    return _ok("disk", message)


def _identity(examination: _Examination) -> Iterator[Finding]:
    store = examination.store
    with store.reading() as connection:
        about = about_store(connection, str(store.path))
        newest = connection.execute(
            "SELECT max((SELECT coalesce(max(lsn), 0) FROM audit),"
            " (SELECT coalesce(max(lsn), 0) FROM slot))"
        ).get
    faults = []
    if about.lsn < newest:
        faults.append(f"its counter stands at {about.lsn}, and its log at {newest}")
    if not 1 <= about.history_keep <= HISTORY_MAX_TEXTS:
        faults.append(f"it is to keep {about.history_keep} texts a slot")
    if len(about.replica) != len(bytes(16)):
        faults.append(f"its replica id has {len(about.replica)} bytes")
    for fault in faults:
        if not examination.repairs:
            yield _fail("identity", fault, REPAIR)
    if faults and examination.repairs:
        with store.writing() as transaction:
            transaction.take_new_ids()
            transaction.connection.execute(
                "UPDATE store SET lsn = max(lsn, :newest), history_keep ="
                " CASE WHEN history_keep BETWEEN 1 AND :most THEN history_keep"
                " ELSE :keep END",
                {"newest": newest, "most": HISTORY_MAX_TEXTS, "keep": HISTORY_TEXTS},
            )
        for fault in faults:
            yield _fixed("identity", f"{fault}: set right, under new ids")
    elif not faults and about.context != store.context:
        message = "the file was copied or moved, or the machine restarted"
        yield _warn("identity", message, "nothing: its next write takes new ids")
    elif not faults:
        yield _ok(
            "identity", f"replica {about.replica.hex()} lies where it has written"
        )


def _filesystem(examination: _Examination) -> Iterator[Finding]:
    store = examination.store
    check_placement(store.path)
    check_modes(store.path, writable=not store.read_only)
    yield _ok("filesystem", "a local disk, and nobody else may write there")


def _durability(examination: _Examination) -> Iterator[Finding]:
    store = examination.store
    with store.reading() as connection:
        journal = connection.pragma("journal_mode")
    if journal != "wal":
        message = f"the file is in journal mode {journal}, and not in wal"
        yield _fail("durability", message, BACKUP)
    elif store.durability == "normal":
        message = "a power cut may take back the newest writes (durability normal)"
        yield _warn("durability", message, "open the store with durability full")
    else:
        yield _ok("durability", "a write that returned is on disk")


_CHECKS: dict[str, Callable[[_Examination], Iterator[Finding]]] = {
    "sqlite": _sqlite,
    "schema": _schema,
    "slot-text": _slot_text,
    "records": _records,
    "history": _history,
    "set-versions": _set_versions,
    "editors": _editors,
    "limits": _limits,
    "search": _search,
    "clock": _clock,
    "lock": _lock,
    "disk": _disk,
    "identity": _identity,
    "filesystem": _filesystem,
    "durability": _durability,
}
