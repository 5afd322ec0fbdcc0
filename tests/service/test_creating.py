"""Slots that come and go: create, delete, rename, and several at once."""

import pytest

from crdtmem.models import UNSET
from crdtmem.scope import TEMPLATES
from tests.replica import exchange_records, insert_at_the_end


def contents(memory):
    return {view.label: view.content for view in memory.slots(templates=False)}


# -- create


def test_a_slot_is_made_with_its_text_and_settings(memory):
    result = memory.create(
        "t",
        "text",
        scope="global",
        size_limit=9,
        description="d",
        pinned=False,
        read_only=True,
        append_only=True,
    )
    view = memory.slot("t").read()

    assert (result.operation, result.rev, result.content) == ("create", 0, "text")
    assert (result.previous_size, result.history_id) == (0, UNSET)
    assert (view.scope, view.size_limit, view.description) == ("global", 9, "d")
    assert (view.pinned, view.read_only, view.append_only) == (False, True, True)
    assert view.created_at == view.updated_at
    assert memory.slot("t").history().entries == ()


def test_a_slot_is_made_with_the_defaults(memory):
    memory.create(" t ")
    view = memory.slot("t").read()

    assert (view.scope, view.rev, view.content) == ("project", 0, "")
    assert (view.size_limit, view.description, view.pinned) == (2000, "", True)
    assert (view.read_only, view.append_only) == (False, False)
    assert memory.audit()[0].details == {"sizeLimit": 2000, "pinned": True}


def test_an_audit_row_says_how_a_slot_was_made(memory):
    memory.create("t", "x", size_limit=7, pinned=False)

    entry = memory.audit()[0]

    assert entry.details == {"sizeLimit": 7, "pinned": False}
    assert (entry.operation, entry.size_before, entry.size_after) == ("create", 0, 1)


@pytest.mark.parametrize(
    ("label", "scope"), [("t", "project"), ("persona", "global"), ("guidance", None)]
)
def test_a_label_is_taken_by_a_slot_or_a_template_of_its_scope(
    memory, refusal, label, scope
):
    memory.create("t", "x")

    error = refusal(memory, memory.create, label, "y" * 9999, scope=scope)

    assert error.code == "slot-exists"
    assert f"already exists in {error.details['scope']} scope" in error.message
    assert f"crdtmem get {label} --scope" in error.hint


def test_a_slot_that_hides_a_global_one_inherits_nothing(memory):
    memory.create("t", "global", scope="global", size_limit=9, pinned=False)
    memory.create("t", "project")
    memory.create("persona")

    assert memory.slot("t").read().size_limit == 2000
    assert memory.slot("persona").read().description == ""


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({"content": None}, "invalid-text"),
        ({"content": 5}, "invalid-text"),
        ({"content": "\ud800"}, "invalid-text"),
        ({"size_limit": 0}, "invalid-size-limit"),
        ({"size_limit": True}, "invalid-size-limit"),
        ({"size_limit": "9"}, "invalid-size-limit"),
        ({"description": None}, "invalid-argument"),
        ({"pinned": "false"}, "invalid-argument"),
        ({"pinned": None}, "invalid-argument"),
        ({"read_only": 1}, "invalid-argument"),
        ({"append_only": 0}, "invalid-argument"),
        ({"scope": "all"}, "invalid-scope"),
        ({"request_id": None}, "invalid-request-id"),
    ],
)
@pytest.mark.requirement("P7")
def test_nothing_is_coerced(memory, refusal, options, code):
    assert refusal(memory, memory.create, "t", **options).code == code


@pytest.mark.parametrize(
    "label", ["", "T", "1a", "a-b", "a b", "ü", "x" * 65, None, 5, "_a", "a\nb"]
)
def test_a_label_has_one_form(memory, refusal, label):
    for verb in (memory.create, memory.slot, memory.delete):
        error = refusal(memory, verb, label)
        assert error.code == "invalid-label"
        assert "label required" in error.message


def test_a_deleted_slot_is_made_anew_and_its_history_goes_on(memory, refusal):
    memory.create("t", "one", size_limit=50, description="d", read_only=False)
    memory.slot("t").append("two")
    memory.delete("t")

    result = memory.create("t", "three")
    view = memory.slot("t").read()

    assert (result.rev, result.previous_rev, result.content) == (3, 2, "three")
    assert (view.size_limit, view.description) == (2000, "")
    assert [e.operation for e in memory.slot("t").history().entries] == [
        "create",
        "delete",
        "append",
    ]
    assert result.history_id == memory.slot("t").history().entries[0].id
    error = refusal(memory, memory.slot("t").append, "x", expected_rev=1)
    assert error.conflict["current"]["rev"] == 3


