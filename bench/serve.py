"""The web server: how long a page takes, how soon it hears of a write, what it costs.

A page is compared with a bare Starlette application that sends as many bytes, on the
same uvicorn, in a process of its own. The write is another process's, and the stream is
that of an open page.
"""

import http.client
import json
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

from bench.running import Effort, Findings, run
from bench.startup import clean_environment
from bench.timing import Comparison, Count, compare, comparison
from bench.workload import folder, lines, open_store

__all__ = ["measure"]

PROJECT = "bench"
SLOTS, UNITS = 200, 2_000
PAGES = 50
CLOCK_TICKS_S = 100
LATENCY_S, IDLE_PCT, IDLE_MIB = 0.25, 2.0, 40.0
START_TARGET = 12.0

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


def measure(effort: Effort) -> Findings:
    """Serve a store of 200 full slots; ask for pages, write to it, and wait."""
    with folder() as place:
        _fill(place / "store.db", effort.size(SLOTS, 20))
        with _ours(place) as served, _bare(place) as bare:
            pages = list(_pages(served, bare, effort))
            counts = [*_latency(place, served, effort), *_idle(served, effort)]
        return Findings([*pages, _start(place, effort)], counts)


def _fill(path: Path, count: int) -> None:
    words = lines(1)
    with open_store(path) as memory:
        for number in range(count):
            text = "\n".join(next(words) for _ in range(UNITS // 60))
            memory.create(f"slot_{number:03d}", text, size_limit=UNITS)
        memory.create("written", size_limit=1_000_000)


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


def _idle(served: _Served, effort: Effort) -> Iterator[Count]:
    """Hold pages open by sessions of their own, and do nothing."""
    before = _memory_mib(served.pid)
    streams = [_stream_of(served) for _ in range(effort.size(PAGES, 4))]
    seconds = effort.size(20, 2)
    time.sleep(1)
    began_s = _processor_s(served.pid)
    time.sleep(seconds)
    spent_pct = (_processor_s(served.pid) - began_s) / seconds * 100
    grown = _memory_mib(served.pid) - before
    note = f"{len(streams)} open pages"
    yield Count("serve-idle", spent_pct, "% of a core", IDLE_PCT, note)
    yield Count("serve-idle-memory", grown, "MiB", IDLE_MIB, note)


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
