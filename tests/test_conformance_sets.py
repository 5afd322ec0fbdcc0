"""The cases of memory sets, and what their runner adds to that of the slots."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.matchers import differences, resolve, resolve_expected
from tests.conformance.sets import SetStage, run_set_case

FILE = Path(__file__).parent / "conformance" / "memory_sets.json"
CASES = json.loads(FILE.read_text(encoding="utf-8"))


def case(*steps, handles=None):
    setup = {} if handles is None else {"handles": handles}
    return {"id": "c", "setup": setup, "steps": list(steps)}


def step(op, *, expect=None, on="m", keep=None, **args):
    more: dict[str, Any] = {
        name: args.pop(name) for name in ("during", "thread") if name in args
    }
    found = {"op": op, "on": on, "args": args, "expect": expect, **more}
    found["expect"] = {} if expect is None else expect
    return found if keep is None else found | {"as": keep}


# What a verb never returns.
OTHERS: tuple[Any, ...] = ([], False)

BOUND = (
    step("bind", partition_key="k", keep="b", expect={"encodedKey": "s.k"}),
    step(".memory_set", on="b", name="f", keep="s", expect={"name": "f"}),
)


@pytest.mark.parametrize("set_case", CASES, ids=[one["id"] for one in CASES])
def test_a_case_of_memory_sets_holds(set_case, tmp_path):
    assert run_set_case(set_case, tmp_path, durability="normal") == []


@pytest.mark.parametrize(
    ("expected", "actual"),
    [
        ({"$is": 1}, 1),
        ({"$is": {"a": [1, {"b": 2.0}]}}, {"a": [1, {"b": 2.0}]}),
        ({"$maxUnits": 2}, "\U0001f680"),
        ({"$texts": ["b", "a"]}, [{"item": {"text": "a"}}, {"item": {"text": "b"}}]),
        ({"$texts": []}, []),
        ({"$wellFormed": True}, "\U0001f680"),
        ({"$wellFormed": False}, "\ud83d"),
    ],
)
def test_a_matcher_is_met(expected, actual):
    assert differences(expected, actual) == []


@pytest.mark.parametrize(
    ("expected", "actual"),
    [
        ({"$is": 1}, 1.0),
        ({"$is": 1}, True),
        ({"$is": {"a": 1}}, {"a": 1, "b": 2}),
        ({"$is": {"a": 1}}, {"a": 1.0}),
        ({"$is": [1]}, [1, 2]),
        ({"$maxUnits": 1}, "\U0001f680"),
        ({"$maxUnits": 9}, 5),
        ({"$texts": ["a"]}, [{"item": {"text": "a"}}, {"item": {"text": "a"}}]),
        ({"$texts": ["a"]}, [{"label": "a"}]),
        ({"$texts": []}, 5),
        ({"$wellFormed": True}, "\udc00"),
        ({"$wellFormed": True}, 5),
    ],
)
def test_a_matcher_is_not_met(expected, actual):
    assert differences(expected, actual) != []


def test_keys_have_forms_of_their_own():
    value = {"$tuple": ["a", {"$bytes": "ff"}, {"$float": "-0.0"}, {"$tuple": []}]}
    uuid = {"$uuid": "00000000-0000-0000-0000-000000000005"}
    found = resolve([value, uuid, {"$repeat": [["x"], 2]}], {})

    assert repr(found[0]) == r"('a', b'\xff', -0.0, ())"
    assert found[1].int == 5
    assert found[2] == ["x", "x"]
    assert resolve_expected([value, uuid], {}) == [
        ["a", "ff", -0.0, []],
        "00000000-0000-0000-0000-000000000005",
    ]


def test_the_operators_of_filters_stand_for_themselves():
    filters = {"$or": [{"n": {"$gt": {"$float": "1.0"}}}, {"$not": {"$ref": "x"}}]}

    assert resolve(filters, {"x": {"a": 1}}, has_plain=True) == {
        "$or": [{"n": {"$gt": 1.0}}, {"$not": {"a": 1}}]
    }


def test_sets_bindings_and_plain_answers_take_their_steps(tmp_path):
    steps = [
        step("bind", partition_key="k", observation_id="o", keep="b"),
        step(".memory_set", on="b", name="f", keep="s"),
        step(".add", on="s", items=["p", "q", "r"], keep="x", thread=True),
        step("drain", partition_key="k", observation_id="o", expect={"$len": 3}),
        step(".drain", on="b", expect=[]),
        step("unbound", name="g", keep="u", expect={"name": "g"}),
        step(".get", on="u", expect={"error": {"code": "not-bound"}}),
        step("slot", label="persona", keep="t"),
        step(".append", on="t", text="a", expect={"content": "a"}),
        step("partitions", expect=[{"encodedKey": "s.k", "sets": 1}]),
    ]

    assert run_set_case(case(*steps), tmp_path, durability="normal") == []


def test_each_summariser_does_what_its_name_says(tmp_path):
    def compact(way, expect, **args):
        return step(".compact", on="s", summarise=way, expect=expect, **args)

    steps = [
        *BOUND,
        step(".add", on="s", items=["p", "q", "r"]),
        compact("foreign", {"error": {"code": "summary-invalid"}}),
        compact("twice", {"error": {"code": "summary-invalid"}}, limit=2),
        compact("raise", {"error": {"code": "summariser-failed"}}),
        compact("join", {"ran": False}, capacity=4),
        compact("pairs", {"added": {"$len": 2}}, limit=2, request_id="r1"),
        compact("pairs", {"replayed": True}, limit=2, request_id="r1"),
        step(".get", on="s", expect={"items": {"$any": {"text": "p & q"}}}),
        compact("join", {"removed": 2}),
        step(".get", on="s", expect={"items": [{"text": {"$contains": " | "}}]}),
    ]

    assert run_set_case(case(*steps), tmp_path, durability="normal") == []


def test_what_fails_within_a_summariser_is_told(tmp_path):
    within = step(".get", on="s", expect={"itemCount": 9})
    steps = [
        *BOUND,
        step(".add", on="s", items="p"),
        step(".compact", on="s", summarise="join", during=[within]),
    ]

    (complaint,) = run_set_case(case(*steps), tmp_path, durability="normal")
    assert complaint == "step 4, .get: result.itemCount: expected 9, got 1"


def test_a_refused_step_within_which_others_write_is_held_against_its_error(tmp_path):
    within = step(".add", on="s", items="late")
    expect = {"error": {"code": "summariser-failed"}}
    steps = [
        *BOUND,
        step(".add", on="s", items="p"),
        step(".compact", on="s", summarise="raise", during=[within], expect=expect),
        step(".get", on="s", expect={"itemCount": 2}),
    ]

    assert run_set_case(case(*steps), tmp_path, durability="normal") == []


def test_an_answer_that_is_no_object_is_compared_too(tmp_path):
    stage = SetStage(tmp_path, {"m": {"store": "s", "lane": "a", "project": "p"}})
    stage.open_all()
    found = [
        stage.run(step("doc_name", key="k", name="f", expect=value)) for value in OTHERS
    ]
    stage.close()

    assert all(len(lines) == 1 for lines in found)
