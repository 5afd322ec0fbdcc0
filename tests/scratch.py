"""Folders in memory, for tests that write much and whose faults are not a disk's."""

import os
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["grow_disk", "scratch", "small_disk"]

MEMORY = "/dev/shm"


@contextmanager
def scratch() -> Iterator[Path]:
    """Give an empty folder, on a file system in memory where there is one.

    A sync costs nothing there, and several milliseconds on a disk. A process that is
    killed leaves the same behind on both; `tests.powercut` plays its own disk.
    """
    root = MEMORY if os.access(MEMORY, os.W_OK) else None
    with tempfile.TemporaryDirectory(dir=root) as folder:
        yield Path(folder).resolve()


@contextmanager
def small_disk(mib: int) -> Iterator[Path]:
    """Give an empty folder on a disk of its own, of so many MiB.

    Raises:
        OSError: If nothing can be mounted here; only root may.

    """
    with scratch() as folder:
        _mount("-t", "tmpfs", "-o", f"size={mib}m,mode=1777", "tmpfs", str(folder))
        try:
            yield folder
        finally:
            subprocess.run(["umount", "--lazy", str(folder)], check=True)


def grow_disk(folder: Path, mib: int) -> None:
    """Make room on a small disk that is full."""
    _mount("-o", f"remount,size={mib}m", str(folder))


def _mount(*words: str) -> None:
    ran = subprocess.run(["mount", *words], capture_output=True, check=False)
    if ran.returncode:
        raise OSError(f"cannot mount here: {ran.stderr!a}")
