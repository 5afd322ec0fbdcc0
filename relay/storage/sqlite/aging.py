"""How payloads that a snapshot covers go: by running time, never by the clock alone.

A relay counts how long it has been seen running. A clock that is set years ahead, or a
relay that was switched off for weeks, cuts no grace short.
"""

from typing import Any

import apsw

from crdtmem.limits import DROP_STEP_MS
from crdtmem.protocol.records import HEADER_BYTES
from relay.storage import SweepReport
from relay.storage.sqlite.schema import SEQ_BITS

__all__ = ["advance_age", "clear_payloads", "drop_payloads"]


def advance_age(connection: apsw.Connection, now_ms: int) -> int:
    """Count the time since the last sweep, within bounds; return the age.

    The caller has the transaction.
    """
    age_ms, at_ms = connection.execute("SELECT aged_ms, aged_at_ms FROM relay").get
    age_ms += min(max(now_ms - at_ms, 0), DROP_STEP_MS)
    connection.execute(
        "UPDATE relay SET aged_ms = :age, aged_at_ms = :now",
        {"age": age_ms, "now": now_ms},
    )
    return int(age_ms)


def drop_payloads(connection: apsw.Connection, age_ms: int, limit: int) -> SweepReport:
    """Drop the payloads that are due, the longest due first.

    The rows stay, and with them chain, numbers and ids. The caller has the transaction.
    """
    due: list[Any] = connection.execute(
        "SELECT id, doc_no, :header + length(payload) FROM log"
        " WHERE drop_at <= :age ORDER BY drop_at, id LIMIT :limit",
        {"age": age_ms, "header": HEADER_BYTES, "limit": limit + 1},
    ).fetchall()
    dropped = due[:limit]
    clear_payloads(connection, [row_id for row_id, _, _ in dropped])
    freed: dict[int, int] = {}
    last: dict[int, int] = {}
    for row_id, doc_no, size_bytes in dropped:
        ns_no, seq = row_id >> SEQ_BITS, row_id & ((1 << SEQ_BITS) - 1)
        freed[ns_no] = freed.get(ns_no, 0) + size_bytes
        last[doc_no] = max(last.get(doc_no, 0), seq)
    connection.executemany(
        "UPDATE doc SET dropped_seq = max(dropped_seq, :seq) WHERE doc_no = :doc_no",
        [{"doc_no": doc_no, "seq": seq} for doc_no, seq in last.items()],
    )
    connection.executemany(
        "UPDATE ns SET live_bytes = live_bytes - :freed WHERE ns_no = :ns_no",
        [{"ns_no": ns_no, "freed": size} for ns_no, size in freed.items()],
    )
    return SweepReport(len(dropped), sum(freed.values()), len(due) > limit)


def clear_payloads(connection: apsw.Connection, ids: list[int]) -> None:
    """Forget the payloads of rows, without a word of it in the sums."""
    connection.executemany(
        "UPDATE log SET payload = NULL, drop_at = NULL WHERE id = ?",
        [(row_id,) for row_id in ids],
    )
