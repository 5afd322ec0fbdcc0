"""Memory sets: what adding, getting and clearing cost, and how that grows.

One store on the disk of this checkout holds sets of several sizes, each under a key of
its own. Adds are compared with the bare INSERT and its fsync, and a set of 49,000 items
with smaller ones. ``bench.search`` searches.
"""

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from pycrdt import Doc, Map

from bench.running import Effort, Findings, run
from bench.timing import Comparison, Count, compare, comparison
from bench.workload import BareLog, folder, lines, open_store
from crdtmem.memory import Memory
from crdtmem.partition import encode_key
from crdtmem.sets.memory_set import MemorySet
from crdtmem.store.connection import Connection
from crdtmem.store.set_docs import squash_set

__all__ = ["measure"]

NAME = "notes"
LARGE = 49_000
"""So that there is room for those that are added to the 50,000 of a set's limit."""
CALL = 1_000
"""Items of one call."""
SINGLES = 50
"""So many single adds may take as long as one call: 20 times the items a second."""
ADDS = 300


class Sizes(NamedTuple):
    """Items of each set."""

    small: int
    middle: int
    large: int


def measure(effort: Effort) -> Findings:
    """Build the sets, then compare."""
    sizes = Sizes(
        100,
        effort.size(10_000, 300),
        effort.size(LARGE, 1_500),
    )
    with folder() as place:
        path = place / "store.db"
        built_s = _build_all(path, sizes)
        with open_store(path) as memory:
            _index(memory)
            found = [
                *_adds(memory, place, effort),
                *_gets(memory, effort),
            ]
        found.append(_first_write(path, effort))
        found.append(_clear(path, built_s))
        counts = [_loads_pycrdt(path), Count("set-built", built_s, "s", note=_ABOUT)]
    return Findings(found, counts)


_ABOUT = "the large set, in calls of 1,000 items, every commit synced"


def _build_all(path: Path, sizes: Sizes) -> float:
    """Make the store; return how long the large set took."""
    with open_store(path) as memory:
        for key, size in (("small", sizes.small), ("middle", sizes.middle)):
            _build(_set(memory, key), size)
        start = time.perf_counter()
        _build(_set(memory, "large"), sizes.large)
        built_s = time.perf_counter() - start
    return built_s


def _set(memory: Memory, key: str) -> MemorySet:
    return memory.bind(partition_key=key).memory_set(NAME)


def _index(memory: Memory) -> None:
    while memory.index(rows=CALL).pending:
        pass


def _build(notes: MemorySet, size: int) -> None:
    words = lines(31)
    for first in range(0, size, CALL):
        numbers = range(first, min(first + CALL, size))
        texts = [next(words) for _ in numbers]
        notes.add(texts, [{"band": number % 100} for number in numbers])


def _doc_of(connection: Connection, key: str) -> int:
    doc: int = connection.execute(
        "SELECT doc FROM mset WHERE key_long = :key", {"key": encode_key(key)}
    ).get
    return doc


def _adds(memory: Memory, place: Path, effort: Effort) -> Iterator[Comparison]:
    log = BareLog(place / "bare.db")
    words = lines(32)
    large, small = _set(memory, "large"), _set(memory, "small")

    def add_to(notes: MemorySet) -> Callable[[], object]:
        return lambda: notes.add(next(words))

    rounds = effort.rounds_of(ADDS)
    against = "bare apsw INSERT + fsync, same disk"
    yield compare(
        "set-add", add_to(small), log.append, against=against, target=1.5, rounds=rounds
    )
    yield compare(
        "set-add-processor",
        add_to(small),
        log.append,
        against="bare apsw INSERT + fsync, processor time",
        rounds=rounds,
        clock=time.thread_time,
    )
    log.close()
    yield compare(
        "set-add-to-49000",
        add_to(large),
        add_to(small),
        against="add to the set of 100",
        target=1.5,
        rounds=rounds,
    )
    yield _one_call(memory, effort)


