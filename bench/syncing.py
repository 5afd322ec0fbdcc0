"""A relay and stores that sync with it, each a process of its own, and what they move.

The relay serves a folder on the disk of this checkout, as its command does. Stores
reach it through a proxy that counts bytes; it knows how many rows each side has read or
written, because SQLite says so.
"""

import contextlib
import hashlib
import logging
import multiprocessing
import os
import socket
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, NamedTuple, Self

import apsw

from bench.servers import memory_bytes
from bench.workload import lines, open_store
from crdtmem.memory import Memory
from crdtmem.protocol.tokens import format_token
from crdtmem.sync.linking import LinkRequest, link_namespace
from crdtmem.sync.once import sync_once
from relay.auth import digest_of, draw_token
from relay.cli.places import Place
from relay.cli.serving import serve_place
from relay.config import read_config
from relay.storage import TokenRow
from relay.storage.sqlite.folder import init_folder
from relay.storage.sqlite.maintenance import add_token

__all__ = ["LINES", "Client", "Relay", "Synced", "Traffic", "text_of"]

LINES = 3
"""Lines of a slot, of 57 characters each."""

SYNC_S = 600.0
END_S = 30.0
PIECE_BYTES = 65_536
WAYS = ("up", "down")

_SPAWN = multiprocessing.get_context("spawn")


class Traffic(NamedTuple):
    """Bytes on a socket: from the client, and to it."""

    up: int
    down: int


class Synced(NamedTuple):
    """What a sync of a store took.

    Attributes:
        seconds: How long.
        rows: How many rows of the store it wrote.
        peak_bytes: The most memory that the process ever had, or None.

    """

    seconds: float
    rows: int
    peak_bytes: int | None


class Relay:
    """A relay behind a proxy; the address stays when it is started anew.

    Args:
        place: A folder for it, not there yet.

    Attributes:
        token: One that may do everything but compact: no snapshot gets between.

    """

    def __init__(self, place: Path) -> None:
        init_folder(place, now_ms=1)
        drawn = draw_token()
        row = TokenRow(drawn.token_id, "*", ("write",), "", None, None, 1, None)
        add_token(place, row, digest_of(drawn.secret))
        self.token = format_token(*drawn)
        self._place = place
        self._proxy = _Proxy()
        self._child: _Child | None = None

    def __enter__(self) -> Self:
        self.restart()
        return self

    def __exit__(self, *_: object) -> None:
        self._proxy.close()
        if self._child is not None:
            self._child.end()

    @property
    def url(self) -> str:
        """Where stores reach it."""
        return f"ws://127.0.0.1:{self._proxy.port}"

    def restart(self) -> None:
        """Start it anew, so that it has never needed much memory."""
        if self._child is not None:
            self._child.end()
        self._child = _Child(_serve, self._place)
        self._proxy.target_port = self._child.receive()

    def rows(self) -> int:
        """Return how many rows its statements have given since it was started."""
        return int(self._ask()[0])

    def peak_bytes(self) -> int | None:
        """Return the most memory that its process has had since it was started."""
        peak: int | None = self._ask()[1]
        return peak

    def take_traffic(self) -> Traffic:
        """Return what the connections have moved that were made since the last call."""
        return self._proxy.take()

    def _ask(self) -> Any:
        if self._child is None:
            raise RuntimeError("the relay was not started")
        return self._child.ask("counts")


class Client:
    """A store in a process of its own, linked to a relay.

    Args:
        path: Of the store.
        relay: The relay.
        namespace: What the relay calls what is synced.
        slots: How many slots it has before it is linked.

    """

    def __init__(
        self, path: Path, relay: Relay, namespace: str, *, slots: int = 0
    ) -> None:
        request = LinkRequest("bench", namespace, relay.url, None, relay.token)
        self._child = _Child(_keep, path, request, slots)
        self._child.receive()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._child.end()

    def sync(self) -> Synced:
        """Sync it until nothing is missing on either side."""
        found: Synced = self._child.ask("sync")
        return found

    def change(self, slots: Sequence[int], line: str) -> None:
        """Add a line to some of its slots; it is not synced."""
        self._child.ask("change", slots, line)

    def digest(self) -> bytes:
        """Return a digest of all slots and their texts."""
        found: bytes = self._child.ask("digest")
        return found


def text_of(slot: int) -> str:
    """Return the text of a slot before anybody changes it."""
    words = lines(slot)
    return "\n".join(next(words) for _ in range(LINES))


