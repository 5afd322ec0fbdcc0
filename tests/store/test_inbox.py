"""crdtmem.store.inbox"""

from typing import Any

import pytest

from crdtmem.doc.slot_doc import genesis_update
from crdtmem.errors import UpdateRejectedError
from crdtmem.protocol.envelopes import (
    UpdateEnvelope,
    Write,
    decode_envelope,
    encode_envelope,
    undo_note,
)
from crdtmem.protocol.records import DocKind, genesis_client_id
from crdtmem.store.doc_inbox import Incoming
from crdtmem.store.inbox import Inbox
from crdtmem.store.states import make_state
from crdtmem.store.store import Store
from tests.exchange import (
    Record,
    known_streams,
    needing_state,
    outgoing,
    receive,
)
from tests.store.relayed import envelope_of
from tests.store.writes import (
    FOREIGN,
    FOREIGN_CLIENT,
    NAMESPACE,
    append,
    create,
    damage,
    entries,
    log,
    own_client,
    quarantined,
    record,
    slot,
    texts,
    value,
)
from tests.yjs_bytes import number, struct, text, update, value as yjs_value

TRUE = b"\x78"
NEW = update((FOREIGN_CLIENT, 0, [text("new\n", root="content")]))


def known_of(store, label="plan"):
    return slot(store, label), log(store, label), entries(store, label)


def behind(store, line="x\n", *, clock=0, deletes=()):
    """Return a write of the foreign replica behind the first line, which is 'mine'."""
    struct = text(line, origin=(own_client(store), 4))
    return update((FOREIGN_CLIENT, clock, [struct]), deletes=deletes)


def genesis(file, label="plan"):
    first = genesis_client_id(NAMESPACE, DocKind.SLOT, label, file.encode())
    return genesis_update(first, file)


REFUSED = {
    "an unknown origin": (
        lambda own: update((FOREIGN_CLIENT, 0, [text("x\n", origin=(5, 0))])),
        "update-origin",
    ),
    "an origin that is still to be written": (
        lambda own: update((FOREIGN_CLIENT, 0, [text("x\n", origin=(own, 10))])),
        "update-origin",
    ),
    "deletes of what is still to be written": (
        lambda own: update(deletes=[(own, [(5, 100)])]),
        "update-delete",
    ),
    "the client id of the store": (
        lambda own: update((own, 5, [text("x\n", origin=(own, 4))])),
        "update-client",
    ),
    "the client id of nobody": (
        lambda own: update((77, 0, [text("x\n", origin=(own, 4))])),
        "update-client",
    ),
    "a gap in the clocks": (
        lambda own: update((FOREIGN_CLIENT, 1, [text("x\n", origin=(own, 4))])),
        "update-clock",
    ),
    "another root": (
        lambda own: update((FOREIGN_CLIENT, 0, [text("x\n", root="other")])),
        "update-root",
    ),
    "content of another kind": (
        lambda own: update((FOREIGN_CLIENT, 0, [struct(5, b"\0", origin=(own, 4))])),
        "update-content",
    ),
    "bytes behind its end": (
        lambda own: update((FOREIGN_CLIENT, 0, [text("x\n", origin=(own, 4))])) + b"x",
        "update-malformed",
    ),
    "nothing": (lambda own: b"", "update-malformed"),
    "half an emoji to delete": (
        lambda own: update(deletes=[(own, [(6, 1)])]),
        "doc-error",
    ),
}


@pytest.mark.requirement("P8")
@pytest.mark.parametrize("fault", REFUSED)
def test_a_refused_record_is_kept_and_holds_up_no_other_slot(store, fault):
    append(store, "plan", "mine", "a🎉b")
    make, code = REFUSED[fault]
    sent = make(own_client(store))
    before = known_of(store)
    count = receive(store, NAMESPACE, [record(sent), record(NEW, seq=2, label="notes")])
    after = known_of(store)
    append(store, "plan", "goes on")

    assert count == 2
    assert after == before
    assert quarantined(store) == [(code, sent)]
    assert texts(store) == {"plan": "mine\na🎉b\ngoes on\n", "notes": "new\n"}
    assert known_streams(store, NAMESPACE) == {FOREIGN: 2}


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"counter": 1}, "update-client"),
        ({"is_genesis": True}, "update-origin"),
        ({"update": genesis("a\n", "other"), "is_genesis": True}, "update-client"),
        ({"update": genesis("a\n")}, "update-client"),
    ],
)
def test_a_write_under_another_client_id_than_its_own_is_refused(store, fields, code):
    append(store, "plan", "mine")
    before = known_of(store)
    receive(store, NAMESPACE, [record(**{"update": behind(store), **fields})])

    assert [found for found, _ in quarantined(store)] == [code]
    assert known_of(store) == before


