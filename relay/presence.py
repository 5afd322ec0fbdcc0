"""Who is at what: handed on to the others of a namespace, never stored.

What comes from another process of the same relay is kept beside it, under whose it is
instead of a connection, so it ends with its time though that process may have ended.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace

from crdtmem.errors import RemoteProtocolError
from crdtmem.limits import PRESENCE_PAUSE_S, PRESENCES_HEARD_MAX
from crdtmem.protocol.answers import PresenceKey
from crdtmem.protocol.messages import Presence, decode_frame, encode_message
from relay.timers import Timers

__all__ = ["PresenceBoard", "Sender", "Shown"]

Sender = int | bytes
"""A connection of this process; or a replica and its incarnation at another one."""


@dataclass(frozen=True, slots=True)
class Shown:
    """A presence to be handed on, encoded.

    Attributes:
        conn: Whose it is; all others get it, and other processes where it is ours.
        key: What a newer one replaces.
        data: The message.

    """

    conn: Sender
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

    Args:
        heard_max: Most presences that are kept of other processes.

    """

    def __init__(self, heard_max: int = PRESENCES_HEARD_MAX) -> None:
        self._entries: dict[int, dict[Sender, _Entry]] = {}
        self._timers: Timers[tuple[int, Sender]] = Timers()
        self._heard_max = heard_max
        self._heard = 0
        # How many connections of this process a replica is present on.
        self._here: Counter[tuple[int, bytes]] = Counter()

    def __len__(self) -> int:
        return sum(map(len, self._entries.values()))

    def put(self, conn: int, presence: Presence, now: float) -> None:
        """Take a presence that came on a connection."""
        ns_no, elsewhere = presence.ns_no, _elsewhere(presence)
        entries = self._entries.get(ns_no, {})
        if elsewhere in entries:
            self._remove(elsewhere, ns_no)
        if conn not in entries:
            self._here[ns_no, elsewhere] += 1
        self._put(conn, presence, now)

    def hear(self, message: bytes, now: float) -> None:
        """Take what another process has announced.

        It does not count where it is no presence, where its replica has come to this
        process since, or where there are too many.
        """
        try:
            found = decode_frame(message)
        except RemoteProtocolError:
            # Another release may announce what this one does not know.
            return
        for presence in found:
            if not isinstance(presence, Presence):
                continue
            sender = _elsewhere(presence)
            if (presence.ns_no, sender) in self._here:
                continue
            if sender not in self._entries.get(presence.ns_no, {}):
                if self._heard >= self._heard_max or not presence.ttl_ms:
                    continue
                self._heard += 1
            self._put(sender, presence, now)

    def _put(self, conn: Sender, presence: Presence, now: float) -> None:
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

    def _remove(self, conn: Sender, ns_no: int) -> Shown:
        entries = self._entries[ns_no]
        self._timers.drop((ns_no, conn))
        gone = replace(entries.pop(conn).presence, ttl_ms=0, blob=b"")
        if isinstance(conn, bytes):
            self._heard -= 1
        else:
            key = ns_no, _elsewhere(gone)
            self._here[key] -= 1
            if not self._here[key]:
                del self._here[key]
        if not entries:
            del self._entries[ns_no]
        return _shown(conn, gone)


def _elsewhere(presence: Presence) -> bytes:
    return presence.replica_id + presence.incarnation


def _shown(conn: Sender, presence: Presence) -> Shown:
    key = (presence.ns_no, presence.replica_id, presence.incarnation)
    return Shown(conn, key, encode_message(presence))
