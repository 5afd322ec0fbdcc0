"""Where the store is, what it holds, and what its user should know."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from crdtmem.headroom import warning_for
from crdtmem.models import (
    UNSET,
    CompactReport,
    DoctorCheck,
    DoctorReport,
    LeaseStatus,
    LinkStatus,
    ObservationStatus,
    Scope,
    StoreStatus,
    SyncAlarm,
    SyncFault,
    SyncStatus,
    UnsentWrites,
)
from crdtmem.scope import namespace_of, scope_of
from crdtmem.session import Session
from crdtmem.store.about import about_store, store_figures
from crdtmem.store.connection import Connection
from crdtmem.store.link_status import LinkReport, has_links, link_reports
from crdtmem.store.slots import slots_of
from crdtmem.store.store import Store
from crdtmem.views import iso_time

__all__ = [
    "SCHEMA_VERSION",
    "compact_report",
    "doctor_report",
    "store_status",
    "sync_status",
]

SCHEMA_VERSION = 1
"""Version of the JSON form of results; fields are added without raising it."""


def doctor_report(store: Store, *, repair: bool, deep: bool) -> DoctorReport:
    """Return what the doctor finds in a store, and has mended if that was asked for."""
    from crdtmem.store.doctor import examine  # noqa: PLC0415 - status is quick without

    checks = tuple(
        DoctorCheck(
            id=finding.id,
            status=finding.status,
            label=finding.label or UNSET,
            scope=scope_of(finding.namespace) if finding.namespace else UNSET,
            message=finding.message,
            hint=finding.hint,
        )
        for finding in examine(store, namespaces=None, repair=repair, deep=deep)
    )
    return DoctorReport(ok=all(c.status != "fail" for c in checks), checks=checks)


def compact_report(store: Store) -> CompactReport:
    """Squash what the history window does not need, and return what that gave."""
    from crdtmem.store.backup import compact  # noqa: PLC0415 - status is quick without

    return CompactReport(**compact(store)._asdict())


def store_status(session: Session) -> StoreStatus:
    """Return the status of a session's store; takes no lock and writes nothing."""
    store = session.store
    with store.snapshot() as connection:
        figures = store_figures(connection)
        about = about_store(connection, str(store.path))
        slots, warnings = _slots(session, connection)
        sync = _sync(store.path, connection)
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
        warnings=(*warnings, *_sync_warnings(sync)),
        sync=sync,
        observations=_observations(session),
    )


def _observations(session: Session) -> ObservationStatus:
    found = session.observations
    return found.status() if found else ObservationStatus(buffered=0, dropped=0)


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


def sync_status(store: Store) -> SyncStatus:
    """Return how sync stands; takes no lock and reads no slot."""
    with store.snapshot() as connection:
        return _sync(store.path, connection)


def _sync(path: Path, connection: Connection) -> SyncStatus:
    """Return how sync stands; looks at the lease only if there is a link."""
    if not has_links(connection):
        nobody = LeaseStatus(held=False, pid=None, command=None, since=None)
        return SyncStatus(lease=nobody, links=())
    from crdtmem.store.lease import lease_path_for, lease_state  # noqa: PLC0415 - only for stores with links

    is_held, holder = lease_state(lease_path_for(path))
    lease = LeaseStatus(
        held=is_held,
        pid=holder.pid if holder else None,
        command=holder.command if holder else None,
        since=holder.since if holder else None,
    )
    reports = link_reports(connection)
    links = tuple(_link(report, is_held=is_held) for report in reports)
    return SyncStatus(lease=lease, links=links)


def _link(report: LinkReport, *, is_held: bool) -> LinkStatus:
    link, notes, unsent = report.link, report.notes, report.unsent
    fault = notes.get("fault")
    # What a process noted before it ended is history, and what it heard still stands.
    noted: Any = notes.get("state", "connecting")
    head = max(notes.get("head", 0), link.cursor.seq)
    return LinkStatus(
        local=link.namespace,
        remote=link.remote,
        url=link.url,
        state=noted if is_held else "no-lease",
        since=_time(notes.get("since_ms")) if is_held else None,
        cursor=link.cursor.seq,
        head=head,
        lag=head - link.cursor.seq,
        unsent=UnsentWrites(
            writes=unsent.writes,
            bytes=unsent.size_bytes,
            oldest_at=_time(unsent.oldest_at_ms),
        ),
        last_error=None
        if fault is None
        else SyncFault(
            code=fault["code"],
            message=fault["message"],
            at=iso_time(fault["at_ms"]),
            permanent=fault["permanent"],
        ),
        last_in_sync_at=_time(notes.get("in_sync_ms")),
        quarantined=report.quarantined,
        held=report.held,
        blocked=report.blocked,
        locked=report.locked,
        skipped=link.skipped,
        alarms=tuple(
            SyncAlarm(code=a.code, at=iso_time(a.at_ms), detail=a.detail)
            for a in link.alarms
        ),
    )


def _sync_warnings(sync: SyncStatus) -> Iterator[str]:
    for link in sync.links:
        where = f"sync of {link.local!r}"
        for alarm in link.alarms:
            yield f"{where}: alarm {alarm.code} ({alarm.detail})"
        if link.last_error is not None and link.last_error.permanent:
            yield f"{where}: {link.last_error.message}"
        for label in link.held:
            yield f"{where}: records wait for slot {label!r}"
        for label in link.blocked:
            yield f"{where}: the relay does not take slot {label!r}"


def _time(at_ms: int | None) -> str | None:
    return None if at_ms is None else iso_time(at_ms)
