"""When things are due, many of them, each put off often."""

from collections.abc import Hashable, Iterator
from heapq import heappop, heappush
from itertools import count
from typing import Generic, TypeVar

__all__ = ["Timers"]

_K = TypeVar("_K", bound=Hashable)


class Timers(Generic[_K]):
    """One moment for each key. Putting one off costs a look into a dict."""

    def __init__(self) -> None:
        self._due: dict[_K, float] = {}
        # The heap may name a key too early, never too late: then it is queued anew.
        self._heap: list[tuple[float, int, _K]] = []
        self._queued: dict[_K, float] = {}
        self._counter = count()

    def set(self, key: _K, at: float) -> None:
        """Have a key due at a moment, and at no other."""
        self._due[key] = at
        if at < self._queued.get(key, float("inf")):
            self._queue(key, at)

    def drop(self, key: _K) -> None:
        """Have a key not due at all."""
        self._due.pop(key, None)

    def due(self, now: float) -> Iterator[_K]:
        """Yield the keys that are due by now, once each."""
        while self._heap and self._heap[0][0] <= now:
            at, _, key = heappop(self._heap)
            if self._queued.get(key) != at:
                continue
            del self._queued[key]
            due_at = self._due.get(key)
            if due_at is None:
                continue
            if due_at > now:
                self._queue(key, due_at)
            else:
                del self._due[key]
                yield key

    def next_deadline(self) -> float | None:
        """Return when to ask next; nothing is due before."""
        return self._heap[0][0] if self._heap else None

    def _queue(self, key: _K, at: float) -> None:
        self._queued[key] = at
        heappush(self._heap, (at, next(self._counter), key))
