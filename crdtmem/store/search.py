"""The search index as a reader sees it: rows that hold terms, and texts without rows.

All of it belongs in one read transaction: what is pending is looked at itself, so that
hits and texts are of one state. Nothing here knows what a query is; expressions come
from ``crdtmem.search.query``.
"""

import json
import logging
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from functools import lru_cache
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, NamedTuple

import apsw

from crdtmem.limits import (
    SEARCH_COUNT_MAX,
    SEARCH_TOKENS_KEPT_CHARS,
    SEARCH_TOKENS_KEPT_TEXTS,
)
from crdtmem.tokens import TextTokens, tokens

if TYPE_CHECKING:
    from apsw import FTS5ExtensionApi

__all__ = [
    "Asked",
    "Indexed",
    "IndexedRow",
    "Pending",
    "SlotPlace",
    "Totals",
    "doc_token",
    "item_text",
    "item_texts",
    "look_up",
    "partition_token",
    "slot_file",
    "slot_places",
    "slots_token",
    "tokens_of",
]

_LOG = logging.getLogger(__name__)
_TOKEN_BYTES = 8


IndexedRow = tuple[int, int, str, int, int, int, bytes]
"""A row of the index that holds a term; plain, for there may be very many.

Its number; doc, item (empty for a slot) and first line; how many words it has; when its
text was written; how often each phrase occurs in it, a byte each.
"""


class Totals(NamedTuple):
    """How many rows there are, and how many words they have together."""

    rows: int
    length: int


Pending = dict[int, set[str]]
"""The texts that are not indexed as they are: items, or an empty name, by doc."""


class Indexed(NamedTuple):
    """What the index knows of some docs.

    Attributes:
        rows: Those that hold a term; also of other docs, and of pending texts.
        excluded: Numbers of rows that may be no hits.
        totals: Sums over the docs' rows, less those of pending texts.
        pending: See Pending.

    """

    rows: list[IndexedRow]
    excluded: frozenset[int]
    totals: Totals
    pending: Pending


class Asked(NamedTuple):
    """What is asked of the index.

    Attributes:
        docs: What is searched.
        scopes: Tokens of scopes that hold all rows of those docs.
        wanted: The expression of rows that hold a term.
        columns: For each phrase of it the column that it is looked for in.
        excluded: The expression of rows that may be no hits; empty for none.

    """

    docs: Collection[int]
    scopes: Sequence[str]
    wanted: str
    columns: bytes
    excluded: str


class SlotPlace(NamedTuple):
    """A live slot without its text."""

    doc: int
    namespace: str
    label: str
    updated_ms: int
    lane: str


def doc_token(doc: int) -> str:
    """Return the scope of one doc's rows."""
    return f"d{doc}"


def slots_token(namespace: str) -> str:
    """Return the scope of the slots of a namespace."""
    return f"n{_digest(namespace)}"


def partition_token(namespace: str, key_short: str) -> str:
    """Return the scope of the items under a partition key."""
    # Should two scopes ever have one digest, their rows are told apart by their docs,
    # at which every reader looks.
    name = f"{namespace}\n{key_short}"
    return f"b{_digest(name)}"


def _digest(name: str) -> str:
    return blake2b(name.encode(), digest_size=_TOKEN_BYTES).hexdigest()


def look_up(connection: apsw.Connection, asked: Asked) -> Indexed | None:
    """Return what the index knows of some docs; None if it cannot be read."""
    values = {"docs": json.dumps([*asked.docs])}
    try:
        scopes = asked.scopes
        if _are_most(connection, values):
            # To look at the rows of the others costs less than to follow the scope.
            scopes = ()
        return Indexed(
            _rows(
                connection, _within(scopes, asked.wanted), asked.columns, len(scopes)
            ),
            _row_numbers(connection, _within(scopes, asked.excluded))
            if asked.excluded
            else frozenset(),
            _totals(connection, values),
            _pending(connection, values),
        )
    except (apsw.Error, UnicodeDecodeError):
        _LOG.warning("the search index cannot be read; run doctor", exc_info=True)
        return None


def _are_most(connection: apsw.Connection, values: dict[str, str]) -> bool:
    """Tell whether at least half of all rows are of the docs; rather no than yes."""
    rows = connection.execute(
        "SELECT 2 * sum(rows) >= (SELECT max(row) FROM search_row) FROM search_doc"
        " WHERE doc IN (SELECT value FROM json_each(:docs))",
        values,
    )
    return any(bool(is_most) for (is_most,) in rows)


def _within(scopes: Sequence[str], match: str) -> str:
    """Return the expression of the rows in any of the scopes; without one, of all."""
    if not scopes:
        return match
    within = " OR ".join(f's : "{scope}"' for scope in scopes)
    return f"({within}) AND ({match})"


