"""crdtmem.store.rejoin"""

from dataclasses import replace
from typing import Any

import pytest

from crdtmem.protocol.messages import NO_RECORD_ID, Joined
from crdtmem.protocol.records import RecordKind, parse_header
from crdtmem.protocol.relaying import Sample
from crdtmem.store.links import Link, add_link, find_link, links_of
from crdtmem.store.outbox import unsent
from crdtmem.store.rejoin import (
    JoinAction,
    JoinCursor,
    JoinOutcome,
    accept_join,
    decide_join,
    join_cursor,
    ready_links,
    samples,
)
from crdtmem.store.store import Store
from tests.store.joining import (
    REMOTE,
    Relay,
    connect,
    copy_of,
    link_to,
    read_on,
    seal_all,
    send,
    sync,
)
from tests.store.writes import NAMESPACE, append, texts, value

RELAY_ID, OTHER_RELAY = b"R" * 16, b"S" * 16
EPOCH, OTHER_EPOCH = b"E" * 16, b"F" * 16
OWN_ID, OTHER_ID = b"i" * 32, b"j" * 32
LINK = Link(
    link=1,
    namespace=NAMESPACE,
    remote=REMOTE,
    url="",
    token_file="",
    options={},
    relay_id=RELAY_ID,
    epoch=EPOCH,
    cursor=Sample(9, bytes(32)),
    replica_id=b"r" * 16,
    sealed_seq=5,
    sealed_lsn=0,
    acked_seq=3,
    acked_id=OWN_ID,
    rebase_lsn=0,
    skipped=0,
    alarms=(),
)
JOINED = Joined(
    namespace=REMOTE,
    ns_no=1,
    scopes=7,
    head=9,
    floor=0,
    resume_seq=9,
    resume_chain=bytes(32),
    own_max=4,
    own_id=OWN_ID,
)


@pytest.fixture
def other(tmp_path):
    opened = Store(tmp_path / "other" / "store.db")
    yield opened
    opened.close()


@pytest.fixture
def third(tmp_path):
    opened = Store(tmp_path / "third" / "store.db")
    yield opened
    opened.close()


def alarms(store):
    return [alarm.code for alarm in find_link(store, NAMESPACE).alarms]


def take_new_ids(store):
    """Have the store notice that it is a copy."""
    with store.writing() as transaction:
        transaction.take_new_ids()


def lines(store, label="plan"):
    return sorted(texts(store)[label].splitlines())


# What a join means.


@pytest.mark.parametrize(
    ("joined", "relay", "action", "needs_new_ids", "loses_cursor", "alarm"),
    [
        ({}, {}, JoinAction.CONTINUE, False, False, ()),
        ({"own_max": 3}, {}, JoinAction.CONTINUE, False, False, ()),
        ({"own_max": 5}, {}, JoinAction.CONTINUE, False, False, ()),
        ({}, {"epoch": OTHER_EPOCH}, JoinAction.CONTINUE, False, False, ()),
        (
            {},
            {"relay_id": OTHER_RELAY},
            JoinAction.REESTABLISH,
            False,
            True,
            ("relay-changed",),
        ),
        (
            {"own_max": 0, "own_id": NO_RECORD_ID},
            {"relay_id": OTHER_RELAY, "is_rewound": True},
            JoinAction.REESTABLISH,
            True,
            True,
            ("relay-changed",),
        ),
        (
            {"own_id": OTHER_ID},
            {},
            JoinAction.REBASE,
            True,
            False,
            ("replica-fork",),
        ),
        (
            {"own_max": 6, "own_id": OTHER_ID},
            {},
            JoinAction.REBASE,
            True,
            False,
            ("store-rolled-back",),
        ),
        (
            {"own_max": 2, "own_id": OTHER_ID},
            {},
            JoinAction.REESTABLISH,
            True,
            False,
            ("relay-forked",),
        ),
        (
            {"own_max": 0, "own_id": NO_RECORD_ID},
            {"epoch": OTHER_EPOCH},
            JoinAction.REESTABLISH,
            True,
            False,
            ("relay-restored",),
        ),
        (
            {},
            {"is_rewound": True},
            JoinAction.REESTABLISH,
            False,
            True,
            ("relay-forked",),
        ),
        (
            {},
            {"is_rewound": True, "epoch": OTHER_EPOCH},
            JoinAction.REESTABLISH,
            False,
            True,
            ("relay-restored",),
        ),
        (
            {"own_max": 6, "own_id": OTHER_ID},
            {"is_rewound": True},
            JoinAction.REBASE,
            True,
            True,
            ("relay-forked", "store-rolled-back"),
        ),
    ],
)
def test_a_join_means(joined, relay, action, needs_new_ids, loses_cursor, alarm):
    said: dict[str, Any] = {
        "relay_id": RELAY_ID,
        "epoch": EPOCH,
        "is_rewound": False,
        "own_id": OWN_ID,
        **relay,
    }
    if joined.get("own_id") == NO_RECORD_ID:
        said["own_id"] = NO_RECORD_ID
    found = decide_join(LINK, replace(JOINED, **joined), **said)

    assert found == JoinOutcome(action, needs_new_ids, loses_cursor, alarm)


