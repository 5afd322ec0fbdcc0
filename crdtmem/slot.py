"""One slot: what can be read of it and written to it.

A Slot is a handle, bound to its namespace and label when it is made. It holds no text:
every call sees the newest commit, whichever process made it.

What only writes need is loaded with the first write: agents read at every turn, each
time in a new process, and loading the document layer takes longer than all else.
"""

from typing import TYPE_CHECKING, Any, Literal

from crdtmem.arguments import (
    Guard,
    Request,
    checked_bool,
    checked_content,
    checked_count,
    checked_guard,
    checked_lines,
    checked_occurrence,
    checked_rev,
    checked_settings,
    checked_text,
    require_guard,
)
from crdtmem.doc.text_form import file_of, lines_of, units_of, view_lines, view_of
from crdtmem.errors import InvalidArgumentError, SlotNotFoundError
from crdtmem.limits import DIFF_UNITS, HISTORY_PAGE_MAX, UINT_MAX
from crdtmem.models import (
    UNSET,
    BlameLine,
    Diff,
    History,
    HistoryEntry,
    LineRange,
    Scope,
    SlotView,
    UndoResult,
    Unset,
    WriteResult,
)
from crdtmem.scope import scope_of
from crdtmem.session import Place, Session
from crdtmem.views import slot_view

if TYPE_CHECKING:
    from crdtmem.history import SlotHistory

__all__ = ["Slot"]


