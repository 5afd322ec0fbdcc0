"""One doc's unsent writes taken back out of it and written anew under other ids.

What the relay turns out to have of them stays, see ``store.forked``. It is known by its
bytes, lane and time; of what came within a state, by the authors of its lines.
"""

from collections.abc import Sequence

import apsw

from crdtmem.doc.blame import Author, decode_runs
from crdtmem.doc.delta import Delta, Splice, decode_delta, encode_delta
from crdtmem.doc.slot_doc import SlotDoc
from crdtmem.doc.text_form import file_of, lines_of, view_of
from crdtmem.errors import CrdtmemError, DocError
from crdtmem.protocol.envelopes import Envelope, StateEnvelope
from crdtmem.protocol.records import DocKind, Header
from crdtmem.store.documents import intact_checkpoint, writer_id
from crdtmem.store.forked import (
    Kept,
    Plain,
    Proof,
    forked_in,
    held_records,
    name_of,
    number_kept,
    sent_writes,
)
from crdtmem.store.links import Link
from crdtmem.store.log import WITHIN_STATE, digest_of, kind_of, log_of
from crdtmem.store.rows import PLACE_BITS, LogRow, SlotRow
from crdtmem.store.set_rebase import rebase_set
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
    if kind_of(connection, doc) == DocKind.MEMORY_SET:
        rebase_set(transaction, link, doc)
        return
    checkpoint = intact_checkpoint(connection, doc)
    base = transaction.slot(checkpoint.namespace, checkpoint.name)
    if base is None:
        raise DocError(f"doc {doc} has no slot")
    settings = transaction.document(base).meta
    rows = log_of(connection, doc, after=checkpoint.lsn)
    forked = forked_in(link, rows)
    proofs = _proofs(list(held_records(connection, link, doc)), forked)
    client = writer_id(transaction.replica)
    plain: Plain[SlotDoc, Delta] = Plain(
        lambda: SlotDoc.load(client, checkpoint.state), _replayed, rows, forked
    )
    kept = plain.shortest(max(proofs, default=-1) + 1)
    number_kept(connection, link.namespace, forked[: kept.cut], proofs)
    gone = forked[kept.cut :]
    if gone:
        _take_back(connection, doc, gone, kept, rows)
        _write_anew(transaction, base, gone, kept.document, settings)


def _replayed(document: SlotDoc, row: LogRow) -> Delta:
    if row.is_genesis:
        return document.replay_genesis(row.content)
    return document.apply(row.content, writer_id(row.replica))


def _proofs(
    held: Sequence[tuple[Header, Envelope]], forked: Sequence[LogRow]
) -> dict[int, Proof]:
    """Return which of the writes are in a record of the relay, by their index."""
    sent = sent_writes(held)
    lines: dict[tuple[Author, str], Proof] = {}
    for header, envelope in held:
        if isinstance(envelope, StateEnvelope):
            proof = Proof(header.replica_seq, WITHIN_STATE)
            lines |= dict.fromkeys(_lines_of(envelope), proof)
    found: dict[int, Proof] = {}
    for index, row in enumerate(forked):
        proof_of = sent.get(name_of(row)) or _proof_in_state(row, lines)
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
    row: LogRow, lines: dict[tuple[Author, str], Proof]
) -> Proof | None:
    author = Author(row.lane, row.at_ms, row.replica)
    written = [
        line for splice in decode_delta(row.delta) for line in lines_of(splice.insert)
    ]
    found = [lines.get((author, line)) for line in written]
    return found[0] if found and all(found) else None


def _take_back(
    connection: apsw.Connection,
    doc: int,
    gone: Sequence[LogRow],
    kept: Kept[SlotDoc, Delta],
    rows: Sequence[LogRow],
) -> None:
    """Take writes out of the log; what came behind them changed another text then."""
    for row in gone:
        connection.execute("DELETE FROM log WHERE lsn = :lsn", {"lsn": row.lsn})
    for row in rows:
        delta = kept.changes.get(row.lsn)
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
