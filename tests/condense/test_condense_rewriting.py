"""crdtmem.condense.rewriting"""

import pytest

from crdtmem.errors import InvalidArgumentError, RevNotKeptError, SlotRefusedError
from tests.condense.plans import BODY, PLAN, events, section

SHORT = PLAN.replace(section("a"), "## a\nin short\n").replace(section("b"), "")


@pytest.mark.requirement("condense-30")
def test_a_shorter_text_takes_the_place_of_the_old_one(memory, slot):
    result = slot.condense_text(SHORT, base_rev=0)

    assert slot.read().content == SHORT
    assert result.condensed
    assert result.base_rev == 0
    assert result.old_bytes == len(PLAN.encode()) + 1
    assert result.new_bytes == result.final_bytes == len(SHORT.encode()) + 1
    assert result.diff == slot.diff(0).unified
    assert slot.history().entries[0].operation == "condense"
    (found,) = memory.condense_passes()
    assert (found.id, found.state) == (result.pass_id, "committed")
    archive = memory.condense_archive(result.pass_id)
    assert [(part.heading, part.text) for part in archive.sections] == [
        ("## a", BODY + section("b")),
    ]
    assert [kind for kind, _ in events(memory)] == ["condense"]
    slot.undo(result.history_id)
    assert slot.read().content == PLAN
    assert memory.condense_passes()[0].state == "undone"


@pytest.mark.requirement("condense-30")
def test_what_was_appended_since_its_rev_stays(slot, theirs):
    for text in ("one", "two", "three"):
        theirs.append(text)
    result = slot.condense_text(SHORT, base_rev=0)

    assert slot.read().content == f"{SHORT}\none\ntwo\nthree"
    assert result.carried_bytes == len("one\ntwo\nthree\n")
    assert result.base_rev == 0


@pytest.mark.requirement("condense-30")
@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (SHORT.replace("- keep mé\n", ""), "pinned-line-dropped"),
        (SHORT.replace("## h", "## ha"), "recent-section-altered"),
        (PLAN, "not-smaller"),
    ],
)
def test_a_text_that_misses_what_it_must_have_is_not_written(
    memory, slot, content, reason
):
    result = slot.condense_text(content, base_rev=0)

    assert (result.condensed, result.reason) == (False, reason)
    assert result.detail
    assert "passId" not in result.to_dict()
    assert slot.read().content == PLAN
    assert memory.condense_passes() == []
    ((kind, found),) = events(memory)
    assert (kind, found["reason"], found["lane"]) == ("condense-abort", reason, "a")


@pytest.mark.requirement("condense-30", "condense-10")
def test_a_section_that_goes_and_was_changed_meanwhile_refuses_the_text(slot, theirs):
    theirs.edit("## b\n", "## b\nmore\n")
    before = slot.read().content
    result = slot.condense_text(SHORT, base_rev=0)

    assert result.reason == "source-changed"
    assert result.section == "## a"
    assert slot.read().content == before


def test_a_text_without_its_last_newline_can_be_rewritten(memory, slot):
    """As an editor that writes to the document may leave it."""
    with memory.store.writing() as transaction:
        transaction.connection.execute("UPDATE slot SET lsn = lsn")
    result = slot.condense_text(f"{SHORT}\n", base_rev=0)

    assert result.condensed


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("\ud800", 0), "invalid-text"),
        ((5, 0), "invalid-text"),
        ((SHORT, None), "invalid-precondition"),
        ((SHORT, -1), "invalid-precondition"),
    ],
)
def test_malformed_arguments_are_refused(slot, arguments, code):
    content, rev = arguments
    with pytest.raises(InvalidArgumentError) as caught:
        slot.condense_text(content, base_rev=rev)
    assert caught.value.code == code


def test_a_rev_that_is_not_kept_is_refused(slot):
    with pytest.raises(RevNotKeptError):
        slot.condense_text(SHORT, base_rev=7)


@pytest.mark.requirement("condense-31")
def test_a_slot_that_may_not_be_rewritten_refuses_the_text(slot, theirs):
    theirs.set_meta(append_only=True)
    with pytest.raises(SlotRefusedError):
        slot.condense_text(SHORT, base_rev=0)
    assert slot.read().content == PLAN
