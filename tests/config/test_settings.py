"""crdtmem.config.settings"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from crdtmem.config import describe, load_config, user_config_path
from crdtmem.config.keys import KEYS
from crdtmem.errors import ConfigError, CrdtmemError, UntrustedConfigError
from crdtmem.scope import project_id_of_path

# One value of each key for each source. The project file takes the first three.
FROM_PROJECT_FILE = {
    "project.id": "from-project",
    "project.name": "From project",
    "scope": "global",
    "context.budget": 101,
    "context.labels": ["from_project"],
}
FROM_USER_FILE = {
    "store": "/user/store.db",
    "project.id": "from-user",
    "project.name": "From user",
    "scope": "global",
    "context.budget": 102,
    "context.labels": ["from_user"],
    "lane": "from-user",
    "busy_timeout": 2,
    "history_keep": 22,
    "durability": "normal",
    "relay.url": "wss://user",
    "relay.token_file": "/user/token",
    "relay.keyring_file": "/user/keyring.toml",
    "mirror.dir": "/user/notes",
    "condense.trigger_pct": 60,
    "condense.section_trigger": 40,
    "condense.min_size": 9000,
    "condense.keep_sections": 6,
    "condense.keep_pct": 30,
    "condense.pinned_max_pct": 20,
    "condense.not_smaller": 0.9,
    "condense.expires_in": 300,
    "condense.archive_max_bytes": 1000,
    "color": "never",
    "log_file": "/user/log",
}
FROM_ENVIRONMENT = {
    "CRDTMEM_STORE": "/env/store.db",
    "CRDTMEM_PROJECT": "from-env",
    "CRDTMEM_SCOPE": "global",
    "CRDTMEM_CONTEXT_BUDGET": "103",
    "CRDTMEM_LANE": "from-env",
    "CRDTMEM_TIMEOUT": "3.5",
    "CRDTMEM_HISTORY": "33",
    "CRDTMEM_DURABILITY": "normal",
    "CRDTMEM_RELAY_URL": "wss://env",
    "CRDTMEM_RELAY_TOKEN": "cm1_env",
    "CRDTMEM_RELAY_KEYRING": "fd:9",
    "CRDTMEM_MIRROR": "/env/notes",
    "CRDTMEM_COLOR": "always",
    "CRDTMEM_LOG": "/env/log",
}
OPTIONS = {
    "store": "/option/store.db",
    "project": "from-option",
    "project_name": "From option",
    "scope": "project",
    "context_budget": 104,
    "context_labels": ["from_option"],
    "lane": "from-option",
    "busy_timeout": 4,
    "history_keep": 44,
    "durability": "full",
    "relay_url": "wss://option",
    "relay_token_file": "/option/token",
    "relay_keyring_file": "/option/keyring.toml",
    "mirror_dir": "/option/notes",
    "condense_trigger_pct": 61,
    "condense_section_trigger": 41,
    "condense_min_size": 9001,
    "condense_keep_sections": 7,
    "condense_keep_pct": 31,
    "condense_pinned_max_pct": 21,
    "condense_not_smaller": 0.8,
    "condense_expires_in": 301,
    "condense_archive_max_bytes": 1001,
    "color": "auto",
    "log_file": "/option/log",
}


def toml_of(values):
    """Return settings as a file that names each key in full."""
    lines = []
    for name, value in values.items():
        text = f'"{value}"' if isinstance(value, str) else str(value)
        lines.append(f"{name} = {text}\n")
    return "".join(lines)


@pytest.fixture
def load(tmp_path):
    """Load settings in a folder, home and environment of their own."""
    (tmp_path / "work").mkdir()

    def load(environ=None, *, cwd=tmp_path / "work", **options):
        environ = {"HOME": str(tmp_path), "USER": "me", **(environ or {})}
        return load_config(
            options=options, environ=environ, cwd=cwd, user_file=tmp_path / "user.toml"
        )

    return load


@pytest.fixture
def write(tmp_path):
    """Write the user's or the project's settings file."""

    def write(*, user=None, project=None):
        if user is not None:
            (tmp_path / "user.toml").write_text(toml_of(user), encoding="utf-8")
        if project is not None:
            path = tmp_path / "work" / ".crdtmem.toml"
            path.write_text(toml_of(project), encoding="utf-8")

    return write


def rows_of(config, source):
    """Return what ``describe`` shows of one source."""
    return {name: value for name, value, where in describe(config) if where == source}


def test_without_any_setting_the_defaults_hold(load, tmp_path):
    folder = str(tmp_path / "work")

    assert describe(load()) == [
        ("store", str(tmp_path / ".local/share/crdtmem/store.db"), "default"),
        ("project.id", project_id_of_path(folder), "folder"),
        ("project.name", "work", "default"),
        ("scope", "project", "default"),
        ("context.budget", 2000, "default"),
        ("context.labels", None, "default"),
        ("lane", f"me@{os.uname().nodename}", "default"),
        ("busy_timeout", 5.0, "default"),
        ("history_keep", 20, "default"),
        ("durability", "full", "default"),
        ("relay.url", None, "default"),
        ("relay.token_file", None, "default"),
        ("relay.token", None, "default"),
        ("relay.keyring_file", None, "default"),
        ("relay.keyring", None, "default"),
        ("mirror.dir", None, "default"),
        ("condense.trigger_pct", 70, "default"),
        ("condense.section_trigger", 50, "default"),
        ("condense.min_size", None, "default"),
        ("condense.keep_sections", 12, "default"),
        ("condense.keep_pct", 25, "default"),
        ("condense.pinned_max_pct", 25, "default"),
        ("condense.not_smaller", 0.95, "default"),
        ("condense.expires_in", 600.0, "default"),
        ("condense.archive_max_bytes", None, "default"),
        ("color", "auto", "default"),
        ("log_file", None, "default"),
    ]


def test_every_key_can_be_set_in_the_users_file(load, write):
    write(user=FROM_USER_FILE)

    assert rows_of(load(), "user file") == FROM_USER_FILE
    assert set(FROM_USER_FILE) == {key.name for key in KEYS if key.in_files}


def test_the_project_file_wins_over_the_users(load, write):
    write(user=FROM_USER_FILE, project=FROM_PROJECT_FILE)

    config = load()

    rest = {k: v for k, v in FROM_USER_FILE.items() if k not in FROM_PROJECT_FILE}
    assert rows_of(config, "project file") == FROM_PROJECT_FILE
    assert rows_of(config, "user file") == rest


def test_the_environment_wins_over_both_files(load, write):
    write(user=FROM_USER_FILE, project=FROM_PROJECT_FILE)

    config = load(FROM_ENVIRONMENT)

    assert rows_of(config, "environment") == {
        "store": "/env/store.db",
        "project.id": "from-env",
        "scope": "global",
        "context.budget": 103,
        "lane": "from-env",
        "busy_timeout": 3.5,
        "history_keep": 33,
        "durability": "normal",
        "relay.url": "wss://env",
        "relay.token": "(set)",
        "relay.keyring": "(set)",
        "mirror.dir": "/env/notes",
        "color": "always",
        "log_file": "/env/log",
    }
    assert set(FROM_ENVIRONMENT) == {key.variable for key in KEYS if key.variable}


@pytest.mark.requirement("surfaces-39")
def test_an_option_wins_over_everything(load, write):
    write(user=FROM_USER_FILE, project=FROM_PROJECT_FILE)

    config = load(FROM_ENVIRONMENT, **OPTIONS)

    assert rows_of(config, "option") == {
        key.name: OPTIONS[key.field] for key in KEYS if key.in_files
    }


def test_a_token_is_never_shown(load):
    config = load({"CRDTMEM_RELAY_TOKEN": "cm1_secret"})

    assert config.relay_token.reveal() == "cm1_secret"
    assert "cm1_secret" not in repr(config)
    assert "cm1_secret" not in str(describe(config))


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("CRDTMEM_RELAY_TOKEN", "cm1_secret two"),
        ("CRDTMEM_RELAY_KEYRING", "1:cm1_secret\n2:other"),
        ("CRDTMEM_RELAY_URL", "wss://me:cm1_secret@relay"),
        ("CRDTMEM_RELAY_URL", "wss://relay/?token=cm1_secret"),
        ("CRDTMEM_RELAY_URL", "https://relay/cm1_secret"),
    ],
)
def test_a_refused_value_that_may_hold_a_token_is_not_shown(load, variable, value):
    with pytest.raises(ConfigError, match=f"^{variable}: relay.* must be") as refusal:
        load({variable: value})

    assert refusal.value.code == "config-invalid"
    assert "cm1_secret" not in str(refusal.value.to_dict())


def test_the_url_of_a_relay_ends_without_a_slash(load):
    assert load(relay_url="ws://localhost:8787/").relay_url == "ws://localhost:8787"


def test_a_token_in_a_settings_file_is_refused(load, write):
    write(user={"relay.token": "cm1_secret"})

    with pytest.raises(ConfigError, match="is read from the environment") as error:
        load()

    assert error.value.details["line"] == 1
    assert "cm1_secret" not in str(error.value.to_dict())


def test_an_option_that_is_none_was_not_given(load):
    config = load({"CRDTMEM_LANE": "from-env"}, lane=None, store=None, project=None)

    assert (config.lane, config.sources["lane"]) == ("from-env", "environment")
    assert config.project.source == "folder"


def test_the_settings_cannot_be_changed(load):
    config = load()

    with pytest.raises(AttributeError):
        config.lane = "other"
    with pytest.raises(TypeError):
        config.sources["lane"] = "option"


def test_the_places_of_both_files_are_told(load, write, tmp_path):
    assert load().project_file is None
    assert load().project_folder == tmp_path / "work"
    write(project=FROM_PROJECT_FILE)

    config = load()

    assert config.project_file == tmp_path / "work" / ".crdtmem.toml"
    assert config.user_file == tmp_path / "user.toml"


@pytest.mark.parametrize(
    ("environ", "color", "source"),
    [
        ({}, "always", "user file"),
        ({"NO_COLOR": ""}, "always", "user file"),
        ({"NO_COLOR": "1", "FORCE_COLOR": "1"}, "never", "environment"),
        ({"FORCE_COLOR": "1", "CRDTMEM_COLOR": "never"}, "always", "environment"),
        ({"TERM": "dumb"}, "always", "user file"),
        ({"TERM": "dumb", "CRDTMEM_COLOR": "auto"}, "never", "environment"),
        ({"TERM": "xterm", "CRDTMEM_COLOR": "auto"}, "auto", "environment"),
    ],
)
def test_what_other_programs_call_color_is_heeded(load, write, environ, color, source):
    write(user={"color": "always"})

    config = load(environ)

    assert (config.color, config.sources["color"]) == (color, source)


def test_an_option_for_color_wins_over_what_others_call_color(load):
    assert load({"NO_COLOR": "1"}, color="always").color == "always"


def test_the_name_in_a_file_is_not_that_of_another_project(load, write):
    write(project=FROM_PROJECT_FILE)

    elsewhere = load(project="other")

    assert load().project == ("from-project", "project file", "From project")
    assert elsewhere.project == ("other", "option", "other")
    assert elsewhere.sources["project.name"] == "default"


def test_a_name_alone_does_not_change_the_project(load, write, tmp_path):
    write(project={"project.name": "Shop"})

    found = load().project

    folder = str(tmp_path / "work")
    assert found == (project_id_of_path(folder), "folder", "Shop")


def test_a_relative_path_is_relative_to_where_it_stands(load, write, tmp_path):
    write(user={"store": "a.db", "log_file": "~/log"})

    config = load()

    assert config.store == tmp_path / "a.db"
    assert config.log_file == tmp_path / "log"
    work = tmp_path / "work"
    assert load({"CRDTMEM_STORE": "b.db"}).store == work / "b.db"
    assert load(store="c.db").store == work / "c.db"
    assert load(store=Path("d.db")).store == work / "d.db"


@pytest.mark.requirement("P9")
def test_a_renamed_folder_and_a_clone_stay_the_project_that_their_file_names(
    load, write, tmp_path
):
    write(project=FROM_PROJECT_FILE)
    before = load().project
    (tmp_path / "clone").mkdir()
    content = (tmp_path / "work" / ".crdtmem.toml").read_bytes()
    (tmp_path / "clone" / ".crdtmem.toml").write_bytes(content)
    (tmp_path / "work").rename(tmp_path / "renamed")

    assert load(cwd=tmp_path / "renamed").project == before
    assert load(cwd=tmp_path / "clone").project == before


@pytest.mark.requirement("surfaces-40")
@pytest.mark.process
def test_a_worktree_that_git_made_is_the_same_project(load, tmp_path):
    work = tmp_path / "work"
    commit = ["commit", "-q", "--allow-empty", "-m", "first"]
    author = ["-c", "user.name=a", "-c", "user.email=a@example.invalid"]
    for arguments in (
        ["init", "-q"],
        [*author, *commit],
        ["worktree", "add", "-q", "-b", "feature", str(tmp_path / "feature")],
    ):
        subprocess.run(["git", *arguments], cwd=work, check=True, capture_output=True)
    (work / "src").mkdir()

    found = [load(cwd=tmp_path / f).project for f in ("work", "work/src", "feature")]

    expected = (project_id_of_path(str(work / ".git")), "git", "work")
    assert found == [expected] * 3


def test_a_bad_value_is_refused_even_if_another_source_wins(load, write):
    write(user={"lane": ""})

    with pytest.raises(ConfigError, match="lane must be"):
        load(lane="good")


@pytest.mark.parametrize("name", [k.name for k in KEYS if not k.in_project])
def test_a_repository_may_not_set_what_is_the_users(load, write, name):
    write(project={"scope": "global", name: FROM_USER_FILE.get(name, "x")})

    with pytest.raises(UntrustedConfigError) as refusal:
        load(**OPTIONS)

    assert refusal.value.code == "untrusted-config"
    assert refusal.value.details["key"] == name
    assert refusal.value.details["line"] == 2
    assert f"line 2 sets '{name}'" in refusal.value.message
    assert ("config set" in refusal.value.hint) == (
        name not in ("relay.token", "relay.keyring")
    )


def test_a_repository_may_have_a_folder_of_its_own_mirrored(load, write, tmp_path):
    work = tmp_path / "work"
    (work / "docs").mkdir()
    (work / "notes").symlink_to("docs")

    for text in ("docs", "notes", "./notes/", "notes/../docs"):
        write(project={"mirror.dir": text})
        assert load().mirror_dir == work / "docs"
        assert load().sources["mirror.dir"] == "project file"


@pytest.mark.parametrize("text", ["/tmp", "..", "a/../../b", "elsewhere", "dangling"])
def test_a_repository_may_not_have_another_folder_mirrored(load, write, tmp_path, text):
    (tmp_path / "secrets").mkdir()
    (tmp_path / "work" / "elsewhere").symlink_to(tmp_path / "secrets")
    (tmp_path / "work" / "dangling").symlink_to("../not-yet")
    write(project={"scope": "global", "mirror.dir": text})

    with pytest.raises(UntrustedConfigError) as refusal:
        load()

    assert refusal.value.code == "untrusted-config"
    assert f"line 2 sets 'mirror.dir' to '{text}'" in refusal.value.message
    assert refusal.value.details["key"] == "mirror.dir"


def test_a_current_folder_that_is_gone_is_told(tmp_path, monkeypatch):
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()

    with pytest.raises(ConfigError, match="current folder no longer exists") as refusal:
        load_config(environ={"HOME": str(tmp_path)})
    monkeypatch.chdir(tmp_path)

    assert refusal.value.code == "config-invalid"


def test_the_process_is_asked_for_what_is_not_passed_in(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("CRDTMEM_LANE", "from-env")
    monkeypatch.chdir(tmp_path)

    config = load_config()

    assert config.lane == "from-env"
    assert config.project_folder == tmp_path
    assert config.user_file == user_config_path()
    assert config.user_file == tmp_path / "config" / "crdtmem" / "config.toml"


@pytest.mark.process
def test_loading_settings_without_files_loads_no_module_that_is_slow(tmp_path):
    script = "import sys, crdtmem.config as c; c.load_config(); print(*sys.modules)"
    loaded = subprocess.run(
        [sys.executable, "-c", script],
        check=True,
        capture_output=True,
        encoding="utf-8",
        cwd=tmp_path,
        env={"HOME": str(tmp_path), "PYTHONPATH": os.pathsep.join(sys.path)},
    ).stdout.split()

    slow = ["asyncio", "click", "difflib", "json", "platformdirs", "pydantic"]
    slow += ["pycrdt", "rich", "socket", "subprocess", "tempfile", "tomllib"]
    assert [name for name in slow if name in loaded] == []


@pytest.mark.requirement("P8")
@pytest.mark.parametrize(
    "content",
    [
        b"\xff",
        b"project = ",
        b"project.id = '../x'",
        b"project = {a = " + b"[" * 8_000,
        b".".join([b"a"] * 4_000) + b" = 1",
        b"context.budget = 0x" + b"f" * 6_000,
        b"context.labels = [\n" + b"1,\n" * 2_500 + b"]",
        b"context.labels = {a.a.a = 1}",
        b"[" + b"a" * 3_000 + b"]\n[" + b"a" * 3_000 + b"]",
    ],
)
def test_a_hostile_project_file_is_refused_in_few_words(load, tmp_path, content):
    (tmp_path / "work" / ".crdtmem.toml").write_bytes(content)

    with pytest.raises(CrdtmemError) as refusal:
        load()

    assert refusal.value.exit_status == 2
    assert len(refusal.value.message) < 500
