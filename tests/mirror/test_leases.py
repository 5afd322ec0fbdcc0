"""crdtmem.mirror.leases"""

import errno
import os
import signal
import subprocess
import sys

import pytest

from crdtmem.mirror import leases
from crdtmem.mirror.leases import leased, writers_of
from tests.killpoints import replace_function

pytestmark = [
    pytest.mark.process,
    pytest.mark.skipif(sys.platform != "linux", reason="leases are Linux's"),
]

# Opens a file for writing as it is told, and says how that went.
OBEY = """
import os, sys
path = sys.argv[1]
opened = None
for line in sys.stdin:
    if line == "try\\n":
        try:
            os.close(os.open(path, os.O_WRONLY | os.O_NONBLOCK))
            print("opened", flush=True)
        except BlockingIOError:
            print("held up", flush=True)
    elif line == "open\\n":
        opened = os.open(path, os.O_WRONLY | os.O_APPEND)
        os.write(opened, b"late\\n")
        print("opened", flush=True)
    else:
        os.close(opened)
        print("closed", flush=True)
"""


class Writer:
    def __init__(self, path):
        self.process = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", OBEY, str(path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            encoding="ascii",
        )
        self.pid = self.process.pid

    def tell(self, word):
        assert self.process.stdin is not None
        self.process.stdin.write(f"{word}\n")
        self.process.stdin.flush()

    def answer(self):
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def does(self, word):
        self.tell(word)
        return self.answer()


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "retired"
    path.write_bytes(b"line\n")
    return path


@pytest.fixture
def fd(path):
    fd = os.open(path, os.O_RDONLY)
    yield fd
    os.close(fd)


@pytest.fixture
def writer(path):
    writer = Writer(path)
    with writer.process:
        yield writer
        writer.process.kill()


def is_unwatched(fd):
    with leased(fd) as granted:
        return granted


def test_a_file_is_unwatched_only_while_nobody_has_it_open_for_writing(fd, writer):
    before = is_unwatched(fd)
    writer.does("open")
    meanwhile = is_unwatched(fd)
    writer.does("close")

    assert (before, meanwhile, is_unwatched(fd)) == (True, False, True)


def test_who_only_reads_a_file_does_not_count(fd, path):
    with open(path, "rb"):
        assert is_unwatched(fd) is True


@pytest.mark.requirement("mirror-24")
def test_who_opens_a_leased_file_waits_and_its_signal_kills_nobody(fd, path, writer):
    assert signal.getsignal(signal.SIGURG) == signal.SIG_DFL

    with leased(fd) as granted:
        assert granted is True
        # The first try has the kernel ask for the lease back, by a signal.
        assert writer.does("try") == "held up"
        writer.tell("open")
        assert os.pread(fd, 100, 0) == b"line\n"
        # May be removed under it; the writer then gets a file without a name, or none.
        os.rename(path, path.with_name("elsewhere"))
        os.rename(path.with_name("elsewhere"), path)

    assert writer.answer() == "opened"
    assert path.read_bytes() == b"line\nlate\n"


def test_a_leased_file_can_be_unlinked(fd, path, writer):
    with leased(fd):
        path.unlink()

    assert not path.exists()
    assert os.fstat(fd).st_nlink == 0


def test_a_lease_is_given_back_however_its_block_ends(fd, writer):
    with pytest.raises(KeyError), leased(fd):
        raise KeyError

    assert writer.does("try") == "opened"


@pytest.mark.parametrize("code", [errno.EACCES, errno.EINVAL, errno.ENOLCK])
def test_where_leases_are_not_to_be_had_nobody_can_tell(fd, code):
    def refuse(fd, kind):
        raise OSError(code, os.strerror(code))

    restore = replace_function(leases.__name__, "set_lease", refuse)
    try:
        with leased(fd) as granted:
            assert granted is None
    finally:
        restore()


def test_who_has_a_file_open_for_writing_is_found(fd, path, writer):
    found = os.fstat(fd)
    before = writers_of(found.st_dev, found.st_ino)
    writer.does("open")
    with open(path, "ab"):
        both = writers_of(found.st_dev, found.st_ino)
    path.rename(path.with_name("elsewhere"))

    assert before == []
    assert sorted(both) == sorted([os.getpid(), writer.pid])
    assert writers_of(found.st_dev, found.st_ino) == [writer.pid]
    assert writers_of(found.st_dev + 1, found.st_ino) == []


def fake_proc(folder, processes):
    """Write what /proc shows: of each process, descriptors as their text."""
    for pid, descriptors in processes.items():
        for number, (text, target) in enumerate(descriptors):
            for name in ("fd", "fdinfo"):
                (folder / str(pid) / name).mkdir(parents=True, exist_ok=True)
            (folder / str(pid) / "fdinfo" / str(number)).write_text(
                text, encoding="ascii"
            )
            (folder / str(pid) / "fd" / str(number)).symlink_to(target)
    return folder


def test_an_older_kernel_that_tells_no_file_number_is_asked_for_the_stat(
    path, tmp_path, monkeypatch
):
    found = os.stat(path)
    proc = fake_proc(
        tmp_path / "proc",
        {
            7: [("pos:\t0\nflags:\t0100002\n", path)],
            8: [("pos:\t0\nflags:\t0100000\n", path)],
            9: [("pos:\t0\nflags:\t0100001\n", tmp_path)],
            10: [("pos:\t0\nflags:\t0100001\n", tmp_path / "gone")],
            11: [("flags:\t0999\n", path)],
        },
    )
    (proc / "12").mkdir()
    (proc / "self").mkdir()
    monkeypatch.setattr(leases, "_PROC", proc)

    assert writers_of(found.st_dev, found.st_ino) == [7]


def test_no_more_descriptors_are_looked_at_than_a_warning_is_worth(
    path, tmp_path, monkeypatch
):
    found = os.stat(path)
    writing = ("flags:\t0100002\n", path)
    proc = fake_proc(tmp_path / "proc", {7: [writing], 8: [writing], 9: [writing]})
    monkeypatch.setattr(leases, "_PROC", proc)
    monkeypatch.setattr(leases, "WRITERS_SEEN_MAX", 2)

    assert writers_of(found.st_dev, found.st_ino) == [7, 8]
