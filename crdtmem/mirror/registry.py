"""Which folders a store mirrors: known by the id in the folder and the store's rows."""

import os
import secrets
from pathlib import Path
from typing import TYPE_CHECKING

from crdtmem.errors import InvalidArgumentError, MirrorNotFoundError
from crdtmem.mirror.folder import STATE_NAME, MirrorFolder
from crdtmem.mirror.values import BlockedFile, MirrorStatus
from crdtmem.scope import scope_of
from crdtmem.session import Session
from crdtmem.store.about import about_store
from crdtmem.store.flock import try_lock
from crdtmem.store.mirrors import (
    MirrorRow,
    delete_mirror,
    files_of,
    find_mirror,
    mirrors_of,
    retired_of,
    save_mirror,
)
from crdtmem.store.store import Store

if TYPE_CHECKING:
    from crdtmem.store.connection import Connection

__all__ = ["HINTS", "forget", "hint_for", "identify", "statuses"]

_ID_BYTES = 16

HINTS = {
    "mirror-foreign-owner": "make the file belong to the user who runs the mirror",
    "mirror-hard-link": "replace the file by a copy that has one name only",
    "mirror-mass-deletion": "put the files back, or delete the slots by command",
    "mirror-not-a-file": "replace it by a plain file, or give it another name",
    "permission-denied": "let the user who runs the mirror read it",
    "size-limit-exceeded": "condense the slot, or raise its limit",
    "slot-quarantined": "run 'crdtmem doctor'",
    "source-encoding-invalid": "save the file as UTF-8",
    "swap-failed": "free space on the disk, or look at the folder's permissions",
    "text-too-large": "split the file: a text may have 1,048,576 bytes",
}
"""What to do about a file that is blocked, by the reason."""


def hint_for(reason: str) -> str:
    """Return what to do about a file that is blocked."""
    return HINTS.get(reason, "look at 'crdtmem mirror status'")


def identify(
    session: Session, namespace: str, folder: MirrorFolder, now_ms: int
) -> str:
    """Return the id of the mirror that a folder is, a new one at first contact.

    A folder that was moved stays what it is. One that was copied gets a new id while
    the other is still there; so does one that another store has mirrored.

    Raises:
        InvalidArgumentError: If it mirrors another namespace of this store.

    """
    place = folder.place()
    path = str(folder.path)
    with session.store.reading() as connection:
        replica = about_store(connection, str(session.store.path)).replica.hex()
        row = _known(connection, folder, replica)
    if row is not None and row.namespace != namespace:
        raise InvalidArgumentError(
            "folder",
            f"{path} mirrors the slots of {row.namespace!r}, not of {namespace!r}",
            hint=f"run 'crdtmem mirror forget {path}' first",
        )
    with session.writing() as writing:
        connection = writing.transaction.connection
        # Only now: a store that was copied gets its own id with its first write.
        replica = writing.transaction.replica.hex()
        if row is None:
            row = MirrorRow(secrets.token_hex(_ID_BYTES), namespace, path, 0, 0, now_ms)
        for other in mirrors_of(connection):
            if other.folder == path and other.mirror != row.mirror:
                # Its id is gone from there, and nothing leads to its rows any more.
                delete_mirror(connection, other.mirror)
        save_mirror(connection, row._replace(folder=path, dev=place.dev, ino=place.ino))
    if folder.read_id() != (row.mirror, replica):
        folder.write_id(row.mirror, replica)
    return row.mirror


def forget(store: Store, folder: os.PathLike[str] | str) -> None:
    """Forget all that is known of a mirrored folder; its files stay.

    Raises:
        MirrorNotFoundError: If the store does not mirror it.
        MirrorBusyError: If a process mirrors it now.

    """
    path = os.path.realpath(folder)
    with store.reading() as connection:
        rows = [row for row in mirrors_of(connection) if row.folder == path]
    if not rows:
        raise MirrorNotFoundError(folder=path)
    if os.path.isdir(path):
        with MirrorFolder.open(path):
            _forget(store, rows)
        return
    _forget(store, rows)


def statuses(store: Store) -> tuple[MirrorStatus, ...]:
    """Return the mirrors of a store, by folder, from any process."""
    with store.reading() as connection:
        return tuple(_status(connection, row) for row in mirrors_of(connection))


def _forget(store: Store, rows: list[MirrorRow]) -> None:
    with store.writing() as transaction:
        for row in rows:
            delete_mirror(transaction.connection, row.mirror)


def _known(
    connection: "Connection", folder: MirrorFolder, replica: str
) -> MirrorRow | None:
    found = folder.read_id()
    if found is None or found[1] != replica:
        return None
    row = find_mirror(connection, found[0])
    place = folder.place()
    if row is None or (row.dev, row.ino) == (place.dev, place.ino):
        return row
    try:
        registered = os.stat(row.folder)
    except OSError:
        return row
    is_copy = (registered.st_dev, registered.st_ino) == (row.dev, row.ino)
    return None if is_copy else row


def _status(connection: "Connection", row: MirrorRow) -> MirrorStatus:
    files = files_of(connection, row.mirror)
    is_running, pid = _holder(Path(row.folder))
    return MirrorStatus(
        folder=row.folder,
        scope=scope_of(row.namespace),
        namespace=row.namespace,
        mirror=row.mirror,
        files=len(files),
        retired=len(retired_of(connection, row.mirror)),
        blocked=tuple(
            BlockedFile(
                file=file.name,
                label=file.label,
                reason=file.blocked,
                hint=hint_for(file.blocked),
            )
            for file in files
            if file.blocked
        ),
        is_running=is_running,
        pid=pid,
    )


def _holder(folder: Path) -> tuple[bool, int | None]:
    """Tell whether a process has the lock of a folder, and which."""
    try:
        fd = os.open(folder / STATE_NAME / "lock", os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return False, None
    try:
        if try_lock(fd):
            return False, None
        content = os.pread(fd, 64, 0)
    finally:
        os.close(fd)
    try:
        return True, int(content)
    except ValueError:
        return True, None
