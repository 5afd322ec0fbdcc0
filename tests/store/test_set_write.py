"""crdtmem.store.set_write"""

import hashlib
import json

import pytest

from crdtmem.doc.items import HEADER, canonical
from crdtmem.errors import DocError, SlotQuarantinedError
from crdtmem.limits import SET_UPDATE_BYTES, SET_VERSION_BYTES, TIME_MAX_MS
from crdtmem.store.log import log_of
from crdtmem.store.set_rows import NO_HASH
from crdtmem.store.set_write import (
    SetChange,
    claim_set,
    divided,
    release_claim,
    write_set,
)
from crdtmem.store.sets import history_of
from crdtmem.store.store import Store
from tests.store.set_writes import (
    KEY,
    NAME,
    PLACE,
    add,
    archived,
    change,
    document_of,
    items,
    new,
    place_of,
    remove,
    set_row,
    shown,
    versions,
)
from tests.store.writes import damage, value

MADE = "0123456789abcdefghjk"


def hash_of(members):
    """Return the hash of a set as the design defines it."""
    found = 0
    for member, content in members.items():
        text = f"{member}\0{canonical(content)}".encode()
        found ^= int.from_bytes(hashlib.sha256(text).digest()[:8], "big")
    return f"{found:016x}"


def records(store, place=PLACE):
    with store.reading() as connection:
        return log_of(connection, set_row(store, place).doc, after=0)


def test_a_set_begins_with_its_first_item_and_a_header(store):
    row = change(store, puts=[new("x", "héllo", '{"a":1}', created_ms=5)], lane="ann")

    assert row == set_row(store)
    assert (row.name_in_doc, row.key_long, row.key_short) == (NAME, KEY, KEY)
    assert (row.rev, row.item_count, row.size, row.members) == (1, 1, 12, 2)
    assert (row.tombstones, row.foreign_count, row.dropped_ms) == (0, 0, None)
    document = document_of(store)
    assert document.members()[HEADER] == {"v": 1, "key": KEY, "name": "notes"}
    assert row.set_hash == hash_of(document.members())
    assert row.live_bytes == sum(
        len(f"{name}{canonical(content)}".encode())
        for name, content in document.members().items()
    )
    assert row.state_bytes == row.live_bytes + 2 * SET_VERSION_BYTES
    (item,) = items(store)
    assert item[1:5] == ("x", "héllo", '{"a":1}', 5)
    assert (item.lane, item.rev, item.size, item.conflicts) == ("ann", 1, 12, "")
    assert [(one.lane, one.operation) for one in records(store)] == [("ann", "add")]


def test_an_update_replaces_what_was_seen_in_one_record(store):
    add(store, "x", "y")
    row = change(store, operation="update", puts=[new("x", "2", created_ms=7)])

    assert shown(store) == {"x": "2", "y": "y"}
    assert (row.rev, row.tombstones, row.members, row.item_count) == (2, 1, 3, 2)
    assert [item.rev for item in items(store)] == [1, 2]
    assert row.set_hash == hash_of(document_of(store).members())
    assert len(records(store)) == 2


def test_items_are_removed_and_absent_ones_passed_over(store):
    add(store, "x", "y")
    row = remove(store, "x", "z")

    assert shown(store) == {"y": "y"}
    assert (row.rev, row.tombstones, row.size) == (2, 1, 1)
    assert remove(store, "x", "z") == row
    assert len(records(store)) == 2


def test_a_clear_leaves_the_header_and_a_drop_leaves_nothing(store):
    add(store, "x", "y")
    other = add(store, "x", place=place_of("other"))

    row = change(store, operation="clear", clears=True)
    assert (row.rev, row.item_count, row.tombstones, row.size) == (2, 0, 2, 0)
    assert row.dropped_ms is None
    assert document_of(store).names() == [HEADER]
    assert row.set_hash == hash_of(document_of(store).members())
    # What else such a change names is not written.
    assert change(store, operation="clear", clears=True, puts=[new("z")]) == row

    row = change(store, operation="drop", drops=True)
    assert (row.rev, row.tombstones, row.set_hash) == (3, 3, NO_HASH)
    assert row.dropped_ms == row.updated_ms
    assert change(store, operation="drop", drops=True) == row
    assert set_row(store, place_of("other")) == other
    assert shown(store) == {}


