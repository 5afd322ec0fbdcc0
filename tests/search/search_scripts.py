"""What the processes of the search tests do: one adds items, one indexes."""

from typing import TYPE_CHECKING

from tests.scenarios import opened

if TYPE_CHECKING:
    from crdtmem.memory import Memory
    from crdtmem.sets.memory_set import MemorySet
    from tests.child import Link

__all__ = ["add_numbered", "index_everything", "numbered"]


def numbered(memory: "Memory") -> "MemorySet":
    """Return the set that all of this is about."""
    return memory.bind(partition_key="numbers").memory_set("numbers")


def add_numbered(link: "Link", *, path: str, first: int, count: int) -> None:
    """Add numbered items one by one.

    Args:
        link: Paused for before each; gets ``added`` after each.
        path: The store.
        first: The first number.
        count: How many.

    """
    with opened(path, "adder") as memory:
        for number in range(first, first + count):
            link.pause()
            numbered(memory).add(f"item number{number}")
            link.report("added", number=number)


def index_everything(
    link: "Link", *, path: str
) -> None:  # pragma: no cover - run by forks that are killed
    """Index what is pending; nobody gets to know how far that came."""
    with opened(path, "indexer") as memory:
        link.report("indexing")
        memory.index()
