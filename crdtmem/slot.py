"""One slot: what can be read of it and written to it.

A Slot is a handle, bound to its namespace and label when it is made. It holds no text:
every call sees the newest commit, whichever process made it.

What only writes need is loaded with the first write: agents read at every turn, each
time in a new process, and loading the document layer takes longer than all else.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

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
from crdtmem.doc.text_form import units_of
from crdtmem.errors import InvalidArgumentError
from crdtmem.limits import DIFF_UNITS, HISTORY_PAGE_MAX, UINT_MAX
from crdtmem.models import (
    UNSET,
    BlameLine,
    Diff,
    History,
    HistoryEntry,
    Scope,
    SlotView,
    UndoResult,
    Unset,
    WriteResult,
)
from crdtmem.scope import scope_of
from crdtmem.session import Place, Session
from crdtmem.views import cut_lines

if TYPE_CHECKING:
    from crdtmem.condense.settings import CondenseConfig
    from crdtmem.condense.values import CondensePass, CondenseResult, Summarise
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
            return cut_lines(view, span)
        return cut_lines(self._session.view(self._place), span)

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
        from crdtmem.editing import slot_write  # noqa: PLC0415 - see the module
        from crdtmem.rewriting import replace_text  # noqa: PLC0415 - see the module

        content = checked_content(content)
        guard = checked_guard(expected_rev, expected_hash, base_rev)
        request = self._request("replace", request_id, guard, content=content)
        with slot_write(self._session, self._place, request) as write:
            if write.replayed is not None:
                return WriteResult(**write.replayed)
            return replace_text(write, content, guard)

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
        from crdtmem.editing import slot_write  # noqa: PLC0415 - see the module
        from crdtmem.rewriting import edit_passage  # noqa: PLC0415 - see the module

        old, new = checked_text(old, "old"), checked_content(new, "new")
        which, span = checked_occurrence(occurrence), checked_lines(lines)
        guard = checked_guard(expected_rev, expected_hash)
        request = self._request(
            "edit", request_id, guard, old=old, new=new, which=which, lines=span
        )
        with slot_write(self._session, self._place, request) as write:
            if write.replayed is not None:
                return WriteResult(**write.replayed)
            return edit_passage(write, old, new, which, span, guard)

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
        from crdtmem.editing import slot_write  # noqa: PLC0415 - see the module
        from crdtmem.rewriting import insert_lines  # noqa: PLC0415 - see the module

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
            return insert_lines(write, line, text, guard)

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
        from crdtmem.editing import slot_write  # noqa: PLC0415 - see the module
        from crdtmem.rewriting import restore_entry  # noqa: PLC0415 - see the module

        guard = checked_guard(expected_rev, expected_hash)
        why = "a restore covers all that was written since"
        require_guard(guard, "expected_rev", why)
        request = self._request("restore", request_id, guard, id=id)
        with slot_write(self._session, self._place, request) as write:
            if write.replayed is not None:
                return WriteResult(**write.replayed)
            return restore_entry(write, id, guard)

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

    def begin_condense(
        self,
        *,
        keep_sections: int | Unset = UNSET,
        keep_pct: int | Unset = UNSET,
        expires_in: float | Unset = UNSET,
        force: bool = False,
        config: "CondenseConfig | None" = None,
    ) -> "CondensePass":
        """Begin a condense pass: what it will take out is on disk when this returns.

        No lock is held until ``commit_condense``, which any handle may call.

        Args:
            keep_sections: Newest units that stay, at most.
            keep_pct: Most of the slot's limit that they may take, in percent.
            expires_in: Seconds until the pass ends by itself.
            force: Begin although the slot is not due, or backing off.
            config: The other knobs; see CondenseConfig.

        Raises:
            InvalidArgumentError: If an argument is malformed.
            CondenseSkippedError: If no pass is begun; its code says why.
            SlotRefusedError: If the slot is read-only or append-only.

        """
        from crdtmem.condense.beginning import begin_pass  # noqa: PLC0415 - see the module

        return begin_pass(
            self._session,
            self._place,
            config=config,
            keep_sections=keep_sections,
            keep_pct=keep_pct,
            expires_in=expires_in,
            force=force,
        )

    def commit_condense(
        self, pass_id: str, summary: str, hoisted: Sequence[str] = ()
    ) -> "CondenseResult":
        """Put a summary in place of what the pass evicts; what others wrote stays.

        A repeated call returns the first result. The reason of a result that has not
        condensed says why; the text is as it was then.

        Raises:
            InvalidArgumentError: If an argument is malformed.
            CondensePassUnknownError: If the slot has no such pass.

        """
        from crdtmem.condense.committing import commit_pass  # noqa: PLC0415 - see the module

        return commit_pass(self._session, self._place, pass_id, summary, hoisted)

    def abort_condense(
        self, pass_id: str, reason: str = "cancelled"
    ) -> "CondenseResult":
        """End an open pass without a new text; of a closed one, return the result.

        Raises:
            CondensePassUnknownError: If the slot has no such pass.

        """
        from crdtmem.condense.passing import abort_pass  # noqa: PLC0415 - see the module

        return abort_pass(self._session, self._place, pass_id, reason)

    def condense_text(self, content: str, *, base_rev: int) -> "CondenseResult":
        """Replace the text by a shorter one, made from a rev, under a pass's guards.

        Raises:
            InvalidArgumentError: If an argument is malformed.
            RevNotKeptError: If the text of that rev is not kept.
            SlotRefusedError: If the slot is read-only or append-only.

        """
        from crdtmem.condense.rewriting import rewrite_text  # noqa: PLC0415 - see the module

        return rewrite_text(self._session, self._place, content, base_rev)

    def condense(
        self,
        summarise: "Summarise",
        *,
        keep_sections: int | Unset = UNSET,
        keep_pct: int | Unset = UNSET,
        timeout: float | None = None,
        force: bool = False,
        dry_run: bool = False,
        config: "CondenseConfig | None" = None,
    ) -> "CondenseResult":
        """Have the old part of the text summarised, while others go on writing it.

        Nothing is locked while the summariser thinks, in a thread of its own; what
        others write meanwhile is in the slot afterwards. A reply after the timeout is
        dropped; a command is ended by it.

        Args:
            summarise: Takes the CondensePass, returns the framed reply or a
                CondenseReply. It may raise RateLimitedError.
            keep_sections: Newest units that stay, at most.
            keep_pct: Most of the slot's limit that they may take, in percent.
            timeout: Seconds that it has, 1 to 3,600; None: 180, more for a long text.
            force: Do it although the slot is not due, or backing off.
            dry_run: Show what would go and stay; ask nobody, write nothing.
            config: The other knobs; see CondenseConfig.

        Raises:
            InvalidArgumentError: If an argument is malformed, or the summariser async.
            SlotRefusedError: If the slot is read-only or append-only.

        """
        from crdtmem.condense.running import PassRun, run_pass  # noqa: PLC0415 - see the module

        run = PassRun(
            self._session,
            self._place,
            summarise,
            keep_sections=keep_sections,
            keep_pct=keep_pct,
            timeout=timeout,
            force=force,
            config=config,
        )
        return run.preview() if checked_bool(dry_run, "dry_run") else run_pass(run)

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
            return change_settings(write, meta)

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
