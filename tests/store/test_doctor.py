import os
import random
import shutil
from contextlib import closing

import apsw
import pytest

import crdtmem
from crdtmem.errors import StoreClosedError, StoreError, StoreReadOnlyError
from crdtmem.limits import DISK_FREE_BYTES
from crdtmem.store.doctor import _of_free_space, _of_holder, examine
from crdtmem.store.lock import Holder
from crdtmem.store.schema import MIGRATIONS
from crdtmem.store.store import Store
from tests.conformance.slots import rows_of

CHECKS = [
    "sqlite",
    "schema",
    "slot-text",
    "records",
    "history",
    "set-versions",
    "editors",
    "limits",
    "search",
    "clock",
    "lock",
    "disk",
    "identity",
    "filesystem",
    "durability",
]


@pytest.fixture(scope="module")
def sample(tmp_path_factory):
    """A store with a long, squashed, undone past, and slots that have next to none."""
    path = tmp_path_factory.mktemp("sample") / "s.db"
    with crdtmem.open(path, lane="a", project="p") as memory:
        memory.configure(history_keep=4)
        memory.create("t", "first\nsecond", description="dé")
        slot = memory.slot("t")
        for number in range(6):
            slot.append(f"line {number} é")
        slot.undo()
        slot.undo(slot.history().entries[0].id)
        memory.compact()
        memory.create("other", "text")
        memory.slot("other").append("more")
        memory.slot("other").set_meta(size_limit=777)
        memory.slot("persona").append("solo")
        memory.create("gone", "x")
        memory.delete("gone")
    return path


@pytest.fixture
def path(sample, tmp_path):
    """A copy of it; its first write takes new ids, as that of every copy does."""
    return shutil.copy(sample, tmp_path / "s.db")


@pytest.fixture
def store(path):
    with closing(Store(path)) as store:
        yield store


def damage(path, statement, **values):
    with closing(apsw.Connection(str(path))) as connection:
        connection.execute(statement, values)
        assert connection.changes()


def faults(findings):
    return [(f.id, f.label) for f in findings if f.status == "fail"]


def of(findings, check):
    return [(f.status, f.label, f.message) for f in findings if f.id == check]


def look(store, **options):
    return examine(
        store, **{"namespaces": None, "repair": False, "deep": False} | options
    )


def texts_in(path):
    with closing(apsw.Connection(str(path))) as connection:
        return connection.execute(
            "SELECT namespace, label, file, rev FROM slot ORDER BY doc"
        ).fetchall()


@pytest.mark.parametrize("deep", [False, True])
def test_every_check_of_a_healthy_store_is_well_and_nothing_is_written(tmp_path, deep):
    path = tmp_path / "s.db"
    with crdtmem.open(path, lane="a", project="p") as memory:
        memory.slot("persona").append("me")
        memory.slot("persona").undo()
    before = path.read_bytes()

    with closing(Store(path)) as store:
        findings = look(store, deep=deep)

    assert [f.id for f in findings] == CHECKS
    assert {f.status for f in findings} == {"ok"}
    assert all(f.message and not f.hint for f in findings)
    assert path.read_bytes() == before


def test_a_repair_of_a_healthy_store_changes_nothing(path, store):
    before = rows_of(path)

    findings = look(store, repair=True, deep=True)

    assert faults(findings) == []
    assert rows_of(path) == before


def test_a_closed_handle_examines_nothing(store):
    store.close()

    with pytest.raises(StoreClosedError):
        look(store)


def test_a_reading_handle_examines_and_does_not_repair(path):
    with closing(Store(path, read_only=True)) as store:
        with pytest.raises(StoreReadOnlyError):
            look(store, repair=True)

        assert faults(look(store)) == []


