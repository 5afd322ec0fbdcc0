"""What each source of settings says, checked.

Every function returns the values that its source sets, by name of the key, and reads
all of them: a bad value is an error also where another source would override it.
"""

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Literal

from crdtmem.config.files import (
    SettingsFile,
    parse_settings,
    read_project_text,
    read_user_text,
)
from crdtmem.config.keys import (
    BY_FIELD,
    BY_NAME,
    BY_VARIABLE,
    VARIABLES_OF_CONDENSE,
    Key,
    check_may_be_kept,
    shown,
    unknown_key,
)
from crdtmem.config.places import absolute_path
from crdtmem.errors import ConfigError, InvalidArgumentError, UntrustedConfigError
from crdtmem.scope import PROJECT_ID_PATTERN

__all__ = [
    "PROJECT_VARIABLE",
    "Source",
    "Values",
    "from_environment",
    "from_options",
    "from_project_file",
    "from_user_file",
    "project_folder",
    "project_from_text",
]

Source = Literal["option", "environment", "project file", "user file", "default"]
Values = dict[str, tuple[object, Source]]

PROJECT_VARIABLE = "CRDTMEM_PROJECT"


def project_from_text(text: str) -> str | Path:
    """Return what ``--project ID|PATH`` means: what is no id is a path."""
    return text if re.fullmatch(PROJECT_ID_PATTERN, text) or not text else Path(text)


def project_folder(
    options: Mapping[str, object], environ: Mapping[str, str], *, folder: str
) -> str:
    """Return the folder to resolve the project from.

    That is the one which an option or else a variable names, and else the one given.

    Raises:
        InvalidArgumentError: If an option names something that is no folder.
        ConfigError: If the variable does.

    """
    named = project_from_text(environ.get(PROJECT_VARIABLE, ""))
    found = folder
    if isinstance(named, Path):
        there = absolute_path(os.fspath(named), folder=folder, environ=environ)
        if not there.is_dir():
            raise _invalid(
                _no_folder(named), key="project.id", where=PROJECT_VARIABLE, value=named
            )
        found = os.fspath(there)
    option = options.get("project")
    if isinstance(option, os.PathLike):
        there = absolute_path(os.fspath(option), folder=folder, environ=environ)
        if not there.is_dir():
            raise InvalidArgumentError("project", _no_folder(option))
        return os.fspath(there)
    return folder if option is not None else found


def from_user_file(path: str, environ: Mapping[str, str]) -> Values:
    """Return what the user's settings file sets; a relative path is relative to it."""
    folder = os.path.dirname(os.path.abspath(path))
    text = read_user_text(path)
    if text is None:
        return {}
    file = parse_settings(path, text)
    return {
        key.name: (
            _resolved(key, _parse_from_file(key, raw, file), folder, environ),
            "user file",
        )
        for key, raw in _rows(file)
    }


def from_project_file(path: str) -> Values:
    """Return what a repository's file sets.

    Raises:
        UntrustedConfigError: If it sets what only the user may.

    """
    text = read_project_text(path)
    if text is None:
        return {}
    file = parse_settings(path, text)
    values: Values = {}
    for key, raw in _rows(file):
        if not key.in_project:
            line = file.line_of(key.name)
            instead = f"; run 'crdtmem config set {key.name} …' instead"
            raise UntrustedConfigError(
                f"{_place(path, line)} sets '{key.name}', which only the user may set",
                hint=f"take it out{instead if key.in_files else ''}",
                details={"key": key.name, "file": path, "line": line},
            )
        value = _parse_from_file(key, raw, file)
        if key.is_path:
            value = _own_path(key, str(value), file)
        values[key.name] = value, "project file"
    return values


