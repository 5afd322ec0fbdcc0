"""Search in the slots, in what they were, and in what was taken out of them."""

from collections.abc import Mapping
from typing import Final

from crdtmem.errors import CrdtmemError
from crdtmem.search.values import Kind, Mode, SearchHit, SearchResult, Sort
from crdtmem.serve.answers import Answer, status_of
from crdtmem.serve.markup import Attributes, Child, Markup, h
from crdtmem.serve.pages.layout import (
    Part,
    Visit,
    ago,
    button,
    field,
    link,
    page,
    route,
)
from crdtmem.serve.pages.places import lane_tag
from crdtmem.serve.pages.refusal import refusal
from crdtmem.serve.text import inline, marked

__all__ = ["PAGES", "excerpt", "hits_shown"]

_KINDS: Final[Mapping[str, tuple[Kind, ...]]] = {
    "slot": ("slot",),
    "history": ("history",),
    "archive": ("archive",),
    "all": ("slot", "history", "archive"),
}
_MODES: Final[Mapping[str, Mode]] = {"auto": "auto", "all": "all", "any": "any"}
_SORTS: Final[Mapping[str, Sort]] = {"relevance": "relevance", "recent": "recent"}
_WORDS: Final = {
    "kinds": {
        "slot": "what the slots hold",
        "history": "what one slot held",
        "archive": "what was condensed out of one slot",
        "all": "all of one slot",
    },
    "mode": {"auto": "all words, else any", "all": "all words", "any": "any word"},
    "sort": {"relevance": "the best first", "recent": "the newest first"},
}


def excerpt(hit: SearchHit) -> Child:
    """Return the piece of text that a hit shows, its words highlighted."""
    before = "… " if hit.cut.start else None
    after = " …" if hit.cut.end else None
    text = marked(hit.snippet, hit.matches)
    return h("p", {"class": "excerpt", "dir": "auto"}, before, text, after)


def _search(visit: Visit) -> Answer:
    query = visit.ask.query.get("q", "")
    status, body = 200, None
    if query:
        try:
            body = hits_shown(visit, _found(visit, query))
        except CrdtmemError as error:
            status, body = status_of(error), refusal(error, of_write=False)
    parts = [Part("form", _form(visit)), Part("hits", body)]
    return page(visit, "Search", parts, at="search", status=status)


def _found(visit: Visit, words: str) -> SearchResult:
    query = visit.ask.query
    return visit.memory.search(
        words,
        kinds=_KINDS.get(query.get("kinds", "slot"), ("slot",)),
        label=query.get("label") or None,
        mode=_MODES.get(query.get("mode", "auto"), "auto"),
        sort=_SORTS.get(query.get("sort", "relevance"), "relevance"),
    )


def _form(visit: Visit) -> Markup:
    query = visit.ask.query
    words: Attributes = {
        "type": "search",
        "name": "q",
        "id": "q",
        "value": query.get("q", ""),
        "required": True,
        "aria-describedby": "q-note",
    }
    label: Attributes = {
        "name": "label",
        "id": "label",
        "value": query.get("label", ""),
    }
    note = 'Words, "phrases", begin*, -without, one OR other'
    return h(
        "form",
        {"method": "get", "action": visit.path("search"), "class": "fields"},
        field("Words", h("input", words), "q"),
        field("Only in slot", h("input", label), "label"),
        [_select(name, query.get(name, "")) for name in ("kinds", "mode", "sort")],
        button("Search"),
        h("p", {"class": "note", "id": "q-note"}, note),
    )


def _select(name: str, chosen: str) -> Markup:
    options = [
        h("option", {"value": value, "selected": value == chosen}, words)
        for value, words in _WORDS[name].items()
    ]
    label = {
        "kinds": "Look at",
        "mode": "With",
        "sort": "Order",
    }[name]
    return field(label, h("select", {"name": name, "id": name}, options), name)


def hits_shown(visit: Visit, found: SearchResult) -> Child:
    """Return what a search found, and what it could not do."""
    if not found.hits:
        return h("p", None, "Nothing was found.")
    notes: list[Child] = [f"{len(found.hits)} found"]
    if found.more:
        notes.append(", and there is more")
    if found.semantic != "off":
        notes.append(f" · by meaning, too: {found.semantic}")
    if found.degraded:
        notes.append(" · the index is damaged, so every text was looked at")
    items = [h("li", {"data-row": True}, _hit(visit, hit)) for hit in found.hits]
    return [h("p", {"class": "note"}, notes), h("ol", {"class": "hits"}, items)]


def _hit(visit: Visit, hit: SearchHit) -> Child:
    where = visit.path("slots", hit.scope, hit.label)
    what = {"history": " · held until", "archive": " · condensed"}.get(hit.kind, " ·")
    if hit.kind == "history":
        to = visit.path(
            "slots", hit.scope, hit.label, "restore", id=str(hit.history_id)
        )
    elif hit.kind == "archive":
        to = visit.path("condense", "archive", id=str(hit.pass_id))
    else:
        to = f"{where}#L{hit.line}" if hit.line else where
    place = f", line {hit.line}" if hit.line else ""
    head = h(
        "p",
        None,
        link(to, [inline(hit.label), place]),
        f" ({hit.scope}){what} ",
        ago(hit.updated_at),
        " · ",
        lane_tag(hit.lane),
    )
    return [head, excerpt(hit)]


PAGES: Final = (
    route(
        "GET", "/p/{project}/search", _search, ("q", "kinds", "label", "mode", "sort")
    ),
)
