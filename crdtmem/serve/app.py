"""The server's application: guard, then route, then answer. Knows no socket.

An ASGI callable. Everything that leaves it carries the security headers, and no answer
and no log line holds a token, a query or a text of the memory.
"""

import asyncio
import json
import logging
import secrets
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING, NamedTuple, Protocol

from crdtmem.errors import CrdtmemError, InvalidArgumentError
from crdtmem.limits import SERVE_CHECK_S
from crdtmem.serve import agentmemory
from crdtmem.serve.answers import (
    Answer,
    Ask,
    HttpError,
    PageRoute,
    Principal,
    Site,
    StreamAnswer,
    html,
    json_answer,
    see_other,
    status_of,
)
from crdtmem.serve.assets import ICON, STYLE
from crdtmem.serve.events import Events
from crdtmem.serve.guard import (
    Rules,
    bearer_of,
    check_csrf,
    check_source,
    cookie_of,
    cors_headers,
)
from crdtmem.serve.openapi import document
from crdtmem.serve.rest import Rest
from crdtmem.serve.routes import ROUTES
from crdtmem.serve.routing import PREFIX, check_right, matched, not_allowed
from crdtmem.serve.session import csrf_of
from crdtmem.serve.tokens import CONTROL, Tokens
from crdtmem.serve.turns import (
    Receive,
    Scope,
    Send,
    Turn,
    body_of,
    close_socket,
    deny_socket,
    gone,
    headers_of,
    send_whole,
)
from crdtmem.serve.values import pairs_in

if TYPE_CHECKING:
    from starlette.websockets import WebSocket

__all__ = ["App", "OpenSocket", "Parts"]

_LOGGER = logging.getLogger(__name__)
_FORM = "application/x-www-form-urlencoded"
_SAFE = ("GET", "HEAD")
_OPEN = ("/livez", "/readyz", "/login")
_FOREVER = "public, max-age=31536000, immutable"
_SIGNED_IN = (
    '<!doctype html><html lang="en"><head><meta charset="utf-8">'
    '<meta http-equiv="refresh" content="0; url=/"><title>crdtmem</title>'
    f'<link rel="stylesheet" href="{STYLE}"><link rel="icon" href="{ICON}"></head>'
    '<body><main><h1>Signed in</h1><p><a href="/">Go on</a></p></main></body></html>'
)
# A redirect would not do: a Strict cookie is not sent along one that began elsewhere.
_LIVE = Answer(200, b"ok\n", "text/plain; charset=utf-8")
_LANE = "serve"


class _Socket(NamedTuple):
    method: str
    pattern: str


class _Own(NamedTuple):
    method: str
    pattern: str
    answer: Callable[["Turn"], Answer]


_YJS = _Socket("GET", "/yjs/{namespace}/{label}")


class OpenSocket(Protocol):
    """Serves one editor; see ``crdtmem.serve.gateway``."""

    async def __call__(
        self, socket: "WebSocket", ask: Ask, namespace: str, label: str
    ) -> None:
        """Serve until the connection ends."""


class Parts(NamedTuple):
    """What the application is made of, beside the REST API.

    Attributes:
        pages: Gives the pages and forms; first called when one is asked for.
        static: Style sheet and script, by the name in their address: type and bytes.
        error_page: Makes the page of a refusal.
        open_socket: Serves editors; None: there are none.

    """

    pages: Callable[[], Sequence[PageRoute]]
    static: Mapping[str, tuple[str, bytes]]
    error_page: Callable[[Ask, CrdtmemError], Answer]
    open_socket: OpenSocket | None = None


