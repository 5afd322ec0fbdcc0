"""What changed: the feed behind a cursor, what a lane has not seen, and the audit."""

import json
import time
from collections.abc import Iterable

from crdtmem.errors import InvalidArgumentError
from crdtmem.limits import WAIT_POLL_S
from crdtmem.models import UNSET, AuditEntry, Change, ChangeFeed, ContextSlot, Scope
from crdtmem.scope import namespace_of, scope_of
from crdtmem.session import Place, Session
from crdtmem.store.about import about_store, data_version
from crdtmem.store.audit import audit_before, audit_since, lanes_of
from crdtmem.store.connection import Connection
from crdtmem.store.history import entries_of
from crdtmem.store.rows import AuditRow, SlotRow
from crdtmem.store.seen import load_seen, noting, save_seen
from crdtmem.store.slots import changed_since, find_slot
from crdtmem.store.store import Store
from crdtmem.views import HASH_SHOWN_CHARS, iso_time, lanes_in

__all__ = [
    "audit_entries",
    "changes",
    "current_cursor",
    "forget_seen",
    "mark_all_seen",
    "note_seen",
    "unread",
]

CURSOR_START = "c1"
"""Form of a cursor: ``c1-REPLICA-LSN``; the replica is the store it counts for."""


def current_cursor(session: Session) -> str:
    """Return the cursor of now."""
    with session.store.reading() as connection:
        about = about_store(connection, str(session.store.path))
    return _cursor(about.replica.hex(), about.lsn)


def changes(
    session: Session,
    since: str | None,
    *,
    limit: int,
    scope: Scope | None,
    exclude_lane: str | None,
    wait_s: float,
) -> ChangeFeed:
    """Return the slots that changed after a cursor, each once, oldest change first.

    Between two looks it holds no lock and no transaction, so it can wait for as long as
    it likes without keeping a writer or a checkpoint.

    Raises:
        InvalidArgumentError: ``invalid-cursor``.

    """
    until = time.monotonic() + wait_s
    version = None
    while True:
        with session.store.reading() as connection:
            # The first number tells of other connections, the second of this one.
            found_version = data_version(connection), connection.total_changes()
        if found_version != version:
            version = found_version
            feed = _look(session, since, limit, scope, exclude_lane)
            if feed.changes or feed.reset:
                return feed
        left_s = until - time.monotonic()
        if left_s <= 0:
            return feed
        time.sleep(min(WAIT_POLL_S, left_s))


def unread(session: Session) -> list[Change]:
    """Return the slots that others changed since the lane last saw them."""
    found: list[Change] = []
    with session.store.snapshot() as connection:
        session.load_seen(connection)
        for place, since in sorted(
            session.seen.revs.items(), key=lambda item: item[0].label
        ):
            if place.namespace not in _namespaces(session, None):
                continue
            row = find_slot(connection, place.namespace, place.label)
            if row is None or row.rev <= since:
                continue
            unseen = session.unseen(connection, row, since)
            if unseen is not UNSET:
                found.append(_change(row, since, list(unseen.lanes)))
    return found


def mark_all_seen(session: Session) -> None:
    """Count all that unread would return as seen."""
    for change in unread(session):
        place = Place(namespace_of(change.scope, session.project), change.label)
        session.seen.saw(place, change.rev)


def note_seen(
    store: Store, lane: str, project: str, shown: Iterable[Change | ContextSlot]
) -> None:
    """Write down at once that a lane has seen slots, each at the rev that was shown.

    For a process that ends with it: what a handle notes by the way waits for its next
    commit, or for a moment in which nobody writes.

    Raises:
        StoreBusyError: If the write lock was not had in time; nothing is noted then.

    """
    seen = {(namespace_of(o.scope, project), o.label): o.rev for o in shown}
    if seen:
        with noting(store) as connection:
            save_seen(connection, lane, seen)


def forget_seen(store: Store, lane: str) -> None:
    """Write down at once that a lane has seen nothing.

    Raises:
        StoreBusyError: If the write lock was not had in time; nothing has changed then.

    """
    with noting(store) as connection:
        save_seen(connection, lane, dict.fromkeys(load_seen(connection, lane)))


