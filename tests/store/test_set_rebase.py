"""crdtmem.store.set_rebase"""

import pytest

from crdtmem.errors import DocError, SlotQuarantinedError
from crdtmem.protocol.envelopes import encode_envelope
from crdtmem.protocol.records import RecordKind
from crdtmem.store.links import find_link
from crdtmem.store.log import log_of
from crdtmem.store.rebase import rebase_doc
from crdtmem.store.rejoin import finish_rebase, ready_links
from crdtmem.store.set_doctor import inspect_set
from crdtmem.store.set_rebase import rebase_set
from crdtmem.store.set_states import make_set_state
from crdtmem.store.store import Store
from tests.store.joining import (
    Relay,
    connect,
    copy_of,
    link_to,
    put_back,
    read_on,
    seal_all,
    sync,
)
from tests.store.relayed import sealed
from tests.store.set_writes import (
    PLACE,
    add,
    change,
    new,
    numbered,
    place_of,
    remove,
    set_row,
    shown,
    state_record,
)
from tests.store.writes import NAMESPACE, damage, value


@pytest.fixture
def relay():
    return Relay()


@pytest.fixture
def other(tmp_path):
    opened = Store(tmp_path / "other" / "store.db", clock_ms=lambda: 1_000)
    yield opened
    opened.close()


@pytest.fixture
def store(folder):
    opened = Store(folder / "store.db", clock_ms=lambda: 1_000)
    yield opened
    opened.close()


def rows_of(store, place=PLACE):
    with store.reading() as connection:
        return log_of(connection, set_row(store, place).doc, after=0)


def settle(relay, *stores, place=PLACE):
    """Sync until all have the same, and return the items."""
    for store in stores * 2:
        sync(relay, store)
    first, *rest = [
        (shown(store, place), set_row(store, place).set_hash) for store in stores
    ]
    assert all(one == first for one in rest)
    for store in stores:
        with store.snapshot() as connection:
            assert inspect_set(connection, set_row(store, place).doc) == []
    return first[0]


def texts(*ids):
    return {one: one for one in ids}


@pytest.mark.requirement("sync-store-rolled-back")
def test_a_store_that_was_put_back_keeps_what_both_of_its_lives_wrote(
    store, other, relay
):
    link_to(store)
    link_to(other)
    add(store, "synced", "gone")
    sync(relay, store)
    add(store, "before the copy")
    data = copy_of(store)
    add(store, "by the twin")
    remove(store, "gone")
    sync(relay, store)
    store = put_back(store, data)
    add(store, "by this one")
    change(store, operation="update", puts=[new("synced", "updated")])

    assert settle(relay, store, other) == {
        **texts("before the copy", "by the twin", "by this one"),
        "synced": "updated",
    }
    store.close()


@pytest.mark.requirement("sync-copied-store")
def test_where_the_twin_has_sent_everything_nothing_is_written_anew(store, relay):
    link_to(store)
    add(store, "before the copy")
    data = copy_of(store)
    add(store, "by the twin")
    sync(relay, store)
    store = put_back(store, data)
    rows = len(relay.records)

    assert settle(relay, store) == texts("before the copy", "by the twin")
    assert len(relay.records) == rows
    store.close()


@pytest.mark.requirement("sync-copied-store")
def test_what_the_twin_has_sent_within_a_state_is_in_the_set_once(store, other, relay):
    add(store, "before the copy")
    data = copy_of(store)
    link_to(store)
    add(store, "by the twin")
    sync(relay, store)
    store = put_back(store, data)
    add(store, "by this one")
    link_to(store)
    link_to(other)

    assert settle(relay, store, other) == texts(
        "before the copy", "by the twin", "by this one"
    )
    store.close()


def test_a_store_put_back_to_before_it_sealed_learns_how_far_its_stream_went(
    store, relay
):
    link_to(store)
    add(store, "x")
    data = copy_of(store)
    sync(relay, store)
    store = put_back(store, data)
    add(store, "y")

    assert settle(relay, store) == texts("x", "y")
    store.close()


@pytest.mark.requirement("sync-relay-restored")
def test_a_relay_that_was_put_back_gets_sets_again_as_states(store, other, relay):
    link_to(store)
    link_to(other)
    add(store, "x")
    settle(relay, store, other)
    add(store, "y")
    remove(store, "x")
    add(other, "z")
    settle(relay, store, other)
    relay.restore(1)

    assert settle(relay, store, other) == texts("y", "z")
    kinds = {record[1] for record in relay.records}
    assert kinds == {RecordKind.UPDATE, RecordKind.SNAPSHOT}


def test_a_set_that_was_squashed_before_it_was_linked_goes_up_as_a_state(
    store, other, relay
):
    add(store, *numbered("x", 300))
    assert rows_of(store) == []
    link_to(store)
    link_to(other)

    assert settle(relay, store, other) == texts(*numbered("x", 300))
    assert {record[1] for record in relay.records} == {RecordKind.SNAPSHOT}


