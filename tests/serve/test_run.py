"""A server on a real socket: how it starts, what bounds it, how it ends."""

import http.client
import json
import os
import signal
import socket
import ssl
import stat
import subprocess
import sys
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest
import trustme

from crdtmem import opening
from crdtmem.config import load_config
from crdtmem.errors import (
    ConfigError,
    InsecureBindError,
    InvalidArgumentError,
    PortInUseError,
)
from crdtmem.limits import SERVE_PORT, SERVE_PORTS_MAX
from crdtmem.serve.app import Parts
from crdtmem.serve.parts import make_parts as real_parts
from crdtmem.serve.run import Background, Options, Ready, bound_socket, serve
from crdtmem.serve.runfiles import folder_for, invitation, running_servers
from tests.serve.desk import (
    PAGES,
    PATIENCE_S,
    PROJECT,
    desk,
    error_page,
    token_file,
)


def background(folder):
    store = folder / "store.db"

    def open_memory(project, lane):
        config = load_config(
            options={"store": store, "project": project, "lane": lane},
            environ={"HOME": str(folder)},
            cwd=folder,
        )
        return opening.open_with(config)

    return Background(
        store=store,
        project=PROJECT,
        user_name="ana",
        lane="cli",
        version="1.2.3",
        open_memory=open_memory,
    )


def make_parts(_site):
    async def drain():
        raise TimeoutError

    return Parts(lambda: PAGES, {}, error_page), drain


def while_served(folder, act, **options):
    """Serve until a helper has done its work, which ends it with a real signal."""
    outcomes = []

    def tell(ready):
        outcomes.append(helpers.submit(act, ready))
        outcomes[0].add_done_callback(lambda _: os.kill(os.getpid(), signal.SIGTERM))

    with ThreadPoolExecutor(1) as helpers:
        serve(Options(port=0, **options), background(folder), make_parts, tell)
        return outcomes[0].result(PATIENCE_S)


def get(running, target, *, method="GET", headers=None):
    connection = http.client.HTTPConnection("127.0.0.1", running.port, timeout=30)
    given = {"Authorization": f"Bearer {running.control}"} | (headers or {})
    connection.request(method, target, headers=given)
    answer = connection.getresponse()
    found = answer.status, answer.read()
    connection.close()
    return found


@pytest.mark.requirement("serve-27")
def test_a_server_keeps_a_run_file_while_it_runs(tmp_path):
    folder = folder_for(tmp_path / "store.db")

    def act(ready):
        found = running_servers(folder)
        mode = stat.S_IMODE((folder / f"{os.getpid()}.json").stat().st_mode)
        url = invitation(found[0], store=tmp_path)
        path = url.removeprefix(found[0].base)
        status = get(ready.running, "/api/v1/status")
        return found, mode, get(ready.running, path)[0], json.loads(status[1])

    found, mode, signed_in, status = while_served(tmp_path, act)

    assert [one.pid for one in found] == [os.getpid()]
    assert mode == 0o600
    assert found[0].base.startswith("http://127.0.0.1:")
    assert signed_in == 200
    assert status["serve"]["base"] == found[0].base
    assert running_servers(folder) == []


def handles_of(running):
    return json.loads(get(running, "/api/v1/status")[1])["serve"]["handles"]


@pytest.mark.requirement("serve-26")
def test_a_signal_ends_streams_and_waits_in_order(tmp_path):
    target = f"/api/v1/projects/{PROJECT}"

    def act(ready):
        cursor = json.loads(get(ready.running, f"{target}/changes")[1])["cursor"]
        waits: list[Future[tuple[int, bytes]]] = [Future(), Future()]

        def wait(future, path):
            future.set_result(get(ready.running, path))

        for future, path in zip(
            waits, ("events", f"changes?wait=30&since={cursor}"), strict=True
        ):
            threading.Thread(target=wait, args=(future, f"{target}/{path}")).start()
        list(iter(lambda: handles_of(ready.running) > 1, True))
        return waits

    streamed, waited = while_served(tmp_path, act)

    assert streamed.result(PATIENCE_S)[1].endswith(b"event: bye\ndata: {}\n\n")
    assert waited.result(PATIENCE_S)[0] == 200


def again(running):
    """Send a request, and half of another on the same connection."""
    connection = http.client.HTTPConnection("127.0.0.1", running.port, timeout=30)
    connection.request("GET", "/livez")
    connection.getresponse().read()
    connection.sock.sendall(b"GET /liv")
    connection.sock.sendall(b"ez HT")
    found = connection.sock.recv(65_536)
    connection.close()
    return found


