"""The past of a slot: entries, kept texts, diffs, blame."""

import pytest

from crdtmem.history import is_undoable
from crdtmem.models import UNSET
from tests.replica import exchange_records


def filled(memory, count=5):
    memory.create("t", "0")
    for n in range(1, count + 1):
        memory.slot("t").append(str(n))
    return memory.slot("t")


def test_entries_come_newest_first_with_the_text_before_each(memory, other):
    memory.create("t", "one")
    other.slot("t").append("two")
    memory.slot("t").replace("three")

    history = memory.slot("t").history()

    assert [
        (e.operation, e.lane, e.rev, e.preview, e.size) for e in history.entries
    ] == [
        ("replace", "a", 1, "one\ntwo", 7),
        ("append", "b", 0, "one", 3),
    ]
    assert (history.label, history.scope, history.more) == ("t", "project", False)
    assert (history.current.rev, history.current.size) == (2, 5)
    assert [e.content for e in history.entries] == [UNSET, UNSET]
    assert all(e.undoable for e in history.entries)


def test_an_entry_can_be_had_with_its_content(memory):
    slot = filled(memory, 1)
    (entry,) = slot.history().entries

    found = slot.history_entry(entry.id)

    assert found == entry.replaced(content="0")
    assert len(entry.id) <= 64


def test_a_page_ends_at_its_limit_and_leads_on(memory):
    slot = filled(memory)

    first = slot.history(2)
    second = slot.history(2, before=first.entries[-1].id)
    third = slot.history(2, before=second.entries[-1].id)

    pages = [first, second, third]
    assert [[e.rev for e in page.entries] for page in pages] == [[4, 3], [2, 1], [0]]
    assert [page.more for page in pages] == [True, True, False]


def test_a_page_is_bounded(memory, refusal):
    slot = filled(memory, 1)

    for limit in (0, 1001, True, None):
        error = refusal(memory, slot.history, limit)
        assert (error.code, error.argument) == ("invalid-argument", "limit")
    assert refusal(memory, slot.history, before="h1-none").code == "history-not-found"


def test_the_newest_texts_are_kept(memory):
    slot = filled(memory, 25)

    assert [e.rev for e in slot.history(100).entries] == list(range(24, 4, -1))


def test_how_many_are_kept_can_be_set_for_the_store(memory, other, refusal):
    slot = filled(memory, 5)
    other.configure(history_keep=2)
    slot.append("6")

    assert [e.rev for e in slot.history().entries] == [5, 4]
    assert memory.status().history_keep == 2
    for keep in (0, 1001, None, True):
        assert refusal(memory, memory.configure, history_keep=keep).argument == (
            "history_keep"
        )


def test_the_past_of_a_project_slot_and_a_hidden_one_never_mix(memory):
    memory.create("t", "g", scope="global")
    memory.slot("t").append("g2")
    memory.create("t", "p")
    memory.slot("t").append("p2")

    assert [e.preview for e in memory.slot("t").history().entries] == ["p"]
    assert [e.preview for e in memory.slot("t", "global").history().entries] == ["g"]


def test_a_template_has_no_past(memory):
    slot = memory.slot("persona")

    assert (slot.history().entries, slot.history().more) == ((), False)
    assert slot.blame() == []
    assert slot.diff(0).unified == ""


def test_a_slot_that_never_was_has_none_either(memory, refusal):
    slot = memory.slot("absent")

    for verb, args in [(slot.history, ()), (slot.diff, (0,)), (slot.blame, ())]:
        assert refusal(memory, verb, *args).code == "slot-not-found"
    assert refusal(memory, slot.history_entry, "h1-x").code == "slot-not-found"


# -- diff


def test_a_diff_goes_to_now_or_to_another_rev(memory):
    slot = filled(memory, 2)

    assert slot.diff(0).to_dict() == {
        "fromRev": 0,
        "toRev": 2,
        "unified": "--- t@0\n+++ t@2\n@@ -1 +1,3 @@\n 0\n+1\n+2",
        "added": 2,
        "removed": 0,
        "truncated": False,
    }
    assert slot.diff(0, 1).added == 1
    assert slot.diff(2, 0).removed == 2
    assert slot.diff(1, 1).unified == ""


