"""The peer of the sync client: y-websocket with one room for each of many documents.

Its server runs as its documentation starts it, without persistence: a join finds all
documents in memory. The client is ``rejoin.mjs``: it applies what it gets with Yjs,
and keeps nothing on disk.
"""

import json
import shutil
import subprocess
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple, Self

from bench.peers import WS, Y_WEBSOCKET, PeerMissingError, install
from bench.servers import server
from bench.syncing import Traffic, text_of
from bench.workload import folder

__all__ = ["PEER", "Joined", "Rooms"]

PEER = f"{Y_WEBSOCKET.name} {Y_WEBSOCKET.version}"
END_S = 30.0


class Joined(NamedTuple):
    """What it took to join all rooms."""

    seconds: float
    traffic: Traffic


class Rooms:
    """A server with a room for each document, and a client that joins them all.

    Args:
        docs: How many documents.

    Raises:
        PeerMissingError: On entry, if the server or the client cannot be started; of
            ``download``, ``change`` and ``rejoin``, if the client ended early.

    """

    def __init__(self, docs: int) -> None:
        self._docs = docs
        self._process: subprocess.Popen[str] | None = None
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        try:
            self._start()
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def download(self) -> Joined:
        """Join all rooms with empty documents."""
        return self._ask("download")

    def change(self, docs: Sequence[int], line: str) -> None:
        """Have another client add a line to some documents."""
        self._ask(f"change {','.join(map(str, docs))} {line}")

    def rejoin(self) -> Joined:
        """Join all rooms with the documents as they were when they were left."""
        return self._ask("rejoin")

    def _start(self) -> None:
        node = shutil.which("node")
        if node is None:
            raise PeerMissingError("node is not installed")
        place = self._stack.enter_context(folder()) / "texts.json"
        texts = [text_of(number) for number in range(self._docs)]
        place.write_text(json.dumps(texts), encoding="utf-8")
        at = self._stack.enter_context(server(Y_WEBSOCKET.name))
        options = {
            "port": at.port,
            "texts": str(place),
            "yjs": str(install(Y_WEBSOCKET)),
            "ws": str(install(WS)),
        }
        self._process = subprocess.Popen(
            [node, str(Path(__file__).with_name("rejoin.mjs")), json.dumps(options)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            encoding="utf-8",
        )
        self._stack.callback(_end, self._process)
        self._answer()

    def _ask(self, line: str) -> Joined:
        process = self._process
        if process is None or process.stdin is None:
            raise RuntimeError("the client was not started")
        process.stdin.write(f"{line}\n")
        process.stdin.flush()
        found = self._answer()
        if found.get("differing"):
            raise PeerMissingError(f"{found['differing']} documents differ")
        return Joined(found["seconds"], Traffic(found["up"], found["down"]))

    def _answer(self) -> dict[str, Any]:
        process = self._process
        line = process.stdout.readline() if process and process.stdout else ""
        if not line:
            raise PeerMissingError("its client ended early")
        found: dict[str, Any] = json.loads(line)
        return found


def _end(process: "subprocess.Popen[str]") -> None:
    for stream in (process.stdin, process.stdout):
        if stream is not None:
            stream.close()
    try:
        process.wait(END_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
