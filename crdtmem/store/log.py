"""The log of writes, and the checkpoints behind it.

A row carries its update, the change that it made to the text here (so undo, merge and
blame need no document), and a digest: a flipped bit is found before pycrdt sees it.
"""

import hashlib
import json
from typing import NamedTuple

import apsw

from crdtmem.errors import DocError
from crdtmem.store.pins import keep_steps
from crdtmem.store.rows import LogRow, read_targets

__all__ = [
    "WITHIN_STATE",
    "Checkpoint",
    "advance_stream",
    "append_row",
    "checkpoint_lsn",
    "count_rows",
    "digest_of",
    "find_doc",
    "first_unsealed",
    "forget_rows",
    "kind_of",
    "load_checkpoint",
    "log_of",
    "make_doc",
    "mark_unsealed",
    "require_intact",
    "save_checkpoint",
    "targets_of",
]


DIGEST_BYTES = 16

WITHIN_STATE = -1
"""The place of a write that went up within a state, whose number it then has.

Nobody can name it as the target of an undo.
"""


class Checkpoint(NamedTuple):
    """What is true of a doc behind its newest rows.

    Attributes:
        namespace: Of the doc.
        name: The slot's label.
        state: Squashed state of all writes up to ``lsn``; empty for none.
        lsn: See state.
        file: That state's text.
        blame: Attribution runs of that state's text, as ``doc.blame`` encodes them.
        genesis: JSON: client id of a first text to [lane, at_ms, replica hex].

    """

    namespace: str
    name: str
    state: bytes
    lsn: int
    file: str
    blame: bytes
    genesis: str
    digest: bytes = b""

    @property
    def expected_digest(self) -> bytes:
        """What the digest must be; nothing for a checkpoint that was never saved."""
        if not self.lsn:
            return b""
        parts = [self.namespace, self.name, self.lsn, self.file, self.genesis]
        digest = hashlib.sha256(json.dumps(parts).encode())
        digest.update(self.blame + self.state)
        return digest.digest()[:DIGEST_BYTES]


def digest_of(row: LogRow) -> bytes:
    """Return what the row's digest must be."""
    # No part holds a NUL: names have no control characters, and JSON escapes them.
    parts = (
        f"{row.lsn},{row.doc},{row.replica.hex()},{row.is_genesis},{row.at_ms}",
        row.lane,
        row.operation,
        row.delta,
        row.undoes or "",
        # Rows of older releases have none, and their digests stay right.
        *([] if row.note is None else [row.note]),
    )
    data = "\0".join(parts).encode() + b"\0" + row.content
    return hashlib.sha256(data).digest()[:DIGEST_BYTES]


def require_intact(row: LogRow) -> LogRow:
    """Return the row, or raise DocError if it isn't what was written."""
    if row.digest != digest_of(row):
        raise DocError(f"record {row.lsn} is damaged")
    return row


def append_row(connection: apsw.Connection, row: LogRow) -> None:
    """Write a row, with its digest filled in."""
    connection.execute(
        "INSERT INTO log VALUES (:lsn, :doc, :replica, :replica_seq, :place,"
        " :is_genesis, :lane, :at_ms, :operation, :content, :delta, :undoes, :digest,"
        " :note)",
        row._replace(digest=digest_of(row))._asdict(),
    )


def log_of(
    connection: apsw.Connection, doc: int, *, after: int, until: int | None = None
) -> list[LogRow]:
    """Return a doc's rows in log order, from one step (exclusive) to another."""
    rows = connection.execute(
        "SELECT * FROM log WHERE doc = :doc AND lsn > :after AND lsn <= :until"
        " ORDER BY lsn",
        {"doc": doc, "after": after, "until": (1 << 62) if until is None else until},
    )
    return [LogRow(*row) for row in rows]


def count_rows(connection: apsw.Connection, doc: int) -> int:
    """Return how many rows a doc has; reads the index alone."""
    count: int = connection.execute(
        "SELECT count(*) FROM log WHERE doc = :doc", {"doc": doc}
    ).get
    return count


def forget_rows(connection: apsw.Connection, doc: int, *, until: int) -> None:
    """Delete a doc's rows up to a step; a checkpoint holds them.

    What they changed stays known where a pin stands before it; see ``store.pins``.
    """
    keep_steps(connection, doc, until)
    connection.execute(
        "DELETE FROM log WHERE doc = :doc AND lsn <= :until",
        {"doc": doc, "until": until},
    )


