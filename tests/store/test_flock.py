"""crdtmem.store.flock"""

import os
import threading

import pytest

from crdtmem.store.flock import Waiter, try_lock, unlock, wait_lock

# Longer than any wait that ends well; a test that reaches it has failed.
BOUND_S = 30.0
# Long enough for the waiter to stand in line, whether it does so by then or not.
BRIEFLY_S = 0.02


def nothing():
    """Stand in line without a word."""


@pytest.fixture
def open_file(tmp_path):
    opened = []

    def open_again():
        opened.append(os.open(tmp_path / "lock", os.O_RDWR | os.O_CREAT, 0o600))
        return opened[-1]

    yield open_again
    for fd in opened:
        os.close(fd)


def test_one_descriptor_at_a_time_has_the_lock(open_file):
    first, second = open_file(), open_file()

    assert (try_lock(first), try_lock(second)) == (True, False)
    unlock(first)
    wait_lock(second)
    assert not try_lock(first)


def test_a_waiter_tells_that_it_waits_only_if_it_does(open_file):
    holder, fd = open_file(), open_file()
    waits: list[None] = []

    def let_pass():
        waits.append(None)
        unlock(holder)

    waiter = Waiter(fd, let_pass)

    assert waiter.wait(BOUND_S)
    assert waits == []
    unlock(fd)
    assert try_lock(holder)
    assert waiter.wait(BOUND_S)
    assert waits == [None]
    assert waiter.dismiss()


def test_a_wait_ends_at_its_deadline_and_goes_on_when_asked(open_file):
    holder, fd = open_file(), open_file()
    assert try_lock(holder)
    waiter = Waiter(fd, nothing)

    assert not waiter.wait(BRIEFLY_S)
    assert waiter.is_in_line()
    assert not waiter.wait(BRIEFLY_S)
    unlock(holder)
    assert waiter.wait(BOUND_S)
    assert not waiter.is_in_line()
    assert not try_lock(holder)
    assert waiter.dismiss()


def test_a_lock_that_comes_too_late_is_given_back(open_file):
    holder, fd = open_file(), open_file()
    assert try_lock(holder)
    waiter = Waiter(fd, nothing)
    assert not waiter.wait(BRIEFLY_S)

    unlock(holder)

    wait_lock(holder)
    unlock(holder)
    assert waiter.wait(BOUND_S)
    assert waiter.dismiss()


def test_a_lock_that_comes_as_the_wait_is_given_up_is_given_back(open_file):
    other, fd = open_file(), open_file()
    waiter = Waiter(fd, nothing)
    assert waiter.wait(BOUND_S)
    # The moment between the grant and its being seen.
    waiter._grant.release()

    waiter.withdraw()

    assert try_lock(other)
    assert waiter.dismiss()


def test_a_waiter_that_is_dismissed_in_line_closes_its_file(open_file, tmp_path):
    holder = open_file()
    own = os.open(tmp_path / "lock", os.O_RDWR)
    assert try_lock(holder)
    waiter = Waiter(own, nothing)
    assert not waiter.wait(BRIEFLY_S)

    assert not waiter.dismiss()
    unlock(holder)

    waiter._thread.join()
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(own)
    wait_lock(holder)


def test_a_waiter_that_is_dismissed_ends_its_thread(open_file):
    before = threading.active_count()
    waiter = Waiter(open_file(), nothing)

    assert waiter.dismiss()
    assert threading.active_count() == before


def test_an_error_of_the_system_reaches_who_waits(tmp_path):
    (tmp_path / "lock").touch()
    fd = os.open(tmp_path / "lock", os.O_PATH)
    waiter = Waiter(fd, nothing)

    with pytest.raises(OSError, match="Bad file descriptor"):
        waiter.wait(BOUND_S)

    assert waiter.dismiss()
    os.close(fd)
