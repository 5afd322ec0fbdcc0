"""Another key for an encrypted namespace: who tells it, and what follows.

The store that has a key above all that were announced tells the others so, under the
old one, and makes a snapshot of every doc under the new one. Who hears of it changes
over as soon as the key is at hand there, and goes on under the old one until then:
every key stays good for reading.
"""

import apsw

from crdtmem.protocol.envelopes import KeyNotice
from crdtmem.protocol.records import RecordKind
from crdtmem.sealing import FIRST_KEY_ID
from crdtmem.store.links import Link
from crdtmem.store.records import OF_NO_DOC, put_record
from crdtmem.store.write import Transaction

__all__ = ["announce_key", "note_key", "snapshot_made"]


def announce_key(transaction: Transaction, link: Link, max_bytes: int) -> bool:
    """Tell of a key that is newer than all that were told of, once.

    From here on this store seals with it, and a snapshot of every doc is due.

    Args:
        transaction: Of the caller.
        link: The link; all that its relay had at the join is applied.
        max_bytes: Longest record that the relay takes.

    Returns:
        Whether there was such a key.

    """
    if link.sealer is None:
        return False
    newest = link.sealer.ids[-1]
    if newest <= max(link.key_id, FIRST_KEY_ID):
        return False
    connection = transaction.connection
    put_record(
        transaction,
        link,
        link.sealed_seq + 1,
        OF_NO_DOC,
        KeyNotice(newest, ""),
        kind=RecordKind.KEY_NOTICE,
        base=link.cursor.seq,
        max_bytes=max_bytes,
    )
    note_key(connection, link, newest)
    connection.execute(
        "UPDATE sync_doc SET rekey = 1 WHERE link = :link", {"link": link.link}
    )
    return True


def note_key(connection: apsw.Connection, link: Link, key_id: int) -> None:
    """Note that the writers of a namespace were told of a key."""
    connection.execute(
        "UPDATE link SET key_id = max(key_id, :key) WHERE link = :link",
        {"key": key_id, "link": link.link},
    )


def snapshot_made(connection: apsw.Connection, link: Link, doc: int) -> None:
    """Note that no snapshot of a doc is due for the sake of the newest key."""
    connection.execute(
        "UPDATE sync_doc SET rekey = 0 WHERE link = :link AND doc = :doc",
        {"link": link.link, "doc": doc},
    )
