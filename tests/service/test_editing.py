"""The order of the checks of a write, its guards, and repeated calls."""

import threading
from collections import deque
from typing import Any

import pytest

from crdtmem.doc.delta import Splice
from crdtmem.errors import ConflictError
from crdtmem.limits import TEXT_BYTES
from crdtmem.models import UNSET
from crdtmem.store.write import Change

STALE = {"expected_rev": 9}


def sql(memory, statement):
    with memory.store.writing() as transaction:
        transaction.connection.execute(statement)


def damaged(memory, label):
    sql(memory, f"UPDATE slot SET quarantined = 'broken' WHERE label = '{label}'")


def test_a_bad_argument_beats_everything_that_the_store_knows(memory, refusal):
    absent = memory.slot("absent")
    memory.create("ro", "x", read_only=True, size_limit=1)
    locked = memory.slot("ro")

    for slot in (absent, locked):
        assert refusal(memory, slot.append, "", **STALE).code == "invalid-text"
        assert refusal(memory, slot.replace, None, **STALE).code == "invalid-text"
        assert refusal(memory, slot.edit, "", "x").code == "invalid-text"
        assert refusal(memory, slot.insert, 0, "").code == "invalid-text"
        assert refusal(memory, slot.restore, "h1-x").code == "invalid-precondition"
        assert refusal(memory, slot.undo, dry_run=1).code == "invalid-argument"
        assert refusal(memory, slot.set_meta).code == "invalid-argument"


def test_arguments_are_checked_in_their_order(memory, refusal):
    memory.create("t", "x")
    slot = memory.slot("t")
    bad_guard = {"expected_rev": -1}
    bad_id = {"request_id": ""}

    calls: list[tuple[Any, Any, Any, str]] = [
        (memory.create, ("BAD", 5), {"scope": "x"} | bad_id, "invalid-label"),
        (memory.create, ("u", 5), {"scope": "x"} | bad_id, "invalid-scope"),
        (memory.create, ("u", 5), {"size_limit": 0} | bad_id, "invalid-text"),
        (memory.create, ("u",), {"size_limit": 0} | bad_id, "invalid-size-limit"),
        (memory.create, ("u",), bad_id, "invalid-request-id"),
        (memory.delete, ("BAD", "x"), bad_guard | bad_id, "invalid-label"),
        (memory.delete, ("t", "x"), bad_guard | bad_id, "invalid-scope"),
        (memory.delete, ("t",), bad_guard | bad_id, "invalid-precondition"),
        (memory.delete, ("t",), bad_id, "invalid-request-id"),
        (slot.append, ("",), bad_guard | bad_id, "invalid-text"),
        (slot.append, ("x",), bad_guard | bad_id, "invalid-precondition"),
        (slot.append, ("x",), bad_id, "invalid-request-id"),
        (slot.replace, (5,), bad_guard | bad_id, "invalid-text"),
        (slot.replace, ("x",), bad_guard | bad_id, "invalid-precondition"),
        (slot.replace, ("x",), bad_id, "invalid-request-id"),
        (slot.edit, ("x", 5), {"occurrence": 0} | bad_guard, "invalid-text"),
        (slot.edit, ("x", "y"), {"occurrence": 0} | bad_guard, "invalid-argument"),
        (slot.edit, ("x", "y"), {"lines": (2, 1)} | bad_guard, "invalid-argument"),
        (slot.edit, ("x", "y"), bad_guard | bad_id, "invalid-precondition"),
        (slot.edit, ("x", "y"), bad_id, "invalid-request-id"),
        (slot.insert, (-1, ""), bad_guard, "invalid-text"),
        (slot.insert, (-1, "x"), bad_guard, "invalid-argument"),
        (slot.insert, (1, "x"), bad_guard | bad_id, "invalid-precondition"),
        (slot.insert, (1, "x"), bad_id, "invalid-precondition"),
        (slot.insert, (0, "x"), bad_id, "invalid-request-id"),
        (slot.restore, ("h1",), bad_id, "invalid-precondition"),
        (slot.restore, ("h1",), {"expected_rev": 0} | bad_id, "invalid-request-id"),
        (slot.undo, (), bad_guard | bad_id, "invalid-precondition"),
        (slot.undo, (), bad_id, "invalid-request-id"),
        (slot.set_meta, (), {"size_limit": 0} | bad_id, "invalid-size-limit"),
        (slot.set_meta, (), {"pinned": True} | bad_id, "invalid-request-id"),
    ]
    found = [refusal(memory, verb, *a, **o).code for verb, a, o, _ in calls]

    assert found == [code for *_, code in calls]


