"""crdtmem.store.store"""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import threading

import apsw
import pytest

from crdtmem.errors import (
    StoreBusyError,
    StoreClosedError,
    StoreCorruptError,
    StoreFullError,
    StoreNotFoundError,
    StoreReadOnlyError,
)
from crdtmem.limits import CHECKPOINT_PASSIVE_PAGES, CHECKPOINT_TRUNCATE_BYTES
from crdtmem.store.lock import StoreLock
from crdtmem.store.placement import lock_path_for
from crdtmem.store.store import Store
from tests.powercut import PowerCut
from tests.store.writes import (
    append,
    append_in,
    contents_of,
    entries,
    is_lock_free,
    log,
    slot,
    texts,
)

PAGE_BYTES = 4_096

# The hook runs between the look for the file and its making.
MAKE_BETWEEN = """
import sys
from pathlib import Path
from crdtmem.store.store import Store
from tests.store.writes import append, texts
path = Path(sys.argv[1])
makers = [Store]

def make_first(event, args):
    if event == "open" and str(args[0]) == str(path) and makers:
        other = makers.pop()(path)
        append(other, "plan", "other")
        other.close()

sys.addaudithook(make_first)
store = Store(path)
append(store, "plan", "mine")
print(texts(store), *makers)
store.close()
"""

FORK = """
import os, sys
from pathlib import Path
from crdtmem.store.store import Store
from tests.store.writes import append, texts
store = Store(Path(sys.argv[1]))
closed = Store(Path(sys.argv[1]))
closed.close()
append(store, "plan", "before")
pid = os.fork()
if not pid:
    has_parents_connection = store._connection is not None
    append(store, "plan", "child")
    os._exit(has_parents_connection)
status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
append(store, "plan", "parent")
print(status, texts(store))
store.close()
"""


def run(script, *arguments):
    done = subprocess.run(
        [sys.executable, "-c", script, *map(str, arguments)],
        stdout=subprocess.PIPE,
        encoding="utf-8",
        check=True,
    )
    return done.stdout.strip()


def begin(context):
    """Enter a context that should not let anybody in."""
    contextlib.ExitStack().enter_context(context())


def sizes(store):
    """Return the sizes of the file and of its log."""
    return (
        store.path.stat().st_size,
        store.path.with_name("store.db-wal").stat().st_size,
    )


def fill(store, size_bytes):
    """Make a write of so many bytes."""
    with store.writing() as transaction:
        transaction.connection.execute(
            "INSERT INTO quarantine(doc, lsn, replica, code, content, at_ms)"
            " VALUES (0, 0, x'', '', zeroblob(?), 0)",
            (size_bytes,),
        )


def test_a_store_is_made_for_its_owner_alone(tmp_path):
    path = tmp_path / "deep" / "folder" / "store.db"
    store = Store(path)
    append(store, "plan", "one")
    modes = {one.name: one.stat().st_mode & 0o777 for one in path.parent.iterdir()}
    store.close()

    assert modes == dict.fromkeys(
        ("store.db", "store.db-shm", "store.db-wal", "store.lock"), 0o600
    )
    assert path.parent.stat().st_mode & 0o777 == 0o700


@pytest.mark.process
def test_a_store_that_another_makes_at_the_same_moment_is_no_obstacle(folder):
    answer = run(MAKE_BETWEEN, folder / "store.db")

    assert answer == "{'plan': 'other\\nmine\\n'}"


@pytest.mark.parametrize("options", [{"read_only": True}, {"create": False}])
def test_an_absent_store_is_made_only_where_that_is_asked_for(tmp_path, options):
    path = tmp_path / "folder" / "store.db"
    with pytest.raises(StoreNotFoundError) as raised:
        Store(path, **options)

    assert raised.value.code == "store-not-found"
    assert str(path) in raised.value.message
    assert list(tmp_path.iterdir()) == []


def test_opening_a_store_of_today_changes_no_byte(store, folder):
    append(store, "plan", "one")
    store.close()
    before = contents_of(folder)
    again = Store(folder / "store.db")
    found = texts(again)
    again.close()

    assert found == {"plan": "one\n"}
    assert contents_of(folder) == before


