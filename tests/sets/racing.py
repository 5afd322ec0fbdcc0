"""Workers that use sets of many keys at once while their owner binds and drops others.

A race goes in rounds. In each, every worker begins one verb on a set that it has been
handed some time before; inside the verb, before anything is read or written, it meets
the others and the owner, who meanwhile makes another key the present one. Then all go
on at once. The ledger knows which items may be there afterwards, and which must be.
"""

import random
import threading
from collections import defaultdict
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Protocol

from tests.child import PATIENCE_S

__all__ = ["KEYS", "NAME", "WORKERS", "Front", "Gate", "Ledger", "Race", "tag_of"]

WORKERS = 4
KEYS: tuple[str, ...] = ("", "1", "a", "a-b", "a.b", "b", "é", "key of some length")
NAME = "notes"
WORD = "kite"

Shown = Iterable[tuple[str, str]]
"""Ids and texts."""


class Front(Protocol):
    """The verbs of one front end, on handles that it has made."""

    def handle(self, key: str) -> Any:
        """Bind, and make a handle; for the owner only."""

    def switch(self, key: str) -> None:
        """Make another key the present one; for the owner only."""

    def drop(self, key: str) -> None:
        """Drop the set of a key; for the owner only."""

    def add(self, handle: Any, texts: list[str]) -> list[str]:
        """Add items; return their ids."""

    def shown(self, handle: Any, ids: list[str] | None = None) -> Shown:
        """Return the items, or those of some ids."""

    def found(self, handle: Any, query: str) -> Shown:
        """Return the items that match."""

    def delete(self, handle: Any, ids: list[str] | None = None) -> None:
        """Delete items, or all."""


def tag_of(key: str) -> str:
    """Return what every text of a key begins with."""
    return f"{KEYS.index(key)}: {WORD} "


class Gate:
    """Where the workers' verbs meet: each passes it once a round, others never."""

    def __init__(self) -> None:
        self._barrier = threading.Barrier(WORKERS + 1)
        self._mine = threading.local()

    def pass_by(self) -> None:
        """Wait for the others, in a worker whose verb has just begun."""
        if getattr(self._mine, "is_due", False):
            self._mine.is_due = False
            self.meet()

    def meet(self) -> None:
        """Wait for the others."""
        self._barrier.wait(PATIENCE_S)

    def run(self, verb: Callable[[], None]) -> None:
        """Run a worker's verb; if it fails on its way here, nobody waits for it."""
        self._mine.is_due = True
        try:
            verb()
        finally:
            if self._mine.is_due:
                self._barrier.abort()


@dataclass
class Ledger:
    """What was done with which key's items, and in which round.

    Attributes:
        added: The round in which each id was added, by key.
        deleted: Ids that were deleted by name through a handle of their key.
        cleared: The rounds in which all of a key was deleted, or dropped.

    """

    added: dict[str, dict[str, int]] = field(default_factory=lambda: defaultdict(dict))
    deleted: set[str] = field(default_factory=set)
    cleared: dict[str, set[int]] = field(default_factory=lambda: defaultdict(set))

    def check(self, key: str, live: Iterable[str]) -> int:
        """Hold the items of a key against what was done; return how many there are."""
        found = list(live)
        there, added = set(found), self.added[key]
        cleared = self.cleared[key]
        assert len(found) == len(there)
        assert there <= added.keys(), f"foreign items under {key!r}"
        for item, number in added.items():
            is_gone = item in self.deleted or any(at > number for at in cleared)
            may_be_gone = is_gone or number in cleared
            assert not (is_gone and item in there), f"{item} of {key!r} came back"
            assert may_be_gone or item in there, f"{item} of {key!r} was removed"
        return len(found)


class Race:
    """Rounds of one front end's verbs, drawn from a number.

    Args:
        front: The verbs.
        gate: Installed where each of them begins.
        seed: The number.

    """

    def __init__(self, front: Front, gate: Gate, seed: int) -> None:
        self.ledger = Ledger()
        self.verbs = [
            *[self._add] * 3,
            self._get,
            self._get_by_id,
            self._search,
            self._delete,
            self._clear,
        ]
        self._front = front
        self._gate = gate
        self._chance = random.Random(seed)
        self._handles = {key: front.handle(key) for key in KEYS}
        self._lock = threading.Lock()
        self._round = 0

    def run(self, rounds: int) -> None:
        """Do so many rounds; raise what any of the workers found wrong."""
        with ThreadPoolExecutor(WORKERS) as pool:
            for self._round in range(rounds):
                verbs = [self._verb(number) for number in range(WORKERS)]
                jobs = [pool.submit(self._gate.run, verb) for verb in verbs]
                self._front.switch(self._chance.choice(KEYS))
                self._gate.meet()
                self._manage()
                for job in jobs:
                    job.result(PATIENCE_S)

    def _manage(self) -> None:
        key = self._chance.choice(KEYS)
        if self._chance.random() < 1 / 8:
            self.ledger.cleared[key].add(self._round)
            self._front.drop(key)
        if self._chance.random() < 1 / 2:
            self._handles[key] = self._front.handle(key)

    def _verb(self, worker: int) -> Callable[[], None]:
        key = self._chance.choice(KEYS)
        verb = self._chance.choice(self.verbs)
        handle, chance = self._handles[key], random.Random(self._chance.random())
        name = f"{self._round}.{worker}"
        return lambda: verb(key, handle, chance, name)

    def _add(self, key: str, handle: Any, chance: random.Random, name: str) -> None:
        count = chance.randint(1, 3)
        texts = [f"{tag_of(key)}{name}.{number}" for number in range(count)]
        ids = self._front.add(handle, texts)
        assert len(set(ids)) == count
        with self._lock:
            self.ledger.added[key].update(dict.fromkeys(ids, self._round))

    def _get(self, key: str, handle: Any, chance: random.Random, name: str) -> None:
        self._check(key, self._front.shown(handle))

    def _get_by_id(self, key: str, handle: Any, chance: random.Random, _: str) -> None:
        self._check(key, self._front.shown(handle, self._some_ids(chance)))

    def _search(self, key: str, handle: Any, chance: random.Random, name: str) -> None:
        self._check(key, self._front.found(handle, WORD))

    def _delete(self, key: str, handle: Any, chance: random.Random, name: str) -> None:
        ids = self._some_ids(chance)
        self._front.delete(handle, ids)
        with self._lock:
            self.ledger.deleted |= self.ledger.added[key].keys() & set(ids)

    def _clear(self, key: str, handle: Any, chance: random.Random, name: str) -> None:
        if chance.random() < 1 / 2:
            # Seldom: most of the time there should be something that could be lost.
            self._get(key, handle, chance, name)
            return
        with self._lock:
            self.ledger.cleared[key].add(self._round)
        self._front.delete(handle)

    def _some_ids(self, chance: random.Random) -> list[str]:
        """Return ids of any key, so most of them foreign to the handle."""
        with self._lock:
            known = [item for ids in self.ledger.added.values() for item in ids]
        return chance.sample(known, min(len(known), 4))

    def _check(self, key: str, shown: Shown) -> None:
        foreign = [text for _, text in shown if not text.startswith(tag_of(key))]
        assert foreign == [], f"under {key!r}"
