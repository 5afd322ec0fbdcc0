"""One doc's unsent writes taken back out of it and written anew under other ids.

What the relay turns out to have of them stays: the same stream may have brought it
there from another copy of this store. It is known by its bytes, lane and time; of what
came within a state, by the authors of its lines. Up to the last write that is known to
be there, all are: a stream has no gaps.
"""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import apsw

from crdtmem.doc.blame import Author, decode_runs
from crdtmem.doc.delta import Delta, Splice, decode_delta, encode_delta
from crdtmem.doc.slot_doc import SlotDoc
from crdtmem.doc.text_form import file_of, lines_of, view_of
from crdtmem.errors import CrdtmemError, DocError, UpdateRejectedError
from crdtmem.protocol.envelopes import (
    Envelope,
    StateEnvelope,
    UpdateEnvelope,
    decode_envelope,
)
from crdtmem.protocol.records import Header, parse_header
from crdtmem.store.documents import intact_checkpoint, writer_id
from crdtmem.store.links import Link
from crdtmem.store.log import WITHIN_STATE, digest_of, log_of, require_intact
from crdtmem.store.rows import PLACE_BITS, LogRow, SlotRow
from crdtmem.store.slots import save_slot
from crdtmem.store.write import Change, Transaction
from crdtmem.textdiff import diff_lines

__all__ = ["rebase_doc"]


def rebase_doc(transaction: Transaction, link: Link, doc: int) -> None:
    """Write a doc's forked writes anew, under the transaction's ids.

    The text stays what it is. First texts stay, too: their client id follows from
    them, so nobody has other content under it.

    Args:
        transaction: Of the caller; its ids are new.
        link: The link while the rebase was due: its ``rebase_lsn`` is the first step
            that may be forked.
        doc: The doc; the records that it waits with are still held.

    Raises:
        CrdtmemError: If the doc is damaged; the caller undoes what was done.

    """
    connection = transaction.connection
    checkpoint = intact_checkpoint(connection, doc)
    base = transaction.slot(checkpoint.namespace, checkpoint.name)
    if base is None:
        raise DocError(f"doc {doc} has no slot")
    settings = transaction.document(base).meta
    rows = log_of(connection, doc, after=checkpoint.lsn)
    forked = [
        row
        for row in rows
        if row.replica_seq is None and row.lsn >= link.rebase_lsn and not row.is_genesis
    ]
    proofs = _proofs(_held_records(connection, link, doc), forked)
    client = writer_id(transaction.replica)
    plain = _Plain(client, checkpoint.state, rows, forked)
    kept = plain.shortest(max(proofs, default=-1) + 1)
    _number_kept(connection, forked[: kept.cut], proofs)
    gone = forked[kept.cut :]
    if gone:
        _take_back(connection, doc, gone, kept, rows)
        _write_anew(transaction, base, gone, kept.document, settings)


class _Proof(NamedTuple):
    """Where a record of the relay has a write."""

    replica_seq: int
    place: int


class _Kept(NamedTuple):
    """A doc with its forked writes up to some, and what the others changed then."""

    cut: int
    document: SlotDoc
    deltas: dict[int, Delta]


class _Plain:
    """Makes a doc from its checkpoint and rows, without the last forked ones."""

    def __init__(
        self, client: int, state: bytes, rows: list[LogRow], forked: list[LogRow]
    ) -> None:
        self._client = client
        self._state = state
        self._rows = rows
        self._forked = forked

    def shortest(self, cut: int) -> _Kept:
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
        return self._with(high)

    def _tried(self, cut: int) -> _Kept | None:
        try:
            return self._with(cut)
        except UpdateRejectedError:
            return None

    def _with(self, cut: int) -> _Kept:
        gone = {row.lsn for row in self._forked[cut:]}
        document = SlotDoc.load(self._client, self._state)
        deltas: dict[int, Delta] = {}
        for row in self._rows:
            if row.lsn not in gone:
                require_intact(row)
                deltas[row.lsn] = (
                    document.replay_genesis(row.content)
                    if row.is_genesis
                    else document.apply(row.content, writer_id(row.replica))
                )
        return _Kept(cut, document, deltas)


def _held_records(
    connection: apsw.Connection, link: Link, doc: int
) -> Iterator[tuple[Header, Envelope]]:
    """Yield the records that a doc waits with, less those that cannot be opened."""
    rows: list[Any] = connection.execute(
        "SELECT record FROM held WHERE link = :link AND doc = :doc ORDER BY seq",
        {"link": link.link, "doc": doc},
    ).fetchall()
    for (record,) in rows:
        try:
            header = parse_header(record)
            payload = record[header.payload_start :]
            yield header, decode_envelope(header.kind, payload)
        except CrdtmemError:
            # Why it was refused stands in its row, and it proves nothing.
            continue


