"""Files that come, go and change their names, and the slots that follow them.

First contact is with a file of which nothing is known: who was there first, file or
slot, and whether one has been made from the other, only their texts can tell. Nothing
is lost in doubt: then both sides' lines stay.
"""

from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

from crdtmem.doc.delta import Delta, Splice, apply_delta
from crdtmem.doc.rebase import carried_delta, merge_delta
from crdtmem.doc.text_form import closed, lines_of, view_of
from crdtmem.doc.trace import Trace
from crdtmem.editing import SlotWrite
from crdtmem.errors import SlotRefusedError
from crdtmem.limits import MIRROR_SIZE_UNITS
from crdtmem.mirror.importing import (
    BLOCKING,
    Importer,
    Outcome,
    Taken,
    trace_of,
    with_stat,
)
from crdtmem.mirror.names import description_for
from crdtmem.mirror.reading import FileStat
from crdtmem.mirror.texts import FileText
from crdtmem.session import Writing
from crdtmem.store.history import entries_of
from crdtmem.store.mirrors import (
    FileRow,
    delete_file,
    rename_file,
    require_file,
    save_file,
)
from crdtmem.store.pins import make_pin
from crdtmem.store.rows import SlotRow
from crdtmem.store.write import Change
from crdtmem.textdiff import diff_lines
from crdtmem.views import settings_of

if TYPE_CHECKING:
    from crdtmem.store.connection import Connection

__all__ = ["Binder", "Removed"]


class Removed(NamedTuple):
    """What became of the slot of a file that is gone.

    Attributes:
        is_deleted: Whether the slot was deleted.
        is_restored: Whether the slot lives on, so that its file is to be written again.
        reason: Why nothing could be done for now; the file's row is still there then.

    """

    is_deleted: bool = False
    is_restored: bool = False
    reason: str = ""


