"""crdtmem.store.holding"""

import pytest

from crdtmem.store.holding import (
    NO_DOC,
    Arrival,
    adopt_held,
    count_held,
    has_hole,
    hold,
    is_held,
    ready_docs,
    release_held,
)
from crdtmem.store.links import find_link
from tests.store.relayed import envelope_of, linked, sealed
from tests.store.writes import NAMESPACE, append, damage

RECORD = sealed(envelope_of(b""))
OTHER = sealed(envelope_of(b"", label="notes"))


def arrival(seq, record=RECORD):
    return Arrival(seq, bytes(32), record)


@pytest.fixture
def link(store):
    """A link of a store with one slot, whose doc is 1 and has nothing to send."""
    append(store, "plan", "mine")
    found = linked(store)
    damage(store, "UPDATE log SET replica_seq = 1, place = 0")
    damage(store, "UPDATE sync_doc SET state_needed = 0")
    return found


def test_a_doc_is_held_from_the_first_of_its_records_on(store, link):
    with store.writing() as transaction:
        connection = transaction.connection
        before = is_held(connection, link, 1)
        for seq in (7, 5, 9):
            hold(transaction, link, 1, arrival(seq), "sealed")
        held_from = connection.execute("SELECT held_from FROM sync_doc").get
        count = count_held(connection, link, 1)
        during = is_held(connection, link, 1)
        released = release_held(connection, link, 1)

        assert (before, during, held_from, count) == (False, True, 5, 3)
        assert released == [arrival(5), arrival(7), arrival(9)]
        assert not is_held(connection, link, 1)
        assert count_held(connection, link, 1) == 0


def test_records_of_no_doc_hold_none(store, link):
    with store.writing() as transaction:
        hold(transaction, link, NO_DOC, arrival(3), "sealed")

        assert not is_held(transaction.connection, link, 1)
        assert count_held(transaction.connection, link, NO_DOC) == 1


def test_a_doc_takes_over_earlier_records_of_its_tag_alone(store, link):
    with store.writing() as transaction:
        connection = transaction.connection
        for seq, record in ((3, OTHER), (4, RECORD), (5, b"short")):
            hold(transaction, link, NO_DOC, arrival(seq, record), "sealed")
        hold(transaction, link, NO_DOC, arrival(2), "record-malformed")
        adopt_held(connection, link, 1, arrival(4))
        early = is_held(connection, link, 1)
        adopt_held(connection, link, 1, arrival(6))

        assert not early
        assert is_held(connection, link, 1)
        assert release_held(connection, link, 1) == [arrival(4)]
        assert count_held(connection, link, NO_DOC) == 3


@pytest.mark.parametrize(
    ("codes", "change", "expected"),
    [
        (["", ""], None, [1]),
        (["sealed", ""], None, []),
        (["", "sealed"], None, []),
        (["", ""], "UPDATE link SET rebase_due = 1", []),
        (["", ""], "UPDATE log SET replica_seq = NULL", []),
        ([], None, []),
    ],
)
def test_a_doc_is_ready_when_none_of_its_records_was_refused_or_waits(
    store, link, codes, change, expected
):
    with store.writing() as transaction:
        for seq, code in enumerate(codes, 5):
            hold(transaction, link, 1, arrival(seq), code)
        hold(transaction, link, NO_DOC, arrival(3), "sealed")
    if change:
        damage(store, change)
    with store.reading() as connection:
        assert ready_docs(connection, find_link(store, NAMESPACE)) == expected


@pytest.mark.parametrize(
    ("seen", "snap_seq", "expected"),
    [
        (b"", 0, True),
        (b"", 6, True),
        (b"", 7, False),
        (b"x" * 32, 0, False),
    ],
)
def test_a_doc_has_a_hole_until_a_snapshot_comes_behind_what_was_dropped(
    store, link, seen, snap_seq, expected
):
    damage(store, "INSERT INTO sync_seen SELECT 1, 7, ?, doc_tag FROM sync_doc", seen)
    damage(store, "UPDATE sync_doc SET snap_seq = ?", snap_seq)
    with store.reading() as connection:
        assert has_hole(connection, link, 1) is expected
