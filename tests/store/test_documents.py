"""crdtmem.store.documents"""

import pytest

from crdtmem.doc.blame import Run
from crdtmem.doc.delta import Splice, encode_delta
from crdtmem.doc.slot_doc import SlotDoc
from crdtmem.errors import DocError, UpdateRejectedError
from crdtmem.protocol.records import client_id
from crdtmem.store.documents import (
    NO_REPLICA,
    blame_of,
    catch_up,
    load_doc,
    squash,
    trace_from,
    writer_id,
)
from crdtmem.store.log import append_row, load_checkpoint, save_checkpoint
from crdtmem.store.store import Store
from tests.exchange import outgoing, receive
from tests.store.writes import (
    FOREIGN,
    NAMESPACE,
    append,
    create,
    damage,
    entries,
    log,
    slot,
    value,
)
from tests.yjs_bytes import update


def load(store, **options):
    with store.reading() as connection:
        return load_doc(
            connection, 1, value(store, "SELECT replica FROM store"), **options
        )


def squash_until(store, lsn):
    with store.writing() as transaction:
        squash(transaction.connection, 1, transaction.replica, lsn)


def kept(store):
    with store.reading() as connection:
        return load_checkpoint(connection, 1), log(store, "plan")


def rewrite(store, row):
    """Put a row in place of another, with the digest of what it says."""
    damage(store, "DELETE FROM log WHERE lsn = ?", row.lsn)
    with store.writing() as transaction:
        append_row(transaction.connection, row)


def replica(store):
    return value(store, "SELECT replica FROM store")


def blame(store, label="plan"):
    with store.reading() as connection:
        return blame_of(connection, slot(store, label).doc)


def test_a_replica_writes_under_its_one_client_id():
    assert writer_id(FOREIGN) == client_id(FOREIGN, 0)


def test_a_document_is_its_checkpoint_and_its_rows_up_to_a_step(store):
    append(store, "plan", "é", "🎉", "c", "d")
    squash_until(store, 2)
    whole, part, behind = load(store), load(store, until=3), load(store, until=2)

    assert whole.file == "é\n🎉\nc\nd\n"
    assert (part.file, behind.file) == ("é\n🎉\nc\n", "é\n🎉\n")
    for document in (whole, part, behind):
        document.check()


@pytest.mark.parametrize(
    ("statement", "reason"),
    [
        ("UPDATE log SET content = x'00' WHERE lsn = 3", "record 3 is damaged"),
        ("UPDATE doc SET file = 'other'", "the checkpoint is damaged"),
        ("UPDATE doc SET state = x'ff'", "the checkpoint is damaged"),
        ("UPDATE doc SET state_lsn = 2", "the checkpoint is damaged"),
        ("UPDATE doc SET blame = x'ff'", "the checkpoint is damaged"),
        ("UPDATE doc SET genesis = '{'", "the checkpoint is damaged"),
        ("DELETE FROM doc", "doc 1 is missing"),
    ],
)
def test_a_damaged_document_is_not_loaded(store, statement, reason):
    append(store, "plan", "one", "two", "three")
    squash_until(store, 1)
    damage(store, statement)
    with pytest.raises(DocError) as raised:
        load(store)

    assert raised.value.message == reason


@pytest.mark.parametrize(
    ("fields", "error", "reason"),
    [
        ({"file": "other\n"}, DocError, "the checkpoint's text differs from its state"),
        ({"state": b"\xff"}, UpdateRejectedError, "update refused"),
    ],
)
def test_a_checkpoint_that_was_saved_wrong_is_not_loaded(store, fields, error, reason):
    append(store, "plan", "one", "two")
    squash_until(store, 1)
    with store.writing() as transaction:
        checkpoint = load_checkpoint(transaction.connection, 1)._replace(**fields)
        save_checkpoint(transaction.connection, 1, checkpoint)
    with pytest.raises(error) as raised:
        load(store)

    assert reason in raised.value.message


def test_a_first_text_is_held_against_what_its_row_says(store):
    create(store, "plan", "one\n")
    (row,) = log(store, "plan")
    rewrite(store, row._replace(delta='[[0, 0, "two\\n"]]'))
    with pytest.raises(DocError) as raised:
        load(store)

    assert raised.value.message == "record 1 changes another text"


def test_a_squash_changes_no_text_and_forgets_what_it_holds(store):
    append(store, "plan", "é", "🎉")
    append(store, "notes", "other")
    append(store, "plan", "c")
    before = load(store), blame(store)
    squash_until(store, 3)
    checkpoint, rows = kept(store)
    after = load(store), blame(store)

    assert (checkpoint.lsn, checkpoint.file) == (2, "é\n🎉\n")
    assert [row.lsn for row in rows] == [4]
    assert after[0].file == before[0].file == "é\n🎉\nc\n"
    assert after[0].state() == before[0].state()
    assert after[1] == before[1]
    assert len(log(store, "notes")) == 1


def test_a_squash_without_rows_does_nothing(store):
    append(store, "plan", "one")
    squash_until(store, 1)
    before = kept(store)
    squash_until(store, 1)

    assert kept(store) == before


