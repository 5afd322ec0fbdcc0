"""The list of slots, and one slot: its text, who wrote it, how full it is."""

from collections.abc import Sequence
from functools import lru_cache
from typing import Final, NamedTuple

from crdtmem.doc.text_form import units_of, view_lines
from crdtmem.errors import RevNotKeptError, SlotNotFoundError
from crdtmem.models import BlameLine, Scope, SlotView
from crdtmem.scope import namespace_of
from crdtmem.serve.answers import Answer, see_other
from crdtmem.serve.forms import int_field
from crdtmem.serve.markup import Child, Markup, h
from crdtmem.serve.pages.diffs import diff_block
from crdtmem.serve.pages.editing import append_form
from crdtmem.serve.pages.layout import (
    Part,
    Visit,
    age,
    ago,
    counted,
    link,
    links_in_sight,
    page,
    route,
    row,
    seconds_since,
    table,
    timed,
    times,
)
from crdtmem.serve.pages.places import (
    editor_states,
    editors_of,
    hue_of,
    lane_tag,
    lines_of,
    meter,
    place_of,
    slot_path,
)
from crdtmem.serve.text import inline, shown_line
from crdtmem.slot import Slot
from crdtmem.store.slots import lanes_of_slots, rescued_texts
from crdtmem.views import iso_time

__all__ = ["PAGES"]

_PAGE_LINES: Final = 2_000
_LINE_UNITS: Final = 4_000
_ONLINE_S: Final = 600
_ONLINE_ROWS: Final = 100
_DONE: Final = {
    "same": "Nothing was changed: the text is the same.",
    "saved": "Saved.",
    "merged": "Saved, and merged with what others wrote meanwhile. All that changed:",
    "appended": "Appended.",
    "created": "The slot is there.",
    "undone": "Undone.",
    "restored": "The older text is back.",
    "settings": "The settings are changed.",
}


_COLUMNS: Final = ("Label", "Scope", "Headroom", "Rev", "Changed", "By", "Notes")


class _Span(NamedTuple):
    """The lines that are shown, from 1, and how long one may be."""

    first: int
    last: int
    limit_units: int | None


def _home(visit: Visit) -> Answer:
    return see_other(visit.path("slots"))


def _slots(visit: Visit) -> Answer:
    new = link(visit.path("new"), "New slot", {"class": "action"})
    return page(
        visit,
        "Slots",
        [Part("slots", lambda: _list(visit), "change editors")],
        at="slots",
        actions=new if visit.ask.may_write else None,
    )


def _list(visit: Visit) -> Child:
    views = visit.memory.slots(content=False)
    sort = visit.ask.query.get("sort", "name")
    if sort == "used":
        views.sort(key=lambda view: -view.pct_used)
    elif sort == "changed":
        views.sort(key=lambda view: view.updated_at or "", reverse=True)
    lanes = _newest_lanes(visit)
    rows = [_row(visit, view, lanes.get((view.scope, view.label))) for view in views]
    sorts = [
        link(
            visit.path("slots", sort=name),
            name,
            {"aria-current": "true" if name == sort else None},
        )
        for name in ("name", "used", "changed")
    ]
    return [
        h("p", {"class": "sorts"}, "Sort by: ", [[one, " "] for one in sorts]),
        table("Slots", _COLUMNS, rows),
    ]


def _row(visit: Visit, view: SlotView, lane: str | None) -> Markup:
    to = visit.path("slots", view.scope, view.label)
    names = ", ".join(editors_of(visit, view.label, view.scope))
    return _made_row(to, view, age(view.updated_at), lane, names)


# A list is asked for again at each change, and most of its rows are as before.
@lru_cache(maxsize=4096)
def _made_row(
    to: str, view: SlotView, when: str, lane: str | None, names: str
) -> Markup:
    notes: list[Child] = []
    if view.warning:
        # The figures stand beside it; what is left is what to do.
        advice = str(view.warning).rpartition(": ")[2]
        notes.append(h("span", {"class": "warn"}, "⚠ ", advice, " "))
    if view.quarantined:
        notes.append(h("strong", {"class": "bad"}, "damaged: see Status "))
    if view.read_only:
        notes.append("read only ")
    if view.append_only:
        notes.append("append only ")
    if view.template:
        notes.append("not written yet ")
    if names:
        notes.append(["✎ ", inline(names), " editing"])
    return row(
        _COLUMNS,
        link(to, view.label),
        view.scope,
        meter(view),
        view.rev,
        timed(view.updated_at, when),
        lane_tag(lane) if lane else None,
        notes,
    )


