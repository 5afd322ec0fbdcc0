"""One write to one slot, in the order in which its checks are promised.

A verb of Slot reads as a list of these steps:

    write.replayed      a call that was made before returns its first result
    write.live_slot     the slot exists, is undamaged, and takes this kind of write
    write.unchanged     the wanted text already is the text
    write.require       the caller's guard holds
    write.commit        the size fits; edit, record, history, one commit

Each refusal leaves text, rev, history and audit as they were.
"""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

from crdtmem.arguments import Guard, Request
from crdtmem.doc.blame import Author
from crdtmem.doc.delta import Delta, Splice, apply_delta
from crdtmem.doc.rebase import merge_delta
from crdtmem.doc.text_form import append_splice, file_of, units_of, view_of
from crdtmem.doc.trace import Trace
from crdtmem.errors import (
    ConflictError,
    DocError,
    RequestIdReusedError,
    RevNotKeptError,
    SizeLimitError,
    SlotNotFoundError,
    SlotRefusedError,
)
from crdtmem.headroom import fits
from crdtmem.limits import SHOWN_COMMITS_MAX
from crdtmem.models import (
    UNSET,
    Commit,
    Conflict,
    Model,
    UndoneEntry,
    Unseen,
    Unset,
    WriteResult,
)
from crdtmem.scope import scope_of
from crdtmem.session import Place, Session, Writing, others_since
from crdtmem.store.documents import blame_of
from crdtmem.store.history import entries_of, entry_of_rev
from crdtmem.store.log import checkpoint_lsn
from crdtmem.store.requests import StoredRequest, find_request, keep_request
from crdtmem.store.rows import EntryRow, SlotRow
from crdtmem.store.slots import empty_slot, find_slot
from crdtmem.store.write import Change
from crdtmem.textdiff import diff_lines, unified
from crdtmem.views import commits_of, headroom_fields, headroom_of, iso_time

_ResultT = TypeVar("_ResultT", bound=Model)

__all__ = ["SlotWrite", "append_delta", "line_delta", "slot_write"]


def line_delta(file: str, content: str) -> Delta:
    """Return the change of a file to the one of a view, in whole lines."""
    ops = diff_lines(file, file_of(content))
    return tuple(Splice(*op) for op in ops)


def append_delta(file: str, text: str) -> Delta:
    """Return the change that appends a text, on lines of its own.

    Where a blank last line goes, the text is put in behind it, not in front: appends
    made elsewhere on the same text stand behind it too, and those of each lane stay
    together.
    """
    start_chars, end_chars, insert = append_splice(file, text)
    if start_chars == end_chars:
        return (Splice(start_chars, end_chars, insert),)
    end = Splice(end_chars, end_chars, insert)
    return Splice(start_chars, end_chars, ""), end


@contextmanager
def slot_write(
    session: Session, place: Place, request: Request | None
) -> Iterator["SlotWrite"]:
    """Give one slot's write in a transaction; what it commits is durable at the end.

    Raises:
        RequestIdReusedError: If the request's id names another call.
        StoreError: If the lock was not had, or the store cannot be written.

    """
    with session.writing() as writing:
        write = SlotWrite(session, writing, place, request)
        write.look_up_request()
        yield write


