"""What a relay sends, taken into this store: one transaction a batch, cursor included.

Each item of the log is sorted first: what this store wrote itself, has seen, or does
not need is noted and passed over; the rest is laid before its doc. Then doc by doc the
records are applied in the order of the log, with one rev and one history entry for each
slot that changed. The cursor moves in the same transaction.

A record that is refused makes its doc *held* from there on: it is kept with the rule
that it breaks, and what comes for the doc later waits behind it, as what comes for a
doc does that waits for acknowledgements. Everything else goes on, local writes of the
doc included. ``take_held`` lets a doc try again.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from crdtmem.doc.items import names_of
from crdtmem.errors import ProtocolError, RecordMalformedError
from crdtmem.protocol.envelopes import (
    KeyNotice,
    Receipt,
    StateEnvelope,
    UpdateEnvelope,
    decode_envelope,
)
from crdtmem.protocol.messages import Form, Item
from crdtmem.protocol.records import (
    NO_DOC_TAG,
    DocKind,
    Header,
    RecordKind,
    parse_header,
)
from crdtmem.scope import LABEL_PATTERN
from crdtmem.store.doc_inbox import REFUSALS, DocInbox, Incoming
from crdtmem.store.holding import (
    NO_DOC,
    Arrival,
    adopt_held,
    count_held,
    hold,
    is_held,
    locked_docs,
    ready_docs,
    release_held,
)
from crdtmem.store.inbox import Inbox
from crdtmem.store.links import Link, add_alarm, link_in, tag_of
from crdtmem.store.progress import (
    NOT_SEEN,
    Place,
    count_other,
    count_record,
    move_cursor,
    note_seen,
    own_row,
    own_sealed_row,
    pass_own,
    pass_snapshot,
    places_of,
    seen_tag,
)
from crdtmem.store.receipts import check_receipt
from crdtmem.store.records import open_payload
from crdtmem.store.rotation import note_key
from crdtmem.store.set_inbox import SetInbox
from crdtmem.store.states import has_unsent
from crdtmem.store.write import Transaction

if TYPE_CHECKING:
    from crdtmem.store.store import Store

__all__ = ["IntakeReport", "apply_items", "inbox_for", "take_held", "take_unlocked"]


@dataclass(frozen=True, slots=True)
class IntakeReport:
    """What became of a batch.

    Attributes:
        cursor: The link's cursor after it.
        applied: Records whose content is in their docs now; also such as had waited.
        skipped: Records that needed nothing: own, seen, covered, of other kinds.

    """

    cursor: int
    applied: int
    skipped: int


def apply_items(
    store: "Store", link: Link, first_seq: int, items: Sequence[Item], chain: bytes
) -> IntakeReport:
    """Apply adjoining items of a link's log, and move its cursor behind them.

    One transaction: all of it or, if this raises, nothing. Whatever the items hold,
    they raise nothing.

    Args:
        store: The store.
        link: The link, as it was when its connection was made.
        first_seq: Place of the first item: the one after the link's cursor.
        items: The items.
        chain: The chain after the last.

    Raises:
        LocalProtocolError: If place or chain do not go on from the cursor.
        LinkChangedError: If the store has other ids by now.
        LinkNotFoundError: If the link was removed.

    """
    with store.writing() as transaction:
        intake = _Intake(transaction, store, link_in(transaction, link))
        places = places_of(intake.link, first_seq, items, chain)
        for item, place in zip(items, places, strict=True):
            intake.sort(item, place)
        intake.take_all()
        for doc in ready_docs(transaction.connection, intake.link):
            intake.retry(doc)
        move_cursor(transaction.connection, intake.link, places)
        return intake.report(len(places))


def take_held(transaction: Transaction, store: "Store", link: Link, doc: int) -> int:
    """Try a doc's held records again, in their order; return how many still wait.

    Args:
        transaction: Of the caller.
        store: The store.
        link: As it is now.
        doc: Its number; 0 for the records that do not tell which doc they are of.

    """
    _Intake(transaction, store, link).retry(doc)
    return count_held(transaction.connection, link, doc)


def take_unlocked(transaction: Transaction, store: "Store", link: Link) -> None:
    """Take in what waited for a key that is at hand now.

    Args:
        transaction: Of the caller.
        store: The store.
        link: The link as it is now, with its keys.

    """
    if link.sealer is None or link.is_rebase_due:
        return
    for doc in locked_docs(transaction.connection, link, link.sealer.ids):
        _Intake(transaction, store, link).retry(doc)


class _Opened(NamedTuple):
    """A record that is laid before its doc; it has a code if it could not be opened."""

    arrival: Arrival
    incoming: Incoming | None
    code: str

    @property
    def is_state(self) -> bool:
        """Whether it holds a whole state of its doc."""
        return self.incoming is not None and isinstance(
            self.incoming.envelope, StateEnvelope
        )


class _Intake:
    """What one transaction takes in for a link.

    1. Every item is noted as seen, whatever becomes of it.
    2. A doc's records are applied in the order of the log, or wait in that order.

    Attributes:
        link: The link as the transaction found it.

    """

    def __init__(self, transaction: Transaction, store: "Store", link: Link) -> None:
        self.link = link
        self._tx = transaction
        self._store = store
        self._connection = transaction.connection
        self._inboxes: dict[tuple[int, str], DocInbox[Any]] = {}
        self._opened: dict[int, list[_Opened]] = {}
        self._applied = 0
        self._skipped = 0

    def sort(self, item: Item, place: Place) -> None:
        """Pass an item over, or lay it before its doc."""
        connection, link = self._connection, self.link
        known, tag = place.record_id, item.doc_tag
        seen = seen_tag(connection, link, known)
        self._skipped += seen is not None or item.form != Form.FULL
        if seen is not None:
            tag = seen
        elif item.form == Form.FULL:
            tag = self._sort_record(Arrival(place.seq, known, item.record))
        elif item.form == Form.OWN:
            own = own_row(connection, link, known)
            tag = pass_own(self._tx, link, place.seq, own, is_stream=True)
        elif item.form == Form.REDUNDANT:
            pass_snapshot(connection, link, place.seq, tag)
        else:
            # Its content never was here: should it come whole after all, it is new.
            known = NOT_SEEN
        note_seen(connection, link, place.seq, known, tag)

    def take_all(self, *, is_retry: bool = False) -> None:
        """Let each doc take what lies before it."""
        for doc, opened in self._opened.items():
            link = self.link
            adopt_held(self._connection, link, doc, opened[0].arrival)
            waits = link.is_rebase_due and not is_retry
            if waits and has_unsent(self._connection, doc):
                self._hold(doc, opened)
            elif not is_held(self._connection, link, doc):
                self._take(doc, opened)
            elif any(one.is_state for one in opened):
                held = release_held(self._connection, link, doc)
                self._take(doc, [*map(self._reopened, held), *opened])
            else:
                self._hold(doc, opened)
        self._opened.clear()

    def retry(self, doc: int) -> None:
        """Let a doc take its held records, as far as they fit now."""
        for arrival in release_held(self._connection, self.link, doc):
            self._sort_record(arrival)
        self.take_all(is_retry=doc != NO_DOC)

    def report(self, count: int) -> IntakeReport:
        """Return what became of so many items."""
        cursor = self.link.cursor.seq + count
        return IntakeReport(cursor, applied=self._applied, skipped=self._skipped)

    # -- sorting

    def _sort_record(self, arrival: Arrival) -> bytes:
        """Pass a record over, or lay it before its doc; return its doc's tag."""
        try:
            header = parse_header(arrival.record)
        except RecordMalformedError as exc:
            hold(self._tx, self.link, NO_DOC, arrival, exc.code)
            return NO_DOC_TAG
        own = own_sealed_row(
            self._connection, self.link, arrival.record_id, header.replica_seq
        )
        is_stream = header.replica_id == self.link.replica_id
        if own is not None:
            self._skipped += 1
            return pass_own(self._tx, self.link, arrival.seq, own, is_stream=is_stream)
        if header.kind not in (RecordKind.UPDATE, RecordKind.SNAPSHOT):
            self._skipped += 1
            self._heed(arrival, header)
            return header.doc_tag
        if is_stream:
            detail = f"replica {header.replica_id.hex()} writes elsewhere, too"
            add_alarm(self._tx, self.link.link, "replica-fork", detail)
        self._lay(arrival, header)
        return header.doc_tag

    def _heed(self, arrival: Arrival, header: Header) -> None:
        """Heed a word between stores, where it can be believed; else count it."""
        link, word = self.link, None
        if link.is_encrypted and header.kind in (
            RecordKind.KEY_NOTICE,
            RecordKind.RECEIPT,
        ):
            try:
                payload = open_payload(link, header, arrival.record)
                word = decode_envelope(header.kind, payload)
            except ProtocolError as exc:
                hold(self._tx, link, NO_DOC, arrival, exc.code)
                return
        if isinstance(word, KeyNotice):
            note_key(self._connection, link, word.new_key_id)
        elif isinstance(word, Receipt):
            check_receipt(self._tx, link, arrival.seq, word)
        else:
            count_other(self._connection, link)

    def _lay(self, arrival: Arrival, header: Header) -> None:
        """Lay a record before its doc, or hold it if it doesn't tell which that is."""
        doc, opened = self._open(arrival, header)
        if doc == NO_DOC:
            hold(self._tx, self.link, NO_DOC, arrival, opened.code)
            return
        count_record(self._connection, self.link, doc, arrival, header)
        self._opened.setdefault(doc, []).append(opened)

    def _open(self, arrival: Arrival, header: Header) -> tuple[int, _Opened]:
        """Return which doc a record is of, and what it says."""
        try:
            envelope = _envelope_in(self.link, arrival.record, header)
        except ProtocolError as exc:
            return self._doc_of(header.doc_tag), _Opened(arrival, None, exc.code)
        is_fork = header.replica_id == self.link.replica_id
        incoming = Incoming(
            header.replica_id, header.replica_seq, envelope, is_fork=is_fork
        )
        return self._inbox(envelope).doc, _Opened(arrival, incoming, "")

    def _reopened(self, arrival: Arrival) -> _Opened:
        return self._open(arrival, parse_header(arrival.record))[1]

    def _inbox(self, envelope: UpdateEnvelope | StateEnvelope) -> DocInbox[Any]:
        name = envelope.doc_kind, envelope.name
        if name not in self._inboxes:
            self._inboxes[name] = inbox_for(
                self._tx, self._store, self.link.namespace, envelope
            )
        return self._inboxes[name]

    def _doc_of(self, tag: bytes) -> int:
        found = self._connection.execute(
            "SELECT doc FROM sync_doc WHERE link = :link AND doc_tag = :tag",
            {"link": self.link.link, "tag": tag},
        ).get
        return NO_DOC if found is None else int(found)

    # -- applying

    def _take(self, doc: int, opened: Sequence[_Opened]) -> None:
        """Let a doc take records up to the first that is refused, and hold the rest.

        A state stands alone, so it goes before the others where one is refused: it may
        be what that one lacks. Where the relay has dropped records it is, always.
        """
        rest, code = self._take_in_order(opened)
        if any(one.is_state for one in rest[1:]):
            rest = sorted(rest, key=lambda one: not one.is_state)
            rest, code = self._take_in_order(rest)
        self._hold(doc, rest, code)

    def _take_in_order(
        self, opened: Sequence[_Opened]
    ) -> tuple[Sequence[_Opened], str]:
        """Apply as much as fits; return the rest, and what its first one breaks."""
        batch: list[Incoming] = []
        for one in opened:
            if one.incoming is None:
                break
            batch.append(one.incoming)
        taken, code = self._fit(batch)
        self._applied += taken
        rest = opened[taken:]
        return rest, code or (rest[0].code if rest else "")

    def _fit(self, batch: Sequence[Incoming]) -> tuple[int, str]:
        """Apply as much as fits; return how much, and what the next one breaks."""
        code = ""
        while batch:
            inbox = self._inbox(batch[0].envelope)
            try:
                return inbox.take(batch), code
            except REFUSALS as exc:
                fits, code = inbox.fitting(batch)
                if fits == len(batch):
                    # The records are well, and what stands here for the doc is not.
                    return 0, exc.code
            batch = batch[:fits]
        return 0, code

    def _hold(self, doc: int, opened: Sequence[_Opened], code: str = "") -> None:
        """Hold records; the code is that of the first."""
        for one in opened:
            hold(self._tx, self.link, doc, one.arrival, code)
            code = ""


def _envelope_in(
    link: Link, record: bytes, header: Header
) -> UpdateEnvelope | StateEnvelope:
    """Open a record of a doc.

    Raises:
        ProtocolError: Its code says why it cannot be applied.

    """
    payload = open_payload(link, header, record)
    # Of these kinds, there are no other envelopes.
    envelope = cast(
        "UpdateEnvelope | StateEnvelope",
        decode_envelope(header.kind, payload),
    )
    if tag_of(link, envelope.doc_kind, envelope.name) != header.doc_tag:
        message = f"the tag {header.doc_tag.hex()} is not that of its doc"
        raise ProtocolError(message, code="tag-mismatch")
    _check_name(envelope)
    return envelope


def _check_name(envelope: UpdateEnvelope | StateEnvelope) -> None:
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
