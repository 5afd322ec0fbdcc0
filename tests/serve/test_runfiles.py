"""Run files: which servers run on a store, and how they are asked."""

import json
import os
import stat

import pytest

from crdtmem.errors import ServeNotRunningError
from crdtmem.limits import SERVE_OPEN_FILE_S
from crdtmem.serve.runfiles import (
    RunFile,
    Running,
    folder_for,
    invitation,
    open_file,
    running_servers,
    sweep_open_files,
)


def running(pid=1, started_at="2026-01-01T00:00:00.000Z", port=1, *, is_tls=False):
    return Running(
        pid=pid,
        port=port,
        address="127.0.0.1",
        base="http://127.0.0.1:1",
        control="token",
        started_at=started_at,
        read_only=False,
        is_tls=is_tls,
        store="store.db",
    )


@pytest.mark.requirement("serve-27")
def test_a_server_is_found_as_long_as_it_runs(tmp_path):
    folder = folder_for(tmp_path / "store.db")
    old = RunFile(folder, running())
    new = RunFile(folder, running(2, "2026-01-02T00:00:00.000Z"))
    both = [one.pid for one in running_servers(folder)]
    modes = [stat.S_IMODE(os.stat(p).st_mode) for p in (folder, new.path)]
    new.close()
    new.close()
    left = running_servers(folder)
    old.close()

    assert both == [2, 1]
    assert modes == [0o700, 0o600]
    assert left == [running()]
    assert running_servers(folder) == []


@pytest.mark.requirement("serve-27")
def test_what_a_dead_server_has_left_is_taken_away(tmp_path):
    stale = tmp_path / "7.json"
    stale.write_text(json.dumps(running(7)._asdict()), encoding="utf-8")

    found = running_servers(tmp_path)

    assert found == []
    assert not stale.exists()
    assert running_servers(tmp_path / "absent") == []


def test_a_file_that_is_just_being_written_is_no_server_yet(tmp_path):
    file = RunFile(tmp_path, running())
    file.path.write_text("{", encoding="utf-8")
    torn = running_servers(tmp_path)
    file.path.write_text('{"pid": 1}', encoding="utf-8")
    other = running_servers(tmp_path)
    exists = file.path.exists()
    file.close()

    assert torn == other == []
    assert exists


def test_a_process_with_a_number_that_was_used_before_makes_its_file_anew(tmp_path):
    (tmp_path / "1.json").write_text("old", encoding="utf-8")

    file = RunFile(tmp_path, running())
    found = running_servers(tmp_path)
    file.close()

    assert found == [running()]


def test_a_broken_link_is_no_server(tmp_path):
    (tmp_path / "1.json").symlink_to(tmp_path / "absent")

    assert running_servers(tmp_path) == []


@pytest.mark.parametrize("is_tls", [False, True])
def test_a_server_that_does_not_answer_is_not_running(tmp_path, is_tls):
    with pytest.raises(ServeNotRunningError) as caught:
        invitation(running(is_tls=is_tls), store=tmp_path)

    assert caught.value.exit_status == 3
    assert str(tmp_path) in caught.value.message


@pytest.mark.requirement("serve-3")
def test_the_file_that_leads_to_the_url_is_private_and_soon_gone(tmp_path):
    path = open_file(tmp_path / "serve", "http://127.0.0.1:1/login?t=abc", "name")
    text = path.read_text(encoding="utf-8")
    mode = stat.S_IMODE(path.stat().st_mode)
    made_s = path.stat().st_mtime

    sweep_open_files(path.parent, made_s + SERVE_OPEN_FILE_S - 1)
    before = path.exists()
    sweep_open_files(path.parent, made_s + SERVE_OPEN_FILE_S)

    assert mode == 0o600
    assert "url=http://127.0.0.1:1/login?t=abc" in text
    assert before
    assert not path.exists()