def test_arguments_are_checked_before_the_lock_and_guards_behind_it(
    memory, other, open_lane, refusal
):
    memory.create("t", "x")
    hasty = open_lane("c", busy_timeout=0)
    hasty.slot("t").read()

    with other.store.writing():
        bad = refusal(memory, hasty.slot("t").append, "")
        busy = refusal(memory, hasty.slot("t").append, "y", **STALE)

    assert (bad.code, busy.code) == ("invalid-text", "store-busy")
    assert busy.details.keys() == {"path", "pid", "command", "waited"}
    assert f"process {busy.details['pid']} (" in busy.message
    assert "crdtmem doctor" in busy.hint


def test_a_guard_is_judged_at_the_newest_state(memory, other):
    """The writer stands at the lock while another one commits."""
    memory.create("t", "x")
    slot, caught = memory.slot("t"), []
    lock = memory.store.lock

    def write():
        with pytest.raises(ConflictError) as error:
            slot.append("late", expected_rev=0)
        caught.append(error.value)

    thread = threading.Thread(target=write)
    with other.store.writing() as transaction:
        row = transaction.slot("p", "t")
        thread.start()
        deque(iter(lambda: lock._waiter is not None, True), maxlen=0)
        change = Change(operation="append", lane="b", delta=(Splice(2, 2, "y\n"),))
        transaction.write_slot(row, "p", "t", change)
    thread.join()

    (error,) = caught
    assert error.conflict["reason"] == "rev"
    assert slot.read().content == "x\ny"


@pytest.mark.parametrize("verb", ["append", "replace", "edit", "insert", "set_meta"])
def test_a_slot_that_never_was_is_not_found(memory, refusal, verb):
    args = {
        "append": ("x",),
        "replace": ("x",),
        "edit": ("x", "y"),
        "insert": (0, "x"),
        "set_meta": (),
    }[verb]
    options = {"pinned": True} if verb == "set_meta" else {}

    error = refusal(memory, getattr(memory.slot("absent"), verb), *args, **options)

    assert (error.code, error.details["label"]) == ("slot-not-found", "absent")
    assert "slot not found: 'absent'" in error.message
    assert "crdtmem list" in error.hint


def test_damage_beats_permission_and_stops_only_its_slot(memory, refusal):
    memory.create("t", "x", read_only=True)
    memory.create("u", "x")
    damaged(memory, "t")

    error = refusal(memory, memory.slot("t").append, "y", **STALE)
    view = memory.slot("t").read()

    assert (error.code, error.details) == (
        "slot-quarantined",
        {"label": "t", "reason": "broken"},
    )
    assert "crdtmem doctor --repair" in error.hint
    assert (view.content, view.quarantined) == ("x", True)
    assert memory.slot("u").append("y").content == "x\ny"
    assert refusal(memory, memory.slot("t").set_meta, pinned=True).code == error.code
    assert refusal(memory, memory.delete, "t").code == error.code
    assert refusal(memory, memory.create, "t").code == error.code


def test_permission_beats_the_same_text_and_read_only_beats_append_only(
    memory, refusal
):
    memory.create("ro", "x", read_only=True, append_only=True)
    memory.create("ao", "x", append_only=True)

    read_only = refusal(memory, memory.slot("ro").append, "y", **STALE)
    append_only = refusal(memory, memory.slot("ao").replace, "x", **STALE)

    assert (read_only.code, append_only.code) == ("slot-read-only", "slot-append-only")
    assert "slot is read-only: 'ro'" in read_only.message
    assert "slot is append-only: 'ao'" in append_only.message
    assert "crdtmem meta ro --writable" in read_only.hint
    assert "crdtmem meta ao --free" in append_only.hint
    assert memory.slot("ao").append("y").content == "x\ny"


def test_an_append_only_slot_refuses_all_but_appends(memory, refusal):
    memory.create("t", "x", append_only=True)
    slot = memory.slot("t")
    entry = slot.append("y").history_id

    calls = [
        (slot.replace, ("z",), {}),
        (slot.edit, ("x", "z"), {}),
        (slot.insert, (0, "z"), {}),
        (slot.restore, (entry,), {"expected_rev": 1}),
        (slot.undo, (), {}),
        (memory.delete, ("t",), {}),
    ]
    for verb, args, options in calls:
        assert refusal(memory, verb, *args, **options).code == "slot-append-only"
        slot.set_meta(read_only=True)
        assert refusal(memory, verb, *args, **options).code == "slot-read-only"
        assert refusal(memory, slot.append, "z").code == "slot-read-only"
        slot.set_meta(read_only=False)


