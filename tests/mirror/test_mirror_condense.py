"""Condense passes over a slot whose file a tool goes on writing to."""

import pytest

from tests.condense.stress_scripts import BASE, SUMMARY


def texts(desk, file):
    """Return the slot's text, and the file's, without its final newline."""
    return desk.text("plan"), file.read_text(encoding="utf-8").removesuffix("\n")


@pytest.mark.requirement("mirror-30")
def test_a_pass_and_its_undo_keep_what_a_tool_appends_to_the_file_it_holds(
    either_desk,
):
    desk = either_desk
    file = desk.make("plan", BASE)
    slot = desk.lane.slot("plan")
    with file.open("ab", buffering=0) as held:
        begun = slot.begin_condense(keep_sections=1, force=True)
        held.write(b"during the pass\n")
        desk.wait(0.5)
        result = slot.commit_condense(begun.id, SUMMARY)
        held.write(b"before the swap\n")
        desk.wait(0.5)
        held.write(b"behind the swap\n")
        desk.wait(3.0, 0.25)
        condensed, in_file = texts(desk, file)
    desk.drain()

    assert result.reason == "condensed"
    assert condensed == in_file
    assert SUMMARY in condensed
    assert "## old 0\n" not in condensed
    assert condensed.endswith("during the pass\nbefore the swap\nbehind the swap")

    slot.undo(result.history_id)
    desk.wait(0.5)
    desk.drain()
    undone, in_file = texts(desk, file)

    assert undone == in_file
    assert undone == f"{BASE}\nduring the pass\nbefore the swap\nbehind the swap"
