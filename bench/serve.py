"""The web server: how long a page takes, how soon it hears of a write, what it costs.

A page is compared with a bare Starlette application that sends as many bytes, on the
same uvicorn, in a process of its own. The write is another process's, and the stream is
that of an open page. Editors are Yjs documents at WebSockets in this process, so what
they wait for includes the time that they take themselves.
"""

import asyncio
import http.client
import json
import os
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from functools import partial
from pathlib import Path
from random import Random
from typing import Any
from urllib.parse import urlsplit

import apsw
from pycrdt import (
    Doc,
    Text,
    create_sync_message,
    create_update_message,
    handle_sync_message,
)
from websockets.asyncio.client import ClientConnection, connect

from bench.running import Effort, Findings, run
from bench.startup import clean_environment
from bench.timing import Comparison, Count, compare, comparison
from bench.workload import folder, lines, open_store

__all__ = ["measure"]

PROJECT = "bench"
SLOTS, UNITS = 200, 2_000
PAGES, IDLE_EDITORS, EDITORS = 100, 50, 32
CLOCK_TICKS_S = 100
LATENCY_S, IDLE_PCT, IDLE_MIB = 0.25, 2.0, 40.0
START_TARGET = 12.0
NEAR_S, FAR_S, ECHO_S = 0.02, 0.06, 1.0
UPDATES_A_S, COMMITS_A_UPDATE = 5, 0.25
PATIENCE_S = 120

BARE = """
import sys
import uvicorn
from starlette.applications import Starlette
from starlette.responses import HTMLResponse
from starlette.routing import Route

async def page(request):
    return HTMLResponse("x" * int(request.path_params["size"]))

app = Starlette(routes=[Route("/{size}", page)])
print("http://127.0.0.1:" + sys.argv[1], flush=True)
uvicorn.run(app, port=int(sys.argv[1]), log_level="error", http="h11")
"""


class _Client:
    """A connection that is kept, as a browser keeps it."""

    def __init__(self, base: str, headers: Mapping[str, str]) -> None:
        parts = urlsplit(base)
        self._connection = http.client.HTTPConnection(
            parts.hostname or "", parts.port, timeout=60
        )
        self._headers = dict(headers)

    def get(self, path: str) -> bytes:
        """Return the body of a page."""
        self._connection.request("GET", path, headers=self._headers)
        answer = self._connection.getresponse()
        body = answer.read()
        if answer.status != 200:
            raise RuntimeError(f"GET answered {answer.status}")
        return body

    def lines(self, path: str) -> Iterator[str]:
        """Yield the lines of a stream, each as it comes."""
        self._connection.request("GET", path, headers=self._headers)
        answer = self._connection.getresponse()
        while line := answer.readline():
            yield line.decode()


class _Served:
    """Our server, with the token of its run file."""

    def __init__(self, place: Path, base: str, pid: int) -> None:
        file = place / "serve" / f"{pid}.json"
        self.pid = pid
        self.base = base
        control = json.loads(file.read_text(encoding="utf-8"))["control"]
        self.headers = {"Authorization": f"Bearer {control}"}

    def client(self) -> _Client:
        """Return a new connection."""
        return _Client(self.base, self.headers)


class _Editor:
    """A Yjs document that types at its own end, and looks for words in what comes."""

    def __init__(self, socket: ClientConnection, client: int) -> None:
        self.waits_s: list[float] = []
        self._socket = socket
        self._client = client
        self._doc: Doc[Any] = Doc(client_id=client)
        self._text = self._doc.get("content", type=Text)
        self._frame = b""
        self._sent_s: list[float] = []

    async def sync(self) -> None:
        """Become live."""
        await self._socket.send(create_sync_message(self._doc))
        while self._frame[:2] != b"\0\1":
            self._frame = await self._socket.recv(decode=False)
            if self._frame[:1] == b"\0":
                reply = handle_sync_message(self._frame[1:], self._doc)
                if reply:
                    await self._socket.send(reply)

    async def type(self) -> None:
        """Send the next line."""
        have = self._doc.get_state()
        self._text += self._line(len(self._sent_s)).decode()
        update = self._doc.get_update(have)
        self._sent_s.append(time.perf_counter())
        await self._socket.send(create_update_message(update))

    async def hear(self, number: int, by: "_Editor") -> None:
        """Wait for a line of somebody; a frame may hold several."""
        while by._line(number) not in self._frame:
            self._frame = await self._socket.recv(decode=False)
        self.waits_s.append(time.perf_counter() - by._sent_s[number])

    def _line(self, number: int) -> bytes:
        return f"<{self._client}.{number}>\n".encode()


def measure(effort: Effort) -> Findings:
    """Serve a store of 200 full slots; ask for pages, write to it, and wait."""
    with folder() as place:
        _fill(place / "store.db", effort.size(SLOTS, 20))
        with _ours(place) as served, _bare(place) as bare:
            pages = list(_pages(served, bare, effort))
            counts = list(_latency(place, served, effort))
            with _ours(place) as other:
                counts += _keystrokes(place, served, other, effort)
            counts += asyncio.run(_crowd(place, served, effort))
            counts += asyncio.run(_idle(served, effort))
        return Findings([*pages, _start(place, effort)], counts)


