"""crdtmem.sync.token"""

import os

import pytest

from crdtmem.errors import ConfigError, PermissionDeniedError
from crdtmem.sync.token import read_token, token_stamp


@pytest.fixture
def file(tmp_path):
    def write(content, mode=0o600):
        path = tmp_path / "token"
        path.write_bytes(content)
        path.chmod(mode)
        return path

    return write


def test_a_token_is_read_without_the_blanks_around_it(file):
    assert read_token(file(b" cm1_a_b\n")) == "cm1_a_b"


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o666])
def test_a_file_that_others_may_read_is_not_used(file, mode):
    path = file(b"cm1_a_b\n", mode)

    with pytest.raises(PermissionDeniedError, match="others may read it") as refusal:
        read_token(path)

    assert refusal.value.hint == f"run 'chmod 600 {path}'"


def test_a_folder_is_no_token_file(tmp_path):
    with pytest.raises(ConfigError, match="cannot be read"):
        read_token(tmp_path)


def test_a_file_that_is_not_there_is_told(tmp_path):
    with pytest.raises(ConfigError, match="No such file") as refusal:
        read_token(tmp_path / "none")

    assert refusal.value.details["path"] == str(tmp_path / "none")


@pytest.mark.parametrize(
    "content", [b"", b"\n", b"one two", b"\xff\xfe", b"x" * 5_000], ids=repr
)
def test_a_file_without_one_token_is_refused_without_showing_it(file, content):
    with pytest.raises(ConfigError, match="one token and nothing else") as refusal:
        read_token(file(content))

    assert "two" not in str(refusal.value.to_dict())


def test_a_changed_file_has_another_stamp(file, tmp_path):
    assert token_stamp(tmp_path / "token") == 0
    path = file(b"a")
    before = token_stamp(path)
    os.utime(path, ns=(before + 1, before + 1))

    assert token_stamp(path) == before + 1
