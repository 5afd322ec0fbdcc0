"""crdtmem.store.condensed"""

import json
from dataclasses import replace

import pytest
from hypothesis import given, strategies as st

from crdtmem.doc.delta import Splice
from crdtmem.doc.rebase import merge_delta
from crdtmem.doc.trace import Trace
from crdtmem.doc.undo import undo_delta
from crdtmem.limits import NOTE_BYTES
from crdtmem.protocol.envelopes import UpdateEnvelope, decode_envelope
from crdtmem.protocol.records import RecordKind
from crdtmem.store.archives import ArchivePart, read_archive, save_archive
from crdtmem.store.condensed import (
    PassNote,
    condense_note,
    mark_undone_passes,
    note_duplicates,
    parts_of_pass,
    read_condense_note,
)
from crdtmem.store.doc_inbox import Incoming
from crdtmem.store.doctor import examine
from crdtmem.store.events import events_of
from crdtmem.store.inbox import Inbox
from crdtmem.store.log import log_of
from crdtmem.store.passes import PassRow, add_pass, find_pass
from crdtmem.store.pins import find_pin, make_pin
from crdtmem.store.states import make_state
from crdtmem.store.store import Store
from crdtmem.store.write import Change
from tests.exchange import outgoing, receive
from tests.store.relayed import Log, linked
from tests.store.writes import (
    NAMESPACE,
    append,
    create,
    damage,
    entries,
    log,
    quarantined,
    slot,
    texts,
    value,
)

ONE, OTHER, THIRD, NEXT = (f"cp_{letter * 16}" for letter in "abcd")
FILE = "# plan\n## a\none\n## b\ntwo\n## c\nthree\n"
SUMMARY = "# plan\n## Condensed history\nshort\n## c\nthree\n"
BRIEF = "# plan\n## Condensed history\nbrief\n## b\ntwo\n## c\nthree\n"
LONG = "# plan\n## Condensed history\nlong\n"


@pytest.fixture
def third(folder):
    opened = Store(folder / "third" / "store.db", clock_ms=lambda: 90)
    yield opened
    opened.close()


@pytest.fixture
def filled(store, other):
    """Two stores that have one text."""
    for each in (store, other):
        create(each, "plan", FILE)
    exchange(store, other)


def exchange(*stores):
    """Bring each store's records to the others."""
    for source in stores:
        for target in stores:
            if target is not source:
                receive(target, NAMESPACE, outgoing(source, NAMESPACE))


def condense(store, pass_id, file=SUMMARY, *, after=None, note=None, base=FILE):
    """Rewrite a slot as the commit of a pass does it, and note the pass."""
    with store.writing() as transaction:
        row = transaction.slot(NAMESPACE, "plan")
        trace = Trace(base)
        trace.step(1, (Splice(len(base), len(base), row.file[len(base) :]),))
        change = Change(
            operation="condense",
            lane="a",
            delta=merge_delta(trace, base, file),
            note=note or condense_note(pass_id, after),
        )
        row, _ = transaction.write_slot(row, NAMESPACE, "plan", change)
        parts = [ArchivePart("evicted", "## a", "## a\none\n")]
        archive = save_archive(transaction.connection, row.doc, parts, 7)
        if note is None:
            add_pass(
                transaction.connection,
                pass_row(pass_id, row, after=after, state="committed", archive=archive),
            )
            note_duplicates(transaction.connection, pass_id, 7)


def pass_row(pass_id, slot_row, **of):
    plain = PassRow(
        number=0,
        pass_id=pass_id,
        doc=slot_row.doc,
        namespace=NAMESPACE,
        label="plan",
        lane="a",
        summariser="",
        state="open",
        reason="",
        after=None,
        is_remote=0,
        base_rev=1,
        base_hash="",
        pin=None,
        archive=b"",
        settings="{}",
        reply=None,
        result=None,
        lsn=slot_row.lsn,
        begun_ms=1,
        expires_ms=2,
        ended_ms=None,
    )
    return plain._replace(**of)


def found(store, pass_id):
    with store.reading() as connection:
        return find_pass(connection, pass_id)


def parts(store, pass_id):
    with store.reading() as connection:
        row = find_pass(connection, pass_id)
        assert row is not None
        return parts_of_pass(connection, row)


def archived(store, pass_id):
    return "".join(part.text for part in parts(store, pass_id))


def states(store, *pass_ids):
    return [(found(store, one).state, found(store, one).reason) for one in pass_ids]


def duplicates(store):
    with store.reading() as connection:
        return [
            (event.namespace, event.label, json.loads(event.details))
            for event in events_of(connection, kinds=["condense-duplicate"])
        ]


def is_well(store):
    return {
        one.status for one in examine(store, namespaces=None, repair=False, deep=True)
    } <= {"ok"}


