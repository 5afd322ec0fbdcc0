"""Errors of setting up a client: its own files, which are left as they were."""

from crdtmem.errors.tree import ConfigError

__all__ = ["ConfigTakenError", "ConfigUnparsableError"]


class ConfigTakenError(ConfigError):
    """A client's file has an entry of our name that is not ours; nothing was written.

    Args:
        path: The file.
        entry: The name of the entry.
        snippet: What would have been put there.

    """

    code = "config-taken"

    def __init__(self, *, path: str, entry: str, snippet: str) -> None:
        super().__init__(
            f"{path} has an entry {entry} that crdtmem did not make",
            hint=f"rename or remove it, or put this there yourself:\n{snippet}",
            details={"path": path, "entry": entry, "snippet": snippet},
        )


class ConfigUnparsableError(ConfigError):
    """A client's file cannot be edited safely; nothing was written.

    Args:
        path: The file.
        reason: What is wrong with it.
        snippet: What would have been put there.

    """

    code = "config-unparsable"

    def __init__(self, *, path: str, reason: str, snippet: str) -> None:
        super().__init__(
            f"{path} cannot be edited: {reason}",
            hint=f"put this there yourself:\n{snippet}",
            details={"path": path, "reason": reason, "snippet": snippet},
        )
