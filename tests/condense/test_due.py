"""crdtmem.condense.due"""

import pytest

from crdtmem.condense.due import due_slots
from crdtmem.condense.settings import CondenseConfig
from crdtmem.errors import CondenseSkippedError
from tests.condense.plans import BODY, PLAN, begin, section

NOT_DUE = (False, "not-due")
SMALL = CondenseConfig(min_size=100)


def due(memory, config=None, scope=None):
    return {
        found.label: (found.due, found.reason)
        for found in due_slots(memory._session, scope, config)
    }


def test_a_full_slot_is_due(memory):
    memory.create("full", PLAN, size_limit=1_900)
    memory.create("roomy", PLAN, size_limit=3_000)
    memory.create("empty")

    assert due(memory) == {
        "empty": (False, "not-due"),
        "full": (True, "full"),
        "roomy": (False, "not-due"),
    }
    found = {one.label: one.pct_used for one in memory.condense_due()}
    assert found == {"empty": 0, "full": 79, "roomy": 50}


def test_a_slot_of_many_sections_is_due(memory):
    many = "".join(f"## {number}\n{BODY}" for number in range(51))
    memory.create("many", many, size_limit=1_000_000)

    assert due(memory) == {"many": (False, "not-due")}
    assert due(memory, SMALL) == {"many": (True, "sections")}
    fewer = CondenseConfig(min_size=100, section_trigger=51)
    assert due(memory, fewer) == {"many": (False, "not-due")}


def test_a_budget_in_bytes_takes_the_place_of_the_limit(memory, slot):
    size = len(PLAN.encode()) + 1

    for budget_bytes, expected in [(size, (True, "full")), (2 * size, NOT_DUE)]:
        config = CondenseConfig(min_size=1, keep_sections=2, budget_bytes=budget_bytes)
        assert due(memory, config) == {"plan": expected}


def test_what_keeps_a_slot_from_a_pass_is_its_reason(memory, clock):
    for label in ("busy", "old", "locked", "log", "damaged", "whole"):
        content = section("only") * 5 if label == "whole" else PLAN
        memory.create(label, content, size_limit=1_900)
    memory.slot("locked").set_meta(read_only=True)
    memory.slot("log").set_meta(append_only=True)
    begun = memory.slot("busy").begin_condense()
    memory.slot("old").begin_condense(expires_in=1)
    clock.advance(1)
    with memory.store.writing() as transaction:
        transaction.connection.execute(
            "UPDATE slot SET quarantined = 'x' WHERE label = 'damaged'"
        )

    wide = CondenseConfig(min_size=1, trigger_pct=1, keep_pct=99)
    assert due(memory, wide)["whole"] == (False, "nothing-to-evict")
    assert due(memory, CondenseConfig(trigger_pct=1, min_size=1)) == {
        "busy": (False, "condense-busy"),
        "damaged": (False, "slot-quarantined"),
        "locked": (False, "slot-read-only"),
        "log": (False, "slot-append-only"),
        "old": (True, "full"),
        "whole": (True, "full"),
    }
    times = {
        found.label: found.to_dict().get("retryAt") for found in memory.condense_due()
    }
    assert times.pop("busy") == begun.expires_at
    assert set(times.values()) == {None}


def test_slots_of_one_scope_can_be_asked_for(memory):
    memory.create("here", PLAN)
    memory.create("everywhere", PLAN, scope="global")

    assert set(due(memory)) == {"here", "everywhere"}
    assert set(due(memory, scope="global")) == {"everywhere"}
    (found,) = memory.condense_due(scope="project")
    assert (found.label, found.scope) == ("here", "project")


def refused(slot, **options):
    with pytest.raises(CondenseSkippedError) as caught:
        begin(slot, **{"force": False, "config": EAGER, **options})
    return caught.value


EAGER = CondenseConfig(trigger_pct=1, min_size=1)


def test_a_text_that_came_out_no_smaller_waits_until_it_has_grown(memory, slot):
    begun = begin(slot)
    slot.commit_condense(begun.id, BODY * 30)
    error = refused(slot)

    assert error.code == "not-smaller-backoff"
    assert error.retry_at == ""
    old_bytes = len(PLAN.encode()) + 1
    assert f"{old_bytes} bytes" in error.message
    slot.append("x" * (old_bytes // 10 - 2))
    assert refused(slot).code == "not-smaller-backoff"
    slot.append("x")
    slot.abort_condense(begin(slot, force=False, config=EAGER).id)


def test_force_begins_all_the_same(slot):
    slot.abort_condense(begin(slot).id, "timeout")

    assert refused(slot).code == "backoff"
    assert begin(slot).evicted
