"""Export: the slots of a handle as JSON lines, all as of one moment."""

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import TextIO

from crdtmem.doc.text_form import view_of
from crdtmem.models import UNSET, ExportReport, Scope
from crdtmem.scope import namespace_of, scope_of
from crdtmem.session import Session
from crdtmem.store.about import about_store
from crdtmem.store.connection import Connection
from crdtmem.store.history import entries_of
from crdtmem.store.rows import EntryRow, SlotRow
from crdtmem.store.slots import slots_of
from crdtmem.store.whole_file import replaced_file
from crdtmem.transfer.item_records import item_records
from crdtmem.transfer.records import FORMAT, VERSION
from crdtmem.views import iso_time, settings_of

__all__ = ["export_slots"]

SCOPES: tuple[Scope, ...] = ("project", "global")


def export_slots(
    session: Session,
    target: Path | TextIO,
    *,
    scope: Scope | None,
    labels: Sequence[str] | None,
    history: bool,
) -> ExportReport:
    """Write slots as JSON lines, in one read transaction.

    A file is written beside its place, synced, and renamed: it is the old one or whole.
    Deleted slots are included, for their kept texts; default slots that nobody has
    written are not. Unless labels are named, the items of memory sets are written too,
    without their history. All is ASCII, so no encoding of a stream can harm it. A
    stream that does not take what it is given keeps the transaction open, and with it
    the log.

    Args:
        session: Whose project's slots, and the global ones.
        target: A file, which is replaced, or a stream.
        scope: Only slots of this scope.
        labels: Only these slots.
        history: Include the kept texts.

    Raises:
        InvalidArgumentError: If the file cannot be made there.
        PermissionDeniedError: Likewise, because the system forbids it.
        StoreFullError: If there is no space for it.

    """
    if not isinstance(target, Path):
        return _export(session, target.write, scope, labels, with_history=history)
    with (
        replaced_file(target) as part,
        part.open("w", encoding="ascii", newline="\n") as stream,
    ):
        return _export(session, stream.write, scope, labels, with_history=history)


def _export(
    session: Session,
    write: Callable[[str], object],
    scope: Scope | None,
    labels: Sequence[str] | None,
    *,
    with_history: bool,
) -> ExportReport:
    counts: Counter[object] = Counter()
    size_bytes = 0
    with session.store.snapshot() as connection:
        rows = list(_chosen(connection, session, scope, labels))
        for record in chain(
            _records(connection, session, rows, with_history=with_history),
            () if labels is not None else _items(connection, session, scope),
        ):
            line = json.dumps(record) + "\n"
            write(line)
            size_bytes += len(line)
            counts[record["type"]] += 1
        end = {"type": "end", "slots": counts["slot"], "history": counts["history"]}
        line = json.dumps(end) + "\n"
        write(line)
    return ExportReport(
        slots=counts["slot"],
        history=counts["history"],
        items=counts["item"] or UNSET,
        bytes=size_bytes + len(line),
    )


def _chosen(
    connection: Connection,
    session: Session,
    scope: Scope | None,
    labels: Sequence[str] | None,
) -> Iterator[SlotRow]:
    for each in SCOPES:
        if scope in (None, each):
            for row in slots_of(connection, namespace_of(each, session.project)):
                if labels is None or row.label in labels:
                    yield row


def _items(
    connection: Connection, session: Session, scope: Scope | None
) -> Iterator[dict[str, object]]:
    for each in SCOPES:
        if scope in (None, each):
            namespace = namespace_of(each, session.project)
            yield from item_records(connection, namespace, session.project)


def _records(
    connection: Connection,
    session: Session,
    rows: Iterable[SlotRow],
    *,
    with_history: bool,
) -> Iterator[dict[str, object]]:
    yield {
        "type": "header",
        "format": FORMAT,
        "version": VERSION,
        "at": iso_time(session.store.clock_ms()),
        "replica": about_store(connection, str(session.store.path)).replica.hex(),
    }
    for row in rows:
        place = {
            "label": row.label,
            "scope": scope_of(row.namespace),
            "project": session.project,
        }
        yield _slot_record(row, place)
        if with_history:
            for entry in reversed(entries_of(connection, row.doc)):
                yield _history_record(entry, place)


def _slot_record(row: SlotRow, place: dict[str, str]) -> dict[str, object]:
    return {
        "type": "slot",
        **place,
        "content": view_of(row.file),
        # As it was written, not as it would be now: a damaged text shows.
        "contentHash": row.hash,
        "rev": row.rev,
        **settings_of(row),
        "createdAt": iso_time(row.created_ms),
        "updatedAt": iso_time(row.updated_ms),
        "deleted": row.is_deleted,
    }


def _history_record(entry: EntryRow, place: dict[str, str]) -> dict[str, object]:
    return {
        "type": "history",
        **place,
        "at": iso_time(entry.at_ms),
        "operation": entry.operation,
        "lane": entry.lane,
        "rev": entry.rev,
        "content": view_of(entry.file),
        "contentHash": entry.hash,
    }
