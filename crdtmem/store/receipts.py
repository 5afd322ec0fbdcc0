"""Receipts: how far a store has read the log of an encrypted namespace.

The relay cannot write one, nor change it. So whoever reads it learns whether the relay
has shown another log to its writer, or has gone back behind what it had shown.
"""

import apsw

from crdtmem.limits import RECEIPT_PAUSE_MS, RECEIPT_RECORDS
from crdtmem.protocol.envelopes import Receipt
from crdtmem.protocol.records import RecordKind, chain_next, chain_start
from crdtmem.store.links import Link, add_alarm
from crdtmem.store.records import OF_NO_DOC, put_record
from crdtmem.store.write import Transaction

__all__ = ["chain_at", "check_receipt", "seal_receipt"]


def seal_receipt(transaction: Transaction, link: Link, max_bytes: int) -> bool:
    """Seal a receipt if one is due: this store writes, and has read much since.

    Args:
        transaction: Of the caller.
        link: The link; all that its relay had at the join is applied.
        max_bytes: Longest record that the relay takes.

    Returns:
        Whether it was due.

    """
    cursor = link.cursor
    last_seq, last_ms = _last(transaction.connection, link)
    is_due = (
        link.is_encrypted
        and link.sealed_seq > 0
        and cursor.seq >= last_seq + RECEIPT_RECORDS
        and transaction.now_ms >= last_ms + RECEIPT_PAUSE_MS
    )
    if not is_due:
        return False
    put_record(
        transaction,
        link,
        link.sealed_seq + 1,
        OF_NO_DOC,
        Receipt(cursor.seq, cursor.chain, (), ()),
        kind=RecordKind.RECEIPT,
        base=cursor.seq,
        max_bytes=max_bytes,
    )
    transaction.connection.execute(
        "UPDATE link SET receipt_seq = :seq, receipt_ms = :now WHERE link = :link",
        {"seq": cursor.seq, "now": transaction.now_ms, "link": link.link},
    )
    return True


def check_receipt(
    transaction: Transaction, link: Link, seq: int, receipt: Receipt
) -> None:
    """Hold a receipt against the log as it was shown here; alarm if they differ.

    Args:
        transaction: Of the caller.
        link: The link.
        seq: Where the receipt stands in the log.
        receipt: What another store has read.

    """
    known = chain_at(transaction.connection, link, receipt.seq)
    if receipt.seq < seq and known in (None, receipt.chain):
        return
    detail = f"another store read record {receipt.seq}, and it is not the one here"
    if receipt.seq >= seq:
        detail = f"another store had read {receipt.seq} records, and there are {seq}"
    add_alarm(transaction, link.link, "relay-forked", detail)


def chain_at(connection: apsw.Connection, link: Link, seq: int) -> bytes | None:
    """Return the chain of the relay's log at a place; None if it is not known here."""
    values = {"link": link.link, "seq": seq}
    at, chain = 0, chain_start(link.relay_id, link.remote)
    for row in connection.execute(
        "SELECT seq, chain FROM chain_sample WHERE link = :link AND seq <= :seq"
        " ORDER BY seq DESC LIMIT 1",
        values,
    ):
        at, chain = row
    for next_seq, record_id in connection.execute(
        "SELECT seq, record_id FROM sync_seen WHERE link = :link AND seq > :from"
        " AND seq <= :seq ORDER BY seq",
        {**values, "from": at},
    ):
        if next_seq != at + 1 or not record_id:
            return None
        at, chain = next_seq, chain_next(chain, next_seq, record_id)
    return chain if at == seq else None


def _last(connection: apsw.Connection, link: Link) -> tuple[int, int]:
    rows = connection.execute(
        "SELECT receipt_seq, receipt_ms FROM link WHERE link = :link",
        {"link": link.link},
    )
    seq, at_ms = next(iter(rows))
    return int(seq), int(at_ms)
