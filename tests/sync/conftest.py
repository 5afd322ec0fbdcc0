"""A relay without sockets, and stores that are synced with it."""

import pytest

from tests.sync.sites import Relay, Site


@pytest.fixture
def relay():
    return Relay()


@pytest.fixture
def site(tmp_path, relay):
    """Make machines by their names; they are not connected yet."""
    made = []

    def make(name, *, on=None, **options):
        made.append(Site(tmp_path, name, on or relay, **options))
        return made[-1]

    yield make
    for each in made:
        each.close()


@pytest.fixture
def pair(site):
    """Two machines that are in step: one slot with a line of each."""
    ann, bob = site("ann"), site("bob")
    ann.append("plan", "ann 1")
    ann.connect()
    bob.connect()
    bob.append("plan", "bob 1")
    ann.relay.run()
    return ann, bob
