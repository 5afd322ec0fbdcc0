"""crdtmem.config.places"""

import os
import pwd
import sys
from pathlib import Path

import platformdirs
import pytest

from crdtmem.config.places import (
    ProjectPlace,
    absolute_path,
    default_lane,
    find_project,
    home_folder,
    process_environment,
    user_config_path,
    user_folder,
)
from crdtmem.errors import ConfigError
from crdtmem.scope import parse_lane

NOBODY = 2**31 - 7
"""A user id that no account has."""


def make_repository(folder):
    (folder / ".git").mkdir(parents=True)
    (folder / ".git" / "HEAD").write_text("ref: refs/heads/main\n", encoding="utf-8")
    return folder


def make_worktree(folder, repository, *, name="feature"):
    git_dir = repository / ".git" / "worktrees" / name
    git_dir.mkdir(parents=True)
    (git_dir / "HEAD").write_text("ref: refs/heads/feature\n", encoding="utf-8")
    (git_dir / "commondir").write_text("../..\n", encoding="utf-8")
    folder.mkdir()
    (folder / ".git").write_text(f"gitdir: {git_dir}\n", encoding="utf-8")
    return folder


def place(folder, *, file=None, git=None):
    return ProjectPlace(
        str(folder),
        None if file is None else str(file),
        None if git is None else str(git),
    )


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="XDG folders")
@pytest.mark.parametrize(
    "variables",
    [
        {},
        {"HOME": "/home/me"},
        {"HOME": "/home/me//"},
        {"HOME": "/"},
        {"HOME": "relative"},
        {"HOME": ""},
        {"HOME": "/home/me", "XDG_DATA_HOME": "/d", "XDG_CONFIG_HOME": "/c/"},
        {"HOME": "/home/me", "XDG_DATA_HOME": "d", "XDG_CONFIG_HOME": "~/c"},
        {"HOME": "/home/me", "XDG_DATA_HOME": "", "XDG_CONFIG_HOME": ""},
    ],
)
def test_the_computed_folders_are_those_of_platformdirs(monkeypatch, variables):
    for name in ("HOME", "XDG_DATA_HOME", "XDG_CONFIG_HOME"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    folders = platformdirs.PlatformDirs("crdtmem", appauthor=False)

    assert user_folder("data", variables) == folders.user_data_dir
    assert user_folder("config", variables) == folders.user_config_dir


def test_other_systems_ask_platformdirs():
    environ = process_environment()

    for kind in ("data", "config"):
        found = user_folder(kind, environ, platform="darwin")
        assert found == user_folder(kind, environ)


def test_the_environment_is_that_of_the_process_unless_another_is_given(monkeypatch):
    monkeypatch.setenv("XDG_CONFIG_HOME", "/here")

    assert user_config_path() == Path("/here/crdtmem/config.toml")
    assert user_config_path({"XDG_CONFIG_HOME": "/there"}) == Path(
        "/there/crdtmem/config.toml"
    )


def test_without_home_the_account_tells_the_home_folder():
    assert home_folder({}) == pwd.getpwuid(os.getuid()).pw_dir


def test_a_home_folder_that_nothing_tells_is_an_error():
    with pytest.raises(ConfigError, match="HOME") as refusal:
        home_folder({}, uid=NOBODY)

    assert refusal.value.code == "config-invalid"
    assert refusal.value.details == {"variable": "HOME"}


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("a/b", "/work/a/b"),
        ("../a", "/a"),
        ("/x//y/", "/x/y"),
        ("~", "/home/me"),
        ("~/a", "/home/me/a"),
        ("~other/a", "/work/~other/a"),
    ],
)
def test_a_path_is_relative_to_a_folder_or_to_the_home_folder(text, path):
    environ = {"HOME": "/home/me"}

    assert absolute_path(text, folder="/work", environ=environ) == Path(path)


