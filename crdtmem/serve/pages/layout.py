"""What all pages have in common: their frame, their parts, and how they are answered.

A page is a plain function from a Visit to an Answer and runs on the memory's thread. It
is made of parts; the script asks for one of them by ``?part=NAME`` when it is stale, so
the server renders everything, once.
"""

import secrets
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from time import monotonic
from typing import Final, NamedTuple

from crdtmem.errors import InvalidArgumentError
from crdtmem.limits import SERVE_KEPT_BYTES, SERVE_KEPT_MAX, SERVE_KEPT_S
from crdtmem.memory import Memory
from crdtmem.models import LinkStatus
from crdtmem.scope import GLOBAL_NAMESPACE, parse_project_id
from crdtmem.serve.answers import Answer, Ask, PageRoute, Site, html
from crdtmem.serve.assets import ICON, SCRIPT, STYLE
from crdtmem.serve.forms import hidden
from crdtmem.serve.markup import Attributes, Child, Markup, address, document, h
from crdtmem.serve.text import inline, plain
from crdtmem.status import sync_status
from crdtmem.store.about import data_version

__all__ = [
    "KEYS_COOKIE",
    "STATES",
    "THEMES",
    "THEME_COOKIE",
    "Part",
    "Visit",
    "age",
    "ago",
    "button",
    "cookie_value",
    "counted",
    "field",
    "folded",
    "form",
    "frame",
    "is_seen",
    "link",
    "links_in_sight",
    "moment",
    "page",
    "route",
    "row",
    "seconds_since",
    "table",
    "timed",
    "times",
    "unseen",
]

_NAV: Final = (
    ("slots", "Slots"),
    ("search", "Search"),
    ("sets", "Memory sets"),
    ("condense", "Condense"),
    ("status", "Status"),
    ("activity", "Activity"),
)
# Figures that say nothing without their column's name: where there is no room for
# columns, rows are shown as paragraphs.
_LABELLED: Final = frozenset(
    (
        "Blocked",
        "Error",
        "Expires",
        "Files",
        "Held",
        "Items",
        "Refused",
        "Rev",
        "Runs",
        "Sets",
        "Size",
        "To come",
        "To send",
    )
)
_SYNC: Final = "sync"
THEMES: Final = ("auto", "dark", "light")
THEME_COOKIE: Final = "crdtmem_theme"
KEYS_COOKIE: Final = "crdtmem_keys"
STATES: Final = {
    "connected": "connected",
    "connecting": "connecting",
    "waiting": "waiting to try again",
    "stopped": "stopped",
    "no-lease": "not running",
}


class Visit(NamedTuple):
    """A request for a page, on the thread of its memory.

    Attributes:
        ask: The request.
        memory: Of its project and lane.
        editors: Who edits which slot, as the event ``editors`` shows it.

    """

    ask: Ask
    memory: Memory
    editors: tuple[Mapping[str, object], ...]

    @property
    def project(self) -> str:
        """The project's id."""
        return self.memory.project

    def path(self, *segments: str, **query: str | int | None) -> str:
        """Return the address of a page of the project."""
        return address("p", self.project, *segments, **query)


class Part(NamedTuple):
    """A piece of a page that is asked for alone when it is stale.

    Attributes:
        name: For ``?part=``.
        body: What is in it, or what makes it, where that costs something.
        on: The events that make it stale, by their names; empty for none.
        slot: Only events of this slot do: scope and label.

    """

    name: str
    body: Child | Callable[[], Child]
    on: str = ""
    slot: tuple[str, str] | None = None

    def markup(self) -> Markup:
        """Return the part as an element."""
        attributes: dict[str, str] = {"data-part": self.name}
        if self.on:
            attributes["data-on"] = self.on
        if self.slot is not None:
            attributes["data-slot"] = "/".join(self.slot)
        body = self.body() if callable(self.body) else self.body
        return h("div", attributes, body)


def route(
    method: str,
    pattern: str,
    answer: Callable[[Visit], Answer],
    fields: Sequence[str] = (),
    *,
    writes: bool = False,
    optional: Sequence[str] = (),
    kept: bool = False,
) -> PageRoute:
    """Return the route of a page, or of a form, whose fields must be there.

    Args:
        method: As in PageRoute.
        pattern: As in PageRoute.
        answer: Makes the answer, on the thread of the memory.
        fields: As in PageRoute.
        writes: As in PageRoute.
        optional: Fields of a form that it may lack, as browsers send no empty box.
        kept: Whether the page is made once for all who ask, while nothing is written.

    """
    made = partial(_kept, answer) if kept else answer

    async def answer_ask(ask: Ask) -> Answer:
        for name in fields if method == "POST" else ():
            if name not in ask.form and name not in optional:
                raise InvalidArgumentError(name, f"the form lacks {name}")
        project = parse_project_id(ask.params.get("project", ask.site.start_project))
        editors = (
            *ask.site.editors_in(project),
            *ask.site.editors_in(GLOBAL_NAMESPACE),
        )
        marked = ask._replace(csrf=_CSRF_MARK)
        async with ask.site.handles.use(project, ask.principal.lane) as memory:
            found = await memory.call(lambda m: made(Visit(marked, m, editors)))
        return found._replace(body=_filled(found.body, ask.csrf))

    return PageRoute(method, pattern, answer_ask, tuple(fields), writes)


