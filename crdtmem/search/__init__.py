"""Search: words in slots, in items of memory sets, and in the past of a slot."""

from crdtmem.search.searching import search_items, search_slots
from crdtmem.search.values import (
    IndexReport,
    Kind,
    Mode,
    SearchHit,
    SearchResult,
    SnippetCut,
    Sort,
)

__all__ = [
    "IndexReport",
    "Kind",
    "Mode",
    "SearchHit",
    "SearchResult",
    "SnippetCut",
    "Sort",
    "search_items",
    "search_slots",
]
