"""Errors of a relay: of its folder, its log and the address that it listens on."""

from crdtmem.errors.tree import CrdtmemError

__all__ = [
    "InsecureBindError",
    "PortInUseError",
    "RelayError",
    "RelayFolderError",
    "RelayRunningError",
    "StorageBusyError",
    "StorageCorruptError",
    "StorageError",
    "StorageFullError",
    "StorageLostError",
    "StorageReadOnlyError",
    "StorageUncertainError",
    "StorageUnreachableError",
    "StorageUnsafeError",
    "TokenNotFoundError",
]


class RelayError(CrdtmemError):
    """The relay could not do its part."""

    code = "relay-error"


class RelayFolderError(RelayError):
    """The folder cannot be a relay's, or is not one.

    Args:
        path: The folder.
        reason: What is wrong with it.
        hint: What to run instead.

    """

    code = "relay-folder"
    exit_status = 2
    http_status = 400

    def __init__(self, *, path: str, reason: str, hint: str = "") -> None:
        super().__init__(
            f"{path} {reason}", hint=hint, details={"path": path, "reason": reason}
        )


class RelayRunningError(RelayError):
    """Another process serves this folder."""

    code = "relay-running"
    hint = "stop it first, or make another relay with 'crdtmem relay init DIR'"
    exit_status = 6
    http_status = 503

    def __init__(self, *, path: str) -> None:
        super().__init__(
            f"a relay is already running on {path}", details={"path": path}
        )


class InsecureBindError(RelayError):
    """The relay would send tokens and texts over the network in the clear."""

    code = "insecure-bind"
    hint = (
        "pass --tls-cert and --tls-key, or --behind-proxy with the addresses of a"
        " proxy that has them"
    )
    exit_status = 2
    http_status = 400

    def __init__(self, *, address: str) -> None:
        super().__init__(
            f"{address} is no loopback address, and there is no certificate",
            details={"address": address},
        )


class PortInUseError(RelayError):
    """Another process listens on the address."""

    code = "port-in-use"
    hint = "pass another one with --listen"
    exit_status = 6
    http_status = 503

    def __init__(self, *, address: str) -> None:
        super().__init__(f"{address} is in use", details={"address": address})


class TokenNotFoundError(RelayError, LookupError):
    """The relay knows no token of this id."""

    code = "token-not-found"
    hint = "run 'crdtmem relay token list DIR' to see what there is"
    exit_status = 3
    http_status = 404

    def __init__(self, *, token_id: str) -> None:
        super().__init__(f"no token {token_id!r}", details={"token_id": token_id})


class StorageError(RelayError):
    """The relay's log could not do its part."""

    code = "storage-error"


class StorageFullError(StorageError):
    """No room is left on the disk; nothing was stored, and reads go on."""

    code = "storage-full"
    hint = "free some space: the relay takes records again by itself"
    exit_status = 5
    http_status = 507

    def __init__(self, *, path: str) -> None:
        super().__init__(f"no space is left for {path}", details={"path": path})


class StorageBusyError(StorageError, TimeoutError):
    """Another process keeps the log locked; nothing was stored."""

    code = "busy"
    hint = "try again in a few seconds"
    exit_status = 6
    http_status = 503

    def __init__(
        self, *, path: str, reason: str = "is locked by another process"
    ) -> None:
        super().__init__(f"{path} {reason}", details={"path": path, "reason": reason})


class StorageUnreachableError(StorageBusyError):
    """The database could not be reached, or was lost before a commit began.

    Args:
        path: The database, without any password.
        reason: What the network or the server said.

    """

    code = "storage-unreachable"
    hint = "see whether the database runs; a running relay tries again by itself"

    def __init__(self, *, path: str, reason: str) -> None:
        super().__init__(path=path, reason=f"cannot be reached: {reason}")


class StorageReadOnlyError(StorageBusyError):
    """The database takes no writes at present; reads go on.

    Args:
        path: The database, without any password.
        reason: What the server said.

    """

    code = "storage-read-only"
    hint = "see why the database is read-only; a running relay tries again by itself"

    def __init__(self, *, path: str, reason: str) -> None:
        super().__init__(path=path, reason=f"is read-only: {reason}")


class StorageUnsafeError(StorageError):
    """The database might lose what it acknowledges, so nothing is stored there.

    Args:
        path: The database, without any password.
        reason: Which setting is wrong, or what is too old.

    """

    code = "storage-unsafe"
    hint = "change that in the database's settings, and start the relay again"
    exit_status = 7

    def __init__(self, *, path: str, reason: str) -> None:
        super().__init__(
            f"{path} cannot be trusted with a log: {reason}",
            details={"path": path, "reason": reason},
        )


class StorageUncertainError(StorageError):
    """The disk failed in the middle of a commit, which may be stored or not.

    Nothing of it may be acknowledged, and the process should end: what the system
    remembers of a file whose sync has failed is not to be trusted.

    Attributes:
        ends_process: Whether that is so; not where another process has the disk.

    """

    ends_process = True
    code = "storage-failed"
    hint = "look after the disk, and start the relay again"
    exit_status = 74
    http_status = 500

    def __init__(self, *, path: str, reason: str) -> None:
        super().__init__(
            f"it is uncertain what {path} holds: {reason}",
            details={"path": path, "reason": reason},
        )


class StorageLostError(StorageUncertainError):
    """The connection to the database was lost in a commit: it may be stored or not.

    Nothing of it may be acknowledged. The relay goes on: what was committed, the
    database knows.
    """

    ends_process = False
    code = "storage-lost"
    hint = "the relay tries again by itself; clients send again what was not confirmed"

    def __init__(self, *, path: str) -> None:
        super().__init__(path=path, reason="the connection was lost in a commit")


class StorageCorruptError(StorageError):
    """The log is damaged, or no relay's."""

    code = "storage-corrupt"
    hint = "run 'crdtmem relay check DIR', or go back to a backup"
    exit_status = 7

    def __init__(self, *, path: str, reason: str) -> None:
        super().__init__(
            f"{path} cannot be used: {reason}", details={"path": path, "reason": reason}
        )
