"""What is a person's own: the name they write under, colours, keys, the project."""

import re
from typing import Final

from crdtmem.errors import CrdtmemError, InvalidArgumentError
from crdtmem.scope import parse_project_id
from crdtmem.serve.answers import Answer, see_other, status_of
from crdtmem.serve.markup import Attributes, Child, address, h
from crdtmem.serve.pages.layout import (
    KEYS_COOKIE,
    THEME_COOKIE,
    THEMES,
    Part,
    Visit,
    button,
    cookie_value,
    field,
    form,
    page,
    route,
)
from crdtmem.serve.pages.refusal import refusal

__all__ = ["PAGES"]

_YEAR_S: Final = 31_536_000
_OWN_PATH: Final = re.compile(r"/(?![/\\])[!-~]*")
_KEYS: Final = (
    ("/", "to the search field"),
    ("j", "to the next row"),
    ("k", "to the row before"),
    ("e", "edit the slot"),
    ("?", "to this page"),
)


def _open(visit: Visit) -> Answer:
    project = parse_project_id(visit.ask.query.get("project", visit.project))
    return see_other(address("p", project, "slots"))


def _settings(visit: Visit) -> Answer:
    name = visit.ask.principal.name
    return _settings_page(visit, name)


def _settings_page(
    visit: Visit, name: str, *, above: Child = None, status: int = 200
) -> Answer:
    are_on = cookie_value(visit.ask, KEYS_COOKIE) != "off"
    box: Attributes = {
        "type": "checkbox",
        "name": "keys",
        "id": "keys",
        "value": "on",
        "checked": are_on,
    }
    session = visit.ask.principal.session_id is not None
    who = h("input", {"name": "name", "id": "name", "value": name, "required": True})
    note = "What you write is marked with web:NAME."
    made = form(
        visit,
        "/settings",
        field("Your name", who, "name", note) if session else None,
        h(
            "p",
            None,
            h("input", box),
            " ",
            h("label", {"for": "keys"}, "Single keys are shortcuts"),
        ),
        button("Save your settings"),
    )
    keys = [[h("dt", None, h("kbd", None, k)), h("dd", None, v)] for k, v in _KEYS]
    body = [above, made, h("h2", None, "Keys"), h("dl", None, keys)]
    return page(visit, "Your settings", [Part("form", body)], status=status)


def _save(visit: Visit) -> Answer:
    sent, principal = visit.ask.form, visit.ask.principal
    if principal.session_id is not None and "name" in sent:
        try:
            visit.ask.site.sessions.rename(principal.session_id, sent["name"])
        except CrdtmemError as error:
            above, status = refusal(error), status_of(error)
            return _settings_page(visit, sent["name"], above=above, status=status)
    keys = "on" if "keys" in sent else "off"
    return _remember(see_other("/settings"), KEYS_COOKIE, keys)


def _theme(visit: Visit) -> Answer:
    theme, back = visit.ask.form["theme"], visit.ask.form["back"]
    if theme not in THEMES:
        raise InvalidArgumentError("theme", f"theme must be one of {', '.join(THEMES)}")
    where = back if _OWN_PATH.fullmatch(back) else "/"
    return _remember(see_other(where), THEME_COOKIE, theme)


def _remember(answer: Answer, name: str, value: str) -> Answer:
    cookie = f"{name}={value}; Max-Age={_YEAR_S}; SameSite=Strict; Path=/; HttpOnly"
    return answer._replace(headers={**answer.headers, "Set-Cookie": cookie})


PAGES: Final = (
    route("GET", "/open", _open, ("project",)),
    route("GET", "/settings", _settings),
    route(
        "POST",
        "/settings",
        _save,
        ("name", "keys", "request_id"),
        optional=("name", "keys"),
    ),
    route("POST", "/theme", _theme, ("theme", "back")),
)
