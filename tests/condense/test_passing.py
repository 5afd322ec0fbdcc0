"""crdtmem.condense.passing"""

import pytest

from crdtmem.condense.passing import abort_pass
from crdtmem.errors import CondensePassUnknownError, InvalidArgumentError
from crdtmem.store.passes import add_remote_pass
from tests.condense.plans import PLAN, begin, commit, events, pins


@pytest.mark.requirement("condense-13")
def test_an_abort_changes_no_text_and_keeps_what_others_wrote(memory, slot, theirs):
    begun = begin(slot)
    theirs.append("meanwhile")
    result = theirs.abort_condense(begun.id)

    assert (result.condensed, result.reason) == (False, "cancelled")
    assert (result.pass_id, result.base_rev, result.rev) == (begun.id, 0, 1)
    assert slot.read().content == f"{PLAN}\nmeanwhile"
    assert pins(memory) == (0, 0)
    ((kind, found),) = events(memory)
    assert (kind, found["passId"], found["reason"]) == (
        "condense-abort",
        begun.id,
        "cancelled",
    )


def test_an_abort_says_more_where_that_is_known(memory, slot):
    begun = begin(slot)
    result = abort_pass(
        slot._session, slot._place, begun.id, "summarize-failed", detail="it broke"
    )

    assert result.detail == "it broke"
    assert events(memory)[0][1]["detail"] == "it broke"


def test_an_ended_pass_stays_as_it_ended(memory, slot):
    done = begin(slot)
    first = commit(slot, done)

    assert slot.abort_condense(done.id) == first
    aborted = begin(slot, keep_sections=1)
    second = slot.abort_condense(aborted.id)
    assert slot.abort_condense(aborted.id, "timeout") == second
    assert len(events(memory)) == 2


def test_a_pass_that_another_copy_of_the_store_has_committed_stays(memory, slot):
    begun = begin(slot)
    with memory.store.writing() as transaction:
        transaction.connection.execute(
            "UPDATE condense_pass SET state = 'committed', reason = 'condensed'"
        )

    assert slot.abort_condense(begun.id).reason == "condensed"
    assert commit(slot, begun).reason == "pass-closed"


@pytest.mark.parametrize("reason", ["", "Timeout", "a b", 5, None, "x" * 65])
def test_a_reason_is_in_kebab_case(slot, reason):
    begun = begin(slot)

    with pytest.raises(InvalidArgumentError) as caught:
        slot.abort_condense(begun.id, reason)
    assert caught.value.argument == "reason"
    assert commit(slot, begun).condensed


def test_a_pass_of_another_slot_or_store_is_unknown(memory, slot):
    memory.create("notes")
    begun = begin(slot)
    with memory.store.writing() as transaction:
        add_remote_pass(
            transaction.connection,
            pass_id="cp_aaaaaaaaaaaaaaaa",
            doc=transaction.slot("p", "plan").doc,
            namespace="p",
            label="plan",
            lane="b",
            after=None,
            parts=[],
            lsn=1,
            now_ms=1,
        )

    for label, pass_id in [
        ("notes", begun.id),
        ("plan", "cp_bbbbbbbbbbbbbbbb"),
        ("plan", "cp_aaaaaaaaaaaaaaaa"),
    ]:
        with pytest.raises(CondensePassUnknownError) as caught:
            memory.slot(label).abort_condense(pass_id)
        assert caught.value.exit_status == 3
        assert pass_id in caught.value.message
