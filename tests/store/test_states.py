"""crdtmem.store.states"""

import hashlib
from dataclasses import replace

import pytest

from crdtmem.doc.blame import Run, blame_lines, decode_runs, encode_runs
from crdtmem.doc.slot_doc import SlotDoc
from crdtmem.errors import (
    DocError,
    RemoteProtocolError,
    SlotQuarantinedError,
    UpdateRejectedError,
)
from crdtmem.limits import BLAME_BYTES
from crdtmem.store.doc_inbox import Incoming
from crdtmem.store.doctor import examine
from crdtmem.store.documents import NO_REPLICA, blame_of, squash
from crdtmem.store.inbox import Inbox
from crdtmem.store.log import append_row, load_checkpoint, make_doc, save_checkpoint
from crdtmem.store.states import has_unsent, make_state, must_wait
from crdtmem.store.store import Store
from tests.scratch import scratch
from tests.store.relayed import Log, linked
from tests.store.writes import (
    FOREIGN,
    NAMESPACE,
    append,
    create,
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


def state_of(store, label="plan"):
    with store.writing() as transaction:
        return make_state(transaction, slot(store, label).doc)


def take(store, *envelopes, replica=FOREIGN):
    """Let a store take states, as from its records; return how many it took."""
    batch = [Incoming(replica, seq, one) for seq, one in enumerate(envelopes, 1)]
    with store.writing() as transaction:
        return Inbox(transaction, store, NAMESPACE, "plan").take(batch)


def note_sent(store):
    """Let all rows pass for sealed, and sent."""
    damage(store, "UPDATE log SET replica_seq = lsn, place = 0")
    damage(
        store,
        "INSERT OR REPLACE INTO stream SELECT DISTINCT namespace, replica, 99"
        " FROM log JOIN doc USING (doc)",
    )


def blame(store, label="plan"):
    with store.reading() as connection:
        return blame_of(connection, slot(store, label).doc)


def lines(store):
    """Return each line with when it was written, and where."""
    found = blame_lines(blame(store), slot(store, "plan").file)
    return [(one.text, *((one.author or (None,) * 3)[1:])) for one in found]


def replica(store):
    return value(store, "SELECT replica FROM store")


def known_of(store):
    return slot(store, "plan"), log(store, "plan"), entries(store, "plan"), blame(store)


def faults(store):
    found = examine(store, namespaces=None, repair=False, deep=True)
    return [one for one in found if one.status == "fail"]


def test_a_state_says_the_text_its_hash_and_who_wrote_it(store):
    create(store, "plan", "é\n")
    append(store, "plan", "🎉")
    found = state_of(store)

    assert SlotDoc.load(1, found.state).file == "é\n🎉\n"
    assert found.text_sha256 == hashlib.sha256("é\n🎉".encode()).digest()
    assert decode_runs(found.blame) == blame(store)
    assert (found.doc_kind, found.name, found.reason) == (1, "plan", None)


def test_a_state_of_nobody_knows_whom_is_sent_without_authors(store):
    append(store, "plan", "x" * 30_000)
    with store.writing() as transaction:
        squash(transaction.connection, 1, transaction.replica, 9)
        runs = [Run(1, "x" * 127 + str(n % 2), n, FOREIGN) for n in range(30_001)]
        checkpoint = load_checkpoint(transaction.connection, 1)
        checkpoint = checkpoint._replace(blame=encode_runs(runs))
        save_checkpoint(transaction.connection, 1, checkpoint)
    assert len(checkpoint.blame) > BLAME_BYTES

    assert state_of(store).blame == b""


def test_there_is_no_state_of_a_doc_without_a_slot(store):
    with store.writing() as transaction:
        doc = make_doc(transaction.connection, NAMESPACE, 1, "plan")
        with pytest.raises(DocError) as raised:
            make_state(transaction, doc)

    assert raised.value.message == "doc 1 has no slot"


def test_there_is_no_state_of_a_damaged_slot(store):
    append(store, "plan", "one")
    damage(store, "UPDATE log SET content = x'00'")
    store.docs.clear()
    with pytest.raises(SlotQuarantinedError):
        state_of(store)


@pytest.mark.requirement("P6")
def test_a_state_makes_a_slot_where_there_was_none(store, other):
    create(other, "plan", "first\n")
    append(other, "plan", "é", "🎉")
    taken = take(store, state_of(other))
    row = slot(store, "plan")

    assert taken == 1
    assert (row.file, row.rev, row.operation) == ("first\né\n🎉\n", 0, "sync")
    assert (row.lane, entries(store, "plan"), log(store, "plan")) == ("a", [], [])
    assert blame(store) == blame(other)
    append(store, "plan", "goes on")
    assert slot(store, "plan").file == "first\né\n🎉\ngoes on\n"
    assert faults(store) == []


@pytest.mark.requirement("P6")
def test_a_state_meets_text_that_only_this_store_has(store, other):
    create(store, "plan", "both\n")
    create(other, "plan", "both\n")
    append(store, "plan", "here é")
    append(other, "plan", "there 🎉")
    note_sent(store)
    before = slot(store, "plan")
    take(store, state_of(other))
    row, (entry, _) = slot(store, "plan"), entries(store, "plan")
    lsn = value(store, "SELECT state_lsn FROM doc")
    reopened = Store(store.path)

    assert sorted(row.file.splitlines()) == ["both", "here é", "there 🎉"]
    assert (row.rev, row.lsn) == (before.rev + 1, before.lsn + 1)
    assert (entry.file, entry.operation, entry.lane) == (before.file, "sync", "a")
    assert (log(store, "plan"), lsn) == ([], row.lsn)
    assert sorted(lines(store)) == sorted(
        [
            ("both", 50, replica(other)),
            ("there 🎉", 50, replica(other)),
            ("here é", before.updated_ms, replica(store)),
        ]
    )
    with reopened.writing() as transaction:
        transaction.document(row).check()
    reopened.close()
    assert faults(store) == []
    append(store, "plan", "goes on")


def test_a_state_whose_content_is_here_changes_nothing(store, other):
    append(other, "plan", "one", "two")
    early = state_of(other)
    append(other, "plan", "three")
    take(store, state_of(other))
    append(store, "plan", "more")
    before = known_of(store), value(store, "SELECT lsn FROM store")
    taken = take(store, early, state_of(other), state_of(store))

    assert taken == 3
    assert (known_of(store), value(store, "SELECT lsn FROM store")) == before


def test_a_state_waits_while_writes_here_are_not_sent(store, other):
    append(store, "plan", "mine")
    append(other, "plan", "theirs")
    state = state_of(other)
    before = known_of(store)
    taken = take(store, state)
    after = known_of(store)
    note_sent(store)

    assert (taken, after) == (0, before)
    assert (take(store, state), slot(store, "plan").rev) == (1, before[0].rev + 1)


def test_a_state_need_not_wait_where_a_state_is_to_be_sent_from_here(store, other):
    append(store, "plan", "mine")
    append(other, "plan", "theirs")
    linked(store)
    with store.reading() as connection:
        unsent = has_unsent(connection, 1), must_wait(connection, 1)
    taken = take(store, state_of(other))

    assert (unsent, taken) == ((True, False), 1)
    assert set(slot(store, "plan").file.splitlines()) == {"mine", "theirs"}
    # Nobody can have these rows as records any more.
    assert value(store, "SELECT is_sealed FROM doc") == 0


def test_sealed_writes_are_unsent_until_they_are_acknowledged(store):
    linked(store)
    append(store, "plan", "mine")
    relayed = Log()
    with store.reading() as connection:
        before = must_wait(connection, 1)
        relayed.send(store)
        after = must_wait(connection, 1)
        connection.execute("UPDATE outbox SET record = x'00'")

        assert (before, after, must_wait(connection, 1)) == (True, False, True)


def wrong(envelope, **fields):
    return replace(envelope, **fields)


@pytest.mark.requirement("P8")
@pytest.mark.parametrize(
    ("make", "error", "code"),
    [
        (lambda s: wrong(s, state=b"bad"), UpdateRejectedError, "update-malformed"),
        (lambda s: wrong(s, text_sha256=bytes(32)), DocError, "text-differs"),
        (lambda s: wrong(s, blame=b"\x01"), RemoteProtocolError, None),
        (lambda s: wrong(s, blame=encode_runs([Run(2)])), DocError, "doc-error"),
    ],
)
def test_a_state_that_is_not_what_it_says_is_refused(store, other, make, error, code):
    append(store, "plan", "mine")
    note_sent(store)
    append(other, "plan", "theirs")
    before = known_of(store)
    with pytest.raises(error) as raised:
        take(store, make(state_of(other)))

    assert raised.value.code == (code or error.code)
    assert known_of(store) == before
    append(store, "plan", "goes on")


def test_other_content_under_one_clock_is_found_where_it_shows(store, other):
    """The clocks of both are one and the same, and their texts are not."""
    append(store, "plan", "mine")
    note_sent(store)
    client = own_client(store)
    forged = update(
        (client, 0, [text("other\n", root="content")]),
        (5, 0, [text("x\n", origin=(client, 5))]),
    )
    sent = state_of(store)
    digest = hashlib.sha256(b"other\nx").digest()
    before = known_of(store)
    with pytest.raises(DocError) as raised:
        take(store, wrong(sent, state=forged, text_sha256=digest, blame=b""))

    assert raised.value.message == "a state and the records here give two texts"
    assert known_of(store) == before


def test_authors_that_a_state_does_not_tell_stay_as_they_are_known_here(store, other):
    append(other, "plan", "one")
    told = state_of(other)
    append(other, "plan", "two")
    placeholder = [Run(4, "", 7, NO_REPLICA), Run(4)]
    untold = wrong(state_of(other), blame=encode_runs(placeholder))
    take(store, told, untold)

    assert lines(store) == [("one", 50, replica(other)), ("two", None, None)]


@pytest.mark.parametrize("order", [[0, 1], [1, 0]])
@pytest.mark.parametrize("has_own", [False, True])
def test_the_author_of_a_first_text_is_the_least_in_any_order(folder, order, has_own):
    stores = [
        Store(folder / str(at_ms) / "store.db", clock_ms=at_ms.__int__)
        for at_ms in (1, 2, 3)
    ]
    for one in stores[:2]:
        create(one, "plan", "same\n")
        append(one, "plan", "more")
    last = stores[2]
    if has_own:
        create(last, "plan", "same\n")
        note_sent(last)
    take(last, *(state_of(stores[n]) for n in order))
    found = lines(last)
    first = replica(stores[0])
    # And a later state with a later claim takes nothing back.
    append(stores[1], "plan", "new")
    take(last, state_of(stores[1]))
    later = lines(last)
    for one in stores:
        one.close()

    assert ("same", 1, first) in found
    assert ("same", 1, first) in later


def test_rows_that_change_another_text_than_they_say_take_no_state(store, other):
    append(store, "plan", "one")
    (row,) = log(store, "plan")
    damage(store, "DELETE FROM log")
    with store.writing() as transaction:
        row = row._replace(delta='[[0, 0, "longer\\n"]]', replica_seq=1, place=0)
        append_row(transaction.connection, row)
    append(other, "plan", "two")
    with pytest.raises(DocError) as raised:
        take(store, state_of(other))

    assert raised.value.message == "the records change another text than they say"
    assert texts(store) == {"plan": "one\n"}