def test_the_same_text_succeeds_also_with_a_stale_guard(memory, unchanged):
    memory.create("t", "x")
    slot = memory.slot("t")
    entry = slot.append("y").history_id
    slot.replace("x")

    with unchanged(memory):
        same = slot.replace("x", expected_rev=0)
        merged = slot.replace("x", base_rev=77)
        restored = slot.restore(entry, expected_hash="0" * 16)

    for result in (same, merged, restored):
        assert (result.changed, result.rev, result.history_id) == (False, 2, UNSET)


@pytest.mark.requirement("P3")
def test_a_stale_guard_beats_match_and_size(memory, refusal):
    memory.create("t", "x", size_limit=1)
    slot = memory.slot("t")

    calls = [
        (slot.append, ("long",)),
        (slot.replace, ("long",)),
        (slot.edit, ("absent", "y")),
        (slot.edit, ("x", "long")),
        (slot.insert, (0, "long")),
        (slot.insert, (99, "y")),
        (slot.undo, ("h9-none",)),
        (memory.delete, ("t",)),
    ]
    for verb, args in calls:
        assert refusal(memory, verb, *args, **STALE).code == "conflict"
        assert refusal(memory, verb, *args, expected_hash="0" * 16).code == "conflict"


def test_a_match_beats_size(memory, refusal):
    memory.create("t", "x", size_limit=1)

    error = refusal(memory, memory.slot("t").edit, "absent", "y" * 99)

    assert error.code == "text-not-found"


# -- guards and conflicts


def test_guards_that_hold_let_the_write_through(memory):
    memory.create("t", "x")
    slot = memory.slot("t")

    first = slot.append("1", expected_rev=0)
    second = slot.append("2", expected_hash=first.content_hash.upper())
    third = slot.append("3", expected_rev=2, expected_hash=second.content_hash)

    assert third.content == "x\n1\n2\n3"


def test_a_hash_of_64_digits_is_compared_whole(memory, refusal):
    memory.create("t", "")
    empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"

    wrong = refusal(
        memory, memory.slot("t").append, "x", expected_hash=empty[:63] + "0"
    )

    assert wrong.details["reason"] == "hash"
    assert memory.slot("t").append("x", expected_hash=empty).changed


@pytest.mark.requirement("P3")
def test_a_conflict_tells_what_happened_since(memory, other, refusal):
    memory.create("t", "a")
    digest = memory.slot("t").read().content_hash
    other.slot("t").append("b")
    other.slot("t").append("c")

    error = refusal(memory, memory.slot("t").replace, "mine", expected_rev=0)
    by_hash = refusal(memory, memory.slot("t").replace, "mine", expected_hash=digest)
    both = refusal(
        memory, memory.slot("t").replace, "z", expected_rev=0, expected_hash=digest
    )

    assert "slot changed since you read it: 't'" in error.message
    assert "crdtmem get t" in error.hint
    conflict = error.conflict
    assert error.to_dict()["error"]["details"] == conflict
    assert conflict["diff"] == "--- t@0\n+++ t@2\n@@ -1 +1,3 @@\n a\n+b\n+c"
    assert [(c["lane"], c["rev"]) for c in conflict["changedBy"]] == [
        ("b", 1),
        ("b", 2),
    ]
    assert (conflict["current"]["rev"], conflict["current"]["size"]) == (2, 5)
    assert (conflict["baseRev"], conflict["diffTruncated"]) == (0, False)
    assert conflict["expectedRev"] == 0
    assert [e.conflict["reason"] for e in (error, by_hash, both)] == [
        "rev",
        "hash",
        "both",
    ]
    assert by_hash.conflict["diff"] == conflict["diff"]
    assert by_hash.conflict["expectedHash"] == digest


def test_a_rev_that_never_was_is_ahead(memory, refusal):
    memory.create("t", "a")

    conflict = refusal(memory, memory.slot("t").append, "x", expected_rev=1).conflict

    assert (conflict["reason"], conflict["diff"]) == ("ahead", None)
    assert conflict["changedBy"] == []
    assert "baseRev" not in conflict


def test_a_conflict_on_a_template_has_no_past(memory, refusal):
    conflict = refusal(
        memory, memory.slot("persona").append, "x", expected_hash="0" * 16
    ).conflict

    assert (conflict["reason"], conflict["diff"]) == ("hash", None)


def test_a_conflict_names_at_most_twenty_commits_and_cuts_the_diff(memory, refusal):
    memory.configure(history_keep=50)
    memory.create("t", "a", size_limit=100_000)
    for n in range(25):
        memory.slot("t").append(f"{n}" * 600)

    conflict = refusal(memory, memory.slot("t").append, "x", expected_rev=0).conflict

    assert [c["rev"] for c in conflict["changedBy"]] == list(range(6, 26))
    assert conflict["diffTruncated"] is True
    assert len(conflict["diff"]) <= 8000


