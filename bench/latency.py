"""One writer at 100 updates a second, 100 subscribers: how long each update takes.

From the call that sends an update to the moment when a subscriber has it, writer and
subscribers in one process and on one clock. Ours syncs each update, or the few that
came while the disk was busy, before anybody is sent it. Then what a connection that
does nothing costs the server's memory.
"""

from bench.peers import PeerMissingError
from bench.running import Effort, Findings, run
from bench.servers import OURS, PEERS, Server, ask, clients, memory_bytes, server
from bench.timing import Comparison, Count, comparison

__all__ = ["measure"]

READERS = 100
PER_SECOND = 100
UPDATES = 500
WARMUPS = 50
# Below what one token may open, so that the last ones are not refused.
IDLE = 200
P95_TARGET_S = 0.020
SHARES = ("p50", "p95", "p99")


def measure(effort: Effort) -> Findings:
    """Measure ours and each peer by turns."""
    rounds = effort.rounds_of(5)
    readers = effort.size(READERS, 10)
    updates = effort.size(UPDATES, 100)
    comparisons: list[Comparison] = []
    counts: list[Count] = []
    peers: dict[str, str] = {}
    for side, peer in PEERS.items():
        waits: dict[str, list[dict[str, float]]] = {OURS: [], side: []}
        try:
            with server(OURS) as ours, server(side) as theirs:
                # First: later a server has memory at hand that it does not need.
                for at in (ours, theirs):
                    counts += _idle(at, f"latency-{at.side}-beside-{side}")
                for _ in range(rounds):
                    for at in (ours, theirs):
                        waits[at.side].append(_waits(at, readers, updates))
        except PeerMissingError as error:
            counts.append(Count(f"latency-{side}", None, "s", note=f"{error}"))
            continue
        peers[peer.name] = peer.version
        for share in SHARES:
            mine, others = ([one[share] for one in waits[s]] for s in (OURS, side))
            name = f"latency-{share}-{side}"
            comparisons.append(comparison(name, mine, others, against=side))
        worst_ms = sorted(one["p95"] for one in waits[OURS])[rounds // 2] * 1e3
        counts.append(
            Count(
                f"latency-p95-beside-{side}",
                round(worst_ms, 2),
                "ms",
                P95_TARGET_S * 1e3,
                "ours, median of the rounds",
            )
        )
    return Findings(comparisons, counts, peers)


def _waits(at: Server, readers: int, updates: int) -> dict[str, float]:
    return ask(
        at,
        {
            "task": "latency",
            "readers": readers,
            "perSecond": PER_SECOND,
            "updates": updates,
            "warmups": WARMUPS,
            "perRecord": 1,
            "perPut": 1,
        },
    )


def _idle(at: Server, name: str) -> list[Count]:
    """Count the memory of connections that do nothing."""
    before = memory_bytes(at.pid, "VmRSS")
    with clients(at, {"task": "idle", "readers": IDLE, "perRecord": 1, "perPut": 1}):
        after = memory_bytes(at.pid, "VmRSS")
    if before is None or after is None:
        return [Count(f"{name}-idle", None, "bytes", note="not told by this system")]
    each = (after - before) / IDLE
    return [Count(f"{name}-idle", round(each), "bytes", note="a connection, joined")]


if __name__ == "__main__":
    run(measure)
