"""crdtmem.sync.transport"""

import asyncio
import contextlib
import http
import socket
import ssl

import pytest
import trustme
from websockets.asyncio.server import serve
from websockets.exceptions import InvalidMessage

from crdtmem.errors import InsecureUrlError, RelayRefusedError, RelayUnreachableError
from crdtmem.limits import FRAME_BYTES
from crdtmem.protocol.closes import Close
from crdtmem.sync import transport
from crdtmem.sync.transport import check_url, endpoint_of, open_connection

TOKEN = "cm1_secret"


@contextlib.asynccontextmanager
async def relay(handler, *, subprotocols=("crdtmem.v1",), tls=None, **options):
    """Listen on a free port of this machine; give the URL to connect to."""
    async with serve(
        handler, "localhost", 0, subprotocols=subprotocols, ssl=tls, **options
    ) as server:
        port = server.sockets[0].getsockname()[1]
        yield f"{'wss' if tls else 'ws'}://localhost:{port}"


def refused_with(status, headers=()):
    """Answer a handshake with a status."""

    def process(connection, request):
        response = connection.respond(http.HTTPStatus(status), "no\n")
        for name, value in headers:
            response.headers[name] = value
        return response

    return process


async def fail_to_connect(url, **options):
    with pytest.raises((RelayRefusedError, RelayUnreachableError)) as caught:
        await open_connection(url, TOKEN, **options)
    assert TOKEN not in str(caught.value.to_dict())
    return caught.value


@contextlib.asynccontextmanager
async def other_server(answer):
    """Listen with something that is no relay; give its port."""
    done = asyncio.Event()

    async def handler(reader, writer):
        writer.write(answer)
        with contextlib.suppress(ConnectionError):
            await reader.read()
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()
        done.set()

    async with await asyncio.start_server(handler, "127.0.0.1", 0) as server:
        yield server.sockets[0].getsockname()[1]
        await done.wait()


async def echo(connection):
    async for message in connection:
        await connection.send(message)


@pytest.mark.parametrize(
    ("url", "endpoint"),
    [
        ("wss://relay", "wss://relay/v1/sync"),
        ("wss://relay/", "wss://relay/v1/sync"),
        ("wss://relay/memory", "wss://relay/memory/v1/sync"),
        ("wss://relay/v1/sync", "wss://relay/v1/sync"),
    ],
)
def test_the_path_is_added_where_it_is_missing(url, endpoint):
    assert endpoint_of(url) == endpoint


@pytest.mark.parametrize(
    "url",
    ["wss://relay", "ws://localhost:1", "ws://127.0.0.2", "ws://[::1]:80"],
)
def test_a_token_may_be_sent_encrypted_or_within_this_machine(url):
    check_url(url)


@pytest.mark.parametrize("url", ["ws://relay", "ws://192.168.0.1", "ws://localhost.a"])
async def test_a_token_is_not_sent_in_the_clear(url):
    with pytest.raises(InsecureUrlError, match=f"unencrypted to {url}") as refusal:
        await open_connection(url, TOKEN)

    assert refusal.value.exit_status == 2
    check_url(url, allow_insecure=True)


async def test_frames_go_both_ways_and_the_token_goes_in_a_header():
    seen = []

    async def handler(connection):
        seen.append(connection.request)
        await echo(connection)

    async def main():
        async with relay(handler) as url, await open_connection(url, TOKEN) as there:
            await there.send([b"one", b"two"])
            return [await there.receive(), await there.receive()]

    assert await main() == [b"one", b"two"]
    assert seen[0].headers["Authorization"] == f"Bearer {TOKEN}"
    assert "Sec-WebSocket-Extensions" not in seen[0].headers
    assert seen[0].path == "/v1/sync"


async def test_the_end_of_a_connection_is_told_with_its_code():
    async def main():
        async def handler(connection):
            await connection.close(4401, "token-revoked")

        async with relay(handler) as url, await open_connection(url, TOKEN) as there:
            end = await there.receive()
            await there.send([b"nobody hears it"])
            return end, await there.receive()

    assert await main() == ((4401, "token-revoked"),) * 2


async def test_a_connection_that_breaks_ends_with_1006():
    async def main():
        async def handler(connection):
            connection.transport.abort()

        async with relay(handler) as url, await open_connection(url, TOKEN) as there:
            return await there.receive()

    assert await main() == (1006, "")


async def test_this_side_can_close_and_drop_a_connection():
    codes = []

    async def handler(connection):
        await connection.wait_closed()
        codes.append(connection.close_code)

    async def main():
        async with relay(handler) as url:
            async with await open_connection(url, TOKEN) as there:
                await there.close(Close(4400, "protocol-error"))
                assert await there.receive() == (4400, "protocol-error")
            async with await open_connection(url, TOKEN) as there:
                there.abort()
                assert (await there.receive())[0] == 1006

    await main()
    assert codes == [4400, 1006]


async def test_a_text_message_is_the_relays_fault_and_ends_the_connection():
    async def main():
        async def handler(connection):
            await connection.send("text")
            await connection.wait_closed()

        async with relay(handler) as url, await open_connection(url, TOKEN) as there:
            return await there.receive()

    assert await main() == (4400, "protocol-error")


