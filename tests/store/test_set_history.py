"""crdtmem.store.set_history"""

import pytest

from crdtmem.store import set_history
from crdtmem.store.set_history import prune_archives
from crdtmem.store.sets import history_of, item_from, oldest_rev
from crdtmem.store.store import Store
from tests.store.set_writes import add, archived, change, new, remove, set_row
from tests.store.writes import damage, value


def history(store):
    """Return rev, item and operation of all rows, oldest first."""
    with store.reading() as connection:
        rows = history_of(connection, set_row(store).doc, limit=-1)
    return [(row.rev, row.id, row.operation) for row in reversed(rows)]


def sums(store):
    return (
        value(store, "SELECT count(*) FROM item_history"),
        value(store, "SELECT coalesce(sum(octet_length(old)), 0) FROM item_history"),
    )


def test_each_commit_keeps_each_item_as_it_was_before(store):
    row = change(
        store, puts=[new("x", 'é"\0\n', '{"a":"b"}', created_ms=4, sources=2)], lane="a"
    )
    with store.reading() as connection:
        before = history_of(connection, row.doc, limit=1)[0]
    assert before.old == ""
    remove(store, "x")

    with store.reading() as connection:
        gone, _ = history_of(connection, row.doc, limit=2)
    item = item_from(row.doc, "x", gone.old)
    assert item is not None
    assert item[1:5] == ("x", 'é"\0\n', '{"a":"b"}', 4)
    assert (item.rev, item.lane, item.sources, item.conflicts) == (1, "a", 2, "")


@pytest.mark.parametrize("how", [{"clears": True}, {"drops": True}])
def test_a_set_that_is_emptied_keeps_all_its_items_in_order(store, how):
    change(store, puts=[new("x", created_ms=2), new("y", created_ms=1)])
    row = change(store, operation="clear", **how)

    with store.reading() as connection:
        rows = history_of(connection, row.doc, limit=2)
    assert [(one.rev, one.n, one.id, one.operation) for one in rows] == [
        (2, 1, "x", "clear"),
        (2, 0, "y", "clear"),
    ]
    assert (row.history_rows, row.history_bytes) == sums(store)


def test_the_oldest_rows_go_and_the_rev_from_which_all_are_kept_is_known(
    store, monkeypatch
):
    monkeypatch.setattr(set_history, "ITEM_HISTORY_ROWS", 4)
    add(store, "a", "b", "c")
    row = add(store, "d")
    assert oldest_rev(row) == 1

    row = add(store, "e")
    assert history(store)[0] == (1, "b", "add")
    assert (row.history_rows, oldest_rev(row)) == (4, 2)

    row = change(store, operation="clear", clears=True)
    assert history(store) == [(4, one, "clear") for one in "bcde"]
    assert (row.history_rows, oldest_rev(row)) == (4, 5)
    assert (row.history_rows, row.history_bytes) == sums(store)


def test_old_values_are_kept_up_to_so_many_bytes(store, monkeypatch):
    monkeypatch.setattr(set_history, "ITEM_HISTORY_BYTES", 1_000)
    add(store, "y")
    for number in range(9):
        row = change(store, puts=[new("x", f"{number}" * 200)])

    assert row.history_bytes <= 1_000
    assert (row.history_rows, row.history_bytes) == sums(store)
    assert oldest_rev(row) == history(store)[0][0]


def test_one_commit_may_exceed_all_that_is_kept(store, monkeypatch):
    add(store, "a", "b", "c")
    monkeypatch.setattr(set_history, "ITEM_HISTORY_ROWS", 0)
    row = change(store, operation="clear", clears=True)

    assert history(store) == []
    assert (row.history_rows, row.history_bytes, oldest_rev(row)) == (0, 0, 3)


def test_a_counter_that_says_too_much_lets_all_go_and_no_more(store):
    add(store, "a", "b")
    damage(store, "UPDATE mset SET history_rows = 99999")
    row = add(store, "c")

    assert history(store) == []
    assert oldest_rev(row) == 3


def test_archives_go_when_they_are_old_enough_and_of_their_set_alone(folder):
    now = [100]
    store = Store(folder / "store.db", clock_ms=lambda: now[0])
    row = add(store, "x", "y")
    change(store, operation="compact", removes=["x"], archive=b"one")
    now[0] = 200
    change(store, operation="compact", removes=["y"], archive=b"two")

    with store.writing() as transaction:
        connection = transaction.connection
        assert prune_archives(connection, row.doc + 1, before_ms=300) == 0
        assert prune_archives(connection, row.doc, before_ms=200) == 1
        assert archived(connection, row.doc, b"one") == []
        assert [i.id for i in archived(connection, row.doc, b"two")] == ["y"]
    store.close()
