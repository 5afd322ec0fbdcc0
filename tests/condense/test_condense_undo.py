"""A pass is a write: it can be undone and redone, and the pass says so."""

import pytest

from crdtmem.errors import HistoryError
from tests.condense.plans import CONDENSED, PLAN, begin, commit


def state(memory):
    return memory.condense_passes()[-1].state


@pytest.mark.requirement("condense-19")
def test_an_undo_brings_back_what_went_and_keeps_what_came(memory, slot, theirs):
    begun = begin(slot)
    theirs.append("meanwhile")
    result = commit(slot, begun)
    theirs.append("afterwards")
    undone = slot.undo(result.history_id)

    assert slot.read().content == f"{PLAN}\nmeanwhile\nafterwards"
    assert state(memory) == "undone"
    assert memory.condense_archive(begun.id).sections
    with pytest.raises(HistoryError) as caught:
        slot.undo(result.history_id)
    assert caught.value.code == "already-undone"

    redone = slot.undo(undone.history_id)
    assert slot.read().content == f"{CONDENSED}\nmeanwhile\nafterwards"
    assert state(memory) == "committed"
    slot.undo(redone.history_id)
    assert slot.read().content == f"{PLAN}\nmeanwhile\nafterwards"
    assert state(memory) == "undone"


@pytest.mark.requirement("condense-19")
def test_an_undone_pass_returns_its_result_and_is_not_what_the_next_began_from(
    memory, slot
):
    begun = begin(slot)
    result = commit(slot, begun)
    slot.undo(result.history_id)

    assert commit(slot, begun) == result
    again = begin(slot)
    assert commit(slot, again).condensed
    notes = notes_of(memory)
    assert notes[0] == notes[1].replace(again.id, begun.id)


def test_the_next_pass_names_the_one_before(memory, slot):
    first = begin(slot)
    commit(slot, first)
    second = begin(slot, keep_sections=1)
    commit(slot, second, "all of it, in two words")

    assert notes_of(memory) == [
        f'{{"pass":"{first.id}","after":null}}',
        f'{{"pass":"{second.id}","after":"{first.id}"}}',
    ]


def test_undoing_another_write_leaves_the_pass_alone(memory, slot):
    commit(slot, begin(slot))
    slot.append("more")
    slot.undo()

    assert slot.read().content == CONDENSED
    assert state(memory) == "committed"


def test_an_undo_whose_own_write_is_no_longer_kept_leaves_the_pass_alone(memory, slot):
    result = commit(slot, begin(slot))
    undone = slot.undo(result.history_id)
    place = {"id": int(result.history_id[1:].partition("-")[0])}
    with memory.store.writing() as transaction:
        transaction.connection.execute(
            "DELETE FROM history WHERE place & 1099511627775 = :id", place
        )
    slot.undo(undone.history_id)

    assert state(memory) == "undone"


def notes_of(memory):
    with memory.store.reading() as connection:
        found = connection.execute(
            "SELECT note FROM log WHERE note IS NOT NULL ORDER BY lsn"
        )
        return [note for (note,) in found]
