"""crdtmem.store.intake: what is refused, and whatever else comes by."""

import json
from dataclasses import replace

import pytest
from hypothesis import given, settings, strategies as st

from crdtmem.doc.slot_doc import genesis_update
from crdtmem.protocol.messages import Form, Item
from crdtmem.protocol.records import (
    DocKind,
    RecordKind,
    client_id,
    doc_tag,
    genesis_client_id,
    record_id,
)
from crdtmem.store.documents import blame_of, squash
from crdtmem.store.links import find_link
from crdtmem.store.log import append_row
from crdtmem.store.states import make_state
from crdtmem.store.store import Store
from tests.conftest import PROFILE
from tests.scratch import scratch
from tests.store.intakes import (
    NEW,
    TAG,
    THIRD,
    behind,
    checked,
    held,
    held_labels,
    more,
    reloaded,
    retry_held,
    sync_doc,
)
from tests.store.relayed import REMOTE, Log, envelope_of, linked, sealed
from tests.store.writes import (
    FOREIGN,
    FOREIGN_CLIENT,
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


EMOJI = "a🎉b\n"


def forged(store):
    """Return records that must not be applied, each with its code and its doc."""
    good = envelope_of(behind(store))
    early = envelope_of(more(clock=4))
    no_set = replace(good, doc_kind=DocKind.MEMORY_SET)
    own = own_client(store)
    beyond = update(deletes=[(own, [(5, 9)])])
    half = update(deletes=[(FOREIGN_CLIENT, [(1, 1)])])
    counted = envelope_of(behind(store), counter=1)
    emoji = update((FOREIGN_CLIENT, 0, [text(EMOJI, origin=(own, 4))]))
    state = {"kind": RecordKind.SNAPSHOT}
    bad_state = replace_state(store, text_sha256=bytes(32))
    return {
        "an unknown origin": (sealed(early), "update-clock", 1),
        "a delete of the future": (sealed(envelope_of(beyond)), "update-delete", 1),
        "no update": (sealed(envelope_of(b"")), "update-malformed", 1),
        "half an emoji": (sealed(envelope_of(emoji, half)), "doc-error", 1),
        "a counter": (sealed(counted), "update-client", 1),
        "another text": (sealed(bad_state, **state), "text-differs", 1),
        "a bad envelope": (sealed(b"\x01\x01"), "remote-protocol-error", 1),
        "a state for a write": (sealed(early, **state), "remote-protocol-error", 1),
        "a seal": (
            sealed(b"x", alg=1, key_id=1, seal=bytes(48)),
            "sealed",
            1,
        ),
        "another doc's tag": (sealed(good, tag=b"t" * 16), "tag-mismatch", 0),
        "another doc under this tag": (
            sealed(envelope_of(NEW, label="else"), tag=TAG),
            "tag-mismatch",
            1,
        ),
        "no name of a set": (sealed(no_set), "invalid-name", 0),
        "no label": (sealed(envelope_of(NEW, label="No Label")), "invalid-label", 0),
        "no record": (b"\x02" + sealed(good)[1:], "record-malformed", 0),
        "nothing": (b"", "record-malformed", 0),
    }


def replace_state(store, **fields):
    with store.writing() as transaction:
        return replace(make_state(transaction, 1), **fields)


@pytest.mark.requirement("P8")
@pytest.mark.parametrize(
    "fault",
    [
        "an unknown origin", "a delete of the future", "no update", "half an emoji",
        "a counter", "another text", "a bad envelope", "a state for a write", "a seal",
        "another doc's tag", "another doc under this tag", "no name of a set",
        "no label", "no record", "nothing",
    ],
)  # fmt: skip
def test_a_refused_record_waits_and_holds_up_its_doc_alone(store, relayed, fault):
    record, code, is_known = forged(store)[fault]
    other = update((client_id(THIRD, 0), 0, [text("third\n", root="content")]))
    relayed.put(
        sealed(envelope_of(behind(store, "early\n")), seq=8),
        record,
        sealed(envelope_of(other, label="notes"), replica=THIRD),
    )
    if fault in ("half an emoji", "an unknown origin"):
        # They are of another stream than the good one.
        relayed.records[1:2] = []
        relayed.chains[2:] = []
        rest, relayed.records = relayed.records[1:], relayed.records[:1]
        relayed.put(*rest)
    before = entries(store, "plan")
    report = relayed.give(store)
    append(store, "plan", "goes on")
    doc = "plan" if is_known else ""
    count = len(relayed.records)

    assert held(store) == [(count - 1, doc, code)]
    assert held_labels(store) == ({"plan": count - 1} if is_known else {})
    assert (report.cursor, report.quarantined) == (count, 1)
    assert (report.applied, report.skipped) == (count - 2, 0)
    assert texts(store)["notes"] == "third\n"
    early = "early\n" if count == 4 else ""
    assert texts(store)["plan"] == f"mine\n{early}goes on\n"
    assert len(entries(store, "plan")) == len(before) + count - 2
    assert checked(store)


def test_what_comes_behind_a_refused_record_waits_too(store, relayed):
    relayed.put(
        sealed(envelope_of(behind(store)), seq=1),
        sealed(envelope_of(more(clock=9)), seq=2),
        sealed(envelope_of(more(clock=2)), seq=3),
    )
    first = relayed.give(store)
    relayed.put(sealed(envelope_of(more(clock=4)), seq=4))
    second = relayed.give(store)

    assert (first.applied, first.quarantined, second.quarantined) == (1, 2, 1)
    assert held(store) == [
        (3, "plan", "update-clock"),
        (4, "plan", ""),
        (5, "plan", ""),
    ]
    assert texts(store) == {"plan": "mine\nx\n"}
    assert (slot(store, "plan").rev, len(entries(store, "plan"))) == (2, 2)
    assert sync_doc(store)[::4] == (5, 5)


@given(bad=st.integers(0, 9))
@settings(max_examples=10, deadline=None)
def test_a_batch_is_applied_up_to_the_refused_record_wherever_it_is(bad):
    with scratch() as folder:
        store = Store(folder / "store.db", durability="normal")
        linked(store)
        append(store, "plan", "mine")
        relayed = Log()
        relayed.send(store)
        writes = [behind(store)] + [more(clock=2 * n) for n in range(1, 10)]
        writes[bad] = more(clock=99)
        relayed.put(
            *(sealed(envelope_of(one), seq=n) for n, one in enumerate(writes, 1))
        )
        report = relayed.give(store)

        assert (report.applied, report.quarantined) == (bad, 10 - bad)
        assert texts(store) == {"plan": "mine\n" + "x\n" * bad}
        assert slot(store, "plan").rev == 1 + (bad > 0)
        assert checked(store)
        store.close()


def test_records_for_a_damaged_slot_wait_until_it_is_mended(store, relayed):
    digest = log(store, "plan")[0].digest
    damage(store, "UPDATE log SET digest = zeroblob(16)")
    store.docs.clear()
    relayed.put(sealed(envelope_of(behind(store))))
    first = relayed.give(store)
    reason = slot(store, "plan").quarantined
    relayed.put(sealed(envelope_of(more(clock=2)), seq=2))
    relayed.give(store)
    waiting = held(store)
    link = find_link(store, NAMESPACE)
    still = retry_held(store, link, 1)
    damage(store, "UPDATE log SET digest = ?", digest)
    damage(store, "UPDATE slot SET quarantined = NULL")
    left = retry_held(store, link, 1)

    assert (first.quarantined, reason) == (1, "record 1 is damaged")
    assert waiting == [(2, "plan", "slot-quarantined"), (3, "plan", "")]
    assert (still, left, held(store), held_labels(store)) == (2, 0, [], {})
    assert texts(store) == {"plan": "mine\nx\nx\n"}
    assert slot(store, "plan").rev == 2
    # They were counted when they came.
    assert sync_doc(store)[::4] == (3, 3)
    assert checked(store)


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"delta": '[[5, 5, "longer\\n"]]'}, "doc-error"),
        ({"delta": "[]", "digest": bytes(16)}, "slot-quarantined"),
    ],
)
def test_damage_that_a_state_meets_holds_the_doc(store, other, relayed, fields, code):
    append(store, "plan", "two")
    relayed.send(store)
    relayed.give(store)
    # The document is cached: it is the state that has its rows read.
    row = log(store, "plan")[1]._replace(**fields)
    damage(store, "DELETE FROM log WHERE lsn = 2")
    with store.writing() as transaction:
        append_row(transaction.connection, row)
    if "digest" in fields:
        damage(store, "UPDATE log SET digest = zeroblob(16) WHERE lsn = 2")
    append(other, "plan", "theirs")
    with other.writing() as transaction:
        state = make_state(transaction, 1)
    relayed.put(
        sealed(state, kind=RecordKind.SNAPSHOT),
        sealed(envelope_of(NEW, label="notes"), seq=2),
    )
    before = texts(store)
    report = relayed.give(store)

    assert (report.applied, report.quarantined) == (1, 1)
    assert held(store) == [(3, "plan", code)]
    assert texts(store) == {**before, "notes": "new\n"}


