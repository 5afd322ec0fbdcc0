"""Who is at what: handed on to the others of a namespace, never stored."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from crdtmem.limits import PRESENCE_PAUSE_S
from crdtmem.protocol.answers import PresenceKey
from crdtmem.protocol.messages import Presence, encode_message
from relay.timers import Timers

__all__ = ["PresenceBoard", "Shown"]


@dataclass(frozen=True, slots=True)
class Shown:
    """A presence to be handed on, encoded.

    Attributes:
        conn: Whose it is; all others get it.
        key: What a newer one replaces.
        data: The message.

    """

    conn: int
    key: PresenceKey
    data: bytes


@dataclass(slots=True)
class _Entry:
    presence: Presence
    ends_at: float
    next_at: float
    is_due: bool = True

    @property
    def due_at(self) -> float:
        return min(self.next_at, self.ends_at) if self.is_due else self.ends_at


class PresenceBoard:
    """The last presence of each connection in each namespace.

    What a sender says is handed on at most twice a second, and then the newest. When
    it leaves, or its time is over, the others are told that it is gone.
    """

    def __init__(self) -> None:
        self._entries: dict[int, dict[int, _Entry]] = {}
        self._timers: Timers[tuple[int, int]] = Timers()

    def __len__(self) -> int:
        return sum(map(len, self._entries.values()))

    def put(self, conn: int, presence: Presence, now: float) -> None:
        """Take a presence that came on a connection."""
        entries = self._entries.setdefault(presence.ns_no, {})
        before = entries.get(conn)
        ends_at = now + presence.ttl_ms / 1000
        entry = _Entry(presence, ends_at, before.next_at if before else now)
        entries[conn] = entry
        self._timers.set((presence.ns_no, conn), entry.due_at)

    def leave(self, conn: int, ns_no: int) -> list[Shown]:
        """Forget a connection's presence in a namespace; return the word of it."""
        if conn not in self._entries.get(ns_no, {}):
            return []
        self._timers.drop((ns_no, conn))
        return [self._remove(conn, ns_no)]

    def present(self, ns_no: int) -> list[Shown]:
        """Return what somebody who has just joined is to be shown."""
        entries = self._entries.get(ns_no, {})
        return [_shown(conn, entry.presence) for conn, entry in entries.items()]

    def due(self, now: float) -> Iterator[Shown]:
        """Yield what is to be handed on by now."""
        for ns_no, conn in self._timers.due(now):
            entry = self._entries[ns_no][conn]
            if now >= entry.ends_at:
                yield self._remove(conn, ns_no)
                continue
            entry.is_due = False
            entry.next_at = now + PRESENCE_PAUSE_S
            self._timers.set((ns_no, conn), entry.ends_at)
            yield _shown(conn, entry.presence)

    def next_deadline(self) -> float | None:
        """Return when to ask next for what is due."""
        return self._timers.next_deadline()

    def _remove(self, conn: int, ns_no: int) -> Shown:
        entries = self._entries[ns_no]
        gone = replace(entries.pop(conn).presence, ttl_ms=0, blob=b"")
        if not entries:
            del self._entries[ns_no]
        return _shown(conn, gone)


def _shown(conn: int, presence: Presence) -> Shown:
    key = (presence.ns_no, presence.replica_id, presence.incarnation)
    return Shown(conn, key, encode_message(presence))
