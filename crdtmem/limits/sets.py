"""Bounds of memory sets, of their keys, items, observations, and of search."""

__all__ = [
    "COMPACTION_ARCHIVE_DAYS",
    "COMPACTION_ARCHIVE_MAX_DAYS",
    "COMPACTION_CAPACITY_ROWS",
    "COMPACTION_CLAIM_MS",
    "EMBEDDING_DIM_MAX",
    "FILTER_CONDITIONS_MAX",
    "FILTER_LEVELS",
    "INDEX_BATCH_ROWS",
    "INDEX_PENDING_ROWS",
    "INDEX_ROWS",
    "INDEX_VECTORS_ROWS",
    "ITEM_HISTORY_BYTES",
    "ITEM_HISTORY_ROWS",
    "ITEM_ID_BYTES",
    "ITEM_TEXT_UNITS",
    "KEY_INT_BITS",
    "KEY_LEVELS",
    "KEY_LONG_CHARS",
    "KEY_SHORT_CHARS",
    "KEY_TUPLE_MAX",
    "METADATA_BYTES",
    "METADATA_INT_BITS",
    "METADATA_LEVELS",
    "METADATA_NAME_CHARS",
    "OBSERVATIONS_BYTES",
    "OBSERVATIONS_LIST_RECORDS",
    "OBSERVATIONS_RECORDS",
    "SEARCH_LIMIT_ROWS",
    "SEARCH_PART_LINES",
    "SEARCH_PART_UNITS",
    "SEARCH_PIECE_CHARS",
    "SEARCH_QUERY_CHARS",
    "SEARCH_SNIPPET_LEAST_UNITS",
    "SEARCH_SNIPPET_MOST_UNITS",
    "SEARCH_TERMS_MAX",
    "SEARCH_TOKEN_CHARS",
    "SETS_MAX",
    "SETS_ROWS",
    "SET_CALL_BYTES",
    "SET_CALL_IDS_MAX",
    "SET_CALL_ITEMS_MAX",
    "SET_ITEMS_MAX",
    "SET_NAME_BYTES",
    "SET_PAGE_MAX",
    "SET_PAGE_ROWS",
    "SET_SEARCH_ROWS",
    "SET_SIZE_UNITS",
    "SET_STATE_BYTES",
    "SET_UNSQUASHED_MAX",
    "SET_UNSQUASHED_PCT",
    "SET_UPDATE_BYTES",
    "SET_VERSION_BYTES",
    "SUMMARIES_MAX",
]

KEY_LONG_CHARS = 65_536
"""Longest encoded partition key: far over any name, far under a message."""

KEY_SHORT_CHARS = 120
"""Longest encoded key or name that stands as it is in a doc's name; else its hash."""

KEY_INT_BITS = 1_024
"""Largest number that is a key: longer ones take time to print."""

KEY_TUPLE_MAX = 16
"""Most elements of a tuple in a key."""

KEY_LEVELS = 4
"""Deepest tuple in a key, the outermost being 1."""

SET_NAME_BYTES = 256
"""Longest name of a set, in UTF-8."""

SETS_MAX = 20_000
"""Most sets of a namespace: each is a doc that syncs by itself."""

SETS_ROWS = 1_000
"""Sets, or partitions, in a list where no limit is given."""

ITEM_TEXT_UNITS = 65_536
"""Longest text of an item: a note, not a document."""

ITEM_ID_BYTES = 256
"""Longest id of an item, in UTF-8."""

METADATA_BYTES = 16_384
"""Longest metadata of an item, as canonical JSON in UTF-8."""

METADATA_NAME_CHARS = 128
"""Longest name of a field."""

METADATA_LEVELS = 8
"""Deepest list or object in metadata, the object itself being 1."""

METADATA_INT_BITS = 64
"""Width of a whole number in metadata, its sign included: what SQLite can hold."""

SET_CALL_ITEMS_MAX = 1_000
"""Most items that one call adds."""

SET_CALL_IDS_MAX = 10_000
"""Most ids that one call names."""

