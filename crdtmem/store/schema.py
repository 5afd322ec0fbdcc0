"""The tables of a store, and how an older file becomes a newer one.

Each migration is one transaction that also raises ``user_version``, so a crash leaves
the file at the one version or at the other. A released migration is never edited: the
next change is a new one. ``MIGRATIONS[n]`` leads from version n to n + 1.
"""

from collections.abc import Mapping
from typing import Any

import apsw

from crdtmem.errors import SchemaTooNewError, StoreCorruptError
from crdtmem.store.editor_tables import EDITOR_TABLES
from crdtmem.store.search_tables import SEARCH_TABLES
from crdtmem.store.set_tables import SET_TABLES

__all__ = ["APPLICATION_ID", "MIGRATIONS", "is_current", "migrate"]

APPLICATION_ID = 0x63724D31
"""``crM1``: tells a store from any other SQLite file."""

VERSION_1 = """
-- One row: the store itself. `lsn` counts every step of the log, for ever; a context
-- other than the file's own means that the file was copied, and new ids are due.
CREATE TABLE store(
    id INTEGER PRIMARY KEY CHECK(id = 1),
    replica BLOB NOT NULL,
    context TEXT NOT NULL,
    lsn INTEGER NOT NULL,
    history_keep INTEGER NOT NULL,
    created_ms INTEGER NOT NULL
) STRICT;

-- What is true of a doc behind its newest records: the squashed state of all records
-- up to state_lsn, its text, and who wrote it (blame). `genesis` maps the client ids
-- of first texts to their author. `is_sealed` is 0 where own records went into the
-- state that had never been sealed for others: they can have it only as a state.
CREATE TABLE doc(
    doc INTEGER PRIMARY KEY,
    namespace TEXT NOT NULL,
    kind INTEGER NOT NULL,
    name TEXT NOT NULL,
    -- In front of what may be long: a column behind a long one is slow to reach.
    state_lsn INTEGER NOT NULL DEFAULT 0,
    is_sealed INTEGER NOT NULL DEFAULT 1,
    digest BLOB NOT NULL DEFAULT x'',
    state BLOB NOT NULL DEFAULT x'',
    file TEXT NOT NULL DEFAULT '',
    blame BLOB NOT NULL DEFAULT x'',
    genesis TEXT NOT NULL DEFAULT '{}',
    UNIQUE(namespace, kind, name)
) STRICT;

-- The materialised view of a slot's doc. Reads end here and never load a doc.
CREATE TABLE slot(
    doc INTEGER PRIMARY KEY REFERENCES doc,
    namespace TEXT NOT NULL,
    label TEXT NOT NULL,
    file TEXT NOT NULL,
    rev INTEGER NOT NULL,
    hash TEXT NOT NULL,
    size INTEGER NOT NULL,
    size_limit INTEGER NOT NULL,
    description TEXT NOT NULL,
    pinned INTEGER NOT NULL,
    read_only INTEGER NOT NULL,
    append_only INTEGER NOT NULL,
    deleted INTEGER NOT NULL,
    created_ms INTEGER NOT NULL,
    updated_ms INTEGER NOT NULL,
    lsn INTEGER NOT NULL,
    operation TEXT NOT NULL,
    lane TEXT NOT NULL,
    quarantined TEXT,
    UNIQUE(namespace, label)
) STRICT;
CREATE INDEX slot_lsn ON slot(lsn);

-- The log: each write as an update, and as the change it made to the text here. The
-- two numbers of its record are null until it has been sealed for others.
CREATE TABLE log(
    lsn INTEGER PRIMARY KEY,
    doc INTEGER NOT NULL REFERENCES doc,
    replica BLOB NOT NULL,
    replica_seq INTEGER,
    place INTEGER,
    is_genesis INTEGER NOT NULL,
    lane TEXT NOT NULL,
    at_ms INTEGER NOT NULL,
    operation TEXT NOT NULL,
    content BLOB NOT NULL,
    delta TEXT NOT NULL,
    undoes TEXT,
    digest BLOB NOT NULL
) STRICT;
CREATE INDEX log_doc ON log(doc, lsn);

-- What each replica has given us, by namespace: nothing is applied twice or early.
CREATE TABLE stream(
    namespace TEXT NOT NULL,
    replica BLOB NOT NULL,
    max_seq INTEGER NOT NULL,
    PRIMARY KEY(namespace, replica)
) STRICT, WITHOUT ROWID;

-- The kept texts. `place` is doc << 40 | lsn: one clustered tree, newest last, and no
-- second index to keep. The text is the one before the write.
CREATE TABLE history(
    place INTEGER PRIMARY KEY,
    first_lsn INTEGER NOT NULL,
    mark TEXT NOT NULL,
    at_ms INTEGER NOT NULL,
    operation TEXT NOT NULL,
    lane TEXT NOT NULL,
    rev INTEGER NOT NULL,
    file TEXT NOT NULL,
    hash TEXT NOT NULL,
    size INTEGER NOT NULL,
    is_imported INTEGER NOT NULL,
    undone_by INTEGER,
    undoes INTEGER,
    living INTEGER
) STRICT;

CREATE TABLE audit(
    lsn INTEGER PRIMARY KEY,
    doc INTEGER NOT NULL,
    at_ms INTEGER NOT NULL,
    replica BLOB NOT NULL,
    lanes TEXT NOT NULL,
    operation TEXT NOT NULL,
    rev_before INTEGER NOT NULL,
    rev INTEGER NOT NULL,
    size_before INTEGER NOT NULL,
    size INTEGER NOT NULL,
    details TEXT NOT NULL
) STRICT;

CREATE TABLE request(
    number INTEGER PRIMARY KEY,
    request_id TEXT NOT NULL UNIQUE,
    fingerprint BLOB NOT NULL,
    verb TEXT NOT NULL,
    at_ms INTEGER NOT NULL,
    result TEXT NOT NULL
) STRICT;

CREATE TABLE seen(
    lane TEXT NOT NULL,
    namespace TEXT NOT NULL,
    label TEXT NOT NULL,
    rev INTEGER NOT NULL,
    PRIMARY KEY(lane, namespace, label)
) STRICT, WITHOUT ROWID;

-- Records that were refused, with what was wrong; nothing is thrown away.
CREATE TABLE quarantine(
    id INTEGER PRIMARY KEY,
    doc INTEGER NOT NULL,
    lsn INTEGER NOT NULL,
    replica BLOB NOT NULL,
    code TEXT NOT NULL,
    content BLOB NOT NULL,
    at_ms INTEGER NOT NULL
) STRICT;
"""

