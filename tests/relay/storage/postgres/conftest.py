"""Relay processes on one database, as far as their storages go."""

import asyncio
import contextlib

import pytest

from relay.storage.postgres.connection import Database, PostgresTiming
from relay.storage.postgres.storage import PostgresStorage
from tests.child import PATIENCE_S
from tests.postgres import postgres  # noqa: F401 - a fixture

QUICK = PostgresTiming(
    connect_s=20, answer_s=20, lock_ms=20_000, idle_ms=20_000, poll_s=0.05
)
"""Waits long for what comes in any case, and looks often."""


@contextlib.asynccontextmanager
async def opened(url, *, timing=QUICK, **options):
    """Give the storage of a process, open."""
    storage = PostgresStorage(url, timing=timing, **options)
    try:
        await storage.open()
        yield storage
    finally:
        await storage.close()


async def until(condition):
    """Wait until something is so."""
    async with asyncio.timeout(PATIENCE_S):
        while not condition():
            await pause()


async def pause():
    """Let others do something before the next attempt."""
    over = asyncio.get_running_loop().create_future()
    asyncio.get_running_loop().call_later(0.005, over.set_result, None)
    await over


async def until_in(url, question):
    """Wait until a question to the database is answered with yes."""
    async with (
        asyncio.timeout(PATIENCE_S),
        Database(url, timing=QUICK).connection() as connection,
    ):
        while not await connection.fetchval(question):
            await pause()


@pytest.fixture
def name(postgres):  # noqa: F811 - the fixture
    """Name of an empty database, until the end of the test."""
    name = postgres.emptied()
    yield name
    postgres.sql("DROP FUNCTION IF EXISTS refuse, wait CASCADE", name)


@pytest.fixture
def url(postgres, name):  # noqa: F811 - the fixture
    return postgres.url(name)


@pytest.fixture
def node(url):
    """Opens the storage of one more process."""

    def node(**options):
        return opened(url, **options)

    return node
