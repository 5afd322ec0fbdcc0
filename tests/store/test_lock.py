"""crdtmem.store.lock"""

import errno
import json
import os
import resource
import signal
import sys
import tempfile
import threading
from contextlib import contextmanager
from itertools import repeat
from pathlib import Path

import pytest

from crdtmem.errors import PermissionDeniedError, StoreBusyError, StoreNotFoundError
from crdtmem.store import lock as lock_module
from crdtmem.store.lock import Holder, StoreLock, command_of, is_locked, read_holder
from tests.store.lock_child import Child

# Longer than any wait that ends well; a test that reaches it has failed.
BOUND_S = 30.0
# Long enough for the waiter to stand in line, whether it does so by then or not.
BRIEFLY_S = 0.02


@pytest.fixture
def path(tmp_path):
    return tmp_path / "store.lock"


@pytest.fixture
def spawn(path):
    children = []

    def make():
        children.append(Child(path))
        return children[-1]

    yield make
    for child in children:
        child.end()


@pytest.fixture
def lock(path):
    lock = StoreLock(path)
    yield lock
    lock.close()


@contextmanager
def unprivileged():
    """Do without the rights of root, which no mode stops; others have none to lose."""
    user = os.geteuid()
    os.seteuid(user or 65534)
    try:
        yield
    finally:
        os.seteuid(user)


def descriptors():
    return len(os.listdir("/proc/self/fd"))


def own_pid_in(path):
    holder = read_holder(path)
    return holder is not None and holder.pid == os.getpid()


def is_in_line(lock):
    return lock._waiter is not None and lock._waiter.is_in_line()


def is_marked(path):
    return path.read_bytes().endswith(lock_module._MARK)


def can_be_had(path):
    other = StoreLock(path)
    other.acquire(BOUND_S)
    other.close()
    return True


@pytest.mark.process
def test_a_busy_lock_names_its_holder_and_nothing_changes(path, spawn, lock):
    child = spawn()
    child.do("acquire")
    before = path.read_bytes(), os.listdir(path.parent)

    with pytest.raises(StoreBusyError) as caught:
        lock.acquire(0)

    assert caught.value.code == "store-busy"
    assert f"process {child.pid} (crdtmem append)" in str(caught.value)
    assert caught.value.details["pid"] == child.pid
    assert caught.value.details["command"] == "crdtmem append"
    assert caught.value.details["path"] == str(path)
    assert (path.read_bytes(), os.listdir(path.parent)) == before
    assert b"secret" not in path.read_bytes()
    child.do("release")
    lock.acquire(0)


@pytest.mark.process
@pytest.mark.parametrize("timeout_s", [0, BRIEFLY_S])
def test_a_stopped_holder_is_named_by_a_wait_that_ends_in_time(
    path, spawn, lock, timeout_s
):
    child = spawn()
    child.do("acquire")
    child.signal(signal.SIGSTOP)

    with pytest.raises(StoreBusyError) as caught:
        lock.acquire(timeout_s)

    assert caught.value.details["pid"] == child.pid


@pytest.mark.process
def test_a_killed_holder_lets_the_waiting_one_pass(path, spawn, lock):
    child = spawn()
    child.do("acquire")
    with pytest.raises(StoreBusyError):
        lock.acquire(0)
    waiting = threading.Thread(target=lock.acquire, args=(BOUND_S,))
    waiting.start()

    child.signal(signal.SIGKILL)

    waiting.join()
    assert own_pid_in(path)


@pytest.mark.process
def test_eight_processes_are_never_inside_at_once(path, spawn):
    counter = Path(f"{path}.count")
    counter.write_text("0", encoding="utf-8")
    children = [spawn() for _ in range(8)]

    for child in children:
        child.start("count 25")

    assert [child.answer() for child in children] == ["done"] * 8
    assert counter.read_text(encoding="utf-8") == "200"
    assert not is_locked(path)


@pytest.mark.process
def test_each_of_eight_processes_gets_at_least_half_of_its_share(path, spawn):
    Path(f"{path}.log").write_bytes(b"")
    children = [spawn() for _ in range(8)]
    for child in children:
        child.do("count 0")

    for child in children:
        child.start("share 800")
    shares = [int(child.answer()) for child in children]

    assert sum(shares) == 800 + 8
    assert min(shares) >= 50


@pytest.mark.process
def test_a_lock_that_comes_too_late_is_given_back(path, spawn, lock):
    child = spawn()
    child.do("acquire")
    with pytest.raises(StoreBusyError):
        lock.acquire(BRIEFLY_S)

    child.do("release")

    assert can_be_had(path)


@pytest.mark.process
def test_a_wait_that_was_given_up_can_be_taken_up_again(path, spawn, lock):
    child = spawn()
    child.do("acquire")
    for timeout_s in (BRIEFLY_S, 0, BRIEFLY_S):
        with pytest.raises(StoreBusyError):
            lock.acquire(timeout_s)

    child.do("release")
    lock.acquire(BOUND_S)

    assert is_locked(path)
    lock.release()
    assert not is_locked(path)


