"""What the tests of the storage layer share."""

import pytest

from crdtmem.store.store import Store
from tests.store.relayed import Log, linked
from tests.store.writes import append


@pytest.fixture
def folder(tmp_path):
    """A store's folder, which exists."""
    folder = tmp_path / "store"
    folder.mkdir(mode=0o700)
    return folder


@pytest.fixture
def store(folder):
    """An open store, fresh."""
    opened = Store(folder / "store.db")
    yield opened
    opened.close()


@pytest.fixture
def other(folder):
    opened = Store(folder / "other" / "store.db", clock_ms=lambda: 50)
    yield opened
    opened.close()


@pytest.fixture
def relayed(store):
    """A log that has what the store has: one line in slot plan."""
    linked(store)
    append(store, "plan", "mine")
    found = Log()
    found.send(store)
    found.give(store)
    return found
