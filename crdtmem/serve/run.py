"""Runs the server: the socket, uvicorn, the run file, and the way it ends.

The first signal drains: what is under way is finished, what editors typed is written,
streams are told. The second ends the process where it stands, which loses nothing that
was acknowledged.
"""

import asyncio
import os
import re
import secrets
import socket
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import UTC, datetime
from ipaddress import ip_address, ip_network
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple, cast

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from crdtmem.errors import InsecureBindError, InvalidArgumentError, PortInUseError
from crdtmem.limits import (
    SERVE_BODY_BYTES,
    SERVE_CONNECTIONS_MAX,
    SERVE_DRAIN_S,
    SERVE_HEAD_BYTES,
    SERVE_HEAD_S,
    SERVE_PORT,
    SERVE_PORTS_MAX,
)
from crdtmem.memory import Memory
from crdtmem.serve.answers import HttpError, Site, json_answer
from crdtmem.serve.app import App, Parts
from crdtmem.serve.guard import Rules, security_headers
from crdtmem.serve.handles import Handles
from crdtmem.serve.runfiles import (
    RunFile,
    Running,
    folder_for,
    running_servers,
    sweep_open_files,
)
from crdtmem.serve.session import Sessions
from crdtmem.serve.tokens import Tokens
from crdtmem.serve.turns import Receive, Scope, Send, Turn, send_whole
from crdtmem.sync.board import Board, lanes_in
from crdtmem.sync.thread import SyncThread

__all__ = ["Background", "Options", "Ready", "bound_socket", "serve"]

_ORIGIN = re.compile(
    r"https?://[a-z0-9.-]+(:[0-9]{1,5})?|https?://\[[0-9a-f:]+\](:[0-9]{1,5})?"
)
_FRAME_BYTES = 64 << 10
_SECURITY = "".join(f"{k}: {v}\r\n" for k, v in security_headers()).encode()
_TICKS = 20
"""Of a tenth of a second, from one look at what is seldom to be done to the next."""


class Options(NamedTuple):
    """How to serve; see serve's options.

    Attributes:
        host: Address to listen on.
        port: Port; None: the usual one, or one of the next.
        read_only: Write nothing.
        only_project: The one project that is shown; None: all.
        token_file: Bearer tokens.
        origins: Foreign origins that may use the API.
        public_url: What the server is called from outside.
        tls: Certificate and key.
        behind_proxy: The addresses of a proxy that speaks TLS.
        agentmemory_open: Whether the compatible routes need no token.
        log_json: Whether the lines of requests are JSON.

    """

    host: str = "127.0.0.1"
    port: int | None = None
    read_only: bool = False
    only_project: str | None = None
    token_file: Path | None = None
    origins: tuple[str, ...] = ()
    public_url: str | None = None
    tls: tuple[Path, Path] | None = None
    behind_proxy: str | None = None
    agentmemory_open: bool = False
    log_json: bool = False


class Background(NamedTuple):
    """The memory that is served.

    Attributes:
        store: Its file.
        project: Of the folder in which the server was started.
        user_name: What a person is called who has not said.
        lane: Of the command line.
        version: Of crdtmem.
        open_memory: Opens the memory of a project for a lane.
        relay_token: What the environment holds for links without a token file.
        relay_keyring: Likewise, for encrypted links without a keyring file.

    """

    store: Path
    project: str
    user_name: str
    lane: str
    version: str
    open_memory: Callable[[str, str], Memory]
    relay_token: str | None = None
    relay_keyring: str | None = None


class Ready(NamedTuple):
    """A server that listens."""

    url: str
    running: Running


