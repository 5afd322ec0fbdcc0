"""Bounds of search and of its index; those of queries are with the sets' bounds."""

__all__ = [
    "INDEX_BATCH_CHARS",
    "INDEX_SEARCH_MAX",
    "INDEX_SEARCH_ROWS",
    "SEARCH_COUNT_MAX",
    "SEARCH_LEAD_UNITS",
    "SEARCH_PAGE_MAX",
    "SEARCH_ROWS",
    "SEARCH_SNIPPET_UNITS",
    "SEARCH_TOKENS_KEPT_CHARS",
    "SEARCH_TOKENS_KEPT_TEXTS",
]

SEARCH_ROWS = 20
"""Hits where no limit is given."""

SEARCH_PAGE_MAX = 100
"""Most hits that the front ends give for one search."""

SEARCH_SNIPPET_UNITS = 200
"""What a hit shows of its text where no other size is given."""

SEARCH_LEAD_UNITS = 80
"""What a snippet shows before its first match, at most."""

SEARCH_COUNT_MAX = 255
"""Occurrences of a term that count: more of them change no score that is shown."""

SEARCH_TOKENS_KEPT_CHARS = 1_500
"""Longest text whose tokens are remembered: a part of a slot, or a usual item."""

SEARCH_TOKENS_KEPT_TEXTS = 1_024
"""Texts whose tokens are remembered: those that are searched until they are indexed."""

INDEX_BATCH_CHARS = 1 << 18
"""Text indexed in one transaction, beyond its first row; some 50 ms of work."""

INDEX_SEARCH_ROWS = 64
"""Rows not indexed from which on a search indexes some; fewer cost it little."""

INDEX_SEARCH_MAX = 1_024
"""Rows that one search indexes at most, and only while nobody else is writing."""
