"""relay.http"""

import asyncio
import json
from http import HTTPStatus
from ipaddress import ip_network
from random import Random

import pytest

from crdtmem.errors import InsecureBindError, StorageBusyError
from crdtmem.limits import (
    HANDSHAKES_ADDRESS_MAX,
    HANDSHAKES_MAX,
    READINESS_KEPT_S,
    TOKEN_FAILURES_MAX,
    TOKEN_FAILURES_S,
)
from crdtmem.protocol.relaying import Grant
from relay.http import Answer, Gate, RequestHead, check_bind, client_address
from relay.metrics import Metrics
from relay.storage.memory import MemoryStorage
from tests.relay.live import add_token

PROXY = ip_network("10.0.0.0/8")
UPGRADE = {"sec-websocket-protocol": ["crdtmem.v2, crdtmem.v1"]}


class Clock:
    def __init__(self):
        self.now = 1_000.0

    def __call__(self):
        return self.now


def make_gate(storage=None, **options):
    clock = Clock()
    gate = Gate(
        storage or MemoryStorage(rng=Random(1)),
        Metrics("1.2"),
        version="1.2",
        clock=clock,
        wall_ms=lambda: 50_000,
        **options,
    )
    return gate, clock


def get(path, peer="127.0.0.1", method="GET", **headers):
    named = {name.replace("_", "-"): [value] for name, value in headers.items()}
    return RequestHead(method, path, named, peer)


def sync(token, peer="127.0.0.1", **headers):
    named = {name.replace("_", "-"): [value] for name, value in headers.items()}
    if token is not None:
        named["authorization"] = [f"Bearer {token}"]
    return RequestHead("GET", "/v1/sync", UPGRADE | named, peer)


async def test_it_tells_that_it_lives_and_what_it_is():
    gate, _ = make_gate()
    alive = await gate.decide(get("/livez?x=1"))
    version = await gate.decide(get("/version"))

    assert alive == Answer(HTTPStatus.OK, "ok\n")
    assert json.loads(version.body) == {
        "name": "crdtmem-relay",
        "version": "1.2",
        "protocols": ["crdtmem.v1"],
    }
    assert version.content_type == "application/json"


async def test_what_is_not_there_or_not_asked_for_by_get_is_refused():
    gate, _ = make_gate()
    nothing = await gate.decide(get("/v1/syn"))
    written = await gate.decide(get("/livez", method="POST"))

    assert nothing.status == HTTPStatus.NOT_FOUND
    assert written.status == HTTPStatus.METHOD_NOT_ALLOWED
    assert written.headers == (("Allow", "GET"),)


class Probed(MemoryStorage):
    """Counts its probes, and answers them as it is told to."""

    def __init__(self, probe):
        super().__init__(rng=Random(1))
        self.probes = 0
        self.answer = probe

    async def probe(self):
        self.probes += 1
        await self.answer()


async def nothing():
    pass


async def test_it_is_ready_while_its_log_answers_and_tells_so_again_for_a_while():
    storage = Probed(nothing)
    gate, clock = make_gate(storage)
    first = await gate.decide(get("/readyz"))
    clock.now += READINESS_KEPT_S - 0.1
    second = await gate.decide(get("/readyz"))
    clock.now += 0.1
    third = await gate.decide(get("/readyz"))

    ready = {"status": "ready", "storageMs": 0, "error": None}
    assert [json.loads(each.body) for each in (first, second, third)] == [ready] * 3
    assert first.status == HTTPStatus.OK
    assert storage.probes == 2


async def test_it_is_not_ready_when_its_log_fails():
    async def fail():
        raise StorageBusyError(path="relay.db")

    gate, _ = make_gate(Probed(fail))
    answer = await gate.decide(get("/readyz"))

    assert answer.status == HTTPStatus.SERVICE_UNAVAILABLE
    failing = {"status": "failing", "storageMs": None, "error": "busy"}
    assert json.loads(answer.body) == failing


async def test_it_is_not_ready_when_its_log_hangs(monkeypatch):
    monkeypatch.setattr("relay.http.READINESS_WAIT_S", 0.01)
    gate, _ = make_gate(Probed(asyncio.Event().wait))
    answer = await asyncio.create_task(gate.decide(get("/readyz")))

    assert answer.status == HTTPStatus.SERVICE_UNAVAILABLE
    assert json.loads(answer.body)["error"] == "timeout"


async def test_it_is_not_ready_while_it_drains_and_lets_nobody_in():
    storage = MemoryStorage(rng=Random(1))
    gate, _ = make_gate(storage)
    token = await add_token(storage)
    gate.is_draining = True
    ready = await gate.decide(get("/readyz"))
    refused = await gate.decide(sync(token))

    assert ready.status == HTTPStatus.SERVICE_UNAVAILABLE
    assert json.loads(ready.body)["status"] == "draining"
    assert refused.status == HTTPStatus.SERVICE_UNAVAILABLE
    assert refused.headers == (("Retry-After", "5"),)


