"""Write-back: what happened to a slot is written to its file.

A file is replaced by a swap, in steps that a crash may part anywhere (``recovery``):

    plan      the new bytes, of the slot's text of now
    put       a file in ``swap/`` that holds them, on disk
    intend    noted in the store: which file, and which bytes it holds
    exchange  file and swap file change places; nothing that was written is lost by it
    settle    noted in the store: the new base, and the file that was swapped out

No look at the file is needed between them: whatever a tool does to it until the very
exchange lies in ``swap/`` afterwards, and is compared there with the base it had
(``draining``).
"""

import secrets
from typing import TYPE_CHECKING, NamedTuple

from crdtmem.errors import SlotQuarantinedError, UnreadableFileError
from crdtmem.limits import RING_TEXTS
from crdtmem.mirror.folder import FileStat, MirrorFolder
from crdtmem.mirror.forms import Encoded
from crdtmem.mirror.importing import Importer, with_stat
from crdtmem.mirror.swapping import Recovered
from crdtmem.mirror.texts import FileStyle
from crdtmem.session import Writing
from crdtmem.store.mirrors import (
    FileRow,
    Intent,
    RetiredRow,
    add_retired,
    add_text,
    delete_file,
    find_file,
    let_pin_go,
    require_file,
    save_file,
)
from crdtmem.store.pins import make_pin
from crdtmem.store.rows import SlotRow
from crdtmem.store.slots import find_slot

if TYPE_CHECKING:
    from crdtmem.store.connection import Connection

__all__ = ["Plan", "Writer", "new_swap_name"]

_TOKEN_BYTES = 8
_NEW_FILE_MODE = 0o600
_NO_FILE_YET = 0


class Plan(NamedTuple):
    """A swap to be done.

    Attributes:
        row: The file; one without a base where it is to be made.
        target: What it is to hold.
        swap_name: Where that lies until it has its name.
        put: What the system says of the swap file, once it is there.

    """

    row: FileRow
    target: Encoded
    swap_name: str
    put: FileStat | None = None

    @property
    def is_new(self) -> bool:
        """Whether the file is to be made."""
        return self.row.ino == _NO_FILE_YET


