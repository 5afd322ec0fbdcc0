"""The kept texts of a slot, each with the commit that displaced it."""

import apsw

from crdtmem.store.rows import PLACE_BITS, EntryRow

__all__ = [
    "add_entry",
    "entries_of",
    "entry_at",
    "entry_of_rev",
    "link_redo",
    "mark_undone",
    "place_bounds",
    "prune_entries",
]


def place_bounds(doc: int) -> dict[str, int]:
    """Return between which places the entries of a doc stand."""
    return {"low": doc << PLACE_BITS, "high": (doc + 1) << PLACE_BITS}


def add_entry(connection: apsw.Connection, entry: EntryRow) -> None:
    """Write a new entry."""
    connection.execute(
        "INSERT INTO history VALUES (:place, :first_lsn, :mark, :at_ms, :operation,"
        " :lane, :rev, :file, :hash, :size, :is_imported, :undone_by, :undoes,"
        " :living)",
        entry._asdict(),
    )


def entries_of(
    connection: apsw.Connection,
    doc: int,
    *,
    before: int | None = None,
    limit: int = -1,
) -> list[EntryRow]:
    """Return a doc's entries, newest first; ``before`` is a place, exclusive."""
    bounds = place_bounds(doc)
    if before is not None:
        bounds["high"] = before
    rows = connection.execute(
        "SELECT * FROM history WHERE place >= :low AND place < :high"
        " ORDER BY place DESC LIMIT :limit",
        {**bounds, "limit": limit},
    )
    return [EntryRow(*row) for row in rows]


def entry_at(connection: apsw.Connection, place: int) -> EntryRow | None:
    """Return the entry with that key."""
    for row in connection.execute(
        "SELECT * FROM history WHERE place = :place", {"place": place}
    ):
        return EntryRow(*row)
    return None


def entry_of_rev(connection: apsw.Connection, doc: int, rev: int) -> EntryRow | None:
    """Return the entry that holds the text of a rev."""
    for row in connection.execute(
        "SELECT * FROM history WHERE place >= :low AND place < :high AND rev = :rev"
        " ORDER BY place DESC LIMIT 1",
        {**place_bounds(doc), "rev": rev},
    ):
        return EntryRow(*row)
    return None


def mark_undone(connection: apsw.Connection, place: int, by: int) -> None:
    """Note which undo took a commit back."""
    connection.execute(
        "UPDATE history SET undone_by = :by WHERE place = :place",
        {"place": place, "by": by},
    )


def link_redo(connection: apsw.Connection, place: int, redo: int) -> None:
    """Take the mark off a commit whose undo was undone; the redo holds it now."""
    connection.execute(
        "UPDATE history SET undone_by = NULL, living = :redo WHERE place = :place",
        {"place": place, "redo": redo},
    )


def prune_entries(connection: apsw.Connection, doc: int, keep: int) -> None:
    """Keep a doc's newest entries only."""
    connection.execute(
        "DELETE FROM history WHERE place >= :low AND place <= coalesce((SELECT place"
        " FROM history WHERE place >= :low AND place < :high"
        " ORDER BY place DESC LIMIT 1 OFFSET :keep), -1)",
        {**place_bounds(doc), "keep": keep},
    )
