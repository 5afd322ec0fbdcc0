"""Records too long for one message: cut into parts, and put together again.

Both directions do it alike. On a connection one record at a time is on its way in each
direction; other namespaces, acknowledgements and heartbeats may stand between its
parts. It ends early with its namespace: by leave, or by an error that drops it.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from crdtmem.errors import RemoteProtocolError
from crdtmem.limits import PART_WAIT_S
from crdtmem.protocol.messages import Part
from crdtmem.protocol.records import RecordKind

__all__ = ["PartAssembler", "RecordLimits", "split_record"]

UPDATE_KINDS = {RecordKind.UPDATE, RecordKind.KEY_NOTICE, RecordKind.RECEIPT}


@dataclass(frozen=True, slots=True)
class RecordLimits:
    """Longest records that a relay takes, in bytes, header included."""

    max_update: int
    max_snapshot: int

    def limit(self, record: bytes) -> int:
        """Return how long a record may be, by its beginning.

        The kind stands in its second byte; an unknown one gets the higher limit and is
        refused for what it is.
        """
        is_update = len(record) > 1 and record[1] in UPDATE_KINDS
        return self.max_update if is_update else self.max_snapshot


def split_record(
    ns_no: int, number: int, record: bytes, part_size: int
) -> Iterator[Part]:
    """Yield the parts of a record, in their order.

    Args:
        ns_no: Of the namespace.
        number: Its seq on the way down, its replica_seq on the way up.
        record: Not empty.
        part_size: Most bytes in a part.

    """
    for offset in range(0, len(record), part_size):
        piece = record[offset : offset + part_size]
        yield Part(ns_no, number, len(record), offset, piece)


class PartAssembler:
    """Puts together what arrives in parts in one direction of a connection.

    Holds at most one record, and never more bytes than have arrived.

    Args:
        limits: Longest records to take; held against the announced total.

    """

    def __init__(self, limits: RecordLimits) -> None:
        self._limits = limits
        self._first: Part | None = None
        self._pieces: list[bytes] = []
        self._deadline: float | None = None
        self.held_bytes = 0

    @property
    def ns_no(self) -> int:
        """Namespace of the record that is on its way; 0 for none."""
        return self._first.ns_no if self._first else 0

    @property
    def deadline(self) -> float | None:
        """When the next part is overdue; None if none is awaited."""
        return self._deadline

    def accept(self, part: Part, now: float) -> bytes | None:
        """Take the next part; return the record if it was the last.

        Raises:
            RemoteProtocolError: ``part-order``; the connection ends then.

        """
        self._check(part)
        self._first = self._first or part
        self._pieces.append(part.data)
        self.held_bytes += len(part.data)
        self._deadline = now + PART_WAIT_S
        if self.held_bytes < part.total:
            return None
        record = b"".join(self._pieces)
        self.drop()
        return record

    def expect_none_of(self, ns_no: int) -> None:
        """Check that whole records of a namespace don't stand inside a transfer of it.

        Raises:
            RemoteProtocolError: ``part-order``.

        """
        if self._first and self._first.ns_no == ns_no:
            raise RemoteProtocolError(
                "part-order", f"record stands inside the parts of {self._first.id}"
            )

    def drop(self) -> None:
        """Forget the record that is on its way, if any."""
        self._first = None
        self._pieces = []
        self._deadline = None
        self.held_bytes = 0

    def _check(self, part: Part) -> None:
        first = self._first or part
        if (part.ns_no, part.id, part.total) != (first.ns_no, first.id, first.total):
            broken = f"part of {part.id} stands inside the parts of {first.id}"
        elif part.offset != self.held_bytes:
            broken = f"part begins at {part.offset}, and {self.held_bytes} is due"
        elif part.total > self._limits.limit(first.data):
            broken = f"record of {part.total} bytes is too long for its kind"
        else:
            return
        raise RemoteProtocolError("part-order", broken)
