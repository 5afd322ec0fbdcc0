"""Whole states of memory sets, as records carry them: made here, and merged in.

No text is in them whose authors would have to be told; each version names its own.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from crdtmem.doc.items import ItemsDoc
from crdtmem.errors import DocError
from crdtmem.protocol.envelopes import StateEnvelope
from crdtmem.protocol.records import DocKind
from crdtmem.store.set_docs import set_document
from crdtmem.store.set_write import set_for_writing
from crdtmem.store.sets import set_of_doc

if TYPE_CHECKING:
    from crdtmem.store.write import Transaction

__all__ = ["MergedSet", "make_set_state", "merge_set_state"]

NO_TEXT = bytes(32)
"""Stands for the hash of a text in the state of a set."""


@dataclass(frozen=True, slots=True)
class MergedSet:
    """A state that a document has taken in, not yet written.

    Attributes:
        state: Squashed state of both.
        changed: The members that it changed here.

    """

    state: bytes
    changed: frozenset[str]


def make_set_state(transaction: "Transaction", doc: int) -> StateEnvelope:
    """Return a set's whole state at its newest.

    Raises:
        DocError: If the doc has no set.
        SlotQuarantinedError: If one of its records is damaged.

    """
    row = set_for_writing(set_of_doc(transaction.connection, doc))
    if row is None:
        raise DocError(f"doc {doc} has no set")
    return StateEnvelope(
        DocKind.MEMORY_SET,
        row.name_in_doc,
        text_sha256=NO_TEXT,
        state=set_document(transaction, row).state(),
        blame=b"",
    )


def merge_set_state(document: ItemsDoc, envelope: StateEnvelope) -> MergedSet | None:
    """Merge a state into a document; None if the document has all of it already.

    Raises:
        UpdateRejectedError: If the scanner refuses the state.
        DocError: If it is said to have a text, or pycrdt fails; the document is spent.

    """
    if envelope.text_sha256 != NO_TEXT or envelope.blame:
        reason = "the state of a set is said to have a text"
        raise DocError(reason, code="text-differs")
    if document.holds(envelope.state):
        return None
    changed = document.apply_state(envelope.state)
    return MergedSet(document.state(), changed)
