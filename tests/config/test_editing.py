"""crdtmem.config.editing"""

import os
import stat
import tomllib
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from crdtmem.config import load_config
from crdtmem.config.editing import (
    _replace_file,
    replace_project_id,
    set_user_value,
    unset_user_value,
    write_project_file,
)
from crdtmem.config.keys import KEYS
from crdtmem.errors import ConfigError, CrdtmemError, InvalidArgumentError

ID = "0123456789abcdefABCDEF"
OTHER_ID = "zzzzzzzzzzzzzzzzzzzzzz"

# Every way to write a settings file that the edits have to leave alone.
WRITTEN = """\
# My settings.

lane   =   "me # 1"   # as "always"
context.budget = 100
labels."quo=ted" = [ # none of ours
  "a", # b
]
"color"='never'
"""


@pytest.fixture
def user_file(tmp_path):
    """Make a user's settings file."""

    def make(text):
        path = tmp_path / "config.toml"
        path.write_bytes(text.encode())
        return path

    return make


@pytest.fixture
def unchanged(tmp_path):
    """Assert at the end that no file was made, removed or changed."""

    def state():
        return {path: path.read_bytes() for path in tmp_path.iterdir()}

    noted = []
    yield lambda: noted.append(state())
    assert noted == [state()]


def changed_lines(before, after):
    """Return what was taken out and what was put in, line by line."""
    old, new = before.split("\n"), after.split("\n")
    return [x for x in old if x not in new], [x for x in new if x not in old]


def test_the_first_value_makes_the_file_and_its_folder(tmp_path):
    path = tmp_path / "a" / "b" / "config.toml"

    set_user_value(path, "lane", "me")

    assert path.read_text(encoding="utf-8") == 'lane = "me"\n'
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) & 0o077 == 0
    assert os.listdir(path.parent) == ["config.toml"]


@pytest.mark.parametrize(
    ("key", "text", "old", "new"),
    [
        ("lane", "you", 'lane   =   "me # 1"   # as "always"',
         'lane   =   "you"   # as "always"'),
        ("context.budget", "200", "context.budget = 100", "context.budget = 200"),
        ("color", "auto", "\"color\"='never'", '"color"="auto"'),
    ],
)  # fmt: skip
def test_only_the_value_of_the_key_changes(user_file, key, text, old, new):
    path = user_file(WRITTEN)

    set_user_value(path, key, text)

    after = path.read_text(encoding="utf-8")
    assert changed_lines(WRITTEN, after) == ([old], [new])


@pytest.mark.parametrize(
    ("before", "key", "text", "after"),
    [
        ("", "context.budget", "200", "[context]\nbudget = 200\n"),
        ("# note", "lane", "a", 'lane = "a"\n# note\n'),
        ("a = 1\n\n[t]\nb = 2\n", "lane", "a", 'a = 1\nlane = "a"\n\n[t]\nb = 2\n'),
        (
            "[context]\nbudget = 100 # x\n\n[t]\n",
            "context.labels",
            "a,b",
            '[context]\nbudget = 100 # x\nlabels = ["a", "b"]\n\n[t]\n',
        ),
        ("[context]\n", "context.budget", "200", "[context]\nbudget = 200\n"),
        (
            "context.budget = 100\n[t]\n",
            "context.labels",
            "a",
            'context.budget = 100\ncontext.labels = ["a"]\n[t]\n',
        ),
        (
            "[t]\r\nx = 1\r\n",
            "context.budget",
            "200",
            "[t]\r\nx = 1\r\n\r\n[context]\r\nbudget = 200\r\n",
        ),
        (
            'context.labels = [\n  "a", # 1\n  "b",\n] # end\n',
            "context.labels",
            "c",
            'context.labels = ["c"] # end\n',
        ),
        ("\ufefflane = 'a'\r\n", "lane", "b", '\ufefflane = "b"\r\n'),
        ("\ufeff", "lane", "b", '\ufefflane = "b"\n'),
    ],
)
def test_a_value_is_put_where_it_belongs(user_file, before, key, text, after):
    path = user_file(before)

    set_user_value(path, key, text)

    assert path.read_bytes().decode() == after


