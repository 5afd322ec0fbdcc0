"""The commands that look back and take back."""

from typing import TYPE_CHECKING, Unpack

from crdtmem.cli.phrases import columns
from crdtmem.cli.running import Call, Guards
from crdtmem.cli.writing import tell_write
from crdtmem.errors import HistoryNotFoundError, InvalidArgumentError
from crdtmem.limits import HISTORY_PAGE_MAX
from crdtmem.models import (
    AuditEntry,
    BlameLine,
    Diff,
    History,
    HistoryEntry,
    UndoResult,
    Unset,
)

if TYPE_CHECKING:
    from crdtmem.slot import Slot

__all__ = ["blame", "diff", "log", "restore", "undo"]

DIFFERENT = 1


def undo(
    call: Call,
    *,
    label: str,
    entry_id: str | None,
    dry_run: bool,
    **guards: Unpack[Guards],
) -> None:
    """Take back a write, and keep what others wrote since."""
    slot = call.memory.slot(label, call.scope)
    result = slot.undo(entry_id, dry_run=dry_run, **guards)
    if not dry_run or call.out.as_json:
        tell_write(call, result)
    if dry_run and not call.out.as_json:
        call.out.diff(_diff_of(result))
    if not call.out.as_json:
        _tell_undone(call, result)


def restore(call: Call, *, label: str, entry_id: str, **guards: Unpack[Guards]) -> None:
    """Write a kept text of a slot again."""
    tell_write(call, call.slot(label).restore(entry_id, **guards))


def log(
    call: Call, *, label: str | None, limit: int, by: str | None, patch: bool
) -> None:
    """Show the kept history of a slot, newest first, or the audit rows of all."""
    if patch and (call.out.as_json or label is None):
        raise InvalidArgumentError(
            "patch",
            "--patch shows the diffs of one slot, to people",
            code="usage",
            hint="run 'crdtmem log LABEL -p', or 'crdtmem diff LABEL A B --json'",
        )
    if label is None:
        _log_all(call, limit, by)
        return
    slot = call.slot(label)
    found = _history(slot, limit, by)
    if call.out.as_json:
        call.out.json(found)
        return
    for entry in found.entries:
        _print_entry(call, entry)
        if patch:
            _print_diff(call, slot.diff(entry.rev, entry.rev + 1))


def diff(
    call: Call, *, label: str, a: str | None, b: str | None, exit_code: bool
) -> int | None:
    """Compare two texts of a slot; by default, that before the last write and now."""
    slot = call.slot(label)
    start = _newest_rev(slot) if a is None else _rev(slot, a)
    found = slot.diff(start) if b is None else slot.diff(start, _rev(slot, b))
    if call.out.as_json:
        call.out.json(found)
    else:
        _print_diff(call, found)
    return DIFFERENT if exit_code and found.unified else None


def blame(call: Call, *, label: str, lines: tuple[int, int] | None) -> None:
    """Show who wrote each line."""
    first, last = lines or (1, None)
    found = [
        line
        for line in call.slot(label).blame()
        if line.line >= first and (last is None or line.line <= last)
    ]
    if call.out.as_json:
        call.out.json({"lines": [line.to_dict() for line in found]})
        return
    shown = columns([_blame_cells(line) for line in found], right=(2,)) if found else []
    for line, text in zip(found, shown, strict=True):
        call.out.line(f"{text}  {line.text}".rstrip())


def _tell_undone(call: Call, result: UndoResult) -> None:
    undone = result.undone
    call.out.note(
        f"undone: {undone.operation} by {undone.lane} at {undone.at}"
        f" (it made rev {undone.rev + 1})"
        + ("" if result.exact else "; what was written later is kept")
    )


def _diff_of(result: UndoResult) -> str:
    return "" if isinstance(result.diff, Unset) else result.diff


def _log_all(call: Call, limit: int, by: str | None) -> None:
    entries = call.memory.audit(scope=call.scope, lane=by, limit=limit)
    if call.out.as_json:
        call.out.json({"entries": [entry.to_dict() for entry in entries]})
        return
    for line in columns([_audit_cells(entry) for entry in entries]) if entries else []:
        call.out.line(line)


def _history(slot: "Slot", limit: int, by: str | None) -> History:
    """Return the newest entries; those of one lane are looked for in all there are."""
    if by is None:
        return slot.history(limit)
    page = slot.history(HISTORY_PAGE_MAX)
    found = [entry for entry in page.entries if entry.lane == by]
    return History(
        label=page.label,
        scope=page.scope,
        entries=tuple(found[:limit]),
        current=page.current,
        more=len(found) > limit,
    )


def _print_entry(call: Call, entry: HistoryEntry) -> None:
    undone = (
        "" if isinstance(entry.undone, Unset) else f", undone by {entry.undone.lane}"
    )
    call.out.line(
        f"{entry.id}  {entry.at}  {entry.operation} by {entry.lane}"
        f"  (before: rev {entry.rev}, {entry.size:,} characters{undone})"
    )


def _print_diff(call: Call, found: Diff) -> None:
    call.out.diff(found.unified)
    if found.truncated:
        call.out.note("the diff is cut; there is more")


def _newest_rev(slot: "Slot") -> int:
    """Return the rev before the last write, or the rev now if there was none."""
    history = slot.history(1)
    return history.entries[0].rev if history.entries else history.current.rev


def _rev(slot: "Slot", text: str) -> int:
    """Return the rev that a word of the command line names: a rev, or an entry's id.

    Raises:
        HistoryNotFoundError: If it is no number and no kept entry.

    """
    try:
        return slot.history_entry(text).rev
    except HistoryNotFoundError:
        if text.isascii() and text.isdigit():
            return int(text)
        raise


def _audit_cells(entry: AuditEntry) -> tuple[str, ...]:
    return (
        entry.at,
        f"{entry.operation} by {entry.lane}",
        entry.label,
        entry.scope,
        f"rev {entry.rev}",
        f"{entry.size_before:,} → {entry.size_after:,}",
    )


def _blame_cells(line: BlameLine) -> tuple[str, ...]:
    others = "".join(f"+{lane}" for lane in line.others)
    return f"{line.lane or '?'}{others}", line.at or "?", str(line.line)