def test_a_newline_at_the_end_is_seen_as_a_line(memory):
    memory.create("t", "a")
    memory.slot("t").append("b\n")

    assert memory.slot("t").diff(0).unified.endswith("@@ -1 +1,3 @@\n a\n+b\n+")


def test_a_long_diff_is_cut_at_a_line(memory):
    slot = filled(memory, 3)

    diff = slot.diff(0, limit=40)

    assert (diff.truncated, diff.added) == (True, 3)
    assert len(diff.unified) <= 40


@pytest.mark.parametrize(
    ("args", "options", "argument"),
    [
        ((-1,), {}, "from_rev"),
        ((None,), {}, "from_rev"),
        ((0, None), {}, "to_rev"),
        ((0, "1"), {}, "to_rev"),
        ((0,), {"limit": 0}, "limit"),
    ],
)
def test_a_malformed_diff_is_refused(memory, refusal, args, options, argument):
    assert (
        refusal(memory, filled(memory, 1).diff, *args, **options).argument == argument
    )


def test_a_text_that_is_not_kept_names_the_oldest_one(memory, refusal):
    memory.configure(history_keep=2)
    slot = filled(memory, 5)

    pruned = refusal(memory, slot.diff, 0)
    ahead = refusal(memory, slot.diff, 3, 9)

    assert pruned.code == ahead.code == "rev-not-kept"
    assert pruned.details == {
        "label": "t",
        "rev": 0,
        "oldestRev": 3,
        "currentRev": 5,
        "reason": "pruned",
    }
    assert ahead.details["reason"] == "ahead"
    assert "the oldest kept rev is 3" in pruned.message
    assert "crdtmem get t" in pruned.hint


def test_without_a_past_the_oldest_text_is_the_present_one(memory, refusal):
    memory.create("t", "x")

    assert refusal(memory, memory.slot("t").diff, 4).details["oldestRev"] == 0


# -- blame


def test_a_line_belongs_to_who_wrote_its_first_character(memory, other):
    memory.create("t", "a\nb")
    other.slot("t").append("c\n\nd")

    lines = [(b.line, b.text, b.lane) for b in memory.slot("t").blame()]

    assert lines == [
        (1, "a", "a"),
        (2, "b", "a"),
        (3, "c", "b"),
        (4, "", "b"),
        (5, "d", "b"),
    ]


def test_authors_come_with_what_was_received(memory, open_lane):
    remote = open_lane("z", store="r")
    memory.create("t", "a")
    exchange_records([[memory], [remote]])
    remote.slot("t").append("far")
    exchange_records([[memory], [remote]])

    mine, theirs = memory.slot("t").blame()

    assert (mine.lane, theirs.lane) == ("a", "z")
    assert theirs.replica == remote.status().replica
    assert theirs.at == remote.slot("t").history().entries[0].at


def test_what_an_undo_puts_back_belongs_to_the_undoing_lane(memory, other):
    memory.create("t", "a\nb")
    entry = memory.slot("t").replace("a").history_id
    other.slot("t").undo(entry)

    assert [b.lane for b in memory.slot("t").blame()] == ["a", "b"]


def test_authors_survive_squashing(memory, other):
    memory.configure(history_keep=1)
    memory.create("t", "a")
    other.slot("t").append("b")
    memory.slot("t").append("c")
    memory.compact()

    assert [b.lane for b in memory.slot("t").blame()] == ["a", "b", "a"]


def test_damage_is_reported_and_not_guessed_at(memory, refusal):
    memory.create("t", "a")
    with memory.store.writing() as transaction:
        transaction.connection.execute("UPDATE log SET lane = 'x'")

    assert refusal(memory, memory.slot("t").blame).code == "slot-quarantined"


def test_what_is_undoable_is_a_kept_write_that_is_not_undone(memory):
    slot = filled(memory, 1)
    with memory.store.reading() as connection:
        row = connection.execute("SELECT place FROM history").get
    from crdtmem.store.history import entry_at  # noqa: PLC0415 - one test looks inside

    with memory.store.reading() as connection:
        entry = entry_at(connection, row)
    assert entry is not None

    assert is_undoable(entry, 0)
    assert not is_undoable(entry, entry.first_lsn)
    assert not is_undoable(entry._replace(operation="create"), 0)
    assert not is_undoable(entry._replace(is_imported=1), 0)
    assert not is_undoable(entry._replace(undone_by=0), 0)
    assert slot.history().entries[0].undoable