def test_the_first_join_finds_nothing_wrong():
    fresh = replace(
        LINK,
        relay_id=b"",
        epoch=b"",
        cursor=Sample(0, b""),
        sealed_seq=0,
        acked_seq=0,
        acked_id=b"",
    )
    joined = replace(JOINED, own_max=0, own_id=NO_RECORD_ID)
    found = decide_join(
        fresh,
        joined,
        relay_id=RELAY_ID,
        epoch=EPOCH,
        is_rewound=False,
        own_id=NO_RECORD_ID,
    )

    assert found == JoinOutcome(JoinAction.CONTINUE, False, False, ())


def test_a_store_joins_with_what_it_has(store):
    link = link_to(store)
    relay = Relay()
    fresh = join_cursor(store, link, relay_id=relay.relay_id)
    append(store, "plan", "one")
    sync(relay, store)
    known = join_cursor(store, link, relay_id=relay.relay_id)
    elsewhere = join_cursor(store, link, relay_id=OTHER_RELAY)

    assert fresh == JoinCursor(REMOTE, bytes(16), 0, bytes(32), 0)
    assert known == JoinCursor(REMOTE, relay.epoch, 1, relay.chain(1), 1)
    assert elsewhere == JoinCursor(REMOTE, relay.epoch, 0, bytes(32), 1)


def test_samples_come_newest_first(store):
    link = link_to(store)
    with store.writing() as transaction:
        for seq in (1, 3, 2):
            transaction.connection.execute(
                "INSERT INTO chain_sample VALUES (1, ?, ?)", (seq, bytes([seq]))
            )

    assert samples(store, link) == [Sample(n, bytes([n])) for n in (3, 2, 1)]


def test_a_join_says_where_the_log_is_read_on_and_who_the_relay_is(store):
    link = link_to(store)
    joined = replace(
        JOINED, resume_seq=7, resume_chain=b"c" * 32, own_max=0, own_id=NO_RECORD_ID
    )
    accept_join(store, link, joined, relay_id=RELAY_ID, epoch=EPOCH, is_rewound=False)
    found = find_link(store, NAMESPACE)

    assert (found.relay_id, found.epoch) == (RELAY_ID, EPOCH)
    assert found.cursor == Sample(7, b"c" * 32)


def test_a_join_acknowledges_what_the_relay_has(store):
    link_to(store)
    append(store, "plan", "one")
    append(store, "notes", "two")
    relay = Relay()
    connect(relay, store)
    seal_all(store)
    send(relay, store, acks=False)
    append(store, "plan", "three")
    seal_all(store)
    outcome = connect(relay, store)
    found = find_link(store, NAMESPACE)

    assert outcome.action is JoinAction.CONTINUE
    assert (found.acked_seq, found.sealed_seq) == (2, 3)
    assert found.acked_id == relay.stream(found.replica_id)[-1]


