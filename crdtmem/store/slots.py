"""Slot rows, and what editors left: reads end here and never load a document."""

from collections.abc import Iterator
from contextlib import suppress
from typing import NamedTuple

import apsw

from crdtmem.headroom import content_hash
from crdtmem.limits import DEFAULT_SIZE_UNITS
from crdtmem.scope import scope_of, template_for
from crdtmem.store.pending import mark_pending
from crdtmem.store.rows import SlotRow

__all__ = [
    "Rescued",
    "changed_since",
    "empty_slot",
    "find_slot",
    "find_slot_and_hidden",
    "lanes_of_slots",
    "namespaces",
    "quarantine_slot",
    "rescued_texts",
    "save_slot",
    "slots_of",
    "unfolded_places",
]


class Rescued(NamedTuple):
    """The text of an editor that had another document."""

    lane: str
    at_ms: int
    text: str


def empty_slot(namespace: str, label: str, now_ms: int) -> SlotRow:
    """Return the row of a slot without records: its template's settings, or ours."""
    template = template_for(scope_of(namespace), label)
    return SlotRow(
        doc=0,
        namespace=namespace,
        label=label,
        file="",
        rev=0,
        hash=content_hash(""),
        size=0,
        size_limit=template.size_limit if template else DEFAULT_SIZE_UNITS,
        description=template.description if template else "",
        pinned=int(template.pinned if template else True),
        read_only=0,
        append_only=0,
        deleted=0,
        created_ms=now_ms,
        updated_ms=now_ms,
        lsn=0,
        operation="create",
        lane="",
        quarantined=None,
    )


def find_slot(
    connection: apsw.Connection, namespace: str, label: str
) -> SlotRow | None:
    """Return the row of a slot, deleted ones included."""
    for row in connection.execute(
        "SELECT * FROM slot WHERE namespace = :namespace AND label = :label",
        {"namespace": namespace, "label": label},
    ):
        return SlotRow(*row)
    return None


def find_slot_and_hidden(
    connection: apsw.Connection, namespace: str, label: str, behind: str
) -> tuple[SlotRow | None, bool | None]:
    """Return a slot's row, and whether a slot of the label lives behind it.

    One statement, for the sake of readers. The second is None where the namespace
    behind has no row of the label.
    """
    for *row, hidden in connection.execute(
        "SELECT slot.*, (SELECT NOT (deleted AND file IN ('', char(10))) FROM slot"
        " WHERE namespace = :behind AND label = :label)"
        " FROM slot WHERE namespace = :namespace AND label = :label",
        {"namespace": namespace, "label": label, "behind": behind},
    ):
        return SlotRow(*row), None if hidden is None else bool(hidden)
    return None, None


def slots_of(connection: apsw.Connection, namespace: str) -> list[SlotRow]:
    """Return all rows of a namespace by label, deleted ones included.

    A row whose text is damaged so that it is no text is left out: doctor reports it,
    and it hides no other slot.
    """
    try:
        rows = connection.execute(
            "SELECT * FROM slot WHERE namespace = :namespace ORDER BY label",
            {"namespace": namespace},
        )
        return [SlotRow(*row) for row in rows]
    except UnicodeDecodeError:
        docs = connection.execute(
            "SELECT doc FROM slot WHERE namespace = :namespace ORDER BY label",
            {"namespace": namespace},
        ).fetchall()
        return [row for (doc,) in docs for row in _readable(connection, doc)]


def lanes_of_slots(connection: apsw.Connection, namespace: str) -> dict[str, str]:
    """Return who wrote each slot of a namespace last, by label."""
    rows = connection.execute(
        "SELECT label, lane FROM slot WHERE namespace = :namespace",
        {"namespace": namespace},
    )
    return {str(label): str(lane) for label, lane in rows}


def _readable(connection: apsw.Connection, doc: object) -> Iterator[SlotRow]:
    with suppress(UnicodeDecodeError):
        for row in connection.execute(
            "SELECT * FROM slot WHERE doc = :doc", {"doc": int(str(doc))}
        ):
            yield SlotRow(*row)


def changed_since(connection: apsw.Connection, lsn: int) -> Iterator[SlotRow]:
    """Yield the rows of all namespaces that changed after a step, oldest first."""
    for row in connection.execute(
        "SELECT * FROM slot WHERE lsn > :lsn ORDER BY lsn", {"lsn": lsn}
    ):
        yield SlotRow(*row)


def save_slot(connection: apsw.Connection, row: SlotRow) -> None:
    """Write a slot's row, new or changed."""
    connection.execute(
        "INSERT INTO slot VALUES (:doc, :namespace, :label, :file, :rev, :hash, :size,"
        " :size_limit, :description, :pinned, :read_only, :append_only, :deleted,"
        " :created_ms, :updated_ms, :lsn, :operation, :lane, :quarantined)"
        " ON CONFLICT(doc) DO UPDATE SET file = :file, rev = :rev, hash = :hash,"
        " size = :size, size_limit = :size_limit, description = :description,"
        " pinned = :pinned, read_only = :read_only, append_only = :append_only,"
        " deleted = :deleted, updated_ms = :updated_ms, lsn = :lsn,"
        " operation = :operation, lane = :lane, quarantined = :quarantined",
        row._asdict(),
    )
    mark_pending(connection, row.doc)


def quarantine_slot(connection: apsw.Connection, doc: int, reason: str | None) -> None:
    """Stop a slot's writes, or let them go on."""
    connection.execute(
        "UPDATE slot SET quarantined = :reason WHERE doc = :doc",
        {"doc": doc, "reason": reason},
    )


def namespaces(connection: apsw.Connection) -> list[tuple[str, int, int]]:
    """Return each namespace with its live slots and the newest change, in ms."""
    rows = connection.execute(
        "SELECT namespace, count(*), max(updated_ms) FROM slot"
        " WHERE NOT (deleted AND file IN ('', char(10)))"
        " GROUP BY namespace ORDER BY namespace"
    )
    return [(str(name), int(count), int(newest)) for name, count, newest in rows]


def rescued_texts(
    connection: apsw.Connection, namespace: str, label: str
) -> list[Rescued]:
    """Return the texts that were rescued for a slot, newest first."""
    rows = connection.execute(
        "SELECT lane, at_ms, text FROM editor_rescue WHERE namespace = :namespace"
        " AND label = :label ORDER BY rescue DESC",
        {"namespace": namespace, "label": label},
    )
    return [Rescued(*row) for row in rows]


def unfolded_places(
    connection: apsw.Connection, before_ms: int
) -> list[tuple[str, str]]:
    """Return namespace and label of the slots whose editors typed what they lack.

    Only those into which nobody has typed since a moment.
    """
    rows = connection.execute(
        "SELECT namespace, label FROM editor_doc WHERE n > n_folded"
        " AND touched_ms <= :before ORDER BY namespace, label",
        {"before": before_ms},
    )
    return [(namespace, label) for namespace, label in rows]
