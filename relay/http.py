"""What a relay answers to a request, and whom it lets in.

The gate reads a request's head and decides: an answer, or the grant under which the
connection becomes a WebSocket. It opens no socket and knows no WebSocket library;
``relay.server`` asks it before each upgrade. It counts what is open and who failed, so
one gate serves all connections of a process.

Whoever holds no grant costs little: a head is short, its time is bounded, and after
some failed tokens an address is not even looked up.
"""

import asyncio
import json
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from ipaddress import (
    IPv4Address,
    IPv4Network,
    IPv6Address,
    IPv6Network,
    ip_address,
    ip_network,
)

from crdtmem.errors import CrdtmemError, InsecureBindError, StorageError
from crdtmem.limits import (
    CONNECTIONS_MAX,
    HANDSHAKES_ADDRESS_MAX,
    HANDSHAKES_MAX,
    READINESS_KEPT_S,
    READINESS_WAIT_S,
    TOKEN_CONNECTIONS_MAX,
    TOKEN_FAILURES_S,
)
from crdtmem.protocol.relaying import Grant
from crdtmem.protocol.tokens import parse_token
from relay.auth import FailureLimit
from relay.metrics import CONTENT_TYPE, Metrics
from relay.storage import Storage

__all__ = [
    "SUBPROTOCOL",
    "SYNC_PATH",
    "Answer",
    "Gate",
    "Network",
    "RequestHead",
    "check_bind",
    "client_address",
]

SUBPROTOCOL = "crdtmem.v1"
SYNC_PATH = "/v1/sync"

Network = IPv4Network | IPv6Network


@dataclass(frozen=True, slots=True)
class RequestHead:
    """A request without its body, which a relay never reads.

    Attributes:
        method: ``GET`` and so on.
        target: Path and query as they were sent.
        headers: All values of each header in their order, by its name in lower case.
        peer: Address of the other end of the socket.

    """

    method: str
    target: str
    headers: Mapping[str, Sequence[str]] = field(repr=False)
    peer: str

    def header(self, name: str) -> str:
        """Return the only value of a header; empty if there is none or are several."""
        values = self.headers.get(name, ())
        return values[0] if len(values) == 1 else ""


@dataclass(frozen=True, slots=True)
class Answer:
    """An HTTP response: all but the date and the length, which the server adds."""

    status: HTTPStatus
    body: str = ""
    content_type: str = "text/plain; charset=utf-8"
    headers: tuple[tuple[str, str], ...] = ()


