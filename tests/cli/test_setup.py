"""crdtmem.cli.setup: the command, with the files of a project and of a user"""

import json
import os
import shlex
import sys

import pytest

from crdtmem.cli.setup import own_command

HOSTS = ["claude", "codex", "cursor"]
FILES = {
    "claude": [".mcp.json", ".claude/settings.json", "CLAUDE.md"],
    "codex": [".codex/config.toml", ".codex/hooks.json", "AGENTS.md"],
    "cursor": [".cursor/mcp.json", ".cursor/hooks.json", ".cursor/rules/crdtmem.mdc"],
}
TEXTS = {
    ".json": b'{\n\t"other": [1, 2],\n\t"hooks": {}\n}',
    ".toml": b'# mine\n[mcp_servers.other]\ncommand = "x"\n',
    ".md": b"# Us\r\nText",
    ".mdc": b"---\nalwaysApply: false\n---\nMine\n",
}


@pytest.fixture
def project(home, monkeypatch):
    """A project in a folder of its own, and no variable of a client."""
    for name in ("CLAUDE_CONFIG_DIR", "CODEX_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PATH", str(home / "bin"))
    folder = home / "project"
    (folder / "below").mkdir(parents=True)
    (folder / ".crdtmem.toml").write_bytes(b"[project]\n")
    monkeypatch.chdir(folder / "below")
    return folder


@pytest.fixture
def client(home):
    """The program of a client, which notes what it is told."""
    (home / "bin").mkdir()
    path = home / "bin" / "claude"
    said = home / "told"

    def install(*, status=0):
        path.write_text(
            f"#!{sys.executable}\n"
            "import json, sys\n"
            f"with open({str(said)!r}, 'a', encoding='utf-8') as file:\n"
            "    print(json.dumps(sys.argv[1:]), file=file)\n"
            "print('no such thing', file=sys.stderr)\n"
            f"sys.exit({status})\n",
            encoding="utf-8",
        )
        path.chmod(0o755)

    def told():
        lines = said.read_text(encoding="utf-8").splitlines() if said.exists() else []
        return [json.loads(line) for line in lines]

    return install, told


def content(folder):
    return {
        str(path.relative_to(folder)): path.is_file() and path.read_bytes()
        for path in folder.rglob("*")
    }


@pytest.mark.parametrize("host", HOSTS)
def test_what_setup_makes_is_gone_after_remove(run, project, host):
    before = content(project)

    first = run("setup", host)
    made = content(project)
    second = run("setup", host)

    assert [line.split(": ") for line in first.out.splitlines()] == [
        [str(project / name), "made"] for name in FILES[host]
    ]
    assert {name for name in made if made[name]} - set(before) == set(FILES[host])
    assert second.out.count(": unchanged") == len(FILES[host])
    assert content(project) == made
    assert run("setup", host, "--remove").out.count(": removed") == len(FILES[host])
    assert content(project) == before
    assert run("setup", host, "--remove").out.count(": unchanged") == len(FILES[host])


@pytest.mark.requirement("surfaces-31")
@pytest.mark.parametrize("host", HOSTS)
def test_files_that_were_there_come_back_byte_for_byte(run, project, host):
    for name in FILES[host]:
        (project / name).parent.mkdir(parents=True, exist_ok=True)
        (project / name).write_bytes(TEXTS[(project / name).suffix])
    before = content(project)

    assert run("setup", host).out.count(": changed") == len(FILES[host])
    between = content(project)
    assert run("setup", host).out.count(": unchanged") == len(FILES[host])
    assert content(project) == between
    run("setup", host, "--remove")

    assert content(project) == before
    assert {f"{name}.crdtmem-bak" for name in FILES[host]} == set(between) - set(before)


@pytest.mark.parametrize("host", HOSTS)
def test_a_dry_run_shows_diffs_and_writes_nothing(run, project, host):
    before = content(project)

    result = run("setup", host, "--dry-run")

    assert result.status == 0
    assert result.out.count("--- /dev/null\n+++ ") == len(FILES[host])
    assert result.err.count(": would be made") == len(FILES[host])
    assert content(project) == before


