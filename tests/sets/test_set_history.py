import random

import pytest

from crdtmem.errors import RevNotKeptError
from crdtmem.limits import ITEM_HISTORY_ROWS
from crdtmem.store import set_history
from tests.conftest import PROFILE

ROWS_OF_A_COMMIT = {"default": 1, "campaign": ITEM_HISTORY_ROWS // 50}[PROFILE]


def shown(page):
    """Return what is recorded of a state: everything but when it is looked at."""
    return [item.to_dict() for item in page.items]


def act(handle, dice):
    """Make one random commit."""
    ids = [item.id for item in handle.get().items]
    verb = dice.choice(["add", "add", "update", "delete", "clear", "drop", "undo"])
    if verb == "add" or not ids:
        count = dice.randint(1, 3)
        handle.add([f"text {dice.random()}"] * count, {"n": dice.randint(0, 9)})
    elif verb == "update":
        handle.update(dice.choice(ids), f"new {dice.random()}")
    elif verb == "delete":
        handle.delete(dice.sample(ids, dice.randint(1, len(ids))))
    elif verb == "undo":
        handle.undo(dice.randint(1, handle.headroom().rev))
    elif dice.random() < 0.3:
        handle.delete() if verb == "clear" else handle.drop()


@pytest.mark.requirement("sets-H1")
def test_as_of_gives_the_recorded_state_of_each_kept_rev(facts, seeds):
    for seed in seeds:
        dice = random.Random(seed)
        recorded = {(now := facts.get()).rev: now}
        while len(recorded) < 15:
            act(facts, dice)
            now = facts.get()
            recorded[now.rev] = now
        for rev, then in recorded.items():
            page = facts.as_of(rev)
            assert shown(page) == shown(then), f"seed {seed}, rev {rev}"
            assert (page.rev, page.item_count, page.size, page.free) == (
                rev,
                then.item_count,
                then.size,
                then.free,
            )


@pytest.mark.requirement("sets-H1")
def test_of_so_many_rows_the_newest_are_kept_and_what_is_older_is_refused(
    facts, monkeypatch, refusal
):
    monkeypatch.setattr(set_history, "ITEM_HISTORY_ROWS", 50 * ROWS_OF_A_COMMIT)
    states = {}
    for n in range(30):
        facts.add([str(n)] * ROWS_OF_A_COMMIT)
        states[2 * n + 1] = shown(facts.get())
        states[facts.delete().rev] = []
    found = facts.history(limit=ITEM_HISTORY_ROWS)

    assert len(found.entries) == 50 * ROWS_OF_A_COMMIT
    assert (found.oldest_rev, found.more) == (11, False)
    for rev in (10, 11, 12, 35, 58, 59, 60):
        assert shown(facts.as_of(rev)) == states[rev]
    error = refusal(facts.as_of, 9)
    assert isinstance(error, RevNotKeptError)
    assert (error.code, error.details["oldestRev"]) == ("rev-not-kept", 10)
    assert str(error) == (
        "rev 9 of memory set 'facts' cannot be used: it is no longer kept;"
        " the oldest kept rev is 10"
    )
    assert refusal(facts.as_of, 61).details["reason"] == "ahead"
    assert refusal(facts.as_of, -1).code == "invalid-precondition"
    assert refusal(facts.undo, 10).code == "history-not-found"
    assert len(facts.undo(12).restored) == ROWS_OF_A_COMMIT


def test_each_change_shows_what_an_item_was_and_what_it_became(facts):
    ids = facts.add(["p", "q"], {"n": 1}).ids
    facts.update(ids[0], "p2")
    facts.delete(ids[0])
    facts.undo(3)

    found = facts.history(ids[0])
    assert [
        (
            one.rev,
            one.operation,
            getattr(one.old, "text", None),
            getattr(one.new, "text", None),
        )
        for one in found.entries
    ] == [
        (4, "undo", None, "p2"),
        (3, "delete", "p2", None),
        (2, "update", "p", "p2"),
        (1, "add", None, "p"),
    ]
    (first,) = facts.history(limit=1, before=3).entries
    assert first.to_dict() == {
        "rev": 2,
        "itemId": ids[0],
        "operation": "update",
        "lane": "a",
        "at": first.at,
        "old": {"text": "p", "metadata": {"n": 1}},
        "new": {"text": "p2", "metadata": {"n": 1}},
    }


def test_a_history_is_read_in_pages(facts):
    for text in "abcd":
        facts.add(text)
    facts.delete()

    page = facts.history(limit=3)
    assert [one.rev for one in page.entries] == [5, 5, 5]
    assert page.more
    page = facts.history(limit=3, before=5)
    assert [one.rev for one in page.entries] == [4, 3, 2]
    assert page.more
    page = facts.history(limit=3, before=2)
    assert ([one.rev for one in page.entries], page.more) == ([1], False)


def test_a_past_state_is_read_in_pages(facts):
    facts.add(["a", "b", "c"])
    facts.delete()

    page = facts.as_of(1, limit=2)
    assert [item.text for item in page.items] == ["c", "b"]
    page = facts.as_of(1, limit=2, cursor=page.cursor)
    assert [item.text for item in page.items] == ["a"]
    assert not page.more
    assert page.item_count == 3


def test_the_state_of_now_has_the_hash_and_one_of_the_past_has_none(facts):
    facts.add("x")
    assert facts.as_of(1).set_hash == facts.headroom().set_hash
    facts.add("y")
    assert facts.as_of(1).set_hash == ""


@pytest.mark.parametrize(
    ("options", "argument"),
    [({"limit": 0}, "limit"), ({"limit": 50_001}, "limit"), ({"before": 0}, "before")],
)
def test_a_history_has_its_bounds(facts, options, argument, refusal):
    error = refusal(facts.history, **options)

    assert (error.code, error.argument) == ("invalid-argument", argument)


def test_an_item_that_never_was_has_no_history(facts, refusal):
    facts.add("x")
    for wrong in (["x"], 7, "\ud83d"):
        assert refusal(facts.history, wrong).argument == "id"

    assert facts.history("never").entries == ()
    assert facts.history("").entries == ()