VERSION_2 = """
-- Where a namespace is synced: one relay at a time. The cursor is the place in the
-- relay's log up to which its records have been applied here, in the same transaction.
-- `sealed_seq` and `acked_seq` count this replica's own stream of records; up to
-- `sealed_lsn` the log has nothing to seal but in docs that are blocked. From the step
-- `rebase_due` on, own writes must be written anew under other ids; 0 for none.
CREATE TABLE link(
    link INTEGER PRIMARY KEY,
    namespace TEXT NOT NULL UNIQUE,
    remote TEXT NOT NULL,
    url TEXT NOT NULL,
    token_file TEXT NOT NULL,
    options TEXT NOT NULL,
    relay_id BLOB NOT NULL DEFAULT x'',
    epoch BLOB NOT NULL DEFAULT x'',
    cursor_seq INTEGER NOT NULL DEFAULT 0,
    cursor_chain BLOB NOT NULL DEFAULT x'',
    replica BLOB NOT NULL,
    sealed_seq INTEGER NOT NULL DEFAULT 0,
    sealed_lsn INTEGER NOT NULL DEFAULT 0,
    acked_seq INTEGER NOT NULL DEFAULT 0,
    acked_id BLOB NOT NULL DEFAULT x'',
    rebase_due INTEGER NOT NULL DEFAULT 0,
    skipped INTEGER NOT NULL DEFAULT 0,
    alarms TEXT NOT NULL DEFAULT '[]',
    status TEXT NOT NULL DEFAULT '{}',
    created_ms INTEGER NOT NULL
) STRICT;

-- Own records in the order of their stream, sealed once and sent byte for byte until
-- the relay has them; `record` is null once it is acknowledged, and the row goes when
-- its seq has come by.
CREATE TABLE outbox(
    link INTEGER NOT NULL REFERENCES link,
    replica_seq INTEGER NOT NULL,
    doc INTEGER NOT NULL REFERENCES doc,
    kind INTEGER NOT NULL,
    record_id BLOB NOT NULL,
    record BLOB,
    PRIMARY KEY(link, replica_seq)
) STRICT, WITHOUT ROWID;

-- The newest records that came by, whoever wrote them; nothing is applied twice.
CREATE TABLE sync_seen(
    link INTEGER NOT NULL REFERENCES link,
    seq INTEGER NOT NULL,
    record_id BLOB NOT NULL,
    doc_tag BLOB NOT NULL,
    PRIMARY KEY(link, seq)
) STRICT, WITHOUT ROWID;
CREATE INDEX sync_seen_id ON sync_seen(link, record_id);

CREATE TABLE chain_sample(
    link INTEGER NOT NULL REFERENCES link,
    seq INTEGER NOT NULL,
    chain BLOB NOT NULL,
    PRIMARY KEY(link, seq)
) STRICT, WITHOUT ROWID;

-- What sync knows of a doc. With `state_needed` others can have it only as a state;
-- `blocked` is why the relay does not take it; from `held_from` on what came waits.
CREATE TABLE sync_doc(
    link INTEGER NOT NULL REFERENCES link,
    doc INTEGER NOT NULL REFERENCES doc,
    doc_tag BLOB NOT NULL,
    last_seq INTEGER NOT NULL DEFAULT 0,
    snap_seq INTEGER NOT NULL DEFAULT 0,
    snap_size INTEGER NOT NULL DEFAULT 0,
    live_bytes INTEGER NOT NULL DEFAULT 0,
    live_records INTEGER NOT NULL DEFAULT 0,
    state_needed INTEGER NOT NULL DEFAULT 0,
    blocked TEXT NOT NULL DEFAULT '',
    held_from INTEGER,
    PRIMARY KEY(link, doc)
) STRICT, WITHOUT ROWID;
CREATE INDEX sync_doc_tag ON sync_doc(link, doc_tag);
CREATE INDEX sync_doc_state_needed ON sync_doc(link, doc) WHERE state_needed;
CREATE INDEX sync_doc_blocked ON sync_doc(link, doc) WHERE blocked != '';

-- Records of docs that are held: the one that was refused, with its code, and those
-- that came behind it, with none.
CREATE TABLE held(
    link INTEGER NOT NULL REFERENCES link,
    seq INTEGER NOT NULL,
    doc INTEGER NOT NULL,
    record_id BLOB NOT NULL,
    code TEXT NOT NULL,
    record BLOB NOT NULL,
    at_ms INTEGER NOT NULL,
    PRIMARY KEY(link, seq)
) STRICT, WITHOUT ROWID;
"""

