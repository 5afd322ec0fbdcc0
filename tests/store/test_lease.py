"""crdtmem.store.lease"""

import os

import pytest

from crdtmem.errors import PermissionDeniedError
from crdtmem.store.lease import Lease, lease_path_for, lease_state


@pytest.fixture
def path(tmp_path):
    return lease_path_for(tmp_path / "store.db")


def test_stores_in_one_folder_have_leases_of_their_own(tmp_path):
    names = [lease_path_for(tmp_path / n).name for n in ("a.db", "b.db", "c.lock")]

    assert names == ["a.sync.lock", "b.sync.lock", "c.lock.sync.lock"]


def test_one_at_a_time_holds_the_lease(path):
    first, second = Lease(path), Lease(path)

    assert lease_state(path) == (False, None)
    assert (first.take(), second.take()) == (True, False)
    assert (first.is_held, second.is_held) == (True, False)
    is_held, holder = lease_state(path)
    assert is_held
    assert holder is not None
    assert holder.pid == os.getpid()

    first.release()

    assert second.take()
    assert not first.take()
    second.release()
    second.release()
    assert lease_state(path) == (False, None)


def test_a_lease_that_is_held_may_be_taken_again(path):
    lease = Lease(path)

    assert (lease.take(), lease.take()) == (True, True)
    lease.release()


def test_a_file_of_something_else_is_left_alone(path):
    path.write_text("[metadata]", encoding="utf-8")

    with pytest.raises(PermissionDeniedError, match=path.name):
        Lease(path).take()

    assert path.read_text(encoding="utf-8") == "[metadata]"
