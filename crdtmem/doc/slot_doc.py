"""A slot's document: its text file, its settings, and the updates that change them.

The only module that touches what is in a pycrdt Doc of a slot. Two habits of pycrdt
shape it: every index and length counts UTF-8 bytes, so positions are converted here and
nowhere else; and integers of a Map come back as floats.

The text is held as a string beside the document. Own writes know their change, and
observing the text instead would cost hundreds of microseconds on a long one.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self

from crdtmem.doc.delta import Delta, apply_delta, delta_of_event, is_whole_lines
from crdtmem.doc.document import Document
from crdtmem.doc.guard import doc_errors
from crdtmem.doc.text_form import bytes_of
from crdtmem.errors import DocError, UpdateRejectedError
from crdtmem.protocol.records import DocKind, genesis_client_id
from crdtmem.updates import SLOT_ROOTS, Scan, read_state_vector, scan_genesis

if TYPE_CHECKING:
    from pycrdt import Text, TextEvent

__all__ = ["SlotDoc", "genesis_id_of", "genesis_update", "splice_text"]


def genesis_update(client_id: int, file: str) -> bytes:
    """Return the update that gives an empty doc its first text, whoever makes it."""
    from pycrdt import Doc, Text  # noqa: PLC0415 - see Document

    with doc_errors("make a first text"):
        doc: Doc[Text] = Doc(client_id=client_id)
        doc["content"] = Text(file)
        return bytes(doc.get_update())


def genesis_id_of(update: bytes, *, namespace: str, label: str) -> int:
    """Return the client id of a first text, which its slot and its words give.

    Raises:
        UpdateRejectedError: If it is no first text, or written under another id.

    """
    found, text = scan_genesis(update, state={})
    client_id = genesis_client_id(namespace, DocKind.SLOT, label, text.encode())
    if found != client_id:
        reason = f"client {found} is not the one of this first text, {client_id}"
        raise UpdateRejectedError(code="update-client", reason=reason, at_byte=0)
    return client_id


class SlotDoc(Document):
    """One slot's document in memory, at one place of its log.

    1. ``file`` is the document's text, always.
    2. ``clocks`` is its state vector, always: what came in was scanned against it.
    3. Every local edit inserts and deletes whole lines.
    4. After a DocError the object is spent.

    Args:
        client_id: The Yjs client id of local edits.

    Attributes:
        client_id: See above.
        file: The text file: empty, or lines that end in a newline.
        clocks: The state vector: next clock of each client id.

    """

    roots = SLOT_ROOTS

    def __init__(self, client_id: int) -> None:
        from pycrdt import Map, Text  # noqa: PLC0415 - see Document

        super().__init__(client_id)
        self.file = ""
        self._text: Text = self._doc.get("content", type=Text)
        self._meta: Map[Any] = self._doc.get("meta", type=Map)

    @classmethod
    def load(cls, client_id: int, state: bytes) -> Self:
        """Make a document from a squashed state; empty bytes are an empty document.

        Raises:
            UpdateRejectedError: If the scanner refuses the state.
            DocError: If pycrdt does.

        """
        doc = cls(client_id)
        if state:
            cls._scanned_state(state)
            with doc_errors("load a state"):
                doc._doc.apply_update(state)
                doc.file = str(doc._text)
                doc.clocks = read_state_vector(doc._doc.get_state())
        return doc

    @property
    def meta(self) -> dict[str, object]:
        """The settings that were ever set, with integers as integers."""
        with doc_errors("read the settings"):
            values = dict(self._meta)
        return {
            key: int(value) if isinstance(value, float) else value
            for key, value in values.items()
        }

    def edit(self, delta: Delta, meta: Mapping[str, object]) -> bytes:
        """Change text and settings in one transaction and return its update.

        Raises:
            DocError: If the change is not of whole lines (nothing was changed), or if
                pycrdt fails.

        """
        if not is_whole_lines(self.file, delta):
            raise DocError("an edit would write a part of a line")
        update = self._edited(lambda: self._change(delta, meta))
        self.file = apply_delta(self.file, delta)
        return update

    def replay(self, writes: Sequence[tuple[bytes, int]]) -> None:
        """Apply logged writes in log order; see Document."""
        super().replay(writes)
        with doc_errors("read the text"):
            self.file = str(self._text)

    def apply(self, update: bytes, client_id: int) -> Delta:
        """Apply another replica's write and return what it changed here.

        Raises:
            UpdateRejectedError: If the scanner refuses it; nothing was applied.
            DocError: If pycrdt fails.

        """
        found = self._scanned(update, client_id)
        return () if found.is_known else self._observed(update, found)

    def apply_genesis(self, update: bytes, *, namespace: str, label: str) -> Delta:
        """Apply a first text and return what it changed here: nothing if it is known.

        Raises:
            UpdateRejectedError: If it is no first text, or its client id is not the
                one that namespace, label and text give; nothing was applied.
            DocError: If pycrdt fails.

        """
        client_id = genesis_id_of(update, namespace=namespace, label=label)
        found = self._scanned(update, client_id)
        return () if found.is_known else self._observed(update, found)

    def replay_genesis(self, update: bytes) -> Delta:
        """Apply a first text that was held against its client id when it came.

        Raises:
            UpdateRejectedError: If it is no first text; nothing was applied.
            DocError: If pycrdt fails.

        """
        client_id, _ = scan_genesis(update, state={})
        found = self._scanned(update, client_id)
        return () if found.is_known else self._observed(update, found)

    def apply_state(self, state: bytes) -> Delta:
        """Apply the whole state of another copy and return what it changed here.

        It may hold text of anybody, in any number of clients. Nothing of it can wait
        for more: it refers to itself alone.

        Raises:
            UpdateRejectedError: If the scanner refuses it; nothing was applied.
            DocError: If pycrdt fails.

        """
        return self._observed(state, self._scanned_state(state))

    def is_same(self, other: Self) -> bool:
        """Tell whether two documents have the same clocks and the same text."""
        return self.clocks == other.clocks and self.file == other.file

    def check(self) -> None:
        """Hold the document against what is believed of it.

        Catches what a scanner cannot see, such as an insert inside an emoji: the text
        by its length and by a reload of the squashed state, and the state vector.

        Raises:
            DocError: If anything differs.

        """
        with doc_errors("read the text"):
            is_right = (
                len(self._text) == bytes_of(self.file)
                and str(self._text) == self.file
                and read_state_vector(self._doc.get_state()) == self.clocks
            )
        if not is_right:
            raise DocError("a document differs from what its records say")
        reason = "a squashed document differs from its records"
        try:
            again = self.load(self.client_id, self.state())
        except UpdateRejectedError as exc:
            raise DocError(reason) from exc
        if not self.is_same(again):
            raise DocError(reason)

    def _change(self, delta: Delta, meta: Mapping[str, object]) -> None:
        splice_text(self._text, self.file, delta)
        for key, value in meta.items():
            self._meta[key] = value

    def _observed(self, update: bytes, found: Scan) -> Delta:
        events: list[dict[str, object]] = []
        with doc_errors("apply a record"):
            subscription = self._text.observe(lambda event: _keep_delta(event, events))
            try:
                self._doc.apply_update(update)
            finally:
                self._text.unobserve(subscription)
            # What cuts a character in two gives an event that counts parts of it.
            delta = delta_of_event(self.file, events)
        self.file = apply_delta(self.file, delta)
        self._advance(found)
        return delta


def splice_text(text: "Text", file: str, delta: Delta) -> None:
    """Make a change in a text of pycrdt, which counts bytes.

    From the back, so that earlier places stay what they are. The new text goes in front
    of the text it replaces: what others append behind that stays behind.

    Args:
        text: What to change.
        file: What it holds.
        delta: The change.

    """
    is_ascii = file.isascii()
    for splice in reversed(delta):
        start, end = splice.start_chars, splice.end_chars
        if not is_ascii:
            start_bytes = bytes_of(file[:start])
            end = start_bytes + bytes_of(file[start:end])
            start = start_bytes
        if splice.insert:
            text.insert(start, splice.insert)
        if end > start:
            shift = bytes_of(splice.insert)
            del text[start + shift : end + shift]


def _keep_delta(event: "TextEvent", events: list[dict[str, object]]) -> None:
    changes: list[dict[str, object]] = event.delta  # type: ignore[attr-defined] # pycrdt's stub leaves it out
    events.extend(changes)
