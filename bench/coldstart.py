"""The first sync of a fresh store: everything that a relay has of 10,000 slots.

The relay holds a state of each slot, since they were written before it was linked. Each
round is a store in a new process and a relay in a new process, so that the peaks of
their memory are those of the download. Beside it y-websocket with as many documents:
its client holds them in memory, while ours has synced them to disk, with their history.
"""

import statistics
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

from bench.peers import Y_WEBSOCKET, PeerMissingError
from bench.rejoining import PEER, Joined, Rooms
from bench.running import Effort, Findings, run
from bench.syncing import Client, Relay, Synced, Traffic
from bench.timing import Comparison, Count, comparison
from bench.workload import folder

__all__ = ["measure"]

SLOTS = 10_000
FEWER = 10
"""How many times fewer slots the other store gets."""

ROUNDS = 3


class _Download(NamedTuple):
    """What it took, and the most memory of the relay's process."""

    synced: Synced
    traffic: Traffic
    relay_bytes: int | None


def measure(effort: Effort) -> Findings:
    """Download many slots, fewer slots and the peer's documents by turns."""
    slots = effort.size(SLOTS, 200)
    rounds = effort.rounds_of(ROUNDS)
    found: dict[int, list[_Download]] = {slots: [], slots // FEWER: []}
    joined: list[Joined] = []
    missing = ""
    with ExitStack() as stack:
        place = stack.enter_context(folder())
        relay = stack.enter_context(Relay(place / "relay"))
        digests = {count: _upload(place, relay, count) for count in found}
        try:
            rooms = stack.enter_context(Rooms(slots))
        except PeerMissingError as error:
            missing = str(error)
        for number in range(rounds):
            for count, downloads in found.items():
                path = place / f"fresh-{count}-{number}.db"
                downloads.append(_download(path, relay, count, digests[count]))
            if not missing:
                joined.append(rooms.download())
    comparisons = [_by_slots(slots, found)]
    counts = _counts(slots, found[slots])
    if missing:
        counts.append(
            Count(
                f"cold-start-{Y_WEBSOCKET.name}", None, "s", note=f"missing: {missing}"
            )
        )
        return Findings(comparisons, counts)
    comparisons.append(_by_peer(slots, found[slots], joined))
    traffic = [one.traffic for one in joined]
    counts.append(_bytes_count(f"of-{slots}-{Y_WEBSOCKET.name}", traffic))
    return Findings(comparisons, counts, {Y_WEBSOCKET.name: Y_WEBSOCKET.version})


def _upload(place: Path, relay: Relay, slots: int) -> bytes:
    """Give the relay so many slots; return the digest of their texts."""
    path = place / f"full-{slots}.db"
    with Client(path, relay, _namespace_of(slots), slots=slots) as client:
        client.sync()
        return client.digest()


def _download(path: Path, relay: Relay, slots: int, digest: bytes) -> _Download:
    relay.restart()
    relay.take_traffic()
    with Client(path, relay, _namespace_of(slots)) as client:
        synced = client.sync()
        peak = relay.peak_bytes()
        traffic = relay.take_traffic()
        if client.digest() != digest:
            raise RuntimeError(f"a fresh store of {slots} slots has other texts")
    return _Download(synced, traffic, peak)


def _namespace_of(slots: int) -> str:
    return f"slots-{slots}"


def _by_slots(slots: int, found: dict[int, list[_Download]]) -> Comparison:
    fewer = slots // FEWER
    return comparison(
        f"cold-start-of-{slots}",
        [one.synced.seconds for one in found[slots]],
        [one.synced.seconds for one in found[fewer]],
        against=f"the same of {fewer:,} slots",
    )


def _by_peer(
    slots: int, downloads: Sequence[_Download], joined: Sequence[Joined]
) -> Comparison:
    return comparison(
        f"cold-start-of-{slots}-{Y_WEBSOCKET.name}",
        [one.synced.seconds for one in downloads],
        [one.seconds for one in joined],
        against=f"{PEER}, {slots:,} documents",
    )


def _counts(slots: int, downloads: Sequence[_Download]) -> list[Count]:
    of = f"of-{slots}"
    rows = statistics.median(one.synced.rows for one in downloads)
    stores = [one.synced.peak_bytes for one in downloads]
    relays = [one.relay_bytes for one in downloads]
    return [
        _bytes_count(of, [one.traffic for one in downloads]),
        Count(f"cold-start-rows-written-{of}", rows, "rows", note="by the store"),
        _memory_count(f"cold-start-memory-store-{of}", stores),
        _memory_count(f"cold-start-memory-relay-{of}", relays),
    ]


def _bytes_count(name: str, traffic: Sequence[Traffic]) -> Count:
    up = round(statistics.median(one.up for one in traffic))
    down = round(statistics.median(one.down for one in traffic))
    note = f"{up:,} bytes up and {down:,} down"
    return Count(f"cold-start-bytes-{name}", (up + down) / 1000, "kB", note=note)


def _memory_count(name: str, peaks: Sequence[int | None]) -> Count:
    known = [peak for peak in peaks if peak is not None]
    if not known:
        return Count(name, None, "MiB", note="no /proc here")
    note = "of its process at the most, Python and modules included"
    return Count(name, round(max(known) / 2**20), "MiB", note=note)


if __name__ == "__main__":
    run(measure)
