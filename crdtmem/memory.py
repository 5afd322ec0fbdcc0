"""The memory: all slots of a store that one handle sees.

The straight line is short: a verb checks its arguments, opens the store's transaction,
makes one edit, and returns what was committed. Everything that writes is durable when
it returns.

What a plain read does not need is loaded when it is asked for: agents read at every
turn, each time in a new process.
"""

from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Literal, Self, TextIO

from crdtmem.arguments import (
    Request,
    checked_bool,
    checked_content,
    checked_count,
    checked_guard,
    checked_labels,
    checked_settings,
    checked_wait,
)
from crdtmem.editors import EditorVerbs
from crdtmem.errors import InvalidArgumentError, SlotNotFoundError
from crdtmem.limits import (
    AUDIT_PAGE_MAX,
    CHANGES_DEFAULT_MAX,
    CHANGES_MAX,
    CONTEXT_MAX_TOKENS,
    CONTEXT_MIN_TOKENS,
    CONTEXT_TOKENS,
    HISTORY_MAX_TEXTS,
    HISTORY_PAGE_MAX,
    UINT_MAX,
)
from crdtmem.models import (
    UNSET,
    AuditEntry,
    BackupReport,
    Change,
    ChangeFeed,
    CompactReport,
    ContextView,
    DeleteResult,
    DoctorReport,
    ExportReport,
    ImportReport,
    ProjectInfo,
    Scope,
    SlotView,
    StoreStatus,
    Unset,
    WriteResult,
)
from crdtmem.scope import parse_label, parse_lane, parse_scope, scope_of
from crdtmem.session import Place, Session
from crdtmem.sets.of_memory import SetVerbs
from crdtmem.slot import Slot
from crdtmem.store.slots import namespaces
from crdtmem.store.store import Store
from crdtmem.views import iso_time

if TYPE_CHECKING:
    from crdtmem.condense.values import CondenseArchive, DueSlot, PassInfo

__all__ = ["Memory"]


