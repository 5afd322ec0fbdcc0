"""Errors of Markdown mirrors: the folder, and files that cannot be taken."""

from crdtmem.errors.tree import CrdtmemError

__all__ = [
    "MirrorBusyError",
    "MirrorError",
    "MirrorNotFoundError",
    "MirrorUnsafeError",
    "UnreadableFileError",
]


class MirrorError(CrdtmemError):
    """A mirror could not do its part."""

    code = "mirror-error"


class MirrorBusyError(MirrorError, BlockingIOError):
    """Another process mirrors this folder; nothing was read or written.

    Args:
        folder: The folder.
        pid: Who mirrors it, if that could be read.

    """

    code = "mirror-busy"
    hint = "run 'crdtmem mirror status' to see what it does"
    exit_status = 6
    http_status = 503

    def __init__(self, *, folder: str, pid: int | None) -> None:
        holder = f"process {pid}" if pid else "another process"
        super().__init__(
            f"{holder} mirrors {folder} already", details={"folder": folder, "pid": pid}
        )


class MirrorUnsafeError(MirrorError):
    """Files of that folder cannot be replaced without losing what others write.

    Args:
        folder: The folder.
        reason: What its file system, or this system, lacks.

    """

    code = "mirror-unsafe-filesystem"
    hint = "mirror into a folder on a local disk that knows hard links"
    exit_status = 7

    def __init__(self, *, folder: str, reason: str) -> None:
        super().__init__(
            f"{folder} cannot be mirrored safely: {reason}",
            details={"folder": folder, "reason": reason},
        )


class MirrorNotFoundError(MirrorError, LookupError):
    """The store knows no mirror of this folder.

    Args:
        folder: The folder.

    """

    code = "mirror-not-found"
    hint = "run 'crdtmem mirror status' to see the folders that are mirrored"
    exit_status = 3
    http_status = 404

    def __init__(self, *, folder: str) -> None:
        super().__init__(f"{folder} is not mirrored", details={"folder": folder})


class UnreadableFileError(MirrorError, ValueError):
    """A file cannot be taken over as it is: its mirror blocks it and leaves it alone.

    Never reaches a caller of the library: the mirror reports the code as the reason,
    goes on with the other files, and tries again once the file changes.

    Args:
        code: ``text-too-large``, ``source-encoding-invalid``, ``mirror-not-a-file``,
            ``mirror-hard-link``, ``mirror-foreign-owner`` or ``permission-denied``.
        sentence: What is wrong, with the values, as in every message; without the
            file's name, which the report shows beside it.

    """

    code = "mirror-file-unreadable"
    exit_status = 10
    http_status = 400

    def __init__(self, code: str, sentence: str) -> None:
        super().__init__(sentence, code=code)
