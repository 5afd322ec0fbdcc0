"""A search in the sets of a binding, and its record."""

from collections.abc import Sequence
from typing import Any

from crdtmem.search.searching import search_items
from crdtmem.search.values import SearchHit, SearchResult
from crdtmem.session import Session
from crdtmem.sets import recording
from crdtmem.sets.values import Binding

__all__ = ["search_bound"]


def search_bound(
    session: Session,
    binding: Binding,
    query: str,
    *,
    sets: Sequence[str] | None,
    recorded: str | None = None,
    **options: Any,
) -> SearchResult:
    """Return what a search of a binding's sets finds; see ``BoundMemory.search``.

    Args:
        session: The handle's.
        binding: The handle's.
        query: What is looked for.
        sets: Which sets; None for all of the key.
        recorded: The one set of a handle, whose search is recorded also where nothing
            was found.
        options: More arguments of the search.

    """
    result = search_items(session, binding, query, sets=sets, **options)
    hits: dict[str, list[SearchHit]] = {} if recorded is None else {recorded: []}
    for hit in result.hits:
        if hit.kind == "item":
            hits.setdefault(hit.label, []).append(hit)
    recording.searched(session, binding, query, hits)
    return result