class Gate:
    """Who may come in, and what the others are told.

    1. No grant is looked up for an address that is blocked.
    2. A grant that ``decide`` returned counts as a connection until ``left``.
    3. A handshake that ``begin`` let in counts until ``end``.

    Args:
        storage: Knows the tokens.
        metrics: What ``/metrics`` shows.
        version: What ``/version`` shows.
        clock: Monotonic seconds.
        wall_ms: Milliseconds since 1970.
        origins: Values of ``Origin`` that are let in; a request without one always is.
        proxies: Networks whose ``X-Forwarded-For`` counts.
        connections_max: Most open connections.
        token_connections_max: Most of them under one token.

    Attributes:
        is_draining: Set by the server when it begins to end; nobody is let in then.
        measure: Called before the metrics are shown, to bring them up to date.

    """

    def __init__(
        self,
        storage: Storage,
        metrics: Metrics,
        *,
        version: str,
        clock: Callable[[], float],
        wall_ms: Callable[[], int],
        origins: Sequence[str] = (),
        proxies: Sequence[Network] = (),
        connections_max: int = CONNECTIONS_MAX,
        token_connections_max: int = TOKEN_CONNECTIONS_MAX,
    ) -> None:
        self.is_draining = False
        self.measure: Callable[[], None] = lambda: None
        self._storage = storage
        self._metrics = metrics
        self._version = version
        self._clock = clock
        self._wall_ms = wall_ms
        self._origins = frozenset(origins)
        self._proxies = tuple(proxies)
        self._connections_max = connections_max
        self._token_connections_max = token_connections_max
        self._open: Counter[str] = Counter()
        self._handshakes: Counter[str] = Counter()
        self._failures = FailureLimit()
        self._probing = asyncio.Lock()
        self._probed_at_s = -math.inf
        self._probe: tuple[float | None, str] = (None, "")

    def begin(self, peer: str) -> bool:
        """Count a connection that was accepted, if it is not one too many.

        Returns:
            Whether it may send its request; only then ``end`` is owed.

        """
        # All clients behind a proxy share its address, and it has read their heads
        # before it connects.
        is_crowded = (
            not _is_within(peer, self._proxies)
            and self._handshakes[_group(peer)] >= HANDSHAKES_ADDRESS_MAX
        )
        if is_crowded or self._handshakes.total() >= HANDSHAKES_MAX:
            self._metrics.add("auth_failures_total", "handshakes")
            return False
        self._handshakes[_group(peer)] += 1
        return True

    def end(self, peer: str) -> None:
        """Take back what ``begin`` counted: answered, upgraded or gone."""
        _decrease(self._handshakes, _group(peer))

    def left(self, grant: Grant) -> None:
        """Take back the connection that ``decide`` counted for a grant."""
        _decrease(self._open, grant.token_id)

    async def decide(self, head: RequestHead) -> Answer | Grant:
        """Answer a request, or return the grant under which it may upgrade.

        Whether it is a correct upgrade at all is for the WebSocket library.
        """
        try:
            return await self._decide(head, head.target.partition("?")[0])
        except StorageError as error:
            self._metrics.add("auth_failures_total", error.code)
            return _later(HTTPStatus.SERVICE_UNAVAILABLE, 5)

    async def _decide(self, head: RequestHead, path: str) -> Answer | Grant:
        if path == SYNC_PATH:
            return await self._admit(head)
        if head.method != "GET":
            return _refusal(HTTPStatus.METHOD_NOT_ALLOWED, headers=(("Allow", "GET"),))
        match path:
            case "/livez":
                return Answer(HTTPStatus.OK, "ok\n")
            case "/readyz":
                return await self._readiness()
            case "/version":
                name = {"name": "crdtmem-relay", "version": self._version}
                return _json(name | {"protocols": [SUBPROTOCOL]})
            case "/metrics":
                return await self._numbers(head)
            case _:
                return _refusal(HTTPStatus.NOT_FOUND)

    async def _admit(self, head: RequestHead) -> Answer | Grant:
        origin = head.headers.get("origin", ())
        if any(value not in self._origins for value in origin):
            self._metrics.add("auth_failures_total", "origin")
            return Answer(HTTPStatus.FORBIDDEN, "origin-forbidden\n")
        if SUBPROTOCOL not in _offered(head):
            versions = (("crdtmem-versions", SUBPROTOCOL),)
            return Answer(
                HTTPStatus.BAD_REQUEST, "version-unsupported\n", headers=versions
            )
        found = await self._grant(head)
        if isinstance(found, Answer):
            return found
        return self._room_for(found) or found

    def _room_for(self, grant: Grant) -> Answer | None:
        """Count a connection; an answer if there is no room for it."""
        if self.is_draining or self._open.total() >= self._connections_max:
            return _later(HTTPStatus.SERVICE_UNAVAILABLE, 5)
        if self._open[grant.token_id] >= self._token_connections_max:
            self._metrics.add("auth_failures_total", "connections")
            return _later(HTTPStatus.TOO_MANY_REQUESTS, 60)
        self._open[grant.token_id] += 1
        return None

    async def _grant(self, head: RequestHead) -> Answer | Grant:
        """Return what the request's token allows; one answer for every failure."""
        who = _group(self._client(head))
        if self._failures.is_blocked(who, self._clock()):
            self._metrics.add("auth_failures_total", "blocked")
            return _later(HTTPStatus.TOO_MANY_REQUESTS, TOKEN_FAILURES_S)
        scheme, _, text = head.header("authorization").partition(" ")
        token = parse_token(text.strip()) if scheme.lower() == "bearer" else None
        grant = None
        if token is not None:
            grant = await self._storage.grant(*token, self._wall_ms())
        if grant is None:
            reason = "missing" if "authorization" not in head.headers else "token"
            self._metrics.add("auth_failures_total", reason)
            self._failures.failed(who, self._clock())
            return _unauthorized()
        return grant

    def _client(self, head: RequestHead) -> str:
        forwarded = ",".join(head.headers.get("x-forwarded-for", ()))
        return client_address(head.peer, forwarded, self._proxies)

    async def _readiness(self) -> Answer:
        storage_ms, error = await self._probed()
        status = "failing" if error else "ready"
        if self.is_draining:
            status = "draining"
        return _json(
            {"status": status, "storageMs": storage_ms, "error": error or None},
            HTTPStatus.OK if status == "ready" else HTTPStatus.SERVICE_UNAVAILABLE,
        )

    async def _probed(self) -> tuple[float | None, str]:
        """Return the milliseconds of a probe, and a code if it failed.

        The last one is told again for a while: it syncs a disk for whoever asks.
        """
        async with self._probing:
            start = self._clock()
            age_s = start - self._probed_at_s
            if age_s >= READINESS_KEPT_S:
                error = await self._probe_error()
                self._probed_at_s = self._clock()
                took_s = self._probed_at_s - start
                self._metrics.observe("probe_seconds", took_s)
                self._probe = (None if error else round(took_s * 1e3, 3), error)
            return self._probe

    async def _probe_error(self) -> str:
        try:
            async with asyncio.timeout(READINESS_WAIT_S):
                await self._storage.probe()
        except CrdtmemError as refused:
            return refused.code
        except TimeoutError:
            return "timeout"
        return ""

    async def _numbers(self, head: RequestHead) -> Answer:
        """Show the metrics to this machine, or to a token with the scope for it."""
        is_forwarded = "x-forwarded-for" in head.headers or "forwarded" in head.headers
        is_direct = not is_forwarded and not _is_within(head.peer, self._proxies)
        if not (is_direct and _is_loopback(head.peer)):
            found = await self._grant(head)
            if isinstance(found, Answer):
                return found
            if not found.may_read_metrics:
                self._metrics.add("auth_failures_total", "scope")
                return _unauthorized()
        self.measure()
        return Answer(HTTPStatus.OK, self._metrics.render(), CONTENT_TYPE)


