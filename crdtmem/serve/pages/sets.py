"""Memory sets: partitions, their sets, the items of one; add, update, delete, undo."""

import json
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from crdtmem.errors import CrdtmemError, InvalidArgumentError, ItemNotFoundError
from crdtmem.models import Scope, Unset
from crdtmem.partition import decode_key
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
from crdtmem.serve.markup import Attributes, Child, Markup, h
from crdtmem.serve.pages.layout import (
    Part,
    Visit,
    ago,
    button,
    field,
    form,
    link,
    page,
    route,
    table,
)
from crdtmem.serve.pages.places import lane_tag
from crdtmem.serve.pages.refusal import refusal, set_aside
from crdtmem.serve.pages.search import excerpt
from crdtmem.serve.text import inline, plain, shown
from crdtmem.sets.binding import BoundMemory
from crdtmem.sets.memory_set import MemorySet
from crdtmem.sets.values import (
    Item,
    ItemChange,
    ItemConflict,
    ItemPage,
    ItemValue,
    SetHeadroom,
)

__all__ = ["PAGES"]

_ITEMS: Final = 100
_CHANGES: Final = 100
_WHERE: Final = ("partition", "scope", "set")


class _Where(NamedTuple):
    """What the address or the form names: a partition, and a set of it."""

    partition: str
    scope: Scope
    name: str

    def path(self, visit: Visit, *more: str, **query: str | int | None) -> str:
        return visit.path(
            "sets",
            *more,
            partition=self.partition,
            scope=self.scope,
            set_=self.name,
            **query,
        )

    def fields(self) -> list[Markup]:
        return hidden(partition=self.partition, scope=self.scope, set=self.name)


def _where(given: Mapping[str, str]) -> _Where:
    scope = parse_scope(given.get("scope", "project"), optional=True) or "project"
    return _Where(given.get("partition", ""), scope, given.get("set", ""))


def _bound(visit: Visit, where: _Where) -> BoundMemory:
    key = decode_key(where.partition)
    return visit.memory.bind(partition_key=key, scope=where.scope)


def _set(visit: Visit, where: _Where) -> MemorySet:
    return _bound(visit, where).memory_set(where.name)


def _sets(visit: Visit) -> Answer:
    query = visit.ask.query
    if "partition" not in query:
        return _partitions(visit)
    where = _where(query)
    if "set" not in query:
        return _sets_of(visit, where)
    return _items(visit, where)


def _partitions(visit: Visit) -> Answer:
    rows: list[list[Child]] = []
    scopes: tuple[Scope, ...] = ("project", "global")
    for scope in scopes:
        for info in visit.memory.partitions(scope):
            to = visit.path("sets", partition=info.encoded_key, scope=scope)
            name = link(to, inline(info.encoded_key))
            rows.append([name, scope, info.sets, info.item_count])
    made = table("Partitions", ("Partition key", "Scope", "Sets", "Items"), rows)
    none = h("p", {"class": "note"}, "Agents make memory sets; there are none yet.")
    return page(visit, "Memory sets", [Part("sets", made if rows else none)], at="sets")


def _sets_of(visit: Visit, where: _Where) -> Answer:
    rows: list[list[Child]] = [
        [
            link(where._replace(name=one.name).path(visit), inline(one.name)),
            _fullness(one),
            one.rev,
            ago(one.updated_at),
        ]
        for one in _bound(visit, where).memory_sets()
    ]
    made = table("Sets", ("Set", "Fullness", "Rev", "Changed"), rows)
    title = f"Sets of {plain(where.partition)}"
    return page(visit, title, [Part("sets", made)], at="sets")


def _fullness(room: SetHeadroom) -> Child:
    words = f"{room.item_count:,} of {room.item_limit:,} items · {room.pct_used} % used"
    return [
        words,
        h("span", {"class": "warn"}, f" ⚠ {room.warning}") if room.warning else None,
    ]