def test_a_slot_is_made_anew_also_without_a_text(memory):
    memory.create("t")
    memory.delete("t")

    assert memory.create("t").rev == 2
    assert memory.slot("t").read().rev == 2


def test_a_slot_made_anew_fits_its_new_limit(memory, refusal):
    memory.create("t", "x" * 50)
    memory.delete("t")

    error = refusal(memory, memory.create, "t", "x" * 11, size_limit=10)

    assert (error.code, error.details["size"]) == ("size-limit-exceeded", 11)
    assert "exceeds sizeLimit (11 > 10)" in error.message
    assert memory.create("t", "x" * 10, size_limit=10).size == 10


def test_a_deleted_template_stays_deleted_until_it_is_made_anew(memory):
    memory.slot("session_patterns").append("x")
    memory.delete("session_patterns")

    labels = [view.label for view in memory.slots()]
    memory.create("session_patterns", "new")
    view = memory.slot("session_patterns").read()

    assert "session_patterns" not in labels
    assert (view.size_limit, view.pinned, view.content) == (1500, False, "new")
    assert view.description.startswith("Habits")


def test_an_unwritten_template_can_be_deleted_and_undone(memory):
    result = memory.delete("self_notes")

    assert (result.rev, result.previous_size, result.scope) == (1, 0, "project")
    assert "self_notes" not in [view.label for view in memory.slots()]
    memory.slot("self_notes").undo()
    assert memory.slot("self_notes").read().rev == 2


@pytest.mark.requirement("P6")
def test_equal_creates_on_two_replicas_give_one_copy(memory, open_lane):
    remote = open_lane("z", store="r")
    for handle in (memory, remote):
        handle.create("t", "same\nlines")
        handle.slot("guidance").append(handle.lane)

    exchange_records([[memory], [remote]])

    assert memory.slot("t").read().content == "same\nlines"
    assert contents(memory) == contents(remote)
    assert sorted(contents(memory)["guidance"].split("\n")) == ["a", "z"]


@pytest.mark.requirement("P6")
def test_different_creates_on_two_replicas_both_stay_whole(memory, open_lane):
    remote = open_lane("z", store="r")
    memory.create("t", "one\ntwo")
    remote.create("t", "three\nfour")

    exchange_records([[memory], [remote]])

    lines = memory.slot("t").read().content.split("\n")
    assert contents(memory) == contents(remote)
    assert lines in (
        ["one", "two", "three", "four"],
        ["three", "four", "one", "two"],
    )


def test_templates_are_no_text(memory, open_lane):
    remote = open_lane("z", store="r")

    exchange_records([[memory], [remote]])

    assert [(v.content, v.rev, v.template) for v in memory.slots()] == [
        ("", 0, True)
    ] * len(TEMPLATES)
    assert contents(memory) == {}


# -- delete


def test_a_delete_keeps_the_text_in_the_history(memory):
    memory.create("t", "text")

    result = memory.delete("t")

    assert result.to_dict() == {
        "label": "t",
        "scope": "project",
        "deleted": True,
        "previousSize": 4,
        "previousRev": 0,
        "rev": 1,
        "historyId": memory.slot("t").history().entries[0].id,
        "durable": False,
    }
    assert memory.slot("t").history_entry(result.history_id).content == "text"
    assert memory.audit(limit=1)[0].details == {}


def test_a_delete_resolves_like_a_read_and_names_what_it_uncovers(memory, refusal):
    memory.create("t", "global", scope="global")
    memory.create("t", "project")
    memory.create("persona", "mine")

    assert memory.delete("t").uncovers == "global"
    assert memory.delete("persona").uncovers == "global"
    assert memory.delete("t").to_dict().keys().isdisjoint({"uncovers"})
    error = refusal(memory, memory.delete, "t")
    assert (error.code, error.details) == (
        "slot-not-found",
        {"label": "t", "scope": None},
    )


def test_a_delete_of_one_scope_leaves_the_other(memory, refusal):
    memory.create("t", "global", scope="global")

    assert refusal(memory, memory.delete, "t", "project").code == "slot-not-found"
    assert memory.delete("t", "global").scope == "global"


def test_a_delete_can_be_guarded(memory, refusal):
    memory.create("t", "x")

    error = refusal(memory, memory.delete, "t", expected_rev=1)

    assert error.conflict["reason"] == "ahead"
    assert memory.delete("t", expected_rev=0).deleted