# What has no second copy anywhere. The times of creation, and which texts came by an
# import, decide about nothing but themselves.
UNCHECKED = {"created_ms", "is_imported", "is_sealed"}
# Where a repair has nothing to go by.
LEFT = {
    ("log", "replica_seq"),
    ("log", "place"),
    ("history", "place"),
    ("slot", "doc"),
    ("doc", "doc"),
}
# Where nothing stands, something: the marks of an undo that is not there, and so on.
SET = {"quarantined": "for a test", "undoes": "[1]"}
# The newest record; of the squashed slot the newest kept text, the row and the doc.
VICTIMS = {
    "log": "rowid = (SELECT max(lsn) FROM log)",
    "history": "rowid = (SELECT max(place) FROM history WHERE place < 2 << 40)",
    "slot": "rowid = 1",
    "doc": "rowid = 1",
}


def spoiled(column, value):
    if value is None:
        return SET.get(column, 5)
    if isinstance(value, int):
        return value ^ 64
    if isinstance(value, str):
        return chr(ord(value[0]) ^ 1) + value[1:]
    return bytes([value[0] ^ 4]) + value[1:]


def columns(*kinds):
    with closing(apsw.Connection(":memory:")) as connection:
        connection.execute("\n".join(MIGRATIONS))
        return [
            (table, column)
            for table in VICTIMS
            for column, kind in connection.execute(
                "SELECT name, type FROM pragma_table_info(:table)", {"table": table}
            )
            if kind in kinds and column not in UNCHECKED
        ]


def value_of(path, table, column):
    with closing(apsw.Connection(str(path))) as connection:
        return connection.execute(
            f"SELECT {column} FROM {table} WHERE {VICTIMS[table]}"
        ).get


@pytest.mark.requirement("P8")
@pytest.mark.parametrize(("table", "column"), columns("INTEGER", "TEXT", "BLOB"))
def test_a_byte_flipped_in_any_column_is_found_and_mended(sample, path, table, column):
    damage(
        path,
        f"UPDATE {table} SET {column} = :value WHERE {VICTIMS[table]}",
        value=spoiled(column, value_of(path, table, column)),
    )

    # No power is cut here, and waiting for the disk takes most of the time.
    with closing(Store(path, durability="normal")) as store:
        found = look(store, repair=True)
        left = faults(look(store, deep=True))

    assert {"fail", "fixed"} & {finding.status for finding in found}
    if (table, column) not in LEFT:
        assert left == []
        assert texts_in(path) == texts_in(sample)


@pytest.mark.requirement("P8")
@pytest.mark.parametrize(("table", "column"), columns("TEXT"))
def test_bytes_that_are_no_text_stop_no_check(path, table, column):
    no_text = f"SET {column} = CAST(x'ff41' AS TEXT)"
    damage(path, f"UPDATE {table} {no_text} WHERE {VICTIMS[table]}")

    with closing(Store(path, durability="normal")) as store:
        findings = look(store, repair=True)
        left = faults(look(store))

    assert {"ok", "fixed"} <= {finding.status for finding in findings}
    assert left == []


def test_a_row_that_cannot_be_read_is_a_finding_of_its_slot(path, store):
    damage(path, "UPDATE slot SET file = CAST(x'ff' AS TEXT) WHERE label = 't'")

    found = look(store)

    assert faults(found) == [("slot-text", "t")]
    assert of(found, "limits")[0][0] == "ok"


@pytest.mark.requirement("P8")
def test_bytes_flipped_anywhere_in_the_file_end_no_examination(sample, tmp_path, seeds):
    raw = sample.read_bytes()
    examined = 0
    for seed in seeds:
        chance = random.Random(seed)
        for number in range(15):
            path = tmp_path / f"{seed}-{number}.db"
            spoilt = bytearray(raw)
            for _ in range(chance.choice([1, 3, 40])):
                spoilt[chance.randrange(len(raw))] ^= 1 << chance.randrange(8)
            path.write_bytes(spoilt)
            try:
                store = Store(path, durability="normal")
            except StoreError:
                continue
            with closing(store):
                findings = look(store, deep=True, repair=bool(number % 2))
            assert set(CHECKS) == {finding.id for finding in findings}
            examined += 1

    assert examined > 10


