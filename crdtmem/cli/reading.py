"""The commands that agents run at every turn; the front door answers them."""

from typing import Literal

from crdtmem.cli.phrases import (
    CONTEXT_HEAD,
    bar,
    change_line,
    columns,
    grouped,
    link_phrase,
    outline as outline_of,
    setting_phrase,
    warning_of,
)
from crdtmem.cli.running import Call
from crdtmem.config import describe
from crdtmem.errors import InvalidArgumentError, RevNotKeptError
from crdtmem.models import UNSET, Change, ChangeFeed, LineRange, SlotView, Unset

__all__ = ["changes", "context", "get", "list", "status"]


def list(call: Call, *, sort: str, no_templates: bool) -> None:  # noqa: A001 - the command's name
    """Show the slots and how full they are."""
    found = call.memory.slots(call.scope, templates=not no_templates, content=False)
    slots = sorted(found, key=_ORDERS[sort])
    if call.out.as_json:
        call.out.json({"slots": [_without_content(slot) for slot in slots]})
        return
    lines = columns([_row(slot) for slot in slots], right=(3, 4, 5))
    for slot, line in zip(slots, lines, strict=True):
        call.out.line(line, _alarm(slot.pct_used))


def get(
    call: Call,
    *,
    label: str,
    lines: tuple[int, int] | None,
    tail: int | None,
    outline: bool,
    at_rev: int | Unset = UNSET,
) -> None:
    """Print the text of a slot, with a final line end unless it is empty."""
    if sum((lines is not None, tail is not None, outline)) > 1:
        raise InvalidArgumentError(
            "lines",
            "--lines, --tail and --outline show different parts",
            code="usage",
            hint="give one of them",
        )
    view = call.slot(label).read(at_rev=at_rev, lines=lines)
    if tail is not None:
        view = _last_lines(view, tail)
    if outline:
        view = view.replaced(content=outline_of(_content(view)))
    if call.out.as_json:
        call.out.json(view)
    else:
        call.out.text("" if _is_empty(view) else f"{_content(view)}\n")
        _tell_about(call, view)


