"""crdtmem.store.seen"""

from contextlib import closing

import pytest

from crdtmem.errors import StoreBusyError, StoreReadOnlyError
from crdtmem.store.lock import StoreLock
from crdtmem.store.seen import load_seen, noting, save_seen
from crdtmem.store.store import Store


def test_each_lane_has_its_own_revs(store):
    with store.writing() as transaction:
        save_seen(transaction.connection, "a", {("p", "plan"): 3, ("p", "notes"): 1})
        save_seen(transaction.connection, "b", {("p", "plan"): 2})
    with store.reading() as connection:
        found = {lane: load_seen(connection, lane) for lane in "abc"}

    assert found == {
        "a": {("p", "plan"): 3, ("p", "notes"): 1},
        "b": {("p", "plan"): 2},
        "c": {},
    }


def test_a_later_rev_replaces_and_none_takes_back(store):
    with store.writing() as transaction:
        save_seen(transaction.connection, "a", {("p", "plan"): 3, ("q", "plan"): 1})
        save_seen(transaction.connection, "a", {("p", "plan"): 4, ("q", "plan"): None})
        save_seen(transaction.connection, "a", {("p", "gone"): None})
    with store.reading() as connection:
        found = load_seen(connection, "a")

    assert found == {("p", "plan"): 4}


def test_what_is_noted_by_itself_is_there_for_others(store):
    with noting(store) as connection:
        save_seen(connection, "a", {("p", "plan"): 3})

    with closing(Store(store.path)) as another, another.reading() as connection:
        assert load_seen(connection, "a") == {("p", "plan"): 3}


def test_a_note_that_fails_changes_nothing_and_frees_the_lock(store):
    with pytest.raises(RuntimeError), noting(store) as connection:
        save_seen(connection, "a", {("p", "plan"): 3})
        raise RuntimeError

    with store.reading() as connection:
        assert load_seen(connection, "a") == {}
    with noting(store) as connection:
        save_seen(connection, "a", {("p", "plan"): 4})


def test_a_note_waits_for_the_lock_like_every_write(store):
    store.busy_timeout_s = 0.01
    with (
        closing(StoreLock(store.lock.path)) as other,
        other.held(1),
        pytest.raises(StoreBusyError),
    ):
        noting(store).__enter__()

    with noting(store) as connection:
        assert load_seen(connection, "a") == {}


def test_a_handle_for_reading_notes_nothing(store):
    with (
        closing(Store(store.path, read_only=True)) as reader,
        pytest.raises(StoreReadOnlyError),
        noting(reader) as connection,
    ):
        save_seen(connection, "a", {("p", "plan"): 3})

    with noting(store) as connection:
        assert load_seen(connection, "a") == {}
