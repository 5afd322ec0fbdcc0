"""What one connection is sent of one namespace, and in which form.

The relay keeps a position in the log for each reader and nothing else: what lies above
it is sent, in order, whether the reader is live or years behind. How each record is
sent follows from what the reader has: its own records by their id alone, records whose
payload is gone as covered, and the snapshot that covers them in full, but only to who
has such a hole.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from crdtmem.errors import LocalProtocolError
from crdtmem.limits import FRAME_BYTES, RECORDS_ITEMS_MAX
from crdtmem.protocol.codec import write_bytes, write_uint
from crdtmem.protocol.messages import Form, Part, encode_message
from crdtmem.protocol.parts import split_record
from crdtmem.protocol.records import RecordKind
from crdtmem.protocol.relaying import LogRow, Sample

__all__ = [
    "PAGE_BYTES",
    "Download",
    "SharedFrame",
    "encode_records",
    "full_item",
    "is_cover",
    "redundant_item",
]

PAGE_BYTES = FRAME_BYTES - 1024
"""Most bytes of items in one frame; the rest is for what stands around them."""

RECORDS_TYPE = b"\x0a"
FULL, OWN, COVERED, REDUNDANT = (bytes([form]) for form in Form)


@dataclass(frozen=True, slots=True)
class SharedFrame:
    """One frame of records, the same bytes for every reader that may have it.

    Attributes:
        ns_no: Number of the namespace.
        after: The seq before its first record.
        last: The seq of its last record.
        data: The frame.
        writers: Replicas that wrote any of its records.
        covered_tags: Docs of the snapshots in it, which it holds as redundant.
        first_cover: Seq of the first of those; 0 for none.

    """

    ns_no: int
    after: int
    last: int
    data: bytes = field(repr=False)
    writers: frozenset[bytes]
    covered_tags: frozenset[bytes] = frozenset()
    first_cover: int = 0


@dataclass(slots=True)
class _Transfer:
    """A record that is on its way down in parts."""

    seq: int
    size_bytes: int
    parts: Iterator[Part]
    parts_left: int


class Download:
    """One reader's place in one namespace.

    Every seq above the place where it began is sent once and in order (R2).

    Args:
        ns_no: Number of the namespace.
        replica_id: Of the connection.
        start: Where the reader is.
        head: Newest seq; with an equal or higher one it is told of nothing older.
        own_seq: Highest replica_seq that the reader is known to have.
        part_bytes: Most bytes of a record in one message.

    """

    __slots__ = (
        "_horizon",
        "_part_bytes",
        "_transfer",
        "head",
        "holes",
        "is_waiting",
        "ns_no",
        "own_seq",
        "position",
        "replica_id",
    )

    def __init__(
        self,
        ns_no: int,
        replica_id: bytes,
        *,
        start: Sample,
        head: int,
        own_seq: int,
        part_bytes: int,
    ) -> None:
        self.ns_no = ns_no
        self.replica_id = replica_id
        self.position = start.seq
        self.head = head
        self.own_seq = own_seq
        self.holes: set[bytes] = set()
        self.is_waiting = False
        self._horizon = head
        self._part_bytes = part_bytes
        self._transfer: _Transfer | None = None

    @property
    def transfer_bytes(self) -> int:
        """Length of the record that is on its way in parts; 0 for none."""
        return self._transfer.size_bytes if self._transfer else 0

    def may_share(self, frame: SharedFrame) -> bool:
        """Tell whether a shared frame is what this reader is to be sent next."""
        return (
            frame.after == self.position
            and self.replica_id not in frame.writers
            and (
                not frame.first_cover
                or (
                    frame.first_cover > self._horizon
                    and self.holes.isdisjoint(frame.covered_tags)
                )
            )
        )

    def may_use_cached(self, rows: Sequence[LogRow]) -> bool:
        """Tell whether rows will do that were kept since they were stored.

        What such a row says of its doc may be out of date: whether payloads have been
        dropped, and whether the snapshot is still the newest. Wherever that matters
        the rows have to be read anew.
        """
        return not any(
            is_cover(row) and (row.seq <= self._horizon or row.doc_tag in self.holes)
            for row in rows
        )

    def share(self, frame: SharedFrame) -> bytes:
        """Move behind a frame that may be shared, and return its bytes."""
        self.position = frame.last
        return frame.data

    def is_long(self, row: LogRow) -> bool:
        """Tell whether a record may have to go in parts."""
        return len(row.record or b"") > self._part_bytes

    def take(self, rows: Sequence[LogRow]) -> bytes:
        """Move behind as many rows as one frame holds, and return that frame.

        Args:
            rows: Adjoining rows, the first of them right behind the position. If it
                is long, and to be sent in full, a transfer begins instead, and the
                frame is its first part.

        """
        items: list[bytes] = []
        size_bytes = 0
        for row in rows[:RECORDS_ITEMS_MAX]:
            size_bytes += len(row.record or b"") + 64
            if items and (self.is_long(row) or size_bytes > PAGE_BYTES):
                break
            record = self._record_in_full(row)
            if record is not None and self.is_long(row):
                return self._begin_transfer(row, record)
            items.append(self._short_item(row) if record is None else full_item(record))
        first = self.position + 1
        self.position += len(items)
        chain = rows[len(items) - 1].chain
        return encode_records(self.ns_no, first, items, chain)

    def next_part(self) -> bytes:
        """Return the next part of the transfer; to be called only while there is one.

        With the last part the position is behind the record.
        """
        transfer = self._transfer
        if transfer is None:
            raise LocalProtocolError(f"no record of {self.ns_no} is on its way")
        transfer.parts_left -= 1
        if not transfer.parts_left:
            self.position = transfer.seq
            self._transfer = None
        return encode_message(next(transfer.parts))

    def _begin_transfer(self, row: LogRow, record: bytes) -> bytes:
        self._transfer = _Transfer(
            row.seq,
            len(record),
            split_record(self.ns_no, row.seq, record, self._part_bytes),
            -(-len(record) // self._part_bytes),
        )
        return self.next_part()

    def _record_in_full(self, row: LogRow) -> bytes | None:
        """Return the record if this reader gets all of it, else None."""
        if self._is_own(row):
            return None
        if row.record is None:
            self.holes.add(row.doc_tag)
            return None
        return row.record if not is_cover(row) or self._needs_cover(row) else None

    def _short_item(self, row: LogRow) -> bytes:
        if self._is_own(row):
            return OWN + row.record_id
        return (
            redundant_item(row)
            if row.record is not None
            else COVERED + row.record_id + row.doc_tag
        )

    def _is_own(self, row: LogRow) -> bool:
        return row.replica_id == self.replica_id and row.replica_seq <= self.own_seq

    def _needs_cover(self, row: LogRow) -> bool:
        if row.seq <= self._horizon and row.doc_has_dropped:
            # The reader may have passed the hole on an earlier connection.
            self.holes.add(row.doc_tag)
        if row.is_newest_snapshot and row.doc_tag in self.holes:
            self.holes.remove(row.doc_tag)
            return True
        return False


def is_cover(row: LogRow) -> bool:
    """Tell whether a row covers earlier ones of its doc."""
    return row.kind == RecordKind.SNAPSHOT and row.base > 0


def full_item(record: bytes) -> bytes:
    """Return the item that holds a record itself."""
    return FULL + write_bytes(record)


def redundant_item(row: LogRow) -> bytes:
    """Return the item of a snapshot that tells its reader nothing new."""
    return REDUNDANT + row.record_id + row.doc_tag


def encode_records(
    ns_no: int, first_seq: int, items: Sequence[bytes], chain: bytes
) -> bytes:
    """Return the frame that holds these items and nothing else.

    The same bytes as ``encode_message`` of a Records, without a value for each item: a
    relay makes one of these for every commit.
    """
    head = write_uint(ns_no) + write_uint(first_seq) + write_uint(len(items))
    return RECORDS_TYPE + write_bytes(b"".join([head, *items, chain]))
