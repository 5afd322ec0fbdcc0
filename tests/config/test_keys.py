"""crdtmem.config.keys"""

from dataclasses import fields
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from crdtmem.condense.settings import CondenseConfig
from crdtmem.config import Config
from crdtmem.config.keys import BY_NAME, KEYS, known_key, shown, unknown_key
from crdtmem.errors import ConfigError, InvalidArgumentError


def test_every_key_has_its_field():
    assert {key.field for key in KEYS} - {"project_name"} <= set(Config._fields)


def test_names_fields_and_variables_are_used_once():
    for attribute in ("name", "field", "variable"):
        used = [getattr(key, attribute) for key in KEYS]
        named = [name for name in used if name is not None]
        assert len(set(named)) == len(named)


def test_only_what_cannot_harm_may_stand_in_a_project_file():
    assert [key.name for key in KEYS if key.in_project] == [
        "project.id",
        "project.name",
        "scope",
        "context.budget",
        "context.labels",
        "mirror.dir",
    ]


def test_the_knobs_of_condense_are_those_of_its_class():
    knobs = {key.name: key.default for key in KEYS if key.name.startswith("condense.")}
    # What only the numbers of another condenser need is no setting.
    known = {f"condense.{field.name}" for field in fields(CondenseConfig)}

    assert set(knobs) == known - {"condense.budget_bytes"}
    assert knobs == {name: getattr(CondenseConfig(), name[9:]) for name in knobs}


@pytest.mark.parametrize("key", [k for k in KEYS if k.default is not None])
def test_a_default_is_a_value_that_may_be_set(key):
    assert key.parse(key.default, key.name) == key.default


@pytest.mark.parametrize(
    ("name", "raw", "value"),
    [
        ("store", "a/b.db", "a/b.db"),
        ("store", Path("a/b.db"), "a/b.db"),
        ("project.id", "shop", "shop"),
        ("project.name", " Shop ", "Shop"),
        ("scope", "global", "global"),
        ("context.budget", 64, 64),
        ("context.budget", 200_000, 200_000),
        ("context.labels", ["b", " a ", "b"], ("b", "a")),
        ("context.labels", ("a",), ("a",)),
        ("lane", " a ", "a"),
        ("busy_timeout", 0, 0.0),
        ("busy_timeout", 600.0, 600.0),
        ("history_keep", 1, 1),
        ("history_keep", 1000, 1000),
        ("durability", "normal", "normal"),
        ("condense.min_size", 1, 1),
        ("condense.not_smaller", 1, 1.0),
        ("color", "always", "always"),
        ("log_file", "x.log", "x.log"),
    ],
)
def test_a_value_of_the_right_type_and_range_is_accepted(name, raw, value):
    assert BY_NAME[name].parse(raw, name) == value


@pytest.mark.parametrize(
    ("name", "raw"),
    [
        ("store", ""),
        ("store", "a\0b"),
        ("store", 5),
        ("store", None),
        ("project.id", "a b"),
        ("project.id", "global"),
        ("project.name", ""),
        ("scope", "both"),
        ("scope", None),
        ("context.budget", 63),
        ("context.budget", 200_001),
        ("context.budget", True),
        ("context.budget", 100.0),
        ("context.budget", "100"),
        ("context.budget", 1 << 2_000),
        ("context.labels", []),
        ("context.labels", "a"),
        ("context.labels", ["A"]),
        ("lane", "a\nb"),
        ("busy_timeout", -1),
        ("busy_timeout", 600.1),
        ("busy_timeout", float("nan")),
        ("busy_timeout", float("inf")),
        ("busy_timeout", True),
        ("busy_timeout", "5"),
        ("busy_timeout", 1 << 2_000),
        ("history_keep", 0),
        ("history_keep", 1001),
        ("durability", "fast"),
        ("durability", True),
        ("condense.keep_pct", 101),
        ("condense.not_smaller", 0),
        ("condense.expires_in", 3_601),
        ("color", "yes"),
        ("log_file", {}),
    ],
)
@pytest.mark.requirement("P7")
def test_a_value_of_a_wrong_type_or_range_is_refused(name, raw):
    with pytest.raises(InvalidArgumentError, match=r"must|required") as refusal:
        BY_NAME[name].parse(raw, name)

    assert len(refusal.value.message) < 300


@pytest.mark.parametrize(
    ("name", "text", "raw"),
    [
        ("lane", "5", "5"),
        ("context.budget", "100", 100),
        ("context.budget", "-1", -1),
        ("busy_timeout", "0.5", 0.5),
        ("busy_timeout", "5", 5),
        ("condense.not_smaller", "0.5", 0.5),
        ("condense.min_size", "9", 9),
        ("context.labels", "a, b", ["a", "b"]),
    ],
)
def test_text_is_read_as_the_type_of_its_key(name, text, raw):
    assert BY_NAME[name].read(text) == raw


@pytest.mark.parametrize(
    "text", ["", " 5", "5 ", "1_000", "\u0665", "1e2", "0x10", "nan"]
)
@pytest.mark.parametrize("name", ["context.budget", "busy_timeout"])
def test_text_that_only_python_takes_for_a_number_is_refused(name, text):
    key = BY_NAME[name]

    with pytest.raises(InvalidArgumentError, match="must be"):
        key.parse(key.read(text), name)


@given(st.text())
def test_every_text_is_read_as_something(text):
    for key in KEYS:
        raw = key.read(text)
        assert isinstance(raw, str | int | float | list)


def test_an_unknown_key_is_told_with_the_nearest():
    with pytest.raises(ConfigError) as refusal:
        known_key("contxt.budget")

    assert refusal.value.code == "config-unknown-key"
    assert refusal.value.message == (
        "unknown key 'contxt.budget'; the nearest is 'context.budget'"
    )
    assert refusal.value.details["nearest"] == "context.budget"
    assert known_key("lane") is BY_NAME["lane"]


def test_an_unknown_key_like_none_is_told_alone():
    error = unknown_key("zzz", BY_NAME, where="config.toml, line 3", line=3)

    assert error.message == "unknown key 'zzz' in config.toml, line 3"
    assert error.details == {
        "key": "zzz",
        "where": "config.toml, line 3",
        "line": 3,
        "nearest": None,
    }


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("a\nb", r"'a\nb'"),
        ("x" * 81, f"'{'x' * 80}' …"),
        (5, "5"),
        (1.5, "1.5"),
        (True, "True"),
        (1 << 2_000, "a value of type int"),
        ([1], "a value of type list"),
        (None, "a value of type NoneType"),
    ],
)
def test_a_refused_value_is_shown_in_short(value, text):
    assert shown(value) == text
