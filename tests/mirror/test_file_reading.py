"""crdtmem.mirror.reading"""

import functools
import os
import socket

import pytest

from crdtmem.errors import UnreadableFileError
from crdtmem.limits import MIRROR_READS_MAX, TEXT_BYTES
from crdtmem.mirror import reading
from crdtmem.mirror.reading import UNSETTLED_NS, FileStat, read_plain, read_settled
from crdtmem.mirror.syscalls import FOLDER_FLAGS
from tests.killpoints import KillPoint, install

NOBODY = 65534
HOUR_NS = 3_600 * 10**9
IS_ROOT = os.geteuid() == 0


@pytest.fixture
def folder_fd(tmp_path):
    fd = os.open(tmp_path, FOLDER_FLAGS)
    yield fd
    os.close(fd)


def refusal_of(folder_fd, name):
    with pytest.raises(UnreadableFileError) as caught:
        read_plain(folder_fd, name)
    return caught.value.code, str(caught.value)


def test_a_file_is_read_with_the_stat_that_belongs_to_its_bytes(folder_fd, tmp_path):
    (tmp_path / "a.md").write_bytes(b"one\n")

    data, found = read_plain(folder_fd, "a.md")

    assert data == b"one\n"
    assert found.unsettled() == FileStat.of(os.stat(tmp_path / "a.md")).unsettled()
    assert (found.is_plain, found.is_folder, found.size) == (True, False, 4)


def test_a_file_that_is_not_there_is_no_refusal(folder_fd):
    with pytest.raises(FileNotFoundError):
        read_plain(folder_fd, "a.md")


@pytest.mark.parametrize("target", ["outside.md", "missing.md", "."])
def test_a_link_is_never_followed(folder_fd, tmp_path, target):
    (tmp_path / "outside.md").write_bytes(b"secret\n")
    (tmp_path / "a.md").symlink_to(target)

    assert refusal_of(folder_fd, "a.md") == (
        "mirror-not-a-file",
        "it is a link, a folder or something else, no plain file",
    )


def test_what_is_no_file_is_refused_without_waiting(folder_fd, tmp_path, monkeypatch):
    (tmp_path / "folder.md").mkdir()
    os.mkfifo(tmp_path / "fifo.md")
    with socket.socket(socket.AF_UNIX) as listener:
        # The name of a socket may not be long.
        monkeypatch.chdir(tmp_path)
        listener.bind("socket.md")

        codes = [
            refusal_of(folder_fd, f"{name}.md")[0]
            for name in ("folder", "fifo", "socket")
        ]

    assert codes == ["mirror-not-a-file"] * 3


def test_a_file_that_becomes_something_else_just_now_is_refused(folder_fd, tmp_path):
    path = tmp_path / "a.md"

    def becomes(what):
        path.unlink()
        what()

    codes = []
    for what in (functools.partial(path.symlink_to, "b.md"), lambda: os.mkfifo(path)):
        path.write_bytes(b"one\n")
        point = KillPoint(reading.__name__, "opened", "before")
        uninstall = install(point, functools.partial(becomes, what))
        try:
            codes.append(refusal_of(folder_fd, "a.md")[0])
        finally:
            uninstall()
        path.unlink()

    assert codes == ["mirror-not-a-file"] * 2


def test_another_fault_of_the_system_is_passed_on(folder_fd, tmp_path):
    (tmp_path / "a.md").write_bytes(b"one\n")

    def fail():
        raise OSError(5, "Input/output error")

    uninstall = install(KillPoint(reading.__name__, "opened", "before"), fail)
    try:
        with pytest.raises(OSError, match="Input/output error"):
            read_plain(folder_fd, "a.md")
    finally:
        uninstall()


def test_a_file_with_two_names_is_refused(folder_fd, tmp_path):
    (tmp_path / "a.md").write_bytes(b"one\n")
    os.link(tmp_path / "a.md", tmp_path / "b.md")

    assert refusal_of(folder_fd, "a.md") == (
        "mirror-hard-link",
        "the file has 2 names (hard links)",
    )


@pytest.mark.skipif(not IS_ROOT, reason="only root gives files away")
def test_another_users_file_is_refused(folder_fd, tmp_path):
    (tmp_path / "a.md").write_bytes(b"one\n")
    os.chown(tmp_path / "a.md", NOBODY, -1)

    assert refusal_of(folder_fd, "a.md") == (
        "mirror-foreign-owner",
        "it belongs to user 65534, and the mirror runs as 0",
    )


