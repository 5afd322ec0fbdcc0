"""Editors without a network: Yjs documents that type, in step with a gateway."""

from random import Random
from typing import Any

from pycrdt import Doc, Text

from crdtmem.gateway import Offer
from crdtmem.scope import namespace_of
from crdtmem.store.slots import rescued_texts

__all__ = ["Editor", "changed_text", "rescued", "settled"]

WORDS = ["a", "é😀", "👩\u200d👧", "漢字", "🇩🇪", " ", "x y", "\n", "z\n"]


class Editor:
    """A Yjs client; what it has typed waits until ``send``."""

    def __init__(self, editing, client=70_000, lane="yjs:ana"):
        self.editing = editing
        self.lane = lane
        self.doc: Doc[Any] = Doc(client_id=client)
        self.text = self.doc.get("content", type=Text)
        self.sent = b"\0"
        self.catch_up()

    def __str__(self):
        return str(self.text)

    def catch_up(self):
        """Take what the gateway has."""
        self.doc.apply_update(self.editing.diff(self.doc.get_state())[1])

    def type(self, words, at=None):
        """Type at a place in characters, or at the end."""
        text = str(self)
        at = len(text) if at is None else at
        self.text.insert(len(text[:at].encode()), words)

    def delete(self, start, end):
        text = str(self)
        del self.text[len(text[:start].encode()) : len(text[:end].encode())]

    def offer(self, **of):
        """Return what the gateway lacks, as an offer."""
        update = self.doc.get_update(self.editing.state_vector())
        return Offer(self.lane, update, **of)

    def send(self, **of):
        """Let the gateway take what it lacks; return what became of it."""
        return self.editing.accept([self.offer(**of)])[0]

    def do(self, random: Random) -> None:
        """Type or delete somewhere."""
        size = len(str(self))
        at = random.randint(0, size)
        if random.random() < 0.3 and size:
            self.delete(at, min(size, at + random.randint(1, 4)))
        else:
            self.type(random.choice(WORDS), at if random.random() < 0.5 else None)


def settled(editing, *editors):
    """Fold and exchange everything."""
    for editor in editors:
        editor.send()
    found = editing.fold()
    for editor in editors:
        editor.catch_up()
    return found


def changed_text(memory, label="plan"):
    return memory.slot(label, "project").read().content


def rescued(memory, label="plan"):
    """Return the texts that are kept of editors that had another document."""
    namespace = namespace_of("project", memory.project)
    with memory.store.reading() as connection:
        return [each.text for each in rescued_texts(connection, namespace, label)]