class Writer:
    """Writes the files of one mirror.

    Args:
        importer: Knows the slots.
        folder: The files.

    """

    def __init__(self, importer: Importer, folder: MirrorFolder) -> None:
        self._importer = importer
        self._folder = folder
        self._is_over = False

    def create(self, slot: SlotRow, name: str) -> bool:
        """Make the file of a slot; False if the slot is gone, or the name is taken.

        Raises:
            OSError: As swap.

        """
        row = FileRow(self._importer.mirror, name, slot.label)
        target = self._importer.form_of(name).encode(slot.file, FileStyle())
        return self.swap(Plan(row, target, new_swap_name(slot.label)))

    def retire(self, name: str) -> bool:
        """Take a file out of the folder whose slot is deleted.

        Whoever has it open may go on writing, and so bring the slot back.

        Returns:
            Whether it is out; False if it has gone already.

        Raises:
            UnreadableFileError: If the name stands for something that is no file.

        """
        importer = self._importer
        with importer.session.writing() as writing:
            connection = writing.transaction.connection
            row = require_file(connection, importer.mirror, name)
            swap_name = new_swap_name(row.label)
            intent = Intent(
                swap_name, _NO_FILE_YET, row.bom, row.eol, row.pin, row.base
            )
            save_file(connection, row._replace(intent=intent))
        try:
            self._folder.retire(name, swap_name)
        except FileNotFoundError:
            self.recover(name)
            return False
        except (UnreadableFileError, OSError):
            self.recover(name)
            raise
        self.settle_retired(name)
        return True

    def recover(self, name: str) -> None:
        """Bring a swap that was interrupted to one of its ends.

        Raises:
            OSError: If that is not possible just now; it may be repeated.

        """
        importer = self._importer
        with importer.session.store.reading() as connection:
            _, intent = _intended(connection, importer.mirror, name)
        if intent.ino != _NO_FILE_YET:
            done = self._folder.recover(name, intent.swap_name, intent.ino)
            self.settle(name, done)
        elif self._folder.stat_swap(intent.swap_name) is not None:
            self.settle_retired(name)
        else:
            self.settle(name, Recovered(None, is_placed=False))

    def swap(self, plan: Plan) -> bool:
        """Take the steps of a planned swap.

        Returns:
            Whether the file was written. Not if it has gone, or is another one by now,
            or its slot is deleted: then what is there has to be looked at.

        Raises:
            UnreadableFileError: If the name has come to stand for something that is no
                file; that is untouched.
            OSError: If the disk is full, …; the file is untouched, or the swap is done.

        """
        name = plan.row.name
        try:
            plan = self.put(plan)
            is_intended = self.intend(plan)
        except SlotQuarantinedError:
            is_intended = False
        except BaseException:
            # Whether it was noted or not: there is nothing to swap.
            self._folder.unlink_swap(plan.swap_name)
            raise
        if not is_intended:
            self._folder.unlink_swap(plan.swap_name)
            return False
        try:
            done = self.exchange(plan)
        except (UnreadableFileError, OSError):
            # It may have happened all the same: only the files can tell.
            self.recover(name)
            raise
        if done is None:
            self.recover(name)
            return False
        self.settle(name, done)
        return done.is_placed

    # The steps, in order.

    def plan(self, name: str) -> Plan | None:
        """Return the swap that a file needs, or None."""
        importer = self._importer
        with importer.session.store.reading() as connection:
            row = require_file(connection, importer.mirror, name)
            slot = find_slot(connection, importer.namespace, row.label)
        if slot is None or slot.is_deleted or slot.quarantined:
            return None
        form = importer.form_of(name)
        style = FileStyle(bom=bool(row.bom), eol=row.eol)
        target = form.encode(slot.file, style)
        self._tell_if_over(row, target)
        if target.data == row.base or form.stands_for(row, slot.file):
            return None
        return Plan(row, target, new_swap_name(row.label))

    def put(self, plan: Plan) -> Plan:
        """Make the swap file, with the permissions of the file it is to replace."""
        old = None if plan.is_new else self._folder.stat(plan.row.name)
        mode = _NEW_FILE_MODE if old is None else old.mode & 0o777
        return plan._replace(
            put=self._folder.write_swap(plan.swap_name, plan.target.data, mode)
        )

    def intend(self, plan: Plan) -> bool:
        """Note in the store what is about to happen; False if it must not any more."""
        importer = self._importer
        with importer.session.writing() as writing:
            transaction = writing.transaction
            connection = transaction.connection
            row = find_file(connection, importer.mirror, plan.row.name)
            slot = transaction.slot(importer.namespace, plan.row.label)
            is_as_planned = row is None if plan.is_new else row == plan.row
            if slot is None or slot.is_deleted or not is_as_planned:
                return False
            # Of the text of now, if another has been written since the plan was made:
            # what it has besides the planned bytes counts as written after them.
            pin = make_pin(connection, slot, transaction.now_ms)
            style = plan.target.style
            intent = Intent(
                plan.swap_name,
                plan.put.ino if plan.put else _NO_FILE_YET,
                int(style.bom),
                style.eol,
                pin,
                plan.target.data,
            )
            row = plan.row if row is None else row
            save_file(
                connection,
                row._replace(intent=intent, pin=pin if plan.is_new else row.pin),
            )
        return True

    def exchange(self, plan: Plan) -> Recovered | None:
        """Give the swap file its name; None where the file to be replaced is gone.

        Raises:
            UnreadableFileError: If the name stands for something that is no file.
            OSError: If the system refuses; the file is untouched.

        """
        name = plan.row.name
        try:
            if plan.is_new:
                self._folder.create(name, plan.swap_name)
                return Recovered(None, is_placed=True)
            done = self._folder.replace(name, plan.swap_name)
        except (FileNotFoundError, FileExistsError):
            return None
        return Recovered(done.swap_name, is_placed=done.is_placed)

    def settle(self, name: str, done: Recovered) -> None:
        """Note in the store how a swap has ended.

        The bytes that were put there are the file's new base; the file that was swapped
        out keeps the old one.
        """
        importer = self._importer
        with importer.session.writing() as writing:
            connection = writing.transaction.connection
            row, intent = _intended(connection, importer.mirror, name)
            if done.swap_name is None and not done.is_placed:
                self._clear(writing, row, intent)
                return
            if done.swap_name is not None:
                self._keep_retired(writing, row, done.swap_name)
            after = row._replace(
                bom=intent.bom,
                eol=intent.eol,
                # Of what a tool has put in the gap nothing is known: see Importer.
                base=intent.base if done.is_placed else b"",
                is_stale=0,
                pin=intent.pin if done.is_placed else 0,
                dev=self._folder.place().dev,
                ino=intent.ino,
                intent=None,
            )
            save_file(connection, with_stat(after, self._stat_of(name, intent)))
            for pin in {row.pin, intent.pin} - {after.pin}:
                let_pin_go(connection, pin)
        if not done.is_placed:
            self._folder.unlink_swap(intent.swap_name)

    def settle_retired(self, name: str) -> None:
        """Note in the store that a file is out of the folder."""
        with self._importer.session.writing() as writing:
            connection = writing.transaction.connection
            row, intent = _intended(connection, self._importer.mirror, name)
            self._add_retired(writing, row, intent.swap_name)
            delete_file(connection, row)

    def _tell_if_over(self, row: FileRow, target: Encoded) -> None:
        """Note once that a file has become longer than its tool reads."""
        if target.is_over and not self._is_over:
            self._importer.tell("mirror-index-cap", row.name, row.label)
        self._is_over = target.is_over or (self._is_over and not target.has_index)

    def _clear(self, writing: Writing, row: FileRow, intent: Intent) -> None:
        connection = writing.transaction.connection
        if row.ino == _NO_FILE_YET:
            delete_file(connection, row)
            return
        save_file(connection, row._replace(intent=None))
        if intent.pin != row.pin:
            let_pin_go(connection, intent.pin)

    def _keep_retired(self, writing: Writing, row: FileRow, swap_name: str) -> None:
        transaction = writing.transaction
        self._add_retired(writing, row, swap_name)
        text = self._importer.form_of(row.name).file_text(row)
        add_text(transaction.connection, row, text, transaction.now_ms)
        self._importer.prune_ring(writing, row.name, keep=RING_TEXTS - 1)

    def _add_retired(self, writing: Writing, row: FileRow, swap_name: str) -> None:
        transaction = writing.transaction
        found = self._folder.stat_swap(swap_name)
        add_retired(
            transaction.connection,
            RetiredRow(
                number=0,
                mirror=row.mirror,
                swap_name=swap_name,
                name=row.name,
                label=row.label,
                dev=found.dev if found else row.dev,
                ino=found.ino if found else row.ino,
                bom=row.bom,
                eol=row.eol,
                base=row.base,
                pin=row.pin,
                at_ms=transaction.now_ms,
            ),
        )

    def _stat_of(self, name: str, intent: Intent) -> FileStat | None:
        """Return the stat of the file that was put there, if it is as it was put."""
        found = self._folder.stat(name)
        if found is None or found.ino != intent.ino:
            return None
        return found if found.size == len(intent.base) else None


def new_swap_name(label: str) -> str:
    """Return a name that no file in ``swap/`` has had, and that tells its slot."""
    return f"{secrets.token_hex(_TOKEN_BYTES)}.{label}"


def _intended(
    connection: "Connection", mirror: str, name: str
) -> tuple[FileRow, Intent]:
    row = require_file(connection, mirror, name)
    if row.intent is None:
        raise LookupError(f"no swap of {name!r} has begun")
    return row, row.intent
