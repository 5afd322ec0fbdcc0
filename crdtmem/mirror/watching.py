"""Runs a mirror for as long as it is wanted: waits, and has it work off what happened.

Three things wake a mirror: events of its folder, the next look at the store, and a look
at every file now and then, because events can be lost. What is due then is the mirror's
business; here is only the waiting. All work runs on one thread, one cycle after the
other, so that the event loop stays free, and a cycle that has begun is always finished:
a swap is never left half done by who stops waiting.
"""

import asyncio
import logging
import os
import threading
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Protocol

from watchfiles import awatch

from crdtmem.aio import Worker
from crdtmem.errors import StoreBusyError, StoreFullError
from crdtmem.limits import (
    MIRROR_DEBOUNCE_MS,
    MIRROR_POLL_S,
    MIRROR_RESCAN_S,
    MIRROR_RETRY_S,
    MIRROR_STEP_MS,
)

__all__ = ["Noted", "Watched", "run"]

_logger = logging.getLogger(__name__)


class Watched(Protocol):
    """What a mirror offers to who runs it."""

    folder: Path

    @property
    def watched(self) -> tuple[Path, ...]:
        """The folders in which files change: ``folder``, and the swapped-out files'."""

    def note_events(self, names: set[str] | None) -> None:
        """Take note of files that may have changed; None is all of them."""

    def cycle(self, now_s: float) -> float:
        """Do what is due; return how many seconds later something may be again."""


class Noted:
    """Names that came up since they were last taken; None stands for all files.

    Between the event loop, which adds, and the one thread that takes.
    """

    def __init__(self) -> None:
        self.is_over = False
        self._happened = threading.Event()
        self._lock = threading.Lock()
        self._names: set[str] | None = None

    def add(self, names: Iterable[str] | None) -> None:
        """Note some names, or that everything has to be looked at."""
        with self._lock:
            if names is None:
                self._names = None
            elif self._names is not None:
                self._names.update(names)
        self._happened.set()

    def take(self) -> set[str] | None:
        """Return what was noted, and begin anew."""
        with self._lock:
            names, self._names = self._names, set()
            self._happened.clear()
        return names

    def end(self) -> None:
        """Tell who takes that he may go."""
        self.is_over = True
        self._happened.set()

    def wait(self, timeout_s: float) -> None:
        """Return once something was noted or all is over, or after some seconds."""
        self._happened.wait(timeout_s)


async def run(mirror: Watched, stop: asyncio.Event | None = None) -> None:
    """Mirror until it is told to end, or cancelled.

    Told to end, it finishes what it is doing and looks at everything once more. When
    this returns or raises, nothing of it runs any more.

    Raises:
        CrdtmemError: What the mirror raises, but for a store that is busy or a disk
            that is full: then it tries again.

    """
    stop = asyncio.Event() if stop is None else stop
    noted = Noted()
    worker = Worker()
    watching = asyncio.create_task(_watch(mirror, noted))
    stopping = asyncio.create_task(stop.wait())
    # The watcher is set up before the first look, so nothing falls in between.
    await asyncio.sleep(0)
    working = asyncio.create_task(worker.run(_work, mirror, noted))
    try:
        await asyncio.wait({working, stopping}, return_when=asyncio.FIRST_COMPLETED)
        noted.end()
        await working
        await worker.run(_step, mirror, None)
    finally:
        noted.end()
        watching.cancel()
        stopping.cancel()
        await asyncio.gather(watching, stopping, working, return_exceptions=True)
        # A cycle that has begun is not left half done, though its waiter was cancelled.
        await asyncio.shield(worker.run(int))
        worker.stop()


def _work(mirror: Watched, noted: Noted) -> None:
    """Do one cycle after the other, on the worker's thread.

    The waiting is done here, too: a hop to the event loop and back each 0.1 s costs
    several times what a cycle does that finds nothing to do.
    """
    rescanned_s = time.monotonic()
    while not noted.is_over:
        if time.monotonic() - rescanned_s >= MIRROR_RESCAN_S:
            rescanned_s = time.monotonic()
            noted.add(None)
        noted.wait(_step(mirror, noted.take()))


def _step(mirror: Watched, names: set[str] | None) -> float:
    """Do one cycle; return how many seconds to wait before the next."""
    if names is None or names:
        mirror.note_events(names)
    try:
        return min(mirror.cycle(time.monotonic()), MIRROR_POLL_S)
    except (StoreBusyError, StoreFullError) as error:
        _logger.warning("the mirror of %s tries again: %s", mirror.folder, error)
        mirror.note_events(None)
        return MIRROR_RETRY_S


async def _watch(mirror: Watched, noted: Noted) -> None:
    """Note what the system tells of the folder, for ever.

    Only this folder and the one of swapped-out files are watched, not what lies below
    them: ten thousand folders of a source tree would use up the user's share of
    watches, and what the mirror itself notes beside its swaps would wake it again.
    """
    prefix = f"{mirror.folder}{os.sep}"
    while True:
        try:
            # It ends by an error only, or when this task is cancelled.
            async for changes in awatch(  # pragma: no branch - see above
                *mirror.watched,
                watch_filter=None,
                debounce=MIRROR_DEBOUNCE_MS,
                step=MIRROR_STEP_MS,
                recursive=False,
            ):
                noted.add(path.removeprefix(prefix) for _, path in changes)
        except (OSError, RuntimeError) as error:
            # A folder that is gone, or no watches left: then it is looked at instead.
            _logger.warning("%s cannot be watched: %s", mirror.folder, error)
        await asyncio.sleep(MIRROR_RETRY_S)
        noted.add(None)