SET_CALL_BYTES = 786_432
"""Most text and metadata of one call, in UTF-8: an update holds 4 MiB."""

SET_ITEMS_MAX = 50_000
"""Most items of a set."""

SET_SIZE_UNITS = 4_194_304
"""Most text and metadata of a set's live versions."""

SET_STATE_BYTES = 12 << 20
"""Most state of a set: a snapshot holds 16 MiB."""

SET_UNSQUASHED_MAX = 256
"""Members that records of a small set change before it is squashed."""

SET_UNSQUASHED_PCT = 25
"""The part of a large set that records change before it is squashed.

A set is loaded then in less than twice the time that its squashed state takes, and each
member is squashed a few times while a set grows.
"""

SET_UPDATE_BYTES = 2 << 20
"""Most values in one update of a set; more are written as several, in one commit.

Far below what an update holds, so that it fits into a record with all that stands
beside the values; and more than one call may write, so that most writes are one.
"""

SET_VERSION_BYTES = 40
"""What each version ever made is taken to add to the state; measured: 36."""

SET_PAGE_ROWS = 100
"""Items on a page where no limit is given."""

SET_PAGE_MAX = 10_000
"""Most items on a page."""

SET_SEARCH_ROWS = 10
"""Hits in a set where no limit is given."""

FILTER_LEVELS = 8
"""Deepest filter, the outermost being 1."""

FILTER_CONDITIONS_MAX = 64
"""Most conditions of a filter."""

ITEM_HISTORY_ROWS = 50_000
"""Rows of history kept for a set: as many as it may have items."""

ITEM_HISTORY_BYTES = 64 << 20
"""Old values kept for a set."""

COMPACTION_CAPACITY_ROWS = 100
"""Items from which on a set is compacted where no other number is given."""

SUMMARIES_MAX = 100
"""Most summaries of one compaction."""

COMPACTION_CLAIM_MS = 600_000
"""Life of a claim: as long as a summariser may reasonably take."""

COMPACTION_ARCHIVE_DAYS = 90
"""How long the originals of a summary are kept where no other time is given."""

COMPACTION_ARCHIVE_MAX_DAYS = 36_500
"""Longest time that they may be kept: a century is for ever."""

OBSERVATIONS_LIST_RECORDS = 10_000
"""Most records that wait under one id; later ones are dropped."""

OBSERVATIONS_RECORDS = 100_000
"""Most records that wait in all; the oldest list goes whole."""

OBSERVATIONS_BYTES = 64 << 20
"""Most memory of the records that wait, by their texts."""

SEARCH_QUERY_CHARS = 2_048
"""Longest query."""

SEARCH_TERMS_MAX = 32
"""Most terms of a query: each costs a look into the index."""

SEARCH_LIMIT_ROWS = 1_000
"""Most hits of one search."""

SEARCH_SNIPPET_LEAST_UNITS = 20
"""Shortest snippet that may be asked for: a word with a little around it."""

SEARCH_SNIPPET_MOST_UNITS = 300
"""Longest snippet that may be asked for; who needs more reads the text."""

SEARCH_PART_UNITS = 1_000
"""A part of a slot is closed at this size: a hit should name a place, not a slot."""

SEARCH_PART_LINES = 40
"""Most lines of such a part."""

SEARCH_PIECE_CHARS = 256
"""A longer run of word characters is data, of which only the start is indexed."""

SEARCH_TOKEN_CHARS = 64
"""Longest token."""

INDEX_BATCH_ROWS = 64
"""Rows indexed in one transaction, so that no writer waits long behind it."""

INDEX_PENDING_ROWS = 512
"""Rows not indexed from which on a writer indexes a batch after its commit."""

INDEX_ROWS = 10_000
"""Rows that one call indexes where no number is given."""

INDEX_VECTORS_ROWS = 256
"""Texts that are embedded in one call."""

EMBEDDING_DIM_MAX = 4_096
"""Longest vector: what the largest models give."""
