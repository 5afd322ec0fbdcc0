"""crdtmem.config.sources"""

import os
from pathlib import Path

import pytest

from crdtmem.config.sources import (
    from_environment,
    from_options,
    from_project_file,
    from_user_file,
    project_folder,
    project_from_text,
)
from crdtmem.errors import ConfigError, InvalidArgumentError


@pytest.fixture
def file(tmp_path):
    """Write a settings file and return its path."""

    def write(text):
        path = tmp_path / "a.toml"
        path.write_text(text, encoding="utf-8")
        return str(path)

    return write


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("shop", "shop"),
        ("", ""),
        (".", Path()),
        ("a/b", Path("a/b")),
        ("~/shop", Path("~/shop")),
        ("a b", Path("a b")),
    ],
)
def test_a_project_that_is_no_id_is_a_path(text, meant):
    assert project_from_text(text) == meant


def test_a_file_that_is_not_there_sets_nothing(tmp_path):
    assert from_user_file(str(tmp_path / "absent"), {}) == {}
    assert from_project_file(str(tmp_path / "absent")) == {}


def test_an_empty_table_of_ours_sets_nothing(file):
    assert from_user_file(file("[project]\n[context]\n"), {}) == {}


@pytest.mark.parametrize(
    ("text", "name", "line"),
    [
        ("[context]\nbudgte = 100\n", "context.budgte", 2),
        ("\nlaen = 'a'\n", "laen", 2),
        ("[contxt]\n", "contxt", 1),
        ("[lane]\nx = 1\n", "lane.x", 2),
        ("mirror.path = 'notes'\n", "mirror.path", 1),
        ('"context.budget" = 100\n', "'context.budget'", 1),
    ],
)
def test_an_unknown_key_is_refused_with_its_line(file, text, name, line):
    path = file(text)

    for read in (from_project_file, lambda path: from_user_file(path, {})):
        with pytest.raises(ConfigError) as refusal:
            read(path)
        assert refusal.value.code == "config-unknown-key"
        assert refusal.value.details["key"] == name
        assert refusal.value.details["where"] == f"{path}, line {line}"
        assert f"in {path}, line {line}" in refusal.value.message


def test_a_bad_value_is_refused_with_file_line_and_value(file):
    path = file("lane = 'a'\n[context]\nbudget = 'many'\n")

    with pytest.raises(ConfigError) as refusal:
        from_user_file(path, {})

    assert refusal.value.message == (
        f"{path}, line 3: context.budget must be an integer between 64 and 200000, "
        "not 'many'"
    )
    assert refusal.value.to_dict()["error"] == {
        "code": "config-invalid",
        "message": refusal.value.message,
        "details": {
            "key": "context.budget",
            "where": f"{path}, line 3",
            "file": path,
            "line": 3,
            "value": "'many'",
        },
    }


def test_a_bad_value_is_refused_also_where_its_line_cannot_be_told(file):
    path = file("x = [" + "\n" * 300 + "]\n[lane]\n")

    with pytest.raises(ConfigError, match="unknown key 'x'") as refusal:
        from_user_file(path, {})

    assert refusal.value.details["where"] == path


@pytest.mark.parametrize(
    ("variable", "nearest"),
    [("CRDTMEM_STOER", "CRDTMEM_STORE"), ("CRDTMEM_BUSY_TIMEOUT", "CRDTMEM_TIMEOUT")],
)
def test_an_unknown_variable_of_ours_is_refused(variable, nearest):
    with pytest.raises(ConfigError) as refusal:
        from_environment({variable: "x"}, folder="/")

    assert refusal.value.code == "config-unknown-key"
    assert refusal.value.message == (
        f"unknown key '{variable}' in the environment; the nearest is '{nearest}'"
    )


def test_variables_of_others_and_of_condense_are_not_settings():
    environ = {"PATH": "/bin", "CRDTMEM_PASS_ID": "1", "CRDTMEM_SLOT": "plan"}

    assert from_environment(environ, folder="/") == {}


@pytest.mark.parametrize(
    ("variable", "text"),
    [
        ("CRDTMEM_TIMEOUT", "soon"),
        ("CRDTMEM_TIMEOUT", ""),
        ("CRDTMEM_LANE", "\udcff"),
        ("CRDTMEM_STORE", ""),
        ("CRDTMEM_PROJECT", ""),
        ("CRDTMEM_PROJECT", "global"),
    ],
)
def test_a_bad_variable_is_refused_by_its_name(variable, text):
    with pytest.raises(ConfigError, match=f"^{variable}: ") as refusal:
        from_environment({variable: text}, folder="/")

    assert refusal.value.code == "config-invalid"
    assert refusal.value.details["where"] == variable
    assert refusal.value.details["value"] == repr(text)


def test_an_unknown_option_is_refused():
    with pytest.raises(ConfigError, match="unknown key 'lnae' in the options"):
        from_options({"lnae": "a"}, {}, folder="/")


@pytest.mark.parametrize(
    ("field", "value", "code"),
    [
        ("lane", "", "invalid-lane"),
        ("lane", 5, "invalid-lane"),
        ("scope", "both", "invalid-scope"),
        ("project", "../x", "invalid-argument"),
        ("project", "", "invalid-argument"),
        ("durability", "fast", "invalid-argument"),
        ("busy_timeout", -1, "invalid-argument"),
        ("context_budget", "100", "invalid-argument"),
        ("store", "", "invalid-argument"),
    ],
)
@pytest.mark.requirement("P7")
def test_a_bad_option_is_a_bad_argument(field, value, code):
    with pytest.raises(InvalidArgumentError) as refusal:
        from_options({field: value}, {}, folder="/")

    assert refusal.value.code == code
    assert refusal.value.details == {"argument": field}


def test_the_project_is_resolved_from_the_folder_that_is_named(tmp_path):
    for name in ("here", "a", "b"):
        (tmp_path / name).mkdir()
    here, a, b = (str(tmp_path / name) for name in ("here", "a", "b"))
    by_variable = {"CRDTMEM_PROJECT": "../a"}

    assert project_folder({}, {}, folder=here) == here
    assert project_folder({}, by_variable, folder=here) == a
    assert project_folder({"project": None}, by_variable, folder=here) == a
    assert project_folder({"project": Path(b)}, by_variable, folder=here) == b
    assert project_folder({"project": "id"}, by_variable, folder=here) == here
    assert project_folder({}, {"CRDTMEM_PROJECT": "id"}, folder=here) == here
    assert from_environment(by_variable, folder=here) == {}
    assert from_options({"project": Path(b)}, {}, folder=here) == {}


def test_a_project_that_is_no_folder_is_refused(tmp_path):
    absent = tmp_path / "absent"
    (tmp_path / "file").write_text("", encoding="utf-8")

    for path in (absent, tmp_path / "file"):
        with pytest.raises(InvalidArgumentError, match="an id or a folder") as refusal:
            project_folder({"project": path}, {}, folder="/")
        assert refusal.value.details == {"argument": "project"}
    with pytest.raises(
        ConfigError, match=r"^CRDTMEM_PROJECT: project must be an id or a folder"
    ) as config_error:
        project_folder(
            {"project": "id"}, {"CRDTMEM_PROJECT": os.fspath(absent)}, folder="/"
        )
    assert config_error.value.code == "config-invalid"
