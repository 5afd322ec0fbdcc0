"""What a mirror would do: the pass over a folder that writes nothing."""

import time

from crdtmem.doc.text_form import view_of
from crdtmem.errors import UnreadableFileError
from crdtmem.mirror.comings import Rules
from crdtmem.mirror.folder import MirrorFolder
from crdtmem.mirror.importing import Importer
from crdtmem.mirror.names import is_label, is_mirrored_name, label_for
from crdtmem.mirror.registry import hint_for
from crdtmem.mirror.values import BlockedFile, MirrorReport
from crdtmem.store.mirrors import FileRow, files_of, retired_of
from crdtmem.store.rows import SlotRow
from crdtmem.store.slots import slots_of

__all__ = ["dry_report"]

_MS = 1000


class _Tally:
    """What would be done, counted."""

    def __init__(self) -> None:
        self.imported = self.written = self.created = self.deleted = 0
        self.blocked: list[BlockedFile] = []

    def block(self, name: str, label: str, reason: str) -> None:
        """Note a file that would be left alone."""
        hint = hint_for(reason)
        self.blocked.append(
            BlockedFile(file=name, label=label, reason=reason, hint=hint)
        )


def dry_report(importer: Importer, folder: MirrorFolder, rules: Rules) -> MirrorReport:
    """Return what one pass would do as things stand, without waiting for anything."""
    began_s = time.monotonic()
    with importer.session.store.reading() as connection:
        bound = {row.name: row for row in files_of(connection, importer.mirror)}
        retired = len(retired_of(connection, importer.mirror))
        slots = {row.label: row for row in slots_of(connection, importer.namespace)}
    tally = _Tally()
    names = [name for name in folder.names() if is_mirrored_name(name)]
    labels = {row.label for row in bound.values()}
    for name in names:
        row = bound.get(name)
        label = row.label if row else label_for(name, labels)
        if row is None and not rules.match(label):
            continue
        labels.add(label)
        try:
            data, _ = folder.read(name)
            if row is None:
                _count_new(importer, rules, tally, name, data, slots.get(label))
            else:
                _count_bound(importer, tally, row, data, slots.get(label))
        except UnreadableFileError as exc:
            tally.block(name, label, exc.code)
    if not rules.restores:
        tally.deleted = len(bound.keys() - set(names))
    tally.written += sum(
        not slot.is_deleted and is_label(label) and rules.match(label)
        for label, slot in slots.items()
        if label not in labels
    )
    return MirrorReport(
        imported=tally.imported,
        written=tally.written,
        created=tally.created,
        deleted=tally.deleted,
        blocked=tuple(tally.blocked),
        retired=retired,
        duration_ms=round((time.monotonic() - began_s) * _MS),
        dry_run=True,
    )


def _count_new(
    importer: Importer,
    rules: Rules,
    tally: _Tally,
    name: str,
    data: bytes,
    slot: SlotRow | None,
) -> None:
    text = importer.form_of(name).first(data)
    if slot is None:
        tally.created += rules.creates
    elif view_of(slot.file) != view_of(text.file):
        tally.imported += 1


def _count_bound(
    importer: Importer, tally: _Tally, row: FileRow, data: bytes, slot: SlotRow | None
) -> None:
    form = importer.form_of(row.name)
    tally.imported += not form.change(row, data).is_none
    if slot is not None and not slot.is_deleted:
        tally.written += not form.stands_for(row, slot.file)
