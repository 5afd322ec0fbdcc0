"""Searching a large set, against a small one and against FTS5's own ranking."""

import shutil
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from random import Random

import crdtmem
from bench.running import Effort, Findings, run
from bench.timing import Comparison, Count, compare
from bench.workload import bare_connection, folder, open_store
from crdtmem.limits import SET_CALL_ITEMS_MAX
from crdtmem.memory import Memory
from crdtmem.search.query import match_of, parse_query
from crdtmem.sets.memory_set import MemorySet
from crdtmem.store.search import doc_token

__all__ = ["measure"]

LARGE, SMALL, ALONE = 50_000, 10_000, 1_000
RARE = 50
"""Items that the seldom word is in, however large the set."""
PENDING = 512
LIMIT = 10
SEARCHES = 200
"""Of which the 95th percentile is told."""

_WORDS = [f"word{number}" for number in range(2_000)]


def measure(effort: Effort) -> Findings:
    """Search sets of 50,000 and of 10,000 items for few and for many of them."""
    large, small, alone = (
        effort.size(size, size // 50) for size in (LARGE, SMALL, ALONE)
    )
    with folder() as place:
        _filled(place / "small.db", {"mine": small})
        _filled(place / "large.db", {"mine": large})
        _filled(place / "alone.db", {"mine": alone})
        _filled(place / "beside.db", {"mine": alone, "foreign": large - alone})
        shutil.copy(place / "large.db", place / "pending.db")
        _unindexed(place / "pending.db")
        names = ("small", "large", "alone", "beside", "pending")
        memories = {name: _for_reading(place / f"{name}.db") for name in names}
        try:
            return _compared(effort, place, memories)
        finally:
            for memory in memories.values():
                memory.close()


def _compared(effort: Effort, place: Path, memories: dict[str, Memory]) -> Findings:
    sets = {name: _set_of(memory, "mine") for name, memory in memories.items()}
    bare = bare_connection(place / "large.db")
    scope = doc_token(_doc_of(memories["large"]))
    match = f's : "{scope}" AND ({match_of(parse_query("common").terms)})'

    def by_fts5() -> None:
        bare.execute(
            "SELECT search_row.doc, item FROM search_index JOIN search_row"
            " ON search_row.row = search_index.rowid WHERE search_index MATCH ?"
            " ORDER BY bm25(search_index) LIMIT ?",
            (match, LIMIT + 1),
        ).fetchall()

    def asked(name: str, query: str, **filters: int) -> Callable[[], object]:
        return lambda: sets[name].search(query, LIMIT, filters or None)

    def line(
        name: str,
        subject: Callable[[], object],
        baseline: Callable[[], object],
        against: str,
        target: float,
    ) -> Comparison:
        return compare(
            name,
            subject,
            baseline,
            against=against,
            target=target,
            rounds=effort.rounds_of(31),
        )

    fifth = "a fifth of the items"
    found = [
        line(
            "search-50-hits", asked("large", "rare"), asked("small", "rare"), fifth, 2
        ),
        line(
            "search-25-percent",
            asked("large", "common"),
            asked("small", "common"),
            fifth,
            6,
        ),
        line(
            "search-25-percent-fts5",
            asked("large", "common"),
            by_fts5,
            "the same by FTS5's bm25, without the items",
            6,
        ),
        line(
            "search-filter-1-percent",
            asked("large", "common", n=7),
            asked("small", "common", n=7),
            fifth,
            6,
        ),
        line(
            "search-beside-foreign",
            asked("beside", "common"),
            asked("alone", "common"),
            "without 49 foreign items for each",
            3,
        ),
        line(
            "search-512-pending",
            asked("pending", "rare"),
            asked("large", "rare"),
            "nothing pending",
            3,
        ),
    ]
    bare.close()
    counts = [
        _percentile(name, asked("large", query), effort)
        for name, query in (("search-50-hits", "rare"), ("search-25-percent", "common"))
    ]
    return Findings(found, counts)


def _percentile(name: str, search: Callable[[], object], effort: Effort) -> Count:
    times = []
    for _ in range(effort.size(SEARCHES, 20)):
        start = time.perf_counter()
        search()
        times.append(time.perf_counter() - start)
    p95_s = statistics.quantiles(times, n=20)[-1]
    return Count(f"{name}-p95", p95_s * 1e3, "ms", note="in the largest set")


def _filled(path: Path, sizes: dict[str, int]) -> None:
    """Make a store with a set of each size under the key of its name, all indexed."""
    random = Random(1)
    with open_store(path, durability="normal") as memory:
        for key, size in sizes.items():
            items = _set_of(memory, key)
            every = max(1, size // RARE)
            for first in range(0, size, SET_CALL_ITEMS_MAX):
                numbers = range(first, min(size, first + SET_CALL_ITEMS_MAX))
                items.add(
                    [_text(random, is_rare=n % every == 0) for n in numbers],
                    [{"n": n % 100} for n in numbers],
                )
        memory.index(rows=sum(sizes.values()))
        memory.store.checkpoint()


def _text(random: Random, *, is_rare: bool) -> str:
    words = random.choices(_WORDS, k=8)
    if random.random() < 0.25:
        words.append("common")
    if is_rare:
        words.append("rare")
    return " ".join(words)


def _unindexed(path: Path) -> None:
    """Have some items as if they had just been updated."""
    with open_store(path, durability="normal") as memory:
        doc = _doc_of(memory)
        with memory.store.indexing(5) as connection:
            connection.execute(
                "INSERT INTO search_pending SELECT doc, id FROM item WHERE doc = :doc"
                " LIMIT :rows",
                {"doc": doc, "rows": PENDING},
            )


def _doc_of(memory: Memory) -> int:
    """Return the doc of the first set, which is the one that is searched."""
    with memory.store.reading() as connection:
        return int(connection.execute("SELECT min(doc) FROM mset").get)


def _for_reading(path: Path) -> Memory:
    # For reading: a search that may write would index what is pending.
    return crdtmem.open(path, lane="bench", project="bench", read_only=True)


def _set_of(memory: Memory, key: str) -> MemorySet:
    return memory.bind(partition_key=key).memory_set("items")


if __name__ == "__main__":
    run(measure)
