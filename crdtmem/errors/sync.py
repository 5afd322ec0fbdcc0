"""Errors of sync: the relay, the way to it, and the links."""

from collections.abc import Sequence

from crdtmem.errors.tree import SyncError

__all__ = [
    "InsecureUrlError",
    "LeaseHeldError",
    "LinkChangedError",
    "LinkExistsError",
    "LinkNotFoundError",
    "LinkOverlapError",
    "LinkRefusedError",
    "RelayRefusedError",
    "RelayUnreachableError",
    "UnsentWritesError",
]


class RelayUnreachableError(SyncError, ConnectionError):
    """The relay was not reached, or not kept; another attempt may succeed.

    Args:
        url: Of the relay.
        cause: What happened, as a code such as ``timeout``, ``1006`` or ``http-503``.
        reason: The same for people; never a token.
        retry_s: How long the relay asks to wait; 0 where it does not.

    """

    code = "relay-unreachable"
    hint = "run 'crdtmem sync status' to see what waits; nothing is lost meanwhile"

    def __init__(
        self, *, url: str, cause: str, reason: str, retry_s: float = 0.0
    ) -> None:
        super().__init__(
            f"the relay at {url} is not reachable: {reason}",
            details={"url": url, "cause": cause, "reason": reason},
        )
        self.cause = cause
        self.reason = reason
        self.retry_s = retry_s


class RelayRefusedError(SyncError, PermissionError):
    """The relay, or the way to it, says no, and will again until something changes.

    Args:
        url: Of the relay.
        cause: Why, as a code such as ``unauthorized``, ``forbidden`` or
            ``tls-untrusted``.
        reason: The same for people; never a token.

    """

    code = "relay-refused"
    hint = "run 'crdtmem sync status', and ask the relay's owner if it is the token"

    def __init__(self, *, url: str, cause: str, reason: str) -> None:
        super().__init__(
            f"the relay at {url} refused: {reason}",
            details={"url": url, "cause": cause, "reason": reason},
        )
        self.cause = cause
        self.reason = reason


class LeaseHeldError(SyncError, TimeoutError):
    """Another process syncs this store, and was not done in time.

    Args:
        path: The lease's file.
        pid: Who holds it, if that could be read.
        command: What the holder runs, likewise.
        waited_s: How long this call waited, in seconds.

    """

    code = "lease-held"
    hint = "run 'crdtmem sync status' to see how far it is"

    def __init__(
        self, *, path: str, pid: int | None, command: str | None, waited_s: float
    ) -> None:
        holder = f"process {pid} ({command})" if pid else "another process"
        super().__init__(
            f"{holder} syncs this store, and was not done within {waited_s:.1f} s",
            details={"path": path, "pid": pid, "command": command, "waited": waited_s},
        )


class InsecureUrlError(SyncError, ValueError):
    """A token would be sent over a connection that anybody on the way can read."""

    code = "insecure-url"
    hint = "use wss://; ws:// is for relays on this machine"
    exit_status = 2
    http_status = 400

    def __init__(self, *, url: str) -> None:
        super().__init__(
            f"the token would be sent unencrypted to {url}", details={"url": url}
        )


class LinkRefusedError(SyncError):
    """A link cannot be made or taken away as things are; nothing was changed."""

    code = "link-refused"
    exit_status = 4
    http_status = 409


class LinkExistsError(LinkRefusedError, FileExistsError):
    """The namespace is linked; it syncs with one relay at a time.

    Args:
        local: The namespace here: a project id, or ``global``.
        remote: What the relay calls it.
        url: Of the relay.

    """

    code = "link-exists"
    hint = "run 'crdtmem sync unlink' first"

    def __init__(self, *, local: str, remote: str, url: str) -> None:
        super().__init__(
            f"'{local}' is linked to '{remote}' at {url}",
            details={"local": local, "remote": remote, "url": url},
        )


class LinkOverlapError(LinkRefusedError):
    """Slots have text here and there that came about apart.

    A merge would put one text behind the other.

    Args:
        local: The namespace here.
        labels: The slots.

    """

    code = "link-overlap"
    hint = (
        "run it again with '--on-overlap merge' to keep both texts in each slot, or"
        " with '--on-overlap rename' to move the local slots to LABEL_local"
    )

    def __init__(self, *, local: str, labels: Sequence[str]) -> None:
        super().__init__(
            f"slots of '{local}' have texts of their own on the relay:"
            f" {', '.join(labels)}",
            details={"local": local, "labels": list(labels)},
        )


class UnsentWritesError(LinkRefusedError):
    """The relay does not have everything that was written here.

    Args:
        local: The namespace here.
        writes: How many writes it does not have.

    """

    code = "unsent-writes"
    hint = (
        "run 'crdtmem sync once' to send them, or 'crdtmem sync unlink --force';"
        " they stay in the store either way"
    )

    def __init__(self, *, local: str, writes: int) -> None:
        noun = "write" if writes == 1 else "writes"
        super().__init__(
            f"{writes} {noun} of '{local}' have not been sent",
            details={"local": local, "writes": writes},
        )


class LinkNotFoundError(SyncError, LookupError):
    """The namespace is not linked to a relay.

    Args:
        local: The namespace here: a project id, or ``global``.

    """

    code = "link-not-found"
    hint = "run 'crdtmem sync link wss://HOST' first"
    exit_status = 3
    http_status = 404

    def __init__(self, *, local: str) -> None:
        super().__init__(
            f"'{local}' is not linked to a relay", details={"local": local}
        )


class LinkChangedError(SyncError):
    """The link is not what it was: the store has other ids now, or syncs elsewhere.

    What is under way on its connection counts for nothing; the next one is made anew.

    Args:
        local: The namespace here: a project id, or ``global``.

    """

    code = "link-changed"
    hint = "connect again"

    def __init__(self, *, local: str) -> None:
        super().__init__(
            f"the link of '{local}' changed while it was in use",
            details={"local": local},
        )
