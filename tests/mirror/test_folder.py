"""crdtmem.mirror.folder and crdtmem.mirror.preparing"""

import errno
import itertools
import json
import os
import stat
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path

import pytest

from crdtmem.errors import (
    InvalidArgumentError,
    MirrorBusyError,
    MirrorUnsafeError,
    NetworkFilesystemError,
    PermissionDeniedError,
    StoreFullError,
    UnreadableFileError,
)
from crdtmem.mirror import syscalls
from crdtmem.mirror.folder import PROBLEMS_NAME, STATE_NAME, MirrorFolder
from tests.killpoints import replace_function
from tests.scratch import scratch

NOBODY = 65534
IS_ROOT = os.geteuid() == 0
KEPT = [".gitignore", "lock", "rejected", "swap"]

HOLD = """
import sys
from crdtmem.mirror.folder import MirrorFolder
with MirrorFolder.open(sys.argv[1]):
    print("open", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def place():
    with scratch() as place:
        yield place


@contextmanager
def unprivileged():
    """Do without the rights of root, which no mode stops."""
    user = os.geteuid()
    os.seteuid(NOBODY if IS_ROOT else user)
    try:
        yield
    finally:
        os.seteuid(user)


@contextmanager
def system_says(function, code):
    """Let a system call fail, as another file system's would."""

    def refuse(*args, **options):
        raise OSError(code, os.strerror(code))

    restore = replace_function(syscalls.__name__, function, refuse)
    try:
        yield
    finally:
        restore()


@contextmanager
def mounted(target, size="1m"):
    """Put another small disk at a place, where the test may."""
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(target)],
        check=False,
        capture_output=True,
    )
    if done.returncode:  # pragma: no cover - up to where the tests run
        pytest.skip("mounting is not allowed here")
    try:
        yield
    finally:
        subprocess.run(["umount", str(target)], check=True)


def names_in(folder):
    return sorted(path.name for path in folder.iterdir())


def refusal_of(error, path, **options):
    with pytest.raises(error) as caught:
        MirrorFolder.open(path, **options).close()
    return caught.value


def test_a_folder_is_settled_in_for_its_user_only(place):
    mask = os.umask(0)
    try:
        with MirrorFolder.open(place) as folder:
            assert names_in(place) == [STATE_NAME]
            assert names_in(place / STATE_NAME) == KEPT
            assert names_in(place / STATE_NAME / "swap") == []
            assert folder.path == place
    finally:
        os.umask(mask)

    modes = {
        path.name: stat.S_IMODE(path.stat().st_mode)
        for path in [place / STATE_NAME, *(place / STATE_NAME).iterdir()]
    }
    assert modes == {
        STATE_NAME: 0o700,
        "swap": 0o700,
        "rejected": 0o700,
        "lock": 0o600,
        ".gitignore": 0o600,
    }
    ignored = place / STATE_NAME / ".gitignore"
    assert ignored.read_text(encoding="utf-8") == "*\n"


def test_a_folder_that_others_could_look_into_is_closed_to_them(place):
    (place / STATE_NAME).mkdir(mode=0o755)
    (place / STATE_NAME / ".gitignore").write_bytes(b"mine\n")

    with MirrorFolder.open(place):
        assert stat.S_IMODE((place / STATE_NAME).stat().st_mode) == 0o700
        assert (place / STATE_NAME / ".gitignore").read_bytes() == b"mine\n"


def test_the_folder_itself_may_be_a_link(place):
    (place / "real").mkdir()
    (place / "link").symlink_to("real")
    with MirrorFolder.open(place / "link") as folder:
        (place / "real" / "a.md").write_bytes(b"one\n")

        assert folder.path == place / "real"
        assert folder.names() == [STATE_NAME, "a.md"]
        assert folder.read("a.md")[0] == b"one\n"
        assert folder.is_intact()


@pytest.mark.parametrize("name", ["missing", "file", "file/below", "circle"])
def test_without_a_folder_there_is_nothing_to_mirror(place, name):
    (place / "file").write_bytes(b"")
    (place / "circle").symlink_to("circle")

    error = refusal_of(InvalidArgumentError, place / name)

    assert (error.argument, error.details["path"]) == ("folder", str(place / name))
    assert error.hint == f"run 'mkdir -p {place / name}'"
    assert names_in(place) == ["circle", "file"]