@given(
    st.sampled_from(["lane", "project.name", "log_file"]),
    st.text(st.characters(exclude_categories=["Cs"])),
)
def test_what_was_set_is_what_is_read(tmp_path_factory, key, text):
    folder = tmp_path_factory.mktemp("settings")
    path = folder / "config.toml"
    path.write_text(WRITTEN, encoding="utf-8")
    row = next(row for row in KEYS if row.name == key)
    try:
        wanted = row.parse(text, key)
    except InvalidArgumentError:
        wanted = None

    try:
        set_user_value(path, key, text)
    except InvalidArgumentError:
        assert wanted is None
        assert path.read_text(encoding="utf-8") == WRITTEN
        return
    table = tomllib.loads(path.read_text(encoding="utf-8"))
    outer, _, inner = key.partition(".")
    raw = table[outer][inner] if inner else table[outer]
    assert raw in (text, os.path.abspath(text))
    assert table["labels"] == {"quo=ted": ["a"]}


def test_a_relative_path_is_set_as_what_it_means_now(user_file, tmp_path, monkeypatch):
    path = user_file("")
    monkeypatch.chdir(tmp_path)

    set_user_value(path, "store", "a/b.db")
    set_user_value(path, "log_file", "~/log")

    assert path.read_text(encoding="utf-8") == (
        f'store = "{tmp_path}/a/b.db"\nlog_file = "~/log"\n'
    )


def test_what_was_set_is_in_force(user_file, tmp_path):
    path = user_file("")

    set_user_value(path, "busy_timeout", "0.5")
    set_user_value(path, "history_keep", "50")

    config = load_config(environ={"HOME": str(tmp_path)}, cwd=tmp_path, user_file=path)
    assert (config.busy_timeout, config.history_keep) == (0.5, 50)


def test_settings_that_are_kept_elsewhere_stay_there(user_file, tmp_path):
    path = user_file("lane = 'a'\n")
    link = tmp_path / "link.toml"
    link.symlink_to(path)

    set_user_value(link, "lane", "b")

    assert link.is_symlink()
    assert path.read_text(encoding="utf-8") == 'lane = "b"\n'


@pytest.mark.parametrize(
    ("text", "key", "value", "code"),
    [
        ("", "laen", "a", "config-unknown-key"),
        ("", "lane", "", "invalid-lane"),
        ("", "busy_timeout", "soon", "invalid-argument"),
        ("", "relay.url", "relay.example", "invalid-argument"),
        ("", "relay.token", "cm1_x", "invalid-argument"),
        ("lane = ", "lane", "a", "config-invalid"),
        ("context = {budget = 100}\n", "context.budget", "200", "config-invalid"),
        ("context = {budget = 100}\n", "context.labels", "a", "config-invalid"),
        ("[[context]]\nx = 1\n", "context.budget", "200", "config-invalid"),
        ("context = 1\n", "context.budget", "200", "config-invalid"),
        ("x = [" + "\n" * 300 + "]\nlane = 'a'\n", "lane", "b", "config-invalid"),
    ],
)
def test_a_change_that_is_refused_changes_nothing(
    user_file, unchanged, text, key, value, code
):
    path = user_file(text)
    unchanged()

    with pytest.raises(CrdtmemError) as refusal:
        set_user_value(path, key, value)

    assert refusal.value.code == code
    assert key in refusal.value.message or str(path) in refusal.value.message


@pytest.mark.parametrize(
    ("before", "key", "after"),
    [
        ("lane = 'a'\n# x\n", "lane", "# x\n"),
        ("[context]\nbudget = 1\nlabels = [\n'a']\n", "context.labels",
         "[context]\nbudget = 1\n"),
        ("[context]\nbudget = 1\n", "context.budget", "[context]\n"),
        ("\ufefflane = 'a'\n# x\n", "lane", "\ufeff# x\n"),
        ("a = 1\nlaen = 2", "laen", "a = 1\n"),
        ("a.b.c = 1\na.b.d = 2\nx = 3\n", "a.b", "x = 3\n"),
    ],
)  # fmt: skip
def test_a_key_that_is_unset_is_gone_with_its_lines(user_file, before, key, after):
    path = user_file(before)

    assert unset_user_value(path, key) is True
    assert path.read_text(encoding="utf-8") == after
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_key_that_is_not_set_stays_unset(user_file, unchanged, tmp_path):
    path = user_file("# x\n")
    unchanged()

    assert unset_user_value(path, "lane") is False
    assert unset_user_value(tmp_path / "absent.toml", "lane") is False


@pytest.mark.parametrize(
    ("text", "key", "code"),
    [
        ("", "laen", "config-unknown-key"),
        ("context = {budget = 100, labels = ['a']}\n", "context.labels",
         "config-invalid"),
    ],
)  # fmt: skip
def test_an_unset_that_is_refused_changes_nothing(
    user_file, unchanged, text, key, code
):
    path = user_file(text)
    unchanged()

    with pytest.raises(ConfigError) as refusal:
        unset_user_value(path, key)

    assert refusal.value.code == code