def test_a_base_that_is_not_kept_gives_no_diff(memory, refusal):
    memory.configure(history_keep=1)
    memory.create("t", "a")
    memory.slot("t").append("b")
    memory.slot("t").append("c")

    conflict = refusal(memory, memory.slot("t").append, "x", expected_rev=0).conflict

    assert (conflict["diff"], conflict["reason"]) == (None, "rev")


def test_delete_and_create_are_noticed_by_rev_and_not_by_hash(memory, refusal):
    memory.create("t")
    memory.delete("t")
    memory.create("t")

    error = refusal(memory, memory.slot("t").append, "x", expected_rev=0)

    assert error.conflict["current"]["rev"] == 2
    assert memory.slot("t").append("x", expected_hash="e3b0c44298fc1c14").changed


# -- limits


def over_limit(memory):
    memory.create("t", "x" * 20)
    memory.slot("t").set_meta(size_limit=10)
    return memory.slot("t")


def test_a_text_that_would_not_fit_is_refused_with_its_figures(memory, refusal):
    memory.create("t", "12345", size_limit=10)
    slot = memory.slot("t")

    appended = slot.append("6789")
    refused = refusal(memory, slot.append, "x")
    replaced = refusal(memory, slot.replace, "y" * 11)

    assert appended.size == 10
    assert refused.code == replaced.code == "size-limit-exceeded"
    assert "would exceed sizeLimit (12 > 10)" in refused.message
    assert "exceeds sizeLimit (11 > 10)" in replaced.message
    assert "crdtmem meta t --size-limit" in refused.hint
    assert refused.details == {
        "label": "t",
        "size": 12,
        "currentSize": 10,
        "sizeLimit": 10,
        "current": {k: v for k, v in appended.to_dict().items() if k in HEADROOM},
    }


HEADROOM = ("size", "sizeLimit", "free", "pctUsed", "rev", "contentHash", "warning")


def test_the_limit_holds_on_every_path(memory, refusal):
    memory.create("t", "x" * 20, size_limit=20)
    slot = memory.slot("t")
    entry = slot.edit("x" * 20, "y").history_id
    slot.set_meta(size_limit=10)

    calls: list[tuple[Any, Any, Any]] = [
        (slot.append, ("z" * 9,), {}),
        (slot.replace, ("z" * 11,), {}),
        (slot.edit, ("y", "z" * 11), {}),
        (slot.insert, (0, "z" * 9), {}),
        (slot.replace, ("z" * 11,), {"base_rev": 0}),
        (slot.restore, (entry,), {"expected_rev": 1}),
        (slot.undo, (), {}),
        (slot.undo, (), {"dry_run": True}),
        (memory.create, ("u", "z" * 11), {"size_limit": 10}),
    ]
    for verb, args, options in calls:
        error = refusal(memory, verb, *args, **options)
        assert (error.code, error.details["sizeLimit"]) == ("size-limit-exceeded", 10)


def test_a_slot_over_its_limit_can_only_shrink(memory, refusal):
    slot = over_limit(memory)

    refusal(memory, slot.replace, "y" * 20)
    refusal(memory, slot.append, "y")
    result = slot.replace("y" * 19)

    assert (result.size, result.free, result.pct_used) == (19, 0, 190)
    assert "over its sizeLimit by 9" in result.warning


def test_sizes_are_utf16_units(memory, refusal):
    memory.create("t", size_limit=3)

    assert refusal(memory, memory.slot("t").append, "😀😀").details["size"] == 4
    assert memory.slot("t").append("😀ü").size == 3


def test_the_longest_text_fits_no_slot_but_is_judged_by_its_size(memory, refusal):
    memory.create("t", size_limit=1_000_000)
    most = "x" * TEXT_BYTES

    assert refusal(memory, memory.slot("t").append, most).code == "size-limit-exceeded"
    assert refusal(memory, memory.slot("t").append, most + "x").code == "invalid-text"


# -- repeated calls


def calls_of(memory, label):
    """One call of each verb that takes a request id, ready to be repeated."""
    slot = memory.slot(label)
    slot.append("first")
    entry = slot.append("second").history_id
    rev = slot.read().rev
    return [
        lambda: slot.append("x", request_id="1"),
        lambda: slot.replace("one\ntwo", request_id="2"),
        lambda: slot.replace("one\n2", base_rev=rev, request_id="3"),
        lambda: slot.edit("one", "1", request_id="4"),
        lambda: slot.insert(0, "top", request_id="5"),
        lambda: slot.restore(entry, expected_rev=rev + 5, request_id="6"),
        lambda: slot.undo(request_id="7"),
        lambda: slot.set_meta(pinned=False, request_id="8"),
        lambda: memory.create("made", "c", request_id="9"),
        lambda: memory.delete(label, request_id="10"),
    ]


