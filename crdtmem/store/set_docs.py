"""Documents of memory sets made from their checkpoint and their log, and squashed.

What was there before a write stands in rows of its own, so no record is kept for that:
a set is squashed up to its newest step, but for what others still wait for.
"""

from typing import TYPE_CHECKING

import apsw

from crdtmem.doc.items import ItemsDoc
from crdtmem.errors import DocError
from crdtmem.limits import SET_UNSQUASHED_MAX, SET_UNSQUASHED_PCT
from crdtmem.store.documents import Loading, intact_checkpoint, writer_id
from crdtmem.store.log import (
    first_unsealed,
    forget_rows,
    log_of,
    mark_unsealed,
    require_intact,
    save_checkpoint,
)
from crdtmem.store.rows import LogRow
from crdtmem.store.sets import SetRow, set_of_doc

if TYPE_CHECKING:
    from crdtmem.store.write import Transaction

__all__ = [
    "SET_LOADING",
    "catch_up_items",
    "is_squash_due",
    "load_items",
    "quarantine_set",
    "save_state_of",
    "set_document",
    "squash_set",
]


def load_items(
    connection: apsw.Connection, doc: int, replica: bytes, *, until: int | None = None
) -> ItemsDoc:
    """Make a document from its checkpoint and its rows, up to a step.

    The digest of the checkpoint stands for a scan of its state.

    Raises:
        DocError: If a row or the state is damaged.
        UpdateRejectedError: If the scanner refuses a row.

    """
    checkpoint = intact_checkpoint(connection, doc)
    document = ItemsDoc.restore(writer_id(replica), checkpoint.state)
    rows = log_of(connection, doc, after=checkpoint.lsn, until=until)
    return catch_up_items(document, rows)


def catch_up_items(document: ItemsDoc, rows: list[LogRow]) -> ItemsDoc:
    """Apply logged rows to a set's document and return it.

    Raises:
        DocError: If a row is damaged.
        UpdateRejectedError: If the scanner refuses one.

    """
    document.replay(
        [(require_intact(row).content, writer_id(row.replica)) for row in rows]
    )
    return document


SET_LOADING = Loading(load_items, catch_up_items)
"""How documents of sets come into memory."""


def set_document(transaction: "Transaction", row: SetRow) -> ItemsDoc:
    """Return a set's document at the newest state, from the cache if it is there.

    Raises:
        SlotQuarantinedError: If a record is damaged. The set is marked when the
            transaction is rolled back.

    """
    with transaction.damage_of(row.doc, row.name or row.name_in_doc):
        document = transaction.cached(row.doc, row.lsn, SET_LOADING)
        if document.made != row.members + row.tombstones:
            raise DocError("the rows of the set differ from its records")
    return document


def quarantine_set(connection: apsw.Connection, doc: int, reason: str | None) -> None:
    """Stop a set's writes, or let them go on; does nothing to a slot."""
    connection.execute(
        "UPDATE mset SET quarantined = :reason WHERE doc = :doc",
        {"doc": doc, "reason": reason},
    )


def is_squash_due(row: SetRow) -> bool:
    """Tell whether enough has changed since a set's checkpoint.

    A share of the set: so squashing costs each write the same however large it is, and
    loading a set is never much more than loading its checkpoint.
    """
    share = row.members * SET_UNSQUASHED_PCT // 100
    return row.unsquashed > max(SET_UNSQUASHED_MAX, share)


def squash_set(transaction: "Transaction", doc: int) -> None:
    """Move a set's checkpoint forward as far as nobody waits for records before it.

    Nothing is forgotten before the squashed state, loaded again, has given the same
    members and the same state vector.

    Raises:
        SlotQuarantinedError: If anything differs; nothing was changed.

    """
    connection = transaction.connection
    row = set_of_doc(connection, doc)
    if row is None:
        return
    unsealed = first_unsealed(connection, doc, row.namespace)
    until = row.lsn if unsealed is None else unsealed - 1
    waits = unsealed is not None
    count = connection.execute(
        "SELECT count(*) FROM log WHERE doc = :doc AND lsn <= :until",
        {"doc": doc, "until": until},
    ).get
    if count:
        with transaction.damage_of(doc, row.name or row.name_in_doc):
            document = (
                load_items(connection, doc, transaction.replica, until=until)
                if waits
                else transaction.cached(doc, row.lsn, SET_LOADING)
            )
            document.check()
            save_state_of(connection, doc, document.state(), until)
    # Those that wait are asked for again when as many have come once more.
    left = row.unsquashed // 2 if waits else 0
    connection.execute(
        "UPDATE mset SET unsquashed = :left WHERE doc = :doc",
        {"left": left, "doc": doc},
    )


def save_state_of(
    connection: apsw.Connection, doc: int, state: bytes, lsn: int
) -> None:
    """Make a state a set's checkpoint and forget the rows up to it.

    Raises:
        DocError: If the checkpoint before it is damaged.

    """
    unsent = connection.execute(
        "SELECT EXISTS (SELECT 1 FROM log WHERE doc = :doc AND lsn <= :until"
        " AND replica_seq IS NULL)",
        {"doc": doc, "until": lsn},
    ).get
    if unsent:
        mark_unsealed(connection, doc)
    checkpoint = intact_checkpoint(connection, doc)
    save_checkpoint(connection, doc, checkpoint._replace(state=state, lsn=lsn))
    forget_rows(connection, doc, until=lsn)