def test_a_dropped_set_comes_back_with_its_next_item_and_its_rev_goes_on(store):
    add(store, "x")
    change(store, operation="drop", drops=True)

    row = add(store, "x")

    assert (row.rev, row.dropped_ms, row.has_header) == (3, None, 1)
    assert row.set_hash == hash_of(document_of(store).members())


@pytest.mark.parametrize(
    "fields",
    [{"clears": True, "puts": [new("x")]}, {"drops": True}, {"removes": ["x"]}, {}],
    ids=["clear", "drop", "remove", "nothing"],
)
def test_nothing_is_made_where_nothing_is_written(store, fields):
    row = change(store, operation="delete", **fields)

    assert (row.doc, row.rev, row.item_count, row.name) == (0, 0, 0, "notes")
    assert value(store, "SELECT count(*) FROM doc") == 0
    assert value(store, "SELECT count(*) FROM mset") == 0


def test_the_first_version_of_a_made_id_has_its_name_and_others_have_their_own(store):
    change(store, puts=[new(MADE, is_made=True), new("x"), new("y", is_made=True)])
    names = set(versions(store))
    change(store, operation="update", puts=[new(MADE, "2", is_made=True)])
    remove(store, MADE)
    change(store, puts=[new(MADE)])

    assert MADE in names
    assert len({name.rpartition(".")[2] for name in names}) == 3
    assert MADE not in versions(store)
    assert [item.id for item in items(store) if item.id == MADE] == [MADE]


def test_a_version_is_later_than_what_it_replaces_whatever_the_clocks_say(folder):
    ahead = Store(folder / "store.db", clock_ms=lambda: 100)
    add(ahead, "x", "y")
    ahead.close()
    store = Store(folder / "store.db", clock_ms=lambda: 50)
    change(store, operation="update", puts=[new("x", "2"), new("z")])

    assert {item.id: item.updated_ms for item in items(store)} == {
        "x": 101, "y": 100, "z": 50,
    }  # fmt: skip
    damage(store, f"UPDATE version SET updated_ms = {TIME_MAX_MS} WHERE id = 'x'")
    change(store, operation="update", puts=[new("x", "3")])
    assert shown(store)["x"] == "3"
    store.close()


@pytest.mark.parametrize(
    "bad", [{"created_ms": -1}, {"sources": -1}, {"meta": "{}"}, {"text": "x" * 65_537}]
)
def test_what_a_set_cannot_hold_is_not_written(store, bad):
    before = add(store, "x")

    with pytest.raises(DocError):
        change(store, puts=[new("y"), new(**{"item_id": "z"} | bad)])

    assert set_row(store) == before
    assert shown(store) == {"x": "x"}


def test_what_a_compaction_removes_is_kept_under_its_id(store):
    row = add(store, "x", "y", "z")
    with store.reading() as connection:
        assert archived(connection, row.doc, b"pass") == []

    after = change(
        store,
        operation="compact",
        puts=[new("sum", "x | y", sources=2)],
        removes=["x", "y"],
        archive=b"pass",
        details={"summaries": 1},
    )

    assert shown(store) == {"z": "z", "sum": "x | y"}
    assert (after.rev, after.item_count) == (2, 2)
    with store.reading() as connection:
        kept = archived(connection, row.doc, b"pass")
        rows = history_of(connection, row.doc, limit=3)
    assert [(item.id, item.text) for item in kept] == [("x", "x"), ("y", "y")]
    assert {(one.id, one.operation) for one in rows} == {
        (one, "compact") for one in ("sum", "x", "y")
    }
    assert len(records(store)) == 2
    details = value(store, "SELECT details FROM audit ORDER BY lsn DESC LIMIT 1")
    assert json.loads(details) == {"summaries": 1}


