"""crdtmem.config.files"""

import os

import pytest
from hypothesis import given, strategies as st

from crdtmem.config.files import (
    flatten_table,
    name_of,
    parse_settings,
    read_project_text,
    read_user_text,
)
from crdtmem.errors import ConfigError
from crdtmem.limits import CONFIG_FILE_BYTES, PROJECT_FILE_BYTES


def read(path):
    return read_project_text(str(path))


def test_a_file_that_is_not_there_has_no_text(tmp_path):
    assert read(tmp_path / "absent.toml") is None


def test_the_text_of_a_file_is_taken_as_it_is(tmp_path):
    path = tmp_path / "a.toml"
    path.write_bytes("\ufefflane = 'é'\r\n".encode())

    assert read(path) == "\ufefflane = 'é'\r\n"


def test_a_link_is_followed_only_where_it_may_be_one(tmp_path):
    (tmp_path / "a.toml").write_text("x = 1", encoding="utf-8")
    link = tmp_path / "link.toml"
    link.symlink_to("a.toml")

    assert read_user_text(str(link)) == "x = 1"
    with pytest.raises(ConfigError, match="is no regular file"):
        read(link)


def test_a_link_that_points_nowhere_is_refused_and_not_overlooked(tmp_path):
    link = tmp_path / "link.toml"
    link.symlink_to("absent.toml")

    with pytest.raises(ConfigError, match="is no regular file"):
        read(link)


def test_a_pipe_is_refused_without_waiting_for_a_writer(tmp_path):
    os.mkfifo(tmp_path / "pipe.toml")

    with pytest.raises(ConfigError, match="is no regular file"):
        read(tmp_path / "pipe.toml")


def test_a_folder_of_a_wrong_kind_is_told(tmp_path):
    (tmp_path / "file").write_text("", encoding="utf-8")

    with pytest.raises(ConfigError, match="cannot be read: Not a directory") as refusal:
        read(tmp_path / "file" / "a.toml")

    assert refusal.value.code == "config-invalid"
    assert refusal.value.details == {"file": str(tmp_path / "file" / "a.toml")}


@pytest.mark.parametrize(
    ("read", "limit_bytes"),
    [(read_user_text, CONFIG_FILE_BYTES), (read_project_text, PROJECT_FILE_BYTES)],
)
def test_a_file_is_read_up_to_its_bound(tmp_path, read, limit_bytes):
    path = tmp_path / "a.toml"
    path.write_text("#" * limit_bytes, encoding="utf-8")

    assert read(str(path)) == "#" * limit_bytes
    path.write_text("#" * (limit_bytes + 1), encoding="utf-8")
    with pytest.raises(ConfigError, match=f"is longer than {limit_bytes} bytes"):
        read(str(path))


def test_a_file_that_is_no_text_is_refused_with_the_place(tmp_path):
    path = tmp_path / "a.toml"
    path.write_bytes(b"a = '\xff'")

    with pytest.raises(ConfigError, match="is not UTF-8, at byte 5"):
        read(path)


@pytest.mark.parametrize(
    "text",
    ["a =", "a = 1\na = 2", "a = " + "[" * 20_000, "a = " + "9" * 5_000, "\0"],
)
@pytest.mark.requirement("P8")
def test_what_is_no_toml_is_refused(text):
    with pytest.raises(ConfigError, match=r"a\.toml is not TOML: ") as refusal:
        parse_settings("a.toml", text)

    assert refusal.value.code == "config-invalid"


def test_values_are_found_by_the_names_of_their_keys():
    text = """\
lane = "a"
context.budget = 100
other = {}
"context.labels" = 1
deep.a.b.c = 2
[project]
id = "x"
[context.x]
y = 1
[[many]]
"""

    assert parse_settings("a.toml", text).values == {
        "lane": "a",
        "context.budget": 100,
        "other": {},
        "'context.labels'": 1,
        "deep.a": {"b": {"c": 2}},
        "project.id": "x",
        "context.x": {"y": 1},
        "many": [{}],
    }


def test_the_line_of_a_key_is_told():
    file = parse_settings("a.toml", '# x\nlane = "a"\n\n[context]\nbudget = 1\n')

    assert file.line_of("lane") == 2
    assert file.line_of("context.budget") == 5
    assert file.line_of("context.labels") is None


def test_very_deep_tables_do_no_harm():
    file = parse_settings("a.toml", ".".join("a" * 4_000) + " = 1")

    assert list(file.values) == ["a.a"]
    assert file.line_of("a.a") == 1


@given(st.tuples(st.text(), st.text()), st.tuples(st.text(), st.text()))
def test_two_keys_have_one_name_only_if_they_are_one(one, other):
    assert (name_of(one) == name_of(other)) == (one == other)


def test_flattening_keeps_every_value():
    assert flatten_table({"a": 1, "b": {"c": 2, "d": {}}, "e": {}}) == {
        "a": 1,
        "b.c": 2,
        "b.d": {},
        "e": {},
    }