class Memory(SetVerbs, EditorVerbs):
    """A handle on a store, for one lane and one project.

    Made by ``crdtmem.open``. Safe from any thread: calls queue on one lock. A forked
    child may use it; it opens the store anew. Use it in a ``with`` block, or close it.

    """

    def __init__(self, session: Session) -> None:
        self._session = session

    @property
    def lane(self) -> str:
        """Who writes."""
        return self._session.lane

    @property
    def project(self) -> str:
        """The project id."""
        return self._session.project

    @property
    def path(self) -> Path:
        """The store's file."""
        return self._session.store.path

    @property
    def store(self) -> Store:
        """What lies beneath, for the drivers that sync and mirror."""
        return self._session.store

    def __repr__(self) -> str:
        return f"Memory({str(self.path)!r}, lane={self.lane!r})"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the store; every later call raises StoreClosedError. Idempotent."""
        self._session.close()

    def slots(
        self,
        scope: Scope | None = None,
        *,
        templates: bool = True,
        content: bool = True,
    ) -> list[SlotView]:
        """Return all live slots by label; a global one is left out where it is hidden.

        Args:
            scope: Only those of this scope.
            templates: Include default slots that nobody has written yet.
            content: Include the texts, which then count as seen.

        Raises:
            InvalidArgumentError: ``invalid-scope``.

        """
        from crdtmem.reading import slot_views  # noqa: PLC0415 - see the module

        wanted = parse_scope(scope, optional=True)
        checked_bool(templates, "templates")
        checked_bool(content, "content")
        return slot_views(self._session, wanted, templates=templates, content=content)

    def create(
        self,
        label: str,
        content: str = "",
        *,
        scope: Scope = "project",
        size_limit: int | None = None,
        description: str | Unset = UNSET,
        pinned: bool | Unset = UNSET,
        read_only: bool | Unset = UNSET,
        append_only: bool | Unset = UNSET,
        request_id: str | Unset = UNSET,
    ) -> WriteResult:
        """Make a slot, or make a deleted one anew; its history goes on then.

        Args:
            label: A letter, then letters, digits and "_", at most 64, in lower case.
            content: Its first text.
            scope: Where: in the project, or for all projects.
            size_limit: The most UTF-16 units that local writes may make of it; None
                means 2,000.
            description: What it is for.
            pinned: Whether it stands in the context that sessions start with.
            read_only: Refuse all local changes of the text.
            append_only: Refuse all of them but appends.
            request_id: Names this call, so that a repetition returns the first result.

        Raises:
            InvalidArgumentError: If an argument is malformed.
            SlotExistsError: If the label is taken in that scope.
            SizeLimitError: If the content is longer than the limit.

        """
        from crdtmem.creating import create_slot  # noqa: PLC0415 - see the module

        label = parse_label(label)
        place = self._session.place_of(
            label, parse_scope(scope, optional=True) or "project"
        )
        content = checked_content(content)
        meta = checked_settings(
            description=description,
            size_limit=UNSET if size_limit is None else size_limit,
            pinned=pinned,
            read_only=read_only,
            append_only=append_only,
        )
        request = self._request(
            "create", request_id, label=label, scope=scope, content=content, **meta
        )
        return create_slot(self._session, place, content, meta, request)

    def slot(self, label: str, scope: Scope | None = None) -> Slot:
        """Return a handle on a slot; it never changes its namespace.

        Without a scope the live project slot comes first, then the live global one,
        then a default slot of the project, then a global one; last a deleted slot,
        whose history can still be read and restored.

        Where there is none the handle's verbs raise SlotNotFoundError.

        Raises:
            InvalidArgumentError: ``invalid-label``, ``invalid-scope``.

        """
        label = parse_label(label)
        wanted = parse_scope(scope, optional=True)
        place = self._session.find_place(label, wanted, with_deleted=True)
        # A label without a slot is bound too: the verbs refuse it, after they have
        # looked at their arguments.
        place = place or self._session.place_of(label, wanted or "project")
        return Slot(self._session, place, wanted)

    def delete(
        self,
        label: str,
        scope: Scope | None = None,
        *,
        expected_rev: int | Unset = UNSET,
        expected_hash: str | Unset = UNSET,
        request_id: str | Unset = UNSET,
    ) -> DeleteResult:
        """Delete a slot; its text stays in the history and can be restored.

        Raises:
            InvalidArgumentError: If an argument is malformed.
            SlotNotFoundError: If there is no live slot of that label.
            SlotRefusedError: If it is read-only or append-only.
            ConflictError: If a guard does not hold.

        """
        from crdtmem.creating import delete_slot  # noqa: PLC0415 - see the module

        label = parse_label(label)
        wanted = parse_scope(scope, optional=True)
        guard = checked_guard(expected_rev, expected_hash)
        request = self._request(
            "delete", request_id, label=label, scope=wanted, guard=repr(guard)
        )
        return delete_slot(
            self._session,
            lambda: self._live_place(label, wanted),
            self._session.place_of(label, wanted or "project"),
            guard,
            request,
        )

    def rename(
        self, pairs: Sequence[tuple[str, str]], scope: Scope = "project"
    ) -> list[WriteResult]:
        """Rename slots in one transaction: all of them, or none.

        The text and the settings move to the new label; the history stays with the old
        one.

        Args:
            pairs: Old and new labels.
            scope: Where both are.

        Raises:
            InvalidArgumentError: If a label or the scope is malformed.
            SlotNotFoundError: If an old label has no live slot.
            SlotExistsError: If a new label is taken.

        """
        from crdtmem.creating import rename_slots  # noqa: PLC0415 - see the module

        named = [(parse_label(old), parse_label(new)) for old, new in pairs]
        where = parse_scope(scope, optional=True) or "project"
        return rename_slots(self._session, named, where)

    def delete_many(
        self, labels: Sequence[str], scope: Scope = "project"
    ) -> list[DeleteResult]:
        """Delete slots of one scope in one transaction: all of them, or none.

        Raises:
            InvalidArgumentError: If a label or the scope is malformed.
            SlotNotFoundError: If one of them is not there.
            SlotRefusedError: If one is read-only or append-only.

        """
        from crdtmem.creating import delete_slots  # noqa: PLC0415 - see the module

        named = checked_labels(labels)
        where = parse_scope(scope, optional=True) or "project"
        return delete_slots(self._session, named, where)

    def changes(
        self,
        since: str | None = None,
        *,
        limit: int = CHANGES_DEFAULT_MAX,
        scope: Scope | None = None,
        exclude_lane: str | None = None,
        wait: float = 0.0,
    ) -> ChangeFeed:
        """Return the slots that changed after a cursor, each once.

        Args:
            since: Where a former call ended; None for everything.
            limit: How many, 1 to 1,000; ``more`` tells that the cursor leads on.
            scope: Only those of this scope.
            exclude_lane: Leave out slots that only this lane has changed.
            wait: Seconds to wait for the first change, 0 to 60.

        Raises:
            InvalidArgumentError: If an argument is malformed; ``invalid-cursor``.

        """
        from crdtmem.feed import changes  # noqa: PLC0415 - see the module

        if since is not None and not isinstance(since, str):
            message = f"since must be a cursor, not {type(since).__name__}"
            raise InvalidArgumentError("since", message, code="invalid-cursor")
        limit = checked_count(limit, "limit", CHANGES_MAX)
        where = parse_scope(scope, optional=True)
        lane = None
        if exclude_lane is not None:
            lane = parse_lane(exclude_lane, "exclude_lane")
        return changes(
            self._session,
            since,
            limit=limit,
            scope=where,
            exclude_lane=lane,
            wait_s=checked_wait(wait),
        )

    def cursor(self) -> str:
        """Return the cursor of now, for changes."""
        from crdtmem.feed import current_cursor  # noqa: PLC0415 - see the module

        return current_cursor(self._session)

    def unread(self) -> list[Change]:
        """Return the slots that others changed since this lane last saw them."""
        from crdtmem.feed import unread  # noqa: PLC0415 - see the module

        return unread(self._session)

    def mark_seen(self) -> None:
        """Count all that unread returns as seen."""
        from crdtmem.feed import mark_all_seen  # noqa: PLC0415 - see the module

        mark_all_seen(self._session)

    def forget_seen(self) -> None:
        """Forget what this lane has seen: its next read of a slot is its first."""
        with self._session.reading():
            self._session.seen.forget()

    def context(
        self,
        budget_tokens: int = CONTEXT_TOKENS,
        *,
        style: Literal["tags", "headings"] = "tags",
        scope: Scope | None = None,
        labels: Sequence[str] | None = None,
    ) -> ContextView:
        """Return the pinned slots as one block of text for a session's start.

        Slots that are shown whole count as seen.

        Args:
            budget_tokens: The most the block may take, 64 to 200,000, at three UTF-16
                units a token.
            style: ``tags``, or ``headings`` for compatible readers.
            scope: Only slots of this scope.
            labels: These slots instead of the pinned ones.

        Raises:
            InvalidArgumentError: If an argument is malformed.

        """
        from crdtmem.reading import context_view  # noqa: PLC0415 - see the module

        checked_count(
            budget_tokens, "budget_tokens", CONTEXT_MAX_TOKENS, CONTEXT_MIN_TOKENS
        )
        if style not in ("tags", "headings"):
            message = f"style must be 'tags' or 'headings', not {style!r:.40}"
            raise InvalidArgumentError("style", message)
        where = parse_scope(scope, optional=True)
        wanted = None if labels is None else checked_labels(labels)
        return context_view(self._session, budget_tokens, style, where, wanted)

    def audit(
        self,
        *,
        label: str | None = None,
        scope: Scope | None = None,
        lane: str | None = None,
        before: int | None = None,
        limit: int = 100,
    ) -> list[AuditEntry]:
        """Return who changed what when, newest first, without the texts.

        Args:
            label: Only changes of this slot.
            scope: Only those of this scope.
            lane: Only those by this lane.
            before: Only those older than the entry of this id.
            limit: How many, 1 to 1,000.

        Raises:
            InvalidArgumentError: If an argument is malformed.

        """
        from crdtmem.feed import audit_entries  # noqa: PLC0415 - see the module

        return audit_entries(
            self._session,
            label=None if label is None else parse_label(label),
            scope=parse_scope(scope, optional=True),
            lane=None if lane is None else parse_lane(lane),
            before=None
            if before is None
            else checked_count(before, "before", UINT_MAX),
            limit=checked_count(limit, "limit", AUDIT_PAGE_MAX),
        )

    def export(
        self,
        target: Path | TextIO,
        *,
        scope: Scope | None = None,
        labels: Sequence[str] | None = None,
        history: bool = True,
    ) -> ExportReport:
        """Write slots, and items of memory sets, as JSON lines, all as of one moment.

        Args:
            target: A file, which is replaced as a whole, or a stream.
            scope: Only slots of this scope.
            labels: Only these slots, and no items.
            history: Include the kept texts of slots.

        """
        from crdtmem.transfer import export_slots  # noqa: PLC0415 - see the module

        return export_slots(
            self._session,
            target,
            scope=parse_scope(scope, optional=True),
            labels=None if labels is None else checked_labels(labels),
            history=history,
        )

    def import_(
        self,
        source: Path | TextIO,
        *,
        on_conflict: Literal["report", "append", "replace"] = "report",
        revive: bool = False,
        strict: bool = False,
        dry_run: bool = False,
    ) -> ImportReport:
        """Take in an export; a newer text here is never rolled back.

        All is read and checked before the first write; each slot, or set, is then one
        transaction. A second run changes nothing; items that differ stay as they are.

        Args:
            source: A file, or a stream.
            on_conflict: What to do with a slot whose texts have nothing in common, and
                with items that differ: only ``replace`` changes these.
            revive: Bring slots and items back that were deleted here.
            strict: Refuse a source with any bad record, before writing anything.
            dry_run: Report what would be done, and write nothing.

        Raises:
            ImportRefusedError: If the source is no export, or strict finds a fault.

        """
        from crdtmem.transfer import import_slots  # noqa: PLC0415 - see the module

        return import_slots(
            self._session,
            source,
            on_conflict=on_conflict,
            revive=revive,
            strict=strict,
            dry_run=dry_run,
        )

    def condense_due(self, *, scope: Scope | None = None) -> "list[DueSlot]":
        """Return for each live slot whether a condense pass would begin now, and why.

        Args:
            scope: Only slots of this scope.

        """
        from crdtmem.condense.due import due_slots  # noqa: PLC0415 - see the module

        return list(due_slots(self._session, parse_scope(scope, optional=True)))

    def condense_passes(
        self, *, label: str | None = None, state: str | None = None, limit: int = 50
    ) -> "list[PassInfo]":
        """Return the newest condense passes of the slots in sight, newest first.

        Args:
            label: Only of this slot.
            state: Only open, committed, aborted, expired or undone ones.
            limit: How many, 1 to 1,000.

        Raises:
            InvalidArgumentError: If an argument is malformed.

        """
        from crdtmem.condense.looking import pass_infos  # noqa: PLC0415 - see the module

        return pass_infos(
            self._session,
            None if label is None else parse_label(label),
            state,
            checked_count(limit, "limit", HISTORY_PAGE_MAX),
        )

    def condense_archive(self, pass_id: str) -> "CondenseArchive":
        """Return what a pass took out of its slot.

        Raises:
            CondensePassUnknownError: If no slot in sight has had such a pass. A pass of
                another store is not known where its slot came as a whole state.

        """
        from crdtmem.condense.looking import pass_archive  # noqa: PLC0415 - see the module

        return pass_archive(self._session, pass_id)

    def doctor(self, *, repair: bool = False, deep: bool = False) -> DoctorReport:
        """Examine the store; writes nothing unless repair is asked for.

        Args:
            repair: Mend what can be mended from what is here.
            deep: Let SQLite check every page, too.

        """
        from crdtmem.status import doctor_report  # noqa: PLC0415 - see the module

        return doctor_report(self.store, repair=repair, deep=deep)

    def compact(self) -> CompactReport:
        """Squash all records that the history window does not need."""
        from crdtmem.status import compact_report  # noqa: PLC0415 - see the module

        return compact_report(self.store)

    def backup(self, target: Path) -> BackupReport:
        """Copy the store as of one moment; the copy takes new ids when it is used."""
        from crdtmem.store.backup import backup  # noqa: PLC0415 - see the module

        size = backup(self.store, Path(target))
        return BackupReport(path=str(target), bytes=size)

    def projects(self) -> list[ProjectInfo]:
        """Return every project that has live slots in the store."""
        with self.store.reading() as connection:
            return [
                ProjectInfo(project=name, slots=count, updated_at=iso_time(newest))
                for name, count, newest in namespaces(connection)
                if scope_of(name) == "project"
            ]

    def status(self) -> StoreStatus:
        """Return where the store is, what it holds, and what to look after."""
        from crdtmem.status import store_status  # noqa: PLC0415 - see the module

        return store_status(self._session)

    def configure(self, *, history_keep: int) -> None:
        """Change settings of the store, for all who use it.

        Args:
            history_keep: Kept texts a slot, 1 to 1,000.

        """
        keep = checked_count(history_keep, "history_keep", HISTORY_MAX_TEXTS)
        with self.store.writing() as transaction:
            transaction.set_history_keep(keep)

    def _request(
        self, verb: str, request_id: object, **arguments: object
    ) -> Request | None:
        return Request.of(request_id, verb, project=self.project, **arguments)

    def _live_place(self, label: str, scope: Scope | None) -> Place:
        place = self._session.find_place(label, scope, with_deleted=False)
        if place is None:
            raise SlotNotFoundError(label=label, scope=scope)
        return place