def test_a_handle_for_reading_writes_nothing_and_makes_no_lock_file(store, folder):
    append(store, "plan", "one")
    store.close()
    (folder / "store.lock").unlink()
    before = contents_of(folder)
    reader = Store(folder / "store.db", read_only=True)
    found = texts(reader)
    with pytest.raises(StoreReadOnlyError) as raised:
        begin(reader.writing)
    reader.close()
    writer = Store(folder / "store.db")
    writer.close()

    assert found == {"plan": "one\n"}
    assert raised.value.code == "store-read-only"
    assert str(folder / "store.db") in raised.value.message
    assert contents_of(folder) == before


def test_a_handle_for_reading_sees_what_others_write(store, folder):
    append(store, "plan", "one")
    reader = Store(folder / "store.db", read_only=True)
    before = texts(reader)
    append(store, "plan", "two")

    assert before == {"plan": "one\n"}
    assert texts(reader) == {"plan": "one\ntwo\n"}
    reader.close()


def test_a_closed_handle_refuses_everything(store):
    append(store, "plan", "one")
    store.close()
    store.close()
    calls = (store.reading, store.snapshot, store.writing)
    for call in calls:
        with pytest.raises(StoreClosedError) as raised:
            begin(call)
        assert raised.value.code == "store-closed"
        assert str(store.path) in raised.value.message
    with pytest.raises(StoreClosedError):
        store.checkpoint()

    assert store.is_closed


def test_a_closed_handle_for_reading_is_closed_before_it_is_read_only(store, folder):
    reader = Store(folder / "store.db", read_only=True)
    reader.close()
    with pytest.raises(StoreClosedError):
        begin(reader.writing)

    assert reader.is_closed


def test_a_snapshot_is_one_state_whatever_is_written_meanwhile(store, folder):
    append(store, "plan", "one")
    other = Store(folder / "store.db")
    with store.snapshot() as connection:
        before = connection.execute("SELECT file FROM slot").get
        append(other, "plan", "two")
        with store.snapshot() as nested:
            again = nested.execute("SELECT file FROM slot").get
        at_last = connection.execute("SELECT file FROM slot").get

    assert (before, again, at_last) == ("one\n", "one\n", "one\n")
    assert texts(store) == {"plan": "one\ntwo\n"}
    other.close()


def test_an_error_of_sqlite_while_reading_is_one_of_ours(store):
    with pytest.raises(StoreCorruptError) as raised, store.reading() as connection:
        connection.execute("SELECT * FROM nowhere")

    assert str(store.path) in raised.value.message
    assert "no such table: nowhere" in raised.value.message


@pytest.mark.requirement("P1")
def test_a_transaction_holds_sqlites_write_lock_from_its_first_step(store):
    append(store, "plan", "one")
    other = apsw.Connection(str(store.path))
    with store.writing() as transaction:
        with pytest.raises(apsw.BusyError):
            other.execute("BEGIN IMMEDIATE")
        append_in(transaction, "plan", "two")
    other.close()

    assert texts(store) == {"plan": "one\ntwo\n"}


def test_a_lock_that_is_not_had_in_time_names_its_holder(store, folder):
    append(store, "plan", "one")
    impatient = Store(folder / "store.db", busy_timeout_s=0)
    holder = StoreLock(lock_path_for(store.path))
    with holder.held(0):
        is_free = is_lock_free(impatient)
        with pytest.raises(StoreBusyError) as raised:
            begin(impatient.writing)
        found = texts(impatient)
    holder.close()

    assert raised.value.code == "store-busy"
    assert raised.value.details["pid"] == os.getpid()
    assert str(os.getpid()) in raised.value.message
    assert found == {"plan": "one\n"}
    assert (is_free, is_lock_free(impatient)) == (False, True)
    append(impatient, "plan", "two")
    impatient.close()


def test_the_lock_is_let_go_whatever_the_block_raises(store):
    with pytest.raises(KeyError), store.writing():
        raise KeyError

    assert is_lock_free(store)


@pytest.mark.parametrize("is_unlinked", [True, False])
def test_a_file_that_has_lost_its_name_is_not_written(store, folder, is_unlinked):
    append(store, "plan", "one")
    (folder / "store.db").rename(folder / "moved.db")
    if not is_unlinked:
        shutil.copy(folder / "moved.db", folder / "store.db")
    size = (folder / "moved.db").stat().st_size, sizes_of_logs(folder)
    error = StoreNotFoundError if is_unlinked else StoreCorruptError
    with pytest.raises(error) as raised:
        begin(store.writing)

    assert str(folder / "store.db") in raised.value.message
    assert ((folder / "moved.db").stat().st_size, sizes_of_logs(folder)) == size
    assert is_lock_free(store)


