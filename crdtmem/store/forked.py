"""Unsent writes of a doc that may be forked: which the relay has, and the doc without.

What the relay turns out to have of them stays: the same stream may have brought it
there from another copy of this store. Up to the last write that is known to be there,
all are: a stream has no gaps.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, TypeVar

import apsw

from crdtmem.doc.document import Document
from crdtmem.errors import CrdtmemError, ProtocolError, UpdateRejectedError
from crdtmem.protocol.envelopes import Envelope, UpdateEnvelope, decode_envelope
from crdtmem.protocol.records import Header, parse_header
from crdtmem.sealing import UNKNOWN_KEY, WRONG_KEY
from crdtmem.store.links import Link
from crdtmem.store.log import WITHIN_STATE, advance_stream, require_intact
from crdtmem.store.records import open_payload
from crdtmem.store.rows import LogRow

__all__ = [
    "Kept",
    "Plain",
    "Proof",
    "SentName",
    "forked_in",
    "held_records",
    "name_of",
    "note_locked",
    "number_kept",
    "sent_writes",
]

_Doc = TypeVar("_Doc", bound=Document)
_Change = TypeVar("_Change")

SentName = tuple[bytes, bytes, str, int]
"""What a write is known by: replica, update, lane and time."""


class Proof(NamedTuple):
    """Where a record of the relay has a write."""

    replica_seq: int
    place: int


@dataclass(frozen=True, slots=True)
class Kept(Generic[_Doc, _Change]):
    """A doc with its forked writes up to some, and what each write changed then."""

    cut: int
    document: _Doc
    changes: dict[int, _Change]


class Plain(Generic[_Doc, _Change]):
    """Makes a doc from its checkpoint and rows, without the last forked ones.

    Args:
        load: Makes the document of the checkpoint.
        replay: Applies a row and returns what it changed.
        rows: All rows.
        forked: Those that may be forked.

    """

    def __init__(
        self,
        load: Callable[[], _Doc],
        replay: Callable[[_Doc, LogRow], _Change],
        rows: Sequence[LogRow],
        forked: Sequence[LogRow],
    ) -> None:
        self._load = load
        self._replay = replay
        self._rows = rows
        self._forked = forked

    def shortest(self, cut: int) -> Kept[_Doc, _Change]:
        """Return the doc with as few forked writes as can be, but at least so many.

        What others have built on is there, since they have it from there.
        """
        found = self._tried(cut)
        if found is not None:
            return found
        low, high = cut, len(self._forked)
        while high - low > 1:
            middle = (low + high) // 2
            if self._tried(middle) is None:
                low = middle
            else:
                high = middle
        return self.made(high)

    def _tried(self, cut: int) -> Kept[_Doc, _Change] | None:
        try:
            return self.made(cut)
        except UpdateRejectedError:
            return None

    def made(self, cut: int) -> Kept[_Doc, _Change]:
        """Return the doc with so many of the forked writes."""
        gone = {row.lsn for row in self._forked[cut:]}
        document = self._load()
        changes: dict[int, _Change] = {}
        for row in self._rows:
            if row.lsn not in gone:
                changes[row.lsn] = self._replay(document, require_intact(row))
        return Kept(cut, document, changes)


def forked_in(link: Link, rows: Sequence[LogRow]) -> list[LogRow]:
    """Return the rows that may be forked; a first text is not, whoever wrote it."""
    return [
        row
        for row in rows
        if row.replica_seq is None and row.lsn >= link.rebase_lsn and not row.is_genesis
    ]


def note_locked(connection: apsw.Connection, link: Link, doc: int) -> bool:
    """Mark the records that a doc waits with and another key would open; tell if any.

    Args:
        connection: In a write transaction.
        link: The link, with its keys.
        doc: The doc.

    """
    is_any = False
    for seq, record in _held(connection, link, doc) if link.is_encrypted else ():
        try:
            open_payload(link, parse_header(record), record)
        except ProtocolError as exc:
            if exc.code in (UNKNOWN_KEY, WRONG_KEY):
                connection.execute(
                    "UPDATE held SET code = :code WHERE link = :link AND seq = :seq",
                    {"code": exc.code, "link": link.link, "seq": seq},
                )
                is_any = True
    return is_any


def held_records(
    connection: apsw.Connection, link: Link, doc: int
) -> Iterator[tuple[Header, Envelope]]:
    """Yield the records that a doc waits with, less those that cannot be opened."""
    for _, record in _held(connection, link, doc):
        try:
            header = parse_header(record)
            payload = open_payload(link, header, record)
            yield header, decode_envelope(header.kind, payload)
        except CrdtmemError:
            # Why it was refused stands in its row, and it proves nothing.
            continue


def _held(connection: apsw.Connection, link: Link, doc: int) -> list[tuple[int, bytes]]:
    rows: list[Any] = connection.execute(
        "SELECT seq, record FROM held WHERE link = :link AND doc = :doc ORDER BY seq",
        {"link": link.link, "doc": doc},
    ).fetchall()
    return rows


def sent_writes(held: Sequence[tuple[Header, Envelope]]) -> dict[SentName, Proof]:
    """Return the writes that records hold."""
    return {
        (header.replica_id, write.update, write.lane, write.at_ms): Proof(
            header.replica_seq, place
        )
        for header, envelope in held
        if isinstance(envelope, UpdateEnvelope)
        for place, write in enumerate(envelope.writes)
    }


def name_of(row: LogRow) -> SentName:
    """Return what a row is known by in records."""
    return row.replica, row.content, row.lane, row.at_ms


def number_kept(
    connection: apsw.Connection,
    namespace: str,
    kept: Sequence[LogRow],
    proofs: Mapping[int, Proof],
) -> None:
    """Give the writes that are there the numbers under which they are."""
    proof = Proof(
        max((p.replica_seq for p in proofs.values()), default=1), WITHIN_STATE
    )
    for index, row in enumerate(kept):
        found = proofs.get(index, proof)
        connection.execute(
            "UPDATE log SET replica_seq = :seq, place = :place WHERE lsn = :lsn",
            {"seq": found.replica_seq, "place": found.place, "lsn": row.lsn},
        )
        if found.place != WITHIN_STATE:
            # An older copy of the store may not know that it was sealed so far.
            advance_stream(connection, namespace, row.replica, found.replica_seq)
