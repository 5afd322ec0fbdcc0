r"""The server over stdin and stdout: lines as they come, until there are no more.

The SDK drops a line that its parser does not take, and the client waits for its
time-out. So each line is made readable first: bytes that are no UTF-8 and halves of
surrogate pairs become U+FFFD. A call whose text was altered so is answered with an
error, so that nothing is stored altered.
"""

import asyncio
import json
import os
import re
import signal
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import suppress
from typing import Any, cast

from mcp.server.stdio import stdio_server

from crdtmem.limits import MCP_LINE_BYTES, MCP_LINE_SHOWN_BYTES, MCP_QUEUE_MAX
from crdtmem.mcp.server import Altered, build_server
from crdtmem.mcp.session import AgentSession, Opened

__all__ = ["SanitisedLines", "run", "sanitised", "serve"]

_CHUNK_BYTES = 1 << 16
_REPLACEMENT = "\\ufffd"
# A pair; half of one; any other escape, so that the "u" behind "\\" begins none.
_ESCAPE = re.compile(
    r"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"
    r"|(\\u[dD][89a-fA-F][0-9a-fA-F]{2})"
    r"|\\.",
    re.DOTALL,
)


def run(open_memory: Callable[[str], Opened]) -> None:
    """Serve one client over this process's stdin and stdout, to the end of stdin.

    SIGTERM and SIGINT end it as well: a running call is done, waiting ones are dropped.

    Args:
        open_memory: Opens the memory for a lane.

    """
    asyncio.run(serve(AgentSession(open_memory), sys.stdin.fileno()))


async def serve(session: AgentSession, file: int) -> None:
    """Serve a session's client; see run.

    Args:
        session: The session; it is closed at the end.
        file: Where the client's lines come from.

    """
    altered: Altered = set()
    lines = SanitisedLines(file, altered, tell=_tell)
    server = build_server(session, altered)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        # Not on Windows: there the process just ends, and its writes are whole.
        with suppress(NotImplementedError):
            loop.add_signal_handler(number, lines.end)
    options = server.create_initialization_options()
    try:
        # It is iterated and nothing else, so it need not be all of a file.
        async with stdio_server(stdin=cast("Any", lines)) as (reading, writing):
            await server.run(reading, writing, options)
    except* (BrokenPipeError, ConnectionResetError):
        # The client has gone without a word: nobody is left to be told.
        _tell("the client no longer reads; ended")


def _tell(message: str) -> None:
    sys.stderr.write(f"crdtmem mcp: {message}\n")
    sys.stderr.flush()


class SanitisedLines:
    """The lines of a file descriptor, made readable; ends at its end, or when told.

    A thread reads, a few lines ahead. It is a daemon and takes no lock of Python's own
    streams, so a process can end while it waits for the client.

    Args:
        file: The descriptor.
        altered: Gets the ids of requests that had to be altered.
        tell: Is told of lines that are no messages.

    """

    def __init__(
        self, file: int, altered: Altered, *, tell: Callable[[str], None]
    ) -> None:
        self._file = file
        self._altered = altered
        self._tell = tell
        self._lines: asyncio.Queue[str | None] = asyncio.Queue()
        self._room = threading.Semaphore(MCP_QUEUE_MAX)
        self._is_ended = False

    def end(self) -> None:
        """Let no further line through; called on the loop."""
        self._is_ended = True
        self._lines.put_nowait(None)

    async def __aiter__(self) -> AsyncIterator[str]:
        """Yield lines; once."""
        loop = asyncio.get_running_loop()
        threading.Thread(
            target=self._read, args=(loop,), name="crdtmem-stdin", daemon=True
        ).start()
        while True:
            line = await self._lines.get()
            if line is None or self._is_ended:
                return
            self._room.release()
            yield line

    def _read(self, loop: asyncio.AbstractEventLoop) -> None:
        # The loop is closed when the server has ended first: then nobody listens.
        with suppress(RuntimeError):
            for line in _split(self._file, self._tell):
                text = self._readable(line)
                if text is not None:
                    self._room.acquire()
                    loop.call_soon_threadsafe(self._lines.put_nowait, text)
            loop.call_soon_threadsafe(self._lines.put_nowait, None)

    def _readable(self, line: bytes) -> str | None:
        """Return a line as JSON that can be read; None if it is none."""
        text, is_altered = sanitised(line)
        if not text:
            return None
        try:
            message = json.loads(text)
        except (ValueError, RecursionError):
            self._tell(f"ignored what is no JSON: {line[:MCP_LINE_SHOWN_BYTES]!r}")
            return None
        request_id = message.get("id") if isinstance(message, dict) else None
        if is_altered and isinstance(request_id, (int, str)):
            self._altered.add(request_id)
        return text


def sanitised(line: bytes) -> tuple[str, bool]:
    """Return a line as text without what no parser takes, and whether it had any."""
    try:
        text = line.decode()
        is_bad = False
    except UnicodeDecodeError:
        text, is_bad = line.decode(errors="replace"), True
    text = text.strip("\ufeff \t\r\n")
    mended = _ESCAPE.sub(lambda m: _REPLACEMENT if m[1] else m[0], text)
    return mended, is_bad or mended != text


def _split(file: int, tell: Callable[[str], None]) -> Iterator[bytes]:
    """Yield lines; of one that is too long nothing is kept."""
    held: list[bytes] = []
    size = 0
    while True:
        try:
            chunk = os.read(file, _CHUNK_BYTES)
        except OSError:
            chunk = b""
        *ends, rest = chunk.split(b"\n")
        for end in ends:
            size += len(end)
            if size > MCP_LINE_BYTES:
                tell(f"refused a line of {size} bytes; {MCP_LINE_BYTES} are let in")
            else:
                yield b"".join([*held, end])
            held, size = [], 0
        size += len(rest)
        held = [*held, rest] if size <= MCP_LINE_BYTES else []
        if not chunk:
            return
