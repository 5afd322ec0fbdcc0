"""crdtmem.store.seen"""

from crdtmem.store.seen import load_seen, save_seen


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
