"""What a request is to the code that answers it, and what an answer is to the server.

Values only. A page, a REST route or the gateway is given an ``Ask`` whose caller has
passed the guard, and returns an ``Answer``; none of them knows who listens.
"""

import asyncio
import json
from collections.abc import (
    AsyncGenerator,
    Awaitable,
    Callable,
    Iterator,
    Mapping,
    Sequence,
)
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple, cast

from crdtmem.errors import CrdtmemError
from crdtmem.serve.commits import Commits

if TYPE_CHECKING:
    from crdtmem.serve.handles import Handles
    from crdtmem.serve.session import Sessions

__all__ = [
    "Answer",
    "Ask",
    "HttpError",
    "PageRoute",
    "Principal",
    "Site",
    "StreamAnswer",
    "html",
    "json_answer",
    "see_other",
    "status_of",
]

HTML = "text/html; charset=utf-8"
JSON = "application/json"
_NONE: Mapping[str, str] = MappingProxyType({})


class HttpError(CrdtmemError):
    """What only a web server refuses: a route, a method, a form, a caller.

    Args:
        status: Of the answer.
        code: As in every error.
        message: As in every error.
        hint: As in every error.
        details: As in every error.
        headers: More headers of the answer, such as ``Allow``.

    """

    code = "bad-request"
    http_status = 400

    def __init__(
        self,
        status: int,
        code: str,
        message: str,
        *,
        hint: str | None = None,
        details: Mapping[str, object] | None = None,
        headers: Mapping[str, str] = _NONE,
    ) -> None:
        super().__init__(message, code=code, hint=hint, details=details)
        self.status = status
        self.headers = dict(headers)


def status_of(error: CrdtmemError) -> int:
    """Return the status that a web server answers an error with."""
    return error.status if isinstance(error, HttpError) else error.http_status


class Principal(NamedTuple):
    """Who asks, as the guard has found.

    Attributes:
        name: Of the token or of the browser's session.
        lane: Who writes: the token's name, or ``web:NAME`` from a browser.
        may_write: Whether it may change anything.
        session_id: Names the browser's session; None for a Bearer token.
        token_id: Names the Bearer token; None for a browser.
        may_choose_lane: Whether the header ``Crdtmem-Lane`` counts (REST).

    """

    name: str
    lane: str
    may_write: bool
    session_id: str | None = None
    token_id: str | None = None
    may_choose_lane: bool = False


class Site:
    """What the running server offers to those who answer.

    Args:
        version: Of crdtmem.
        port: That is listened on.
        base: ``http://127.0.0.1:PORT``, or the public URL; no slash at the end.
        store_path: The store's file.
        handles: The memories, by project and lane.
        sessions: The browsers that are signed in.
        read_only: Whether nothing may be written.
        only_project: The one project that exists here; None: all do.
        start_project: That of the folder in which the server was started.

    Attributes:
        editors_of: Names of those who have a slot open in an editor, by namespace
            (a project id, or ``global``) and label; set by the gateway.
        editors_in: The slots of a namespace that are open in editors, each as the event
            ``editors`` shows it: ``{label, scope, editors: [{lane, since}], unfolded,
            blocked?}``; a slot whose last editor has left stays for a while, with none.
        presence_in: What lanes at other stores are at in a namespace, each as the event
            ``presence`` shows it: ``{lane, replica, slot, doing}``.
        is_welcome: Tells whether a caller that was let in still would be; who holds a
            connection open asks every two seconds.
        commits: Tells when anybody has written to the store.
        stopping: Set when the server drains.

    """

    def __init__(
        self,
        *,
        version: str,
        port: int,
        base: str,
        store_path: Path,
        handles: "Handles",
        sessions: "Sessions",
        read_only: bool = False,
        only_project: str | None = None,
        start_project: str,
    ) -> None:
        self.version = version
        self.port = port
        self.base = base
        self.store_path = store_path
        self.handles = handles
        self.sessions = sessions
        self.read_only = read_only
        self.only_project = only_project
        self.start_project = only_project or start_project
        self.editors_of: Callable[[str, str], tuple[str, ...]] = _nobody
        self.editors_in: Callable[[str], Sequence[Mapping[str, object]]] = _no_editors
        self.presence_in: Callable[[str], Sequence[Mapping[str, object]]] = _no_editors
        self.is_welcome: Callable[[Principal], bool] = _anybody
        self.commits = Commits(store_path)
        self.stopping = asyncio.Event()

    @property
    def is_stopping(self) -> bool:
        """Whether the server drains."""
        return self.stopping.is_set()

    def shows(self, project: str) -> bool:
        """Tell whether a project exists here at all."""
        return self.only_project in (None, project)

    def at_work(self, namespace: str) -> Iterator[tuple[str, str, str]]:
        """Yield who is at what here: lane, slot, and what it does there."""
        for state in self.editors_in(namespace):
            for editor in cast("Sequence[Mapping[str, object]]", state["editors"]):
                yield str(editor["lane"]), str(state["label"]), "editing"


