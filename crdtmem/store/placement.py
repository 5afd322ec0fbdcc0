"""Where a store may lie: on a local disk, in a folder that its user controls.

SQLite's log needs locks that work and memory that all processes see alike; a network
file system gives neither for sure, and damages a store silently. And who can write a
store, or swap it for another, writes into every session's memory.

Checks are made once, when a store is opened, from names and modes alone. The database
file is never opened here.
"""

import errno
import os
import re
import stat
import sys
from pathlib import Path

from crdtmem.errors import (
    NetworkFilesystemError,
    PermissionDeniedError,
    StoreNotFoundError,
)

__all__ = [
    "NETWORK_FILESYSTEMS",
    "check_modes",
    "check_placement",
    "filesystem_of",
    "is_network_path",
    "lock_path_for",
    "prepare_folder",
    "resolve_store_path",
]

_SERVER = "other machines write the same file under locks that may be local or lost"
_CLUSTER = "memory that is mapped on two machines is not the same memory"
_USER_SPACE = "a process translates to a remote service that knows no locks"
_HOST = "the host writes the same file, and mapped memory and locks stop at the guest"

NETWORK_FILESYSTEMS: dict[str, str] = {
    "9p": _HOST,
    "acfs": _CLUSTER,
    "afs": _SERVER,
    "beegfs": _CLUSTER,
    "ceph": _CLUSTER,
    "cifs": _SERVER,
    "coda": _SERVER,
    "davfs": _USER_SPACE,
    "drvfs": _HOST,
    "fuse.ceph": _CLUSTER,
    "fuse.ceph-fuse": _CLUSTER,
    "fuse.davfs": _USER_SPACE,
    "fuse.gcsfuse": _USER_SPACE,
    "fuse.glusterfs": _CLUSTER,
    "fuse.goofys": _USER_SPACE,
    "fuse.juicefs": _USER_SPACE,
    "fuse.mount-s3": _USER_SPACE,
    "fuse.rclone": _USER_SPACE,
    "fuse.s3fs": _USER_SPACE,
    "fuse.sshfs": _USER_SPACE,
    "fuse.vmhgfs-fuse": _HOST,
    "gfs2": _CLUSTER,
    "glusterfs": _CLUSTER,
    "gpfs": _CLUSTER,
    "lustre": _CLUSTER,
    "ncpfs": _SERVER,
    "nfs": _SERVER,
    "nfs4": _SERVER,
    "ocfs2": _CLUSTER,
    "prl_fs": _HOST,
    "smb2": _SERVER,
    "smb3": _SERVER,
    "smbfs": _SERVER,
    "vboxsf": _HOST,
    "vmhgfs": _HOST,
}
"""File systems that a store is refused on, and why.

overlay, tmpfs and virtiofs are not among them: one kernel serves all who write.
"""

_MOUNTINFO = Path("/proc/self/mountinfo")
_OCTAL = r"\\([0-7]{3})"
# \\?\C: and \\.\C: are local drives in another form.
_SHARE = r"\\\\(?![?.]\\(?!UNC\\))"
_LOCK_SUFFIX = ".lock"
# The database and what lies beside it under SQLite's own names.
_COMPANIONS = ("", "-wal", "-shm")
_FORBIDDEN = {
    errno.EACCES,
    errno.EEXIST,
    errno.ENOTDIR,
    errno.EPERM,
    errno.EROFS,
}


def resolve_store_path(path: Path) -> Path:
    """Return the absolute path of a store file, with every symbolic link followed.

    All names of one store so lead to one lock file and one log. The file itself, and
    folders above it, need not exist yet.

    Raises:
        PermissionDeniedError: If a link on the way leads nowhere or in a circle. A
            store made at its far end could be on a disk that is not mounted now.

    """
    absolute = path.absolute()
    for step in (absolute, *absolute.parents):
        if os.path.islink(step) and not os.path.exists(step):
            raise PermissionDeniedError(
                path=str(step),
                action="follow the symbolic link",
                hint=f"run 'ls -l {step}': its target is missing or leads back to it",
            )
    return Path(os.path.realpath(absolute))


def lock_path_for(store_path: Path) -> Path:
    """Return the lock file of a store: ``store.lock`` beside ``store.db``."""
    # Compared without case, as file systems of macOS and Windows do.
    if store_path.suffix.lower() == _LOCK_SUFFIX:
        return store_path.with_name(store_path.name + _LOCK_SUFFIX)
    return store_path.with_suffix(_LOCK_SUFFIX)


def prepare_folder(path: Path) -> None:
    """Make the folder of a store file, for its user only, unless it exists.

    Raises:
        PermissionDeniedError: If the system refuses, or a file is in the way.

    """
    folder = path.parent
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as exc:
        if exc.errno not in _FORBIDDEN:
            raise
        raise PermissionDeniedError(path=str(folder), action="make the folder") from exc