def _fill(path: Path, count: int) -> None:
    words = lines(1)
    with open_store(path) as memory:
        for number in range(count):
            text = "\n".join(next(words) for _ in range(UNITS // 60))
            memory.create(f"slot_{number:03d}", text, size_limit=UNITS)
        for label in ("written", "typed", "crowded"):
            memory.create(label, size_limit=1_000_000)


@contextmanager
def _ours(place: Path) -> Iterator[_Served]:
    command = [sys.executable, "-m", "crdtmem", "serve", "--json", "--port", "0"]
    command += ["--project", PROJECT]
    with _process(command, place) as process:
        if process.stdout is None:
            raise RuntimeError("a pipe is missing")
        told = json.loads(process.stdout.readline())
        yield _Served(place, told["base"], told["pid"])


@contextmanager
def _bare(place: Path) -> Iterator[_Client]:
    command = [sys.executable, "-c", BARE, "8989"]
    with _process(command, place) as process:
        if process.stdout is None:
            raise RuntimeError("a pipe is missing")
        base = process.stdout.readline().strip()
        for _ in range(100):
            client = _Client(base, {})
            try:
                client.get("/1")
                break
            except OSError:
                time.sleep(0.1)
        yield client


@contextmanager
def _process(command: list[str], place: Path) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        command,
        env=clean_environment(place),
        cwd=place,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        encoding="utf-8",
    )
    try:
        yield process
    finally:
        process.terminate()
        process.communicate()


def _pages(served: _Served, bare: _Client, effort: Effort) -> Iterator[Comparison]:
    client = served.client()
    slot, listed = f"/p/{PROJECT}/slots/project/slot_001", f"/p/{PROJECT}/slots"
    for name, path, target in (("slot-page", slot, 3.0), ("list-page", listed, 5.0)):
        size = len(client.get(path))
        yield compare(
            f"serve-{name}",
            partial(client.get, path),
            partial(bare.get, f"/{size}"),
            against=f"bare Starlette, {size:,} bytes",
            target=target,
            rounds=effort.rounds_of(50),
        )


def _latency(place: Path, served: _Served, effort: Effort) -> Iterator[Count]:
    """Write in this process, which is another one; a stream hears of it."""
    heard: dict[int, float] = {}
    is_open = threading.Event()
    count = effort.rounds_of(100)
    stream = served.client().lines(f"/api/v1/projects/{PROJECT}/events")

    def listen() -> None:
        for line in stream:
            if line.startswith("event: cursor"):
                is_open.set()
            if line.startswith("data: ") and '"label":"written"' in line:
                heard[json.loads(line[6:])["rev"]] = time.perf_counter()
                if len(heard) == count:
                    return

    listener = threading.Thread(target=listen, daemon=True)
    listener.start()
    is_open.wait(30)
    written: dict[int, float] = {}
    with open_store(place / "store.db") as memory:
        slot = memory.slot("written")
        for number in range(count):
            rev = slot.append(f"line {number}").rev
            written[rev] = time.perf_counter()
            # Apart, so that no two are told as one.
            time.sleep(0.3)
    listener.join(10)
    waits = sorted(heard[rev] - written[rev] for rev in heard)
    p95 = waits[int(0.95 * (len(waits) - 1))]
    note = f"commit to event, {len(waits)} of {count} writes"
    yield Count("serve-latency-p95", p95 * 1000, "ms", LATENCY_S * 1000, note)
    median = statistics.median(waits) * 1000
    yield Count("serve-latency-median", median, "ms", note=note)


@asynccontextmanager
async def _editor(served: _Served, label: str, number: int) -> AsyncIterator[_Editor]:
    url = f"{served.base.replace('http', 'ws')}/yjs/{PROJECT}/{label}"
    async with connect(
        url, additional_headers=served.headers, compression=None, max_size=None
    ) as socket:
        editor = _Editor(socket, 70_000 + number)
        await editor.sync()
        yield editor


def _keystrokes(
    place: Path, served: _Served, other: _Served, effort: Effort
) -> Iterator[Count]:
    """Type with one editor; another one hears of it."""
    fsync_s = _fsync_s(place)
    count = effort.rounds_of(200)
    rows = (("same", served, NEAR_S), ("other", other, FAR_S))
    for turn, (name, far, target_s) in enumerate(rows):
        waits = asyncio.run(_typed(served, far, count, 10 * turn))
        above_ms = (waits[int(0.95 * (len(waits) - 1))] - fsync_s) * 1000
        note = (
            f"{name} process; p95 of {count} above an fsync of {fsync_s * 1000:.1f} ms"
        )
        yield Count(f"serve-keystroke-{name}", above_ms, "ms", target_s * 1000, note)


async def _typed(near: _Served, far: _Served, count: int, number: int) -> list[float]:
    async with (
        asyncio.timeout(PATIENCE_S),
        _editor(near, "typed", number) as writer,
        _editor(far, "typed", number + 1) as reader,
    ):
        for line in range(count):
            await writer.type()
            await reader.hear(line, writer)
            await writer.hear(line, writer)
            await asyncio.sleep(0.05)
        return sorted(reader.waits_s)


def _fsync_s(place: Path) -> float:
    times = []
    with (place / "synced").open("wb", buffering=0) as file:
        for _ in range(50):
            file.write(bytes(8_192))
            start_s = time.perf_counter()
            os.fsync(file.fileno())
            times.append(time.perf_counter() - start_s)
    return statistics.median(times)


async def _crowd(place: Path, served: _Served, effort: Effort) -> list[Count]:
    """Let many type into one slot, none waiting for its echo; count the commits."""
    editors: list[_Editor] = []
    count = UPDATES_A_S * effort.size(20, 2)
    commits: set[int] = set()
    chance = Random(1)
    began_ms = time.time() * 1000

    async def type_on(editor: _Editor) -> None:
        await asyncio.sleep(chance.random() / UPDATES_A_S)
        for _ in range(count):
            await editor.type()
            await asyncio.sleep(1 / UPDATES_A_S)

    async def hear(editor: _Editor) -> None:
        for line in range(count):
            await editor.hear(line, editor)

    async def look() -> None:
        # All rows of a commit have its time; a fold takes rows away, seconds later.
        store = apsw.Connection(
            str(place / "store.db"), flags=apsw.SQLITE_OPEN_READONLY
        )
        while True:
            rows = store.execute(
                "SELECT DISTINCT at_ms FROM editor_log WHERE at_ms > ?", (began_ms,)
            )
            commits.update(at for (at,) in rows)
            await asyncio.sleep(0.25)

    async with asyncio.timeout(PATIENCE_S), AsyncExitStack() as held:
        for number in range(effort.size(EDITORS, 4)):
            opened = _editor(served, "crowded", 100 + number)
            editors.append(await held.enter_async_context(opened))
        looking = asyncio.create_task(look())
        await asyncio.gather(*map(type_on, editors), *map(hear, editors))
        await asyncio.sleep(0.5)
        looking.cancel()
    waits = [wait for editor in editors for wait in editor.waits_s]
    note = f"{len(editors)} editors, {len(waits)} updates on one slot"
    share, longest_ms = len(commits) / len(waits), max(waits) * 1000
    return [
        Count("serve-crowd-commits", share, "an update", COMMITS_A_UPDATE, note),
        Count("serve-crowd-echo-longest", longest_ms, "ms", ECHO_S * 1000, note),
    ]


async def _idle(served: _Served, effort: Effort) -> list[Count]:
    """Hold pages open by sessions of their own, and editors; do nothing."""
    before = _memory_mib(served.pid)
    streams = [_stream_of(served) for _ in range(effort.size(PAGES, 4))]
    editors = effort.size(IDLE_EDITORS, 4)
    seconds = effort.size(20, 2)
    async with AsyncExitStack() as held:
        for number in range(editors):
            opened = _editor(served, f"slot_{number % 10:03d}", number)
            await held.enter_async_context(opened)
        await asyncio.sleep(3)
        began_s = _processor_s(served.pid)
        await asyncio.sleep(seconds)
        spent_pct = (_processor_s(served.pid) - began_s) / seconds * 100
        grown = _memory_mib(served.pid) - before
    note = f"{len(streams)} open pages, {editors} editors of 10 slots"
    return [
        Count("serve-idle", spent_pct, "% of a core", IDLE_PCT, note),
        Count("serve-idle-memory", grown, "MiB", IDLE_MIB, note),
    ]


def _stream_of(served: _Served) -> Iterator[str]:
    """Open a stream with a session of its own: one has four of them."""
    parts = urlsplit(served.base)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port)
    connection.request("POST", "/session/invite", headers=served.headers)
    url = json.loads(connection.getresponse().read())["url"]
    connection.request("GET", url.removeprefix(served.base))
    answer = connection.getresponse()
    answer.read()
    cookie = (answer.headers["set-cookie"] or "").partition(";")[0]
    stream = _Client(served.base, {"Cookie": cookie}).lines(
        f"/api/v1/projects/{PROJECT}/events"
    )
    next(stream)
    return stream


def _processor_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").split()
    return (int(fields[13]) + int(fields[14])) / CLOCK_TICKS_S


def _memory_mib(pid: int) -> float:
    pages = Path(f"/proc/{pid}/statm").read_text(encoding="utf-8").split()[1]
    return int(pages) * 4_096 / 2**20


def _start(place: Path, effort: Effort) -> Comparison:
    times: tuple[list[float], list[float]] = ([], [])
    for turn in range(1 + effort.rounds_of(7)):
        start_s = time.perf_counter()
        with _ours(place):
            ours_s = time.perf_counter() - start_s
        start_s = time.perf_counter()
        subprocess.run(
            [sys.executable, "-c", "pass"], env=clean_environment(place), check=True
        )
        if turn:
            times[0].append(ours_s)
            times[1].append(time.perf_counter() - start_s)
    return comparison(
        "serve-start", *times, against="python -c pass", target=START_TARGET
    )


if __name__ == "__main__":
    run(measure)
