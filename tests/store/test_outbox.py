"""crdtmem.store.outbox"""

import pytest

from crdtmem.errors import LinkChangedError, RemoteProtocolError
from crdtmem.limits import (
    SEALED_BYTES,
    SEALED_ROWS_MAX,
    UNSEALED_SCAN_ROWS,
    WRITES_PER_RECORD_MAX,
)
from crdtmem.protocol.envelopes import StateEnvelope, UpdateEnvelope, decode_envelope
from crdtmem.protocol.records import RecordKind, parse_header, record_id
from crdtmem.store import outbox
from crdtmem.store.compaction import seal_snapshot
from crdtmem.store.links import UnsentCounts, find_link
from crdtmem.store.outbox import (
    acknowledge,
    refuse,
    seal,
    unsent,
    unsent_counts,
)
from crdtmem.store.store import Store
from tests.store.joining import (
    REMOTE,
    Relay,
    connect,
    link_to,
    read_on,
    seal_all,
    send,
    sync,
)
from tests.store.writes import (
    NAMESPACE,
    append,
    create,
    damage,
    log,
    slot,
    texts,
    value,
)

LIMITS = {"max_update_bytes": 1 << 22, "max_snapshot_bytes": 1 << 24}


@pytest.fixture
def link(store):
    return link_to(store)


@pytest.fixture
def other(tmp_path):
    opened = Store(tmp_path / "other" / "store.db")
    yield opened
    opened.close()


def sealed(store, after=0):
    """Return the records that wait, each as number, label and lines or state."""
    link = find_link(store, NAMESPACE)
    found: list[tuple[int, str, int | str]] = []
    for one in unsent(store, link, after=after, records=9_999, octets=1 << 40):
        header = parse_header(one.record)
        assert header.replica_seq == one.replica_seq
        envelope = decode_envelope(header.kind, one.record[header.payload_start :])
        if isinstance(envelope, StateEnvelope):
            found.append((one.replica_seq, envelope.name, "state"))
        else:
            assert isinstance(envelope, UpdateEnvelope)
            found.append((one.replica_seq, envelope.name, len(envelope.writes)))
    return found


def doc_row(store, label):
    with store.reading() as connection:
        rows = connection.execute(
            "SELECT state_needed, blocked, live_records, live_bytes, snap_size"
            " FROM sync_doc WHERE doc = ?",
            (slot(store, label).doc,),
        )
        return next(rows, None)


def places(store, label):
    return [(row.replica_seq, row.place) for row in log(store, label)]


def test_consecutive_writes_of_a_doc_go_into_one_record(store, link):
    append(store, "plan", "one")
    append(store, "notes", "two")
    append(store, "plan", "three")
    count = seal_all(store)

    assert count == 2
    assert sealed(store) == [(1, "plan", 2), (2, "notes", 1)]
    assert places(store, "plan") == [(1, 0), (1, 1)]
    assert places(store, "notes") == [(2, 0)]
    assert find_link(store, NAMESPACE).sealed_seq == 2


def test_what_is_sealed_is_not_sealed_again(store, link):
    append(store, "plan", "one")
    seal_all(store)
    before = unsent(store, link, after=0, records=9, octets=1 << 20)
    append(store, "plan", "two")
    seal_all(store)
    after = unsent(store, link, after=0, records=9, octets=1 << 20)

    assert seal_all(store) == 0
    assert after[:1] == before
    assert sealed(store) == [(1, "plan", 1), (2, "plan", 1)]


def test_a_record_has_a_bounded_number_of_writes(store, link, monkeypatch):
    monkeypatch.setattr(outbox, "WRITES_PER_RECORD_MAX", 2)
    append(store, "plan", "1", "2", "3")
    append(store, "notes", "4")
    append(store, "plan", "5")
    seal_all(store)

    assert WRITES_PER_RECORD_MAX == 256
    assert sealed(store) == [(1, "plan", 2), (2, "plan", 2), (3, "notes", 1)]


def test_a_record_has_a_bounded_size_and_a_longer_write_goes_alone(store, link):
    append(store, "plan", "short", "x" * SEALED_BYTES, "short", "again")
    seal_all(store)

    assert sealed(store) == [(1, "plan", 1), (2, "plan", 1), (3, "plan", 2)]


def test_one_call_seals_a_bounded_part_of_the_log(store, link, monkeypatch):
    monkeypatch.setattr(outbox, "SEALED_ROWS_MAX", 2)
    append(store, "plan", "1", "2", "3")
    counts = [seal(store, link, may_seal_states=True, **LIMITS) for _ in range(3)]

    assert SEALED_ROWS_MAX == 4_096
    assert counts == [1, 1, 0]
    assert sealed(store) == [(1, "plan", 2), (2, "plan", 1)]