@pytest.mark.process
def test_closing_during_a_wait_that_was_given_up_leaks_nothing(path, spawn, lock):
    child = spawn()
    child.do("acquire")
    before = descriptors()
    with pytest.raises(StoreBusyError):
        lock.acquire(BRIEFLY_S)
    thread = lock._waiter._thread

    lock.close()
    child.do("release")

    thread.join()
    assert descriptors() == before
    assert can_be_had(path)


def test_opening_and_closing_leaks_no_descriptor_and_no_thread(path):
    before = descriptors(), threading.active_count()
    for _ in range(100):
        first, second = StoreLock(path), StoreLock(path)
        first.acquire(0)
        with pytest.raises(StoreBusyError):
            second.acquire(1e-6)
        first.close()
        second.acquire(BOUND_S)
        second.close()
        second.close()

    assert (descriptors(), threading.active_count()) == before


class InterruptedWaitError(Exception):
    pass


def test_an_interrupted_wait_leaves_no_lock_behind(path, lock):
    def interrupt(number, frame):
        raise InterruptedWaitError

    def interrupt_when_in_line():
        assert any(map(is_in_line, repeat(lock)))
        os.kill(os.getpid(), signal.SIGUSR1)

    holder = StoreLock(path)
    holder.acquire(0)
    previous = signal.signal(signal.SIGUSR1, interrupt)
    interrupter = threading.Thread(target=interrupt_when_in_line)
    interrupter.start()

    with pytest.raises(InterruptedWaitError):
        lock.acquire(BOUND_S)

    interrupter.join()
    signal.signal(signal.SIGUSR1, previous)
    holder.close()
    assert can_be_had(path)


def test_two_locks_of_one_process_exclude_each_other(path, lock):
    other = StoreLock(path)

    with lock.held(0):
        with pytest.raises(StoreBusyError) as caught:
            other.acquire(0)
        assert caught.value.details["pid"] == os.getpid()

    with other.held(0), pytest.raises(StoreBusyError):
        lock.acquire(0)
    other.close()


def test_a_lock_is_released_when_its_block_raises(path, lock):
    with pytest.raises(ZeroDivisionError), lock.held(0):
        _ = 1 / 0

    assert not is_locked(path)
    assert can_be_had(path)


def test_taking_a_lock_twice_is_refused_and_keeps_it(path, lock):
    lock.acquire(0)

    with pytest.raises(RuntimeError, match="is already held by this handle"):
        lock.acquire(0)

    assert is_locked(path)


def test_releasing_what_is_not_held_is_refused(path, lock):
    for prepare in (lambda: None, lambda: lock.acquire(0) or lock.release()):
        prepare()
        with pytest.raises(RuntimeError, match="is not held by this handle"):
            lock.release()


def test_a_closed_lock_is_free_and_can_be_taken_again(path, lock):
    lock.acquire(0)

    lock.close()

    assert not is_locked(path)
    lock.acquire(0)
    assert is_locked(path)


@pytest.mark.process
def test_a_forked_child_has_no_part_in_its_parents_lock(path, spawn, lock):
    parent = spawn()
    parent.do("acquire")

    parent.start("fork")
    answers = {parent.answer(), parent.answer()}

    assert "busy" in answers
    (child,) = answers - {"busy"}
    assert is_locked(path)
    # The child lives on, and holds nothing that its parent held.
    parent.signal(signal.SIGKILL)
    lock.acquire(BOUND_S)
    os.kill(int(child), signal.SIGKILL)


def test_after_a_fork_every_lock_starts_afresh(path, lock):
    unused = StoreLock(path)
    lock.acquire(0)
    before = descriptors()

    lock_module._after_fork()

    assert descriptors() == before - 1
    assert unused.path == path
    lock.acquire(0)
    lock.release()


def test_the_file_is_for_its_user_only_and_never_replaced(path, lock):
    lock.acquire(0)
    lock.release()
    made = path.stat()
    can_be_had(path)

    assert made.st_mode & 0o777 == 0o600
    assert (made.st_ino, made.st_size) == (path.stat().st_ino, path.stat().st_size)


def test_a_process_that_is_alone_signs_once(path, lock):
    lock.acquire(0)
    lock.release()
    signed = path.stat().st_mtime_ns

    lock.acquire(0)
    lock.release()

    assert path.stat().st_mtime_ns == signed


def test_a_process_that_is_alone_never_stands_in_line(lock):
    for _ in range(3):
        lock.acquire(BOUND_S)
        lock.release()

    assert lock._waiter is None


def test_who_meets_the_signature_of_another_stands_in_line(path, lock, monkeypatch):
    monkeypatch.setattr(lock_module, "_QUEUE_S", BOUND_S)
    path.write_bytes(lock_module._encode(Holder(1, "crdtmem append", "then")))

    for _ in range(2):
        lock.acquire(BOUND_S)
        lock.release()

    assert lock._waiter is not None


