"""crdtmem.store.intake"""

from typing import Any

import pytest

from crdtmem.errors import LinkChangedError, LocalProtocolError
from crdtmem.limits import SEEN_ROWS
from crdtmem.protocol.envelopes import Receipt, encode_envelope
from crdtmem.protocol.messages import Form, Item
from crdtmem.protocol.records import (
    NO_DOC_TAG,
    RecordKind,
    chain_next,
    record_id,
)
from crdtmem.store.intake import apply_items
from crdtmem.store.links import find_link
from crdtmem.store.outbox import seal
from crdtmem.store.progress import kept_samples
from crdtmem.store.states import make_state
from tests.killpoints import KillPoint, install
from tests.scratch import scratch
from tests.store.intakes import (
    NEW,
    TAG,
    THIRD,
    behind,
    checked,
    everything,
    held,
    link_row,
    more,
    seen,
    sync_doc,
)
from tests.store.relayed import REMOTE, envelope_of, sealed
from tests.store.writes import (
    NAMESPACE,
    append,
    damage,
    entries,
    log,
    own_client,
    slot,
    texts,
    value,
)
from tests.yjs_bytes import text, update


@pytest.fixture
def folder():
    """A folder in memory: crashes are tested elsewhere."""
    with scratch() as found:
        yield found


@pytest.mark.requirement("P6")
def test_a_batch_makes_one_rev_for_each_slot_and_moves_the_cursor(store, relayed):
    relayed.put(
        sealed(envelope_of(behind(store), more(clock=2), lane="y"), seq=1),
        sealed(envelope_of(NEW, label="notes"), seq=2),
        sealed(envelope_of(more(clock=4)), seq=3),
    )
    report = relayed.give(store)
    row, (entry, _) = slot(store, "plan"), entries(store, "plan")

    assert (report.cursor, report.applied) == (4, 3)
    assert (report.skipped, report.quarantined) == (0, 0)
    assert texts(store) == {"plan": "mine\nx\nx\nx\n", "notes": "new\n"}
    assert (row.rev, row.operation, row.lane) == (2, "sync", "x, y")
    assert (entry.file, entry.rev, entry.lsn - entry.first_lsn) == ("mine\n", 1, 2)
    assert link_row(store, "cursor") == 4
    assert value(store, "SELECT cursor_chain FROM link") == relayed.chains[4]
    assert sync_doc(store)[::4] == (4, 3)
    assert checked(store)


@pytest.mark.parametrize(
    ("first", "chain", "complaint"),
    [
        (1, 2, "item 1 does not follow cursor 1"),
        (3, 2, "item 3 does not follow cursor 1"),
        (2, 1, "the chain differs after item 2"),
    ],
)
def test_items_that_do_not_go_on_from_the_cursor_are_not_taken(
    store, relayed, first, chain, complaint
):
    relayed.put(sealed(envelope_of(behind(store))))
    link = find_link(store, NAMESPACE)
    items = relayed.items(link)
    before = everything(store)
    with pytest.raises(LocalProtocolError) as raised:
        apply_items(store, link, first, items, relayed.chains[chain])

    assert raised.value.message == complaint
    assert everything(store) == before


def test_no_items_change_nothing(store, relayed):
    before = everything(store)
    report = relayed.give(store)

    assert (report.cursor, everything(store)) == (1, before)


def test_a_store_with_other_ids_takes_nothing_for_the_old_ones(store, relayed):
    relayed.put(sealed(envelope_of(behind(store))))
    link = find_link(store, NAMESPACE)
    items = relayed.items(link)
    with store.writing() as transaction:
        transaction.take_new_ids()
    before = everything(store)
    with pytest.raises(LinkChangedError):
        apply_items(store, link, 2, items, relayed.chains[2])

    assert everything(store) == before


@pytest.mark.parametrize("side", ["before", "after"])
def test_the_cursor_moves_with_its_effects_or_not_at_all(store, relayed, side):
    relayed.put(
        sealed(envelope_of(behind(store))),
        sealed(envelope_of(NEW, label="notes"), seq=2),
    )
    before = everything(store)

    def fail():
        raise KeyboardInterrupt

    point = KillPoint("crdtmem.store.progress", "move_cursor", side)
    uninstall = install(point, fail)
    with pytest.raises(KeyboardInterrupt):
        relayed.give(store)
    uninstall()
    after = everything(store)
    report = relayed.give(store)

    assert after == before
    assert (report.applied, texts(store)["plan"]) == (2, "mine\nx\n")
    assert checked(store)