def test_a_refused_write_takes_the_others_of_its_slot_with_it(store):
    append(store, "plan", "mine")
    before = known_of(store)
    good, bad = behind(store), behind(store, clock=7)
    receive(store, NAMESPACE, [record(good), record(bad, seq=2)])
    after = known_of(store)
    append(store, "plan", "more")

    assert quarantined(store) == [("update-clock", good), ("update-clock", bad)]
    assert after == before
    assert texts(store) == {"plan": "mine\nmore\n"}
    with store.writing() as transaction:
        transaction.document(slot(store, "plan")).check()


def test_each_write_of_a_refused_record_is_kept(store):
    append(store, "plan", "mine")
    plain: dict[str, Any] = {
        "is_genesis": False,
        "counter": 0,
        "lane": "x",
        "at_ms": 5,
        "op": "e",
    }
    contents = behind(store), b"\0\0", b"bad"
    writes = tuple(Write(update=content, **plain) for content in contents)
    envelope = encode_envelope(UpdateEnvelope(DocKind.SLOT, "plan", writes))
    receive(store, NAMESPACE, [Record(FOREIGN, 1, envelope, origin=0)])

    assert [content for _, content in quarantined(store)] == list(contents)
    assert value(store, "SELECT count(DISTINCT replica) FROM quarantine") == 1


@pytest.mark.parametrize("label", ["Plan", "a b", "é", "x" * 65, "1"])
def test_a_name_that_is_no_label_makes_no_slot(store, label):
    receive(store, NAMESPACE, [record(NEW, label=label)])

    assert texts(store) == {}
    assert [code for code, _ in quarantined(store)] == ["doc-error"]


def test_a_slot_can_be_made_where_a_first_record_was_refused(store):
    receive(store, NAMESPACE, [record(b"bad")])
    before = texts(store)
    append(store, "plan", "mine")

    assert before == {}
    assert texts(store) == {"plan": "mine\n"}


def test_records_for_a_quarantined_slot_are_kept(store):
    append(store, "plan", "mine")
    append(store, "notes", "fine")
    damage(store, "UPDATE log SET digest = zeroblob(16) WHERE lsn = 1")
    store.docs.clear()
    first, second = behind(store), behind(store, clock=2)
    receive(store, NAMESPACE, [record(first), record(NEW, seq=2, label="third")])
    receive(store, NAMESPACE, [record(second, seq=3)])

    assert slot(store, "plan").quarantined == "record 1 is damaged"
    assert [content for _, content in quarantined(store)] == [first, second]
    assert texts(store) == {"plan": "mine\n", "notes": "fine\n", "third": "new\n"}
    append(store, "notes", "goes on")


def test_a_batch_is_told_with_the_lanes_that_wrote_it(store):
    append(store, "plan", "mine")
    batch = [
        record(behind(store, clock=2 * number), seq=number + 1, lane=f"lane {number}")
        for number in range(10)
    ]
    receive(store, NAMESPACE, batch)
    (entry, _) = entries(store, "plan")
    lanes = value(store, "SELECT lanes FROM audit WHERE operation = 'sync'")
    details = value(store, "SELECT details FROM audit WHERE operation = 'sync'")

    assert entry.lane == ", ".join(f"lane {number}" for number in range(8))
    assert lanes.count("lane ") == 10
    assert details == f'{{"added": 10, "replica": "{FOREIGN.hex()}"}}'


def test_settings_that_come_in_change_the_row_and_neither_rev_nor_history(store):
    append(store, "plan", "mine")
    sent = update(
        (
            FOREIGN_CLIENT,
            0,
            [
                yjs_value(TRUE, root="meta", key="readOnly"),
                yjs_value(number(50), root="meta", key="sizeLimit"),
            ],
        )
    )
    receive(store, NAMESPACE, [record(sent)])
    row = slot(store, "plan")

    assert (row.read_only, row.size_limit) == (1, 50)
    assert (row.rev, row.file, len(entries(store, "plan"))) == (1, "mine\n", 1)