def test_the_base_of_an_update_is_what_was_applied_here(store, link, other):
    link_to(other)
    append(other, "notes", "theirs")
    relay = Relay()
    sync(relay, other)
    connect(relay, store)
    read_on(relay, store)
    append(store, "plan", "mine")
    seal_all(store)
    record = unsent(store, find_link(store, NAMESPACE), after=0, records=9, octets=9)

    assert parse_header(record[0].record).base == 1


def test_what_others_wrote_is_not_sealed(store, link, other):
    link_to(other)
    append(other, "plan", "theirs")
    relay = Relay()
    sync(relay, other)
    sync(relay, store)

    assert texts(store) == {"plan": "theirs\n"}
    assert seal_all(store) == 0


def test_other_namespaces_are_not_sealed(store, link):
    append(store, "plan", "one")
    with store.writing() as transaction:
        transaction.connection.execute("UPDATE doc SET namespace = 'q'")

    assert seal_all(store) == 0


def test_a_long_stretch_without_own_writes_is_looked_through_once(store, link):
    with store.writing() as transaction:
        transaction.connection.execute(
            "UPDATE store SET lsn = ?", (UNSEALED_SCAN_ROWS,)
        )
    seal_all(store)
    before = find_link(store, NAMESPACE).sealed_lsn
    with store.writing() as transaction:
        transaction.connection.execute(
            "UPDATE store SET lsn = ?", (UNSEALED_SCAN_ROWS + 1,)
        )
    seal_all(store)

    assert (before, find_link(store, NAMESPACE).sealed_lsn) == (
        0,
        UNSEALED_SCAN_ROWS + 1,
    )


def test_a_doc_from_before_the_link_goes_up_as_a_state(store):
    append(store, "plan", "one", "two")
    create(store, "notes", "first\n")
    link = link_to(store)
    append(store, "plan", "three")
    too_early = seal(store, link, may_seal_states=False, **LIMITS)
    nothing = sealed(store)
    seal_all(store)
    append(store, "plan", "four")
    seal_all(store)

    assert (too_early, nothing) == (0, [])
    assert sealed(store) == [
        (1, "plan", "state"),
        (2, "notes", "state"),
        (3, "plan", 1),
    ]
    assert places(store, "plan") == [(1, -1), (1, -1), (1, -1), (3, 0)]
    record = unsent(store, link, after=0, records=1, octets=1)[0].record
    assert (parse_header(record).kind, parse_header(record).base) == (2, 0)


def test_no_update_is_sealed_while_a_state_is_due(store):
    append(store, "notes", "old")
    link = link_to(store)
    append(store, "plan", "new")
    first = seal(store, link, may_seal_states=True, **LIMITS)
    states = sealed(store)
    seal_all(store)

    assert first == 1
    assert states == [(1, "notes", "state")]
    assert sealed(store) == [*states, (2, "plan", 1)]


@pytest.mark.parametrize(
    ("limit", "value"), [("SEALED_STATES_BYTES", 300), ("SEALED_STATES_MAX", 1)]
)
def test_one_call_seals_a_bounded_part_of_the_states(store, monkeypatch, limit, value):
    for label in ("plan", "notes", "other"):
        append(store, label, "x" * 100)
    link = link_to(store)
    monkeypatch.setattr(outbox, limit, value)
    counts = [seal(store, link, may_seal_states=True, **LIMITS) for _ in range(3)]

    assert counts == [1, 1, 1]


def test_writes_under_ids_that_were_given_up_go_up_as_a_state(store, link):
    append(store, "plan", "old ids")
    append(store, "notes", "old ids")
    seal_all(store)
    relay = Relay()
    sync(relay, store)
    append(store, "plan", "still old ids")
    with store.writing() as transaction:
        transaction.take_new_ids()
    append(store, "plan", "new ids")
    append(store, "notes", "new ids")
    sync(relay, store)

    kinds = [parse_header(one).kind for one in relay.records]
    assert kinds == [RecordKind.UPDATE] * 2 + [RecordKind.SNAPSHOT, RecordKind.UPDATE]


def test_a_doc_over_a_limit_of_the_relay_is_blocked_and_the_others_go_on(store):
    append(store, "plan", "x" * 2_000)
    append(store, "notes", "short")
    link = link_to(store)
    append(store, "wide", "x" * 2_000)
    append(store, "more", "short")
    small = {"max_update_bytes": 1_500, "max_snapshot_bytes": 1_500}
    while seal(store, link, may_seal_states=True, **small):
        pass

    assert sealed(store) == [(1, "notes", "state"), (2, "more", 1)]
    assert doc_row(store, "plan")[:2] == (1, "record-too-large")
    assert doc_row(store, "wide")[:2] == (0, "record-too-large")
    assert places(store, "wide") == [(None, None)]