# What is of one session, or of one answer, is a mark that nobody can know until the
# page leaves; so a page that is kept holds nothing of either.
_CSRF_MARK: Final = secrets.token_hex(16)
_ONCE_MARK: Final = secrets.token_hex(16)
_KEPT: Final[OrderedDict[tuple[object, ...], Answer]] = OrderedDict()


def _filled(body: bytes, csrf: str) -> bytes:
    """Return a page whose forms are of this session, and of no other answer."""
    filled = body.replace(_CSRF_MARK.encode(), csrf.encode())
    return filled.replace(_ONCE_MARK.encode(), secrets.token_hex(16).encode())


def _kept(make: Callable[[Visit], Answer], visit: Visit) -> Answer:
    """Return a page, made if nobody has asked for it since the last commit.

    It is of one state of the store. Every few seconds it is made all the same, for
    ages go on. So is the state of sync whenever its event has somebody ask for it: not
    all of that is in the store.
    """
    if visit.ask.query.get("part") == _SYNC:
        return make(visit)
    with visit.memory.store.snapshot() as connection:
        # Of one project and lane; counts the commits of all others, and its own rows.
        version = (connection, data_version(connection), connection.total_changes())
        key = (make, *version, int(monotonic() / SERVE_KEPT_S), *_seen_by(visit))
        found = _KEPT.get(key)
        if found is None:
            found = make(visit)
            if len(found.body) <= SERVE_KEPT_BYTES:
                _KEPT[key] = found
    while len(_KEPT) > SERVE_KEPT_MAX:
        _KEPT.popitem(last=False)
    return found


def _seen_by(visit: Visit) -> tuple[object, ...]:
    """Return all that a page shows and the store does not hold, but for the marks."""
    ask = visit.ask
    return (
        *sorted(ask.params.items()),
        *sorted(ask.query.items()),
        ask.may_write,
        ask.principal.session_id is None,
        cookie_value(ask, THEME_COOKIE),
        cookie_value(ask, KEYS_COOKIE),
        repr(visit.editors),
        *(repr(ask.site.presence_in(x)) for x in (visit.project, GLOBAL_NAMESPACE)),
    )


def page(
    visit: Visit,
    title: str,
    parts: Sequence[Part],
    *,
    at: str = "",
    status: int = 200,
    actions: Child = None,
) -> Answer:
    """Return a page, or the one part of it that was asked for.

    Args:
        visit: The request.
        title: Its heading; hidden characters are shown by their numbers.
        parts: What it is made of.
        at: Which entry of the navigation it belongs to.
        status: Of the answer.
        actions: Stand beside the heading.

    Raises:
        InvalidArgumentError: If there is no such part.

    """
    name = visit.ask.query.get("part")
    sync = Part(_SYNC, lambda: _sync_words(visit), "sync")
    if name is None:
        body = [part.markup() for part in parts]
        chrome = _Chrome(visit.project, _projects(visit), sync.markup(), at)
        return html(frame(visit.ask, title, body, chrome, actions), status)
    for part in (*parts, sync):
        if part.name == name:
            return html(part.markup(), status)
    raise InvalidArgumentError("part", f"this page has no part {name!a:.40}")


class _Chrome(NamedTuple):
    """What stands around a page whose project is known."""

    project: str
    projects: Sequence[str]
    sync: Markup
    at: str


