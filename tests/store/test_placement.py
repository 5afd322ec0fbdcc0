"""crdtmem.store.placement"""

import os
import tempfile
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from crdtmem.errors import (
    NetworkFilesystemError,
    PermissionDeniedError,
    StoreNotFoundError,
)
from crdtmem.store.placement import (
    NETWORK_FILESYSTEMS,
    check_modes,
    check_placement,
    filesystem_of,
    is_network_path,
    lock_path_for,
    prepare_folder,
    resolve_store_path,
)

# As Linux writes it: a root that stands last, optional fields or none, an escaped
# blank, a mount over another, a mount below another.
MOUNTS = r"""
22 27 0:21 / /proc rw,relatime - proc proc rw
24 27 0:6 / /dev rw,relatime shared:2 - devtmpfs devtmpfs rw,size=1k
30 27 0:40 / /home rw,relatime shared:9 master:1 - nfs4 server:/home rw,vers=4.2
31 30 0:41 / /home/me/disk rw - ext4 /dev/sdb1 rw
32 27 0:42 / /mnt/big\040disk rw - xfs /dev/sdc1 rw
33 27 0:43 / /mnt/twice rw - ext4 /dev/sdd1 rw
34 33 0:44 / /mnt/twice rw - cifs //server/share rw
35 27 0:45 / /mnt/share rw - fuse.sshfs me@server: rw
not a line of a mount
27 1 254:0 / / rw,relatime - overlay overlay rw
"""

NAMES = st.text(
    st.characters(exclude_characters="/\0", exclude_categories=["Cs"]), min_size=1
)

OPEN_MODE = "trust a store while everybody may write (mode {}) to"


@contextmanager
def unprivileged():
    """Do without the rights of root, which no mode stops; others have none to lose."""
    user = os.geteuid()
    os.seteuid(user or 65534)
    try:
        yield
    finally:
        os.seteuid(user)


@pytest.fixture
def folder():
    """A folder that other users can reach, unlike those of tmp_path."""
    with tempfile.TemporaryDirectory() as name:
        os.chmod(name, 0o755)
        yield Path(os.path.realpath(name))
        os.chmod(name, 0o700)


@pytest.mark.parametrize(
    ("path", "filesystem"),
    [
        ("/", "overlay"),
        ("/srv/store.db", "overlay"),
        ("/homeless/store.db", "overlay"),
        ("/home/me/store.db", "nfs4"),
        ("/home/me/disk/store.db", "ext4"),
        ("/home/me/disks/store.db", "nfs4"),
        ("/mnt/big disk/store.db", "xfs"),
        ("/mnt/big/store.db", "overlay"),
        ("/mnt/twice/store.db", "cifs"),
        ("/mnt/share/store.db", "fuse.sshfs"),
    ],
)
def test_the_innermost_mount_decides_on_the_file_system(path, filesystem):
    assert filesystem_of(Path(path), MOUNTS) == filesystem


def test_without_a_list_of_mounts_no_file_system_is_known():
    assert filesystem_of(Path("/store.db"), "") is None


@given(NAMES)
def test_a_mount_point_may_have_any_name(name):
    point = Path("/mnt", f"x{name}")
    escaped = str(point)
    for character in "\\ \t\n":
        escaped = escaped.replace(character, f"\\{ord(character):03o}")
    mounts = f"1 0 0:1 / / rw - ext4 x rw\n2 1 0:2 / {escaped} rw - nfs x rw\n"

    assert filesystem_of(point / "store.db", mounts) == "nfs"
    assert filesystem_of(point.with_name("y") / "store.db", mounts) == "ext4"


@pytest.mark.requirement("testing-F14")
@pytest.mark.parametrize("filesystem", NETWORK_FILESYSTEMS)
def test_a_store_on_a_network_file_system_is_refused(filesystem):
    mounts = f"1 0 0:1 / /mnt rw - {filesystem} server:/x rw\n"

    with pytest.raises(NetworkFilesystemError) as caught:
        check_placement(Path("/mnt/store.db"), mountinfo=mounts)

    assert caught.value.code == "network-filesystem"
    assert caught.value.details == {"path": "/mnt/store.db", "filesystem": filesystem}
    assert "/mnt/store.db" in str(caught.value)
    assert not Path("/mnt/store.db").exists()


