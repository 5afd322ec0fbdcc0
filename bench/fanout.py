"""Bursts of 57-byte updates to 50 subscribers: from the first send to the last receipt.

A burst is 1,024 or 4,096 updates of one writer, and the next one begins when all
subscribers have all of it. Of the short one, our time is mostly the sync of the disk
and the clients, which both sides have; the long one shows the servers. Ours syncs what
it takes before anybody is sent it; the peers keep theirs in memory. How updates are
batched on their way differs, and is part of what is compared:

- ours, as its store sends a burst: records of 256 writes, each with its lane and time
  (``fanout-1024``, ``fanout-4096``); also with a record for each update, as many in a
  message as the window of a client allows (``fanout-records``), and in a message each
  (``fanout-messages``), both of the short burst;
- y-websocket takes and sends one message for each update;
- Hocuspocus takes one message for each update, and merges what came in one turn of its
  event loop before it sends.

Every side's first subscriber compares all that it was sent with what was sent to it;
the others count.
"""

import itertools

from bench.peers import PeerMissingError
from bench.running import Effort, Findings, run
from bench.servers import OURS, PEERS, Server, ask, server
from bench.timing import Comparison, Count, comparison

__all__ = ["measure"]

READERS = 50
BURSTS = 3
WARMUPS = 1
TARGET = 1 / 20
# Of each length of a burst: writes in a record, and records in a put.
BATCHINGS = {
    1_024: {
        "fanout-1024": (256, 4),
        "fanout-records": (1, 256),
        "fanout-messages": (1, 1),
    },
    4_096: {"fanout-4096": (256, 4)},
}


class Side:
    """What was measured of one side with one batching."""

    def __init__(self) -> None:
        self.burst_s: list[float] = []
        self.processor_s: list[float] = []
        self.delivered = 0
        self.expected = 0
        self.is_equal = True

    def add(self, found: dict[str, object]) -> None:
        """Take in what the clients of one task report."""
        seconds, processor_s = found["seconds"], found["processor_s"]
        delivered, expected = found["delivered"], found["expected"]
        if isinstance(seconds, list):
            self.burst_s += seconds
        if isinstance(processor_s, float):
            self.processor_s.append(processor_s)
        if isinstance(delivered, int) and isinstance(expected, int):
            self.delivered += delivered
            self.expected += expected
        self.is_equal = self.is_equal and found["isEqual"] is True


def measure(effort: Effort) -> Findings:
    """Have ours and each peer deliver the same bursts, by turns."""
    rounds = effort.rounds_of(5)
    readers = effort.size(READERS, 10)
    comparisons: list[Comparison] = []
    counts: list[Count] = []
    peers: dict[str, str] = {}
    for (side, peer), burst in itertools.product(PEERS.items(), BATCHINGS):
        try:
            found = _race(side, burst, rounds, readers)
        except PeerMissingError as error:
            counts.append(Count(f"fanout-{side}", None, "per s", note=f"{error}"))
            continue
        peers[peer.name] = peer.version
        theirs = found.pop(side)
        for name, ours in found.items():
            comparisons += _compared(f"{name}-{side}", side, ours, theirs)
        for name, one in {**found, f"{side}-{burst}": theirs}.items():
            counts += _counted(f"{name}-beside-{side}", one, readers, burst)
    return Findings(comparisons, counts, peers)


def _race(side: str, burst: int, rounds: int, readers: int) -> dict[str, Side]:
    """Measure ours in each batching, and a peer, in turns."""
    batchings = BATCHINGS[burst]
    found = {name: Side() for name in [*batchings, side]}
    with server(OURS) as ours, server(side) as theirs:
        for _ in range(rounds):
            for name, batching in batchings.items():
                found[name].add(_bursts(ours, readers, burst, batching))
            found[side].add(_bursts(theirs, readers, burst, (1, 1)))
    return found


def _bursts(
    at: Server, readers: int, burst: int, batching: tuple[int, int]
) -> dict[str, object]:
    return ask(
        at,
        {
            "task": "fanout",
            "readers": readers,
            "burst": burst,
            "bursts": BURSTS,
            "warmups": WARMUPS,
            "perRecord": batching[0],
            "perPut": batching[1],
        },
    )


def _compared(name: str, against: str, ours: Side, theirs: Side) -> list[Comparison]:
    target = TARGET if name.startswith(("fanout-1024", "fanout-4096")) else None
    lines = [
        comparison(name, ours.burst_s, theirs.burst_s, against=against, target=target)
    ]
    if ours.processor_s and theirs.processor_s:
        lines.append(
            comparison(
                f"{name}-processor",
                ours.processor_s,
                theirs.processor_s,
                against=against,
            )
        )
    return lines


def _counted(name: str, side: Side, readers: int, burst: int) -> list[Count]:
    middle_s = sorted(side.burst_s)[len(side.burst_s) // 2]
    rate = readers * burst / middle_s
    equal = "as sent" if side.is_equal else "NOT as sent"
    return [
        Count(f"{name}-rate", round(rate), "deliveries/s", note="median burst"),
        Count(
            f"{name}-delivered",
            side.delivered,
            "updates",
            side.expected,
            f"the first subscriber's {equal}",
        ),
    ]


if __name__ == "__main__":
    run(measure)