@pytest.mark.parametrize("is_unlinked", [True, False])
def test_a_handle_that_opens_again_takes_the_same_file_or_none(folder, is_unlinked):
    with PowerCut(folder, makedefault=True) as disk:
        store = Store(folder / "store.db")
        append(store, "plan", "one")
        disk.fail("sync", "-wal", apsw.IOError("broken"))
        with pytest.raises(StoreCorruptError):
            append(store, "plan", "lost")
    # Made while the first exists, or it might get the same inode.
    Store(folder / "other.db").close()
    (folder / "store.db").unlink()
    if not is_unlinked:
        (folder / "other.db").rename(folder / "store.db")
    before = sorted(path.name for path in folder.iterdir())
    error = StoreNotFoundError if is_unlinked else StoreCorruptError
    with pytest.raises(error) as raised:
        append(store, "plan", "two")
    store.close()

    assert str(folder / "store.db") in raised.value.message
    assert sorted(path.name for path in folder.iterdir()) == before


def sizes_of_logs(folder):
    return [path.stat().st_size for path in sorted(folder.glob("*-wal"))]


def test_a_block_that_raises_has_changed_nothing(store):
    append(store, "plan", "one")
    before = slot(store, "plan"), log(store, "plan"), entries(store, "plan")
    with pytest.raises(KeyError), store.writing() as transaction:
        append_in(transaction, "plan", "lost")
        append_in(transaction, "new", "lost")
        raise KeyError
    after = slot(store, "plan"), log(store, "plan"), entries(store, "plan")
    append(store, "plan", "two")

    assert after == before
    assert texts(store) == {"plan": "one\ntwo\n"}
    assert slot(store, "plan").lsn == 2


@pytest.mark.requirement("P1")
@pytest.mark.parametrize(
    ("operation", "error", "code"),
    [
        ("sync", apsw.IOError("broken"), "store-corrupt"),
        ("write", apsw.IOError("broken"), "store-corrupt"),
        ("write", apsw.FullError("full"), "store-full"),
    ],
)
def test_a_commit_that_fails_is_reported_and_the_next_write_is_right(
    folder, operation, error, code
):
    with PowerCut(folder, makedefault=True) as disk:
        store = Store(folder / "store.db")
        append(store, "plan", "é", "two")
        append(store, "notes", "other")
        before = slot(store, "plan"), log(store, "plan"), entries(store, "plan")
        disk.fail(operation, "-wal", error)
        with pytest.raises((StoreCorruptError, StoreFullError)) as raised:
            append(store, "plan", "lost")
        after = slot(store, "plan"), log(store, "plan"), entries(store, "plan")
        append(store, "plan", "three")
        append(store, "notes", "more")
        found = texts(store)
        store.close()
        again = Store(folder / "store.db")
        append(again, "plan", "four")
        last = texts(again)
        again.close()

    assert raised.value.code == code
    assert str(folder / "store.db") in raised.value.message
    assert after == before
    assert found == {"plan": "é\ntwo\nthree\n", "notes": "other\nmore\n"}
    assert last == {**found, "plan": "é\ntwo\nthree\nfour\n"}


def test_a_disk_that_is_full_within_a_large_write_leaves_all_as_it_was(folder):
    # Longer than SQLite's cache: it writes before the commit, and rolls back itself.
    large = "x" * 1_000_000
    with PowerCut(folder, makedefault=True) as disk:
        store = Store(folder / "store.db")
        append(store, "plan", "one")
        disk.fail("write", "-wal", apsw.FullError("full"))
        with pytest.raises(StoreFullError) as raised:
            append(store, "plan", large)
        found = texts(store)
        append(store, "plan", "two")
        last = texts(store)
        store.close()

    assert raised.value.code == "store-full"
    assert (found, last) == ({"plan": "one\n"}, {"plan": "one\ntwo\n"})


def test_a_connection_that_does_not_close_is_made_anew_all_the_same(folder, caplog):
    with PowerCut(folder, makedefault=True) as disk:
        store = Store(folder / "store.db")
        append(store, "plan", "one")
        disk.fail("sync", "-wal", apsw.IOError("broken"))
        disk.fail("write", ".db", apsw.IOError("broken too"))
        with pytest.raises(StoreCorruptError) as raised:
            append(store, "plan", "lost")
        append(store, "plan", "two")
        found = texts(store)
        store.close()

    assert "SQLite reports an error: broken" in raised.value.message
    assert "did not close" in caplog.text
    # The log could not be discarded, so what was refused may have got through, whole.
    assert found["plan"] in {"one\ntwo\n", "one\nlost\ntwo\n"}


