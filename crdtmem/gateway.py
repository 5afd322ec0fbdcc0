"""Editing: the document that the editors of a slot share, and its way into the slot.

    accept  what editors typed: durable when it returns, and not yet part of the slot
    fold    makes it a write of the slot: one rev, a record for each turn of a lane
    follow  brings what others wrote to the slot to the editors

Editor docs and slots meet by their texts only. Up to one row of the editor doc's log
(``n_folded``) both had the same text; what was typed since is laid over what was
written to the slot since, as every stale merge is.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NamedTuple

from crdtmem.doc.delta import Splice, apply_delta
from crdtmem.doc.editor_doc import EditorDoc, following_delta, text_of_other
from crdtmem.doc.rebase import merge_delta
from crdtmem.doc.text_form import bytes_of, closed, units_of, view_of
from crdtmem.doc.trace import Trace
from crdtmem.errors import (
    DocError,
    OtherIncarnationError,
    SlotNotFoundError,
    SlotQuarantinedError,
    StoreBusyError,
    StoreFullError,
    UpdateRejectedError,
)
from crdtmem.headroom import fits
from crdtmem.limits import (
    EDITOR_RETIRE_BYTES,
    EDITOR_RETIRE_MS,
    EDITOR_RETIRE_TEXTS,
    EDITOR_STEP2_BYTES,
    EDITOR_TEXT_BYTES,
    EDITOR_TEXT_SLACK_UNITS,
    EDITOR_UPDATE_BYTES,
    FOLD_RUNS_MAX,
)
from crdtmem.scope import scope_of
from crdtmem.session import Place, Session
from crdtmem.store.connection import Connection
from crdtmem.store.context import file_context
from crdtmem.store.editors import (
    EditorLogRow,
    EditorRow,
    Run,
    add_editor_row,
    delete_editor_doc,
    editor_rows,
    find_editor_doc,
    keep_damaged,
    keep_rescued,
    load_editor_doc,
    make_editor_doc,
    mark_folded,
    new_gid,
    save_blocked,
    save_gid,
    squash_editor_doc,
    write_runs,
)
from crdtmem.store.pins import Pin, find_pin, follow
from crdtmem.store.rows import SlotRow
from crdtmem.store.slots import empty_slot, find_slot, rescued_texts
from crdtmem.store.write import Transaction
from crdtmem.textdiff import diff_lines
from crdtmem.updates import scan_editor, scan_other

__all__ = ["Accepted", "Editing", "FoldResult", "FollowResult", "Look", "Offer"]

NOTHING = b"\0\0"
"""The update of nothing: no structs, no deletes."""


class Offer(NamedTuple):
    """An update of an editor.

    Attributes:
        lane: Who typed it.
        update: The update.
        is_first: Whether it is the answer to what we have: all that was typed without
            a connection.
        may_write: Whether its sender may write at all.

    """

    lane: str
    update: bytes
    is_first: bool = False
    may_write: bool = True


class Accepted(NamedTuple):
    """What became of an offer.

    Attributes:
        n: The row from which on it is in the editor doc; None: it was not taken.
        code: Empty, ``known`` for a repetition, or why it was not taken.

    """

    n: int | None
    code: str


class FollowResult(NamedTuple):
    """The newest row, and the slot's rev whose text the editors have."""

    n: int
    rev: int


class FoldResult(NamedTuple):
    """What became of a fold.

    Attributes:
        rev: The slot's.
        folded: Rows that became part of it.
        merged: Whether others had written to the slot meanwhile.
        blocked: Why nothing did; None where it did, or there was nothing.

    """

    rev: int
    folded: int = 0
    merged: bool = False
    blocked: str | None = None


class Look(NamedTuple):
    """An editor doc and its slot at one moment.

    Attributes:
        n: The newest row.
        n_folded: Up to which row the slot has what was typed.
        rev: The slot's rev whose text the editors have.
        blocked: Why what was typed cannot become part of the slot; or empty.
        slot: The slot; None if it is deleted.

    """

    n: int
    n_folded: int
    rev: int
    blocked: str
    slot: SlotRow | None

    @property
    def unfolded(self) -> int:
        """How many rows the slot lacks."""
        return self.n - self.n_folded


@dataclass(slots=True)
class _Change:
    """A transaction, and what it stands on."""

    tx: Transaction
    row: EditorRow
    slot: SlotRow