def frame(
    ask: Ask,
    title: str,
    body: Child,
    chrome: _Chrome | None = None,
    actions: Child = None,
) -> Markup:
    """Return a whole page; without the chrome where nobody is signed in."""
    name = plain(title)
    attributes: dict[str, str | bool] = {"lang": "en"}
    theme = cookie_value(ask, THEME_COOKIE)
    if theme in THEMES[1:]:
        attributes["data-theme"] = theme
    if cookie_value(ask, KEYS_COOKIE) == "off":
        attributes["data-keys"] = "off"
    if chrome is not None:
        attributes["data-project"] = chrome.project
    head: list[Child] = [
        h("meta", {"charset": "utf-8"}),
        h("meta", {"name": "viewport", "content": "width=device-width"}),
        h("meta", {"name": "color-scheme", "content": "light dark"}),
        h("title", None, f"{name} · crdtmem"),
        h("link", {"rel": "stylesheet", "href": STYLE}),
        h("link", {"rel": "icon", "href": ICON, "type": "image/svg+xml"}),
        h("script", {"src": SCRIPT, "defer": True}),
    ]
    heading = h("div", {"class": "heading"}, h("h1", None, inline(title)), actions)
    main = h("main", {"id": "main", "tabindex": "-1"}, heading, _live(), body)
    skip = h("a", {"class": "skip", "href": "#main"}, "Skip to the content")
    bare = h("header", None, h("div", {"class": "bar"}, _brand()))
    shell = [_header(ask, chrome), main, _footer(ask)] if chrome else [bare, main]
    return document(attributes, head, h("body", None, skip, shell))


def link(to: str, text: Child, attributes: Attributes | None = None) -> Markup:
    """Return a link."""
    return h("a", {"href": to, **(attributes or {})}, text)


def form(
    visit: Visit, action: str, *children: Child, attributes: Attributes | None = None
) -> Markup:
    """Return a form that writes; sent twice it writes once."""
    number = _ONCE_MARK + secrets.token_hex(16)
    fields = hidden(csrf=visit.ask.csrf, request_id=number)
    given = {"method": "post", "action": action, **(attributes or {})}
    return h("form", given, fields, children)


def button(text: Child, attributes: Attributes | None = None) -> Markup:
    """Return a button that sends its form."""
    return h("button", {"type": "submit", **(attributes or {})}, text)


def field(label: Child, control: Markup, name: str, note: Child = None) -> Markup:
    """Return a control with its label."""
    shown_note = h("p", {"class": "note", "id": f"{name}-note"}, note) if note else None
    return h(
        "div", {"class": "field"}, h("label", {"for": name}, label), control, shown_note
    )


def unseen(text: str) -> Markup:
    """Return words for those who hear a page: which of many equal links it is."""
    return h("span", {"class": "quiet"}, " ", inline(text))


def row(columns: Sequence[str], first: Child, *rest: Child) -> Markup:
    """Return a row of a table; its first cell is its heading."""
    cells = [
        h("td", {"data-label": name} if name in _LABELLED else None, cell)
        for name, cell in zip(columns[1:], rest, strict=True)
    ]
    return h("tr", {"data-row": True}, h("th", {"scope": "row"}, first), cells)


def table(
    caption: str, columns: Sequence[str], rows: Sequence[Markup | Sequence[Child]]
) -> Markup:
    """Return a table that scrolls by itself where it is too wide."""
    head = h("tr", None, [h("th", {"scope": "col"}, column) for column in columns])
    body = [one if isinstance(one, Markup) else row(columns, *one) for one in rows]
    made = h(
        "table",
        None,
        h("caption", {"class": "quiet"}, caption),
        h("thead", None, head),
        h("tbody", None, body),
    )
    around: Attributes = {
        "class": "wide",
        "role": "region",
        "aria-label": caption,
        "tabindex": 0,
    }
    return h("div", around, made)


def folded(summary: str, body: Child) -> Markup:
    """Return what is shown once somebody asks for it."""
    return h("details", None, h("summary", None, summary), body)


def ago(iso: str | None) -> Child:
    """Return a time in words, with the exact one beside it."""
    return timed(iso, age(iso))


def timed(iso: str | None, words: str) -> Child:
    """Return words for a time, with the exact one beside them."""
    return h("time", {"datetime": iso, "title": iso}, words) if iso else words


def seconds_since(iso: str) -> float:
    """Return how long ago a time was; never negative, whatever clocks say."""
    return max(0.0, (datetime.now(UTC) - datetime.fromisoformat(iso)).total_seconds())


def age(iso: str | None) -> str:
    """Return how long ago a time was, in words."""
    if not iso:
        return "never"
    then, age_s = datetime.fromisoformat(iso), int(seconds_since(iso))
    if age_s < 60:
        return f"{age_s} s ago"
    if age_s < 3600:
        return f"{age_s // 60} min ago"
    if age_s < 86_400:
        return f"{age_s // 3600} h ago"
    return moment(then)


def moment(then: datetime) -> str:
    """Return a time in words that stay true."""
    return f"{then:%Y-%m-%d %H:%M} UTC"


def times(iso: str | None) -> Child:
    """Return a time as briefly as it can be, in UTC: the minute today, else the day."""
    if not iso:
        return None
    then = datetime.fromisoformat(iso)
    is_today = then.date() == datetime.now(UTC).date()
    return timed(iso, f"{then:%H:%M}" if is_today else f"{then:%Y-%m-%d}")