def test_a_folder_that_other_machines_write_to_is_refused(place):
    mounts = "36 35 98:0 / / rw - nfs4 server:/home rw\n"

    error = refusal_of(NetworkFilesystemError, place, mountinfo=mounts)

    assert (error.code, error.details["filesystem"]) == ("network-filesystem", "nfs4")
    assert names_in(place) == []


@pytest.mark.parametrize("mode", [0o500, 0o300, 0o600])
def test_a_folder_that_cannot_be_used_is_refused(mode):
    # Others can reach it, unlike a folder of tmp_path.
    with tempfile.TemporaryDirectory() as name:
        os.chown(name, NOBODY if IS_ROOT else -1, -1)
        os.chmod(name, mode)
        with unprivileged():
            error = refusal_of(PermissionDeniedError, name)
        os.chmod(name, 0o700)

        assert (error.code, error.details["action"]) == ("permission-denied", "mirror")
        assert os.listdir(name) == []


@pytest.mark.skipif(not IS_ROOT, reason="only root gives files away")
def test_what_another_user_keeps_there_is_not_trusted(place):
    (place / STATE_NAME).mkdir(mode=0o700)
    os.chown(place / STATE_NAME, NOBODY, -1)

    error = refusal_of(PermissionDeniedError, place)

    assert "user 65534" in str(error)
    assert error.hint == f"run 'rm -r {place / STATE_NAME}': the files stay"
    assert names_in(place / STATE_NAME) == []


@pytest.mark.parametrize(
    ("name", "what"),
    [
        *itertools.product(["", "swap", "rejected"], ["link", "file"]),
        *itertools.product(["lock"], ["link", "folder"]),
    ],
)
def test_what_is_in_the_way_of_a_mirrors_files_is_neither_used_nor_removed(
    place, name, what
):
    (place / "elsewhere").mkdir()
    path = place / STATE_NAME / name
    path.parent.mkdir(exist_ok=True)
    if what == "link":
        path.symlink_to(place / "elsewhere")
    elif what == "file":
        path.write_bytes(b"mine\n")
    else:
        path.mkdir()
    before = os.lstat(path)

    error = refusal_of(PermissionDeniedError, place)

    assert error.details["path"] == str(place / STATE_NAME)
    assert os.lstat(path).st_ino == before.st_ino
    assert names_in(place / "elsewhere") == []


def test_a_second_mirror_of_a_folder_is_told_who_has_it(place):
    with MirrorFolder.open(place):
        error = refusal_of(MirrorBusyError, place)
    assert (error.code, error.details) == (
        "mirror-busy",
        {"folder": str(place), "pid": os.getpid()},
    )

    with MirrorFolder.open(place) as folder:
        folder.close()
        folder.close()
        with MirrorFolder.open(place):
            pass


@pytest.mark.process
def test_a_killed_mirror_leaves_the_folder_to_the_next(place):
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(place)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=Path(__file__).resolve().parents[2],
    )
    with holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"open\n"
        error = refusal_of(MirrorBusyError, place)
        holder.kill()

    assert error.details["pid"] == holder.pid
    assert str(error) == f"process {holder.pid} mirrors {place} already"
    with MirrorFolder.open(place) as folder:
        assert folder.is_intact()


def test_a_holder_that_has_not_signed_yet_is_not_named(place):
    with MirrorFolder.open(place):
        os.truncate(place / STATE_NAME / "lock", 0)
        error = refusal_of(MirrorBusyError, place)

    assert error.details["pid"] is None


# How files can be replaced.


def test_whether_files_can_be_exchanged_is_tried_and_leaves_nothing(place):
    with MirrorFolder.open(place) as folder:
        assert folder.can_exchange == (sys.platform in {"linux", "darwin"})
        assert folder.names() == [STATE_NAME]
        assert folder.swap_names() == []


