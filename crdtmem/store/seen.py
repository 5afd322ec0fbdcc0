"""Which rev of each slot a lane last saw.

Written with the lane's next commit: losing the newest values makes them older, so too
much is reported as unseen, never too little.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

import apsw

if TYPE_CHECKING:
    from crdtmem.store.store import Store

__all__ = ["load_seen", "noting", "save_seen"]

Place = tuple[str, str]
"""Namespace and label."""


def load_seen(connection: apsw.Connection, lane: str) -> dict[Place, int]:
    """Return all that a lane has seen."""
    rows = connection.execute(
        "SELECT namespace, label, rev FROM seen WHERE lane = :lane", {"lane": lane}
    )
    return {(str(namespace), str(label)): int(rev) for namespace, label, rev in rows}


def save_seen(
    connection: apsw.Connection, lane: str, seen: Mapping[Place, int | None]
) -> None:
    """Write what a lane has seen; None takes it back."""
    for (namespace, label), rev in seen.items():
        values = {"lane": lane, "namespace": namespace, "label": label, "rev": rev}
        if rev is None:
            connection.execute(
                "DELETE FROM seen WHERE lane = :lane AND namespace = :namespace"
                " AND label = :label",
                {name: values[name] for name in ("lane", "namespace", "label")},
            )
        else:
            connection.execute(
                "INSERT OR REPLACE INTO seen VALUES (:lane, :namespace, :label, :rev)",
                values,
            )


@contextmanager
def noting(store: "Store") -> Iterator[apsw.Connection]:
    """Give the connection in a write transaction that is for this table alone.

    It loads nothing of what a write of slots needs, which takes a process as long again
    as its start.

    Raises:
        StoreBusyError: If the write lock was not had within the handle's timeout.
        StoreError: If the store cannot be written; nothing has changed then.

    """
    with store.reading() as connection, store.lock.held(store.busy_timeout_s):
        connection.execute("BEGIN IMMEDIATE")
        try:
            yield connection
            connection.execute("COMMIT")
        finally:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
