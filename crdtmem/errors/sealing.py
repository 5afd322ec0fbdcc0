"""Errors of encryption: keys that are missing, or cannot be used."""

from crdtmem.errors.tree import ConfigError, SyncError

__all__ = ["KeyMissingError", "KeyringError"]


class KeyringError(ConfigError):
    """A keyring cannot be used; nothing was changed.

    Args:
        path: The file, or what else it was read from.
        reason: Why; never a secret.

    """

    code = "keyring-invalid"
    hint = (
        "run 'crdtmem key create' for a new one, or 'crdtmem key import' for another's"
    )

    def __init__(self, *, path: str, reason: str) -> None:
        super().__init__(
            f"the keyring {path} {reason}", details={"path": path, "reason": reason}
        )


class KeyMissingError(SyncError):
    """A namespace is encrypted, and this process has no key of it.

    Args:
        local: The namespace here: a project id, or ``global``.

    """

    code = "key-missing"
    hint = "run 'crdtmem key import' with what another machine has exported"

    def __init__(self, *, local: str) -> None:
        super().__init__(
            f"'{local}' is encrypted, and there is no key of it",
            details={"local": local},
        )
