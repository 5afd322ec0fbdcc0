"""crdtmem.cli.settings: init and config"""

import json
import subprocess

import pytest

from crdtmem import opening
from crdtmem.config import user_config_path

GIT = ["git", "-c", "user.name=a", "-c", "user.email=a@b"]


@pytest.fixture
def user_file(home):
    return user_config_path()


@pytest.fixture
def no_project(monkeypatch, home):
    """Let the place decide the project."""
    monkeypatch.delenv("CRDTMEM_PROJECT")


def project_of(run, *words):
    return json.loads(run(*words, "config", "get", "project.id", "--json").out)


def test_init_writes_the_file_once(run, home):
    first = run("init", "--name", "atlas")
    text = (home / ".crdtmem.toml").read_text(encoding="utf-8")
    second = run("init", "--name", "other", "--json")

    assert (first.status, second.status) == (0, 0)
    assert "commit the file" in first.err
    assert 'name = "atlas"' in text
    assert (home / ".crdtmem.toml").read_text(encoding="utf-8") == text
    assert json.loads(second.out)["changed"] is False
    assert json.loads(second.out)["id"] in first.out
    assert "it was there before" in run("init").err


def test_init_can_part_a_clone_from_the_others(run, home):
    before = json.loads(run("init", "--new-id", "--json").out)
    after = json.loads(run("init", "--new-id", "--json").out)

    assert before["changed"] is after["changed"] is True
    assert before["id"] != after["id"]
    assert after["id"] in (home / ".crdtmem.toml").read_text(encoding="utf-8")


@pytest.mark.process
def test_worktree_clone_and_renamed_folder_are_one_project(run, home, no_project):
    repository = home / "repository"
    repository.mkdir()
    run("--project", str(repository), "init")
    git = ["git", "-C", repository]
    subprocess.run([*git, "init", "-q"], check=True)
    subprocess.run([*git, "add", "."], check=True)
    subprocess.run([*GIT, *git[1:], "commit", "-q", "-m", "x"], check=True)
    subprocess.run([*git, "worktree", "add", "-q", home / "tree"], check=True)
    subprocess.run(["git", "clone", "-q", repository, home / "clone"], check=True)

    there = project_of(run, "--project", str(repository))
    repository.rename(home / "renamed")

    assert there["source"] == "project file"
    for name in ("renamed", "clone", "tree"):
        assert project_of(run, "--project", str(home / name)) == there


def test_each_setting_is_shown_with_its_source(run, user_file, monkeypatch):
    run("config", "set", "lane", "filed")
    run("config", "set", "context.budget", "500")
    monkeypatch.setenv("CRDTMEM_CONTEXT_BUDGET", "600")
    monkeypatch.delenv("CRDTMEM_LANE")

    listed = json.loads(run("config", "--json", "--busy-timeout", "2").out)
    found = {row["key"]: (row["value"], row["source"]) for row in listed["settings"]}

    assert found["lane"] == ("filed", "user file")
    assert found["context.budget"] == (600, "environment")
    assert found["busy_timeout"] == (2.0, "option")
    assert found["durability"] == ("full", "default")
    assert "context.budget" in run("config", "list").out
    assert run("config", "get", "lane", "-v").out == "filed\n"
    assert "from: user file" in run("config", "get", "lane", "-v").err


def test_a_setting_is_set_and_unset_in_the_users_file(run, user_file):
    assert run("config", "path").out == f"{user_file}\n"
    assert json.loads(run("config", "path", "--json").out) == {"path": str(user_file)}
    assert run("config", "set", "lane", "-dashed").status == 0
    assert user_file.read_text(encoding="utf-8") == 'lane = "-dashed"\n'
    assert "changed" in run("config", "unset", "lane").out
    assert "was not set" in run("config", "unset", "lane").out
    assert run("config", "unset", "lane", "-q").out == ""
    assert json.loads(run("config", "unset", "lane", "--json").out) == {
        "key": "lane",
        "path": str(user_file),
        "changed": False,
    }


def test_the_store_is_told_how_much_history_to_keep(run, home):
    told = run("config", "set", "history_keep", "7")
    assert "there is no store yet" in told.err

    run("append", "plan", "x", "--scope", "global")
    run("create", "plan")
    run("config", "set", "history_keep", "9")

    with opening.open(home / "store.sqlite", lane="a", project="demo") as memory:
        assert memory.status().history_keep == 9


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["config", "get"], "usage"),
        (["config", "list", "lane"], "usage"),
        (["config", "set", "lane"], "usage"),
        (["config", "get", "lnae"], "config-unknown-key"),
        (["config", "set", "lnae", "x"], "config-unknown-key"),
        (["config", "set", "history_keep", "0"], "invalid-argument"),
    ],
)
def test_a_bad_setting_changes_nothing(run, user_file, words, code):
    result = run(*words, "--json")

    assert (result.status, result.out) == (2, "")
    assert json.loads(result.err)["error"]["code"] == code
    assert not user_file.exists()


def test_a_misspelt_variable_is_an_error(run, monkeypatch):
    monkeypatch.setenv("CRDTMEM_STOER", "x")

    result = run("list")

    assert result.status == 2
    assert "CRDTMEM_STORE" in result.err


def test_what_a_repository_may_not_set_stops_every_command(run, home):
    (home / ".crdtmem.toml").write_text('store = "/tmp/theirs"\n', encoding="utf-8")

    result = run("list", "--json")

    assert result.status == 8
    assert json.loads(result.err)["error"]["code"] == "untrusted-config"
