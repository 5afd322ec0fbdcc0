"""Items of memory sets out of one store and into another."""

import io
import json

import pytest

import crdtmem
from crdtmem.errors import ImportRefusedError
from crdtmem.partition import encode_key
from tests.replica import exchange_records

KEY = ("job", b"\0", 1)


@pytest.fixture
def stores(tmp_path):
    """Open stores on one project, each in a folder of its own, by name."""
    memories = {}

    def open_one(name):
        if name not in memories:
            path = tmp_path / name / "s.db"
            path.parent.mkdir()
            memories[name] = crdtmem.open(path, lane=name, project="p")
        return memories[name]

    yield open_one
    for memory in memories.values():
        memory.close()


@pytest.fixture
def here(stores):
    return stores("here")


@pytest.fixture
def there(stores):
    return stores("there")


def set_in(memory, name="facts", key=KEY, scope="project"):
    return memory.bind(partition_key=key, scope=scope).memory_set(name)


def exported(memory, **choice):
    stream = io.StringIO()
    memory.export(stream, **choice)
    return stream.getvalue()


def take(memory, text, **options):
    report = memory.import_(io.StringIO(text), **options)
    assert not report.bad
    return report


def did(report):
    """Return what an import did with each set."""
    return [
        (s.set, s.action, s.added, s.updated, s.same, s.differing, s.deleted)
        for s in report.sets or ()
    ]


def items_of(found):
    """Return what an item is to whoever reads it in any store."""
    return [
        {k: v for k, v in item.to_dict().items() if k != "rev"}
        for item in found.get(order="oldest").items
    ]


def source_of(*records):
    end = {"type": "end", "slots": 0, "history": 0}
    return "".join(json.dumps(record) + "\n" for record in (*records, end))


def item(text="x", **fields):
    record = {
        "type": "item",
        "scope": "project",
        "partitionKey": encode_key(KEY),
        "set": "facts",
        "text": text,
        "metadata": {},
        "createdAt": "2026-01-01T00:00:00.000Z",
        "updatedAt": "2026-01-01T00:00:00.001Z",
        "lane": "z",
    }
    return record | fields


def test_items_come_back_as_they_were(here, there):
    facts = set_in(there)
    facts.add(["tea", "", "lines\n\U0001f680"], [{"n": 1.0}, {}, {"t": [None]}])
    facts.update(facts.get().items[0].id, "other")
    set_in(there, "more", "", "global").add("everybody's", ids="a.b")
    set_in(there, "dropped").add("gone")
    set_in(there, "dropped").drop()

    text = exported(there)
    report = take(here, text)

    assert did(report) == [
        ("facts", "created", 3, 0, 0, 0, 0),
        ("more", "created", 1, 0, 0, 0, 0),
    ]
    assert items_of(set_in(here)) == items_of(facts)
    assert items_of(set_in(here, "more", "", "global"))[0]["id"] == "a.b"
    assert set_in(here).headroom().rev == 1
    assert {e.operation for e in set_in(here).history().entries} == {"import"}
    assert there.export(io.StringIO()).items == 4
    assert did(take(here, text)) == [
        ("facts", "same", 0, 0, 3, 0, 0),
        ("more", "same", 0, 0, 1, 0, 0),
    ]
    assert set_in(here).headroom().rev == 1


def test_what_is_exported_may_be_chosen(there):
    set_in(there).add("a")
    set_in(there, scope="global").add("b")

    assert '"text": "a"' not in exported(there, scope="global")
    assert '"text": "b"' in exported(there, scope="global")
    assert '"item"' not in exported(there, labels=["persona"])


def test_more_items_than_a_batch_are_exported(there):
    for part in range(3):
        set_in(there).add([f"{part} {n}" for n in range(500)])

    assert there.export(io.StringIO()).items == 1_500


@pytest.mark.requirement("sets-M5")
def test_two_stores_that_import_one_file_hold_it_once_when_they_meet(stores):
    facts = set_in(stores("there"))
    facts.add(["a", "b", "b"], {"n": 1})
    facts.update(facts.get().items[0].id, "b2")
    text = exported(stores("there"))
    without_ids = source_of(item("x"), item("x"), item("y", metadata={"n": 1}))
    pair = stores("one"), stores("two")

    for memory in pair:
        take(memory, text)
        take(memory, without_ids)
    one, two = map(set_in, pair)
    assert items_of(one) == items_of(two)
    assert one.headroom().set_hash == two.headroom().set_hash
    exchange_records([[memory] for memory in pair])

    assert one.headroom().item_count == two.headroom().item_count == 6
    assert items_of(one) == items_of(two)
    assert not any("conflicts" in found for found in items_of(one))
    assert one.headroom().set_hash == two.headroom().set_hash
    for memory in pair:
        assert {row[1] for row in did(take(memory, text))} == {"same"}