def test_a_first_text_that_both_have_is_there_once_and_changes_no_rev(store):
    create(store, "plan", "same\n")
    receive(store, NAMESPACE, [record(genesis("same\n"), is_genesis=True)])
    row = slot(store, "plan")

    assert (row.file, row.rev) == ("same\n", 0)
    assert [one.replica == FOREIGN for one in log(store, "plan")] == [False, True]
    assert quarantined(store) == []
    append(store, "plan", "more")


@pytest.mark.parametrize(
    "targets",
    [
        [(FOREIGN, 9, 0)],
        [(FOREIGN, 1, 0), (b"q" * 16, 1, 0)],
        [(FOREIGN, 1, 7)],
    ],
)
def test_an_undo_of_what_is_unknown_here_is_a_plain_write(store, targets):
    append(store, "plan", "mine")
    first = behind(store)
    second = update(deletes=[(FOREIGN_CLIENT, [(0, 2)])])
    receive(
        store,
        NAMESPACE,
        [record(first), record(second, seq=2, op="undo", note=undo_note(targets))],
    )
    last = log(store, "plan")[-1]

    assert (last.operation, last.undoes) == ("undo", None)
    assert texts(store) == {"plan": "mine\n"}
    assert quarantined(store) == []


def test_an_undo_of_what_is_known_here_keeps_its_steps(store):
    append(store, "plan", "mine")
    append(store, "notes", "one")
    first = behind(store)
    second = update(deletes=[(FOREIGN_CLIENT, [(0, 2)])])
    note = undo_note([(FOREIGN, 1, 0)])
    receive(store, NAMESPACE, [record(first), record(second, seq=2, note=note)])

    assert log(store, "plan")[-1].undoes == "[3]"


def test_a_note_that_cannot_be_read_is_no_undo(store):
    append(store, "plan", "mine")
    receive(store, NAMESPACE, [record(behind(store), note='{"undo": 5}')])

    assert log(store, "plan")[-1].undoes is None
    assert texts(store) == {"plan": "mine\nx\n"}


@pytest.mark.requirement("P6")
def test_a_repetition_with_deletes_of_its_own_leaves_the_slot_whole(store, folder):
    append(store, "plan", "mine")
    own = own_client(store)
    receive(store, NAMESPACE, [record(behind(store))])
    again = behind(store, deletes=[(own, [(0, 5)])])
    receive(store, NAMESPACE, [record(again, seq=2)])
    store.close()
    reopened = Store(folder / "store.db")
    append(reopened, "plan", "more")
    with reopened.writing() as transaction:
        transaction.document(slot(reopened, "plan")).check()

    assert texts(reopened) == {"plan": "mine\nx\nmore\n"}
    reopened.close()


def test_what_came_in_is_squashed_with_the_rest(folder):
    store = Store(folder / "store.db", history_keep=1)
    append(store, "plan", "mine")
    batch = [record(behind(store, f"{n}\n", clock=2 * n), seq=n + 1) for n in range(10)]
    receive(store, NAMESPACE, batch)
    # The kept entry is that of the whole batch, so all its records are still needed.
    assert len(log(store, "plan")) == 11
    append(store, "plan", *("more" for _ in range(60)))
    # Others that have the first records wait for these, so they are kept until sealed.
    assert len(log(store, "plan")) == 71
    assert len(outgoing(store, NAMESPACE)) == 71
    append(store, "plan", "sealed")
    before = texts(store)
    store.close()
    again = Store(folder / "store.db")

    assert len(log(again, "plan")) < 60
    append(again, "plan", "last")
    assert texts(again)["plan"] == before["plan"] + "last\n"
    assert len(outgoing(again, NAMESPACE)) < 60
    again.close()


def test_records_that_were_squashed_unsealed_are_not_passed_off_as_a_beginning(folder):
    store = Store(folder / "store.db", history_keep=1)
    append(store, "plan", *("more" for _ in range(80)))
    append(store, "notes", "whole")

    records = outgoing(store, NAMESPACE)

    assert needing_state(store, NAMESPACE) == ["plan"]
    assert len(records) == 1
    assert decode_envelope(1, records[0].envelope).name == "notes"  # type: ignore[union-attr] # kind 1 is an update
    store.close()


def test_a_record_of_another_kind_of_doc_touches_no_slot(store):
    append(store, "plan", "mine")
    write = Write(
        is_genesis=False, counter=0, lane="b", at_ms=1, op="add", update=b"\0\0"
    )
    envelope = encode_envelope(UpdateEnvelope(DocKind.MEMORY_SET, "plan", (write,)))

    assert receive(store, NAMESPACE, [Record(FOREIGN, 1, envelope, 0)]) == 1
    assert texts(store) == {"plan": "mine\n"}
    assert quarantined(store) == [("doc-error", b"\0\0")]


