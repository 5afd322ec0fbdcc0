"""crdtmem.store.links"""

import pytest

from crdtmem.errors import (
    LinkChangedError,
    LinkExistsError,
    LinkNotFoundError,
    UnsentWritesError,
)
from crdtmem.limits import ALARMS_KEPT_MAX
from crdtmem.protocol.records import DocKind, doc_tag
from crdtmem.protocol.relaying import Sample
from crdtmem.store.links import (
    Alarm,
    Link,
    add_alarm,
    add_link,
    clear_alarms,
    find_link,
    link_in,
    links_of,
    remove_link,
)
from crdtmem.store.log import first_unsealed
from tests.exchange import outgoing
from tests.store.joining import REMOTE, Relay, link_to, seal_all, sync
from tests.store.writes import NAMESPACE, append, log, slot, texts, value


def replica(store):
    return value(store, "SELECT replica FROM store")


def marked(store):
    with store.reading() as connection:
        rows = connection.execute(
            "SELECT name, doc_tag FROM sync_doc JOIN doc USING (doc)"
            " WHERE state_needed ORDER BY name"
        )
        return dict(rows)


def test_a_link_is_read_as_it_was_made(store):
    made = add_link(
        store,
        namespace=NAMESPACE,
        remote=REMOTE,
        url="wss://relay.example",
        token_file="/t",
        options={"overlap": "merge"},
    )

    assert made == Link(
        link=1,
        namespace=NAMESPACE,
        remote=REMOTE,
        url="wss://relay.example",
        token_file="/t",
        options={"overlap": "merge"},
        relay_id=b"",
        epoch=b"",
        cursor=Sample(0, b""),
        replica_id=replica(store),
        sealed_seq=0,
        sealed_lsn=0,
        acked_seq=0,
        acked_id=b"",
        rebase_lsn=0,
        skipped=0,
        alarms=(),
    )
    assert find_link(store, NAMESPACE) == made
    assert links_of(store) == [made]
    assert not made.is_rebase_due


def test_a_namespace_has_one_link(store):
    made = link_to(store)
    with pytest.raises(LinkExistsError) as raised:
        link_to(store)

    assert raised.value.code == "link-exists"
    assert "'p' is linked to 'p-remote' at wss://relay.example" in str(raised.value)
    assert links_of(store) == [made]


def test_namespaces_are_linked_apart(store):
    first = link_to(store)
    second = add_link(
        store, namespace="q", remote="r", url="ws://h", token_file="", options={}
    )

    assert links_of(store) == [first, second]
    assert find_link(store, "q") == second
    with store.writing() as transaction:
        assert link_in(transaction, second) == second


def test_a_namespace_that_is_not_linked_has_no_link(store):
    made = link_to(store)
    with pytest.raises(LinkNotFoundError) as raised:
        find_link(store, "q")
    remove_link(store, made)

    assert "'q' is not linked" in str(raised.value)
    with pytest.raises(LinkNotFoundError), store.writing() as transaction:
        link_in(transaction, made)
    with pytest.raises(LinkNotFoundError):
        remove_link(store, made)


def test_all_docs_that_hold_anything_go_up_as_states(store):
    append(store, "plan", "one")
    append(store, "notes", "two")
    with store.writing() as transaction:
        transaction.connection.execute(
            "INSERT INTO doc(namespace, kind, name) VALUES ('p', 1, 'empty'),"
            " ('other', 1, 'elsewhere')"
        )
        transaction.connection.execute("DELETE FROM history")
        transaction.squash(slot(store, "notes").doc)
    link_to(store)

    assert marked(store) == {
        "notes": doc_tag(DocKind.SLOT, "notes"),
        "plan": doc_tag(DocKind.SLOT, "plan"),
    }


def test_from_the_link_on_the_log_keeps_what_the_relay_does_not_have(store):
    append(store, "plan", "before")
    doc = slot(store, "plan").doc
    with store.reading() as connection:
        before = first_unsealed(connection, doc, NAMESPACE)
    link_to(store)
    append(store, "plan", "one", "two")
    with store.reading() as connection:
        linked = first_unsealed(connection, doc, NAMESPACE)
    seal_all(store)
    with store.reading() as connection:
        sealed = first_unsealed(connection, doc, NAMESPACE)
    sync(Relay(), store)
    with store.reading() as connection:
        acknowledged = first_unsealed(connection, doc, NAMESPACE)

    assert (before, linked, sealed, acknowledged) == (None, 1, 1, None)


