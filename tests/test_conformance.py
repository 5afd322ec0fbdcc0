"""The conformance files, and the runner: a wrong expectation must fail."""

import json
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.conformance.__main__ import main
from tests.conformance.matchers import (
    UnknownFormError,
    differences,
    resolve,
    resolve_expected,
)
from tests.conformance.slots import Stage, rows_of, run_case
from tests.conformance.wire import CHECKERS, check_vector

FILES = Path(__file__).parent / "conformance"
SLOTS = json.loads((FILES / "slots.json").read_text(encoding="utf-8"))
WIRE = json.loads((FILES / "wire.json").read_text(encoding="utf-8"))


def case(*steps, handles=None):
    setup = {} if handles is None else {"handles": handles}
    return {"id": "c", "setup": setup, "steps": list(steps)}


def step(op, *, expect=None, on="m", keep=None, **args):
    found = {"op": op, "on": on, "args": args, "expect": expect or {}}
    return found if keep is None else found | {"as": keep}


@pytest.mark.parametrize("slot_case", SLOTS, ids=[one["id"] for one in SLOTS])
def test_a_slot_case_holds(slot_case, tmp_path):
    assert run_case(slot_case, tmp_path, durability="normal") == []


@pytest.mark.requirement("sync-conformance", "sealed-1")
@pytest.mark.parametrize("group", sorted(CHECKERS))
def test_the_byte_vectors_hold(group):
    assert [check_vector(group, vector) for vector in WIRE[group] if vector] == [
        [] for _ in WIRE[group]
    ]


@pytest.mark.parametrize(
    ("group", "change"),
    [
        ("uint", {"hex": "01"}),
        ("uint_invalid", {"why": "not-this"}),
        ("uint_invalid", {"hex": "00"}),
        ("str", {"text": "other"}),
        ("str_invalid", {"hex": "0161"}),
        ("doc_tag", {"doc_tag": "00"}),
        ("client_id", {"client_id": 1}),
        ("envelope", {"kind": 9}),
        ("record", {"payload": "00"}),
        ("record_id", {"namespace": "x"}),
        ("record_invalid", {"why": "not-this"}),
        ("chain", {"chain": "00"}),
        ("namespace", {"name": "A"}),
        ("message", {"type": 2}),
        ("message", {"name": "bye", "fields": {"retry_ms": 0, "code": "x"}}),
        ("frame", {"hex": "070101"}),
        ("frame_invalid", {"why": "not-this"}),
        ("stream", {"end_seq": 9}),
        ("token", {"id": "other"}),
        ("token", {"token": ""}),
        ("key", {"namespace": "other"}),
        ("enc_doc_tag", {"name": "other"}),
        ("sealed_record", {"random": "00" * 32}),
        ("sealed_record", {"nk": "00" * 32}),
        ("padme", {"length": 257}),
    ],
)
def test_a_wrong_byte_vector_fails(group, change):
    assert check_vector(group, WIRE[group][0] | change) != []


@pytest.mark.parametrize(
    ("expected", "actual"),
    [
        (1, 1),
        ("a", "a"),
        (None, None),
        ({}, {"a": 1}),
        ({"a": {"b": 1}}, {"a": {"b": 1, "c": 2}, "d": 3}),
        ([1, {"a": 2}], [1, {"a": 2, "b": 3}]),
        ({"a": {"$absent": True}}, {"b": 1}),
        ({"a": {"$absent": False}}, {"a": None}),
        ({"$contains": "b"}, "abc"),
        ({"$contains": ["a", "c"]}, "abc"),
        ({"$notContains": ["x", "y"]}, "abc"),
        ({"$len": 2}, [1, 2]),
        ({"$len": 2}, "ab"),
        ({"$ne": 1}, 2),
        ({"$ne": 1}, True),
        ({"$gte": 1, "$lte": 3}, 3),
        ({"$oneOf": [1, {"a": 1}]}, {"a": 1, "b": 2}),
        ({"$any": {"a": 1}}, [{"a": 2}, {"a": 1}]),
        ({"$notAny": {"a": 1}}, [{"a": 2}]),
        ({"$sorted": True}, ["a", "b"]),
        ({"$sorted": "n"}, [{"n": 1}, {"n": 1}, {"n": 2}]),
        ({"$unique": "n"}, [{"n": 1}, {"n": 2}]),
        ({"$unique": True}, [[1], [2]]),
    ],
)
def test_a_right_expectation_is_met(expected, actual):
    assert differences(expected, actual) == []


