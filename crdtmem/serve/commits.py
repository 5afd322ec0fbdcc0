"""Who wants to know is told when anybody commits anything to the store.

One look for the whole server: soon again after a commit, for more will follow while
somebody types, and seldom while all is quiet.
"""

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from crdtmem.errors import CrdtmemError
from crdtmem.limits import COMMITS_QUIET_S, COMMITS_SOON_S, COMMITS_STIR_S
from crdtmem.store.about import data_version
from crdtmem.store.store import Store

__all__ = ["Commits"]

Listener = Callable[[], None]


class Commits:
    """Looks whether the store has changed, as long as anybody listens.

    Args:
        store_path: The store's file.

    """

    def __init__(self, store_path: Path) -> None:
        self._store_path = store_path
        self._listeners: set[Listener] = set()
        self._task: asyncio.Task[None] | None = None

    def join(self, listener: Listener) -> None:
        """Call a listener after commits, those of this server too; and once at once."""
        self._listeners.add(listener)
        asyncio.get_running_loop().call_soon(listener)
        if self._task is None:
            self._task = asyncio.create_task(self._look())

    def leave(self, listener: Listener) -> None:
        """Call it no more."""
        self._listeners.discard(listener)
        if not self._listeners and self._task is not None:
            self._task.cancel()
            self._task = None

    async def _look(self) -> None:
        store = Store(self._store_path, read_only=True)
        seen: int | None = None
        stirred_s = time.monotonic()
        try:
            while True:
                found = None
                # Who listens reads the store, too, and says that it cannot.
                with suppress(CrdtmemError), store.reading() as connection:
                    found = data_version(connection)
                if found != seen:
                    seen = found
                    stirred_s = time.monotonic()
                    for listener in list(self._listeners):
                        listener()
                is_stirred = time.monotonic() < stirred_s + COMMITS_STIR_S
                await asyncio.sleep(COMMITS_SOON_S if is_stirred else COMMITS_QUIET_S)
        finally:
            store.close()