def audit_entries(
    session: Session,
    *,
    label: str | None,
    scope: Scope | None,
    lane: str | None,
    before: int | None,
    limit: int,
) -> list[AuditEntry]:
    """Return changes, newest first, each without its text."""
    wanted = _namespaces(session, scope)
    found: list[AuditEntry] = []
    position = before if before is not None else 1 << 62
    with session.store.snapshot() as connection:
        while len(found) < limit:
            page = audit_before(connection, position, AUDIT_PAGE, label)
            for row, namespace, name in page:
                if namespace in wanted and (lane is None or lane in lanes_of(row)):
                    found.append(_audit_entry(row, namespace, name))
            if len(page) < AUDIT_PAGE:
                break
            position = page[-1][0].lsn
    return found[:limit]


AUDIT_PAGE = 500
"""Rows read at a time while looking for those of one slot or lane."""


def _look(
    session: Session,
    since: str | None,
    limit: int,
    scope: Scope | None,
    exclude_lane: str | None,
) -> ChangeFeed:
    with session.store.snapshot() as connection:
        about = about_store(connection, str(session.store.path))
        replica, newest = about.replica.hex(), about.lsn
        lsn, is_reset = _start(since, replica, newest)
        rows = changed_since(connection, lsn)
        steps: dict[int, list[AuditRow]] = {}
        for audit in audit_since(connection, lsn):
            steps.setdefault(audit.doc, []).append(audit)
        wanted = _namespaces(session, scope)
        found: list[Change] = []
        more = False
        for row in rows:
            if row.namespace not in wanted:
                continue
            own = steps.get(row.doc, [])
            if exclude_lane is not None and _is_only_by(own, exclude_lane):
                continue
            if len(found) == limit:
                more = True
                break
            found.append(_change(row, *_since_rev(connection, row, own)))
            lsn = row.lsn
    end = lsn if more else newest
    return ChangeFeed(
        changes=tuple(found), cursor=_cursor(replica, end), more=more, reset=is_reset
    )


def _since_rev(
    connection: Connection, row: SlotRow, own: list[AuditRow]
) -> tuple[int, list[str]]:
    """Return the rev before the first change after the cursor, and who changed."""
    if own:
        lanes = sorted({lane for step in own for lane in lanes_of(step)})
        return own[0].rev_before, lanes
    # The audit no longer reaches back so far; the history may.
    entries = entries_of(connection, row.doc)
    lanes = sorted({lane for entry in entries for lane in lanes_in(entry)})
    return entries[-1].rev if entries else 0, lanes or [row.lane]


def _is_only_by(own: list[AuditRow], lane: str) -> bool:
    """Tell whether one lane alone made all changes; unknown ones count as others'."""
    return bool(own) and all(lanes_of(step) == [lane] for step in own)


def _change(row: SlotRow, since_rev: int, lanes: list[str]) -> Change:
    return Change(
        label=row.label,
        scope=scope_of(row.namespace),
        rev=row.rev,
        since_rev=since_rev,
        size=row.size,
        content_hash=row.hash[:HASH_SHOWN_CHARS],
        at=iso_time(row.updated_ms),
        operation=row.operation,
        lanes=tuple(lanes),
        deleted=row.is_deleted or UNSET,
        quarantined=row.quarantined is not None or UNSET,
    )


def _audit_entry(row: AuditRow, namespace: str, label: str) -> AuditEntry:
    return AuditEntry(
        id=row.lsn,
        at=iso_time(row.at_ms),
        lane=", ".join(lanes_of(row)),
        replica=row.replica.hex(),
        operation=row.operation,
        label=label,
        scope=scope_of(namespace),
        rev=row.rev,
        size_before=row.size_before,
        size_after=row.size,
        details=json.loads(row.details),
    )


def _namespaces(session: Session, scope: Scope | None) -> set[str]:
    scopes: list[Scope] = [scope] if scope else ["project", "global"]
    return {namespace_of(each, session.project) for each in scopes}


def _cursor(replica: str, lsn: int) -> str:
    return f"{CURSOR_START}-{replica}-{lsn}"


def _start(since: str | None, replica: str, newest: int) -> tuple[int, bool]:
    """Return the step after which to look, and whether the cursor was another's."""
    if since is None:
        return 0, False
    start, _, rest = since.partition("-")
    owner, _, number = rest.partition("-")
    is_number = number.isascii() and number.isdigit() and len(number) < 17
    if start != CURSOR_START or not is_number or len(owner) != len(replica):
        raise InvalidArgumentError(
            "since",
            "since is no cursor of this feed",
            code="invalid-cursor",
            hint="pass a cursor that a former call returned, or none",
        )
    lsn = int(number)
    return (lsn, False) if owner == replica and lsn <= newest else (0, True)
