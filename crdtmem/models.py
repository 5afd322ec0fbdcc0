"""What the verbs return: the JSON contract of every front end.

Frozen values without behaviour. ``to_dict`` gives the JSON form: camelCase names, and a
key whose value is absent (``UNSET``) left out rather than null.
"""

from typing import Literal

from crdtmem.model import UNSET, Model, Unset
from crdtmem.scope import Scope

__all__ = [
    "UNSET",
    "AuditEntry",
    "BackupReport",
    "BadRecord",
    "BlameLine",
    "Change",
    "ChangeFeed",
    "Commit",
    "CompactReport",
    "Conflict",
    "ContextSlot",
    "ContextView",
    "DeleteResult",
    "Diff",
    "DoctorCheck",
    "DoctorReport",
    "ExportReport",
    "Headroom",
    "History",
    "HistoryEntry",
    "ImportReport",
    "ImportedSet",
    "ImportedSlot",
    "LeaseStatus",
    "LineRange",
    "LineSpan",
    "LinkStatus",
    "Model",
    "ObservationStatus",
    "ProjectInfo",
    "Scope",
    "SlotView",
    "StoreStatus",
    "SyncAlarm",
    "SyncFault",
    "SyncStatus",
    "UndoResult",
    "Undone",
    "UndoneEntry",
    "Unseen",
    "UnsentWrites",
    "Unset",
    "WriteResult",
]


class Headroom(Model):
    """How full a slot is. Sizes are UTF-16 code units.

    Attributes:
        size: Length of the text.
        size_limit: The most that local writes may make of it.
        free: What is left, never negative.
        pct_used: Whole percent, rounded as JavaScript does.
        rev: Counts the commits that changed the text in this store.
        content_hash: First 16 hex digits of the text's SHA-256.
        warning: A sentence from 70 percent on.

    """

    size: int
    size_limit: int
    free: int
    pct_used: int
    rev: int
    content_hash: str
    warning: str | Unset = UNSET


class Unseen(Model):
    """What others changed in a slot since the lane last saw it."""

    since_rev: int
    commits: int
    lanes: tuple[str, ...]
    at: str | None


class LineRange(Model):
    """Which lines of how many a view holds, from 1, both ends included."""

    from_: int
    to: int
    total: int


LineSpan = tuple[int, int]
"""First and last line of a write's new text, from 1."""


class SlotView(Headroom):
    """A slot as its readers see it."""

    label: str
    scope: Scope
    content: str | Unset = UNSET
    description: str
    pinned: bool
    read_only: bool
    append_only: bool
    created_at: str | None
    updated_at: str | None
    template: bool | Unset = UNSET
    shadows: bool | Unset = UNSET
    quarantined: bool | Unset = UNSET
    unseen: Unseen | Unset = UNSET
    lines: LineRange | Unset = UNSET
    request_id: str | Unset = UNSET
    replayed: bool | Unset = UNSET


class Commit(Model):
    """One change of a slot, as far as its history names it."""

    lane: str
    at: str
    operation: str
    rev: int


class WriteResult(Headroom):
    """A slot after a write.

    Attributes:
        changed: Whether anything was committed.
        content: The committed text; None where a replay's text is no longer kept.
        durable: Whether it was on disk, past the caches, when the verb returned.
        history_id: Names the kept text from before the write.
        merged: The write was made on an older text and joined with later writes.
        diff: What a merge made of the caller's text.
        overwrote: What an unguarded replace wrote over without its lane having seen it.
        lines: First and last line of what an edit or insert put in.

    """

    label: str
    scope: Scope
    operation: str
    changed: bool
    content: str | None
    previous_size: int
    previous_rev: int
    durable: bool
    history_id: str | Unset = UNSET
    merged: bool | Unset = UNSET
    diff: str | Unset = UNSET
    overwrote: tuple[Commit, ...] | Unset = UNSET
    unseen: Unseen | Unset = UNSET
    lines: LineSpan | Unset = UNSET
    request_id: str | Unset = UNSET
    replayed: bool | Unset = UNSET


