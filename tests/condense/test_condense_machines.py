"""Condense on two machines: what one took out, and what the other wrote meanwhile."""

import contextlib
import itertools
import json
from collections import Counter
from random import Random

import pytest

from crdtmem.condense.values import CondenseReply
from crdtmem.errors import CondensePassUnknownError
from crdtmem.store.events import events_of
from tests.conftest import PROFILE
from tests.oracle import token
from tests.replica import exchange_records
from tests.scenarios import opened
from tests.scratch import scratch
from tests.sites import LANES, Traffic, site_pool

PADDING = "what was done, and why, at some length; " * 3
HEAD = "# plan\n\n"
OLD = [f"## old {number}\n{PADDING}{number}\n" for number in range(6)]
NEW = [f"## new {number}\n{PADDING}{number}\n" for number in range(2)]
TEXT = (HEAD + "".join(OLD + NEW)).rstrip("\n")
ONE, OTHER, LAST = (f"{word}: all of it, in short. " * 6 for word in "abc")
BLOCK = "## Condensed history\n"
HISTORIES = {"default": 8, "campaign": 2_000}[PROFILE]
ORDERS = list(itertools.permutations(range(3)))


@pytest.fixture
def machines():
    """Three machines that hold one slot with much to condense."""
    with scratch() as folder, contextlib.ExitStack() as stack:
        found = [
            stack.enter_context(opened(str(folder / name / "store.db"), name))
            for name in "abc"
        ]
        found[0].create("plan", TEXT, size_limit=100_000)
        synced(found)
        yield found


def synced(machines, order=(0, 1, 2)):
    exchange_records([[machines[place]] for place in order])


def condense(memory, summary):
    """Condense all but the two newest sections; return the pass's id."""
    result = memory.slot("plan").condense(
        lambda begun: CondenseReply(pass_id=begun.id, summary=summary),
        keep_sections=2,
        force=True,
    )
    assert result.reason == "condensed"
    return result.pass_id


def content(memory):
    return str(memory.slot("plan").read().content)


def archived(memory, pass_id):
    """Return the sections that a pass took out, the old condensed text left out."""
    archive = memory.condense_archive(pass_id)
    return "".join(part.text for part in archive.sections if part.kind == "evicted")


def duplicates(memory):
    with memory.store.reading() as connection:
        events = events_of(connection, kinds=["condense-duplicate"])
    return [set(json.loads(event.details).values()) for event in events]


def infos(memory):
    """Return state, reason and origin of each pass."""
    return {
        each.id: (each.state, each.reason, each.is_remote)
        for each in memory.condense_passes(label="plan")
    }


@pytest.mark.requirement("condense-24")
@pytest.mark.parametrize("order", ORDERS)
def test_what_another_machine_wrote_offline_is_merged_with_a_pass(machines, order):
    a, b, c = machines
    pass_id = condense(a, ONE)
    rebuilt = content(a)
    b.slot("plan").append("## later\nappended offline")
    edited = f"## new 1\n{PADDING}one"
    b.slot("plan").edit(NEW[1].strip(), edited)

    synced(machines, order)

    wanted = rebuilt.replace(NEW[1].strip(), edited)
    for memory in machines:
        assert content(memory) == f"{wanted}\n## later\nappended offline"
        assert archived(memory, pass_id) == "".join(OLD)
        assert duplicates(memory) == []
    assert infos(a) == {pass_id: ("committed", "condensed", False)}
    assert infos(b) == infos(c) == {pass_id: ("committed", "condensed", True)}


@pytest.mark.requirement("condense-25")
@pytest.mark.parametrize("order", ORDERS)
def test_two_passes_apart_both_stand_and_the_next_merges_them(machines, order):
    a, b, c = machines
    passes = {condense(a, ONE), condense(b, OTHER)}
    c.slot("plan").append("## later\nappended offline")

    synced(machines, order)

    for memory in machines:
        text = content(memory)
        assert text == content(a)
        # Nothing that was taken out is back, and nothing that was kept is lost.
        assert [part for part in OLD if part in text] == []
        assert all(text.count(part.strip()) == 1 for part in NEW)
        assert (text.count(ONE.strip()), text.count(OTHER.strip())) == (1, 1)
        assert text.count("appended offline") == 1
        assert duplicates(memory) == [passes]
        assert {info[:2] for info in infos(memory).values()} == {
            ("committed", "duplicate")
        }
        for pass_id in passes:
            assert archived(memory, pass_id) == "".join(OLD)

    last = condense(c, LAST)
    synced(machines, order)

    for memory in machines:
        text = content(memory)
        assert text == content(a)
        assert text.count(BLOCK) == text.count(LAST.strip()) == 1
        assert (ONE.strip() in text, OTHER.strip() in text) == (False, False)
        assert set(infos(memory)) == {*passes, last}
        assert duplicates(memory) == [passes]


@pytest.mark.requirement("condense-26")
@pytest.mark.parametrize("order", ORDERS)
def test_a_summary_that_a_third_machine_has_edited_stays(machines, order):
    a, b, c = machines
    passes = {condense(b, OTHER)}
    synced([b, c, c])
    edited = "b: what matters, in the words of another. " * 5
    c.slot("plan").edit(OTHER.strip(), edited)
    passes.add(condense(a, ONE))

    synced(machines, order)

    for memory in machines:
        text = content(memory)
        assert text == content(a)
        assert (text.count(ONE.strip()), text.count(edited.strip())) == (1, 1)
        assert duplicates(memory) == [passes]

    condense(b, LAST)
    synced(machines, order)

    for memory in machines:
        text = content(memory)
        assert text.count(BLOCK) == text.count(LAST.strip()) == 1
        assert (ONE.strip() in text, edited.strip() in text) == (False, False)