def _no_editors(_namespace: str) -> Sequence[Mapping[str, object]]:
    return ()


def _anybody(_principal: Principal) -> bool:
    return True


def _nobody(_namespace: str, _label: str) -> tuple[str, ...]:
    return ()


class Ask(NamedTuple):
    """A request that passed the guard.

    Attributes:
        method: In capitals.
        path: Decoded, without the query.
        params: The parts of the path that the pattern names, decoded.
        query: Each name once; only names that the route declares.
        form: Likewise, from an urlencoded body.
        body: As it came.
        headers: By lower-case name.
        principal: Who asks.
        csrf: What a form of this session must send in the field ``csrf``.
        site: The server.

    """

    method: str
    path: str
    params: Mapping[str, str]
    query: Mapping[str, str]
    form: Mapping[str, str]
    body: bytes
    headers: Mapping[str, str]
    principal: Principal
    csrf: str
    site: Site

    @property
    def may_write(self) -> bool:
        """Whether this caller may write here."""
        return self.principal.may_write and not self.site.read_only


class Answer(NamedTuple):
    """What is sent back, whole."""

    status: int
    body: bytes
    content_type: str
    headers: Mapping[str, str] = _NONE


class StreamAnswer(NamedTuple):
    """What is sent back piece by piece, until the iterator or the connection ends."""

    chunks: AsyncGenerator[bytes, None]
    content_type: str = "text/event-stream"
    headers: Mapping[str, str] = _NONE


class PageRoute(NamedTuple):
    """A page or a form.

    Attributes:
        method: ``GET`` or ``POST``.
        pattern: Such as ``/p/{project}/slots/{scope}/{label}``; a ``{name}`` is one
            segment.
        answer: Makes the answer; raises a CrdtmemError where there is none.
        fields: Names that the query (GET) or the form (POST) may have, beside ``part``
            (GET) and ``csrf`` (POST).
        writes: Whether it changes anything, or is a page for what does.

    """

    method: str
    pattern: str
    answer: Callable[[Ask], Awaitable[Answer]]
    fields: tuple[str, ...] = ()
    writes: bool = False


def html(markup: object, status: int = 200) -> Answer:
    """Return a page; ``str`` of the markup is what is sent."""
    return Answer(status, str(markup).encode("utf-8", "replace"), HTML)


def see_other(location: str) -> Answer:
    """Return the answer to a form that did its work: go and look there."""
    return Answer(303, b"", HTML, {"Location": location})


def json_answer(
    value: object, status: int = 200, headers: Mapping[str, str] = _NONE
) -> Answer:
    """Return a JSON document."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    # What was refused may hold half a surrogate pair, and no answer can.
    return Answer(status, text.encode("utf-8", "replace"), JSON, headers)
