"""What can be seen of passes that have been: who made them, and what they took out."""

import json

from crdtmem.condense.values import ArchivedSection, CondenseArchive, PassInfo
from crdtmem.errors import CondensePassUnknownError, InvalidArgumentError
from crdtmem.models import UNSET
from crdtmem.scope import GLOBAL_NAMESPACE, scope_of
from crdtmem.session import Session
from crdtmem.store.archives import archive_digest
from crdtmem.store.condensed import parts_of_pass
from crdtmem.store.passes import PassRow, find_pass, passes_of
from crdtmem.views import iso_time

__all__ = ["pass_archive", "pass_infos"]

STATES = ("open", "committed", "aborted", "expired", "undone")


def pass_infos(
    session: Session, label: str | None, state: str | None, limit: int
) -> list[PassInfo]:
    """Return the newest passes of the project's and of global slots; see Memory."""
    if state is not None and state not in STATES:
        message = f"state must be one of {', '.join(STATES)}, not {state!r:.40}"
        raise InvalidArgumentError("state", message)
    with session.store.reading() as connection:
        rows = passes_of(
            connection,
            (session.project, GLOBAL_NAMESPACE),
            label=label,
            state=state,
            limit=limit,
        )
    return [_info(row) for row in rows]


def pass_archive(session: Session, pass_id: str) -> CondenseArchive:
    """Return what a pass of a slot in sight took out; see Memory.

    Raises:
        CondensePassUnknownError: If there is no such pass.

    """
    with session.store.snapshot() as connection:
        row = find_pass(connection, pass_id)
        if row is None or row.namespace not in (session.project, GLOBAL_NAMESPACE):
            raise CondensePassUnknownError(pass_id=pass_id)
        parts = parts_of_pass(connection, row)
    return CondenseArchive(
        pass_id=pass_id,
        # One that was dropped for want of room keeps its name.
        sha256=(archive_digest(parts) if parts else row.archive).hex(),
        sections=tuple(ArchivedSection(**part._asdict()) for part in parts),
    )


def _info(row: PassRow) -> PassInfo:
    result = UNSET
    if row.result is not None:
        result = json.loads(row.result)
        # A list is no place for the text of slots.
        result.pop("diff", None)
    return PassInfo(
        id=row.pass_id,
        label=row.label,
        scope=scope_of(row.namespace),
        lane=row.lane,
        summariser=row.summariser,
        state=row.state,
        reason=row.reason,
        is_remote=bool(row.is_remote),
        base_rev=row.base_rev,
        begun_at=iso_time(row.begun_ms),
        ended_at=UNSET if row.ended_ms is None else iso_time(row.ended_ms),
        expires_at=iso_time(row.expires_ms),
        archive=row.archive.hex(),
        result=result,
    )