@pytest.mark.parametrize(
    "filesystem",
    ["ext4", "xfs", "btrfs", "zfs", "overlay", "tmpfs", "virtiofs", "fuse"],
)
def test_a_store_on_a_local_file_system_is_let_through(filesystem):
    mounts = f"1 0 0:1 / / rw - {filesystem} x rw\n"

    check_placement(Path("/srv/store.db"), mountinfo=mounts)


def test_the_mounts_of_this_process_are_asked_by_default():
    check_placement(Path("/proc/self/store.db"))


@pytest.mark.parametrize(
    ("path", "is_network"),
    [
        (r"\\server\share\store.db", True),
        ("//server/share/store.db", True),
        (r"\\?\UNC\server\share\store.db", True),
        (r"\\?\unc\server\share\store.db", True),
        (r"\\?\C:\store.db", False),
        (r"\\.\C:\store.db", False),
        (r"C:\store.db", False),
        ("store.db", False),
    ],
)
def test_a_share_is_known_by_its_windows_path(path, is_network):
    assert is_network_path(path) is is_network


@pytest.mark.parametrize(
    ("store", "lock"),
    [
        ("store.db", "store.lock"),
        ("store", "store.lock"),
        ("my.notes.db", "my.notes.lock"),
        ("store.lock", "store.lock.lock"),
        ("STORE.LOCK", "STORE.LOCK.lock"),
        (".db", ".db.lock"),
    ],
)
def test_the_lock_lies_beside_the_store(store, lock):
    assert lock_path_for(Path("/srv", store)) == Path("/srv", lock)


@given(NAMES.filter(lambda name: set(name) != {"."}))
def test_a_store_is_never_its_own_lock(name):
    lock = lock_path_for(Path("/srv", name)).name.lower()

    assert lock not in {name.lower() + suffix for suffix in ("", "-wal", "-shm")}


def test_all_names_of_a_store_lead_to_one_file(tmp_path, monkeypatch):
    folder = Path(os.path.realpath(tmp_path))
    store = folder / "store.db"
    store.touch()
    (folder / "file.db").symlink_to(store)
    (folder / "far").symlink_to(folder)
    monkeypatch.chdir(folder)

    for name in ("store.db", "file.db", "far/file.db", "far/../" + folder.name):
        found = resolve_store_path(Path(name))
        assert found == (folder if name.startswith("far/..") else store)


def test_a_store_that_is_not_there_yet_has_its_path_too(tmp_path):
    folder = Path(os.path.realpath(tmp_path))
    (folder / "link").symlink_to(folder)

    found = resolve_store_path(folder / "link" / "new" / "store.db")

    assert found == folder / "new" / "store.db"


@pytest.mark.parametrize(("link", "target"), [("a", "absent"), ("a", "a")])
@pytest.mark.parametrize("store", ["a", "a/store.db", "a/b/store.db"])
def test_a_link_that_leads_nowhere_is_refused(tmp_path, link, target, store):
    (tmp_path / link).symlink_to(tmp_path / target)

    with pytest.raises(PermissionDeniedError) as caught:
        resolve_store_path(tmp_path / store)

    assert caught.value.code == "permission-denied"
    assert caught.value.details == {
        "path": str(tmp_path / link),
        "action": "follow the symbolic link",
    }
    assert os.listdir(tmp_path) == [link]


def test_a_new_folder_is_for_its_user_only(tmp_path):
    store = tmp_path / "a" / "b" / "store.db"

    prepare_folder(store)

    assert store.parent.stat().st_mode & 0o777 == 0o700
    assert not store.exists()


def test_a_folder_that_exists_keeps_its_modes(tmp_path):
    tmp_path.chmod(0o750)

    prepare_folder(tmp_path / "store.db")

    assert tmp_path.stat().st_mode & 0o777 == 0o750


@pytest.mark.parametrize("place", ["file", "file/below"])
def test_a_folder_in_whose_place_a_file_lies_is_refused(tmp_path, place):
    (tmp_path / "file").write_text("x", encoding="utf-8")

    with pytest.raises(PermissionDeniedError) as caught:
        prepare_folder(tmp_path / place / "store.db")

    assert caught.value.details == {
        "path": str(tmp_path / place),
        "action": "make the folder",
    }
    assert (tmp_path / "file").read_text(encoding="utf-8") == "x"


