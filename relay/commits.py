"""What waits to be stored, and which of it goes into the next commit."""

from collections import deque

from crdtmem.limits import COMMIT_BYTES, COMMIT_RECORDS
from crdtmem.protocol.relaying import Put

__all__ = ["CommitQueue"]


class CommitQueue:
    """Puts that wait, by connection; a group takes one of each in turn.

    There is no timer: a group is what has come while the last commit ran. So an idle
    relay commits one record at once, and a busy one a thousand with one sync. A put is
    never split, and those of a connection keep their order (R5).

    Args:
        records_max: Most records of a group.
        bytes_max: Most bytes of a group; one larger put alone may pass.

    """

    def __init__(
        self, records_max: int = COMMIT_RECORDS, bytes_max: int = COMMIT_BYTES
    ) -> None:
        self._records_max = records_max
        self._bytes_max = bytes_max
        self._queues: dict[int, deque[Put]] = {}
        self.records = 0

    def add(self, conn: int, put: Put) -> None:
        """Let a put wait, behind those of its connection."""
        self._queues.setdefault(conn, deque()).append(put)
        self.records += len(put.records)

    def drop(self, conn: int) -> None:
        """Forget what waits of a connection."""
        for put in self._queues.pop(conn, ()):
            self.records -= len(put.records)

    def take(self) -> list[tuple[int, Put]]:
        """Return the next group; empty where nothing waits."""
        group: list[tuple[int, Put]] = []
        records = size_bytes = 0
        while self._queues:
            conn, queue = next(iter(self._queues.items()))
            put = queue[0]
            records += len(put.records)
            size_bytes += sum(len(record.record) for record in put.records)
            is_over = records > self._records_max or size_bytes > self._bytes_max
            if group and is_over:
                break
            queue.popleft()
            # To the end: the others come first.
            del self._queues[conn]
            if queue:
                self._queues[conn] = queue
            self.records -= len(put.records)
            group.append((conn, put))
        return group
