"""The lease of a store: the right to be the one process that syncs it.

A lock on a file beside the store's. It lasts as long as its process, however that
ends, and whoever wants it tries again now and then: nobody stands in line, since a
second syncing process gains nothing.
"""

from pathlib import Path

from crdtmem.errors import StoreBusyError
from crdtmem.store.lock import Holder, StoreLock, is_locked, read_holder
from crdtmem.store.placement import lock_path_for

__all__ = ["Lease", "lease_path_for", "lease_state"]


def lease_path_for(store_path: Path) -> Path:
    """Return the lease's file: ``store.sync.lock`` beside ``store.db``."""
    return lock_path_for(store_path).with_suffix(".sync.lock")


def lease_state(path: Path) -> tuple[bool, Holder | None]:
    """Tell whether a lease is held, and by whom if that can be read.

    Takes a free one for a moment, so who tries to take it just then has to try again.
    """
    if not is_locked(path):
        return False, None
    return True, read_holder(path)


class Lease:
    """One process's way to a lease; calls come from one thread at a time.

    Args:
        path: The lease's file.

    Attributes:
        is_held: Whether this object holds it.

    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.is_held = False
        self._lock = StoreLock(path)

    def take(self) -> bool:
        """Take the lease unless another holds it, and say whether it is held now.

        Raises:
            PermissionDeniedError: If the file cannot be opened, or is another's.

        """
        if not self.is_held:
            try:
                self._lock.acquire(0)
            except StoreBusyError:
                # Closed, so that the holder's record tells when it took the lease and
                # not when it tried first.
                self._lock.close()
                return False
            self.is_held = True
        return True

    def release(self) -> None:
        """Let another process take it; idempotent."""
        self.is_held = False
        self._lock.close()