def unread(running):
    """Send bodies behind requests that were refused by their heads; yield the rest."""
    head = b"POST / HTTP/1.1\r\nHost: 127.0.0.1:%d\r\nTransfer-Encoding: chunked\r\n"
    for piece in (b"no chunk\r\n", b"1\r\nx\r\n"):
        with socket.create_connection(("127.0.0.1", running.port), PATIENCE_S) as peer:
            peer.sendall(head % running.port + b"\r\n")
            with http.client.HTTPResponse(peer) as answer:
                answer.begin()
                answer.read()
                assert answer.status == 401
            peer.sendall(piece)
            yield peer.recv(65_536)


@pytest.mark.requirement("serve-1")
def test_a_head_is_bounded_in_size_and_time(tmp_path, monkeypatch):
    monkeypatch.setattr("crdtmem.serve.run.SERVE_HEAD_S", 0.2)

    def talk(port, *pieces):
        with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S) as peer:
            for piece in pieces:
                peer.sendall(piece)
            found = b""
            while piece := peer.recv(65_536):
                found += piece
            return found

    def act(ready):
        port = ready.running.port
        head = b"GET /livez HTTP/1.1\r\nConnection: close\r\nHost: 127.0.0.1:%d\r\n"
        head %= port
        return [
            talk(port, head + b"X: " + b"a" * 20_000),
            talk(port, head + b"X: " + b"a" * 20_000 + b"\r\n\r\n"),
            talk(port, b"nonsense\r\n\r\n"),
            talk(port, head),
            talk(port, head + b"\r\n"),
            again(ready.running),
            *unread(ready.running),
        ]

    long, whole, bad, slow, idle, second, torn, endless = while_served(tmp_path, act)

    assert long.startswith(b"HTTP/1.1 431 ")
    assert whole.startswith(b"HTTP/1.1 431 ")
    assert bad.startswith(b"HTTP/1.1 400 ")
    assert slow.startswith(b"HTTP/1.1 408 ")
    assert idle.startswith(b"HTTP/1.1 200 ")
    assert second.startswith(b"HTTP/1.1 408 ")
    assert torn == endless == b""
    for answer in (long, whole, bad, slow, second):
        assert b"content-security-policy: default-src 'none'" in answer.lower()


@pytest.mark.requirement("serve-1")
@pytest.mark.requirement("serve-26")
def test_one_connection_too_many_and_a_body_that_a_stop_cuts_off_are_told(
    tmp_path, monkeypatch
):
    monkeypatch.setattr("crdtmem.serve.run.SERVE_CONNECTIONS_MAX", 1)
    monkeypatch.setattr("crdtmem.serve.run.SERVE_DRAIN_S", 0.0)

    def act(ready):
        place = "127.0.0.1", ready.running.port
        first = socket.create_connection(place, timeout=PATIENCE_S)
        first.sendall(
            b"POST /api/v1/projects/desk/slots HTTP/1.1\r\nHost: 127.0.0.1:%d\r\n"
            b"Authorization: Bearer %s\r\nContent-Length: 20\r\n"
            b"Expect: 100-continue\r\n\r\n"
            % (ready.running.port, ready.running.control.encode())
        )
        # It is sent when the body is asked for.
        assert first.recv(65_536).startswith(b"HTTP/1.1 100 ")
        return first, told_on(socket.create_connection(place, timeout=PATIENCE_S))

    def told_on(peer):
        with peer, peer.makefile("rwb") as stream:
            stream.write(b"GET /livez HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
            stream.flush()
            return stream.read()

    first, turned_away = while_served(tmp_path, act)
    with first, first.makefile("rb") as stream:
        stopped = stream.read()

    for answer, code in ((turned_away, b"server-busy"), (stopped, b"server-stops")):
        assert answer.startswith(b"HTTP/1.1 503 ")
        assert code in answer
        assert b"content-security-policy: default-src 'none'" in answer
        assert b"retry-after: 1\r\n" in answer.lower()


@pytest.mark.requirement("serve-27")
def test_the_usual_port_or_one_of_the_next_is_taken():
    taken = []
    try:
        taken.append(bound_socket("localhost", None))
        taken.append(bound_socket("localhost", None))
        ports = [one.getsockname()[1] for one in taken]
        with pytest.raises(PortInUseError) as caught:
            bound_socket("127.0.0.1", ports[0])
    finally:
        for one in taken:
            one.close()

    assert ports[0] != ports[1]
    assert set(ports) <= set(range(SERVE_PORT, SERVE_PORT + SERVE_PORTS_MAX))
    assert caught.value.exit_status == 6
    assert f"127.0.0.1:{ports[0]} is in use" in caught.value.message
    assert "--port" in caught.value.hint


@pytest.mark.requirement("serve-27")
@pytest.mark.parametrize(
    "options",
    [
        {"host": "0.0.0.0"},
        {"host": "memory.example"},
        {"host": "::", "public_url": "https://memory.example"},
        {"host": "10.0.0.1", "tls": (Path("c"), Path("k"))},
        {"host": "10.0.0.1", "behind_proxy": "10.0.0.0/8"},
        {
            "host": "10.0.0.1",
            "behind_proxy": "10.0.0.0/8",
            "public_url": "http://memory.example",
        },
        {
            "host": "10.0.0.1",
            "behind_proxy": "10.0.0.0/8",
            "public_url": "https://memory.example",
            "agentmemory_open": True,
        },
    ],
)
def test_texts_never_go_over_the_network_in_the_clear(tmp_path, options):
    with pytest.raises(InsecureBindError) as caught:
        serve(Options(**options), background(tmp_path), make_parts, print)

    assert caught.value.code == "insecure-bind"
    assert not (tmp_path / "store.db").exists()


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"origins": ("example.org",)}, "origin must be"),
        ({"origins": ("https://example.org/path",)}, "origin must be"),
        ({"public_url": "https://example.org/"}, "public_url must be"),
        ({"behind_proxy": "*"}, "behind_proxy must be a CIDR"),
    ],
)
def test_an_option_that_names_no_origin_or_address_is_refused(tmp_path, options, why):
    with pytest.raises(InvalidArgumentError, match=why):
        serve(Options(**options), background(tmp_path), make_parts, print)


