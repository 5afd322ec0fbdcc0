"""``crdtmem key``: the keys of encrypted namespaces, by the files that hold them.

No secret is an argument, and none is printed: what an agent runs and reads is kept.
"""

import os
import sys
from collections.abc import Callable
from pathlib import Path

from crdtmem.cli.running import Call
from crdtmem.config import user_config_path
from crdtmem.errors import InvalidArgumentError, KeyringError
from crdtmem.limits import KEYRING_BYTES
from crdtmem.sealing import Keyring, check_available
from crdtmem.sync.keyring import (
    add_key,
    new_keyring,
    parse_keyring,
    process_keyring,
    read_keyring,
    write_keyring,
)

__all__ = ["default_keyring", "key"]

_STDIN = "-"
_MARK = "fd:"


def key(call: Call, *, action: str, file: str | None, keyring: str | None) -> None:
    """Make keys, carry them from machine to machine, or tell which there are."""
    if (file is None) == (action in ("export", "import")):
        takes = "no FILE" if file is not None else "a FILE"
        raise InvalidArgumentError(
            "file",
            f"'key {action}' takes {takes}",
            code="usage",
            hint="run 'crdtmem key --help'",
        )
    check_available()
    found = call.config.relay_keyring_file or default_keyring()
    path = found if keyring is None else Path(keyring).absolute()
    _ACTIONS[action](call, path, file or "")


def default_keyring() -> Path:
    """Return where keys are kept if nobody says otherwise."""
    return user_config_path().with_name("keyring.toml")


def _create(call: Call, path: Path, _: str) -> None:
    made = new_keyring()
    write_keyring(path, made, is_new=True)
    _tell(call, path, made, "made")
    call.out.note("'crdtmem key export FILE' copies it for another machine")


def _list(call: Call, path: Path, _: str) -> None:
    _tell(call, path, read_keyring(path), "")


def _rotate(call: Call, path: Path, _: str) -> None:
    made = add_key(read_keyring(path))
    write_keyring(path, made)
    _tell(call, path, made, "rotated")
    call.out.note("the next sync seals with it; export it to the other machines now")


def _import(call: Call, path: Path, file: str) -> None:
    found = _read(file)
    if path.exists():
        try:
            found = read_keyring(path).merged(found)
        except InvalidArgumentError as exc:
            raise KeyringError(
                path=str(path), reason=f"differs: {exc.message}"
            ) from None
    write_keyring(path, found)
    _tell(call, path, found, "imported")


def _export(call: Call, path: Path, file: str) -> None:
    found = read_keyring(path)
    if file == _STDIN:
        raise InvalidArgumentError(
            "file",
            "keys are not printed: whoever reads the output would keep them",
            hint="name a file; it is made for its owner alone",
        )
    write_keyring(Path(file).absolute(), found, is_new=True)
    _tell(call, Path(file).absolute(), found, "exported")


def _read(file: str) -> Keyring:
    """Read keys from where somebody has put them: a file, stdin, a descriptor."""
    if file == _STDIN:
        return parse_keyring(sys.stdin.buffer.read(KEYRING_BYTES + 1), "of stdin")
    if file.startswith(_MARK):
        return process_keyring(file)
    return read_keyring(Path(os.path.abspath(file)))


def _tell(call: Call, path: Path, keyring: Keyring, done: str) -> None:
    ids = list(keyring.ids)
    if call.out.as_json:
        call.out.json({"path": str(path), "ids": ids, "newest": ids[-1]})
        return
    noun = "key" if len(ids) == 1 else "keys"
    words = [f"{path}:", done, noun, ", ".join(map(str, ids))]
    call.out.line(" ".join(filter(None, words)))


_ACTIONS: dict[str, Callable[[Call, Path, str], None]] = {
    "create": _create,
    "export": _export,
    "import": _import,
    "list": _list,
    "rotate": _rotate,
}