def test_a_join_is_repeatable(store, other):
    link_to(store)
    link_to(other)
    append(other, "plan", "theirs")
    append(store, "plan", "mine")
    relay = Relay()
    sync(relay, other)
    sync(relay, store)
    relay.restore(1)
    first = connect(relay, store)
    once = find_link(store, NAMESPACE)
    second = connect(relay, store)
    twice = find_link(store, NAMESPACE)

    assert first.action is JoinAction.REESTABLISH
    assert second.action is JoinAction.CONTINUE
    assert twice == replace(once, replica_id=twice.replica_id)


# New ids.


def test_a_store_with_new_ids_begins_its_stream_anew(store, other):
    link_to(store)
    link_to(other)
    append(store, "plan", "acked")
    relay = Relay()
    sync(relay, store)
    append(store, "plan", "sealed")
    seal_all(store)
    append(store, "plan", "unsealed")
    before = find_link(store, NAMESPACE)
    take_new_ids(store)
    link = ready_links(store)[0]
    outbox = unsent(store, link, after=0, records=9, octets=9)
    sync(relay, store)
    sync(relay, other)

    assert link.replica_id == value(store, "SELECT replica FROM store")
    assert (link.sealed_seq, link.acked_seq, link.acked_id) == (0, 0, b"")
    assert (link.cursor, outbox) == (before.cursor, [])
    assert alarms(store) == []
    assert texts(other) == texts(store) == {"plan": "acked\nsealed\nunsealed\n"}


def test_ids_are_brought_to_every_link_once(store):
    link_to(store)
    add_link(store, namespace="q", remote="r", url="ws://h", token_file="", options={})
    take_new_ids(store)
    links = ready_links(store)

    assert {link.replica_id for link in links} == {
        value(store, "SELECT replica FROM store")
    }
    assert ready_links(store) == links == links_of(store)


def test_a_copy_and_its_original_send_the_same_writes_once(store, folder, tmp_path):
    link_to(store)
    append(store, "plan", "unsent at the copy")
    (tmp_path / "copy").mkdir(mode=0o700)
    path = tmp_path / "copy" / "store.db"
    path.write_bytes(copy_of(store))
    path.chmod(0o600)
    copy = Store(path)
    append(copy, "plan", "in the copy")
    append(store, "plan", "in the original")
    relay = Relay()
    for one in (copy, store, copy):
        sync(relay, one)

    assert texts(copy) == texts(store)
    assert lines(store) == ["in the copy", "in the original", "unsent at the copy"]
    assert alarms(copy) == alarms(store) == []
    copy.close()


# Re-establish.


def test_what_a_restored_relay_has_lost_comes_back(store, other, third):
    relay = Relay()
    for one in (store, other):
        link_to(one)
    append(store, "plan", "kept")
    append(store, "notes", "kept")
    sync(relay, store)
    append(store, "plan", "lost")
    append(other, "plan", "lost, too")
    for one in (other, store, other):
        sync(relay, one)
    with store.writing() as transaction:
        transaction.connection.execute(
            "INSERT INTO chain_sample VALUES (1, 2, ?)", (relay.chain(2),)
        )
    relay.restore(2)
    outcome = connect(relay, store)
    sync(relay, store)
    link_to(third)
    sync(relay, third)

    assert outcome == JoinOutcome(
        JoinAction.REESTABLISH, True, True, ("relay-restored",)
    )
    assert alarms(store) == ["relay-restored"]
    assert texts(third) == texts(store)
    assert lines(third) == ["kept", "lost", "lost, too"]
    # What the relay still has is not sent again.
    states = [one for one in relay.records if parse_header(one).kind == 2]
    assert len(states) == 1


def test_what_several_stores_have_comes_back_once(store, other, third):
    relay = Relay()
    for one in (store, other, third):
        link_to(one)
    append(store, "plan", "one")
    append(other, "notes", "two")
    for one in (store, other, third) * 2:
        sync(relay, one)
    relay.restore(0)
    append(third, "plan", "only here")
    for one in (store, other, third) * 2:
        sync(relay, one)
    names = [parse_header(one).doc_tag for one in relay.records]

    # Both by the first that came; what only the last had came on top of it.
    assert len(names) == 3
    assert len(set(names)) == 2
    assert texts(store) == texts(other) == texts(third)
    assert lines(third) == ["one", "only here"]


