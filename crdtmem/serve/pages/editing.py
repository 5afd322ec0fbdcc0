"""The forms that change a slot: edit, append, new, settings, delete."""

from collections.abc import Mapping
from typing import Final, NamedTuple

from crdtmem.doc.text_form import units_of
from crdtmem.errors import CrdtmemError, SlotNotFoundError, SlotQuarantinedError
from crdtmem.models import UNSET, SlotView, Unset, WriteResult
from crdtmem.scope import parse_scope
from crdtmem.serve.answers import Answer, see_other, status_of
from crdtmem.serve.forms import (
    area,
    exact_text,
    field_value,
    hidden,
    int_field,
    sent_text,
)
from crdtmem.serve.markup import Child, Markup, h
from crdtmem.serve.pages.diffs import diff_of
from crdtmem.serve.pages.layout import (
    Part,
    Visit,
    button,
    field,
    form,
    link,
    page,
    route,
)
from crdtmem.serve.pages.places import lane_tag, meter, place_of, slot_path
from crdtmem.serve.pages.refusal import refusal, set_aside
from crdtmem.serve.text import inline
from crdtmem.slot import Slot

__all__ = ["PAGES", "append_form"]

_CHANGES_SHOWN: Final = 20
_GONE: Final = (SlotNotFoundError, SlotQuarantinedError)
_FLAGS: Final = ("pinned", "read_only", "append_only")
_FLAG_WORDS: Final = {
    "pinned": "Pinned: part of what sessions start with",
    "read_only": "Read only",
    "append_only": "Append only",
}


class _Typed(NamedTuple):
    """What stands in the edit form, and which rev it was made from."""

    text: str
    base_rev: int


def append_form(visit: Visit, slot: Slot, view: SlotView) -> Child:
    """Return the form that appends to a slot; nothing where that is not allowed."""
    if not visit.ask.may_write or view.read_only:
        return None
    text = area("text", "", {"rows": 2, "required": True, "data-guard": True})
    return form(
        visit,
        slot_path(visit, slot, "append"),
        field("Append lines", text, "text"),
        button("Append"),
        attributes={"class": "append"},
    )


def _edit(visit: Visit) -> Answer:
    slot = place_of(visit)
    view = slot.read()
    typed = _Typed(field_value(str(view.content)), view.rev)
    return _edit_page(visit, slot, typed)


def _edit_page(
    visit: Visit,
    slot: Slot,
    typed: _Typed,
    *,
    above: Child = None,
    status: int = 200,
) -> Answer:
    view = slot.read()
    parts = [
        Part("above", above),
        Part(
            "moved",
            _moved(visit, slot, view, typed),
            "change",
            (slot.scope, slot.label),
        ),
        Part("form", _edit_form(visit, slot, view, typed)),
    ]
    return page(visit, f"Edit {slot.label}", parts, at="slots", status=status)


def _edit_form(visit: Visit, slot: Slot, view: SlotView, typed: _Typed) -> Markup:
    text = area(
        "content",
        typed.text,
        {
            "rows": 20,
            "dir": "auto",
            "spellcheck": "false",
            "data-limit": view.size_limit,
            "data-guard": True,
            "aria-describedby": "content-note",
        },
    )
    size = units_of(typed.text)
    note = h("output", {"for": "content"}, f"{size:,} of {view.size_limit:,} units")
    save = slot_path(visit, slot, "edit")
    return form(
        visit,
        save,
        hidden(base_rev=typed.base_rev),
        field(f"Text, from rev {typed.base_rev}", text, "content", note),
        h(
            "p",
            {"class": "actions"},
            button("Save and merge"),
            button("Preview", {"formaction": slot_path(visit, slot, "preview")}),
            link(slot_path(visit, slot), "Cancel", {"class": "action"}),
        ),
    )


def _moved(visit: Visit, slot: Slot, view: SlotView, typed: _Typed) -> Child:
    """Return who has written since the text of the form was read."""
    base = int_field(visit.ask.query.get("base_rev", str(typed.base_rev)), "base_rev")
    if view.rev <= base:
        return None
    rows = visit.memory.audit(label=slot.label, scope=slot.scope, limit=_CHANGES_SHOWN)
    lanes = dict.fromkeys(row.lane for row in rows if row.rev > base)
    words = f"The slot has moved on to rev {view.rev}; saving merges. Written by: "
    shown = [[lane_tag(lane), " "] for lane in lanes]
    return h("p", {"class": "note warn"}, words, shown)


def _typed(visit: Visit, slot: Slot) -> tuple[_Typed, str, str]:
    """Return what was sent, the base that it was made from, and the exact text."""
    raw, sent = visit.ask.form["content"], visit.ask.form["base_rev"]
    base_rev = int_field(sent, "base_rev")
    base = str(slot.read(at_rev=base_rev).content)
    return _Typed(sent_text(raw), base_rev), base, exact_text(raw, base)