def test_who_was_waited_for_stands_in_line(path, lock, monkeypatch):
    monkeypatch.setattr(lock_module, "_QUEUE_S", BOUND_S)
    other = StoreLock(path)
    with lock.held(0):
        with pytest.raises(StoreBusyError):
            other.acquire(BRIEFLY_S)
        assert any(map(is_marked, repeat(path)))
        other.close()
        assert own_pid_in(path)

    for _ in range(2):
        lock.acquire(BOUND_S)
        lock.release()

    assert lock._waiter is not None
    assert not is_marked(path)


def test_a_full_disk_stops_neither_the_lock_nor_the_wait_for_it(path, lock):
    path.touch()
    holder = StoreLock(path)
    previous = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, previous[1]))
    try:
        holder.acquire(0)
        with pytest.raises(StoreBusyError) as caught:
            lock.acquire(BRIEFLY_S)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, previous)

    assert (caught.value.details["pid"], path.read_bytes()) == (None, b"")
    assert "an unknown process" in str(caught.value)
    holder.close()
    assert can_be_had(path)


def test_a_lock_file_of_something_else_is_left_alone(path, lock):
    path.write_text("# This file is generated by Poetry\n", encoding="utf-8")
    before = descriptors()

    with pytest.raises(PermissionDeniedError) as caught:
        lock.acquire(0)

    assert caught.value.code == "permission-denied"
    assert str(path) in str(caught.value)
    assert path.read_text(encoding="utf-8") == "# This file is generated by Poetry\n"
    assert descriptors() == before


def test_a_lock_in_a_folder_that_does_not_exist_is_refused(path):
    lock = StoreLock(path.parent / "absent" / "store.lock")

    with pytest.raises(StoreNotFoundError) as caught:
        lock.acquire(0)

    assert caught.value.details == {"path": str(lock.path)}
    assert not lock.path.parent.exists()


def test_a_folder_in_the_place_of_the_lock_is_refused(path, lock):
    path.mkdir()

    with pytest.raises(PermissionDeniedError) as caught:
        lock.acquire(0)

    assert caught.value.details == {"path": str(path), "action": "write to"}


def test_a_folder_that_may_not_be_written_is_refused():
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o555)
        lock = StoreLock(Path(folder, "store.lock"))

        with unprivileged(), pytest.raises(PermissionDeniedError) as caught:
            lock.acquire(0)

        assert caught.value.details == {"path": str(lock.path), "action": "write to"}
        assert os.listdir(folder) == []
        os.chmod(folder, 0o700)


def test_an_error_that_is_nobodys_refusal_is_passed_on(path):
    with pytest.raises(OSError, match="File name too long") as caught:
        StoreLock(path.with_name("x" * 300)).acquire(0)

    assert caught.value.errno == errno.ENAMETOOLONG


def test_the_holder_can_be_read_while_it_holds(path, lock):
    with lock.held(0):
        holder = read_holder(path)

    assert holder is not None
    assert holder == Holder(os.getpid(), command_of(sys.argv), holder.since)
    assert holder.since.endswith("+00:00")


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\xff",
        b"{",
        b"[]",
        b'{"pid": 1}',
        json.dumps({"pid": "1", "command": "x", "since": "y"}).encode(),
        json.dumps({"pid": 1, "command": None, "since": "y"}).encode(),
    ],
)
def test_a_record_that_cannot_be_read_names_nobody(path, content):
    path.write_bytes(content)

    assert read_holder(path) is None


def test_an_absent_lock_is_free_and_names_nobody(path):
    assert (is_locked(path), read_holder(path)) == (False, None)
    assert not path.exists()


@pytest.mark.parametrize(
    ("argv", "command"),
    [
        (["/usr/bin/crdtmem", "append", "plan", "text"], "crdtmem append"),
        (["/usr/bin/crdtmem-relay", "serve"], "crdtmem-relay serve"),
        (["/lib/crdtmem/__main__.py", "sync", "once"], "crdtmem sync"),
        (["crdtmem", "--lane", "x", "append"], "crdtmem"),
        (["crdtmem", "My text"], "crdtmem"),
        (["crdtmem"], "crdtmem"),
        (["/home/me/notes.py", "secret"], "notes.py"),
        (["-c", "secret"], "python"),
        ([""], "python"),
        ([], "python"),
        (["caf\u00e9\n\udcff"], "caf???"),
        (["x" * 500], "x" * 120),
    ],
)
def test_a_command_is_a_program_and_a_verb_and_never_a_text(argv, command):
    assert command_of(argv) == command


def test_the_longest_command_fits_into_the_record():
    record = lock_module._encode(
        Holder(2**31, command_of(['"\\' * 200]), "2026-01-01T00:00:00.000+00:00")
    )

    assert len(record) == lock_module._RECORD_BYTES + 1
    assert len(json.loads(record)["command"]) == 120