def test_a_lane_without_a_name_is_user_and_host():
    host = os.uname().nodename

    assert default_lane({"USER": "me"}) == f"me@{host}"
    assert default_lane({"USER": "me", "LOGNAME": "it"}) == f"it@{host}"
    assert default_lane({}) == f"{pwd.getpwuid(os.getuid()).pw_name}@{host}"
    assert default_lane({}, uid=NOBODY) == f"uid{NOBODY}@{host}"


@pytest.mark.parametrize("user", ["a\x1bb", "é" * 100, "\udcff", " "])
def test_a_lane_without_a_name_is_a_lane_whatever_the_user_is_called(user):
    lane = default_lane({"USER": user})

    assert parse_lane(lane) == lane


def test_a_folder_outside_a_repository_stands_for_itself(tmp_path):
    assert find_project(str(tmp_path)) == place(tmp_path)


def test_a_project_file_counts_for_the_folders_below_it(tmp_path):
    file = tmp_path / ".crdtmem.toml"
    file.write_text("", encoding="utf-8")
    below = tmp_path / "a" / "b"
    below.mkdir(parents=True)

    assert find_project(str(below)) == place(tmp_path, file=file)
    assert find_project(str(tmp_path)) == place(tmp_path, file=file)


def test_the_search_ends_at_the_top_of_the_repository(tmp_path):
    (tmp_path / ".crdtmem.toml").write_text("", encoding="utf-8")
    top = make_repository(tmp_path / "shop")
    (top / "src").mkdir()

    found = find_project(str(top / "src"))

    assert found == place(top, git=top / ".git")


def test_the_nearest_project_file_in_a_repository_counts(tmp_path):
    top = make_repository(tmp_path / "shop")
    (top / "part" / "src").mkdir(parents=True)
    for folder in (top, top / "part"):
        (folder / ".crdtmem.toml").write_text("", encoding="utf-8")

    found = find_project(str(top / "part" / "src"))

    file = top / "part" / ".crdtmem.toml"
    assert found == place(top / "part", file=file, git=top / ".git")


def test_nothing_is_looked_for_in_a_folder_that_strangers_share(tmp_path):
    shared = tmp_path / "shared"
    mine = shared / "mine"
    mine.mkdir(parents=True)
    (shared / ".crdtmem.toml").write_text("", encoding="utf-8")
    make_repository(shared)
    shared.chmod(0o1777)

    assert find_project(str(mine)) == place(mine)


def test_all_worktrees_share_the_git_directory(tmp_path):
    top = make_repository(tmp_path / "shop")
    worktree = make_worktree(tmp_path / "feature", top)

    found = find_project(str(worktree))

    assert found == place(worktree, git=top / ".git")


def test_a_submodule_is_a_project_of_its_own(tmp_path):
    top = make_repository(tmp_path / "shop")
    git_dir = top / ".git" / "modules" / "cart"
    git_dir.mkdir(parents=True)
    (git_dir / "HEAD").write_text("ref: refs/heads/main\n", encoding="utf-8")
    (top / "cart").mkdir()
    (top / "cart" / ".git").write_text(
        "gitdir: ../.git/modules/cart\n", encoding="utf-8"
    )

    assert find_project(str(top / "cart")) == place(top / "cart", git=git_dir)


def test_a_repository_behind_a_link_is_the_repository(tmp_path):
    top = make_repository(tmp_path / "shop")
    link = tmp_path / "link"
    link.symlink_to(top)

    assert find_project(str(link)) == place(top, git=top / ".git")


@pytest.mark.parametrize(
    "pointer", ["", "nonsense", "gitdir:", "gitdir: /absent", "gitdir: a\0b"]
)
def test_a_file_that_points_nowhere_makes_no_repository(tmp_path, pointer):
    (tmp_path / ".git").write_text(pointer, encoding="utf-8")

    assert find_project(str(tmp_path)) == place(tmp_path)


def test_an_empty_git_directory_makes_no_repository(tmp_path):
    (tmp_path / ".git").mkdir()

    assert find_project(str(tmp_path)) == place(tmp_path)