VERSION_3 = """
-- What a write tells other stores beside its update: which condense pass it is of.
ALTER TABLE log ADD COLUMN note TEXT;

-- A text that something slow has begun from: a condense pass, a mirrored file. What was
-- written since can be followed from it however much is squashed: the changes of rows
-- that go are kept as steps while there is a pin behind them.
CREATE TABLE pin(
    pin INTEGER PRIMARY KEY,
    doc INTEGER NOT NULL REFERENCES doc,
    lsn INTEGER NOT NULL,
    rev INTEGER NOT NULL,
    file TEXT NOT NULL,
    digest BLOB NOT NULL,
    made_ms INTEGER NOT NULL
) STRICT;
CREATE INDEX pin_doc ON pin(doc, lsn);

CREATE TABLE pin_step(
    doc INTEGER NOT NULL,
    lsn INTEGER NOT NULL,
    operation TEXT NOT NULL,
    delta TEXT NOT NULL,
    undoes TEXT,
    PRIMARY KEY(doc, lsn)
) STRICT, WITHOUT ROWID;

-- Condense passes, others' too (`is_remote`): those have no pin and are committed.
-- `state` is open, committed, aborted, expired or undone; `after` is the pass whose
-- condensed text this one began from. `settings` and `result` are JSON.
CREATE TABLE condense_pass(
    number INTEGER PRIMARY KEY,
    pass TEXT NOT NULL UNIQUE,
    doc INTEGER NOT NULL REFERENCES doc,
    namespace TEXT NOT NULL,
    label TEXT NOT NULL,
    lane TEXT NOT NULL,
    summariser TEXT NOT NULL,
    state TEXT NOT NULL,
    reason TEXT NOT NULL,
    after TEXT,
    is_remote INTEGER NOT NULL,
    base_rev INTEGER NOT NULL,
    base_hash TEXT NOT NULL,
    pin INTEGER,
    archive BLOB NOT NULL,
    settings TEXT NOT NULL,
    reply BLOB,
    result TEXT,
    lsn INTEGER,
    begun_ms INTEGER NOT NULL,
    expires_ms INTEGER NOT NULL,
    ended_ms INTEGER
) STRICT;
CREATE INDEX condense_pass_doc ON condense_pass(doc, number);
CREATE INDEX condense_pass_open ON condense_pass(doc) WHERE state = 'open';
CREATE INDEX condense_pass_archive ON condense_pass(archive);
CREATE INDEX condense_pass_after ON condense_pass(doc, after);
CREATE INDEX condense_pass_failed ON condense_pass(ended_ms)
    WHERE state IN ('aborted', 'expired');

-- What passes take out, before a summariser sees it: one copy of equal text a doc.
-- `kind` is evicted or condensed, `heading` the section's line or empty.
CREATE TABLE condense_archive(
    doc INTEGER NOT NULL,
    archive BLOB NOT NULL,
    position INTEGER NOT NULL,
    kind TEXT NOT NULL,
    heading TEXT NOT NULL,
    text TEXT NOT NULL,
    at_ms INTEGER NOT NULL,
    PRIMARY KEY(doc, archive, position)
) STRICT, WITHOUT ROWID;

-- Who waits before the next attempt, and how often it failed in a row: a slot
-- (`doc/<number>`) or a summariser (`summariser/<name>`); `size_bytes` is that of the
-- text that came out not smaller.
CREATE TABLE condense_wait(
    who TEXT PRIMARY KEY,
    reason TEXT NOT NULL,
    failures INTEGER NOT NULL,
    until_ms INTEGER NOT NULL,
    size_bytes INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- What condense and mirrors did and could not do; `details` is JSON without texts.
CREATE TABLE event(
    event INTEGER PRIMARY KEY AUTOINCREMENT,
    at_ms INTEGER NOT NULL,
    kind TEXT NOT NULL,
    namespace TEXT NOT NULL,
    label TEXT NOT NULL,
    details TEXT NOT NULL
) STRICT;
CREATE INDEX event_label ON event(namespace, label, event);

-- A folder of Markdown files, bound to a namespace for good.
CREATE TABLE mirror(
    mirror TEXT PRIMARY KEY,
    namespace TEXT NOT NULL,
    folder TEXT NOT NULL,
    dev INTEGER NOT NULL,
    ino INTEGER NOT NULL,
    made_ms INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- A file and the slot it is bound to. `base` is the bytes last known to be both in the
-- file and in the slot (zlib), `pin` the text of the slot then; with `is_stale` a tool
-- had made them from an older text. `blocked` is why it is
-- left alone, `blocked_by` the digest of the bytes and the rev that it was said of.
-- `intent` is a swap in progress, as JSON, and `intent_base` what it puts there.
CREATE TABLE mirror_file(
    mirror TEXT NOT NULL REFERENCES mirror,
    name TEXT NOT NULL,
    label TEXT NOT NULL,
    dev INTEGER NOT NULL,
    ino INTEGER NOT NULL,
    size INTEGER NOT NULL,
    mtime_ns INTEGER NOT NULL,
    ctime_ns INTEGER NOT NULL,
    bom INTEGER NOT NULL,
    eol TEXT NOT NULL,
    base BLOB NOT NULL,
    is_stale INTEGER NOT NULL DEFAULT 0,
    pin INTEGER NOT NULL,
    blocked TEXT NOT NULL DEFAULT '',
    blocked_by TEXT NOT NULL DEFAULT '',
    intent TEXT,
    intent_base BLOB,
    PRIMARY KEY(mirror, name),
    UNIQUE(mirror, label)
) STRICT, WITHOUT ROWID;

-- The texts that a file had of late before the one it has: a tool may save over it what
-- it made from one of them.
CREATE TABLE mirror_text(
    number INTEGER PRIMARY KEY,
    mirror TEXT NOT NULL REFERENCES mirror,
    name TEXT NOT NULL,
    base BLOB NOT NULL,
    is_stale INTEGER NOT NULL,
    pin INTEGER NOT NULL,
    at_ms INTEGER NOT NULL
) STRICT;
CREATE INDEX mirror_text_name ON mirror_text(mirror, name, number);

-- A file that was swapped out and may still be written to by who has it open.
CREATE TABLE mirror_retired(
    number INTEGER PRIMARY KEY,
    mirror TEXT NOT NULL REFERENCES mirror,
    swap_name TEXT NOT NULL,
    name TEXT NOT NULL,
    label TEXT NOT NULL,
    dev INTEGER NOT NULL,
    ino INTEGER NOT NULL,
    bom INTEGER NOT NULL,
    eol TEXT NOT NULL,
    base BLOB NOT NULL,
    pin INTEGER NOT NULL,
    at_ms INTEGER NOT NULL,
    UNIQUE(mirror, swap_name)
) STRICT;

-- Whether a pin is still needed is asked at each import.
CREATE INDEX mirror_file_pin ON mirror_file(pin);
CREATE INDEX mirror_file_ino ON mirror_file(mirror, ino);
CREATE INDEX mirror_text_pin ON mirror_text(pin);
CREATE INDEX mirror_retired_pin ON mirror_retired(pin);
"""

