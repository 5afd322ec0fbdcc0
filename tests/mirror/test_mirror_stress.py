"""Mirrors under load: real tools, lanes and kills; nothing is lost, nothing doubled."""

import random

import pytest

from tests import scripts
from tests.child import Children
from tests.conftest import PROFILE
from tests.killpoints import KILL_POINTS
from tests.mirror.stress import Outcome, Scenario, Workshop

pytestmark = pytest.mark.process

IS_CAMPAIGN = PROFILE == "campaign"
ROUNDS = {"default": 1, "campaign": 5}[PROFILE]
PASSES, QUICK_PASSES = {"default": (8, 25), "campaign": (300, 2_000)}[PROFILE]
# Fewer: before it commits, a pass waits up to 2 s for a file that is being written.
CONDENSES = {"default": 1, "campaign": 30}[PROFILE]

WAYS = {"exchange": [], "move aside": ["exchange"]}
"""How a file is replaced, and what the system denies for that."""

SCENARIOS = [
    Scenario("S1", ("appender",), 0.020, PASSES, 0.040),
    Scenario("S2", ("holder",), 0.020, PASSES, 0.040),
    Scenario("S3", ("appender",), 0.0002, QUICK_PASSES, 0.003),
    Scenario("S4", ("holder",), 0.0002, QUICK_PASSES, 0.003),
    Scenario("S1c", ("appender",), 0.004, CONDENSES, 0.040, keep=0),
    Scenario("S2c", ("holder",), 0.004, CONDENSES, 0.040, keep=0),
    Scenario("S6", ("replacer",), 0.007, PASSES, 0.010),
    Scenario("S7", ("appender", "reader"), 0.020, PASSES, 0.040),
]
"""In those with a c each pass condenses the slot, in the others it cuts lines off."""

NOT_PASSED = {
    "exchange": {"mirror.swap-5-renamed", "mirror.swap-5-linked"},
    "move aside": {"mirror.swap-5"},
}
"""Points that a way does not pass each time."""


def points_of(way):
    found = {name for name in KILL_POINTS if name.startswith("mirror.")}
    return sorted(found - NOT_PASSED[way])


@pytest.fixture(scope="module")
def crew():
    with Children() as children:
        found = [children.spawn() for _ in range(3)]
        for child in found:
            child.start(scripts.load_for_sync)
        for child in found:
            child.result()
        yield found


@pytest.fixture(scope="module", params=WAYS)
def way(request):
    return request.param


@pytest.fixture(scope="module")
def outcome_of(way, crew, tmp_path_factory):
    """Give what became of a scenario; the default run plays all of them at once."""
    known: dict[str, Outcome] = {}

    def outcome_of(scenario):
        if scenario.name not in known:
            workshop = Workshop(tmp_path_factory.mktemp(scenario.name), crew, WAYS[way])
            known.update(workshop.play([scenario] if IS_CAMPAIGN else SCENARIOS))
        return known[scenario.name]

    return outcome_of


def check(outcome):
    assert outcome.faults == {}
    assert outcome.lines > 0
    assert outcome.is_equal
    assert outcome.title.startswith("# pass ")
    assert outcome.kept == []


@pytest.mark.requirement(
    "mirror-S1", "mirror-S2", "mirror-S3", "mirror-S4", "mirror-S6"
)
@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name)
def test_no_line_of_a_tool_is_lost_or_doubled(outcome_of, scenario):
    check(outcome_of(scenario))


@pytest.mark.requirement("mirror-S7")
def test_a_reader_sees_whole_texts_only(outcome_of, way):
    found = outcome_of(SCENARIOS[-1]).reader

    # Where a file is moved aside it is missing for a moment, or, if just then the tool
    # opens it, there is one with the tool's line alone.
    assert found["reads"] > 0
    if way == "exchange":
        assert (found["faults"], found["missing"]) == ([], 0)


@pytest.mark.requirement("mirror-S5", "mirror-21", "testing-F1")
def test_a_mirror_that_is_killed_at_any_step_loses_nothing(crew, tmp_path, way):
    """One life after the other, with tools and a lane that never stop.

    The campaign kills at every step, again and again; in the default run each way has
    half of the steps.
    """
    points = points_of(way)
    chance = random.Random(way)
    chosen = (
        chance.sample(points * ROUNDS, len(points) * ROUNDS)
        if IS_CAMPAIGN
        else points[way == "exchange" :: 2]
    )
    kills = [(point, chance.randint(1, ROUNDS)) for point in chosen]
    passes = 10 * len(kills)
    scenario = Scenario("S5", ("appender", "holder"), 0.005, passes, 0.050)

    outcomes = Workshop(tmp_path, crew, WAYS[way]).play([scenario], kills)

    check(outcomes["S5"])


@pytest.mark.requirement("mirror-23")
def test_without_leases_a_replaced_file_is_kept_and_nothing_lost(crew, tmp_path):
    workshop = Workshop(tmp_path, crew, ["exchange", "leases"])

    outcomes = workshop.play(SCENARIOS[:2])

    for outcome in outcomes.values():
        assert outcome.faults == {}
        assert outcome.is_equal
        assert outcome.kept != []
