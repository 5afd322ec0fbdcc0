"""A browser without a window and without JavaScript: reads pages, fills in forms."""

from contextlib import asynccontextmanager
from html.parser import HTMLParser
from typing import NamedTuple
from urllib.parse import quote, urlencode

from crdtmem.serve.app import Parts
from crdtmem.serve.assets import STATIC
from crdtmem.serve.pages import PAGES, error_page
from tests.serve.desk import FORM, ORIGIN, desk

VOID = {"br", "hr", "input", "link", "meta"}


def field_shows(source):
    r"""Return what a text field shows of its source, as browsers do."""
    text = source.replace("\r\n", "\n").replace("\r", "\n").replace("\0", "\ufffd")
    return text.removeprefix("\n")


class Form(NamedTuple):
    """A form as a page offers it."""

    method: str
    action: str
    fields: dict[str, str]
    buttons: list[dict[str, str]]


class Page(HTMLParser):
    """What a page holds.

    Attributes:
        elements: Tag and attributes of each, in their order.
        forms: The forms.
        text: All text that is seen, by the element's nesting.
    """

    def __init__(self, html, status=200, path=""):
        super().__init__(convert_charrefs=True)
        self.html, self.status, self.path = html, status, path
        self.elements, self.forms, self._texts = [], [], []
        self._open: list[str] = []
        self._area: tuple[str, list[str]] | None = None
        self._select = ""
        self.feed(html)
        self.close()
        assert self._open == [], self._open

    @property
    def text(self):
        return "".join(self._texts)

    @property
    def links(self):
        return [a["href"] for tag, a in self.elements if tag == "a" and "href" in a]

    def form(self, action):
        """Return the form whose address ends so."""
        found = [f for f in self.forms if f.action.partition("?")[0].endswith(action)]
        assert found, (action, [f.action for f in self.forms])
        return found[0]

    def handle_starttag(self, tag, attrs):
        given = {name: "" if value is None else value for name, value in attrs}
        self.elements.append((tag, given))
        if tag not in VOID:
            self._open.append(tag)
        if tag == "form":
            self.forms.append(Form(given["method"], given["action"], {}, []))
        elif tag == "textarea":
            self._area = given["name"], []
        elif tag == "select":
            self._select = given["name"]
        elif tag == "option" and ("selected" in given or not self._chosen()):
            self.forms[-1].fields[self._select] = given["value"]
        elif tag == "input":
            self._input(given)
        elif tag == "button":
            self.forms[-1].buttons.append(given)

    def _chosen(self):
        return self._select in self.forms[-1].fields

    def _input(self, given):
        if given.get("type") != "checkbox" or "checked" in given:
            value = given.get("value", "")
            if given.get("type") != "hidden":
                value = value.replace("\r", "").replace("\n", "")
            self.forms[-1].fields[given["name"]] = value

    def handle_endtag(self, tag):
        assert self._open.pop() == tag
        if tag == "textarea":
            assert self._area is not None
            name, texts = self._area
            self.forms[-1].fields[name] = field_shows("".join(texts))
            self._area = None

    def handle_data(self, data):
        if self._area is not None:
            self._area[1].append(data)
        else:
            self._texts.append(data)


class Visitor:
    """Somebody who is signed in."""

    def __init__(self, served, cookie):
        self.served = served
        self.cookie = cookie

    async def get(self, path, *, status=200):
        """Return a page, after the redirects that lead to it."""
        reply = await self.served.ask(
            "GET", path, token=None, headers={"cookie": self.cookie}
        )
        if reply.status == 303:
            return await self.get(reply.headers["location"], status=status)
        assert reply.status == status, (reply.status, reply.body.decode())
        return Page(reply.body.decode(), reply.status, path)

    async def send(self, form, *, status=200, action=None, **fields):
        """Send a form, filled in; return the page that it leads to."""
        values = form.fields | fields
        pairs = {
            name: value.replace("\r\n", "\n").replace("\n", "\r\n")
            for name, value in values.items()
            if value is not None
        }
        reply = await self.served.ask(
            "POST",
            action or form.action,
            token=None,
            headers={"cookie": self.cookie, "origin": ORIGIN, "content-type": FORM},
            body=urlencode(pairs).encode(),
        )
        if reply.status == 303:
            return await self.get(reply.headers["location"])
        assert reply.status == status, (reply.status, reply.body.decode())
        return Page(reply.body.decode(), reply.status)


@asynccontextmanager
async def visited(folder, **how):
    """Give a server, and a visitor of it."""
    parts = Parts(lambda: PAGES, STATIC, error_page)
    async with desk(folder, parts=parts, **how) as served:
        yield served, Visitor(served, await served.sign_in())


def slot_at(label, *more, scope="project", project="desk"):
    return "/".join(["/p", project, "slots", scope, label, *more])


def quoted(text):
    return quote(text, safe="")
