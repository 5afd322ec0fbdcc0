"""What the processes of the memory sets' tests do: some write, some compact.

Every item's text is a token of its writer, so that each can be looked for afterwards.
"""

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from crdtmem.errors import ItemConflictError
from crdtmem.sets.values import CompactionPolicy, Summary
from tests.oracle import token
from tests.scenarios import opened

if TYPE_CHECKING:
    from crdtmem.memory import Memory
    from crdtmem.sets.memory_set import MemorySet
    from crdtmem.sets.values import CompactionRequest
    from tests.child import Link

__all__ = [
    "SET",
    "add_and_delete",
    "compact_in_rounds",
    "compact_once",
    "joined",
    "set_of",
    "texts_of",
]

SET = "notes"
KEY = "team"
GLUE = " | "


def set_of(memory: "Memory") -> "MemorySet":
    """Return the set that all of this is about."""
    return memory.bind(partition_key=KEY).memory_set(SET)


def texts_of(memory: "Memory") -> list[str]:
    """Return all texts of the set, those within summaries apart."""
    items = set_of(memory).get(limit=10_000).items
    return [text for item in items for text in item.text.split(GLUE)]


def joined(request: "CompactionRequest") -> list[Summary]:
    """Summarise items by all that they say."""
    return [Summary(GLUE.join(item.text for item in request.items))]


def add_and_delete(link: "Link", *, path: str, lane: str, count: int) -> None:
    """Add items, and delete every third one of them later on.

    Args:
        link: Gets ``added`` and ``deleted`` after the call has returned, ``deleting``
            before it is made.
        path: The store.
        lane: Of the handle and of the tokens.
        count: How many to add.

    """
    link.pause()
    with opened(path, lane) as memory:
        notes = set_of(memory)
        for number in range(count):
            (item,) = notes.add(token(lane, number)).ids
            link.report("added", id=item, token=token(lane, number))
            if number % 3 == 2:
                link.report("deleting", id=item)
                notes.delete(item)
                link.report("deleted", id=item)


def compact_once(
    link: "Link", *, path: str
) -> None:  # pragma: no cover - run by forks that are killed
    """Compact the set; nobody gets to know what became of it."""
    link.report("compacting")
    with opened(path, "compactor") as memory:
        set_of(memory).compact(CompactionPolicy(joined, capacity=1))


def compact_in_rounds(
    link: "Link", *, path: str, lane: str, rounds: int, late_s: int
) -> dict[str, Any]:
    """Add two items and compact the set, again and again, beside another process.

    Args:
        link: Paused for before each compaction, and within the summariser or, where
            another compaction was running, instead of it.
        path: The store.
        lane: Of the handle and of the tokens.
        rounds: How often.
        late_s: How far the clock is ahead; beyond the life of a claim, every claim of
            another process is taken for an expired one.

    Returns:
        The tokens; how often another one was at it; how many summaries were skipped.

    """
    tokens, busy, skipped = [], 0, 0

    def clock() -> datetime:
        return datetime.now(UTC) + timedelta(seconds=late_s)

    def summarise(request: "CompactionRequest") -> list[Summary]:
        link.pause("thinking")
        return joined(request)

    with opened(path, lane, clock=clock) as memory:
        notes = set_of(memory)
        for number in range(rounds):
            tokens += [token(lane, 2 * number), token(lane, 2 * number + 1)]
            notes.add(tokens[-2:])
            link.pause()
            try:
                result = notes.compact(CompactionPolicy(summarise, capacity=1))
                skipped += len(result.skipped)
            except ItemConflictError as exc:
                busy += exc.code == "compaction-busy"
                link.pause("thinking")
            link.pause("compacted")
    return {"tokens": tokens, "busy": busy, "skipped": skipped}
