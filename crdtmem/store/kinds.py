"""The kinds of docs that this version knows, where records come in."""

import re
from typing import TYPE_CHECKING, Any

from crdtmem.doc.items import names_of
from crdtmem.errors import ProtocolError
from crdtmem.protocol.envelopes import StateEnvelope, UpdateEnvelope
from crdtmem.protocol.records import DocKind
from crdtmem.scope import LABEL_PATTERN
from crdtmem.store.doc_inbox import DocInbox
from crdtmem.store.inbox import Inbox
from crdtmem.store.set_inbox import SetInbox
from crdtmem.store.write import Transaction

if TYPE_CHECKING:
    from crdtmem.store.store import Store

__all__ = ["check_name", "inbox_for"]


def check_name(envelope: UpdateEnvelope | StateEnvelope) -> None:
    """Check that a record is of a doc that there may be.

    Raises:
        ProtocolError: ``invalid-label`` or ``invalid-name`` if none is called so.

    """
    name, is_slot = envelope.name, envelope.doc_kind == DocKind.SLOT
    if is_slot and not re.fullmatch(LABEL_PATTERN, name):
        message = f"{len(name)} characters that are no label"
        raise ProtocolError(message, code="invalid-label")
    if not is_slot and names_of(name) is None:
        message = f"{len(name)} characters that name no set"
        raise ProtocolError(message, code="invalid-name")


def inbox_for(
    transaction: Transaction,
    store: "Store",
    namespace: str,
    envelope: UpdateEnvelope | StateEnvelope,
) -> DocInbox[Any]:
    """Return the way in for the doc of a record, as it was decoded."""
    kind = Inbox if envelope.doc_kind == DocKind.SLOT else SetInbox
    return kind(transaction, store, namespace, envelope.name)