class _Child:
    """A process that says when it is ready, and answers over a pipe."""

    def __init__(self, work: Any, *arguments: object) -> None:
        self._pipe, theirs = _SPAWN.Pipe()
        self._process: BaseProcess = _SPAWN.Process(
            target=work, args=(*arguments, theirs), daemon=True
        )
        self._process.start()
        # Or one that ends early would be waited for without end.
        theirs.close()

    def ask(self, *words: object) -> Any:
        self._pipe.send(words)
        return self.receive()

    def receive(self) -> Any:
        return self._pipe.recv()

    def end(self) -> None:
        self._process.terminate()
        self._process.join(END_S)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()
        self._pipe.close()


def _serve(place: Path, pipe: Connection) -> None:
    """Serve a folder; tell the port, then rows and memory whenever asked."""
    rows = 0

    def count(_event: object) -> None:
        nonlocal rows
        rows += 1

    def answer() -> None:
        with contextlib.suppress(EOFError):
            while pipe.recv():
                pipe.send((rows, memory_bytes(os.getpid(), "VmHWM")))

    apsw.connection_hooks.append(
        lambda connection: connection.trace_v2(apsw.SQLITE_TRACE_ROW, count)
    )
    # Its own log would be on our stderr.
    logging.basicConfig(level=logging.WARNING)
    threading.Thread(target=answer, daemon=True).start()
    config = replace(read_config(place), host="127.0.0.1", port=0)
    sys.exit(serve_place(Place(place, config), is_restored=False, on_ready=pipe.send))


def _keep(path: Path, request: LinkRequest, slots: int, pipe: Connection) -> None:
    """Fill a store, link it and do what the pipe says."""
    _fill(path, slots)
    connections: list[apsw.Connection] = []
    apsw.connection_hooks.append(connections.append)
    with open_store(path) as memory:
        link_namespace(
            memory.store, request, lane="bench", on_overlap="merge", timeout_s=SYNC_S
        )
        pipe.send(None)
        with contextlib.suppress(EOFError):
            while True:
                match pipe.recv():
                    case ("sync",):
                        pipe.send(_sync(memory, request.token, connections))
                    case ("change", some, line):
                        for slot in some:
                            memory.slot(_label_of(slot)).append(line)
                        pipe.send(None)
                    case _:
                        pipe.send(_digest(memory))


def _fill(path: Path, slots: int) -> None:
    with open_store(path, durability="normal") as memory:
        for slot in range(slots):
            memory.create(_label_of(slot), text_of(slot))


def _sync(
    memory: Memory, token: str | None, connections: Sequence[apsw.Connection]
) -> Synced:
    before = sum(connection.total_changes() for connection in connections)
    start = time.perf_counter()
    sync_once(memory.store, token=token, timeout_s=SYNC_S)
    seconds = time.perf_counter() - start
    rows = sum(connection.total_changes() for connection in connections) - before
    return Synced(seconds, rows, memory_bytes(os.getpid(), "VmHWM"))


def _digest(memory: Memory) -> bytes:
    found = hashlib.sha256()
    for info in memory.slots():
        found.update(
            f"{info.label}\0{memory.slot(info.label).read().content}\0".encode()
        )
    return found.digest()


def _label_of(slot: int) -> str:
    return f"slot_{slot:05d}"


class _Proxy:
    """Passes bytes on between clients and a port of this machine, and counts them."""

    def __init__(self) -> None:
        self.target_port = 0
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._server.getsockname()[1])
        self._moved = dict.fromkeys(WAYS, 0)
        self._threads: list[threading.Thread] = []
        self._start(self._accept)

    def take(self) -> Traffic:
        """Return what was moved since the last call, once all connections are over."""
        threads, self._threads[1:] = self._threads[1:], []
        for thread in threads:
            thread.join(END_S)
        moved, self._moved = self._moved, dict.fromkeys(WAYS, 0)
        return Traffic(**moved)

    def close(self) -> None:
        """Take no more connections."""
        # Wakes the thread that waits for one, which a close does not.
        self._server.shutdown(socket.SHUT_RDWR)
        self._threads[0].join(END_S)
        self._server.close()

    def _start(self, work: Any, *arguments: object) -> None:
        thread = threading.Thread(target=work, args=arguments, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                self._start(self._serve, self._server.accept()[0])

    def _serve(self, client: socket.socket) -> None:
        target = socket.create_connection(("127.0.0.1", self.target_port))
        with client, target:
            for plug in (client, target):
                plug.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            back = threading.Thread(target=self._pass, args=("down", target, client))
            back.start()
            self._pass("up", client, target)
            back.join()

    def _pass(self, way: str, source: socket.socket, sink: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(PIECE_BYTES):
                self._moved[way] += len(data)
                sink.sendall(data)
            sink.shutdown(socket.SHUT_WR)
