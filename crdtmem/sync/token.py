"""The file that holds a relay's token: read when a connection is made, never kept."""

import os
import stat
from pathlib import Path

from crdtmem.errors import ConfigError, PermissionDeniedError
from crdtmem.limits import TOKEN_FILE_BYTES

__all__ = ["read_token", "token_stamp"]

_OTHERS = stat.S_IRWXG | stat.S_IRWXO


def read_token(path: Path) -> str:
    """Return the token in a file, without the blanks around it.

    Raises:
        PermissionDeniedError: If others may read the file.
        ConfigError: ``config-invalid`` if it cannot be read, or holds no token.

    """
    try:
        with path.open("rb") as file:
            # Of the open file: the one behind the name may be another by now.
            mode = os.fstat(file.fileno()).st_mode
            found = file.read(TOKEN_FILE_BYTES + 1)
    except OSError as exc:
        raise _unusable(path, f"cannot be read: {exc.strerror}") from exc
    if os.name == "posix" and mode & _OTHERS:
        raise PermissionDeniedError(
            path=str(path),
            action="use, because others may read it,",
            hint=f"run 'chmod 600 {path}'",
        )
    token = found.decode("ascii", "replace").strip()
    if len(found) > TOKEN_FILE_BYTES or not token.isascii() or len(token.split()) != 1:
        raise _unusable(path, "does not hold one token and nothing else")
    return token


def token_stamp(path: Path) -> int:
    """Return a number that changes when the file does; 0 while there is none."""
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return 0


def _unusable(path: Path, why: str) -> ConfigError:
    return ConfigError(
        f"token file {path} {why}",
        code="config-invalid",
        hint="write the token that the relay's owner gave you into it",
        details={"key": "relay.token_file", "path": str(path)},
    )
