"""How a write of a whole text, of lines or of settings becomes a change."""

from collections.abc import Mapping
from typing import Any, Literal

from crdtmem.arguments import Guard
from crdtmem.doc.delta import Delta, apply_delta
from crdtmem.doc.text_form import file_of, lines_of, units_of, view_lines, view_of
from crdtmem.editing import SlotWrite, line_delta
from crdtmem.errors import InvalidArgumentError
from crdtmem.history import SlotHistory
from crdtmem.matching import edited, matches_in
from crdtmem.models import LineSpan, SlotView, Unset, WriteResult
from crdtmem.store.write import Change
from crdtmem.textdiff import is_all_crlf, unified, with_eol
from crdtmem.views import settings_of, slot_view

__all__ = [
    "change_settings",
    "edit_passage",
    "insert_lines",
    "merged",
    "new_lines",
    "replace_text",
    "restore_entry",
    "with_lines",
]


def change_settings(write: SlotWrite, meta: Mapping[str, object]) -> SlotView:
    """Set those settings that differ, and return the slot after it."""
    row = write.live_slot(is_meta=True)
    old = settings_of(row)
    new = {name: value for name, value in meta.items() if old[name] != value}
    if new:
        change = Change(
            operation="meta",
            lane=write.session.lane,
            meta=write.settings(new),
            keeps_rev=True,
            details={"old": {name: old[name] for name in new}, "new": new},
        )
        row, _ = write.write(change)
    connection = write.writing.transaction.connection
    shadows = write.session.shadows(connection, row)
    return write.finish(slot_view(row, shadows=shadows, unseen=write.unseen()))


def merged(
    write: SlotWrite, operation: str, base_rev: int, content: str
) -> WriteResult:
    """Join a text made from an older rev with what was written since, and write it.

    Raises:
        RevNotKeptError: If the text of that rev is not kept.
        SizeLimitError: If the joined text is too long.

    """
    row = write.row
    delta = write.merge(base_rev, content)
    merged = apply_delta(row.file, delta)
    diff = unified(
        content, view_of(merged), label=row.label, from_rev=base_rev, to_rev=row.rev + 1
    )
    if merged == row.file:
        return write.unchanged(operation, merged=True, diff=diff.text)
    details = {"before": row.size, "after": units_of(view_of(merged))}
    if operation != "insert":
        return write.commit(
            operation, delta, details=details, merged=True, diff=diff.text
        )
    lines = new_lines(row.file, delta)
    return write.commit(operation, delta, merged=True, diff=diff.text, lines=lines)


def replace_text(write: SlotWrite, content: str, guard: Guard) -> WriteResult:
    """Make the text another one; without a guard, say what that covered.

    Raises:
        ConflictError: If the guard does not hold.
        RevNotKeptError: If the text of the base rev is not kept.
        SizeLimitError: If the text is too long.

    """
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


def edit_passage(
    write: SlotWrite,
    old: str,
    new: str,
    which: int | Literal["all"] | Unset,
    span: LineSpan | None,
    guard: Guard,
) -> WriteResult:
    """Replace a passage that is found by its exact text.

    Raises:
        EditError: If the text is not there, or stands there more than once.
        ConflictError: If the guard does not hold.
        SizeLimitError: If the text is too long.

    """
    row = write.live_slot()
    write.require(guard)
    view = view_of(row.file)
    matches = matches_in(view, old, which, span, label=row.label)
    content, touched = edited(view, matches, new)
    if content == view:
        return write.unchanged("edit")
    return write.commit("edit", line_delta(row.file, content), lines=touched)


def restore_entry(write: SlotWrite, entry_id: str, guard: Guard) -> WriteResult:
    """Write a kept text again, also where the slot is deleted.

    Raises:
        HistoryNotFoundError: If this slot keeps no entry of that id.
        ConflictError: If the guard does not hold.
        SizeLimitError: If the text is too long.

    """
    row = write.live_slot(may_be_deleted=True)
    history = SlotHistory(write.session, write.place)
    entry = history.find(write.writing.transaction.connection, entry_id)
    if view_of(entry.file) == view_of(row.file) and not row.is_deleted:
        return write.unchanged("restore")
    write.require(guard)
    delta = line_delta(row.file, view_of(entry.file))
    return write.commit("restore", delta, details={"target": entry.id})


def insert_lines(write: SlotWrite, line: int, text: str, guard: Guard) -> WriteResult:
    """Put whole lines behind a line of the text, or of that at the guard's base rev.

    Raises:
        InvalidArgumentError: If there is no such line.
        ConflictError: If the guard does not hold.
        RevNotKeptError: If the text of the base rev is not kept.
        SizeLimitError: If the text is too long.

    """
    row = write.live_slot()
    if not isinstance(guard.base_rev, Unset) and guard.base_rev != row.rev:
        base = view_of(write.base_entry(guard.base_rev).file)
        return merged(write, "insert", guard.base_rev, with_lines(base, line, text))
    write.require(guard)
    content = with_lines(view_of(row.file), line, text)
    if content == view_of(row.file):
        return write.unchanged("insert")
    last = line + len(lines_of(file_of(text.removesuffix("\n")) or "\n"))
    return write.commit("insert", line_delta(row.file, content), lines=(line + 1, last))


def with_lines(view: str, line: int, text: str) -> str:
    """Return a view with new lines behind one of its lines."""
    lines = view_lines(view)
    if line > len(lines):
        raise InvalidArgumentError(
            "line",
            f"line must be between 0 and {len(lines)}, not {line}",
            details={"max": len(lines)},
        )
    is_crlf = is_all_crlf(view)
    text = with_eol(text, "\n") if is_crlf else text
    new = view_lines(text.removesuffix("\n")) or [""]
    new = [f"{line}\r" for line in new] if is_crlf else new
    return "\n".join([*lines[:line], *new, *lines[line:]])


def new_lines(file: str, delta: Delta) -> LineSpan:
    """Return the first and last line of what a delta inserts first."""
    first = next(splice for splice in delta if splice.insert)
    start = file.count("\n", 0, first.start_chars) + 1
    return start, start + max(0, first.insert.count("\n") - 1)