def test_an_own_record_that_comes_by_leaves_the_outbox(store, relayed):
    append(store, "plan", "two")
    relayed.send(store)
    waiting = value(store, "SELECT count(*) FROM outbox")
    report = relayed.give(store)

    assert (waiting, report.skipped, report.applied) == (1, 1, 0)
    assert value(store, "SELECT count(*) FROM outbox") == 0
    assert len(log(store, "plan")) == 2
    assert seen(store)[-1] == (2, record_id(REMOTE, relayed.records[1]), TAG)
    assert sync_doc(store)[0] == 2


@pytest.mark.parametrize("form", [Form.OWN, Form.FULL])
def test_an_own_record_that_comes_by_first_is_acknowledged_by_that(
    store, relayed, form
):
    append(store, "plan", "two")
    append(store, "notes", "three")
    link = find_link(store, NAMESPACE)
    sizes: dict[str, Any] = {"max_update_bytes": 1 << 20, "max_snapshot_bytes": 1 << 20}
    seal(store, link, may_seal_states=True, **sizes)
    with store.reading() as connection:
        records = [
            bytes(record)
            for (record,) in connection.execute(
                "SELECT record FROM outbox ORDER BY replica_seq"
            )
        ]
    relayed.put(*records)
    items = [
        Item(form, record_id=record_id(REMOTE, one))
        if form == Form.OWN
        else Item(form, one)
        for one in records
    ]
    report = relayed.give(store, items=items)

    assert (report.skipped, report.cursor) == (2, 3)
    assert link_row(store, "acked") == 3
    assert value(store, "SELECT acked_id FROM link") == record_id(REMOTE, records[1])
    assert value(store, "SELECT count(*) FROM outbox") == 0
    assert link_row(store, "alarms") == []
    assert sync_doc(store, "notes")[0] == 3


def test_an_own_record_under_ids_that_were_given_up_takes_only_itself_out(
    store, relayed
):
    append(store, "plan", "two")
    link = find_link(store, NAMESPACE)
    old = sealed(envelope_of(b"", label="plan"), seq=2, replica=THIRD)
    damage(
        store,
        "INSERT INTO outbox VALUES (1, 1, 1, 1, x'00', x'00'), (1, 2, 1, 1, ?, ?)",
        record_id(REMOTE, old),
        old,
    )
    relayed.put(old)
    report = relayed.give(store)

    assert (report.skipped, link_row(store, "acked")) == (1, link.acked_seq)
    assert value(store, "SELECT group_concat(replica_seq) FROM outbox") == "1"


def test_an_own_record_of_which_nothing_is_left_here_is_passed_over(store, relayed):
    relayed.put(sealed(envelope_of(b""), replica=THIRD))
    found = record_id(REMOTE, relayed.records[1])
    report = relayed.give(store, items=[Item(Form.OWN, record_id=found)])

    assert (report.skipped, report.cursor) == (1, 2)
    assert seen(store)[-1] == (2, found, NO_DOC_TAG)


def test_a_record_that_was_seen_is_not_applied_again(store, relayed):
    record = sealed(envelope_of(behind(store)))
    relayed.put(record, record)
    first = relayed.give(store, most=1)
    before = slot(store, "plan"), log(store, "plan")
    second = relayed.give(store)

    assert (first.applied, second.applied, second.skipped) == (1, 0, 1)
    assert (slot(store, "plan"), log(store, "plan")) == before
    assert [row[1:] for row in seen(store)[-2:]] == [
        (record_id(REMOTE, record), TAG)
    ] * 2


def test_a_covered_record_is_noted_and_taken_should_it_come_whole(store, relayed):
    record = sealed(envelope_of(behind(store)))
    covered = Item(Form.COVERED, b"", record_id(REMOTE, record), TAG)
    relayed.put(record, record)
    first = relayed.give(store, items=[covered])
    noted = seen(store)[-1]
    second = relayed.give(store)

    assert (first.skipped, first.applied, noted) == (1, 0, (2, b"", TAG))
    assert (second.applied, texts(store)) == (1, {"plan": "mine\nx\n"})


def test_a_redundant_snapshot_ends_what_a_snapshot_would_cover(store, relayed):
    relayed.put(sealed(envelope_of(behind(store))))
    relayed.give(store)
    before = sync_doc(store)
    relayed.put(sealed(b"", seq=2, kind=RecordKind.SNAPSHOT, base=2))
    name = record_id(REMOTE, relayed.records[-1])
    report = relayed.give(store, items=[Item(Form.REDUNDANT, b"", name, TAG)])

    assert (before[3] > 0, before[4]) == (True, 2)
    assert (report.skipped, sync_doc(store)) == (1, (3, 0, len("mine\nx\n"), 0, 0))
    assert seen(store)[-1] == (3, name, TAG)