def _save(visit: Visit) -> Answer:
    slot = place_of(visit)
    try:
        typed, _, text = _typed(visit, slot)
        result = slot.replace(
            text,
            base_rev=typed.base_rev,
            request_id=visit.ask.form["request_id"],
        )
    except CrdtmemError as error:
        return _keep_typed(visit, slot, error)
    if result.merged:
        to = slot_path(visit, slot, done="merged", base=typed.base_rev)
    else:
        to = slot_path(visit, slot, done="saved" if result.changed else "same")
    return see_other(to)


def _keep_typed(visit: Visit, slot: Slot, error: CrdtmemError) -> Answer:
    """Return the form again: a refusal takes nobody's text away."""
    raw = visit.ask.form["content"]
    if isinstance(error, _GONE):
        return set_aside(visit, f"Edit {slot.label}", sent_text(raw), error, "slots")
    base_rev = int_field(visit.ask.form["base_rev"], "base_rev")
    typed = _Typed(sent_text(raw), base_rev)
    above: list[Child] = [refusal(error)]
    if error.code == "rev-not-kept":
        now = slot.read()
        newest = link(slot_path(visit, slot, "edit"), "Edit the newest text")
        names = (f"rev {now.rev}", "as typed")
        above += [
            h("p", None, newest, " and take over from below what you changed."),
            diff_of(str(now.content), typed.text, label=slot.label, names=names),
        ]
    return _edit_page(visit, slot, typed, above=above, status=status_of(error))


def _preview(visit: Visit) -> Answer:
    slot = place_of(visit)
    try:
        typed, base, text = _typed(visit, slot)
    except CrdtmemError as error:
        return _keep_typed(visit, slot, error)
    now = slot.read()
    names = (f"rev {typed.base_rev}", "as typed")
    above = [
        h("h2", None, "What you changed"),
        diff_of(base, text, label=slot.label, names=names),
    ]
    if now.rev != typed.base_rev:
        above += [
            h("h2", None, f"Against rev {now.rev}, which others wrote"),
            h("p", {"class": "note"}, "What only stands there stays when you save."),
            diff_of(
                str(now.content),
                text,
                label=slot.label,
                names=(f"rev {now.rev}", "as typed"),
            ),
        ]
    return _edit_page(visit, slot, typed, above=above)


def _append_page(visit: Visit) -> Answer:
    slot = place_of(visit)
    view = slot.read()
    parts = [
        Part("append", [h("p", None, meter(view)), append_form(visit, slot, view)])
    ]
    return page(visit, f"Append to {slot.label}", parts, at="slots")


def _append(visit: Visit) -> Answer:
    slot = place_of(visit)
    text = sent_text(visit.ask.form["text"])
    try:
        slot.append(text, request_id=visit.ask.form["request_id"])
    except _GONE as error:
        return set_aside(visit, f"Append to {slot.label}", text, error, "slots")
    except CrdtmemError as error:
        view = slot.read()
        kept = field("Your text", area("text", text, {"rows": 6}), "text")
        again = form(visit, slot_path(visit, slot, "append"), kept, button("Append"))
        parts = [Part("append", [refusal(error), h("p", None, meter(view)), again])]
        title = f"Append to {slot.label}"
        return page(visit, title, parts, at="slots", status=status_of(error))
    return see_other(slot_path(visit, slot, done="appended"))


def _new_page(visit: Visit) -> Answer:
    return _new_form(visit, {})


def _new_form(
    visit: Visit, sent: dict[str, str], *, above: Child = None, status: int = 200
) -> Answer:
    scopes = [
        h("option", {"value": name, "selected": name == sent.get("scope")}, words)
        for name, words in (("project", "this project"), ("global", "all projects"))
    ]
    label: dict[str, str | bool] = {
        "required": True,
        "autocomplete": "off",
        "autocapitalize": "none",
    }
    fields = [
        _input("label", "Label", sent.get("label", ""), **label),
        field("Scope", h("select", {"name": "scope", "id": "scope"}, scopes), "scope"),
        _input("description", "Description", sent.get("description", "")),
        _input("size_limit", "Size limit, in units", sent.get("size_limit", "2000")),
        field("Text", area("content", sent.get("content", ""), {"rows": 8}), "content"),
    ]
    made = form(visit, visit.path("new"), fields, button("Make the slot"))
    return page(visit, "New slot", [Part("form", [above, made])], status=status)


def _new(visit: Visit) -> Answer:
    sent = {k: sent_text(v) for k, v in visit.ask.form.items()}
    try:
        result = visit.memory.create(
            sent["label"],
            sent["content"],
            scope=parse_scope(sent["scope"], optional=True) or "project",
            size_limit=int_field(sent["size_limit"], "size_limit"),
            description=sent["description"] or UNSET,
            request_id=sent["request_id"],
        )
    except CrdtmemError as error:
        above = refusal(error)
        return _new_form(visit, sent, above=above, status=status_of(error))
    return see_other(_made_path(visit, result))


def _made_path(visit: Visit, result: WriteResult) -> str:
    return visit.path("slots", result.scope, result.label, done="created")


def _settings_page(visit: Visit) -> Answer:
    slot = place_of(visit)
    return _settings_form(visit, slot, slot.read())