def check_bind(host: str, *, has_tls: bool, proxies: Sequence[Network]) -> None:
    """Refuse an address where tokens would go over a network in the clear.

    Raises:
        InsecureBindError: If it is no loopback address, and neither a certificate nor
            a proxy that has one is there.

    """
    is_local = host == "localhost" or _is_loopback(host)
    if not (is_local or has_tls or proxies):
        raise InsecureBindError(address=host)


def client_address(peer: str, forwarded: str, proxies: Sequence[Network]) -> str:
    """Return whose request it is.

    What a proxy of ours added is the last entry; those before it are the client's own
    words. Nobody else's ``X-Forwarded-For`` counts.
    """
    if not _is_within(peer, proxies):
        return peer
    last = _address(forwarded.rpartition(",")[2].strip())
    return peer if last is None else str(last)


def _address(text: str) -> IPv4Address | IPv6Address | None:
    try:
        address = ip_address(text)
    except ValueError:
        return None
    # A socket for both families spells an IPv4 address in the other's form.
    return getattr(address, "ipv4_mapped", None) or address


def _is_within(text: str, networks: Sequence[Network]) -> bool:
    address = _address(text)
    return address is not None and any(address in network for network in networks)


def _is_loopback(text: str) -> bool:
    address = _address(text)
    return address is not None and address.is_loopback


def _group(text: str) -> str:
    """Return the address, or the network that one IPv6 customer has to itself."""
    address = _address(text)
    if isinstance(address, IPv6Address):
        return str(ip_network((int(address), 64), strict=False))
    return text if address is None else str(address)


def _offered(head: RequestHead) -> list[str]:
    values = ",".join(head.headers.get("sec-websocket-protocol", ()))
    return [value.strip() for value in values.split(",")]


def _decrease(counter: Counter[str], key: str) -> None:
    counter[key] -= 1
    if not counter[key]:
        del counter[key]


def _json(body: object, status: HTTPStatus = HTTPStatus.OK) -> Answer:
    return Answer(status, json.dumps(body) + "\n", "application/json")


def _refusal(
    status: HTTPStatus, *, headers: tuple[tuple[str, str], ...] = ()
) -> Answer:
    return Answer(status, f"{status.phrase.lower()}\n", headers=headers)


def _later(status: HTTPStatus, wait_s: float) -> Answer:
    return _refusal(status, headers=(("Retry-After", f"{wait_s:.0f}"),))


def _unauthorized() -> Answer:
    challenge = (("WWW-Authenticate", "Bearer"),)
    return Answer(HTTPStatus.UNAUTHORIZED, "unauthorized\n", headers=challenge)