def test_a_path_that_toml_cannot_hold_is_refused(user_file, unchanged):
    path = user_file("store = '/srv/store.db'\n")
    unchanged()

    with pytest.raises(InvalidArgumentError, match="store must be UTF-8") as refusal:
        set_user_value(path, "store", "/srv/\udcff")

    assert refusal.value.details == {"argument": "store"}


def test_a_file_that_cannot_be_replaced_leaves_nothing_behind(tmp_path):
    taken = tmp_path / "taken"
    taken.mkdir()

    with pytest.raises(ConfigError, match="cannot be written: Is a directory"):
        _replace_file(taken, "lane = 'a'\n", 0o600)

    assert os.listdir(tmp_path) == ["taken"]


def test_a_folder_that_cannot_be_made_is_told(tmp_path):
    (tmp_path / "link").symlink_to(tmp_path / "absent")

    with pytest.raises(ConfigError, match="cannot be written: File exists") as refusal:
        set_user_value(tmp_path / "link" / "config.toml", "lane", "a")
    with pytest.raises(ConfigError, match="cannot be written: No such file"):
        write_project_file(tmp_path / "absent", project_id=ID, name="shop")

    assert refusal.value.code == "config-invalid"
    assert os.listdir(tmp_path) == ["link"]


def test_a_project_gets_a_file_with_its_id_and_name(tmp_path):
    assert write_project_file(tmp_path, project_id=ID, name='The "shop"') == ID

    config = load_config(environ={"HOME": str(tmp_path)}, cwd=tmp_path)
    assert config.project == (ID, "project file", 'The "shop"')


def test_a_project_file_that_has_an_id_stays_as_it_is(tmp_path):
    write_project_file(tmp_path, project_id=ID, name="shop")
    before = (tmp_path / ".crdtmem.toml").read_bytes()

    assert write_project_file(tmp_path, project_id=OTHER_ID, name="other") == ID
    assert (tmp_path / ".crdtmem.toml").read_bytes() == before


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("", f'[project]\nid = "{ID}"\nname = "shop"\n'),
        (
            "# ours\nscope = 'global'\n",
            f'# ours\nscope = \'global\'\n\n[project]\nid = "{ID}"\nname = "shop"\n',
        ),
        (
            "project.name = 'Shop'\n",
            f"project.name = 'Shop'\nproject.id = \"{ID}\"\n",
        ),
        ("project.id = 5\n", f'project.id = "{ID}"\nproject.name = "shop"\n'),
    ],
)
def test_what_a_project_file_lacks_is_added(tmp_path, before, after):
    path = tmp_path / ".crdtmem.toml"
    path.write_text(before, encoding="utf-8")
    path.chmod(0o640)

    assert write_project_file(tmp_path, project_id=ID, name="shop") == ID
    assert path.read_text(encoding="utf-8") == after
    assert stat.S_IMODE(path.stat().st_mode) == 0o640


def test_another_id_takes_only_the_place_of_the_old_one(tmp_path):
    path = tmp_path / ".crdtmem.toml"
    path.write_text(
        f"[project]\nname = 'Shop' # x\nid = '{ID}' # y\n[context]\n", encoding="utf-8"
    )

    replace_project_id(tmp_path, project_id=OTHER_ID)

    assert path.read_text(encoding="utf-8") == (
        f"[project]\nname = 'Shop' # x\nid = \"{OTHER_ID}\" # y\n[context]\n"
    )


@pytest.mark.parametrize("arguments", [{"project_id": "a b"}, {"name": "\x1b"}])
def test_a_project_file_is_not_made_for_a_bad_name(tmp_path, unchanged, arguments):
    unchanged()

    with pytest.raises(InvalidArgumentError, match="must be"):
        write_project_file(tmp_path, **{"project_id": ID, "name": "shop", **arguments})


def test_another_id_needs_a_project_file(tmp_path, unchanged):
    unchanged()

    with pytest.raises(ConfigError, match=r"there is no \.crdtmem\.toml") as refusal:
        replace_project_id(tmp_path, project_id=ID)

    assert refusal.value.code == "config-invalid"
    assert refusal.value.hint == "run 'crdtmem init'"


def test_a_project_file_that_is_a_link_is_not_followed(tmp_path):
    target = tmp_path / "target"
    target.write_text("", encoding="utf-8")
    Path(tmp_path / ".crdtmem.toml").symlink_to(target)

    with pytest.raises(ConfigError, match="is no regular file"):
        write_project_file(tmp_path, project_id=ID, name="shop")
    with pytest.raises(ConfigError, match="is no regular file"):
        replace_project_id(tmp_path, project_id=ID)

    assert target.read_text(encoding="utf-8") == ""
