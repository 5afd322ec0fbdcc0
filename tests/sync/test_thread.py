"""crdtmem.sync.thread"""

import logging
import threading
import time
from random import Random

import pytest

from crdtmem.store.lease import Lease, lease_path_for
from crdtmem.store.link_status import link_reports
from crdtmem.store.store import Store
from crdtmem.sync import driver, thread as thread_module
from crdtmem.sync.thread import SyncThread
from tests.relay.live import PATIENCE_S
from tests.sync.relays import RunningRelay


@pytest.fixture(scope="module")
def running():
    relay = RunningRelay()
    yield relay
    relay.stop()


@pytest.fixture
def ann(site, running, request):
    made = site("ann", is_linked=False)
    made.link(remote=request.node.name.replace("_", "-")[:60], url=running.url)
    return made


@pytest.fixture
def thread(ann, running):
    made = SyncThread(ann.path, token=running.token, rng=Random(1))
    yield made
    made.stop()


def until(holds):
    """Wait until something is so."""
    deadline = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < deadline
        # Never set: a store's file tells nobody of its changes.
        threading.Event().wait(0.01)


def state_of(site):
    with site.store.reading() as connection:
        return link_reports(connection)[0].notes.get("state")


def test_a_thread_syncs_beside_its_host(ann, thread):
    thread.start()
    ann.append("plan", "one")
    thread.wake()

    until(lambda: ann.unsent == 0)

    assert thread.stop()
    lease = Lease(lease_path_for(ann.path))
    assert lease.take()
    lease.release()


def test_a_thread_leaves_a_store_alone_that_another_process_syncs(ann, thread):
    lease = Lease(lease_path_for(ann.path))
    lease.take()
    thread.start()
    thread.wake()

    assert thread.stop()
    assert state_of(ann) is None
    lease.release()


@pytest.mark.parametrize("is_there", [True, False])
def test_a_thread_waits_for_a_store_and_for_a_link(tmp_path, is_there):
    path = tmp_path / "store.db"
    if is_there:
        Store(path).close()
    thread = SyncThread(path)
    thread.start()

    assert thread.stop()
    assert path.exists() == is_there


def test_a_fault_of_the_program_is_noted_and_it_begins_anew(
    ann, thread, monkeypatch, caplog
):
    runs = []
    run = driver.Driver.run

    async def fail_once(self):
        runs.append(self)
        if len(runs) == 1:
            raise RuntimeError("a bug with a secret in it")
        await run(self)

    monkeypatch.setattr(driver.Driver, "run", fail_once)
    with caplog.at_level(logging.ERROR):
        thread.start()
        until(lambda: runs and state_of(ann) == "connected")

    assert "begins anew" in caplog.text
    with ann.store.reading() as connection:
        assert "secret" not in str(link_reports(connection)[0].notes)


def test_a_thread_that_is_stopped_while_it_begins_syncs_nothing(
    ann, thread, monkeypatch
):
    def stop_meanwhile(connection):
        thread._is_stopping.set()
        return True

    monkeypatch.setattr(thread_module, "has_links", stop_meanwhile)
    thread.start()

    assert thread.stop()
    assert state_of(ann) is None


def test_a_thread_that_was_stopped_at_once_has_done_nothing(ann, thread):
    thread._is_stopping.set()
    thread.start()

    assert thread.stop()
    assert state_of(ann) is None
