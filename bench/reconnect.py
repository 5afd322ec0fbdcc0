"""A store comes back after ten slots were changed elsewhere: what that costs.

Once it has 10,000 slots in all and once 1,000: what is moved, read and written is to be
that of the ten, however many others there are. Beside it y-websocket with as many
documents, whose client has to ask for each of them. Ours is a whole connection, from
the lease to the last commit; the peer's time ends when its documents are up to date.
"""

import statistics
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from bench.peers import Y_WEBSOCKET, PeerMissingError
from bench.rejoining import PEER, Joined, Rooms
from bench.running import Effort, Findings, run
from bench.syncing import Client, Relay, Synced, Traffic
from bench.timing import Comparison, Count, comparison
from bench.workload import folder, lines

__all__ = ["measure"]

SLOTS = 10_000
FEWER = 10
"""How many times fewer slots the other store has."""

CHANGED = 10
PEER_ROUNDS = 3
WRITTEN = f"by the store, for {CHANGED} changed slots"


def measure(effort: Effort) -> Findings:
    """Let both stores come back by turns, and the peer as often as it may."""
    slots = effort.size(SLOTS, 200)
    rejoined: list[Joined] = []
    missing = ""
    with ExitStack() as stack:
        place = stack.enter_context(folder())
        relay = stack.enter_context(Relay(place / "relay"))
        many, few = (
            stack.enter_context(_Site(place, relay, count))
            for count in (slots, slots // FEWER)
        )
        try:
            rooms = stack.enter_context(Rooms(slots))
            rooms.download()
        except PeerMissingError as error:
            missing = str(error)
        words = lines()
        for number in range(effort.rounds_of() + 1):
            for site in (many, few) if number % 2 else (few, many):
                site.go_round(number, next(words))
            if not missing and number < PEER_ROUNDS:
                rooms.change(_slots_of(number, slots), next(words))
                rejoined.append(rooms.rejoin())
        for site in (many, few):
            site.check()
    comparisons = [_by_slots(many, few)]
    counts = [*many.counts(), *few.counts()]
    if missing:
        counts.append(
            Count(
                f"reconnect-{Y_WEBSOCKET.name}", None, "s", note=f"missing: {missing}"
            )
        )
        return Findings(comparisons, counts)
    comparisons.append(_by_peer(many, rejoined))
    traffic = [one.traffic for one in rejoined]
    counts.append(_bytes_count(f"of-{slots}-{Y_WEBSOCKET.name}", traffic))
    return Findings(comparisons, counts, {Y_WEBSOCKET.name: Y_WEBSOCKET.version})


@dataclass
class _Site:
    """A store that leaves and returns, one that changes slots, and what it took.

    Attributes:
        place: Where both lie.
        relay: What they sync with.
        slots: How many slots both have.

    """

    place: Path
    relay: Relay
    slots: int
    took: list[Synced] = field(default_factory=list)
    traffic: list[Traffic] = field(default_factory=list)
    rows_read: list[int] = field(default_factory=list)

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            name = f"slots-{self.slots}"
            self._other = stack.enter_context(
                Client(self.place / f"{name}-a.db", self.relay, name, slots=self.slots)
            )
            self._other.sync()
            self._store = stack.enter_context(
                Client(self.place / f"{name}-b.db", self.relay, name)
            )
            self._store.sync()
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def go_round(self, number: int, line: str) -> None:
        """Change slots elsewhere, and let the store come back; round 0 is none."""
        self._other.change(_slots_of(number, self.slots), line)
        self._other.sync()
        self.relay.take_traffic()
        before = self.relay.rows()
        took = self._store.sync()
        rows = self.relay.rows() - before
        traffic = self.relay.take_traffic()
        if number:
            self.took.append(took)
            self.traffic.append(traffic)
            self.rows_read.append(rows)

    def check(self) -> None:
        """See that both stores hold the same texts."""
        if self._store.digest() != self._other.digest():
            raise RuntimeError(f"two stores of {self.slots} slots are not in step")

    def counts(self) -> list[Count]:
        """Return what was moved, read and written in a round."""
        name = f"of-{self.slots}"
        written = statistics.median(one.rows for one in self.took)
        read = statistics.median(self.rows_read)
        return [
            _bytes_count(name, self.traffic),
            Count(f"reconnect-rows-read-{name}", read, "rows", note="by the relay"),
            Count(f"reconnect-rows-written-{name}", written, "rows", note=WRITTEN),
        ]


def _slots_of(number: int, slots: int) -> Sequence[int]:
    """Return which slots are changed in a round: spread, and others each time."""
    return [(number + at * slots // CHANGED) % slots for at in range(CHANGED)]


def _bytes_count(name: str, traffic: Sequence[Traffic]) -> Count:
    up = round(statistics.median(one.up for one in traffic))
    down = round(statistics.median(one.down for one in traffic))
    note = f"{up:,} bytes up and {down:,} down"
    return Count(f"reconnect-bytes-{name}", (up + down) / 1000, "kB", note=note)


def _by_slots(many: _Site, few: _Site) -> Comparison:
    return comparison(
        f"reconnect-of-{many.slots}",
        [one.seconds for one in many.took],
        [one.seconds for one in few.took],
        against=f"the same of {few.slots:,} slots",
    )


def _by_peer(many: _Site, rejoined: Sequence[Joined]) -> Comparison:
    return comparison(
        f"reconnect-of-{many.slots}-{Y_WEBSOCKET.name}",
        [one.seconds for one in many.took],
        [one.seconds for one in rejoined],
        against=f"{PEER}, {many.slots:,} documents",
    )


if __name__ == "__main__":
    run(measure)