def test_unsent_writes_are_never_squashed(store):
    link_to(store)
    with store.writing() as transaction:
        transaction.set_history_keep(1)
    append(store, "plan", *(f"line {n}" for n in range(70)))
    unsealed = len(log(store, "plan"))
    seal_all(store)
    append(store, "plan", "one more")
    sealed = len(log(store, "plan"))
    sync(Relay(), store)
    append(store, "plan", "last")

    assert (unsealed, sealed, len(log(store, "plan"))) == (70, 71, 1)


def test_a_store_that_gave_records_away_before_is_linked_under_new_ids(store):
    append(store, "plan", "one")
    outgoing(store, NAMESPACE)
    before = replica(store)
    made = link_to(store)

    assert made.replica_id == replica(store) != before


def test_a_link_that_is_made_anew_has_new_ids(store):
    first = link_to(store)
    append(store, "plan", "one")
    sync(Relay(), store)
    remove_link(store, first)
    second = link_to(store)

    assert second.replica_id not in (first.replica_id, b"")
    assert (second.sealed_seq, second.cursor) == (0, Sample(0, b""))
    assert list(marked(store)) == ["plan"]


def test_a_link_with_unsent_writes_stays_unless_it_is_forced(store):
    made = link_to(store)
    append(store, "plan", "one", "two")
    with pytest.raises(UnsentWritesError) as raised:
        remove_link(store, made)
    before = links_of(store), replica(store)
    remove_link(store, made, force=True)

    assert "2 writes of 'p' have not been sent" in str(raised.value)
    assert before == ([made], made.replica_id)
    assert links_of(store) == []
    assert texts(store) == {"plan": "one\ntwo\n"}


def test_what_waited_to_be_applied_is_kept_in_quarantine(store):
    made = link_to(store)
    record = bytes(20) + b"r" * 16 + bytes(30)
    with store.writing() as transaction:
        transaction.connection.execute(
            "INSERT INTO held VALUES (1, 1, 0, x'', '', ?1, 5),"
            " (1, 2, 0, x'', 'update-clock', ?1, 5)",
            (record,),
        )
    remove_link(store, made)
    with store.reading() as connection:
        rows = connection.execute("SELECT replica, code, content FROM quarantine")

        assert list(rows) == [
            (b"r" * 16, "unlinked", record),
            (b"r" * 16, "update-clock", record),
        ]
    assert value(store, "SELECT count(*) FROM held") == 0
    assert value(store, "SELECT count(*) FROM stream") == 0


def test_work_that_was_begun_under_other_ids_is_refused(store):
    made = link_to(store)
    with store.writing() as transaction:
        transaction.take_new_ids()
    with pytest.raises(LinkChangedError) as raised, store.writing() as transaction:
        link_in(transaction, made)

    assert raised.value.code == "link-changed"
    assert "'p'" in str(raised.value)


def test_an_alarm_stands_once_until_it_is_cleared(store):
    made = link_to(store)
    with store.writing() as transaction:
        at = transaction.now_ms
        for detail in ("a", "a", "b"):
            add_alarm(transaction, made.link, "replica-fork", detail)
    found = find_link(store, NAMESPACE).alarms
    clear_alarms(store)

    assert found == (Alarm("replica-fork", at, "a"), Alarm("replica-fork", at, "b"))
    assert find_link(store, NAMESPACE).alarms == ()


def test_the_newest_alarms_are_kept(store):
    made = link_to(store)
    with store.writing() as transaction:
        for number in range(ALARMS_KEPT_MAX + 1):
            add_alarm(transaction, made.link, "relay-restored", str(number))
    found = find_link(store, NAMESPACE).alarms

    assert [alarm.detail for alarm in found] == [
        str(number) for number in range(1, ALARMS_KEPT_MAX + 1)
    ]
