"""A relay without sockets and stores synced with it; children for real ones."""

import pytest

from tests import scripts
from tests.child import Children
from tests.sync.sealed import ONE
from tests.sync.sites import Relay, Site

CREW = 3


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


def in_step(ann, bob):
    """Return two machines once they have one slot with a line of each."""
    ann.append("plan", "ann 1")
    ann.connect()
    bob.connect()
    bob.append("plan", "bob 1")
    ann.relay.run()
    return ann, bob


@pytest.fixture
def pair(site):
    """Two machines that are in step."""
    return in_step(site("ann"), site("bob"))


@pytest.fixture(scope="session")
def nursery():
    with Children() as children:
        yield children


@pytest.fixture
def crew(nursery):
    """Give children with nothing to do; those of earlier tests are used again."""
    found = nursery.idle()[:CREW]
    new = [nursery.spawn() for _ in range(CREW - len(found))]
    for child in new:
        child.start(scripts.load_for_sync)
    for child in new:
        child.result()
    return found + new


@pytest.fixture
def sealed_pair(site):
    """Two machines that share a key and are in step."""
    return in_step(site("ann", keys=ONE), site("bob", keys=ONE))


@pytest.fixture
def victim(sealed_pair, site):
    """A machine with the key that has read the log, and gets the rest from a test."""
    cy = site("cy", keys=ONE)
    cy.connect()
    cy.relay.cut(cy)
    return cy
