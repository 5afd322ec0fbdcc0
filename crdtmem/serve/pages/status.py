"""How the store is: links, alarms, mirrors, the doctor; and who changed what when."""

from typing import Final

from crdtmem.mirror.values import MirrorStatus
from crdtmem.models import AuditEntry, DoctorReport, LinkStatus, StoreStatus, SyncStatus
from crdtmem.scope import GLOBAL_NAMESPACE
from crdtmem.serve.answers import Answer, see_other
from crdtmem.serve.forms import int_field
from crdtmem.serve.markup import Child, Markup, h
from crdtmem.serve.pages.layout import (
    STATES,
    Part,
    Visit,
    ago,
    button,
    counted,
    field,
    folded,
    form,
    is_seen,
    link,
    links_in_sight,
    page,
    route,
    table,
)
from crdtmem.serve.pages.places import lane_tag
from crdtmem.serve.text import inline

__all__ = ["PAGES"]

_AUDIT_ROWS: Final = 100


def _status(visit: Visit) -> Answer:
    status = visit.memory.status()
    parts = [
        Part("store", _store(status)),
        Part("links", lambda: _links(visit, status.sync), "sync"),
        Part("presence", lambda: _presence(visit), "presence editors"),
        Part("mirrors", lambda: _mirrors(visit)),
        Part("doctor", lambda: _doctor(visit)),
    ]
    return page(visit, "Status", parts, at="status")


def _store(status: StoreStatus) -> Child:
    facts: tuple[tuple[str, Child], ...] = (
        ("Store", h("code", None, inline(status.path))),
        ("Slots in sight", status.slots),
        ("Records", f"{status.records:,}"),
        ("Size", f"{status.bytes:,} B, log {status.wal_bytes:,} B"),
        ("Durability", status.durability),
        ("Kept texts a slot", status.history_keep),
        ("Replica", h("code", None, status.replica)),
    )
    pairs = [[h("dt", None, name), h("dd", None, value)] for name, value in facts]
    warnings = [h("li", {"class": "warn"}, inline(text)) for text in status.warnings]
    words = counted(len(warnings), "warning")
    told = folded(words, h("ul", None, warnings)) if warnings else None
    return [h("dl", None, pairs), told]


def _links(visit: Visit, sync: SyncStatus) -> Child:
    links = links_in_sight(visit)
    lease = sync.lease
    who = "No process syncs this store."
    if lease.held:
        who = f"Synced by process {lease.pid}."
    body: list[Child] = [h("h2", None, "Sync"), h("p", None, who)]
    if not links:
        body.append(h("p", {"class": "note"}, "Nothing is linked to a relay."))
        return body
    columns = (
        "Here",
        "Relay",
        "State",
        "To come",
        "To send",
        "Held",
        "Refused",
        "Error",
    )
    body.append(table("Links", columns, [_link_row(one) for one in links]))
    alarms = [alarm for one in links for alarm in one.alarms]
    if alarms:
        rows: list[list[Child]] = [
            [inline(a.code), ago(a.at), inline(a.detail)] for a in alarms
        ]
        body.append(table("Alarms", ("Alarm", "When", "What"), rows))
        if visit.ask.may_write:
            clear = visit.path("status", "clear-alarms")
            body.append(form(visit, clear, button("Clear the alarms")))
    return body


def _link_row(one: LinkStatus) -> list[Child]:
    error: Child = None
    if one.last_error is not None:
        fault = one.last_error
        error = [inline(fault.code), ": ", inline(fault.message), " ", ago(fault.at)]
    return [
        inline(one.local),
        [inline(one.url), " ", inline(one.remote)],
        STATES.get(one.state, one.state),
        one.lag,
        f"{counted(one.unsent.writes, 'write')}, {one.unsent.bytes:,} B",
        inline(", ".join(one.held)),
        [inline(", ".join(one.blocked)), " ", counted(one.quarantined, "record")],
        error,
    ]


def _mirrors(visit: Visit) -> Child:
    from crdtmem.mirror.registry import statuses  # noqa: PLC0415 - for mirrors only

    found = [
        one
        for one in statuses(visit.memory.store)
        if is_seen(visit.ask.site, one.namespace, visit.project)
    ]
    heading = h("h2", None, "Mirrors")
    if not found:
        return [heading, h("p", {"class": "note"}, "No folder is mirrored.")]
    rows = [_mirror_row(one) for one in found]
    return [
        heading,
        table("Mirrors", ("Folder", "Scope", "Runs", "Files", "Blocked"), rows),
    ]


def _mirror_row(one: MirrorStatus) -> list[Child]:
    blocked: list[Child] = [
        h(
            "li",
            None,
            inline(file.file),
            ": ",
            inline(file.reason),
            ". ",
            inline(file.hint),
        )
        for file in one.blocked
    ]
    return [
        inline(one.folder),
        one.scope,
        "yes" if one.is_running else "no",
        one.files,
        h("ul", None, blocked) if blocked else None,
    ]