class Editing:
    """The editors of one slot. Made by ``Memory.editing``; any thread may use it.

    Several processes may have one for the same slot; each method is one transaction.

    Attributes:
        anchor: The client id of the document's own entry.
        incarnation: Names the document; another store file, or a damaged or worn-out
            document, begins a new one.

    Raises:
        SlotNotFoundError: If the slot is deleted, or was never made.
        SlotQuarantinedError: If one of its records is damaged.
        StoreError: If the store cannot be written.

    """

    def __init__(self, session: Session, place: Place) -> None:
        self._session = session
        self._place = place
        self._file = file_context(session.store.path)
        self._cached: tuple[EditorRow, EditorDoc] | None = None
        with self._writing() as tx:
            row = self._opened(tx)
        self.anchor = row.anchor
        self.incarnation = row.incarnation

    def state_vector(self) -> bytes:
        """Return what the document has."""
        with self._session.store.snapshot() as connection:
            return self._document(connection, self._row(connection)).state_vector()

    def diff(self, state_vector: bytes) -> tuple[int, bytes]:
        """Return the newest row, and what is missing up to it where this much is there.

        Raises:
            UpdateRejectedError: If that is no state vector.

        """
        with self._session.store.snapshot() as connection:
            row = self._row(connection)
            return row.n, self._document(connection, row).diff(state_vector)

    def since(self, n: int) -> list[tuple[int, bytes]] | None:
        """Return the rows after one; None if they are squashed: ask for a diff."""
        with self._session.store.snapshot() as connection:
            row = self._row(connection)
            if n < row.n_state:
                return None
            rows = editor_rows(connection, row.editor, after=n)
        return [(each.n, each.content) for each in rows]

    def look(self) -> Look:
        """Return how the document and its slot stand."""
        with self._session.store.snapshot() as connection:
            row = self._row(connection)
            slot = self._slot(connection)
        shown = None if slot.is_deleted else slot
        return Look(row.n, row.n_folded, row.rev, row.blocked, shown)

    def accept(self, offers: Sequence[Offer]) -> list[Accepted]:
        """Take editors' updates, all in one commit; durable when it returns.

        Raises:
            OtherIncarnationError: If the document has ended.
            StoreError: If the store cannot be written; nothing was taken.

        """
        with self._changing() as change:
            return [self._take(change, offer) for offer in offers]

    def follow(self) -> FollowResult:
        """Bring what others wrote to the slot to the editors, if nothing is unfolded.

        Raises:
            OtherIncarnationError: If the document has ended.

        """
        with self._changing() as change:
            slot = change.slot
            is_well = slot.quarantined is None and not slot.is_deleted
            if is_well and not change.row.has_unfolded:
                self._follow(change)
            return FollowResult(change.row.n, change.row.rev)

    def fold(self) -> FoldResult:
        """Make what was typed part of the slot; see the module.

        What cannot become part of it stays with the editors, and is tried again.

        Raises:
            OtherIncarnationError: If the document has ended.

        """
        try:
            with self._changing() as change:
                return self._fold(change)
        except SlotQuarantinedError as exc:
            # The transaction has marked the slot; what the editors have stays.
            return FoldResult(self.look().rev, blocked=exc.code)
        except (StoreBusyError, StoreFullError) as exc:
            return FoldResult(0, blocked=exc.code)

    def _take(self, change: _Change, offer: Offer) -> Accepted:
        row = change.row
        if offer.update == NOTHING:
            return Accepted(row.n, "known")
        document = self._document(change.tx.connection, row)
        limit = EDITOR_STEP2_BYTES if offer.is_first else EDITOR_UPDATE_BYTES
        try:
            found = scan_editor(
                offer.update,
                state=document.clocks,
                reserved=frozenset((row.anchor,)),
                halves=document.halves(),
                limit_bytes=limit,
            )
        except UpdateRejectedError as exc:
            if exc.code == "other-incarnation" and offer.may_write:
                _rescue(change, offer)
            return Accepted(None, exc.code)
        if code := _not_writable(change.slot, offer):
            return Accepted(None, code)
        before = units_of(document.text)
        try:
            effect = document.take(offer.update, found.clients)
        except (DocError, UpdateRejectedError):
            self._cached = None
            return Accepted(None, "update-malformed")
        if effect is None:
            return Accepted(row.n, "known")
        if not _is_bearable(document.text, before, change.slot.size_limit):
            self._cached = None
            return Accepted(None, "size-limit-exceeded")
        row = add_editor_row(
            change.tx,
            row,
            lane=offer.lane,
            content=effect.update,
            delta=effect.delta,
        )
        if row.blocked:
            # It may fit now.
            row = save_blocked(change.tx.connection, row, "")
        change.row = row
        self._cached = row, document
        return Accepted(row.n, "")

    def _follow(self, change: _Change) -> None:
        """Give the editors the slot's text, which has all that they typed."""
        row, slot = change.row, change.slot
        document = self._document(change.tx.connection, row)
        delta = following_delta(document.text, slot.file)
        if delta:
            content = document.edit(delta)
            row = add_editor_row(change.tx, row, lane="", content=content, delta=delta)
        if delta or row.rev != slot.rev or row.has_unfolded:
            row = mark_folded(change.tx, row, slot)
            row = squash_editor_doc(change.tx.connection, row, document)
        change.row = row
        self._cached = row, document

    def _fold(self, change: _Change) -> FoldResult:
        row, slot, connection = change.row, change.slot, change.tx.connection
        is_moved = row.rev != slot.rev
        if not row.has_unfolded:
            if is_moved and slot.quarantined is None and not slot.is_deleted:
                self._follow(change)
            return FoldResult(slot.rev)
        runs = self._runs(connection, row, slot)
        file = slot.file
        for run in runs:
            file = apply_delta(file, run.delta)
        if code := _blocking(slot, file):
            if row.blocked != code:
                save_blocked(connection, row, code)
            return FoldResult(slot.rev, blocked=code)
        if runs:
            change.slot = write_runs(change.tx, slot, runs, _settings(slot))
        folded = row.n - row.n_folded
        self._follow(change)
        return FoldResult(change.slot.rev, folded, is_moved)

    def _runs(self, connection: Connection, row: EditorRow, slot: SlotRow) -> list[Run]:
        """Return what each lane's turns change in the slot's text, in their order."""
        rows = editor_rows(connection, row.editor, after=row.n_folded)
        trace = None
        if slot.file != row.text:
            trace = _trace_of(connection, row, slot)
        runs: list[Run] = []
        file = slot.file
        for lane, at_ms, text in _turns(row.text, rows):
            after = closed(text)
            if trace is not None:
                # Each time all that was typed until then, over the same slot: what
                # comes out last is what one merge of everything gives.
                delta = merge_delta(trace, row.text, after)
                after = apply_delta(slot.file, delta)
            ops = tuple(Splice(*op) for op in diff_lines(file, after))
            if ops:
                runs.append(Run(lane, at_ms, ops))
            file = after
        return runs

    @contextmanager
    def _writing(self) -> Iterator[Transaction]:
        try:
            with self._session.store.writing() as tx:
                yield tx
        except BaseException:
            # It may be ahead of what was committed.
            self._cached = None
            raise

    @contextmanager
    def _changing(self) -> Iterator[_Change]:
        with self._writing() as tx:
            row = self._row(tx.connection)
            if row.replica != tx.replica:
                row = self._renewed_gid(tx, row)
            yield _Change(tx, row, self._slot(tx.connection))

    def _row(self, connection: Connection) -> EditorRow:
        row = find_editor_doc(connection, *self._place)
        if row is None or row.incarnation != self.incarnation:
            raise OtherIncarnationError(label=self._place.label)
        return row

    def _slot(self, connection: Connection) -> SlotRow:
        """Return the slot, also a deleted or quarantined one, or its template."""
        row = find_slot(connection, *self._place) or self._session.template(self._place)
        return row or empty_slot(*self._place, self._session.store.clock_ms())

    def _document(self, connection: Connection, row: EditorRow) -> EditorDoc:
        """Return the document at its newest row."""
        if self._cached is not None:
            cached, document = self._cached
            is_same = (cached.incarnation, cached.gid) == (row.incarnation, row.gid)
            if is_same and row.n_state <= cached.n <= row.n:
                self._cached = None
                for each in editor_rows(connection, row.editor, after=cached.n):
                    document.replay(each.content)
                self._cached = row, document
                return document
        document = load_editor_doc(connection, row)
        self._cached = row, document
        return document

    def _opened(self, tx: Transaction) -> EditorRow:
        """Return the editor doc, made if there is none that goes on."""
        slot = self._session.find(tx.connection, self._place)
        row = find_editor_doc(tx.connection, *self._place)
        if slot is None and (row is None or not row.has_unfolded):
            scope = scope_of(self._place.namespace)
            raise SlotNotFoundError(label=self._place.label, scope=scope)
        slot = slot or self._slot(tx.connection)
        if slot.quarantined is not None:
            raise SlotQuarantinedError(label=slot.label, reason=slot.quarantined)
        if row is not None:
            if self._goes_on(tx, row):
                return row if row.replica == tx.replica else self._renewed_gid(tx, row)
            slot = find_slot(tx.connection, *self._place) or slot
        return make_editor_doc(tx, slot, place=self._file)

    def _goes_on(self, tx: Transaction, row: EditorRow) -> bool:
        """Tell whether a document can be used; else put away what it holds."""
        try:
            document = self._document(tx.connection, row)
        except (DocError, ValueError):
            keep_damaged(tx, row)
            delete_editor_doc(tx.connection, row)
            return False
        if row.place == self._file and not _is_worn_out(row, document, tx.now_ms):
            return True
        change = _Change(tx, row, self._slot(tx.connection))
        if row.has_unfolded and self._fold(change).blocked is not None:
            keep_rescued(tx, row, "", document.text)
        delete_editor_doc(tx.connection, change.row)
        self._cached = None
        return False

    def _renewed_gid(self, tx: Transaction, row: EditorRow) -> EditorRow:
        """Write under another id: the store has begun to write under other ones."""
        document = self._document(tx.connection, row)
        self._cached = None
        return save_gid(tx, row, new_gid(frozenset(document.clocks)))


