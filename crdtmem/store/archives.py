"""What condense passes take out of slots: one copy of equal text a doc.

A pass refers to its archive by digest, so the retry of a pass over an unchanged text
adds no copy. The archive of a pass goes with the pass, and that of a committed one
stays.
"""

import hashlib
from collections.abc import Sequence
from typing import NamedTuple

import apsw

from crdtmem.limits import UNREFERRED_ARCHIVE_MS

__all__ = [
    "ArchivePart",
    "archive_digest",
    "drop_old_archives",
    "read_archive",
    "save_archive",
]


class ArchivePart(NamedTuple):
    """A part that a pass takes out.

    Attributes:
        kind: ``evicted``, or ``condensed`` for what was condensed before.
        heading: Its heading line without the end, or empty.
        text: The part.

    """

    kind: str
    heading: str
    text: str


def archive_digest(parts: Sequence[ArchivePart]) -> bytes:
    """Return the SHA-256 of the parts' texts, one behind the other."""
    return hashlib.sha256("".join(part.text for part in parts).encode()).digest()


def save_archive(
    connection: apsw.Connection, doc: int, parts: Sequence[ArchivePart], now_ms: int
) -> bytes:
    """Keep the parts, unless they are kept already, and return their digest.

    Args:
        connection: In the transaction of the pass that refers to them.
        doc: Whose text they were.
        parts: In the order of the file.
        now_ms: From when on their age counts.

    """
    digest = archive_digest(parts)
    kept = {"doc": doc, "archive": digest, "now": now_ms}
    connection.execute(
        "UPDATE condense_archive SET at_ms = :now"
        " WHERE doc = :doc AND archive = :archive",
        kept,
    )
    # Equal text may have been cut otherwise; the parts of the two must not mix.
    if not connection.changes():
        connection.executemany(
            "INSERT INTO condense_archive VALUES"
            " (:doc, :archive, :position, :kind, :heading, :text, :now)",
            [
                {**kept, "position": position, **part._asdict()}
                for position, part in enumerate(parts)
            ],
        )
    return digest


def read_archive(
    connection: apsw.Connection, doc: int, digest: bytes
) -> list[ArchivePart]:
    """Return the parts of an archive, in the order of the file."""
    rows = connection.execute(
        "SELECT kind, heading, text FROM condense_archive"
        " WHERE doc = :doc AND archive = :archive ORDER BY position",
        {"doc": doc, "archive": digest},
    )
    return [ArchivePart(*row) for row in rows]


def drop_old_archives(
    connection: apsw.Connection, now_ms: int, max_bytes: int | None = None
) -> None:
    """Drop passes that failed long ago, and the archives that no pass refers to.

    Args:
        connection: In a transaction.
        now_ms: The time.
        max_bytes: What archives of all docs may take; the oldest go first, but never
            that of an open pass. None for no bound.

    """
    old = connection.execute(
        "DELETE FROM condense_pass WHERE state IN ('aborted', 'expired')"
        " AND ended_ms < :old RETURNING doc, archive",
        {"old": now_ms - UNREFERRED_ARCHIVE_MS},
    ).fetchall()
    connection.executemany(
        "DELETE FROM condense_archive WHERE doc = :doc AND archive = :archive"
        " AND NOT EXISTS (SELECT 1 FROM condense_pass"
        " WHERE doc = :doc AND archive = :archive)",
        [{"doc": doc, "archive": archive} for doc, archive in old],
    )
    if max_bytes is not None:
        connection.execute(
            "WITH whole AS (SELECT doc, archive, max(at_ms) AS at_ms,"
            " sum(length(CAST(text AS BLOB))) AS bytes FROM condense_archive"
            " GROUP BY doc, archive), gone AS (SELECT doc, archive, sum(bytes) OVER"
            " (ORDER BY at_ms DESC, archive) AS kept_bytes FROM whole)"
            " DELETE FROM condense_archive WHERE (doc, archive) IN"
            " (SELECT doc, archive FROM gone WHERE kept_bytes > :most)"
            " AND NOT EXISTS (SELECT 1 FROM condense_pass WHERE state = 'open'"
            " AND condense_pass.archive = condense_archive.archive"
            " AND condense_pass.doc = condense_archive.doc)",
            {"most": max_bytes},
        )