@pytest.mark.requirement("serve-27")
def test_a_bad_token_file_stops_the_start(tmp_path):
    path = token_file(tmp_path)
    path.chmod(0o644)

    with pytest.raises(ConfigError):
        serve(Options(token_file=path), background(tmp_path), make_parts, print)


def test_a_certificate_that_is_none_is_told_of_before_any_address(tmp_path):
    pair = tmp_path / "cert.pem", tmp_path / "key.pem"
    told: list[Ready] = []

    with pytest.raises(InvalidArgumentError, match=r"cert\.pem.*No such") as caught:
        serve(Options(port=0, tls=pair), background(tmp_path), make_parts, told.append)

    assert (caught.value.exit_status, told) == (2, [])


def test_a_public_server_speaks_tls_and_is_asked_by_its_name(tmp_path):
    authority = trustme.CA()
    made = authority.issue_cert("memory.example")
    certificate, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    made.cert_chain_pems[0].write_to_path(certificate)
    made.private_key_pem.write_to_path(key)
    trust = ssl.create_default_context()
    authority.configure_trust(trust)

    def act(ready):
        raw = socket.create_connection(("127.0.0.1", ready.running.port), PATIENCE_S)
        with trust.wrap_socket(raw, server_hostname="memory.example") as peer:
            token = ready.url.partition("?")[2]
            peer.sendall(
                b"GET /login?%s HTTP/1.1\r\nHost: memory.example\r\n"
                b"Connection: close\r\n\r\n" % token.encode()
            )
            found = b""
            while piece := peer.recv(65_536):
                found += piece
        return ready, found, invitation(ready.running, store=tmp_path)

    ready, found, url = while_served(
        tmp_path,
        act,
        host="0.0.0.0",
        tls=(certificate, key),
        public_url="https://memory.example",
        read_only=False,
    )

    assert ready.url.startswith("https://memory.example/login?t=")
    assert ready.running.address == "127.0.0.1"
    assert b"set-cookie: __Host-crdtmem_" in found
    assert b"; Secure" in found
    assert url.startswith("https://memory.example/login?t=")


def test_a_server_behind_a_proxy_and_one_that_only_shows(tmp_path):
    def act(ready):
        return ready.url, get(
            ready.running, "/livez", headers={"Host": "memory.example"}
        )

    with background(tmp_path).open_memory(PROJECT, "cli") as memory:
        memory.create("notes")
    url, answer = while_served(
        tmp_path,
        act,
        behind_proxy="127.0.0.1/32",
        public_url="https://memory.example",
        read_only=True,
    )

    assert url.startswith("https://memory.example/")
    assert answer == (200, b"ok\n")


async def test_the_parts_are_put_together_and_drained(tmp_path):
    async with desk(tmp_path) as server:
        parts, drain = real_parts(server.site)
        await drain()

    assert ("GET", "/") in {(page.method, page.pattern) for page in parts.pages()}
    assert parts.static


@pytest.mark.process
def test_a_server_starts_without_what_only_pages_and_editors_need():
    script = "import crdtmem.serve.parts, crdtmem.serve.run, sys; print(*sys.modules)"
    ended = subprocess.run(
        [sys.executable, "-c", script],
        check=True,
        capture_output=True,
        encoding="utf-8",
    )

    slow = {"crdtmem.gateway", "crdtmem.serve.pages", "pycrdt", "websockets"}
    assert not slow & set(ended.stdout.split())