@pytest.mark.parametrize("after", [None, OTHER])
def test_the_note_of_a_pass_says_which_it_is_and_behind_which(after):
    note = condense_note(ONE, after)

    assert read_condense_note("condense", note) == PassNote(ONE, after)


@pytest.mark.parametrize(
    "note",
    [
        None,
        "",
        "{",
        "[" * 1000,
        "1" * 1000,
        "null",
        "[]",
        "{}",
        json.dumps({"pass": ONE}),
        json.dumps({"after": None}),
        json.dumps({"pass": None, "after": None}),
        json.dumps({"pass": [ONE], "after": None}),
        json.dumps({"pass": ONE.upper(), "after": None}),
        json.dumps({"pass": f"{ONE}a", "after": None}),
        json.dumps({"pass": f"{ONE}\n", "after": None}),
        json.dumps({"pass": ONE[:-1], "after": None}),
        json.dumps({"pass": ONE, "after": "x"}),
        json.dumps({"pass": ONE, "after": 1}),
        json.dumps({"pass": ONE, "after": {"pass": OTHER}}),
        json.dumps({"pass": ONE, "after": ONE}),
        json.dumps({"pass": ONE, "after": None, "x": "y" * NOTE_BYTES}),
        '{"pass": "\udc80", "after": null}',
    ],
)
def test_a_note_that_names_no_pass_is_none(note):
    assert read_condense_note("condense", note) is None


def test_a_note_counts_on_the_record_of_a_pass_alone():
    assert read_condense_note("edit", condense_note(ONE, None)) is None


@given(st.text(max_size=80) | st.binary(max_size=80).map(lambda b: b.decode("latin-1")))
def test_no_note_is_an_error(note):
    assert read_condense_note("condense", note) is None


@pytest.mark.requirement("condense-24")
@pytest.mark.usefixtures("filled")
def test_what_a_pass_removed_is_found_by_its_id_in_another_store(store, other):
    condense(store, ONE, after=NEXT)

    exchange(store, other)

    assert texts(other) == texts(store) == {"plan": SUMMARY}
    taken = found(other, ONE)
    assert taken == pass_row(
        ONE,
        slot(other, "plan"),
        number=1,
        state="committed",
        reason="condensed",
        after=NEXT,
        is_remote=1,
        base_rev=0,
        archive=taken.archive,
        begun_ms=50,
        expires_ms=50,
        ended_ms=50,
    )
    assert parts(other, ONE) == [
        ArchivePart("evicted", "## a", "## a\none\n"),
        ArchivePart("evicted", "## b", "## b\ntwo\n"),
    ]
    assert duplicates(other) == []


@pytest.mark.parametrize(
    "heading", ["## Condensed history", "##\t🗜 Condensed history "]
)
def test_what_was_condensed_before_is_told_apart(store, other, heading):
    file = f"intro\nmore\n## a\none\n{heading}\nold\nolder\n## b\ntwo\n"
    for each in (store, other):
        create(each, "plan", file)
    exchange(store, other)

    condense(store, ONE, f"more\n{heading}\nnew\n## b\ntwo\n", base=file)
    exchange(store, other)

    assert parts(other, ONE) == [
        ArchivePart("evicted", "", "intro\n"),
        ArchivePart("evicted", "## a", "## a\none\n"),
        ArchivePart("condensed", heading.rstrip(), "old\nolder\n"),
    ]


@pytest.mark.usefixtures("filled")
def test_the_note_of_a_pass_goes_on_to_a_third_store(store, other, third):
    condense(store, ONE)
    exchange(store, other)
    assert log(other, "plan")[-1].note == condense_note(ONE, None)

    receive(third, NAMESPACE, outgoing(other, NAMESPACE))

    assert archived(third, ONE) == archived(other, ONE) != ""
    assert is_well(other)
    assert is_well(third)


@pytest.mark.usefixtures("filled")
@pytest.mark.parametrize("note", ['{"pass": "cp_x", "after": null}', '{"undo": 1}'])
def test_a_note_that_cannot_be_read_makes_an_ordinary_write(store, other, note):
    condense(store, ONE, note=note)

    exchange(store, other)

    assert texts(other) == {"plan": SUMMARY}
    assert log(other, "plan")[-1].note is None
    assert found(other, ONE) is None


def test_a_pass_comes_through_a_relay_with_its_note(store, other):
    relay = Log()
    for each in (store, other):
        linked(each)
        create(each, "plan", FILE)
        relay.send(each)
        relay.give(each)
    relay.give(store)
    append(store, "plan", "four")
    condense(store, ONE)
    append(store, "plan", "five")
    relay.send(store)

    report = relay.give(other)

    assert report.quarantined == 0
    assert texts(other) == texts(store) == {"plan": f"{SUMMARY}four\nfive\n"}
    assert archived(other, ONE) == "## a\none\n## b\ntwo\n"


