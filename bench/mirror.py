"""A mirrored folder: how long an edit takes to the slot, and a write to the file.

The mirror is the command, a process of its own. A tool appends a line to a file and the
slot is read until it is there; a lane commits a line and the file is read until it is
there. Beside the first stands what watchfiles alone takes to tell of such an append,
with the same settings and nothing behind it. Then the whole of a folder with 1,000
files: its first pass, a pass in which nothing has changed, and the share of a processor
that 200 files cost while nobody writes.
"""

import os
import queue
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import watchfiles

from bench.running import Effort, Findings, run
from bench.startup import clean_environment
from bench.timing import Count, compare, comparison
from bench.workload import folder, lines, open_store
from crdtmem import Memory
from crdtmem.limits import MIRROR_DEBOUNCE_MS, MIRROR_STEP_MS

__all__ = ["measure"]

EDITS = 200
FILES = 1_000
IDLE_FILES = 200
IDLE_S = 30
LOOK_S = 0.001
PATIENCE_S = 60.0
LIMIT_UNITS = 1_000_000
REST_S = 0.3
"""Between two edits: a file is written anew at most every 0.2 s."""


def measure(effort: Effort) -> Findings:
    """Measure the ways of one line, then folders of many files."""
    edits = effort.size(EDITS, 5)
    with folder() as place:
        to_slot, to_file = _ways(place / "ways", edits)
        alone = _watchfiles_alone(place / "alone", edits)
        passes = _passes(place / "many", effort)
        idle = _idle_share(place / "idle", effort)
    counts = [
        _share("mirror-file-to-slot", to_slot, 0.300, "tool's append to slot"),
        _share("mirror-slot-to-file", to_file, 0.400, "commit to file"),
        _share("watchfiles-alone", alone, None, "append to event"),
        idle,
    ]
    ratio = comparison(
        "mirror-file-to-slot",
        to_slot,
        alone,
        against=f"watchfiles {watchfiles.VERSION} alone",
    )
    peers = {"watchfiles": watchfiles.VERSION}
    return Findings([ratio, *passes.comparisons], [*counts, *passes.counts], peers)


def _share(
    name: str, took_s: Sequence[float], target_s: float | None, what: str
) -> Count:
    """Return the 95th percentile, with the median in its note."""
    p50, p95 = statistics.median(took_s), sorted(took_s)[int(len(took_s) * 0.95)]
    note = f"{what}, p50 {p50 * 1e3:.0f} ms"
    target = None if target_s is None else target_s * 1e3
    return Count(f"{name}-p95", round(p95 * 1e3), "ms", target, note)


def _command(place: Path, *words: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "crdtmem", "mirror", str(place / "notes"), *words],
        env=clean_environment(place),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        encoding="utf-8",
    )


@contextmanager
def _mirrored(place: Path) -> Iterator[int]:
    """Mirror a folder for the length of the block; give the process's number."""
    process = _command(place, "--watch")
    try:
        for line in process.stderr or ():
            if "Ctrl-C" in line:
                break
        else:
            raise RuntimeError("the mirror has ended")
        yield process.pid
    finally:
        process.terminate()
        process.communicate()


def _store(place: Path, slots: int) -> Memory:
    (place / "notes").mkdir(parents=True)
    memory = open_store(place / "store.db", durability="full")
    words = lines()
    for number in range(slots):
        text = "\n".join(next(words) for _ in range(20))
        memory.create(f"slot_{number}", text, size_limit=LIMIT_UNITS)
    return memory


def _until(is_so: Callable[[], bool]) -> None:
    until = time.perf_counter() + PATIENCE_S
    while not is_so():
        if time.perf_counter() > until:
            raise RuntimeError("waited for too long")
        time.sleep(LOOK_S)


def _timed(act: Callable[[], object], is_so: Callable[[], bool]) -> float:
    time.sleep(REST_S)
    began = time.perf_counter()
    act()
    _until(is_so)
    return time.perf_counter() - began


def _ways(place: Path, edits: int) -> tuple[list[float], list[float]]:
    """Time a line from the file to the slot, and another the other way, by turns."""
    to_slot, to_file = [], []
    with _store(place, 10) as memory, _mirrored(place):
        slot, file = memory.slot("slot_0"), place / "notes" / "slot_0.md"
        _until(file.exists)

        def by_tool(line: str) -> None:
            with file.open("a", encoding="utf-8") as opened:
                opened.write(f"{line}\n")

        def is_in_slot(line: str) -> bool:
            return line in str(slot.read().content)

        def is_in_file(line: str) -> bool:
            return line in file.read_text("utf-8")

        for number in range(edits):
            tool, lane = f"tool {number} wrote", f"lane {number} wrote"
            to_slot.append(_timed(partial(by_tool, tool), partial(is_in_slot, tool)))
            to_file.append(
                _timed(partial(slot.append, lane), partial(is_in_file, lane))
            )
    return to_slot, to_file


def _watchfiles_alone(place: Path, edits: int) -> list[float]:
    """Time an append until a watcher with our settings tells of it."""
    place.mkdir()
    file = place / "a.md"
    file.write_text("start\n", encoding="utf-8")
    told: queue.SimpleQueue[object] = queue.SimpleQueue()
    stop = threading.Event()

    def watch() -> None:
        for changes in watchfiles.watch(
            place,
            watch_filter=None,
            debounce=MIRROR_DEBOUNCE_MS,
            step=MIRROR_STEP_MS,
            stop_event=stop,
            recursive=False,
        ):
            told.put(changes)

    thread = threading.Thread(target=watch)
    thread.start()
    took_s = []
    try:
        for number in range(edits):
            time.sleep(REST_S)
            while not told.empty():
                told.get()
            began = time.perf_counter()
            with file.open("a", encoding="utf-8") as opened:
                opened.write(f"line {number}\n")
            told.get(timeout=PATIENCE_S)
            took_s.append(time.perf_counter() - began)
    finally:
        stop.set()
        thread.join()
    return took_s


def _passes(place: Path, effort: Effort) -> Findings:
    """Time passes over many files: the first, and one that finds nothing to do."""
    files = effort.size(FILES, 20)
    with _store(place, files):
        pass

    def once() -> None:
        process = _command(place)
        _, told = process.communicate()
        if process.returncode:
            raise RuntimeError(told)

    began = time.perf_counter()
    once()
    first_s = time.perf_counter() - began
    made = len(list((place / "notes").glob("*.md")))
    again = compare(
        f"mirror-again-{files}",
        once,
        lambda: [p.read_bytes() for p in (place / "notes").glob("*.md")],
        against="reading the files",
        rounds=effort.rounds_of(5),
    )
    note = f"{made} files written, start of the program included"
    return Findings([again], [Count(f"mirror-first-{files}", first_s, "s", None, note)])


def _idle_share(place: Path, effort: Effort) -> Count:
    """Return the share of a processor while nothing happens."""
    files = effort.size(IDLE_FILES, 20)
    wait_s = 2 if effort.is_quick else IDLE_S
    with _store(place, files), _mirrored(place) as pid:
        _until(lambda: len(list((place / "notes").glob("*.md"))) == files)
        time.sleep(3 if not effort.is_quick else 0)
        before = _processor_s(pid)
        began = time.perf_counter()
        time.sleep(wait_s)
        used = (_processor_s(pid) - before) / (time.perf_counter() - began)
    return Count(f"mirror-idle-{files}", used * 100, "%", 1.0, "of a processor")


def _processor_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text("ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


if __name__ == "__main__":
    run(measure)
