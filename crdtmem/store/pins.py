"""Pins: texts of slots that something slow has begun from, followed to today.

A condense pass thinks for minutes and a mirrored file may lie for days, while 20 kept
texts go by in seconds. A pin keeps one text, and while it stands each change of the
text since, also where the rows that made it are squashed (``pin_step``).
"""

import hashlib
from typing import NamedTuple

import apsw

from crdtmem.doc.delta import Delta, Splice, decode_delta, encode_delta
from crdtmem.doc.trace import Step, Trace
from crdtmem.errors import DocError
from crdtmem.store.rows import SlotRow, read_targets
from crdtmem.textdiff import diff_lines

__all__ = [
    "Followed",
    "Pin",
    "count_deletions",
    "drop_pin",
    "find_pin",
    "follow",
    "keep_state_step",
    "keep_steps",
    "make_pin",
]

DIGEST_BYTES = 16


class Pin(NamedTuple):
    """A kept text.

    Attributes:
        pin: Its number.
        doc: Whose text.
        lsn: The newest step of the doc then.
        rev: The slot's rev then.
        file: The text file then.

    """

    pin: int
    doc: int
    lsn: int
    rev: int
    file: str


class Followed(NamedTuple):
    """A text with what was written since laid over it.

    Attributes:
        trace: From that text to the slot's text of today.
        is_exact: Whether every write since is known. If not (a repair has replaced the
            doc's records), one step stands for them all, made by comparing the texts.

    """

    trace: Trace
    is_exact: bool


def make_pin(connection: apsw.Connection, row: SlotRow, now_ms: int) -> int:
    """Pin a slot's text as its row has it, in the caller's transaction.

    Returns:
        The pin's number; it stands until ``drop_pin``.

    """
    connection.execute(
        "INSERT INTO pin(doc, lsn, rev, file, digest, made_ms)"
        " VALUES (:doc, :lsn, :rev, :file, :digest, :now)",
        {
            "doc": row.doc,
            "lsn": row.lsn,
            "rev": row.rev,
            "file": row.file,
            "digest": _digest_of(row.file),
            "now": now_ms,
        },
    )
    return connection.last_insert_rowid()


def find_pin(connection: apsw.Connection, pin: int) -> Pin | None:
    """Return a pin, or None if it was dropped.

    Raises:
        DocError: If its text is damaged.

    """
    for number, doc, lsn, rev, file, digest in connection.execute(
        "SELECT pin, doc, lsn, rev, file, digest FROM pin WHERE pin = :pin",
        {"pin": pin},
    ):
        if digest != _digest_of(file):
            raise DocError(f"the text of pin {pin} is damaged")
        return Pin(number, doc, lsn, rev, file)
    return None


def drop_pin(connection: apsw.Connection, pin: int) -> None:
    """Let a pin go, and the steps that no other pin needs; idempotent."""
    for (doc,) in connection.execute(
        "DELETE FROM pin WHERE pin = :pin RETURNING doc", {"pin": pin}
    ).fetchall():
        connection.execute(
            "DELETE FROM pin_step WHERE doc = :doc AND lsn <= coalesce("
            "(SELECT min(lsn) FROM pin WHERE doc = :doc), :last)",
            {"doc": doc, "last": 1 << 62},
        )


def follow(
    connection: apsw.Connection, pin: Pin, row: SlotRow, base: str | None = None
) -> Followed:
    """Lay over a text what was written since its pin. Costs time by those writes.

    Args:
        connection: Within a transaction.
        pin: The pin.
        row: The slot as it is now.
        base: A text that differs from the pin's: a file that has not seen some lines
            of it, for one. What the pin has besides counts as written since.

    """
    start = pin.file if base is None else base
    trace = Trace(start)
    try:
        if start != pin.file:
            trace.step(pin.lsn, _diff(start, pin.file))
        trace.replay(_steps_since(connection, pin))
    except (DocError, ValueError):
        # Of a record that a repair has taken out of the middle.
        pass
    else:
        if trace.text() == row.file:
            return Followed(trace, is_exact=True)
    trace = Trace(start)
    trace.step(row.lsn, _diff(start, row.file))
    return Followed(trace, is_exact=False)


def count_deletions(connection: apsw.Connection, pin: Pin) -> int:
    """Return how often the slot was deleted since its pin, here or elsewhere."""
    found: int = connection.execute(
        "SELECT (SELECT count(*) FROM log WHERE doc = :doc AND lsn > :lsn"
        " AND operation = 'delete') + (SELECT count(*) FROM pin_step"
        " WHERE doc = :doc AND lsn > :lsn AND operation = 'delete')",
        {"doc": pin.doc, "lsn": pin.lsn},
    ).get
    return found


def keep_steps(connection: apsw.Connection, doc: int, until: int) -> None:
    """Keep what rows of the log changed, which are about to go, if a pin needs it."""
    connection.execute(
        "INSERT OR IGNORE INTO pin_step SELECT doc, lsn, operation, delta, undoes"
        " FROM log WHERE doc = :doc AND lsn <= :until"
        " AND lsn > (SELECT min(lsn) FROM pin WHERE doc = :doc)",
        {"doc": doc, "until": until},
    )


def keep_state_step(
    connection: apsw.Connection, doc: int, lsn: int, delta: Delta
) -> None:
    """Keep what a state changed in the text, if there is a pin: it has no row."""
    connection.execute(
        "INSERT INTO pin_step SELECT :doc, :lsn, 'sync', :delta, NULL"
        " WHERE EXISTS (SELECT 1 FROM pin WHERE doc = :doc)",
        {"doc": doc, "lsn": lsn, "delta": encode_delta(delta)},
    )


def _steps_since(connection: apsw.Connection, pin: Pin) -> list[Step]:
    rows = connection.execute(
        "SELECT lsn, delta, undoes FROM pin_step WHERE doc = :doc AND lsn > :lsn"
        " UNION ALL SELECT lsn, delta, undoes FROM log WHERE doc = :doc AND lsn > :lsn"
        " ORDER BY lsn",
        {"doc": pin.doc, "lsn": pin.lsn},
    )
    return [
        Step(lsn, decode_delta(delta), read_targets(undoes))
        for lsn, delta, undoes in rows
    ]


def _diff(old: str, new: str) -> Delta:
    return tuple(Splice(*op) for op in diff_lines(old, new))


def _digest_of(file: str) -> bytes:
    return hashlib.sha256(file.encode()).digest()[:DIGEST_BYTES]