@pytest.mark.requirement("surfaces-31")
@pytest.mark.parametrize(
    ("host", "text", "code"),
    [
        ("claude", b"{ // mine\n}", "config-unparsable"),
        ("claude", b'{"mcpServers": {"crdtmem": {"url": "x"}}}', "config-taken"),
        ("codex", b"[mcp_servers.crdtmem]\n", "config-taken"),
        ("codex", b"[", "config-unparsable"),
        ("cursor", b'{"mcpServers": 1}', "config-unparsable"),
    ],
)
def test_one_file_that_cannot_be_edited_stops_all(run, project, host, text, code):
    (project / FILES[host][0]).parent.mkdir(exist_ok=True)
    (project / FILES[host][0]).write_bytes(text)
    before = content(project)

    result = run("setup", host, "--json")
    error = json.loads(result.err)["error"]

    assert (result.status, result.out, error["code"]) == (2, "", code)
    assert FILES[host][0] in error["message"]
    assert "crdtmem" in error["details"]["snippet"]
    assert error["details"]["snippet"] in run("setup", host).err
    assert content(project) == before


def test_every_part_can_be_left_out(run, project):
    run("setup", "claude", "--no-mcp", "--no-hooks")
    assert [name for name in FILES["claude"] if (project / name).exists()] == []
    run("setup", "claude", "--no-hooks")
    assert not (project / ".claude").exists()
    run("setup", "claude")
    run("setup", "claude", "--remove", "--no-mcp")
    assert [name for name in FILES["claude"] if (project / name).exists()] == [
        ".mcp.json"
    ]


def test_the_result_is_told_as_json(run, project):
    result = json.loads(run("setup", "codex", "--json").out)

    assert [file["path"] for file in result["files"]] == [
        str(project / name) for name in FILES["codex"]
    ]
    assert {file["change"] for file in result["files"]} == {"made"}
    assert (result["dryRun"], result["commands"], result["leftToDo"]) == (False, [], [])
    assert "trust" in result["notes"][0]


def test_uvx_runs_it_without_a_path(run, project):
    run("setup", "cursor", "--uvx")

    server = json.loads((project / ".cursor/mcp.json").read_text(encoding="utf-8"))
    assert server["mcpServers"]["crdtmem"] == {
        "command": "uvx",
        "args": ["--from", "crdtmem[mcp]", "crdtmem", "mcp"],
    }
    assert run("setup", "cursor", "--remove").out.count(": removed") == 3


def test_the_mirror_is_named_by_its_whole_path(run, project):
    local = project / ".claude/settings.local.json"

    shown = run("setup", "claude", "--mirror", "my notes")

    folder = str(project / "below" / "my notes")
    assert json.loads(local.read_text(encoding="utf-8")) == {
        "autoMemoryDirectory": folder
    }
    assert f"crdtmem mirror '{folder}' --profile claude --watch" in shown.err
    assert "/memory" in shown.err
    run("setup", "claude", "--remove")
    assert not local.exists()


@pytest.mark.parametrize("words", [[], ["--mirror", "notes"]])
def test_a_mirror_in_a_file_that_was_there_is_taken_out(run, project, words):
    local = project / ".claude/settings.local.json"
    local.parent.mkdir()
    local.write_bytes(b'{"permissions": {}}')
    run("setup", "claude", "--mirror", "notes")
    assert b"autoMemoryDirectory" in local.read_bytes()

    run("setup", "claude", "--remove", *words)

    assert content(local.parent) == {local.name: b'{"permissions": {}}'}


@pytest.mark.parametrize(
    ("text", "copy"),
    [
        (b'{"autoMemoryDirectory": "/theirs"}', None),
        (b'{"autoMemoryDirectory": "/theirs"}', b'{"autoMemoryDirectory": "/a"}'),
        (b'{"autoMemoryDirectory": 1}', None),
        (b"{ // no JSON", None),
        (b"[]", None),
    ],
)
def test_a_folder_that_somebody_else_chose_stays(run, project, text, copy):
    local = project / ".claude/settings.local.json"
    local.parent.mkdir()
    local.write_bytes(text)
    if copy is not None:
        local.with_name("settings.local.json.crdtmem-bak").write_bytes(copy)
    before = content(project)

    assert run("setup", "claude", "--remove").status == 0
    assert content(project) == before
    assert run("setup", "claude", "--mirror", "notes").status == 2
    assert content(project) == before


@pytest.mark.parametrize(
    "words", [["codex", "--mirror", "x"], ["claude", "--user", "--mirror", "x"]]
)
def test_a_mirror_is_for_one_project_of_claude(run, project, words):
    result = run("setup", *words)

    assert (result.status, result.out) == (2, "")
    assert "--mirror is for claude, and for one project" in result.err


