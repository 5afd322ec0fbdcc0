"""Sync until nothing is missing on either side, whoever does it."""

import asyncio
import time
from pathlib import Path
from random import Random

from crdtmem.errors import LeaseHeldError, LinkNotFoundError
from crdtmem.limits import SYNC_POLL_IDLE_S
from crdtmem.sealing import Keyring
from crdtmem.store.lease import Lease, lease_path_for, lease_state
from crdtmem.store.link_status import LinkReport, link_reports
from crdtmem.store.store import Store
from crdtmem.sync.driver import Driver

__all__ = ["sync_once"]


def sync_once(
    store: Store,
    *,
    token: str | None,
    timeout_s: float,
    keyring: Keyring | None = None,
    rng: Random | None = None,
) -> None:
    """Sync all links of a store until nothing is missing on either side.

    If another process syncs the store, waits for its word that it is done.

    Args:
        store: The store.
        token: What the environment holds, for links without a token file.
        timeout_s: Longest time for all of it.
        keyring: What the environment holds, for encrypted links without a keyring file.
        rng: For delays; None: the system's.

    Raises:
        LinkNotFoundError: If there is no link.
        LeaseHeldError: If another process has the lease, and was not done in time.
        RelayRefusedError: If a relay does not take or give what is missing.
        RelayUnreachableError: If it was not done in time.

    """
    started = time.monotonic()
    lease = Lease(lease_path_for(store.path))
    try:
        while not lease.take():
            if _is_done(store):
                return
            waited_s = time.monotonic() - started
            if waited_s >= timeout_s:
                raise _held(lease.path, waited_s)
            time.sleep(min(SYNC_POLL_IDLE_S, timeout_s))
        left_s = max(0.0, timeout_s - (time.monotonic() - started))
        driver = Driver(store, token=token, keyring=keyring, rng=rng)
        asyncio.run(driver.once(timeout_s=left_s))
    finally:
        lease.release()


def _is_done(store: Store) -> bool:
    """Tell whether the process that syncs the store says that nothing is missing."""
    with store.snapshot() as connection:
        reports = link_reports(connection)
    if not reports:
        raise LinkNotFoundError(local="this store")
    return all(map(_is_in_sync, reports))


def _is_in_sync(report: LinkReport) -> bool:
    return (
        report.notes.get("state") == "connected"
        and report.notes.get("is_in_sync", False)
        and report.notes.get("head", 0) <= report.link.cursor.seq
        and not report.unsent.writes
    )


def _held(path: Path, waited_s: float) -> LeaseHeldError:
    _, holder = lease_state(path)
    return LeaseHeldError(
        path=str(path),
        pid=holder.pid if holder else None,
        command=holder.command if holder else None,
        waited_s=waited_s,
    )
