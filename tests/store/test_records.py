"""crdtmem.store.records"""

import json

import pytest

from crdtmem.doc.delta import Splice
from crdtmem.errors import LocalProtocolError, StoreFullError
from crdtmem.protocol.envelopes import (
    KeyNotice,
    Write,
    read_undo_targets,
)
from crdtmem.protocol.records import DocKind, RecordKind, parse_header, record_id
from crdtmem.store.links import find_link
from crdtmem.store.records import (
    SealedDoc,
    durable_writing,
    put_record,
    write_of,
)
from crdtmem.store.store import Store
from crdtmem.store.write import Change
from tests.store.joining import REMOTE, link_to
from tests.store.writes import NAMESPACE, append, create, log, slot, value

FULL, NORMAL = 2, 1


def undo(store, label, *steps):
    """Write something that says it takes steps back."""
    with store.writing() as transaction:
        row = transaction.slot(NAMESPACE, label)
        end = len(row.file)
        change = Change(
            operation="undo",
            lane="a",
            delta=(Splice(end, end, "undone\n"),),
            undoes=frozenset(steps),
        )
        transaction.write_slot(row, NAMESPACE, label, change)


def note_of(store, label):
    row = log(store, label)[-1]
    with store.reading() as connection:
        return write_of(connection, row, NAMESPACE).note


def number(store, label):
    """Number a slot's rows as one record's writes."""
    with store.writing() as transaction:
        for place, row in enumerate(log(store, label)):
            transaction.connection.execute(
                "UPDATE log SET replica_seq = 7, place = ? WHERE lsn = ?",
                (place, row.lsn),
            )


def test_a_row_is_sent_as_it_was_written(store):
    append(store, "plan", "one")
    row = log(store, "plan")[0]
    with store.reading() as connection:
        write = write_of(connection, row, NAMESPACE)

    assert write == Write(
        is_genesis=False,
        counter=0,
        lane="a",
        at_ms=row.at_ms,
        op="append",
        update=row.content,
        note=None,
    )


def test_a_first_text_says_for_which_project_it_was_made(store):
    create(store, "plan", "first\n")
    row = log(store, "plan")[0]
    with store.reading() as connection:
        write = write_of(connection, row, NAMESPACE)

    assert write.is_genesis
    assert json.loads(write.note or "") == {"project": NAMESPACE}


def test_an_undo_names_the_places_of_what_it_takes_back(store):
    append(store, "plan", "one", "two")
    undo(store, "plan", 1, 2)
    number(store, "plan")
    replica = value(store, "SELECT replica FROM store")

    assert read_undo_targets(note_of(store, "plan")) == (
        (replica, 7, 0),
        (replica, 7, 1),
    )


@pytest.mark.parametrize(
    "change",
    [
        "DELETE FROM log WHERE lsn = 1",
        # Of what went up within a state, nobody knows the place.
        "UPDATE log SET place = -1 WHERE lsn = 1",
    ],
)
def test_an_undo_whose_target_nobody_can_name_is_a_plain_write(store, change):
    append(store, "plan", "one", "two")
    undo(store, "plan", 1, 2)
    number(store, "plan")
    with store.writing() as transaction:
        transaction.connection.execute(change)

    assert note_of(store, "plan") is None


def test_an_undo_of_more_than_a_note_can_name_is_a_plain_write(store):
    append(store, "plan", *(str(number) for number in range(40)))
    undo(store, "plan", *range(1, 41))
    number(store, "plan")

    assert note_of(store, "plan") is None


def test_a_sealed_record_lies_in_the_outbox(store):
    link = link_to(store)
    append(store, "plan", "one")
    doc = SealedDoc(slot(store, "plan").doc, DocKind.SLOT, "plan")
    with store.writing() as transaction:
        put_record(
            transaction,
            link,
            1,
            doc,
            KeyNotice(5, "n"),
            kind=RecordKind.UPDATE,
            base=9,
            max_bytes=100,
        )
    with store.reading() as connection:
        rows = list(connection.execute("SELECT * FROM outbox"))
        streams = list(connection.execute("SELECT * FROM stream"))
    record = rows[0][5]
    header = parse_header(record)

    assert rows == [
        (link.link, 1, doc.doc, 1, record_id(REMOTE, record), record),
    ]
    assert (header.replica_id, header.replica_seq, header.base) == (
        link.replica_id,
        1,
        9,
    )
    assert streams == [(NAMESPACE, link.replica_id, 1)]
    assert find_link(store, NAMESPACE).sealed_seq == 1


def test_a_record_longer_than_the_relay_takes_is_not_sealed(store):
    link = link_to(store)
    append(store, "plan", "one")
    doc = SealedDoc(slot(store, "plan").doc, DocKind.SLOT, "plan")
    with (
        pytest.raises(
            LocalProtocolError, match="of 64 bytes exceeds the relay's limit of 63"
        ),
        store.writing() as transaction,
    ):
        put_record(
            transaction,
            link,
            1,
            doc,
            KeyNotice(5, "n"),
            kind=RecordKind.UPDATE,
            base=0,
            max_bytes=63,
        )

    assert value(store, "SELECT count(*) FROM outbox") == 0
    assert find_link(store, NAMESPACE) == link


@pytest.mark.parametrize(("durability", "after"), [("full", FULL), ("normal", NORMAL)])
def test_what_leaves_the_machine_is_synced_in_every_store(folder, durability, after):
    store = Store(folder / "store.db", durability=durability)
    with durable_writing(store) as transaction:
        during = transaction.connection.pragma("synchronous")

    assert during == FULL
    assert value(store, "PRAGMA synchronous") == after
    store.close()


def test_a_failure_leaves_the_stores_durability_as_it_was(folder):
    store = Store(folder / "store.db", durability="normal")
    with pytest.raises(StoreFullError), durable_writing(store):
        raise StoreFullError(path="")

    assert value(store, "PRAGMA synchronous") == NORMAL
    store.close()
