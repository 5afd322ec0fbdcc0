"""Reading a settings file that may have been written by anybody."""

import os
import re
import stat
from collections.abc import Mapping
from typing import NamedTuple, NoReturn

from crdtmem.errors import ConfigError
from crdtmem.limits import CONFIG_FILE_BYTES, PROJECT_FILE_BYTES

__all__ = [
    "SettingsFile",
    "flatten_table",
    "name_of",
    "parse_settings",
    "read_project_text",
    "read_user_text",
]

# The reader's reasons may repeat a key of any length.
_REASON_CHARS = 120
_BARE_KEY = r"[A-Za-z0-9_-]+"


class SettingsFile(NamedTuple):
    """What a settings file says.

    Attributes:
        path: Where it is.
        text: What stands in it.
        values: Each raw value, by the name of its key.

    """

    path: str
    text: str
    values: Mapping[str, object]

    def line_of(self, name: str) -> int | None:
        """Return the line, from 1, on which a key stands, if that can be told."""
        # Only errors ask for a line.
        from crdtmem.config.statements import split_statements  # noqa: PLC0415 - see above

        for statement in split_statements(self.text):
            if name_of(statement.path) == name:
                return statement.first_line + 1
        return None


def read_user_text(path: str) -> str | None:
    """Return the text of the user's settings file, None if there is none.

    Raises:
        ConfigError: ``config-invalid`` if it is too long, no text or no file.

    """
    return _read_text(path, limit_bytes=CONFIG_FILE_BYTES, follow_links=True)


def read_project_text(path: str) -> str | None:
    """Return the text of a project's settings file, None if there is none.

    A symbolic link is refused: that of a repository could point at anything, and
    errors show what stands in a file.

    Raises:
        ConfigError: ``config-invalid`` if it is too long, no text or no file.

    """
    return _read_text(path, limit_bytes=PROJECT_FILE_BYTES, follow_links=False)


def parse_settings(path: str, text: str) -> SettingsFile:
    """Return what the text of a settings file says.

    Raises:
        ConfigError: ``config-invalid`` if it is not TOML.

    """
    import tomllib  # noqa: PLC0415 - most of a bare start, and most have no file

    try:
        # Editors of Windows begin a file with a byte order mark, which TOML forbids.
        table = tomllib.loads(text.removeprefix("\ufeff"))
    except (ValueError, RecursionError) as exc:
        # Numbers that are too long and nesting that is too deep come from hostile
        # files; the reader has no errors of its own for them.
        _refuse(path, f"is not TOML: {str(exc)[:_REASON_CHARS]}", exc)
    return SettingsFile(path, text, flatten_table(table))


def flatten_table(table: Mapping[str, object]) -> dict[str, object]:
    """Return the values of a parsed file by the names of their keys.

    Names have at most two parts, so deeper tables stay what they are, and are refused
    as the value of a key or together with their unknown name.
    """
    values: dict[str, object] = {}
    for outer, value in table.items():
        if isinstance(value, dict) and value:
            values |= {name_of((outer, inner)): v for inner, v in value.items()}
        else:
            values[name_of((outer,))] = value
    return values


def name_of(path: tuple[str, ...]) -> str:
    """Return the name of the key at a path, as a settings file would spell it."""
    return ".".join(
        part if re.fullmatch(_BARE_KEY, part) else repr(part) for part in path[:2]
    )


def _read_text(path: str, *, limit_bytes: int, follow_links: bool) -> str | None:
    try:
        status = os.stat(path, follow_symlinks=follow_links)
        if not stat.S_ISREG(status.st_mode):
            _refuse(path, "is no regular file")
        with open(path, "rb") as file:
            content = file.read(limit_bytes + 1)
    except FileNotFoundError:
        return None
    except OSError as exc:
        _refuse(path, f"cannot be read: {exc.strerror}", exc)
    if len(content) > limit_bytes:
        _refuse(path, f"is longer than {limit_bytes} bytes")
    try:
        return content.decode()
    except UnicodeDecodeError as exc:
        _refuse(path, f"is not UTF-8, at byte {exc.start}", exc)


def _refuse(path: str, what: str, cause: BaseException | None = None) -> NoReturn:
    raise ConfigError(
        f"{path} {what}",
        code="config-invalid",
        hint="mend or remove the file",
        details={"file": path},
    ) from cause
