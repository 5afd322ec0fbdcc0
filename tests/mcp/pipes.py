"""The wire by hand: JSON-RPC lines over a pair of pipes, to a server at the other end.

A `Forge` makes servers in processes of their own. It is one process that loads the SDK
once and forks, because loading it takes far longer than a test does.
"""

import gc
import importlib
import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.child import ROOT

__all__ = ["HANDSHAKE", "Forge", "Wire", "append_call"]

HANDSHAKE = (
    json.dumps(
        {
            "jsonrpc": "2.0",
            "id": "hello",
            "method": "initialize",
            "params": {
                "protocolVersion": "2025-06-18",
                "capabilities": {},
                "clientInfo": {"name": "hand", "version": "1"},
            },
        }
    ),
    '{"jsonrpc":"2.0","method":"notifications/initialized"}',
)


def append_call(number: int, text: str, **more: Any) -> str:
    """Return the line of a call that appends to pending_items."""
    arguments = {"label": "pending_items", "text": text, **more}
    params = {"name": "memory_slot_append", "arguments": arguments}
    call = {"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params}
    return json.dumps(call)


class Wire:
    """The client's ends of two pipes.

    Attributes:
        theirs: The server's ends, for stdin and stdout.
        pid: The server's process, where it has one.

    """

    def __init__(self) -> None:
        stdin, self._sending = os.pipe()
        self._receiving, stdout = os.pipe()
        self.theirs = stdin, stdout
        self.pid = 0
        self._rest = b""

    def send(self, *lines: str | bytes) -> None:
        """Send lines."""
        for line in lines:
            raw = line.encode() if isinstance(line, str) else line
            view = memoryview(raw + b"\n")
            while view:
                view = view[os.write(self._sending, view) :]

    def greet(self) -> None:
        """Shake hands."""
        self.send(*HANDSHAKE)
        self.receive("hello")

    def receive(self, request_id: int | str) -> dict[str, Any]:
        """Return the answer to a request; other answers are dropped."""
        while True:
            line, found, rest = self._rest.partition(b"\n")
            if found:
                self._rest = rest
                message: dict[str, Any] = json.loads(line)
                if message.get("id") == request_id:
                    return message
                continue
            chunk = os.read(self._receiving, 1 << 16)
            assert chunk, "the server has ended"
            self._rest += chunk

    def finish(self) -> None:
        """Send nothing more."""
        if self._sending >= 0:
            os.close(self._sending)
            self._sending = -1

    def close(self) -> None:
        """Close this side."""
        self.finish()
        if self._receiving >= 0:
            os.close(self._receiving)
            self._receiving = -1

    def let_go(self) -> None:
        """Close the server's ends here; the server has its own."""
        for file in self.theirs:
            os.close(file)


class Forge:
    """Makes servers, each a process of its own; `python -m tests.mcp.pipes FD`."""

    def __init__(self) -> None:
        self._socket, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.mcp.pipes", str(theirs.fileno())],
                cwd=ROOT,
                pass_fds=[theirs.fileno()],
            )

    def close(self) -> None:
        """End it, after all of its servers have ended."""
        self._socket.close()
        assert self._process.wait() == 0

    @contextmanager
    def servers(self, store: Path, count: int) -> Iterator[list[Wire]]:
        """Give servers on a store, greeted; the block's end ends them."""
        wires = [Wire() for _ in range(count)]
        try:
            for wire in wires:
                socket.send_fds(self._socket, [str(store).encode()], wire.theirs)
                wire.let_go()
                wire.pid = json.loads(self._socket.recv(99))
            for wire in wires:
                wire.greet()
            yield wires
        finally:
            for wire in wires:
                wire.close()

    def ends_of(self, wires: Sequence[Wire]) -> list[int]:
        """Wait until servers have ended; return their exit statuses."""
        return [self._end_of(wire.pid) for wire in wires]

    def _end_of(self, pid: int) -> int:
        self._socket.send(str(pid).encode())
        status: int = json.loads(self._socket.recv(99))
        return status


def main(number: int) -> None:  # pragma: no cover - runs in another process
    """Fork a server for each pair of descriptors; wait for those that are named."""
    from crdtmem import opening  # noqa: PLC0415 - not in the tests' process
    from crdtmem.mcp.session import Opened  # noqa: PLC0415 - as above
    from crdtmem.mcp.stdio import run  # noqa: PLC0415 - as above
    from crdtmem.mcp.tools import listed  # noqa: PLC0415 - as above

    def opener(store: str) -> Callable[[str], Opened]:
        return lambda lane: Opened(opening.open(store, lane=lane, project="p"))

    listed()
    importlib.import_module("crdtmem.editing")
    # What is there already is not looked at again by each of the forks.
    gc.freeze()
    with socket.socket(fileno=number) as parent:
        while True:
            message, files, _, _ = socket.recv_fds(parent, 4_096, 2)
            if not message:
                return
            if not files:
                _, status = os.waitpid(int(message), 0)
                parent.send(json.dumps(os.waitstatus_to_exitcode(status)).encode())
                continue
            pid = os.fork()
            if not pid:
                parent.close()
                for file, target in zip(files, (0, 1), strict=True):
                    os.dup2(file, target)
                    os.close(file)
                run(opener(message.decode()))
                sys.exit()
            for file in files:
                os.close(file)
            parent.send(json.dumps(pid).encode())


if __name__ == "__main__":  # pragma: no cover - as above
    main(int(sys.argv[1]))
