"""150 clients that join a room of 4 MB at the same moment: until each has all of it.

The room holds 4,000 updates of a kilobyte each. Ours reads them from its log, for each
reader as fast as that one takes them; the peers encode the document's state for each
and hand it to the socket whole. Beside the time stands the highest memory that the
server ever had, which in ours includes what it read when the room was filled.
"""

from bench.peers import PeerMissingError
from bench.running import Effort, Findings, run
from bench.servers import (
    OURS,
    PEERS,
    Server,
    clients,
    memory_bytes,
    server,
    tell,
)
from bench.timing import Comparison, Count, comparison

__all__ = ["measure"]

READERS = 150
UPDATES = 4_000
SIZE_BYTES = 1_024
BURST = 100


def measure(effort: Effort) -> Findings:
    """Measure ours and each peer by turns."""
    rounds = effort.rounds_of(3)
    readers = effort.size(READERS, 20)
    updates = effort.size(UPDATES, 200)
    comparisons: list[Comparison] = []
    counts: list[Count] = []
    peers: dict[str, str] = {}
    for side, peer in PEERS.items():
        took_s: dict[str, list[float]] = {OURS: [], side: []}
        grown: dict[str, list[int]] = {OURS: [], side: []}
        try:
            for _ in range(rounds):
                # Anew each time: what was its highest memory is never lower again.
                for which in (OURS, side):
                    with server(which) as at:
                        seconds, memory = _join(at, readers, updates)
                    took_s[which].append(seconds)
                    grown[which] += memory
        except PeerMissingError as error:
            counts.append(Count(f"join-{side}", None, "s", note=f"{error}"))
            continue
        peers[peer.name] = peer.version
        name = f"join-{side}"
        comparisons.append(comparison(name, took_s[OURS], took_s[side], against=side))
        for which, sizes in grown.items():
            peak = round(max(sizes) / 2**20) if sizes else None
            note = f"{which}, above what it had before the join"
            counts.append(Count(f"{name}-memory-{which}", peak, "MiB", note=note))
    return Findings(comparisons, counts, peers)


def _join(at: Server, readers: int, updates: int) -> tuple[float, list[int]]:
    """Return how long it took, and by how much the server's memory rose."""
    task = {
        "task": "join",
        "readers": readers,
        "updates": updates,
        "size": SIZE_BYTES,
        "burst": BURST,
        "perRecord": 1,
        "perPut": BURST,
    }
    with clients(at, task) as process:
        before = memory_bytes(at.pid, "VmRSS")
        found = tell(process)
        after = memory_bytes(at.pid, "VmHWM")
    if found["delivered"] != found["expected"]:
        raise PeerMissingError(f"{at.side} delivered {found['delivered']}")
    memory = [] if before is None or after is None else [max(0, after - before)]
    return float(found["seconds"]), memory


if __name__ == "__main__":
    run(measure)