def _newest_lanes(visit: Visit) -> dict[tuple[Scope, str], str]:
    scopes: tuple[Scope, ...] = ("project", "global")
    with visit.memory.store.reading() as connection:
        return {
            (scope, label): lane
            for scope in scopes
            for label, lane in lanes_of_slots(
                connection, namespace_of(scope, visit.project)
            ).items()
        }


def _slot(visit: Visit) -> Answer:
    slot = place_of(visit)
    try:
        view = slot.read()
    except SlotNotFoundError:
        return _gone(visit, slot)
    here, on = (slot.scope, slot.label), "change editors presence sync"
    parts = [
        Part("done", lambda: _done(visit, slot)),
        Part("facts", lambda: _facts(view), "change", here),
        Part("text", lambda: _text(visit, slot, view), "change", here),
        Part("online", lambda: _online(visit, slot), on, here),
        Part("append", lambda: append_form(visit, slot, view)),
        Part("rescued", lambda: _rescued(visit, slot), "editors", here),
    ]
    actions = [_action(visit, slot, name) for name in _actions(visit, view)]
    nav = h("p", {"class": "actions"}, actions)
    return page(visit, slot.label, parts, at="slots", actions=nav)


def _gone(visit: Visit, slot: Slot) -> Answer:
    """Return the page of a slot that was deleted: its history is still there.

    Raises:
        SlotNotFoundError: If there never was one.

    """
    slot.history(1)
    history = link(slot_path(visit, slot, "history"), "History")
    words = "This slot has been deleted. Its texts are kept; to bring it back, see its "
    body = h("p", None, words, history, ".")
    return page(visit, slot.label, [Part("gone", body)], at="slots", status=404)


def _actions(visit: Visit, view: SlotView) -> list[str]:
    if not visit.ask.may_write:
        return ["history"]
    can_edit = not (view.read_only or view.append_only)
    edits = ["edit"] if can_edit else []
    return [*edits, "history", "settings", *(["delete"] if can_edit else [])]


def _action(visit: Visit, slot: Slot, name: str) -> Child:
    text = {"delete": "Delete…"}.get(name, name.capitalize())
    to = slot_path(visit, slot, name)
    return [link(to, text, {"class": "action", "data-action": name}), " "]


def _facts(view: SlotView) -> Child:
    facts: list[Child] = [
        meter(view),
        f" · rev {view.rev} · {view.size:,} of {view.size_limit:,} units · changed ",
        ago(view.updated_at),
        f" · scope {view.scope} · hash ",
        h("code", None, view.content_hash),
    ]
    found: list[Child] = []
    if view.description:
        found.append(h("p", None, inline(view.description)))
    found.append(h("p", {"class": "facts"}, facts))
    if view.warning:
        found.append(h("p", {"class": "warn"}, "⚠ ", str(view.warning)))
    if view.quarantined:
        found.append(h("p", {"class": "bad"}, "This slot is damaged; see Status."))
    return found


def _done(visit: Visit, slot: Slot) -> Child:
    """Return what the form that led here has done."""
    done = visit.ask.query.get("done")
    if done not in _DONE:
        return None
    diff: Child = None
    base = visit.ask.query.get("base")
    if base is not None:
        try:
            found = slot.diff(int_field(base, "base"))
        except RevNotKeptError:
            diff = h("p", {"class": "note"}, "The text from before is no longer kept.")
        else:
            diff = diff_block(found.unified, is_cut=found.truncated)
    return h("div", {"class": "done"}, h("p", None, _DONE[done]), diff)


def _text(visit: Visit, slot: Slot, view: SlotView) -> Child:
    lines = view_lines(str(view.content))
    if not lines:
        return h("p", {"class": "note"}, "The slot is empty.")
    query = visit.ask.query
    if "line" in query:
        first = int_field(query["line"], "line", 1)
        span = _Span(first, min(first, len(lines)), None)
    else:
        first = (int_field(query.get("page", "1"), "page", 1) - 1) * _PAGE_LINES + 1
        last = min(first + _PAGE_LINES - 1, len(lines))
        span = _Span(first, last, _LINE_UNITS)
    has_blame = query.get("blame") != "off"
    blame = slot.blame() if has_blame else []
    return [
        _text_links(visit, slot, len(lines), span, has_blame=has_blame),
        h(
            "div",
            {"class": "text", "tabindex": 0, "role": "region", "aria-label": "Text"},
            _rows(visit, slot, lines, span, blame),
        ),
    ]


