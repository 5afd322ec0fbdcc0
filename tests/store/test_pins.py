"""crdtmem.store.pins"""

from contextlib import suppress
from random import Random

import pytest
from hypothesis import given, settings, strategies as st

from crdtmem.doc.delta import Splice, apply_delta
from crdtmem.doc.rebase import merge_delta
from crdtmem.doc.text_form import view_of
from crdtmem.errors import CrdtmemError, DocError
from crdtmem.store.doc_inbox import Incoming
from crdtmem.store.documents import squash
from crdtmem.store.inbox import Inbox
from crdtmem.store.pins import (
    Pin,
    count_deletions,
    drop_pin,
    find_pin,
    follow,
    make_pin,
)
from crdtmem.store.states import make_state
from crdtmem.store.write import Change
from tests.conftest import PROFILE
from tests.doc.histories import changed
from tests.sites import LANES, NAMESPACE as SITES_NAMESPACE, site_pool
from tests.store.writes import NAMESPACE, append, create, damage, slot, value


def pinned(store, label="plan"):
    """Pin a slot's text; return the pin's number."""
    with store.writing() as transaction:
        row = slot(store, label)
        return make_pin(transaction.connection, row, transaction.now_ms)


def dropped(store, pin):
    with store.writing() as transaction:
        drop_pin(transaction.connection, pin)


def found(store, pin):
    with store.reading() as connection:
        return find_pin(connection, pin)


def followed(store, pin, base=None, *, row=None):
    row = row or slot(store, "plan")
    with store.reading() as connection:
        kept = find_pin(connection, pin)
        assert kept is not None
        return follow(connection, kept, row, base)


def squashed(store, label="plan"):
    """Squash all records of a slot, also those that its history needs."""
    row = slot(store, label)
    with store.writing() as transaction:
        squash(transaction.connection, row.doc, transaction.replica, row.lsn)
    store.docs.clear()


def steps(store):
    return value(store, "SELECT count(*) FROM pin_step")


def test_a_pin_keeps_the_text_and_where_the_slot_stood(store):
    row = append(store, "plan", "one", "zwei é")

    pin = pinned(store)
    append(store, "plan", "three")

    assert found(store, pin) == Pin(pin, row.doc, row.lsn, row.rev, "one\nzwei é\n")


def test_what_was_written_since_is_told_apart_from_the_pinned_text(store):
    append(store, "plan", "one", "two")
    pin = pinned(store)
    append(store, "plan", "three")

    trace, is_exact = followed(store, pin)

    assert is_exact
    assert [(run.text, run.inserted_by is None) for run in trace.runs] == [
        ("one\ntwo\n", True),
        ("three\n", False),
    ]


def test_a_squash_takes_nothing_from_a_pin(store):
    append(store, "plan", "one")
    pin = pinned(store)
    append(store, "plan", *map(str, range(30)))
    before = followed(store, pin)

    squashed(store)
    append(store, "plan", "last")
    trace, is_exact = followed(store, pin)

    assert is_exact
    assert trace.runs[:-1] == before.trace.runs
    assert trace.text() == slot(store, "plan").file


def test_a_squash_keeps_no_steps_without_a_pin_in_front_of_them(store):
    append(store, "plan", "one", "two")
    append(store, "other", "x")
    pinned(store, "other")

    squashed(store)

    assert steps(store) == 0


def test_the_last_pin_of_a_slot_takes_its_steps_along(store):
    append(store, "plan", "one")
    first = pinned(store)
    append(store, "plan", "two", "three")
    second = pinned(store)
    append(store, "plan", "four")
    squashed(store)
    assert steps(store) == 3

    dropped(store, first)
    assert steps(store) == 1
    assert followed(store, second).is_exact

    dropped(store, second)
    dropped(store, second)
    assert steps(store) == 0
    assert found(store, second) is None


def test_the_pins_of_another_slot_keep_their_steps(store):
    append(store, "plan", "one")
    append(store, "other", "one")
    pin, other = pinned(store), pinned(store, "other")
    append(store, "plan", "two")
    append(store, "other", "two")
    squashed(store)
    squashed(store, "other")

    dropped(store, other)

    assert steps(store) == 1
    assert followed(store, pin).is_exact


def test_lines_that_a_base_lacks_count_as_written_since(store):
    append(store, "plan", "one", "two", "three")
    pin = pinned(store)
    append(store, "plan", "four")

    trace, is_exact = followed(store, pin, "one\nthree\n")

    assert is_exact
    assert trace.base() == "one\nthree\n"
    assert trace.text() == "one\ntwo\nthree\nfour\n"
    # Deleting all that the base has leaves what it has not seen.
    delta = merge_delta(trace, "one\nthree\n", "")
    assert apply_delta(trace.text(), delta) == "two\nfour\n"


def test_a_pinned_text_that_was_damaged_is_noticed(store):
    append(store, "plan", "one")
    pin = pinned(store)
    damage(store, "UPDATE pin SET file = 'won' || char(10)")

    with pytest.raises(DocError, match=f"the text of pin {pin} is damaged"):
        found(store, pin)


@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM log WHERE lsn = 2",
        "UPDATE log SET delta = '[[9,9,\"x\\n\"]]' WHERE lsn = 2",
        "UPDATE log SET delta = 'x' WHERE lsn = 2",
        "UPDATE log SET delta = '[]' WHERE lsn = 3",
    ],
)
def test_where_a_write_is_not_known_the_texts_are_compared(store, statement):
    append(store, "plan", "one")
    pin = pinned(store)
    append(store, "plan", "two", "three")
    damage(store, statement)

    trace, is_exact = followed(store, pin)

    assert not is_exact
    assert trace.base() == "one\n"
    assert trace.text() == "one\ntwo\nthree\n"


