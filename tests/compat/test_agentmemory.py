"""crdtmem.compat.agentmemory: the functions"""

import json
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from crdtmem.compat.agentmemory import AgentMemorySlots
from crdtmem.compat.agentmemory.payload import SIZE_UNITS_MAX
from crdtmem.errors import CrdtmemError
from tests.compat.asking import observed, overwritten_by
from tests.conformance.slots import DEFAULT_HANDLES, Stage
from tests.scenarios import opened
from tests.scratch import scratch

CASES = json.loads(
    (Path(__file__).parent.parent / "conformance" / "slots.json").read_text("utf-8")
)

FUNCTIONS = {
    "create": "mem::slot-create",
    "delete": "mem::slot-delete",
    "slots": "mem::slot-list",
    "slot.append": "mem::slot-append",
    "slot.history": "mem::slot-history",
    "slot.read": "mem::slot-get",
    "slot.replace": "mem::slot-replace",
    "slot.restore": "mem::slot-undo",
    "slot.undo": "mem::slot-undo",
}
NAMES = {
    "append_only": "appendOnly",
    "base_rev": "baseRev",
    "dry_run": "dryRun",
    "expected_hash": "expectedHash",
    "expected_rev": "expectedRev",
    "read_only": "readOnly",
    "request_id": "requestId",
    "size_limit": "sizeLimit",
}
# What a verb of the library takes and no function does.
WITHOUT = {"at_rev", "before", "lines", "templates"}
LIBRARY_ONLY = {
    "create-size-limit-edges": "the largest limit is 20000 here, and 2.0 is 2",
    "create-no-coercion": "pinned may be 'false' here",
    "guard-bad-rev-values": "'1' and 1.0 are numbers here",
}


class CompatStage(Stage):
    """Does the steps that are functions of the compatible system through these."""

    def call_of(self, name, op, args):
        function = FUNCTIONS.get(op)
        is_large = type(args.get("size_limit")) is int and (
            args["size_limit"] > SIZE_UNITS_MAX
        )
        if function is None or WITHOUT & set(args) or is_large:
            return super().call_of(name, op, args)
        payload = {NAMES.get(key, key): value for key, value in args.items()}
        if op == "slot.restore":
            payload["restore"] = True
        slots = AgentMemorySlots(self.handles[name])
        return lambda: as_the_library(op, slots.call(function, payload))


def as_the_library(op, result):
    """Return a function's result as the verb's, or raise what the verb would."""
    if not result["success"]:
        raise CrdtmemError(
            result["error"],
            code=result["code"],
            hint=result.get("hint"),
            details=result["details"],
        )
    if op == "slots":
        return result["slots"]
    if op == "slot.read":
        return result["slot"]
    content = {"content": result["slot"]["content"]} if "slot" in result else {}
    return result | content


def outcome(case, directory):
    """Return what is wrong in the first step that does not hold."""
    handles = case["setup"].get("handles", DEFAULT_HANDLES)
    stage = CompatStage(directory, handles, "normal")
    try:
        stage.open_all()
        outcomes = (stage.run(step) for step in case["steps"])
        return next((found for found in outcomes if found), [])
    finally:
        stage.close()


@pytest.fixture
def refused(memory, call, unchanged):
    """Call a function that must refuse and change nothing; return its result."""

    def refused(name, **payload):
        with unchanged(memory):
            result = call(name, **payload)
        assert result["success"] is False
        return result

    return refused


def is_all_functions(case):
    ops = {step["op"] for step in case["steps"]}
    return ops <= {*FUNCTIONS, "reopen", "slot.set_meta"}


@pytest.mark.requirement("surfaces-32")
@pytest.mark.parametrize(
    "case",
    [c for c in CASES if is_all_functions(c) and c["id"] not in LIBRARY_ONLY],
    ids=lambda case: case["id"],
)
def test_a_case_of_the_slots_holds_through_the_functions(case, tmp_path):
    assert outcome(case, tmp_path) == []


def test_only_the_cases_of_the_library_are_left_out():
    assert LIBRARY_ONLY.keys() <= {case["id"] for case in CASES}