class App:
    """The application.

    Args:
        site: The server.
        rules: What is ours.
        tokens: Who may come with a Bearer token.
        parts: Pages, static files, the gateway.
        is_secure: Whether browsers speak TLS to it.
        is_agentmemory_open: Whether the compatible routes take requests without a
            token.
        log_json: Whether the lines of requests are JSON.

    Attributes:
        events: The streams.

    """

    def __init__(
        self,
        site: Site,
        rules: Rules,
        tokens: Tokens,
        parts: Parts,
        *,
        is_secure: bool = False,
        is_agentmemory_open: bool = False,
        log_json: bool = False,
    ) -> None:
        self._site = site
        self._rules = rules
        self._tokens = tokens
        self._parts = parts
        self._is_secure = is_secure
        self._is_agentmemory_open = is_agentmemory_open
        self._log_json = log_json
        self.events = Events(site)
        self._rest = Rest(self.events)
        self._own = (
            _Own("GET", "/version", self._version),
            _Own("POST", "/logout", self._logout),
            _Own("POST", "/session/invite", self._invite),
            _Own("GET", f"{PREFIX}/openapi.json", self._openapi),
        )
        self._held: dict[asyncio.Task[None], Principal] = {}
        self._check: asyncio.TimerHandle | None = None
        site.is_welcome = self._is_welcome

    @property
    def cookie_name(self) -> str:
        """Return the name of the session's cookie: cookies ignore ports."""
        prefix = "__Host-" if self._is_secure else ""
        return f"{prefix}crdtmem_{self._site.port}"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a connection's request, or a WebSocket."""
        if scope["type"] == "websocket":
            await self._serve_socket(Turn(scope), scope, receive, send)
            return
        turn = Turn(scope)
        began_s = asyncio.get_running_loop().time()
        try:
            answer = await self._answered(turn, receive)
        except CrdtmemError as error:
            answer = self._refused(turn, error)
        except asyncio.CancelledError:
            # Only a stop ends so what still runs, or has not arrived.
            answer = self._refused(turn, _stopped())
        except Exception as error:  # noqa: BLE001 - the top of a request: logged and told
            answer = self._refused(turn, _internal(error))
        if isinstance(answer, StreamAnswer):
            sent = await self._stream(turn, answer, receive, send)
            status = 200
        else:
            await send_whole(turn, answer, send)
            sent, status = len(answer.body), answer.status
        spent_s = asyncio.get_running_loop().time() - began_s
        self._log(turn, status, sent, spent_s)

    async def _answered(self, turn: Turn, receive: Receive) -> Answer | StreamAnswer:
        head = turn.head
        turn.source = check_source(head, self._rules)
        if head.method == "OPTIONS" and turn.source.foreign is not None:
            return Answer(
                204, b"", "text/plain", cors_headers(turn.source, is_preflight=True)
            )
        if (found := await self._open_answer(turn)) is not None:
            return found
        self._let_in(turn)
        body = await body_of(head, receive)
        form = self._form(turn, body)
        if head.path in {one.pattern for one in self._own}:
            own, _ = matched(self._own, head.method, turn.raw_path)
            turn.template = own.pattern
            pairs_in(turn.raw_query, known=())
            return own.answer(turn)
        if head.path.startswith(f"{agentmemory.PREFIX}/"):
            turn.template = f"{agentmemory.PREFIX}/…"
            ask = turn.ask(self._site, query=pairs_in(turn.raw_query), body=body)
            return await agentmemory.answer_agentmemory(ask)
        if head.path.startswith(f"{PREFIX}/"):
            return await self._rest_answer(turn, body)
        return await self._page_answer(turn, form, body)

    async def _open_answer(self, turn: Turn) -> Answer | None:
        """Return the answer to what anybody may ask; None for everything else."""
        head = turn.head
        path = head.path
        if path in ("/livez", "/readyz") and head.method in _SAFE:
            turn.template = path
            return _LIVE if path == "/livez" else await self._ready()
        if path == "/login" and head.method == "GET":
            turn.template = path
            return self._login(turn)
        if path.startswith("/static/") and head.method in _SAFE:
            turn.template = "/static/{name}"
            found = self._parts.static.get(path.removeprefix("/static/"))
            if found is None:
                raise HttpError(404, "route-not-found", "there is no such file")
            return Answer(200, found[1], found[0], {"Cache-Control": _FOREVER})
        is_open = path in _OPEN or path.startswith("/static/")
        if is_open and head.method not in _SAFE:
            raise not_allowed(head.method, ["GET"])
        return None

    async def _ready(self) -> Answer:
        """Tell whether requests are answered, and how long the store takes for one."""
        site, began_s = self._site, time.monotonic()
        status, store_ms, error = "ok", None, None
        try:
            async with site.handles.use(site.start_project, _LANE) as memory:
                await memory.cursor()
            store_ms = round((time.monotonic() - began_s) * 1000, 1)
        except CrdtmemError as exc:
            status, error = "failing", exc.code
        if site.is_stopping:
            status = "stopping"
        value = {"status": status, "storeMs": store_ms, "error": error}
        return json_answer(value, 200 if status == "ok" else 503)

    def _let_in(self, turn: Turn) -> None:
        """Find out who asks.

        Raises:
            HttpError: ``unauthorized``, or ``origin-forbidden``.

        """
        head, source = turn.head, turn.source
        is_agentmemory = head.path.startswith(f"{agentmemory.PREFIX}/")
        if (
            self._is_agentmemory_open
            and is_agentmemory
            and agentmemory.is_open_to(head)
        ):
            lane = agentmemory.LANE
            turn.principal = Principal(lane, lane, may_write=True)
            return
        token = bearer_of(head)
        if token is not None:
            found = self._tokens.find(token)
            if found is None:
                raise HttpError(401, "unauthorized", "the token is not known here")
            turn.principal = found
            return
        cookie = cookie_of(head, self.cookie_name)
        session = None if cookie is None else self._site.sessions.find(cookie)
        if session is None or source is None or source.foreign is not None:
            raise _unauthorized()
        if head.is_websocket and source.origin is None:
            raise HttpError(403, "origin-forbidden", "the Origin header is missing")
        turn.cookie = cookie
        turn.principal = Principal(
            session.name,
            session.lane,
            may_write=True,
            session_id=session.id,
            may_choose_lane=True,
        )

    def _is_welcome(self, principal: Principal) -> bool:
        if principal.session_id is not None:
            return self._site.sessions.is_open(principal.session_id)
        if principal.token_id is not None:
            return self._tokens.is_good(principal)
        return self._is_agentmemory_open

    def _form(self, turn: Turn, body: bytes) -> dict[str, str]:
        """Return the form that was sent, after it was found to be of this session.

        Raises:
            HttpError: ``csrf-failed``.
            InvalidArgumentError: If a name is doubled.

        """
        head = turn.head
        content_type = (head.one("content-type") or "").partition(";")[0].strip()
        form = pairs_in(body) if content_type.lower() == _FORM else {}
        if turn.cookie is not None and turn.source and head.method not in _SAFE:
            expected = csrf_of(turn.cookie)
            check_csrf(head, turn.source, expected=expected, field=form.get("csrf"))
        return form

    async def _rest_answer(self, turn: Turn, body: bytes) -> Answer | StreamAnswer:
        route, params = matched(ROUTES, turn.head.method, turn.raw_path)
        turn.template = route.pattern
        query = pairs_in(turn.raw_query)
        ask = turn.ask(self._site, params=params, query=query, body=body)
        if route.writes:
            check_right(ask)
        return await self._rest.answer(ask, route)

    async def _page_answer(
        self, turn: Turn, form: Mapping[str, str], body: bytes
    ) -> Answer:
        route, params = matched(self._parts.pages(), turn.head.method, turn.raw_path)
        turn.template = route.pattern
        is_form = route.method == "POST"
        if is_form:
            _check_names(form, (*route.fields, "csrf"))
        query = pairs_in(
            turn.raw_query, known=() if is_form else (*route.fields, "part")
        )
        ask = turn.ask(self._site, params=params, query=query, form=form, body=body)
        if route.writes:
            check_right(ask)
        if not self._site.shows(params.get("project", self._site.start_project)):
            raise HttpError(404, "route-not-found", "there is no such project here")
        return await route.answer(ask)

    def _login(self, turn: Turn) -> Answer:
        head = turn.head
        token = pairs_in(turn.raw_query, known=("t",)).get("t", "")
        cookie = cookie_of(head, self.cookie_name)
        is_in = cookie is not None and self._site.sessions.find(cookie) is not None
        try:
            made = self._site.sessions.sign_in(token, head.address)
        except HttpError:
            if is_in:
                return see_other("/")
            raise
        secure = "; Secure" if self._is_secure else ""
        value = f"{self.cookie_name}={made}; HttpOnly; SameSite=Strict; Path=/{secure}"
        return html(_SIGNED_IN)._replace(headers={"Set-Cookie": value})

    def _logout(self, turn: Turn) -> Answer:
        if turn.principal.session_id is not None:
            self._site.sessions.sign_out(turn.principal.session_id)
        self.events.wake()
        secure = "; Secure" if self._is_secure else ""
        value = (
            f"{self.cookie_name}=; Max-Age=0; HttpOnly; SameSite=Strict; Path=/{secure}"
        )
        return see_other("/")._replace(headers={"Location": "/", "Set-Cookie": value})

    def _invite(self, turn: Turn) -> Answer:
        if turn.principal.name != CONTROL or turn.principal.token_id is None:
            message = "only 'crdtmem serve --url' may ask for this"
            raise HttpError(403, "permission-denied", message)
        token = self._site.sessions.invite()
        return json_answer({"url": f"{self._site.base}/login?t={token}"})

    def _version(self, _turn: Turn) -> Answer:
        return json_answer({"name": "crdtmem", "version": self._site.version})

    def _openapi(self, _turn: Turn) -> Answer:
        return json_answer(document(self._site.version, self.cookie_name))

    def _refused(self, turn: Turn, error: CrdtmemError) -> Answer:
        """Return the answer that says why there is none."""
        status = status_of(error)
        headers = dict(error.headers) if isinstance(error, HttpError) else {}
        if status == 503:
            headers.setdefault("Retry-After", "1")
        elif status == 401:
            headers["WWW-Authenticate"] = "Bearer"
        head = turn.head
        if head.path.startswith(f"{agentmemory.PREFIX}/"):
            answer = agentmemory.refused(status, error.code, error.message)
        elif head.is_page:
            answer = self._parts.error_page(turn.ask(self._site), error)
        else:
            answer = json_answer(error.to_dict(), status)
        return answer._replace(status=status, headers={**answer.headers, **headers})

    async def _stream(
        self, turn: Turn, answer: StreamAnswer, receive: Receive, send: Send
    ) -> int:
        """Send until there is no more, the reader leaves, or is no longer welcome."""
        sent = 0

        async def pump() -> None:
            nonlocal sent
            # What it holds is given back now, and not when it is swept up.
            async with aclosing(answer.chunks) as chunks:
                async for chunk in chunks:
                    sent += len(chunk)
                    await send(
                        {"type": "http.response.body", "body": chunk, "more_body": True}
                    )
            await send({"type": "http.response.body", "body": b""})

        headers = headers_of(turn, answer.content_type, answer.headers)
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        pumping = asyncio.create_task(pump())
        tasks = {pumping, asyncio.create_task(gone(receive))}
        self._held[pumping] = turn.principal
        if self._check is None:
            self._check_held()
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            del self._held[pumping]
            for task in tasks:
                task.cancel()
            for result in await asyncio.gather(*tasks, return_exceptions=True):
                if isinstance(result, CrdtmemError):
                    _LOGGER.warning("a stream ended: %s", result.code)
        return sent

    def _check_held(self) -> None:
        """End the streams of those who are no longer welcome, now and then."""
        for task, principal in self._held.items():
            if not self._is_welcome(principal):
                task.cancel()
        loop = asyncio.get_running_loop()
        is_held = bool(self._held)
        self._check = (
            loop.call_later(SERVE_CHECK_S, self._check_held) if is_held else None
        )

    async def _serve_socket(
        self, turn: Turn, scope: Scope, receive: Receive, send: Send
    ) -> None:
        # It takes longer to load than all of a page, and browsers open none.
        from starlette.websockets import WebSocket  # noqa: PLC0415 - see above

        socket = WebSocket(scope, receive=receive, send=send)
        try:
            turn.source = check_source(turn.head, self._rules)
            namespace, label = self._place_of(turn)
            self._let_in(turn)
            open_socket = self._parts.open_socket
        except HttpError as error:
            await deny_socket(socket, turn, scope, error)
            return
        if open_socket is None or not self._shows_namespace(namespace):
            await close_socket(socket, 4404, "there is no such project here")
            return
        await open_socket(socket, turn.ask(self._site), namespace, label)

    def _place_of(self, turn: Turn) -> tuple[str, str]:
        _, params = matched((_YJS,), "GET", turn.raw_path)
        return params["namespace"], params["label"]

    def _shows_namespace(self, namespace: str) -> bool:
        return namespace == "global" or self._site.shows(namespace)

    def _log(self, turn: Turn, status: int, sent: int, spent_s: float) -> None:
        if not _LOGGER.isEnabledFor(logging.DEBUG):
            return
        line = {
            "route": f"{turn.head.method[:10]} {turn.template}",
            "status": status,
            "ms": round(spent_s * 1000, 1),
            "bytes": sent,
            "lane": turn.principal.lane,
        }
        if self._log_json:
            text = json.dumps(line, ensure_ascii=True)
        else:
            text = " ".join(f"{name}={value!a}" for name, value in line.items())
        _LOGGER.debug("%s", text)


def _check_names(given: Mapping[str, str], known: Sequence[str]) -> None:
    for name in given:
        if name not in known:
            raise InvalidArgumentError(name[:60], f"unknown field {name!a:.60}")


def _unauthorized() -> HttpError:
    return HttpError(
        401,
        "unauthorized",
        "nobody is signed in here",
        hint="run 'crdtmem serve --url' and open what it prints",
    )


def _stopped() -> HttpError:
    return HttpError(
        503,
        "server-stops",
        "the server stops, and has not ended what was asked",
        hint="ask the next one, with the same requestId: it may have been done",
    )


def _internal(error: Exception) -> CrdtmemError:
    """Log an exception that nobody expected; return what the caller is told of it."""
    incident = secrets.token_hex(4)
    # Where it happened, and no word of what it was about.
    frames = traceback.extract_tb(error.__traceback__)
    where = " < ".join(f"{f.filename}:{f.lineno}" for f in reversed(frames))
    _LOGGER.error("incident %s: %s at %s", incident, type(error).__name__, where)
    return CrdtmemError(
        f"internal error, incident {incident}",
        code="internal-error",
        hint="the server's log says where; report it",
        details={"incident": incident},
    )
