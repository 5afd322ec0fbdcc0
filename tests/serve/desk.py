"""A server without a socket: the application, asked as a client would ask it.

The store is a real one; what is between a client and the application, and no more, is
left out.
"""

import asyncio
import itertools
import json
from contextlib import asynccontextmanager
from typing import Any, NamedTuple
from urllib.parse import urlencode

from crdtmem import opening
from crdtmem.config import load_config
from crdtmem.errors import CrdtmemError
from crdtmem.serve.answers import (
    Answer,
    Ask,
    PageRoute,
    Site,
    html,
    see_other,
    status_of,
)
from crdtmem.serve.app import App, Parts
from crdtmem.serve.guard import Rules
from crdtmem.serve.handles import Handles
from crdtmem.serve.session import Sessions, csrf_of
from crdtmem.serve.tokens import Tokens

PORT = 8790
HOST = f"127.0.0.1:{PORT}"
ORIGIN = f"http://{HOST}"
FOREIGN = "https://elsewhere.example"
PROJECT = "desk"
CONTROL = "control-token-of-the-desk-000000000000"
READ, WRITE = "r" * 40, "w" * 40
FORM = "application/x-www-form-urlencoded"
PATIENCE_S = 15.0


class Reply(NamedTuple):
    """What came back."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self):
        return json.loads(self.body)

    @property
    def code(self):
        return self.json["error"]["code"]


class Clock:
    """A time that the test moves."""

    def __init__(self):
        self.now_s = 1000.0

    def __call__(self):
        return self.now_s


async def hello(ask: Ask) -> Answer:
    return html(f"hello {ask.principal.lane}")


async def note(ask: Ask) -> Answer:
    async with ask.site.handles.use(PROJECT, ask.principal.lane) as memory:
        slot = await memory.slot("notes")
        await slot.append(ask.form["text"], request_id=ask.form["request_id"])
    return see_other("/p/desk/slots")


async def broken(_ask: Ask) -> Answer:
    raise RuntimeError("a secret text of a slot")


PAGES = (
    PageRoute("GET", "/", hello),
    PageRoute("GET", "/p/{project}/slots", hello, fields=("sort",)),
    PageRoute("POST", "/p/{project}/note", note, ("text", "request_id"), writes=True),
    PageRoute("GET", "/broken", broken),
)


def error_page(_ask: Ask, error: CrdtmemError) -> Answer:
    return html(f"{error.code}: {error.message} ({error.hint})", status_of(error))


class Desk:
    """The server, and ways to ask it."""

    def __init__(
        self, folder, *, options=None, clock=None, open_socket=None, parts=None
    ):
        self.folder = folder
        self.clock = clock or Clock()
        given: dict[str, Any] = {
            "read_only": False,
            "only_project": None,
            "token_file": None,
        }
        given |= options or {}
        self.store = folder / "store.db"
        numbers = itertools.count(1)
        self.calls = []
        self.site = Site(
            version="1.2.3",
            port=PORT,
            base=ORIGIN,
            store_path=self.store,
            handles=Handles(self._open),
            sessions=Sessions(
                user_name="ana",
                now=self.clock,
                random_bytes=lambda size: next(numbers).to_bytes(size),
            ),
            read_only=given["read_only"],
            only_project=given["only_project"],
            start_project=PROJECT,
        )
        self.tokens = Tokens(given["token_file"], control=CONTROL, lane="cli")
        self.app = App(
            self.site,
            Rules(
                frozenset({HOST, f"localhost:{PORT}", f"[::1]:{PORT}"}),
                origins=frozenset({FOREIGN}),
            ),
            self.tokens,
            parts
            or Parts(
                lambda: PAGES,
                {"app.js": ("text/javascript", b"1;")},
                error_page,
                open_socket,
            ),
            is_agentmemory_open=given.get("agentmemory_open", False),
            log_json=given.get("log_json", False),
        )

    def _open(self, project, lane):
        self.calls.append((project, lane))
        config = load_config(
            options={"store": self.store, "project": project, "lane": lane},
            environ={"HOME": str(self.folder)},
            cwd=self.folder,
        )
        return opening.open_with(config, read_only=self.site.read_only)

    def memory(self, lane="other", project=PROJECT):
        """Return a memory as another process has it."""
        config = load_config(
            options={"store": self.store, "project": project, "lane": lane},
            environ={"HOME": str(self.folder)},
            cwd=self.folder,
        )
        return opening.open_with(config)

    async def ask(
        self, method, target, *, headers=(), body=b"", token=CONTROL, host=HOST
    ):
        """Send a request; return what came back."""
        path, _, query = target.partition("?")
        given = [] if host is None else [("host", host)]
        if token is not None:
            given.append(("authorization", f"Bearer {token}"))
        given += list(headers.items()) if isinstance(headers, dict) else list(headers)
        sent = []
        parts = [{"type": "http.request", "body": body, "more_body": False}]

        async def receive():
            return parts.pop(0)

        async def send(message):
            sent.append(message)

        await self.app(scope_of(method, path, query, given), receive, send)
        # Python 3.11 traces no line behind an exception that came from a thread, until
        # the task has been resumed once more.
        await asyncio.to_thread(int)
        return Reply(
            sent[0]["status"],
            {k.decode(): v.decode("latin-1") for k, v in sent[0]["headers"]},
            b"".join(m.get("body", b"") for m in sent[1:]),
        )

    async def json(self, method, target, value=None, **how):
        """Send a request with a JSON body."""
        headers = {"content-type": "application/json", **how.pop("headers", {})}
        body = json.dumps(value).encode() if value is not None else b""
        return await self.ask(method, target, headers=headers, body=body, **how)

    async def sign_in(self):
        """Return the cookie of a new browser."""
        token = self.site.sessions.invite()
        reply = await self.ask("GET", f"/login?t={token}", token=None)
        assert reply.status == 200
        return reply.headers["set-cookie"].partition(";")[0]

    async def form(self, target, cookie, *, csrf=None, headers=None, **fields):
        """Send a form as a page of ours does."""
        value = csrf_of(cookie.partition("=")[2]) if csrf is None else csrf
        given = {"cookie": cookie, "origin": ORIGIN, "content-type": FORM}
        body = urlencode({"csrf": value, **fields}).encode()
        return await self.ask(
            "POST", target, headers=given | (headers or {}), body=body, token=None
        )

    async def close(self):
        await self.site.handles.close()


def scope_of(method, path, query, headers):
    return {
        "type": "http",
        "method": method,
        "path": path,
        "raw_path": path.encode(),
        "query_string": query.encode(),
        "headers": [(k.encode(), v.encode()) for k, v in headers],
        "client": ("127.0.0.1", 40_000),
    }


def token_file(folder, *lines):
    """Return a token file; by default with a token to read and one to write."""
    path = folder / "tokens"
    path.write_text(
        "\n".join(lines or (f"rita read {READ}", f"wim write {WRITE}")) + "\n",
        encoding="utf-8",
    )
    path.chmod(0o600)
    return path


@asynccontextmanager
async def desk(folder, **how):
    """Give a server."""
    made = Desk(folder, **how)
    try:
        yield made
    finally:
        await made.close()
