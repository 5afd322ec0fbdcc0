"""Servers to be compared, each a process of its own, and the clients that use them.

Ours runs as its command starts it, with its log on the disk of this checkout. The
peers run as their documentation starts them, without persistence. The clients of all
three are one Node.js program, ``sockets.mjs``, in another process.
"""

import contextlib
import json
import os
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.peers import HOCUSPOCUS, WS, Y_WEBSOCKET, PeerMissingError, install
from bench.workload import folder
from crdtmem.protocol.tokens import format_token
from relay.auth import digest_of, draw_token
from relay.storage import TokenRow
from relay.storage.sqlite.folder import init_folder
from relay.storage.sqlite.maintenance import add_token

__all__ = [
    "OURS",
    "PEERS",
    "Server",
    "ask",
    "clients",
    "memory_bytes",
    "processor_s",
    "server",
    "tell",
]

OURS = "crdtmem"
PEERS = {"hocuspocus": HOCUSPOCUS, "y-websocket": Y_WEBSOCKET}

READERS_TOKENS = 8
WRITERS_TOKENS = 64
START_S = 30.0

Task = Mapping[str, object]


@dataclass(slots=True)
class Server:
    """A server that runs.

    Attributes:
        side: ``crdtmem``, ``hocuspocus`` or ``y-websocket``.
        port: Where it listens.
        pid: Its process.
        writers: Tokens for one writer each: ours reads one of them more slowly after
            10,000 records.
        readers: Tokens for all others.
        runs: How many tasks it has served.

    """

    side: str
    port: int
    pid: int
    writers: Sequence[str] = ()
    readers: Sequence[str] = ()
    runs: int = 0


@contextlib.contextmanager
def server(side: str) -> Iterator[Server]:
    """Start a server, and end it at the end.

    Raises:
        PeerMissingError: If it cannot be installed or does not start.

    """
    with folder() as place, contextlib.ExitStack() as stack:
        if side == OURS:
            writers, readers = _prepare(place / "relay")
            command = [
                sys.executable,
                "-c",
                "from relay.cli import main; main()",
                *("serve", str(place / "relay")),
                *("--listen", "127.0.0.1:0", "--json"),
            ]
        else:
            writers, readers = [], []
            command = _peer_command(side)
        log = stack.enter_context((place / "stderr").open("w", encoding="utf-8"))
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=log, text=True, encoding="utf-8"
        )
        stack.callback(_end, process)
        port = _port_of(process)
        yield Server(side, port, process.pid, writers, readers)


def ask(server: Server, task: Task) -> dict[str, Any]:
    """Have clients do a task in a room of their own, and return what they report.

    With ``processor_s``, the time that the server's processor had for it, or None.

    Raises:
        PeerMissingError: If the clients end early.

    """
    with clients(server, task) as process:
        before_s = processor_s(server.pid)
        found = tell(process)
        after_s = processor_s(server.pid)
    if before_s is None or after_s is None:
        return found | {"processor_s": None}
    return found | {"processor_s": after_s - before_s}


def tell(process: "subprocess.Popen[str]") -> dict[str, Any]:
    """Let clients that are ready begin, and return what they report."""
    if process.stdin is None:
        raise PeerMissingError("the clients cannot be told to begin")
    process.stdin.write("go\n")
    process.stdin.flush()
    return _line_of(process)


@contextlib.contextmanager
def clients(server: Server, task: Task) -> Iterator["subprocess.Popen[str]"]:
    """Start the clients of a task, up to where they are ready; ended at the end.

    Raises:
        PeerMissingError: If they end early.

    """
    server.runs += 1
    tokens = [*server.writers[server.runs : server.runs + 1], *server.readers]
    options = {
        "side": server.side,
        "port": server.port,
        "room": f"room-{server.runs}",
        "seed": server.runs,
        "tokens": tokens,
        "yjs": str(install(Y_WEBSOCKET)),
        "ws": str(install(WS)),
        **task,
    }
    script = Path(__file__).with_name("sockets.mjs")
    process = subprocess.Popen(
        [_node(), str(script), json.dumps(options)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        encoding="utf-8",
    )
    try:
        _line_of(process)
        yield process
    finally:
        _end(process)


def processor_s(pid: int) -> float | None:
    """Return the processor time of a process, or None where nobody tells."""
    status = Path(f"/proc/{pid}/stat")
    if not status.exists():
        return None
    # Behind the name, which stands in brackets; then the 12th and 13th.
    fields = status.read_text("utf-8").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def memory_bytes(pid: int, what: str) -> int | None:
    """Return ``VmRSS`` or ``VmHWM`` of a process, or None where nobody tells."""
    status = Path(f"/proc/{pid}/status")
    if not status.exists():
        return None
    found = re.search(rf"^{what}:\s+(\d+) kB", status.read_text("utf-8"), re.MULTILINE)
    return int(found[1]) * 1024 if found else None


def _prepare(place: Path) -> tuple[list[str], list[str]]:
    init_folder(place, now_ms=1)
    tokens = []
    for _ in range(WRITERS_TOKENS + READERS_TOKENS):
        token = draw_token()
        row = TokenRow(token.token_id, "*", ("write",), "", None, None, 1, None)
        add_token(place, row, digest_of(token.secret))
        tokens.append(format_token(*token))
    return tokens[:WRITERS_TOKENS], tokens[WRITERS_TOKENS:]


def _peer_command(side: str) -> list[str]:
    place = install(PEERS[side])
    if side == "hocuspocus":
        script = Path(__file__).with_name("hocuspocus.mjs")
        return [_node(), str(script), str(place)]
    main = place / "node_modules" / "y-websocket" / "bin" / "server.cjs"
    # It takes its port from the environment, and no 0 for a free one.
    environment = ["HOST=127.0.0.1", f"PORT={_free_port()}"]
    return ["/usr/bin/env", *environment, _node(), str(main)]


def _node() -> str:
    found = shutil.which("node")
    if found is None:
        raise PeerMissingError("node is not installed")
    return found


def _free_port() -> int:
    with socket.socket() as plug:
        plug.bind(("127.0.0.1", 0))
        return int(plug.getsockname()[1])


def _port_of(process: "subprocess.Popen[str]") -> int:
    """Wait for the line with the port: JSON of ours, words of y-websocket."""
    line = process.stdout.readline() if process.stdout else ""
    found = re.search(r'"port": ?(\d+)|on port (\d+)', line)
    if found is None:
        raise PeerMissingError(f"the server did not start: {line.strip()!r}")
    return int(found[1] or found[2])


def _line_of(process: "subprocess.Popen[str]") -> dict[str, Any]:
    line = process.stdout.readline() if process.stdout else ""
    if not line:
        raise PeerMissingError("the clients ended early")
    found: dict[str, Any] = json.loads(line)
    return found


def _end(process: "subprocess.Popen[str]") -> None:
    if process.poll() is None:
        process.terminate()
    try:
        process.wait(START_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    for stream in (process.stdin, process.stdout):
        if stream is not None:
            stream.close()
