"""crdtmem.store.history"""

import pytest

from crdtmem.store.history import (
    entries_of,
    entry_at,
    entry_of_rev,
    link_redo,
    mark_undone,
    prune_entries,
)
from crdtmem.store.store import Store
from tests.store.writes import append, entries


@pytest.fixture
def store(folder):
    opened = Store(folder / "store.db", history_keep=3)
    yield opened
    opened.close()


def test_the_history_keeps_exactly_as_many_texts_as_it_was_told(store):
    append(store, "notes", "a", "b")
    append(store, "plan", "1", "2", "3", "4", "5")
    append(store, "other", "a")

    assert [(entry.rev, entry.file) for entry in entries(store, "plan")] == [
        (4, "1\n2\n3\n4\n"),
        (3, "1\n2\n3\n"),
        (2, "1\n2\n"),
    ]
    assert [entry.rev for entry in entries(store, "notes")] == [1, 0]
    assert [entry.rev for entry in entries(store, "other")] == [0]


def test_a_text_is_kept_with_the_commit_that_displaced_it(store):
    append(store, "plan", "one")
    row = append(store, "plan", "two")
    entry = entries(store, "plan")[0]

    assert (entry.file, entry.size, entry.rev) == ("one\n", 3, 1)
    assert (entry.operation, entry.lane, entry.lsn) == ("append", "a", row.lsn)
    assert entry.first_lsn == row.lsn
    assert (entry.undone_by, entry.undoes, entry.living) == (None, None, None)


def test_entries_are_paged_newest_first(store):
    append(store, "notes", "one")
    row = append(store, "plan", "1", "2", "3")
    with store.reading() as connection:
        newest = entries_of(connection, row.doc, limit=2)
        rest = entries_of(connection, row.doc, before=newest[-1].place)

    assert [entry.rev for entry in newest] == [2, 1]
    assert [entry.rev for entry in rest] == [0]


def test_an_entry_is_found_by_its_key_and_by_the_rev_of_its_text(store):
    append(store, "notes", "one")
    row = append(store, "plan", "1", "2")
    newest, oldest = entries(store, "plan")
    with store.reading() as connection:
        by_key = entry_at(connection, newest.place), entry_at(connection, 1)
        by_rev = [entry_of_rev(connection, row.doc, rev) for rev in (0, 1, 2)]

    assert by_key == (newest, None)
    assert by_rev == [oldest, newest, None]


def test_an_undone_commit_is_marked_until_a_redo_holds_it(store):
    row = append(store, "plan", "1", "2")
    place = entries(store, "plan")[0].place
    with store.writing() as transaction:
        connection = transaction.connection
        mark_undone(connection, place, by=77)
        undone = entries_of(connection, row.doc)
        link_redo(connection, place, redo=88)
        redone = entries_of(connection, row.doc)

    assert [(e.undone_by, e.living) for e in undone] == [(77, None), (None, None)]
    assert [(e.undone_by, e.living) for e in redone] == [(None, 88), (None, None)]


def test_keeping_more_texts_than_there_are_drops_none(store):
    row = append(store, "plan", "1", "2")
    with store.writing() as transaction:
        prune_entries(transaction.connection, row.doc, 2)
        both = entries_of(transaction.connection, row.doc)
        prune_entries(transaction.connection, row.doc, 1)
        last = entries_of(transaction.connection, row.doc)

    assert [entry.rev for entry in both] == [1, 0]
    assert [entry.rev for entry in last] == [1]
