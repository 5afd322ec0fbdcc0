"""What is told of links: what their syncing process noted, and what the tables say.

Read at every ``crdtmem status``, so nothing of the document layer is loaded.
"""

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import apsw

from crdtmem.store.store import Store

if TYPE_CHECKING:
    from crdtmem.store.links import Link, UnsentCounts

__all__ = ["LinkReport", "has_links", "link_reports", "save_notes"]

SEALED = "sealed"
"""Code of a record that waits for a key."""


class LinkReport(NamedTuple):
    """A link with everything that its status is made of.

    Attributes:
        link: The link.
        unsent: What the relay does not have.
        notes: What the process that syncs it noted last; JSON types.
        quarantined: Records that were refused.
        locked: Records that wait for a key.
        held: Slots for which records wait.
        blocked: Slots that the relay does not take.

    """

    link: "Link"
    unsent: "UnsentCounts"
    notes: Mapping[str, Any]
    quarantined: int
    locked: int
    held: tuple[str, ...]
    blocked: tuple[str, ...]


def has_links(connection: apsw.Connection) -> bool:
    """Tell whether any namespace is linked."""
    return bool(connection.execute("SELECT EXISTS (SELECT 1 FROM link)").get)


def link_reports(connection: apsw.Connection) -> list[LinkReport]:
    """Return a report of each link, oldest first."""
    from crdtmem.store.links import count_unsent, links_in  # noqa: PLC0415 - slow to load, and only for those with links

    return [
        _report(connection, link, count_unsent(connection, link))
        for link in links_in(connection)
    ]


def save_notes(store: Store, notes: Mapping[int, Mapping[str, object]]) -> None:
    """Keep what the syncing process knows of each link, by the link's number."""
    with store.writing() as transaction:
        transaction.connection.executemany(
            "UPDATE link SET status = :notes WHERE link = :link",
            [{"link": link, "notes": json.dumps(n)} for link, n in notes.items()],
        )


def _report(
    connection: apsw.Connection, link: "Link", unsent: "UnsentCounts"
) -> LinkReport:
    values = {"link": link.link, "sealed": SEALED}
    counts: list[Any] = connection.execute(
        "SELECT status,"
        " (SELECT count(*) FROM held WHERE held.link = link.link"
        "  AND code NOT IN ('', :sealed)),"
        " (SELECT count(*) FROM held WHERE held.link = link.link AND code = :sealed)"
        " FROM link WHERE link = :link",
        values,
    ).fetchall()
    notes, quarantined, locked = counts[0]
    held: list[Any] = connection.execute(
        "SELECT DISTINCT name FROM held JOIN doc USING (doc) WHERE link = :link"
        " ORDER BY name",
        values,
    ).fetchall()
    blocked: list[Any] = connection.execute(
        "SELECT name FROM sync_doc INDEXED BY sync_doc_blocked JOIN doc USING (doc)"
        " WHERE link = :link AND blocked != '' ORDER BY name",
        values,
    ).fetchall()
    return LinkReport(
        link=link,
        unsent=unsent,
        notes=json.loads(notes),
        quarantined=quarantined,
        locked=locked,
        held=tuple(name for (name,) in held),
        blocked=tuple(name for (name,) in blocked),
    )