def test_the_log_is_copied_back_once_it_is_long(store):
    append(store, "plan", "one")
    fill(store, (CHECKPOINT_PASSIVE_PAGES - 200) * PAGE_BYTES)
    before = sizes(store)
    fill(store, 300 * PAGE_BYTES)
    after = sizes(store)
    append(store, "plan", "two")

    assert before[0] < PAGE_BYTES * 100
    assert after[0] > PAGE_BYTES * CHECKPOINT_PASSIVE_PAGES
    # Copied back it is written from its start again, at the length that it had.
    assert sizes(store) == after


def test_the_log_is_emptied_once_it_is_very_long(store):
    fill(store, CHECKPOINT_TRUNCATE_BYTES)

    assert sizes(store)[0] > CHECKPOINT_TRUNCATE_BYTES
    assert sizes(store)[1] == 0
    append(store, "plan", "one")


def test_a_checkpoint_that_fails_leaves_the_write_acknowledged(folder, caplog):
    with PowerCut(folder, makedefault=True) as disk:
        store = Store(folder / "store.db")
        append(store, "plan", "one")
        disk.fail("write", ".db", apsw.IOError("broken"))
        with store.writing() as transaction:
            append_in(transaction, "plan", "x" * 1_000_000)
            append_in(transaction, "notes", "x" * 1_000_000)
        found = [len(text) for text in texts(store).values()]
        append(store, "plan", "two")
        store.close()

    assert found == [1_000_001, 1_000_005]
    assert "checkpoint" in caplog.text


def test_a_checkpoint_on_demand_empties_the_log(store):
    append(store, "plan", "one")
    before = sizes(store)
    store.checkpoint()

    assert before[1] > 0
    assert sizes(store)[1] == 0
    assert texts(store) == {"plan": "one\n"}


def test_a_handle_that_is_closed_within_its_own_write_writes_nothing(store, folder):
    append(store, "plan", "one")
    with pytest.raises(RuntimeError, match="not held"), store.writing():
        store.close()
    again = Store(folder / "store.db")
    append(again, "plan", "two")

    assert store.is_closed
    assert texts(again) == {"plan": "one\ntwo\n"}
    again.close()


@pytest.mark.process
def test_a_handle_goes_on_in_both_halves_of_a_fork(folder):
    answer = run(FORK, folder / "store.db")

    assert answer == "0 {'plan': 'before\\nchild\\nparent\\n'}"


def test_a_fork_of_a_process_with_open_handles_lets_them_go_on(store, folder):
    append(store, "plan", "before")
    reader = Store(folder / "store.db", read_only=True)
    before = texts(reader)
    pid = os.fork()
    if pid == 0:  # pragma: no cover - it ends at once, and saves no measurement
        os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(pid, 0)
    append(store, "plan", "after")

    assert before == {"plan": "before\n"}
    assert texts(reader) == {"plan": "before\nafter\n"}
    reader.close()


def test_a_handle_may_be_used_from_any_thread(store):
    start = threading.Barrier(8)

    def write(lane):
        start.wait()
        for number in range(5):
            append(store, "plan", f"{lane} {number}")
            texts(store)

    threads = [threading.Thread(target=write, args=(str(n),)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    lines = slot(store, "plan").file.splitlines()

    assert sorted(lines) == [f"{lane} {n}" for lane in range(8) for n in range(5)]
    assert [line for line in lines if line[0] == "3"] == [f"3 {n}" for n in range(5)]
    assert slot(store, "plan").rev == 40


def test_handles_that_were_closed_leave_nothing_open(folder):
    Store(folder / "store.db").close()
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(40):
        store = Store(folder / "store.db")
        texts(store)
        store.close()

    assert len(os.listdir("/proc/self/fd")) == before


def test_a_reader_never_empties_the_write_ahead_log(store, folder):
    append(store, "plan", "one")
    reader = Store(folder / "store.db", read_only=True)
    with pytest.raises(StoreReadOnlyError) as raised:
        reader.checkpoint()

    assert raised.value.details == {"path": str(folder / "store.db")}
    reader.close()
