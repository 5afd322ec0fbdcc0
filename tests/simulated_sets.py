"""Machines whose lanes write memory sets, played as `tests.simulator` plays the others.

What holds at the end, beside the invariants of that module: an item that was added and
never removed is there, once, with a text that somebody gave it; there is no other; and
all stores have equal items, whose rows are those of their documents.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from crdtmem.doc.items import ItemsDoc
from crdtmem.partition import encode_key
from crdtmem.store.set_docs import set_document
from crdtmem.store.set_doctor import inspect_set
from crdtmem.store.set_write import NewVersion, SetChange, write_set
from crdtmem.store.sets import (
    ItemRow,
    SetPlace,
    SetRow,
    all_items,
    find_set,
    versions_of,
)
from tests.scratch import scratch
from tests.simulated import LANES, NAMESPACE, Site, small_world
from tests.simulator import World

__all__ = ["PLACES", "SetWorld", "faults_of", "run_set_world", "run_set_worlds"]

PLACES = [SetPlace(NAMESPACE, encode_key("k"), name) for name in ("s", "t")]


class SetWorld(World):
    """A world in which most writes are of memory sets."""

    def __init__(self, seed: int, folder: Path, **how: Any) -> None:
        super().__init__(seed, folder, **how)
        # By id: the texts that anybody gave it. What was removed may be there or not.
        self.texts: dict[str, set[str]] = {}
        self.removed: set[str] = set()

    def do_write(self, site: Site) -> None:
        """Write to a set: add, update, remove, or remove all."""
        if self.random.random() < 0.3:
            super().do_write(site)
            return
        place = self.random.choice(PLACES)
        lane = self.random.choice(LANES)
        site.written += 1
        known = [item.id for item in items_of(site, place)]
        verb = self.random.choice(["add", "add", "add", "update", "delete", "clear"])
        some = [one for one in known if self.random.random() < 0.3]
        if verb == "add":
            self.put(site, place, lane, [f"{site.name}.{site.era}.{site.written}"])
        elif verb == "update":
            self.put(site, place, lane, some)
        elif self.random.random() < 0.3:
            self.removed |= set(known)
            kind = self.random.choice(["clears", "drops"])
            self._write(site, place, operation="clear", lane=lane, **{kind: True})
        else:
            self.removed |= set(some)
            self._write(site, place, operation="delete", lane=lane, removes=some)
        self.done[verb] += 1

    def put(self, site: Site, place: SetPlace, lane: str, ids: list[str]) -> None:
        """Write items whose texts tell who wrote them."""
        new = set(ids) - self.texts.keys()
        self.in_doubt |= new
        puts = []
        for one in ids:
            text = f"text of {one} by {site.name} {site.era} {site.written}"
            self.texts.setdefault(one, set()).add(text)
            puts.append(NewVersion(one, text, "", created_ms=self.wall_ms))
        self._write(site, place, operation="add", lane=lane, puts=puts)
        self.in_doubt -= new

    def _write(self, site: Site, place: SetPlace, **change: Any) -> None:
        self.trace.append(f"# {site.name} {place.name} {change}")
        with site.store.writing() as transaction:
            before = find_set(transaction.connection, place)
            write_set(transaction, before, place, SetChange(**change))

    def _doubt_what_is_gone(self) -> None:
        """Note the items that neither a store nor the relay holds any more."""
        super()._doubt_what_is_gone()
        kept = b"".join(
            self.payload(row.record) for row in self.relay.log() if row.record
        )
        held = {
            item.id
            for site in self.sites
            for place in PLACES
            for item in items_of(site, place)
        }
        self.in_doubt |= {
            one
            for one in self.texts
            if one not in held and f"{one}.".encode() not in kept
        }

    def check(self) -> None:
        super().check()
        for place in PLACES:
            first, *others = [self._look(site, place) for site in self.sites]
            if any(other != first for other in others):
                self._fail(f"I3: sets differ: {first} {others}")
        self._check_items()

    def _check_items(self) -> None:
        found: dict[str, list[str]] = {}
        for place in PLACES:
            for versions in versions_in(self.sites[0], place).values():
                for version in versions:
                    found.setdefault(version.id, []).append(version.text)
        faults = faults_of(found, self.texts, self.removed | self.in_doubt)
        if faults:
            self._fail(f"I1, I4: {faults}")

    def _look(self, site: Site, place: SetPlace) -> Any:
        with site.store.writing() as transaction:
            row = find_set(transaction.connection, place)
            if row is None or not row.lsn:
                return None
            faults = inspect_set(transaction.connection, row.doc)
            if faults:
                self._fail(f"{site.name}: rows differ: {faults}")
            return seen_of(
                row,
                all_items(transaction.connection, row.doc),
                set_document(transaction, row),
            )


def seen_of(row: SetRow, items: list[ItemRow], document: ItemsDoc) -> Any:
    """Return what must be equal in all stores."""
    return (
        [item._replace(doc=0, rev=0) for item in items],
        (row.set_hash, row.tombstones, row.size, row.dropped_ms is None),
        dict(document.clocks),
        document.members(),
    )


def faults_of(
    found: Mapping[str, Sequence[str]],
    written: Mapping[str, Collection[str]],
    may_be_gone: Collection[str],
) -> list[str]:
    """Return what is wrong with the texts of all live versions, by their items."""
    foreign = [one for one in found if not {*found[one]} <= {*written.get(one, ())}]
    doubled = [one for one, texts in found.items() if len({*texts}) < len(texts)]
    lost = written.keys() - found.keys() - {*may_be_gone}
    return [
        *(f"nobody wrote {one}" for one in foreign),
        *(f"{one} is doubled" for one in doubled),
        *(f"{one} is lost" for one in sorted(lost)),
    ]


def items_of(site: Site, place: SetPlace) -> list[ItemRow]:
    with site.store.reading() as connection:
        row = find_set(connection, place)
        return [] if row is None else all_items(connection, row.doc)


def versions_in(site: Site, place: SetPlace) -> Any:
    with site.store.reading() as connection:
        row = find_set(connection, place)
        if row is None:
            return {}
        ids = [item.id for item in all_items(connection, row.doc)]
        return versions_of(connection, row.doc, ids)


def run_set_worlds(first: int, last: int) -> Counter[str]:
    """Run a world for each seed of a range, and count what was done."""
    done: Counter[str] = Counter()
    for seed in range(first, last):
        with scratch() as folder:
            done += run_set_world(seed, folder).done
    return done


def run_set_world(seed: int, folder: Path) -> SetWorld:
    """Run one world to its end and return it, closed.

    Raises:
        AssertionError: If an invariant is broken.

    """
    with small_world(seed):
        world = SetWorld(seed, folder, sites=2 + (seed % 4 == 0))
        with closing(world):
            for _ in range(world.random.randint(12, 60)):
                world.step()
            world.settle()
        return world
