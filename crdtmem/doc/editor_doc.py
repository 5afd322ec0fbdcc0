"""The document that the editors of a slot share: text under ids of their own choice.

It is bridged to the slot by its text alone. Editors' updates come in scanned; what the
slot's other writers did comes in as edits under a small id of the gateway's own, which
Yjs puts in front of what an editor types at the same place.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple, Self

from crdtmem.doc.delta import Delta, Splice, apply_delta, delta_of_event, joined
from crdtmem.doc.guard import doc_errors
from crdtmem.doc.slot_doc import splice_text
from crdtmem.doc.text_form import lines_of
from crdtmem.errors import DocError
from crdtmem.textdiff import diff_lines
from crdtmem.updates import read_state_vector, scan_other

__all__ = ["EditorDoc", "Effect", "following_delta", "text_of_other"]

_WORDS = re.compile(r"\w+|\s+|.", re.DOTALL)


class Effect(NamedTuple):
    """What an update has changed.

    Attributes:
        update: That part of it which was new.
        delta: Its change of the text.

    """

    update: bytes
    delta: Delta


class EditorDoc:
    """An editor doc in memory, at one place of its log.

    1. ``text`` is its text, always.
    2. ``clocks`` is its state vector, always.
    3. After a DocError the object is spent.

    Args:
        gid: The gateway's client id.

    Attributes:
        text: See above.
        clocks: See above.

    """

    def __init__(self, gid: int) -> None:
        from pycrdt import Doc, Text  # noqa: PLC0415 - see Document

        self.text = ""
        self.clocks: dict[int, int] = {}
        self._doc: Doc[Any] = Doc(client_id=gid)
        self._text: Text = self._doc.get("content", type=Text)

    @classmethod
    def make(cls, *, gid: int, anchor: int, incarnation: str, text: str) -> Self:
        """Make a document of its own with a slot's text.

        Args:
            gid: The gateway's client id.
            anchor: The client id under which its entry is written.
            incarnation: What tells it from every other one.
            text: The slot's file.

        Raises:
            DocError: If pycrdt fails.

        """
        from pycrdt import Doc, Map  # noqa: PLC0415 - see Document

        with doc_errors("make an editor doc"):
            first: Doc[Any] = Doc(client_id=anchor)
            first["crdtmem"] = Map({"incarnation": incarnation})
            state = bytes(first.get_update())
        found = cls.load(gid, state)
        if text:
            found.edit((Splice(0, 0, text),))
        return found

    @classmethod
    def load(cls, gid: int, state: bytes) -> Self:
        """Make a document from a squashed state of its own.

        Raises:
            DocError: If pycrdt fails.

        """
        found = cls(gid)
        with doc_errors("load an editor doc"):
            found._doc.apply_update(state)
            found.text = str(found._text)
            found.clocks = read_state_vector(found._doc.get_state())
        return found

    def edit(self, delta: Delta) -> bytes:
        """Change the text under the gateway's id and return the update.

        Raises:
            DocError: If pycrdt fails.

        """

        def change() -> None:
            with self._doc.transaction():
                splice_text(self._text, self.text, delta)

        update = self._update_of(change)
        self.text = apply_delta(self.text, delta)
        self.clocks = self._vector()
        return update

    def take(self, update: bytes, clients: Mapping[int, int]) -> Effect | None:
        """Apply an editor's scanned update.

        Args:
            update: The update.
            clients: What the scan has found.

        Returns:
            What was new of it; None if everything is known.

        Raises:
            DocError: If the document is not what the scan promised: something waits
                for more, or it would be another text when it is loaded again. The
                object is spent.

        """
        expected = dict(self.clocks)
        for client, end in clients.items():
            expected[client] = max(expected.get(client, 0), end)
        effect = self._applied(update)
        if self._vector() != expected:
            raise DocError("an update waits for what is not there")
        self.clocks = expected
        if not effect.update:
            return None
        # Catches what no scanner sees: a place that no editor could have meant.
        self.state()
        return effect

    def replay(self, update: bytes) -> None:
        """Apply a row of its log.

        Raises:
            DocError: If pycrdt fails.

        """
        self._applied(update)
        self.clocks = self._vector()

    def state(self) -> bytes:
        """Return the squashed state.

        Raises:
            DocError: If loading it again gives another document.

        """
        with doc_errors("squash an editor doc"):
            state = bytes(self._doc.get_update())
        again = self.load(self._doc.client_id, state)
        if (again.text, again.clocks) != (self.text, self.clocks):
            raise DocError("a squashed editor doc differs from its rows")
        return state

    def state_vector(self) -> bytes:
        """Return what it has, as editors ask for it."""
        with doc_errors("read what an editor doc has"):
            return bytes(self._doc.get_state())

    def halves(self) -> frozenset[tuple[int, int]]:
        """Return the second halves of its characters; see EditorScan."""
        if self.text.isascii() or max(self.text) <= "\uffff":
            return frozenset()
        state = self.diff(b"")
        return scan_other(state, limit_bytes=len(state)).halves

    def diff(self, state_vector: bytes) -> bytes:
        """Return what is missing where this much is there.

        Raises:
            UpdateRejectedError: If that is no state vector.
            DocError: If pycrdt fails.

        """
        if state_vector:
            read_state_vector(state_vector)
        with doc_errors("encode an editor doc"):
            return bytes(self._doc.get_update(state_vector or b"\0"))

    def _applied(self, update: bytes) -> Effect:
        events: list[dict[str, object]] = []

        def keep(event: Any) -> None:
            events.extend(event.delta)

        with doc_errors("apply an editor's update"):
            subscription = self._text.observe(keep)
            try:
                fresh = self._update_of(lambda: self._doc.apply_update(update))
            finally:
                self._text.unobserve(subscription)
            delta = delta_of_event(self.text, events)
            self.text = apply_delta(self.text, delta)
        return Effect(fresh, delta)

    def _update_of(self, change: Callable[[], None]) -> bytes:
        """Return the update of a change in one transaction; empty if it was none."""
        updates: list[bytes] = []
        with doc_errors("change an editor doc"):
            subscription = self._doc.observe(
                lambda event: updates.append(bytes(event.update))
            )
            try:
                change()
            finally:
                self._doc.unobserve(subscription)
        return updates[0] if updates else b""

    def _vector(self) -> dict[int, int]:
        return read_state_vector(self.state_vector())


def text_of_other(update: bytes) -> str:
    """Return the text of an editor that has another document, from its whole update.

    Raises:
        DocError: If pycrdt fails.

    """
    found = EditorDoc(1)
    found.replay(update)
    return found.text


def following_delta(old: str, new: str) -> Delta:
    """Say how an editor's text becomes the slot's: by lines, then by words.

    Editors keep their place in a line of which a word was changed. New text goes in
    front of the text that it replaces.
    """
    splices: list[Splice] = []
    for start_chars, end_chars, insert in diff_lines(old, new):
        splices += _by_words(start_chars, old[start_chars:end_chars], insert)
    return joined(splices)


def _by_words(at_chars: int, old: str, new: str) -> Iterator[Splice]:
    old_lines, new_lines = lines_of(old), lines_of(new)
    if len(old_lines) != len(new_lines):
        # A last line without an end has got one, with new lines behind it. Nothing else
        # is cut: what is typed at an end of a line must not come beside a new one.
        has_grown = not old.endswith("\n") and new.startswith(f"{old}\n")
        head = len(old) if has_grown else 0
        yield Splice(at_chars + head, at_chars + len(old), new[head:])
        return
    for old_line, new_line in zip(old_lines, new_lines, strict=True):
        yield _trimmed(at_chars, old_line, new_line)
        at_chars += len(old_line)


def _trimmed(at_chars: int, old: str, new: str) -> Splice:
    """Return the change of a line less the words that are equal at both its ends."""
    old_words, new_words = _WORDS.findall(old), _WORDS.findall(new)
    most = min(len(old_words), len(new_words))
    head = 0
    while head < most and old_words[head] == new_words[head]:
        head += 1
    tail = 0
    while tail < most - head and old_words[-1 - tail] == new_words[-1 - tail]:
        tail += 1
    kept = old_words[:head] + old_words[len(old_words) - tail :]
    if not any(word.strip() for word in kept):
        # Another line, and not a change of this one.
        return Splice(at_chars, at_chars + len(old), new)
    start_chars = sum(map(len, old_words[:head]))
    end_chars = len(old) - sum(map(len, old_words[len(old_words) - tail :]))
    insert = "".join(new_words[head : len(new_words) - tail])
    return Splice(at_chars + start_chars, at_chars + end_chars, insert)