def cookie_value(ask: Ask, name: str) -> str:
    """Return the value of a cookie; empty if there is none."""
    # By hand: a cookie of another server on this host may be anything.
    for pair in ask.headers.get("cookie", "").split(";"):
        key, _, value = pair.partition("=")
        if key.strip() == name:
            return value.strip()
    return ""


def is_seen(site: Site, namespace: str, project: str) -> bool:
    """Tell whether what is said of a namespace concerns this page."""
    return namespace in (project, GLOBAL_NAMESPACE) and (
        namespace == GLOBAL_NAMESPACE or site.shows(namespace)
    )


def links_in_sight(visit: Visit) -> list[LinkStatus]:
    """Return the links of the project and of the global slots."""
    links = sync_status(visit.memory.store).links
    return [x for x in links if is_seen(visit.ask.site, x.local, visit.project)]


def counted(count: int, name: str) -> str:
    """Return how many there are of something."""
    return f"{count:,} {name}{'' if count == 1 else 's'}"


def _projects(visit: Visit) -> list[str]:
    known = {p.project for p in visit.memory.projects()} | {visit.project}
    return sorted(filter(visit.ask.site.shows, known))


def _sync_words(visit: Visit) -> Child:
    links = links_in_sight(visit)
    words: list[Child] = []
    if not links:
        words.append("none, this store only")
    for one in links:
        unsent = one.unsent.writes
        state = STATES.get(one.state, one.state)
        if one.state == "connected" and not one.lag and not unsent:
            state = "in sync"
        figures = f", {one.lag} to come" if one.lag else ""
        figures += f", {unsent} to send" if unsent else ""
        words.append([inline(one.local), f": {state}{figures}. "])
    alarms = sum(len(one.alarms) for one in links)
    if alarms:
        words.append(h("strong", {"class": "bad"}, f"{counted(alarms, 'alarm')}. "))
    is_good = not alarms and all(x.last_error is None for x in links)
    light = {"class": "light good" if is_good else "light bad", "aria-hidden": "true"}
    where = visit.path("status")
    return h("p", {"class": "sync"}, h("span", light), link(where, ["Sync: ", words]))


def _live() -> Markup:
    return h("p", {"id": "live", "role": "status", "class": "note", "hidden": False})


def _header(ask: Ask, chrome: _Chrome) -> Markup:
    at = chrome.project
    options = [
        h("option", {"value": name, "selected": name == at}, plain(name))
        for name in chrome.projects
    ]
    chooser = h(
        "form",
        {"method": "get", "action": "/open", "class": "chooser"},
        h("label", {"for": "project"}, "Project"),
        h("select", {"name": "project", "id": "project"}, options),
        button("Go"),
    )
    search = h(
        "form",
        {
            "method": "get",
            "action": address("p", at, "search"),
            "role": "search",
            "class": "finder",
        },
        h("label", {"for": "find", "class": "quiet"}, "Search the slots"),
        h(
            "input",
            {"type": "search", "name": "q", "id": "find", "placeholder": "Search"},
        ),
        button("Search"),
    )
    items = [
        h(
            "li",
            None,
            link(
                address("p", at, where),
                name,
                {"aria-current": "page" if where == chrome.at else None},
            ),
        )
        for where, name in _NAV
    ]
    bar = h("div", {"class": "bar"}, _brand(), chooser, search, _theme(ask))
    nav = h("nav", {"aria-label": "Pages"}, h("ul", None, items))
    return h("header", None, bar, h("div", {"class": "bar"}, nav, chrome.sync))


def _brand() -> Markup:
    return link("/", "crdtmem", {"class": "brand"})


def _theme(ask: Ask) -> Markup:
    now = cookie_value(ask, THEME_COOKIE)
    index = THEMES.index(now) if now in THEMES else 0
    following = THEMES[(index + 1) % len(THEMES)]
    return h(
        "form",
        {"method": "post", "action": "/theme", "class": "theme"},
        hidden(csrf=ask.csrf, back=ask.path, theme=following),
        button(["Theme: ", THEMES[index]], {"class": "plain"}),
    )


def _footer(ask: Ask) -> Markup:
    site = ask.site
    facts: list[Child] = [
        h("span", None, "You write as ", h("b", None, inline(ask.principal.lane))),
        h("span", None, "Store ", inline(str(site.store_path))),
        h("span", None, f"crdtmem {site.version}"),
    ]
    if not ask.may_write:
        facts.append(h("strong", None, "Read only"))
    facts.append(link("/settings", "Your settings"))
    out = h(
        "form",
        {"method": "post", "action": "/logout"},
        hidden(csrf=ask.csrf),
        button("Sign out", {"class": "plain"}),
    )
    return h("footer", None, facts, out if ask.principal.session_id else None)
