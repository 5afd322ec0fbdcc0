"""The texts that a slot had: what changed, undo of one write, return to an old text."""

from typing import Final

from crdtmem.errors import ConflictError, CrdtmemError, SlotNotFoundError
from crdtmem.models import History, HistoryEntry, Undone
from crdtmem.serve.answers import Answer, HttpError, see_other, status_of
from crdtmem.serve.forms import hidden, int_field
from crdtmem.serve.markup import Child, h
from crdtmem.serve.pages.diffs import diff_block, diff_of
from crdtmem.serve.pages.layout import (
    Part,
    Visit,
    ago,
    button,
    counted,
    form,
    link,
    page,
    route,
    table,
    unseen,
)
from crdtmem.serve.pages.places import lane_tag, place_of, slot_path
from crdtmem.serve.pages.refusal import refusal
from crdtmem.serve.text import inline
from crdtmem.slot import Slot

__all__ = ["PAGES"]

_PAGE_ENTRIES: Final = 50


def _history(visit: Visit) -> Answer:
    slot = place_of(visit)
    return _history_page(visit, slot)


def _history_page(
    visit: Visit, slot: Slot, *, above: Child = None, status: int = 200
) -> Answer:
    before = visit.ask.query.get("before")
    found = slot.history(_PAGE_ENTRIES, before=before)
    newer = found.current.rev, found.current.size
    if before is not None:
        entry = slot.history_entry(before)
        newer = entry.rev, entry.size
    rows: list[list[Child]] = []
    for entry in found.entries:
        rows.append(_row(visit, slot, entry, newer, found.current.rev))
        newer = entry.rev, entry.size
    columns = ("When", "Rev", "What", "Lane", "Size", "Text before", "Do")
    body: list[Child] = [
        h("p", None, f"Now at rev {found.current.rev}. Each row is a write. "),
        table(f"Writes of {slot.label}", columns, rows),
        _older(visit, slot, found),
    ]
    parts = [
        Part("above", above),
        Part("entries", body, "change", (slot.scope, slot.label)),
    ]
    back = link(slot_path(visit, slot), "To the text", {"class": "action"})
    title = f"History of {slot.label}"
    return page(visit, title, parts, at="slots", status=status, actions=back)


def _older(visit: Visit, slot: Slot, found: History) -> Child:
    if not found.more:
        return None
    to = slot_path(visit, slot, "history", before=found.entries[-1].id)
    return h("p", None, link(to, "Older writes"))


def _row(
    visit: Visit, slot: Slot, entry: HistoryEntry, newer: tuple[int, int], now: int
) -> list[Child]:
    to_rev, size = newer
    change = size - entry.size
    diff = slot_path(visit, slot, "diff", from_=entry.rev, to=to_rev)
    does: list[Child] = [
        link(diff, ["Diff", unseen(f"of rev {to_rev}")]),
        " ",
    ]
    if visit.ask.may_write:
        restore = slot_path(visit, slot, "restore", id=entry.id)
        which = unseen(f"rev {to_rev}")
        does += [link(restore, ["Restore the text before", which]), " "]
        does.append(_undo_button(visit, slot, entry, now, to_rev))
    preview: Child = inline(entry.preview.replace("\n", " ↵ "))
    if entry.undone:
        preview = [preview, h("span", {"class": "note"}, " undone by "), _undone(entry)]
    return [
        ago(entry.at),
        to_rev,
        inline(entry.operation),
        lane_tag(entry.lane),
        h("span", {"class": "figure"}, f"{change:+,}" if change else "±0"),
        preview,
        h("span", {"class": "does"}, does),
    ]


def _undone(entry: HistoryEntry) -> Child:
    undone = entry.undone
    return lane_tag(undone.lane) if isinstance(undone, Undone) else None


def _undo_button(
    visit: Visit, slot: Slot, entry: HistoryEntry, now: int, to_rev: int
) -> Child:
    if not entry.undoable:
        return None
    return form(
        visit,
        slot_path(visit, slot, "undo"),
        hidden(id=entry.id, expected_rev=now),
        button(["Undo this write", unseen(f"of rev {to_rev}")]),
        attributes={"class": "inline"},
    )


