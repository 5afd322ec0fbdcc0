"""Where the store is, what it holds, and what its user should know."""

from crdtmem.headroom import warning_for
from crdtmem.models import Scope, StoreStatus
from crdtmem.scope import namespace_of
from crdtmem.session import Session
from crdtmem.store.about import about_store, store_figures
from crdtmem.store.connection import Connection
from crdtmem.store.slots import slots_of

__all__ = ["SCHEMA_VERSION", "store_status"]

SCHEMA_VERSION = 1
"""Version of the JSON form of results; fields are added without raising it."""


def store_status(session: Session) -> StoreStatus:
    """Return the status of a session's store; takes no lock and writes nothing."""
    store = session.store
    with store.snapshot() as connection:
        figures = store_figures(connection)
        about = about_store(connection, str(store.path))
        slots, warnings = _slots(session, connection)
    wal = store.path.with_name(store.path.name + "-wal")
    return StoreStatus(
        path=str(store.path),
        replica=about.replica.hex(),
        project=session.project,
        project_source=session.project_source,
        lane=session.lane,
        durability=store.durability,
        schema=figures.schema,
        schema_version=SCHEMA_VERSION,
        slots=slots,
        records=figures.records,
        bytes=figures.size_bytes,
        wal_bytes=wal.stat().st_size if wal.exists() else 0,
        history_keep=about.history_keep,
        read_only=store.read_only,
        warnings=tuple(warnings),
    )


def _slots(session: Session, connection: Connection) -> tuple[int, list[str]]:
    """Return how many live slots the handle sees, and what is wrong with them."""
    warnings: list[str] = []
    count = 0
    scopes: tuple[Scope, ...] = ("project", "global")
    for scope in scopes:
        for row in slots_of(connection, namespace_of(scope, session.project)):
            if row.is_deleted:
                continue
            count += 1
            if row.quarantined is not None:
                warnings.append(f"slot {row.label!r} is quarantined: {row.quarantined}")
            text = warning_for(row.size, row.size_limit)
            if text is not None:
                warnings.append(f"slot {row.label!r}: {text}")
    return count, warnings