def _rows(
    connection: apsw.Connection, match: str, columns: bytes, skipped: int
) -> list[IndexedRow]:
    connection.register_fts5_function("search_counts", _counts)
    rows = connection.execute(
        "SELECT search_row.row, doc, item, line, length, updated_ms,"
        " search_counts(search_index, :places, :columns)"
        " FROM search_index JOIN search_row ON search_row.row = search_index.rowid"
        " WHERE search_index MATCH :match",
        {
            "match": match,
            # The phrases behind those of the scopes.
            "places": bytes(range(skipped, skipped + len(columns))),
            "columns": columns,
        },
    )
    return [*rows]


def _counts(api: "FTS5ExtensionApi", *arguments: Any) -> bytes:
    # Called at each hit, so nothing of it is a loop of Python's. What it counts are
    # arguments: a statement that is prepared keeps the function that it has found.
    found = list(map(len, map(api.phrase_column_offsets, *arguments)))
    try:
        return bytes(found)
    except ValueError:
        return bytes([min(count, SEARCH_COUNT_MAX) for count in found])


def _row_numbers(connection: apsw.Connection, match: str) -> frozenset[int]:
    rows = connection.execute(
        "SELECT rowid FROM search_index WHERE search_index MATCH :match",
        {"match": match},
    )
    return frozenset(int(row) for (row,) in rows)


def _totals(connection: apsw.Connection, values: dict[str, str]) -> Totals:
    rows = connection.execute(
        "SELECT coalesce(sum(rows), 0), coalesce(sum(length), 0) FROM (SELECT rows,"
        " length FROM search_doc WHERE doc IN (SELECT value FROM json_each(:docs))"
        " UNION ALL SELECT -count(*), -sum(length)"
        " FROM search_pending JOIN search_row USING (doc, item)"
        " WHERE search_pending.doc IN (SELECT value FROM json_each(:docs)))",
        values,
    )
    return Totals(*next(iter(rows)))


def _pending(connection: apsw.Connection, values: dict[str, str]) -> Pending:
    found: Pending = {}
    for doc, item in connection.execute(
        "SELECT doc, item FROM search_pending"
        " WHERE doc IN (SELECT value FROM json_each(:docs))",
        values,
    ):
        found.setdefault(doc, set()).add(item)
    return found


def slot_places(connection: apsw.Connection, namespace: str) -> list[SlotPlace]:
    """Return the live slots of a namespace; default slots have no text to find."""
    rows = connection.execute(
        "SELECT doc, namespace, label, updated_ms, lane FROM slot"
        " WHERE namespace = :namespace AND NOT (deleted AND file IN ('', char(10)))",
        {"namespace": namespace},
    )
    return [SlotPlace(*row) for row in rows]


def slot_file(connection: apsw.Connection, doc: int) -> str:
    """Return the text of a live slot; empty if there is none, or it is no text."""
    for (file,) in connection.execute(
        "SELECT CAST(file AS BLOB) FROM slot"
        " WHERE doc = :doc AND NOT (deleted AND file IN ('', char(10)))",
        {"doc": doc},
    ):
        return _decoded(file) or ""
    return ""


def item_text(
    connection: apsw.Connection, doc: int, item: str
) -> tuple[str | None, int]:
    """Return an item's text and time; None if it is gone, or is no text."""
    for text, updated_ms in connection.execute(
        "SELECT CAST(text AS BLOB), updated_ms FROM item"
        " WHERE doc = :doc AND id = :item",
        {"doc": doc, "item": item},
    ):
        return _decoded(text), updated_ms
    return None, 0


def item_texts(
    connection: apsw.Connection, doc: int, *, pending: bool
) -> Iterator[tuple[str, str, int]]:
    """Yield id, text and time of the items of a doc: of all, or of those pending."""
    statement = _PENDING_ITEMS if pending else _ALL_ITEMS
    for item, text, updated_ms in connection.execute(statement, {"doc": doc}):
        found = _decoded(text)
        if found is not None:
            yield item, found, updated_ms


def _decoded(text: bytes) -> str | None:
    # Damage there is doctor's to tell, and must hide no other text.
    with suppress(UnicodeDecodeError):
        return str(text, "utf-8")
    return None


_PENDING_ITEMS = (
    "SELECT id, CAST(text AS BLOB), updated_ms FROM search_pending JOIN item"
    " ON item.doc = :doc AND item.id = search_pending.item"
    " WHERE search_pending.doc = :doc"
)

_ALL_ITEMS = "SELECT id, CAST(text AS BLOB), updated_ms FROM item WHERE doc = :doc"


def tokens_of(text: str) -> TextTokens:
    """Return the tokens of a text; those of short ones are remembered for a while.

    A text that is searched before it is indexed is searched again mostly.
    """
    is_short = len(text) <= SEARCH_TOKENS_KEPT_CHARS
    return _kept_tokens(text) if is_short else tokens(text)


@lru_cache(SEARCH_TOKENS_KEPT_TEXTS)
def _kept_tokens(text: str) -> TextTokens:
    return tokens(text)
