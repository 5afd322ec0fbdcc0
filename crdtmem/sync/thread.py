"""Sync beside a program that has other things to do.

A daemon thread with its own event loop and its own handle on the store. It never blocks
its host and never breaks it: whatever goes wrong is noted for the status, and tried
again.
"""

import asyncio
import logging
import threading
from collections.abc import Callable
from pathlib import Path
from random import Random, SystemRandom
from typing import TYPE_CHECKING

from crdtmem.errors import KeyringError
from crdtmem.limits import LEASE_RETRY_S, SYNC_CLOSE_S, SYNC_RESTART_S
from crdtmem.protocol.backoff import delays
from crdtmem.store.lease import Lease, lease_path_for
from crdtmem.store.link_status import has_links
from crdtmem.store.store import Store

if TYPE_CHECKING:
    from crdtmem.sealing import Keyring
    from crdtmem.sync.board import Board
    from crdtmem.sync.driver import Driver

__all__ = ["SyncThread"]

_LOGGER = logging.getLogger(__name__)


class SyncThread:
    """Syncs a store in the background, while no other process does.

    Args:
        path: The store's file; the thread opens it for itself.
        token: What the environment holds, for links without a token file.
        keyring_text: Likewise, for encrypted links without a keyring file.
        rng: For delays; None: the system's.
        board: Where presences are, if anybody wants them.

    """

    def __init__(
        self,
        path: Path,
        *,
        token: str | None = None,
        keyring_text: str | None = None,
        rng: Random | None = None,
        board: "Board | None" = None,
    ) -> None:
        self._board = board
        self._path = path
        self._token = token
        self._keyring_text = keyring_text
        self._keyring: Keyring | None = None
        self._rng = rng or SystemRandom()
        self._is_stopping = threading.Event()
        self._mutex = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._driver: Driver | None = None
        self._thread = threading.Thread(
            target=self._run, name="crdtmem-sync", daemon=True
        )

    def start(self) -> None:
        """Begin; once."""
        self._thread.start()

    def wake(self) -> None:
        """Tell of a write, so that it is sent at once."""
        self._call(lambda driver: driver.wake())

    def stop(self, timeout_s: float = 2 * SYNC_CLOSE_S) -> bool:
        """Send what there is, say bye, and end; return whether it was done in time."""
        self._is_stopping.set()
        self._call(lambda driver: driver.stop())
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _call(self, call: "Callable[[Driver], None]") -> None:
        """Have the driver do something in its loop, if there is one."""
        with self._mutex:
            if self._loop is not None and self._driver is not None:
                self._loop.call_soon_threadsafe(call, self._driver)

    def _run(self) -> None:
        pauses = delays(self._rng)
        while not self._is_stopping.is_set():
            try:
                self._sync()
                pauses = delays(self._rng)
                wait_s = LEASE_RETRY_S * self._rng.uniform(0.8, 1.2)
            except Exception:
                wait_s = min(next(pauses), SYNC_RESTART_S)
                _LOGGER.exception("sync failed, and begins anew in %.1f s", wait_s)
            self._is_stopping.wait(wait_s)

    def _sync(self) -> None:
        """Sync for as long as there are links, if no other process does."""
        if not self._path.exists():
            return
        store = Store(self._path, create=False)
        lease = Lease(lease_path_for(store.path))
        try:
            with store.reading() as connection:
                is_needed = has_links(connection)
            if is_needed and lease.take():
                asyncio.run(self._drive(store))
        except Exception as exc:
            self._note_fault(store, exc)
            raise
        finally:
            lease.release()
            store.close()

    def _note_fault(self, store: Store, fault: Exception) -> None:
        from crdtmem.sync.journal import note_fault  # noqa: PLC0415 - as below

        if isinstance(fault, KeyringError):
            note_fault(store, fault.code, fault.message)
            return
        note_fault(store, "internal-error", "a fault of crdtmem; its log has more")

    async def _drive(self, store: Store) -> None:
        # websockets and the document layer are slow to load: only who syncs needs them.
        from crdtmem.sync.driver import Driver  # noqa: PLC0415 - see above

        if self._keyring is None and self._keyring_text is not None:
            from crdtmem.sync.keyring import process_keyring  # noqa: PLC0415 - see above

            # A descriptor can be read once.
            self._keyring = process_keyring(self._keyring_text)
        driver = Driver(
            store,
            token=self._token,
            keyring=self._keyring,
            rng=self._rng,
            board=self._board,
        )
        with self._mutex:
            self._loop, self._driver = asyncio.get_running_loop(), driver
        try:
            if not self._is_stopping.is_set():
                await driver.run()
        finally:
            with self._mutex:
                self._loop = self._driver = None
