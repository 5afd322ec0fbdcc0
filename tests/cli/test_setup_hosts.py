"""crdtmem.cli.setup_hosts"""

import json
import tomllib

import pytest

from crdtmem.cli.setup_hosts import Wanted, is_our_server, mirror_edit, plan

COMMAND = ("/opt/my apps/crdtmem",)
SERVER = {"command": "/opt/my apps/crdtmem", "args": ["mcp"]}


def made(host, **wanted):
    """Return the text of each file that is made where there was none."""
    texts = {}
    for name, edits in plan(host, Wanted(COMMAND, **wanted)).files.items():
        text = None
        for edit in edits:
            text = edit.put(text)
        texts[name] = text
    return texts


def group(host, event):
    command = f"'/opt/my apps/crdtmem' hook {host} {event}"
    return {"hooks": [{"type": "command", "command": command, "timeout": 10}]}


def start(host):
    matcher = "startup|resume|clear|compact"
    return {"matcher": matcher, **group(host, "session-start")}


def test_claude_gets_a_server_three_hooks_and_a_paragraph():
    files = made("claude")

    assert list(files) == [".mcp.json", ".claude/settings.json", "CLAUDE.md"]
    assert json.loads(files[".mcp.json"]) == {"mcpServers": {"crdtmem": SERVER}}
    assert json.loads(files[".claude/settings.json"]) == {
        "hooks": {
            "SessionStart": [start("claude")],
            "UserPromptSubmit": [group("claude", "prompt")],
            "PreCompact": [group("claude", "pre-compact")],
        }
    }
    lines = files["CLAUDE.md"].splitlines()
    assert (lines[0], lines[-1]) == (
        "<!-- crdtmem:begin -->",
        "<!-- crdtmem:end -->",
    )


def test_claude_registers_the_server_of_a_user_itself():
    found = plan("claude", Wanted(COMMAND, is_user=True))

    assert list(found.files) == ["settings.json"]
    assert found.register == (
        ("mcp", "add", "--scope", "user", "crdtmem", "--", *COMMAND, "mcp"),
        ("mcp", "remove", "--scope", "user", "crdtmem"),
    )


def test_codex_gets_a_table_two_hooks_and_a_paragraph():
    files = made("codex")

    assert list(files) == [".codex/config.toml", ".codex/hooks.json", "AGENTS.md"]
    assert tomllib.loads(files[".codex/config.toml"]) == {
        "mcp_servers": {"crdtmem": {**SERVER, "startup_timeout_sec": 30}}
    }
    assert json.loads(files[".codex/hooks.json"]) == {
        "hooks": {
            "SessionStart": [start("codex")],
            "UserPromptSubmit": [group("codex", "prompt")],
        }
    }
    assert list(made("codex", is_user=True)) == [
        "config.toml",
        "hooks.json",
        "AGENTS.md",
    ]


def test_cursor_gets_a_server_a_hook_and_a_rule():
    files = made("cursor")

    assert list(files) == [
        ".cursor/mcp.json",
        ".cursor/hooks.json",
        ".cursor/rules/crdtmem.mdc",
    ]
    assert json.loads(files[".cursor/mcp.json"]) == {"mcpServers": {"crdtmem": SERVER}}
    assert json.loads(files[".cursor/hooks.json"]) == {
        "version": 1,
        "hooks": {
            "sessionStart": [
                {"command": "'/opt/my apps/crdtmem' hook cursor session-start"}
            ]
        },
    }
    assert "\nalwaysApply: true\n---\n" in files[".cursor/rules/crdtmem.mdc"]
    assert list(made("cursor", is_user=True)) == ["mcp.json", "hooks.json"]


@pytest.mark.parametrize("host", ["claude", "codex", "cursor"])
def test_hooks_and_the_server_can_be_left_out(host):
    both = set(made(host))
    hooks, server = set(made(host, mcp=False)), set(made(host, hooks=False))

    assert (hooks | server, hooks & server) == (both, set())
    assert len(server) == 1
    assert made(host, mcp=False, hooks=False) == {}
    assert plan(host, Wanted(COMMAND, True, False, False)).register is None


@pytest.mark.parametrize("host", ["claude", "codex", "cursor"])
def test_what_an_older_place_of_crdtmem_made_is_replaced(host):
    olds, news = (
        plan(host, Wanted(command))
        for command in (("/old/python", "-m", "crdtmem.cli"), COMMAND)
    )
    for name, edits in news.files.items():
        text = None
        for edit in olds.files[name]:
            text = edit.put(text)
        for edit in edits:
            text = edit.put(text)

        assert "/old/python" not in str(text)
        assert text == made(host)[name]


@pytest.mark.parametrize(
    "value",
    [
        None,
        {"url": "http://x"},
        {"command": "/bin/crdtmem"},
        {"command": 1, "args": ["mcp"]},
        {"command": "other", "args": ["mcp"]},
        {"command": "/bin/crdtmem", "args": ["serve"]},
        {"command": "/bin/crdtmem", "args": "mcp"},
    ],
)
def test_other_servers_are_not_ours(value):
    assert not is_our_server(value)


@pytest.mark.parametrize(
    "value",
    [
        {"command": r"C:\x\crdtmem.exe", "args": ["mcp"]},
        {"command": "uvx", "args": ["--from", "crdtmem[mcp]", "crdtmem", "mcp"]},
        {"command": "crdtmem", "args": ["mcp"], "env": {"CRDTMEM_LANE": "a"}},
    ],
)
def test_servers_that_this_program_wrote_are_ours(value):
    assert is_our_server(value)


@pytest.mark.parametrize(
    "element",
    [
        1,
        {},
        {"hooks": []},
        {"hooks": [1]},
        {"hooks": [{"command": "other hook claude prompt"}]},
        {"hooks": [{"command": "crdtmem hook claude pre-compact"}]},
        {"hooks": [{"command": "crdtmem 'hook claude prompt"}]},
        {"hooks": [{"command": "crdtmem"}]},
        {"hooks": [{"command": "crdtmem hook claude prompt"}, {"command": "x"}]},
    ],
)
def test_hooks_of_others_stay(element):
    hook = plan("claude", Wanted(COMMAND)).files[".claude/settings.json"][1]
    text = json.dumps({"hooks": {"UserPromptSubmit": [element]}})

    assert hook.take(text) == text
    assert hook.take(hook.put(text)) == text


def test_only_the_same_folder_is_our_mirror():
    edit = mirror_edit("/home/me/notes")

    assert json.loads(edit.put(None)) == {"autoMemoryDirectory": "/home/me/notes"}
    assert edit.take('{"autoMemoryDirectory": "/else"}') == (
        '{"autoMemoryDirectory": "/else"}'
    )
