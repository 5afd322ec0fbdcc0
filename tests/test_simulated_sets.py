"""Memory sets on machines that crash, are copied and put back: nothing is lost."""

from contextlib import closing

import pytest

from tests.conftest import PROFILE
from tests.simulated import small_world
from tests.simulated_sets import PLACES, SetWorld, faults_of, run_set_worlds
from tests.store.writes import damage

SEEDS = {"default": 5, "campaign": 4_000}[PROFILE]
PER_TEST = 5


@pytest.mark.requirement("sync-simulator", "sync-copied-store")
@pytest.mark.requirement("P1", "P6", "P8")
@pytest.mark.parametrize("first", range(0, SEEDS, PER_TEST))
def test_no_item_is_lost_doubled_or_foreign_whatever_happens_to_machines(first):
    done = run_set_worlds(first, first + PER_TEST)

    assert done.keys() >= {"add", "update", "delete", "clear", "talk", "crash_client"}


def test_the_check_sees_items_that_are_foreign_doubled_or_lost():
    written = {"a": {"1", "2"}, "b": {"3"}, "c": {"4"}}

    assert faults_of({"a": ["1", "2"], "b": ["3"]}, written, {"c"}) == []
    assert faults_of({"a": ["1", "1"], "d": ["3"]}, written, {"b"}) == [
        "nobody wrote d",
        "a is doubled",
        "c is lost",
    ]


@pytest.fixture
def world(tmp_path):
    """Two machines that have one item each, and have settled."""
    with small_world(0):
        made = SetWorld(0, tmp_path, sites=2)
        with closing(made):
            for site in made.sites:
                made.put(site, PLACES[0], "ann", [f"{site.name}.x"])
            made.settle()
            yield made


@pytest.mark.parametrize(
    ("harm", "fault"),
    [
        (lambda w: w.put(w.sites[0], PLACES[0], "ann", ["new"]), "sets differ"),
        (lambda w: w.texts.update(lost={"text"}), "lost is lost"),
        (
            lambda w: damage(w.sites[1].store, "UPDATE item SET text = 'evil'"),
            "rows differ",
        ),
    ],
)
def test_the_check_sees_stores_that_differ_from_each_other_or_from_what_was_written(
    world, harm, fault
):
    world.check()
    harm(world)

    with pytest.raises(AssertionError, match=fault):
        world.check()