@pytest.mark.requirement("condense-25")
def test_passes_apart_behind_duplicates_are_noticed_as_well(machines):
    a, b, _ = machines
    condense(a, ONE)
    condense(b, OTHER)
    synced(machines)
    for memory, summary in ((a, "a"), (b, "b")):
        memory.slot("plan").append(f"## more\n{PADDING}\n## most\n{PADDING}")
        condense(memory, f"second of {summary}. " * 10)

    synced(machines)

    assert [len(duplicates(memory)) for memory in machines] == [2, 2, 2]


@pytest.mark.requirement("condense-25")
def test_a_pass_whose_twin_came_before_its_commit_is_noticed_where_it_is_made(machines):
    a, b, c = machines
    begun = a.slot("plan").begin_condense(keep_sections=2, force=True)
    shorter = content(b).replace(NEW[0], "")
    twin = b.slot("plan").condense_text(shorter, base_rev=b.slot("plan").read().rev)
    assert twin.reason == "condensed"
    synced([b, a, a])

    result = a.slot("plan").commit_condense(begun.id, ONE)
    assert result.reason == "condensed"
    synced(machines)

    for memory in (a, b, c):
        assert duplicates(memory) == [{begun.id, twin.pass_id}]
        # Where its record found less to take out, the twin's part comes first.
        assert archived(memory, begun.id).endswith("".join(OLD))
        assert NEW[0] not in content(memory)


@pytest.mark.requirement("condense-24", "condense-19")
def test_the_undo_of_a_pass_reaches_the_other_machine(machines):
    a, b, _ = machines
    pass_id = condense(a, ONE)
    synced(machines)
    b.slot("plan").append("## later\nappended after it")

    a.slot("plan").undo()
    synced(machines)

    assert content(b) == content(a) == f"{TEXT}\n## later\nappended after it"
    assert infos(a)[pass_id][0] == infos(b)[pass_id][0] == "undone"
    assert archived(b, pass_id) == "".join(OLD)


@pytest.mark.requirement("condense-24")
def test_an_undo_on_the_other_machine_is_one_of_the_pass(machines):
    a, b, _ = machines
    pass_id = condense(a, ONE)
    synced(machines)
    entry = b.slot("plan").history().entries[0]

    b.slot("plan").undo(entry.id)
    synced(machines)

    assert content(a) == content(b) == TEXT
    assert infos(a)[pass_id][0] == infos(b)[pass_id][0] == "undone"


@pytest.mark.requirement("condense-24", "condense-25", "P6")
def test_passes_and_appends_anywhere_in_any_order_lose_nothing_and_revive_nothing(
    sites,
):
    reasons: Counter[str] = Counter()
    for seed in range(HISTORIES):
        random = Random(seed)
        for site in sites:
            site.clear(random)
        history = Passes(sites, random)
        for _ in range(random.randint(5, 40)):
            history.step()
        history.settle()
        reasons += history.reasons

    assert reasons["condensed"] > HISTORIES
    assert reasons["duplicate"] > 0


@pytest.fixture(scope="module")
def sites():
    with site_pool(3) as found:
        yield found


class Passes:
    """Appends and passes on three machines, records that come in any causal order."""

    def __init__(self, sites, random):
        self.sites = sites
        self.random = random
        self.traffic = Traffic(sites)
        self.tokens = []
        self.reasons: Counter[str] = Counter()
        sites[0].handles[LANES[0]].create("plan", TEXT, size_limit=100_000)
        self.traffic.note_write(sites[0])
        for site in sites[1:]:
            self.deliver(site)

    def step(self):
        site = self.random.choice(self.sites)
        site.tick()
        memory = site.handles[self.random.choice(LANES)]
        kind = self.random.random()
        if kind < 0.4:
            self.tokens.append(token(site.name, len(self.tokens)))
            memory.slot("plan").append(f"## note\n{self.tokens[-1]}\n{PADDING}")
        elif kind < 0.65:
            keep = self.random.randint(1, 3)
            result = memory.slot("plan").condense(
                lambda begun: CondenseReply(pass_id=begun.id, summary=begun.id * 8),
                keep_sections=keep,
                force=True,
            )
            self.reasons[result.reason] += 1
        else:
            self.deliver(site, self.random.randint(1, 5))
        self.traffic.note_write(site)

    def deliver(self, site, most=1_000):
        batch = self.traffic.batch_for(site, self.random, most)
        had = self.traffic.arrived[site.replica]
        again = [self.random.choice(had)] if had else []
        self.traffic.deliver(site, LANES[0], batch, again)
        return bool(batch)

    def settle(self):
        while any(self.deliver(site) for site in self.sites):
            pass
        assert len({site.file("plan") for site in self.sites}) == 1
        passes = [self.check(site) for site in self.sites]
        # Each store knows each pass that was committed anywhere, and which are twins.
        assert passes[0] == passes[1] == passes[2]
        self.reasons["duplicate"] += "duplicate" in passes[0].values()

    def check(self, site):
        memory = site.handles[LANES[0]]
        infos = memory.condense_passes(label="plan", state="committed")
        lines = Counter(site.file("plan").split("\n"))
        gone = {
            line for info in infos for line in archived(memory, info.id).split("\n")
        }
        for each in self.tokens:
            # In the text, once, or taken out and not back.
            assert lines[each] == (each not in gone), (site.name, each)
        return {info.id: info.reason for info in infos}


def test_a_pass_that_no_machine_here_made_or_met_is_unknown(machines):
    with pytest.raises(CondensePassUnknownError) as caught:
        machines[0].condense_archive("cp_aaaaaaaaaaaaaaaa")

    assert caught.value.code == "condense-pass-unknown"
