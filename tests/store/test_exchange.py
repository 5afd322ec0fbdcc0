"""Records out of one store and into another, as tests.exchange brings them."""

import json

import pytest

from crdtmem.doc.delta import Splice
from crdtmem.errors import RemoteProtocolError
from crdtmem.protocol.envelopes import (
    UpdateEnvelope,
    decode_envelope,
    read_undo_targets,
)
from crdtmem.protocol.records import RecordKind
from crdtmem.store.store import Store
from crdtmem.store.write import Change
from tests.exchange import Record, known_streams, outgoing, receive
from tests.store.writes import (
    FOREIGN,
    FOREIGN_CLIENT,
    NAMESPACE,
    append,
    create,
    entries,
    log,
    quarantined,
    record,
    slot,
    texts,
    value,
)
from tests.yjs_bytes import text, update


@pytest.fixture
def other(tmp_path):
    opened = Store(tmp_path / "other" / "store.db")
    yield opened
    opened.close()


def replica(store):
    return value(store, "SELECT replica FROM store")


def exchange(*stores):
    """Let each of two stores take what the other has; twice, as it may come twice."""
    for target, source in [stores, stores[::-1]] * 2:
        receive(target, NAMESPACE, outgoing(source, NAMESPACE))


def undo_last(store, label):
    """Take back the newest append, as an undo does."""
    with store.writing() as transaction:
        row = transaction.slot(NAMESPACE, label)
        last = log(store, label)[-1]
        start = len(row.file) - len(json.loads(last.delta)[0][2])
        change = Change(
            operation="undo",
            lane="a",
            delta=(Splice(start, len(row.file), ""),),
            undoes=frozenset({last.lsn}),
        )
        transaction.write_slot(row, NAMESPACE, label, change)


def notes(records):
    """Return the targets that each record's write names."""
    found = []
    for one in records:
        envelope = decode_envelope(RecordKind.UPDATE, one.envelope)
        assert isinstance(envelope, UpdateEnvelope)
        found.append(read_undo_targets(envelope.writes[0].note))
    return found


def writes_from(store, label, *lines):
    """Return records of the foreign replica, each appending a line to a new slot."""
    clock = 0
    records = []
    for seq, line in enumerate(lines, 1):
        place = (
            {"origin": (FOREIGN_CLIENT, clock - 1)} if clock else {"root": "content"}
        )
        content = update((FOREIGN_CLIENT, clock, [text(line, **place)]))
        records.append(record(content, seq=seq, label=label))
        clock += len(line)
    return records


def test_records_are_numbered_once_in_log_order(store):
    append(store, "plan", "one")
    append(store, "notes", "two")
    first = outgoing(store, NAMESPACE)
    append(store, "plan", "three")
    second = outgoing(store, NAMESPACE)
    later = outgoing(store, NAMESPACE, after=second[1].origin)

    assert [(one.replica, one.replica_seq, one.origin) for one in second] == [
        (replica(store), number, number) for number in (1, 2, 3)
    ]
    assert second[:2] == first
    assert later == second[2:]
    assert known_streams(store, NAMESPACE) == {replica(store): 3}
    assert known_streams(store, "q") == {}
    assert outgoing(store, "q") == []


@pytest.mark.requirement("P6")
def test_stores_that_have_seen_the_same_records_hold_the_same_text(store, other):
    create(store, "plan", "é\n")
    create(other, "plan", "é\n")
    append(store, "plan", "here", "🎉")
    append(other, "plan", "there")
    append(other, "notes", "other")
    exchange(store, other)
    append(store, "plan", "last")
    exchange(store, other)

    assert texts(store) == texts(other)
    assert sorted(slot(store, "plan").file.splitlines()) == sorted(
        ["é", "here", "there", "🎉", "last"]
    )
    assert known_streams(store, NAMESPACE) == known_streams(other, NAMESPACE)
    for one in (store, other):
        with one.writing() as transaction:
            transaction.document(slot(one, "plan")).check()


