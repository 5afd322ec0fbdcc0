"""What is wrong with the memory sets of a store, and their repair.

The document of a set says what its items are. Where its records are whole, the rows are
written anew from them. Where one is damaged, it and all after it go into quarantine,
and what the rows hold and the document lacks is written anew onto what is left, under
new ids: the clocks of the old ones may stand in records that are known elsewhere.
Members keep their names, so nobody gets an item twice.
"""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any

import apsw

from crdtmem.doc.items import (
    HEADER,
    ItemsDoc,
    Version,
    canonical,
    header_value,
    member_hash,
    names_of,
    version_value,
)
from crdtmem.errors import DocError
from crdtmem.protocol.records import DocKind
from crdtmem.store.documents import intact_checkpoint
from crdtmem.store.inspection import DAMAGE, empty_checkpoint, number_problems
from crdtmem.store.log import load_checkpoint, log_of, save_checkpoint
from crdtmem.store.repair import (
    LANE,
    first_damaged_row,
    quarantine_rows,
    quarantine_state,
)
from crdtmem.store.rows import LogRow
from crdtmem.store.set_docs import catch_up_items, load_items
from crdtmem.store.set_history import ItemCommit
from crdtmem.store.set_rebase import write_as_wanted
from crdtmem.store.set_rows import (
    MemberRow,
    is_changed,
    new_set,
    rewritten_set,
    rows_of,
    save_set,
)
from crdtmem.store.set_write import finish_set
from crdtmem.store.sets import SetRow, all_items, set_of_doc, versions_of
from crdtmem.store.write import Transaction

__all__ = ["inspect_set", "names_of_set", "repair_set", "set_docs_in"]

NO_REPLICA = bytes(16)
"""Documents are loaded here to be looked at: nothing is written under this id."""

_HASH_MASK = (1 << 64) - 1


def set_docs_in(
    connection: apsw.Connection, namespaces: Sequence[str] | None
) -> list[int]:
    """Return the numbers of the docs of sets; None stands for all namespaces."""
    rows = connection.execute(
        "SELECT doc, namespace FROM doc WHERE kind = :kind ORDER BY doc",
        {"kind": DocKind.MEMORY_SET},
    )
    return [
        int(doc)
        for doc, namespace in rows
        if namespaces is None or namespace in namespaces
    ]


def names_of_set(connection: apsw.Connection, doc: int) -> tuple[str, str]:
    """Return namespace and name of a set; the doc's name where it has no other."""
    for namespace, name in connection.execute(
        "SELECT doc.namespace, coalesce(nullif(mset.name, ''), doc.name) FROM doc"
        " LEFT JOIN mset USING (doc) WHERE doc = :doc",
        {"doc": doc},
    ):
        return str(namespace), str(name)
    raise DocError(f"doc {doc} is missing")


def inspect_set(connection: apsw.Connection, doc: int) -> list[str]:
    """Return what is wrong with a set; raises nothing, whatever the damage."""
    found: list[str] = []
    try:
        found.extend(_problems(connection, doc))
    except DAMAGE as exc:
        found.append(str(exc))
    return found


def repair_set(transaction: Transaction, doc: int) -> str:
    """Mend a set and let its writes go on; return what was done.

    The caller drops the doc from the handle's cache.

    Raises:
        DocError: If its name is no set's.

    """
    connection = transaction.connection
    row = set_of_doc(connection, doc) or _made_row(transaction, doc)
    row = row._replace(quarantined=None)
    cut = _first_damaged(connection, doc)
    what = "its rows were written anew from its records"
    if cut is not None:
        row, dropped = _rebuilt_document(transaction, row, cut)
        what = f"its items were written anew; {dropped} records went into quarantine"
    document = load_items(connection, doc, transaction.replica)
    after = rewritten_set(connection, row, document)
    count, size_bytes, newest = _history_sums(connection, doc)
    after = after._replace(
        history_rows=count, history_bytes=size_bytes, rev=max(after.rev, newest)
    )
    transaction.next_lsn()
    finish_set(
        transaction,
        row,
        after,
        document,
        ItemCommit("restore", LANE, transaction.now_ms),
        lanes=[LANE],
        changed=0,
        details={},
    )
    return what


def _problems(connection: apsw.Connection, doc: int) -> Iterator[str]:
    row = set_of_doc(connection, doc)
    if row is None:
        # A set whose records were all refused has none, and is no damage.
        if log_of(connection, doc, after=0):
            yield "it has records and no row"
        return
    checkpoint = load_checkpoint(connection, doc)
    if (row.namespace, row.name_in_doc) != (checkpoint.namespace, checkpoint.name):
        yield "its row and its doc have different names"
    if row.quarantined is not None:
        yield f"it is quarantined: {row.quarantined}"
    document = load_items(connection, doc, NO_REPLICA)
    document.check()
    yield from _row_problems(connection, row, document)
    yield from number_problems(connection, row)