def test_a_relay_that_never_acknowledged_keeps_the_stores_ids(store, other):
    relay = Relay()
    for one in (store, other):
        link_to(one)
    append(other, "plan", "kept")
    append(other, "notes", "lost")
    sync(relay, other)
    connect(relay, store)
    read_on(relay, store)
    append(store, "plan", "mine")
    seal_all(store)
    before = find_link(store, NAMESPACE)
    relay.restore(1)
    outcome = connect(relay, store)
    found = find_link(store, NAMESPACE)
    sync(relay, store)

    assert outcome.action is JoinAction.REESTABLISH
    assert not outcome.needs_new_ids
    assert (found.replica_id, found.sealed_seq) == (before.replica_id, 0)
    assert unsent(store, found, after=0, records=9, octets=9) == []
    kinds = [parse_header(one).kind for one in relay.records]
    assert kinds == [RecordKind.UPDATE, RecordKind.SNAPSHOT, RecordKind.SNAPSHOT]


def test_a_relay_that_is_another_one_gets_everything(store, other):
    link_to(store)
    append(store, "plan", "one")
    append(store, "notes", "two")
    sync(Relay(), store)
    elsewhere = Relay(relay_id=OTHER_RELAY)
    sync(elsewhere, store)
    link_to(other)
    sync(elsewhere, other)

    assert alarms(store) == ["relay-changed"]
    assert texts(other) == texts(store) == {"plan": "one\n", "notes": "two\n"}


def test_another_relay_before_anything_was_read_loses_nothing(store):
    link_to(store)
    connect(Relay(), store)
    append(store, "plan", "one")
    elsewhere = Relay(relay_id=OTHER_RELAY)
    sync(elsewhere, store)

    assert alarms(store) == ["relay-changed"]
    assert [parse_header(one).kind for one in elsewhere.records] == [2]


def test_all_docs_come_back_where_it_is_not_known_which_were_lost(store, other):
    link_to(store)
    append(store, "plan", "one")
    append(store, "notes", "two")
    relay = Relay()
    sync(relay, store)
    with store.writing() as transaction:
        transaction.connection.execute("DELETE FROM sync_seen WHERE seq = 1")
    relay.restore(0)
    sync(relay, store)
    link_to(other)
    sync(relay, other)

    assert texts(other) == texts(store)
    assert relay.head == 2


def test_what_was_acknowledged_and_had_not_come_by_yet_is_not_lost(store, other):
    link_to(store)
    append(store, "plan", "one")
    relay = Relay()
    connect(relay, store)
    seal_all(store)
    send(relay, store)
    relay.restore(0)
    sync(relay, store)
    link_to(other)
    sync(relay, other)

    assert alarms(store) == ["relay-restored"]
    assert texts(other) == {"plan": "one\n"}


def test_records_that_waited_are_applied_before_the_relay_loses_them(store, other):
    relay = Relay()
    append(other, "plan", "theirs")
    link_to(other)
    sync(relay, other)
    link_to(store)
    sync(relay, store)
    append(other, "plan", "theirs, later")
    take_new_ids(other)
    sync(relay, other)
    append(store, "plan", "mine")
    connect(relay, store)
    read_on(relay, store)
    waits = value(store, "SELECT count(*) FROM held")
    relay.restore(1)
    connect(relay, store)

    assert waits == 1
    assert lines(store) == ["mine", "theirs", "theirs, later"]
    assert value(store, "SELECT count(*) FROM held") == 0
    assert value(store, "SELECT count(*) FROM quarantine") == 0


def test_records_that_could_not_be_applied_are_put_aside(store, other):
    relay = Relay()
    for one in (store, other):
        link_to(one)
    append(other, "plan", "theirs")
    sync(relay, other)
    relay.records[0] = relay.records[0][:-1] + b"x"
    connect(relay, store)
    read_on(relay, store)
    code = value(store, "SELECT code FROM held")
    record = relay.records[0]
    relay.restore(0)
    connect(relay, store)
    with store.reading() as connection:
        rows = list(connection.execute("SELECT code, content FROM quarantine"))

    assert code
    assert rows == [(code, record)]
    assert value(store, "SELECT count(held_from) FROM sync_doc") == 0
