"""Which rev of each slot a lane last saw.

Written with the lane's next commit: losing the newest values makes them older, so too
much is reported as unseen, never too little.
"""

from collections.abc import Mapping

import apsw

__all__ = ["load_seen", "save_seen"]

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