async def test_a_token_gets_its_grant():
    storage = MemoryStorage(rng=Random(1))
    gate, _ = make_gate(storage)
    token = await add_token(storage, ["read"], pattern="team-*")
    grant = await gate.decide(sync(token))

    assert isinstance(grant, Grant)
    assert (grant.token_id, grant.pattern) == ("abcdefghij", "team-*")


@pytest.mark.requirement("sync-auth")
@pytest.mark.parametrize(
    "spoil",
    [
        lambda token: None,
        lambda token: "",
        lambda token: token[:-1],
        lambda token: token.replace("abcdefghij", "abcdefghik"),
        lambda token: token[:-2] + ("AA" if token[-2:] != "AA" else "AE"),
    ],
    ids=["none", "empty", "short", "unknown", "other secret"],
)
async def test_whatever_is_wrong_with_a_token_the_answer_is_one(spoil):
    storage = MemoryStorage(rng=Random(1))
    gate, _ = make_gate(storage)
    answer = await gate.decide(sync(spoil(await add_token(storage))))

    assert answer == Answer(
        HTTPStatus.UNAUTHORIZED,
        "unauthorized\n",
        headers=(("WWW-Authenticate", "Bearer"),),
    )


async def test_a_token_counts_in_no_other_place():
    storage = MemoryStorage(rng=Random(1))
    gate, _ = make_gate(storage)
    token = await add_token(storage)
    in_url = RequestHead("GET", f"/v1/sync?token={token}", UPGRADE, "127.0.0.1")
    basic = sync(None, authorization=f"Basic {token}")
    twice = {"authorization": [f"Bearer {token}"] * 2}
    doubled = RequestHead("GET", "/v1/sync", UPGRADE | twice, "127.0.0.1")
    answers = [await gate.decide(each) for each in (in_url, basic, doubled)]

    assert [each.status for each in answers] == [HTTPStatus.UNAUTHORIZED] * 3
    assert token not in repr(in_url.headers)


@pytest.mark.requirement("sync-http")
async def test_who_speaks_no_version_is_told_which_there_are():
    storage = MemoryStorage(rng=Random(1))
    gate, _ = make_gate(storage)
    token = await add_token(storage)
    headers = {"authorization": [f"Bearer {token}"]}
    answer = await gate.decide(RequestHead("GET", "/v1/sync", headers, "127.0.0.1"))

    assert answer.status == HTTPStatus.BAD_REQUEST
    assert answer.headers == (("crdtmem-versions", "crdtmem.v1"),)


@pytest.mark.requirement("sync-http")
async def test_a_browser_is_let_in_from_listed_pages_alone():
    storage = MemoryStorage(rng=Random(1))
    gate, _ = make_gate(storage, origins=["https://app.example"])
    token = await add_token(storage)
    other = await gate.decide(sync(token, origin="https://evil.example"))
    listed = await gate.decide(sync(token, origin="https://app.example"))

    assert other == Answer(HTTPStatus.FORBIDDEN, "origin-forbidden\n")
    assert isinstance(listed, Grant)


async def test_an_address_that_fails_too_often_is_turned_away_for_a_while():
    storage = MemoryStorage(rng=Random(1))
    gate, clock = make_gate(storage)
    token = await add_token(storage)
    for _ in range(TOKEN_FAILURES_MAX):
        failed = await gate.decide(sync("cm1_x", "192.0.2.1"))
    blocked = await gate.decide(sync(token, "192.0.2.1"))
    other = await gate.decide(sync(token, "192.0.2.2"))
    clock.now += TOKEN_FAILURES_S
    later = await gate.decide(sync(token, "192.0.2.1"))

    assert failed.status == HTTPStatus.UNAUTHORIZED
    assert blocked.status == HTTPStatus.TOO_MANY_REQUESTS
    assert blocked.headers == (("Retry-After", "60"),)
    assert isinstance(other, Grant)
    assert isinstance(later, Grant)


async def test_the_addresses_of_one_network_and_of_one_proxy_are_told_apart():
    storage = MemoryStorage(rng=Random(1))
    gate, _ = make_gate(storage, proxies=[PROXY])
    token = await add_token(storage)
    for number in range(TOKEN_FAILURES_MAX):
        await gate.decide(sync("cm1_x", f"2001:db8::{number:x}"))
        forwarded = f"192.0.2.7, 2001:db8:1::{number:x}"
        await gate.decide(sync("cm1_x", "10.1.1.1", x_forwarded_for=forwarded))
    same = await gate.decide(sync(token, "2001:db8::ff"))
    behind = await gate.decide(sync(token, "10.1.1.1", x_forwarded_for="2001:db8:1::"))
    others = await gate.decide(sync(token, "10.1.1.1", x_forwarded_for="192.0.2.7"))

    assert same.status == HTTPStatus.TOO_MANY_REQUESTS
    assert behind.status == HTTPStatus.TOO_MANY_REQUESTS
    assert isinstance(others, Grant)