def test_a_record_without_a_name_holds_up_the_doc_of_its_tag_once_known(store, relayed):
    tag = doc_tag(DocKind.SLOT, "notes")
    relayed.put(
        sealed(b"\x01", tag=tag),
        sealed(envelope_of(NEW, label="third"), seq=2),
        sealed(envelope_of(NEW, label="notes"), seq=3),
    )
    first = relayed.give(store, most=2)
    early = held(store)
    relayed.give(store)
    waiting = held(store)
    link = find_link(store, NAMESPACE)
    doc = value(store, "SELECT doc FROM doc WHERE name = 'notes'")

    assert (first.quarantined, early) == (1, [(2, "", "remote-protocol-error")])
    assert waiting == [(2, "notes", "remote-protocol-error"), (4, "notes", "")]
    assert held_labels(store) == {"notes": 2}
    assert texts(store) == {"plan": "mine\n", "third": "new\n"}
    assert (retry_held(store, link, doc), held(store)) == (2, waiting)


def test_records_of_no_doc_are_tried_again_on_their_own(store, relayed):
    bad, good = sealed(b"\x01", tag=b"t" * 16), sealed(envelope_of(behind(store)))
    relayed.put(bad, good)
    items = [Item(Form.FULL, bad), Item(Form.COVERED, b"", record_id(REMOTE, good))]
    relayed.give(store, items=items)
    link = find_link(store, NAMESPACE)
    before = retry_held(store, link, 0)
    # As if this version could read it.
    damage(store, "UPDATE held SET record = ?", good)
    after = retry_held(store, link, 0)

    assert (before, after, held(store)) == (1, 0, [])
    assert texts(store) == {"plan": "mine\nx\n"}