@pytest.mark.parametrize("setting", ["read_only", "append_only"])
def test_a_protected_slot_is_not_deleted(memory, refusal, setting):
    memory.create("t", "x", **{setting: True})

    code = refusal(memory, memory.delete, "t").code

    assert code == f"slot-{setting.replace('_', '-')}"


def test_text_that_comes_later_brings_a_slot_back_in_sight(memory, open_lane):
    remote = open_lane("z", store="r")
    memory.create("t", "x")
    exchange_records([[memory], [remote]])
    memory.delete("t")
    remote.slot("t").append("late")

    exchange_records([[memory], [remote]])
    revived = memory.slot("t").read()
    memory.slot("t").append("more")
    memory.slot("t").replace("")

    assert revived.content == "late"
    assert memory.changes().changes[0].operation == "replace"
    assert memory.slot("t").read().content == ""


def test_a_slot_is_deleted_only_while_its_text_is_empty(memory):
    memory.create("t", "x")
    memory.delete("t")
    insert_at_the_end(memory, "t", "back\n")

    assert memory.slot("t").read().content == "back"


# -- several at once


def test_slots_are_renamed_with_text_and_settings(memory):
    memory.create("t", "text", size_limit=9, description="d", pinned=False)
    memory.slot("t").append("x")

    result = memory.rename([("t", "u")])
    view = memory.slot("u").read()

    assert [(r.label, r.operation, r.content) for r in result] == [
        ("u", "create", "text\nx")
    ]
    assert (view.size_limit, view.description, view.pinned) == (9, "d", False)
    assert [e.operation for e in memory.slot("t").history().entries] == [
        "delete",
        "append",
    ]
    assert memory.slot("u").history().entries == ()


def test_labels_can_be_swapped_by_way_of_a_third(memory):
    memory.create("t", "one")
    memory.create("u", "two")

    memory.rename([("t", "v"), ("u", "t"), ("v", "u")])

    assert contents(memory) == {"t": "two", "u": "one"}


def test_global_slots_are_renamed_in_their_scope(memory):
    memory.create("t", "x", scope="global")

    memory.rename([("t", "u")], "global")

    assert memory.slot("u").scope == "global"


@pytest.mark.parametrize(
    ("pairs", "code"),
    [
        ([("t", "w"), ("absent", "x")], "slot-not-found"),
        ([("t", "w"), ("u", "t2")], "slot-exists"),
        ([("t", "w"), ("u", "guidance")], "slot-exists"),
        ([("t", "t")], "slot-exists"),
        ([("t", "w"), ("ro", "x")], "slot-read-only"),
        ([("t", "w"), ("u", "BAD")], "invalid-label"),
        ([("BAD", "w")], "invalid-label"),
    ],
)
def test_a_rename_is_all_or_nothing(memory, refusal, pairs, code):
    for label in ("t", "u", "t2"):
        memory.create(label, label)
    memory.create("ro", "x", read_only=True)

    assert refusal(memory, memory.rename, pairs).code == code


def test_a_rename_of_nothing_does_nothing(memory, unchanged):
    with unchanged(memory):
        assert memory.rename([]) == []
        assert memory.delete_many([]) == []


def test_slots_are_deleted_together(memory):
    memory.create("t", "1")
    memory.create("u", "2")

    results = memory.delete_many(["t", "u", "guidance"])

    assert [(r.label, r.rev) for r in results] == [("t", 1), ("u", 1), ("guidance", 1)]
    assert contents(memory) == {}


@pytest.mark.parametrize(
    ("labels", "scope", "code"),
    [
        (["t", "absent"], "project", "slot-not-found"),
        (["t", "t"], "project", "slot-not-found"),
        (["t", "ro"], "project", "slot-read-only"),
        (["t", "persona"], "project", "slot-not-found"),
        (["t"], "global", "slot-not-found"),
        (["t", "BAD"], "project", "invalid-label"),
        (["t"], "all", "invalid-scope"),
        ("t", "project", "invalid-argument"),
        (None, "project", "invalid-argument"),
    ],
)
def test_a_deletion_of_several_is_all_or_nothing(memory, refusal, labels, scope, code):
    memory.create("t", "1")
    memory.create("ro", "x", read_only=True)

    assert refusal(memory, memory.delete_many, labels, scope).code == code


def test_refusals_of_several_name_the_one(memory, refusal):
    memory.create("t", "1")

    error = refusal(memory, memory.delete_many, ["t", "absent"])

    assert error.details["label"] == "absent"