def test_a_change_may_keep_the_rev_and_then_has_no_history(store):
    add(store, "x")
    row = change(store, puts=[new("y")], keeps_rev=True)

    assert (row.rev, row.item_count, row.history_rows) == (1, 2, 1)


def test_what_exceeds_one_update_becomes_several_of_one_commit(store):
    row = change(store, puts=[new(f"x{n}", "é" * 65_536) for n in range(20)])
    assert len(records(store)) == 2
    assert row.rev == 1

    row = change(
        store, operation="undo", puts=[new(f"x{n}", "a" * 65_536) for n in range(20)]
    )
    assert (row.rev, row.tombstones, row.item_count) == (2, 20, 20)
    assert row.set_hash == hash_of(document_of(store).members())
    assert {item.text[0] for item in items(store)} == {"a"}


def test_a_version_and_those_that_it_replaces_are_in_one_update():
    big = "x" * (SET_UPDATE_BYTES - 10)
    parts = divided({"a": big, "b": big}, ["old-a", "old-b", "z"], {"b": ["old-b"]})

    assert [(list(puts), gone) for puts, gone in parts] == [
        (["a"], []),
        (["b"], ["old-b", "old-a", "z"]),
    ]


def test_a_write_that_raises_leaves_the_set_and_its_document_as_they_were(store):
    before = add(store, "x")

    class StopError(Exception):
        pass

    with pytest.raises(StopError), store.writing() as transaction:
        write_set(
            transaction, before, PLACE,
            SetChange(operation="add", lane="a", puts=[new("y")]),
        )  # fmt: skip
        raise StopError

    assert set_row(store) == before
    assert document_of(store).made == 2
    assert add(store, "z").item_count == 2


def test_two_handles_of_one_store_see_each_others_writes(store):
    other = Store(store.path)
    add(store, "x")
    add(other, "y")
    row = add(store, "z")

    assert shown(other) == {"x": "x", "y": "y", "z": "z"}
    assert (row.rev, row.tombstones) == (3, 0)
    assert document_of(other).is_same(document_of(store))
    other.close()


@pytest.mark.requirement("P8")
def test_a_damaged_record_stops_its_set_alone(store):
    add(store, "x")
    add(store, "x", place=place_of("other"))
    store.docs.clear()
    doc = set_row(store).doc
    damage(store, f"UPDATE log SET content = x'00' WHERE doc = {doc}")

    with pytest.raises(SlotQuarantinedError) as caught:
        add(store, "y")

    assert "'notes'" in str(caught.value)
    assert set_row(store).quarantined is not None
    assert shown(store) == {"x": "x"}
    with pytest.raises(SlotQuarantinedError):
        add(store, "y")
    assert add(store, "y", place=place_of("other")).item_count == 2


def test_rows_that_differ_from_the_records_stop_the_set(store):
    add(store, "x")
    store.docs.clear()
    damage(store, "UPDATE mset SET tombstones = 5")

    with pytest.raises(SlotQuarantinedError, match="differ from its records"):
        add(store, "y")


def test_a_set_is_claimed_by_one_process_until_its_time_is_over(store):
    doc = add(store, "x").doc
    with store.writing() as transaction:
        connection = transaction.connection

        def claim(process, now):
            return claim_set(connection, doc, process, now_ms=now, until_ms=now + 10)

        assert claim("a", 0) == "a"
        assert claim("b", 5) == "a"
        assert claim("a", 5) == "a"
        assert claim("b", 14) == "a"
        assert claim("b", 15) == "b"
        release_claim(connection, doc, "a")
        assert claim("a", 16) == "b"
        release_claim(connection, doc, "b")
        assert claim("a", 16) == "a"


def test_a_set_in_another_namespace_is_another(store):
    add(store, "x")
    add(store, "y", place=PLACE._replace(namespace="q"))

    assert shown(store) == {"x": "x"}
    assert set_row(store, PLACE._replace(namespace="q")).rev == 1