def _items(visit: Visit, where: _Where) -> Answer:
    query = visit.ask.query
    target = _set(visit, where)
    words = query.get("q", "")
    found = target.search(words) if words else None
    listed = target.get(limit=_ITEMS, cursor=query.get("cursor"))
    body: list[Child] = [_finder(visit, where, words)]
    if found is not None:
        body.append(h("p", {"class": "note"}, f"{len(found.hits)} found"))
        body += [
            _item(visit, where, hit.item, excerpt(hit))
            for hit in found.hits
            if isinstance(hit.item, Item)
        ]
    else:
        body += [_item(visit, where, item, None) for item in listed.items]
        body.append(_further(visit, where, listed))
    others = visit.path("sets", partition=where.partition, scope=where.scope)
    key = link(others, inline(where.partition))
    room = [_fullness(listed), f" · rev {listed.rev} · partition ", key]
    parts = [
        Part("room", h("p", None, room)),
        Part("items", body),
        Part("add", _add_form(visit, where)),
    ]
    history = link(where.path(visit, "history"), "History", {"class": "action"})
    return page(visit, where.name, parts, at="sets", actions=history)


def _further(visit: Visit, where: _Where, listed: ItemPage) -> Child:
    if not listed.more:
        return None
    to = where.path(visit, cursor=str(listed.cursor))
    return h("p", None, link(to, "Older items"))


def _finder(visit: Visit, where: _Where, words: str) -> Markup:
    control = {"type": "search", "name": "q", "id": "words", "value": words}
    return h(
        "form",
        {"method": "get", "action": visit.path("sets"), "class": "fields"},
        where.fields(),
        field("Search in this set", h("input", control), "words"),
        button("Search the set"),
    )


def _item(visit: Visit, where: _Where, item: Item, piece: Child) -> Markup:
    text = h("p", {"class": "excerpt", "dir": "auto"}, shown(item.text))
    name = h("code", None, inline(item.id))
    conflicts: list[Child] = [
        h("p", {"class": "warn"}, "⚠ written at the same time by ", lane_tag(c.lane))
        for c in _conflicts(item)
    ]
    facts: list[Child] = [
        link(where.path(visit, "item", id=item.id), name),
        " · ",
        lane_tag(item.lane),
        " · ",
    ]
    return h(
        "article",
        {"class": "item", "data-row": True},
        h("p", None, facts, ago(item.updated_at)),
        piece or text,
        _metadata(item.metadata),
        conflicts,
    )


def _metadata(metadata: Mapping[str, object]) -> Child:
    if not metadata:
        return None
    text = json.dumps(metadata, ensure_ascii=False, sort_keys=True)
    return h("p", {"class": "note"}, "metadata ", h("code", None, inline(text)))


def _add_form(
    visit: Visit, where: _Where, sent: Mapping[str, str] | None = None
) -> Child:
    if not visit.ask.may_write:
        return None
    sent = sent or {}
    return form(
        visit,
        visit.path("sets", "add"),
        where.fields(),
        h("h2", None, "Add an item"),
        field("Text", area("text", sent.get("text", ""), {"rows": 3}), "text"),
        _metadata_field(sent.get("metadata", "{}")),
        button("Add the item"),
    )


def _metadata_field(text: str) -> Markup:
    note = "A JSON object"
    attributes: Attributes = {
        "rows": 3,
        "spellcheck": "false",
        "aria-describedby": "metadata-note",
    }
    return field("Metadata", area("metadata", text, attributes), "metadata", note)