@pytest.mark.usefixtures("filled")
def test_a_refused_batch_keeps_no_pass_and_no_archive(store, other):
    condense(store, ONE)
    append(store, "plan", "more")
    *_, whole, spoiled = outgoing(store, NAMESPACE)
    cut = replace(spoiled, envelope=spoiled.envelope.replace(b"more\n", b"mor\xff\n"))
    assert cut != spoiled

    receive(other, NAMESPACE, [whole, cut])

    assert len(quarantined(other)) == 2
    assert texts(other) == {"plan": FILE}
    assert found(other, ONE) is None


@pytest.mark.requirement("condense-25")
@pytest.mark.usefixtures("filled")
@pytest.mark.parametrize("order", ["store first", "other first"])
def test_two_passes_behind_one_both_stand_and_are_noted_in_both_stores(
    store, other, order
):
    condense(store, ONE, after=NEXT)
    condense(other, OTHER, BRIEF, after=NEXT)

    exchange(*((store, other) if order == "store first" else (other, store)))

    assert texts(store) == texts(other)
    text = texts(store)["plan"]
    assert ("one\n" in text, "two\n" in text) == (False, False)
    assert text.count("short\n") == text.count("brief\n") == text.count("three\n") == 1
    for each, first in ((store, OTHER), (other, ONE)):
        assert states(each, ONE, OTHER) == [("committed", "duplicate")] * 2
        second = OTHER if first == ONE else ONE
        names = {"passId": first, "otherPassId": second}
        assert duplicates(each) == [(NAMESPACE, "plan", names)]


@pytest.mark.usefixtures("filled")
def test_what_a_sibling_had_taken_out_before_is_found_under_both(store, other, third):
    condense(store, ONE, SUMMARY)
    condense(other, OTHER, LONG)
    exchange(store, other, third)

    # The record of the second found but the last section.
    assert archived(store, OTHER) == "## a\none\n## c\nthree\n"
    assert archived(third, ONE) == "## a\none\n## b\ntwo\n"
    assert archived(third, OTHER) == "## a\none\n## b\ntwo\n## c\nthree\n"
    # What a store's own pass took out is what it said.
    assert archived(other, OTHER) == archived(store, ONE) == "## a\none\n"


@pytest.mark.usefixtures("filled")
def test_each_pair_of_three_siblings_is_noted_once(store, other, third):
    exchange(store, other, third)
    for each, pass_id in ((store, ONE), (other, OTHER), (third, THIRD)):
        condense(each, pass_id, f"# plan\n{pass_id}\n")

    exchange(store, other, third)
    exchange(third, other, store)

    pairs = {
        frozenset((ONE, OTHER)),
        frozenset((ONE, THIRD)),
        frozenset((OTHER, THIRD)),
    }
    for each in (store, other, third):
        noted = [frozenset(details.values()) for _, _, details in duplicates(each)]
        assert len(noted) == 3
        assert set(noted) == pairs


@pytest.mark.usefixtures("filled")
def test_passes_one_behind_the_other_are_no_duplicates(store, other):
    condense(store, ONE)
    exchange(store, other)
    condense(other, OTHER, BRIEF, after=ONE, base=SUMMARY)
    exchange(store, other)

    assert duplicates(store) == duplicates(other) == []
    assert states(other, ONE, OTHER) == [("committed", "condensed"), ("committed", "")]


@pytest.mark.usefixtures("filled")
def test_a_pass_that_was_undone_is_nobodys_duplicate(store, other):
    condense(store, ONE)
    exchange(store, other)
    undo(store)
    exchange(store, other)
    assert states(other, ONE) == [("undone", "condensed")]

    condense(other, OTHER, BRIEF)
    exchange(store, other)

    assert duplicates(store) == duplicates(other) == []


@pytest.mark.requirement("condense-19")
@pytest.mark.usefixtures("filled")
def test_an_undo_and_a_redo_elsewhere_are_noted(store, other):
    condense(store, ONE)
    undo(store)
    exchange(store, other)
    assert texts(other) == {"plan": FILE}
    assert states(other, ONE)[0][0] == "undone"

    undo(store)
    exchange(store, other)
    assert texts(other) == {"plan": SUMMARY}
    assert states(other, ONE)[0][0] == "committed"

    undo(store)
    exchange(store, other)
    assert texts(other) == {"plan": FILE}
    assert states(other, ONE)[0][0] == "undone"


def test_the_undo_of_another_write_leaves_a_pass_alone(store, other):
    create(store, "plan", FILE)
    condense(store, ONE)
    append(store, "plan", "more")
    undo(store)

    exchange(store, other)

    assert texts(other) == {"plan": SUMMARY}
    assert states(other, ONE)[0][0] == "committed"