def from_environment(environ: Mapping[str, str], *, folder: str) -> Values:
    """Return what variables set; a relative path is relative to the given folder."""
    values: Values = {}
    for variable, text in environ.items():
        if not variable.startswith("CRDTMEM_") or variable in VARIABLES_OF_CONDENSE:
            continue
        if variable not in BY_VARIABLE:
            raise unknown_key(variable, BY_VARIABLE, where="the environment")
        if variable == PROJECT_VARIABLE and isinstance(project_from_text(text), Path):
            # It names a folder, which is the business of project_folder.
            continue
        key = BY_VARIABLE[variable]
        raw = key.read(text)
        try:
            value = key.parse(raw, key.name)
        except InvalidArgumentError as exc:
            raise _invalid(
                exc.message, key=key.name, where=variable, value=_public(key, raw)
            ) from exc
        values[key.name] = _resolved(key, value, folder, environ), "environment"
    return values


def from_options(
    options: Mapping[str, object], environ: Mapping[str, str], *, folder: str
) -> Values:
    """Return what the caller was given; None counts as not given.

    Raises:
        InvalidArgumentError: If a value has a wrong type or range.

    """
    values: Values = {}
    for field, raw in options.items():
        if field not in BY_FIELD:
            raise unknown_key(field, BY_FIELD, where="the options")
        if raw is None or (field == "project" and isinstance(raw, os.PathLike)):
            continue
        key = BY_FIELD[field]
        value = key.parse(raw, field)
        values[key.name] = _resolved(key, value, folder, environ), "option"
    return values


def _rows(file: SettingsFile) -> Iterator[tuple[Key, object]]:
    """Yield the row and the raw value of each key in a file."""
    for name, raw in file.values.items():
        if name in BY_NAME:
            yield BY_NAME[name], raw
        elif raw != {} or not any(known.startswith(f"{name}.") for known in BY_NAME):
            # An empty table of ours sets nothing and is fine.
            line = file.line_of(name)
            where = _place(file.path, line)
            raise unknown_key(name, BY_NAME, where=where, line=line)


def _parse_from_file(key: Key, raw: object, file: SettingsFile) -> object:
    try:
        check_may_be_kept(key)
        return key.parse(raw, key.name)
    except InvalidArgumentError as exc:
        line = file.line_of(key.name)
        raise _invalid(
            exc.message,
            key=key.name,
            where=_place(file.path, line),
            file=file.path,
            line=line,
            value=_public(key, raw),
        ) from exc


def _public(key: Key, raw: object) -> object:
    """Return a refused value, unless it may hold a secret."""
    return "(hidden)" if key.is_private else raw


def _resolved(
    key: Key, value: object, folder: str, environ: Mapping[str, str]
) -> object:
    if key.is_path:
        return absolute_path(str(value), folder=folder, environ=environ)
    return value


def _own_path(key: Key, text: str, file: SettingsFile) -> Path:
    """Return where a path of a repository's file leads, links followed.

    Raises:
        UntrustedConfigError: If that is not in the repository.

    """
    folder = os.path.realpath(os.path.dirname(file.path))
    there = Path(os.path.realpath(os.path.join(folder, text)))
    if os.path.isabs(text) or not there.is_relative_to(folder):
        line = file.line_of(key.name)
        raise UntrustedConfigError(
            f"{_place(file.path, line)} sets '{key.name}' to {shown(text)}, which is"
            " not a relative path within its own folder",
            hint=f"take it out; run 'crdtmem config set {key.name} …' instead",
            details={"key": key.name, "file": file.path, "line": line},
        )
    return there


def _place(path: str, line: int | None) -> str:
    return path if line is None else f"{path}, line {line}"


def _no_folder(path: os.PathLike[str]) -> str:
    return f"project must be an id or a folder, not {shown(os.fspath(path))}"


def _invalid(
    message: str,
    *,
    key: str,
    where: str,
    value: object,
    file: str | None = None,
    line: int | None = None,
) -> ConfigError:
    return ConfigError(
        f"{where}: {message}",
        code="config-invalid",
        details={
            "key": key,
            "where": where,
            "file": file,
            "line": line,
            "value": shown(value),
        },
    )