@pytest.mark.requirement("P7")
def test_a_repeated_call_returns_its_first_result_and_writes_nothing(memory, unchanged):
    memory.create("t", "one", scope="global", size_limit=70)
    calls = calls_of(memory, "t")
    for call in calls:
        first = call()
        with unchanged(memory):
            again = call()
        assert again.replayed is True
        assert again == first.replaced(replayed=True)


def test_a_repeated_call_survives_the_handle(memory, open_lane):
    first = memory.slot("persona").append("x", request_id="r")
    memory.close()

    again = open_lane("b").slot("persona").append("x", request_id="r")

    assert again == first.replaced(replayed=True)


def test_the_first_result_has_its_text_only_while_that_is_kept(memory):
    memory.configure(history_keep=2)
    memory.create("t")
    slot = memory.slot("t")
    first = slot.append("1", request_id="r")
    slot.append("2")

    kept = slot.append("1", request_id="r")
    for n in range(3):
        slot.append(str(n))
    pruned = slot.append("1", request_id="r")

    assert kept == first.replaced(replayed=True)
    assert pruned == first.replaced(replayed=True, content=None)


def test_the_first_result_is_of_the_slot_that_was_written(memory):
    memory.create("t", "global", scope="global")
    memory.slot("t").append("g")
    memory.create("t", "project")
    first = memory.slot("t").append("p", request_id="r")
    memory.delete("t")

    again = memory.slot("t").append("p", request_id="r")

    assert again == first.replaced(replayed=True)
    assert memory.slot("t").read().content == "global\ng"


def test_a_call_that_changed_nothing_is_repeated_as_such(memory):
    memory.create("t", "x")
    first = memory.slot("t").replace("x", request_id="r")
    memory.slot("t").append("y")

    again = memory.slot("t").replace("x", request_id="r")

    assert (first.changed, again) == (False, first.replaced(replayed=True))


@pytest.mark.requirement("P7")
def test_a_repeated_delete_does_not_reach_what_it_uncovered(memory, unchanged):
    memory.create("t", "global", scope="global")
    memory.create("t", "project")
    first = memory.delete("t", request_id="r")

    with unchanged(memory):
        again = memory.delete("t", request_id="r")

    assert (first.scope, first.uncovers) == ("project", "global")
    assert again == first.replaced(replayed=True)
    assert memory.slot("t").read().content == "global"


def test_a_request_id_names_one_call_of_one_verb(memory, open_lane, refusal):
    memory.create("t", "x", request_id="made")
    slot = memory.slot("t")
    slot.append("y", request_id="r")

    calls: list[tuple[Any, Any, Any]] = [
        (slot.append, ("z",), {}),
        (slot.append, ("y",), {"expected_rev": 1}),
        (slot.replace, ("y",), {}),
        (memory.slot("t", "project").append, ("y",), {}),
        (memory.slot("persona").append, ("y",), {}),
        (open_lane("a", project="q").slot("t").append, ("y",), {}),
        (slot.set_meta, (), {"pinned": False}),
        (slot.undo, (), {}),
        (memory.delete, ("t",), {}),
        (memory.create, ("u",), {}),
    ]
    for verb, args, options in calls:
        error = refusal(memory, verb, *args, **options, request_id="r")
        assert (error.code, error.details) == (
            "request-id-reused",
            {"requestId": "r", "verb": "append"},
        )
    assert "'r' was already used for another call (append)" in error.message


def test_only_successes_are_kept(memory, refusal):
    memory.create("t", "x", size_limit=5)

    refusal(memory, memory.slot("t").append, "too long", request_id="r")
    memory.slot("t").set_meta(size_limit=50)
    result = memory.slot("t").append("too long", request_id="r")

    assert (result.changed, result.replayed) == (True, UNSET)


def test_a_known_request_beats_what_became_of_the_slot(memory):
    memory.create("t", "x")
    first = memory.slot("t").append("y", request_id="r")
    memory.slot("t").set_meta(read_only=True)
    damaged(memory, "t")

    assert memory.slot("t").append("y", request_id="r").rev == first.rev


def test_a_dry_run_keeps_no_request(memory):
    memory.slot("persona").append("x")

    memory.slot("persona").undo(dry_run=True, request_id="r")

    assert memory.slot("persona").undo(request_id="r").replayed is UNSET
