"""How a write of a whole text, of lines or of settings becomes a change."""

from collections.abc import Mapping

from crdtmem.doc.delta import Delta, apply_delta
from crdtmem.doc.text_form import units_of, view_lines, view_of
from crdtmem.editing import SlotWrite
from crdtmem.errors import InvalidArgumentError
from crdtmem.models import LineSpan, WriteResult
from crdtmem.store.rows import SlotRow
from crdtmem.store.write import Change
from crdtmem.textdiff import is_all_crlf, unified, with_eol
from crdtmem.views import settings_of

__all__ = ["change_settings", "merged", "new_lines", "with_lines"]


def change_settings(write: SlotWrite, meta: Mapping[str, object]) -> SlotRow:
    """Set those settings that differ and return the slot's row after it."""
    row = write.live_slot(is_meta=True)
    old = settings_of(row)
    new = {name: value for name, value in meta.items() if old[name] != value}
    if not new:
        return row
    change = Change(
        operation="meta",
        lane=write.session.lane,
        meta=write.settings(new),
        keeps_rev=True,
        details={"old": {name: old[name] for name in new}, "new": new},
    )
    return write.write(change)[0]


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
