"""The tables of the search index: a step of the store's schema.

The words stand in an FTS5 table without content of its own. It gets tokens that were
made here, with blanks between them; its tokenizer has no tables of Unicode that age.
"""

from typing import Final

__all__ = ["SEARCH_TABLES"]

SEARCH_TABLES: Final = """
-- A row of the index: an item, or a part of a slot that begins at this line. `length`
-- counts its words, `digest` is of its text. A number is never used again.
CREATE TABLE search_row(
    row INTEGER PRIMARY KEY AUTOINCREMENT,
    doc INTEGER NOT NULL,
    item TEXT NOT NULL,
    line INTEGER NOT NULL,
    length INTEGER NOT NULL,
    updated_ms INTEGER NOT NULL,
    digest BLOB NOT NULL
) STRICT;
CREATE INDEX search_row_text ON search_row(doc, item, line);

-- The sums of a doc's rows.
CREATE TABLE search_doc(
    doc INTEGER PRIMARY KEY,
    rows INTEGER NOT NULL,
    length INTEGER NOT NULL
) STRICT;

-- Of each row the scopes that it is in, its words in order, its joined identifiers.
CREATE VIRTUAL TABLE search_index USING fts5(
    s, w, x, content='', contentless_delete=1, tokenize='ascii'
);

INSERT OR IGNORE INTO search_pending SELECT doc, '' FROM slot;
"""
"""Makes the tables; what there is already is to be indexed."""