@pytest.mark.parametrize(
    ("host", "files"),
    [
        ("codex", [".codex/config.toml", ".codex/hooks.json", ".codex/AGENTS.md"]),
        ("cursor", [".cursor/mcp.json", ".cursor/hooks.json"]),
    ],
)
def test_a_users_files_lie_in_the_home(run, project, home, host, files):
    run("setup", host, "--user")

    assert [name for name in files if (home / name).exists()] == files
    assert run("setup", host, "--user", "--remove").out.count("removed") == len(files)
    assert [name for name in files if (home / name).exists()] == []


def test_the_folders_of_clients_can_lie_elsewhere(run, project, home, monkeypatch):
    monkeypatch.setenv("CODEX_HOME", str(home / "elsewhere"))

    run("setup", "codex", "--user")

    assert (home / "elsewhere" / "config.toml").exists()
    assert not (home / ".codex").exists()


def test_a_program_that_is_absent_is_left_to_the_user(run, project, home):
    result = run("setup", "claude", "--user", "--uvx")

    assert result.status == 0
    assert (home / ".claude/settings.json").exists()
    assert (
        "run this yourself: claude mcp add --scope user crdtmem -- uvx --from"
        " 'crdtmem[mcp]' crdtmem mcp" in result.out.splitlines()
    )


def test_the_program_registers_the_server(run, project, home, client):
    install, told = client
    install()
    state = home / ".claude.json"
    add = ["mcp", "add", "--scope", "user", "crdtmem", "--"]
    uvx = ["uvx", "--from", "crdtmem[mcp]", "crdtmem", "mcp"]
    take = ["mcp", "remove", "--scope", "user", "crdtmem"]

    shown = run("setup", "claude", "--user", "--uvx", "--dry-run")
    assert f"would run: claude {shlex.join([*add, *uvx])}" in shown.out
    assert told() == []
    assert run("setup", "claude", "--user", "--uvx", "--remove").status == 0
    assert told() == []
    assert run("setup", "claude", "--user", "--uvx").status == 0
    assert told() == [[*add, *uvx]]
    entry = {"type": "stdio", "command": "uvx", "args": uvx[1:], "env": {}}
    state.write_text(json.dumps({"mcpServers": {"crdtmem": entry}}), encoding="utf-8")
    before = state.read_bytes()
    run("setup", "claude", "--user", "--uvx")
    assert told() == [[*add, *uvx]]
    run("setup", "claude", "--user")
    assert told()[1:] == [take, [*add, *own_command("", sys.executable), "mcp"]]
    run("setup", "claude", "--user", "--remove")
    assert told()[3:] == [take]
    assert state.read_bytes() == before


def test_a_foreign_server_of_the_user_is_left_alone(run, project, home, client):
    install, told = client
    install()
    (home / ".claude.json").write_bytes(b'{"mcpServers": {"crdtmem": {"url": "x"}}}')
    before = content(home)

    result = run("setup", "claude", "--user")

    assert (result.status, result.out) == (2, "")
    assert "has an entry mcpServers.crdtmem that crdtmem did not make" in result.err
    assert "claude mcp add --scope user" in result.err
    assert content(home) == before
    assert run("setup", "claude", "--user", "--remove").status == 0
    assert told() == []


def test_a_program_that_refuses_is_told_and_left_to_the_user(run, project, client):
    install, _ = client
    install(status=3)

    result = run("setup", "claude", "--user", "--json")

    assert result.status == 10
    assert "status 3, 'no such thing'" in result.err
    assert json.loads(result.out)["leftToDo"] == json.loads(result.out)["commands"]


def test_a_program_that_does_not_start_is_told(run, project, home):
    (home / "bin").mkdir()
    (home / "bin" / "claude").write_bytes(b"#!/nothing\n")
    (home / "bin" / "claude").chmod(0o755)

    result = run("setup", "claude", "--user")

    assert (result.status, "No such file" in result.err) == (10, True)


def test_this_very_program_is_what_clients_run(tmp_path):
    (tmp_path / "crdtmem").touch()
    (tmp_path / "else").mkdir()
    (tmp_path / "else" / "crdtmem").symlink_to("../crdtmem")
    link, python = str(tmp_path / "else" / "crdtmem"), str(tmp_path / "python")

    assert own_command(link, python) == (link,)
    assert own_command(os.path.relpath(link), python) == (link,)
    assert own_command("/x/__main__.py", python) == (str(tmp_path / "crdtmem"),)
    assert own_command("crdtmem", "/x/python") == ("/x/python", "-m", "crdtmem.cli")
