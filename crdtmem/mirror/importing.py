"""Imports: what a tool has put into a file becomes part of the slot.

One import is one transaction of the store: the slot's new text, the bytes that it came
from as the file's new base, and a pin of the slot's text then. So a crash neither
repeats nor loses one. The base says what the tool has seen: what is in the slot besides
was written by others, and stays.

Lines that were appended to the base go to the very end of the slot. Any other change is
carried over as a stale merge: from the base, or from an older text of the file if the
tool had that one in its hands.
"""

import hashlib
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, Literal, NamedTuple

from crdtmem.doc.delta import Delta, Splice, apply_delta
from crdtmem.doc.rebase import merge_delta
from crdtmem.doc.text_form import lines_of
from crdtmem.doc.trace import Trace
from crdtmem.editing import SlotWrite
from crdtmem.errors import (
    CrdtmemError,
    DocError,
    SizeLimitError,
    SlotQuarantinedError,
    SlotRefusedError,
    UnreadableFileError,
)
from crdtmem.limits import RING_BYTES, RING_KEPT_S, RING_TEXTS
from crdtmem.mirror.arrivals import nearest
from crdtmem.mirror.forms import FileChange, Form, Source
from crdtmem.mirror.reading import FileStat
from crdtmem.session import Place, Session, Writing
from crdtmem.store.events import add_event
from crdtmem.store.mirrors import (
    FileRow,
    KeptText,
    RetiredRow,
    add_text,
    let_pin_go,
    prune_texts,
    require_file,
    require_retired,
    save_file,
    save_retired,
    texts_of,
)
from crdtmem.store.pins import Pin, find_pin, follow, make_pin
from crdtmem.store.rows import SlotRow
from crdtmem.store.write import Change
from crdtmem.textdiff import diff_lines

if TYPE_CHECKING:
    from crdtmem.store.connection import Connection

__all__ = [
    "BLOCKING",
    "Importer",
    "Outcome",
    "Taken",
    "append_lines",
    "trace_of",
    "with_stat",
]

Outcome = Literal["same", "merged", "blocked", "rejected", "stale"]

BLOCKING = (UnreadableFileError, SizeLimitError, SlotQuarantinedError)
"""What keeps a file from being taken in for now; its code is the reason."""

_MS = 1000
_RING_LEAST = 8
_DIGEST_CHARS = 32


class Taken(NamedTuple):
    """How an import ended.

    Attributes:
        outcome: ``same``: the slot has it already. ``merged``: the slot was written.
            ``stale``: merged, with what was made from an older text of the file.
            ``blocked``: nothing was changed. ``rejected``: the slot takes no such
            write; the content lies in ``rejected/``, and counts as overwritten.
        reason: Why it is blocked.

    """

    outcome: Outcome
    reason: str = ""


class _Merged(NamedTuple):
    """A slot after a merge, and what is to be kept of it as the new base."""

    outcome: Outcome
    row: SlotRow | None
    change: FileChange


