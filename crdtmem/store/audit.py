"""One row a change, without its text: who did what when, and for the change feed."""

import json

import apsw

from crdtmem.limits import AUDIT_ROWS
from crdtmem.store.rows import AuditRow

__all__ = ["add_audit", "audit_before", "audit_since", "lanes_of"]

PRUNE_EACH = 256


def add_audit(connection: apsw.Connection, row: AuditRow) -> None:
    """Write a row; once in a while, drop those past the newest 50,000."""
    connection.execute(
        "INSERT INTO audit VALUES (:lsn, :doc, :at_ms, :replica, :lanes, :operation,"
        " :rev_before, :rev, :size_before, :size, :details)",
        row._asdict(),
    )
    if row.lsn % PRUNE_EACH == 0:
        connection.execute(
            "DELETE FROM audit WHERE lsn <= coalesce("
            "(SELECT lsn FROM audit ORDER BY lsn DESC LIMIT 1 OFFSET :keep), -1)",
            {"keep": AUDIT_ROWS},
        )


def audit_since(connection: apsw.Connection, lsn: int) -> list[AuditRow]:
    """Return the rows after a step, oldest first."""
    rows = connection.execute(
        "SELECT * FROM audit WHERE lsn > :lsn ORDER BY lsn", {"lsn": lsn}
    )
    return [AuditRow(*row) for row in rows]


def audit_before(
    connection: apsw.Connection, before: int, limit: int, label: str | None = None
) -> list[tuple[AuditRow, str, str]]:
    """Return rows before a step, newest first, each with namespace and label.

    Args:
        connection: Where to read.
        before: The step.
        limit: How many at most.
        label: Only those of slots of this label.

    """
    rows = connection.execute(
        "SELECT audit.*, doc.namespace, doc.name FROM audit JOIN doc USING (doc)"
        " WHERE lsn < :before AND (:label IS NULL OR doc.name = :label)"
        " ORDER BY lsn DESC LIMIT :limit",
        {"before": before, "limit": limit, "label": label},
    )
    return [(AuditRow(*row[:-2]), str(row[-2]), str(row[-1])) for row in rows]


def lanes_of(row: AuditRow) -> list[str]:
    """Return the lanes whose writes the change holds."""
    return [str(lane) for lane in json.loads(row.lanes)]
