"""Errors of the local store."""

from crdtmem.errors.tree import CrdtmemError

__all__ = [
    "NetworkFilesystemError",
    "PermissionDeniedError",
    "SchemaTooNewError",
    "StoreBusyError",
    "StoreClosedError",
    "StoreCorruptError",
    "StoreError",
    "StoreFullError",
    "StoreNotFoundError",
    "StoreReadOnlyError",
]


class StoreError(CrdtmemError):
    """The local store could not do its part."""

    code = "store-error"


class StoreBusyError(StoreError, TimeoutError):
    """The write lock was not had in time; nothing was written.

    Args:
        path: The lock file.
        pid: Who holds it, if that could be read.
        command: What the holder runs, likewise.
        waited_s: How long this call waited, in seconds.

    """

    code = "store-busy"
    exit_status = 6
    http_status = 503

    def __init__(
        self, *, path: str, pid: int | None, command: str | None, waited_s: float
    ) -> None:
        holder = f"process {pid} ({command})" if pid else "an unknown process"
        super().__init__(
            f"the store is busy: {holder} held its write lock for all of"
            f" {waited_s:.1f} s",
            hint="repeat the call with the same request id; run 'crdtmem doctor' if"
            " it stays busy",
            details={"path": path, "pid": pid, "command": command, "waited": waited_s},
        )


class StoreClosedError(StoreError):
    """The handle has been closed."""

    code = "store-closed"
    hint = "open the store again"
    exit_status = 7

    def __init__(self, *, path: str) -> None:
        super().__init__(f"this handle on {path} is closed", details={"path": path})


class StoreReadOnlyError(StoreError):
    """The handle was opened for reading only."""

    code = "store-read-only"
    hint = "open the store without read_only"
    exit_status = 8
    http_status = 403

    def __init__(self, *, path: str) -> None:
        super().__init__(f"{path} was opened for reading only", details={"path": path})


class StoreNotFoundError(StoreError, FileNotFoundError):
    """There is no store, and none was to be made."""

    code = "store-not-found"
    hint = "run 'crdtmem append LABEL TEXT': the first write makes the store"
    exit_status = 3
    http_status = 404

    def __init__(self, *, path: str) -> None:
        super().__init__(f"there is no store at {path}", details={"path": path})


class StoreFullError(StoreError):
    """The disk is full; nothing was written, and reads go on."""

    code = "store-full"
    hint = "free some space and repeat the call; 'crdtmem compact' frees a little"
    exit_status = 5
    http_status = 507

    def __init__(self, *, path: str) -> None:
        super().__init__(f"no space is left for {path}", details={"path": path})


class StoreCorruptError(StoreError):
    """The file is damaged, or no store of crdtmem."""

    code = "store-corrupt"
    hint = "run 'crdtmem doctor --deep', or go back to a backup"
    exit_status = 7

    def __init__(self, *, path: str, reason: str) -> None:
        super().__init__(
            f"{path} cannot be used: {reason}", details={"path": path, "reason": reason}
        )


class SchemaTooNewError(StoreError):
    """A newer crdtmem has written the store; this one leaves it alone."""

    code = "schema-too-new"
    hint = "upgrade crdtmem in this environment"
    exit_status = 7

    def __init__(self, *, path: str, found: int, known: int) -> None:
        super().__init__(
            f"{path} has schema {found}, and this crdtmem knows up to {known}",
            details={"path": path, "found": found, "known": known},
        )


class NetworkFilesystemError(StoreError):
    """SQLite's locks and shared memory cannot be trusted on that file system."""

    code = "network-filesystem"
    hint = "keep the store on a local disk and sync machines through a relay"
    exit_status = 7

    def __init__(self, *, path: str, filesystem: str) -> None:
        super().__init__(
            f"{path} lies on a network file system ({filesystem})",
            details={"path": path, "filesystem": filesystem},
        )


class PermissionDeniedError(StoreError, PermissionError):
    """The system forbids it, or the modes of the place are not safe."""

    code = "permission-denied"
    exit_status = 8
    http_status = 403

    def __init__(self, *, path: str, action: str, hint: str | None = None) -> None:
        super().__init__(
            f"not permitted: cannot {action} {path}",
            hint=hint,
            details={"path": path, "action": action},
        )
