"""relay.storage.memory: the contract of a storage, and what only this one offers."""

from random import Random

import pytest

from relay.storage.memory import MemoryStorage
from tests.contracts.authors import EVERYTHING, Author
from tests.contracts.storage import *  # noqa: F403 - the tests are run in here


@pytest.fixture
def make():
    rng = Random(1)
    first = MemoryStorage(rng=rng)

    def make(limits=None):
        return MemoryStorage(limits, rng=rng, over=first)

    return make


async def test_a_copy_goes_its_own_way(storage):
    author = await Author.join(storage)
    await author.write(1)
    backup = storage.copy()
    await author.write(2)
    known = backup.restored()

    assert storage.ns_no("notes") == backup.ns_no("notes") == author.ns_no
    assert storage.ns_no("other") == 0
    assert (await backup.read(1, 0, **EVERYTHING)).head == 1
    identities = [await one.open() for one in (storage, backup, known)]
    assert identities[0] == identities[1]
    assert identities[2].relay_id == identities[0].relay_id
    assert identities[2].epoch != identities[0].epoch


async def test_time_may_be_said_to_have_passed(storage):
    author = await Author.join(storage)
    await author.write(1)
    await author.snapshot(1)
    storage.age(30 * 86_400_000)

    assert (await storage.sweep(0, 10)).payloads == 1
