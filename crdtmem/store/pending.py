"""Texts that the search index does not have yet.

Written with the text, in its transaction: a row costs a tenth of what indexing does.
"""

import apsw

__all__ = ["is_indexing_due", "mark_pending"]


def mark_pending(connection: apsw.Connection, doc: int, item: str = "") -> None:
    """Note that a text has changed: that of an item, or of a slot with an empty id."""
    connection.execute(
        "INSERT OR IGNORE INTO search_pending VALUES (:doc, :item)",
        {"doc": doc, "item": item},
    )


def is_indexing_due(connection: apsw.Connection, least_rows: int) -> bool:
    """Tell whether at least so many texts are pending."""
    count: int = connection.execute(
        "SELECT count(*) FROM (SELECT 1 FROM search_pending LIMIT :least)",
        {"least": least_rows},
    ).get
    return count >= least_rows