def test_a_blocked_doc_is_tried_again_after_the_next_join(store, link):
    append(store, "wide", "x" * 2_000)
    seal(store, link, may_seal_states=True, **{**LIMITS, "max_update_bytes": 1_500})
    append(store, "wide", "waits behind it")
    waits = seal_all(store)
    connect(Relay(), store)
    seal_all(store)

    assert waits == 0
    assert sealed(store) == [(1, "wide", 2)]


def test_later_writes_of_a_blocked_doc_wait_with_it(store, link):
    append(store, "wide", "short", "x" * 4_000, "short again")
    small = {"max_update_bytes": 2_000, "max_snapshot_bytes": 2_000}
    count = seal(store, link, may_seal_states=True, **small)

    assert count == 1
    assert sealed(store) == [(1, "wide", 1)]
    assert places(store, "wide") == [(1, 0), (None, None), (None, None)]


@pytest.mark.requirement("P8")
def test_a_damaged_row_blocks_its_doc_alone(store, link):
    append(store, "plan", "bad")
    append(store, "notes", "good")
    damage(store, "UPDATE log SET content = x'00' WHERE lsn = 1")
    seal_all(store)

    assert sealed(store) == [(1, "notes", 1)]
    assert doc_row(store, "plan")[1] == "doc-error"


@pytest.mark.requirement("P8")
def test_a_doc_that_cannot_be_loaded_blocks_no_other(store):
    append(store, "plan", "bad")
    append(store, "notes", "good")
    link_to(store)
    damage(store, "UPDATE log SET content = x'00' WHERE lsn = 1")
    store.docs.clear()
    seal_all(store)

    assert sealed(store) == [(1, "notes", "state")]
    assert doc_row(store, "plan")[:2] == (1, "slot-quarantined")
    assert slot(store, "plan").quarantined is not None


def test_what_is_sent_keeps_to_the_window(store, link):
    append(store, "plan", "x" * 100)
    append(store, "notes", "y" * 100)
    append(store, "other", "z" * 100)
    seal_all(store)

    def numbers(**of):
        window = {"after": 0, "records": 9, "octets": 1 << 20, **of}
        return [one.replica_seq for one in unsent(store, link, **window)]

    assert numbers() == [1, 2, 3]
    assert numbers(after=1) == [2, 3]
    assert numbers(records=2) == [1, 2]
    assert numbers(octets=10) == [1]
    assert numbers(after=3) == []


def test_an_acknowledgement_takes_all_up_to_it_off_the_outbox(store, link):
    for label in ("plan", "notes", "other"):
        append(store, label, "x")
    seal_all(store)
    records = [
        one.record for one in unsent(store, link, after=0, records=9, octets=9999)
    ]
    acknowledge(store, link, 2, 2, bytes(32))
    acknowledge(store, link, 1, 1, bytes(32))
    found = find_link(store, NAMESPACE)

    assert sealed(store) == [(3, "other", 1)]
    assert (found.acked_seq, found.acked_id) == (2, record_id(REMOTE, records[1]))
    assert doc_row(store, "plan")[2:4] == (1, len(records[0]))
    # They stay by name until they have come by.
    assert value(store, "SELECT count(*) FROM outbox") == 3


def test_what_has_come_by_already_is_forgotten_with_its_acknowledgement(store, link):
    append(store, "plan", "x")
    seal_all(store)
    relay = Relay()
    connect(relay, store)
    send(relay, store, acks=False)
    read_on(relay, store)
    with store.writing() as transaction:
        # As if it had not been known then.
        transaction.connection.execute(
            "INSERT INTO outbox VALUES (1, 1, 1, 1, x'', NULL)"
        )
        transaction.connection.execute("UPDATE link SET acked_seq = 0")
    acknowledge(store, link, 1, 1, relay.chain(1))

    assert value(store, "SELECT count(*) FROM outbox") == 0


def test_an_acknowledgement_of_what_was_never_sealed_is_refused(store, link):
    append(store, "plan", "x")
    seal_all(store)
    with pytest.raises(RemoteProtocolError) as raised:
        acknowledge(store, link, 2, 2, bytes(32))

    assert raised.value.detail == "bad-value"
    assert "record 2 is acknowledged of 1" in str(raised.value)
    assert sealed(store) == [(1, "plan", 1)]


def test_a_refused_record_blocks_its_doc_and_the_rest_is_sealed_anew(store, link):
    for label in ("plan", "notes", "other"):
        append(store, label, "x")
    seal_all(store)
    acknowledge(store, link, 1, 1, bytes(32))
    refuse(store, link, 2, "record-malformed")
    between = sealed(store), find_link(store, NAMESPACE).sealed_seq
    seal_all(store)
    refuse(store, link, 3, "record-malformed")

    assert between == ([], 1)
    assert sealed(store) == [(2, "other", 1)]
    assert doc_row(store, "notes")[1] == "record-malformed"
    assert places(store, "notes") == [(None, None)]


