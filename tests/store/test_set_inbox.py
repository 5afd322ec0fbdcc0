"""crdtmem.store.set_inbox"""

from collections.abc import Callable
from typing import Any

import pytest
from pycrdt import Doc, Map

from crdtmem.doc.items import HEADER, header_value, version_value
from crdtmem.errors import DocError, UpdateRejectedError
from crdtmem.partition import doc_name, encode_key
from crdtmem.protocol.envelopes import decode_envelope
from crdtmem.store.doc_inbox import Incoming
from crdtmem.store.doctor import examine
from crdtmem.store.set_docs import set_document
from crdtmem.store.set_doctor import inspect_set, set_docs_in
from crdtmem.store.set_inbox import SetInbox
from crdtmem.store.sets import SetPlace, find_set, set_of_doc
from crdtmem.store.store import Store
from tests.exchange import known_streams, outgoing, receive
from tests.store.set_writes import (
    KEY,
    NAME,
    PLACE,
    add,
    change,
    document_of,
    foreign_record,
    items,
    new,
    place_of,
    remove,
    set_row,
    shown,
    versions,
)
from tests.store.writes import (
    FOREIGN_CLIENT,
    NAMESPACE,
    damage,
    quarantined,
    value,
)
from tests.yjs_bytes import update

SUFFIX = "abcdefghjk"
PLAIN = {"t": "text", "c": 1, "u": 2, "l": "b"}


class Peer:
    """Another replica's document, which writes whatever it is told to."""

    def __init__(self, state=b""):
        self.doc: Doc[Map[object]] = Doc(client_id=FOREIGN_CLIENT)
        self.items: Map[object] = self.doc.get("items", type=Map)
        if state:
            self.doc.apply_update(state)

    def put(self, **members):
        found: list[bytes] = []
        subscription = self.doc.observe(lambda event: found.append(event.update))
        with self.doc.transaction():
            for name, content in members.items():
                self.items[name.replace("__", ".")] = content
        self.doc.unobserve(subscription)
        return found[0]


def exchange(store, other):
    """Bring what each has to the other."""
    receive(other, NAMESPACE, outgoing(store, NAMESPACE))
    receive(store, NAMESPACE, outgoing(other, NAMESPACE))


def looks(store, place=PLACE):
    """Return what must be equal in all stores that have the same records."""
    row = set_row(store, place)
    return (
        [item._replace(doc=0, rev=0) for item in items(store, place)],
        {name: one._replace(doc=0) for name, one in versions(store, place).items()},
        row[8:12],
        row.dropped_ms is None,
        (row.key_long, row.name, row.has_header, row.foreign_count, row.members),
    )


def is_whole(store):
    """Tell whether rows and records of all sets agree."""
    with store.snapshot() as connection:
        docs = set_docs_in(connection, None)
        return docs and not any(inspect_set(connection, doc) for doc in docs)


def test_items_of_others_come_in_with_one_rev_a_batch(store, other):
    add(other, "x", "y")
    remove(other, "y")
    change(other, puts=[new("x", "2", '{"a":1}')], lane="ann")

    assert receive(store, NAMESPACE, outgoing(other, NAMESPACE)) == 3

    row = set_row(store)
    assert (row.rev, row.operation, row.lane) == (1, "sync", "a, ann")
    assert (row.name, row.key_long, row.dropped_ms) == ("notes", KEY, None)
    assert looks(store) == looks(other)
    assert is_whole(store)
    history = value(store, "SELECT group_concat(operation || id || old) FROM"
                    " item_history")  # fmt: skip
    assert history == "syncx"
    assert receive(store, NAMESPACE, outgoing(other, NAMESPACE)) == 0
    assert set_row(store) == row


def test_concurrent_updates_are_one_item_with_a_conflict_until_it_is_written(
    store, folder
):
    later = Store(folder / "later.db", clock_ms=lambda: 4 * 10**12)
    add(store, "x")
    exchange(store, later)
    change(store, puts=[new("x", "mine")])
    change(later, puts=[new("x", "theirs", '{"a":1}')], lane="b")
    exchange(store, later)

    (item,) = items(store)
    assert (item.text, item.lane) == ("theirs", "b")
    assert item.conflicts.startswith('[["mine", "", ')
    assert looks(store) == looks(later)
    assert set_row(store).size == len("theirs") + len('{"a":1}') + len("mine")
    assert [v.text for v in versions(store).values()] == ["theirs", "mine"]

    change(store, operation="update", puts=[new("x", "both")])
    assert (items(store)[0].text, items(store)[0].conflicts) == ("both", "")
    exchange(store, later)
    assert looks(store) == looks(later)
    assert is_whole(later)
    later.close()


