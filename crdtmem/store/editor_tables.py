"""The tables of editor docs: a step of the store's schema."""

from typing import Final

__all__ = ["EDITOR_TABLES"]

EDITOR_TABLES: Final = """
-- The document that the editors of a slot share. It belongs to one store file: `place`
-- says which, and in a copy another `incarnation` begins. `gid` is the client id under
-- which the gateway writes, drawn anew with each `replica`. `state` is that of the rows
-- up to `n_state`, `n` the newest row; up to `n_folded` the slot has what was typed:
-- its text then is `text` (`rev`), pinned as `pin` (0: it had no document). `blocked`
-- is why what was typed since cannot become part of it.
CREATE TABLE editor_doc(
    editor INTEGER PRIMARY KEY,
    namespace TEXT NOT NULL,
    label TEXT NOT NULL,
    incarnation TEXT NOT NULL,
    place TEXT NOT NULL,
    replica BLOB NOT NULL,
    anchor INTEGER NOT NULL,
    gid INTEGER NOT NULL,
    n_state INTEGER NOT NULL,
    n INTEGER NOT NULL,
    n_folded INTEGER NOT NULL,
    rev INTEGER NOT NULL,
    pin INTEGER NOT NULL,
    blocked TEXT NOT NULL,
    touched_ms INTEGER NOT NULL,
    digest BLOB NOT NULL,
    state BLOB NOT NULL,
    text TEXT NOT NULL,
    UNIQUE(namespace, label)
) STRICT;

-- What editors typed, and what followed from elsewhere (with no lane), as updates and
-- as changes of the text.
CREATE TABLE editor_log(
    editor INTEGER NOT NULL REFERENCES editor_doc,
    n INTEGER NOT NULL,
    lane TEXT NOT NULL,
    at_ms INTEGER NOT NULL,
    digest BLOB NOT NULL,
    content BLOB NOT NULL,
    delta TEXT NOT NULL,
    PRIMARY KEY(editor, n)
) STRICT, WITHOUT ROWID;

-- Texts of editors that had another document, for their owners to copy from.
CREATE TABLE editor_rescue(
    rescue INTEGER PRIMARY KEY,
    namespace TEXT NOT NULL,
    label TEXT NOT NULL,
    lane TEXT NOT NULL,
    at_ms INTEGER NOT NULL,
    text TEXT NOT NULL
) STRICT;
"""