@dataclass(slots=True)
class SlotWrite:
    """The write of one slot; see the module for the order of its steps.

    Attributes:
        session: Whose write it is.
        writing: The transaction.
        place: Which slot.
        request: The call's name, if it has one.
        replayed: The first result of a call that was made before.
        row: The slot before the write; set by live_slot.

    """

    session: Session
    writing: Writing
    place: Place
    request: Request | None
    replayed: dict[str, Any] | None = None
    row: SlotRow = field(init=False)

    def look_up_request(self) -> None:
        """Find the first result of this call, if it was made before."""
        if self.request is None:
            return
        connection = self.writing.transaction.connection
        stored = find_request(connection, self.request.request_id)
        if stored is None:
            return
        if stored.fingerprint != self.request.fingerprint:
            raise RequestIdReusedError(
                request_id=self.request.request_id, verb=stored.verb
            )
        self.replayed = _revived(json.loads(stored.result))
        if "content" in self.replayed:
            # Of the slot that was written then: its label may mean another one now.
            label, scope = self.replayed["label"], self.replayed["scope"]
            place = self.session.place_of(label, scope)
            self.replayed["content"] = self._text_at(place, self.replayed["rev"])

    def live_slot(
        self,
        *,
        is_append: bool = False,
        is_meta: bool = False,
        may_be_deleted: bool = False,
    ) -> SlotRow:
        """Return the slot, if it takes this write.

        Raises:
            SlotNotFoundError: If it is deleted, or was never made.
            SlotQuarantinedError: If a record of it is damaged.
            SlotRefusedError: If it is read-only, or append-only and this no append.

        """
        found = self.writing.transaction.slot(self.place.namespace, self.place.label)
        row = found or self.session.template(self.place)
        if row is None or (row.is_deleted and not may_be_deleted):
            raise SlotNotFoundError(label=self.place.label)
        self.row = row
        if is_meta:
            return row
        if row.read_only:
            raise SlotRefusedError(label=row.label)
        if row.append_only and not is_append:
            raise SlotRefusedError(label=row.label, code="slot-append-only")
        return row

    def require(self, guard: Guard) -> None:
        """Demand that the slot still is what the caller read.

        Raises:
            ConflictError: If it is not; carries the diff from then to now.

        """
        has_rev = guard.expected_rev in (UNSET, self.row.rev)
        has_hash = isinstance(guard.expected_hash, Unset) or self.row.hash.startswith(
            guard.expected_hash
        )
        if has_rev and has_hash:
            return
        raise ConflictError(
            label=self.row.label,
            conflict=self._conflict(guard, has_rev=has_rev, has_hash=has_hash),
        )

    def merge(self, base_rev: int, content: str) -> Delta:
        """Return the change that makes a caller's change of an older text.

        Raises:
            RevNotKeptError: If that text, or what was written since, is not kept.

        """
        base, trace = self.trace_from(base_rev)
        return merge_delta(trace, base, file_of(content))

    def trace_from(self, base_rev: int) -> tuple[str, Trace]:
        """Return the text of a rev, and what was written since laid over it.

        Raises:
            RevNotKeptError: If one of them is not kept.

        """
        if base_rev == self.row.rev:
            return self.row.file, Trace(self.row.file)
        entry = self.base_entry(base_rev)
        trace = self.writing.transaction.trace(self.row, entry)
        if trace.text() != self.row.file:
            raise self._not_kept(base_rev, "pruned")
        return entry.file, trace

    def plain_slot(self) -> SlotRow:
        """Return the slot as it is without records, with its template's settings."""
        place = self.place
        return empty_slot(place.namespace, place.label, self.writing.transaction.now_ms)

    def base_entry(self, base_rev: int) -> EntryRow:
        """Return the history entry that holds the text of a rev, for a merge.

        Raises:
            RevNotKeptError: If there is none, or the slot was deleted since.

        """
        connection = self.writing.transaction.connection
        if base_rev > self.row.rev:
            raise self._not_kept(base_rev, "ahead")
        entries = entries_of(connection, self.row.doc) if self.row.doc else []
        since = [entry for entry in entries if entry.rev >= base_rev]
        if any(entry.operation in ("delete", "create") for entry in since):
            raise self._not_kept(base_rev, "recreated")
        entry = entry_of_rev(connection, self.row.doc, base_rev)
        if entry is None or entry.is_imported:
            raise self._not_kept(base_rev, "pruned")
        if entry.first_lsn <= checkpoint_lsn(connection, self.row.doc):
            raise self._not_kept(base_rev, "pruned")
        return entry

    def commit(self, operation: str, delta: Delta, **shown: Any) -> WriteResult:
        """Write the change, keep the result for a repetition, and return it.

        Args as for apply.

        Raises:
            SizeLimitError: If the text would be longer than the slot allows.

        """
        return self.finish(self.apply(operation, delta, **shown))

    def apply(
        self,
        operation: str,
        delta: Delta,
        *,
        meta: Mapping[str, object] | None = None,
        details: Mapping[str, object] | None = None,
        undoes: frozenset[int] | None = None,
        undone_place: int | None = None,
        note: str | None = None,
        **shown: Any,
    ) -> WriteResult:
        """Write the change and return the slot after it.

        Args:
            operation: Its name.
            delta: The change of the text.
            meta: Settings to set in the same edit.
            details: For the audit row.
            undoes: The steps of the log that this write takes back.
            undone_place: The history entry that it takes back.
            note: What the record tells other stores besides, as JSON.
            shown: More fields of the result.

        Raises:
            SizeLimitError: If the text would be longer than the slot allows.

        """
        before = self.row
        self.require_size(apply_delta(before.file, delta), operation)
        change = Change(
            operation=operation,
            lane=self.session.lane,
            delta=delta,
            meta=self.settings(meta),
            undoes=undoes,
            undone_place=undone_place,
            details=details or {},
            note=note,
        )
        unseen = self.unseen()
        row, entry = self.write(change)
        shown["history_id"] = entry.id if entry else UNSET
        self.note_seen(row, unseen)
        return self.result(operation, row, unseen=unseen, **shown)

    def write(self, change: Change) -> tuple[SlotRow, EntryRow | None]:
        """Hand the change to the store."""
        before = self.row if self.row.doc else None
        place = self.place
        return self.writing.transaction.write_slot(
            before, place.namespace, place.label, change
        )

    def unchanged(self, operation: str, **shown: Any) -> WriteResult:
        """Return the result of a call whose wanted text already is the text."""
        unseen = self.unseen()
        return self.finish(
            self.result(operation, self.row, changed=False, unseen=unseen, **shown)
        )

    def require_size(self, file: str, operation: str) -> None:
        """Demand that a text fits, or at least shrinks.

        Raises:
            SizeLimitError: If it does not.

        """
        size = units_of(view_of(file))
        if not fits(size, self.row.size, self.row.size_limit):
            raise SizeLimitError(
                label=self.row.label,
                size=size,
                limit=self.row.size_limit,
                is_append=operation == "append",
                current=headroom_of(self.row).to_dict(),
            )

    def unseen(self) -> Unseen | Unset:
        """Return what others changed since the lane last saw the slot."""
        since = self.session.seen.revs.get(self.place)
        connection = self.writing.transaction.connection
        return self.session.unseen(connection, self.row, since)

    def note_seen(self, after: SlotRow, unseen: Unseen | Unset) -> None:
        """Count the own write as seen, if all that it was made on was."""
        if self.place in self.session.seen.revs and isinstance(unseen, Unset):
            self.writing.saw[self.place] = after.rev

    def overwritten(self) -> tuple[Commit, ...]:
        """Return the newest kept commits of others that the lane has not seen."""
        if not self.row.doc:
            return ()
        connection, lane = self.writing.transaction.connection, self.session.lane
        since = self.session.seen.revs.get(self.place)
        entries = entries_of(connection, self.row.doc)
        others = others_since(entries, since or 0, lane)
        if others or since is not None:
            return commits_of(others, SHOWN_COMMITS_MAX)
        # What is older than the history: who wrote what is left of it stands for it.
        rev = entries[-1].rev if entries else self.row.rev
        authors: list[Author | None] = []
        with suppress(DocError):  # The write itself will meet the damage, and say so.
            authors = [run.author for run in blame_of(connection, self.row.doc)]
        return tuple(
            Commit(lane=by.lane, at=iso_time(by.at_ms), operation="create", rev=rev)
            for by in authors
            if by is not None and by.lane != lane
        )[:1]

    def result(
        self, operation: str, row: SlotRow, *, changed: bool = True, **shown: Any
    ) -> WriteResult:
        """Return the result of a write that left this row."""
        return WriteResult(
            **headroom_fields(row),
            label=row.label,
            scope=scope_of(row.namespace),
            operation=operation,
            changed=changed,
            content=view_of(row.file),
            previous_size=self.row.size,
            previous_rev=self.row.rev,
            durable=self.session.store.durability == "full",
            **shown,
        )

    def finish(self, result: _ResultT) -> _ResultT:
        """Keep the result for a repetition of the call, and name the call in it."""
        if self.request is None:
            return result
        named = result.replaced(request_id=self.request.request_id)
        transaction = self.writing.transaction
        keep_request(
            transaction.connection,
            self.request.request_id,
            StoredRequest(
                self.request.fingerprint,
                self.request.verb,
                json.dumps(_storable(named)),
            ),
            transaction.now_ms,
        )
        return named

    def _text_at(self, place: Place, rev: int) -> str | None:
        connection = self.writing.transaction.connection
        row = find_slot(connection, place.namespace, place.label)
        if row is None or row.rev == rev:
            return view_of(row.file) if row else None
        entry = entry_of_rev(connection, row.doc, rev)
        return view_of(entry.file) if entry else None

    def _conflict(
        self, guard: Guard, *, has_rev: bool, has_hash: bool
    ) -> dict[str, object]:
        row = self.row
        connection = self.writing.transaction.connection
        entries = entries_of(connection, row.doc) if row.doc else []
        base = _base_of(entries, guard)
        since = [e for e in entries if base is not None and e.rev >= base.rev]
        diff = base and unified(
            view_of(base.file),
            view_of(row.file),
            label=row.label,
            from_rev=base.rev,
            to_rev=row.rev,
        )
        reason: Literal["rev", "hash", "both", "ahead"] = "both"
        if has_rev:
            reason = "hash"
        elif has_hash:
            is_ahead = int(str(guard.expected_rev)) > row.rev
            reason = "ahead" if is_ahead else "rev"
        return Conflict(
            reason=reason,
            expected_rev=guard.expected_rev,
            expected_hash=guard.expected_hash,
            base_rev=base.rev if base else UNSET,
            diff=diff.text if diff else None,
            diff_truncated=bool(diff and diff.truncated),
            changed_by=commits_of(since, SHOWN_COMMITS_MAX),
            current=headroom_of(row),
        ).to_dict()

    def _not_kept(self, rev: int, reason: str) -> RevNotKeptError:
        connection = self.writing.transaction.connection
        entries = entries_of(connection, self.row.doc) if self.row.doc else []
        return RevNotKeptError(
            label=self.row.label,
            rev=rev,
            oldest_rev=entries[-1].rev if entries else self.row.rev,
            current_rev=self.row.rev,
            reason=reason,
        )

    def settings(self, meta: Mapping[str, object] | None) -> dict[str, object]:
        """Return the settings that go with a write.

        A first write makes the template's explicit, and any write lifts the mark of a
        slot that text from elsewhere has brought back.
        """
        settings: dict[str, object] = {}
        if not self.row.doc:
            settings = {
                "sizeLimit": self.row.size_limit,
                "description": self.row.description,
                "pinned": bool(self.row.pinned),
            }
        if self.row.deleted:
            settings["deleted"] = False
        return settings | dict(meta or {})


def _base_of(entries: list[EntryRow], guard: Guard) -> EntryRow | None:
    """Return the kept text that the caller had read, newest first."""
    for entry in entries:
        if guard.expected_rev is UNSET:
            if entry.hash.startswith(str(guard.expected_hash)):
                return entry
        elif entry.rev == guard.expected_rev:
            return entry
    return None


def _storable(result: Model) -> dict[str, object]:
    """Return a result as JSON for a repetition of its call.

    Without the text, which the history holds, and without what described the moment:
    what others had done until then.
    """
    stored: dict[str, object] = {}
    for name in type(result).names:
        value = getattr(result, name)
        if isinstance(value, UndoneEntry):
            stored[name] = value.to_dict()
        elif name == "content":
            stored[name] = None
        elif isinstance(value, (str, int, type(None))) or name == "lines":
            stored[name] = value
    return {name: value for name, value in stored.items() if value is not UNSET}


def _revived(stored: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of a result that was stored."""
    if "undone" in stored:
        stored["undone"] = UndoneEntry(**stored["undone"])
    if "lines" in stored:
        stored["lines"] = tuple(stored["lines"])
    return stored | {"replayed": True}