@pytest.mark.parametrize(
    ("expected", "actual"),
    [
        (1, 2),
        (1, True),
        (2000, 2000.0),
        (None, False),
        ("a", ["a"]),
        ({}, "text"),
        ({}, [1]),
        ({"a": 1}, {"b": 1}),
        ({"a": None}, {}),
        ({"a": {"b": 1}}, {"a": {"b": 2}}),
        ([], [1]),
        ([1], []),
        ([1, 2], [1, 3]),
        ([1], {"0": 1}),
        ({"a": {"$absent": True}}, {"a": None}),
        ({"a": {"$absent": False}}, {}),
        ({"$contains": "x"}, "abc"),
        ({"$contains": ["a", "x"]}, "abc"),
        ({"$contains": "a"}, ["a"]),
        ({"a": {"$notContains": "x"}}, {}),
        ({"$notContains": ["x", "a"]}, "abc"),
        ({"$len": 1}, [1, 2]),
        ({"$len": 1}, 1),
        ({"$ne": 1}, 1),
        ({"a": {"$ne": 1}}, {}),
        ({"$gte": 3}, 2),
        ({"$gte": 0}, True),
        ({"$lte": 3}, 4),
        ({"$lte": 3}, "1"),
        ({"$oneOf": [1, 2]}, 3),
        ({"$any": {"a": 1}}, [{"a": 2}]),
        ({"$any": 1}, {"0": 1}),
        ({"$notAny": {"a": 1}}, [{"a": 2}, {"a": 1}]),
        ({"$notAny": 1}, 2),
        ({"$sorted": True}, ["b", "a"]),
        ({"$sorted": True}, "ab"),
        ({"$sorted": "n"}, [{"n": 2}, {"n": 1}]),
        ({"$unique": "n"}, [{"n": 1}, {"n": 1}]),
        ({"$unique": "n"}, [1, 2]),
        ({"$unique": True}, "ab"),
        ({"$len": 1, "$unique": True}, [1, 2]),
    ],
)
def test_a_wrong_expectation_is_not_met(expected, actual):
    assert differences(expected, actual) != []


def test_a_difference_names_its_place_and_both_values():
    assert differences({"a": [{"b": 1}]}, {"a": [{"b": "é" * 400}]}) == [
        "result.a.0.b: expected 1, got '" + ascii("é" * 400)[1:300] + "…"
    ]


def test_the_value_forms_become_python_values():
    saved = {"x": {"list": [{"n": 7}]}, "c": "cursor"}
    value = {
        "a": [{"$repeat": ["ab", 2]}, {"$ref": "x.list.0.n"}, {"$ref": "c"}],
        "b": {"$concat": ["x", {"$repeat": ["y", 2]}, {"$surrogate": "d83d"}]},
    }

    assert resolve(value, saved) == {"a": ["abab", 7, "cursor"], "b": "xyy\ud83d"}


def test_an_expectation_keeps_its_matchers_around_its_values():
    expected = {"a": [{"$ref": "c"}], "b": {"$len": 1, "$any": {"$ref": "c"}}}

    assert resolve_expected(expected, {"c": 5}) == {
        "a": [5],
        "b": {"$len": 1, "$any": 5},
    }


@pytest.mark.parametrize(
    "value",
    [
        {"$novel": 1},
        {"$repeat": ["a", 1], "more": 1},
        {"$ref": "nothing"},
        {"$ref": "x.list.9"},
        {"$ref": "x.list.n"},
        {"$ref": "c.deeper"},
    ],
)
def test_an_unknown_value_is_an_error(value):
    with pytest.raises(UnknownFormError):
        resolve(value, {"x": {"list": []}, "c": 5})


def test_an_unknown_matcher_is_an_error():
    with pytest.raises(UnknownFormError, match=r"\$novel"):
        differences({"$novel": 1}, 1)


