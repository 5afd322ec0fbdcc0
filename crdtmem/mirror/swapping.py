"""How a file of a mirror is replaced without losing what others write meanwhile.

A file is never written in place, and never renamed over: both drop what a tool wrote a
moment before. Instead its name and that of the new file change places, and the replaced
file lies in ``swap/`` afterwards: by name, so that a crash cannot lose it, and readable
for as long as somebody has it open and goes on writing. Who calls this compares it with
what was there before, and drops it once nobody writes any more (``leases``).

Nothing is known here of slots, of texts, or of what was recorded: the engine records
an intent before ``replace`` and ``create``, and asks ``recover`` after a crash.

Two ways, of which a folder's file system decides (``folder``):

* exchange: one system call; the file is there at every moment.
* move aside: the file is renamed into ``swap/``, then the new one is linked in its
  place. For some microseconds there is no file. The link never overwrites what a tool
  made in this gap. (Not: link the old one, rename the new one over it. That drops a
  file which another tool renamed there in between.)
"""

import contextlib
import os
from collections.abc import Collection, Iterator
from typing import NamedTuple

from crdtmem.mirror.reading import FileStat, not_a_file, read_settled
from crdtmem.mirror.syscalls import (
    component,
    exchange_entries,
    link_entry,
    list_names,
    opened,
    sync_folder,
    write_new,
)

__all__ = ["Recovered", "Replaced", "SwapSide", "aside_name"]


class Replaced(NamedTuple):
    """How a replacement ended.

    Attributes:
        swap_name: Where in ``swap/`` the replaced file lies now; to be drained.
        is_placed: Whether the new file has taken its place. If not, a tool has made a
            file of that name in the gap: it is a new file, all of it to be taken in,
            and the swap is to be done again with another swap file. This one is still
            there, to be removed once it is noted how the replacement ended.

    """

    swap_name: str
    is_placed: bool


class Recovered(NamedTuple):
    """What became of a replacement that was interrupted; see SwapSide.recover.

    Attributes:
        swap_name: Where in ``swap/`` the replaced file lies, or None if none was.
        is_placed: Whether the new file has been under its name, and may still be. If
            not, nothing was done, or (if there is a swap_name) a tool made the file
            that has the name now, and the swap file is still there; see Replaced.

    """

    swap_name: str | None
    is_placed: bool


