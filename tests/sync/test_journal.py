"""crdtmem.sync.journal"""

import logging

import pytest

from crdtmem.limits import SYNC_STATUS_S
from crdtmem.store.link_status import link_reports
from crdtmem.sync.journal import Journal, note_fault
from crdtmem.sync.namespace import Fault

FAULT = Fault("busy", "the relay is busy", is_permanent=False)


class Desk:
    """A store with a link, a clock, and a journal."""

    def __init__(self, site):
        self.site = site
        self.link = site.stored.link
        self.now_ms = 5_000
        site.store.clock_ms = lambda: self.now_ms
        self.journal = Journal(site.store)

    def note(self, state, *, at=0.0, **more):
        self.now_ms += 1_000
        self.journal.note(self.link, state, **more)
        self.journal.flush(at)

    @property
    def written(self):
        with self.site.store.reading() as connection:
            return link_reports(connection)[0].notes


@pytest.fixture
def desk(site):
    return Desk(site("ann"))


def test_a_change_of_state_is_written_at_once(desk):
    desk.note("connecting")
    desk.note("connected", head=3)
    desk.note("connected", head=3)

    assert desk.written == {
        "state": "connected",
        "since_ms": 7_000,
        "head": 3,
        "fault": None,
        "is_in_sync": False,
        "in_sync_ms": None,
    }


def test_how_far_the_relay_is_is_written_now_and_then(desk):
    desk.note("connected", head=1)
    desk.note("connected", head=2, at=SYNC_STATUS_S / 2)
    assert desk.written["head"] == 1

    desk.note("connected", head=3, at=SYNC_STATUS_S)

    assert desk.written["head"] == 3


def test_a_head_never_falls(desk):
    desk.note("connected", head=9)
    desk.note("waiting")

    assert desk.written["head"] == 9


def test_it_is_kept_when_nothing_was_missing_last(desk):
    desk.note("connected", is_in_sync=True)
    desk.note("connected", is_in_sync=True)
    desk.note("connected")

    assert (desk.written["in_sync_ms"], desk.written["is_in_sync"]) == (6_000, False)


def test_a_fault_is_told_with_when_it_began(desk):
    desk.note("waiting", fault=FAULT)
    desk.note("waiting", fault=FAULT)

    assert desk.written["fault"] == {
        "code": "busy",
        "message": "the relay is busy",
        "permanent": False,
        "at_ms": 6_000,
    }
    desk.note("connected")
    assert desk.written["fault"] is None


def test_a_store_that_is_busy_is_told_later(desk, caplog):
    desk.site.store.busy_timeout_s = 0
    desk.note("connecting")
    other = type(desk.site.store)(desk.site.path)
    with caplog.at_level(logging.WARNING), other.lock.held(1):
        desk.note("connected")
    other.close()
    assert "could not be noted" in caplog.text
    assert desk.written["state"] == "connecting"

    desk.journal.flush(9.0)

    assert desk.written["state"] == "connected"


def test_a_fault_of_the_program_is_noted_on_every_link(desk):
    note_fault(desk.site.store, "internal-error", "a fault")

    assert desk.written["state"] == "waiting"
    assert desk.written["fault"]["code"] == "internal-error"