@pytest.mark.parametrize(
    ("steps", "complaint"),
    [
        ([step("fly")], "unknown operation 'fly'"),
        ([step("slot.fly", label="persona")], "unknown operation 'fly'"),
        ([step("_open")], "unknown operation '_open'"),
        ([step("cursor", on="nobody")], "nothing is called 'nobody'"),
        ([{"op": "cursor"}], "KeyError"),
        ([step("create", label="t", novel=1)], "TypeError"),
        ([step("create", label="Bad")], "step 1, create: raised {'error'"),
        ([step("create", label="t", expect={"rev": 1})], "result.rev: expected 1"),
        (
            [step("create", label="t", expect={"error": {"code": "x"}})],
            "expected an error, got",
        ),
        (
            [step("create", label="Bad", expect={"error": {"code": "x"}})],
            "refusal.error.code: expected 'x', got 'invalid-label'",
        ),
        (
            [step("open", lane="a"), step("open", lane="", expect={"rev": 1})],
            "step 2, open: raised",
        ),
    ],
)
def test_a_case_that_does_not_hold_says_where(steps, complaint, tmp_path):
    assert complaint in run_case(case(*steps), tmp_path)[0]


def test_a_store_that_cannot_be_opened_fails_its_case(tmp_path):
    broken = case(handles={"m": {"store": "s", "lane": "", "project": "p"}})

    assert run_case(broken, tmp_path)[0].startswith("raised InvalidArgumentError")


def test_a_kept_slot_takes_the_verbs_of_later_steps(tmp_path):
    steps = [
        step("create", label="t", content="x"),
        step("slot", label="t", keep="s"),
        step(".append", on="s", text="y", expect={"content": "x\ny"}),
        step(".append", on="s", text="", expect={"error": {"code": "invalid-text"}}),
    ]

    assert run_case(case(*steps), tmp_path) == []


def test_a_refusal_that_changes_a_row_is_found(tmp_path):
    stage = Stage(tmp_path, {"m": {"store": "s", "lane": "a", "project": "p"}})
    stage.open_all()
    with stage.unchanged("m", "create") as changes:
        stage.handles["m"].create("t")
    stage.close()

    assert any("the refusal changed slot" in line for line in changes)


def test_a_refusal_that_makes_a_file_is_found(tmp_path):
    stage = Stage(tmp_path, {})
    with stage.unchanged("m", "open") as changes:
        stage.open_only("m", {})

    assert changes == ["the refusal made ['opened']"]


def test_the_clock_of_a_case_stands_on_a_date_and_ticks(tmp_path):
    clock = Stage(tmp_path, {}).clock

    assert [clock() for _ in range(2)] == [
        datetime(2026, 1, 1, tzinfo=UTC),
        datetime(2026, 1, 1, microsecond=1000, tzinfo=UTC),
    ]


def test_an_absent_store_has_no_rows(tmp_path):
    assert rows_of(tmp_path / "none.db") == {}


def test_the_runner_goes_on_after_whatever_fails(tmp_path, capsys):
    good = step("create", label="t", expect={"rev": 0})
    cases = [case(good) | {"id": "good"}, {"steps": []}, 5, case(step("fly"))]
    (tmp_path / "cases.json").write_text(json.dumps(cases), encoding="utf-8")
    vectors = {"format": 1, "uint": [{"value": 0, "hex": "00"}, {}], "novel": [{}]}
    (tmp_path / "vectors.json").write_text(json.dumps(vectors), encoding="utf-8")
    (tmp_path / "text.json").write_text("5", encoding="utf-8")
    (tmp_path / "broken.json").write_text("{", encoding="utf-8")
    names = ["cases", "vectors", "text", "broken", "absent"]

    status = main([str(tmp_path / f"{name}.json") for name in names])
    *_, last = lines = capsys.readouterr().out.splitlines()

    assert (status, last) == (1, "2 passed, 7 failed")
    assert [line.split(": ")[0] for line in lines[:-1]] == [
        "FAILED case 2",
        "FAILED case 3",
        "FAILED c",
        "FAILED uint 2",
        "left out, not checked yet",
        f"FAILED {tmp_path / 'text.json'}",
        f"FAILED {tmp_path / 'broken.json'}",
        f"FAILED {tmp_path / 'absent.json'}",
    ]


def test_a_file_whose_cases_all_hold_ends_with_status_0(tmp_path):
    vectors = {"uint": [{"value": 0, "hex": "00"}]}
    (tmp_path / "v.json").write_text(json.dumps(vectors), encoding="utf-8")
    command = [sys.executable, "-m", "tests.conformance", str(tmp_path / "v.json")]
    done = subprocess.run(command, cwd=FILES.parent.parent, stdout=subprocess.PIPE)

    assert (done.returncode, done.stdout) == (0, b"1 passed, 0 failed\n")