def _proofs(
    held: Iterator[tuple[Header, Envelope]], forked: Sequence[LogRow]
) -> dict[int, _Proof]:
    """Return which of the writes are in a record of the relay, by their index."""
    sent: dict[tuple[bytes, bytes, str, int], _Proof] = {}
    lines: dict[tuple[Author, str], _Proof] = {}
    for header, envelope in held:
        if isinstance(envelope, UpdateEnvelope):
            for place, write in enumerate(envelope.writes):
                name = header.replica_id, write.update, write.lane, write.at_ms
                sent[name] = _Proof(header.replica_seq, place)
        elif isinstance(envelope, StateEnvelope):
            proof = _Proof(header.replica_seq, WITHIN_STATE)
            lines |= dict.fromkeys(_lines_of(envelope), proof)
    found: dict[int, _Proof] = {}
    for index, row in enumerate(forked):
        proof_of = sent.get((row.replica, row.content, row.lane, row.at_ms))
        proof_of = proof_of or _proof_in_state(row, lines)
        if proof_of is not None:
            found[index] = proof_of
    return found


def _lines_of(envelope: StateEnvelope) -> set[tuple[Author, str]]:
    """Return the lines of a state's text, each with its author."""
    try:
        file = SlotDoc.load(0, envelope.state).file.encode("utf-16-le")
        runs = decode_runs(envelope.blame)
    except CrdtmemError:
        return set()
    found: set[tuple[Author, str]] = set()
    start = 0
    for run in runs:
        end = start + 2 * run.units
        part = file[start:end].decode("utf-16-le", errors="replace")
        if run.author is not None:
            found |= {(run.author, line) for line in lines_of(part)}
        start = end
    return found


def _proof_in_state(
    row: LogRow, lines: dict[tuple[Author, str], _Proof]
) -> _Proof | None:
    author = Author(row.lane, row.at_ms, row.replica)
    written = [
        line for splice in decode_delta(row.delta) for line in lines_of(splice.insert)
    ]
    found = [lines.get((author, line)) for line in written]
    return found[0] if found and all(found) else None


def _number_kept(
    connection: apsw.Connection, kept: Sequence[LogRow], proofs: dict[int, _Proof]
) -> None:
    """Give the writes that are there the numbers under which they are."""
    proof = _Proof(
        max((p.replica_seq for p in proofs.values()), default=1), WITHIN_STATE
    )
    for index, row in enumerate(kept):
        found = proofs.get(index, proof)
        connection.execute(
            "UPDATE log SET replica_seq = :seq, place = :place WHERE lsn = :lsn",
            {"seq": found.replica_seq, "place": found.place, "lsn": row.lsn},
        )


def _take_back(
    connection: apsw.Connection,
    doc: int,
    gone: Sequence[LogRow],
    kept: _Kept,
    rows: Sequence[LogRow],
) -> None:
    """Take writes out of the log; what came behind them changed another text then."""
    for row in gone:
        connection.execute("DELETE FROM log WHERE lsn = :lsn", {"lsn": row.lsn})
    for row in rows:
        delta = kept.deltas.get(row.lsn)
        if delta is None or encode_delta(delta) == row.delta:
            continue
        changed = row._replace(delta=encode_delta(delta))
        connection.execute(
            "UPDATE log SET delta = :delta, digest = :digest WHERE lsn = :lsn",
            {
                "delta": changed.delta,
                "digest": digest_of(changed),
                "lsn": row.lsn,
            },
        )
    # Their texts hold what is gone: they can be restored, but not followed from.
    connection.execute(
        "UPDATE history SET is_imported = 1 WHERE place >= :first AND place < :end",
        {
            "first": (doc << PLACE_BITS) | gone[0].lsn,
            "end": (doc + 1) << PLACE_BITS,
        },
    )


def _write_anew(
    transaction: Transaction,
    base: SlotRow,
    gone: Sequence[LogRow],
    document: SlotDoc,
    settings: dict[str, object],
) -> None:
    """Write what is missing as one edit, so that the text is what readers see.

    Its notes are gone with the writes: of a condense pass among them other stores get
    the new text, and do not learn that it was one.
    """
    known = document.meta
    file = file_of(view_of(base.file))
    change = Change(
        operation="sync",
        lane=gone[-1].lane,
        delta=tuple(Splice(*op) for op in diff_lines(document.file, file)),
        meta={k: v for k, v in settings.items() if known.get(k) != v},
        keeps_rev=True,
        details={"rebased": len(gone)},
    )
    transaction.edited.add(base.doc)
    if change.delta or change.meta:
        content = document.edit(change.delta, change.meta)
        transaction.log(
            base.doc,
            content,
            change.delta,
            lane=change.lane,
            operation=change.operation,
        )
    else:
        transaction.next_lsn()
    document.check()
    transaction.remember(base.doc, document)
    row = transaction.materialised(document, base, change)
    save_slot(transaction.connection, row)
    lanes = sorted({row.lane for row in gone})
    transaction.audit(base, row, change, lanes)