def _rows(
    visit: Visit,
    slot: Slot,
    lines: Sequence[str],
    span: _Span,
    blame: Sequence[BlameLine],
) -> list[Markup]:
    rows: list[Markup] = []
    before: tuple[str | None, str] | None = None
    for number in range(span.first, span.last + 1):
        line = lines[number - 1]
        who: Child = None
        if number <= len(blame):
            by = blame[number - 1]
            run = (by.lane, (by.at or "")[:16])
            named = [lane_tag(by.lane), " ", times(by.at)] if run != before else None
            # The stripe goes on; name and time stand where a run of lines begins.
            who = h("span", {"class": f"by {hue_of(by.lane)}"}, named)
            before = run
        body, is_cut = shown_line(line, span.limit_units)
        if is_cut:
            to = slot_path(visit, slot, line=number)
            body += [" ", link(to, f"… all {units_of(line):,} units")]
        shown = h("span", {"class": "line", "dir": "auto"}, body)
        count = h("span", {"class": "number"}, number)
        rows.append(h("div", {"class": "row", "id": f"L{number}"}, who, count, shown))
    return rows


def _text_links(
    visit: Visit, slot: Slot, total: int, span: _Span, *, has_blame: bool
) -> Child:
    toggle = slot_path(visit, slot, blame="off" if has_blame else None)
    word = "Hide who wrote it" if has_blame else "Show who wrote it"
    words: list[Child] = [link(toggle, word)]
    if (span.first, span.last) != (1, total):
        words.append(f" · lines {span.first:,} to {span.last:,} of {total:,}")
    number = (span.first - 1) // _PAGE_LINES + 1
    is_page = span.limit_units is not None
    for name, other, is_there in (
        ("All lines", number, not is_page),
        ("Earlier", number - 1, is_page and number > 1),
        ("Further", number + 1, is_page and span.last < total),
    ):
        if is_there:
            words += [" · ", link(slot_path(visit, slot, page=other), name)]
    return h("p", {"class": "note"}, words)


def _online(visit: Visit, slot: Slot) -> Child:
    rows = visit.memory.audit(label=slot.label, scope=slot.scope, limit=_ONLINE_ROWS)
    names = {
        f"{row.lane} writing": None for row in rows if seconds_since(row.at) < _ONLINE_S
    }
    editors = editors_of(visit, slot.label, slot.scope)
    names |= {f"{lane} (editor)": None for lane in editors}
    names |= {
        f"{one['lane']} {one['doing']} (elsewhere)": None
        for one in visit.ask.site.presence_in(namespace_of(slot.scope, visit.project))
        if one["slot"] == slot.label
    }
    who = inline(", ".join(names)) if names else "nobody within 10 minutes"
    waiting = _waiting(visit, slot)
    facts = [h("dt", None, "Online"), h("dd", None, who)]
    if waiting:
        facts += [h("dt", None, "Pending"), h("dd", None, waiting)]
    return h("dl", None, facts)


def _rescued(visit: Visit, slot: Slot) -> Child:
    """Return the texts of editors whose document was another one, to copy from."""
    namespace = namespace_of(slot.scope, visit.project)
    with visit.memory.store.reading() as connection:
        found = rescued_texts(connection, namespace, slot.label)
    if not found:
        return None
    words = (
        "An editor held another document than this slot's, so nothing of it was"
        " written here. Copy from it what is missing."
    )
    texts: list[Child] = [
        [
            h("p", None, lane_tag(one.lane), " ", ago(iso_time(one.at_ms))),
            lines_of(one.text),
        ]
        for one in found
    ]
    note = h("p", {"class": "note"}, words)
    return [h("h2", None, "Rescued texts of editors"), note, texts]


def _waiting(visit: Visit, slot: Slot) -> list[Child]:
    """Return what is not where it is to be yet."""
    found: list[Child] = []
    for one in links_in_sight(visit):
        is_ours = one.local == namespace_of(slot.scope, visit.project)
        if is_ours and one.unsent.writes:
            writes = counted(one.unsent.writes, "write")
            found.append(f"{writes} not sent, {one.unsent.bytes:,} B. ")
    for state in editor_states(visit, slot.label, slot.scope):
        if state.get("unfolded"):
            found.append("Text of editors is not in the slot yet. ")
        if state.get("blocked"):
            found.append(["It is blocked: ", inline(str(state["blocked"])), ". "])
    return found


PAGES: Final = (
    route("GET", "/", _home),
    route("GET", "/p/{project}", _home),
    route("GET", "/p/{project}/slots", _slots, ("sort",), kept=True),
    route(
        "GET",
        "/p/{project}/slots/{scope}/{label}",
        _slot,
        ("page", "line", "blame", "done", "base"),
        kept=True,
    ),
)
