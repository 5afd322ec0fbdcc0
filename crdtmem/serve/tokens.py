"""The Bearer tokens: those of the token file, and the one that the command uses.

The file is looked at again whenever it has changed. One that cannot be used any more
lets nobody in, for a token that was taken out of it must not be good any longer.
"""

import logging
import os
import re
import stat
from pathlib import Path
from typing import NamedTuple

from crdtmem.errors import ConfigError, InvalidArgumentError
from crdtmem.limits import SERVE_TOKEN_FILE_BYTES
from crdtmem.scope import parse_lane
from crdtmem.serve.answers import Principal
from crdtmem.serve.session import digest_of

__all__ = ["CONTROL", "Token", "Tokens", "read_tokens"]

CONTROL = "control"
"""The name of the token with which ``crdtmem serve --url`` asks its server."""

_LOGGER = logging.getLogger(__name__)
_LINE = re.compile(r"(\S+)[ \t]+(read|write)[ \t]+([A-Za-z0-9_-]{32,512})")
_OTHERS = stat.S_IRWXG | stat.S_IRWXO


class Token(NamedTuple):
    """Who holds a token, and what it is good for."""

    name: str
    may_write: bool


class Tokens:
    """Finds who a Bearer token belongs to.

    Args:
        path: The token file; None: there is none.
        control: The token of the command line.
        lane: Who writes with that one.

    Raises:
        ConfigError: ``config-invalid``, if the file cannot be used.

    """

    def __init__(self, path: Path | None, *, control: str, lane: str) -> None:
        self._path = path
        self._control = digest_of(control)
        self._lane = lane
        self._stamp = _stamp_of(path)
        self._tokens = {} if path is None else read_tokens(path)

    def find(self, token: str) -> Principal | None:
        """Return who brings a token; None if nobody may."""
        digest = digest_of(token)
        if digest == self._control:
            return Principal(
                CONTROL,
                self._lane,
                may_write=True,
                token_id=digest,
                may_choose_lane=True,
            )
        found = self._current().get(digest)
        if found is None:
            return None
        return Principal(found.name, found.name, found.may_write, token_id=digest)

    def is_good(self, principal: Principal) -> bool:
        """Tell whether what a caller came with would still let it in, as it is."""
        if principal.token_id == self._control:
            return True
        found = self._current().get(principal.token_id or "")
        return found == Token(principal.name, principal.may_write)

    def _current(self) -> dict[str, Token]:
        if self._path is None:
            return self._tokens
        stamp = _stamp_of(self._path)
        if stamp != self._stamp:
            self._stamp = stamp
            try:
                self._tokens = read_tokens(self._path)
            except ConfigError as exc:
                self._tokens = {}
                _LOGGER.warning("no token is good any more: %s", exc.message)
        return self._tokens


def read_tokens(path: Path) -> dict[str, Token]:
    """Return the tokens of a file, by the hash of each.

    Raises:
        ConfigError: ``config-invalid``.

    """
    try:
        with path.open("rb") as file:
            status = os.fstat(file.fileno())
            raw = file.read(SERVE_TOKEN_FILE_BYTES + 1)
    except OSError as exc:
        raise _bad(path, f"cannot be read: {exc.strerror}") from exc
    if os.name == "posix" and status.st_mode & _OTHERS:
        mode = stat.S_IMODE(status.st_mode)
        raise _bad(path, f"has mode {mode:04o}, and others may look into it", mode=mode)
    if len(raw) > SERVE_TOKEN_FILE_BYTES:
        raise _bad(path, f"is longer than {SERVE_TOKEN_FILE_BYTES} bytes")
    try:
        lines = raw.decode().splitlines()
    except UnicodeDecodeError as exc:
        raise _bad(path, "is no UTF-8 text") from exc
    return _tokens_in(path, lines)


def _tokens_in(path: Path, lines: list[str]) -> dict[str, Token]:
    found: dict[str, Token] = {}
    names = {CONTROL}
    for number, line in enumerate(lines, 1):
        if not line.strip() or line.startswith("#"):
            continue
        match = _LINE.fullmatch(line.strip())
        if match is None:
            raise _bad(path, f"line {number} is not NAME read|write TOKEN", line=number)
        name, right, token = match.groups()
        _check_name(path, name, number)
        if name in names or digest_of(token) in found:
            raise _bad(path, f"line {number} has a name or token twice", line=number)
        names.add(name)
        found[digest_of(token)] = Token(name, right == "write")
    return found


def _check_name(path: Path, name: str, number: int) -> None:
    try:
        parse_lane(name)
    except InvalidArgumentError as exc:
        raise _bad(path, f"line {number}: {exc.message}", line=number) from exc


def _bad(path: Path, why: str, **details: object) -> ConfigError:
    return ConfigError(
        f"the token file {str(path)!r} {why}",
        code="config-invalid",
        hint="keep it as lines 'NAME read|write TOKEN', with mode 0600",
        details={"path": str(path), **details},
    )


def _stamp_of(path: Path | None) -> object:
    try:
        status = path.stat() if path is not None else None
    except OSError:
        return None
    if status is None:
        return None
    return (
        status.st_mtime_ns,
        status.st_ctime_ns,
        status.st_size,
        status.st_ino,
        status.st_mode,
    )
