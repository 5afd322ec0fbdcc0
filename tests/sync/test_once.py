"""crdtmem.sync.once: beside another process that has the lease"""

import threading

import pytest

from crdtmem.errors import LeaseHeldError, LinkNotFoundError, RelayUnreachableError
from crdtmem.store.lease import Lease, lease_path_for
from crdtmem.store.link_status import save_notes
from crdtmem.store.links import find_link, remove_link
from crdtmem.sync.once import sync_once
from tests.sync.relays import in_thread
from tests.sync.sites import PROJECT

DONE = {"state": "connected", "is_in_sync": True, "head": 0}


@pytest.fixture
def ann(site):
    return site("ann")


@pytest.fixture
def lease(ann):
    """The lease of ann's store, held by somebody else."""
    held = Lease(lease_path_for(ann.store.path))
    assert held.take()
    yield held
    held.release()


def note(site, **notes):
    save_notes(site.store, {site.stored.link: notes})


def test_what_another_process_has_synced_is_done(ann, lease):
    note(ann, **DONE)

    sync_once(ann.store, token="x", timeout_s=0.0)


@pytest.mark.parametrize(
    "notes",
    [
        {},
        {**DONE, "state": "waiting"},
        {**DONE, "is_in_sync": False},
        {**DONE, "head": 3},
    ],
)
def test_what_another_process_has_not_synced_is_waited_for(ann, lease, notes):
    note(ann, **notes)

    with pytest.raises(LeaseHeldError, match="was not done within") as refusal:
        sync_once(ann.store, token="x", timeout_s=0.02)

    assert refusal.value.details["path"] == str(lease.path)
    assert refusal.value.details["pid"]


def test_a_write_that_is_not_sent_yet_is_waited_for(ann, lease):
    note(ann, **DONE)
    ann.append("plan", "one")

    with pytest.raises(LeaseHeldError):
        sync_once(ann.store, token="x", timeout_s=0.0)


def test_it_takes_over_when_the_other_process_is_gone(ann, lease):
    threading.Timer(0.05, lease.release).start()

    with pytest.raises(RelayUnreachableError):
        in_thread(sync_once, ann.store, token="x", timeout_s=0.4)

    assert lease.take()


def test_without_a_link_nobody_is_waited_for(ann, lease):
    remove_link(ann.store, find_link(ann.store, PROJECT))

    with pytest.raises(LinkNotFoundError):
        sync_once(ann.store, token="x", timeout_s=1.0)