class Importer:
    """Takes in files of one mirror.

    Args:
        session: Whose writes they are.
        mirror: The mirror's id.
        namespace: Of its slots.
        form_of: Says how a file of that name stands for its slot's text.
        reject: Keeps what no slot takes; returns under which name.

    """

    def __init__(
        self,
        session: Session,
        mirror: str,
        namespace: str,
        *,
        form_of: Callable[[str], Form],
        reject: Callable[[str, bytes, int], str],
    ) -> None:
        self.session = session
        self.mirror = mirror
        self.namespace = namespace
        self.form_of = form_of
        self._reject = reject

    def take(self, name: str, data: bytes, stat: FileStat | None) -> Taken:
        """Import what a bound file holds: all of it, or whole lines from its start.

        Args:
            name: The file.
            data: The bytes, which are its base when this returns, unless blocked.
            stat: What belongs to them; None if the file holds more by now.

        """
        try:
            with self.session.writing() as writing:
                return self._take(writing, name, data, stat)
        except BLOCKING as exc:
            return self.block(name, exc, data, stat)
        except SlotRefusedError as exc:
            rejected = self.reject(str(exc.details["label"]), data)
            with self.session.writing() as writing:
                self._overlook(writing, name, data, stat)
                self.note_rejected(writing, name, rejected, exc)
            return Taken("rejected", exc.code)

    def take_late(self, row: RetiredRow, data: bytes) -> Taken:
        """Import what was written to a file after it had been swapped out.

        Nothing is recorded of one that is blocked: its bytes stay where they are.
        """
        try:
            with self.session.writing() as writing:
                found = require_retired(writing.transaction.connection, row.number)
                kept = self._kept(writing, found, data)
                merged = self._merge(writing, found, data, kept)
                self._save_late(writing, found, data, merged)
                return Taken(merged.outcome)
        except BLOCKING as exc:
            return Taken("blocked", exc.code)
        except SlotRefusedError as exc:
            late = data.removeprefix(row.base)
            rejected = self.reject(row.label, late)
            with self.session.writing() as writing:
                found = require_retired(writing.transaction.connection, row.number)
                change = self.form_of(row.name).change(found, data)
                self._save_late(writing, found, data, _Merged("same", None, change))
                self.note_rejected(writing, row.name, rejected, exc)
            return Taken("rejected", exc.code)

    def block(
        self, name: str, exc: CrdtmemError, data: bytes | None, stat: FileStat | None
    ) -> Taken:
        """Note why a file is left alone; an event once for each content."""
        content = repr(stat).encode() if data is None else data
        key = hashlib.sha256(content).hexdigest()[:_DIGEST_CHARS]
        with self.session.writing() as writing:
            connection = writing.transaction.connection
            row = require_file(connection, self.mirror, name)
            if (row.blocked, row.blocked_by) != (exc.code, key):
                self.note(writing, exc.code, name, row.label, message=exc.message)
            after = with_stat(row, stat) if stat else row
            after = after._replace(blocked=exc.code, blocked_by=key)
            if after != row:
                save_file(connection, after)
        return Taken("blocked", exc.code)

    def note(
        self, writing: Writing, kind: str, name: str, label: str, **details: object
    ) -> None:
        """Note an event of a file, in the transaction."""
        add_event(
            writing.transaction.connection,
            kind,
            at_ms=writing.transaction.now_ms,
            namespace=self.namespace,
            label=label,
            details={"file": name, "mirror": self.mirror, **details},
        )

    def tell(self, kind: str, name: str, label: str, **details: object) -> None:
        """Note an event of a file in a transaction of its own."""
        with self.session.writing() as writing:
            self.note(writing, kind, name, label, **details)

    def write_of(self, writing: Writing, label: str) -> SlotWrite:
        """Return the write of a slot in a transaction."""
        place = Place(self.namespace, label)
        return SlotWrite(self.session, writing, place, None)

    def commit(self, write: SlotWrite, delta: Delta, *, is_append: bool) -> SlotRow:
        """Change a slot's text, if the change is one, and return its row.

        Raises:
            SizeLimitError: If the text would be longer than the slot allows.

        """
        file = apply_delta(write.row.file, delta)
        if file == write.row.file:
            return write.row
        write.require_size(file, "append" if is_append else "mirror")
        change = Change(
            operation="mirror",
            lane=self.session.lane,
            delta=delta,
            meta=write.settings(None),
        )
        return write.write(change)[0]

    def prune_ring(self, writing: Writing, name: str, *, keep: int) -> None:
        """Drop the texts that a file had before, but for the newest."""
        transaction = writing.transaction
        since_ms = transaction.now_ms - round(RING_KEPT_S * _MS)
        prune_texts(
            transaction.connection, self.mirror, name, keep=keep, since_ms=since_ms
        )

    def _take(
        self, writing: Writing, name: str, data: bytes, stat: FileStat | None
    ) -> Taken:
        connection = writing.transaction.connection
        row = require_file(connection, self.mirror, name)
        kept = self._kept(writing, row, data)
        merged = self._merge(writing, row, data, kept)
        if merged.outcome == "stale":
            self.note(writing, "mirror-stale-save", name, row.label)
            self.prune_ring(writing, name, keep=0)
        self._save(writing, row, data, stat, merged)
        return Taken(merged.outcome)

    def _kept(self, writing: Writing, source: Source, data: bytes) -> list[KeptText]:
        """Return the texts that bytes may come from besides their base."""
        if source.base and data.startswith(source.base):
            # More of the same file, though perhaps of the same line.
            return []
        self.prune_ring(writing, source.name, keep=RING_TEXTS - 1)
        kept = texts_of(writing.transaction.connection, self.mirror, source.name)
        sizes = accumulate(len(text.text) for text in kept)
        few = sum(size <= RING_BYTES for size in sizes)
        return kept[: max(few, _RING_LEAST)]

    def _merge(
        self,
        writing: Writing,
        source: Source,
        data: bytes,
        kept: Sequence[KeptText] = (),
    ) -> _Merged:
        form = self.form_of(source.name)
        change = form.change(source, data, [text.text for text in kept])
        if change.is_none:
            return _Merged("same", None, change)
        connection = writing.transaction.connection
        write = self.write_of(writing, source.label)
        origin = self._origin(source, change, kept)
        is_append = change.appended is not None and origin is None
        row = write.live_slot(is_append=is_append, may_be_deleted=True)
        is_stale = False
        if origin is not None:
            trace = trace_of(connection, origin.pin, row, origin.text)
            delta = merge_delta(trace, origin.text, _union(origin.text, change.new))
        elif change.appended is not None:
            delta = append_lines(row.file, change.appended)
        else:
            delta, is_stale = self._rebased(connection, row, source, change, kept)
        after = self.commit(write, delta, is_append=is_append)
        outcome: Outcome = "same" if after is row else "merged"
        return _Merged("stale" if is_stale else outcome, after, change)

    def _origin(
        self, source: Source, change: FileChange, kept: Sequence[KeptText]
    ) -> KeptText | None:
        """Return what the text of a file was made from that came into a gap, if so.

        In the gap of a swap without exchange a tool has either made a new file, and its
        lines are to be added; or saved the old one under its name. Neither takes lines
        out of the slot, since which of them it was can only be guessed.
        """
        if source.base or source.pin or not kept:
            return None
        form = self.form_of(source.name)
        older = [
            one._replace(text=form.text_of(one.text, [one.text]))
            for one in reversed(kept)
        ]
        found = older[nearest([one.text for one in older], change.new)]
        old, new = Counter(lines_of(found.text)), Counter(lines_of(change.new))
        is_most = 2 * (old & new).total() > max(old.total(), new.total())
        return found if is_most else None

    def _rebased(
        self,
        connection: "Connection",
        row: SlotRow,
        source: Source,
        change: FileChange,
        kept: Sequence[KeptText],
    ) -> tuple[Delta, bool]:
        form = self.form_of(source.name)
        # A text that once came as an old one, and comes again, is meant: whoever takes
        # lines out a second time has seen that they came back.
        older = [
            (text, kept_text.pin)
            for kept_text in reversed(kept)
            if (text := form.text_of(kept_text.text, [kept_text.text])) != change.new
            or not kept_text.is_stale
        ]
        texts = [*older, (change.old, source.pin)]
        # Nothing is made from nothing: any text is as near to an empty file.
        chosen = len(older)
        if change.new:
            chosen = nearest([text for text, _ in texts], change.new)
        base, pin = texts[chosen]
        trace = trace_of(connection, pin, row, base)
        return merge_delta(trace, base, change.new), chosen < len(older)

    def _save(
        self,
        writing: Writing,
        row: FileRow,
        data: bytes,
        stat: FileStat | None,
        merged: _Merged,
    ) -> None:
        transaction = writing.transaction
        connection = transaction.connection
        pin = row.pin
        if merged.row is not None:
            pin = make_pin(connection, merged.row, transaction.now_ms)
        save_file(
            connection,
            with_stat(row, stat)._replace(
                bom=int(merged.change.style.bom),
                eol=merged.change.style.eol,
                base=data,
                is_stale=int(merged.outcome == "stale"),
                pin=pin,
                blocked="",
                blocked_by="",
            ),
        )
        if pin != row.pin:
            let_pin_go(connection, row.pin)

    def _save_late(
        self, writing: Writing, row: RetiredRow, data: bytes, merged: _Merged
    ) -> None:
        transaction = writing.transaction
        connection = transaction.connection
        pin = row.pin
        if merged.row is not None:
            pin = make_pin(connection, merged.row, transaction.now_ms)
        style = merged.change.style
        after = row._replace(bom=int(style.bom), eol=style.eol, base=data, pin=pin)
        save_retired(connection, after)
        if merged.change.appended is None:
            # Its tool may have read it before the swap, and go on from there.
            text = self.form_of(row.name).file_text(after)
            add_text(connection, after, text, transaction.now_ms)
        if pin != row.pin:
            let_pin_go(connection, row.pin)

    def _overlook(
        self, writing: Writing, name: str, data: bytes, stat: FileStat | None
    ) -> None:
        """Take a file's content for its base although the slot has not taken it.

        The file is then written anew as a file is whose slot has changed.
        """
        connection = writing.transaction.connection
        row = require_file(connection, self.mirror, name)
        slot = writing.transaction.slot(self.namespace, row.label)
        change = self.form_of(name).change(row, data)
        self._save(writing, row, data, stat, _Merged("same", slot, change))

    def reject(self, label: str, data: bytes) -> str:
        """Keep what a slot does not take; return under which name, if any."""
        if not data:
            return ""
        return self._reject(label, data, self.session.store.clock_ms())

    def note_rejected(
        self, writing: Writing, name: str, rejected: str, exc: SlotRefusedError
    ) -> None:
        """Note that a slot did not take what a file held."""
        label = str(exc.details["label"])
        details = {"reason": exc.code, "rejected": rejected}
        self.note(writing, "mirror-rejected", name, label, **details)