VERSION_4 = """
-- Of an encrypted namespace: the newest key that its writers were told of, or 0. Up to
-- `receipt_seq` the log was in the last receipt, which was written at `receipt_ms`.
ALTER TABLE link ADD COLUMN key_id INTEGER NOT NULL DEFAULT 0;
ALTER TABLE link ADD COLUMN receipt_seq INTEGER NOT NULL DEFAULT 0;
ALTER TABLE link ADD COLUMN receipt_ms INTEGER NOT NULL DEFAULT 0;

-- Whether a snapshot under the newest key is due.
ALTER TABLE sync_doc ADD COLUMN rekey INTEGER NOT NULL DEFAULT 0;

-- Records that belong to no doc have the doc 0 there.
CREATE TABLE outbox_4(
    link INTEGER NOT NULL REFERENCES link,
    replica_seq INTEGER NOT NULL,
    doc INTEGER NOT NULL,
    kind INTEGER NOT NULL,
    record_id BLOB NOT NULL,
    record BLOB,
    PRIMARY KEY(link, replica_seq)
) STRICT, WITHOUT ROWID;
INSERT INTO outbox_4 SELECT * FROM outbox;
DROP TABLE outbox;
ALTER TABLE outbox_4 RENAME TO outbox;
"""

MIGRATIONS = (
    VERSION_1,
    VERSION_2,
    VERSION_3,
    VERSION_4,
    SET_TABLES,
    SEARCH_TABLES,
    EDITOR_TABLES,
)