def _undo(visit: Visit) -> Answer:
    slot, sent = place_of(visit), visit.ask.form
    try:
        slot.undo(
            sent["id"],
            expected_rev=int_field(sent["expected_rev"], "expected_rev"),
            request_id=sent["request_id"],
        )
    except ConflictError as error:
        return _ask_again(visit, slot, error)
    except CrdtmemError as error:
        return _history_page(visit, slot, above=refusal(error), status=status_of(error))
    return see_other(slot_path(visit, slot, done="undone"))


def _ask_again(visit: Visit, slot: Slot, error: ConflictError) -> Answer:
    """Return what was written since, and a button for the slot as it is now."""
    entry = slot.history_entry(visit.ask.form["id"])
    now = slot.history(1).current.rev
    does = form(
        visit,
        slot_path(visit, slot, "undo"),
        hidden(id=entry.id, expected_rev=now),
        h("p", None, button(f"Undo the write all the same, at rev {now}")),
    )
    words = h("p", None, "An undo keeps what others wrote since. ")
    back = h("p", None, link(slot_path(visit, slot, "history"), "Back to the history"))
    parts = [Part("again", [refusal(error), words, does, back])]
    status = status_of(error)
    return page(visit, f"Undo in {slot.label}", parts, at="slots", status=status)


def _diff(visit: Visit) -> Answer:
    slot, query = place_of(visit), visit.ask.query
    if "from" not in query or "to" not in query:
        raise HttpError(400, "bad-request", "the address must name two revs")
    from_rev, to_rev = int_field(query["from"], "from"), int_field(query["to"], "to")
    found = slot.diff(from_rev, to_rev)
    counts = f"{counted(found.added, 'line')} added, {found.removed} removed"
    words = f"From rev {from_rev} to rev {to_rev}: {counts}"
    body = [
        h("p", None, words),
        diff_block(found.unified, is_cut=found.truncated),
        h("p", None, link(slot_path(visit, slot, "history"), "Back to the history")),
    ]
    return page(visit, f"Changes of {slot.label}", [Part("diff", body)], at="slots")


def _restore_page(visit: Visit) -> Answer:
    slot = place_of(visit)
    if "id" not in visit.ask.query:
        raise HttpError(400, "bad-request", "the address must name a kept text")
    return _restore_form(visit, slot, visit.ask.query["id"])


def _restore_form(
    visit: Visit, slot: Slot, entry_id: str, *, above: Child = None, status: int = 200
) -> Answer:
    entry = slot.history_entry(entry_id)
    try:
        view = slot.read()
    except SlotNotFoundError:
        now, text = slot.history(1).current.rev, ""
    else:
        now, text = view.rev, str(view.content)
    made = form(
        visit,
        slot_path(visit, slot, "restore"),
        hidden(id=entry.id, expected_rev=now),
        h("p", None, button(f"Make it the text of rev {entry.rev} again")),
    )
    names = (f"rev {now}", f"rev {entry.rev}")
    body = [
        above,
        h("p", None, "This is what changes; all that was written since goes."),
        diff_of(text, str(entry.content), label=slot.label, names=names),
        made if visit.ask.may_write else None,
        h("p", None, link(slot_path(visit, slot, "history"), "Back to the history")),
    ]
    title = f"Restore {slot.label}"
    return page(visit, title, [Part("restore", body)], at="slots", status=status)


def _restore(visit: Visit) -> Answer:
    slot, sent = place_of(visit), visit.ask.form
    try:
        slot.restore(
            sent["id"],
            expected_rev=int_field(sent["expected_rev"], "expected_rev"),
            request_id=sent["request_id"],
        )
    except CrdtmemError as error:
        return _restore_form(
            visit, slot, sent["id"], above=refusal(error), status=status_of(error)
        )
    return see_other(slot_path(visit, slot, done="restored"))


_SLOT: Final = "/p/{project}/slots/{scope}/{label}"
_SENT: Final = ("id", "expected_rev", "request_id")
PAGES: Final = (
    route("GET", f"{_SLOT}/history", _history, ("before",)),
    route("POST", f"{_SLOT}/undo", _undo, _SENT, writes=True),
    route("GET", f"{_SLOT}/diff", _diff, ("from", "to")),
    route("GET", f"{_SLOT}/restore", _restore_page, ("id",)),
    route("POST", f"{_SLOT}/restore", _restore, _SENT, writes=True),
)