def test_a_folder_that_may_not_be_made_is_refused(folder):
    folder.chmod(0o555)

    with unprivileged(), pytest.raises(PermissionDeniedError) as caught:
        prepare_folder(folder / "new" / "store.db")

    assert caught.value.details["path"] == str(folder / "new")
    assert os.listdir(folder) == []


def test_an_error_that_is_nobodys_refusal_is_passed_on(tmp_path):
    with pytest.raises(OSError, match="File name too long"):
        prepare_folder(tmp_path / ("x" * 300) / "store.db")


@pytest.mark.parametrize("mode", [0o700, 0o755, 0o770, 0o1777])
@pytest.mark.parametrize("writable", [False, True])
def test_a_folder_that_its_user_controls_is_let_through(tmp_path, mode, writable):
    store = tmp_path / "store.db"
    tmp_path.chmod(mode)

    check_modes(store, writable=writable)
    for suffix in (".db", ".db-wal", ".db-shm", ".lock"):
        store.with_suffix(suffix).touch(0o644)

    check_modes(store, writable=writable)


@pytest.mark.requirement("testing-F14")
@pytest.mark.parametrize("mode", [0o777, 0o707, 0o702])
@pytest.mark.parametrize("writable", [False, True])
def test_a_folder_that_everybody_may_write_is_refused(tmp_path, mode, writable):
    tmp_path.chmod(mode)

    with pytest.raises(PermissionDeniedError) as caught:
        check_modes(tmp_path / "store.db", writable=writable)

    assert caught.value.details == {
        "path": str(tmp_path),
        "action": OPEN_MODE.format(f"{mode:04o}"),
    }
    assert caught.value.hint == f"run 'chmod o-w {tmp_path}'"
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("suffix", [".db", ".db-wal", ".db-shm", ".lock"])
@pytest.mark.parametrize("writable", [False, True])
def test_a_file_that_everybody_may_write_is_refused(tmp_path, suffix, writable):
    store = tmp_path / "store.db"
    open_file = store.with_suffix(suffix)
    store.touch()
    open_file.touch()
    open_file.chmod(0o1666)

    with pytest.raises(PermissionDeniedError) as caught:
        check_modes(store, writable=writable)

    assert caught.value.details == {
        "path": str(open_file),
        "action": OPEN_MODE.format("1666"),
    }
    assert open_file.stat().st_mode & 0o7777 == 0o1666


@pytest.mark.parametrize("suffix", [".db", ".db-wal", ".db-shm", ".lock"])
@pytest.mark.parametrize(
    "make", [Path.mkdir, os.mkfifo, lambda path: path.symlink_to("x")]
)
def test_what_is_no_regular_file_is_refused(tmp_path, suffix, make):
    store = tmp_path / "store.db"
    make(store.with_suffix(suffix))

    with pytest.raises(PermissionDeniedError) as caught:
        check_modes(store, writable=True)

    assert caught.value.details == {
        "path": str(store.with_suffix(suffix)),
        "action": "use as a file of a store",
    }


def test_a_read_only_folder_serves_for_reading_only(folder):
    store = folder / "store.db"
    store.touch(0o644)
    folder.chmod(0o555)

    with unprivileged():
        check_modes(store, writable=False)
        with pytest.raises(PermissionDeniedError) as caught:
            check_modes(store, writable=True)

    assert caught.value.details == {"path": str(folder), "action": "write to"}
    assert os.listdir(folder) == ["store.db"]


@pytest.mark.parametrize(
    ("mode", "writable", "action"), [(0o444, True, "write to"), (0o000, False, "read")]
)
def test_a_store_that_its_user_may_not_use_is_refused(folder, mode, writable, action):
    store = folder / "store.db"
    store.touch()
    store.chmod(mode)
    folder.chmod(0o1777)

    with unprivileged(), pytest.raises(PermissionDeniedError) as caught:
        check_modes(store, writable=writable)

    assert caught.value.details == {"path": str(store), "action": action}


def test_a_store_in_a_folder_that_does_not_exist_is_not_found(tmp_path):
    with pytest.raises(StoreNotFoundError) as caught:
        check_modes(tmp_path / "absent" / "store.db", writable=False)

    assert caught.value.details == {"path": str(tmp_path / "absent" / "store.db")}
