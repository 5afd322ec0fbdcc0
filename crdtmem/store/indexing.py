"""Bringing the search index up to date: after writes, after searches, on request.

A batch is one short transaction under the store's lock. It takes texts off the pending
ones and puts their rows in step, so at each commit a text either has its rows or is
pending. The index is made of the texts, so whatever befalls it stops no write.
"""

from collections.abc import Iterator
from contextlib import suppress
from hashlib import blake2b
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

import apsw

from crdtmem.doc.parts import Part, parts_of
from crdtmem.errors import StoreError
from crdtmem.limits import INDEX_BATCH_CHARS, INDEX_BATCH_ROWS
from crdtmem.store.pending import mark_pending
from crdtmem.store.search import (
    doc_token,
    item_text,
    partition_token,
    slot_file,
    slots_token,
    tokens_of,
)
from crdtmem.tokens import tokens

if TYPE_CHECKING:
    from crdtmem.store.store import Store

__all__ = [
    "count_pending",
    "empty_index",
    "index_batch",
    "index_faults",
    "index_pending",
    "index_quietly",
]

_DIGEST_BYTES = 16


class _Text(NamedTuple):
    """A text to be indexed: its scopes, its parts and when it was written."""

    scopes: str
    updated_ms: int
    parts: list[Part]


def index_pending(store: "Store", most_rows: int, *, wait_s: float) -> int:
    """Index pending texts, batch by batch, and return how many.

    Args:
        store: For writing.
        most_rows: No more than that.
        wait_s: How long to wait for the store's lock, for each batch.

    Raises:
        StoreError: If the lock was not had, or the index cannot be written; what has
            been indexed before stays so.

    """
    done = 0
    while done < most_rows:
        with store.indexing(wait_s) as connection:
            found = index_batch(connection, min(INDEX_BATCH_ROWS, most_rows - done))
        if not found:
            break
        done += found
    return done


def index_quietly(store: "Store", most_rows: int) -> None:
    """Index pending texts while nobody else writes; what does not work is left."""
    with suppress(StoreError):
        index_pending(store, most_rows, wait_s=0)


def count_pending(connection: apsw.Connection) -> int:
    """Return how many texts are pending."""
    count: int = connection.execute("SELECT count(*) FROM search_pending").get
    return count


def index_batch(connection: apsw.Connection, most_rows: int) -> int:
    """Index some pending texts in the transaction that is open; return how many."""
    pending = list(
        connection.execute(
            "SELECT doc, item FROM search_pending LIMIT :most", {"most": most_rows}
        )
    )
    done = chars = 0
    for doc, item in pending:
        if chars > INDEX_BATCH_CHARS:
            break
        text = _text_of(connection, doc, item)
        _put_in_step(connection, doc, item, text)
        connection.execute(
            "DELETE FROM search_pending WHERE doc = :doc AND item = :item",
            {"doc": doc, "item": item},
        )
        done += 1
        chars += sum(len(part.text) for part in text.parts)
    return done


def empty_index(connection: apsw.Connection) -> None:
    """Make the index empty, with every text pending; numbers of rows go on."""
    connection.execute("INSERT INTO search_index(search_index) VALUES ('delete-all')")
    connection.execute("DELETE FROM search_row")
    connection.execute("DELETE FROM search_doc")
    connection.execute("DELETE FROM search_pending")
    for doc, item in _texts(connection):
        mark_pending(connection, doc, item)


def _texts(connection: apsw.Connection) -> list[tuple[int, str]]:
    """Return doc and item of all texts."""
    docs = [doc for (doc,) in connection.execute("SELECT doc FROM mset")]
    items = (
        connection.execute("SELECT doc, id FROM item WHERE doc = :doc", {"doc": doc})
        for doc in docs
    )
    slots = connection.execute("SELECT doc, '' FROM slot")
    return [(doc, item) for doc, item in chain(slots, *items)]


def index_faults(connection: apsw.Connection) -> list[str]:
    """Return in what the index differs from the texts; pending ones are left out.

    Raises:
        apsw.Error: If it cannot be read.

    """
    expected = dict(_expected_rows(connection))
    words = _words_of_rows(connection)
    faults: list[str] = []
    sums: dict[int, tuple[int, int]] = {}
    for row, doc, item, line, length, is_pending in connection.execute(
        "SELECT row, doc, item, line, length, EXISTS (SELECT 1 FROM search_pending"
        " WHERE doc = search_row.doc AND item = search_row.item) FROM search_row"
    ):
        rows, whole = sums.get(doc, (0, 0))
        sums[doc] = rows + 1, whole + length
        found = length, words.pop(row, 0)
        if not is_pending and expected.pop((doc, item, line), None) != found:
            faults.append(f"row {row} is not that of its text")
    faults += [f"a text of doc {doc} has no row" for doc, *_ in expected]
    faults += [f"row {row} is of no text" for row in words]
    told = connection.execute("SELECT doc, rows, length FROM search_doc")
    if {doc: (rows, length) for doc, rows, length in told if rows} != sums:
        faults.append("the sums of its rows are wrong")
    return faults


