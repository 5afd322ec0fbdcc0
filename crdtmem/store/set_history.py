"""What commits did to the items of a set, and what compactions took out.

A row holds the item as it was before, whole, so that the items of any kept rev can be
made from those of today.
"""

from collections.abc import Sequence
from typing import NamedTuple

import apsw

from crdtmem.limits import ITEM_HISTORY_BYTES, ITEM_HISTORY_ROWS
from crdtmem.store.sets import SetRow

__all__ = [
    "ItemCommit",
    "archive_items",
    "note_all_items",
    "note_items",
    "prune_archives",
    "prune_history",
]


class ItemCommit(NamedTuple):
    """What all rows of a commit have in common."""

    operation: str
    lane: str
    at_ms: int


def note_items(
    connection: apsw.Connection,
    row: SetRow,
    ids: Sequence[str],
    commit: ItemCommit,
    *,
    are_new: bool,
) -> SetRow:
    """Write the history of the row's rev, before the items change.

    Args:
        connection: In a transaction.
        row: The set; its rev is the one that the commit makes.
        ids: The items that change.
        commit: What it is.
        are_new: None of them is there yet.

    Returns:
        The row, with what its history has come to.

    """
    values = {"doc": row.doc, "rev": row.rev, **commit._asdict()}
    if are_new:
        connection.executemany(
            "INSERT INTO item_history"
            " VALUES (:doc, :rev, :n, :id, :operation, :lane, :at_ms, '')",
            [{**values, "n": n, "id": item_id} for n, item_id in enumerate(ids)],
        )
        return prune_history(
            connection, row._replace(history_rows=row.history_rows + len(ids))
        )
    connection.executemany(
        "INSERT INTO item_history SELECT :doc, :rev, :n, :id, :operation, :lane,"
        " :at_ms, coalesce((SELECT json_array(text, meta, created_ms, updated_ms, lane,"
        " rev, size, sources, conflicts) FROM item WHERE doc = :doc AND id = :id), '')",
        [{**values, "n": n, "id": item_id} for n, item_id in enumerate(ids)],
    )
    return _counted(connection, row)


def note_all_items(
    connection: apsw.Connection, row: SetRow, commit: ItemCommit
) -> SetRow:
    """Do what note_items does, for all items of the set."""
    connection.execute(
        "INSERT INTO item_history SELECT doc, :rev,"
        " row_number() OVER (ORDER BY created_ms, id) - 1, id, :operation, :lane,"
        " :at_ms, json_array(text, meta, created_ms, updated_ms, lane, rev, size,"
        " sources, conflicts) FROM item WHERE doc = :doc",
        {"doc": row.doc, "rev": row.rev, **commit._asdict()},
    )
    return _counted(connection, row)


def _counted(connection: apsw.Connection, row: SetRow) -> SetRow:
    for count, size_bytes in connection.execute(
        "SELECT count(*), coalesce(sum(octet_length(old)), 0) FROM item_history"
        " WHERE doc = :doc AND rev = :rev",
        {"doc": row.doc, "rev": row.rev},
    ):
        row = row._replace(
            history_rows=row.history_rows + count,
            history_bytes=row.history_bytes + size_bytes,
        )
    return prune_history(connection, row)


def prune_history(connection: apsw.Connection, row: SetRow) -> SetRow:
    """Let the oldest rows go that are more than a set keeps, and return its row."""
    rows_over = row.history_rows - ITEM_HISTORY_ROWS
    bytes_over = row.history_bytes - ITEM_HISTORY_BYTES
    if rows_over <= 0 and bytes_over <= 0:
        return row
    last = {"doc": row.doc, "rev": 0, "n": 0}
    for rev, n, size_bytes in connection.execute(
        "SELECT rev, n, octet_length(old) FROM item_history WHERE doc = :doc"
        " ORDER BY rev, n",
        {"doc": row.doc},
    ):
        last |= {"rev": rev, "n": n}
        rows_over -= 1
        bytes_over -= size_bytes
        if rows_over <= 0 and bytes_over <= 0:
            break
    connection.execute(
        "DELETE FROM item_history WHERE doc = :doc AND (rev, n) <= (:rev, :n)", last
    )
    return row._replace(
        history_rows=ITEM_HISTORY_ROWS + rows_over,
        history_bytes=ITEM_HISTORY_BYTES + bytes_over,
        oldest_rev=max(row.oldest_rev, last["rev"] + 1),
    )


def archive_items(
    connection: apsw.Connection,
    doc: int,
    ids: Sequence[str],
    *,
    pass_id: bytes,
    now_ms: int,
) -> None:
    """Keep items of a set under the id of a compaction, before they go."""
    connection.executemany(
        "INSERT INTO item_archive SELECT doc, :pass, id, :now, json_array(text, meta,"
        " created_ms, updated_ms, lane, rev, size, sources, conflicts) FROM item"
        " WHERE doc = :doc AND id = :id",
        [
            {"doc": doc, "pass": pass_id, "id": item_id, "now": now_ms}
            for item_id in ids
        ],
    )


def prune_archives(connection: apsw.Connection, doc: int, *, before_ms: int) -> int:
    """Let archives of a set go that are older than this; return how many items."""
    connection.execute(
        "DELETE FROM item_archive WHERE doc = :doc AND at_ms < :before",
        {"doc": doc, "before": before_ms},
    )
    return connection.changes()