def test_nothing_is_squashed_that_does_not_pass_the_check(store):
    append(store, "plan", "one", "two")
    last = log(store, "plan")[-1]
    rewrite(store, last._replace(delta='[[4, 4, "six\\n"]]'))
    before = kept(store)
    with pytest.raises(DocError) as raised:
        squash_until(store, 2)

    assert raised.value.message == "the records change another text than they say"
    assert kept(store) == before


def test_a_record_that_no_scanner_sees_through_is_not_squashed(store):
    """It deletes half an emoji, and what it says of the text is what pycrdt shows."""
    append(store, "plan", "a🎉b")
    own = writer_id(replica(store))
    sent = update(deletes=[(own, [(2, 3)])])
    delta = load(store).apply(sent, writer_id(FOREIGN))
    (row,) = log(store, "plan")
    half = row._replace(lsn=2, replica=FOREIGN, content=sent, delta=encode_delta(delta))
    with store.writing() as transaction:
        append_row(transaction.connection, half)
    before = kept(store)
    with pytest.raises(DocError) as raised:
        squash_until(store, 2)

    assert raised.value.message == "a squashed document differs from its records"
    assert kept(store) == before


def test_rows_are_applied_in_log_order(store):
    append(store, "plan", "one", "é", "three")
    _, rows = kept(store)
    document = catch_up(SlotDoc(writer_id(FOREIGN)), rows)
    with pytest.raises(UpdateRejectedError) as raised:
        catch_up(SlotDoc(writer_id(FOREIGN)), rows[::-1])

    assert document.file == "one\né\nthree\n"
    document.check()
    assert raised.value.code == "update-clock"


def test_each_part_of_a_text_has_its_author(folder):
    clock = iter(range(10, 99))
    store = Store(folder / "store.db", clock_ms=lambda: next(clock))
    create(store, "plan", "first\n")
    append(store, "plan", "é🎉")
    own = replica(store)
    before = blame(store)
    squash_until(store, 1)
    after = blame(store)
    store.close()

    assert before == [Run(6, "a", 11, own), Run(4, "a", 12, own)]
    assert after == before


@pytest.mark.parametrize("is_squashed", [False, True])
def test_a_first_text_of_two_replicas_is_by_the_one_who_was_first(
    tmp_path, is_squashed
):
    early = Store(tmp_path / "early" / "store.db", clock_ms=lambda: 1)
    late = Store(tmp_path / "late" / "store.db", clock_ms=lambda: 2)
    for store in (late, early):
        create(store, "plan", "same\n")
        append(store, "notes", "own")
    before = blame(late)[0]
    if is_squashed:
        squash_until(late, 1)
    receive(late, NAMESPACE, outgoing(early, NAMESPACE))
    receive(early, NAMESPACE, outgoing(late, NAMESPACE)[-1:])
    authors = [blame(store)[0] for store in (early, late)]
    who = replica(early)
    early.close()
    late.close()

    assert before.at_ms == 2
    assert authors == [Run(5, "a", 1, who)] * 2


def test_a_first_text_whose_author_is_lost_stays_without_one(store):
    create(store, "plan", "one\n")
    squash_until(store, 1)
    with store.writing() as transaction:
        checkpoint = load_checkpoint(transaction.connection, 1)._replace(genesis="{}")
        save_checkpoint(transaction.connection, 1, checkpoint)
    (run,) = blame(store)

    assert (run.units, run.lane, run.replica) == (4, "", NO_REPLICA)


def test_a_trace_begins_with_a_kept_text_and_ends_with_the_present_one(store):
    append(store, "plan", "one", "two", "three")
    entry = entries(store, "plan")[1]
    with store.reading() as connection:
        trace = trace_from(connection, 1, entry)

    assert (trace.base(), trace.text()) == ("one\n", "one\ntwo\nthree\n")
    assert [run.inserted_by for run in trace.runs] == [None, 2, 3]


@pytest.mark.parametrize(("targets", "is_revived"), [("[2]", True), ("[1]", False)])
def test_an_undo_in_a_trace_counts_only_if_its_targets_are_in_it(
    store, targets, is_revived
):
    append(store, "plan", "one")
    with store.writing() as transaction:
        row = transaction.slot(NAMESPACE, "plan")
        document = transaction.document(row)
        # Deleted by step 2, and back in step 3.
        for delta, undoes in (
            ((Splice(0, 4, ""),), None),
            ((Splice(0, 0, "one\n"),), targets),
        ):
            content = document.edit(delta, {})
            steps = None if undoes is None else frozenset({int(undoes[1])})
            transaction.log(1, content, delta, lane="a", operation="x", undoes=steps)
    entry = entries(store, "plan")[0]._replace(first_lsn=2, file="one\n")
    with store.reading() as connection:
        trace = trace_from(connection, 1, entry)

    assert trace.text() == "one\n"
    assert [run.inserted_by for run in trace.runs if run.is_live] == [
        None if is_revived else 3
    ]


def test_a_damaged_row_ends_a_trace(store):
    append(store, "plan", "one", "two")
    damage(store, "UPDATE log SET delta = '[]' WHERE lsn = 2")
    entry = entries(store, "plan")[0]
    with store.reading() as connection, pytest.raises(DocError) as raised:
        trace_from(connection, 1, entry)

    assert raised.value.message == "record 2 is damaged"
