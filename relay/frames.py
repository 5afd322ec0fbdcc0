"""New records as frames, encoded once for all who read them.

A namespace's newest rows are kept at hand. A reader that stands anywhere among them is
sent a frame that was made for its position, and the next one there gets the same bytes:
fifty readers of a burst cost one encoding. Who is further behind, or wrote some of the
rows, or may have a hole that a snapshot fills, reads them itself.
"""

from collections.abc import Sequence
from dataclasses import replace

from crdtmem.limits import FRAME_CACHE_ALL_BYTES, FRAME_CACHE_BYTES, RECORDS_ITEMS_MAX
from crdtmem.protocol.downloads import (
    PAGE_BYTES,
    SharedFrame,
    encode_records,
    full_item,
    is_cover,
    redundant_item,
)
from crdtmem.protocol.relaying import LogRow

__all__ = ["FrameCache"]


class _Recent:
    """The newest rows of one namespace, without a gap."""

    def __init__(self) -> None:
        self.rows: list[LogRow] = []
        self.items: list[bytes] = []
        self.size_bytes = 0
        self.frames: dict[int, SharedFrame] = {}

    def index(self, seq: int) -> int | None:
        """Return where a row stands; None where it is not at hand."""
        if not self.rows or not self.rows[0].seq <= seq <= self.rows[-1].seq:
            return None
        return seq - self.rows[0].seq

    def add(self, rows: Sequence[LogRow]) -> None:
        if self.rows and rows[0].seq != self.rows[-1].seq + 1:
            self.clear()
        for row in rows:
            if is_cover(row):
                # Who needs it in full needs it from the log, with what is known then.
                row = replace(row, record=b"")
                item = redundant_item(row)
            else:
                item = full_item(row.record or b"")
            self.rows.append(row)
            self.items.append(item)
            self.size_bytes += len(item)
        self.frames.clear()

    def evict(self, limit: int) -> None:
        """Let the oldest rows go until what is left is within the limit."""
        count = 0
        while self.size_bytes > limit:
            self.size_bytes -= len(self.items[count])
            count += 1
        del self.rows[:count], self.items[:count]

    def clear(self) -> None:
        self.rows.clear()
        self.items.clear()
        self.frames.clear()
        self.size_bytes = 0


class FrameCache:
    """The newest rows of every namespace that somebody reads.

    Args:
        part_bytes: Longest record that is not sent in parts.
        namespace_bytes: Most bytes of one namespace.
        all_bytes: Most bytes of all together; the one that got a record longest ago
            goes first.

    """

    def __init__(
        self,
        part_bytes: int,
        *,
        namespace_bytes: int = FRAME_CACHE_BYTES,
        all_bytes: int = FRAME_CACHE_ALL_BYTES,
    ) -> None:
        self._part_bytes = part_bytes
        self._namespace_bytes = namespace_bytes
        self._all_bytes = all_bytes
        self._recent: dict[int, _Recent] = {}
        self.size_bytes = 0

    def add(self, ns_no: int, rows: Sequence[LogRow]) -> None:
        """Keep rows that were just stored, in the order of their seqs."""
        recent = self._recent.pop(ns_no, None) or _Recent()
        self._recent[ns_no] = recent
        self.size_bytes -= recent.size_bytes
        recent.add(rows)
        recent.evict(self._namespace_bytes)
        self.size_bytes += recent.size_bytes
        while self.size_bytes > self._all_bytes:
            self.forget(next(iter(self._recent)))

    def forget(self, ns_no: int) -> None:
        """Keep nothing of a namespace."""
        recent = self._recent.pop(ns_no, None)
        if recent is not None:
            self.size_bytes -= recent.size_bytes

    def frame(self, ns_no: int, after: int) -> SharedFrame | None:
        """Return the frame of the rows behind a seq, as many as fit; None for none.

        The same position gives the same bytes object until there are new rows.
        """
        recent = self._recent.get(ns_no)
        if recent is None:
            return None
        frame = recent.frames.get(after)
        if frame is None:
            start = recent.index(after + 1)
            if start is None:
                return None
            frame = self._build(ns_no, recent, start)
            if frame is not None:
                recent.frames[after] = frame
        return frame

    def rows(self, ns_no: int, after: int) -> Sequence[LogRow]:
        """Return the rows behind a seq, at most a frame's number; none if not at hand.

        Snapshots among them have no bytes: for readers that get them by name alone.
        """
        recent = self._recent.get(ns_no)
        start = recent.index(after + 1) if recent is not None else None
        if recent is None or start is None:
            return ()
        return recent.rows[start : start + RECORDS_ITEMS_MAX]

    def _build(self, ns_no: int, recent: _Recent, start: int) -> SharedFrame | None:
        size_bytes, end = 0, start
        for item in recent.items[start : start + RECORDS_ITEMS_MAX]:
            size_bytes += len(item)
            is_long = len(item) > self._part_bytes
            if is_long or size_bytes > PAGE_BYTES:
                break
            end += 1
        if end == start:
            return None
        rows = recent.rows[start:end]
        items = recent.items[start:end]
        covers = [row for row in rows if is_cover(row)]
        return SharedFrame(
            ns_no,
            rows[0].seq - 1,
            rows[-1].seq,
            encode_records(ns_no, rows[0].seq, items, rows[-1].chain),
            frozenset(row.replica_id for row in rows),
            frozenset(row.doc_tag for row in covers),
            covers[0].seq if covers else 0,
        )