def _one_call(memory: Memory, effort: Effort) -> Comparison:
    """Add 1,000 items at once, and one by one; neither finds rows to be indexed."""
    calls = effort.size(CALL, 100)
    words, notes = lines(35), _set(memory, "fresh")
    ours, theirs = list[float](), list[float]()
    for _ in range(effort.rounds_of(10)):
        _index(memory)
        texts = [next(words) for _ in range(calls)]
        start = time.perf_counter()
        notes.add(texts)
        ours.append(time.perf_counter() - start)
        _index(memory)
        start = time.perf_counter()
        for _ in range(calls * SINGLES // CALL):
            notes.add(next(words))
        theirs.append(time.perf_counter() - start)
    return comparison(
        "set-add-1000-in-one-call",
        ours,
        theirs,
        against="50 calls of one item each",
        target=1.0,
    )


def _gets(memory: Memory, effort: Effort) -> Iterator[Comparison]:
    large, middle, small = (_set(memory, key) for key in ("large", "middle", "small"))
    ids = {notes: notes.get(limit=1).items[0].id for notes in (large, small)}
    yield compare(
        "set-get-one-of-49000",
        _often(lambda: large.get(ids[large])),
        _often(lambda: small.get(ids[small])),
        against="one of 100",
        target=1.3,
        rounds=effort.rounds_of(),
    )
    yield compare(
        "set-get-100-of-49000",
        _often(large.get),
        _often(small.get),
        against="all of 100",
        target=1.3,
        rounds=effort.rounds_of(),
    )
    chosen = {"band": 7}
    yield compare(
        "set-get-filtered-1-percent-of-49000",
        lambda: large.get(filters=chosen, limit=CALL),
        lambda: middle.get(filters=chosen, limit=CALL),
        against="the same of 10,000",
        target=6.0,
        rounds=effort.rounds_of(),
    )


def _first_write(path: Path, effort: Effort) -> Comparison:
    """Write once after each opening, beside loading the document's state alone."""
    with open_store(path) as memory:
        with memory.store.writing() as transaction:
            doc = _doc_of(transaction.connection, "large")
            squash_set(transaction, doc)
        with memory.store.reading() as connection:
            state: bytes = connection.execute(
                "SELECT state FROM doc WHERE doc = :doc", {"doc": doc}
            ).get
    words, ours, theirs = lines(34), list[float](), list[float]()
    for _ in range(effort.rounds_of(7)):
        with open_store(path) as memory:
            start = time.perf_counter()
            _set(memory, "large").add(next(words))
            ours.append(time.perf_counter() - start)
        start = time.perf_counter()
        plain: Doc[Map[object]] = Doc()
        plain.apply_update(state)
        theirs.append(time.perf_counter() - start)
    return comparison(
        "set-first-write-after-open",
        ours,
        theirs,
        against="pycrdt, apply_update of the squashed state",
        target=2.0,
    )


def _clear(path: Path, built_s: float) -> Comparison:
    with open_store(path) as memory:
        notes = _set(memory, "large")
        start = time.perf_counter()
        notes.delete()
        took_s = time.perf_counter() - start
    return comparison(
        "set-clear-49000",
        [took_s],
        [built_s],
        against="adding them in calls of 1,000",
        target=0.25,
    )


def _loads_pycrdt(path: Path) -> Count:
    """Get items in a fresh process; count what it has loaded that a read needs not."""
    program = (
        "import sys; import crdtmem;"
        f" memory = crdtmem.open({str(path)!r}, lane='l', project='bench');"
        f" memory.bind(partition_key='small').memory_set({NAME!r}).get();"
        " print('pycrdt' in sys.modules)"
    )
    found = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, check=True, text=True
    )
    return Count(
        "set-get-loads-pycrdt",
        int(found.stdout.strip() == "True"),
        "modules",
        0,
        "in a fresh process",
    )


def _often(call: Callable[[], object]) -> Callable[[], None]:
    def calls() -> None:
        for _ in range(20):
            call()

    return calls


if __name__ == "__main__":
    run(measure)
