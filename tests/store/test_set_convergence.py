"""Stores that saw the same records hold the same items, whatever was done, in any order

The oracle knows sets of versions and nothing else: what a store must hold are the
versions that any write which came to it has made, less those that any such write has
removed.
"""

from collections import Counter
from collections.abc import Sequence
from random import Random
from typing import Any

import pytest

from crdtmem.store.set_docs import set_document
from crdtmem.store.set_doctor import inspect_set
from crdtmem.store.sets import SetPlace, VersionRow, find_set
from tests.conftest import PROFILE
from tests.sites import LANES, NAMESPACE, Site, Traffic, site_pool
from tests.store.set_writes import KEY, change, items, new, set_row, versions

SEEDS = {"default": 8, "campaign": 2_400}[PROFILE]
PER_TEST = 8
IDS = ("a", "b", "c.d", "é")
NAMES = ("notes", "plans")


class Effect:
    """What one write did: the versions that it made, and the members it removed."""

    def __init__(self, before: dict[str, VersionRow], after: dict[str, VersionRow]):
        self.made = {m: v for m, v in after.items() if m not in before}
        self.gone = before.keys() - after.keys()


class SetHistory:
    """Random verbs and exchanges of a few stores, each held against the oracle."""

    def __init__(self, sites: Sequence[Site], random: Random) -> None:
        self.random = random
        self.sites = sites[: random.choice([2, 3])]
        for site in self.sites:
            site.clear(random)
        self.traffic = Traffic(self.sites)
        self.effects: dict[bytes, list[tuple[str, Effect]]] = {
            site.replica: [] for site in self.sites
        }
        self.trace: list[str] = []
        self.done: Counter[str] = Counter()

    def step(self) -> None:
        site = self.random.choice(self.sites)
        site.tick()
        verb = self.random.choice([self.write] * 6 + [self.deliver, self.disturb])
        verb(site)
        for name in NAMES:
            self.check(site, name)

    def write(self, site: Site) -> None:
        place = SetPlace(NAMESPACE, KEY, self.random.choice(NAMES))
        verb = self.random.choice(
            ["add", "add", "add", "update", "delete", "clear", "drop", "compact"]
        )
        known = {item.id for item in items(site.store, place)}
        some = [one for one in sorted(known) if self.random.random() < 0.5]
        new_ids = [f"n{self.random.random()}", self.random.choice(IDS)]
        texts = {
            "add": self.random.sample(new_ids, self.random.randint(1, 2)),
            "update": some,
            "compact": [f"s{self.random.random()}"] if some else [],
        }.get(verb, [])
        before = self.live(site, place)
        rev = set_row(site.store, place).rev if self.has_set(site, place) else 0
        row = change(
            site.store,
            place,
            operation=verb,
            lane=self.random.choice(LANES),
            puts=[new(one, f"{verb} {self.random.random()}") for one in texts],
            removes=some if verb in ("delete", "compact") else (),
            clears=verb == "clear",
            drops=verb == "drop",
        )
        effect = Effect(before, self.live(site, place))
        self.trace.append(f"{site.name} {place.name} {verb} {texts} {some}")
        self.done[verb] += 1
        if row.rev > rev:
            self.effects[site.replica].append((place.name, effect))
            self.traffic.note_write(site)

    def deliver(self, site: Site) -> None:
        """Give a store records in an order that it could take, and some again."""
        batch = self.traffic.batch_for(site, self.random, self.random.randint(1, 6))
        had = self.traffic.arrived[site.replica]
        again = [self.random.choice(had)] if had and self.random.random() < 0.3 else []
        self.trace.append(f"{site.name} receives {len(batch)}")
        before = [self.look(site, name) for name in NAMES]
        revs = [self.rev(site, name) for name in NAMES]
        self.traffic.deliver(site, LANES[0], batch, again)
        for name, was, rev in zip(NAMES, before, revs, strict=True):
            # One rev for a batch that changes anything, however much.
            is_other = self.hash(site, name) != (was and was[1])
            assert self.rev(site, name) == rev + is_other, self.trace
        self.done["deliver"] += bool(batch)

        assert site.quarantined() == []

    def disturb(self, site: Site) -> None:
        """Squash, or begin anew from the file."""
        kind = self.random.choice(["squash", "reopen", "forget"])
        self.trace.append(f"{site.name} {kind}")
        self.done[kind] += 1
        if kind == "squash":
            # What is squashed cannot be sent any more.
            self.traffic.collect(site)
            site.handles[LANES[0]].compact()
        elif kind == "reopen":
            site.reopen()
        else:
            site.store.docs.clear()

    def settle(self) -> None:
        """Bring all records everywhere, and hold the stores against each other."""
        for site in self.sites:
            while batch := self.traffic.batch_for(site, self.random, 50):
                self.traffic.deliver(site, LANES[0], batch)
        for name in NAMES:
            for site in self.sites:
                self.check(site, name)
            first, *others = [self.look(site, name) for site in self.sites]
            assert all(other == first for other in others), self.trace
        for site in self.sites:
            self.check_rows(site)

    # -- what must be there

    def expected(self, site: Site, name: str) -> dict[str, VersionRow]:
        """Return the live versions of a set, by what came to the store."""
        came = [effect for of, effect in self.effects[site.replica] if of == name]
        for post in self.traffic.arrived[site.replica]:
            if post.writer != site.replica:
                of, effect = self.effects[post.writer][post.record.replica_seq - 1]
                came += [effect] if of == name else []
        gone = {member for effect in came for member in effect.gone}
        made = {m: v for effect in came for m, v in effect.made.items()}
        return {member: v for member, v in made.items() if member not in gone}

    def check(self, site: Site, name: str) -> None:
        place = SetPlace(NAMESPACE, KEY, name)
        live = self.expected(site, name)
        by_id: dict[str, list[VersionRow]] = {}
        for version in live.values():
            by_id.setdefault(version.id, []).append(version)
        found = {item.id: item for item in items(site.store, place)}

        assert self.live(site, place) == live, self.trace
        assert found.keys() == by_id.keys()
        for item_id, known in by_id.items():
            first = max(known, key=lambda v: (v.updated_ms, v.member))
            assert found[item_id].text == first.text
            assert bool(found[item_id].conflicts) == (len(known) > 1)
        if self.has_set(site, place):
            row = set_row(site.store, place)
            assert row.item_count == len(by_id)
            assert row.size == sum(len(v.text) for v in live.values())

    def check_rows(self, site: Site) -> None:
        """Hold the rows against what the document gives, and the rev."""
        with site.store.snapshot() as connection:
            for name in NAMES:
                row = find_set(connection, SetPlace(NAMESPACE, KEY, name))
                if row is not None:
                    assert inspect_set(connection, row.doc) == [], self.trace

    def has_set(self, site: Site, place: SetPlace) -> bool:
        with site.store.reading() as connection:
            return find_set(connection, place) is not None

    def rev(self, site: Site, name: str) -> int:
        place = SetPlace(NAMESPACE, KEY, name)
        return set_row(site.store, place).rev if self.has_set(site, place) else 0

    def live(self, site: Site, place: SetPlace) -> dict[str, VersionRow]:
        if not self.has_set(site, place):
            return {}
        found = versions(site.store, place)
        return {member: version._replace(doc=0) for member, version in found.items()}

    def hash(self, site: Site, name: str) -> object:
        found = self.look(site, name)
        return found and found[1]

    def look(self, site: Site, name: str) -> tuple[Any, ...] | None:
        place = SetPlace(NAMESPACE, KEY, name)
        if not self.has_set(site, place):
            return None
        row = set_row(site.store, place)
        with site.store.writing() as transaction:
            document = set_document(transaction, row)
        found = [item._replace(doc=0, rev=0) for item in items(site.store, place)]
        return found, row.set_hash, row.tombstones, document.clocks, document.members()


def run_set_histories(sites: Sequence[Site], first: int, last: int) -> Counter[str]:
    done: Counter[str] = Counter()
    for seed in range(first, last):
        random = Random(seed)
        history = SetHistory(sites, random)
        history.trace.append(f"seed {seed}")
        for _ in range(random.randint(10, 40)):
            history.step()
        history.settle()
        done += history.done
    return done


@pytest.mark.requirement("P6")
@pytest.mark.requirement("sets-M1")
@pytest.mark.parametrize("first", range(0, SEEDS, PER_TEST))
def test_stores_that_saw_the_same_records_hold_the_same_versions(first):
    with site_pool(3) as sites:
        done = run_set_histories(sites, first, first + PER_TEST)

    assert done.keys() >= {"add", "update", "delete", "clear", "drop", "compact"}
    assert done.keys() >= {"deliver", "squash", "reopen", "forget"}