def _expected_rows(
    connection: apsw.Connection,
) -> Iterator[tuple[tuple[int, str, int], tuple[int, int]]]:
    """Yield doc, item and line of each row that is due, with its length and words."""
    pending = {*connection.execute("SELECT doc, item FROM search_pending")}
    for doc, item in _texts(connection):
        if (doc, item) in pending:
            continue
        text = _text_of(connection, doc, item)
        for part in text.parts:
            w, x = tokens(part.text)
            columns = {"s": text.scopes.split(), "w": w, "x": x}
            words = sum(
                _word_hash(term, column, offset)
                for column, terms in columns.items()
                for offset, term in enumerate(terms)
            )
            yield (doc, item, part.line), (len(w), words)


def _words_of_rows(connection: apsw.Connection) -> dict[int, int]:
    """Return for each row of the index a sum over its words and their places."""
    connection.execute(
        "CREATE VIRTUAL TABLE temp.search_words"
        " USING fts5vocab(main, search_index, instance)"
    )
    found: dict[int, int] = {}
    for row, term, column, offset in connection.execute(
        "SELECT doc, term, col, offset FROM temp.search_words"
    ):
        found[row] = found.get(row, 0) + _word_hash(term, column, offset)
    connection.execute("DROP TABLE temp.search_words")
    return found


def _word_hash(term: str, column: str, offset: int) -> int:
    return hash((term, column, offset))


def _text_of(connection: apsw.Connection, doc: int, item: str) -> _Text:
    """Return a text as it is to be indexed; without parts if it is gone."""
    if item:
        found, updated_ms = item_text(connection, doc, item)
        scopes = f"{doc_token(doc)} {_scope_of_set(connection, doc)}"
        parts = [] if found is None else [Part(1, found)]
        return _Text(scopes, updated_ms, parts)
    for namespace, updated_ms in connection.execute(
        "SELECT namespace, updated_ms FROM slot WHERE doc = :doc", {"doc": doc}
    ):
        scopes = f"{doc_token(doc)} {slots_token(namespace)}"
        return _Text(scopes, updated_ms, [*parts_of(slot_file(connection, doc))])
    return _Text("", 0, [])


def _scope_of_set(connection: apsw.Connection, doc: int) -> str:
    for namespace, key_short in connection.execute(
        "SELECT namespace, key_short FROM mset WHERE doc = :doc", {"doc": doc}
    ):
        return partition_token(namespace, key_short)
    return ""


def _put_in_step(connection: apsw.Connection, doc: int, item: str, text: _Text) -> None:
    """Give a text the rows that are due, and leave those alone that it has."""
    kept = _kept_parts(connection, doc, item, text)
    change_rows = change_length = 0
    behind = text.parts[kept - 1].line if kept else 0
    stale = connection.execute(
        "SELECT row, length FROM search_row"
        " WHERE doc = :doc AND item = :item AND line > :behind",
        {"doc": doc, "item": item, "behind": behind},
    )
    for row, length in list(stale):
        values = {"row": row}
        connection.execute("DELETE FROM search_index WHERE rowid = :row", values)
        connection.execute("DELETE FROM search_row WHERE row = :row", values)
        change_rows -= 1
        change_length -= length
    for part in text.parts[kept:]:
        change_rows += 1
        change_length += _add_row(connection, doc, item, text, part)
    connection.execute(
        "UPDATE search_row SET updated_ms = :updated WHERE doc = :doc AND item = :item",
        {"doc": doc, "item": item, "updated": text.updated_ms},
    )
    connection.execute(
        "INSERT INTO search_doc VALUES (:doc, :rows, :length) ON CONFLICT(doc)"
        " DO UPDATE SET rows = rows + :rows, length = length + :length",
        {"doc": doc, "rows": change_rows, "length": change_length},
    )


def _kept_parts(connection: apsw.Connection, doc: int, item: str, text: _Text) -> int:
    """Return how many parts, from the first, have their rows: an append keeps most."""
    rows = connection.execute(
        "SELECT line, digest FROM search_row WHERE doc = :doc AND item = :item"
        " ORDER BY line",
        {"doc": doc, "item": item},
    )
    count = 0
    for (line, digest), part in zip(rows, text.parts, strict=False):
        if (line, digest) != (part.line, _digest_of(text, part)):
            break
        count += 1
    return count


def _digest_of(text: _Text, part: Part) -> bytes:
    # With the scopes: a doc may come to be of another namespace.
    whole = f"{text.scopes}\n{part.text}"
    return blake2b(whole.encode(), digest_size=_DIGEST_BYTES).digest()


def _add_row(
    connection: apsw.Connection, doc: int, item: str, text: _Text, part: Part
) -> int:
    w, x = tokens_of(part.text)
    connection.execute(
        "INSERT INTO search_row(doc, item, line, length, updated_ms, digest)"
        " VALUES (:doc, :item, :line, :length, :updated, :digest)",
        {
            "doc": doc,
            "item": item,
            "line": part.line,
            "length": len(w),
            "updated": text.updated_ms,
            "digest": _digest_of(text, part),
        },
    )
    connection.execute(
        "INSERT INTO search_index(rowid, s, w, x) VALUES (:row, :s, :w, :x)",
        {
            "row": connection.last_insert_rowid(),
            "s": text.scopes,
            "w": " ".join(w),
            "x": " ".join(x),
        },
    )
    return len(w)