def _turns(text: str, rows: Sequence[EditorLogRow]) -> list[tuple[str, int, str]]:
    """Return lane and time of each turn, and the text after it."""
    turns: list[tuple[str, int, str]] = []
    for row in rows:
        text = apply_delta(text, row.delta)
        is_same = bool(turns) and turns[-1][0] == row.lane
        if is_same or len(turns) == FOLD_RUNS_MAX:
            turns.pop()
        turns.append((row.lane, row.at_ms, text))
    return turns


def _trace_of(connection: Connection, row: EditorRow, slot: SlotRow) -> Trace:
    """Return the text that both had with what was written to the slot since."""
    try:
        pin = find_pin(connection, row.pin) if row.pin else Pin(0, slot.doc, 0, 0, "")
    except DocError:
        pin = None
    if pin is None:
        pin = Pin(0, slot.doc, slot.lsn, slot.rev, slot.file)
    return follow(connection, pin, slot, row.text).trace


def _not_writable(slot: SlotRow, offer: Offer) -> str:
    if not offer.may_write:
        return "permission-denied"
    if slot.read_only:
        return "slot-read-only"
    return "slot-append-only" if slot.append_only else ""


def _blocking(slot: SlotRow, file: str) -> str:
    """Return why a slot cannot have this text; empty if it can."""
    if slot.quarantined is not None:
        return SlotQuarantinedError.code
    if slot.read_only:
        return "slot-read-only"
    if slot.append_only:
        return "slot-append-only"
    size = units_of(view_of(file))
    is_in = fits(size, slot.size, slot.size_limit) or file == slot.file
    return "" if is_in else "size-limit-exceeded"


