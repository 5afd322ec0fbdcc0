"""Who may be welcomed: two live stores must not use one replica's numbers.

A store that connects again usually comes before its old connection is known to be
dead. If it is the same lease under the same token, the old connection is replaced. If
it is another lease, the old connection is asked for a sign of life: one that gives it
proves that the store was copied, and one that does not is given up.
"""

from dataclasses import dataclass, field

from relay.timers import Timers

__all__ = ["Admission", "Arrival", "Verdict"]


@dataclass(frozen=True, slots=True)
class Arrival:
    """What decides whether two connections go together."""

    replica_id: bytes
    incarnation: bytes
    token_id: str


@dataclass(frozen=True, slots=True)
class Verdict:
    """What to do about an arrival.

    Attributes:
        replaced: Older connections of the same lease, to be closed.
        rivals: Connections of another lease, to be asked for a sign of life. The
            arrival is welcome only where there is none.

    """

    replaced: tuple[int, ...] = ()
    rivals: tuple[int, ...] = ()


@dataclass(slots=True)
class _Waiting:
    arrival: Arrival
    rivals: set[int] = field(default_factory=set)


class Admission:
    """The live connections of each replica, and those that wait for one to die.

    Args:
        probe_s: How long a rival may take to show that it lives.

    """

    def __init__(self, probe_s: float) -> None:
        self._probe_s = probe_s
        self._live: dict[int, Arrival] = {}
        self._by_replica: dict[bytes, set[int]] = {}
        self._waiting: dict[int, _Waiting] = {}
        self._probed: set[int] = set()
        self._timers: Timers[int] = Timers()

    def arrive(self, conn: int, arrival: Arrival, now: float) -> Verdict:
        """Decide on a connection that has said hello, or that has no rival any more."""
        replaced, rivals = [], []
        for other in sorted(self._by_replica.get(arrival.replica_id, ())):
            live = self._live[other]
            if live.incarnation != arrival.incarnation:
                rivals.append(other)
            elif live.token_id == arrival.token_id:
                replaced.append(other)
        if rivals:
            self._waiting[conn] = _Waiting(arrival, set(rivals))
            for rival in rivals:
                if rival not in self._probed:
                    self._probed.add(rival)
                    self._timers.set(rival, now + self._probe_s)
        else:
            self._live[conn] = arrival
            self._by_replica.setdefault(arrival.replica_id, set()).add(conn)
        return Verdict(tuple(replaced), tuple(rivals))

    def alive(self, conn: int) -> list[int]:
        """Take a rival's sign of life; return the arrivals that it shuts out."""
        self._unprobe(conn)
        return [c for c, waiting in self._waiting.items() if conn in waiting.rivals]

    def gone(self, conn: int) -> list[tuple[int, Arrival]]:
        """Forget a connection; return the arrivals that have no rival any more.

        Each of them is to arrive again.
        """
        self._waiting.pop(conn, None)
        self._unprobe(conn)
        arrival = self._live.pop(conn, None)
        if arrival is None:
            return []
        others = self._by_replica[arrival.replica_id]
        others.remove(conn)
        if not others:
            del self._by_replica[arrival.replica_id]
        return self._without_rival(conn)

    def overdue(self, now: float) -> list[int]:
        """Return the rivals that have not shown in time that they live.

        Also if who came in their place has not waited: it will come again.
        """
        return list(self._timers.due(now))

    def next_deadline(self) -> float | None:
        """Return when to ask next for rivals that are overdue."""
        return self._timers.next_deadline()

    def _unprobe(self, conn: int) -> None:
        self._probed.discard(conn)
        self._timers.drop(conn)

    def _without_rival(self, gone: int) -> list[tuple[int, Arrival]]:
        free = []
        for conn, waiting in list(self._waiting.items()):
            if gone in waiting.rivals:
                waiting.rivals.remove(gone)
                if not waiting.rivals:
                    del self._waiting[conn]
                    free.append((conn, waiting.arrival))
        return free