def is_current(connection: apsw.Connection, path: str) -> bool:
    """Tell whether the file has today's tables; writes nothing.

    Raises:
        SchemaTooNewError: If a newer release has written it.
        StoreCorruptError: If it is another program's database.

    """
    # One statement, thus one state: another process may be making the store just now.
    rows: list[Any] = connection.execute(
        "SELECT user_version, application_id, (SELECT count(*) FROM sqlite_schema)"
        " FROM pragma_user_version, pragma_application_id"
    ).fetchall()
    found, application, tables = rows[0]
    # SQLite files of other programs mostly have no application id at all, so a file
    # without ours counts as fresh only while it has no tables and no version either.
    if application != APPLICATION_ID and (application or tables or found):
        raise StoreCorruptError(path=path, reason="it is no store of crdtmem")
    if found > len(MIGRATIONS):
        raise SchemaTooNewError(path=path, found=found, known=len(MIGRATIONS))
    return bool(application == APPLICATION_ID and found == len(MIGRATIONS))


def migrate(
    connection: apsw.Connection,
    path: str,
    *,
    replica: bytes,
    context: str,
    history_keep: int,
    now_ms: int,
) -> None:
    """Bring the file to today's tables, one transaction a step.

    The caller holds the store's write lock. Repeatable: what another process has done
    meanwhile is not done again.

    Args:
        connection: Open for writing, in WAL mode.
        path: For the sentence of an error.
        replica: Id of a store that is made here.
        context: Where a store that is made here lies.
        history_keep: Kept texts a slot, in a store that is made here.
        now_ms: When a store that is made here was made.

    """
    store = {
        "replica": replica,
        "context": context,
        "keep": history_keep,
        "now": now_ms,
    }
    while not is_current(connection, path):
        with connection:
            _step(connection, store)


def _step(connection: apsw.Connection, store: Mapping[str, Any]) -> None:
    """Make one migration; the first one makes the store's row, too."""
    found = connection.pragma("user_version")
    connection.execute(MIGRATIONS[found])
    if found == 0:
        connection.execute(
            "INSERT INTO store VALUES (1, :replica, :context, 0, :keep, :now)", store
        )
    connection.pragma("user_version", found + 1)
    connection.pragma("application_id", APPLICATION_ID)