def _settings(slot: SlotRow) -> dict[str, object]:
    """Return the settings that go with a write; see SlotWrite.settings."""
    settings: dict[str, object] = {}
    if not slot.doc:
        settings = {
            "sizeLimit": slot.size_limit,
            "description": slot.description,
            "pinned": bool(slot.pinned),
        }
    if slot.deleted:
        settings["deleted"] = False
    return settings


def _is_bearable(text: str, before_units: int, size_limit: int) -> bool:
    """Tell whether editors may have a text this long, or it at least shrinks."""
    size = units_of(text)
    if size < before_units:
        return True
    most = 2 * size_limit + EDITOR_TEXT_SLACK_UNITS
    return size <= most and bytes_of(text) <= EDITOR_TEXT_BYTES


def _is_worn_out(row: EditorRow, document: EditorDoc, now_ms: int) -> bool:
    least = max(EDITOR_RETIRE_BYTES, EDITOR_RETIRE_TEXTS * bytes_of(document.text))
    is_idle = now_ms - row.touched_ms > EDITOR_RETIRE_MS
    return is_idle and len(row.state) > least


def _rescue(change: _Change, offer: Offer) -> None:
    """Keep the text of an editor that has another document, if it can be read."""
    try:
        scan_other(offer.update, limit_bytes=EDITOR_STEP2_BYTES)
        text = text_of_other(offer.update)
    except (DocError, UpdateRejectedError):
        return
    kept = rescued_texts(change.tx.connection, change.row.namespace, change.row.label)
    if text and text not in (each.text for each in kept):
        keep_rescued(change.tx, change.row, offer.lane, text)