def _union(old: str, new: str) -> str:
    """Return a text with the lines that another one has besides."""
    parts: list[str] = []
    at_chars = 0
    for _, end_chars, insert in diff_lines(old, new):
        parts += [old[at_chars:end_chars], insert]
        at_chars = end_chars
    return "".join([*parts, old[at_chars:]])


def append_lines(file: str, lines: str) -> Delta:
    """Return the change that puts whole lines at the very end of a file.

    Not as an append of a lane: there a blank last line gives way, which a tool that
    appends to a file leaves where it is.
    """
    if file and not file.endswith("\n"):
        lines = f"\n{lines}"
    end_chars = len(file)
    return (Splice(end_chars, end_chars, lines),)


def trace_of(connection: "Connection", pin: int, row: SlotRow, base: str) -> Trace:
    """Return a text of a file with what was written to its slot since."""
    try:
        found = find_pin(connection, pin)
    except DocError:
        found = None
    if found is None or found.doc != row.doc:
        # Damaged, or of the slot whose file this was: the two texts are compared.
        found = Pin(0, row.doc, row.lsn, row.rev, row.file)
    return follow(connection, found, row, base).trace


def with_stat(row: FileRow, stat: FileStat | None) -> FileRow:
    """Return a row with a file's stat; None is that of a file to be read again."""
    if stat is None:
        return row._replace(size=0, mtime_ns=0, ctime_ns=0)
    return row._replace(
        dev=stat.dev,
        ino=stat.ino,
        size=stat.size,
        mtime_ns=stat.mtime_ns,
        ctime_ns=stat.ctime_ns,
    )