def _row_problems(
    connection: apsw.Connection, row: SetRow, document: ItemsDoc
) -> Iterator[str]:
    """Yield what differs between a set's rows and what its document says."""
    wanted = rows_of(row, document)
    rows = connection.execute(
        "SELECT id, member, created_ms, updated_ms, sources, size, bytes, hash"
        " FROM version WHERE doc = :doc",
        {"doc": row.doc},
    )
    if {str(found[1]): MemberRow(*found) for found in rows} != wanted.members:
        yield "its versions differ from its records"
    items = {item.id: item for item in all_items(connection, row.doc)}
    if items.keys() != wanted.items.keys() or any(
        is_changed(items[one], item) for one, item in wanted.items.items()
    ):
        yield "its items differ from its records"
    told = row._replace(dropped_ms=wanted.row.dropped_ms)
    if told != wanted.row or (row.dropped_ms is None) != (told.dropped_ms is None):
        yield "its sums differ from its records"
    yield from _history_problems(connection, row)


def _history_problems(connection: apsw.Connection, row: SetRow) -> Iterator[str]:
    count, size_bytes, newest = _history_sums(connection, row.doc)
    if (count, size_bytes) != (row.history_rows, row.history_bytes):
        yield f"its history has {count} rows, and its row says {row.history_rows}"
    if newest > row.rev:
        yield f"its history has rev {newest}, and its row stands at {row.rev}"


def _history_sums(connection: apsw.Connection, doc: int) -> tuple[int, int, int]:
    sums: list[Any] = connection.execute(
        "SELECT count(*), coalesce(sum(octet_length(old)), 0), coalesce(max(rev), 0)"
        " FROM item_history WHERE doc = :doc",
        {"doc": doc},
    ).fetchall()
    count, size_bytes, newest = sums[0]
    return int(count), int(size_bytes), int(newest)


def _made_row(transaction: Transaction, doc: int) -> SetRow:
    """Make the row of a set that has lost it."""
    checkpoint = load_checkpoint(transaction.connection, doc)
    names = names_of(checkpoint.name)
    if names is None:
        raise DocError(f"{len(checkpoint.name)} characters that name no set")
    row = new_set(doc, checkpoint.namespace, checkpoint.name, transaction.now_ms)
    row = row._replace(key_long=names[0], name=names[1])
    save_set(transaction.connection, row)
    return row


def _first_damaged(connection: apsw.Connection, doc: int) -> int | None:
    """Return the first damaged record; 0 for the checkpoint, None for none."""
    try:
        checkpoint = intact_checkpoint(connection, doc)
        document = ItemsDoc.restore(0, checkpoint.state)
        document.check()
    except DAMAGE:
        return 0

    def take(row: LogRow) -> None:
        catch_up_items(document, [row])

    return first_damaged_row(connection, doc, checkpoint.lsn, take)


def _rebuilt_document(
    transaction: Transaction, row: SetRow, cut: int
) -> tuple[SetRow, int]:
    """Write what the rows hold onto what is left of the records.

    Returns:
        The set after it, and how many records went into quarantine.

    """
    connection = transaction.connection
    told, is_whole = _told_members(connection, row)
    checkpoint = load_checkpoint(connection, row.doc)
    if cut == 0:
        quarantine_state(transaction, row.doc, checkpoint.state)
        save_checkpoint(connection, row.doc, empty_checkpoint(checkpoint))
    dropped = quarantine_rows(transaction, row.doc, cut)
    transaction.take_new_ids()
    document = load_items(connection, row.doc, transaction.replica)
    if not is_whole:
        # Rather an item that was deleted than one less.
        told = document.members() | told
    commit = ItemCommit("restore", LANE, transaction.now_ms)
    after = write_as_wanted(
        transaction, row, document, told, commit, [LANE], {"dropped": dropped}
    )
    return after, dropped


def _told_members(
    connection: apsw.Connection, row: SetRow
) -> tuple[dict[str, object], bool]:
    """Return the members that the rows hold, and whether these are all there were.

    Each is held against its hash, and all of them against that of the set.
    """
    hashes: dict[str, int] = {}
    told: dict[str, object] = {}
    # What was read until something cannot be read is as good.
    with suppress(*DAMAGE):
        for member, digest in connection.execute(
            "SELECT member, hash FROM version WHERE doc = :doc", {"doc": row.doc}
        ):
            hashes[str(member)] = digest
        ids = [item.id for item in all_items(connection, row.doc)]
        for versions in versions_of(connection, row.doc, ids).values():
            for found in versions:
                told[found.member] = version_value(Version(*found[1:]))
    if HEADER in hashes and row.key_long and row.name:
        told[HEADER] = header_value(row.key_long, row.name)
    told = {
        name: value
        for name, value in told.items()
        if member_hash(name, canonical(value)) == hashes.get(name)
    }
    digest = 0
    for name in told:
        digest ^= hashes[name] & _HASH_MASK
    return told, f"{digest:016x}" == row.set_hash
