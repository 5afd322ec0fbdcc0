"""tests.fleet: processes end with their fleet, and what is wrong is seen"""

import os
from contextlib import closing

import pytest

from relay.storage.sqlite.connection import connect
from tests.child import Children
from tests.fleet import fleet
from tests.machines import SLOT

pytestmark = pytest.mark.process


@pytest.fixture(scope="module")
def crew():
    with Children() as children:
        yield [children.spawn() for _ in range(2)]


def test_a_fleet_that_fails_leaves_no_process(crew):
    with pytest.raises(ZeroDivisionError), fleet(crew) as world:
        pid = world.relay.pid
        os.kill(pid, 0)
        raise ZeroDivisionError

    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    assert [child.is_idle for child in crew] == [True, True]


def test_a_command_that_fails_is_no_sync(crew):
    with fleet(crew) as world:
        machine = world.adopt("a")
        world.write("a")
        with pytest.raises(AssertionError, match="not linked"):
            machine.sync()


def test_a_line_that_was_changed_behind_the_test_is_seen(crew):
    with fleet(crew, "a") as world:
        world.write("a")
        a = world.machines["a"]
        assert world.is_whole(a)
        a.replace_line(a.look().texts[SLOT].split("\n")[0], "stray")
        with pytest.raises(AssertionError):
            world.check()

        (found,) = world.faults(a)
        assert found.label == SLOT
        assert set(found.verdict) == {"lost", "phantom"}
        assert found.text.startswith("stray\n")


def test_a_record_that_was_changed_behind_the_relay_is_seen(crew):
    with fleet(crew, "a") as world:
        world.write("a")
        world.settle()
        world.check()
        with closing(connect(world.relay.folder / "relay.db")) as connection:
            connection.execute("UPDATE log SET payload = x'00'")

        with pytest.raises(AssertionError, match="bad_seq=1"):
            world.check_relay()
