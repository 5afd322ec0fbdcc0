"""crdtmem.mirror.syscalls"""

import contextlib
import ctypes
import errno
import os

import pytest

from crdtmem.mirror import syscalls
from crdtmem.mirror.syscalls import (
    FOLDER_FLAGS,
    component,
    exchange_entries,
    link_entry,
    list_names,
    opened,
    sync_folder,
    write_new,
)
from tests.scratch import MEMORY, scratch


@pytest.fixture
def folder_fd(tmp_path):
    fd = os.open(tmp_path, FOLDER_FLAGS)
    yield fd
    os.close(fd)


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "/etc/passwd", "../x", "a\0b"])
def test_a_name_that_leads_elsewhere_is_a_bug_of_the_caller(name, folder_fd):
    with pytest.raises(ValueError, match="not the name of one file"):
        component(name)
    with pytest.raises(ValueError, match="not the name of one file"):
        write_new(folder_fd, name, b"x", mode=0o600)


@pytest.mark.parametrize("name", ["a.md", "..a", "-", "%2e%2e", "C:x", "日本.md"])
def test_any_other_name_is_one_of_this_folder(name, folder_fd, tmp_path):
    write_new(folder_fd, component(name), b"x", mode=0o600)

    assert list_names(folder_fd) == [name]
    assert (tmp_path / name).read_bytes() == b"x"


def test_a_link_is_never_opened(folder_fd, tmp_path):
    (tmp_path / "target").write_bytes(b"x")
    (tmp_path / "link").symlink_to("target")

    with pytest.raises(OSError, match=os.strerror(errno.ELOOP)):
        opened(folder_fd, "link").__enter__()
    with opened(folder_fd, "target") as fd:
        assert os.read(fd, 9) == b"x"


def test_a_new_file_has_the_mode_asked_for_and_never_covers_another(
    folder_fd, tmp_path
):
    mask = os.umask(0o077)
    found = write_new(folder_fd, "a.md", b"a" * 100_000, mode=0o4664)
    os.umask(mask)

    assert (found.st_size, found.st_mode & 0o7777) == (100_000, 0o664)
    with pytest.raises(FileExistsError):
        write_new(folder_fd, "a.md", b"b", mode=0o600)
    assert (tmp_path / "a.md").read_bytes() == b"a" * 100_000


def test_a_file_that_cannot_be_written_whole_is_not_there(
    folder_fd, tmp_path, monkeypatch
):
    def fail(fd):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", fail)

    with pytest.raises(OSError, match=os.strerror(errno.ENOSPC)):
        write_new(folder_fd, "a.md", b"a", mode=0o600)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("code", "is_raised"),
    [(errno.EINVAL, False), (errno.ENOTSUP, False), (errno.EIO, True)],
)
def test_a_file_system_may_not_know_how_to_sync_a_folder(
    folder_fd, code, is_raised, monkeypatch
):
    def fail(fd):
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "fsync", fail)
    expectation = pytest.raises(OSError, match=os.strerror(code))

    with expectation if is_raised else contextlib.nullcontext():
        sync_folder(folder_fd)


def test_two_names_change_places(folder_fd, tmp_path):
    (tmp_path / "a").write_bytes(b"a")
    (tmp_path / "b").write_bytes(b"b")
    numbers = os.stat(tmp_path / "a").st_ino, os.stat(tmp_path / "b").st_ino

    exchange_entries(folder_fd, "a", folder_fd, "b")

    assert (tmp_path / "a").read_bytes() == b"b"
    assert numbers == (os.stat(tmp_path / "b").st_ino, os.stat(tmp_path / "a").st_ino)


def test_names_that_cannot_change_places_stay_as_they_are(folder_fd, tmp_path):
    (tmp_path / "a").write_bytes(b"a")

    with pytest.raises(FileNotFoundError):
        exchange_entries(folder_fd, "a", folder_fd, "b")
    with pytest.raises(FileNotFoundError):
        exchange_entries(folder_fd, "b", folder_fd, "a")
    assert list_names(folder_fd) == ["a"]


@pytest.mark.skipif(
    not os.access(MEMORY, os.W_OK), reason="there is no second file system to write to"
)
def test_files_of_two_file_systems_do_not_change_places(folder_fd, tmp_path):
    with scratch() as other:
        is_one = os.stat(other).st_dev == os.stat(tmp_path).st_dev
        if is_one:  # pragma: no cover - up to where the tests run
            pytest.skip("temporary files lie on the same file system")
        (tmp_path / "a").write_bytes(b"a")
        (other / "b").write_bytes(b"b")
        other_fd = os.open(other, FOLDER_FLAGS)
        try:
            with pytest.raises(OSError, match=os.strerror(errno.EXDEV)):
                exchange_entries(folder_fd, "a", other_fd, "b")
        finally:
            os.close(other_fd)

        assert (other / "b").read_bytes() == b"b"


def test_a_c_library_without_the_call_is_a_system_without_it(
    folder_fd, tmp_path, monkeypatch
):
    (tmp_path / "a").write_bytes(b"a")
    (tmp_path / "b").write_bytes(b"b")
    monkeypatch.setattr(ctypes, "CDLL", lambda name, use_errno: object())
    syscalls._exchange_call.cache_clear()

    try:
        with pytest.raises(OSError, match=os.strerror(errno.ENOSYS)):
            exchange_entries(folder_fd, "a", folder_fd, "b")
    finally:
        syscalls._exchange_call.cache_clear()

    assert (tmp_path / "a").read_bytes() == b"a"


def test_a_second_name_never_covers_a_file_and_never_follows_a_link(
    folder_fd, tmp_path
):
    (tmp_path / "a").write_bytes(b"a")
    (tmp_path / "b").write_bytes(b"b")
    (tmp_path / "link").symlink_to("a")

    with pytest.raises(FileExistsError):
        link_entry(folder_fd, "a", folder_fd, "b")
    link_entry(folder_fd, "link", folder_fd, "c")

    assert (tmp_path / "b").read_bytes() == b"b"
    assert os.readlink(tmp_path / "c") == "a"