@pytest.mark.parametrize("code", [errno.ENOSYS, errno.EINVAL, errno.ENOTSUP])
def test_where_files_cannot_be_exchanged_they_are_moved_aside(place, code):
    with system_says("exchange_entries", code), MirrorFolder.open(place) as folder:
        (place / "a.md").write_bytes(b"old\n")
        folder.write_swap("7", b"new\n", 0o600)

        assert not folder.can_exchange
        assert folder.replace("a.md", "7") == ("7.old", True)
        assert folder.names() == [STATE_NAME, "a.md"]
    assert (place / "a.md").read_bytes() == b"new\n"


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        (errno.EPERM, "its file system knows no hard links"),
        (errno.ENOTSUP, "its file system knows no hard links"),
        (errno.EXDEV, f"{STATE_NAME} is on another file system"),
    ],
)
def test_where_files_cannot_be_linked_there_is_no_mirror(place, code, reason):
    with system_says("link_entry", code):
        error = refusal_of(MirrorUnsafeError, place)

    assert (error.code, error.details["reason"]) == ("mirror-unsafe-filesystem", reason)
    assert names_in(place) == [STATE_NAME]
    assert names_in(place / STATE_NAME / "swap") == []


@pytest.mark.parametrize("function", ["link_entry", "exchange_entries"])
def test_another_fault_of_the_disk_is_passed_on(place, function):
    with system_says(function, errno.EIO):
        error = refusal_of(OSError, place)

    assert error.errno == errno.EIO
    # The lock was given back.
    with MirrorFolder.open(place):
        pass


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT])
def test_on_a_full_disk_there_is_no_mirror(place, code):
    with system_says("write_new", code):
        error = refusal_of(StoreFullError, place)

    assert (error.code, error.details["path"]) == ("store-full", str(place))


def test_a_mirrors_files_on_another_disk_are_refused(place):
    (place / STATE_NAME).mkdir()
    with mounted(place / STATE_NAME):
        error = refusal_of(MirrorUnsafeError, place)

    assert error.details["reason"] == f"{STATE_NAME} is on another file system"


def test_a_disk_that_is_really_full_costs_neither_the_file_nor_the_mirror(place):
    with mounted(place, "64k"):
        (place / "a.md").write_bytes(b"old\n")
        with MirrorFolder.open(place) as folder:
            with pytest.raises(OSError, match=os.strerror(errno.ENOSPC)):
                folder.write_swap("7", b"x" * 100_000, 0o600)
            assert folder.swap_names() == []
            assert (place / "a.md").read_bytes() == b"old\n"

            folder.write_swap("7", b"new\n", 0o600)
            folder.replace("a.md", "7")
            assert (place / "a.md").read_bytes() == b"new\n"


@pytest.mark.parametrize("exchange", [True, False])
def test_the_way_to_replace_files_can_be_told(place, exchange):
    with MirrorFolder.open(place, exchange=exchange) as folder:
        assert folder.can_exchange == exchange


# The files.


def test_all_names_of_the_folder_are_told_and_none_below(place):
    (place / "below").mkdir()
    (place / "below" / "b.md").write_bytes(b"")
    for name in ("日本.md", ".hidden", "a b.md", os.fsdecode(b"\xff.md")):
        (place / name).write_bytes(b"")

    with MirrorFolder.open(place) as folder:
        assert folder.names() == sorted(
            [STATE_NAME, "below", "日本.md", ".hidden", "a b.md", "\udcff.md"]
        )
        assert folder.read("\udcff.md")[0] == b""


@pytest.mark.parametrize("name", ["../x", "/etc/passwd", "a\0b", "..", ""])
def test_no_name_leads_outside_of_the_folder(place, name):
    (place / "inside").mkdir()
    (place / "x").write_bytes(b"secret\n")
    with MirrorFolder.open(place / "inside") as folder:
        folder.write_swap("7", b"new\n", 0o600)
        for call in (
            lambda: folder.read(name),
            lambda: folder.stat(name),
            lambda: folder.replace(name, "7"),
            lambda: folder.create(name, "7"),
            lambda: folder.retire(name, "8"),
            lambda: folder.read_swap(name, limit_bytes=9),
            lambda: folder.write_swap(name, b"", 0o600),
            lambda: folder.unlink_swap(name),
        ):
            with pytest.raises(ValueError, match="not the name of one file"):
                call()

    assert (place / "x").read_bytes() == b"secret\n"
    assert names_in(place) == ["inside", "x"]
    assert names_in(place / "inside") == [STATE_NAME]


def test_of_a_link_the_stat_is_its_own(place):
    (place / "a.md").symlink_to("/etc/passwd")
    with MirrorFolder.open(place) as folder:
        found = folder.stat("a.md")
        assert found is not None
        assert stat.S_ISLNK(found.mode)
        assert folder.stat("b.md") is None
        with pytest.raises(UnreadableFileError):
            folder.read("a.md")


