"""Who may ask at all: decided from the head of a request, before any route.

Pure. The checks come in a fixed order, and the first that does not hold refuses; what
a refused request wanted is never looked at. Sites on other ports of this host, and
pages that a foreign name leads to this address, are as foreign as any other.
"""

import hmac
import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from crdtmem.limits import SERVE_HEAD_BYTES
from crdtmem.serve.answers import HttpError

__all__ = [
    "Head",
    "Rules",
    "Source",
    "bearer_of",
    "check_csrf",
    "check_source",
    "cookie_of",
    "cors_headers",
    "security_headers",
]

_API = ("/api/v1/", "/yjs/")
_MACHINE = ("/api", "/yjs", "/agentmemory", "/livez", "/readyz", "/version", "/session")
_LENGTHS = ("content-length", "transfer-encoding")
_ONCE = (
    *_LENGTHS,
    "content-type",
    "crdtmem-lane",
    "idempotency-key",
    "last-event-id",
    "x-csrf-token",
)
"""Headers that decide something, and whose last value must not win in silence."""

_TOKEN_PROTOCOL = "crdtmem.token."
_CSP = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self';"
    " connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none';"
    " require-trusted-types-for 'script'; trusted-types crdtmem"
)
_SECURITY = (
    ("Content-Security-Policy", _CSP),
    ("X-Content-Type-Options", "nosniff"),
    ("Cross-Origin-Opener-Policy", "same-origin"),
    ("Cross-Origin-Resource-Policy", "same-origin"),
    # With "no-referrer" browsers send "Origin: null" along with forms.
    ("Referrer-Policy", "same-origin"),
    ("Cache-Control", "no-store"),
)


class Rules(NamedTuple):
    """What is ours.

    Attributes:
        hosts: Every Host that a request may name, in lower case.
        scheme: ``http`` or ``https``, of the hosts that are not the public one.
        public_origin: The public URL without a path, if there is one.
        origins: Foreign origins that may use the API with a Bearer token.

    """

    hosts: frozenset[str]
    scheme: str = "http"
    public_origin: str | None = None
    origins: frozenset[str] = frozenset()

    def origin_of(self, host: str) -> str:
        """Return the origin of pages that are asked for under a host."""
        public = self.public_origin
        if public is not None and public.partition("://")[2] == host:
            return public
        return f"{self.scheme}://{host}"


class Head(NamedTuple):
    """The head of a request.

    Attributes:
        method: In capitals; ``GET`` for a WebSocket.
        path: Decoded.
        headers: As they came, names in lower case.
        address: Of the client.
        is_websocket: Whether it asks for one.
        target_bytes: Length of what it asks for, with the query, as it came.

    """

    method: str
    path: str
    headers: Sequence[tuple[bytes, bytes]]
    address: str = ""
    is_websocket: bool = False
    target_bytes: int = 0

    def all(self, name: str) -> list[str]:
        """Return every value of a header."""
        wanted = name.encode()
        return [value.decode("latin-1") for key, value in self.headers if key == wanted]

    def one(self, name: str) -> str | None:
        """Return a header that may stand there once; None where it does not.

        Raises:
            HttpError: 400, if it is doubled.

        """
        found = self.all(name)
        if len(found) > 1:
            raise HttpError(400, "bad-request", f"the header '{name}' is doubled")
        return found[0] if found else None

    @property
    def is_api(self) -> bool:
        """Whether it is for programs that may come from elsewhere."""
        return self.path.startswith(_API)

    @property
    def is_page(self) -> bool:
        """Whether a person is to look at the answer."""
        return not self.path.startswith(_MACHINE) and not self.is_websocket


class Source(NamedTuple):
    """Where a request comes from, as far as it is let in.

    Attributes:
        host: That it named.
        origin: Of the page that sent it, if it says.
        foreign: The same, where it is one of ``--origin``: Bearer only, with CORS.

    """

    host: str
    origin: str | None
    foreign: str | None


def check_source(head: Head, rules: Rules) -> Source:
    """Return where a request comes from.

    Raises:
        HttpError: 400, 431, ``host-forbidden`` or ``origin-forbidden``.

    """
    _check_form(head)
    host = _checked_host(head, rules)
    origins = head.all("origin")
    if len(origins) > 1:
        raise _foreign("there are several Origin headers")
    origin = origins[0] if origins else None
    foreign = origin if head.is_api and origin in rules.origins else None
    if origin is not None and foreign is None and origin != rules.origin_of(host):
        raise _foreign(f"the origin {origin!a:.80} is not this server's")
    if foreign is None:
        _check_fetch(head)
    return Source(host, origin, foreign)


