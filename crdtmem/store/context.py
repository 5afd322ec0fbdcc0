"""Where a store lives, and fresh ids for the replica that lives there.

A replica's client id is safe as long as one store file writes under it. A file that
was copied, restored or cloned must therefore notice that it is not where it was, and
take a new id before its first write. Two places look alike only if they are the same
file, on the same machine, since the same start of it, in the same container.

This module only looks and draws; ``crdtmem.store.identity`` remembers and decides.
"""

import hashlib
import json
import os
import secrets
import uuid
from collections.abc import Sequence
from pathlib import Path

from crdtmem.errors import StoreNotFoundError

__all__ = ["file_context", "new_replica_id", "store_context"]

_MACHINE_IDS = (Path("/etc/machine-id"), Path("/var/lib/dbus/machine-id"))
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_MOUNT_NAMESPACE = Path("/proc/self/ns/mnt")
_MULTICAST_BIT = 1 << 40


def file_context(path: Path) -> str:
    """Return a digest of which file on which machine a store is.

    As store_context, but the same after the machine has restarted.

    Raises:
        StoreNotFoundError: If there is no such file.

    """
    status = _stat(path)
    parts = [_machine_id(_MACHINE_IDS), status.st_dev, status.st_ino]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def store_context(path: Path) -> str:
    """Return a digest of the place where a store file lies.

    Equal for every process that opens the same file in the same place, until the
    machine restarts. A part that the system does not tell, such as the boot id outside
    Linux, counts as empty. Symbolic links are followed.

    The file is looked at, never opened: closing any descriptor of it would drop the
    locks that SQLite holds on it in this process (POSIX record locks).

    Raises:
        StoreNotFoundError: If there is no such file.

    """
    status = _stat(path)
    parts = [
        _machine_id(_MACHINE_IDS),
        _first_line(_BOOT_ID),
        status.st_dev,
        status.st_ino,
        _link_target(_MOUNT_NAMESPACE),
    ]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def _stat(path: Path) -> os.stat_result:
    try:
        return os.stat(path)
    except FileNotFoundError as exc:
        raise StoreNotFoundError(path=str(path)) from exc


def new_replica_id() -> bytes:
    """Draw 16 bytes that no other replica has."""
    # From the system each time: a generator of this process would give a forked
    # child the ids of its parent.
    return secrets.token_bytes(16)


def _machine_id(files: Sequence[Path]) -> str:
    for file in files:
        if line := _first_line(file):
            return line
    return _stable_node(uuid.getnode())


def _stable_node(node: int) -> str:
    # Without a network card getnode draws a number for each process, and marks it so
    # (RFC 9562, section 6.10). It would make every process a replica of its own.
    return "" if node & _MULTICAST_BIT else f"{node:012x}"


def _first_line(file: Path) -> str:
    try:
        lines = file.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        # Absent outside Linux and in small containers; the other parts must do.
        return ""
    return lines[0].strip() if lines else ""


def _link_target(link: Path) -> str:
    try:
        return str(link.readlink())
    except OSError:
        # As above.
        return ""
