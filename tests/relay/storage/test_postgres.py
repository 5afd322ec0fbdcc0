"""relay.storage.postgres: the contract of a storage."""

import pytest

from relay.storage.postgres.storage import PostgresStorage
from tests.contracts.storage import *  # noqa: F403 - the tests are run in here
from tests.postgres import postgres  # noqa: F401 - a fixture

pytestmark = [pytest.mark.postgres, pytest.mark.requirement("nodes-1")]


@pytest.fixture
def make(postgres):  # noqa: F811 - the fixture
    url = postgres.url(postgres.emptied())

    def make(limits=None):
        return PostgresStorage(url, limits=limits)

    return make