@pytest.mark.requirement("P6")
def test_a_first_text_keeps_its_client_id_where_its_project_is_called_otherwise(store):
    linked(store)
    append(store, "notes", "mine")
    relayed = Log()
    first = genesis_client_id("elsewhere", DocKind.SLOT, "plan", "é first\n".encode())
    write = genesis_update(first, "é first\n")
    note = json.dumps({"project": "elsewhere"})
    relayed.put(sealed(envelope_of(write, is_genesis=True, note=note)))
    report = relayed.give(store)
    append(store, "plan", "more")
    before = texts(store)
    reopened = Store(store.path)
    with reopened.writing() as transaction:
        document = transaction.document(slot(reopened, "plan"))
        squash(transaction.connection, 2, transaction.replica, 99)
        runs = blame_of(transaction.connection, 2)
    reopened.close()

    assert (report.applied, document.file) == (1, before["plan"])
    assert (runs[0].lane, runs[0].replica) == ("x", FOREIGN)
    assert checked(store)


@pytest.mark.parametrize(
    "note",
    [
        None, "{}", "no JSON", "[1]", '{"project": 5}', '{"project": "no id"}',
        '{"project": "another"}', "[" * 1_000, '{"project": "\\ud800"}',
    ],
)  # fmt: skip
def test_a_first_text_whose_id_follows_from_no_known_project_is_refused(
    store, relayed, note
):
    first = genesis_client_id("elsewhere", DocKind.SLOT, "notes", b"first\n")
    write = genesis_update(first, "first\n")
    relayed.put(sealed(envelope_of(write, label="notes", is_genesis=True, note=note)))
    relayed.give(store)

    assert held(store) == [(2, "notes", "update-client")]
    assert texts(store) == {"plan": "mine\n"}


@st.composite
def hostile_records(draw):
    """Draw edits of records: which, where, and what stands there then."""
    return draw(
        st.lists(
            st.tuples(
                st.integers(0, 5),
                st.integers(0, 400),
                st.binary(max_size=3),
                st.integers(0, 2),
            ),
            min_size=1,
            max_size=4,
        )
    )


@pytest.mark.requirement("P8")
@given(hostile_records())
@settings(max_examples=20 if PROFILE == "default" else 5_000, deadline=None)
def test_no_record_breaks_the_store_or_holds_up_other_docs(edits):
    with scratch() as folder:
        store, other = (
            Store(folder / name / "store.db", durability="normal") for name in "ab"
        )
        append(other, "plan", "one", "é🎉")
        append(store, "plan", "mine")
        for one in (store, other):
            linked(one)
        relayed = Log()
        relayed.send(store)
        relayed.give(store)
        relayed.give(other)
        relayed.send(other)
        append(other, "plan", "three")
        relayed.send(other)
        with other.writing() as transaction:
            state = make_state(transaction, 1)
        records = [
            *relayed.records[1:],
            sealed(envelope_of(behind(store), more(clock=2))),
            sealed(state, kind=RecordKind.SNAPSHOT, seq=2),
            sealed(envelope_of(more(clock=4), op="undo", note='{"undo": []}'), seq=3),
        ]
        for which, place, data, cut in edits:
            record = bytearray(records[which % len(records)])
            at = place % (len(record) + 1)
            record[at : at + cut] = data
            records[which % len(records)] = bytes(record)
        fresh = Log()
        fresh.put(relayed.records[0], *records)
        write = update((client_id(THIRD, 0), 0, [text("t\n", root="content")]))
        fresh.put(sealed(envelope_of(write, label="notes"), replica=THIRD))
        report = fresh.give(store)
        append(store, "plan", "goes on")

        assert report.cursor == len(fresh.records)
        assert texts(store)["notes"] == "t\n"
        assert "goes on" in texts(store)["plan"]
        reloaded(store)
        store.close()
        other.close()