class SwapSide:
    """A folder, and the ``swap/`` in which the files put out of it are kept.

    Files are named by one component, those in ``swap/`` by names that the caller makes
    and uses once. Calls come from one thread at a time; reading may come from any.

    Invariants:
        1. No call writes to a file that has, or had, a name in the folder.
        2. No call removes a file that others can write to, but ``unlink_swap``.
        3. A call that raises leaves the folder as it was, or what ``recover`` repairs.

    Args:
        folder_fd: The folder.
        swap_fd: Its ``swap/``, or None where nothing is to be changed.
        can_exchange: Which of the two ways.

    """

    def __init__(
        self, folder_fd: int, swap_fd: int | None, *, can_exchange: bool
    ) -> None:
        self._folder_fd = folder_fd
        self._swap_fd = swap_fd
        self.can_exchange = can_exchange

    # The steps of a swap, in order; each is whole when it returns.

    def write_swap(self, swap_name: str, data: bytes, mode: int) -> FileStat:
        """Make a file in ``swap/``, with its name on disk when this returns.

        Args:
            swap_name: A new name.
            data: All of its content.
            mode: Its permissions: those of the file it is to replace.

        Returns:
            Its stat, unsettled: it tells the file (``ino``) under its later name, and
            has the file read again once it lies there.

        Raises:
            FileExistsError: If the name is taken.
            OSError: If the disk is full, …: there is no such file then.

        """
        found = write_new(self._swap, swap_name, data, mode=mode)
        sync_folder(self._swap)
        return FileStat.of(found).unsettled()

    def replace(self, name: str, swap_name: str) -> Replaced:
        """Put a swap file in a file's place, by the way this folder allows.

        No check is needed before: whatever changed up to this moment, even another file
        that was renamed over this one, lies in ``swap/`` afterwards.

        Raises:
            FileNotFoundError: If there is no file of this name, or no such swap file;
                nothing has changed.
            UnreadableFileError: If the name has come to stand for a link, a folder, …;
                that is back under its name, the swap file in ``swap/``.
            OSError: Likewise back, if the system refuses.

        """
        if self.can_exchange:
            self.exchange(name, swap_name)
            done = Replaced(swap_name, is_placed=True)
        else:
            done = self.move_aside(name, swap_name)
        self.sync()
        return done

    def exchange(self, name: str, swap_name: str) -> None:
        """Let a file and a swap file change places; see replace."""
        exchange_entries(self._swap, swap_name, self._folder_fd, name)
        if not self._is_plain(swap_name):
            exchange_entries(self._swap, swap_name, self._folder_fd, name)
            raise not_a_file()

    def move_aside(self, name: str, swap_name: str) -> Replaced:
        """Move a file into ``swap/`` and link a swap file in its place; see replace."""
        old = aside_name(swap_name)
        if self.stat_swap(swap_name) is None:
            raise FileNotFoundError(swap_name)
        self._take_out(name, old)
        try:
            self.link_in(swap_name, name)
        except FileExistsError:
            # The swap file stays until that is noted: its absence says that it was put
            # in place, whatever has the name now.
            return Replaced(old, is_placed=False)
        except OSError:
            self._put_back(old, name)
            raise
        self.unlink_swap(swap_name)
        return Replaced(old, is_placed=True)

    def sync(self) -> None:
        """Make the names in the folder and in ``swap/`` durable."""
        sync_folder(self._folder_fd)
        sync_folder(self._swap)

    # Files that come and go.

    def create(self, name: str, swap_name: str) -> None:
        """Give a swap file a name in the folder, where there is none.

        Raises:
            FileExistsError: If there is something of this name: it is untouched, and
                the swap file still in ``swap/``.

        """
        self.link_in(swap_name, name)
        self.unlink_swap(swap_name)
        self.sync()

    def retire(self, name: str, swap_name: str) -> None:
        """Move a file out of the folder into ``swap/``, to be drained.

        Raises:
            FileNotFoundError: If there is no file of this name.
            FileExistsError: If the swap name is taken; nothing has changed.
            UnreadableFileError: If it is no plain file; it is back under its name.

        """
        self._take_out(name, swap_name)
        self.sync()

    def link_in(self, swap_name: str, name: str) -> None:
        """Give a swap file a second name, in the folder; never overwrites."""
        link_entry(self._swap, swap_name, self._folder_fd, name)

    def recover(self, name: str, swap_name: str, ino: int) -> Recovered:
        """Bring an interrupted ``replace`` or ``create`` to one of its ends.

        Afterwards there is a file under the name unless a tool took it away, and in
        ``swap/`` the replaced one, if one was, and the new one, if a tool was there in
        the gap. May be repeated until the intent is gone.

        Args:
            name: The file.
            swap_name: The swap file that was to take its place.
            ino: The number of that swap file when it was written.

        """
        old = aside_name(swap_name)
        waiting, current = self.stat_swap(swap_name), self._stat(name)
        is_current = current is not None and current.ino == ino
        if self.stat_swap(old) is not None:
            is_placed = self._finish_aside(name, swap_name, is_current=is_current)
            done = Recovered(old, is_placed)
        elif waiting is None or waiting.ino == ino:
            self.unlink_swap(swap_name)
            done = Recovered(None, is_current)
        else:
            done = Recovered(swap_name, is_placed=True)
        self.sync()
        return done

    # What lies in swap/.

    def swap_names(self) -> list[str]:
        """Return the names in ``swap/``, sorted."""
        return [] if self._swap_fd is None else list_names(self._swap_fd)

    def leftovers(self, known: Collection[str]) -> list[str]:
        """Return the names in ``swap/`` but for those known, the oldest file first."""
        kept = [
            (found.mtime_ns, name)
            for name in self.swap_names()
            if name not in known and (found := self.stat_swap(name)) is not None
        ]
        return [name for _, name in sorted(kept)]

    def stat_swap(self, swap_name: str) -> FileStat | None:
        """Return the stat of what has this name in ``swap/``, if there is anything."""
        return _lstat(self._swap, swap_name)

    def read_swap(self, swap_name: str, *, limit_bytes: int) -> tuple[bytes, FileStat]:
        """Read a file in ``swap/``; see ``reading.read_settled``.

        Raises:
            FileNotFoundError: If there is none of this name.

        """
        with self.open_swap(swap_name) as fd:
            return read_settled(fd, limit_bytes=limit_bytes)

    @contextlib.contextmanager
    def open_swap(self, swap_name: str) -> Iterator[int]:
        """Open a file in ``swap/`` for reading, as ``leases.leased`` needs it."""
        with opened(self._swap, swap_name) as fd:
            yield fd

    def unlink_swap(self, swap_name: str) -> None:
        """Remove a name from ``swap/``, if it is there."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(component(swap_name), dir_fd=self._swap)

    @property
    def _swap(self) -> int:
        return self._writable(self._swap_fd)

    @staticmethod
    def _writable(fd: int | None) -> int:
        if fd is None:
            raise RuntimeError("nothing is changed in a folder opened for a dry run")
        return fd

    def _stat(self, name: str) -> FileStat | None:
        return _lstat(self._folder_fd, name)

    def _is_plain(self, swap_name: str) -> bool:
        found = self.stat_swap(swap_name)
        return found is not None and found.is_plain

    def _take_out(self, name: str, swap_name: str) -> None:
        # A rename would overwrite; only this mirror makes names in swap/.
        if self.stat_swap(swap_name) is not None:
            raise FileExistsError(swap_name)
        self._rename_out(name, swap_name)
        if not self._is_plain(swap_name):
            self._put_back(swap_name, name)
            raise not_a_file()

    def _rename_out(self, name: str, swap_name: str) -> None:
        os.rename(
            component(name),
            component(swap_name),
            src_dir_fd=self._folder_fd,
            dst_dir_fd=self._swap,
        )

    def _put_back(self, swap_name: str, name: str) -> None:
        found = self.stat_swap(swap_name)
        if found is not None and found.is_folder:
            # Folders have no second name, and are never renamed over a file.
            os.rename(
                swap_name, name, src_dir_fd=self._swap, dst_dir_fd=self._folder_fd
            )
            return
        self.link_in(swap_name, name)
        self.unlink_swap(swap_name)

    def _finish_aside(self, name: str, swap_name: str, *, is_current: bool) -> bool:
        """End a move aside after the first rename; tell whether the file was placed."""
        if self.stat_swap(swap_name) is None:
            return True
        with contextlib.suppress(FileExistsError):
            self.link_in(swap_name, name)
            is_current = True
        if is_current:
            self.unlink_swap(swap_name)
        return is_current


def aside_name(swap_name: str) -> str:
    """Return where a file is moved that a swap file is to be linked in the place of."""
    return f"{swap_name}.old"


def _lstat(folder_fd: int, name: str) -> FileStat | None:
    try:
        return FileStat.of(os.lstat(component(name), dir_fd=folder_fd))
    except FileNotFoundError:
        return None