async def test_a_frame_over_the_limit_ends_the_connection():
    async def main():
        async def handler(connection):
            await connection.send(bytes(FRAME_BYTES + 1))
            await connection.wait_closed()

        async with relay(handler) as url, await open_connection(url, TOKEN) as there:
            return await there.receive()

    assert (await main())[0] == 1009


@pytest.mark.parametrize(
    ("status", "cause"),
    [
        (400, "bad-request"),
        (401, "unauthorized"),
        (403, "forbidden"),
        (404, "not-found"),
        (426, "upgrade-required"),
    ],
)
async def test_a_status_that_will_stay_is_a_refusal(status, cause):
    async def main():
        async with relay(echo, process_request=refused_with(status)) as url:
            return url, await fail_to_connect(url)

    url, error = await main()

    assert isinstance(error, RelayRefusedError)
    assert (error.cause, error.details["url"]) == (cause, url)
    assert f"HTTP status {status}" in error.message


@pytest.mark.parametrize(
    ("status", "headers", "retry_s"),
    [
        (503, [], 0.0),
        (429, [("Retry-After", "60")], 60.0),
        (429, [("Retry-After", "9999999")], 3_600.0),
        (503, [("Retry-After", "Fri, 31 Dec 2027 23:59:59 GMT")], 0.0),
        (302, [], 0.0),
    ],
)
async def test_any_other_status_may_pass(status, headers, retry_s):
    async def main():
        async with relay(echo, process_request=refused_with(status, headers)) as url:
            return await fail_to_connect(url)

    error = await main()

    assert isinstance(error, RelayUnreachableError)
    assert (error.cause, error.retry_s) == (f"http-{status}", retry_s)


async def test_a_relay_of_another_version_is_told_apart():
    headers = [("crdtmem-versions", "crdtmem.v9")]

    async def main():
        async with relay(echo, process_request=refused_with(400, headers)) as url:
            first = await fail_to_connect(url)
        async with relay(echo, subprotocols=None) as url:
            second = await fail_to_connect(url)
        return first, second

    first, second = await main()

    assert first.cause == second.cause == "version-unsupported"
    assert "crdtmem.v9" in first.message


async def test_a_relay_that_picks_what_was_not_offered_is_of_another_version():
    async def main():
        def pick(connection, offered):
            return "crdtmem.v2"

        async with relay(echo, select_subprotocol=pick) as url:
            return await fail_to_connect(url)

    error = await main()

    assert (type(error), error.cause) == (RelayRefusedError, "version-unsupported")


async def test_what_listens_and_is_no_web_server_may_be_a_relay_later():
    async def main():
        async with other_server(b"220 mail.example ESMTP\r\n\r\n") as port:
            return await fail_to_connect(f"ws://127.0.0.1:{port}")

    error = await main()

    assert (type(error), error.cause) == (RelayUnreachableError, "handshake")


async def test_a_relay_that_does_not_answer_is_given_up_in_time():
    async def main():
        async with other_server(b"") as port:
            return await fail_to_connect(f"ws://127.0.0.1:{port}", timeout_s=0.05)

    error = await main()

    assert (type(error), error.cause) == (RelayUnreachableError, "timeout")


async def test_where_nothing_listens_something_may_listen_later():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"ws://127.0.0.1:{taken.getsockname()[1]}"
        error = await fail_to_connect(url)

    assert (type(error), error.cause) == (RelayUnreachableError, "connection-refused")


@pytest.fixture
def authority():
    return trustme.CA()


@pytest.fixture
def tls(authority):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("localhost").configure_cert(context)
    return context


async def test_a_trusted_certificate_is_taken(authority, tls, monkeypatch):
    async def main():
        async with (
            relay(echo, tls=tls) as url,
            await open_connection(url, TOKEN) as there,
        ):
            await there.send([b"one"])
            return await there.receive()

    with authority.cert_pem.tempfile() as file:
        monkeypatch.setenv("SSL_CERT_FILE", file)
        assert await main() == b"one"


async def test_an_untrusted_certificate_is_a_refusal(tls):
    async def main():
        async with relay(echo, tls=tls) as url:
            return await fail_to_connect(url)

    error = await main()

    assert (type(error), error.cause) == (RelayRefusedError, "tls-untrusted")


async def test_what_does_not_speak_tls_may_do_so_later():
    async def main():
        async with other_server(b"220 mail.example ESMTP\r\n\r\n") as port:
            return await fail_to_connect(f"wss://127.0.0.1:{port}")

    error = await main()

    assert (type(error), error.cause) == (RelayUnreachableError, "tls")


@pytest.mark.parametrize(
    ("error", "cause"),
    [
        (socket.gaierror(-2, "Name or service not known"), "dns"),
        (OSError(101, "Network is unreachable"), "connection"),
        (OSError(), "connection"),
        (InvalidMessage("did not receive a valid HTTP response"), "handshake"),
    ],
)
def test_whatever_else_fails_may_pass(error, cause):
    found = transport._refusal("wss://relay", error)

    assert (type(found), found.cause) == (RelayUnreachableError, cause)
    assert "wss://relay" in found.message
