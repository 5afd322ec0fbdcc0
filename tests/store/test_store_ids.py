"""crdtmem.store.store: under which ids the handles of a store write, and its copies."""

import shutil
import subprocess
import sys

import pytest

from crdtmem.store.store import Store
from tests.store.writes import append, log, own_client, slot, texts, value

WRITE_ELSEWHERE = """
import sys
from pathlib import Path
from crdtmem.store.store import Store
from tests.store.writes import append
store = Store(Path(sys.argv[1]))
append(store, "plan", *sys.argv[2:])
store.close()
"""


@pytest.fixture
def write_elsewhere():
    """Append lines in another process."""

    def write(store, *lines):
        subprocess.run(
            [sys.executable, "-c", WRITE_ELSEWHERE, str(store.path), *lines],
            check=True,
        )

    return write


@pytest.mark.process
def test_all_processes_of_a_store_write_under_one_client_id(store, write_elsewhere):
    append(store, "plan", "here")
    write_elsewhere(store, "elsewhere", "é there")
    append(store, "plan", "here again")
    with store.writing() as transaction:
        document = transaction.document(slot(store, "plan"))

    assert document.file == "here\nelsewhere\né there\nhere again\n"
    assert list(document.clocks) == [own_client(store)]
    assert len({row.replica for row in log(store, "plan")}) == 1
    document.check()


def test_all_handles_of_a_process_write_under_one_client_id(store, folder):
    other = Store(folder / "store.db")
    append(store, "plan", "one")
    append(other, "plan", "two")
    append(store, "plan", "three")
    with other.writing() as transaction:
        document = transaction.document(slot(store, "plan"))

    assert document.file == "one\ntwo\nthree\n"
    assert list(document.clocks) == [own_client(store)]
    other.close()


def test_a_store_that_stays_where_it_is_keeps_its_ids(store, folder):
    append(store, "plan", "one")
    before = value(store, "SELECT replica FROM store"), store.context
    store.close()
    again = Store(folder / "store.db")
    append(again, "plan", "two")

    assert (value(again, "SELECT replica FROM store"), again.context) == before
    again.close()


def test_a_copy_takes_ids_of_its_own_with_its_first_write(store, folder, tmp_path):
    append(store, "plan", "one")
    old = value(store, "SELECT replica FROM store")
    store.close()
    shutil.copytree(folder, tmp_path / "copy")
    original, copy = Store(folder / "store.db"), Store(tmp_path / "copy" / "store.db")
    unwritten = value(copy, "SELECT replica FROM store")
    append(copy, "plan", "in the copy")
    append(original, "plan", "in the original")
    new = value(copy, "SELECT replica FROM store")
    append(copy, "plan", "more")

    assert unwritten == old
    assert new != old
    assert value(original, "SELECT replica FROM store") == old
    assert [row.replica for row in log(copy, "plan")] == [old, new, new]
    assert value(copy, "SELECT replica FROM store") == new
    assert texts(copy) == {"plan": "one\nin the copy\nmore\n"}
    assert texts(original) == {"plan": "one\nin the original\n"}
    original.close()
    copy.close()


def test_ids_that_a_refused_write_of_a_copy_took_are_not_kept(store, folder, tmp_path):
    append(store, "plan", "one")
    old = value(store, "SELECT replica FROM store")
    store.close()
    shutil.copytree(folder, tmp_path / "copy")
    copy = Store(tmp_path / "copy" / "store.db")
    with pytest.raises(KeyError), copy.writing() as transaction:
        transaction.document(slot(copy, "plan"))
        refused = transaction.replica
        raise KeyError
    before = value(copy, "SELECT replica FROM store")
    append(copy, "plan", "two")
    new = value(copy, "SELECT replica FROM store")

    assert before == old
    assert len({old, refused, new}) == 3
    assert [row.replica for row in log(copy, "plan")] == [old, new]
    copy.close()
