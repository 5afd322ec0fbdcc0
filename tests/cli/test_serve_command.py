"""crdtmem.cli.serve: the server as a command."""

import json
import os
import plistlib
import signal
import subprocess
import sys
from configparser import ConfigParser

import pytest

from crdtmem import opening
from crdtmem.errors import StoreNotFoundError
from crdtmem.serve import run as running_module
from crdtmem.serve.run import Ready
from crdtmem.serve.runfiles import RunFile, Running, folder_for

RUNNING = Running(
    4242, 8790, "127.0.0.1", "http://127.0.0.1:8790", "t", "2026", False, False, ""
)
URL = "http://127.0.0.1:8790/login?t=abc"


@pytest.fixture
def served(monkeypatch):
    """Let the command do all but listen; return how it wanted to."""
    wanted = []

    def serve(options, background, make_parts, tell):
        wanted.append((options, background))
        tell(Ready(URL, RUNNING))

    monkeypatch.setattr(running_module, "serve", serve)
    return wanted


def test_without_the_extra_it_says_what_to_install(run, monkeypatch):
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    result = run("serve")

    assert (result.status, result.out) == (2, "")
    assert 'pip install "crdtmem[serve]"' in result.err


def test_it_prints_the_url_and_nothing_else_on_stdout(run, served):
    result = run("serve")
    as_json = run("serve", "--json")

    assert result.out == f"{URL}\n"
    assert "Ctrl-C stops it" in result.err
    assert json.loads(as_json.out) == {
        "url": URL,
        "base": RUNNING.base,
        "readOnly": False,
        "pid": 4242,
    }


def test_each_option_arrives(run, served, home):
    result = run(
        *("serve", "-v", "--host", "10.0.0.1", "--port", "80", "--read-only"),
        *("--only-project", "demo", "--token-file", "tokens"),
        *("--origin", "https://a.example", "--origin", "https://b.example"),
        *("--public-url", "https://m.example", "--tls-cert", "c", "--tls-key", "k"),
        *("--behind-proxy", "10.0.0.0/8", "--agentmemory-open"),
        *("--log-format", "json"),
    )
    options, background = served[0]

    assert result.status == 0
    assert (options.host, options.port) == ("10.0.0.1", 80)
    assert options.read_only
    assert options.only_project == "demo"
    assert options.token_file == home / "tokens"
    assert options.origins == ("https://a.example", "https://b.example")
    assert options.public_url == "https://m.example"
    assert options.tls == (home / "c", home / "k")
    assert options.behind_proxy == "10.0.0.0/8"
    assert options.agentmemory_open
    assert options.log_json
    assert (background.project, background.lane) == ("demo", "tester")
    assert background.store == home / "store.sqlite"


def test_a_memory_is_opened_for_the_project_and_the_lane_that_ask(run, served):
    run("serve")
    _, background = served[0]
    with background.open_memory("other", "web:ana") as memory:
        memory.create("notes")

        assert (memory.project, memory.lane) == ("other", "web:ana")


def test_a_server_that_only_shows_makes_no_store(run, served, home):
    run("serve", "--read-only")
    _, background = served[0]

    with pytest.raises(StoreNotFoundError):
        background.open_memory("demo", "x")
    assert not (home / "store.sqlite").exists()


@pytest.mark.parametrize(
    ("argv", "why"),
    [
        (["--port", "70000"], "port must be between 0 and 65535"),
        (["--tls-cert", "c"], "belong together"),
        (["unit"], "'systemd' or 'launchd'"),
        (["unit", "systemd", "--read-only"], "takes no options of a server"),
        (["--only-project", "global"], "project must not be 'global'"),
    ],
)
def test_what_cannot_be_is_refused(run, served, argv, why):
    result = run("serve", *argv)

    assert (result.status, result.out, served) == (2, "", [])
    assert why in result.err


@pytest.fixture
def other(home, monkeypatch):
    """A server that runs on the store."""
    running = RUNNING._replace(store=str((home / "store.sqlite").resolve()))
    file = RunFile(folder_for(home / "store.sqlite"), running)
    monkeypatch.setattr(
        "crdtmem.serve.runfiles.invitation", lambda found, *, store: f"{URL}{found.pid}"
    )
    yield file
    file.close()


@pytest.mark.requirement("serve-27")
def test_a_second_server_leads_to_the_first(run, served, other):
    second, by_url = run("serve"), run("serve", "--url")
    another = run("serve", "--another")

    assert (second.status, second.out) == (0, f"{URL}4242\n")
    assert by_url.out == second.out
    assert another.out == f"{URL}\n"
    assert len(served) == 1


