"""crdtmem.condense.outcomes"""

import math

import pytest

from crdtmem.condense.beginning import begin_pass
from crdtmem.condense.passing import abort_pass
from crdtmem.condense.settings import CondenseConfig
from crdtmem.errors import CondenseSkippedError
from tests.condense.plans import PLAN, SUMMARY, begin, commit, events

EAGER = CondenseConfig(trigger_pct=1, min_size=1)
HOUR = 3_600


def fail(slot, reason, *, summariser="", retry_after=None):
    """Begin a pass and end it so; return for how long the next one is put off."""
    begun = begin_pass(
        slot._session, slot._place, force=True, keep_sections=2, summariser=summariser
    )
    result = abort_pass(
        slot._session, slot._place, begun.id, reason, retry_after=retry_after
    )
    return result.to_dict().get("retryAt")


def skip(slot, summariser=""):
    try:
        begun = begin_pass(
            slot._session,
            slot._place,
            config=EAGER,
            keep_sections=2,
            summariser=summariser,
        )
    except CondenseSkippedError as error:
        return error
    abort_pass(slot._session, slot._place, begun.id, "cancelled")
    return None


@pytest.mark.requirement("condense-28")
@pytest.mark.parametrize(
    "reason", ["summarize-failed", "timeout", "reply-empty", "invalid-text"]
)
def test_failures_of_the_summariser_make_the_slot_wait(slot, theirs, clock, reason):
    fail(slot, reason)
    error = skip(theirs)

    assert error.code == "backoff"
    assert reason in error.message
    assert error.retry_at in error.message
    clock.advance(299)
    assert skip(theirs).code == "backoff"
    clock.advance(2)
    assert skip(theirs) is None


@pytest.mark.requirement("condense-28")
def test_the_wait_doubles_up_to_six_hours_and_ends_with_a_success(slot, clock):
    waits = []
    for _ in range(9):
        start = clock.now
        fail(slot, "timeout")
        low, high = 0, 10 * HOUR
        while high - low > 1:
            middle = (low + high) // 2
            clock.now = start
            clock.advance(middle)
            low, high = (middle, high) if skip(slot) else (low, middle)
        waits.append(round(low / 10) * 10)
    assert waits == [300, 600, 1_200, 2_400, 4_800, 9_600, 19_200, 21_600, 21_600]

    commit(slot, begin(slot))
    slot.replace(PLAN)
    fail(slot, "timeout")
    clock.advance(301)
    assert skip(slot) is None


def test_other_reasons_make_nobody_wait(slot):
    assert fail(slot, "cancelled") is None
    assert skip(slot) is None


@pytest.mark.requirement("condense-28")
@pytest.mark.parametrize(
    ("retry_after", "seconds"),
    [
        (None, HOUR),
        (1, 60),
        (120, 120),
        (10 * 86_400, 86_400),
        (math.nan, HOUR),
        (math.inf, HOUR),
    ],
)
def test_a_summariser_out_of_quota_waits_for_all_slots(
    memory, slot, open_lane, clock, retry_after, seconds
):
    memory.create("notes", PLAN, size_limit=20_000)
    fail(slot, "rate-limited", summariser="m", retry_after=retry_after)
    again = open_lane("c").slot("notes")

    assert skip(again, "m").code == "backoff"
    assert "rate-limited" in skip(again, "m").message
    assert skip(again, "another") is None
    clock.advance(seconds - 2)
    assert skip(again, "m").code == "backoff"
    clock.advance(3)
    assert skip(again, "m") is None


def test_a_quota_that_is_out_again_doubles_the_wait_until_a_success(slot, clock):
    fail(slot, "rate-limited", summariser="m")
    fail(slot, "rate-limited", summariser="m")
    clock.advance(2 * HOUR - 10)
    assert skip(slot, "m").code == "backoff"
    clock.advance(20)
    begun = begin_pass(
        slot._session, slot._place, force=True, keep_sections=2, summariser="m"
    )
    assert slot.commit_condense(begun.id, SUMMARY).condensed
    slot.replace(PLAN)
    fail(slot, "rate-limited", summariser="m")
    clock.advance(HOUR + 1)
    assert skip(slot, "m") is None


def test_the_log_names_the_summariser_and_when_it_may_be_asked_again(memory, slot):
    retry_at = fail(slot, "rate-limited", summariser="m")
    _, found = events(memory)[0]

    assert found["summariser"] == "m"
    assert found["retryAt"] == retry_at