def test_a_quarantined_slot_is_named_and_its_writes_go_on_after_the_repair(path, store):
    damage(path, "UPDATE slot SET quarantined = 'for a test' WHERE label = 't'")

    found = look(store)
    mended = look(store, repair=True)

    assert faults(found) == [("records", "t")]
    assert of(mended, "records") == [
        (
            "fixed",
            "t",
            "it is quarantined: for a test: its row was written anew from its records",
        )
    ]
    with crdtmem.open(path, lane="z", project="p") as memory:
        assert memory.slot("t").append("again").changed


def test_a_slot_that_nothing_holds_any_more_stays_a_fault_and_others_are_mended(
    path, store
):
    damage(path, "UPDATE slot SET file = 'lost' WHERE label IN ('t', 'other')")
    damage(path, "UPDATE doc SET state = x'00' WHERE doc = 1")
    damage(path, "UPDATE history SET file = 'lost' WHERE place < 2 << 40")

    findings = look(store, repair=True)

    left = [f for f in findings if f.status == "fail"]
    assert {f.label for f in left} == {"t"}
    assert {f.hint for f in left} == {"go back to a backup"}
    assert left[0].message == (
        "its text and its hash differ; it could not be mended:"
        " neither its text nor any kept text is intact"
    )
    assert of(findings, "slot-text")[-1][:2] == ("fixed", "other")
    with crdtmem.open(path, lane="z", project="p") as memory:
        assert memory.slot("other").read().content == "text\nmore"


def test_only_the_namespaces_that_were_named_are_looked_at(path, store):
    damage(path, "UPDATE slot SET size = 99 WHERE label IN ('t', 'persona')")

    seen = {
        namespace: {label for _, label in faults(look(store, namespaces=[namespace]))}
        for namespace in ("global", "p", "q")
    }

    assert seen == {"global": {"persona"}, "p": {"t"}, "q": set()}


def test_a_slot_list_that_cannot_be_read_is_a_finding(path, store):
    damage_schema(path, "ALTER TABLE slot RENAME TO slots")

    findings = look(store)

    assert {"schema", "slot-text"} <= {check for check, _ in faults(findings)}
    assert of(findings, "slot-text")[0][2].startswith("the slots cannot be listed")


def damage_schema(path, statement):
    with closing(apsw.Connection(str(path))) as connection:
        connection.execute(statement)


def test_pages_are_looked_at_when_asked_to(path):
    damage_schema(path, "PRAGMA writable_schema = ON")
    with closing(apsw.Connection(str(path))) as connection:
        connection.execute("PRAGMA writable_schema = ON")
        connection.execute("DELETE FROM sqlite_schema WHERE name = 'slot_lsn'")

    with closing(Store(path)) as store:
        quick, deep = look(store), look(store, deep=True)

    assert of(quick, "sqlite")[0][0] == "ok"
    assert of(deep, "sqlite")[0][:2] == ("fail", None)
    assert "never used" in of(deep, "sqlite")[0][2]
    assert of(quick, "schema") == [
        ("fail", None, "these tables are not as they were made: slot_lsn")
    ]


def test_a_row_that_refers_to_nothing_is_found_when_asked_to(path, store):
    damage(path, "DELETE FROM doc WHERE doc = 3")

    found = of(look(store, deep=True), "sqlite")

    assert ("fail", None, "row 3 of slot refers to a row of doc that is not there") in (
        found
    )


def test_a_version_that_is_not_that_of_the_tables_is_found(path, store):
    damage_schema(path, "PRAGMA user_version = 0")

    assert of(look(store), "schema") == [
        ("fail", None, "the version of the file is not that of its tables")
    ]


def test_a_newer_schema_ends_its_own_check_alone(path, store):
    damage_schema(path, "PRAGMA user_version = 99")

    findings = look(store)

    assert faults(findings) == [("schema", None)]
    assert "could not be made" in of(findings, "schema")[0][2]


