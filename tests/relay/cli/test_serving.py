"""relay.cli.serving: the command that serves, in this process and in one of its own."""

import json
import os
import signal
import socket
import subprocess
import sys
import urllib.request
from dataclasses import replace

import pytest
import trustme

from crdtmem.errors import (
    ConfigError,
    InsecureBindError,
    InvalidArgumentError,
    PortInUseError,
)
from relay.cli import serving
from relay.cli.places import Place
from relay.cli.serving import address_of, serve_place
from relay.config import RelayConfig


@pytest.fixture
def certificate(tmp_path):
    """A certificate and its key, in two files."""
    made = trustme.CA().issue_cert("127.0.0.1")
    made.cert_chain_pems[0].write_to_path(tmp_path / "cert.pem")
    made.private_key_pem.write_to_path(tmp_path / "key.pem")
    return {"tls_cert": tmp_path / "cert.pem", "tls_key": tmp_path / "key.pem"}


def served(folder, **settings):
    """Serve until it is ready; return the exit status and the ports."""
    ports = []

    def end(port):
        ports.append(port)
        os.kill(os.getpid(), signal.SIGTERM)

    config = replace(RelayConfig(port=0), **settings)
    status = serve_place(Place(folder, config), is_restored=False, on_ready=end)
    return status, ports


def test_a_folder_is_served_until_a_signal(folder):
    status, ports = served(folder)

    assert status == 0
    assert len(ports) == 1
    assert ports[0] > 0


def test_the_loop_of_asyncio_serves_where_uvloop_is_not(folder, monkeypatch):
    monkeypatch.setitem(sys.modules, "uvloop", None)

    assert serving._loop_factory() is None
    assert served(folder)[0] == 0


def test_any_address_is_served_with_a_certificate(folder, certificate):
    assert served(folder, host="0.0.0.0", **certificate)[0] == 0


def test_no_address_of_a_network_is_served_in_the_clear(folder):
    with pytest.raises(InsecureBindError) as refused:
        served(folder, host="0.0.0.0")

    assert (refused.value.code, refused.value.exit_status) == ("insecure-bind", 2)


@pytest.mark.parametrize(("given", "missing"), [("cert", "key"), ("key", "cert")])
def test_a_certificate_without_its_key_is_refused(folder, certificate, given, missing):
    with pytest.raises(ConfigError, match="go together") as refused:
        served(folder, **{f"tls_{given}": certificate[f"tls_{given}"]})

    assert refused.value.details == {"key": f"tls_{missing}"}


def test_a_certificate_that_cannot_be_read_is_refused(folder, certificate):
    absent = {**certificate, "tls_key": certificate["tls_key"].with_name("none.pem")}
    with pytest.raises(ConfigError, match=r"none\.pem' cannot be used: No such file"):
        served(folder, **absent)
    certificate["tls_key"].write_text("no key", encoding="ascii")
    with pytest.raises(ConfigError, match=r"key\.pem' cannot be used") as refused:
        served(folder, **certificate)

    assert refused.value.details["path"] == str(certificate["tls_cert"])


def test_an_address_that_is_taken_is_told(folder):
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(PortInUseError) as refused:
            served(folder, port=port)

    assert str(refused.value) == f"127.0.0.1:{port} is in use"
    assert refused.value.exit_status == 6


def test_an_address_of_another_machine_is_told(folder):
    settings = {"host": "localhost.invalid", "proxies": (object(),)}
    with pytest.raises(InvalidArgumentError, match=r"localhost\.invalid:0 cannot be"):
        served(folder, **settings)


def test_an_address_stands_as_in_a_url():
    assert address_of("::1", 80) == "[::1]:80"
    assert address_of("localhost", 80) == "localhost:80"


def test_options_stand_above_the_file(folder, run, monkeypatch):
    seen = []

    def serve_nothing(place, *, is_restored, on_ready):
        seen.append((place.config, is_restored))
        on_ready(7)
        return 5

    monkeypatch.setattr("relay.cli.commands.serve_place", serve_nothing)
    (folder / "relay.toml").write_text(
        'listen = "127.0.0.2:1"\norigins = ["https://a"]\ntls_cert = "c"\n',
        encoding="utf-8",
    )
    plain = run("serve", folder)
    options = run(
        *("serve", folder, "--listen", "[::1]:2", "--tls-cert", "d", "--tls-key", "k"),
        *("--behind-proxy", "10.0.0.0/8", "--origin", "https://b", "--restored"),
        "--json",
    )
    (first, is_restored), (second, is_restored_then) = seen

    assert (plain.status, plain.out) == (5, "listening on wss://127.0.0.2:7\n")
    assert (first.host, first.port, first.origins) == ("127.0.0.2", 1, ("https://a",))
    assert (first.tls_cert, is_restored) == (folder / "c", False)
    assert json.loads(options.out) == {"url": "wss://[::1]:7", "port": 7}
    assert (second.host, second.port, second.origins) == ("::1", 2, ("https://b",))
    assert (str(second.tls_cert), str(second.tls_key)) == ("d", "k")
    assert ([str(one) for one in second.proxies], is_restored_then) == (
        ["10.0.0.0/8"],
        True,
    )


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("--listen", "here"), "'here' is no address such as 127.0.0.1:8787"),
        (("--behind-proxy", "x"), "'x' is no network such as 10.0.0.0/8"),
        (("--origin", "*"), "'*' is no origin such as https://example.org"),
    ],
)
def test_an_option_that_cannot_be_used_is_told(folder, run, words, sentence):
    refused = run("serve", folder, *words)

    assert (refused.status, sentence in refused.err) == (2, True)


@pytest.mark.process
def test_a_relay_answers_and_is_alone_on_its_folder(folder, run):
    command = [sys.executable, "-m", "crdtmem", "relay", "serve", str(folder)]
    with subprocess.Popen(
        [*command, "--listen", "127.0.0.1:0", "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        encoding="utf-8",
    ) as process:
        assert process.stdout is not None
        told = json.loads(process.stdout.readline())
        with urllib.request.urlopen(
            f"http://127.0.0.1:{told['port']}/livez", timeout=20
        ) as answer:
            found = answer.status, answer.read()
        second = run("serve", folder, "--listen", "127.0.0.1:0")
        process.send_signal(signal.SIGTERM)
        _, log = process.communicate(timeout=50)

    assert found == (200, b"ok\n")
    assert (second.status, second.out) == (6, "")
    assert f"error: a relay is already running on {folder}" in second.err
    assert process.returncode == 0
    events = [json.loads(line)["event"] for line in log.splitlines()]
    assert (events[0], events[-1]) == ("listening", "stopped")