def test_a_version_that_goes_leaves_the_others_of_its_item(store, folder):
    later = Store(folder / "later.db", clock_ms=lambda: 4 * 10**12)
    add(store, "x")
    exchange(store, later)
    change(store, puts=[new("x", "mine")])
    change(later, puts=[new("x", "theirs")])
    remove(later, "x")
    exchange(store, later)

    assert shown(store) == shown(later) == {"x": "mine"}
    assert items(store)[0].conflicts == ""
    assert looks(store) == looks(later)
    later.close()


def put(store, place, item_id, **fields):
    """Write an item whose text tells who wrote it."""
    puts = [new(item_id, store.path.name)]
    return change(store, place, puts=puts, **fields)


VERBS: dict[str, Callable[[Store, SetPlace], object]] = {
    "add": lambda s, p: put(s, p, "new"),
    "add the same": lambda s, p: put(s, p, "same"),
    "update": lambda s, p: put(s, p, "x", operation="update"),
    "delete": lambda s, p: remove(s, "x", place=p),
    "update, delete": lambda s, p: (VERBS["update"](s, p), VERBS["delete"](s, p)),
    "clear": lambda s, p: change(s, p, operation="clear", clears=True),
    "drop": lambda s, p: change(s, p, operation="drop", drops=True),
    "compact": lambda s, p: put(s, p, "sum", operation="compact", removes=["x", "y"]),
}
REMOVERS = {"delete", "update, delete", "clear", "drop", "compact"}


def expected(first, second):
    """Return the texts that must be there after two concurrent verbs."""
    pair = {first, second}
    made = {"add": "new", "add the same": "same", "update": "x", "compact": "sum"}
    found = {made[verb] for verb in pair if verb in made}
    if not pair & REMOVERS:
        found |= {"x"}
    if not pair & {"clear", "drop", "compact"}:
        found |= {"y"}
    return found


# Both orders of a pair are one, as the stores change their ids.
PAIRS = {(a, b): place_of(f"{a} | {b}") for a in VERBS for b in VERBS if a <= b}


def results_of_pairs(folder, ids):
    """Do each pair of verbs in a set of its own; return what both stores hold then."""
    folder.mkdir(mode=0o700)
    one, two = (
        Store(folder / f"{name}.db", clock_ms=lambda: 1_000) for name in ("one", "two")
    )
    for store, replica in ((one, ids[0]), (two, ids[1])):
        damage(store, f"UPDATE store SET replica = x'{replica.hex()}'")
    for place in PAIRS.values():
        add(one, "x", "y", place=place)
    exchange(one, two)
    for (first, second), place in PAIRS.items():
        VERBS[first](one, place)
        VERBS[second](two, place)
    exchange(one, two)

    assert [looks(one, p) for p in PAIRS.values()] == [
        looks(two, p) for p in PAIRS.values()
    ]
    # The other has the same rows.
    assert is_whole(one)
    found = {
        pair: (set(shown(one, p)), sorted(v.text for v in versions(one, p).values()))
        for pair, p in PAIRS.items()
    }
    one.close()
    two.close()
    return found


@pytest.mark.requirement("sets-M2")
def test_each_pair_of_concurrent_verbs_ends_the_same_whoever_has_which_id(folder):
    low, high = bytes(16), b"\xff" * 16

    results = results_of_pairs(folder / "a", (low, high))

    assert results == results_of_pairs(folder / "b", (high, low))
    assert {pair: ids for pair, (ids, _) in results.items()} == {
        pair: expected(*pair) for pair in PAIRS
    }


