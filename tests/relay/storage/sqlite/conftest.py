"""A relay's folder on a disk in memory."""

import pytest

from relay.storage.sqlite.folder import init_folder
from tests.scratch import scratch


@pytest.fixture
def folder():
    with scratch() as path:
        init_folder(path / "relay", now_ms=0)
        yield path / "relay"