def _read_metadata(text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as exc:
        message = "metadata must be a JSON object"
        raise InvalidArgumentError("metadata", message) from exc
    if not isinstance(value, dict):
        raise InvalidArgumentError("metadata", "metadata must be a JSON object")
    return value


def _add(visit: Visit) -> Answer:
    sent = visit.ask.form
    where = _where(sent)
    try:
        _set(visit, where).add(
            sent_text(sent["text"]),
            _read_metadata(sent["metadata"]),
            request_id=sent["request_id"],
        )
    except CrdtmemError as error:
        kept = {"text": sent_text(sent["text"]), "metadata": sent["metadata"]}
        parts = [Part("add", [refusal(error), _add_form(visit, where, kept)])]
        return page(visit, where.name, parts, at="sets", status=status_of(error))
    return see_other(where.path(visit))


def _item_page(visit: Visit) -> Answer:
    query = visit.ask.query
    return _item_form(visit, _where(query), query.get("id", ""))


def _found_item(target: MemorySet, item_id: str) -> Item:
    found = target.get([item_id]).items
    if not found:
        raise ItemNotFoundError(set_name=target.name, id=item_id)
    return found[0]


def _item_form(
    visit: Visit,
    where: _Where,
    item_id: str,
    *,
    above: Child = None,
    typed: Mapping[str, str] | None = None,
    status: int = 200,
) -> Answer:
    item = _found_item(_set(visit, where), item_id)
    metadata = json.dumps(item.metadata, ensure_ascii=False, indent=1, sort_keys=True)
    typed = typed or {"text": field_value(item.text), "metadata": metadata}
    body: list[Child] = [above]
    body += [
        _conflict(c.lane, ItemValue(text=c.text, metadata=c.metadata))
        for c in _conflicts(item)
    ]
    if visit.ask.may_write:
        body += [
            _update_form(visit, where, item, typed),
            _delete_form(visit, where, item),
        ]
    else:
        body += [
            h("p", {"class": "excerpt"}, shown(item.text)),
            _metadata(item.metadata),
        ]
    changes = _set(visit, where).history(item_id, limit=20).entries
    body += [h("h2", None, "What it was"), [_told(entry) for entry in changes]]
    title = f"Item {plain(item_id)}"
    back = link(where.path(visit), "To the set", {"class": "action"})
    return page(
        visit, title, [Part("item", body)], at="sets", status=status, actions=back
    )


def _conflicts(item: Item) -> tuple[ItemConflict, ...]:
    return () if isinstance(item.conflicts, Unset) else item.conflicts


def _conflict(lane: str, value: ItemValue) -> Child:
    words = "⚠ At the same time another lane wrote this; saving settles it: "
    return h(
        "div",
        {"class": "item conflict"},
        h("p", {"class": "warn"}, words, lane_tag(lane)),
        h("p", {"class": "excerpt", "dir": "auto"}, shown(value.text)),
        _metadata(value.metadata),
    )


def _update_form(
    visit: Visit, where: _Where, item: Item, typed: Mapping[str, str]
) -> Markup:
    attributes: Attributes = {
        "rows": 8,
        "dir": "auto",
        "data-guard": True,
    }
    return form(
        visit,
        visit.path("sets", "update"),
        where.fields(),
        hidden(id=item.id, expected_rev=item.rev),
        field(
            f"Text, at rev {item.rev}", area("text", typed["text"], attributes), "text"
        ),
        _metadata_field(typed["metadata"]),
        button("Save the item"),
    )


def _delete_form(visit: Visit, where: _Where, item: Item) -> Markup:
    return form(
        visit,
        visit.path("sets", "delete"),
        where.fields(),
        hidden(id=item.id),
        button("Delete the item"),
        attributes={"class": "inline"},
    )


def _update(visit: Visit) -> Answer:
    sent = visit.ask.form
    where = _where(sent)
    target = _set(visit, where)
    try:
        item = _found_item(target, sent["id"])
        target.update(
            item.id,
            exact_text(sent["text"], item.text),
            _read_metadata(sent["metadata"]),
            expected_rev=int_field(sent["expected_rev"], "expected_rev"),
            request_id=sent["request_id"],
        )
    except ItemNotFoundError as error:
        typed_text = sent_text(sent["text"])
        return set_aside(visit, plain(where.name), typed_text, error, "sets")
    except CrdtmemError as error:
        typed = {"text": sent_text(sent["text"]), "metadata": sent["metadata"]}
        return _item_form(
            visit,
            where,
            sent["id"],
            above=refusal(error),
            typed=typed,
            status=status_of(error),
        )
    return see_other(where.path(visit))


def _delete(visit: Visit) -> Answer:
    sent = visit.ask.form
    where = _where(sent)
    _set(visit, where).delete([sent["id"]], request_id=sent["request_id"])
    return see_other(where.path(visit, "history"))


def _history(visit: Visit) -> Answer:
    return _history_page(visit, _where(visit.ask.query))


def _history_page(
    visit: Visit, where: _Where, *, above: Child = None, status: int = 200
) -> Answer:
    before = visit.ask.query.get("before")
    found = _set(visit, where).history(
        limit=_CHANGES,
        before=None if before is None else int_field(before, "before", 1),
    )
    body: list[Child] = [above]
    last_rev = None
    for entry in found.entries:
        if entry.rev != last_rev:
            body.append(_commit(visit, where, entry))
        last_rev = entry.rev
        body.append(_change(entry))
    if found.more and last_rev is not None:
        to = where.path(visit, "history", before=last_rev + 1)
        body.append(h("p", None, link(to, "Older changes")))
    back = link(where.path(visit), "To the set", {"class": "action"})
    title = f"History of {plain(where.name)}"
    return page(
        visit, title, [Part("changes", body)], at="sets", status=status, actions=back
    )


def _commit(visit: Visit, where: _Where, entry: ItemChange) -> Child:
    undo: Child = None
    if visit.ask.may_write:
        undo = form(
            visit,
            visit.path("sets", "undo"),
            where.fields(),
            hidden(rev=entry.rev),
            button(f"Undo rev {entry.rev}"),
            attributes={"class": "inline"},
        )
    words = h("h2", None, f"Rev {entry.rev}, ", _by(entry))
    return h("div", {"class": "heading"}, words, undo)


def _by(entry: ItemChange) -> Child:
    return [ago(entry.at), " by ", lane_tag(entry.lane)]


def _told(entry: ItemChange) -> Markup:
    """Return a change of the one item that a page is about."""
    return _shown(entry, [inline(entry.operation), " ", _by(entry)])


def _change(entry: ItemChange) -> Markup:
    """Return a change of one of the items of a commit."""
    item = h("code", None, inline(entry.item_id))
    return _shown(entry, [inline(entry.operation), " ", item])


def _shown(entry: ItemChange, head: Child) -> Markup:
    rows: list[Child] = [h("p", None, head)]
    for sign, value in (("-", entry.old), ("+", entry.new)):
        if isinstance(value, ItemValue):
            tag = "ins" if sign == "+" else "del"
            rows.append(
                h(
                    "p",
                    {"class": "excerpt", "dir": "auto"},
                    h(tag, None, sign, " ", shown(value.text)),
                )
            )
            rows.append(_metadata(value.metadata))
    return h("article", {"class": "item", "data-row": True}, rows)


def _undo(visit: Visit) -> Answer:
    sent = visit.ask.form
    where = _where(sent)
    try:
        rev = int_field(sent["rev"], "rev", 1)
        _set(visit, where).undo(rev, request_id=sent["request_id"])
    except CrdtmemError as error:
        above = refusal(error)
        return _history_page(visit, where, above=above, status=status_of(error))
    return see_other(where.path(visit))


PAGES: Final = (
    route("GET", "/p/{project}/sets", _sets, (*_WHERE, "q", "cursor")),
    route("GET", "/p/{project}/sets/item", _item_page, (*_WHERE, "id")),
    route("GET", "/p/{project}/sets/history", _history, (*_WHERE, "before")),
    route(
        "POST",
        "/p/{project}/sets/add",
        _add,
        (*_WHERE, "text", "metadata", "request_id"),
        writes=True,
    ),
    route(
        "POST",
        "/p/{project}/sets/update",
        _update,
        (*_WHERE, "id", "text", "metadata", "expected_rev", "request_id"),
        writes=True,
    ),
    route(
        "POST",
        "/p/{project}/sets/delete",
        _delete,
        (*_WHERE, "id", "request_id"),
        writes=True,
    ),
    route(
        "POST",
        "/p/{project}/sets/undo",
        _undo,
        (*_WHERE, "rev", "request_id"),
        writes=True,
    ),
)
