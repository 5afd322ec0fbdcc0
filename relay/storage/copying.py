"""Copies a whole relay from one storage to another: identity, log, tokens, everything.

The copy is the same relay: clients go on where they are. Each storage has a module
``moving`` with a source, which reads as of one moment and which nobody serves, and a
target, which is empty before and whole after, or empty again. Both spell a row of a
table in one way, as values in the order of its columns here:

- ``relay``: relay_id, aged_ms, aged_at_ms
- ``epoch``: n, epoch, reason, total, created_ms
- ``ns``: ns_no, name, head, chain, floor, floor_chain, live_bytes, docs, created_ms
- ``replica``: ns_no, replica_id, max_seq, last_id, token_id, first_ms, last_ms
- ``doc``: ns_no, doc_tag, snap_seq, covered, dropped_seq
- ``token``: token_id, sha256, pattern, scopes, label, not_after_ms, max_replicas,
  created_ms, revoked_ms, changed
- ``log``: ns_no, seq, record_id, chain, header, payload, doc_tag, replica_id,
  replica_seq, drop_at, token_id, recv_ms
"""

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import aclosing
from typing import Any, Protocol

from crdtmem.errors import StorageCorruptError
from crdtmem.limits import COPY_BATCH_BYTES, COPY_BATCH_ROWS
from relay.storage.checking import ChainCheck, NamespaceCheck

__all__ = ["TABLES", "CopySource", "CopyTarget", "Row", "copy_relay"]

Row = tuple[Any, ...]

TABLES = ("relay", "epoch", "ns", "replica", "doc", "token", "log")
"""In the order in which they are filled."""


class CopySource(Protocol):
    """A relay as of one moment."""

    place: str

    def rows(self, table: str) -> AsyncGenerator[Row, None]:
        """Give the rows of a table, in the order of its key."""

    async def records(self) -> int:
        """Return how many rows the log has."""


class CopyTarget(CopySource, Protocol):
    """A relay that is being made; what is added shows in ``rows`` at once."""

    async def add(self, table: str, rows: Sequence[Row]) -> None:
        """Add rows to a table."""


async def copy_relay(
    source: CopySource, target: CopyTarget, told: Callable[[int], None]
) -> list[NamespaceCheck]:
    """Copy everything, then read it back, and hold it against the source and itself.

    Args:
        source: Open.
        target: Open and empty; whoever opened it commits after this, and only then.
        told: Called with the number of records each time that some have been copied.

    Returns:
        What was found of each namespace; nothing bad.

    Raises:
        StorageCorruptError: If the copy is not the same, or a chain is broken.
        StorageError: If the source cannot be read, or the target not written.

    """
    for table in TABLES:
        async for rows in _batches(source.rows(table)):
            await target.add(table, rows)
            if table == "log":
                told(len(rows))
    for table in TABLES:
        await _compare(table, source, target)
    return await _check(target)


async def _batches(rows: AsyncIterator[Row]) -> AsyncIterator[list[Row]]:
    batch: list[Row] = []
    size_bytes = 0
    async for row in rows:
        batch.append(row)
        size_bytes += sum(len(value) for value in row if isinstance(value, bytes))
        if len(batch) >= COPY_BATCH_ROWS or size_bytes >= COPY_BATCH_BYTES:
            yield batch
            batch, size_bytes = [], 0
    if batch:
        yield batch


async def _compare(table: str, source: CopySource, target: CopySource) -> None:
    async with (
        aclosing(source.rows(table)) as rows,
        aclosing(target.rows(table)) as copied,
    ):
        is_same = True
        async for row in rows:
            is_same = is_same and row == await anext(copied, None)
        if is_same and await anext(copied, None) is None:
            return
    raise StorageCorruptError(
        path=target.place, reason=f"table {table} is not that of {source.place}"
    )


async def _check(target: CopySource) -> list[NamespaceCheck]:
    """Compute all ids and chains anew."""
    spaces = {row[0]: row async for row in target.rows("ns")}
    checks = {row[0]: ChainCheck(row[1], row[4], row[5]) for row in spaces.values()}
    bad = set()
    async for ns_no, *record, _, _, _, _, _, _ in target.rows("log"):
        if ns_no not in bad and not checks[ns_no].add(*record):
            bad.add(ns_no)
    found = [checks[ns_no].result(row[2], row[3]) for ns_no, row in spaces.items()]
    for one in found:
        if one.bad_seq is not None:
            raise StorageCorruptError(
                path=target.place,
                reason=f"namespace {one.namespace}: seq {one.bad_seq:,}: {one.reason}",
            )
    return found
