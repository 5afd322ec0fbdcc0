"""The tables of memory sets: a step of the store's schema."""

from typing import Final

__all__ = ["SET_TABLES"]

SET_TABLES: Final = """
-- A memory set. `name` and `key_long` are empty where only the doc's name is known and
-- a hash stands for them in it. `members` are the live ones of its doc, `live_bytes`
-- their size; `unsquashed` counts those that the rows behind the checkpoint changed.
-- A set without items and header is dropped. From `oldest_rev` on its history is whole.
CREATE TABLE mset(
    doc INTEGER PRIMARY KEY REFERENCES doc,
    namespace TEXT NOT NULL,
    name_in_doc TEXT NOT NULL,
    key_long TEXT NOT NULL,
    key_short TEXT NOT NULL,
    name TEXT NOT NULL,
    rev INTEGER NOT NULL,
    item_count INTEGER NOT NULL,
    size INTEGER NOT NULL,
    state_bytes INTEGER NOT NULL,
    tombstones INTEGER NOT NULL,
    set_hash TEXT NOT NULL,
    dropped_ms INTEGER,
    created_ms INTEGER NOT NULL,
    updated_ms INTEGER NOT NULL,
    lsn INTEGER NOT NULL,
    quarantined TEXT,
    has_header INTEGER NOT NULL,
    foreign_count INTEGER NOT NULL,
    members INTEGER NOT NULL,
    live_bytes INTEGER NOT NULL,
    history_rows INTEGER NOT NULL,
    history_bytes INTEGER NOT NULL,
    oldest_rev INTEGER NOT NULL,
    unsquashed INTEGER NOT NULL,
    operation TEXT NOT NULL,
    lane TEXT NOT NULL,
    UNIQUE(namespace, name_in_doc)
) STRICT;
CREATE INDEX mset_key ON mset(namespace, key_short, name);

-- The items of a set: of each the version that is shown. `conflicts` are the others as
-- JSON, newest first, or empty. Reads end here and never load a doc.
CREATE TABLE item(
    doc INTEGER NOT NULL REFERENCES mset,
    id TEXT NOT NULL,
    text TEXT NOT NULL,
    meta TEXT NOT NULL,
    created_ms INTEGER NOT NULL,
    updated_ms INTEGER NOT NULL,
    lane TEXT NOT NULL,
    rev INTEGER NOT NULL,
    size INTEGER NOT NULL,
    sources INTEGER,
    conflicts TEXT NOT NULL,
    PRIMARY KEY(doc, id)
) STRICT;
CREATE INDEX item_created ON item(doc, created_ms, id);

-- The live members of a set's doc; the id is empty for its header and for what is no
-- version of an item.
CREATE TABLE version(
    doc INTEGER NOT NULL REFERENCES mset,
    id TEXT NOT NULL,
    member TEXT NOT NULL,
    created_ms INTEGER NOT NULL,
    updated_ms INTEGER NOT NULL,
    sources INTEGER,
    size INTEGER NOT NULL,
    bytes INTEGER NOT NULL,
    hash INTEGER NOT NULL,
    PRIMARY KEY(doc, id, member)
) STRICT, WITHOUT ROWID;

-- What each commit did to each item: `old` is the item before it as JSON, or empty.
CREATE TABLE item_history(
    doc INTEGER NOT NULL REFERENCES mset,
    rev INTEGER NOT NULL,
    n INTEGER NOT NULL,
    id TEXT NOT NULL,
    operation TEXT NOT NULL,
    lane TEXT NOT NULL,
    at_ms INTEGER NOT NULL,
    old TEXT NOT NULL,
    PRIMARY KEY(doc, rev, n)
) STRICT, WITHOUT ROWID;
CREATE INDEX item_history_id ON item_history(doc, id, rev, n);

-- What compactions took out, as `old` of the history.
CREATE TABLE item_archive(
    doc INTEGER NOT NULL REFERENCES mset,
    pass BLOB NOT NULL,
    id TEXT NOT NULL,
    at_ms INTEGER NOT NULL,
    old TEXT NOT NULL,
    PRIMARY KEY(doc, pass, id)
) STRICT, WITHOUT ROWID;

-- Who is about to compact a set, so that no other process pays for the same summary.
CREATE TABLE set_claim(
    doc INTEGER PRIMARY KEY REFERENCES mset,
    process TEXT NOT NULL,
    until_ms INTEGER NOT NULL
) STRICT;

-- What the search index does not have yet: an item, or a slot with an empty id.
CREATE TABLE search_pending(
    doc INTEGER NOT NULL,
    item TEXT NOT NULL,
    PRIMARY KEY(doc, item)
) STRICT, WITHOUT ROWID;
"""
"""Makes the tables, and the one in which texts wait for the search index."""
