"""What operations did, kept in memory until somebody drains it.

Not durable by design, and never in the way: nothing here raises into an operation. What
cannot be kept is counted.
"""

import os
import sys
import threading
import weakref
from collections.abc import Callable, Iterable
from typing import NamedTuple

from crdtmem.limits import (
    OBSERVATIONS_BYTES,
    OBSERVATIONS_LIST_RECORDS,
    OBSERVATIONS_RECORDS,
)
from crdtmem.models import ObservationStatus
from crdtmem.session import Session
from crdtmem.sets.values import Binding, Observation, ObservedKind

__all__ = ["Observations", "ObservedPlace", "observations_of", "observe"]


class ObservedPlace(NamedTuple):
    """Whose records: a key of a namespace, and who asked for them."""

    namespace: str
    encoded_key: str
    observation_id: str


class Observations:
    """Lists of records by place, each in the order in which operations ended.

    Safe from any thread; a forked child starts with none.
    """

    def __init__(self) -> None:
        self.start_again()
        _LIVE.add(self)

    def start_again(self) -> None:
        """Forget everything; in a child also the lock, which its parent may hold."""
        self._lists: dict[ObservedPlace, list[Observation]] = {}
        self._sizes: dict[ObservedPlace, int] = {}
        self._lock = threading.Lock()
        self._buffered = 0
        self._bytes = 0
        self._dropped = 0

    def put(self, place: ObservedPlace, records: Iterable[Observation]) -> None:
        """Add records to a list; what is too much is dropped and counted."""
        added = list(records)
        if not added:
            return
        size = sum(map(_size_of, added))
        with self._lock:
            kept = self._lists.setdefault(place, [])
            room = OBSERVATIONS_LIST_RECORDS - len(kept)
            if len(added) > room:
                self._dropped += len(added) - room
                added = added[:room]
                size = sum(map(_size_of, added))
            kept += added
            self._sizes[place] = self._sizes.get(place, 0) + size
            self._buffered += len(added)
            self._bytes += size
            while (
                self._buffered > OBSERVATIONS_RECORDS
                or self._bytes > OBSERVATIONS_BYTES
            ):
                self._dropped += len(self._take(next(iter(self._lists))))

    def drop(self) -> None:
        """Count a record that could not be kept."""
        with self._lock:
            self._dropped += 1

    def drain(self, place: ObservedPlace) -> list[Observation]:
        """Return a list and forget it."""
        with self._lock:
            return self._take(place)

    def status(self) -> ObservationStatus:
        """Return how many records wait, and how many were dropped."""
        with self._lock:
            return ObservationStatus(buffered=self._buffered, dropped=self._dropped)

    def _take(self, place: ObservedPlace) -> list[Observation]:
        taken = self._lists.pop(place, [])
        self._buffered -= len(taken)
        self._bytes -= self._sizes.pop(place, 0)
        return taken


def observations_of(session: Session) -> Observations:
    """Return the records of a handle; made at the first question."""
    found = session.observations
    # In one step, so that two threads get the same.
    return found or vars(session).setdefault("observations", Observations())


def observe(
    session: Session,
    binding: Binding,
    kind: ObservedKind,
    make: Callable[[], Iterable[Observation]],
) -> None:
    """Keep the records of an operation that has succeeded, if its binding wants them.

    Never raises: the operation is done, whatever becomes of its records.

    Args:
        session: The handle's, which keeps them.
        binding: Of the handle that was used.
        kind: What the operation was.
        make: Makes the records; not called where nobody wants them.

    """
    if (
        not binding.observation_id
        or binding.observation_suppressed
        or kind not in binding.observe
    ):
        return
    place = ObservedPlace(
        binding.namespace, binding.encoded_key, binding.observation_id
    )
    observations = observations_of(session)
    try:
        observations.put(place, make())
    except Exception:  # noqa: BLE001 - counted; the operation itself has succeeded
        observations.drop()


def _size_of(record: Observation) -> int:
    if isinstance(record.value, tuple):
        return sum(sys.getsizeof(hit["value"]) for hit in record.value)
    return sys.getsizeof(record.value)


_LIVE: "weakref.WeakSet[Observations]" = weakref.WeakSet()


def _after_fork() -> None:
    for observations in list(_LIVE):
        observations.start_again()


if hasattr(os, "register_at_fork"):  # pragma: no branch - Windows has no fork
    os.register_at_fork(after_in_child=_after_fork)
