"""Changing one line of a settings file, and nothing else in it.

A changed text is read again before it is written: it must say what the old one said,
but for the one key. Where the lines of a file are too unusual to be changed that way,
its owner is asked to do it.
"""

import contextlib
import json
import os
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path

from crdtmem.config.files import (
    flatten_table,
    name_of,
    parse_settings,
    read_project_text,
    read_user_text,
)
from crdtmem.config.keys import check_may_be_kept, known_key, shown
from crdtmem.config.places import PROJECT_FILE
from crdtmem.config.statements import (
    Statement,
    read_or_none,
    split_lines,
    split_statements,
)
from crdtmem.errors import ConfigError, InvalidArgumentError
from crdtmem.scope import PROJECT_ID_PATTERN, parse_project_id, parse_project_name

__all__ = [
    "replace_project_id",
    "set_user_value",
    "unset_user_value",
    "write_project_file",
]

_PRIVATE = 0o600
_MARK = "\ufeff"
_SURROGATE = re.compile(r"[\ud800-\udfff]")


def set_user_value(path: Path, key: str, text: str) -> None:
    """Set a key in the user's settings file; make the file if there is none.

    Only the line of the key changes. The file is replaced as a whole and readable by
    its owner only; of two that set something at the same time the later one wins.

    Args:
        path: The file.
        key: Name of the key.
        text: The value, as on a command line. A relative path is relative to the
            current folder.

    Raises:
        InvalidArgumentError: If the value has a wrong type or range.
        ConfigError: If there is no such key, or the file cannot be read or changed.
            After either the file is as it was.

    """
    row = known_key(key)
    check_may_be_kept(row)
    raw = row.read(text)
    row.parse(raw, key)
    if _SURROGATE.search(text):
        # Such a path may exist, but no TOML file can name it.
        raise InvalidArgumentError(key, f"{key} must be UTF-8, not {shown(text)}")
    if row.is_path and not text.startswith("~"):
        raw = os.path.abspath(text)
    old = read_user_text(os.fspath(path)) or ""
    new = _with_value(os.fspath(path), old, key, raw)
    with _writing(path):
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    _replace_file(path, new, _PRIVATE)


def unset_user_value(path: Path, key: str) -> bool:
    """Take a key out of the user's settings file; return whether it was there.

    A key that does not exist may be taken out too: that is how a file is mended.

    Raises:
        ConfigError: If the key is neither known nor there, or the file cannot be read
            or changed. After that the file is as it was.

    """
    old = read_user_text(os.fspath(path)) or ""
    values = dict(parse_settings(os.fspath(path), old).values)
    if key not in values:
        known_key(key)
        return False
    del values[key]
    mark, body = _split_mark(old)
    lines = split_lines(body)
    for statement in reversed(_statements_of(body, key)):
        del lines[statement.first_line : statement.end_line]
    new = mark + "".join(lines)
    _check(os.fspath(path), new, values)
    _replace_file(path, new, _PRIVATE)
    return True


def write_project_file(folder: Path, *, project_id: str, name: str) -> str:
    """Name the project that lies in a folder; return the id that is now in force.

    A file that is there is never overwritten: an id in it stays and is returned, and
    what is missing is added.

    Raises:
        InvalidArgumentError: If the id or the name is none.
        ConfigError: If the file that is there cannot be read or changed.

    """
    project_id, name = parse_project_id(project_id), parse_project_name(name)
    path = folder / PROJECT_FILE
    old = read_project_text(os.fspath(path))
    if old is None:
        text = f"[project]\nid = {_toml(project_id)}\nname = {_toml(name)}\n"
        # Not through a rename: a file that somebody else made meanwhile would be lost.
        with _writing(path), path.open("x", encoding="utf-8", newline="\n") as file:
            file.write(text)
        return project_id
    values = parse_settings(os.fspath(path), old).values
    present = values.get("project.id")
    if isinstance(present, str) and re.fullmatch(PROJECT_ID_PATTERN, present):
        return present
    new = _with_value(os.fspath(path), old, "project.id", project_id)
    if "project.name" not in values:
        new = _with_value(os.fspath(path), new, "project.name", name)
    _replace_file(path, new, path.stat().st_mode & 0o777)
    return project_id


def replace_project_id(folder: Path, *, project_id: str) -> None:
    """Give the project that lies in a folder another id, so that it parts from clones.

    Raises:
        InvalidArgumentError: If the id is none.
        ConfigError: If there is no project file, or it cannot be read or changed.

    """
    path = folder / PROJECT_FILE
    old = read_project_text(os.fspath(path))
    if old is None:
        raise ConfigError(
            f"there is no {PROJECT_FILE} in {folder}",
            code="config-invalid",
            hint="run 'crdtmem init'",
            details={"file": os.fspath(path)},
        )
    new = _with_value(os.fspath(path), old, "project.id", parse_project_id(project_id))
    _replace_file(path, new, path.stat().st_mode & 0o777)