def _settings_form(
    visit: Visit,
    slot: Slot,
    view: SlotView,
    typed: Mapping[str, str] | None = None,
    *,
    above: Child = None,
    status: int = 200,
) -> Answer:
    sizes = {"description": view.description, "size_limit": str(view.size_limit)}
    values = typed or sizes | {n: "on" for n in _FLAGS if getattr(view, n)}
    flags = [
        h(
            "p",
            None,
            h(
                "input",
                {
                    "type": "checkbox",
                    "name": name,
                    "id": name,
                    "value": "on",
                    "checked": name in values,
                },
            ),
            " ",
            h("label", {"for": name}, _FLAG_WORDS[name]),
        )
        for name in _FLAGS
    ]
    made = form(
        visit,
        slot_path(visit, slot, "settings"),
        _input("description", "Description", values["description"]),
        _input("size_limit", "Size limit, in units", values["size_limit"]),
        flags,
        button("Save the settings"),
    )
    title = f"Settings of {slot.label}"
    return page(visit, title, [Part("form", [above, made])], at="slots", status=status)


def _settings(visit: Visit) -> Answer:
    slot, sent = place_of(visit), visit.ask.form
    view = slot.read()
    changed: dict[str, bool] = {
        name: name in sent
        for name in _FLAGS
        if (name in sent) != bool(getattr(view, name))
    }
    description: str | Unset = UNSET
    # A field drops line ends: one that shows the same is the same.
    if sent["description"] != field_value(view.description).replace("\n", ""):
        description = sent["description"]
    try:
        size_limit = int_field(sent["size_limit"], "size_limit")
        new_limit = UNSET if size_limit == view.size_limit else size_limit
        if changed or description is not UNSET or new_limit is not UNSET:
            slot.set_meta(
                description=description,
                size_limit=new_limit,
                request_id=sent["request_id"],
                pinned=changed.get("pinned", UNSET),
                read_only=changed.get("read_only", UNSET),
                append_only=changed.get("append_only", UNSET),
            )
    except CrdtmemError as error:
        return _settings_form(
            visit, slot, view, sent, above=refusal(error), status=status_of(error)
        )
    return see_other(slot_path(visit, slot, done="settings"))


def _delete_page(visit: Visit) -> Answer:
    slot = place_of(visit)
    return _delete_form(visit, slot, slot.read())


def _delete_form(
    visit: Visit, slot: Slot, view: SlotView, *, above: Child = None, status: int = 200
) -> Answer:
    text = str(view.content)
    made = form(
        visit,
        slot_path(visit, slot, "delete"),
        hidden(expected_rev=view.rev),
        h("p", None, button(f"Delete {slot.label} at rev {view.rev}")),
    )
    body = [
        above,
        h(
            "p",
            None,
            "This is what goes. The history keeps it, and an undo returns it.",
        ),
        diff_of(text, "", label=slot.label, names=(view.rev, "deleted")),
        made,
    ]
    title = f"Delete {slot.label}"
    return page(visit, title, [Part("form", body)], at="slots", status=status)


def _delete(visit: Visit) -> Answer:
    slot, sent = place_of(visit), visit.ask.form
    try:
        visit.memory.delete(
            slot.label,
            slot.scope,
            expected_rev=int_field(sent["expected_rev"], "expected_rev"),
            request_id=sent["request_id"],
        )
    except CrdtmemError as error:
        above = refusal(error)
        view = slot.read()
        return _delete_form(visit, slot, view, above=above, status=status_of(error))
    return see_other(visit.path("slots"))


def _input(name: str, label: str, value: str, **more: str | bool) -> Markup:
    attributes = {"name": name, "id": name, "value": value, **more}
    return field(inline(label), h("input", attributes), name)


_SLOT: Final = "/p/{project}/slots/{scope}/{label}"
_SENT: Final = ("content", "base_rev", "request_id")
PAGES: Final = (
    route("GET", f"{_SLOT}/edit", _edit, ("base_rev",), writes=True),
    route("POST", f"{_SLOT}/edit", _save, _SENT, writes=True),
    route("POST", f"{_SLOT}/preview", _preview, _SENT),
    route("GET", f"{_SLOT}/append", _append_page, writes=True),
    route("POST", f"{_SLOT}/append", _append, ("text", "request_id"), writes=True),
    route("GET", "/p/{project}/new", _new_page, writes=True),
    route(
        "POST",
        "/p/{project}/new",
        _new,
        ("label", "scope", "description", "size_limit", "content", "request_id"),
        writes=True,
    ),
    route("GET", f"{_SLOT}/settings", _settings_page, writes=True),
    route(
        "POST",
        f"{_SLOT}/settings",
        _settings,
        ("description", "size_limit", *_FLAGS, "request_id"),
        writes=True,
        optional=_FLAGS,
    ),
    route("GET", f"{_SLOT}/delete", _delete_page, writes=True),
    route(
        "POST",
        f"{_SLOT}/delete",
        _delete,
        ("expected_rev", "request_id"),
        writes=True,
    ),
)