def test_records_of_no_document_go_into_quarantine(path, store):
    damage(path, "UPDATE log SET doc = 77 WHERE doc = 3")

    found = look(store)
    look(store, repair=True)
    left = look(store)

    assert ("records", None) in faults(found)
    assert faults(left) == []
    assert [status for status, _, _ in of(left, "records")] == ["ok", "warn"]
    assert of(left, "records")[1][2] == (
        "1 records are kept in quarantine (record-damaged)"
    )


def test_one_history_id_for_two_texts_is_found(path, store):
    damage(
        path,
        "UPDATE history SET place = (5 << 40) | (SELECT max(place) & 0xffffffffff"
        " FROM history WHERE place < 2 << 40) WHERE place = (SELECT max(place)"
        " FROM history)",
    )

    found = of(look(store), "history")

    assert found[-1] == ("fail", None, "1 history ids name more than one text")
    assert "ok" not in {status for status, _, _ in found}


def test_full_slots_are_named(path, store):
    damage(path, "UPDATE slot SET size_limit = size WHERE label = 'other'")
    damage(path, "UPDATE slot SET size_limit = 1 WHERE label = 'persona'")

    found = of(look(store), "limits")

    assert [(status, label) for status, label, _ in found] == [
        ("warn", "other"),
        ("warn", "persona"),
    ]
    assert "over its sizeLimit by 3" in found[1][2]


def test_a_change_of_the_future_is_named(path):
    with closing(Store(path, clock_ms=lambda: 0)) as store:
        found = of(look(store), "clock")

    assert {status for status, _, _ in found} == {"warn"}
    assert len(found) == 4


def test_the_holder_of_the_lock_is_named(path, store):
    with closing(Store(path)) as other, other.writing():
        found = of(look(store), "lock")

    assert found[0][:2] == ("ok", None)
    assert f"process {os.getpid()} (" in found[0][2]


@pytest.mark.parametrize(
    ("holder", "status"),
    [
        (None, "warn"),
        (Holder(os.getpid(), "pytest", ""), "ok"),
        (Holder(1, "init", ""), "ok"),
        (Holder(2**31 - 7, "nobody", ""), "warn"),
        (Holder(2**70, "nobody", ""), "warn"),
    ],
)
def test_a_holder_that_has_ended_is_told_from_one_that_lives(holder, status):
    assert _of_holder(holder).status == status


def test_a_full_disk_is_foreseen():
    assert _of_free_space(DISK_FREE_BYTES).status == "ok"
    assert _of_free_space(DISK_FREE_BYTES - 1).status == "warn"


def test_a_copied_store_is_told_apart(path, store):
    found = look(store)

    assert of(found, "identity") == [
        ("warn", None, "the file was copied or moved, or the machine restarted")
    ]
    assert faults(found) == []


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("lsn = 2", "its counter stands at 2, and its log at "),
        ("history_keep = 0", "it is to keep 0 texts a slot"),
        ("replica = x'00'", "its replica id has 1 bytes"),
    ],
)
def test_what_the_store_says_about_itself_is_set_right(path, store, change, message):
    damage(path, f"UPDATE store SET {change}")

    found = of(look(store), "identity")
    mended = of(look(store, repair=True), "identity")
    left = look(store)

    assert [status for status, _, _ in found] == ["fail"]
    assert found[0][2].startswith(message)
    assert [status for status, _, _ in mended] == ["fixed"]
    assert (faults(left), of(left, "identity")[0][0]) == ([], "ok")
    with crdtmem.open(path, lane="z", project="p") as memory:
        assert memory.slot("t").append("again").changed


def test_a_place_that_everybody_may_write_to_is_named(path, store):
    os.chmod(path, 0o666)

    found = of(look(store), "filesystem")

    assert found[0][0] == "fail"
    assert "0666" in found[0][2]


def test_a_file_that_is_not_in_wal_mode_is_named(path):
    damage_schema(path, "PRAGMA journal_mode = DELETE")

    with closing(Store(path)) as store:
        assert of(look(store), "durability")[0][0] == "fail"


def test_writes_that_a_power_cut_may_take_back_are_named(path):
    with closing(Store(path, durability="normal")) as store:
        assert of(look(store), "durability")[0][0] == "warn"
