"""crdtmem.mcp.arguments: closed schemas, other spellings, nothing guessed."""

import contextlib
import inspect
import json
from pathlib import Path

import pytest
from hypothesis import example, given, strategies as st

from crdtmem.errors import InvalidArgumentError
from crdtmem.mcp import arguments
from crdtmem.mcp.arguments import (
    AppendArguments,
    Arguments,
    EditArguments,
    GetArguments,
    ReplaceArguments,
    SearchArguments,
    StatusArguments,
    input_schema,
    parsed,
)
from crdtmem.mcp.tools import TOOLS, listed
from crdtmem.model import camel_case

SNAPSHOT = Path(__file__).with_name("tools.json")
MODELS = [
    model
    for _, model in inspect.getmembers(arguments, inspect.isclass)
    if issubclass(model, Arguments) and model is not Arguments
]


def refused(model, **given):
    with pytest.raises(InvalidArgumentError) as caught:
        parsed(model, given)
    return caught.value


def test_the_tools_that_clients_are_told_of_are_those_of_the_snapshot():
    """A change of a name, a schema or a hint is a change of the public contract."""
    told = {
        tool.name: tool.model_dump(by_alias=True, exclude_none=True)
        for tool in listed()
    }

    assert told == json.loads(SNAPSHOT.read_text(encoding="utf-8"))
    assert len(told) == 12


@pytest.mark.requirement("surfaces-13")
@pytest.mark.parametrize("model", MODELS)
def test_a_schema_is_closed_and_lists_canonical_names_only(model):
    schema = input_schema(model)

    assert schema["additionalProperties"] is False
    assert not [name for name in schema["properties"] if "_" in name]
    assert set(schema["properties"]) == {
        camel_case(field) for field in model.model_fields
    }


@pytest.mark.parametrize(
    ("model", "spelling", "field"),
    [
        *[
            (AppendArguments, name, "label")
            for name in ("slot", "name", "slot_name", "key")
        ],
        *[(AppendArguments, name, "text") for name in ("entry", "line", "content")],
        *[(ReplaceArguments, name, "content") for name in ("text", "body", "value")],
        (ReplaceArguments, "content_sha256", "expected_hash"),
        (ReplaceArguments, "idempotency_key", "request_id"),
        (ReplaceArguments, "idempotencyKey", "request_id"),
        *[(EditArguments, name, "old_text") for name in ("old_str", "old_string")],
        *[(EditArguments, name, "new_text") for name in ("new_str", "new_string")],
        (SearchArguments, "q", "query"),
        (GetArguments, "max_chars", "max_chars"),
    ],
)
def test_other_spellings_are_taken(model, spelling, field):
    needed = {"label": "plan", "text": "x", "content": "x", "query": "x"}
    value = 500 if field == "max_chars" else "word"
    rest = {
        name: needed[name]
        for name, info in model.model_fields.items()
        if info.is_required() and name != field
    }

    assert getattr(parsed(model, {**rest, spelling: value}), field) == value


@pytest.mark.requirement("surfaces-14")
@pytest.mark.parametrize("tool", TOOLS)
def test_every_argument_is_taken_in_snake_case_and_given_once_only(tool):
    model = TOOLS[tool].arguments
    for field, info in model.model_fields.items():
        if "_" in field and not info.is_required():
            twice = refused(model, **{field: "1", camel_case(field): "1"})
            assert "is given twice" in twice.message


@pytest.mark.requirement("surfaces-14")
def test_an_unknown_argument_is_refused_with_the_nearest_name():
    error = refused(ReplaceArguments, label="p", content="x", expected_revison=3)

    assert error.code == "invalid-argument"
    assert error.message == (
        "unknown argument 'expected_revison'; did you mean 'expectedRev'?"
        " nothing was written"
    )
    assert error.argument == "expected_revison"
    assert refused(StatusArguments, zzz=1).message == (
        "unknown argument 'zzz'; nothing was written"
    )


@pytest.mark.parametrize(
    ("given", "field", "value"),
    [
        ({"expectedRev": "7"}, "expected_rev", 7),
        ({"expectedRev": "-7"}, "expected_rev", -7),
        ({"condense": "true"}, "condense", True),
        ({"condense": "false"}, "condense", False),
        ({"condense": False}, "condense", False),
        ({"expectedRev": None, "scope": None}, "expected_rev", None),
    ],
)
def test_digits_and_words_pass_for_what_they_say_and_null_for_nothing(
    given, field, value
):
    found = parsed(ReplaceArguments, {"label": "p", "content": "", **given})

    assert getattr(found, field) == value


@pytest.mark.parametrize(
    ("given", "code", "sentence"),
    [
        ({"expectedRev": True}, "invalid-precondition", "an integer, not True"),
        ({"expectedRev": 1.5}, "invalid-precondition", "an integer, not 1.5"),
        ({"expectedRev": ""}, "invalid-precondition", "an integer, not ''"),
        ({"expectedRev": float("nan")}, "invalid-precondition", "integer, not nan"),
        ({"baseRev": [1]}, "invalid-precondition", "an integer, not list"),
        ({"condense": "yes"}, "invalid-argument", "true or false, not 'yes'"),
        ({"condense": 1}, "invalid-argument", "true or false, not 1"),
        ({"scope": "x"}, "invalid-scope", "scope must be 'project' or 'global'"),
        ({"expectedHash": 5}, "invalid-precondition", "a string, not int"),
        ({"requestId": 5}, "invalid-request-id", "a string, not int"),
        ({"content": 5}, "invalid-text", "content must be a string, not int"),
        ({"content": None}, "invalid-text", "content required"),
        ({"label": None}, "invalid-label", "label required"),
        ({"content": "\ud83d"}, "invalid-text", "half a surrogate pair"),
        ({"label": "\ud83d"}, "invalid-text", "half a surrogate pair"),
    ],
)
def test_what_does_not_fit_is_refused_with_its_own_code(given, code, sentence):
    error = refused(ReplaceArguments, **{"label": "p", "content": "x", **given})

    assert error.code == code
    assert sentence in error.message


def test_a_number_has_its_bounds():
    assert "at least 200, not 1" in refused(GetArguments, label="p", maxChars=1).message
    assert "at most 100, not 101" in refused(SearchArguments, q="x", limit=101).message
    properties = input_schema(GetArguments)["properties"]
    assert (properties["maxChars"]["minimum"], properties["maxChars"]["maximum"]) == (
        200,
        100_000,
    )


VALUES: st.SearchStrategy[object] = st.sampled_from(
    [None, True, 0, 7, -1, 1.5, float("nan"), "", "7", "x", "true", "\ud83d", [], {}]
)
NAMES = st.sampled_from(["label", "slot", "text", "line", "expectedRev", "x", "scope"])


@given(st.dictionaries(NAMES, VALUES, max_size=4))
@example({"label": "plan", "text": "x"})
def test_whatever_is_given_is_read_or_refused(given):
    with contextlib.suppress(InvalidArgumentError):
        found = parsed(AppendArguments, given)
        assert isinstance(found.label, str)
        assert isinstance(found.text, str)
