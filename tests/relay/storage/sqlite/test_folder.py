"""relay.storage.sqlite.folder"""

import os
import stat
import tempfile
from pathlib import Path

import pytest

from crdtmem.errors import (
    PermissionDeniedError,
    RelayFolderError,
    RelayRunningError,
)
from relay.storage.sqlite.folder import (
    HighWater,
    database_of,
    init_folder,
    locked_folder,
    read_high_water,
    write_high_water,
)
from tests.store.test_lock import unprivileged

MARK = HighWater(b"r" * 16, b"e" * 16, 7)


@pytest.fixture
def closed_folder():
    """A folder in which nobody without the rights of root can make anything."""
    with tempfile.TemporaryDirectory() as name:
        os.chmod(name, 0o555)
        yield Path(name)
        os.chmod(name, 0o700)


def modes(*paths):
    return [stat.S_IMODE(path.stat().st_mode) for path in paths]


def test_a_new_relay_is_its_owners_alone(tmp_path):
    init_folder(tmp_path / "a" / "b", now_ms=0)

    assert modes(tmp_path / "a" / "b", tmp_path / "a" / "b" / "relay.db") == [
        0o700,
        0o600,
    ]


def test_an_empty_folder_may_become_a_relay(tmp_path):
    init_folder(tmp_path, now_ms=0)

    assert database_of(tmp_path) == tmp_path / "relay.db"


def test_a_folder_with_something_in_it_becomes_no_relay(tmp_path):
    (tmp_path / "notes").write_text("mine", encoding="utf-8")
    with pytest.raises(RelayFolderError) as refused:
        init_folder(tmp_path, now_ms=0)

    assert str(refused.value) == f"{tmp_path} is not empty"
    assert refused.value.exit_status == 2
    assert os.listdir(tmp_path) == ["notes"]


def test_a_file_becomes_no_relay(tmp_path):
    (tmp_path / "notes").write_text("mine", encoding="utf-8")
    for path in (tmp_path / "notes", tmp_path / "notes" / "relay"):
        with pytest.raises(RelayFolderError, match="is no folder"):
            init_folder(path, now_ms=0)

    assert (tmp_path / "notes").read_text(encoding="utf-8") == "mine"


def test_a_folder_that_may_not_be_written_becomes_no_relay(closed_folder):
    for path in (closed_folder, closed_folder / "relay"):
        with unprivileged(), pytest.raises(PermissionDeniedError) as refused:
            init_folder(path, now_ms=0)
        assert refused.value.details == {"path": str(path), "action": "write to"}

    assert os.listdir(closed_folder) == []


def test_a_folder_without_a_relay_is_told(tmp_path):
    with pytest.raises(RelayFolderError) as refused:
        database_of(tmp_path)

    assert str(refused.value) == f"{tmp_path} holds no relay"
    assert refused.value.hint == f"run 'crdtmem relay init {tmp_path}'"


def test_one_at_a_time_serves_a_folder(folder):
    with locked_folder(folder):
        with pytest.raises(RelayRunningError) as refused:
            locked_folder(folder).__enter__()
        assert refused.value.details == {"path": str(folder)}
        assert (refused.value.code, refused.value.exit_status) == ("relay-running", 6)
    with locked_folder(folder):
        assert (folder / "relay.lock").exists()


def test_a_folder_that_may_not_be_written_is_not_served(closed_folder):
    with unprivileged(), pytest.raises(PermissionDeniedError) as refused:
        locked_folder(closed_folder).__enter__()

    assert refused.value.details["action"] == "write to"


def test_a_note_of_the_total_is_read_as_it_was_written(folder):
    write_high_water(folder, HighWater(b"r" * 16, b"e" * 16, 3))
    write_high_water(folder, MARK)

    assert read_high_water(folder) == MARK
    assert sorted(os.listdir(folder)) == ["relay.db", "relay.hwm"]


@pytest.mark.parametrize(
    "content",
    [
        None,
        b"",
        b"{}",
        b"[]",
        b"\xff",
        b'{"relay_id": "zz", "epoch": "", "total": 1}',
        b'{"relay_id": "00", "epoch": "", "total": "1"}',
        b'{"total": ' + b"1" * 5_000 + b"}",
    ],
)
def test_a_note_that_says_nothing_is_no_note(folder, content):
    if content is not None:
        (folder / "relay.hwm").write_bytes(content)

    assert read_high_water(folder) is None