class Binder:
    """Binds files to slots, and parts them again.

    Args:
        importer: Takes the bound files in.

    """

    def __init__(self, importer: Importer) -> None:
        self._importer = importer

    def bind(self, name: str, label: str, data: bytes, stat: FileStat) -> Taken:
        """Bind a file to its slot, which is made if there is none.

        Returns:
            ``same``: the slot was not changed; its text may yet have to be written to
            the file. Else as ``Importer.take``.

        """
        importer = self._importer
        try:
            text = importer.form_of(name).first(data)
            with importer.session.writing() as writing:
                outcome, row = self._joined(writing, name, label, text.file)
                self._save(writing, name, row, (data, stat, text))
                return Taken(outcome)
        except BLOCKING as exc:
            return Taken("blocked", exc.code)
        except SlotRefusedError as exc:
            return self._overrule(name, label, (data, stat, text), exc)

    def remove(self, name: str) -> Removed:
        """Delete the slot of a file that is gone, or what the file had of it.

        What others wrote into the slot and the file has never shown stays, and brings
        the file back.
        """
        importer = self._importer
        try:
            with importer.session.writing() as writing:
                connection = writing.transaction.connection
                row = require_file(connection, importer.mirror, name)
                removed = self._emptied(writing, row)
                delete_file(connection, row)
                return removed
        except BLOCKING as exc:
            return Removed(reason=exc.code)
        except SlotRefusedError:
            self.forget(name)
            return Removed(is_restored=True)

    def make(self, name: str, label: str) -> None:
        """Make a slot without text, if there is none, for a file that has to be."""
        importer = self._importer
        with importer.session.writing() as writing:
            if writing.transaction.slot(importer.namespace, label) is None:
                self._made(importer.write_of(writing, label), None, name, "")

    def forget(self, name: str) -> None:
        """Drop what is known of a file, so that its slot is written to a new one."""
        importer = self._importer
        with importer.session.writing() as writing:
            connection = writing.transaction.connection
            delete_file(connection, require_file(connection, importer.mirror, name))

    def rename(self, old: str, new: str, label: str) -> bool:
        """Follow a file to its new name; its slot gets the label of that name.

        Returns:
            Whether it was done; not where a slot of that label lives, or the old one
            takes no writes: then an old file is gone and a new one has come.

        """
        importer = self._importer
        try:
            with importer.session.writing() as writing:
                connection = writing.transaction.connection
                row = require_file(connection, importer.mirror, old)
                pin = row.pin
                if label != row.label:
                    moved = self._moved_slot(writing, row, new, label)
                    if moved is None:
                        return False
                    pin = make_pin(connection, moved, writing.transaction.now_ms)
                rename_file(connection, row, new, label, pin)
                importer.note(writing, "mirror-renamed", new, label, was=old)
                return True
        except (*BLOCKING, SlotRefusedError):
            return False

    def _joined(
        self, writing: Writing, name: str, label: str, text: str
    ) -> tuple[Outcome, SlotRow]:
        importer = self._importer
        transaction = writing.transaction
        write = importer.write_of(writing, label)
        found = transaction.slot(importer.namespace, label)
        if found is None:
            return "merged", self._made(write, None, name, text)
        if found.is_deleted:
            if not view_of(text):
                return "same", found
            return "merged", self._made(write, found, name, text)
        is_known = view_of(found.file) == view_of(text) or _is_older(
            transaction.connection, found, text
        )
        delta = () if is_known else _union(found.file, text)
        if not delta:
            return "same", found
        is_append = len(delta) == 1 and delta[0].start_chars == len(found.file)
        write.live_slot(is_append=is_append)
        return "merged", importer.commit(write, delta, is_append=is_append)

    def _made(
        self, write: SlotWrite, found: SlotRow | None, name: str, text: str
    ) -> SlotRow:
        """Make the slot of a file, whose row is that of a deleted one, if any."""
        settings = self._settings(write, name)
        write.row = (found or write.plain_slot())._replace(size_limit=MIRROR_SIZE_UNITS)
        write.require_size(text, "create")
        if found is None:
            settings = {k: value for k, value in settings.items() if value is not False}
        return self._put(write, found, text, settings)

    def _put(
        self,
        write: SlotWrite,
        found: SlotRow | None,
        text: str,
        settings: dict[str, object],
    ) -> SlotRow:
        """Write a slot that is not there, by the rule of first texts, or is deleted."""
        lane = self._importer.session.lane
        write.row = found or write.plain_slot()
        if found is None:
            # So two machines make the same of one file.
            change = Change(
                operation="mirror",
                lane=lane,
                meta=settings,
                genesis=text,
                keeps_rev=True,
            )
        else:
            change = Change(
                operation="mirror",
                lane=lane,
                delta=(Splice(0, len(found.file), text),),
                meta=settings | {"deleted": False},
            )
        return write.write(change)[0]

    def _settings(self, write: SlotWrite, name: str) -> dict[str, object]:
        settings = settings_of(write.plain_slot())
        settings["sizeLimit"] = MIRROR_SIZE_UNITS
        description = description_for(name, write.place.label)
        if description is not None:
            settings["description"] = description
        return settings

    def _save(
        self,
        writing: Writing,
        name: str,
        slot: SlotRow,
        found: tuple[bytes, FileStat, FileText],
    ) -> None:
        data, stat, text = found
        connection = writing.transaction.connection
        pin = make_pin(connection, slot, writing.transaction.now_ms)
        row = FileRow(self._importer.mirror, name, slot.label)
        row = row._replace(bom=int(text.bom), eol=text.eol, base=data, pin=pin)
        save_file(connection, with_stat(row, stat))

    def _overrule(
        self,
        name: str,
        label: str,
        found: tuple[bytes, FileStat, FileText],
        exc: SlotRefusedError,
    ) -> Taken:
        """Bind a file to a slot that does not take its text, and so overwrites it."""
        importer = self._importer
        rejected = importer.reject(label, found[0])
        with importer.session.writing() as writing:
            write = importer.write_of(writing, label)
            slot = write.live_slot(is_meta=True, may_be_deleted=True)
            self._save(writing, name, slot, found)
            importer.note_rejected(writing, name, rejected, exc)
        return Taken("rejected", exc.code)

    def _emptied(self, writing: Writing, row: FileRow) -> Removed:
        importer = self._importer
        write = importer.write_of(writing, row.label)
        slot = write.live_slot(may_be_deleted=True)
        if slot.is_deleted:
            return Removed()
        form = importer.form_of(row.name)
        whole = form.file_text(row)
        base = form.text_of(whole, [whole])
        trace = trace_of(writing.transaction.connection, row.pin, slot, base)
        seen = merge_delta(trace, base, "")
        if view_of(apply_delta(slot.file, seen)).strip():
            importer.commit(write, seen, is_append=False)
            return Removed(is_restored=True)
        _delete(write, slot)
        return Removed(is_deleted=True)

    def _moved_slot(
        self, writing: Writing, row: FileRow, name: str, label: str
    ) -> SlotRow | None:
        """Give a slot another label, as Memory.rename does; None if it is taken."""
        importer = self._importer
        transaction = writing.transaction
        target = transaction.slot(importer.namespace, label)
        old = importer.write_of(writing, row.label)
        slot = old.live_slot()
        new = importer.write_of(writing, label)
        settings = settings_of(slot)
        if settings["description"] == description_for(row.name, row.label):
            settings["description"] = ""
        if not settings["description"]:
            settings["description"] = description_for(name, label) or ""
        if target is not None and not target.is_deleted:
            return None
        moved = self._put(new, target, slot.file, settings)
        _delete(old, slot)
        return moved


def _delete(write: SlotWrite, slot: SlotRow) -> None:
    delta: Delta = (Splice(0, len(slot.file), ""),) if slot.file else ()
    write.write(
        Change(
            operation="delete",
            lane=write.session.lane,
            delta=delta,
            meta=write.settings({"deleted": True}),
        )
    )


def _is_older(connection: "Connection", slot: SlotRow, text: str) -> bool:
    view = view_of(text)
    return any(
        view_of(entry.file) == view for entry in entries_of(connection, slot.doc)
    )


def _union(file: str, text: str) -> Delta:
    """Return the change that adds the lines of a text that a file has not."""
    whole = closed(file)
    ops = diff_lines(whole, text)
    # A line that only stands elsewhere is no other line.
    moved = Counter(line for op in ops for line in lines_of(whole[op[0] : op[1]]))
    splices = []
    for start_chars, _, insert in ops:
        lines = []
        for line in lines_of(insert):
            if moved[line]:
                moved[line] -= 1
            else:
                lines.append(line)
        if lines:
            at_chars = min(start_chars, len(file))
            splices.append(Splice(at_chars, at_chars, "".join(lines)))
    return carried_delta(Trace(file), file, splices)