def test_a_file_that_its_user_may_not_read_is_refused(folder_fd, tmp_path):
    (tmp_path / "a.md").write_bytes(b"one\n")
    (tmp_path / "a.md").chmod(0)
    os.chown(tmp_path / "a.md", NOBODY if IS_ROOT else -1, -1)
    tmp_path.chmod(0o755)

    user = os.geteuid()
    os.seteuid(NOBODY if IS_ROOT else user)
    try:
        refusal = refusal_of(folder_fd, "a.md")
    finally:
        os.seteuid(user)

    assert refusal == ("permission-denied", "the system does not let this user read it")


def test_a_file_is_read_up_to_the_longest_text_and_no_further(folder_fd, tmp_path):
    path = tmp_path / "a.md"
    path.write_bytes(b"a" * TEXT_BYTES)

    assert len(read_plain(folder_fd, "a.md")[0]) == TEXT_BYTES
    # As large as a disk, without taking space on it.
    os.truncate(path, 2**33)
    assert refusal_of(folder_fd, "a.md") == (
        "text-too-large",
        "it is longer than 1,048,576 bytes (8,589,934,592)",
    )


def test_a_part_of_a_file_is_read(tmp_path):
    (tmp_path / "a").write_bytes(b"0123456789")
    with open(tmp_path / "a", "rb") as file:
        data, found = read_settled(file.fileno(), limit_bytes=4)

    assert (data, found.size) == (b"0123", 10)


def test_a_file_of_any_length_is_read_whole_without_a_limit_taking_memory(tmp_path):
    content = os.urandom(1_000_003)
    (tmp_path / "a").write_bytes(content)
    with open(tmp_path / "a", "rb") as file:
        data, _ = read_settled(file.fileno(), limit_bytes=2**62)

    assert data == content


def test_a_file_that_changes_under_the_reading_is_read_again(tmp_path):
    path = tmp_path / "a"
    path.write_bytes(b"first\n")
    with open(path, "rb") as file:
        point = KillPoint(reading.__name__, "_read", "after")
        uninstall = install(point, lambda: path.write_bytes(b"second\n"), nth=1)
        try:
            data, _ = read_settled(file.fileno(), limit_bytes=100)
        finally:
            uninstall()

    assert data == b"second\n"


def test_a_file_that_never_stands_still_is_read_all_the_same(tmp_path):
    path = tmp_path / "a"
    path.write_bytes(b"line\n")
    with open(path, "rb") as file, open(path, "ab", buffering=0) as writer:
        point = KillPoint(reading.__name__, "_read", "after")
        uninstall = install(point, lambda: writer.write(b"more\n"))
        try:
            data, found = read_settled(file.fileno(), limit_bytes=100)
        finally:
            uninstall()

    assert data == b"line\n" + b"more\n" * (MIRROR_READS_MAX - 1)
    assert (found.size, found.ctime_ns) == (len(data), UNSETTLED_NS)


def test_a_change_too_young_to_tell_the_next_one_from_it_is_not_relied_on(tmp_path):
    path = tmp_path / "a"
    path.write_bytes(b"one\n")
    with open(path, "rb") as file:
        _, found = read_settled(file.fileno(), limit_bytes=100)

    assert found == FileStat.of(os.stat(path)).unsettled()
    assert found != FileStat.of(os.stat(path))


@pytest.mark.parametrize(
    ("changed_ns", "is_past"),
    [
        (HOUR_NS - 1_000, False),
        (HOUR_NS - 19_999_999, False),
        (HOUR_NS - 20_000_001, True),
        # Whole seconds: as if the file system kept no more.
        (HOUR_NS - 1_000_000_000, False),
        (HOUR_NS - 3_000_000_000, True),
        # A clock that was put back.
        (HOUR_NS + 5_000_000_001, False),
    ],
)
def test_a_change_is_relied_on_once_the_next_one_would_show(changed_ns, is_past):
    found = FileStat(1, 2, 3, changed_ns, changed_ns, 0o100600, 1, 0)
    older = found._replace(mtime_ns=1)

    assert reading._is_past(found, HOUR_NS) == is_past
    assert reading._is_past(older, HOUR_NS) == is_past