def test_a_refused_state_is_due_still(store):
    append(store, "plan", "x")
    append(store, "notes", "y")
    link = link_to(store)
    seal_all(store)
    refuse(store, link, 1, "forbidden")
    seal_all(store)

    assert sealed(store) == [(1, "notes", "state")]
    assert doc_row(store, "plan")[:2] == (1, "forbidden")
    assert places(store, "plan") == [(None, None)]


def test_a_refused_snapshot_is_dropped_and_blocks_nothing(store, link):
    relay = Relay()
    append(store, "plan", "x")
    sync(relay, store)
    made = seal_snapshot(
        store, link, slot(store, "plan").doc, max_snapshot_bytes=1 << 24
    )
    append(store, "plan", "y")
    seal_all(store)
    refuse(store, link, 2, "snapshot-stale")
    seal_all(store)

    assert made
    assert sealed(store) == [(2, "plan", 1)]
    assert doc_row(store, "plan") == (0, "", 0, 0, 0)


def test_an_acknowledged_snapshot_begins_the_count_anew(store, link):
    relay = Relay()
    append(store, "plan", "x")
    sync(relay, store)
    before = doc_row(store, "plan")
    seal_snapshot(store, link, slot(store, "plan").doc, max_snapshot_bytes=1 << 24)
    size = len(unsent(store, link, after=1, records=1, octets=1)[0].record)
    send(relay, store)

    assert before[2:] == (1, len(relay.records[0]), 0)
    assert doc_row(store, "plan")[2:] == (0, 0, size)


def test_nothing_is_done_for_a_link_whose_ids_were_given_up(store, link):
    append(store, "plan", "x")
    seal_all(store)
    with store.writing() as transaction:
        transaction.take_new_ids()
    calls = [
        lambda: seal(store, link, may_seal_states=True, **LIMITS),
        lambda: unsent(store, link, after=0, records=1, octets=1),
        lambda: acknowledge(store, link, 1, 1, bytes(32)),
        lambda: refuse(store, link, 1, "forbidden"),
    ]
    for call in calls:
        with pytest.raises(LinkChangedError):
            call()

    assert value(store, "SELECT record IS NOT NULL FROM outbox") == 1


def test_what_is_unsent_is_counted_live(store):
    append(store, "plan", "old")
    link = link_to(store)
    at = log(store, "plan")[0].at_ms
    size = len(log(store, "plan")[0].content)
    unsealed = unsent_counts(store, link)
    seal_all(store)
    state = unsent_counts(store, find_link(store, NAMESPACE))
    relay = Relay()
    sync(relay, store)
    nothing = unsent_counts(store, find_link(store, NAMESPACE))
    append(store, "plan", "new", "newer")
    seal_all(store)
    rows = log(store, "plan")[1:]
    updates = unsent_counts(store, find_link(store, NAMESPACE))

    assert unsealed == UnsentCounts(1, size, at)
    assert state == UnsentCounts(1, len(relay.records[0]), None)
    assert nothing == UnsentCounts(0, 0, None)
    assert updates == UnsentCounts(
        2, sum(len(row.content) for row in rows), rows[0].at_ms
    )


def test_writes_of_a_blocked_doc_count_as_unsent(store, link):
    """Those before the place up to which the log has been sealed, and those behind."""
    append(store, "wide", "x" * 2_000)
    append(store, "plan", "new")
    seal_all(store, max_update_bytes=1_500)
    send(Relay(), store)
    before = unsent_counts(store, find_link(store, NAMESPACE))
    append(store, "wide", "newer")
    rows = log(store, "wide")
    sizes = [len(row.content) for row in rows]

    assert find_link(store, NAMESPACE).sealed_lsn > rows[0].lsn
    assert before == UnsentCounts(1, sizes[0], rows[0].at_ms)
    assert unsent_counts(store, find_link(store, NAMESPACE)) == UnsentCounts(
        2, sum(sizes), rows[0].at_ms
    )


def test_a_state_that_is_due_counts_as_unsent(store):
    append(store, "plan", "old")
    with store.writing() as transaction:
        transaction.connection.execute("DELETE FROM history")
        transaction.squash(slot(store, "plan").doc)
    link = link_to(store)

    assert unsent_counts(store, link) == UnsentCounts(1, 0, None)


@pytest.mark.requirement("P7")
def test_a_record_that_is_sent_twice_is_stored_once(store, link, other):
    link_to(other)
    append(store, "plan", "one", "two")
    relay = Relay()
    connect(relay, store)
    seal_all(store)
    send(relay, store, acks=False)
    send(relay, store)
    sync(relay, other)

    assert relay.head == 1
    assert texts(other) == {"plan": "one\ntwo\n"}