@pytest.mark.requirement("serve-27")
def test_the_server_of_a_store_beside_it_is_another_one(run, served, other, home):
    result = run("serve", "--url", "--store", str(home / "other.sqlite"))

    assert (result.status, result.out, served) == (3, "", [])


@pytest.mark.requirement("serve-27")
def test_without_a_server_there_is_no_url(run, served, home):
    (home / "serve").mkdir()
    (home / "serve" / "1.json").write_text("{}", encoding="utf-8")
    result = run("serve", "--url")

    assert (result.status, result.out, served) == (3, "", [])
    assert "no server runs on" in result.err
    assert not (home / "serve" / "1.json").exists()


@pytest.mark.requirement("serve-3")
@pytest.mark.parametrize("is_opened", [True, False])
def test_a_browser_is_given_a_private_file_and_no_url(
    run, served, home, monkeypatch, is_opened
):
    shown = []

    def show(address):
        shown.append(address)
        return is_opened

    monkeypatch.setenv("DISPLAY", ":0")
    monkeypatch.setattr("webbrowser.open", show)
    result = run("serve", "--open")
    files = list((home / "serve").glob("open-*.html"))

    assert shown == [files[0].as_uri()]
    assert URL in files[0].read_text(encoding="utf-8")
    assert ("no browser" in result.err) is not is_opened


def test_without_a_display_it_says_how_to_get_there(run, served, home, monkeypatch):
    monkeypatch.setattr(sys, "platform", "linux")
    for name in ("DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)
    result = run("serve", "--open")

    assert "ssh -L 8790:127.0.0.1:8790" in result.err
    assert not list(home.glob("serve/open-*"))


def test_a_unit_starts_the_server_by_an_absolute_path(run, home, monkeypatch):
    monkeypatch.setattr("shutil.which", lambda _: "/opt/a b/crdtmem")
    unit = ConfigParser(interpolation=None)
    text = run("serve", "unit", "systemd").out
    unit.read_string(text)
    told = json.loads(run("serve", "unit", "systemd", "--json").out)
    assert told == {"system": "systemd", "unit": text}
    plist = plistlib.loads(run("serve", "unit", "launchd").out.encode())
    store = str(home / "store.sqlite")

    start = unit["Service"]["ExecStart"]
    assert start == f'"/opt/a b/crdtmem" serve --port 8790 --store {store}'
    assert unit["Service"]["Restart"] == "on-failure"
    assert unit["Install"]["WantedBy"] == "default.target"
    assert plist["ProgramArguments"][:2] == ["/opt/a b/crdtmem", "serve"]
    assert plist["KeepAlive"] == {"SuccessfulExit": False}
    assert plist["RunAtLoad"] is True


def test_a_unit_without_an_installed_command_runs_the_module(run, monkeypatch):
    monkeypatch.setattr("shutil.which", lambda _: None)
    monkeypatch.delenv("CRDTMEM_STORE")
    out = run("serve", "unit", "systemd").out

    assert f"ExecStart={sys.executable} -m crdtmem serve --port 8790\n" in out


@pytest.mark.process
@pytest.mark.requirement("serve-26")
@pytest.mark.requirement("serve-27")
def test_a_server_in_a_process_of_its_own(run, spawn, environment, home):
    child = started(environment)
    told = json.loads(child.stdout.readline())
    second = run("serve", "--json")
    child.terminate()
    err = child.communicate(timeout=50)[1]
    gone = run("serve", "--url")

    assert told["pid"] == child.pid
    assert json.loads(second.out)["pid"] == child.pid
    assert child.returncode == 0, err
    assert gone.status == 3
    assert told["url"].partition("t=")[2] not in err


@pytest.mark.process
@pytest.mark.requirement("serve-26")
def test_a_second_signal_ends_it_at_once_and_loses_nothing(run, environment, home):
    child = started(environment)
    child.stdout.readline()
    run("append", "pending_items", "kept")
    # Two kinds, so that neither is taken for the other.
    child.send_signal(signal.SIGTERM)
    child.send_signal(signal.SIGINT)
    child.communicate(timeout=50)
    with opening.open(home / "store.sqlite", project="demo") as memory:
        view = memory.slot("pending_items").read()

    assert child.returncode in (128 + signal.SIGTERM, 128 + signal.SIGINT)
    assert view.content == "kept"


def started(environment):
    return subprocess.Popen(
        [sys.executable, "-m", "crdtmem", "serve", "--json", "--port", "0"],
        env=environment | {"PYTHONPATH": os.pathsep.join(sys.path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        encoding="utf-8",
    )