class _Connection(H11Protocol):
    """A connection bounded in time: in its heads, and in bodies that nobody reads."""

    _timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(cast("asyncio.Transport", transport))
        if len(self.connections) > SERVE_CONNECTIONS_MAX:
            self.app = _turn_away
        self._expect()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        is_head = self.conn.their_state is h11.IDLE
        is_unread = not self._is_owed() and self.conn.their_state is h11.SEND_BODY
        if not (is_head or is_unread):
            self._forget()
        elif self._timer is None and not self.transport.is_closing():
            self._expect()

    def connection_lost(self, exc: Exception | None) -> None:
        self._forget()
        super().connection_lost(exc)

    def send_400_response(self, msg: str) -> None:
        # The only thing that h11 bounds is the head, and it says so nowhere else.
        is_long = len(self.conn.trailing_data[0]) >= SERVE_HEAD_BYTES
        self._send_bare(431 if is_long else 400, msg)

    def _is_owed(self) -> bool:
        """Whether there is a request, or may be one, without an answer."""
        return self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE)

    def _expect(self) -> None:
        self._timer = self.loop.call_later(SERVE_HEAD_S, self._give_up)

    def _forget(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _give_up(self) -> None:
        self._send_bare(408, "The request did not arrive in time.")

    def _send_bare(self, status: int, text: str) -> None:
        if self._is_owed():
            self.transport.write(
                b"HTTP/1.1 %d \r\nContent-Type: text/plain\r\nConnection: close\r\n"
                b"%sContent-Length: %d\r\n\r\n%s"
                % (status, _SECURITY, len(text), text.encode())
            )
        self.transport.close()


async def _turn_away(scope: Scope, _receive: Receive, send: Send) -> None:
    """Answer on a connection that is one too many."""
    message = f"there are {SERVE_CONNECTIONS_MAX} connections already"
    error = HttpError(503, "server-busy", message)
    headers = {"Retry-After": "1", "Connection": "close"}
    await send_whole(Turn(scope), json_answer(error.to_dict(), 503, headers), send)


def _web_socket(**given: Any) -> asyncio.Protocol:
    """Return the protocol of a WebSocket; most who look at pages open none."""
    from uvicorn.protocols.websockets.websockets_sansio_impl import (  # noqa: PLC0415 - see above
        WebSocketsSansIOProtocol,
    )

    return WebSocketsSansIOProtocol(**given)


class _Server(uvicorn.Server):
    """Ends in order: its drain comes before uvicorn's own, which cuts connections."""

    def __init__(
        self,
        config: uvicorn.Config,
        drain: Callable[[], Awaitable[None]],
        now_and_then: Callable[[], None],
    ) -> None:
        super().__init__(config)
        self._drain = drain
        self._now_and_then = now_and_then
        self._is_ending = False

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        # Not recorded: uvicorn would raise it again at the end.
        if self._is_ending:
            os._exit(128 + sig)  # pragma: no cover - nothing is reported any more
        self._is_ending = True

    async def on_tick(self, counter: int) -> bool:
        if self._is_ending:
            for server in self.servers:
                server.close()
            await self._drain()
            return True
        if counter % _TICKS == 0:
            self._now_and_then()
        return await super().on_tick(counter)


def serve(
    options: Options,
    background: Background,
    make_parts: Callable[[Site], tuple[Parts, Callable[[], Awaitable[None]]]],
    tell: Callable[[Ready], None],
) -> None:
    """Serve until told to stop.

    Args:
        options: How.
        background: What.
        make_parts: Makes pages and gateway, and what drains these.
        tell: Called as soon as it listens.

    Raises:
        InsecureBindError: If texts would go over the network in the clear.
        PortInUseError: If it cannot listen.
        ConfigError: If the token file cannot be used.
        InvalidArgumentError: If an option is malformed.

    """
    _check(options)
    control = secrets.token_urlsafe(32)
    tokens = Tokens(options.token_file, control=control, lane=background.lane)
    listener = bound_socket(options.host, options.port)
    try:
        asyncio.run(
            _serve(options, background, make_parts, tell, tokens, control, listener)
        )
    finally:
        listener.close()


async def _serve(
    options: Options,
    background: Background,
    make_parts: Callable[[Site], tuple[Parts, Callable[[], Awaitable[None]]]],
    tell: Callable[[Ready], None],
    tokens: Tokens,
    control: str,
    listener: socket.socket,
) -> None:
    port = listener.getsockname()[1]
    site = _site(options, background, port)
    # An absent store is made now, and one that cannot be used is told of.
    async with site.handles.use(site.start_project, background.lane):
        pass
    parts, drain_parts = make_parts(site)
    app = _app(options, site, tokens, parts)

    async def drain() -> None:
        site.stopping.set()
        app.events.wake()
        with suppress(TimeoutError):
            async with asyncio.timeout(SERVE_DRAIN_S / 2):
                await drain_parts()

    folder = folder_for(background.store)
    board = _board(site)

    def look() -> None:
        sweep_open_files(folder, time.time())
        board.tell(site.at_work)

    server = _Server(_config(options, app), drain, look)
    running_servers(folder)
    running = _running(options, site, control)
    run_file = RunFile(folder, running)
    thread = _sync_thread(options, background, board)
    try:
        token = site.sessions.invite()
        tell(Ready(f"{site.base}/login?t={token}", running))
        # They are loaded while the browser is on its way.
        asyncio.get_running_loop().call_soon(parts.pages)
        await server.serve(sockets=[listener])
    finally:
        run_file.close()
        await site.handles.close()
        if thread is not None:
            await asyncio.to_thread(thread.stop, 2.0)


def bound_socket(host: str, port: int | None) -> socket.socket:
    """Return a socket that is bound to an address.

    Args:
        host: An address, or ``localhost``.
        port: The port; None: the usual one, or one of the next.

    Raises:
        PortInUseError: If it is taken, or all are.

    """
    usual = range(SERVE_PORT, SERVE_PORT + SERVE_PORTS_MAX)
    for number in usual if port is None else (port,):
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        # Only of a socket that says it is TCP does asyncio send small pieces at once.
        listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((_address(host), number))
            # Two that are bound may share a port, two that listen may not.
            listener.listen()
        except OSError:
            listener.close()
            continue
        return listener
    error = PortInUseError(address=f"{host}:{SERVE_PORT if port is None else port}")
    error.hint = "pass another one with --port"
    raise error


def _address(host: str) -> str:
    return "127.0.0.1" if host == "localhost" else host


def _check(options: Options) -> None:
    for name, url in (
        *(("origin", origin) for origin in options.origins),
        *((("public_url", options.public_url),) if options.public_url else ()),
    ):
        if not _ORIGIN.fullmatch(url):
            message = f"{name} must be http(s)://HOST[:PORT], not {url!a:.80}"
            raise InvalidArgumentError(name, message)
    if options.behind_proxy is not None:
        try:
            ip_network(options.behind_proxy)
        except ValueError as exc:
            message = f"behind_proxy must be a CIDR, not {options.behind_proxy!a:.80}"
            raise InvalidArgumentError("behind_proxy", message) from exc
    if _is_loopback(options.host):
        return
    is_encrypted = options.tls is not None or options.behind_proxy is not None
    is_named = (options.public_url or "").startswith("https://")
    if options.agentmemory_open or not (is_encrypted and is_named):
        error = InsecureBindError(address=options.host)
        error.hint = (
            "pass --public-url https://HOST, and --tls-cert with --tls-key or"
            " --behind-proxy; --agentmemory-open is for this machine only"
        )
        raise error


def _is_loopback(host: str) -> bool:
    with suppress(ValueError):
        return ip_address(_address(host)).is_loopback
    return False


def _is_secure(options: Options) -> bool:
    return options.tls is not None or (options.public_url or "").startswith("https:")


def _site(options: Options, background: Background, port: int) -> Site:
    scheme = "http" if options.tls is None else "https"
    local = "[::1]" if options.host == "::1" else "127.0.0.1"
    return Site(
        version=background.version,
        port=port,
        base=options.public_url or f"{scheme}://{local}:{port}",
        store_path=background.store,
        handles=Handles(background.open_memory),
        sessions=Sessions(
            user_name=background.user_name,
            now=time.monotonic,
            random_bytes=secrets.token_bytes,
        ),
        read_only=options.read_only,
        only_project=options.only_project,
        start_project=background.project,
    )


def _rules(options: Options, port: int) -> Rules:
    hosts = {f"127.0.0.1:{port}", f"localhost:{port}", f"[::1]:{port}"}
    if options.public_url is not None:
        hosts.add(options.public_url.partition("://")[2])
    return Rules(
        hosts=frozenset(hosts),
        scheme="http" if options.tls is None else "https",
        public_origin=options.public_url,
        origins=frozenset(options.origins),
    )


def _app(options: Options, site: Site, tokens: Tokens, parts: Parts) -> App:
    return App(
        site,
        _rules(options, site.port),
        tokens,
        parts,
        is_secure=_is_secure(options),
        is_agentmemory_open=options.agentmemory_open,
        log_json=options.log_json,
    )


def _board(site: Site) -> Board:
    board = Board()
    site.presence_in = lambda namespace: lanes_in(board.others.get(namespace, {}))
    return board


def _running(options: Options, site: Site, control: str) -> Running:
    address = _address(options.host)
    return Running(
        pid=os.getpid(),
        port=site.port,
        address={"0.0.0.0": "127.0.0.1", "::": "::1"}.get(address, address),
        base=site.base,
        control=control,
        started_at=datetime.now(UTC).isoformat(timespec="milliseconds"),
        read_only=options.read_only,
        is_tls=options.tls is not None,
        store=str(site.store_path.resolve()),
    )


def _config(options: Options, app: App) -> uvicorn.Config:
    certificate, key = options.tls or (None, None)
    config = uvicorn.Config(
        app,
        http=_Connection,
        ws=cast("type[asyncio.Protocol]", _web_socket),
        ws_max_size=SERVE_BODY_BYTES + _FRAME_BYTES,
        ws_per_message_deflate=False,
        loop="asyncio",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=options.behind_proxy is not None,
        forwarded_allow_ips=options.behind_proxy,
        h11_max_incomplete_event_size=SERVE_HEAD_BYTES,
        timeout_graceful_shutdown=int(SERVE_DRAIN_S),
        ssl_certfile=certificate,
        ssl_keyfile=key,
    )
    try:
        # What cannot be used is told of before the address is.
        config.load()
    except OSError as exc:
        why = f"{str(certificate)!a:.120} with {str(key)!a:.120}: {exc.strerror or exc}"
        message = f"the certificate and its key cannot be used: {why}"
        raise InvalidArgumentError("tls_cert", message) from exc
    return config


def _sync_thread(
    options: Options, background: Background, board: Board
) -> SyncThread | None:
    if options.read_only:
        return None
    thread = SyncThread(
        background.store,
        token=background.relay_token,
        keyring_text=background.relay_keyring,
        board=board,
    )
    thread.start()
    return thread