def _presence(visit: Visit) -> Child:
    """Return who is at work in editors here, and in other stores."""
    site = visit.ask.site
    spaces = (visit.project, GLOBAL_NAMESPACE)
    here = [one for space in spaces for one in site.at_work(space)]
    elsewhere = [
        (str(one["lane"]), str(one["slot"]), f"{one['doing']}, in another store")
        for space in spaces
        for one in site.presence_in(space)
    ]
    heading = h("h2", None, "Who is at work")
    if not here and not elsewhere:
        return [heading, h("p", {"class": "note"}, "No editor is open.")]
    rows: list[list[Child]] = [
        [lane_tag(lane), inline(slot), inline(doing)]
        for lane, slot, doing in (*here, *elsewhere)
    ]
    return [heading, table("Who is at work", ("Lane", "Slot", "What"), rows)]


def _doctor(visit: Visit) -> Child:
    asked = visit.ask.query.get("doctor")
    report = None
    if asked in ("run", "deep"):
        report = visit.memory.doctor(deep=asked == "deep")
    run = link(visit.path("status", doctor="run"), "Run", {"class": "action"})
    deep = link(visit.path("status", doctor="deep"), "Deep", {"class": "action"})
    repair = link(visit.path("status", "repair"), "Repair…", {"class": "action"})
    doors: list[Child] = [run, " ", deep, " ", repair if visit.ask.may_write else None]
    found: list[Child] = [h("h2", None, "Doctor"), h("p", {"class": "actions"}, doors)]
    return [found, _findings(report) if report is not None else None]


def _findings(report: DoctorReport) -> Child:
    rows: list[list[Child]] = [
        [
            inline(check.id),
            h(
                "strong",
                {"class": {"ok": "good", "warn": "warn"}.get(check.status, "bad")},
                check.status,
            ),
            inline(str(check.label)) if check.label else None,
            inline(check.message),
            inline(check.hint),
        ]
        for check in report.checks
    ]
    word = "Nothing is wrong." if report.ok else "Something is wrong."
    made = table("Findings", ("Check", "Status", "Slot", "Found", "Do"), rows)
    return [h("p", None, word), made]


def _repair_page(visit: Visit) -> Answer:
    report = visit.memory.doctor()
    body = [
        _findings(report),
        h("p", None, "A repair mends what can be mended from what is here."),
        form(visit, visit.path("status", "repair"), button("Repair the store"))
        if visit.ask.may_write
        else None,
    ]
    return page(visit, "Repair", [Part("findings", body)], at="status")


def _repair(visit: Visit) -> Answer:
    report = visit.memory.doctor(repair=True)
    body = [
        _findings(report),
        h("p", None, link(visit.path("status"), "To the status")),
    ]
    return page(visit, "Repaired", [Part("findings", body)], at="status")


def _clear(visit: Visit) -> Answer:
    from crdtmem.store.links import clear_alarms  # noqa: PLC0415 - for sync only

    clear_alarms(visit.memory.store)
    return see_other(visit.path("status"))


def _activity(visit: Visit) -> Answer:
    query = visit.ask.query
    before = query.get("before")
    rows = visit.memory.audit(
        label=query.get("label") or None,
        lane=query.get("lane") or None,
        before=None if before is None else int_field(before, "before", 1),
        limit=_AUDIT_ROWS,
    )
    columns = ("When", "Lane", "What", "Slot", "Rev", "Size")
    older: Child = None
    if len(rows) == _AUDIT_ROWS:
        more = {k: query[k] for k in ("label", "lane") if k in query}
        to = visit.path("activity", before=rows[-1].id, **more)
        older = h("p", None, link(to, "Older"))
    made = table("Changes", columns, [_audit_row(visit, row) for row in rows])
    parts = [
        Part("form", _activity_form(visit)),
        Part("rows", [made, older], "change"),
    ]
    return page(visit, "Activity", parts, at="activity")


def _activity_form(visit: Visit) -> Markup:
    query = visit.ask.query
    controls = [
        field(
            words,
            h("input", {"name": name, "id": name, "value": query.get(name, "")}),
            name,
        )
        for name, words in (("lane", "Only by lane"), ("label", "Only of slot"))
    ]
    action = {"method": "get", "action": visit.path("activity"), "class": "fields"}
    return h("form", action, controls, button("Show"))


def _audit_row(visit: Visit, row: AuditEntry) -> list[Child]:
    slot: Child = inline(row.label)
    # The label of a memory set's doc is its partition key and its name.
    if "/" not in row.label:
        slot = link(visit.path("slots", row.scope, row.label), row.label)
    return [
        ago(row.at),
        lane_tag(row.lane),
        inline(row.operation),
        slot,
        row.rev,
        f"{row.size_before:,} → {row.size_after:,}",
    ]


PAGES: Final = (
    route("GET", "/p/{project}/status", _status, ("doctor",)),
    route(
        "POST",
        "/p/{project}/status/clear-alarms",
        _clear,
        ("request_id",),
        writes=True,
    ),
    route("GET", "/p/{project}/status/repair", _repair_page),
    route("POST", "/p/{project}/status/repair", _repair, ("request_id",), writes=True),
    route("GET", "/p/{project}/activity", _activity, ("lane", "label", "before")),
)
