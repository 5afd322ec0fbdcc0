"""What a mirror keeps beside its files: rejected texts, its status, its problems.

Three small files' worth of rules; which texts and words go in is the engine's business.
"""

import contextlib
import hashlib
import json
import os
import re
import secrets
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import NamedTuple

from crdtmem.errors import UnreadableFileError
from crdtmem.limits import REJECTED_BYTES, REJECTED_FILES
from crdtmem.mirror.reading import read_plain
from crdtmem.mirror.syscalls import (
    component,
    link_entry,
    list_names,
    sync_folder,
    write_new,
)

__all__ = ["PROBLEMS_NAME", "keep_problems", "keep_rejected", "keep_state"]

PROBLEMS_NAME = "CRDTMEM-PROBLEMS.txt"
"""The file in a mirrored folder that tells what is blocked, while something is."""

_REJECTED = re.compile(r"(\d{8}T\d{6}Z)-.+-(\d+)\.md")
# The last line of what was written here: a check of all lines before it. So no state
# tells which file is whose, and one that a person has written to is left alone.
_SEAL = "written by crdtmem mirror, check "


class _Kept(NamedTuple):
    utc: str
    number: int
    name: str


def keep_rejected(folder_fd: int, label: str, data: bytes, now_ms: int) -> str:
    """Keep a text that could not be taken in; it is on disk when this returns.

    The oldest go once there are more than REJECTED_FILES or REJECTED_BYTES of them,
    never the new one.

    Args:
        folder_fd: Where.
        label: The slot it was meant for.
        data: The text.
        now_ms: When.

    Returns:
        The name of the file: ``<UTC>-<label>-<n>.md``, n counted within a second.

    Raises:
        OSError: If it cannot be written; nothing was kept or dropped.

    """
    utc = datetime.fromtimestamp(now_ms / 1_000, UTC).strftime("%Y%m%dT%H%M%SZ")
    earlier = _kept(folder_fd)
    number = 1 + max((kept.number for kept in earlier if kept.utc == utc), default=0)
    name = f"{utc}-{label}-{number}.md"
    write_new(folder_fd, name, data, mode=0o600)
    sync_folder(folder_fd)
    _drop_oldest(folder_fd, earlier, len(data))
    return name


def keep_state(folder_fd: int, name: str, value: Mapping[str, object]) -> None:
    """Write a file of JSON that readers find whole, the old one or the new one.

    Raises:
        OSError: If it cannot be written; the old one is still there.

    """
    data = json.dumps(value, ensure_ascii=False, indent=2).encode() + b"\n"
    fresh = f"{component(name)}.new"
    # Left by a process that was killed here.
    with contextlib.suppress(FileNotFoundError):
        os.unlink(fresh, dir_fd=folder_fd)
    write_new(folder_fd, fresh, data, mode=0o600)
    os.rename(fresh, name, src_dir_fd=folder_fd, dst_dir_fd=folder_fd)
    sync_folder(folder_fd)


def keep_problems(folder_fd: int, state_fd: int, text: str | None) -> bool:
    """Show some text in PROBLEMS_NAME, or remove that file.

    A file of this name that a person or another program has made, or has written to
    since, is never replaced or removed.

    Args:
        folder_fd: The mirrored folder.
        state_fd: Where the file is made and unmade.
        text: What to show, or None.

    Returns:
        Whether the file now is as asked for. If not, it is somebody else's.

    Raises:
        OSError: If it cannot be written; it may be missing then.

    """
    wanted = None if text is None else _sealed(text)
    try:
        current, _ = read_plain(folder_fd, PROBLEMS_NAME)
    except FileNotFoundError:
        return wanted is None or _place(folder_fd, state_fd, wanted)
    except UnreadableFileError:
        return False
    if current == wanted:
        return True
    if not _is_sealed(current):
        return False
    return _take_away(folder_fd, state_fd) and (
        wanted is None or _place(folder_fd, state_fd, wanted)
    )


def _kept(folder_fd: int) -> list[_Kept]:
    """Return what was kept before, the oldest first; other files are not counted."""
    return sorted(
        _Kept(match[1], int(match[2]), match[0])
        for name in list_names(folder_fd)
        if (match := _REJECTED.fullmatch(name))
    )


def _drop_oldest(folder_fd: int, earlier: list[_Kept], taken_bytes: int) -> None:
    count = 1
    for kept in reversed(earlier):
        count += 1
        taken_bytes += os.lstat(kept.name, dir_fd=folder_fd).st_size
        if count > REJECTED_FILES or taken_bytes > REJECTED_BYTES:
            os.unlink(kept.name, dir_fd=folder_fd)


def _sealed(text: str) -> bytes:
    body = (text if text.endswith("\n") else f"{text}\n").encode() + b"\n"
    return body + f"{_SEAL}{_check(body)}\n".encode()


def _is_sealed(data: bytes) -> bool:
    body, seal, check = data.rpartition(_SEAL.encode())
    return bool(seal) and check == f"{_check(body)}\n".encode()


def _check(body: bytes) -> str:
    return hashlib.sha256(body).hexdigest()[:16]


def _take_away(folder_fd: int, state_fd: int) -> bool:
    """Remove the file, unless somebody has written to it in this very moment."""
    aside = f"problems-{secrets.token_hex(8)}"
    os.rename(PROBLEMS_NAME, aside, src_dir_fd=folder_fd, dst_dir_fd=state_fd)
    try:
        is_ours = _is_sealed(read_plain(state_fd, aside)[0])
    except UnreadableFileError:
        is_ours = False
    if not is_ours:
        link_entry(state_fd, aside, folder_fd, PROBLEMS_NAME)
    os.unlink(aside, dir_fd=state_fd)
    return is_ours


def _place(folder_fd: int, state_fd: int, data: bytes) -> bool:
    """Make the file, unless somebody has made one in this very moment."""
    fresh = f"problems-{secrets.token_hex(8)}"
    write_new(state_fd, fresh, data, mode=0o644)
    try:
        link_entry(state_fd, fresh, folder_fd, PROBLEMS_NAME)
    except FileExistsError:
        return False
    finally:
        os.unlink(fresh, dir_fd=state_fd)
    return True