def remove_state(place):
    (place / STATE_NAME).rename(place / "gone")


def replace_lock(place):
    (place / STATE_NAME / "lock").unlink()
    (place / STATE_NAME / "lock").write_bytes(b"")


def remove_swap(place):
    (place / STATE_NAME / "swap").rmdir()


def replace_place(place):
    place.rename(place.with_name("moved"))
    place.mkdir()


@pytest.mark.parametrize(
    "change", [remove_state, replace_lock, remove_swap, replace_place]
)
def test_a_folder_that_is_another_or_lost_its_parts_is_not_intact(place, change):
    inside = place / "inside"
    inside.mkdir()
    with MirrorFolder.open(inside) as folder:
        assert folder.is_intact()
        assert folder.place().ino == inside.stat().st_ino
        change(inside)

        assert not folder.is_intact()


def test_a_folder_hidden_by_a_mount_is_not_intact(place):
    with MirrorFolder.open(place) as folder:
        with mounted(place):
            assert not folder.is_intact()
        assert folder.is_intact()


def test_a_removed_folder_has_no_names(place):
    inside = place / "inside"
    inside.mkdir()
    with MirrorFolder.open(inside) as folder:
        (inside / STATE_NAME).rename(place / "state")
        inside.rmdir()

        assert (folder.names(), folder.is_intact()) == ([], False)


# What is kept.


def test_the_ids_are_read_back_as_they_were_written(place):
    with MirrorFolder.open(place) as folder:
        assert folder.read_id() is None
        folder.write_id("m_1", "00ff")
        assert folder.read_id() == ("m_1", "00ff")
    with MirrorFolder.open(place) as folder:
        assert folder.read_id() == ("m_1", "00ff")


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[]", b"{}", b'"m"', b"\xff", b'{"mirror": "m"}', b"7"]
)
def test_ids_that_cannot_be_read_are_none(place, content):
    with MirrorFolder.open(place) as folder:
        (place / STATE_NAME / "id").write_bytes(content)
        assert folder.read_id() is None


def test_a_mirror_keeps_its_status_its_problems_and_what_it_rejects(place):
    with MirrorFolder.open(place) as folder:
        folder.write_status({"files": 1})
        assert folder.write_problems("a.md: not UTF-8")
        name = folder.reject("plan", b"late\n", 0)

    state = place / STATE_NAME
    assert json.loads((state / "status.json").read_bytes()) == {"files": 1}
    assert (state / "rejected" / name).read_bytes() == b"late\n"
    assert (place / PROBLEMS_NAME).exists()


def test_a_dry_run_looks_and_changes_nothing(place):
    (place / "a.md").write_bytes(b"old\n")
    with MirrorFolder.open(place, dry_run=True) as folder:
        assert (folder.names(), folder.read_id()) == (["a.md"], None)
        assert folder.read("a.md")[0] == b"old\n"
        assert folder.is_intact()
    assert names_in(place) == ["a.md"]

    with MirrorFolder.open(place) as folder:
        folder.write_id("m_1", "00ff")
        # Nor does it mind who has the lock.
        with MirrorFolder.open(place, dry_run=True) as dry:
            assert (dry.read_id(), dry.swap_names()) == (("m_1", "00ff"), [])
            for call in (
                lambda: dry.write_id("m_2", "00ff"),
                lambda: dry.write_status({}),
                lambda: dry.write_problems("x"),
                lambda: dry.reject("plan", b"x", 0),
                lambda: dry.write_swap("7", b"x", 0o600),
            ):
                with pytest.raises(RuntimeError, match="dry run"):
                    call()
        assert folder.read_id() == ("m_1", "00ff")
    assert names_in(place / STATE_NAME) == [*KEPT[:1], "id", *KEPT[1:]]
    assert names_in(place / STATE_NAME / "rejected") == []


def test_no_descriptor_is_left_behind(place):
    def count():
        return len(os.listdir("/proc/self/fd"))

    with MirrorFolder.open(place):
        before = count()
        refusal_of(MirrorBusyError, place)
    after = count()
    for _ in range(50):
        with MirrorFolder.open(place) as folder:
            folder.names()
            folder.write_id("m_1", "00ff")
            folder.read_id()

    assert before > after
    assert count() == after