def _check_form(head: Head) -> None:
    # The connection bounds what it has to keep; a head that came at once passes there.
    size = sum(len(name) + len(value) + 4 for name, value in head.headers)
    if size + head.target_bytes > SERVE_HEAD_BYTES:
        message = f"the head is longer than {SERVE_HEAD_BYTES} bytes"
        raise HttpError(431, "bad-request", message)
    given = {name for name in _ONCE if head.one(name) is not None}
    if given.issuperset(_LENGTHS):
        # Who is in between may take the other one for the end of the body.
        raise HttpError(
            400,
            "bad-request",
            "the body has two lengths",
            headers={"Connection": "close"},
        )


def _checked_host(head: Head, rules: Rules) -> str:
    hosts = [host.lower() for host in head.all("host")]
    if len(hosts) != 1 or hosts[0] not in rules.hosts:
        shown = ", ".join(f"{host!a:.60}" for host in hosts[:2]) or "none"
        raise HttpError(
            421,
            "host-forbidden",
            f"the host {shown} is not this server's",
            hint="use the address that 'crdtmem serve --url' prints",
        )
    return hosts[0]


def _check_fetch(head: Head) -> None:
    """Refuse what a foreign page made the browser send, but for a plain link."""
    sites = head.all("sec-fetch-site")
    if not sites or sites in (["same-origin"], ["none"]):
        return
    is_link = head.all("sec-fetch-mode") == ["navigate"]
    is_link = is_link and head.all("sec-fetch-dest") == ["document"]
    if not (is_link and head.is_page and head.method == "GET" and len(sites) == 1):
        raise _foreign("a page of another site asked for it")


def bearer_of(head: Head) -> str | None:
    """Return the token that a request brings; None where it brings none.

    Raises:
        HttpError: ``unauthorized``, if what it brings is none.

    """
    given = head.all("authorization")
    if head.is_websocket:
        # Scripts in a browser can name sub-protocols, and no other header.
        given += [f"Bearer {token}" for token in _tokens_in_protocols(head)]
    if not given:
        return None
    match = re.fullmatch(r"[Bb]earer +([!-~]+)", given[0])
    if match is None or len(given) > 1:
        raise HttpError(401, "unauthorized", "the Authorization header is no Bearer")
    return match[1]


def _tokens_in_protocols(head: Head) -> Iterator[str]:
    for line in head.all("sec-websocket-protocol"):
        for protocol in line.split(","):
            name = protocol.strip()
            if name.startswith(_TOKEN_PROTOCOL):
                yield name.removeprefix(_TOKEN_PROTOCOL)


def cookie_of(head: Head, name: str) -> str | None:
    """Return the value of a cookie; None if it is not there exactly once."""
    found = [
        value.strip()
        for line in head.all("cookie")
        for key, _, value in (part.partition("=") for part in line.split(";"))
        if key.strip() == name
    ]
    return found[0] if len(found) == 1 else None


def check_csrf(
    head: Head, source: Source, *, expected: str, field: str | None = None
) -> None:
    """Refuse a write by cookie that a form or script of ours has not sent.

    Args:
        head: Of the request.
        source: Where it comes from.
        expected: The value of the session.
        field: What the form says, if there is one.

    Raises:
        HttpError: ``csrf-failed``.

    """
    given = field if field is not None else (head.one("x-csrf-token") or "")
    is_ours = hmac.compare_digest(given.encode("utf-8", "replace"), expected.encode())
    if source.origin is None or not is_ours:
        raise HttpError(
            403,
            "csrf-failed",
            "the form is not of this session",
            hint="go back, reload the page and send it again",
        )


def security_headers() -> tuple[tuple[str, str], ...]:
    """Return what every answer carries."""
    return _SECURITY


def cors_headers(source: Source, *, is_preflight: bool = False) -> dict[str, str]:
    """Return what lets a page of another origin read the answer; often nothing."""
    if source.foreign is None:
        return {}
    headers = {
        "Access-Control-Allow-Origin": source.foreign,
        "Access-Control-Expose-Headers": "ETag, Location, Retry-After",
        "Cross-Origin-Resource-Policy": "cross-origin",
        "Vary": "Origin",
    }
    if is_preflight:
        headers["Access-Control-Allow-Methods"] = "GET, POST, PATCH, DELETE"
        headers["Access-Control-Allow-Headers"] = (
            "Authorization, Content-Type, Crdtmem-Lane, Idempotency-Key,"
            " If-None-Match, Last-Event-ID"
        )
        headers["Access-Control-Max-Age"] = "600"
    return headers


def _foreign(why: str) -> HttpError:
    return HttpError(403, "origin-forbidden", why)
