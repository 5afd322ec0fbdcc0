"""A mirrored folder: its files, its lock, and what a mirror keeps there.

The file system's side of a mirror, without any knowledge of slots. Everything is done
relative to the folder's descriptor, name by name: links are never followed, and nothing
outside the folder is read or written, also when the folder is moved meanwhile.

Below lie ``swapping`` (how a file is replaced), ``reading``, ``keeping``, ``preparing``
and ``syscalls``; above, the engine.
"""

import contextlib
import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from crdtmem.errors import MirrorUnsafeError
from crdtmem.mirror.keeping import (
    PROBLEMS_NAME,
    keep_problems,
    keep_rejected,
    keep_state,
)
from crdtmem.mirror.preparing import (
    STATE_NAME,
    Parts,
    explained,
    find_parts,
    prepare_parts,
)
from crdtmem.mirror.reading import FileStat, read_plain
from crdtmem.mirror.swapping import Recovered, Replaced, SwapSide
from crdtmem.mirror.syscalls import list_names, opened
from crdtmem.store.placement import check_placement

__all__ = [
    "PROBLEMS_NAME",
    "STATE_NAME",
    "FileStat",
    "MirrorFolder",
    "Recovered",
    "Replaced",
]

_ID = "id"
_ID_BYTES = 1_024
_STATUS = "status.json"


class MirrorFolder(SwapSide):
    """A folder of which this process is the one mirror; see SwapSide for its swaps.

    Made by ``open``; a context manager. Calls come from one thread at a time, but
    ``names``, ``stat`` and ``read`` from any. A folder opened for a dry run answers
    what it is asked, and raises RuntimeError where something would be changed.

    To know later whether a file has changed, keep the stat that ``read`` returned with
    its bytes, or ``write_swap`` for what a swap puts in place: one that is looked up
    afterwards may hide a change in between.

    Attributes:
        path: The folder, without links in its path when it was opened.
        can_exchange: Whether files are replaced by an exchange, or moved aside.

    """

    def __init__(
        self,
        path: Path,
        parts: Parts,
        closing: contextlib.ExitStack,
        *,
        can_exchange: bool,
    ) -> None:
        super().__init__(parts.folder, parts.swap, can_exchange=can_exchange)
        self.path = path
        self._parts = parts
        self._closing = closing

    @classmethod
    def open(
        cls,
        path: os.PathLike[str] | str,
        *,
        dry_run: bool = False,
        exchange: bool | None = None,
        mountinfo: str | None = None,
    ) -> Self:
        """Open a folder that exists, and take its lock.

        Makes ``.crdtmem-mirror`` in it, for this user only, and tries on scratch files
        how a file can be replaced there.

        Args:
            path: The folder, or a link to it.
            dry_run: Change nothing, and take no lock.
            exchange: How to replace files, instead of trying: by an exchange or not.
            mountinfo: What mounts there are; see ``placement.check_placement``.

        Raises:
            InvalidArgumentError: If there is no folder of this name.
            MirrorBusyError: If another mirror has the lock.
            MirrorUnsafeError: If files cannot be replaced safely there.
            NetworkFilesystemError: If other machines may write to it too.
            PermissionDeniedError: If it cannot be written to, or what is to be a part
                of ``.crdtmem-mirror`` is something else, or another user's.
            StoreFullError: If the disk is full.

        """
        place = Path(os.path.realpath(path))
        if sys.platform == "win32":  # pragma: no cover - the tests run on POSIX
            raise MirrorUnsafeError(folder=str(place), reason="mirrors need POSIX")
        check_placement(place, mountinfo=mountinfo)
        with contextlib.ExitStack() as closing, explained(place):
            parts = (find_parts if dry_run else prepare_parts)(place, closing)
            can_exchange = parts.can_exchange if exchange is None else exchange
            return cls(place, parts, closing.pop_all(), can_exchange=can_exchange)

    def close(self) -> None:
        """Give the lock back; idempotent. The folder must not be used any more."""
        self._closing.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    # The files.

    def names(self) -> list[str]:
        """Return the names of all that lies in the folder itself, sorted."""
        return list_names(self._folder_fd)

    def stat(self, name: str) -> FileStat | None:
        """Return the stat of what has this name, if anything; of a link, its own."""
        return self._stat(name)

    def read(self, name: str) -> tuple[bytes, FileStat]:
        """Read a file that may be taken in; returns and raises as ``read_plain``."""
        return read_plain(self._folder_fd, name)

    def place(self) -> FileStat:
        """Return the stat of the folder itself."""
        return FileStat.of(os.fstat(self._folder_fd))

    def is_intact(self) -> bool:
        """Tell whether ``path`` is still this folder, with what the mirror keeps there.

        If not, it was moved, removed or hidden by a mount: what is missing in it then
        tells nothing.
        """
        parts = self._parts
        return (
            _is_same(None, str(self.path), parts.folder)
            and _is_same(parts.folder, STATE_NAME, parts.state)
            and _is_same(parts.state, "swap", parts.swap)
            and _is_same(parts.state, "lock", parts.lock)
        )

    # What the mirror keeps.

    def read_id(self) -> tuple[str, str] | None:
        """Return the ids of the mirror and of the replica that were written here.

        None if there are none, or none that can be read: then this is the first contact
        with the folder.
        """
        if self._parts.state is None:
            return None
        try:
            with opened(self._parts.state, _ID) as fd:
                found = json.loads(os.pread(fd, _ID_BYTES, 0))
            return str(found["mirror"]), str(found["replica"])
        except (OSError, ValueError, TypeError, KeyError):
            return None

    def write_id(self, mirror_id: str, replica_hex: str) -> None:
        """Note which mirror of which replica this folder is; on disk on return."""
        value = {"mirror": mirror_id, "replica": replica_hex}
        keep_state(self._state, _ID, value)

    def reject(self, label: str, data: bytes, now_ms: int) -> str:
        """Keep in ``rejected/`` what cannot be taken in; see ``keep_rejected``."""
        folder_fd = self._writable(self._parts.rejected)
        return keep_rejected(folder_fd, label, data, now_ms)

    def write_status(self, value: Mapping[str, object]) -> None:
        """Put a mapping into ``status.json``; readers find the old one or the new."""
        keep_state(self._state, _STATUS, value)

    def write_problems(self, text: str | None) -> bool:
        """Show or remove PROBLEMS_NAME; False if it is not ours. See keep_problems."""
        return keep_problems(self._folder_fd, self._state, text)

    @property
    def _state(self) -> int:
        # A dry run has it open too, to read the id.
        is_dry = self._parts.lock is None
        return self._writable(None if is_dry else self._parts.state)


def _is_same(folder_fd: int | None, name: str, fd: int | None) -> bool:
    """Tell whether a name still stands for what was opened, if anything was."""
    if fd is None:
        return True
    try:
        return os.path.samestat(os.lstat(name, dir_fd=folder_fd), os.fstat(fd))
    except OSError:
        return False