def test_a_read_gives_the_slot_its_scope_and_its_headroom(call):
    call("create", label="index", content="x" * 95, sizeLimit=100)
    result = call("get", label=" index ")

    assert {
        key: result[key]
        for key in ("success", "scope", "size", "sizeLimit", "free", "pctUsed", "rev")
    } == {
        "success": True,
        "scope": "project",
        "size": 95,
        "sizeLimit": 100,
        "free": 5,
        "pctUsed": 95,
        "rev": 0,
    }
    assert result["contentHash"] == result["slot"]["contentHash"]
    assert "compact it now" in result["warning"]
    slot = result["slot"]
    assert slot["content"] == "x" * 95
    assert (slot["pinned"], slot["readOnly"], slot["description"]) == (True, False, "")
    assert slot["createdAt"] == slot["updatedAt"]


def test_a_slot_that_fills_up_warns_before_it_is_full(call):
    call("create", label="index", content="x" * 69, sizeLimit=100)

    assert "compact before" in call("append", label="index", text="y")["warning"]
    assert "compact it now" in call("append", label="index", text="z" * 20)["warning"]


def test_a_list_has_every_slot_once_the_project_s_before_the_global_one(call):
    call("create", label="persona", content="mine")
    result = call("list")
    found = {slot["label"]: slot for slot in result["slots"]}

    assert len(result["slots"]) == len(found) == 8
    assert found["persona"]["content"] == "mine"
    assert found["guidance"]["sizeLimit"] == 1500
    assert call("list", scope="global")["slots"][0]["content"] == ""


def test_each_write_gives_the_slot_as_it_left_it(call):
    created = call("create", label="notes", content="a", description="what for")
    appended = call("append", label="notes", text="b")
    replaced = call("replace", label="notes", content="c", expectedRev=1)

    assert created["slot"]["description"] == "what for"
    assert (appended["size"], appended["rev"]) == (3, 1)
    assert appended["slot"]["content"] == "a\nb"
    assert (replaced["previousSize"], replaced["size"]) == (3, 1)
    assert replaced["slot"]["content"] == "c"
    assert replaced["slot"]["rev"] == replaced["rev"] == 2
    assert replaced["slot"]["description"] == "what for"
    assert "content" not in replaced


def test_a_warning_that_has_gone_is_not_in_the_slot(call):
    call("create", label="notes", content="x" * 80, sizeLimit=100)
    result = call("replace", label="notes", content="x")

    assert "warning" not in result
    assert "warning" not in result["slot"]


@pytest.mark.parametrize(
    ("name", "payload", "code", "phrase"),
    [
        ("get", {}, "invalid-label", "label required"),
        ("get", {"label": "Bad Label!"}, "invalid-label", "label required"),
        ("get", {"label": "a" * 65}, "invalid-label", "label required"),
        ("get", {"label": "nothing"}, "slot-not-found", "slot not found"),
        ("append", {"label": "no", "text": "x"}, "slot-not-found", "slot not found"),
        ("replace", {"label": "no", "content": ""}, "slot-not-found", "slot not found"),
        ("delete", {"label": "nothing"}, "slot-not-found", "slot not found"),
        ("create", {"label": "full"}, "slot-exists", "already exists"),
        ("create", {"label": "guidance"}, "slot-exists", "already exists"),
        ("create", {"label": "n", "scope": "wrong"}, "invalid-scope", "scope must be"),
        ("list", {"scope": "wrong"}, "invalid-scope", "scope must be"),
        ("append", {"label": "full"}, "invalid-text", "text required"),
        ("append", {"label": "full", "text": ""}, "invalid-text", "text required"),
        ("append", {"label": "full", "text": 7}, "invalid-text", "text required"),
        ("replace", {"label": "full"}, "invalid-text", "content required"),
        ("replace", {"label": "full", "content": 7}, "invalid-text", "content require"),
        ("create", {"label": "n", "content": 7}, "invalid-text", "content required"),
        ("create", {"label": "n", "pinned": 1}, "invalid-argument", "pinned"),
        ("create", {"label": "n", "description": 8}, "invalid-argument", "description"),
        ("history", {"label": "full", "id": "h1"}, None, None),
        ("history", {"label": "full", "restore": 1}, "invalid-argument", "restore"),
        (
            "undo",
            {"label": "full", "id": "h1"},
            "history-not-found",
            "no history entry",
        ),
        ("reflect", {}, "invalid-argument", "sessionId required"),
        ("reflect", {"sessionId": " "}, "invalid-argument", "sessionId required"),
        (
            "reflect",
            {"sessionId": "s", "maxObservations": 0},
            "invalid-argument",
            "maxObservations must be a positive integer",
        ),
        ("fly", {}, "invalid-argument", "unknown function 'mem::slot-fly'"),
    ],
)
def test_a_refusal_says_what_its_callers_look_for(call, name, payload, code, phrase):
    call("create", label="full", content="x" * 10, sizeLimit=10)
    result = call(name, **payload)

    assert result["success"] is (code is None)
    assert result.get("code") == code
    assert phrase is None or phrase in result["error"]


