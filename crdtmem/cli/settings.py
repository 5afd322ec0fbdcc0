"""The commands that name the project and keep the user's settings."""

import secrets

from crdtmem.cli.phrases import columns, setting_phrase
from crdtmem.cli.running import Call
from crdtmem.config import describe, user_config_path
from crdtmem.config.editing import (
    replace_project_id,
    set_user_value,
    unset_user_value,
    write_project_file,
)
from crdtmem.config.keys import known_key
from crdtmem.config.places import PROJECT_FILE
from crdtmem.errors import InvalidArgumentError, StoreNotFoundError
from crdtmem.scope import PROJECT_ID_BYTES, new_project_id

__all__ = ["config", "init"]


def init(call: Call, *, name: str | None, new_id: bool) -> None:
    """Give the repository a project file, unless it has one; clones share its id."""
    folder = call.config.project_folder
    chosen = new_project_id(secrets.token_bytes(PROJECT_ID_BYTES))
    if new_id and call.config.project_file is not None:
        replace_project_id(folder, project_id=chosen)
        found = chosen
    else:
        found = write_project_file(
            folder, project_id=chosen, name=name or folder.name or "project"
        )
    path = str(folder / PROJECT_FILE)
    is_new = found == chosen
    if call.out.as_json:
        call.out.json({"path": path, "id": found, "changed": is_new})
        return
    call.out.line(f"{path}: project {found}")
    call.out.note(
        "commit the file, so that every clone shares the project"
        if is_new
        else "it was there before; nothing was changed"
    )


def config(
    call: Call, *, action: str | None, key: str | None, value: str | None
) -> None:
    """Show settings with their sources, or change the user's file."""
    needed = _WORDS_OF[action or "list"]
    if (key is not None) + (value is not None) != needed:
        raise InvalidArgumentError(
            "key",
            f"'config {action or 'list'}' takes {needed} more, not"
            f" {(key is not None) + (value is not None)}",
            code="usage",
            hint="run 'crdtmem config --help'",
        )
    _ACTIONS[action or "list"](call, key or "", value or "")


def _list(call: Call, _key: str, _value: str) -> None:
    rows = describe(call.config)
    if call.out.as_json:
        settings = [{"key": k, "value": v, "source": s} for k, v, s in rows]
        call.out.json({"settings": settings})
        return
    for line in columns([(key, setting_phrase(v), f"({s})") for key, v, s in rows]):
        call.out.line(line)


def _get(call: Call, key: str, _value: str) -> None:
    rows = {name: (value, source) for name, value, source in describe(call.config)}
    known_key(key)
    value, source = rows[key]
    if call.out.as_json:
        call.out.json({"key": key, "value": value, "source": source})
        return
    call.out.line(setting_phrase(value))
    call.out.detail(f"from: {source}")


def _set(call: Call, key: str, value: str) -> None:
    path = user_config_path()
    set_user_value(path, key, value)
    if key == "history_keep":
        _keep_history(call, int(value))
    _tell_changed(call, key, is_changed=True)


def _unset(call: Call, key: str, _value: str) -> None:
    is_changed = unset_user_value(user_config_path(), key)
    _tell_changed(call, key, is_changed=is_changed)


def _path(call: Call, _key: str, _value: str) -> None:
    path = str(user_config_path())
    if call.out.as_json:
        call.out.json({"path": path})
    else:
        call.out.line(path)


def _keep_history(call: Call, count: int) -> None:
    """Tell the store too: it took the setting over when it was made."""
    try:
        call.open("read").configure(history_keep=count)
    except StoreNotFoundError:
        call.out.note("there is no store yet; it will be made with this setting")


def _tell_changed(call: Call, key: str, *, is_changed: bool) -> None:
    path = str(user_config_path())
    if call.out.as_json:
        call.out.json({"key": key, "path": path, "changed": is_changed})
    elif not call.out.is_quiet:
        call.out.line(f"{path}: {key} {'changed' if is_changed else 'was not set'}")


_WORDS_OF = {"list": 0, "get": 1, "set": 2, "unset": 1, "path": 0}
_ACTIONS = {"list": _list, "get": _get, "set": _set, "unset": _unset, "path": _path}
