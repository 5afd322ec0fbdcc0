"""Rows as results: what the store holds, in the form that callers are given."""

import time
from collections.abc import Iterable
from functools import lru_cache
from typing import TypedDict

from crdtmem.doc.text_form import view_lines, view_of
from crdtmem.headroom import free_units, percent_used, preview, warning_for
from crdtmem.limits import TIME_MAX_MS
from crdtmem.models import (
    UNSET,
    Commit,
    Headroom,
    HistoryEntry,
    LineRange,
    Scope,
    SlotView,
    Undone,
    Unseen,
    Unset,
)
from crdtmem.scope import scope_of
from crdtmem.store.rows import EntryRow, SlotRow

__all__ = [
    "HASH_SHOWN_CHARS",
    "HeadroomFields",
    "commits_of",
    "cut_lines",
    "entry_view",
    "headroom_fields",
    "headroom_of",
    "iso_time",
    "lanes_in",
    "settings_of",
    "slot_view",
]

HASH_SHOWN_CHARS = 16


class HeadroomFields(TypedDict):
    """The fields of a Headroom, for the results that hold one."""

    size: int
    size_limit: int
    free: int
    pct_used: int
    rev: int
    content_hash: str
    warning: str | Unset


@lru_cache(maxsize=1_024)
def iso_time(at_ms: int) -> str:
    """Return a moment as ISO 8601 with milliseconds, in UTC; in 9999 at the latest."""
    at_ms = min(at_ms, TIME_MAX_MS)
    # Not by datetime: loading it takes a third of the time of starting Python.
    moment = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(at_ms // 1000))
    return f"{moment}.{at_ms % 1000:03d}Z"


def headroom_fields(row: SlotRow) -> HeadroomFields:
    """Return how full a slot is, as the fields that every result has."""
    return {
        "size": row.size,
        "size_limit": row.size_limit,
        "free": free_units(row.size, row.size_limit),
        "pct_used": percent_used(row.size, row.size_limit),
        "rev": row.rev,
        "content_hash": row.hash[:HASH_SHOWN_CHARS],
        "warning": warning_for(row.size, row.size_limit) or UNSET,
    }


def headroom_of(row: SlotRow) -> Headroom:
    """Return how full a slot is."""
    return Headroom(**headroom_fields(row))


def settings_of(row: SlotRow) -> dict[str, object]:
    """Return a slot's settings by their names in the doc."""
    return {
        "description": row.description,
        "sizeLimit": row.size_limit,
        "pinned": bool(row.pinned),
        "readOnly": bool(row.read_only),
        "appendOnly": bool(row.append_only),
    }


def slot_view(
    row: SlotRow,
    *,
    shadows: bool = False,
    unseen: Unseen | Unset = UNSET,
    content: bool = True,
) -> SlotView:
    """Return a slot as readers see it; one without a doc is a template."""
    is_template = row.doc == 0
    return SlotView(
        **headroom_fields(row),
        label=row.label,
        scope=scope_of(row.namespace),
        content=view_of(row.file) if content else UNSET,
        description=row.description,
        pinned=bool(row.pinned),
        read_only=bool(row.read_only),
        append_only=bool(row.append_only),
        created_at=None if is_template else iso_time(row.created_ms),
        updated_at=None if is_template else iso_time(row.updated_ms),
        template=is_template or UNSET,
        shadows=shadows or UNSET,
        quarantined=row.quarantined is not None or UNSET,
        unseen=unseen,
    )


def cut_lines(view: SlotView, span: tuple[int, int] | None) -> SlotView:
    """Return a view with these lines of its text only; all of them without a span."""
    if span is None:
        return view
    lines = view_lines(str(view.content))
    first, last = span
    return view.replaced(
        content="\n".join(lines[first - 1 : last]),
        lines=LineRange(from_=first, to=min(last, len(lines)), total=len(lines)),
    )


def entry_view(
    entry: EntryRow,
    label: str,
    scope: Scope,
    *,
    is_undoable: bool,
    undone_by: EntryRow | None,
    with_content: bool = False,
) -> HistoryEntry:
    """Return a kept text as callers see it."""
    undone: Undone | Unset = UNSET
    if undone_by is not None:
        at = iso_time(undone_by.at_ms)
        undone = Undone(id=undone_by.id, lane=undone_by.lane, at=at)
    view = view_of(entry.file)
    return HistoryEntry(
        id=entry.id,
        label=label,
        scope=scope,
        at=iso_time(entry.at_ms),
        operation=entry.operation,
        lane=entry.lane,
        size=entry.size,
        rev=entry.rev,
        content_hash=entry.hash[:HASH_SHOWN_CHARS],
        preview=preview(view),
        undoable=is_undoable,
        undone=undone,
        content=view if with_content else UNSET,
    )


def commits_of(entries: Iterable[EntryRow], most: int) -> tuple[Commit, ...]:
    """Return the newest commits of entries that come newest first, newest last."""
    newest = [
        Commit(
            lane=entry.lane,
            at=iso_time(entry.at_ms),
            operation=entry.operation,
            rev=entry.rev + 1,
        )
        for entry, _ in zip(entries, range(most), strict=False)
    ]
    return tuple(reversed(newest))


def lanes_in(entry: EntryRow) -> list[str]:
    """Return the lanes of a commit: one, or those of a received batch."""
    return entry.lane.split(", ") if entry.operation == "sync" else [entry.lane]
