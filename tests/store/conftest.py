"""What the tests of the storage layer share."""

import pytest

from crdtmem.store.store import Store


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
