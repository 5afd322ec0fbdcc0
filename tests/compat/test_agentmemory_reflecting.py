"""crdtmem.compat.agentmemory.reflecting: what observations leave in slots"""

import pytest

from crdtmem.compat.agentmemory import AgentMemorySlots
from tests.compat.asking import observed, overwritten_by


def reflected(memory, *observations, **payload):
    slots = AgentMemorySlots(memory, observations=observed(*observations))
    result = slots.call("mem::slot-reflect", {"sessionId": "s"} | payload)
    texts = {
        label: memory.slot(label).read().content
        for label in ("pending_items", "session_patterns", "project_context")
    }
    return result, texts


def test_a_reflection_without_a_source_says_so(call):
    assert call("reflect", sessionId="s") == {
        "success": True,
        "applied": 0,
        "reason": "no source of observations",
    }


def test_a_reflection_on_nothing_says_so(memory, unchanged):
    with unchanged(memory):
        result, _ = reflected(memory)

    assert result == {
        "success": True,
        "applied": 0,
        "reason": "no observations for session",
    }


def test_a_reflection_brings_what_is_to_do_what_happened_and_the_files(memory):
    result, texts = reflected(
        memory,
        {"type": "error", "title": "TODO: retries", "files": ["src/retry.ts"]},
        {"type": "error", "title": "broken", "files": ["src/other.ts", "", 7]},
        {"type": "command_run", "id": "o3", "narrative": "a todo\nremains"},
        {"type": "edit", "title": 5, "files": "no list"},
    )

    assert result == {"success": True, "applied": 3, "observationsReviewed": 4}
    assert texts["pending_items"] == "- TODO: retries\n- o3"
    head, *counts = texts["session_patterns"].split("\n")
    assert head.startswith("last reflection: 2026-01-01T")
    assert counts == [
        "- errors: 2 in last 4 observations",
        "- commands: 1 in last 4 observations",
    ]
    assert texts["project_context"] == (
        "Files touched in recent sessions:\n- src/retry.ts\n- src/other.ts"
    )


def test_a_second_reflection_adds_only_what_is_new(memory):
    reflected(memory, {"title": "todo a", "files": ["a.ts"]})
    memory.slot("pending_items").append("\n")
    result, texts = reflected(
        memory,
        {"title": "todo a", "files": ["a.ts"]},
        {"title": "todo b", "files": ["b.ts"]},
    )
    again, _ = reflected(memory, {"title": "todo b", "files": ["b.ts"]})

    assert result["applied"] == 2
    assert texts["pending_items"] == "- todo a\n\n- todo b"
    assert texts["project_context"].endswith("\n- a.ts\n- b.ts")
    assert again["applied"] == 0


def test_a_reflection_looks_at_the_newest_observations(memory):
    found = [{"title": f"todo {n}"} for n in range(60)]

    assert reflected(memory, *found)[0]["observationsReviewed"] == 50
    result, texts = reflected(memory, *found, maxObservations="2")
    assert result["observationsReviewed"] == 2
    assert texts["pending_items"].endswith("- todo 58\n- todo 59")
    many, _ = reflected(memory, *found * 4, maxObservations=500)
    assert many["observationsReviewed"] == 200


def test_a_reflection_cuts_at_line_ends_and_keeps_the_newest(memory):
    memory.slot("pending_items").replace("old line\nyounger line")
    memory.slot("pending_items").set_meta(size_limit=24)
    memory.slot("session_patterns").set_meta(size_limit=60)
    _, texts = reflected(
        memory,
        {"type": "error", "title": "todo x"},
        {"type": "command_run", "title": "todo " + "y" * 30},
    )

    assert texts["pending_items"] == "younger line\n- todo x"
    assert texts["session_patterns"].count("\n") == 0
    kept = memory.slot("pending_items").history().entries[0]
    assert (kept.operation, kept.preview) == ("replace", "old line\nyounger line")


def test_a_reflection_that_has_no_room_at_all_leaves_the_text(memory):
    memory.slot("pending_items").set_meta(size_limit=3)
    memory.slot("session_patterns").replace("was here")
    memory.slot("session_patterns").set_meta(size_limit=3)
    result, texts = reflected(memory, {"type": "error", "title": "todo x"})

    assert result["applied"] == 0
    assert (texts["pending_items"], texts["session_patterns"]) == ("", "was here")


@pytest.mark.requirement("surfaces-34")
def test_a_reflection_leaves_a_read_only_slot_alone(memory):
    slot = memory.slot("pending_items")
    slot.replace("mine")
    slot.set_meta(read_only=True)
    result, texts = reflected(memory, {"title": "todo x", "files": ["a.ts"]})

    assert result["applied"] == 1
    assert [one["code"] for one in result["skipped"]] == ["slot-read-only"]
    assert texts["pending_items"] == "mine"
    assert slot.read().rev == 1


def test_a_reflection_counts_and_is_undoable_as_any_write(memory):
    reflected(memory, {"title": "todo x"})
    slot = memory.slot("pending_items")

    assert slot.read().rev == 1
    assert slot.undo().content == ""


def test_a_reflection_does_not_count_as_having_seen_a_slot(memory, other):
    memory.slot("pending_items").read()
    other.slot("pending_items").append("theirs")
    slots = AgentMemorySlots(memory, observations=observed({"title": "todo x"}))
    slots.call("mem::slot-reflect", {"sessionId": "s"})
    result = slots.call("mem::slot-replace", {"label": "pending_items", "content": "m"})

    assert overwritten_by(result) == ["b"]


def test_a_reflection_stores_no_half_of_a_surrogate_pair(memory):
    _, texts = reflected(memory, {"title": "todo \ud83d", "files": ["\udc00"]})

    assert texts["pending_items"] == "- todo ?"
    assert texts["project_context"].endswith("- ?")
