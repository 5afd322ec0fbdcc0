"""One set's unsent writes taken back out of it and written anew under other ids.

Members keep their names, so nobody gets an item twice where the same write comes by on
another way, too.
"""

from collections.abc import Mapping

import apsw

from crdtmem.doc.items import ItemsDoc
from crdtmem.errors import CrdtmemError, DocError
from crdtmem.protocol.envelopes import StateEnvelope
from crdtmem.store.documents import intact_checkpoint, writer_id
from crdtmem.store.forked import (
    Plain,
    Proof,
    forked_in,
    held_records,
    name_of,
    number_kept,
    sent_writes,
)
from crdtmem.store.links import Link
from crdtmem.store.log import WITHIN_STATE, log_of
from crdtmem.store.rows import LogRow
from crdtmem.store.set_docs import set_document
from crdtmem.store.set_history import ItemCommit
from crdtmem.store.set_rows import take_members
from crdtmem.store.set_write import divided, finish_set, set_for_writing, write_members
from crdtmem.store.sets import SetRow, set_of_doc
from crdtmem.store.write import Transaction

__all__ = ["rebase_set", "write_as_wanted"]

_Forked = Plain[ItemsDoc, frozenset[str]]


def rebase_set(transaction: Transaction, link: Link, doc: int) -> None:
    """Write a set's forked writes anew, under the transaction's ids.

    Its items stay what they are. See ``store.rebase.rebase_doc``.

    Raises:
        CrdtmemError: If the doc is damaged; the caller undoes what was done.

    """
    connection = transaction.connection
    base = set_for_writing(set_of_doc(connection, doc))
    if base is None:
        raise DocError(f"doc {doc} has no set")
    wanted = set_document(transaction, base).members()
    checkpoint = intact_checkpoint(connection, doc)
    rows = log_of(connection, doc, after=checkpoint.lsn)
    forked = forked_in(link, rows)
    client = writer_id(transaction.replica)
    plain: _Forked = Plain(
        lambda: ItemsDoc.restore(client, checkpoint.state), _replayed, rows, forked
    )
    proofs = _proofs(connection, link, doc, plain, forked)
    kept = plain.shortest(max(proofs, default=-1) + 1)
    number_kept(connection, link.namespace, forked[: kept.cut], proofs)
    gone = forked[kept.cut :]
    if gone:
        for row in gone:
            connection.execute("DELETE FROM log WHERE lsn = :lsn", {"lsn": row.lsn})
        commit = ItemCommit("sync", gone[-1].lane, transaction.now_ms)
        lanes = sorted({row.lane for row in gone})
        details = {"rebased": len(gone)}
        write_as_wanted(
            transaction, base, kept.document, wanted, commit, lanes, details
        )


def write_as_wanted(
    transaction: Transaction,
    base: SetRow,
    document: ItemsDoc,
    wanted: Mapping[str, object],
    commit: ItemCommit,
    lanes: list[str],
    details: Mapping[str, object],
) -> SetRow:
    """Give a document the members that it should have, and end the commit.

    Args:
        transaction: Of the caller.
        base: The set as its rows have it.
        document: To be written to.
        wanted: All its members as they should be.
        commit: What it is.
        lanes: For the audit.
        details: For the audit.

    Returns:
        The set as it was saved; its rev is the next one if its rows had other items.

    """
    have = document.members()
    puts = {
        name: value
        for name, value in wanted.items()
        if name not in have or have[name] != value
    }
    removes = sorted(have.keys() - wanted.keys())
    if puts or removes:
        write_members(transaction, base.doc, document, divided(puts, removes), commit)
    else:
        transaction.next_lsn()
    document.check()
    changed = [*puts, *removes]
    row = take_members(transaction.connection, base, document, changed, commit)
    return finish_set(
        transaction,
        base,
        row,
        document,
        commit,
        lanes=lanes,
        changed=len(changed),
        details=details,
    )


def _replayed(document: ItemsDoc, row: LogRow) -> frozenset[str]:
    return document.apply(row.content, writer_id(row.replica))


def _proofs(
    connection: apsw.Connection,
    link: Link,
    doc: int,
    plain: _Forked,
    forked: list[LogRow],
) -> dict[int, Proof]:
    """Return which of the writes are in a record of the relay, by their index.

    A name of a member is drawn for one write. A state that has it has that write.
    """
    held = list(held_records(connection, link, doc))
    sent = sent_writes(held)
    members: dict[str, Proof] = {}
    for header, envelope in held:
        if isinstance(envelope, StateEnvelope):
            proof = Proof(header.replica_seq, WITHIN_STATE)
            members |= dict.fromkeys(_names_in(envelope), proof)
    changes = plain.made(len(forked)).changes if members else {}
    found: dict[int, Proof] = {}
    for index, row in enumerate(forked):
        proofs = [sent.get(name_of(row))]
        proofs += [members.get(name) for name in sorted(changes.get(row.lsn, ()))]
        known = [one for one in proofs if one is not None]
        if known:
            found[index] = known[0]
    return found


def _names_in(envelope: StateEnvelope) -> list[str]:
    try:
        return ItemsDoc.load(0, envelope.state).names()
    except CrdtmemError:
        return []
