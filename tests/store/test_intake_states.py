"""crdtmem.store.intake: states, who waits for them, and that stores are equal."""

from contextlib import ExitStack
from random import Random

import pytest
from hypothesis import given, settings, strategies as st

from crdtmem.doc.delta import Splice
from crdtmem.protocol.records import (
    RecordKind,
)
from crdtmem.store.compaction import seal_snapshot
from crdtmem.store.documents import blame_of
from crdtmem.store.holding import has_hole
from crdtmem.store.intake import take_held
from crdtmem.store.links import find_link
from crdtmem.store.slots import find_slot
from crdtmem.store.states import make_state
from crdtmem.store.store import Store
from crdtmem.store.write import Change
from tests.conftest import PROFILE
from tests.scratch import scratch
from tests.store.intakes import (
    NEW,
    behind,
    checked,
    held,
    held_labels,
    more,
    retry_held,
)
from tests.store.relayed import Log, envelope_of, linked, sealed
from tests.store.writes import (
    NAMESPACE,
    append,
    damage,
    slot,
    texts,
)


@pytest.fixture
def folder():
    """A folder in memory: crashes are tested elsewhere."""
    with scratch() as found:
        yield found


def test_a_state_waits_until_the_relay_has_our_writes(store, other, relayed):
    append(other, "plan", "theirs")
    with other.writing() as transaction:
        state = make_state(transaction, 1)
    append(store, "plan", "unsent")
    relayed.put(
        sealed(envelope_of(behind(store))),
        sealed(state, kind=RecordKind.SNAPSHOT, seq=2),
        sealed(envelope_of(more(clock=2)), seq=3),
    )
    report = relayed.give(store)
    waiting, before = held(store), texts(store)["plan"]
    link = find_link(store, NAMESPACE)
    still = retry_held(store, link, 1)
    relayed.send(store)
    again = relayed.give(store)

    assert (report.applied, report.quarantined) == (1, 2)
    assert waiting == [(3, "plan", ""), (4, "plan", "")]
    assert sorted(before.splitlines()) == ["mine", "unsent", "x"]
    assert still == 2
    assert (again.applied, again.skipped, again.quarantined) == (2, 1, 0)
    assert held(store) == []
    lines = texts(store)["plan"].splitlines()
    assert sorted(lines) == ["mine", "theirs", "unsent", "x", "x"]
    assert checked(store)


@pytest.fixture
def covered(store, other, relayed):
    """A log that has dropped a line of the other store, and covers it by a snapshot.

    The line that builds on it stands between.
    """
    linked(other)
    relayed.give(other)
    append(other, "plan", "dropped")
    relayed.send(other)
    relayed.give(other)
    link = find_link(other, NAMESPACE)
    append(other, "plan", "kept")
    with other.writing() as transaction:
        state = make_state(transaction, 1)
    relayed.send(other)
    snapshot = sealed(state, kind=RecordKind.SNAPSHOT, base=link.cursor.seq)
    relayed.put(snapshot)
    relayed.drop()
    return relayed


@pytest.mark.requirement("P6")
@pytest.mark.parametrize("most", [1, 2, 3])
def test_a_snapshot_brings_what_was_dropped_to_the_records_that_wait_for_it(
    store, covered, most
):
    link = find_link(store, NAMESPACE)
    reports, holes = [], []
    while find_link(store, NAMESPACE).cursor.seq < len(covered.records):
        reports.append(covered.give(store, most=most))
        with store.reading() as connection:
            holes.append(has_hole(connection, link, 1))

    assert sum(report.applied for report in reports) == 2
    assert reports[0].quarantined == (most == 2)
    assert holes == [True] * (len(holes) - 1) + [False]
    assert texts(store) == {"plan": "mine\ndropped\nkept\n"}
    assert (held(store), held_labels(store)) == ([], {})
    assert checked(store)


def test_a_snapshot_that_must_wait_goes_first_when_it_need_not(store, covered):
    append(store, "plan", "unsent")
    covered.give(store)
    waiting = held(store)
    covered.send(store)
    report = covered.give(store)

    assert waiting == [(3, "plan", ""), (4, "plan", "")]
    assert (report.applied, held(store)) == (2, [])
    assert sorted(texts(store)["plan"].split()) == ["dropped", "kept", "mine", "unsent"]


@pytest.mark.requirement("P8")
def test_a_state_goes_before_a_record_that_stays_refused(store, other, relayed):
    append(other, "plan", "theirs")
    with other.writing() as transaction:
        state = make_state(transaction, 1)
    relayed.put(
        sealed(envelope_of(more(clock=99))),
        sealed(b"\x01", seq=2),
        sealed(state, kind=RecordKind.SNAPSHOT, seq=3),
    )
    first = relayed.give(store)
    before = texts(store)["plan"].split()
    append(other, "plan", "more")
    with other.writing() as transaction:
        state = make_state(transaction, 1)
    relayed.put(sealed(state, kind=RecordKind.SNAPSHOT, seq=4))
    second = relayed.give(store)

    assert (first.applied, first.quarantined, second.applied) == (1, 2, 1)
    assert sorted(before) == ["mine", "theirs"]
    assert sorted(texts(store)["plan"].split()) == ["mine", "more", "theirs"]
    assert held(store) == [(2, "plan", "update-clock"), (3, "plan", "")]
    assert checked(store)


