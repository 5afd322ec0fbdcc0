"""Which namespace of a connection is sent records next: each in its turn.

One frame of records is made at a time, when the last one has left, so that nothing
queues for a slow reader: what waits for it is its position in the log.
"""

from collections import deque
from collections.abc import Iterator, Sequence

from crdtmem.protocol.downloads import Download, SharedFrame
from crdtmem.protocol.messages import Head
from crdtmem.protocol.relaying import LogRow, LogSlice
from crdtmem.protocol.serving import ReadRequest, TransferBudget

__all__ = ["Turns"]


class Turns:
    """All downloads of one connection.

    Args:
        transfers: Shared by all connections.

    Attributes:
        frame: The frame that is to be sent next; whoever sends it sets it to None.

    """

    def __init__(self, transfers: TransferBudget) -> None:
        self.frame: bytes | None = None
        self._transfers = transfers
        self._downloads: dict[int, Download] = {}
        self._waiting: deque[Download] = deque()
        self._held: list[Download] = []
        self._reading: Download | None = None
        self._in_parts: Download | None = None
        self._in_parts_bytes = 0

    @property
    def has_more(self) -> bool:
        """Whether a frame waits to be sent, or a namespace for its turn."""
        return self.frame is not None or bool(self._waiting)

    def add(self, download: Download) -> None:
        """Serve a namespace from now on."""
        self._downloads[download.ns_no] = download
        self._wait(download)

    def remove(self, ns_no: int) -> None:
        """Serve a namespace no longer; what is being read for it is dropped."""
        download = self._downloads.pop(ns_no)
        if download in self._waiting:
            self._waiting.remove(download)
        if download in self._held:
            self._held.remove(download)
        if download is self._in_parts:
            self._end_parts()

    def clear(self) -> None:
        """Serve nothing any more."""
        for ns_no in list(self._downloads):
            self.remove(ns_no)
        self.frame = None

    def heads(self) -> Iterator[Head]:
        """Yield the newest seq of each namespace."""
        for download in self._downloads.values():
            yield Head(download.ns_no, download.head)

    def moved(self, ns_no: int, head: int) -> None:
        """Take note of a newer head."""
        download = self._downloads.get(ns_no)
        if download is not None and head > download.head:
            download.head = head
            self._wait(download)

    def offer(self, frame: SharedFrame, head: int) -> bool:
        """Take a shared frame as the next one, if it is due right now."""
        download = self._downloads.get(frame.ns_no)
        is_free = self.frame is None and self._reading is None and not self._waiting
        if download is None or not is_free or not download.may_share(frame):
            self.moved(frame.ns_no, head)
            return False
        self.frame = download.share(frame)
        self.moved(frame.ns_no, head)
        return True

    def may_share(self, frame: SharedFrame) -> bool:
        """Tell whether a shared frame answers the read that is asked for."""
        return self._reading is not None and self._reading.may_share(frame)

    def may_use_cached(self, rows: Sequence[LogRow]) -> bool:
        """Tell whether cached rows answer the read that is asked for."""
        return self._reading is not None and self._reading.may_use_cached(rows)

    def next_read(self) -> ReadRequest | None:
        """Return what is to be read for the next frame, or None.

        None also where the next frame is there already: a further part of a record.
        """
        if self.frame is not None or self._reading is not None:
            return None
        while self._waiting:
            download = self._waiting.popleft()
            download.is_waiting = False
            if download is self._in_parts:
                self.frame = download.next_part()
                self._after_frame(download)
                return None
            if download.position < download.head:
                self._reading = download
                return ReadRequest(download.ns_no, download.position)
        return None

    def read_done(self, got: LogSlice | SharedFrame) -> bool:
        """Take what was read, and make a frame of it.

        Returns:
            False where the rows don't begin where they should: the log is broken.

        """
        download, self._reading = self._reading, None
        if download is None or self._downloads.get(got.ns_no) is not download:
            return True
        if isinstance(got, SharedFrame):
            self.frame = download.share(got)
        elif not got.rows:
            # A hint was wrong, or older than what it spoke of.
            download.head = download.position
        elif got.rows[0].seq != download.position + 1:
            return False
        elif not self._has_room(download, got.rows[0]):
            self._held.append(download)
            download.is_waiting = True
            return True
        else:
            download.head = max(download.head, got.head)
            self.frame = download.take(got.rows)
            if download.transfer_bytes:
                self._in_parts = download
                self._in_parts_bytes = download.transfer_bytes
                self._transfers.hold(self._in_parts_bytes)
        self._after_frame(download)
        return True

    def retry(self) -> None:
        """Try again what had to wait because too much is on its way in parts."""
        held, self._held = self._held, []
        for download in held:
            download.is_waiting = False
            self._wait(download)

    def _has_room(self, download: Download, row: LogRow) -> bool:
        """Tell whether a record could go down in parts, if it has to."""
        if row.record is None or not download.is_long(row):
            return True
        return self._in_parts is None and self._transfers.has_room(len(row.record))

    def _after_frame(self, download: Download) -> None:
        if download is self._in_parts and not download.transfer_bytes:
            self._end_parts()
        self._wait(download)

    def _end_parts(self) -> None:
        self._in_parts = None
        self._transfers.hold(-self._in_parts_bytes)
        self.retry()

    def _wait(self, download: Download) -> None:
        if not download.is_waiting and download.position < download.head:
            download.is_waiting = True
            self._waiting.append(download)