@pytest.mark.parametrize("limit", [0, -1, 20_001, 1.5, "100", True, float("nan"), []])
def test_a_limit_out_of_its_bounds_is_refused(refused, limit):
    result = refused("create", label="n", sizeLimit=limit)

    assert result["code"] == "invalid-size-limit"
    assert "sizeLimit must be an integer between 1 and 20000" in result["error"]
    assert str(limit) in result["error"]


def test_a_limit_may_come_as_one_of_javascript_s_numbers(call):
    assert call("create", label="a", sizeLimit=50.0)["sizeLimit"] == 50
    assert call("create", label="b", sizeLimit=20_000)["sizeLimit"] == 20_000
    assert call("create", label="c", sizeLimit=None)["sizeLimit"] == 2_000


def test_a_text_that_does_not_fit_is_refused_with_the_figures(call, refused):
    call("create", label="tight", content="12345", sizeLimit=10)
    append = refused("append", label="tight", text="67890")
    replace = refused("replace", label="tight", content="x" * 11)
    create = refused("create", label="n", content="xx", sizeLimit=1)

    assert "would exceed sizeLimit (11 > 10)" in append["error"]
    assert (append["currentSize"], append["sizeLimit"]) == (5, 10)
    assert append["current"]["free"] == 5
    assert "exceeds sizeLimit (11 > 10)" in replace["error"]
    assert "exceeds sizeLimit (2 > 1)" in create["error"]


def test_a_stale_guard_is_refused_with_what_is_there_now(call, refused):
    call("create", label="shared", content="base")
    call("append", label="shared", text="lane A line")
    by_rev = refused("replace", label="shared", content="mine", expectedRev=0)
    by_hash = refused("append", label="shared", text="x", expectedHash="de" * 8)

    assert "changed since you read it" in by_rev["error"]
    assert by_rev["code"] == by_hash["code"] == "conflict"
    assert by_rev["current"]["rev"] == 1
    assert "+lane A line" in by_rev["details"]["diff"]
    assert "--base-rev" in by_rev["hint"]


def test_a_guard_that_holds_lets_the_write_through(call):
    call("create", label="shared", content="base")
    read = call("get", label="shared")
    first = call(
        "replace", label="shared", content="b", expectedHash=read["contentHash"]
    )
    second = call("append", label="shared", text="c", expectedRev="1")
    third = call("replace", label="shared", content="d", expectedRev=2.0)

    assert [first["rev"], second["rev"], third["rev"]] == [1, 2, 3]


def test_a_base_rev_merges_what_others_wrote(call):
    call("create", label="shared", content="head")
    call("append", label="shared", text="theirs")
    result = call("replace", label="shared", content="new head", baseRev="0")

    assert result["merged"] is True
    assert result["slot"]["content"] == "new head\ntheirs"


def test_a_request_id_writes_once(call):
    call("create", label="n", requestId="r0")
    first = call("append", label="n", text="x", requestId="r1")
    again = call("append", label="n", text="x", requestId="r1")

    assert (first["rev"], again["rev"], again["replayed"]) == (1, 1, True)
    assert call("create", label="n", requestId="r0")["replayed"] is True


@pytest.mark.parametrize("rev", [None, "x", 1.5, True, "", "9" * 17, -1, [1]])
def test_a_guard_that_is_no_rev_is_an_error_and_never_dropped(call, refused, rev):
    call("create", label="n", content="v0")

    for name in ("expectedRev", "baseRev"):
        result = refused("replace", label="n", content="v1", **{name: rev})
        assert result["code"] == "invalid-precondition"