class Slot:
    """A named piece of shared text.

    Made by ``Memory.slot``. Safe from any thread; calls of one Memory queue.

    Attributes:
        label: Its name.
        scope: Where it is: in the project, or global.

    """

    def __init__(
        self, session: Session, place: Place, asked_scope: Scope | None
    ) -> None:
        self.label = place.label
        self.scope: Scope = scope_of(place.namespace)
        self._session = session
        self._place = place
        self._asked_scope = asked_scope

    def __repr__(self) -> str:
        return f"Slot({self.label!r}, {self.scope!r})"

    def read(
        self,
        *,
        at_rev: int | Unset = UNSET,
        lines: tuple[int, int] | None = None,
    ) -> SlotView:
        """Return the text, how full the slot is, and its settings.

        Takes no lock and never waits for a writer. Reading the newest text counts as
        having seen it.

        Args:
            at_rev: Return the kept text of that rev, with its size and hash.
            lines: Return only these lines of it, first and last, from 1; size and hash
                stay those of the whole.

        Raises:
            InvalidArgumentError: If an argument is malformed.
            SlotNotFoundError: If the slot is deleted.
            RevNotKeptError: If the text of that rev is not kept.

        """
        span = checked_lines(lines)
        if at_rev is not UNSET:
            view = self._history().view_at(checked_rev(at_rev, "at_rev"))
            return _cut_lines(view, span)
        return _cut_lines(self._read(), span)

    def append(
        self,
        text: str,
        *,
        expected_rev: int | Unset = UNSET,
        expected_hash: str | Unset = UNSET,
        request_id: str | Unset = UNSET,
    ) -> WriteResult:
        """Add text to the end of the slot, on lines of its own.

        When this returns the text is on disk and stays whole: appends made at the same
        time, here or elsewhere, come before or after it, never inside. It needs no
        guard; pass one only to insist that nobody wrote.

        Waits for the store's write lock, seldom a millisecond, at most the handle's
        busy timeout. Safe from any thread. A call that was killed or cancelled wrote
        all of the text or none: repeat it with the same request_id and it is written
        once.

        Args:
            text: What to add. A final newline is added unless it has one.
            expected_rev: Refuse unless the slot is still at this rev.
            expected_hash: Refuse unless the slot still has this content hash.
            request_id: Names this call, so that a repetition returns the first result.

        Returns:
            The slot after the write, other lanes' concurrent text included.

        Raises:
            InvalidArgumentError: If the text is empty or holds a lone surrogate.
            SizeLimitError: If the slot would exceed its limit.
            ConflictError: If the slot has moved on; carries its present state and a
                diff.
            StoreBusyError: If the lock was not had in time; names its holder.
                After any of them the slot, its rev and its history are as they were.

        """
        from crdtmem.editing import append_delta, slot_write  # noqa: PLC0415 - see the module

        text = checked_text(text)
        guard = checked_guard(expected_rev, expected_hash)
        request = self._request("append", request_id, guard, text=text)
        with slot_write(self._session, self._place, request) as write:
            if write.replayed is not None:
                return WriteResult(**write.replayed)
            row = write.live_slot(is_append=True)
            write.require(guard)
            delta = append_delta(row.file, text)
            return write.commit("append", delta, details={"added": units_of(text)})

    def replace(
        self,
        content: str,
        *,
        expected_rev: int | Unset = UNSET,
        expected_hash: str | Unset = UNSET,
        base_rev: int | Unset = UNSET,
        request_id: str | Unset = UNSET,
    ) -> WriteResult:
        """Make the text another one; lines that stay keep their authors.

        A guard refuses the write if somebody wrote meanwhile. ``base_rev`` merges
        instead: what changed since stays. With neither, the write goes through, and
        ``overwrote`` tells what it covered that this lane had not seen.

        Args:
            content: The whole new text; "" empties the slot.
            expected_rev: Refuse unless the slot is still at this rev.
            expected_hash: Refuse unless the slot still has this content hash.
            base_rev: The rev that the content was made from.
            request_id: Names this call, so that a repetition returns the first result.

        Raises:
            InvalidArgumentError: If an argument is malformed.
            ConflictError: If a guard does not hold.
            RevNotKeptError: If the text of base_rev is not kept.
            SizeLimitError: If the text is too long.
            SlotRefusedError: If the slot is read-only or append-only.
                After any of them the slot, its rev and its history are as they were.

        """
        from crdtmem.editing import line_delta, slot_write  # noqa: PLC0415 - see the module
        from crdtmem.rewriting import merged  # noqa: PLC0415 - see the module

        content = checked_content(content)
        guard = checked_guard(expected_rev, expected_hash, base_rev)
        request = self._request("replace", request_id, guard, content=content)
        with slot_write(self._session, self._place, request) as write:
            if write.replayed is not None:
                return WriteResult(**write.replayed)
            row = write.live_slot()
            if view_of(row.file) == content:
                return write.unchanged("replace")
            if not isinstance(guard.base_rev, Unset) and guard.base_rev != row.rev:
                return merged(write, "replace", guard.base_rev, content)
            write.require(guard)
            shown: dict[str, Any] = {}
            if not guard.is_given and (over := write.overwritten()):
                shown["overwrote"] = over
            details = {"before": row.size, "after": units_of(content)}
            delta = line_delta(row.file, content)
            return write.commit("replace", delta, details=details, **shown)

    def edit(
        self,
        old: str,
        new: str,
        *,
        occurrence: int | Literal["all"] | Unset = UNSET,
        lines: tuple[int, int] | None = None,
        expected_rev: int | Unset = UNSET,
        expected_hash: str | Unset = UNSET,
        request_id: str | Unset = UNSET,
    ) -> WriteResult:
        """Replace a passage, found by its exact text at the newest state.

        Args:
            old: What stands there. It must match once, unless occurrence says which.
                Where the text has CRLF line ends, LF in it matches them too.
            new: What is to stand there, verbatim; "" deletes.
            occurrence: Which match, from 1, or "all".
            lines: Look only at matches within these lines, first and last.
            expected_rev: Refuse unless the slot is still at this rev.
            expected_hash: Refuse unless the slot still has this content hash.
            request_id: Names this call, so that a repetition returns the first result.

        Raises:
            InvalidArgumentError: If an argument is malformed.
            EditError: If the text is not there, or stands there more than once.
            ConflictError: If a guard does not hold.
            SizeLimitError: If the text would be too long.
                After any of them the slot, its rev and its history are as they were.

        """
        from crdtmem.editing import line_delta, slot_write  # noqa: PLC0415 - see the module
        from crdtmem.matching import edited, matches_in  # noqa: PLC0415 - see the module

        old, new = checked_text(old, "old"), checked_content(new, "new")
        which, span = checked_occurrence(occurrence), checked_lines(lines)
        guard = checked_guard(expected_rev, expected_hash)
        request = self._request(
            "edit", request_id, guard, old=old, new=new, which=which, lines=span
        )
        with slot_write(self._session, self._place, request) as write:
            if write.replayed is not None:
                return WriteResult(**write.replayed)
            row = write.live_slot()
            write.require(guard)
            view = view_of(row.file)
            matches = matches_in(view, old, which, span, label=self.label)
            content, touched = edited(view, matches, new)
            if content == view:
                return write.unchanged("edit")
            delta = line_delta(row.file, content)
            return write.commit("edit", delta, lines=touched)

    def insert(
        self,
        line: int,
        text: str,
        *,
        expected_rev: int | Unset = UNSET,
        expected_hash: str | Unset = UNSET,
        base_rev: int | Unset = UNSET,
        request_id: str | Unset = UNSET,
    ) -> WriteResult:
        """Put whole lines behind a line.

        Args:
            line: 0 is the top, the number of lines the end. Anywhere but at 0 a guard
                or base_rev is required: a line number is a place in a text that was
                read.
            text: The new lines; one final newline is dropped.
            expected_rev: Refuse unless the slot is still at this rev.
            expected_hash: Refuse unless the slot still has this content hash.
            base_rev: The rev that the line number is one of.
            request_id: Names this call, so that a repetition returns the first result.

        Raises:
            InvalidArgumentError: If an argument is malformed, or the line is not there.
            ConflictError: If a guard does not hold.
            RevNotKeptError: If the text of base_rev is not kept.
            SizeLimitError: If the text would be too long.
                After any of them the slot, its rev and its history are as they were.

        """
        from crdtmem.editing import line_delta, slot_write  # noqa: PLC0415 - see the module
        from crdtmem.rewriting import merged, with_lines  # noqa: PLC0415 - see the module

        text = checked_text(text)
        line = checked_count(line, "line", UINT_MAX, least=0)
        guard = checked_guard(expected_rev, expected_hash, base_rev)
        if line:
            why = "a line number is a place in a text that you read"
            require_guard(guard, "expected_rev or base_rev", why)
        request = self._request("insert", request_id, guard, line=line, text=text)
        with slot_write(self._session, self._place, request) as write:
            if write.replayed is not None:
                return WriteResult(**write.replayed)
            row = write.live_slot()
            if not isinstance(guard.base_rev, Unset) and guard.base_rev != row.rev:
                base = view_of(write.base_entry(guard.base_rev).file)
                content = with_lines(base, line, text)
                return merged(write, "insert", guard.base_rev, content)
            write.require(guard)
            content = with_lines(view_of(row.file), line, text)
            if content == view_of(row.file):
                return write.unchanged("insert")
            last = line + len(lines_of(file_of(text.removesuffix("\n")) or "\n"))
            delta = line_delta(row.file, content)
            return write.commit("insert", delta, lines=(line + 1, last))

    def history(self, limit: int = 20, *, before: str | None = None) -> History:
        """Return the kept texts, newest first, without their content.

        Args:
            limit: How many, 1 to 1,000.
            before: Only those older than the entry of this id.

        Raises:
            InvalidArgumentError: If the limit is out of its bounds.
            HistoryNotFoundError: If there is no entry of that id.

        """
        limit = checked_count(limit, "limit", HISTORY_PAGE_MAX)
        return self._history().page(limit, before)

    def history_entry(self, id: str) -> HistoryEntry:  # noqa: A002 - the public name
        """Return one kept text with its content.

        Raises:
            HistoryNotFoundError: If this slot keeps no entry of that id.

        """
        return self._history().entry(id)

    def restore(
        self,
        id: str,  # noqa: A002 - the public name
        *,
        expected_rev: int | Unset = UNSET,
        expected_hash: str | Unset = UNSET,
        request_id: str | Unset = UNSET,
    ) -> WriteResult:
        """Write a kept text again; on a deleted slot, bring it back.

        A guard is required: everything written since that text goes.

        Raises:
            InvalidArgumentError: If there is no guard, or it is malformed.
            HistoryNotFoundError: If this slot keeps no entry of that id.
            ConflictError: If the guard does not hold.
            SizeLimitError: If the text is too long for today's limit.
                After any of them the slot, its rev and its history are as they were.

        """
        from crdtmem.editing import line_delta, slot_write  # noqa: PLC0415 - see the module

        guard = checked_guard(expected_rev, expected_hash)
        why = "a restore covers all that was written since"
        require_guard(guard, "expected_rev", why)
        request = self._request("restore", request_id, guard, id=id)
        with slot_write(self._session, self._place, request) as write:
            if write.replayed is not None:
                return WriteResult(**write.replayed)
            row = write.live_slot(may_be_deleted=True)
            entry = self._history().find(write.writing.transaction.connection, id)
            if view_of(entry.file) == view_of(row.file) and not row.is_deleted:
                return write.unchanged("restore")
            write.require(guard)
            delta = line_delta(row.file, view_of(entry.file))
            return write.commit("restore", delta, details={"target": entry.id})

    def undo(
        self,
        id: str | None = None,  # noqa: A002 - the public name
        *,
        expected_rev: int | Unset = UNSET,
        expected_hash: str | Unset = UNSET,
        dry_run: bool = False,
        request_id: str | Unset = UNSET,
    ) -> UndoResult:
        """Take back a kept write; what others wrote since stays.

        Args:
            id: The history entry of the write. None: this lane's newest write here
                that is not undone; repeated calls walk back.
            expected_rev: Refuse unless the slot is still at this rev.
            expected_hash: Refuse unless the slot still has this content hash.
            dry_run: Make every check and return the result, and write nothing.
            request_id: Names this call, so that a repetition returns the first result.

        Raises:
            HistoryNotFoundError: If this slot keeps no entry of that id.
            HistoryError: ``nothing-to-undo``, ``already-undone`` or
                ``history-not-undoable``.
            ConflictError: If a guard does not hold.
            SizeLimitError: If the text would be too long.
                After any of them the slot, its rev and its history are as they were.

        """
        from crdtmem.undoing import undo_write  # noqa: PLC0415 - see the module

        guard = checked_guard(expected_rev, expected_hash)
        checked_bool(dry_run, "dry_run")
        request = self._request("undo", request_id, guard, id=id, dry_run=dry_run)
        return undo_write(
            self._session,
            self._place,
            id,
            guard,
            None if dry_run else request,
            is_dry_run=dry_run,
        )

    def blame(self) -> list[BlameLine]:
        """Return who wrote each line: the author of its first character."""
        return self._history().blame()

    def diff(
        self, from_rev: int, to_rev: int | Unset = UNSET, *, limit: int = DIFF_UNITS
    ) -> Diff:
        """Return a unified diff between two kept texts.

        Args:
            from_rev: The rev of the older text.
            to_rev: The rev of the newer text; the present one by default.
            limit: Longest diff to return, in UTF-16 units; it is cut at a line end.

        Raises:
            RevNotKeptError: If one of the texts is not kept.

        """
        checked_rev(from_rev, "from_rev")
        if not isinstance(to_rev, Unset):
            checked_rev(to_rev, "to_rev")
        limit = checked_count(limit, "limit", UINT_MAX)
        return self._history().diff(from_rev, to_rev, limit)

    def set_meta(
        self,
        *,
        description: str | Unset = UNSET,
        size_limit: int | Unset = UNSET,
        pinned: bool | Unset = UNSET,
        read_only: bool | Unset = UNSET,
        append_only: bool | Unset = UNSET,
        request_id: str | Unset = UNSET,
    ) -> SlotView:
        """Change settings; text, rev and hash stay.

        Works on read-only slots too: how else to make them writable. On a merge the
        last writer of each setting wins.

        Raises:
            InvalidArgumentError: If no setting is given, or one is malformed.
            SlotNotFoundError: If the slot is deleted.

        """
        from crdtmem.editing import slot_write  # noqa: PLC0415 - see the module
        from crdtmem.rewriting import change_settings  # noqa: PLC0415 - see the module

        meta = checked_settings(
            description=description,
            size_limit=size_limit,
            pinned=pinned,
            read_only=read_only,
            append_only=append_only,
        )
        if not meta:
            message = "description, size_limit, pinned, read_only or append_only needed"
            raise InvalidArgumentError("description", message)
        request = self._request("set_meta", request_id, Guard(), **meta)
        with slot_write(self._session, self._place, request) as write:
            if write.replayed is not None:
                return SlotView(**write.replayed)
            row = change_settings(write, meta)
            connection = write.writing.transaction.connection
            shadows = self._session.shadows(connection, row)
            view = slot_view(row, shadows=shadows, unseen=write.unseen())
            return write.finish(view)

    def _read(self) -> SlotView:
        session, place = self._session, self._place
        with session.reading() as connection:
            row, shadows = session.look(connection, place)
            if row is None:
                raise SlotNotFoundError(label=self.label, scope=self.scope)
            since = session.seen.revs.get(place)
            unseen = session.unseen(connection, row, since)
            session.seen.saw(place, row.rev)
        return slot_view(row, shadows=shadows, unseen=unseen)

    def _history(self) -> "SlotHistory":
        from crdtmem.history import SlotHistory  # noqa: PLC0415 - see the module

        return SlotHistory(self._session, self._place)

    def _request(
        self, verb: str, request_id: object, guard: Guard, **arguments: object
    ) -> Request | None:
        # The scope as it was asked for, not the namespace it led to: a repeated call
        # must not reach the global slot that the first one uncovered.
        return Request.of(
            request_id,
            verb,
            project=self._session.project,
            label=self.label,
            scope=self._asked_scope,
            guard=repr(guard),
            **arguments,
        )


def _cut_lines(view: SlotView, span: tuple[int, int] | None) -> SlotView:
    if span is None:
        return view
    lines = view_lines(str(view.content))
    first, last = span
    return view.replaced(
        content="\n".join(lines[first - 1 : last]),
        lines=LineRange(from_=first, to=min(last, len(lines)), total=len(lines)),
    )