def test_docs_with_unsent_writes_wait_for_a_rebase(store, relayed):
    append(store, "plan", "unsent")
    damage(store, "UPDATE link SET rebase_due = 2")
    relayed.put(
        sealed(envelope_of(behind(store))),
        sealed(envelope_of(NEW, label="notes"), seq=2),
    )
    report = relayed.give(store)
    waiting = held(store)
    nothing = relayed.give(store)
    with store.writing() as transaction:
        left = take_held(transaction, store, find_link(store, NAMESPACE), 1)

    assert (report.applied, report.quarantined) == (1, 1)
    assert (waiting, nothing.applied) == ([(2, "plan", "")], 0)
    assert (left, held(store)) == (0, [])
    assert sorted(texts(store)["plan"].splitlines()) == ["mine", "unsent", "x"]


def looked(store):
    """Return of each slot: text, authors, state vector, settings."""
    found = {}
    store.docs.clear()
    with store.writing() as transaction:
        for label in texts(store):
            row = find_slot(transaction.connection, NAMESPACE, label)
            assert row is not None
            document = transaction.document(row)
            document.check()
            runs = blame_of(transaction.connection, row.doc)
            found[label] = row.file, runs, document.clocks, document.meta
    return found


def random_write(store, random, line, first):
    """Insert a line somewhere in a slot, and delete another one sometimes."""
    label = random.choice(["plan", "notes"])
    with store.writing() as transaction:
        row = transaction.slot(NAMESPACE, label)
        if row is None and random.random() < 0.5:
            change = Change(operation="create", lane="c", genesis=first, keeps_rev=True)
            transaction.write_slot(None, NAMESPACE, label, change)
            return
        lines = row.file.splitlines(keepends=True) if row else []
        at = random.randint(0, len(lines))
        start = len("".join(lines[:at]))
        end = start
        if at < len(lines) and random.random() < 0.4:
            end += len(lines[at])
        delta = (Splice(start, end, line),)
        lane = random.choice("ab")
        change = Change(operation="edit", lane=lane, delta=delta)
        transaction.write_slot(row, NAMESPACE, label, change)


def send_and_cover(store, relayed, random, *, may_cover):
    """Send what a store has; then a snapshot maybe, and drop what it covers."""
    # Updates go up whatever has been read; states only at the head.
    relayed.give(store)
    relayed.send(store)
    labels = sorted(texts(store)) if may_cover else []
    if labels and random.random() < 0.5:
        doc = slot(store, random.choice(labels)).doc
        link = find_link(store, NAMESPACE)
        seal_snapshot(store, link, doc, max_snapshot_bytes=1 << 20)
        relayed.send(store)
    if random.random() < 0.3:
        relayed.drop()


@pytest.mark.requirement("P6")
@given(st.integers(0, 1 << 32))
@settings(max_examples=12 if PROFILE == "default" else 1_000, deadline=None)
def test_stores_that_have_read_the_same_log_are_equal(seed):
    random = Random(seed)
    with scratch() as folder, ExitStack() as stack:
        stores = [
            Store(
                folder / str(n) / "store.db",
                durability="normal",
                history_keep=random.choice([1, 20]),
                clock_ms=lambda: random.randrange(1, 50),
            )
            for n in range(random.choice([2, 3]))
        ]
        for store in stores:
            stack.callback(store.close)
        has_states = random.random() < 0.7
        relayed, late = Log(), set(stores[1:] if has_states else ())
        for store in stores[: 1 if has_states else None]:
            linked(store)
        for number in range(random.randint(5, 40)):
            store = random.choice(stores)
            what = random.random()
            if what < 0.5:
                line = f"{number} é\n"
                # Who has a first text in a state alone cannot tell it from the rest,
                # when another author of it comes by.
                first = f"first {line}" if has_states else "same\n"
                random_write(store, random, line, first)
            elif store in late:
                late.discard(store)
                linked(store)
            elif what < 0.75:
                send_and_cover(store, relayed, random, may_cover=has_states)
            else:
                relayed.give(store, most=random.randint(1, 4))
        for store in late:
            linked(store)
        for store in stores * 3:
            relayed.give(store)
            relayed.send(store)
        found = [looked(store) for store in stores]

        assert found == [found[0]] * len(found)
        assert [held(store) for store in stores] == [[]] * len(stores)