def _with_value(path: str, old: str, key: str, raw: object) -> str:
    """Return the text of a file with one key set, checked."""
    values = parse_settings(path, old).values
    mark, body = _split_mark(old)
    statements = _statements_of(body, key)
    if statements:
        lines = split_lines(body)
        first, end = statements[0].first_line, statements[0].end_line
        lines[first:end] = [_with_other_value("".join(lines[first:end]), _toml(raw))]
        body = "".join(lines)
    else:
        body = _with_new_line(body, key, _toml(raw))
    _check(path, mark + body, {**values, key: raw})
    return mark + body


def _split_mark(text: str) -> tuple[str, str]:
    """Return a byte order mark, if there is one, and the rest."""
    body = text.removeprefix(_MARK)
    return text[: len(text) - len(body)], body


def _statements_of(text: str, key: str) -> list[Statement]:
    return [s for s in split_statements(text) if name_of(s.path) == key]


def _with_other_value(statement: str, value: str) -> str:
    """Return a statement with another value, its spaces and its comment kept."""
    # A quoted key may hold "=", and a value "#": the reader knows which one counts.
    equals = next(
        i
        for i, c in enumerate(statement)
        if c == "=" and read_or_none(f"{statement[: i + 1]} 0") is not None
    )
    whole = read_or_none(statement)
    end = next(
        (
            i
            for i, c in enumerate(statement)
            if c == "#" and i > equals and read_or_none(statement[:i]) == whole
        ),
        len(statement),
    )
    old = statement[equals + 1 : end]
    before = old[: len(old) - len(old.lstrip())]
    after = old[len(old.rstrip()) :]
    return f"{statement[: equals + 1]}{before}{value}{after}{statement[end:]}"


def _with_new_line(text: str, key: str, value: str) -> str:
    """Return a text with a key that it did not have, in the table it belongs to."""
    newline = "\r\n" if "\r\n" in text else "\n"
    if text and not text.endswith("\n"):
        text += newline
    lines = split_lines(text)
    table, _, leaf = key.rpartition(".")
    at, line = _place_of_new_line(list(split_statements(text)), table, leaf)
    if at is None:
        header = f"[{table}]{newline}"
        lines += [newline, header] if text else [header]
        at = len(lines)
    lines.insert(at, f"{line} = {value}{newline}")
    return "".join(lines)


def _place_of_new_line(
    statements: list[Statement], table: str, leaf: str
) -> tuple[int | None, str]:
    """Return before which line a key goes and how it is spelt there; None: nowhere."""
    path = (table,) if table else ()
    beside = [s for s in statements if s.table == path]
    if beside or not table:
        return max((s.end_line for s in beside), default=0), leaf
    # The table may have been begun by a dotted key, and then takes no header any more.
    dotted = [s for s in statements if s.table == () and s.path[:1] == path]
    if dotted:
        return dotted[-1].end_line, f"{table}.{leaf}"
    return None, leaf


def _check(path: str, new: str, wanted: dict[str, object]) -> None:
    found = read_or_none(_split_mark(new)[1])
    # A table that is empty, before or now, sets nothing.
    if found is None or _set_by(flatten_table(found)) != _set_by(wanted):
        raise ConfigError(
            f"{path} is written in a way that cannot be changed line by line",
            code="config-invalid",
            hint="change it in an editor",
            details={"file": path},
        )


def _set_by(values: dict[str, object]) -> dict[str, object]:
    return {name: value for name, value in values.items() if value != {}}


def _toml(value: object) -> str:
    """Return a value as TOML writes it."""
    if isinstance(value, list):
        return f"[{', '.join(_toml(item) for item in value)}]"
    # JSON and TOML agree on integers, decimal fractions and strings, but for one
    # control character that JSON leaves as it is.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def _replace_file(path: Path, text: str, mode: int) -> None:
    """Put a text in the place of a file, whole or not at all."""
    # Through a link, as those who keep their settings elsewhere want it.
    target = Path(os.path.realpath(path))
    with _writing(path):
        number, temporary = tempfile.mkstemp(prefix=target.name, dir=target.parent)
        try:
            with open(number, "w", encoding="utf-8", newline="") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            os.chmod(temporary, mode)
            os.replace(temporary, target)
        except BaseException:
            os.unlink(temporary)
            raise


@contextlib.contextmanager
def _writing(path: Path) -> Iterator[None]:
    """Tell in our own words that the system does not let us write a file."""
    try:
        yield
    except OSError as exc:
        raise ConfigError(
            f"{path} cannot be written: {exc.strerror}",
            code="config-invalid",
            details={"file": os.fspath(path)},
        ) from exc
