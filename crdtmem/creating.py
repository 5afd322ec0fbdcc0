"""Slots that come and go: create, delete, rename."""

from collections.abc import Callable, Sequence
from typing import Any

from crdtmem.arguments import Guard, Request
from crdtmem.doc.delta import Delta, Splice
from crdtmem.doc.text_form import file_of, view_of
from crdtmem.editing import SlotWrite, line_delta, slot_write
from crdtmem.errors import SlotExistsError
from crdtmem.models import UNSET, DeleteResult, Scope, WriteResult
from crdtmem.scope import scope_of
from crdtmem.session import Place, Session, Writing
from crdtmem.store.write import Change
from crdtmem.views import settings_of

__all__ = ["create_slot", "delete_slot", "delete_slots", "rename_slots"]


def create_slot(
    session: Session,
    place: Place,
    content: str,
    meta: dict[str, object],
    request: Request | None,
) -> WriteResult:
    """Make a slot, or make a deleted one anew; see Memory.create."""
    with slot_write(session, place, request) as write:
        if write.replayed is not None:
            return WriteResult(**write.replayed)
        return _create(write, content, meta)


def delete_slot(
    session: Session,
    resolve: Callable[[], Place],
    default: Place,
    guard: Guard,
    request: Request | None,
) -> DeleteResult:
    """Delete a slot; see Memory.delete.

    Args:
        session: Whose it is.
        resolve: Says where the label is. Asked within the transaction, and not for a
            repeated call, whose slot may be gone.
        default: Where to look the request up.
        guard: What the caller demands.
        request: The call's name.

    """
    with slot_write(session, default, request) as write:
        if write.replayed is not None:
            return DeleteResult(**write.replayed)
        write.place = resolve()
        return _delete(write, guard)


def rename_slots(
    session: Session, pairs: Sequence[tuple[str, str]], scope: Scope
) -> list[WriteResult]:
    """Rename slots in one transaction; see Memory.rename."""
    results: list[WriteResult] = []
    with session.writing() as writing:
        for old, new in pairs:
            source = _write(session, writing, session.place_of(old, scope))
            row = source.live_slot()
            target = _write(session, writing, session.place_of(new, scope))
            results.append(_create(target, view_of(row.file), settings_of(row)))
            _delete(source, Guard())
    return results


def delete_slots(
    session: Session, labels: Sequence[str], scope: Scope
) -> list[DeleteResult]:
    """Delete slots in one transaction; see Memory.delete_many."""
    with session.writing() as writing:
        return [
            _delete(_write(session, writing, session.place_of(label, scope)), Guard())
            for label in labels
        ]


def _write(session: Session, writing: Writing, place: Place) -> SlotWrite:
    return SlotWrite(session, writing, place, None)


def _create(write: SlotWrite, content: str, meta: dict[str, object]) -> WriteResult:
    session, place = write.session, write.place
    found = write.writing.transaction.slot(place.namespace, place.label)
    template = session.template(place)
    is_taken = template is not None if found is None else not found.is_deleted
    if is_taken:
        raise SlotExistsError(label=place.label, scope=scope_of(place.namespace))
    plain = write.plain_slot()
    settings = {k: v for k, v in settings_of(plain).items() if v is not False}
    settings |= meta
    write.row = (found or plain)._replace(size_limit=_limit_in(settings), size=0)
    write.require_size(file_of(content), "create")
    write.row = found or plain
    if found is not None:
        settings = settings_of(plain) | meta | {"deleted": False}
    change = Change(
        operation="create",
        lane=session.lane,
        delta=line_delta(write.row.file, content) if found else (),
        meta=settings,
        genesis=file_of(content) if found is None else "",
        keeps_rev=found is None,
        details={"sizeLimit": settings["sizeLimit"], "pinned": settings.get("pinned")},
    )
    row, entry = write.write(change)
    write.writing.saw[place] = row.rev
    shown: dict[str, Any] = {"history_id": entry.id} if entry else {}
    return write.finish(write.result("create", row, **shown))


def _limit_in(settings: dict[str, object]) -> int:
    limit = settings["sizeLimit"]
    return limit if isinstance(limit, int) else 0


def _delete(write: SlotWrite, guard: Guard) -> DeleteResult:
    row = write.live_slot()
    write.require(guard)
    delta: Delta = (Splice(0, len(row.file), ""),) if row.file else ()
    change = Change(
        operation="delete",
        lane=write.session.lane,
        delta=delta,
        meta=write.settings({"deleted": True}),
    )
    unseen = write.unseen()
    after, entry = write.write(change)
    write.note_seen(after, unseen)
    connection = write.writing.transaction.connection
    uncovers = write.session.shadows(connection, row)
    return write.finish(
        DeleteResult(
            label=row.label,
            scope=scope_of(row.namespace),
            deleted=True,
            previous_size=row.size,
            previous_rev=row.rev,
            rev=after.rev,
            history_id=entry.id if entry else "",
            durable=write.session.store.durability == "full",
            uncovers="global" if uncovers else UNSET,
        )
    )