def context(
    call: Call,
    *,
    budget: int | None,
    style: Literal["tags", "headings"],
    labels: str | None,
    max_chars: int | None,
) -> None:
    """Print what a session should know at its start."""
    tokens = call.config.context_budget if budget is None else budget
    if max_chars is not None:
        tokens = min(tokens, (max_chars - len(CONTEXT_HEAD) - 1) // 3)
    chosen = call.config.context_labels if labels is None else labels.split(",")
    view = call.memory.context(tokens, style=style, scope=call.scope, labels=chosen)
    if call.out.as_json:
        call.out.json(view)
    elif view.text:
        call.out.text(f"{CONTEXT_HEAD}{view.text}\n")


def status(call: Call) -> None:
    """Show the store, project and lane, and where each comes from."""
    found = call.memory.status()
    if call.out.as_json:
        call.out.json(found)
        return
    rows = [
        (name, setting_phrase(value), f"({source})")
        for name, value, source in describe(call.config)
    ]
    rows += [
        ("replica", found.replica, ""),
        ("slots", grouped(found.slots), ""),
        ("records", grouped(found.records), ""),
        ("bytes", f"{found.bytes:,} and {found.wal_bytes:,} in the log", ""),
        ("history kept", str(found.history_keep), ""),
        ("schema", str(found.schema), ""),
        *(("sync", link_phrase(link), "") for link in found.sync.links),
    ]
    for line in columns(rows):
        call.out.line(line)
    for warning in found.warnings:
        call.out.warn(warning)


def changes(
    call: Call, *, since: str | None, unread: bool, mark: bool, diff: bool, limit: int
) -> None:
    """Show which slots have changed."""
    if diff and call.out.as_json:
        raise InvalidArgumentError(
            "diff",
            "--diff is for people: a change has no diff in JSON",
            code="usage",
            hint="run 'crdtmem diff LABEL SINCEREV --json' for a slot",
        )
    feed = _unread(call) if unread else _feed(call, since, limit)
    if call.out.as_json:
        call.out.json(feed)
    else:
        _print_feed(call, feed, with_diffs=diff)
    if mark:
        call.memory.mark_seen()


def _unread(call: Call) -> ChangeFeed:
    cursor = call.memory.cursor()
    found = [c for c in call.memory.unread() if call.scope in (None, c.scope)]
    return ChangeFeed(changes=tuple(found), cursor=cursor, more=False, reset=False)


def _feed(call: Call, since: str | None, limit: int) -> ChangeFeed:
    return call.memory.changes(since, limit=limit, scope=call.scope)


def _print_feed(call: Call, feed: ChangeFeed, *, with_diffs: bool) -> None:
    if feed.reset:
        call.out.note("that cursor is of another store: all slots follow")
    for change in feed.changes:
        call.out.line(change_line(change))
        if with_diffs and change.rev > change.since_rev:
            _print_diff(call, change)
    call.out.note(f"to go on: crdtmem changes --since {feed.cursor}")


def _print_diff(call: Call, change: Change) -> None:
    slot = call.memory.slot(change.label, change.scope)
    try:
        found = slot.diff(change.since_rev, change.rev)
    except RevNotKeptError as error:
        call.out.note(error.message)
        return
    call.out.diff(found.unified)


def _without_content(slot: SlotView) -> dict[str, object]:
    found = slot.to_dict()
    found.pop("content", None)
    return found


def _row(slot: SlotView) -> tuple[str, ...]:
    marks = [
        word
        for word, is_so in (
            ("template", slot.template),
            ("shadows global", slot.shadows),
            ("quarantined", slot.quarantined),
            ("unpinned", not slot.pinned),
            ("read-only", slot.read_only),
            ("append-only", slot.append_only),
        )
        if is_so is True
    ]
    return (
        slot.label,
        slot.scope,
        bar(slot.pct_used),
        f"{slot.pct_used} %",
        f"{slot.size:,} of {slot.size_limit:,}",
        f"rev {slot.rev}",
        ", ".join(marks),
    )


_ORDERS = {
    "label": lambda slot: 0,
    "used": lambda slot: -slot.pct_used,
    "updated": lambda slot: _newest_first(slot),
}


def _newest_first(slot: SlotView) -> tuple[int, ...]:
    """Sort by the time of the last write, newest first, unwritten slots last."""
    return tuple(-ord(character) for character in slot.updated_at or " ")


def _alarm(pct_used: int) -> str:
    return "red" if pct_used >= 90 else "yellow" if pct_used >= 70 else ""


def _last_lines(view: SlotView, count: int) -> SlotView:
    if count < 1:
        raise InvalidArgumentError("tail", f"tail must be at least 1, not {count}")
    content = _content(view)
    lines = content.split("\n") if content else []
    kept = lines[-count:]
    span = LineRange(from_=len(lines) - len(kept) + 1, to=len(lines), total=len(lines))
    return view.replaced(content="\n".join(kept), lines=span)


def _content(view: SlotView) -> str:
    return "" if isinstance(view.content, Unset) else view.content


def _is_empty(view: SlotView) -> bool:
    """Tell whether there is no line at all; one blank line is a line."""
    part = view.lines
    return not view.content and (isinstance(part, Unset) or part.to < part.from_)


def _tell_about(call: Call, view: SlotView) -> None:
    if view.quarantined is True:
        call.out.warn("quarantined: this is its last good text; run 'crdtmem doctor'")
    if not isinstance(view.unseen, Unset):
        lanes = ", ".join(view.unseen.lanes)
        call.out.note(f"changed since rev {view.unseen.since_rev} by {lanes}")
    if warning_of(view):
        call.out.note(warning_of(view))
    call.out.detail(f"rev {view.rev}, hash {view.content_hash}")