async def test_a_token_has_so_many_connections_and_the_relay_so_many():
    storage = MemoryStorage(rng=Random(1))
    gate, _ = make_gate(storage, connections_max=3, token_connections_max=2)
    one = await add_token(storage)
    two = await add_token(storage, token_id="bbbbbbbbbb")
    grants = [await gate.decide(sync(one)) for _ in range(2)]
    third = await gate.decide(sync(one))
    other = await gate.decide(sync(two))
    full = await gate.decide(sync(two))
    gate.left(grants[0])
    again = await gate.decide(sync(one))

    assert third.status == HTTPStatus.TOO_MANY_REQUESTS
    assert isinstance(other, Grant)
    assert full.status == HTTPStatus.SERVICE_UNAVAILABLE
    assert again == grants[0]


async def test_a_log_that_cannot_be_asked_for_tokens_is_no_bad_token():
    class Busy(MemoryStorage):
        async def grant(self, token_id, secret, now_ms):
            raise StorageBusyError(path="relay.db")

    storage = Busy(rng=Random(1))
    gate, _ = make_gate(storage)
    answer = await gate.decide(sync(await add_token(storage)))

    assert answer.status == HTTPStatus.SERVICE_UNAVAILABLE


@pytest.mark.parametrize(
    ("head", "is_shown"),
    [
        (get("/metrics", "127.0.0.1"), True),
        (get("/metrics", "::1"), True),
        (get("/metrics", "::ffff:127.0.0.1"), True),
        (get("/metrics", "192.0.2.1"), False),
        (get("/metrics", ""), False),
        (get("/metrics", "127.0.0.1", x_forwarded_for="192.0.2.1"), False),
        (get("/metrics", "127.0.0.1", forwarded="for=192.0.2.1"), False),
        (get("/metrics", "10.1.1.1", x_forwarded_for="127.0.0.1"), False),
    ],
)
async def test_the_metrics_are_for_this_machine(head, is_shown):
    gate, _ = make_gate(proxies=[PROXY])
    answer = await gate.decide(head)

    assert answer.status == (HTTPStatus.OK if is_shown else HTTPStatus.UNAUTHORIZED)
    assert ("connections" in answer.body) == is_shown


async def test_the_metrics_are_for_tokens_with_the_scope_for_them():
    storage = MemoryStorage(rng=Random(1))
    gate, _ = make_gate(storage)
    measured = []
    gate.measure = lambda: measured.append(True)
    may = await add_token(storage, ["metrics"], token_id="aaaaaaaaaa")
    may_not = await add_token(storage, ["write"], token_id="bbbbbbbbbb")
    shown = await gate.decide(
        get("/metrics", "192.0.2.1", authorization=f"Bearer {may}")
    )
    refused = await gate.decide(
        get("/metrics", "192.0.2.1", authorization=f"Bearer {may_not}")
    )

    assert shown.status == HTTPStatus.OK
    assert shown.content_type.startswith("text/plain; version=0.0.4")
    assert refused.status == HTTPStatus.UNAUTHORIZED
    assert measured == [True]


async def test_an_address_and_the_relay_have_so_many_handshakes_at_once():
    gate, _ = make_gate(proxies=[PROXY])
    own = [gate.begin("192.0.2.1") for _ in range(HANDSHAKES_ADDRESS_MAX + 1)]
    gate.end("192.0.2.1")
    again = gate.begin("192.0.2.1")
    rest = HANDSHAKES_MAX - HANDSHAKES_ADDRESS_MAX
    proxied = [gate.begin("10.1.1.1") for _ in range(rest + 1)]

    assert own == [True] * HANDSHAKES_ADDRESS_MAX + [False]
    assert again
    assert proxied == [True] * rest + [False]


@pytest.mark.parametrize(
    ("peer", "forwarded", "client"),
    [
        ("192.0.2.1", "198.51.100.7", "192.0.2.1"),
        ("10.1.1.1", "198.51.100.7", "198.51.100.7"),
        ("10.1.1.1", "evil, 192.0.2.9 , 198.51.100.7", "198.51.100.7"),
        ("10.1.1.1", "198.51.100.7, nonsense", "10.1.1.1"),
        ("10.1.1.1", "", "10.1.1.1"),
        ("::ffff:10.1.1.1", "198.51.100.7", "198.51.100.7"),
    ],
)
def test_what_our_proxy_added_last_is_the_client(peer, forwarded, client):
    assert client_address(peer, forwarded, [PROXY]) == client


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.8.8", "::1", "localhost"])
def test_a_loopback_address_needs_no_certificate(host):
    check_bind(host, has_tls=False, proxies=())


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "", "192.0.2.1", "relay.example"])
def test_any_other_address_needs_a_certificate_or_a_proxy(host):
    check_bind(host, has_tls=True, proxies=())
    check_bind(host, has_tls=False, proxies=[PROXY])
    with pytest.raises(InsecureBindError) as refused:
        check_bind(host, has_tls=False, proxies=())

    assert refused.value.code == "insecure-bind"
    assert refused.value.details == {"address": host}