@pytest.mark.parametrize("digest", [None, "", 5, "abc", "a" * 12, "g" * 16])
def test_a_guard_that_is_no_hash_is_an_error_and_never_dropped(call, refused, digest):
    call("create", label="n", content="v0")
    result = refused("replace", label="n", content="v1", expectedHash=digest)

    assert result["code"] == "invalid-precondition"


@pytest.mark.parametrize(
    ("key", "meant"),
    [
        ("expected_rev", "expectedRev"),
        ("expectedRevison", "expectedRev"),
        ("expected-hash", "expectedHash"),
        ("base_rev", "baseRev"),
        ("requestID", "requestId"),
    ],
)
def test_a_guard_that_is_misspelt_is_an_error_and_never_dropped(
    call, refused, key, meant
):
    call("create", label="n", content="v0")
    result = refused("replace", label="n", content="v1", **{key: 0})

    assert result["code"] == "invalid-argument"
    assert f"did you mean '{meant}'" in result["error"]


def test_a_key_that_nobody_knows_is_passed_over(call):
    assert call("create", label="n", agentId="x", project="y", rev=3)["success"]


def test_a_stale_guard_is_told_before_the_size(call, refused):
    call("create", label="n", content="v0", sizeLimit=5)
    call("replace", label="n", content="v1")
    result = refused("replace", label="n", content="x" * 15, expectedRev=0)

    assert result["code"] == "conflict"


def test_pinned_may_come_as_a_word(call):
    assert call("create", label="a", pinned="false")["slot"]["pinned"] is False
    assert call("create", label="b", pinned="true")["slot"]["pinned"] is True
    assert call("create", label="c", pinned=None)["slot"]["pinned"] is True
    assert call("create", label="d", pinned="no")["code"] == "invalid-argument"


def test_half_a_surrogate_pair_is_refused(call, refused):
    call("create", label="n", content="v0")

    assert refused("append", label="n", text="\ud83d")["code"] == "invalid-text"
    assert refused("replace", label="n", content="\ud83d")["code"] == "invalid-text"
    assert refused("create", label="m", content="\ud83d")["code"] == "invalid-text"


def test_an_unguarded_replace_goes_through_and_says_what_it_covered(
    open_lane, call, memory
):
    call("create", label="n", content="v0")
    AgentMemorySlots(open_lane("b")).call(
        "mem::slot-append", {"label": "n", "text": "theirs"}
    )
    result = call("replace", label="n", content="mine")

    assert overwritten_by(result) == ["b"]
    kept = memory.slot("n").history_entry(result["historyId"])
    assert kept.content == "v0\ntheirs"


def test_a_read_only_slot_takes_nothing(call, refused, memory):
    call("create", label="n", content="v0", readOnly=True)

    for name in ("append", "replace", "delete"):
        result = refused(name, label="n", text="x", content="x")
        assert result["code"] == "slot-read-only"
        assert "read-only" in result["error"]


def test_a_delete_keeps_the_text_and_rev_goes_on(call):
    call("create", label="n", content="precious")
    deleted = call("delete", label="n", expectedRev=0)
    history = call("history", label="n")
    call("create", label="n", content="new")

    assert (deleted["success"], deleted["rev"], deleted["previousSize"]) == (True, 1, 8)
    assert [(e["operation"], e["preview"]) for e in history["entries"]] == [
        ("delete", "precious")
    ]
    assert call("get", label="n")["rev"] == 2


def test_the_history_lists_the_texts_before_each_write(call):
    call("create", label="n", content="original")
    call("append", label="n", text="appended")
    call("replace", label="n", content="clobbered")
    result = call("history", label="n")

    assert [
        (e["operation"], e["size"], e["rev"], e["preview"]) for e in result["entries"]
    ] == [
        ("replace", 17, 1, "original\nappended"),
        ("append", 8, 0, "original"),
    ]
    assert len({entry["id"] for entry in result["entries"]}) == 2
    assert (result["label"], result["scope"]) == ("n", "project")
    assert result["current"]["rev"] == 2
    assert len(call("history", label="n", limit="1")["entries"]) == 1