FOREIGN: dict[str, dict[str, Any]] = {
    "no text": {f"x.{SUFFIX}": {"c": 1, "u": 2, "l": "b"}},
    "a long text": {f"x.{SUFFIX}": PLAIN | {"t": "x" * 1_000_000}},
    "deep metadata": {f"x.{SUFFIX}": PLAIN | {"m": '{"a":' + "[" * 9 + "]" * 9 + "}"}},
    "a number as text": {f"x.{SUFFIX}": PLAIN | {"t": 5}},
    "a name that is none": {"x": PLAIN},
    "nested values": {"a" * 20: [[{"x": [None]}]]},
    "the header of another key": {HEADER: header_value(encode_key("z"), "notes")},
}


@pytest.mark.requirement("sets-M3")
@pytest.mark.parametrize("fault", FOREIGN)
def test_foreign_values_are_not_shown_but_counted_the_same_everywhere(
    store, other, fault
):
    add(store, "mine")
    receive(other, NAMESPACE, outgoing(store, NAMESPACE))
    peer = Peer(document_of(store).state())
    records = [
        foreign_record(peer.put(**FOREIGN[fault])),
        foreign_record(peer.put(**{f"good.{SUFFIX}": PLAIN}), seq=2),
    ]
    for one in (store, other):
        receive(one, NAMESPACE, records)

    assert looks(store) == looks(other)
    for one in (store, other):
        assert shown(one) == {"mine": "mine", "good": "text"}
        assert set_row(one).foreign_count == 1
        found = examine(one, namespaces=None, repair=False, deep=False)
        assert [
            (f.status, f.label, f.message) for f in found if f.id == "set-versions"
        ] == [
            ("warn", "notes", "1 values are no versions of an item"),
            ("ok", None, "rows and records agree in 1 memory sets"),
        ]
    # The rest of the set works, and a write puts a header back.
    row = add(store, "more")
    assert row.item_count == 3
    assert row.has_header == 1
    receive(other, NAMESPACE, outgoing(store, NAMESPACE))
    assert looks(store) == looks(other)
    row = change(store, operation="clear", clears=True)
    assert (row.foreign_count, row.item_count, row.members) == (0, 0, 1)


def test_a_foreign_value_that_becomes_an_item_and_back_is_followed(store):
    peer = Peer()
    name = f"x.{SUFFIX}"
    for seq, (content, texts, count) in enumerate(
        [
            (PLAIN | {"t": 5}, {}, 1),
            (PLAIN, {"x": "text"}, 0),
            (PLAIN | {"t": 6}, {}, 1),
        ],
        1,
    ):
        receive(
            store, NAMESPACE, [foreign_record(peer.put(**{name: content}), seq=seq)]
        )

        assert shown(store) == texts
        assert set_row(store).foreign_count == count
    found = examine(store, namespaces=None, repair=False, deep=False)
    assert {f.status for f in found if f.id == "set-versions"} == {"ok", "warn"}


@pytest.mark.parametrize("key", ["k", "k" * 200])
@pytest.mark.parametrize("name", ["notes", "n" * 200])
def test_the_names_of_a_set_come_from_its_header_or_from_its_doc(
    store, other, key, name
):
    place = PLACE._replace(key_long=encode_key(key), name=name)
    add(store, "x", place=place)
    receive(other, NAMESPACE, outgoing(store, NAMESPACE))
    assert set_row(other, place).place == place

    doc = doc_name(place.key_long, f"{name}!")
    value_ = version_value(next(iter(versions(store, place).values()))._replace())  # type: ignore[arg-type] # it has the fields
    receive(
        store, NAMESPACE,
        [foreign_record(Peer().put(**{f"y.{SUFFIX}": value_}), name=doc)],
    )  # fmt: skip
    row = set_row(store, place._replace(name=f"{name}!"))
    assert row.key_long == (place.key_long if len(key) < 100 else "")
    assert row.name == (f"{name}!" if len(name) < 100 else "")
    assert (row.has_header, row.item_count, row.dropped_ms) == (0, 1, None)
    # Whoever knows the names writes them in.
    row = add(store, "z", place=place._replace(name=f"{name}!"))
    assert row.place == place._replace(name=f"{name}!")


def test_a_header_that_comes_again_with_the_same_names_makes_no_rev(store):
    row = add(store, "x")
    peer = Peer(document_of(store).state())

    receive(
        store, NAMESPACE,
        [foreign_record(peer.put(**{HEADER: header_value(KEY, "notes")}))],
    )  # fmt: skip

    after = set_row(store)
    assert (after.rev, after.set_hash, after.has_header) == (1, row.set_hash, 1)
    assert after.tombstones == row.tombstones + 1
    assert is_whole(store)


