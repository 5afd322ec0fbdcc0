"""Condense passes: which slots are due, which passes there were, what they took out."""

from datetime import datetime
from typing import Final

from crdtmem.condense.values import DueSlot, PassInfo
from crdtmem.serve.answers import Answer, HttpError, see_other
from crdtmem.serve.forms import hidden
from crdtmem.serve.markup import Child, h
from crdtmem.serve.pages.layout import (
    Part,
    Visit,
    ago,
    button,
    counted,
    folded,
    form,
    link,
    moment,
    page,
    route,
    table,
    timed,
    unseen,
)
from crdtmem.serve.pages.places import lane_tag, lines_of
from crdtmem.serve.text import inline

__all__ = ["PAGES"]

_DUE: Final = ("Slot", "Scope", "Used", "Reason")
_FIGURES: Final = (
    ("evicted", "taken out"),
    ("kept", "kept"),
    ("hoisted", "pinned"),
    ("oldBytes", "bytes before"),
    ("finalBytes", "bytes after"),
)


def _condense(visit: Visit) -> Answer:
    slots = sorted(visit.memory.condense_due(), key=lambda slot: -slot.pct_used)
    due = [_due_row(visit, slot) for slot in slots if slot.due]
    rest = [_due_row(visit, slot) for slot in slots if not slot.due]
    passes = visit.memory.condense_passes()
    opened = [_open_row(visit, one) for one in passes if one.state == "open"]
    done = [_done_row(visit, one) for one in passes if one.state != "open"]
    body = [
        h("h2", None, "Open passes"),
        table("Open passes", ("Slot", "Lane", "Begun", "Expires", "Do"), opened)
        if opened
        else h("p", {"class": "note"}, "No pass is open."),
        h("h2", None, "Slots that are due"),
        table("Due", _DUE, due)
        if due
        else h("p", {"class": "note"}, "No slot is due."),
        folded(f"{counted(len(rest), 'slot')} not due", table("Not due", _DUE, rest)),
        h("h2", None, "Passes that ended"),
        table("Ended", ("Slot", "Lane", "Ended", "State", "What it did", "More"), done)
        if done
        else h("p", {"class": "note"}, "No pass has ended yet."),
    ]
    parts = [Part("passes", body, "condense change")]
    return page(visit, "Condense", parts, at="condense")


def _due_row(visit: Visit, slot: DueSlot) -> list[Child]:
    waits: Child = [" · again ", ago(str(slot.retry_at))] if slot.retry_at else None
    return [
        link(visit.path("slots", slot.scope, slot.label), inline(slot.label)),
        slot.scope,
        f"{slot.pct_used} %",
        [inline(slot.reason), waits],
    ]


def _slot_link(visit: Visit, one: PassInfo) -> Child:
    return link(visit.path("slots", one.scope, one.label), inline(one.label))


def _open_row(visit: Visit, one: PassInfo) -> list[Child]:
    abort: Child = None
    if visit.ask.may_write:
        abort = form(
            visit,
            visit.path("condense", "abort"),
            hidden(id=one.id),
            button(["Abort", unseen(f"the pass on {one.label}")]),
            attributes={"class": "inline"},
        )
    expires = timed(one.expires_at, moment(datetime.fromisoformat(one.expires_at)))
    return [
        _slot_link(visit, one),
        lane_tag(one.lane),
        ago(one.begun_at),
        expires,
        abort,
    ]


def _done_row(visit: Visit, one: PassInfo) -> list[Child]:
    result = one.result if isinstance(one.result, dict) else {}
    figures = [f"{name} {result[key]}" for key, name in _FIGURES if key in result]
    archive = visit.path("condense", "archive", id=one.id)
    which = unseen(f"of the pass on {one.label}, {one.begun_at}")
    return [
        _slot_link(visit, one),
        lane_tag(one.lane),
        ago(one.ended_at if isinstance(one.ended_at, str) else None),
        [inline(one.state), ": ", inline(one.reason)] if one.reason else one.state,
        ", ".join(figures),
        link(archive, ["Archive", which]),
    ]


def _abort(visit: Visit) -> Answer:
    from crdtmem.condense.named import abort_named  # noqa: PLC0415 - seldom

    abort_named(visit.memory, visit.ask.form["id"])
    return see_other(visit.path("condense"))


def _archive(visit: Visit) -> Answer:
    if "id" not in visit.ask.query:
        raise HttpError(400, "bad-request", "the address must name a pass")
    archive = visit.memory.condense_archive(visit.ask.query["id"])
    sections = [
        h(
            "section",
            None,
            h("h2", None, inline(section.heading), " ", _kind(section.kind)),
            lines_of(section.text),
        )
        for section in archive.sections
    ]
    facts = h("p", None, "Pass ", h("code", None, inline(archive.pass_id)))
    parts = [Part("archive", [facts, sections])]
    return page(visit, "What a pass took out", parts, at="condense")


def _kind(kind: str) -> Child:
    return h("span", {"class": "note"}, inline(kind))


PAGES: Final = (
    route("GET", "/p/{project}/condense", _condense),
    route("GET", "/p/{project}/condense/archive", _archive, ("id",)),
    route(
        "POST",
        "/p/{project}/condense/abort",
        _abort,
        ("id", "request_id"),
        writes=True,
    ),
)