class UndoneEntry(Model):
    """The write that an undo took back."""

    id: str
    operation: str
    lane: str
    at: str
    rev: int


class UndoResult(WriteResult):
    """A slot after an undo; ``exact`` where no later write had to be kept."""

    undone: UndoneEntry
    exact: bool
    dry_run: bool | Unset = UNSET


class DeleteResult(Model):
    """A slot that has been deleted; its text is kept in the history."""

    label: str
    scope: Scope
    deleted: bool
    previous_size: int
    previous_rev: int
    rev: int
    history_id: str
    durable: bool
    uncovers: Literal["global"] | Unset = UNSET
    request_id: str | Unset = UNSET
    replayed: bool | Unset = UNSET


class Undone(Model):
    """Who took a write back, and when."""

    id: str
    lane: str
    at: str


class HistoryEntry(Model):
    """A kept text: the one before the write that the entry names."""

    id: str
    label: str
    scope: Scope
    at: str
    operation: str
    lane: str
    size: int
    rev: int
    content_hash: str
    preview: str
    undoable: bool
    undone: Undone | Unset = UNSET
    content: str | Unset = UNSET


class History(Model):
    """A slot's kept texts, newest first."""

    label: str
    scope: Scope
    entries: tuple[HistoryEntry, ...]
    current: Headroom
    more: bool


class Conflict(Model):
    """Why a guarded write was refused, and what the slot is now.

    Attributes:
        reason: ``rev``, ``hash``, ``both`` or ``ahead``: which guard did not hold.
        diff: From the caller's base to now; None where the base is not kept.
        changed_by: The commits after the base, newest last, at most 20.

    """

    reason: Literal["rev", "hash", "both", "ahead"]
    expected_rev: int | Unset = UNSET
    expected_hash: str | Unset = UNSET
    base_rev: int | Unset = UNSET
    diff: str | None
    diff_truncated: bool
    changed_by: tuple[Commit, ...]
    current: Headroom


class Diff(Model):
    """A unified diff between two kept texts; lines added and removed."""

    from_rev: int
    to_rev: int
    unified: str
    added: int
    removed: int
    truncated: bool


class BlameLine(Model):
    """Who wrote a line; lane and time are None where that is no longer known."""

    line: int
    text: str
    lane: str | None
    at: str | None
    replica: str | None
    others: tuple[str, ...]


class Change(Model):
    """A slot that changed, all its changes taken together."""

    label: str
    scope: Scope
    rev: int
    since_rev: int
    size: int
    content_hash: str
    at: str
    operation: str
    lanes: tuple[str, ...]
    deleted: bool | Unset = UNSET
    quarantined: bool | Unset = UNSET


class ChangeFeed(Model):
    """Changed slots, oldest change first, and where to go on."""

    changes: tuple[Change, ...]
    cursor: str
    more: bool
    reset: bool


class AuditEntry(Model):
    """One change, without its text."""

    id: int
    at: str
    lane: str
    replica: str
    operation: str
    label: str
    scope: Scope
    rev: int
    size_before: int
    size_after: int
    details: dict[str, object]


class ContextSlot(Model):
    """What a context shows of one slot."""

    label: str
    scope: Scope
    rev: int
    state: Literal["full", "trimmed", "omitted"]
    shown_lines: int
    total_lines: int


class ContextView(Model):
    """Pinned slots as one block of text within a budget of tokens."""

    text: str
    tokens: int
    budget: int
    slots: tuple[ContextSlot, ...]


class ExportReport(Model):
    """How much an export wrote; ``items`` are those of memory sets, if any."""

    slots: int
    history: int
    bytes: int
    items: int | Unset = UNSET


class ImportedSlot(Model):
    """What an import did with one slot; ``code`` where it was refused."""

    label: str
    scope: Scope
    action: str
    code: str | Unset = UNSET


