"""What stores are at: how it is written down, and where the threads exchange it."""

import json
from collections.abc import Callable, Iterable, Mapping

from crdtmem.limits import PRESENCE_TOLD_BYTES

__all__ = ["Board", "lanes_in", "presence_of"]


class Board:
    """What stores are at, between the thread that syncs and the program around it.

    Each sets what the other only reads, value by value, so that nobody waits.

    Attributes:
        own: What this store is at, by namespace; the program's.
        others: What others are at, by namespace and replica id; the thread's. Holds the
            namespaces that are connected.

    """

    def __init__(self) -> None:
        self.own: dict[str, bytes] = {}
        self.others: dict[str, dict[bytes, bytes]] = {}

    def tell(self, at_work: Callable[[str], Iterable[tuple[str, str, str]]]) -> None:
        """Say who is at what, where anybody hears it.

        Args:
            at_work: Returns, for a namespace, what ``presence_of`` takes.

        """
        for namespace in list(self.others):
            self.own[namespace] = presence_of(at_work(namespace))


def presence_of(lanes: Iterable[tuple[str, str, str]]) -> bytes:
    """Return how it is told; empty if there is none, and cut where it is too much.

    Args:
        lanes: Lane, slot, and what it does there.

    """
    told: list[dict[str, str]] = []
    blob = b""
    for lane, slot, doing in lanes:
        told.append({"lane": lane, "slot": slot, "doing": doing})
        made = json.dumps({"lanes": told}, separators=(",", ":")).encode()
        if len(made) > PRESENCE_TOLD_BYTES:
            break
        blob = made
    return blob


def lanes_in(presences: Mapping[bytes, bytes]) -> list[dict[str, str]]:
    """Return what others tell, as far as it can be read.

    Args:
        presences: By replica id.

    """
    return [
        {"replica": replica_id.hex(), **lane}
        for replica_id, blob in sorted(presences.items())
        for lane in _lanes_of(blob)
    ]


def _lanes_of(blob: bytes) -> Iterable[dict[str, str]]:
    try:
        value = json.loads(blob)
    except (ValueError, RecursionError):
        return
    lanes = value.get("lanes") if isinstance(value, dict) else None
    for lane in lanes if isinstance(lanes, list) else ():
        if isinstance(lane, dict) and "lane" in lane:
            yield {name: str(lane.get(name, "")) for name in ("lane", "slot", "doing")}