def undo(store):
    """Take back the newest write, as an undo does."""
    with store.writing() as transaction:
        row = transaction.slot(NAMESPACE, "plan")
        last = log(store, "plan")[-1]
        entry = entries(store, "plan")[0]
        trace = transaction.trace(row, entry)
        change = Change(
            operation="undo",
            lane="a",
            delta=undo_delta(trace, frozenset({last.lsn})),
            undoes=frozenset({last.lsn}),
        )
        transaction.write_slot(row, NAMESPACE, "plan", change)
        (undone,) = log_of(transaction.connection, row.doc, after=row.lsn)
        mark_undone_passes(transaction.connection, undone)


@pytest.mark.usefixtures("filled")
@pytest.mark.parametrize("state", ["open", "aborted", "expired"])
def test_a_pass_that_a_copy_of_the_store_has_committed_is_committed(
    store, other, state
):
    with other.writing() as transaction:
        row = transaction.slot(NAMESPACE, "plan")
        pin = make_pin(transaction.connection, row, 1) if state == "open" else None
        archive = save_archive(
            transaction.connection, row.doc, [ArchivePart("evicted", "", "mine\n")], 1
        )
        known = pass_row(ONE, row, state=state, pin=pin, archive=archive)
        add_pass(transaction.connection, known)
    condense(store, ONE)

    exchange(store, other)

    row = found(other, ONE)
    assert (row.state, row.reason, row.ended_ms) == ("committed", "condensed", 50)
    assert (row.is_remote, row.pin, row.lsn) == (0, None, slot(other, "plan").lsn)
    assert archived(other, ONE) == "mine\n"
    with other.reading() as connection:
        assert find_pin(connection, pin or 1) is None


@pytest.mark.usefixtures("filled")
@pytest.mark.parametrize("label", ["plan", "other"])
def test_a_known_id_is_nobody_elses(store, other, label):
    append(other, "other", "x")
    with other.writing() as transaction:
        row = transaction.slot(NAMESPACE, label)
        known = pass_row(ONE, row, state="committed", ended_ms=3)
        add_pass(transaction.connection, known)
        known = find_pass(transaction.connection, ONE)
    condense(store, ONE)

    exchange(store, other)

    assert texts(other)["plan"] == SUMMARY
    assert found(other, ONE) == known


@pytest.mark.usefixtures("filled")
def test_a_record_that_comes_again_is_no_second_pass(store, other):
    condense(store, ONE)
    exchange(store, other)
    damage(other, "DELETE FROM stream")

    exchange(store, other)

    assert value(other, "SELECT count(*) FROM condense_pass") == 1
    assert duplicates(other) == []


@pytest.mark.usefixtures("filled")
def test_a_state_brings_no_pass(store, other):
    condense(store, ONE)
    with store.writing() as transaction:
        state = make_state(transaction, slot(store, "plan").doc)
        replica = transaction.replica
    damage(other, "UPDATE log SET replica_seq = lsn, place = 0")

    with other.writing() as transaction:
        batch = [Incoming(replica, 9, state)]
        Inbox(transaction, other, NAMESPACE, "plan").take(batch)

    assert texts(other) == {"plan": SUMMARY}
    assert found(other, ONE) is None


def test_a_pass_behind_a_state_in_one_batch_is_taken(store, other):
    create(store, "plan", FILE)
    with store.writing() as transaction:
        state = make_state(transaction, slot(store, "plan").doc)
        replica = transaction.replica
    condense(store, ONE)
    envelope = decode_envelope(
        RecordKind.UPDATE, outgoing(store, NAMESPACE)[-1].envelope
    )

    assert isinstance(envelope, UpdateEnvelope)

    with other.writing() as transaction:
        batch = [Incoming(replica, 1, state), Incoming(replica, 2, envelope)]
        Inbox(transaction, other, NAMESPACE, "plan").take(batch)

    assert texts(other) == {"plan": SUMMARY}
    assert archived(other, ONE) == "## a\none\n## b\ntwo\n"


def test_a_pass_that_is_not_there_has_no_duplicates(store):
    with store.writing() as transaction:
        note_duplicates(transaction.connection, ONE, 1)

    assert duplicates(store) == []


def test_equal_text_that_was_cut_otherwise_does_not_mix(store):
    row = append(store, "plan", "x")
    whole = [ArchivePart("evicted", "", "a\nb\n")]
    cut = [ArchivePart("evicted", "", "a\n"), ArchivePart("evicted", "", "b\n")]

    with store.writing() as transaction:
        first = save_archive(transaction.connection, row.doc, whole, 1)
        second = save_archive(transaction.connection, row.doc, cut, 2)
        found = read_archive(transaction.connection, row.doc, second)

    assert first == second
    assert found == whole
