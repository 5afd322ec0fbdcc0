"""crdtmem.store.rebase"""

from dataclasses import replace

import pytest

from crdtmem.doc.blame import Run, encode_runs
from crdtmem.doc.delta import Splice, decode_delta
from crdtmem.protocol.envelopes import KeyNotice
from crdtmem.protocol.records import RecordKind
from crdtmem.store.doctor import examine
from crdtmem.store.links import find_link
from crdtmem.store.rejoin import finish_rebase, ready_links, start_rebase
from crdtmem.store.states import make_state
from crdtmem.store.store import Store
from crdtmem.store.write import Change
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
from tests.store.relayed import envelope_of, sealed
from tests.store.writes import (
    NAMESPACE,
    append,
    create,
    damage,
    entries,
    log,
    slot,
    texts,
    value,
)


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


def write(store, label, delta, *, lane="a", meta=None):
    with store.writing() as transaction:
        row = transaction.slot(NAMESPACE, label)
        change = Change(operation="edit", lane=lane, delta=delta, meta=meta or {})
        return transaction.write_slot(row, NAMESPACE, label, change)[0]


def insert_first(store, label, line, *, lane="a"):
    return write(store, label, (Splice(0, 0, f"{line}\n"),), lane=lane)


def delete_all(store, label):
    end = len(slot(store, label).file)
    return write(store, label, (Splice(0, end, ""),), meta={"deleted": True})


def problems(store):
    findings = examine(store, namespaces=None, repair=False, deep=True)
    return [found for found in findings if found.status == "fail"]


def settle(relay, *stores):
    for store in stores * 2:
        sync(relay, store)
    files = [texts(store) for store in stores]
    assert all(file == files[0] for file in files)
    assert [problem for store in stores for problem in problems(store)] == []
    return {label: sorted(file.splitlines()) for label, file in files[0].items()}


def test_writes_that_the_twin_has_sent_are_not_written_anew(store, other, relay):
    link_to(store)
    append(store, "plan", "synced")
    sync(relay, store)
    append(store, "plan", "before the copy", "also before")
    data = copy_of(store)
    append(store, "plan", "by the twin")
    sync(relay, store)
    store = put_back(store, data)
    append(store, "plan", "by this one")
    link_to(other)

    assert settle(relay, store, other) == {
        "plan": [
            "also before",
            "before the copy",
            "by the twin",
            "by this one",
            "synced",
        ]
    }
    # They are what they were, under the numbers that the twin gave them.
    rows = {row.lsn: (row.replica_seq, row.place) for row in log(store, "plan")}
    assert (rows[2], rows[3]) == ((2, 0), (2, 1))
    store.close()


def test_writes_that_the_twin_has_sent_within_a_state_are_not_written_anew(
    store, other, relay
):
    create(store, "notes", "first\n")
    append(store, "plan", "é before the copy", "also before")
    data = copy_of(store)
    link_to(store)
    append(store, "plan", "by the twin")
    sync(relay, store)
    store = put_back(store, data)
    append(store, "plan", "by this one")
    append(store, "notes", "by this one")
    link_to(store)
    link_to(other)

    assert settle(relay, store, other) == {
        "notes": ["by this one", "first"],
        "plan": ["also before", "by the twin", "by this one", "é before the copy"],
    }
    store.close()


def test_where_the_twin_has_sent_everything_nothing_is_written_anew(store, relay):
    link_to(store)
    append(store, "plan", "before the copy")
    data = copy_of(store)
    append(store, "plan", "by the twin")
    sync(relay, store)
    store = put_back(store, data)
    rows = len(relay.records)

    assert settle(relay, store) == {"plan": ["before the copy", "by the twin"]}
    assert len(relay.records) == rows
    assert len(log(store, "plan")) == 2
    store.close()


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


def hold(store, label, record):
    """Have a record wait for a doc."""
    with store.writing() as transaction:
        transaction.connection.execute(
            "INSERT INTO held VALUES (1, 99, ?, x'', '', ?, 5)",
            (slot(store, label).doc, record),
        )


def state_of(store, **of):
    """Return a state record of the store's slot, somewhat changed."""
    with store.writing() as transaction:
        envelope = make_state(transaction, slot(store, "plan").doc)
    return sealed(replace(envelope, **of), kind=RecordKind.SNAPSHOT)


@pytest.mark.parametrize(
    "proof",
    [
        lambda store: sealed(b"\x00"),
        lambda store: state_of(store, state=b"\x00"),
        lambda store: state_of(store, blame=b""),
        lambda store: state_of(store, blame=encode_runs([Run(9)])),
        lambda store: state_of(store, blame=encode_runs([Run(9, "b", 5, b"r" * 16)])),
        lambda store: sealed(
            envelope_of(log(store, "plan")[0].content),
            replica=log(store, "plan")[0].replica,
        ),
        lambda store: sealed(
            KeyNotice(1, ""), kind=RecordKind.KEY_NOTICE, tag=bytes(16)
        ),
    ],
    ids=["malformed", "bad state", "no authors", "nobody", "others", "time", "no doc"],
)
def test_what_cannot_be_known_to_be_there_is_written_anew(store, proof):
    link_to(store)
    append(store, "plan", "mine one")
    link = wait_for_rebase(store)
    before = log(store, "plan")
    hold(store, "plan", proof(store))
    finish_rebase(store, link)
    after = log(store, "plan")

    # Rather doubled than lost.
    assert set(slot(store, "plan").file.splitlines()) == {"mine one"}
    assert before[0].replica != after[0].replica
    assert before[0].lsn < after[0].lsn


