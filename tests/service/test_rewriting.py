"""What a replace covers, and how a text made from an older one is merged."""

import pytest

from crdtmem.models import UNSET
from tests.replica import insert_at_the_end


def sql(memory, statement):
    with memory.store.writing() as transaction:
        transaction.connection.execute(statement)


# -- what an unguarded replace covers


@pytest.mark.requirement("P3")
def test_an_unguarded_replace_reports_what_its_lane_had_not_seen(memory, other):
    memory.create("t", "mine")
    other.slot("t").append("theirs")

    result = memory.slot("t").replace("new")

    assert [(c.lane, c.operation, c.rev) for c in result.overwrote] == [
        ("b", "append", 1)
    ]
    assert memory.slot("t").history_entry(result.history_id).content == "mine\ntheirs"


@pytest.mark.requirement("P3")
def test_a_first_text_of_another_lane_is_reported_too(memory, other):
    other.create("t", "theirs")
    other.create("own", "")

    result = memory.slot("t").replace("mine")

    assert [(c.lane, c.operation, c.rev) for c in result.overwrote] == [
        ("b", "create", 0)
    ]
    assert memory.slot("own").replace("mine").overwrote is UNSET


def test_commits_that_are_pruned_are_reported_by_what_is_left_of_them(memory, other):
    memory.configure(history_keep=2)
    other.create("t")
    other.slot("t").append("theirs")
    for n in range(3):
        memory.slot("t").append(str(n))

    result = memory.slot("t").replace("mine")

    assert [(c.lane, c.rev) for c in result.overwrote] == [("b", 2)]


def test_at_most_twenty_commits_are_reported(memory, other):
    memory.configure(history_keep=50)
    memory.create("t")
    for n in range(25):
        other.slot("t").append(str(n))

    overwrote = memory.slot("t").replace("mine").overwrote

    assert [c.rev for c in overwrote] == list(range(6, 26))


def test_a_replace_of_what_was_seen_overwrote_nothing(memory, other):
    memory.create("t", "mine")
    other.slot("t").append("theirs")
    memory.slot("t").read()

    assert memory.slot("t").replace("new").overwrote is UNSET
    assert memory.slot("persona").replace("new").overwrote is UNSET
    assert other.slot("t").replace("guarded", expected_rev=2).overwrote is UNSET


# -- base_rev


@pytest.mark.requirement("P3")
def test_a_stale_text_is_merged(memory, other):
    memory.create("t", "a\nb")
    other.slot("t").append("c")

    result = memory.slot("t").replace("A\nb", base_rev=0)

    assert (result.content, result.merged, result.rev) == ("A\nb\nc", True, 2)
    assert result.diff == "--- t@0\n+++ t@2\n@@ -1,2 +1,3 @@\n A\n b\n+c"


def test_a_merge_onto_the_newest_text_is_a_plain_replace(memory):
    memory.create("t", "a")

    result = memory.slot("t").replace("b", base_rev=0)

    assert (result.content, result.merged, result.diff) == ("b", UNSET, UNSET)


def test_a_merge_that_changes_nothing_says_so(memory, other, unchanged):
    memory.create("t", "a\nb")
    other.slot("t").append("c")

    with unchanged(memory):
        result = memory.slot("t").replace("a\nb", base_rev=0)

    assert (result.changed, result.merged, result.content) == (False, True, "a\nb\nc")


@pytest.mark.parametrize("verb", ["replace", "insert"])
def test_a_base_that_cannot_be_used_says_why(memory, refusal, verb):
    memory.configure(history_keep=3)
    memory.create("t", "a")
    slot = memory.slot("t")
    for n in range(4):
        slot.append(str(n))
    args = {"replace": ("x",), "insert": (0, "x")}[verb]

    def refused(base_rev):
        error = refusal(memory, getattr(slot, verb), *args, base_rev=base_rev)
        assert error.code == "rev-not-kept"
        assert f"oldest kept rev is {error.details['oldestRev']}" in error.message
        return error.details

    assert refused(0) == {
        "label": "t",
        "rev": 0,
        "oldestRev": 1,
        "currentRev": 4,
        "reason": "pruned",
    }
    assert refused(5)["reason"] == "ahead"
    memory.delete("t")
    memory.create("t", "new")
    assert refused(3)["reason"] == "recreated"
    assert refused(4)["reason"] == "recreated"


def test_a_base_on_a_template_is_ahead(memory, refusal):
    error = refusal(memory, memory.slot("persona").replace, "x", base_rev=3)

    assert (error.details["reason"], error.details["oldestRev"]) == ("ahead", 0)


def test_a_base_is_not_kept_once_its_record_is_squashed(memory, refusal):
    memory.create("t", "a")
    memory.slot("t").append("b")
    sql(memory, "UPDATE doc SET state_lsn = 99")

    error = refusal(memory, memory.slot("t").replace, "y", base_rev=0)

    assert error.details["reason"] == "pruned"


def test_a_merge_that_cannot_be_followed_is_refused(memory, refusal):
    memory.create("t", "a")
    memory.slot("t").append("b")
    sql(memory, "UPDATE history SET file = 'z' || char(10)")

    error = refusal(memory, memory.slot("t").replace, "x", base_rev=0)

    assert (error.code, error.details["reason"]) == ("rev-not-kept", "pruned")


def test_a_foreign_text_without_a_newline_is_written_like_any_other(memory):
    memory.create("t", "a")
    insert_at_the_end(memory, "t", "b")

    appended = memory.slot("t").append("c")

    assert appended.content == "a\nb\nc"