def check_modes(path: Path, *, writable: bool) -> None:
    """Refuse a store that everybody could change, or that this user cannot use.

    Modes are not looked at on Windows, where they mean nothing.

    Args:
        path: The resolved store file; it need not exist.
        writable: Whether it is to be written too.

    Raises:
        PermissionDeniedError: If the folder is writable by everybody and not sticky,
            or a file of the store is writable by everybody or no regular file, or the
            access that is needed is not given.
        StoreNotFoundError: If the folder does not exist.

    """
    folder = path.parent
    try:
        _refuse_if_open_to_all(folder, os.stat(folder).st_mode)
    except FileNotFoundError as exc:
        raise StoreNotFoundError(path=str(path)) from exc
    _demand_access(folder, os.W_OK | os.X_OK if writable else os.X_OK)
    names = [path.name + suffix for suffix in _COMPANIONS]
    for file in (*map(path.with_name, names), lock_path_for(path)):
        _check_file(file)
    if os.path.exists(path):
        _demand_access(path, os.R_OK | os.W_OK if writable else os.R_OK)


def check_placement(path: Path, *, mountinfo: str | None = None) -> None:
    r"""Refuse a place that other machines may write too.

    On macOS the system tells the kind of a file system only to programs in C: there
    nothing is refused, and the documentation says so. On Windows a path of the form
    ``\\server\share`` is refused; a drive letter of a share is not noticed.

    Args:
        path: The resolved store file; it need not exist.
        mountinfo: What mounts there are, in the form of ``/proc/self/mountinfo``;
            by default those of this process.

    Raises:
        NetworkFilesystemError: If it is one of NETWORK_FILESYSTEMS.

    """
    if sys.platform == "win32":  # pragma: no cover - the tests run on POSIX
        if is_network_path(str(path)):
            raise NetworkFilesystemError(path=str(path), filesystem="UNC")
        return
    filesystem = filesystem_of(path, _mounts() if mountinfo is None else mountinfo)
    if filesystem in NETWORK_FILESYSTEMS:
        raise NetworkFilesystemError(path=str(path), filesystem=filesystem)


def filesystem_of(path: Path, mountinfo: str) -> str | None:
    """Return the type of the file system that an absolute path is on, if listed.

    The longest mount point above the path decides, and of two at the same place the
    later one, which hides the other.
    """
    found: tuple[int, str] | None = None
    for line in mountinfo.split("\n"):
        # "36 35 98:0 /root /mount/point rw,noatime shared:1 - ext4 /dev/sda1 rw":
        # any number of optional fields stands before the hyphen (proc(5)).
        before, hyphen, after = line.partition(" - ")
        fields = before.split(" ")
        if not hyphen or len(fields) < 5:
            continue
        mount_point = Path(re.sub(_OCTAL, _character, fields[4]))
        depth = len(mount_point.parts)
        if path.is_relative_to(mount_point) and (found is None or depth >= found[0]):
            found = depth, after.split(" ")[0]
    return found[1] if found else None


def is_network_path(text: str) -> bool:
    r"""Tell whether a Windows path names a share, as ``\\server\share\x`` does."""
    return re.match(_SHARE, text.replace("/", "\\").upper()) is not None


def _character(escape: re.Match[str]) -> str:
    return chr(int(escape[1], 8))


def _mounts() -> str:
    try:
        return _MOUNTINFO.read_text(encoding="utf-8", errors="surrogateescape")
    except OSError:  # pragma: no cover - Linux with /proc always has it
        return ""


def _check_file(file: Path) -> None:
    try:
        mode = os.lstat(file).st_mode
    except FileNotFoundError:
        # Not made yet, or a log that the last of its users has just deleted.
        return
    if not stat.S_ISREG(mode):
        raise PermissionDeniedError(
            path=str(file),
            action="use as a file of a store",
            hint=f"run 'ls -ld {file}': it is no regular file",
        )
    _refuse_if_open_to_all(file, mode)


def _refuse_if_open_to_all(place: Path, mode: int) -> None:
    if sys.platform == "win32":  # pragma: no cover - the tests run on POSIX
        return
    # In a sticky folder, such as /tmp, only its owner can replace a file.
    if mode & stat.S_IWOTH and not (stat.S_ISDIR(mode) and mode & stat.S_ISVTX):
        raise PermissionDeniedError(
            path=str(place),
            action=f"trust a store while everybody may write (mode"
            f" {stat.S_IMODE(mode):04o}) to",
            hint=f"run 'chmod o-w {place}'",
        )


def _demand_access(place: Path, access: int) -> None:
    effective = os.access in os.supports_effective_ids
    if os.access(place, access, effective_ids=effective):
        return
    action = "write to" if access & os.W_OK else "read"
    raise PermissionDeniedError(
        path=str(place), action=action, hint=f"run 'ls -ld {place}' to see its modes"
    )