def test_a_delete_is_counted_as_often_as_it_happened_since(store):
    append(store, "plan", "one")
    deleted(store)
    pin = pinned(store)
    assert deletions(store, pin) == 0

    deleted(store)
    squashed(store)
    append(store, "plan", "one")
    assert deletions(store, pin) == 1

    deleted(store)
    assert deletions(store, pin) == 2


def deleted(store):
    change = Change(
        operation="delete", lane="a", delta=whole(store), meta={"deleted": True}
    )
    with store.writing() as transaction:
        transaction.write_slot(slot(store, "plan"), NAMESPACE, "plan", change)


def whole(store):
    """Return the change that takes out all of the slot's text."""
    file = slot(store, "plan").file
    return (Splice(0, len(file), ""),) if file else ()


def deletions(store, pin):
    with store.reading() as connection:
        kept = find_pin(connection, pin)
        assert kept is not None
        return count_deletions(connection, kept)


def test_a_state_from_elsewhere_is_one_step_from_a_pin(store, other):
    create(store, "plan", "one\n")
    create(other, "plan", "one\n")
    pin = pinned(store)
    append(other, "plan", "two")
    note_sent(store)

    take_state(other, store)
    append(store, "plan", "three")
    trace, is_exact = followed(store, pin)

    assert is_exact
    assert steps(store) == 1
    assert trace.base() == "one\n"
    assert trace.text() == slot(store, "plan").file == "one\ntwo\nthree\n"


def test_a_state_makes_no_step_without_a_pin(store, other):
    create(store, "plan", "one\n")
    create(other, "plan", "one\n")
    append(other, "plan", "two")
    note_sent(store)

    take_state(other, store)

    assert steps(store) == 0


def note_sent(store):
    """Let all rows pass for sealed and sent: a state may replace them then."""
    damage(store, "UPDATE log SET replica_seq = lsn, place = 0")


def take_state(source, target, namespace=NAMESPACE):
    """Let a store take the whole state of a slot of another one."""
    with source.writing() as transaction:
        row = transaction.slot(namespace, "plan")
        state = make_state(transaction, row.doc)
        replica = transaction.replica
    with target.writing() as transaction:
        # Its stream goes on from wherever it is.
        seq = transaction.next_lsn()
        incoming = Incoming(replica, seq, state)
        taken = Inbox(transaction, target, namespace, "plan").take([incoming])
    assert taken == 1


@pytest.fixture(scope="module")
def sites():
    with site_pool(2) as pool:
        yield pool


@settings(max_examples={"default": 30, "campaign": 2_000}[PROFILE])
@given(
    seed=st.integers(0, 9),
    moves=st.lists(st.binary(min_size=3, max_size=7), min_size=4, max_size=16),
)
def test_pins_are_followed_through_whatever_happens(sites, seed, moves):
    for site in sites:
        site.clear(Random(seed))
    history = PinnedHistory(*sites)

    for move in moves:
        history.step(move[0], move[1], move[2:])
        history.check()
    history.drop_all()

    assert steps(history.site.store) == 0


class PinnedHistory:
    """A slot that is written, squashed and synced, and pins of it."""

    def __init__(self, site, other):
        self.site = site
        self.other = other
        self.slot = site.handles[LANES[0]].slot("plan")
        self.slot_elsewhere = other.handles[LANES[0]].slot("plan")
        self.texts = {}
        for each in (site, other):
            each.handles[LANES[0]].create("plan", "first")
        self.pin()

    def step(self, kind, pick, change):
        self.site.tick()
        self.other.tick()
        match kind % 8:
            case 0:
                self.slot.append(f"{pick}")
            case 1:
                self.undo(pick)
            case 2:
                self.pin()
            case 3:
                self.drop(pick)
            case 4:
                self.site.squash_all("plan")
            case 5:
                self.meet(change)
            case _:
                self.slot.replace(view_of(changed(self.site.file("plan"), change)))

    def pin(self):
        row = self.site.row("plan")
        with self.site.store.writing() as transaction:
            pin = make_pin(transaction.connection, row, transaction.now_ms)
        self.texts[pin] = row.file

    def drop(self, pick):
        if self.texts:
            pin = sorted(self.texts)[pick % len(self.texts)]
            dropped(self.site.store, pin)
            del self.texts[pin]

    def drop_all(self):
        while self.texts:
            self.drop(0)

    def undo(self, pick):
        entries = self.slot.history().entries
        # There may be none yet, or it is squashed or undone.
        with suppress(CrdtmemError, ZeroDivisionError):
            self.slot.undo(entries[pick % len(entries)].id)

    def meet(self, change):
        """Let the other store write behind what is here, and send its whole state."""
        for source, target in ((self.site, self.other), (self.other, self.site)):
            note_sent(target.store)
            take_state(source.store, target.store, SITES_NAMESPACE)
            if target is self.other:
                text = view_of(changed(target.file("plan"), change))
                self.slot_elsewhere.replace(text)

    def check(self):
        row = self.site.row("plan")
        for pin, text in self.texts.items():
            trace, is_exact = followed(self.site.store, pin, row=row)

            assert is_exact
            assert trace.base() == text
            assert trace.text() == row.file
