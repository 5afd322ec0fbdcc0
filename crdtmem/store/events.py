"""What condense and mirrors did, and what they could not do: the newest of it."""

import json
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import apsw

from crdtmem.limits import EVENTS_MAX

__all__ = ["EventRow", "add_event", "events_of"]


class EventRow(NamedTuple):
    """One event; ``details`` is a JSON object without texts of slots."""

    event: int
    at_ms: int
    kind: str
    namespace: str
    label: str
    details: str


def add_event(
    connection: apsw.Connection,
    kind: str,
    *,
    at_ms: int,
    namespace: str = "",
    label: str = "",
    details: Mapping[str, object] | None = None,
) -> int:
    """Note an event in the caller's transaction; those past EVENTS_MAX go.

    Args:
        connection: In a transaction.
        kind: In kebab-case.
        at_ms: When.
        namespace: Of the slot, if it is about one.
        label: Of the slot, if it is about one.
        details: JSON values under their JSON names; no text of a slot.

    """
    connection.execute(
        "INSERT INTO event(at_ms, kind, namespace, label, details)"
        " VALUES (:at, :kind, :namespace, :label, :details)",
        {
            "at": at_ms,
            "kind": kind,
            "namespace": namespace,
            "label": label,
            "details": json.dumps(dict(details or {})),
        },
    )
    number = connection.last_insert_rowid()
    connection.execute(
        "DELETE FROM event WHERE event <= :last", {"last": number - EVENTS_MAX}
    )
    return number


def events_of(
    connection: apsw.Connection,
    *,
    kinds: Sequence[str] = (),
    namespace: str | None = None,
    label: str | None = None,
    limit: int = 50,
) -> list[EventRow]:
    """Return the newest events, oldest first.

    Args:
        connection: The store's.
        kinds: Only these; all where empty.
        namespace: Only of this one.
        label: Only of this slot.
        limit: At most so many.

    """
    rows = connection.execute(
        "SELECT event, at_ms, kind, namespace, label, details FROM event"
        " WHERE (:kinds = '[]' OR kind IN"
        " (SELECT value FROM json_each(:kinds)))"
        " AND (:namespace IS NULL OR namespace = :namespace)"
        " AND (:label IS NULL OR label = :label)"
        " ORDER BY event DESC LIMIT :limit",
        {
            "kinds": json.dumps(list(kinds)),
            "namespace": namespace,
            "label": label,
            "limit": limit,
        },
    )
    return [EventRow(*row) for row in rows][::-1]