def wait_for_rebase(store, *, first=1):
    """Make the store's own writes from a step on look as if they had been forked."""
    link = ready_links(store)[0]
    seal_all(store)
    with store.writing() as transaction:
        connection = transaction.connection
        connection.execute("DELETE FROM outbox")
        connection.execute(
            "UPDATE log SET replica_seq = NULL, place = NULL"
            " WHERE lsn >= ? AND replica = ?",
            (first, link.replica_id),
        )
        connection.execute("UPDATE link SET rebase_due = ?", (first,))
        connection.execute("UPDATE sync_doc SET held_from = 99")
    return find_link(store, NAMESPACE)


def hold(store, record):
    """Have a record wait for the set."""
    with store.writing() as transaction:
        transaction.connection.execute(
            "INSERT INTO held VALUES (1, 99, ?, x'', '', ?, 5)",
            (set_row(store).doc, record),
        )


def test_forked_writes_are_written_anew_and_readers_see_no_change(store):
    link_to(store)
    add(store, "x", "y")
    remove(store, "x")
    change(store, puts=[new("y", "2")])
    link = wait_for_rebase(store)
    before, row, old = shown(store), set_row(store), rows_of(store)

    finish_rebase(store, link)

    after = set_row(store)
    assert shown(store) == before
    assert (after.rev, after.set_hash) == (row.rev, row.set_hash)
    # Of versions that were replaced nothing is left.
    assert (after.tombstones, row.tombstones) == (0, 2)
    (anew,) = rows_of(store)
    assert anew.replica not in {one.replica for one in old}
    with store.snapshot() as connection:
        assert inspect_set(connection, after.doc) == []
    assert add(store, "z").item_count == 2


def test_what_cancels_itself_out_is_not_written_anew(store):
    link_to(store)
    add(store, "x")
    first = rows_of(store)[-1].lsn + 1
    add(store, "y")
    remove(store, "y")
    link = wait_for_rebase(store, first=first)

    finish_rebase(store, link)

    assert shown(store) == texts("x")
    assert len(rows_of(store)) == 1
    assert set_row(store).lsn > rows_of(store)[0].lsn


@pytest.mark.parametrize("is_bad", [False, True])
def test_what_a_state_of_the_relay_has_is_not_written_anew(store, is_bad):
    link_to(store)
    add(store, "x")
    link = wait_for_rebase(store)
    with store.writing() as transaction:
        state = make_set_state(transaction, set_row(store).doc)
    if is_bad:
        state = state_record(b"\x01")
    hold(store, sealed(encode_envelope(state), kind=RecordKind.SNAPSHOT))
    old = rows_of(store)

    finish_rebase(store, link)

    assert shown(store) == texts("x")
    is_kept = [one.lsn for one in rows_of(store)] == [one.lsn for one in old]
    assert is_kept is not is_bad


def test_what_others_have_built_on_stays(store, other, relay):
    link_to(store)
    link_to(other)
    add(store, "x", "y")
    add(store, "z")
    settle(relay, store, other)
    remove(other, "z")
    settle(relay, store, other)
    add(store, "w")
    link = wait_for_rebase(store)

    finish_rebase(store, link)

    assert shown(store) == texts("w", "x", "y")
    # The delete stands on what was written before it, which stays.
    assert [row.replica_seq is None for row in rows_of(store)] == [
        False, False, False, True,
    ]  # fmt: skip


def test_a_damaged_set_is_not_rebased_and_the_others_are(store):
    link_to(store)
    add(store, "x")
    add(store, "x", place=place_of("b"))
    link = wait_for_rebase(store)
    doc = set_row(store).doc
    damage(store, f"UPDATE log SET content = x'00' WHERE doc = {doc}")
    store.docs.clear()

    finish_rebase(store, link)

    assert set_row(store).quarantined is not None
    assert set_row(store, place_of("b")).quarantined is None
    assert value(store, "SELECT blocked FROM sync_doc WHERE doc = 1") != ""
    with store.writing() as transaction, pytest.raises(SlotQuarantinedError):
        rebase_doc(transaction, link, doc)


def test_a_doc_without_a_set_is_refused(store):
    link = link_to(store)
    with store.writing() as transaction, pytest.raises(DocError, match="has no set"):
        rebase_set(transaction, link, 7)


def test_records_that_come_in_one_batch_with_a_state_follow_it(store, other, relay):
    link_to(store)
    link_to(other)
    add(store, *numbered("x", 3))
    sync(relay, store)
    connect(relay, other)
    read_on(relay, other)
    add(other, "mine")
    remove(store, "x0")
    relay.restore(0)
    settle(relay, store, other)

    assert shown(other) == texts("x1", "x2", "mine")