@pytest.mark.parametrize("kind", [3, 4, 5, 6])
def test_records_of_other_kinds_are_passed_over_and_counted(store, relayed, kind):
    tag = NO_DOC_TAG if kind in (4, 5) else TAG
    base = 1 if kind in (3, 6) else 0
    receipt = encode_envelope(Receipt(1, bytes(32), (), ()))
    relayed.put(sealed(receipt, kind=kind, tag=tag, base=base))
    before = texts(store)
    report = relayed.give(store)

    assert (report.skipped, report.applied, report.cursor) == (1, 0, 2)
    assert (link_row(store, "skipped"), texts(store)) == (1, before)
    assert seen(store)[-1][2] == tag


def test_a_snapshot_is_applied_and_ends_what_a_snapshot_would_cover(
    store, other, relayed
):
    append(other, "plan", "theirs")
    with other.writing() as transaction:
        state = make_state(transaction, 1)
    relayed.put(sealed(state, kind=RecordKind.SNAPSHOT, base=1))
    report = relayed.give(store)

    assert (report.applied, report.quarantined) == (1, 0)
    assert set(slot(store, "plan").file.splitlines()) == {"mine", "theirs"}
    assert sync_doc(store) == (2, 2, len(relayed.records[1]), 0, 0)
    assert checked(store)


def test_a_state_that_covers_nothing_counts_like_a_write(store, other, relayed):
    append(other, "plan", "theirs")
    with other.writing() as transaction:
        state = make_state(transaction, 1)
    before = sync_doc(store)
    relayed.put(sealed(state, kind=RecordKind.SNAPSHOT))
    relayed.give(store)

    size = len(relayed.records[1])
    assert sync_doc(store) == (2, 0, 0, before[3] + size, before[4] + 1)


def test_a_write_elsewhere_under_our_ids_is_an_alarm_and_is_taken(store, relayed):
    me = find_link(store, NAMESPACE).replica_id
    own = own_client(store)
    relayed.put(
        sealed(envelope_of(more("y\n", clock=5, client=own)), replica=me, seq=2),
        sealed(envelope_of(more("z\n", clock=7, client=own)), replica=me, seq=3),
    )
    items = [Item(Form.FULL, record) for record in relayed.records[1:]]
    report = relayed.give(store, items=items)

    assert (report.applied, texts(store)) == (2, {"plan": "mine\ny\nz\n"})
    assert [one["code"] for one in link_row(store, "alarms")] == ["replica-fork"]
    assert me.hex() in link_row(store, "alarms")[0]["detail"]


def test_other_content_under_our_clocks_is_no_repetition(store, relayed):
    me = find_link(store, NAMESPACE).replica_id
    other = update((own_client(store), 0, [text("ours\n", root="content")]))
    relayed.put(sealed(envelope_of(other), replica=me, seq=2))
    report = relayed.give(store, items=[Item(Form.FULL, relayed.records[1])])

    assert (report.quarantined, held(store)) == (1, [(2, "plan", "update-client")])
    assert texts(store) == {"plan": "mine\n"}


def test_the_chain_is_kept_at_some_places_behind_the_cursor(store, relayed):
    names = [n.to_bytes(32) for n in range(1, 2_600)]
    for seq, name in enumerate(names, 2):
        relayed.chains.append(chain_next(relayed.chains[-1], seq, name))
    items = [Item(Form.COVERED, b"", name) for name in names]
    while items:
        relayed.give(store, items=items[:400])
        items = items[400:]
    with store.reading() as connection:
        kept = dict(connection.execute("SELECT seq, chain FROM chain_sample"))

    assert sorted(kept, reverse=True) == kept_samples(range(256, 2_601, 256), 2_600)
    assert all(chain == relayed.chains[seq] for seq, chain in kept.items())


def test_only_the_newest_records_are_remembered_as_seen(store, relayed):
    cursor = SEEN_ROWS + 1
    damage(store, "UPDATE link SET cursor_seq = ?", cursor)
    relayed.records += [b""] * (cursor - 1)
    relayed.chains += [relayed.chains[1]] * (cursor - 1)
    record = sealed(envelope_of(behind(store)))
    relayed.put(record)
    relayed.give(store)

    assert [row[0] for row in seen(store)] == [cursor + 1]