def test_a_batch_makes_one_rev_and_one_entry_for_each_slot_that_it_changed(
    store, other
):
    append(store, "plan", "mine")
    append(other, "plan", "1", "2", "3")
    append(other, "notes", "new")
    count = receive(store, NAMESPACE, outgoing(other, NAMESPACE))
    plan, fresh = slot(store, "plan"), slot(store, "notes")
    entry = entries(store, "plan")[0]

    assert count == 4
    assert (plan.rev, plan.operation, plan.lane) == (2, "sync", "a")
    assert (entry.rev, entry.file, entry.operation) == (1, "mine\n", "sync")
    assert (entry.first_lsn, entry.lsn) == (2, 4)
    assert (fresh.rev, entries(store, "notes")) == (0, [])


@pytest.mark.requirement("P7")
def test_a_record_that_came_twice_is_applied_once(store, other):
    append(other, "plan", "one", "two")
    records = outgoing(other, NAMESPACE)
    first = receive(store, NAMESPACE, [*records, records[1], records[0]])
    before = slot(store, "plan"), log(store, "plan"), entries(store, "plan")
    second = receive(store, NAMESPACE, records)

    assert (first, second) == (2, 0)
    assert (slot(store, "plan"), log(store, "plan"), entries(store, "plan")) == before
    assert texts(store) == {"plan": "one\ntwo\n"}


def test_a_batch_with_a_missing_number_is_refused_whole(store):
    append(store, "plan", "mine")
    records = writes_from(store, "notes", "one\n", "two\n", "three\n")
    before = texts(store), value(store, "SELECT lsn FROM store")
    with pytest.raises(RemoteProtocolError) as raised:
        receive(store, NAMESPACE, [records[0], records[2]])
    after = texts(store), value(store, "SELECT lsn FROM store")
    streams = known_streams(store, NAMESPACE)
    receive(store, NAMESPACE, records)

    assert raised.value.detail == "replica-gap"
    assert "record 3 comes before 2" in raised.value.message
    assert after == before
    assert streams == {}
    assert quarantined(store) == []
    assert texts(store)["notes"] == "one\ntwo\nthree\n"


@pytest.mark.parametrize("envelope", [b"", b"\x01", b"\x02\x00", b"\x01\x01\x00"])
def test_a_malformed_envelope_refuses_the_batch_and_changes_nothing(store, envelope):
    append(store, "plan", "mine")
    good = writes_from(store, "notes", "one\n")
    with pytest.raises(RemoteProtocolError):
        receive(store, NAMESPACE, [*good, Record(FOREIGN, 2, envelope, origin=0)])

    assert texts(store) == {"plan": "mine\n"}
    assert known_streams(store, NAMESPACE) == {}


def test_an_undo_names_the_records_that_it_took_back(store):
    append(store, "plan", "one", "two")
    undo_last(store, "plan")
    records = outgoing(store, NAMESPACE)

    assert texts(store) == {"plan": "one\n"}
    assert notes(records) == [None, None, ((replica(store), 2, 0),)]


def test_an_undo_whose_target_is_squashed_is_sent_as_a_plain_write(store):
    append(store, "plan", "one", "two")
    undo_last(store, "plan")
    outgoing(store, NAMESPACE)
    with store.writing() as transaction:
        transaction.connection.execute("DELETE FROM history WHERE rev < 2")
        transaction.squash(1)

    assert notes(outgoing(store, NAMESPACE)) == [None]


def test_an_undo_takes_back_the_same_steps_elsewhere(store, other):
    append(other, "notes", "shifts the steps")
    append(store, "plan", "one", "two")
    undo_last(store, "plan")
    exchange(store, other)
    last = log(other, "plan")[-1]

    assert texts(other)["plan"] == "one\n"
    assert last.undoes == json.dumps([log(other, "plan")[1].lsn])
    # And on from there, to a third store.
    assert notes(outgoing(other, NAMESPACE))[-1] == ((replica(store), 2, 0),)
