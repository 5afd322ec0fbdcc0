import logging
import os
import stat

import pytest

from crdtmem.doc.delta import Splice
from crdtmem.errors import InvalidArgumentError, StoreClosedError
from crdtmem.store.backup import backup, compact
from crdtmem.store.log import count_rows
from crdtmem.store.schema import MIGRATIONS
from crdtmem.store.slots import find_slot, quarantine_slot
from crdtmem.store.store import Store
from crdtmem.store.write import Change


@pytest.fixture
def store(tmp_path):
    folder = tmp_path / "store"
    folder.mkdir()
    with_history = Store(folder / "store.db", history_keep=2)
    yield with_history
    with_history.close()


def append(store, label, *lines):
    for line in lines:
        with store.writing() as transaction:
            row = transaction.slot("p", label)
            end = len(row.file) if row else 0
            change = Change(
                operation="append", lane="a", delta=(Splice(end, end, f"{line}\n"),)
            )
            row, _ = transaction.write_slot(row, "p", label, change)
    return row


def replica_of(store):
    with store.reading() as connection:
        return connection.execute("SELECT replica FROM store").get


def text_of(store, label):
    with store.reading() as connection:
        row = find_slot(connection, "p", label)
    assert row is not None
    return row.file


def records_of(store, doc):
    with store.reading() as connection:
        return count_rows(connection, doc)


def damage(store, statement, **values):
    with store.reading() as connection:
        connection.execute(statement, values)


@pytest.mark.requirement("P1")
def test_a_backup_is_a_whole_store_for_its_owner_alone(store, tmp_path):
    row = append(store, "plan", "one", "two")
    target = tmp_path / "copy.db"

    size = backup(store, target)

    assert size == target.stat().st_size
    assert stat.S_IMODE(target.stat().st_mode) == 0o600
    assert sorted(os.listdir(tmp_path)) == ["copy.db", "store"]
    copy = Store(target)
    with copy.reading() as connection:
        assert find_slot(connection, "p", "plan") == row
        assert connection.pragma("integrity_check") == "ok"
        assert connection.pragma("journal_mode") == "wal"
    copy.close()


def test_a_backup_takes_new_ids_at_its_first_write(store, tmp_path):
    append(store, "plan", "one")
    backup(store, tmp_path / "copy.db")

    copy = Store(tmp_path / "copy.db")
    before = replica_of(copy)
    append(copy, "plan", "there")
    append(store, "plan", "here")

    assert before == replica_of(store) != replica_of(copy)
    assert text_of(copy, "plan") == "one\nthere\n"
    assert text_of(store, "plan") == "one\nhere\n"
    copy.close()


def test_a_backup_is_made_while_another_handle_writes_and_reads(store, tmp_path):
    append(store, "plan", "one")
    other = Store(store.path, read_only=True)

    with store.writing() as transaction:
        row = transaction.slot("p", "plan")
        change = Change(operation="append", lane="a", delta=(Splice(4, 4, "two\n"),))
        transaction.write_slot(row, "p", "plan", change)
        backup(other, tmp_path / "copy.db")

    other.close()
    copy = Store(tmp_path / "copy.db")
    assert text_of(copy, "plan") == "one\n"
    copy.close()


def test_a_backup_replaces_no_file(store, tmp_path):
    target = tmp_path / "precious"
    target.write_text("precious", encoding="utf-8")

    with pytest.raises(InvalidArgumentError) as caught:
        backup(store, target)

    assert caught.value.code == "invalid-argument"
    assert caught.value.message == f"target exists already: {target}"
    assert target.read_text(encoding="utf-8") == "precious"
    assert sorted(os.listdir(tmp_path)) == ["precious", "store"]


def test_a_backup_that_fails_leaves_nothing_behind(store, tmp_path):
    store.close()

    with pytest.raises(StoreClosedError):
        backup(store, tmp_path / "copy.db")

    assert os.listdir(tmp_path) == ["store"]


def test_compacting_squashes_what_the_history_does_not_need(store):
    plan = append(store, "plan", *range(20))
    other = append(store, "other", "x")

    figures = compact(store)

    assert (figures.docs, figures.records_before, figures.records_after) == (2, 21, 3)
    assert records_of(store, plan.doc) == 2
    assert records_of(store, other.doc) == 1
    assert figures.bytes_after == store.path.stat().st_size < figures.bytes_before
    assert text_of(store, "plan") == plan.file
    assert append(store, "plan", "more").file == f"{plan.file}more\n"


def test_compacting_twice_changes_nothing_more(store):
    append(store, "plan", *range(20))
    first = compact(store)

    second = compact(store)

    assert second == first._replace(
        records_before=first.records_after, bytes_before=first.bytes_after
    )


def test_the_file_is_written_anew_once_a_quarter_of_it_is_free(store):
    append(store, "plan", *("x" * 1000 for _ in range(60)))
    store.checkpoint()
    long_bytes = store.path.stat().st_size

    compact(store)

    with store.reading() as connection:
        assert connection.pragma("freelist_count") == 0
        assert connection.pragma("application_id") == 0x63724D31
        assert connection.pragma("user_version") == len(MIGRATIONS)
    assert store.path.stat().st_size < long_bytes


@pytest.mark.requirement("P8")
def test_a_damaged_doc_does_not_stop_the_others(store, caplog):
    bad = append(store, "bad", *range(9))
    good = append(store, "good", *range(9))
    damage(store, "UPDATE log SET content = x'00' WHERE doc = :doc", doc=bad.doc)

    with caplog.at_level(logging.WARNING):
        figures = compact(store)

    assert (figures.records_before, figures.records_after) == (18, 11)
    assert records_of(store, good.doc) == 2
    assert caplog.messages == [f"doc {bad.doc} is damaged and stays as it is"]


def test_the_records_of_a_quarantined_slot_are_left_for_its_repair(store):
    bad = append(store, "bad", *range(9))
    with store.writing() as transaction:
        quarantine_slot(transaction.connection, bad.doc, "for a test")

    compact(store)

    assert records_of(store, bad.doc) == 9