def test_the_call_that_restores_is_guarded(call, slots):
    call("create", label="n", content="original")
    call("append", label="n", text="appended")
    call("replace", label="n", content="clobbered")
    result = call("history", label="n", restore=True)
    how = dict(result["restoreWith"])
    function = how.pop("function_id")

    assert function == "mem::slot-replace"
    assert result["entry"]["content"] == how["content"] == "original\nappended"
    assert (how["expectedRev"], how["scope"]) == (2, "project")
    call("append", label="n", text="between")
    assert slots.call(function, how)["code"] == "conflict"
    again = call("history", label="n", restore="true", id=result["entry"]["id"])
    how = dict(again["restoreWith"])
    assert slots.call(how.pop("function_id"), how)["slot"]["content"] == (
        "original\nappended"
    )


def test_the_call_that_restores_a_deleted_slot_revives_it(call, slots):
    call("create", label="n", content="precious", sizeLimit=50)
    call("delete", label="n")
    how = dict(call("history", label="n", restore=True)["restoreWith"])
    result = slots.call(how.pop("function_id"), how)

    assert result["operation"] == "restore"
    assert result["slot"]["content"] == "precious"
    assert result["sizeLimit"] == 50


def test_a_restore_without_an_entry_is_refused(call, refused):
    call("create", label="n", content="x")

    for more in ({}, {"id": ""}, {"id": "h9-9"}, {"id": 5}):
        result = refused("history", label="n", restore=True, **more)
        assert result["code"] == "history-not-found"
        assert "no history entry" in result["error"]


def test_the_histories_of_two_scopes_do_not_mix(call):
    call("replace", label="persona", content="global secret")
    call("replace", label="persona", content="global two")
    call("create", label="persona", content="mine")

    assert call("history", label="persona")["entries"] == []
    kept = call("history", label="persona", scope="global")["entries"]
    assert [entry["preview"] for entry in kept] == ["global secret", ""]


def test_an_undo_takes_a_write_back_and_keeps_later_ones(call):
    call("create", label="n", content="a")
    entry = call("append", label="n", text="mine")["historyId"]
    call("append", label="n", text="later")
    would = call("undo", label="n", id=entry, dryRun=True)
    result = call("undo", label="n", id=entry, expectedRev=2)

    assert would["dryRun"] is True
    assert result["slot"]["content"] == would["slot"]["content"] == "a\nlater"
    assert result["undone"]["operation"] == "append"
    assert "-mine" in result["diff"]
    assert call("undo", label="n", id=entry)["code"] == "already-undone"


def test_the_pinned_context_has_the_pinned_texts_below_headings(slots, call):
    assert slots.render_pinned_context() == ""
    call("append", label="persona", text="senior engineer")
    call("append", label="self_notes", text="not pinned")
    long = "line\n" * 4_000
    call("create", label="long", content=long, sizeLimit=20_000)

    shown = slots.render_pinned_context()

    assert shown.startswith("# crdtmem pinned slots\n\n## long\nline\n")
    assert "## persona\nsenior engineer" in shown
    assert shown.count("line") == 4_000
    assert "not pinned" not in shown


def test_a_payload_that_is_no_object_is_refused(slots):
    assert slots.call("mem::slot-list", [])["code"] == "invalid-argument"
    assert slots.call(None, {})["code"] == "invalid-argument"


def test_the_state_of_the_store_raises_nothing(slots, memory):
    memory.close()

    assert slots.call("mem::slot-list", {})["code"] == "store-closed"


VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text()
    | st.sampled_from(["n", "persona", "project", "global", "\ud83d", "s", "true"]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(), inner),
    max_leaves=3,
)
KEYS = st.sampled_from(
    [
        *("label", "scope", "content", "text", "id", "sessionId", "limit", "restore"),
        *("pinned", "description", "maxObservations", "expected_rev"),
        *NAMES.values(),
    ]
)
IDS = st.sampled_from(sorted(set(FUNCTIONS.values()) | {"mem::slot-reflect"}))


@pytest.fixture(scope="module")
def used_slots():
    """Slots that all examples work on, one after the other."""
    source = observed({"title": "todo x", "files": ["f"]})
    with (
        scratch() as folder,
        opened(str(folder / "s.db"), durability="normal") as memory,
    ):
        yield AgentMemorySlots(memory, observations=source)


@given(function_id=IDS, payload=st.dictionaries(KEYS, VALUES))
def test_no_payload_makes_a_function_raise(used_slots, function_id, payload):
    result = used_slots.call(function_id, {"label": "persona"} | payload)
    json.dumps(result)

    assert isinstance(result["success"], bool)