def test_versions_in_conflict_travel_too(stores):
    pair = stores("one"), stores("two")
    set_in(pair[0]).add("base", ids="i")
    exchange_records([[memory] for memory in pair])
    for memory, text in zip(pair, ("mine", "theirs"), strict=True):
        set_in(memory).update("i", text, {"by": text})
    exchange_records([[memory] for memory in pair])
    text = exported(pair[0])

    take(stores("three"), text)

    assert "conflicts" in items_of(set_in(pair[0]))[0]
    assert items_of(set_in(stores("three"))) == items_of(set_in(pair[0]))


def test_what_is_here_stays_unless_it_is_to_be_replaced(here, there):
    set_in(there).add(["a", "b"], ids=["i", "j"])
    text = exported(there)
    take(here, text)
    set_in(here).update("i", "mine")

    assert did(take(here, text)) == [("facts", "same", 0, 0, 1, 1, 0)]
    assert did(take(here, text, on_conflict="replace", dry_run=True)) == [
        ("facts", "updated", 0, 1, 1, 0, 0)
    ]
    assert set_in(here).get("i").items[0].text == "mine"
    assert did(take(here, text, on_conflict="replace")) == [
        ("facts", "updated", 0, 1, 1, 0, 0)
    ]
    assert set_in(here).get("i").items[0].text == "a"
    set_in(here).update("i", "mine again")
    repeated = take(here, text, on_conflict="replace")
    assert did(repeated) == [("facts", "same", 0, 0, 1, 0, 0)]
    assert set_in(here).get("i").items[0].text == "mine again"


def test_what_was_deleted_here_stays_deleted_unless_it_is_revived(here, there):
    set_in(there).add(["a", "b"], ids=["i", "j"])
    text = exported(there)
    take(here, text)
    set_in(here).delete("i")

    assert did(take(here, text)) == [("facts", "same", 0, 0, 1, 0, 1)]
    assert did(take(here, text, revive=True)) == [("facts", "updated", 1, 0, 1, 0, 0)]
    assert set_in(here).get("i").items[0].text == "a"


def test_a_dry_run_writes_nothing(here):
    assert did(take(here, source_of(item()), dry_run=True)) == [
        ("facts", "created", 1, 0, 0, 0, 0)
    ]
    assert here.bind(partition_key=KEY).memory_sets() == []


def test_a_full_set_is_refused_and_others_go_on(here, monkeypatch):
    monkeypatch.setattr("crdtmem.sets.writing.SET_ITEMS_MAX", 1)
    records = [item("a"), item("b"), item("c", set="other")]

    report = take(here, source_of(*records))

    assert [(s.set, s.action, s.code or "") for s in report.sets] == [
        ("facts", "refused", "set-full"),
        ("other", "created", ""),
    ]
    assert set_in(here).get().items == ()


def test_a_damaged_set_is_refused(here):
    set_in(here).add("a")
    with here.store.writing() as transaction:
        transaction.connection.execute("UPDATE mset SET quarantined = 'update-bad'")

    for is_dry in (False, True):
        report = take(here, source_of(item()), dry_run=is_dry)
        assert report.sets[0].code == "slot-quarantined"


BAD_ITEMS = [
    (item(scope="all"), "invalid-scope"),
    (item(partitionKey="x.1"), "invalid-partition-key"),
    (item(set=""), "invalid-name"),
    (item(set=5), "bad-type"),
    (item(id=5), "invalid-argument"),
    (item(id=""), "invalid-argument"),
    (item(text=5), "bad-type"),
    (item("\ud800"), "invalid-text"),
    (item("x" * 65_537), "item-too-large"),
    (item(metadata={"@x": 1}), "invalid-metadata"),
    (item(metadata=[]), "bad-type"),
    (item(createdAt="soon"), "bad-type"),
    (item(updatedAt="1969-12-31T23:59:59Z"), "bad-type"),
    (item(lane=""), "invalid-lane"),
    (item(sources=True), "bad-type"),
    (item(sources=-1), "bad-type"),
    (item(conflicts={}), "bad-type"),
    (item(conflicts=[5]), "missing-field"),
    ({"type": "item", "scope": "project"}, "missing-field"),
]


def test_bad_items_are_named_and_skipped(here):
    records = [record for record, _ in BAD_ITEMS]
    source = source_of(*records, item("good", id="g"), item("twice", id="g"))
    report = here.import_(io.StringIO(source))

    assert [(bad.line, bad.code) for bad in report.bad] == [
        *((line, code) for line, (_, code) in enumerate(BAD_ITEMS, 1)),
        (len(BAD_ITEMS) + 2, "duplicate-item"),
    ]
    assert [found.text for found in set_in(here).get().items] == ["good"]
    with pytest.raises(ImportRefusedError):
        here.import_(io.StringIO(source), strict=True)


def test_a_moment_after_9999_is_the_last_of_that_year(here):
    late = "9999-12-31T23:59:59-12:00"

    take(here, source_of(item(createdAt=late, updatedAt=late)))

    (found,) = set_in(here).get().items
    assert found.created_at == found.updated_at == "9999-12-31T23:59:59.999Z"


def test_a_summary_keeps_the_number_of_its_sources(here):
    take(here, source_of(item(sources=3)))

    assert set_in(here).get().items[0].sources == 3
    assert '"sources": 3' in exported(here)
