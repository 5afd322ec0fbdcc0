"""Where things lie: the user's folders, the project's file, the git directory.

Nothing is written and no other program is run. What was found is handed to
``crdtmem.scope``, which decides what project it is.
"""

import os
import stat
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Literal, NamedTuple

from crdtmem.errors import ConfigError
from crdtmem.limits import LANE_BYTES

__all__ = [
    "PROJECT_FILE",
    "ProjectPlace",
    "absolute_path",
    "default_lane",
    "find_project",
    "home_folder",
    "process_environment",
    "user_config_path",
    "user_folder",
]

PROJECT_FILE = ".crdtmem.toml"

# Systems on which the folders are those of the XDG specification; computing them here
# saves the import of platformdirs, as long again as a bare start.
_XDG_SYSTEMS = ("linux", "freebsd", "openbsd", "netbsd", "dragonfly")
_XDG_FOLDERS = {
    "config": ("XDG_CONFIG_HOME", ".config"),
    "data": ("XDG_DATA_HOME", ".local/share"),
}
_USER_VARIABLES = ("LOGNAME", "USER", "LNAME", "USERNAME")
# A pointer to a git directory is one path.
_POINTER_BYTES = 8_192


class ProjectPlace(NamedTuple):
    """What lies around a folder. All paths are real.

    Attributes:
        folder: Where the project file lies, else the repository's top, else the
            folder itself.
        file: The project file, if there is one.
        git_common_dir: What all worktrees of the repository share, if it is one.

    """

    folder: str
    file: str | None
    git_common_dir: str | None


def process_environment() -> Mapping[str, str]:
    """Return the environment of this process."""
    return os.environ


def home_folder(environ: Mapping[str, str], *, uid: int | None = None) -> str:
    """Return the user's home folder.

    Args:
        environ: Where to look first.
        uid: Whose account to ask otherwise; None: that of this process.

    Raises:
        ConfigError: If nothing tells it.

    """
    names = ("HOME",) if os.name == "posix" else ("USERPROFILE", "HOME")
    for name in names:
        if os.path.isabs(environ.get(name, "")):
            return environ[name].rstrip("/") or "/"
    account = _account(_uid() if uid is None else uid)
    if account is None:
        raise ConfigError(
            f"the home folder is unknown: neither {names[0]} nor an account tells it",
            code="config-invalid",
            hint=f"set {names[0]}",
            details={"variable": names[0]},
        )
    return account[1]


def user_folder(
    kind: Literal["config", "data"],
    environ: Mapping[str, str],
    *,
    platform: str = sys.platform,
) -> str:
    """Return the folder for the user's settings or data; it need not exist."""
    if not platform.startswith(_XDG_SYSTEMS) or hasattr(sys, "getandroidapilevel"):
        import platformdirs  # noqa: PLC0415 - not needed on most systems, see above

        # It reads the environment of the process; there is no way to pass another.
        folders = platformdirs.PlatformDirs("crdtmem", appauthor=False)
        return folders.user_config_dir if kind == "config" else folders.user_data_dir
    variable, below_home = _XDG_FOLDERS[kind]
    base = environ.get(variable, "")
    if not os.path.isabs(base):
        base = os.path.join(home_folder(environ), below_home)
    return os.path.join(base, "crdtmem")


def user_config_path(environ: Mapping[str, str] | None = None) -> Path:
    """Return where the user's settings file is, or would be."""
    environ = process_environment() if environ is None else environ
    return Path(user_folder("config", environ), "config.toml")


def absolute_path(text: str, *, folder: str, environ: Mapping[str, str]) -> Path:
    """Return the path that a setting means, ``~`` being the home folder.

    Args:
        text: As it was given.
        folder: What a relative path is relative to.
        environ: Tells the home folder.

    """
    if text == "~" or text.startswith(("~/", f"~{os.sep}")):
        text = home_folder(environ) + text[1:]
    return Path(os.path.abspath(os.path.join(folder, text)))


def default_lane(environ: Mapping[str, str], *, uid: int | None = None) -> str:
    """Return ``user@host``, the lane of a process that was given no name."""
    named = [environ[name] for name in _USER_VARIABLES if environ.get(name)]
    uid = _uid() if uid is None else uid
    user = named[0] if named else (_account(uid) or (f"uid{uid}",))[0]
    # The socket module would tell the host too, for most of another bare start.
    has_uname = hasattr(os, "uname")
    host = os.uname().nodename if has_uname else environ.get("COMPUTERNAME", "host")
    clean = "".join(c for c in f"{user.strip()}@{host.strip()}" if c.isprintable())
    return clean.encode()[:LANE_BYTES].decode(errors="ignore")


def find_project(folder: str) -> ProjectPlace:
    """Look for a project file and a repository, in a folder and those above it.

    The nearest project file counts. The search ends at the top of the repository and,
    outside of one, below a folder in which everybody may make files, such as ``/tmp``:
    what lies there may be anybody's.
    """
    start = here = os.path.realpath(folder)
    file = None
    while True:
        candidate = os.path.join(here, PROJECT_FILE)
        # A broken link counts as well, so that it is refused and not overlooked.
        if file is None and os.path.lexists(candidate):
            file = candidate
        git_common_dir = _git_common_dir(here)
        if git_common_dir is not None:
            top = os.path.dirname(file) if file else here
            return ProjectPlace(top, file, git_common_dir)
        parent = os.path.dirname(here)
        if parent == here or _is_everybodys(parent):
            return ProjectPlace(os.path.dirname(file) if file else start, file, None)
        here = parent


def _git_common_dir(folder: str) -> str | None:
    """Return the directory that all worktrees of a repository share, if it is one."""
    git_dir = os.path.join(folder, ".git")
    if os.path.isfile(git_dir):
        # Worktrees and submodules: a file that says where the directory is.
        pointer = _read_pointer(git_dir)
        if not pointer.startswith("gitdir:"):
            return None
        git_dir = os.path.join(folder, pointer.removeprefix("gitdir:").strip())
    # Git itself calls a directory a repository only if there is this file in it.
    if not os.path.lexists(os.path.join(git_dir, "HEAD")):
        return None
    common = os.path.join(git_dir, "commondir")
    if os.path.isfile(common):
        git_dir = os.path.join(git_dir, _read_pointer(common).strip())
    return os.path.realpath(git_dir)


def _read_pointer(path: str) -> str:
    with open(path, "rb") as file:
        return os.fsdecode(file.read(_POINTER_BYTES).replace(b"\0", b""))


def _is_everybodys(folder: str) -> bool:
    # Some mounts show every folder as writable by everybody; the sticky bit is what
    # tells a folder that strangers share.
    shared = stat.S_IWOTH | stat.S_ISVTX
    return os.stat(folder).st_mode & shared == shared


def _uid() -> int:
    return os.getuid() if hasattr(os, "getuid") else -1


def _account(uid: int) -> tuple[str, str] | None:
    """Return the name and home folder of an account, None where there is none."""
    try:
        import pwd  # noqa: PLC0415 - does not exist everywhere, and is seldom needed

        entry = pwd.getpwuid(uid)
    except (ImportError, KeyError):
        # A container may run under an id without an account: the caller decides.
        return None
    return entry.pw_name, entry.pw_dir