REFUSED = {
    "no update": (foreign_record(b""), "update-malformed"),
    "another client": (foreign_record(update((5, 0, []))), "update-client"),
    "a first text": (
        foreign_record(Peer().put(a=1), is_genesis=True),
        "update-client",
    ),
    "a counter": (foreign_record(Peer().put(a=1), counter=1), "update-client"),
    "no name of a set": (foreign_record(Peer().put(a=1), name="plan"), "doc-error"),
}


@pytest.mark.requirement("P8")
@pytest.mark.parametrize("fault", REFUSED)
def test_a_refused_record_is_kept_in_quarantine_and_stops_nothing_else(store, fault):
    bad, code = REFUSED[fault]
    good = foreign_record(
        Peer().put(**{f"x.{SUFFIX}": PLAIN}),
        seq=2,
        name=doc_name(KEY, "other"),
    )
    row = add(store, "x")

    assert receive(store, NAMESPACE, [bad, good]) == 2

    assert [found for found, _ in quarantined(store)] == [code]
    assert set_row(store) == row
    assert shown(store, place_of("other")) == {"x": "text"}
    assert is_whole(store)


@pytest.mark.requirement("P8")
def test_a_set_in_quarantine_takes_nothing_and_the_others_do(store, other):
    add(store, "x")
    add(store, "x", place=place_of("b"))
    exchange(store, other)
    for name in ("notes", "b"):
        add(other, "y", place=place_of(name))
    store.docs.clear()
    damage(store, f"UPDATE log SET content = x'00' WHERE doc = {set_row(store).doc}")

    receive(store, NAMESPACE, outgoing(other, NAMESPACE))

    assert [code for code, _ in quarantined(store)] == ["slot-quarantined"]
    assert set_row(store).quarantined is not None
    assert shown(store) == {"x": "x"}
    assert shown(store, place_of("b")) == {"x": "x", "y": "y"}


def test_a_slot_and_a_set_of_one_doc_name_are_two_docs(store):
    receive(
        store, NAMESPACE,
        [foreign_record(Peer().put(**{f"x.{SUFFIX}": PLAIN}))],
    )  # fmt: skip

    assert value(store, "SELECT count(*) FROM slot") == 0
    assert value(store, "SELECT kind FROM doc") == 2
    assert len(known_streams(store, NAMESPACE)) == 1


def test_a_write_that_only_deletes_is_logged_once_however_often_it_comes(store, other):
    add(other, "x")
    remove(other, "x")
    records = outgoing(other, NAMESPACE)
    receive(store, NAMESPACE, records)
    row = set_row(store)
    with store.writing() as transaction:
        inbox = SetInbox(transaction, store, NAMESPACE, NAME)
        again = [
            Incoming(one.replica, one.replica_seq, decode_envelope(1, one.envelope))  # type: ignore[arg-type] # kind 1 is an update
            for one in records
        ]
        assert inbox.take(again) == 2

    assert value(store, "SELECT count(*) FROM log") == 2
    assert set_row(store) == row


class Unlike(SetInbox):
    """An inbox whose document turns out to be another than its records say."""

    def _check(self, document, steps):
        document.clocks[5] = 1
        super()._check(document, steps)


def test_a_batch_after_which_the_document_differs_is_not_kept(store):
    row = add(store, "x")
    with store.writing() as transaction:
        inbox = Unlike(transaction, store, NAMESPACE, NAME)
        with pytest.raises(DocError):
            inbox.take([])
        assert inbox.fitting([]) == (0, "doc-error")
        assert SetInbox(transaction, store, NAMESPACE, NAME).fitting([]) == (0, "")

    assert set_row(store) == row
    assert add(store, "y").item_count == 2


def test_a_document_of_a_set_is_found_by_the_row_of_its_doc(store):
    row = add(store, "x")
    with store.writing() as transaction:
        found = find_set(transaction.connection, PLACE)
        assert found == set_of_doc(transaction.connection, row.doc)
        assert set_document(transaction, row).made == 2
    with pytest.raises(UpdateRejectedError):
        document_of(store).apply(b"", 1)