class ImportedSet(Model):
    """What an import did with the items of one memory set.

    Attributes:
        set: Its name.
        partition: The long form of its partition key.
        scope: Where it is.
        action: ``created``, ``updated``, ``same`` or ``refused``.
        added: Items that were absent here.
        updated: Items that got the source's content.
        same: Items that are here, and equal.
        differing: Items that are here with other content, and were left alone.
        deleted: Items that were deleted here, and were left out.
        code: Why it was refused.

    """

    set: str
    partition: str
    scope: Scope
    action: str
    added: int
    updated: int
    same: int
    differing: int
    deleted: int
    code: str | Unset = UNSET


class BadRecord(Model):
    """A record of an import's source that was skipped."""

    line: int
    code: str
    reason: str


class ImportReport(Model):
    """What an import did, slot by slot and set by set, and what it could not read."""

    slots: tuple[ImportedSlot, ...]
    bad: tuple[BadRecord, ...]
    ignored: int
    truncated: bool
    dry_run: bool
    sets: tuple[ImportedSet, ...] | Unset = UNSET


class DoctorCheck(Model):
    """One finding of the doctor."""

    id: str
    status: Literal["ok", "warn", "fail", "fixed"]
    label: str | Unset = UNSET
    scope: Scope | Unset = UNSET
    message: str
    hint: str


class DoctorReport(Model):
    """All findings; ``ok`` where none of them failed."""

    ok: bool
    checks: tuple[DoctorCheck, ...]


class CompactReport(Model):
    """What squashing saved."""

    docs: int
    records_before: int
    records_after: int
    bytes_before: int
    bytes_after: int


class BackupReport(Model):
    """Where the copy lies and how large it is."""

    path: str
    bytes: int


class ProjectInfo(Model):
    """A project that has slots in the store."""

    project: str
    slots: int
    updated_at: str | None


class LeaseStatus(Model):
    """Which process syncs the store, if any does."""

    held: bool
    pid: int | None
    command: str | None
    since: str | None


class UnsentWrites(Model):
    """What a relay does not have yet."""

    writes: int
    bytes: int
    oldest_at: str | None


class SyncFault(Model):
    """What went wrong last; permanent until something is changed by hand."""

    code: str
    message: str
    at: str
    permanent: bool


class SyncAlarm(Model):
    """What must not happen, and did; stands until it is cleared."""

    code: str
    at: str
    detail: str


class LinkStatus(Model):
    """A link: how far it is, and what is in its way.

    Attributes:
        local: The namespace here: a project id, or ``global``.
        remote: What the relay calls it.
        url: Of the relay.
        state: Where the process that syncs it stands.
        since: Since when.
        cursor: Newest record of the relay that is applied here.
        head: Newest one that was heard of.
        lag: How many are missing.
        unsent: What the relay does not have.
        last_error: What went wrong last, until it goes well again.
        last_in_sync_at: When nothing was missing on either side.
        quarantined: Records that were refused.
        held: Slots for which records wait.
        blocked: Slots that the relay does not take.
        locked: Records that wait for a key.
        skipped: Records of kinds that this version leaves alone.
        alarms: Oldest first.

    """

    local: str
    remote: str
    url: str
    state: Literal["connected", "connecting", "waiting", "stopped", "no-lease"]
    since: str | None
    cursor: int
    head: int
    lag: int
    unsent: UnsentWrites
    last_error: SyncFault | None
    last_in_sync_at: str | None
    quarantined: int
    held: tuple[str, ...]
    blocked: tuple[str, ...]
    locked: int
    skipped: int
    alarms: tuple[SyncAlarm, ...]


class SyncStatus(Model):
    """Who syncs the store, and how far each link is."""

    lease: LeaseStatus
    links: tuple[LinkStatus, ...]


class ObservationStatus(Model):
    """Records of memory sets that wait to be drained from this handle, or are lost."""

    buffered: int
    dropped: int


class StoreStatus(Model):
    """The store and the handle.

    ``schema`` is the version of the file, ``schema_version`` that of this JSON.
    """

    path: str
    replica: str
    project: str
    project_source: str
    lane: str
    durability: Literal["full", "normal"]
    schema: int
    schema_version: int
    slots: int
    records: int
    bytes: int
    wal_bytes: int
    history_keep: int
    read_only: bool
    warnings: tuple[str, ...]
    sync: SyncStatus
    observations: ObservationStatus
