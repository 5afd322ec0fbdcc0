"""Records that cannot be applied yet, each in its place of the relay's log.

A doc is held from the first of them on: what comes later may build on it. The one that
was refused has the code of the rule that it breaks; the others wait behind it and have
none. Where all have none, a state waits for this store's own writes to be sent.
"""

from collections.abc import Collection
from typing import Any, NamedTuple

import apsw

from crdtmem.errors import RecordMalformedError
from crdtmem.protocol.records import parse_header
from crdtmem.sealing import UNKNOWN_KEY, WRONG_KEY
from crdtmem.store.links import Link
from crdtmem.store.states import must_wait
from crdtmem.store.write import Transaction

__all__ = [
    "NO_DOC",
    "Arrival",
    "adopt_held",
    "count_held",
    "has_hole",
    "held_codes",
    "hold",
    "is_held",
    "locked_docs",
    "ready_docs",
    "release_held",
]

NO_DOC = 0
"""Stands for the doc of a record that does not tell which it is of."""


class Arrival(NamedTuple):
    """A record that came, and its place in the log."""

    seq: int
    record_id: bytes
    record: bytes


def hold(
    transaction: Transaction, link: Link, doc: int, arrival: Arrival, code: str
) -> None:
    """Keep a record for later, and its doc from taking any behind it."""
    transaction.connection.execute(
        "INSERT OR REPLACE INTO held"
        " VALUES (:link, :seq, :doc, :id, :code, :record, :now)",
        {
            "link": link.link,
            "seq": arrival.seq,
            "doc": doc,
            "id": arrival.record_id,
            "code": code,
            "record": arrival.record,
            "now": transaction.now_ms,
        },
    )
    _hold_from(transaction.connection, link, doc, arrival.seq)


def is_held(connection: apsw.Connection, link: Link, doc: int) -> bool:
    """Tell whether what comes for a doc has to wait."""
    held_from = connection.execute(
        "SELECT held_from FROM sync_doc WHERE link = :link AND doc = :doc",
        {"link": link.link, "doc": doc},
    ).get
    return held_from is not None


def release_held(connection: apsw.Connection, link: Link, doc: int) -> list[Arrival]:
    """Take a doc's records out, in the order of the log; it is held no more."""
    values = {"link": link.link, "doc": doc}
    rows: list[Any] = connection.execute(
        "SELECT seq, record_id, record FROM held"
        " WHERE link = :link AND doc = :doc ORDER BY seq",
        values,
    ).fetchall()
    connection.execute("DELETE FROM held WHERE link = :link AND doc = :doc", values)
    connection.execute(
        "UPDATE sync_doc SET held_from = NULL WHERE link = :link AND doc = :doc", values
    )
    return [Arrival(*row) for row in rows]


def adopt_held(
    connection: apsw.Connection, link: Link, doc: int, arrival: Arrival
) -> None:
    """Hold a doc behind earlier records of its tag that did not tell its name.

    Args:
        connection: In a transaction.
        link: The link.
        doc: The doc.
        arrival: The first record that told its name.

    """
    values = {
        "link": link.link,
        "doc": doc,
        "none": NO_DOC,
        "tag": parse_header(arrival.record).doc_tag,
        "seq": arrival.seq,
        "malformed": RecordMalformedError.code,
    }
    # The tag stands behind the first four bytes of a record that has a header at all.
    first = connection.execute(
        "SELECT min(seq) FROM held WHERE link = :link AND doc = :none"
        " AND seq < :seq AND substr(record, 5, 16) = :tag AND code != :malformed",
        values,
    ).get
    if first is not None:
        connection.execute(
            "UPDATE held SET doc = :doc WHERE link = :link AND doc = :none"
            " AND substr(record, 5, 16) = :tag AND code != :malformed",
            values,
        )
        _hold_from(connection, link, doc, first)


def ready_docs(connection: apsw.Connection, link: Link) -> list[int]:
    """Return the docs whose held records wait for nothing any more.

    They have waited until the relay had acknowledged all that was written here, or for
    a rebase.
    """
    if link.is_rebase_due:
        return []
    rows: list[Any] = connection.execute(
        "SELECT doc FROM held WHERE link = :link GROUP BY doc HAVING max(code) = ''",
        {"link": link.link},
    ).fetchall()
    return [int(doc) for (doc,) in rows if not must_wait(connection, doc)]


def locked_docs(
    connection: apsw.Connection, link: Link, key_ids: Collection[int]
) -> list[int]:
    """Return the docs that wait with a record under one of these keys; perhaps NO_DOC.

    Also where it had another secret under that id: it may have the right one by now.

    Args:
        connection: In a transaction.
        link: The link.
        key_ids: The keys that are at hand.

    """
    rows: list[Any] = connection.execute(
        "SELECT doc, record FROM held WHERE link = :link AND code IN (:locked, :wrong)",
        {"link": link.link, "locked": UNKNOWN_KEY, "wrong": WRONG_KEY},
    ).fetchall()
    return sorted({doc for doc, rec in rows if parse_header(rec).key_id in key_ids})


def has_hole(connection: apsw.Connection, link: Link, doc: int) -> bool:
    """Tell whether the relay has dropped records of a doc that never were here.

    Until the snapshot has come that covers them, none may be made here: it would take
    the place of that one.
    """
    found = connection.execute(
        "SELECT 1 FROM sync_doc JOIN sync_seen INDEXED BY sync_seen_id"
        " USING (link, doc_tag)"
        " WHERE link = :link AND doc = :doc AND record_id = x'' AND seq > snap_seq",
        {"link": link.link, "doc": doc},
    ).get
    return found is not None


def held_codes(connection: apsw.Connection, link: Link) -> set[str]:
    """Return the codes of all records that wait; "" for those behind others."""
    rows = connection.execute(
        "SELECT DISTINCT code FROM held WHERE link = :link", {"link": link.link}
    )
    return {str(code) for (code,) in rows}


def count_held(connection: apsw.Connection, link: Link, doc: int) -> int:
    """Return how many records of a doc wait."""
    count = connection.execute(
        "SELECT count(*) FROM held WHERE link = :link AND doc = :doc",
        {"link": link.link, "doc": doc},
    ).get
    return int(count)


def _hold_from(connection: apsw.Connection, link: Link, doc: int, seq: int) -> None:
    connection.execute(
        "UPDATE sync_doc SET held_from = min(coalesce(held_from, :seq), :seq)"
        " WHERE link = :link AND doc = :doc",
        {"link": link.link, "doc": doc, "seq": seq},
    )