def batch_of(*writes):
    return [
        Incoming(FOREIGN, seq, envelope_of(one)) for seq, one in enumerate(writes, 1)
    ]


def inbox_of(store, transaction):
    return Inbox(transaction, store, NAMESPACE, "plan")


@pytest.mark.parametrize("bad", range(6))
def test_the_records_before_the_first_refused_one_fit(store, bad):
    append(store, "plan", "mine")
    writes = [behind(store, clock=2 * number) for number in range(6)]
    writes[bad] = behind(store, clock=99)
    before = known_of(store)
    with store.writing() as transaction:
        inbox = inbox_of(store, transaction)
        batch = batch_of(*writes)
        with pytest.raises(UpdateRejectedError):
            inbox.take(batch)
        found = inbox.fitting(batch)
    after = known_of(store)
    with store.writing() as transaction:
        taken = inbox_of(store, transaction).take(batch[:bad])

    assert (found, after, taken) == ((bad, "update-clock"), before, bad)
    assert texts(store) == {"plan": "mine\n" + "x\n" * bad}


def test_all_records_of_a_good_batch_fit(store):
    append(store, "plan", "mine")
    before = known_of(store)
    with store.writing() as transaction:
        found = inbox_of(store, transaction).fitting(batch_of(behind(store)))

    assert (found, known_of(store)) == ((1, ""), before)


def test_a_check_that_fails_at_the_end_is_traced_to_its_record(store):
    append(store, "plan", "a🎉b")
    writes = [
        update((FOREIGN_CLIENT, 0, [text("x\n", origin=(own_client(store), 4))])),
        update(deletes=[(own_client(store), [(1, 1)])]),
        update((FOREIGN_CLIENT, 2, [text("y\n", origin=(FOREIGN_CLIENT, 1))])),
    ]
    with store.writing() as transaction:
        found = inbox_of(store, transaction).fitting(batch_of(*writes))

    assert found == (1, "doc-error")


@pytest.mark.requirement("P6")
def test_a_batch_of_writes_and_a_state_between_them_makes_one_rev(store, tmp_path):
    other = Store(tmp_path / "other.db")
    append(other, "plan", "theirs")
    with other.writing() as transaction:
        state = make_state(transaction, 1)
    other.close()
    receive(store, NAMESPACE, [record(NEW)])
    first = update((FOREIGN_CLIENT, 4, [text("1\n", origin=(FOREIGN_CLIENT, 3))]))
    last = update((FOREIGN_CLIENT, 6, [text("2\n", origin=(FOREIGN_CLIENT, 5))]))
    batch = [
        Incoming(FOREIGN, 2, envelope_of(first)),
        Incoming(FOREIGN, 3, state),
        Incoming(FOREIGN, 4, envelope_of(last)),
    ]
    with store.writing() as transaction:
        taken = inbox_of(store, transaction).take(batch)
    row, (entry,) = slot(store, "plan"), entries(store, "plan")

    assert (taken, row.rev, row.lane) == (3, 1, "a, x")
    assert sorted(row.file.splitlines()) == ["1", "2", "new", "theirs"]
    assert (entry.file, entry.first_lsn, entry.lsn) == ("new\n", 2, 4)
    # Only what came behind the state is still a row of the log.
    assert [one.lsn for one in log(store, "plan")] == [4]
    assert value(store, "SELECT state_lsn FROM doc") == 3
    with store.writing() as transaction:
        store.docs.clear()
        transaction.document(row).check()


def test_a_write_of_another_under_our_own_ids_is_taken_only_if_it_is_new(store):
    append(store, "plan", "mine")
    own = own_client(store)
    me = value(store, "SELECT replica FROM store")
    other = envelope_of(update((own, 0, [text("ours\n", root="content")])))
    new = envelope_of(update((own, 5, [text("more\n", origin=(own, 4))])))
    with store.writing() as transaction:
        inbox = inbox_of(store, transaction)
        with pytest.raises(UpdateRejectedError) as raised:
            inbox.take([Incoming(me, 1, other, is_fork=True)])
        taken = inbox.take([Incoming(me, 2, new, is_fork=True)])

    assert raised.value.code == "update-client"
    assert (taken, texts(store)) == (1, {"plan": "mine\nmore\n"})
