"""Records on their way up: cut into frames, and handed out one at a time."""

from collections import deque
from collections.abc import Iterator, Sequence

from crdtmem.limits import FRAME_BYTES, PUT_RECORDS_MAX
from crdtmem.protocol.client_namespace import NamespaceSession
from crdtmem.protocol.messages import Put, Welcome, encode_message
from crdtmem.protocol.parts import split_record
from crdtmem.protocol.records import parse_header

__all__ = ["UploadQueue"]

# A frame keeps this much for what stands around records: type, lengths, numbers.
FRAME_SLACK_BYTES = 64
LENGTH_BYTES = 4


class _Upload:
    """The frames of one put, or of one record in parts."""

    def __init__(self, namespace: NamespaceSession, frames: Iterator[bytes]) -> None:
        self.namespace = namespace
        self.frames = frames
        self.is_begun = False


class UploadQueue:
    """First in, first out, for all namespaces of a connection.

    A record in parts is cut when its turn comes, so it is never in memory twice.

    Args:
        welcome: What the relay takes.

    """

    def __init__(self, welcome: Welcome) -> None:
        self._room_bytes = min(welcome.max_frame, FRAME_BYTES) - FRAME_SLACK_BYTES
        self._part_bytes = min(welcome.part_size, self._room_bytes)
        self._waiting: deque[_Upload] = deque()

    def add(self, namespace: NamespaceSession, records: Sequence[bytes]) -> None:
        """Queue records of one namespace, in their order."""
        group: list[bytes] = []
        group_bytes = 0
        for record in records:
            size = len(record) + LENGTH_BYTES
            is_long = len(record) > self._part_bytes
            is_full = len(group) == PUT_RECORDS_MAX
            if group and (is_long or is_full or group_bytes + size > self._room_bytes):
                self._add_put(namespace, group)
                group, group_bytes = [], 0
            if is_long:
                self._add_parts(namespace, record)
            else:
                group.append(record)
                group_bytes += size
        if group:
            self._add_put(namespace, group)

    def next_frame(self) -> bytes | None:
        """Take the next frame; None if nothing waits."""
        while self._waiting:
            upload = self._waiting[0]
            upload.is_begun = True
            frame = next(upload.frames, None)
            if frame is not None:
                return frame
            self._waiting.popleft()
        return None

    def withdraw(self, namespace: NamespaceSession) -> None:
        """Drop what waits for a namespace, all but a transfer that has begun.

        The relay takes no other put of the namespace inside one. When it is whole it
        is out of turn by then, and the relay passes over it in silence.
        """
        self._waiting = deque(
            upload
            for upload in self._waiting
            if upload.namespace is not namespace or upload.is_begun
        )

    def drop(self, namespace: NamespaceSession) -> None:
        """Drop everything of a namespace that the relay does not serve any more."""
        self._waiting = deque(
            upload for upload in self._waiting if upload.namespace is not namespace
        )

    def _add_put(self, namespace: NamespaceSession, group: list[bytes]) -> None:
        put = encode_message(Put(namespace.ns_no, tuple(group)))
        self._waiting.append(_Upload(namespace, iter([put])))

    def _add_parts(self, namespace: NamespaceSession, record: bytes) -> None:
        number = parse_header(record).replica_seq
        parts = split_record(namespace.ns_no, number, record, self._part_bytes)
        self._waiting.append(_Upload(namespace, map(encode_message, parts)))