def targets_of(row: LogRow) -> frozenset[int] | None:
    """Return the steps that a row took back, or None if it is no undo."""
    return read_targets(row.undoes)


def find_doc(connection: apsw.Connection, namespace: str, kind: int, name: str) -> int:
    """Return the number of a doc, or 0."""
    found = connection.execute(
        "SELECT doc FROM doc"
        " WHERE namespace = :namespace AND kind = :kind AND name = :name",
        {"namespace": namespace, "kind": kind, "name": name},
    ).get
    return int(found) if found is not None else 0


def kind_of(connection: apsw.Connection, doc: int) -> int:
    """Return what a doc holds, a DocKind; 0 if there is none of this number."""
    found = connection.execute(
        "SELECT kind FROM doc WHERE doc = :doc", {"doc": doc}
    ).get
    return int(found) if found is not None else 0


def make_doc(connection: apsw.Connection, namespace: str, kind: int, name: str) -> int:
    """Make a row for a doc without records and return its number."""
    connection.execute(
        "INSERT INTO doc(namespace, kind, name) VALUES (:namespace, :kind, :name)",
        {"namespace": namespace, "kind": kind, "name": name},
    )
    return connection.last_insert_rowid()


def checkpoint_lsn(connection: apsw.Connection, doc: int) -> int:
    """Return up to which step a doc's records are squashed, without the state."""
    found = connection.execute(
        "SELECT state_lsn FROM doc WHERE doc = :doc", {"doc": doc}
    ).get
    if found is None:
        raise DocError(f"doc {doc} is missing")
    return int(found)


def load_checkpoint(connection: apsw.Connection, doc: int) -> Checkpoint:
    """Return what stands behind a doc's rows."""
    for row in connection.execute(
        "SELECT namespace, name, state, state_lsn, file, blame, genesis, digest"
        " FROM doc WHERE doc = :doc",
        {"doc": doc},
    ):
        return Checkpoint(*row)
    raise DocError(f"doc {doc} is missing")


def save_checkpoint(
    connection: apsw.Connection, doc: int, checkpoint: Checkpoint
) -> None:
    """Replace what stands behind a doc's rows."""
    connection.execute(
        "UPDATE doc SET state = :state, state_lsn = :lsn, file = :file,"
        " blame = :blame, genesis = :genesis, digest = :digest WHERE doc = :doc",
        {
            "doc": doc,
            "state": checkpoint.state,
            "lsn": checkpoint.lsn,
            "file": checkpoint.file,
            "blame": checkpoint.blame,
            "genesis": checkpoint.genesis,
            "digest": checkpoint.expected_digest,
        },
    )


def mark_unsealed(connection: apsw.Connection, doc: int) -> None:
    """Note that a checkpoint holds own records that were never sealed for others."""
    connection.execute("UPDATE doc SET is_sealed = 0 WHERE doc = :doc", {"doc": doc})


def first_unsealed(connection: apsw.Connection, doc: int, namespace: str) -> int | None:
    """Return the oldest step of a doc that others still wait for, if there are others.

    It has no number yet, or the relay of a linked namespace has not acknowledged it. A
    namespace of which nothing was ever sealed has none: whoever joins it later gets
    states.
    """
    found = connection.execute(
        "SELECT min(lsn) FROM log WHERE doc = :doc AND (replica_seq IS NULL"
        " OR EXISTS (SELECT 1 FROM link WHERE link.namespace = :namespace"
        " AND link.replica = log.replica AND log.replica_seq > link.acked_seq))"
        " AND EXISTS (SELECT 1 FROM stream WHERE namespace = :namespace)",
        {"doc": doc, "namespace": namespace},
    ).get
    return None if found is None else int(found)


def advance_stream(
    connection: apsw.Connection, namespace: str, replica: bytes, seq: int
) -> None:
    """Note how far a replica's stream has been sealed or received; never back."""
    connection.execute(
        "INSERT INTO stream VALUES (:namespace, :replica, :seq)"
        " ON CONFLICT DO UPDATE SET max_seq = max(max_seq, :seq)",
        {"namespace": namespace, "replica": replica, "seq": seq},
    )
