"""Request ids: a retry returns the first result and writes nothing.

Kept for at least seven days and for the newest 10,000; each later write drops at most
a hundred of the rest.
"""

from typing import NamedTuple

import apsw

from crdtmem.limits import REQUEST_KEPT_MS, REQUEST_ROWS, REQUESTS_PRUNED_ROWS

__all__ = ["StoredRequest", "find_request", "keep_request"]


class StoredRequest(NamedTuple):
    """What a request id stands for; ``result`` is JSON, without the text."""

    fingerprint: bytes
    verb: str
    result: str


def find_request(connection: apsw.Connection, request_id: str) -> StoredRequest | None:
    """Return what an id stands for."""
    for row in connection.execute(
        "SELECT fingerprint, verb, result FROM request WHERE request_id = :id",
        {"id": request_id},
    ):
        return StoredRequest(*row)
    return None


def keep_request(
    connection: apsw.Connection, request_id: str, request: StoredRequest, now_ms: int
) -> None:
    """Store a successful call, and drop a few that are old and many."""
    connection.execute(
        "INSERT INTO request(request_id, fingerprint, verb, at_ms, result)"
        " VALUES (:id, :fingerprint, :verb, :now, :result)",
        {"id": request_id, "now": now_ms, **request._asdict()},
    )
    connection.execute(
        "DELETE FROM request WHERE number IN (SELECT number FROM request"
        " WHERE number <= (SELECT max(number) FROM request) - :rows AND at_ms < :old"
        " ORDER BY number LIMIT :pruned)",
        {
            "rows": REQUEST_ROWS,
            "old": now_ms - REQUEST_KEPT_MS,
            "pruned": REQUESTS_PRUNED_ROWS,
        },
    )