def test_what_others_have_built_on_stays(store, other, relay):
    link_to(store)
    link_to(other)
    append(store, "plan", "one", "two", "three")
    sync(relay, store)
    sync(relay, other)
    append(other, "plan", "built on three")
    sync(relay, other)
    sync(relay, store)
    append(store, "plan", "four", "five")
    link = wait_for_rebase(store)
    finish_rebase(store, link)
    rows = log(store, "plan")

    assert slot(store, "plan").file == "one\ntwo\nthree\nbuilt on three\nfour\nfive\n"
    assert [row.lsn for row in rows] == [1, 2, 3, 4, 7]
    assert [row.replica_seq for row in rows[:3]] == [1, 1, 1]


def test_changes_of_others_are_kept_as_the_changes_that_they_are_now(
    store, other, relay
):
    link_to(store)
    link_to(other)
    append(store, "plan", "one")
    sync(relay, store)
    sync(relay, other)
    insert_first(store, "plan", "mine, in front")
    first = slot(store, "plan").lsn
    append(other, "plan", "theirs")
    sync(relay, other)
    connect(relay, store)
    read_on(relay, store)
    append(store, "plan", "last")
    link = wait_for_rebase(store, first=first)
    before = log(store, "plan")
    finish_rebase(store, link)
    after = {row.lsn: row for row in log(store, "plan")}
    theirs = next(row for row in before if row.replica != before[0].replica)

    assert slot(store, "plan").file == "mine, in front\none\ntheirs\nlast\n"
    assert decode_delta(theirs.delta)[0].start_chars == 19
    assert decode_delta(after[theirs.lsn].delta)[0].start_chars == 4
    assert first not in after
    assert problems(store) == []


def test_what_was_deleted_and_set_stays_so(store, other, relay):
    link_to(store)
    link_to(other)
    append(store, "plan", "one", "two")
    append(store, "gone", "text")
    sync(relay, store)
    sync(relay, other)
    first = value(store, "SELECT lsn FROM store") + 1
    write(
        store, "plan", (Splice(0, 4, ""),), meta={"description": "new", "pinned": True}
    )
    delete_all(store, "gone")
    link = wait_for_rebase(store, first=first)
    finish_rebase(store, link)
    found = slot(store, "plan")

    assert (found.file, found.description, found.pinned) == ("two\n", "new", 1)
    assert slot(store, "gone").is_deleted
    assert settle(relay, store, other) == {"plan": ["two"], "gone": []}
    assert slot(other, "plan").description == "new"
    assert slot(other, "gone").is_deleted


def test_writes_that_left_nothing_leave_no_record(store):
    link_to(store)
    append(store, "plan", "kept")
    sync(Relay(), store)
    append(store, "plan", "for a moment")
    write(store, "plan", (Splice(5, 18, ""),))
    link = wait_for_rebase(store, first=2)
    finish_rebase(store, link)

    assert [row.lsn for row in log(store, "plan")] == [1]
    assert slot(store, "plan").file == "kept\n"
    assert problems(store) == []


def test_first_texts_stay_and_go_up_as_a_state(store, other, relay):
    link_to(store)
    create(store, "plan", "first\n")
    append(store, "plan", "more")
    link = wait_for_rebase(store)
    finish_rebase(store, link)
    rows = log(store, "plan")
    link_to(other)

    assert [row.is_genesis for row in rows] == [1, 0]
    assert settle(relay, store, other) == {"plan": ["first", "more"]}


def test_kept_texts_can_be_restored_and_older_writes_undone(store, relay):
    link_to(store)
    append(store, "plan", "one")
    append(store, "plan", "two")
    sync(relay, store)
    append(store, "plan", "three")
    append(store, "plan", "four")
    link = wait_for_rebase(store, first=3)
    before = entries(store, "plan")
    finish_rebase(store, link)
    after = entries(store, "plan")
    found = slot(store, "plan")
    with store.writing() as transaction:
        trace = transaction.trace(found, after[-1])

    assert [entry.file for entry in after] == [entry.file for entry in before]
    assert [entry.is_imported for entry in after] == [1, 1, 0, 0]
    assert trace.text() == found.file


def test_the_audit_says_how_many_writes_were_written_anew(store):
    link_to(store)
    append(store, "plan", "one")
    insert_first(store, "plan", "two", lane="b")
    link = wait_for_rebase(store)
    finish_rebase(store, link)
    newest = log(store, "plan")[-1]
    with store.reading() as connection:
        row = connection.execute(
            "SELECT lanes, operation, details, rev_before, rev FROM audit"
            " ORDER BY lsn DESC LIMIT 1"
        ).fetchone()

    assert row == ('["a", "b"]', "sync", '{"rebased": 2}', 2, 2)
    assert (newest.operation, newest.lane) == ("sync", "b")


@pytest.mark.requirement("P8")
@pytest.mark.parametrize(
    ("statement", "code"),
    [
        ("UPDATE log SET content = x'00' WHERE doc = 1", "slot-quarantined"),
        ("UPDATE doc SET state_lsn = 1 WHERE doc = 1", "doc-error"),
        ("DELETE FROM slot WHERE doc = 1", "doc-error"),
    ],
)
def test_a_damaged_doc_stays_as_it_is_and_the_others_go_on(store, statement, code):
    link_to(store)
    append(store, "plan", "bad")
    append(store, "notes", "good")
    seal_all(store)
    damage(store, statement)
    store.docs.clear()
    start_rebase(store, find_link(store, NAMESPACE), alarm="replica-fork")
    finish_rebase(store, ready_links(store)[0])
    seal_all(store)
    blocked = value(store, "SELECT blocked FROM sync_doc WHERE doc = 1")

    assert blocked == code
    assert value(store, "SELECT group_concat(doc) FROM outbox") == "2"
    assert texts(store)["notes"] == "good\n"
