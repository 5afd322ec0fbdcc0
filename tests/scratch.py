"""Folders in memory, for tests that write much and whose faults are not a disk's."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["scratch"]

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
