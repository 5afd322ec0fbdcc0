"""Bringing the index up to date on request, as after an import."""

from crdtmem.arguments import checked_count
from crdtmem.limits import UINT_MAX
from crdtmem.search.values import IndexReport
from crdtmem.session import Session
from crdtmem.store.indexing import count_pending, index_pending

__all__ = ["index_texts"]


def index_texts(session: Session, rows: int, vectors: int) -> IndexReport:
    """Index texts that have changed; see Memory.index.

    Raises:
        InvalidArgumentError: If an argument is malformed.
        StoreError: If the lock is not had in time, or the store is for reading.

    """
    most = checked_count(rows, "rows", UINT_MAX, 0)
    checked_count(vectors, "vectors", UINT_MAX, 0)
    store = session.store
    done = index_pending(store, most, wait_s=store.busy_timeout_s)
    with store.reading() as connection:
        pending = count_pending(connection)
    return IndexReport(indexed=done, pending=pending, embedded=0, unembedded=0)
